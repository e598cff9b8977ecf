"""Bytes from outside never raise, and change state only if they pass pds.md §6.3 (§18 items 35–37, 48)."""

import itertools
import random

import hypothesis.strategies as st
from hypothesis import given

from tests.ladders.ladder import IPDCID, TPDCID, A, B, Ladder
from tests.strategies import examples
from uetproto.engine import Datagram, Fep, Mode, Region, Trim, Write
from uetproto.engine.messages import build_ack_cc, build_nack
from uetproto.engine.nacks import FATAL_CODES, NACKS
from uetproto.wire.uet_pds import NextHdr

KEY = 7


def endpoints() -> tuple[Fep, Fep]:
    a, b = Fep(A, random.Random(1)), Fep(B, random.Random(2))
    b.attach(101).register(Region(KEY, bytearray(100_000)))
    a.submit(Write(peer=B, data=bytes(100_000), key=KEY, job_id=101, mode=Mode.RUD), 0)
    for packet in a.poll(0)[:10]:
        b.receive(packet, 0)
    for packet in b.poll(0):
        a.receive(packet, 0)
    a.poll(0)
    return a, b


SEEN = [bytes(p.header) + bytes(p.payload) for p in endpoints()[0].poll(10**9)]


@given(data=st.binary(max_size=80), trimmed=st.sampled_from(Trim), from_peer=st.booleans())
@examples(300)
def test_arbitrary_bytes(data: bytes, trimmed: Trim, from_peer: bool) -> None:
    for fep, peer in zip(endpoints_once(), (B, A), strict=True):
        fep.receive(Datagram(peer if from_peer else 99, fep.address, data, trimmed=trimmed), 0)
        fep.poll(0)


_ENDS: list[tuple[Fep, Fep]] = []


def endpoints_once() -> tuple[Fep, Fep]:
    """The same two endpoints again and again: garbage piles up as it would."""
    if not _ENDS:
        _ENDS.append(endpoints())
    return _ENDS[0]


@given(which=st.integers(0, 50), changes=st.lists(st.tuples(st.integers(0, 63), st.integers(1, 255)), max_size=4),
       cut=st.integers(0, 70))  # fmt: skip
@examples(200)
def test_real_packets_with_bytes_changed(which: int, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(SEEN[which % len(SEEN)])
    for at, value in changes:
        if at < len(data):
            data[at] ^= value
    if cut < 60:
        del data[len(data) - min(cut, len(data)) :]
    for fep in endpoints_once():
        fep.receive(Datagram(A if fep.address == B else B, fep.address, bytes(data)), 0)
        fep.poll(0)


def flight() -> Ladder:
    x = Ladder()
    x.a.send(12)
    x.a.outbox.clear()
    return x


ACKS = st.builds(
    lambda cack, off, base, bits: build_ack_cc(NextHdr.NONE, 0, 0, 0, off, cack, TPDCID, IPDCID, 8, base, bits),
    st.integers(332, 344), st.integers(0, 12), st.integers(0, 8), st.integers(0, 0xFFF),
)  # fmt: skip


def numbers(x: Ladder) -> tuple[object, ...]:
    tx = x.a.pdc.tx
    return tx.una, tx.peer_cack, sorted(tx.records), sorted(p for p, r in tx.records.items() if r.dst_rcvd)


@given(acks=st.lists(ACKS, min_size=1, max_size=4))
def test_confluence_of_acks(acks: list[bytes]) -> None:
    """Item 37: any order of the same ACKs gives the same acked set, una, CLEAR, peer_cack."""
    outcomes = []
    for order in itertools.islice(itertools.permutations(acks), 6):
        x = flight()
        for ack in order:
            x.a.rx_bytes(B, ack)
        outcomes.append(numbers(x))
    assert all(outcome == outcomes[0] for outcome in outcomes)


@given(ack=ACKS)
def test_an_ack_twice_is_an_ack_once(ack: bytes) -> None:
    """Item 36."""
    x = flight()
    x.a.rx_bytes(B, ack)
    once, answered = numbers(x), list(x.a.ses.responses)
    x.a.rx_bytes(B, ack)
    assert numbers(x) == once
    assert x.a.ses.responses == answered


@given(code=st.sampled_from(sorted(NACKS)), psn=st.sampled_from([0, 331, 332, 345, 346, 2**31 + 400]))
def test_a_nack_outside_the_flight_changes_nothing(code: int, psn: int) -> None:
    """Item 35; a fatal code for a PSN that was sent, though acknowledged since, is believed."""
    x = flight()
    before = numbers(x)
    x.a.rx_bytes(B, build_nack(code, 0, 0, psn, TPDCID, IPDCID))
    if psn != 332 or code not in FATAL_CODES:
        assert numbers(x) == before
        x.a.silent()
    assert not [s for s in x.a.outbox if s.kind == "NACK"]
