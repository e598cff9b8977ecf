# SPDX-License-Identifier: GPL-2.0-only
"""This program serves an adapter as JSON lines. `ProcessAdapter` starts it; it is an example for other programs.

python -m uetproto.testing.adapters.serve pdc                  our engine
python -m uetproto.testing.adapters.serve MODULE:CLASS         an adapter of somebody else
python -m uetproto.testing.adapters.serve ./my_stack.so        a shared library (LibraryAdapter)
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TextIO

from uetproto.errors import LocalError, shown
from uetproto.testing.adapters.adapter import Adapter, WorkRefused, capabilities_of, described
from uetproto.testing.adapters.named import adapter_named


def _calls(adapter: Adapter) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """Return what each request does; the argument is the request."""
    return {
        "hello": lambda _: {"version": 1, "capabilities": asdict(capabilities_of(adapter.capabilities))},
        "reset": lambda request: adapter.reset(request["config"]),
        "submit": lambda request: adapter.submit(request["work"]),
        "deliver": lambda request: adapter.deliver(bytes.fromhex(request["frame"])),
        "poll": lambda _: [frame.hex() for frame in adapter.poll()],
        "advance": lambda request: adapter.advance(request["picoseconds"]),
        "observe": lambda _: adapter.observe(),
    }


def serve(adapter: Adapter, requests: TextIO, answers: TextIO) -> None:
    """Answer requests until their end. An exception of the adapter becomes the answer `error`."""
    calls = _calls(adapter)
    for line in requests:
        try:
            request = json.loads(line)
            answer: dict[str, Any] = {"result": calls[request["call"]](request)}
        except WorkRefused as error:
            answer = {"refused": str(error)}
        except Exception as error:
            answer = {"error": described(error)}
        answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
        answers.flush()


def main(words: list[str]) -> int:
    """Serve the adapter that the command line names; return the exit status."""
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what the implementation prints is no answer
        try:
            adapter = adapter_named(words[0], own_process=False)()
        except LocalError as error:
            print(f"{shown(words[0])}: {error}", file=sys.stderr)
            return 2
        serve(adapter, sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
