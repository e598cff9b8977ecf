# SPDX-License-Identifier: GPL-2.0-only
"""Secure start from both sides: the closing ACK, NEW_START_PSN, floors, and what a replay can do (tss.md §11, §14)."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ladders.ladder import IPDCID, MS, TPDCID, A, B, Ladder
from tests.support.pds.headers import build_ack_epsn, build_nack, build_syn_request
from tests.support.tss.secure_pair import FIRST, SECOND, TARGET, Domain
from uetproto import decode
from uetproto.engine import Mode, Pds, PdsConfig, Preset
from uetproto.engine.config import PERSONALITIES
from uetproto.engine.contract import PDC_MODES, Close, Noop, PdcClosed, PdcErrorReason, PdcOpened
from uetproto.engine.pds.lifecycle import Tombstone
from uetproto.engine.pds.messages import Ack, Nack, parse
from uetproto.engine.pds.secure_start import ExpectedStart, RandomStart
from uetproto.engine.pds.states import STATES, Role, State
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr, PdsType
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.serial import add32, diff32
from uetproto.wire.stack import encode

BELOW = [
    Layer("ethernet", {"type": 0x0800}),
    Layer("ipv4", {"src": A, "dst": B, "protocol": 253}),
    Layer("entropy", {"entropy": 1}),
]
PSN = st.one_of(st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF]), st.integers(0, 0xFFFFFFFF))
HALF = st.one_of(st.sampled_from([0, 1, (1 << 31) - 1]), st.integers(0, (1 << 31) - 1))
MODES = pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD], ids=lambda mode: mode.name)


def new_start(psn: int, demanded: int, spdcid: int = TPDCID) -> bytes:
    return build_nack(NackCode.NEW_START_PSN, 0, 0, psn, spdcid, IPDCID, demanded)


def syn(start: int, offset: int) -> bytes:
    psn = add32(start, offset)
    return build_syn_request(PdsType.RUD_REQ, NextHdr.REQUEST_STD, 0, 1, -1, psn, IPDCID, offset) + bytes(44)


# The closing ACK (tss.md §11, pds.md §6.6) ---------------------------------------------------------------------------


def closed_once(a: dict[str, Any], b: dict[str, Any], *, lost: bool = False) -> tuple[Ladder, Any]:
    """A PDC from 5000 on, with two requests and its CLOSE_CMD 5002, is closed; the closing ACK with it."""
    common = {"secure_start": "expected", "closing_ack": "at_close_psn", "closing_ack_epsn": False}
    x = Ladder(Mode.RUD, established=False, forward=5000, **common | a, b=common | b)
    x.a.send(2)
    for _ in range(2):
        x.b.rx(x.a.sent("REQ"))
        x.a.rx(x.b.sent("ACK"))
    x.a.submit(Close(peer=B))
    command = x.a.sent("CLOSE_CMD", psn=5002)
    x.b.rx(command)
    ack = x.b.sent("ACK", ack=5002)
    if lost:
        x.b.rx(command, retx=True)
        ack = x.b.sent("ACK", ack=5002)
    x.a.rx(ack)
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)
    return x, ack


LAST, START = {"expected_psn_after_close": "last_plus_1"}, {"expected_psn_after_close": "start_plus_1"}
EPSN = {"closing_ack_epsn": True}


@pytest.mark.parametrize("lost", [False, True], ids=["at once", "repeated"])
@pytest.mark.parametrize(
    ("a", "b", "told", "then"),
    [
        (LAST, LAST, None, 5003),
        (START, START, None, 5001),
        (LAST | EPSN, LAST | EPSN, 5003, 5003),
        (START | EPSN, START | EPSN, 5001, 5001),
        (START | EPSN, LAST | EPSN, 5003, 5003),  # newer than its own
        (LAST | EPSN, START | EPSN, 5001, 5003),  # older than its own
        (START, LAST | EPSN, 5003, 5001),  # of the older revision: the flag is reserved there
        (START | EPSN, LAST, None, 5001),
    ],
)
def test_the_closing_ack_tells_where_to_begin(
    a: dict[str, Any], b: dict[str, Any], told: int | None, then: int, lost: bool
) -> None:
    x, ack = closed_once(a, b, lost=lost)
    assert ack.message.epsn == told
    header = bytes(ack.packet.header)
    assert (len(header), header[1] & 0x40) == ((16, 0x40) if told is not None else (12, 0))
    x.a.send(1)
    x.a.sent("REQ", psn=then, psn_offset=0, syn=1)


def test_the_closing_ack_of_the_reference_provider() -> None:
    """observed.md: CACK one below, ack_psn_offset 1, Start_PSN + 1 behind the header."""
    refprov = {name: PERSONALITIES["refprov"]["pds"][name] for name in ("closing_ack", *START, *EPSN)}
    _, ack = closed_once(refprov, refprov)
    assert bytes(ack.packet.header).hex() == "3840" + "0001" + f"{5001:08x}" + "0003" + "0007" + f"{5001:08x}"


def test_what_an_initiator_does_not_believe() -> None:
    """The flag in an ACK of anything but its CLOSE_CMD."""
    x = Ladder(secure_start="expected", **EPSN)
    x.a.send(1)
    x.a.sent("REQ")
    x.a.rx_bytes(B, build_ack_epsn(0, 0, 0, 333, TPDCID, IPDCID, 0x70000000))
    assert (x.a.pds.start_policy.begin, x.a.ses.responses) == (None, [(0, b"")])  # type: ignore[union-attr]
    x.a.submit(Close(peer=B))
    x.a.rx_bytes(B, build_ack_epsn(0, 0, 0, 333, TPDCID, IPDCID, 0x70000000))
    assert (x.a.state, x.a.pds.start_policy.begin) == (State.CLOSE_ACK_WAIT, None)  # type: ignore[union-attr]
    x.a.rx_bytes(B, build_ack_epsn(0, 0, 0, 334, TPDCID, IPDCID, 0x70000000))
    assert x.a.pds.start_policy.begin == 0x70000000  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ["off", "random"])
def test_only_expected_start_has_something_to_tell(policy: str) -> None:
    x = Ladder(b={"secure_start": policy, **EPSN})
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD"))
    assert x.b.sent("ACK").message.epsn is None


def test_objects_say_the_same() -> None:
    config = PdsConfig(secure_start="expected", closing_ack_epsn=True)
    old, owner = Tombstone(3, A, 7, 5000, 5002), Pds(B, config, random.Random(1), Any)
    assert owner.start_policy is not None
    owner.start_policy.closed(5000, 5002)
    old.send_closing_ack(owner, 1, 1, 0)
    owner.objects = True
    old.send_closing_ack(owner, 1, 1, 0)
    header, message = owner.out[0].header, owner.out[1].message
    said = parse(header)
    assert isinstance(said, Ack)
    assert isinstance(message, Ack)
    assert (
        (said.epsn, said.cack_psn, said.marked) == (message.epsn, message.cack_psn, message.marked) == (5003, 5002, 1)
    )


@pytest.mark.parametrize(
    ("form", "more", "size"),
    [
        ("pds.ack.epsn", {"expected_psn": 9}, 16),
        ("pds.ack", {"next_hdr": 4, "rsvd": 1}, 12),  # in front of an SES response the bit is reserved
        ("pds.ack", {}, 12),
        ("pds.ack.probe", {"rsvd": 1}, 12),
    ],
)
def test_the_wire_tells_the_two_revisions_apart(form: str, more: dict[str, int], size: int) -> None:
    layers = [Layer(form, more)]
    if more.get("next_hdr"):
        layers.append(Layer("ses.response", {}))
    frame = encode(Packet([*BELOW, *layers]), fill=True)
    packet = decode(frame, crc="off")
    assert (packet.error, packet.layers[3].form) == (None, form)
    parsed = parse(frame[38:])
    assert isinstance(parsed, Ack)
    assert (parsed.size, parsed.epsn) == (size, more.get("expected_psn"))


# NACK NEW_START_PSN, state by state ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "state"), [(role, state) for role in (Role.INITIATOR, Role.TARGET) for state in STATES[role]],
    ids=lambda value: value.name,
)  # fmt: skip
def test_only_creating_takes_another_start(role: Role, state: State) -> None:
    """tss.md §11: otherwise ignored; that a packet is in flight makes no difference."""
    x = Ladder(established=state is not State.CREATING, forward=333)
    end, peer, local = (x.a, B, IPDCID) if role is Role.INITIATOR else (x.b, A, TPDCID)
    if role is Role.INITIATOR:
        x.a.send(2)
    elif state is not State.PENDING:
        x.b.submit(Noop(peer=A, mode=Mode.RUD))
    end.outbox.clear()
    end.pdc.enter(state)
    end.pdc.locks = 1  # it stays there
    tx = end.pdc.tx
    before = tx.start, tx.next, tx.una, list(tx.records)
    other = IPDCID if role is Role.TARGET else TPDCID
    end.rx_bytes(peer, build_nack(NackCode.NEW_START_PSN, 0, 0, tx.last, other, local, 9000))
    assert (end.state, end.pds.nack_rx) == (state, {NackCode.NEW_START_PSN: 1})
    if state is State.CREATING:
        assert (tx.start, tx.next, tx.una, list(tx.records)) == (9000, 9002, 9000, [9000, 9001])
        assert [sent.get("psn") for sent in end.outbox] == [9000, 9001]
    else:
        assert (tx.start, tx.next, tx.una, list(tx.records)) == before
        assert end.outbox == []


def opening(packets: int = 2) -> Ladder:
    x = Ladder(established=False, forward=5000)
    x.a.send(packets)
    x.a.outbox.clear()
    return x


@pytest.mark.parametrize("psn", [5000, 5001, 4999, 7, 0xFFFFFFFF])
def test_no_news_is_ignored(psn: int) -> None:
    """pds.md §6.6: delta = 0, whatever packet it is about; nothing is sent, and nothing is counted as wrong."""
    x = opening()
    x.a.rx_bytes(B, new_start(psn, 5000))
    assert (x.a.pdc.tx.start, x.a.outbox, x.a.pds.counters.bad_nack) == (5000, [], 0)


def test_the_rest_of_the_first_flight_is_refused_too() -> None:
    """pds.md §6.6: nack_psn need not be outstanding after a shift."""
    x = opening(3)
    for psn in (5000, 5001, 5002):
        x.a.rx_bytes(B, new_start(psn, 9000))
    assert [sent.get("psn") for sent in x.a.outbox] == [9000, 9001, 9002]
    assert x.a.pds.counters.bad_nack == 0


def test_a_late_demand_does_not_count() -> None:
    """Of a PENDING PDC that is gone: its successor waits for what it said itself, and else would say INVALID_SYN."""
    x = opening()
    x.a.rx_bytes(B, new_start(5000, 9000))
    x.a.rx_bytes(B, new_start(9000, 700))
    x.a.rx_bytes(B, new_start(5001, 9000))
    assert x.a.pdc.tx.start == 700
    assert x.a.pds.counters.bad_nack == 1


@MODES
def test_everything_moves_together(mode: Mode) -> None:
    """tss.md §11: Start_PSN, next, base, CLEAR and every packet, order and psn_offset kept, counted anew; over 2^32."""
    x = Ladder(mode, established=False, forward=5000)
    x.a.send(3)
    x.a.outbox.clear()
    x.wait(x.a.pds.config.rto_init_time)
    assert x.a.pdc.tx.records[5000].rto_cnt
    x.a.outbox.clear()
    x.a.rx_bytes(B, new_start(5000, 0xFFFFFFFF))
    moved = [(s.get("psn"), s.get("psn_offset"), s.get("retx"), s.get("coff")) for s in x.a.outbox]
    assert moved == [(0xFFFFFFFF, 0, 0, -1), (0, 1, 0, -2), (1, 2, 0, -3)]
    assert {record.rto_cnt for record in x.a.pdc.tx.records.values()} == {0}
    assert (x.a.pdc.tx.peer_cack, x.a.pdc.rx.cack, x.a.pdc.rx.start) == (0xFFFFFFFE, 0xFFFFFFFE, 0xFFFFFFFF)


# Floors --------------------------------------------------------------------------------------------------------------


@given(floor=PSN, above=HALF, used=HALF)
def test_no_closed_pdc_can_be_opened_again(floor: int, above: int, used: int) -> None:
    """tss.md §11, any floor: a PDC that begins there or up to half a circle above it, and uses less than 2^31 PSNs."""
    policy = ExpectedStart("last_plus_1", random.Random(1))
    policy.expected = floor
    start = add32(floor, above)
    assert policy.demand(start) is None
    policy.closed(start, add32(start, used))
    assert policy.demand(start) == policy.expected == add32(start, used + 1)
    assert policy.demand(add32(start, used)) is not None, "nor at its last PSN"


def test_why_a_secured_pdc_closes_before_2_31() -> None:
    """tss.md §11, end of life: one PSN more, and its first packet is newer than what comes after the last."""
    policy = ExpectedStart("last_plus_1", random.Random(1))
    policy.closed(5, add32(5, (1 << 31) - 1))
    assert policy.demand(5) is not None
    policy.closed(5, add32(5, 1 << 31))
    assert policy.demand(5) is None


@pytest.mark.parametrize("policy", ["expected", "random"])
def test_the_limit_goes_with_secure_start(policy: str) -> None:
    with pytest.raises(LocalError, match="limit_psn_range: False is not legal with secure_start; legal: True"):
        PdsConfig(secure_start=policy, limit_psn_range=False)


@pytest.mark.parametrize("control", [False, True], ids=["requests", "control packets"])
def test_a_pdc_ends_before_its_psns_do(control: bool) -> None:
    """Whatever takes the PSNs: the last one before start + 2^31 is for CLOSE_CMD."""
    x = Ladder(secure_start="random")
    x.a.pdc.tx.start = add32(333, 3 - (1 << 31))
    if control:
        for _ in range(4):
            if x.a.state is State.ESTABLISHED:
                x.a.pds.submit(Noop(peer=B, mode=Mode.RUD), x.now)
        x.a.poll()
    else:
        x.a.send(4)
    sent = [packet.get("psn") for packet in x.a.outbox]
    assert all((psn - x.a.pdc.tx.start) % 2**32 < (1 << 31) - 1 for psn in sent)
    assert x.a.state is State.CLOSED
    (error,) = [event.error for event in x.a.pds.events() if isinstance(event, PdcClosed)]
    assert error is not None
    assert error.reason is PdcErrorReason.PSN_LIMIT


@given(st.integers())
def test_the_first_choice_is_above_the_first_floor(seed: int) -> None:
    """tss.md §11: 2^16 … 2^31 − 1, while a target expects 0 and more."""
    policy = ExpectedStart("last_plus_1", random.Random(seed))
    start = policy.first()
    assert 1 << 16 <= start < 1 << 31
    assert policy.demand(start) is None
    policy.told(77)
    assert policy.first() == 77


def test_the_first_choice_is_never_small() -> None:
    """§11: 2^16 … 2^31 − 1."""
    draws = iter((0, 0xFFFF, 0x10000))

    class Drawn(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return next(draws)

    assert ExpectedStart("last_plus_1", Drawn()).first() == 0x10000


def test_return_data_counts() -> None:
    """Both directions begin at Start_PSN, and the next PDC of both where neither has been (tss.md §11)."""
    x = Domain()
    x.send(FIRST, 1)
    x.run()
    (pdc,) = x.target.pdcs.values()
    x.send_back(pdc.local_id, 20)
    x.run()
    start = pdc.rx.start
    assert (pdc.rx.max_rcvd, pdc.tx.last) == (start, start + 19)
    x.close(FIRST)
    assert x.target.expected_psn == start + 20
    x.send(FIRST, 1)
    assert next(iter(x.ends[FIRST].pdcs.values())).tx.start == start + 20


def test_what_a_restarted_target_has_to_know() -> None:
    """tss.md §11, weak spots: the floor survives, also of a PDC that was open; else the replayed SYN opens one."""
    for keeps in (True, False):
        x = Domain()
        x.send(FIRST, 3)
        x.run()
        assert x.target.expected_psn == add32(next(iter(x.target.pdcs.values())).rx.start, 3)
        x.restart(TARGET, keeps=keeps)
        x.replay(x.log)
        opened = [event for event in x.events() if isinstance(event, PdcOpened)]
        assert len(opened) == (0 if keeps else 1)
        assert (max(x.ses[TARGET].received.values()) == 1) is keeps


def test_what_a_target_tells_moves_forward_only() -> None:
    """§11: kept as the next `ini_start_psn` if it is newer; across the wrap, too."""
    policy = ExpectedStart("last_plus_1", random.Random(1))
    for told, begin in ((0xFFFFFFF0, 0xFFFFFFF0), (0xFFFFFFEF, 0xFFFFFFF0), (5, 5), (0xFFFFFFF0, 5), (5, 5), (6, 6)):
        policy.told(told)
        assert policy.first() == begin


def test_what_a_restarted_target_need_not_know() -> None:
    """PDCs that it had opened itself, and PENDING ones, which anybody's old SYN makes."""
    x = Ladder(Mode.RUD, established=False, forward=5000, secure_start="expected")
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    assert (x.a.pds.expected_psn, x.b.pds.expected_psn) == (0, 5001)
    for start in (5, 0xFFFFFFF0):  # below the floor, and below where it began
        x = Ladder(established=False, b={"secure_start": "expected"})
        x.b.pds.preset(Preset(expected_psn=10_000))
        x.b.rx_bytes(A, syn(start, 0))
        assert (x.b.state, x.b.pds.expected_psn) == (State.PENDING, 10_000)


def test_a_random_start_is_another_one() -> None:
    """§11: the one that came is never taken at once, even if it is drawn."""

    class Drawn(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return 77

    policy = RandomStart(Drawn())
    assert policy.demand(78) == 77
    demanded = policy.demand(77)
    assert demanded not in (None, 77)
    assert demanded is not None
    assert policy.confirms(demanded, demanded)
    assert not policy.confirms(77, demanded)


def test_a_restarted_initiator_is_told() -> None:
    """At most one round more, and the next PDC starts at once again."""
    x = Domain()
    x.send(FIRST, 2)
    x.run()
    x.close(FIRST)
    x.restart(FIRST, keeps=False)
    x.ends[FIRST].preset(Preset(pdcid=9, start_psn=1))
    x.send(FIRST, 2)
    x.run()
    assert x.target.nack_tx == {NackCode.NEW_START_PSN: 2}
    x.close(FIRST)
    x.send(FIRST, 2)
    x.run()
    assert x.target.nack_tx == {NackCode.NEW_START_PSN: 2}
    assert set(x.ses[TARGET].received.values()) == {1}


def test_expected_psn_of_the_other_policies() -> None:
    assert Pds(A, PdsConfig(), random.Random(1), Ladder().a.ses).expected_psn is None
    assert Pds(A, PdsConfig(secure_start="random"), random.Random(1), Ladder().a.ses).expected_psn is None


# Properties 13 to 16 of tss.md §14 -----------------------------------------------------------------------------------

LIVES = st.lists(
    st.tuples(st.sampled_from([FIRST, SECOND]), st.sampled_from(PDC_MODES), st.integers(1, 6), st.booleans()),
    min_size=1, max_size=6,
)  # fmt: skip
"""PDCs one after the other: whose, mode, packets, and whether MSL is over before the next one."""
FLOORS = st.one_of(st.integers(0xFFFFFFE0, 0xFFFFFFFF), st.integers(1, 0xFFFFFFFF))


def lived(lives: list[tuple[int, Mode, int, bool]], floor: int, **knobs: object) -> Domain:
    """All of them came and went, from that floor on."""
    x = Domain(**knobs)
    for end in x.ends.values():
        if end.expected_psn is not None:
            end.preset(Preset(expected_psn=floor))
    for src, mode, packets, rests in lives:
        x.send(src, packets, mode)
        x.run()
        x.close(src, mode)
        if rests:
            x.rest()
    assert not any(end.pdcs for end in x.ends.values())
    return x


@pytest.mark.parametrize("after", ["last_plus_1", "start_plus_1"])
@given(lives=LIVES, floor=FLOORS, chance=st.randoms(use_true_random=False), rested=st.booleans())
def test_14_a_closed_pdc_is_not_opened_again(
    after: str, lives: list[tuple[int, Mode, int, bool]], floor: int, chance: random.Random, rested: bool
) -> None:
    """Property 14: all of it again, in any order, more than once, before MSL and after: PENDING or nothing."""
    x = lived(lives, floor, expected_psn_after_close=after)
    if rested:
        x.rest()
    x.events()
    received = x.ses[TARGET].received.copy()
    for _ in range(2):
        x.replay(chance.sample(x.log, len(x.log)))
        assert {pdc.state for pdc in x.target.pdcs.values()} <= {State.PENDING}
        x.rest(chance.choice([1 * MS, 10 * MS]))
    x.rest()
    assert (x.target.pdcs, x.events()) == ({}, []), "nobody is told of a PENDING PDC"
    assert x.ses[TARGET].received == received
    assert set(received.values()) == {1}


@given(lives=LIVES, chance=st.randoms(use_true_random=False))
def test_14_under_random_start_too(lives: list[tuple[int, Mode, int, bool]], chance: random.Random) -> None:
    x = lived(lives, 0, secure_start="random")
    x.rest()
    x.events()
    x.replay(chance.sample(x.log, len(x.log)))
    assert {pdc.state for pdc in x.target.pdcs.values()} <= {State.PENDING}
    assert x.events() == []
    assert set(x.ses[TARGET].received.values()) == {1}


def reopened(**knobs: object) -> Domain:
    """Two PDCs of the same PDCIDs at both ends, one after the other; the second one is open."""
    x = Domain(**knobs)
    for packets, back in ((2, 12), (1, 1)):
        x.ends[FIRST].preset(Preset(pdcid=IPDCID))
        x.target.preset(Preset(pdcid=TPDCID))
        x.send(FIRST, packets)
        x.run()
        x.send_back(TPDCID, back)
        x.run()
        if back > 1:
            for end in (x.target, x.ends[FIRST]):
                end.preset(Preset())
            x.send(FIRST, 6)
            x.run()
            x.close(FIRST)
            x.rest()
    return x


def test_13_a_namesake_does_not_take_old_packets() -> None:
    """Property 13: no PSN of either direction comes again, so both ends of a PDC know old packets from their own."""
    x = reopened()
    before = x.ses[TARGET].received.copy(), x.ses[FIRST].received.copy()
    x.replay(x.log, dst=None)
    x.run()
    assert (x.ses[TARGET].received, x.ses[FIRST].received) == before
    assert {times for received in before for times in received.values()} == {1}
    assert {end.pdcs[pdcid].state for end, pdcid in ((x.target, TPDCID), (x.ends[FIRST], IPDCID))} == {
        State.ESTABLISHED
    }


def test_13_with_the_floor_of_the_reference_provider_it_does() -> None:
    """observed.md: Start_PSN + 1 lets PSNs come again; what the default is for."""
    x = reopened(expected_psn_after_close="start_plus_1")
    x.replay(x.log)
    assert max(x.ses[TARGET].received.values()) == 2


@given(
    floor=PSN, start=PSN, packets=st.integers(1, 8), mode=st.sampled_from(PDC_MODES),
    policy=st.sampled_from(["expected", "random"]),
)  # fmt: skip
def test_15_one_round_more_at_most(floor: int, start: int, packets: int, mode: Mode, policy: str) -> None:
    """Property 15: from any start to any floor, also over 2^32; every byte once."""
    x = Domain(secure_start=policy)
    if policy == "expected":
        x.target.preset(Preset(expected_psn=floor))
    x.ends[FIRST].preset(Preset(start_psn=start))
    number = x.send(FIRST, packets, mode)
    x.run()
    again = policy == "random" or diff32(start, floor) < 0
    assert x.syns() == packets * (1 + again)
    assert x.target.nack_tx == ({NackCode.NEW_START_PSN: packets} if again else {})
    assert x.ses[TARGET].received == {f"{number}.{index}".encode(): 1 for index in range(packets)}
    assert x.ses[FIRST].answered == {number: packets}
    (pdc,) = x.target.pdcs.values()
    assert pdc.rx.start == (floor if again and policy == "expected" else pdc.rx.start if again else start)
    x.close(FIRST, mode)
    if policy == "expected":
        assert x.target.expected_psn == add32(pdc.rx.start, packets + 1)
        x.send(FIRST, 1, mode)
        x.run()
        assert x.syns() == packets * (1 + again) + 1, "the next one is 0-RTT"


@given(
    floor=PSN, policy=st.sampled_from(["expected", "random"]),
    tries=st.lists(st.tuples(PSN, st.integers(0, 3), st.one_of(st.none(), st.integers(1, 1 << 20))), max_size=12),
)  # fmt: skip
def test_16_a_pending_pdc_demands_one_start(floor: int, policy: str, tries: list[tuple[int, int, int | None]]) -> None:
    """Property 16: whatever comes, and though the floor rises meanwhile; that one it then takes."""
    x = Ladder(established=False, b={"secure_start": policy, "new_pdc_time": 5 * MS})
    if policy == "expected":
        x.b.pds.preset(Preset(expected_psn=floor))
    first = add32(floor, -1)
    x.a.pds.preset(Preset(pdcid=IPDCID + 1, start_psn=first))
    demanded = None

    for start, offset, higher in [(first, 0, None), *tries]:
        if demanded is not None and (start == demanded or (policy == "expected" and diff32(start, demanded) >= 0)):
            continue  # it would be taken
        if higher is not None and x.b.pds.start_policy is not None:
            x.b.pds.start_policy.closed(floor, add32(floor, higher))
        x.b.rx_bytes(A, syn(start, offset))
        nack = x.b.sent("NACK", code=NackCode.NEW_START_PSN, nack_psn=add32(start, offset)).message
        assert isinstance(nack, Nack)
        demanded = nack.payload if demanded is None else demanded
        assert nack.payload == demanded
        assert x.b.state is State.PENDING
    assert demanded is not None
    x.b.rx_bytes(A, syn(demanded, 0))
    assert (x.b.state, x.b.ses.delivered) == (State.ESTABLISHED, [demanded])
    opened = [event for event in x.b.pds.events() if isinstance(event, PdcOpened)]
    assert [event.start_psn for event in opened] == [demanded]


def test_what_was_refused_is_refused_for_ever() -> None:
    """A PENDING PDC takes what its successor would take: no late copy opens a PDC where its initiator has been."""
    x = Ladder(established=False, forward=9500, b={"secure_start": "expected"})
    x.b.pds.preset(Preset(expected_psn=9000))
    x.b.rx_bytes(A, syn(5000, 0))  # of a PDC that had the PDCID before
    x.b.sent("NACK", code=NackCode.NEW_START_PSN, payload=9000)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=9500))
    x.a.rx(x.b.sent("ACK", ack=9500))
    assert (x.b.state, x.b.pdc.rx.start, x.a.pdc.tx.start) == (State.ESTABLISHED, 9500, 9500)


def test_a_pending_pdc_of_the_other_mode_is_waited_for() -> None:
    """Nothing is demanded where the Start_PSN is good: its initiator stays where it is, and is taken afterwards."""
    x = Ladder(Mode.ROD, established=False, forward=9500, b={"secure_start": "expected", "new_pdc_time": MS // 10})
    x.b.pds.preset(Preset(expected_psn=9000))
    x.b.rx_bytes(A, syn(5000, 0))
    x.b.sent("NACK", code=NackCode.NEW_START_PSN, payload=9000)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=9500))
    x.b.silent()
    x.wait(x.a.pds.config.rto_init_time)
    x.b.rx(x.a.sent("REQ", psn=9500, retx=1))
    x.a.rx(x.b.sent("ACK", ack=9500))
    assert (x.b.state, x.b.ses.delivered) == (State.ESTABLISHED, [9500])


def test_a_pending_pdc_comes_and_goes_unseen() -> None:
    """tss.md §11, New_PDC_Time: freed, and SES and the user hear of nothing."""
    x = Domain(target={"new_pdc_time": 5 * MS})
    x.target.preset(Preset(expected_psn=0x70000000))
    x.ends[FIRST].preset(Preset(start_psn=5))
    x.send(FIRST, 1)
    (packet,) = x.ends[FIRST].poll(x.now)
    x.replay([packet])
    assert [pdc.state for pdc in x.target.pdcs.values()] == [State.PENDING]
    x.now += 5 * MS
    x.target.poll(x.now)
    assert (x.target.pdcs, x.events(), x.target.counters.new_pdc_timeout_cnt) == ({}, [], 1)
