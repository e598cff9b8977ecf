# SPDX-License-Identifier: GPL-2.0-only
"""This module has the class `Analyser`, which takes the packets of a capture in their order."""

from collections.abc import Hashable, Mapping
from itertools import count
from typing import Any

from uetproto.audit.per_packet.copies import TapCopies
from uetproto.audit.per_packet.late import LateValues
from uetproto.audit.per_packet.links import LinkedRequests
from uetproto.audit.per_packet.messages import note_acked, note_request, note_response
from uetproto.audit.per_packet.pdcs import PdcUses
from uetproto.audit.per_packet.queue_pairs import QueuePairs
from uetproto.audit.per_packet.seen import PacketSeen
from uetproto.audit.per_packet.sender import KnownPsn, Row, Sender
from uetproto.audit.per_packet.without_pdc import Datagrams
from uetproto.wire.headers.uet_pds import CONTROLS, CpPsn, CtlType
from uetproto.wire.packet import Packet
from uetproto.wire.serial import add32, diff32
from uetproto.wire.words.tenants import Tenants

_CONSUMES = frozenset(kind for kind, row in CONTROLS.items() if row.psn is CpPsn.CONSUMED)
"""Control packets with a PSN of their own."""
_NAMES_PSN = frozenset(kind for kind, row in CONTROLS.items() if row.psn is not CpPsn.NONE)


class Analyser:
    """This class tells of each packet of a capture what the packets around it say."""

    def __init__(self) -> None:
        self.late = LateValues()
        """Values that later packets tell; they are complete at the end of the capture."""
        self._pdcs: dict[Hashable, PdcUses] = {}
        self._datagrams: dict[Hashable, Datagrams] = {}
        self._links: dict[Hashable, LinkedRequests] = {}
        self._queue_pairs: dict[Hashable, QueuePairs] = {}
        self._pdc_count, self._stream_count = count().__next__, count().__next__
        self._copies = TapCopies()
        self._tenants = Tenants()

    def take(self, packet: Packet, data: bytes, time_ns: int, number: int, tap: Hashable) -> Row:
        """Take packet `number` (from 1) of the interface `tap`, and return the values that are known now."""
        self.late.add()
        row: Row = {}
        for at, layer in enumerate(packet.layers):
            if layer.form.startswith("pds."):
                tenant = self._tenants.of(packet.layers)
                seen = PacketSeen(number, time_ns, packet, at, data)
                self._note_copy(seen, tap, tenant, row)
                self._uet(seen, (tap, tenant), row)
                break
            if layer.form == "bth":
                network = tap, self._tenants.of(packet.layers)
                pairs = self._queue_pairs.setdefault(network, QueuePairs(self._stream_count, self.late.alias))
                self.late.stream[number] = pairs.take(packet.layers)
                break
        return row

    def _note_copy(self, seen: PacketSeen, tap: Hashable, tenant: int, row: Row) -> None:
        same = seen.src, seen.dst, seen.entropy, seen.size, seen.data, tenant
        copy = self._copies.find(same, seen.number, tap, seen.time_ns)
        if copy is not None:
            row["uetp.analysis.copy_of"] = copy

    def _uet(self, seen: PacketSeen, tap: Hashable, row: Row) -> None:
        """Take a packet of UET. `tap` is its interface and the number of its network."""
        kind = seen.kind
        if kind.startswith(("pds.rudi", "pds.uud")) or kind.endswith(".rudi"):
            self._datagrams.setdefault(tap, Datagrams(self.late)).take(seen, row)
            return
        pdcs = self._pdcs.setdefault(tap, PdcUses(self._pdc_count))
        if kind.startswith("pds.ack"):
            self._ack(pdcs, seen, row)
        elif kind.startswith("pds.nack"):
            psn = seen.head["nack_psn"]
            sender = pdcs.answered(seen.src, seen.dst, seen.head, psn)
            if sender is not None:
                row["uetp.pdc"] = sender.use.index
                sender.refuse(psn, seen.number, self.late)
        elif kind == "pds.cp" and seen.head["ctl_type"] not in _CONSUMES:
            sender = pdcs.known(seen.src, seen.dst, seen.head)
            row["uetp.pdc"] = sender.use.index
            if seen.head["ctl_type"] in _NAMES_PSN and sender.base is not None:
                row["uetp.rel_psn"] = diff32(seen.head["psn"], sender.base)
        else:
            find = pdcs.opened if seen.head["syn"] else pdcs.sent
            links = self._links.setdefault(tap, LinkedRequests())
            self._sent(find(seen.src, seen.dst, seen.head), seen, row, links)

    def _sent(self, sender: Sender, seen: PacketSeen, row: Row, links: LinkedRequests) -> None:
        """Take a packet with a PSN of its own."""
        head, psn, late = seen.head, seen.head["psn"], self.late
        row["uetp.pdc"] = sender.use.index
        record = sender.send(psn, seen.sent, row)
        row["uetp.rel_psn"] = diff32(psn, sender.base or 0)
        if head.get("ctl_type") == CtlType.CLOSE_CMD:
            sender.use.close = sender, psn
        if record is None or seen.ses is None:
            return
        if "return_code" not in seen.ses:
            note_request(sender.messages, record, seen, row, late)
            asked_in = links.find((seen.src, seen.dst), seen.ses)
            if asked_in is not None:
                row["uetp.response_to"] = asked_in
                if not late.response_in[asked_in]:
                    late.response_in[asked_in] = seen.number
            if late.messages.first[late.message[seen.number]] == seen.number:
                links.note((seen.src, seen.dst), seen.layers, seen.ses, record)
            return
        asked = _asked(sender.other, seen.ses, None)
        if asked is not None:
            first = not record.counted and not seen.trimmed
            record.counted = record.counted or first
            note_response(asked, seen, first, row, late)

    def _ack(self, pdcs: PdcUses, seen: PacketSeen, row: Row) -> None:
        head, late = seen.head, self.late
        offset = head.get("ack_psn_offset")
        psn = add32(head["cack_psn"], offset or 0)
        sender = pdcs.answered(seen.src, seen.dst, head, psn)
        if sender is None:
            return
        row["uetp.pdc"] = sender.use.index
        for record in sender.acknowledge(head, seen.number, seen.time_ns, row, late):
            note_acked(record, seen.time_ns, late)
        exact = None if offset is None else sender.sent.get(psn)
        asked = exact if seen.ses is None else _asked(sender, seen.ses, exact)
        if asked is not None:
            note_response(asked, seen, not seen.trimmed, row, late)


def _asked(sender: Sender, ses: Mapping[str, Any], exact: KnownPsn | None) -> KnownPsn | None:
    """Return the record of the request that a response answers: it names a message or a PSN, or its ACK does."""
    if "read_request_message_id" in ses:
        message = sender.messages.get(ses["read_request_message_id"])
        return None if message is None else message.record
    if "original_request_psn" in ses:
        return sender.sent.get(ses["original_request_psn"])
    return exact
