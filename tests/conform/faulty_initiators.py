# SPDX-License-Identifier: GPL-2.0-only
"""Deliberate faults of a peer that is the initiator: our endpoint, and what happens to its packets on their way.

`FAULTS` lists each one with the tests that have to fail.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tests.conform.faulty_peers import (
    ACKS,
    REQUESTS,
    Change,
    FaultyPeer,
    PeerFault,
    altered,
    is_control,
    no_nack,
    takes_wrong_crc,
    with_field,
    without,
)
from uetproto.conform.catalogue import TARGET, load, of_role
from uetproto.wire.headers.uet_pds import CtlType, NackCode, PdsType
from uetproto.wire.packet import Packet


def never_again(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if not (pds["type"] in REQUESTS and pds["retx"]):
        yield packet


def renumbers(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    again = pds["type"] in REQUESTS and pds["retx"]
    yield altered(packet, psn=pds["psn"] + 100, psn_offset=pds.get("psn_offset", 0) + 100) if again else packet


def renames(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    again = pds["type"] in REQUESTS and pds["retx"]
    message = packet.layers[-1].values.get("message_id", 0)
    for layer in packet.layers:
        message = layer.values.get("message_id", message)
    yield altered(packet, message_id=message ^ 0x100) if again else packet


def takes_future_acks(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    """An ACK of packets that were never sent is taken as one of those that were."""
    if pds["type"] in ACKS and not pds.get("p"):
        last = max(peer.psns, default=0)
        ahead = pds["cack_psn"] - last & 0xFFFFFFFF
        if 0 < ahead < 1 << 16:
            yield altered(packet, cack_psn=last, ack_psn_offset=0)
            return
    yield packet


def notes_psns(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds["type"] in REQUESTS:
        peer.psns.add(pds["psn"])
    yield packet


def any_pdcid(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    wrong = pds.get("dpdcid", 1) == 2 and pds["type"] in (*ACKS, PdsType.NACK)
    yield altered(packet, dpdcid=1) if wrong else packet


def takes_nack_as(code: NackCode, other: NackCode) -> Change:
    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        yield altered(packet, nack_code=other) if pds.get("nack_code") == code else packet

    return change


def takes_every_response_as_ok(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    wrong = pds["type"] in ACKS and "ses.response" in packet and packet["ses.response"]["return_code"] > 1
    yield altered(packet, return_code=1, opcode=0) if wrong else packet


def closes_twice(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    yield packet
    if is_control(pds, CtlType.CLOSE_CMD):
        peer.more.append(altered(packet, retx=1))


def keeps_syn_offset(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    yield altered(packet, psn_offset=0) if pds.get("psn_offset") else packet


def without_kind(kinds: tuple[int, ...]) -> Change:
    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        if pds["type"] not in kinds:
            yield packet

    return change


def ids(*numbers: int) -> tuple[str, ...]:
    """Return the ids of tests of the peer as initiator."""
    return tuple(f"UET-INI-{number:03}" for number in numbers)


def _needing(wanted: Callable[[dict[str, Any]], bool]) -> tuple[str, ...]:
    """Return the ids of the tests that have a step of a kind."""
    tests = of_role(load(), TARGET)
    return tuple(test.id for test in tests if any(wanted(dict(step)) for step in test.steps))


AGAIN = tuple(sorted({
    *_needing(lambda step: step.get("expect") == "request" and (step.get("retx") == 1 or bool(step.get("copies")))),
    *ids(14, 58),  # one of two ways that they allow: the one that our endpoint takes
}))  # fmt: skip
"""Tests that need a retransmission of a request."""
ERRORS = _needing(
    lambda step: step.get("opcode") == "RESPONSE" and step.get("return_code", "OK") != "OK" and "send" in step
)
"""Tests in which the target refuses a message."""
N = NackCode
FAULTS: dict[str, PeerFault] = {
    "nothing is sent again": PeerFault(AGAIN, None, never_again),
    "a retransmission has a new PSN": PeerFault(AGAIN, None, renumbers),
    "a retransmission has another message id": PeerFault(ids(4, 57, 58, 102), None, renames),
    "retransmissions have no retx": PeerFault(AGAIN, None, with_field("retx", lambda value: 0, REQUESTS)),
    "no packet asks for an ACK": PeerFault(ids(3, 4), None, with_field("ar", lambda value: 0, REQUESTS)),
    "an ACK of what was never sent is taken": PeerFault(ids(9, 16), takes_future_acks, notes_psns),
    "an ACK for another PDCID is taken": PeerFault(ids(11, 53), any_pdcid),
    "an ACK with a wrong CRC32C is taken": PeerFault(ids(70), takes_wrong_crc),
    "CLEAR_CMD is never sent": PeerFault(ids(26, 63, 72), None, without(CtlType.CLEAR_CMD)),
    "CLOSE_REQ is ignored": PeerFault(ids(17), without(CtlType.CLOSE_REQ)),
    "CLEAR_REQ is ignored": PeerFault(ids(26), without(CtlType.CLEAR_REQ)),
    "CLOSE_CMD is sent twice": PeerFault(ids(16, 19, 27), None, closes_twice),
    "NACK TRIMMED is ignored": PeerFault(ids(30), no_nack(N.TRIMMED)),
    "NACKs of missing resources are ignored": PeerFault(
        ids(32, 33, 34, 35, 36, 37, 38),
        no_nack(N.NO_PDC_AVAIL, N.NO_CCC_AVAIL, N.NO_BITMAP, N.NO_PKT_BUFFER, N.NO_GTD_DEL_AVAIL, N.NO_SES_MSG_AVAIL,
                N.NO_RESOURCE),
    ),
    "NACK ROD_OOO is ignored": PeerFault(ids(23), no_nack(N.ROD_OOO)),
    "NACK CLOSING is taken as TRIMMED": PeerFault(ids(42), takes_nack_as(N.CLOSING, N.TRIMMED)),
    "INV_DPDCID is ignored": PeerFault(ids(19, 40), no_nack(N.INV_DPDCID)),
    "errors of the target are taken as success": PeerFault(ERRORS, takes_every_response_as_ok),
    "psn_offset is always 0": PeerFault(ids(2), None, keeps_syn_offset),
    "segments have message_offset 0": PeerFault(ids(61), None, with_field("message_offset", lambda value: 0, REQUESTS)),
    "return data is not acknowledged": PeerFault(ids(17, 64, 65, 66, 67, 68, 69, 111, 112), None, without_kind(ACKS)),
    "CLEAR_PSN never moves": PeerFault(
        ids(1, 6, 13, 14, 29, 96, 97), None, with_field("clear_psn_offset", lambda value: min(value, -3), REQUESTS)
    ),
    "repeated RUDI requests have no retx": PeerFault(
        ids(105, 106, 107, 113), None, with_field("retx", lambda value: 0, (PdsType.RUDI_REQ,))
    ),
    "trimmed return data gets no NACK": PeerFault(ids(68), None, no_nack(N.TRIMMED, N.TRIMMED_LASTHOP)),
}  # fmt: skip
