# SPDX-License-Identifier: GPL-2.0-only
"""This module has the entry point of the program: `uetproto` and `python -m uetproto` start here.

From the first line of `run` on, a signal ends the program without a traceback, even while modules are imported or the
interpreter ends. The exit status is 130 for Ctrl-C and 143 for SIGTERM.
"""

import atexit
import os
import signal
import sys
from types import FrameType


def _leave(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def _ignore() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def run() -> None:
    """Run the command line of this process, and end the process with the exit status of the command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    atexit.register(_ignore)  # runs last: from then on Python would take its handlers away, and all is written
    # If a standard stream is closed at the start, no other file may get its file descriptor.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    from uetproto.cli.interrupt import raised
    from uetproto.cli.main import COMPLETE_VARIABLE, cli

    if COMPLETE_VARIABLE in os.environ:  # a shell asks what may stand at the cursor
        cli.main(prog_name="uetproto")
    with raised():
        status = cli.status(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    sys.exit(status)
