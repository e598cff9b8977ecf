# SPDX-License-Identifier: GPL-2.0-only
"""This module finds copies of one packet at several interfaces of a capture (docs/reference/analysis.md §1)."""

from collections.abc import Hashable

WINDOW = 1_000_000
"""Largest time between the copies of a packet, in nanoseconds."""
MOST = 65_536
"""Number of packets that are remembered. If there are more, those older than `WINDOW` are dropped, or else all."""
BYTES = 64
"""Number of bytes from the PDS header on that copies share."""

Key = tuple[int, int, int, int, bytes, int]


class TapCopies:
    """This class remembers packets, and finds those that another interface has as well."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[int, Hashable, int]] = {}
        """Maps what copies share to the number, the interface and the time of the first packet."""

    def find(self, key: Key, number: int, interface: Hashable, time_ns: int) -> int | None:
        """Return the number of the packet of which this is a copy, or None."""
        known = self._seen.get(key)
        if known is not None and known[1] != interface and abs(time_ns - known[2]) <= WINDOW:
            return known[0]
        if known is None and len(self._seen) >= MOST:
            self._seen = {key: one for key, one in self._seen.items() if abs(time_ns - one[2]) <= WINDOW}
            if len(self._seen) >= MOST:
                self._seen.clear()
        self._seen[key] = number, interface, time_ns
        return None
