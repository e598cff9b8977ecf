# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto serve` in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Serving:
    """A running `uetproto serve --json`, and what it prints."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.told: dict[str, Any] = self.line()

    def line(self) -> dict[str, Any]:
        """Return the next line that it prints, once it does."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def ended(self, seconds: float = 20) -> tuple[int, dict[str, Any]]:
        """Return exit status and summary, once it has ended."""
        out, _ = self.process.communicate(timeout=seconds)
        lines = out.splitlines()
        return self.process.returncode, json.loads(lines[-1]) if lines else {}


@contextmanager
def serving(local: str, *arguments: str, prefix: tuple[str, ...] = ()) -> Iterator[Serving]:
    """Run `uetproto serve` at an address, and end it at last."""
    command = [*prefix, sys.executable, "-m", "uetproto", "serve", "--local", local, "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Serving(process)
        finally:
            process.kill()
