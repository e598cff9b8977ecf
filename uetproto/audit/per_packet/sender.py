# SPDX-License-Identifier: GPL-2.0-only
"""This module follows one direction of a PDC: what one end sent, and what the other end acknowledged and refused.

docs/reference/analysis.md §3 and §4 define the names. RUDI uses `KnownPsn` for its pkt_ids.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from uetproto.audit.per_packet.late import SECOND, LateValues
from uetproto.wire.serial import add32, diff32

HISTORY = 32_768
"""Distance below the newest PSN at which a PSN is forgotten. No window is wider (UE 1.0.1 §3.5.8.2)."""
RECENT = 1_024
"""Distance below the newest PSN at which a PSN is forgotten if it was acknowledged by then."""
FAR = 65_536
"""Least distance between PSNs that cannot be of one PDC."""
MPR_UNIT = 128

Row = dict[str, Any]


class Transmission(NamedTuple):
    """This record describes a packet that an end sent, as the analysis sees it."""

    number: int
    time_ns: int
    size: int
    """Bytes from the PDS header to the end of the IP packet."""
    retx: bool
    trimmed: bool


class KnownPsn:
    """This class holds what is known of a PSN, or of a pkt_id of RUDI."""

    __slots__ = ("acked", "again", "counted", "flying", "message", "named", "number", "refused", "time_ns", "trimmed")

    def __init__(self, packet: Transmission) -> None:
        self.number, self.time_ns = packet.number, packet.time_ns
        """Number and time of the latest transmission."""
        self.trimmed = packet.trimmed
        """Whether the latest transmission was trimmed."""
        self.again = packet.retx
        """Whether it was sent more than once."""
        self.acked = False
        self.named = False
        """Whether an ACK named exactly this PSN."""
        self.refused = False
        """Whether a NACK refused the latest transmission."""
        self.flying = 0
        """Bytes in flight."""
        self.message: Any = None
        self.counted = False
        """Whether its bytes were counted for the message."""


class PdcUse:
    """This class is one use of a pair of PDCIDs."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.close: tuple[Sender, int] | None = None
        """Direction and PSN of CLOSE_CMD."""

    @property
    def closed(self) -> bool:
        """Return whether CLOSE_CMD was acknowledged."""
        return self.close is not None and self.close[0].is_acked(self.close[1])


class Sender:
    """This class follows the PSNs that one end of a PDC sends."""

    other: "Sender"

    def __init__(self, use: PdcUse, src: int, dst: int) -> None:
        self.use, self.src, self.dst = use, src, dst
        self.id: int | None = None
        """PDCID of the sender, once it is known."""
        self.before: Sender | None = None
        """Same direction of the PDC that had the PDCID before."""
        self.start: int | None = None
        """Start_PSN, if a SYN packet told it."""
        self.base: int | None = None
        """PSN from which relative PSNs count."""
        self.next = 0
        """PSN behind the newest one that was seen."""
        self.sent: dict[int, KnownPsn] = {}
        self.cack = 0
        """Newest PSN that is acknowledged with all before it; `base` - 1 at first."""
        self.checked = 0
        """Newest acknowledged PSN up to which unseen PSNs were looked for."""
        self.mpr = 0
        self.packets = self.bytes = 0
        """Packets and bytes in flight."""
        self.messages: dict[int, Any] = {}
        """Messages by message_id, for messages.py."""

    def is_near(self, psn: int) -> bool:
        """Return whether a PSN can belong to this PDC."""
        return self.base is None or abs(diff32(psn, self.next)) < FAR

    def is_acked(self, psn: int) -> bool:
        if self.base is None:
            return False
        record = self.sent.get(psn)
        return diff32(psn, self.cack) <= 0 or (record is not None and record.acked)

    # Sent -------------------------------------------------------------------------------------------------------------

    def send(self, psn: int, packet: Transmission, row: Row) -> KnownPsn | None:
        """Note a packet that has a PSN of its own, and return the record of the PSN. Return None for a PSN that was
        forgotten."""
        if self.base is None:
            self.base = self.start if self.start is not None and 0 <= diff32(psn, self.start) < HISTORY else psn
            self.next = self.base
            self.cack = self.checked = add32(self.base, -1)
        ahead = diff32(psn, self.next)
        record = self.sent.get(psn)
        if record is None:
            if packet.retx:
                row["uetp.analysis.retransmission"] = True
                if self.is_acked(psn):
                    row["uetp.analysis.spurious_retransmission"] = True
            elif ahead < 0 and not self._is_forgotten(psn, ahead):
                row["uetp.analysis.out_of_order"] = True
            if ahead < -HISTORY or self._is_forgotten(psn, ahead):
                return None
            record = self.sent[psn] = KnownPsn(packet)
            record.acked = diff32(psn, self.cack) <= 0
            if ahead >= 0:
                self._advance(add32(psn, 1))
        elif packet.retx:
            row["uetp.analysis.retransmission"] = True
            row["uetp.retransmission_of"] = record.number
            if self.is_acked(psn):
                row["uetp.analysis.spurious_retransmission"] = True
            record.number, record.time_ns, record.trimmed = packet.number, packet.time_ns, packet.trimmed
            record.again, record.refused = True, False
        elif not packet.trimmed:
            row["uetp.analysis.duplicate"] = True
        if packet.trimmed:
            row["uetp.analysis.trimmed"] = True
            return record
        if not record.flying and not record.refused and not record.trimmed and not self.is_acked(psn):
            record.flying = packet.size
            self.packets += 1
            self.bytes += packet.size
        row["uetp.analysis.packets_in_flight"], row["uetp.analysis.bytes_in_flight"] = self.packets, self.bytes
        if self.mpr and diff32(psn, self.cack) >= self.mpr * MPR_UNIT:
            row["uetp.analysis.window_full"] = True
        return record

    def _is_forgotten(self, psn: int, ahead: int) -> bool:
        """Return whether a PSN may have been seen though there is no record of it."""
        return ahead < -RECENT and diff32(psn, self.cack) <= 0

    def _advance(self, following: int) -> None:
        """Make `following` the next PSN, and forget the PSNs that fall behind."""
        steps = diff32(following, self.next)
        oldest, recent = add32(self.next, -HISTORY), add32(self.next, -RECENT)
        self.next = following
        for step in range(steps):
            record = self.sent.pop(add32(oldest, step), None)
            if record is not None:
                self._land(record)
            record = self.sent.get(add32(recent, step))
            if record is not None and record.acked:
                del self.sent[add32(recent, step)]

    def _land(self, record: KnownPsn) -> None:
        """Take a packet out of flight."""
        if record.flying:
            self.packets -= 1
            self.bytes -= record.flying
            record.flying = 0

    # Answered ---------------------------------------------------------------------------------------------------------

    def acknowledge(
        self, head: Mapping[str, Any], number: int, time_ns: int, row: Row, late: LateValues
    ) -> list[KnownPsn]:
        """Note an ACK, and return the records of the PSNs that no earlier ACK acknowledged."""
        if self.base is None:
            return []
        cack, offset = head["cack_psn"], head.get("ack_psn_offset")
        exact = None if offset is None else add32(cack, offset)
        named = [cack] if exact is None else [cack, exact]
        bitmap, sack_base = head.get("sack_bitmap", 0), add32(cack, head.get("sack_psn_offset", 0))
        while bitmap:
            bit = bitmap & -bitmap
            named.append(add32(sack_base, bit.bit_length() - 1))
            bitmap ^= bit
        if head.get("mpr"):
            self.mpr = head["mpr"]

        found = self._cumulative(cack)
        found += [record for psn in named[1:] if (record := self.sent.get(psn)) is not None and not record.acked]
        answer = None if exact is None else self.sent.get(exact)
        new = list({id(record): record for record in found}.values())
        if answer is not None:
            if any(record is answer for record in new) and not answer.again:
                row["uetp.analysis.rtt"] = (time_ns - answer.time_ns) / SECOND
            if answer.named and not new:
                row["uetp.analysis.duplicate_ack"] = True
            answer.named = True
        for record in new:
            record.acked = True
            self._land(record)
            if not record.trimmed:
                late.acked_in[record.number] = number
                late.ack_ns[record.number] = time_ns - record.time_ns
        told = [record for record in new if not record.trimmed]
        if answer is not None and answer not in told and not answer.trimmed:
            told.append(answer)
        if told:
            row["uetp.acks"] = sorted(record.number for record in told)
        self._look_for_unseen(named, row)
        return new

    def _cumulative(self, cack: int) -> list[KnownPsn]:
        """Acknowledge all PSNs up to `cack` that were seen, and return their records, without those that were
        acknowledged before."""
        newest = add32(self.next, -1)
        if diff32(cack, newest) > 0:
            if diff32(cack, newest) >= FAR:
                return []
            cack = newest
        steps = diff32(cack, self.cack)
        if steps <= 0:
            return []
        found = []
        for step in range(max(1, steps - HISTORY), steps + 1):
            record = self.sent.get(add32(self.cack, step))
            if record is not None and not record.acked:
                found.append(record)
        self.cack = cack
        return found

    def _look_for_unseen(self, named: list[int], row: Row) -> None:
        """Tell whether the capture lacks a PSN that is acknowledged. `named` begins with the CACK_PSN: it says that all
        before it arrived; a PSN that a SACK leaves out may still come."""
        base = self.base or 0
        top = self.checked
        for number, psn in enumerate(named):
            behind = diff32(self.next, psn)  # 1 for the newest PSN
            if behind > RECENT or diff32(psn, base) < 0 or behind <= -FAR:
                continue
            if psn not in self.sent:
                row["uetp.analysis.ack_unseen"] = True
            last = psn if behind > 0 else self.next
            if number == 0 and diff32(last, top) > 0:
                top = last
        steps = diff32(top, self.checked)
        if any(add32(self.checked, step) not in self.sent for step in range(max(1, steps - HISTORY), steps)):
            row["uetp.analysis.lost_segment"] = True
        newest = add32(self.next, -1)
        self.checked = newest if diff32(top, newest) > 0 else top

    def refuse(self, psn: int, number: int, late: LateValues) -> None:
        """Note a NACK."""
        record = self.sent.get(psn)
        if record is not None and not record.acked:
            if not record.refused:
                late.nacked_in[record.number] = number
            record.refused = True
            self._land(record)
