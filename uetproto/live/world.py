# SPDX-License-Identifier: GPL-2.0-only
"""This module drives one node on a live link, for the APIs of endpoints: `LiveWorld` is a `contract.EndpointDriver`."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from uetproto.engine.contract import NEVER, SECOND, Engine
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer, LowerHeaders
from uetproto.live.driver import Driver
from uetproto.live.faulty_path import FaultyPath
from uetproto.live.interface import Interface
from uetproto.live.path import Path, PathSetup, open_path
from uetproto.live.rate import PeerRate
from uetproto.live.recorder import Recorder
from uetproto.live.time import MonotonicClock, Timers
from uetproto.wire.capture.base import ports_told

DRAIN = SECOND
"""Longest time in picoseconds for which `close` waits until nothing is under way."""


class DrivenNode(Protocol):
    """This protocol is what a live world needs of its node, as `api.node.LocalNode` has it."""

    name: str
    address: int
    engine: Engine
    driver: Any

    @property
    def quiescent(self) -> bool: ...

    def tell(self, event: Any) -> None: ...


def _ports(setup: PathSetup) -> str:
    """Return what the comment of a capture says of the UDP ports: nothing, if both ends have the same one."""
    ports = setup.peer_port, setup.local_port
    if ports[0] is None or ports[1] is None or ports[0] == ports[1]:
        return ""
    return f", {ports_told(filter(None, ports), roce=setup.transport == 'roce')}"


class LiveWorld:
    """This class has one node, its path and its time, and lets time pass in `wait` alone."""

    idle = None
    """Nobody knows here when nothing more would happen."""

    def __init__(
        self, node: DrivenNode, setup: PathSetup, framer: Framer, *, needed: int,
        finish: Callable[[], list[Any]] = list, payload: str = "payload_mtu", dscp: Dscp | None = None,
    ) -> None:  # fmt: skip
        """Open the path of the node.

        `needed` is the size of its longest IP packet, which has to fit through the link to each peer; `payload` names
        the parameter that this size comes from. `finish` returns the work that ends all conversations, for `close`.
        Raises `LocalError` or `OSError` if an address, a port or a file is not to be had.
        """
        faults = setup.interface.faults
        if faults is not None and faults.trim and setup.transport == "roce":
            raise LocalError(
                "faults.trim", "does not go with RoCEv2, which has no trimming", "drop", id="not-with-protocol"
            )
        self.node = node
        self.interface: Interface = setup.interface
        self.clock = MonotonicClock()
        self.path: Path = open_path(setup)
        timers = Timers(self.clock)
        if self.interface.faults:
            lower = len(setup.lower_headers(LowerHeaders(setup.local, setup.local, 0), 0))
            self.path = FaultyPath(
                self.path, self.interface.faults, self.interface.seed, timers, dscp=dscp or Dscp(), intact=lower,
                received=self.interface.faults_received,
            )  # fmt: skip
        self.closed = False
        self._needed, self._payload, self._finish = needed, payload, finish
        self._reached: set[int] = set()
        self.recorder: Recorder | None = None
        capture = self.interface.capture
        if capture is not None:
            try:
                self.recorder = Recorder(
                    capture, self.path.link, self.clock, name=self.interface.device or self.interface.local,
                    comment=f"uetproto live, {self.interface.local}, path {self.path.name}{_ports(setup)}",
                    about=f"cc at={self.interface.address}" if setup.transport == "uet" else None,
                )  # fmt: skip
            except BaseException:
                self.path.close()
                raise
        self.driver = Driver(node.engine, framer, self.path, self.clock, node.tell, self.recorder, timers)
        self.framer = framer
        node.driver = self

    @property
    def nodes(self) -> Mapping[str, DrivenNode]:
        """Return the node by its name."""
        return {self.node.name: self.node}

    @property
    def now(self) -> int:
        """Return the time in picoseconds since the world was made."""
        return self.clock.now

    def submit(self, node: str, work: Any) -> None:
        """Pass work to the engine of the node, and send what the engine has to send.

        Raises `LocalError` if there is no way to the peer, or if the longest packets do not fit through it.
        """
        peer = getattr(work, "peer", None)
        if type(peer) is int and peer not in self._reached:
            self.check_peer(peer)
        self.driver.submit(work)

    def check_peer(self, peer: int) -> None:
        """Raise `LocalError` if there is no way to an address, or if the longest packets do not fit through it."""
        mtu = self.path.mtu(peer)
        if mtu < self._needed:
            most = f"at most {mtu} bytes from the IP header on, the MTU of the link"
            raise LocalError(
                self._payload, f"its longest IP packets have {self._needed} bytes", most, id="mtu-too-small"
            )
        self._reached.add(peer)

    def learn(self, peer: int, rate: PeerRate) -> None:
        """Fit rate and time-outs of conversations that begin from now on to what was measured of a peer."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` once, after the events that are due now were reported and before the world sleeps."""
        self.driver.call_soon(action)

    def wake(self) -> None:
        """The world checks a condition after every turn anyway."""

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = 1) -> bool:
        """Let time pass until `condition()` is true, for at most `timeout` picoseconds, and return whether it is true.
        If `timeout` is None, the wait has no limit."""
        turn, now = self.driver.turn, self.clock.now
        end = NEVER if timeout is None else now + timeout
        while not condition():
            if now >= end:
                return False
            now = turn(end)
        return True

    def advance(self, duration: int) -> None:
        """Let `duration` picoseconds pass."""
        self.wait(lambda: False, duration)

    def close(self, drain: bool = True) -> None:
        """End all conversations, complete the capture and close the path. If `drain` is true, this waits at most
        `DRAIN` for what is under way."""
        if self.closed:
            return
        try:
            if drain:
                self.wait(lambda: self.node.quiescent, DRAIN)
                for work in self._finish():
                    self.driver.submit(work)
                self.wait(lambda: self.node.quiescent and not self._finish(), DRAIN)
        finally:
            self.closed = True
            if self.recorder is not None:
                self.recorder.close()
            self.path.close()
