# SPDX-License-Identifier: GPL-2.0-only
"""This module tells which PDC a packet belongs to, from its addresses and PDCIDs (docs/reference/analysis.md §2)."""

from collections.abc import Mapping
from typing import Any

from uetproto.audit.per_packet.late import Counter
from uetproto.audit.per_packet.sender import FAR, PdcUse, Sender
from uetproto.wire.serial import add32, diff32


class PdcUses:
    """This class holds the PDCs of one interface. Source ports do not count, because they are entropy."""

    def __init__(self, count: Counter) -> None:
        """Make an empty table. `count` returns the index of the next PDC."""
        self._count = count
        self._by_both: dict[tuple[int, int, int, int], Sender] = {}
        """Maps two addresses and the PDCIDs of sender and receiver to a direction."""
        self._by_own: dict[tuple[int, int, int], Sender] = {}
        """Maps two addresses and the PDCID of the sender to the direction that was seen last."""

    def opened(self, src: int, dst: int, head: Mapping[str, Any]) -> Sender:
        """Return the direction of a packet with syn = 1."""
        own, psn = head["spdcid"], head["psn"]
        start = add32(psn, -head["psn_offset"])
        sender = self._by_own.get((src, dst, own))
        if sender is None or (sender.use.closed and not head["retx"]):
            return self._new(src, dst, own, None, start)
        if sender.start is None and (sender.base is None or abs(diff32(psn, sender.next)) < FAR):
            sender.start = start
        return sender if sender.start == start else self._new(src, dst, own, None, start)

    def sent(self, src: int, dst: int, head: Mapping[str, Any]) -> Sender:
        """Return the direction of a request or control packet with syn = 0."""
        own, other, psn = head["spdcid"], head["dpdcid"], head["psn"]
        sender = self._found(src, dst, own, other)
        if sender is None:
            return self._new(src, dst, own, other, None)
        if not sender.is_near(psn):
            before = sender.before
            return before if before is not None and before.is_near(psn) else self._new(src, dst, own, other, None)
        return sender

    def known(self, src: int, dst: int, head: Mapping[str, Any]) -> Sender:
        """Return the direction of a control packet without a PSN of its own."""
        own, other = head["spdcid"], head["dpdcid"]
        return self._found(src, dst, own, other) or self._new(src, dst, own, other, None)

    def answered(self, src: int, dst: int, head: Mapping[str, Any], psn: int) -> Sender | None:
        """Return the direction of the requests that an ACK or NACK from `src` to `dst` answers. `psn` is the one that
        it names. Return None for a NACK that no known PDC fits, if its sender has no PDCID."""
        own, other = head["spdcid"], head["dpdcid"]
        sender = self._by_own.get((dst, src, other))
        if own and (sender is None or sender.other.id not in (None, own)):
            return self.known(src, dst, head).other
        if sender is None:
            return None
        before = sender.before
        if before is not None and psn not in sender.sent and psn in before.sent:
            return before
        if own and sender.other.id is None:
            self._join(sender.other, own, other)
        return sender

    def _found(self, src: int, dst: int, own: int, other: int) -> Sender | None:
        sender = self._by_both.get((src, dst, own, other))
        if sender is not None:
            return sender
        sender = self._by_own.get((src, dst, own))
        if sender is not None and sender.other.id is None:
            return self._join(sender, own, other)
        opposite = self._by_own.get((dst, src, other))
        if opposite is not None and opposite.other.id is None:
            return self._join(opposite.other, own, other)
        return None

    def _join(self, sender: Sender, own: int, other: int) -> Sender:
        """Enter both directions of a PDC, whose PDCIDs are known now."""
        src, dst = sender.src, sender.dst
        sender.id, sender.other.id = own, other
        for one, key in ((sender, (src, dst, own)), (sender.other, (dst, src, other))):
            old = self._by_own.get(key)
            if old is not None and old is not one:
                old.before, one.before = None, old  # one earlier use is kept
            self._by_own[key] = one
        self._by_both[src, dst, own, other] = sender
        self._by_both[dst, src, other, own] = sender.other
        return sender

    def _new(self, src: int, dst: int, own: int, other: int | None, start: int | None) -> Sender:
        use = PdcUse(self._count())
        sender, opposite = Sender(use, src, dst), Sender(use, dst, src)
        sender.other, opposite.other = opposite, sender
        sender.id, sender.start = own, start
        if other is not None:
            return self._join(sender, own, other)
        sender.before = self._by_own.get((src, dst, own))
        if sender.before is not None:
            sender.before.before = None
        self._by_own[src, dst, own] = sender
        return sender
