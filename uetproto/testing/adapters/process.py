"""This adapter drives an implementation in another process, which reads requests as JSON lines from standard input and
writes an answer to each to standard output.

docs/machines.md has the schema. A request is {"call": NAME, …}; an answer is {"result": …}, {"refused": TEXT} or
{"error": TEXT}. Frames are hexadecimal text.
"""

import json
import os
import selectors
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from uetproto.errors import LocalError, shown
from uetproto.testing.adapters.adapter import AdapterFault, Capabilities, WorkRefused, capabilities_of

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
        self.words = shlex.split(command) if isinstance(command, str) else list(command)
        if not self.words:
            raise LocalError("command", "it is empty", "a program and its arguments")
        self.timeout = timeout
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the process
        try:
            self._process = subprocess.Popen(
                self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
            )
        except OSError as error:
            self._errors.close()
            raise LocalError("command", f"{self.words[0]}: {error.strerror or error}", "a program") from error
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._rest = b""
        self.capabilities = self._hello()

    def _hello(self) -> Capabilities:
        try:
            told = self._ask("hello", version=VERSION)
            return capabilities_of(told.get("capabilities", {}) if isinstance(told, Mapping) else told)
        except LocalError as error:
            self.close()
            raise AdapterFault("adapter-garbage", f"hello: {error}") from error
        except AdapterFault:
            self.close()
            raise

    def _ask(self, call: str, **values: Any) -> Any:
        """Send a request and return the result. Raises `WorkRefused` and `AdapterFault`."""
        line = json.dumps({"call": call, **values}, separators=(",", ":")).encode() + b"\n"
        try:
            os.write(self._stdin, line) if len(line) < 4096 else self._write(line)
        except OSError:
            raise self._died(call) from None
        answer = self._line(call)
        try:
            found = json.loads(answer)
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

    @property
    def _stdin(self) -> int:
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def _write(self, line: bytes) -> None:
        """Write a long request; an implementation that does not read it is hung."""
        view = memoryview(line)
        while view:
            view = view[os.write(self._stdin, view) :]

    def _line(self, call: str) -> bytes:
        """Return the next line of standard output."""
        assert self._process.stdout is not None
        end = time.monotonic() + self.timeout
        parts = [self._rest]
        size = len(self._rest)
        while b"\n" not in parts[-1]:
            if not self._selector.select(max(0.0, end - time.monotonic())):
                self.kill()
                raise AdapterFault("adapter-hung", f"{call}: no answer within {self.timeout:g} s")
            more = os.read(self._process.stdout.fileno(), 1 << 16)
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
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            self.kill()
            return AdapterFault("adapter-died", f"{call}: the process closed its standard output")
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_WORDS))
        words = self._errors.read().decode(errors="replace").strip()
        return AdapterFault("adapter-died", f"{call}: the process ended with {how}" + (f"\n{words}" if words else ""))

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
            return [bytes.fromhex(frame) for frame in found]
        except (TypeError, ValueError):
            raise AdapterFault("adapter-garbage", f"poll: {shown(found)} is not a list of hexadecimal texts") from None

    def advance(self, picoseconds: int) -> None:
        self._ask("advance", picoseconds=picoseconds)

    def observe(self) -> Any:
        return self._ask("observe") if self.capabilities.observable else None

    def close(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(1)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
        self._selector.close()
        self._errors.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
