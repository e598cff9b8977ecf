# SPDX-License-Identifier: GPL-2.0-only
"""This module measures tshark with the plugin for `uetproto bench`: user CPU, in percent of that of tshark without the
plugin, over the same capture.
"""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from uetproto.bench.engine import Figure
from uetproto.errors import LocalError
from uetproto.wireshark import PLUGIN

PACKETS = 50_000
NOBODY = 65534
FIELDS = ("-T", "fields")
PLAIN = (*FIELDS, "-e", "frame.number", "-e", "udp.srcport")
"""Arguments of the runs without the plugin, to which the others are compared."""
ANALYSIS = tuple(
    part for name in ("psn", "pdc", "acked_in", "analysis.rtt", "msg.time") for part in ("-e", f"uetp.{name}")
)
ROWS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("-e frame.number", (*FIELDS, "-e", "frame.number"), 500),
    ("-e uetp.psn", (*FIELDS, "-e", "uetp.psn"), 500),
    ("-e uetp.psn, verify off", (*FIELDS, "-e", "uetp.psn", "-o", "uetp.verify:FALSE"), 300),
    ("with PDC, ACK, RTT, message time", (*FIELDS, *ANALYSIS), 500),
    ("with the same, verify off", (*FIELDS, *ANALYSIS, "-o", "uetp.verify:FALSE"), 300),
    ("with the same, two passes", ("-2", *FIELDS, *ANALYSIS), 500),
    ("-e uetp.crc.status", (*FIELDS, "-e", "uetp.crc.status"), 1000),
    ("columns", (), 1000),
)
"""Runs with the plugin: what is printed, the arguments, and the highest percentage."""


def user_time(arguments: Sequence[str], home: Path) -> float:
    """Return the user CPU seconds of tshark. Raises `LocalError` if it fails or an error in Lua is reported.

    It has no settings of the user, and runs unprivileged where that is possible: as root, versions from 4.4 on ignore
    Lua.
    """
    command = ["tshark", "-n", *arguments]
    if os.geteuid() == 0 and shutil.which("setpriv"):
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, env=environment
    )
    if done.returncode or "Lua" in done.stderr:
        raise LocalError(f"bench: tshark: {done.stderr.strip()}", id="bench-failed")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def measure(quick: bool, folder: Path) -> Iterator[Figure]:
    """Yield the figure of each row: the least time of two runs, in percent of the least of two without the plugin, with
    which they alternate. There are no figures without tshark."""
    if shutil.which("tshark") is None:
        sys.stderr.write("bench: no tshark, so nothing to measure\n")
        return
    packets = PACKETS // 10 if quick else PACKETS
    capture, plugin = folder / "wireshark.pcapng", folder / PLUGIN.name
    command = [sys.executable, "-m", "uetproto", "generate", "mixed", "-o", str(capture), "--packets", str(packets)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.copyfile(PLUGIN, plugin)
    folder.chmod(0o755)
    with_plugin = ("-r", str(capture), "-X", f"lua_script:{plugin}")
    for what, arguments, most in ROWS:
        passes = ("-2",) if "-2" in arguments else ()
        pairs = [
            (user_time([*with_plugin, *arguments], folder), user_time(["-r", str(capture), *passes, *PLAIN], folder))
            for _ in range(2)
        ]
        took, plain = (min(pair[side] for pair in pairs) for side in (0, 1))
        yield Figure("wireshark", f"tshark {what}, of one without the plugin", 100 * took / plain, "%", most, True)
