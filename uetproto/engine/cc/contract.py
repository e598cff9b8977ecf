# SPDX-License-Identifier: GPL-2.0-only
"""This module has the Protocol of the algorithms of which a congestion control context is composed (cms.md §2)."""

from typing import Protocol

from uetproto.engine.contract import AckReport, Trim


class CongestionControl(Protocol):
    """An algorithm decides whether its context may send. Sizes are nominal bytes, times picoseconds."""

    def may_send(self, size: int, now: int) -> bool:
        """Return whether a packet of `size` bytes may be sent now."""

    def sent(self, size: int, now: int) -> bool:
        """Note a transmission, and return whether the packet should ask for an ACK."""

    def acked(self, report: AckReport, now: int) -> None:
        """Note an ACK."""

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        """Note that a packet was refused."""

    def lost(self, size: int, now: int) -> None:
        """Note that a packet is taken for lost."""

    def withdrawn(self, size: int) -> None:
        """Note that `size` bytes in flight are no longer waited for, as their PDC has ended. A negative size adds
        bytes."""

    def probed(self, rtt: int) -> None:
        """Note the round-trip time of a PROBE in picoseconds, which found no queue."""

    def speculate(self) -> None:
        """Let one packet be sent without credit, as no PDC is open by which credit could be asked for."""

    def credited(self, credit: int, now: int) -> None:
        """Note a cumulative grant of 256-byte quanta, 24 bits."""

    def most(self) -> float:
        """Return how many bytes the algorithm would let be in flight."""

    def demand(self, waiting: int) -> int | None:
        """Return the cumulative demand in quanta, 24 bits, if `waiting` bytes wait. None: the algorithm has none."""

    def deadline(self) -> int:
        """Return when `on_time` has something to do, or NEVER."""

    def on_time(self, waiting: int, now: int) -> bool:
        """Do what is due, and return whether a CREDIT_REQ should be sent."""
