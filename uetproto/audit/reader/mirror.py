# SPDX-License-Identifier: GPL-2.0-only
"""This module recognizes the copies that mirror ports make of a packet. Copies are equal from the UDP or entropy header
on (interfaces.md §8, --mirror).

A switch on the path may change VLAN tags, TTL and ECN, and may pad short frames; these differences are ignored.
"""

WINDOW = 1_000_000
"""Largest time between two copies of a packet, in nanoseconds. A retransmission is no copy: it has the retransmission
flag, or it comes later."""
_MOST = 65_536
"""Number of packets that are remembered."""
_TAGS = (b"\x81\x00", b"\x88\xa8")
_STARTS = {"ethernet": 14, "raw": 0, "sll": 16, "sll2": 20}


class Copies:
    """This class recognizes copies; it remembers the packets of the last `WINDOW` nanoseconds."""

    def __init__(self, link: str) -> None:
        self._start = _STARTS.get(link)
        self._last: dict[bytes, int] = {}

    def is_copy(self, data: bytes, time_ns: int) -> bool:
        """Return whether an equal packet was seen within `WINDOW`. The first of several equal packets is no copy."""
        if self._start is None:
            return False
        key = _lasting(data, self._start)
        if not key:
            return False
        last = self._last.get(key)
        if last is not None and abs(time_ns - last) <= WINDOW:
            return True
        if len(self._last) >= _MOST:
            self._last = {known: at for known, at in self._last.items() if time_ns - at <= WINDOW}
            if len(self._last) >= _MOST:
                self._last.clear()
        self._last[key] = time_ns
        return False


def _lasting(data: bytes, at: int) -> bytes:
    """Return addresses and all bytes behind the IP header, without padding; nothing for a frame without IP."""
    while at == 14 and data[12:14] in _TAGS:
        data = data[:12] + data[16:]
    version = data[at] >> 4 if at < len(data) else 0
    if version == 4:
        size = int.from_bytes(data[at + 2 : at + 4], "big")
        return data[at + 12 : at + size]
    if version == 6:
        size = 40 + int.from_bytes(data[at + 4 : at + 6], "big")
        return data[at + 8 : at + size]
    return b""
