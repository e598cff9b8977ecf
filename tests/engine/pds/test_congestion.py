# SPDX-License-Identifier: GPL-2.0-only
"""What PDS tells a congestion control context adds up, whatever happens to the packets (cms.md §2)."""

import random
from collections.abc import Iterator, Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.each import each
from tests.support.engine.fep_world import Adversity, FepWorld
from tests.support.engine.fixed_window import LARGEST, OVERHEAD, FixedWindow, FixedWindows
from uetproto.engine import Completion, Fep, Mode, PdsConfig, Region, SesConfig, Write
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.registry import CongestionContexts
from uetproto.engine.contract import (
    MICROSECOND,
    MILLISECOND,
    Close,
    CongestionManager,
    PathFeedback,
    PdcClosed,
    Probe,
    Read,
    Trim,
)
from uetproto.engine.pds.messages import Control, Request, parse
from uetproto.wire.headers.uet_pds import CcType, CtlType, PdsType
from uetproto.wire.tuples import PdsCcStateCreditHeader

A, B, JOB, KEY, SIZE = 1, 2, 101, 7, 64 * 1024
GIGA = 10**9
CALM = Adversity()


class World:
    """Two endpoints, each with congestion control of its own, and memory at the second."""

    def __init__(
        self, window: int, target: int | None = None, seed: int = 0, managers: Mapping[int, CongestionManager] = {},
        **knobs: object,
    ) -> None:  # fmt: skip
        """Without `managers`, congestion control is a fixed window."""
        settings = {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "idle_time": 0, **knobs}
        self.windows = {n: FixedWindows(window, target) for n in (A, B)}
        self.managers = managers or self.windows
        a, b = (
            Fep(n, random.Random(seed + n), pds=PdsConfig(**settings), ses=SesConfig(payload_mtu=1024),
                congestion=self.managers[n])  # type: ignore[arg-type]
            for n in (A, B)
        )  # fmt: skip
        self.memory = bytearray(random.Random(seed).randbytes(SIZE))
        b.attach(JOB).register(Region(KEY, self.memory))
        self.world = FepWorld(a, b)

    def write(self, at: int, data: bytes, mode: Mode, context: int = 0) -> None:
        self.world.submit(A, Write(peer=B, mode=mode, job_id=JOB, key=KEY, offset=at, data=data, pdc_context=context))

    def read(self, at: int, length: int, mode: Mode) -> bytearray:
        there = bytearray(length)
        self.world.submit(A, Read(peer=B, mode=mode, job_id=JOB, key=KEY, offset=at, into=there))
        return there

    def contexts(self) -> Iterator[FixedWindow]:
        for windows in self.windows.values():
            for context in windows.contexts.values():
                assert isinstance(context, FixedWindow)
                yield context

    def completed(self) -> list[bool]:
        return [event.ok for event in self.world.events[A] if isinstance(event, Completion)]

    def sent(self, source: int = A) -> list[Request]:
        found = [parse(data) for _, src, data in self.world.trace if src == source]
        return [message for message in found if isinstance(message, Request)]


@given(
    window=st.integers(1, 9), mode=st.sampled_from([Mode.RUD, Mode.ROD]), seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.sampled_from([0, 1, 1024, 1025, 9000]), min_size=1, max_size=5), reads=st.booleans(),
    rate=st.sampled_from([0.0, 0.05, 0.3]), target=st.none() | st.integers(0, 2**24 - 1),
    probe=st.sampled_from(["off", "sack", "probe"]), trigger=st.sampled_from([0, 4096]),
    start=st.sampled_from(["off", "random"]),
)  # fmt: skip
def test_all_adds_up(
    window: int, mode: Mode, seed: int, lengths: list[int], reads: bool, rate: float, target: int | None, probe: str,
    trigger: int, start: str,
) -> None:  # fmt: skip
    world = World(window, target, seed, inferred_loss=probe, ack_gen_trigger=trigger, secure_start=start)
    chance, at = random.Random(seed), 0
    expected = bytearray(world.memory)
    got = []
    for number, length in enumerate(lengths):
        if reads and number % 2:
            got.append((world.read(at, length, mode), at))
        else:
            data = chance.randbytes(length)
            expected[at : at + length] = data
            world.write(at, data, mode, number % 3)
            at += length
    adversity = Adversity(drop=rate, duplicate=rate, reorder=rate, trim=rate, mark=rate)
    world.world.run(chance, adversity)
    assert world.completed() == [True] * len(lengths)
    assert world.memory == expected
    for context in world.contexts():
        assert (context.flying, context.waiting, context.backlog) == (0, 0, 0)
        assert context.most <= window
    asked = sum(context.first + context.again for context in world.contexts())
    assert asked == len(world.sent(A)) + len(world.sent(B)), "the context is asked before every transmission"
    for context in world.contexts():
        assert -256 * 3 <= context.inflight <= 0, "rcvd_bytes is rounded up, once a PDC"


@each("mode", [Mode.RUD, Mode.ROD])
def test_nothing_beyond_the_window_leaves_before_an_ack(mode: Mode) -> None:
    world = World(3)
    world.write(0, bytes(10 * 1024), mode)
    assert len(world.sent()) == 3
    assert [one.ar for one in world.sent()] == [0, 0, 1], "the last one that fits asks for an ACK"
    (context,) = world.contexts()
    world.world.run(random.Random(1), CALM)
    assert context.most == 3
    assert context.rtts
    assert set(context.heard_of) == {PathFeedback.NO_ECN}
    assert context.received >= 10 * 1024


@pytest.mark.parametrize("patient", [0, 10**9])
def test_what_a_probe_shows_as_missing_is_lost_when_it_is_old(patient: int) -> None:
    """The PROBE overtakes two packets: at once they count as lost, with patience they arrive and are not sent again."""
    world = World(9, inferred_loss="probe", tail_loss_time=10**6)
    for windows in world.windows.values():
        windows.context(B, Mode.RUD).patient = patient  # type: ignore[attr-defined]
    world.write(0, bytes(1024), Mode.RUD)
    world.world.run(random.Random(1), CALM)
    world.write(1024, bytes(2048), Mode.RUD)
    world.world.pass_time(10**6)
    for _ in ("PROBE", "its answer"):
        world.world.deliver(world.world.number(-1))
    counters = world.world.feps[A].pds.counters
    assert counters.retx_inferred == (0 if patient else 2)
    world.world.run(random.Random(1), CALM)
    assert world.completed() == [True, True]
    assert world.world.feps[B].pds.counters.dup_rx == counters.retx_inferred


def test_pdcs_of_one_context_share_its_window() -> None:
    world = World(4)
    for context in range(3):
        world.write(4096 * context, bytes(4096), Mode.RUD, context)
    assert len(world.sent()) == 4
    assert len(world.windows[A].contexts) == 1
    world.world.run(random.Random(1), CALM)
    assert world.completed() == [True] * 3
    assert len({one.spdcid for one in world.sent()}) == 3


@pytest.mark.parametrize(("last_hop", "trim"), [(False, Trim.TRIMMED), (True, Trim.LAST_HOP)])
def test_a_trimmed_packet_waits_for_the_window(last_hop: bool, trim: Trim) -> None:
    world = World(2)
    world.write(0, b"", Mode.RUD)  # of a trimmed packet with syn nobody hears
    world.world.run(random.Random(1), CALM)
    world.write(0, bytes(4 * 1024), Mode.RUD)
    context = world.windows[A].contexts[B, Mode.RUD]
    context.heard_of.clear()
    world.world.wire.trim(world.world.number(0), last_hop)
    world.world.deliver(world.world.number(0))
    world.world.deliver(world.world.number(1))  # the NACK, before the other packet
    assert context.trims == [trim]
    assert context.heard_of == [PathFeedback.NACK if trim is Trim.TRIMMED else PathFeedback.NO_ECN]
    assert context.again == 1, "it goes before new data"
    assert [one.retx for one in world.sent()[1:]] == [0, 0, 1]
    world.world.run(random.Random(1), CALM)
    assert world.completed() == [True] * 2


def test_go_back_n_counts_as_trimmed_what_was_trimmed() -> None:
    """Later packets are sent again, too, but no NACK says that the network trimmed them (cms.md §2)."""
    world = World(3)
    world.write(0, b"", Mode.ROD)
    world.world.run(random.Random(1), CALM)
    world.write(0, bytes(4 * 1024), Mode.ROD)
    context = world.windows[A].contexts[B, Mode.ROD]
    world.world.wire.trim(world.world.number(0), False)
    world.world.deliver(world.world.number(0))
    world.world.deliver(world.world.number(2))  # the NACK, before the other packets
    assert context.trims == [Trim.TRIMMED, Trim.NO, Trim.NO]
    assert [one.retx for one in world.sent()[1:]] == [0, 0, 0, 1, 1, 1]
    world.world.run(random.Random(1), CALM)
    assert world.completed() == [True] * 2


@pytest.mark.parametrize("counted", [OVERHEAD - 60, OVERHEAD + 60])
def test_a_peer_that_counts_other_sizes_does_not_close_the_window(counted: int) -> None:
    """rcvd_bytes of another implementation may have less for each packet; when nothing is in flight, nothing is."""
    config = CcConfig(algorithm="nscc", rate=100 * GIGA, base_rtt=2 * MICROSECOND, mtu=LARGEST, mss=1024)
    managers = {
        n: CongestionContexts(config, random.Random(n), overhead=overhead, largest=LARGEST)
        for n, overhead in ((A, OVERHEAD), (B, counted))
    }
    world = World(0, managers=managers)
    for number in range(12):
        world.write(0, bytes(SIZE), Mode.RUD)
        world.world.run(random.Random(number), CALM)
    assert world.completed() == [True] * 12
    (context,) = managers[A].contexts.values()
    assert context.inflight_pkts == 0


def test_demands_and_grants_are_on_the_wire() -> None:
    world = World(8, target=0xABCDEF)
    world.write(0, bytes(1024), Mode.RUD)
    assert world.world.trace[0][2][0] >> 3 == PdsType.RUD_CC_REQ
    assert [(one.ccc_id, one.credit_target) for one in world.sent()] == [(7, 0xABCDEF)]
    world.world.run(random.Random(1), CALM)
    (pdcid,) = world.windows[B].receivers
    world.windows[B].owed.append((pdcid, 0x1234))
    world.world.settle()
    (grant,) = [data for _, src, data in world.world.trace if src == B and data[0] >> 3 == PdsType.CP]
    assert parse(grant).ctl_type == CtlType.CREDIT  # type: ignore[union-attr]
    assert parse(grant).payload == 0x1234  # type: ignore[union-attr]


def test_a_grant_in_an_ack_reaches_the_context() -> None:
    world = World(8)
    world.write(0, bytes(1024), Mode.RUD)
    world.world.run(random.Random(1), CALM)
    context, (receiver,) = world.windows[A].contexts[B, Mode.RUD], world.windows[B].receivers.values()
    context.grants.clear()
    # A state of eight bytes of a type that is not known says nothing, though it could be read as a grant.
    for kind, told in ((CcType.CREDIT, (0x123456, 9)), (0xF, (None, None))):
        receiver.state = kind, PdsCcStateCreditHeader.pack(0x123456, 9)
        world.write(0, bytes(1024), Mode.RUD)
        world.world.run(random.Random(1), CALM)
        assert context.grants.pop() == told
        assert not context.grants


@pytest.mark.parametrize("refused", [False, True])
def test_one_probe_follows_the_first_answer_for_the_base_rtt(refused: bool) -> None:
    world = World(2)
    world.write(0, b"", Mode.RUD)
    world.world.run(random.Random(1), CALM)
    context = world.windows[A].contexts[B, Mode.RUD]
    context.wants_probe = True
    before = len(world.world.trace)
    world.write(0, bytes(4 * 1024), Mode.RUD)
    if refused:
        world.world.wire.trim(world.world.number(0))
    world.world.run(random.Random(1), CALM)
    kinds = [(parse(data), at) for at, src, data in world.world.trace[before:] if src == A]
    probes = [at for message, at in kinds if isinstance(message, Control) and message.ctl_type == CtlType.PROBE]
    assert len(probes) == 1
    assert len(context.probes) == 1
    assert context.probes[0] > 0


def test_the_bytes_that_rounding_adds_go_with_their_pdc() -> None:
    """Else every PDC would widen the window of its context by up to 255 bytes for ever."""
    world = World(4)
    for number in range(5):
        world.write(0, bytes(100), Mode.RUD)
        world.world.run(random.Random(1), CALM)
        context = world.windows[A].contexts[B, Mode.RUD]
        assert -256 < context.inflight < 0, number
        world.world.submit(A, Close(peer=B))
        world.world.run(random.Random(1), CALM)
        assert context.inflight == 0


def test_a_pdc_that_ends_lets_others_send() -> None:
    """PDCs that wait for the window of their context go on when another one, which had filled it, fails."""
    world = World(2, max_rto_retx_cnt=1)
    for context in range(2):
        world.write(0, b"", Mode.RUD, context)
    world.world.run(random.Random(1), CALM)
    world.write(0, bytes(2 * 1024), Mode.RUD, 0)
    lost = next(iter(world.world.feps[A].pds.pdcs))
    world.write(4096, bytes(1024), Mode.RUD, 1)
    assert len(world.sent()) == 4, "the window is full"
    while not any(isinstance(event, PdcClosed) for event in world.world.events[A]):
        for number in list(world.world.wire.flight):
            packet = world.world.wire.flight[number]
            if packet.src == A and parse(bytes(packet.header)).spdcid == lost:  # type: ignore[union-attr]
                del world.world.wire.flight[number]
        world.world.pass_time(MILLISECOND // 4)
    world.world.run(random.Random(1), CALM)
    assert world.completed().count(True) == 3


@pytest.mark.parametrize("ccx", [False, True])
def test_a_slow_host_slows_the_sender_down(ccx: bool) -> None:
    """Penalties in ACKs (ACK_CC or ACK_CCX) shrink the window, and restore_cwnd gives it back."""
    cc = CcConfig(rate=80 * GIGA, base_rtt=2 * MICROSECOND, mtu=LARGEST, host_rate=GIGA // 2, host_backlog=8 * 1024)
    world = World(0, ack_ccx=ccx, ack_gen_trigger=0, managers={
        n: CongestionContexts(cc, random.Random(n), overhead=OVERHEAD, largest=LARGEST) for n in (A, B)
    })  # fmt: skip
    world.write(0, b"", Mode.RUD)
    world.world.run(random.Random(1), CALM)
    nscc = world.managers[A].contexts[B, Mode.RUD].algorithms[0]  # type: ignore[attr-defined]
    before, least, host = nscc.cwnd, nscc.cwnd, world.managers[B].host  # type: ignore[attr-defined]
    most = 0
    world.write(0, bytes(SIZE), Mode.RUD)
    while world.world.wire.flight:
        world.world.deliver(world.world.number(0))
        world.world.pass_time(MICROSECOND)
        least, most = min(least, nscc.cwnd), max(most, host.waiting(world.world.now))
    assert least < 1.1 * LARGEST, "127 leaves a window of one packet"
    assert most <= 2 * SIZE
    world.world.pass_time(2 * MILLISECOND)
    assert host.waiting(world.world.now) == 0
    world.write(0, bytes(1024), Mode.RUD)
    world.world.run(random.Random(1), CALM)
    assert nscc.cwnd == pytest.approx(before, rel=0.01)
    kinds = {data[0] >> 3 for _, src, data in world.world.trace if src == B}
    assert kinds == {PdsType.ACK_CCX if ccx else PdsType.ACK_CC}


def test_control_packets_are_not_counted() -> None:
    world = World(1)
    world.write(0, bytes(1024), Mode.RUD)
    (context,) = world.contexts()
    assert context.inflight <= LARGEST
    world.world.run(random.Random(1), CALM)
    world.world.submit(A, Probe(pdcid=next(iter(world.world.feps[A].pds.pdcs))))
    world.world.run(random.Random(1), CALM)
    assert context.flying == 0


def test_bytes_that_an_ack_without_rcvd_bytes_has_acknowledged_count_once() -> None:
    """With `ack_cc` never, the answer to a PROBE is a plain ACK; the next ACK_CC tells of its bytes again."""
    world = World(8, ack_cc="never", ack_gen_trigger=0)
    world.write(0, b"", Mode.RUD)
    world.world.run(random.Random(1), CALM)
    context = world.windows[A].contexts[B, Mode.RUD]
    for _ in range(3):
        world.write(0, bytes(1024), Mode.RUD)
        world.world.deliver(world.world.number(0))
        del world.world.wire.flight[world.world.number(0)]  # its ACK is lost
        world.world.submit(A, Probe(pdcid=next(iter(world.world.feps[A].pds.pdcs))))
        world.world.run(random.Random(1), CALM)
    world.write(0, bytes(1024), Mode.RUD)
    world.world.run(random.Random(1), CALM)
    assert -256 < context.inflight <= 0
