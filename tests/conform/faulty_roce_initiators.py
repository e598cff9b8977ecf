# SPDX-License-Identifier: GPL-2.0-only
"""Deliberate faults of a peer that is the requester of RoCE: our adapter, and what happens to its packets on their way.

`ROCE_INITIATOR_FAULTS` lists each one with the tests that have to fail. The others have to pass.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.conform.faulty_roce_peers import (
    PSNS,
    Change,
    FaultyRocePeer,
    acknowledges_cnp,
    altered,
    drops,
    fits_partition,
    is_nak,
    takes_wrong_icrc,
    with_field,
    without_nak,
)
from uetproto.wire.headers.roce import Nak, Operation, Transport
from uetproto.wire.packet import Packet

Op = Operation
LATER = (
    Op.SEND_MIDDLE, Op.SEND_LAST, Op.SEND_LAST_WITH_IMMEDIATE, Op.RDMA_WRITE_MIDDLE, Op.RDMA_WRITE_LAST,
    Op.RDMA_WRITE_LAST_WITH_IMMEDIATE,
)  # fmt: skip
"""Packets of a message behind the first one."""


class InitiatorFault(NamedTuple):
    """A fault of a requester, and the tests that it makes fail."""

    failing: tuple[str, ...]
    arrives: Change | None = None
    leaves: Change | None = None
    asked: Mapping[str, int] = MappingProxyType({})
    """Settings that its queue pair has whatever it is asked for."""


def again(change: Callable[[Packet], Iterator[Packet]]) -> Change:
    """Return the fault of what becomes of packets that are sent again."""

    def changed(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        key = bth["destqp"], bth["psn"], bth["opcode"]
        seen = key in peer.seen
        peer.seen.add(key)
        yield from change(packet) if seen else (packet,)

    return changed


def with_other_byte(packet: Packet) -> Iterator[Packet]:
    data = packet.payload
    yield altered(replace(packet, payload=data[:-1] + bytes((data[-1] ^ 1,)))) if data else packet


def with_other_psn(packet: Packet) -> Iterator[Packet]:
    yield altered(packet, psn=(packet["bth"]["psn"] + 100) % PSNS)


def taken_as_ack(nak: int) -> Change:
    return with_field("syndrome", lambda code: 0x1F if code == nak else code)


def is_ack(packet: Packet, bth: dict[str, Any]) -> bool:
    return bth["opcode"] == Op.ACKNOWLEDGE and bool(packet.trailer and packet.trailer.ok)


def notes_psns(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    peer.seen.add(bth["psn"])
    yield packet


def takes_future_acks(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    ahead = is_ack(packet, bth) and bth["psn"] not in peer.seen
    yield altered(packet, psn=max(peer.seen), msn=1) if ahead and peer.seen else packet


def takes_acks_of_others(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    qps = peer.node.hca.qps
    yield altered(packet, destqp=next(iter(qps))) if qps and bth["destqp"] not in qps else packet


def ignores_parts(packet: Packet, bth: dict[str, Any]) -> bool:
    return is_ack(packet, bth) and is_nak(packet, 0x1F) and packet["aeth"]["msn"] == 0


def lengthens_answers(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    short = bth["opcode"] == Op.RDMA_READ_RESPONSE_ONLY and len(packet.payload) == 8
    yield altered(replace(packet, payload=bytes(16))) if short else packet


def ack_for_read(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    """An ACK for a READ ends it."""
    if bth["opcode"] == Op.RDMA_READ_REQUEST:
        peer.seen.add(bth["psn"])
    yield packet


def ends_reads(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if is_ack(packet, bth) and is_nak(packet, 0x1F) and bth["psn"] in peer.seen:
        packet = altered(replace(packet, payload=bytes(16)), opcode=Op.RDMA_READ_RESPONSE_ONLY)
    yield packet


def takes_early_answers(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    after = (bth["psn"] + 1) % PSNS
    early = bth["opcode"] == Op.RDMA_READ_RESPONSE_ONLY and bth["psn"] not in peer.seen and after in peer.seen
    yield altered(packet, psn=after) if early else packet


def damages_answers(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    if bth["opcode"] == Op.RDMA_READ_RESPONSE_ONLY:
        packet = altered(replace(packet, payload=bytes(len(packet.payload))))
    yield packet


def pads_within(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    yield altered(replace(packet, payload=packet.payload + bytes(bth["padcnt"])), padcnt=0) if bth["padcnt"] else packet


def twice(transport: Transport) -> Change:
    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        yield packet
        if bth["opcode"] >> 5 == transport:
            yield packet

    return change


def with_skips(transport: Transport) -> Change:
    """Return the fault that a PSN is left out behind the first packet of a message."""

    def change(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
        later = bth["opcode"] >> 5 == transport and bth["opcode"] & 0x1F in LATER
        yield altered(packet, psn=(bth["psn"] + 1) % PSNS) if later else packet

    return change


def fills_empty(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    empty = bth["opcode"] >> 5 == Transport.UD and not packet.payload
    yield altered(replace(packet, payload=bytes(4))) if empty else packet


def cuts_full(peer: FaultyRocePeer, packet: Packet, bth: dict[str, Any]) -> Iterator[Packet]:
    full = bth["opcode"] >> 5 == Transport.UD and len(packet.payload) == peer.settings.path_mtu
    yield altered(replace(packet, payload=packet.payload[:-4])) if full else packet


def swapped(size: int) -> Callable[[int], int]:
    return lambda value: int.from_bytes(value.to_bytes(size, "big"), "little")


def ids(text: str) -> tuple[str, ...]:
    """Return the ids of tests of the peer as requester."""
    return tuple(f"ROCE-INI-{number}" for number in text.split())


_AGAIN = "020 021 022 023 024 025 030 031 032 035 036 037 038 039 041 042"
"""Tests that need a retransmission."""
ROCE_INITIATOR_FAULTS: dict[str, InitiatorFault] = {
    "nothing is sent again": InitiatorFault(ids(_AGAIN), None, again(lambda packet: iter(()))),
    "a retransmission has a new PSN": InitiatorFault(ids(_AGAIN), None, again(with_other_psn)),
    "a retransmission has another byte": InitiatorFault(
        ids("020 021 022 023 024 025 030 031 036 037 038 039 041"), None, again(with_other_byte)
    ),
    "no request asks for an ACK": InitiatorFault(
        ids("001 002 003 004 005 006 007 008 009 010 012 013 015 020 043"), None, with_field("a", lambda a: 0)
    ),
    "a part of a message that is acknowledged comes again": InitiatorFault(ids("022"), drops(ignores_parts)),
    "NAK PSN sequence error is ignored": InitiatorFault(ids("023"), without_nak(Nak.PSN_SEQUENCE_ERROR)),
    "RNR NAK is ignored": InitiatorFault(ids("024 031"), without_nak(*range(0x20, 0x40))),
    "the time of an RNR NAK is not waited for": InitiatorFault(
        ids("024"), with_field("syndrome", lambda code: 0x21 if code == 0x20 else code)
    ),
    "NAK invalid request is taken for an ACK": InitiatorFault(ids("026"), taken_as_ack(0x61)),
    "NAK remote access error is taken for an ACK": InitiatorFault(ids("027 029"), taken_as_ack(0x62)),
    "NAK remote operational error is taken for an ACK": InitiatorFault(ids("028"), taken_as_ack(0x63)),
    "NAK remote access error is taken for PSN sequence error": InitiatorFault(
        ids("027 029"), with_field("syndrome", lambda code: 0x60 if code == 0x62 else code)
    ),
    "the retry count is one too high": InitiatorFault(ids("030"), asked={"retry_cnt": 2}),
    "the RNR retry count is endless": InitiatorFault(ids("031"), asked={"rnr_retry": 7}),
    "an ACK of what was never sent is taken": InitiatorFault(ids("036"), takes_future_acks, notes_psns),
    "an ACK with a wrong ICRC is taken": InitiatorFault(ids("037"), takes_wrong_icrc),
    "the P_Key of an ACK is not looked at": InitiatorFault(ids("038"), fits_partition),
    "an ACK for another queue pair is taken": InitiatorFault(ids("039"), takes_acks_of_others),
    "an ACK ends a READ": InitiatorFault(ids("042"), ends_reads, ack_for_read),
    "a short answer to a READ is taken": InitiatorFault(ids("040"), lengthens_answers),
    "an answer with a PSN before the READ is taken": InitiatorFault(ids("034"), takes_early_answers, ack_for_read),
    "data of a READ of one packet is not stored": InitiatorFault(ids("010 032 034 042"), damages_answers),
    "the value of an atomic is of the other byte order": InitiatorFault(
        ids("012 013 035"), with_field("origremdt", swapped(8))
    ),
    "a READ asks for one packet": InitiatorFault(
        ids("011 016 033"), None, with_field("dmalen", lambda size: min(size, 256), Op.RDMA_READ_REQUEST)
    ),
    "what is missing of a READ is asked for from the beginning on": InitiatorFault(
        ids("033"), None, with_field("va", lambda va: va & ~0xFFF, Op.RDMA_READ_REQUEST)
    ),
    "a CNP is acknowledged": InitiatorFault(ids("041"), acknowledges_cnp),
    "the length of a WRITE is that of its first packet": InitiatorFault(
        ids("002 003 005 021"), None, with_field("dmalen", lambda size: min(size, 256), Op.RDMA_WRITE_FIRST)
    ),
    "a WRITE of no bytes has a length": InitiatorFault(
        ids("043"), None, with_field("dmalen", lambda size: size or 4, Op.RDMA_WRITE_ONLY)
    ),
    "addresses are four bytes too high": InitiatorFault(
        ids("001 002 010 012 013 032 033 101"), None, with_field("va", lambda va: va + 4)
    ),
    "keys are of the other byte order": InitiatorFault(
        ids("001 002 009 010 012 013 032 033 101"), None, with_field("r_key", swapped(4))
    ),
    "immediates are of the other byte order": InitiatorFault(
        ids("004 005 008 104 105 202"), None, with_field("immdt", swapped(4))
    ),
    "operands are of the other byte order": InitiatorFault(
        ids("012 013 035"), None, with_field("swapdt", swapped(8))
    ),
    "the value to compare is of the other byte order": InitiatorFault(
        ids("013"), None, with_field("cmpdt", lambda value: value and swapped(8)(value))
    ),
    "requests skip PSN 0": InitiatorFault(
        ids("015"), None, with_field("psn", lambda psn: psn or 1, Op.RDMA_WRITE_LAST)
    ),
    "a PSN is left out within a message": InitiatorFault(
        ids("002 003 005 007 015 021 022 023 025"), None, with_skips(Transport.RC)
    ),
    "reserved bits are set": InitiatorFault(ids("014 107 206"), None, with_field("rsvd2", lambda bits: 5)),
    "the pad is part of the data": InitiatorFault(ids("003 007 102 205"), None, pads_within),
    "UC sends all twice": InitiatorFault(ids("101 102 103 104 106"), None, twice(Transport.UC)),
    "UC leaves out a PSN within a message": InitiatorFault(ids("102 104 106"), None, with_skips(Transport.UC)),
    "datagrams are sent twice": InitiatorFault(ids("201"), None, twice(Transport.UD)),
    "datagrams have another Q_Key": InitiatorFault(
        ids("201 202"), None, with_field("q_key", lambda key: key ^ 1)
    ),
    "datagrams have another sender": InitiatorFault(
        ids("201 202"), None, with_field("srcqp", lambda number: number ^ 1)
    ),
    "a datagram of no bytes has some": InitiatorFault(ids("203"), None, fills_empty),
    "a full datagram is cut": InitiatorFault(ids("204"), None, cuts_full),
}  # fmt: skip
