# SPDX-License-Identifier: GPL-2.0-only
"""This module lets two programs tell each other addresses, keys and queue pair numbers, before and while packets flow.

The client connects by TCP and sends one JSON object a line. The server answers each with one JSON object a line. The
first one of each side is its *offer*, which says what it is; the others are questions with the key "ask". An answer
with the key "error" has the fields of a `LocalError`. docs/howto/live.md has all objects.
"""

import json
import select
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any

from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError, RemoteError, shown
from uetproto.live import sockets
from uetproto.live.driver import Driver
from uetproto.live.sockets import Socket
from uetproto.live.time import MonotonicClock

PORT = 4793
"""TCP port of the rendezvous, the number of the UDP port of UET."""
VERSION = 1
"""Value of the key "uetproto" of both offers."""
LONGEST_LINE = 1 << 16
"""Number of bytes of a line above which a session is ended."""
_MOST_SESSIONS = 64
_PATIENCE = 10 * SECOND
"""Time in picoseconds for which a client waits for an answer."""

Json = dict[str, Any]
Network = IPv4Network | IPv6Network
Answer = Callable[["PeerSession", Json], Json]


_END = "end"
"""What a client says last."""


class PeerSession:
    """This class is the session of one client at the server."""

    def __init__(self, connection: Socket, peer: str) -> None:
        self.connection = connection
        self.peer = peer
        """Address of the client, as text."""
        self.offer: Json | None = None
        """What the client said of itself; None before its first line."""
        self.state: dict[str, Any] = {}
        """What the server keeps for the session, such as its queue pair."""
        self.in_order = False
        """Whether the client has said that it ends, or the server ends the session itself."""
        self.text = b""
        self.out = b""


class RendezvousServer:
    """This class answers the clients of one endpoint. It lives in the turns of a `Driver`, and never waits."""

    def __init__(
        self, driver: Driver, address: str, port: int, *, allowed: list[Network], asks: Mapping[str, Answer],
        begun: Answer, ended: Callable[[PeerSession], None], device: str | None = None,
    ) -> None:  # fmt: skip
        """Listen at an address and no other.

        `begun` gets the offer of a client and returns that of the server. `asks` has the function that answers each
        question. `ended` is called when a session ends. Raises `LocalError` if the port is not to be had.
        """
        self._driver, self._asks, self._begun, self._ended = driver, asks, begun, ended
        self._allowed = allowed
        self.refused = 0
        """Number of connections from addresses that are not allowed, or beyond the limit."""
        version = ip_address(address).version
        self._socket = Socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setblocking(False)
        sockets.bind(self._socket, int(ip_address(address)), version, port, device, "rendezvous")
        try:
            self._socket.listen(16)
        except OSError as error:
            self._socket.close()
            raise LocalError(
                "rendezvous", f"port {port} of {address}: {error.strerror}", "a free port, or off", id="port-in-use"
            ) from None  # fmt: skip
        self.sessions: dict[int, PeerSession] = {}
        driver.watch(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """End all sessions and listen no longer."""
        for session in list(self.sessions.values()):
            session.in_order = True
            self._end(session)
        self._driver.forget(self._socket.fileno())
        self._socket.close()

    def _accept(self) -> None:
        try:
            connection, source = self._socket.accept()
        except OSError:
            return
        peer = source[0].partition("%")[0]
        if not is_allowed(peer, self._allowed) or len(self.sessions) >= _MOST_SESSIONS:
            self.refused += 1
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = PeerSession(connection, peer)
        file = connection.fileno()
        try:
            self._driver.watch(file, lambda: self._read(session))
        except LocalError:
            self.refused += 1
            connection.close()
            return
        self.sessions[file] = session

    def _read(self, session: PeerSession) -> None:
        try:
            data = session.connection.recv(LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        session.text += data
        while b"\n" in session.text:
            line, _, session.text = session.text.partition(b"\n")
            self._say(session, self._answer(session, line))
            if session.connection.fileno() < 0:
                return
        if not data or len(session.text) > LONGEST_LINE:
            self._end(session)

    def _answer(self, session: PeerSession, line: bytes) -> Json:
        try:
            told = parsed(line)
            if session.offer is None:
                if told.get("uetproto") != VERSION:
                    raise LocalError(
                        "uetproto", f"{told.get('uetproto')!r} is not legal", VERSION, id="rendezvous-message"
                    )
                answer = self._begun(session, told)
                session.offer = told
                return answer
            ask = told.get("ask")
            if ask == _END:
                session.in_order = True
                return {_END: True}
            if not isinstance(ask, str) or ask not in self._asks:
                raise LocalError(
                    "ask", f"{ask!r} is not legal", ", ".join((*self._asks, _END)), id="rendezvous-message"
                )
            return self._asks[ask](session, told)
        except LocalError as error:
            return {"error": {"name": error.name, "value": str(error.value), "legal": error.legal}}

    def _say(self, session: PeerSession, answer: Json) -> None:
        try:
            session.connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:  # also of a client that does not read
            self._end(session)

    def _end(self, session: PeerSession) -> None:
        file = session.connection.fileno()
        if file < 0:
            return
        self._driver.forget(file)
        self.sessions.pop(file, None)
        session.connection.close()
        self._ended(session)


class RendezvousClient:
    """This class is a client's side of the rendezvous. Its calls wait for the answer."""

    def __init__(self, peer: str, port: int, *, local: str | None, device: str | None = None) -> None:
        """Connect, from the address `local` if there is one. Raises `LocalError` if nobody answers at the address."""
        self.peer, self._port = peer, port
        version = ip_address(peer).version
        self._text = b""
        self._clock = MonotonicClock()
        self._socket = Socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        self._socket.settimeout(_PATIENCE / SECOND)
        try:
            if local is not None:
                self._socket.bind(sockets.target(int(ip_address(local)), version, 0, device))
            self._socket.connect(sockets.target(int(ip_address(peer)), version, port, device))
        except OSError as error:
            self._socket.close()
            told = f"no rendezvous at {peer}, TCP port {port}: {error.strerror or 'no answer in time'}"
            legal = "a host with `uetproto serve`, or --rendezvous off with --key and the other numbers by hand"
            raise LocalError("peer", told, legal, id="rendezvous-failed") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self, offer: Json) -> Json:
        """Say what this side is, and return what the other one is. Raises `LocalError` if the server refuses."""
        answer = self._call({"uetproto": VERSION} | offer)
        if answer.get("uetproto") != VERSION:
            raise self._failed(f"the version is {shown(answer.get('uetproto'))}", f'"uetproto": {VERSION}')
        return answer

    def ask(self, question: str, **more: Any) -> Json:
        """Ask a question and return the answer. Raises `LocalError` if the server refuses, and `RemoteError` if it is
        gone."""
        return self._call({"ask": question} | more)

    def fileno(self) -> int:
        """Return the file descriptor that is readable when the server has ended the session."""
        return self._socket.fileno()

    @property
    def gone(self) -> bool:
        """Return whether the server has ended the session, or its program has."""
        if not select.select((self._socket,), (), (), 0)[0]:
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def round_trip(self, times: int = 5) -> int:
        """Return the shortest of some round-trip times of a question, in picoseconds."""
        shortest = _PATIENCE
        for _ in range(times):
            began = self._clock.now
            self.ask("echo")
            shortest = min(shortest, self._clock.now - began)
        return shortest

    def close(self) -> None:
        """End the session, and say so, as the server takes a connection that just ends for a program that was
        killed."""
        with suppress(OSError):  # of a server that is gone
            self._socket.sendall(json.dumps({"ask": _END}).encode() + b"\n")
        self._socket.close()

    def _failed(self, problem: str, legal: str) -> RemoteError:
        return RemoteError(problem, 0, name=f"rendezvous with {self.peer}", legal=legal, id="rendezvous-failed")

    def _call(self, told: Json) -> Json:
        try:
            self._socket.sendall(json.dumps(told).encode() + b"\n")
            while b"\n" not in self._text:
                data = self._socket.recv(LONGEST_LINE)
                if not data:
                    raise self._failed("the peer has ended it", "an answer to each question")
                if len(self._text) > LONGEST_LINE:
                    raise self._failed("a line does not end", f"at most {LONGEST_LINE} bytes")
                self._text += data
        except OSError as error:
            raise self._failed(error.strerror or "no answer in time", "an answer to each question") from None
        line, _, self._text = self._text.partition(b"\n")
        answer = parsed(line)
        refused = answer.get("error")
        if isinstance(refused, dict):
            raise LocalError(*(str(refused.get(name, "")) for name in ("name", "value", "legal")), id="peer-refused")
        return answer


def parsed(line: bytes) -> Json:
    """Return the object in a line. Raises `LocalError` for a line that is no JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LocalError("line", "is no JSON object", '{"ask": …}', id="broken-json")
    return found


def number(told: Json, name: str, least: int, most: int, default: int | None = None) -> int:
    """Return a whole number of an object. Raises `LocalError` for anything else."""
    value = told.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise LocalError(name, f"{str(value)[:80]} is not legal", f"{least} … {most}", id="rendezvous-message")
    return value


def is_allowed(address: str, allowed: list[Network]) -> bool:
    """Return whether one of the prefixes has the address; without prefixes, each address is allowed."""
    found = ip_address(address)
    return not allowed or any(found in prefix for prefix in allowed if prefix.version == found.version)
