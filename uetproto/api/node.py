"""Nodes of a program: an engine, who listens to its events, and the driver that moves its packets and its time."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uetproto.engine.contract import EndpointDriver, Engine
from uetproto.errors import LocalError


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node is, whatever its transport."""

    name: str
    address: int
    ip_version: int
    rate: int = 0
    """Rate of its cable in bits a second; 0: not known."""
    at: str | None = None
    """Switch that the node is part of; None: the node is a host."""


class LocalNode(ABC):
    """A node with its engine. The driver of the engine tells the node every event."""

    driver: EndpointDriver
    """Set by the driver."""

    def __init__(self, place: NodePlace, engine: Engine) -> None:
        self.name = place.name
        self.address = place.address
        self.ip_version = place.ip_version
        self.rate = place.rate
        self.at = place.at
        self.engine = engine
        self.listeners: list[Callable[[Any], None]] = []
        """Functions that are called with every event."""

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""
        return self.driver.now

    @property
    @abstractmethod
    def quiescent(self) -> bool:
        """Return whether the engine has nothing to send, to await or to answer."""

    def submit(self, work: Any) -> None:
        """Pass work to the engine, and have the driver send what it has to send."""
        self.driver.submit(self.name, work)

    def tell(self, event: Any) -> None:
        """Pass an event of the engine to all listeners."""
        for listener in tuple(self.listeners):
            listener(event)


Invalid = Callable[[str, Any, str], LocalError]
"""Returns the error for an argument: its name, its value, and what is legal."""


def run_until(driver: EndpointDriver, until: Any, duration: Callable[[str, Any], int], invalid: Invalid) -> bool:
    """Run a driver to an instant, until a condition holds, or (None) until nothing more would happen by itself.

    Return True, but for a condition that does not hold in the end. Raises what `invalid` returns for an instant that
    has passed, and for None where the driver cannot know that nothing more would happen.
    """
    if callable(until):
        return driver.wait(until, burst=1)
    if until is None:
        if driver.idle is None:
            raise invalid("until", None, "an instant, or a condition: nobody knows here when nothing more would happen")
        driver.wait(lambda: False)
        return True
    instant = duration("until", until)
    if instant < driver.now:
        raise invalid("until", until, f"{driver.now} ps and later")
    driver.wait(lambda: False, instant - driver.now)
    return True
