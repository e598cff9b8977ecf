# SPDX-License-Identifier: GPL-2.0-only
"""This module has the nodes of a program, each with an engine and with listeners to the engine's events, and a network
of such nodes with its driver."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from uetproto.api.checks import ArgumentChecks
from uetproto.engine.contract import EndpointDriver, Engine
from uetproto.errors import LocalError


@dataclass(frozen=True, slots=True)
class NodePlace:
    """This record describes where a node is in the network: its address, its cables, and the switch that contains it;
    the transport does not matter."""

    name: str
    address: int
    ip_version: int
    rate: int = 0
    """Rate of each cable of the node in bits per second; it is 0 if the rate is not known."""
    at: str | None = None
    """Name of the switch that contains the node, or None if the node is a host."""
    ports: int = 1
    """Number of ports of the node's NIC."""


class QuietEngine(Engine, Protocol):
    """This protocol describes an engine that knows whether it has nothing to do, and how many packets it has
    retransmitted."""

    @property
    def quiescent(self) -> bool: ...

    @property
    def retransmitted(self) -> Mapping[str, int]:
        """Return how many packets the engine has retransmitted, by cause."""


class LocalNode:
    """This class represents a node with its engine. The driver of the engine passes every event of the engine to the
    node."""

    driver: EndpointDriver
    """Driver that runs the engine; the driver sets this attribute itself."""

    def __init__(self, place: NodePlace, endpoint: QuietEngine, engine: Engine | None = None) -> None:
        """Make a node. If `engine` is given, it contains the endpoint, and the driver calls it in place of the
        endpoint."""
        self.name = place.name
        self.address = place.address
        self.ip_version = place.ip_version
        self.rate = place.rate
        self.at = place.at
        self.ports = place.ports
        self.endpoint = endpoint
        self.engine = engine or endpoint
        self.listeners: list[Callable[[Any], None]] = []
        """Functions that are called with every event."""

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""
        return self.driver.now

    @property
    def quiescent(self) -> bool:
        """Return whether the endpoint has nothing to send, to answer or to wait for."""
        return self.endpoint.quiescent

    @property
    def retransmitted(self) -> Mapping[str, int]:
        """Return how many packets the endpoint has retransmitted, by cause."""
        return self.endpoint.retransmitted

    @property
    def dropped(self) -> int:
        """Return how many packets arrived when the node had no room for them."""
        return 0

    def submit(self, work: Any) -> None:
        """Pass a work request to the engine, and make the driver send the packets that the engine then has ready."""
        self.driver.submit(self.name, work)

    def tell(self, event: Any) -> None:
        """Pass an event of the engine to all listeners."""
        listeners = self.listeners
        if len(listeners) == 1:
            listeners[0](event)
            return
        for listener in tuple(listeners):
            listener(event)


class DrivenNetwork:
    """This class represents a network of nodes, with the driver that runs them and its time. It is a context
    manager."""

    driver: EndpointDriver
    checks: ArgumentChecks[Any, Any]

    @property
    def closed(self) -> bool:
        """Return whether the network was closed."""
        return self.driver.closed

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""
        return self.driver.now

    def run(self, until: int | str | Callable[[], bool] | None = None) -> bool:
        """Let time pass until an instant, which is a number of picoseconds or a text such as "1 ms"; or until a
        condition holds; or, with None, until nothing more happens by itself.

        A send may wait for the peer to post a receive; with None, `run` does not wait for such a send, which then
        completes in a later run. Return False if a condition is given and does not hold although nothing more happens
        by itself; otherwise return True. Raises FI_EINVAL or EINVAL for an instant that has passed, and for None if the
        driver cannot know whether anything more happens.
        """
        driver, invalid = self.driver, self.checks.invalid
        if callable(until):
            return driver.wait(until, burst=1)
        if until is None:
            if driver.idle is None:
                legal = "an instant, or a condition: nobody knows here when nothing more would happen"
                raise invalid("until", None, legal, id="missing-argument")
            driver.wait(lambda: False)
            return True
        instant = self.checks.duration("until", until)
        if instant < driver.now:
            raise invalid("until", until, f"{driver.now} ps and later", id="time-passed")
        driver.wait(lambda: False, instant - driver.now)
        return True

    def close(self, drain: bool = True) -> None:
        """Close the network, after which no operation can begin, and complete the capture. If `drain` is True, packets
        in flight arrive first.

        Sends that wait for a receive are lost, without a completion.
        """
        if not self.closed:
            self.driver.close(drain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif issubclass(kind, Exception) and self.driver.idle is None:
            with suppress(LocalError):  # the one that ended the block may come again
                self.close()  # a real peer would keep what it is not told of
        else:
            self.close(drain=False)
