# SPDX-License-Identifier: GPL-2.0-only
"""This module has the Protocol of what knows the time and calls functions later."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Timeline(Protocol):
    """A timeline has the instant `now` and calls functions at later instants, in picoseconds. `emulator.network.clock`
    has the one of virtual time."""

    @property
    def now(self) -> int: ...

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call `action(argument)` at the instant `time`."""

    def at_each(self, time: int, step: int, action: Callable[[Any], object], arguments: Iterable[Any]) -> None:
        """Call `action` with each of `arguments`, with the first one at `time`, and each other one `step` later than
        the one before it."""
