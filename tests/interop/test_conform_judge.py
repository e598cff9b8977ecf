# SPDX-License-Identifier: GPL-2.0-only
"""An independent judge of ten conformance tests: it has the same verdicts, for a right peer and for peers with a fault.

It reads fields of tshark alone (addresses and UDP payload, without our plugin); only what plays the tests is ours.
"""

import struct
from collections.abc import Callable

import pytest

from tests.conform.faulty_peers import FAULTS, peer_with
from tests.support.conform import FACTS, PEER, AdapterLink
from tests.support.interop.tshark import folder, needs_tshark, run, write_pcap
from uetproto.conform.catalogue import load
from uetproto.conform.player import Patience, play

ACK_SIZE = {7: 12, 8: 32, 9: 40}
NACK = 10


def word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def is_ack(data: bytes) -> bool:
    return data[0] >> 3 in ACK_SIZE


def ack_psn(data: bytes) -> int:
    return word(data, 4) + int(struct.unpack_from(">h", data, 2)[0]) & 0xFFFFFFFF


def is_nack(data: bytes, code: int, request: bytes) -> bool:
    """Return whether a packet is a NACK of a request: code and PSN."""
    return data[0] >> 3 == NACK and data[2] == code and word(data, 4) == word(request, 4)


def flag(data: bytes, bits: int) -> bool:
    return bool(data[1] & bits)


RETX, PROBE, CLEAR = 0x10, 0x08, 0x02


def return_code(data: bytes) -> int:
    return data[ACK_SIZE[data[0] >> 3] + 1] & 0x3F


Packets = list[bytes]
JUDGE: dict[str, Callable[[Packets, Packets], bool]] = {  # what was sent and what came, from the PDS header on
    "UET-PDS-001": lambda sent, got: (
        is_ack(got[0]) and ack_psn(got[0]) == word(got[0], 4) == word(sent[0], 4)
        and half(got[0], 10) == half(sent[0], 8) and half(got[0], 8) != 0
    ),
    "UET-PDS-004": lambda sent, got: is_nack(got[0], 0x0E, sent[0]) and half(got[0], 8) == 0,
    "UET-PDS-011": lambda sent, got: is_nack(got[1], 0x16, sent[1]),
    "UET-PDS-020": lambda sent, got: (
        is_ack(got[1]) and ack_psn(got[1]) == word(sent[0], 4) and flag(got[1], RETX) and return_code(got[1]) <= 1
    ),
    "UET-PDS-025": lambda sent, got: is_nack(got[1], 0x0B, sent[1]),
    "UET-PDS-028": lambda sent, got: (
        [ack_psn(one) for one in got[:4]] == [0xFFFFFFFE, 0, 0xFFFFFFFF, 1]
        and [word(one, 4) for one in got[:4]] == [0xFFFFFFFE, 0xFFFFFFFE, 0, 1]
    ),
    "UET-PDS-041": lambda sent, got: (
        is_ack(got[1]) and flag(got[1], RETX) and flag(got[1], CLEAR) and return_code(got[1]) == 0x1C
    ),
    "UET-PDS-053": lambda sent, got: is_ack(got[1]) and flag(got[1], PROBE) and half(got[1], 2) == 0xBEEF,
    "UET-TRIM-002": lambda sent, got: is_nack(got[1], 0x02, sent[1]),
    "UET-SES-035": lambda sent, got: is_ack(got[0]) and flag(got[0], CLEAR) and return_code(got[0]) == 0x12,
}  # fmt: skip
PEERS = (
    None, "ACKs do not have the retx of the packet", "CACK is one too high behind the wrap",
    "probe_opaque is not echoed", "a PDCID that does not exist gets no NACK",
    "an unaligned atomic gets the code of a wrong size",
)  # fmt: skip


@needs_tshark
@pytest.mark.parametrize("fault", PEERS)
def test_tshark_has_the_same_verdicts(fault: str | None) -> None:
    link = AdapterLink() if fault is None else AdapterLink(peer_with(FAULTS[fault]))
    outcomes = [play(test, link, FACTS, "3", Patience()) for test in load() if test.id in JUDGE]
    with folder() as home:
        capture = home / "conform.pcap"
        write_pcap(capture, [frame.data for outcome in outcomes for frame in outcome.frames])
        out, _ = run(["-r", capture, "-T", "fields", "-e", "ip.src", "-e", "udp.payload"], home, scripts=())
    lines = iter(out.splitlines())
    for outcome in outcomes:
        sent: Packets = []
        got: Packets = []
        for _ in outcome.frames:
            source, payload = next(lines).split("\t")
            (got if source == PEER else sent).append(bytes.fromhex(payload.replace(":", "")))
        ours = {half(one, 8) for one in sent}  # a late answer to the close of the test before has another PDCID
        got = [one for one in got if half(one, 10) in ours]
        try:
            verdict = "pass" if JUDGE[outcome.test.id](sent, got) else "fail"
        except IndexError:
            verdict = "fail"
        assert (outcome.test.id, verdict) == (outcome.test.id, outcome.verdict.value)
    if fault is not None:
        assert "fail" in {outcome.verdict.value for outcome in outcomes}
