# SPDX-License-Identifier: GPL-2.0-only
"""This module follows what is sent without a PDC: RUDI, whose packets have a pkt_id, and UUD."""

from uetproto.audit.per_packet.late import SECOND, LateValues
from uetproto.audit.per_packet.messages import note_acked, note_request, note_response
from uetproto.audit.per_packet.seen import PacketSeen
from uetproto.audit.per_packet.sender import HISTORY, KnownPsn, Row

Hosts = tuple[int, int]


class Datagrams:
    """This class follows RUDI and UUD of one interface."""

    def __init__(self, late: LateValues) -> None:
        self._late = late
        self._sent: dict[Hosts, dict[int, KnownPsn]] = {}
        """Maps sender and receiver to the records of the latest `HISTORY` pkt_ids, in the order of their first
        packets."""
        self._messages: dict[Hosts, dict[int, object]] = {}
        self._datagrams: dict[Hosts, dict[int, object]] = {}

    def take(self, seen: PacketSeen, row: Row) -> None:
        """Take a packet, and add its values to `row`."""
        hosts, kind, late = (seen.src, seen.dst), seen.kind, self._late
        if kind == "pds.rudi_req":
            record = self._send(hosts, seen, row)
            if seen.ses is not None and "return_code" not in seen.ses:
                note_request(self._messages.setdefault(hosts, {}), record, seen, row, late)
            return
        if kind == "pds.uud_req":
            if seen.ses is not None and "return_code" not in seen.ses:
                record = KnownPsn(seen.sent)
                note_request(self._datagrams.setdefault(hosts, {}), record, seen, row, late)
            return
        asked = self._sent.get(hosts[::-1], {}).get(seen.head["pkt_id" if kind == "pds.rudi_resp" else "nack_pkt_id"])
        if asked is None:
            return
        if kind != "pds.rudi_resp":
            if not asked.acked and not asked.refused:
                asked.refused = True
                late.nacked_in[asked.number] = seen.number
            return
        if not asked.trimmed:
            row["uetp.acks"] = [asked.number]
        if asked.acked:
            row["uetp.analysis.duplicate_ack"] = True
        else:
            asked.acked = True
            since = seen.time_ns - asked.time_ns
            if not asked.again:
                row["uetp.analysis.rtt"] = since / SECOND
            if not asked.trimmed:
                late.acked_in[asked.number], late.ack_ns[asked.number] = seen.number, since
            note_acked(asked, seen.time_ns, late)
        note_response(asked, seen, not asked.named, row, late)
        asked.named = True

    def _send(self, hosts: Hosts, seen: PacketSeen, row: Row) -> KnownPsn:
        """Note a request of RUDI, and return the record of its pkt_id."""
        records = self._sent.setdefault(hosts, {})
        packet, id = seen.sent, seen.head["pkt_id"]
        record = records.get(id)
        if packet.trimmed:
            row["uetp.analysis.trimmed"] = True
        if record is None:
            if packet.retx:
                row["uetp.analysis.retransmission"] = True
            if len(records) >= HISTORY:
                del records[next(iter(records))]
            records[id] = record = KnownPsn(packet)
        elif packet.retx:
            row["uetp.analysis.retransmission"] = True
            row["uetp.retransmission_of"] = record.number
            if record.acked:
                row["uetp.analysis.spurious_retransmission"] = True
            record.number, record.time_ns, record.trimmed = packet.number, packet.time_ns, packet.trimmed
            record.again, record.refused = True, False
        elif not packet.trimmed:
            row["uetp.analysis.duplicate"] = True
        return record
