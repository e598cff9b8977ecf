# SPDX-License-Identifier: GPL-2.0-only
"""This adapter drives an implementation in another process, which reads requests as JSON lines from standard input and
writes an answer to each to standard output.

docs/howto/machines.md has the schema. A request is {"call": NAME, …}; an answer is {"result": …}, {"refused": TEXT} or
{"error": TEXT}. Frames are hexadecimal text.
"""

import json
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError, shown
from uetproto.testing.adapters.adapter import (
    REAL,
    AdapterFault,
    Capabilities,
    WorkRefused,
    capabilities_of,
)

TIMEOUT = 10.0
"""Seconds that an answer may take, unless the caller sets another limit."""
LONGEST = 64 << 20
"""Bytes that an answer may have."""
VERSION = 1
"""Version of the schema. The first request states this version."""
_LAST_WORDS = 2000
"""Bytes of standard error that a fault shows."""


class ProcessAdapter:
    """This adapter starts a command at its first call, and again after a fault."""

    def __init__(self, command: str | Sequence[str], timeout: float = TIMEOUT) -> None:
        """`command` is a command line or a list of words; `timeout` is in seconds. Starts the process and asks for its
        capabilities. Raises `LocalError` for a command that cannot be started, `AdapterFault` for wrong answers."""
        try:
            self.words = shlex.split(command) if isinstance(command, str) else list(command)
        except ValueError as error:
            raise LocalError(
                "command", f"{shown(command)}: {error}", "a command line of the shell", id="adapter-not-loaded"
            ) from error
        if not self.words:
            raise LocalError("command", "it is empty", "a program and its arguments", id="adapter-not-loaded")
        self.timeout = timeout
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the process
        try:
            self._process = subprocess.Popen(
                self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0,
                process_group=0,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise LocalError(
                "command", f"{self.words[0]}: {error.strerror or error}", "a program", id="adapter-not-loaded"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        self._answers, self._requests = selectors.DefaultSelector(), selectors.DefaultSelector()
        self._answers.register(self._stdout, selectors.EVENT_READ)
        self._requests.register(self._stdin, selectors.EVENT_WRITE)
        self._rest = b""
        self.capabilities = self._hello()

    def _hello(self) -> Capabilities:
        try:
            told = self._ask("hello", version=VERSION)
            return capabilities_of(told.get("capabilities", {}) if isinstance(told, Mapping) else told)
        except (LocalError, WorkRefused) as error:
            self.close()
            what = f"it was refused: {error}" if isinstance(error, WorkRefused) else f"{error}"
            raise AdapterFault("adapter-garbage", f"hello: {what}") from error
        except AdapterFault:
            self.close()
            raise

    def _ask(self, call: str, seconds: float = 0.0, **values: Any) -> Any:
        """Send a request and return the result, for which the process has `seconds` more than for others. Raises
        `WorkRefused` and `AdapterFault`."""
        line = json.dumps({"call": call, **values}, separators=(",", ":")).encode() + b"\n"
        end = time.monotonic() + self.timeout + seconds
        try:
            self._write(call, line, end)
        except OSError:
            raise self._died(call) from None
        answer = self._line(call, end)
        try:
            found = json.loads(answer, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise AdapterFault("adapter-garbage", f"{call}: {shown(answer)} is no JSON") from None
        if not isinstance(found, dict) or not found.keys() & {"result", "refused", "error"}:
            raise AdapterFault(
                "adapter-garbage", f"{call}: {shown(found)} is not an object with result, refused or error"
            )
        if "refused" in found:
            raise WorkRefused(str(found["refused"]))
        if "error" in found:
            raise AdapterFault("adapter-raised", f"{call}: {found['error']}")
        return found["result"]

    def _write(self, call: str, line: bytes, end: float) -> None:
        """Write a request until the time `end`."""
        view = memoryview(line)
        while view:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                if not self._requests.select(max(0.0, end - time.monotonic())):
                    self.kill()
                    raise AdapterFault("adapter-hung", f"{call}: the request was not read in time") from None

    def _line(self, call: str, end: float) -> bytes:
        """Return the next line of standard output, which must come until the time `end`."""
        parts = [self._rest]
        size = len(self._rest)
        while b"\n" not in parts[-1]:
            if not self._answers.select(max(0.0, end - time.monotonic())):
                self.kill()
                raise AdapterFault("adapter-hung", f"{call}: no answer within {self.timeout:g} s")
            more = os.read(self._stdout, 1 << 16)
            if not more:
                raise self._died(call)
            parts.append(more)
            size += len(more)
            if size > LONGEST:
                self.kill()
                raise AdapterFault("adapter-garbage", f"{call}: an answer of more than {LONGEST} bytes")
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line

    def _died(self, call: str) -> AdapterFault:
        """Return the fault of a process that has ended."""
        status = self._status()
        if status is None:
            return AdapterFault("adapter-died", f"{call}: the process closed its standard output")
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_WORDS))
        words = self._errors.read().decode(errors="replace").strip()
        told = f"{call}: the process ended with {how}"
        if words:
            told += f": {words.splitlines()[-1].strip()}" + (f"\n{words}" if "\n" in words else "")
        return AdapterFault("adapter-died", told)

    # The calls of an adapter

    def reset(self, config: Mapping[str, Any]) -> None:
        self._ask("reset", config=config)

    def submit(self, work: Mapping[str, Any]) -> None:
        self._ask("submit", work=work)

    def deliver(self, frame: bytes) -> None:
        self._ask("deliver", frame=frame.hex())

    def poll(self) -> list[bytes]:
        found = self._ask("poll")
        try:
            if isinstance(found, list):
                return [bytes.fromhex(frame) for frame in found]
        except (TypeError, ValueError):
            pass
        raise AdapterFault("adapter-garbage", f"poll: {shown(found)} is not a list of hexadecimal texts")

    def advance(self, picoseconds: int) -> None:
        sleeps = picoseconds / SECOND if self.capabilities.time == REAL else 0.0
        self._ask("advance", sleeps, picoseconds=picoseconds)

    def observe(self) -> Any:
        return self._ask("observe") if self.capabilities.observable else None

    def close(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        self._answers.close()
        self._requests.close()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                file.close()
        self._status()

    def _status(self) -> int | None:
        """Wait a moment for the end of the process, and kill what is left. Return its exit status; None: it went on."""
        end = time.monotonic() + 1
        ended = self._process.returncode is not None
        while not ended and time.monotonic() < end:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
            if not ended:
                time.sleep(0.005)
        self.kill()
        return self._process.returncode if ended else None

    def kill(self) -> None:
        """Kill the process and those that it has started."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _no_number(name: str) -> None:
    """Refuse NaN and Infinity, which are no JSON."""
    raise ValueError(name)
