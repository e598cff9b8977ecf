# SPDX-License-Identifier: GPL-2.0-only
"""SHARP over RoCEv2: frames, order, acknowledgements, loss (sharp.md §2.1)."""

from typing import Any

import pytest

from tests.support.sharp.carriers import MESSAGE_1, US, A, B, Bench, Dummy, numbered, roce_bench
from uetproto import LocalError, decode
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import AddressVector, ModifyQp, PostRecv, PostSend, QpState, QpType, WorkCompletion
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.engine.sharp.carriers import carrier as sharp_carrier
from uetproto.engine.sharp.carriers.roce import RoceCarrier
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.impair.faults import Faults

QUICK: dict[str, Any] = {"timeout": 4}
"""65.5 µs: the tests of loss end soon."""
MGID = 0xFFFF << 32 | 0xEF000007
"""::ffff:239.0.0.7 (sharp.md §7)."""


def test_message_1_is_a_frame_of_122_bytes() -> None:
    bench = roce_bench()
    p, q = bench.connect()
    bench.say("a", OutgoingMessage(p, MESSAGE_1, 1))
    bench.run()
    frame = bench.a.frames[0]
    assert len(frame) == 122
    assert frame[54:118] == MESSAGE_1  # SHARP begins at offset 54 (§2.1)
    packet = decode(frame, sharp=True)
    bth = packet["bth"]
    assert (packet["sharp"]["group_id"], packet["sharp"]["flags"]) == (7, 0x1880)
    assert {name: bth[name] for name in ("opcode", "se", "padcnt", "p_key", "destqp", "a", "psn")} == {
        "opcode": 0x04, "se": 0, "padcnt": 0, "p_key": 0xFFFF, "destqp": q, "a": 1, "psn": 5,
    }  # fmt: skip
    assert (packet["udp"]["dport"], packet["ipv4"]["src"], packet["ipv4"]["dst"]) == (4791, A, B)
    answer = decode(bench.b.frames[0])["bth"]
    assert (answer["opcode"], answer["psn"], answer["destqp"]) == (0x11, 5, p)
    assert bench.b.element.heard == [(q, MESSAGE_1)]
    assert bench.a.element.acknowledgements == [(p, 1)]


def test_over_ipv6_it_begins_at_74_and_82() -> None:
    bench = roce_bench(ip_version=6)
    p, _ = bench.connect()
    group = 0xFF12A01BFE80 << 80 | 7  # ff12:a01b:fe80::7
    bench.b.carrier.join(group, 0x53485250, 0)
    bench.say("a", OutgoingMessage(p, MESSAGE_1), OutgoingMessage(None, numbered(2), 0, group))
    bench.run()
    one, other = bench.a.frames
    assert (one[74:-4], other[82:-4]) == (MESSAGE_1, numbered(2))
    assert bench.b.element.heard == [(0x11, MESSAGE_1), (None, numbered(2))]


def test_the_first_queue_pair_is_that_of_the_example() -> None:
    """sharp.md §7: the JOIN_REQ of H0 says 0x11."""
    assert roce_bench().connect() == (0x11, 0x11)


@pytest.mark.parametrize("path_mtu", [256, 1024])
def test_a_path_mtu_cuts_messages(path_mtu: int) -> None:
    bench = roce_bench(config=RoceConfig(path_mtu=path_mtu))
    p, _ = bench.connect()
    bench.say("a", OutgoingMessage(p, numbered(1, 4096)))
    bench.run()
    opcodes = [decode(frame)["bth"]["opcode"] for frame in bench.a.frames]
    assert opcodes == [0x00] + [0x01] * (4096 // path_mtu - 2) + [0x02]
    assert bench.b.data == [numbered(1, 4096)]


@pytest.mark.parametrize(
    "faults",
    [Faults(drop=0.1), Faults(duplicate=0.2), Faults(reorder=0.2, reorder_by=3), Faults(corrupt=0.1),
     Faults(drop=0.05, duplicate=0.05, reorder=0.1, corrupt=0.05)],
    ids=["drop", "duplicate", "reorder", "corrupt", "all"],
)  # fmt: skip
@pytest.mark.parametrize("path_mtu", [4096, 1024])
def test_exactly_once_in_order(faults: Faults, path_mtu: int) -> None:
    """Two connections, both ways, more messages than buffers and than a send queue has room for."""
    bench = roce_bench(faults=faults, config=RoceConfig(path_mtu=path_mtu), receives=4, depth=8, **QUICK)
    pairs = [bench.connect(), bench.connect()]
    there = [numbered(n, 64 + 64 * (n % 60)) for n in range(40)]
    back = [numbered(n, 64) for n in range(100, 140)]
    for p, q in pairs:
        bench.say("a", *(OutgoingMessage(p, data, n + 1) for n, data in enumerate(there)))
        bench.say("b", *(OutgoingMessage(q, data, n + 1) for n, data in enumerate(back)))
    bench.run()
    for p, q in pairs:
        assert [data for conn, data in bench.b.element.heard if conn == q] == there
        assert [data for conn, data in bench.a.element.heard if conn == p] == back
        assert [n for conn, n in bench.a.element.acknowledgements if conn == p] == list(range(1, 41))
        assert [n for conn, n in bench.b.element.acknowledgements if conn == q] == list(range(1, 41))
    assert bench.a.element.gone == bench.b.element.gone == []
    assert not any("RNR" in what for what in bench.b.engine.counters)  # type: ignore[attr-defined]
    assert bench.a.events == bench.b.events == []


def test_lost_after_the_last_retry() -> None:
    """Once, for all that was under way and that waited; what it says later goes nowhere."""
    bench = roce_bench(faults=Faults(delay=frozenset({0})), depth=2, **QUICK)
    p, q = bench.connect()
    other = bench.connect()[0]
    bench.cut("a")
    bench.say("a", *(OutgoingMessage(p, numbered(n), n + 1) for n in range(5)))
    bench.run()
    assert bench.a.element.gone == [p]
    assert bench.a.element.acknowledgements == []
    assert bench.b.element.heard == []
    assert len(bench.a.frames) == 1 + 7  # retry_cnt; without a credit the second message waits (roce.md §9)
    bench.say("a", OutgoingMessage(p, numbered(9)))
    bench.run()
    assert (bench.a.element.gone, bench.a.carrier.counters["unsent"]) == ([p], 1)
    bench.a.carrier.release(p, bench.clock.now)
    bench.b.carrier.release(q, bench.clock.now)
    assert list(bench.a.carrier.connections) == [other]


def test_a_peer_that_is_gone_is_a_connection_lost() -> None:
    """Released there without a word: retries run out here; `release` itself tells nobody."""
    bench = roce_bench(**QUICK)
    p, q = bench.connect()
    bench.b.carrier.release(q, 0)
    bench.say("a", OutgoingMessage(p, MESSAGE_1, 1))
    bench.run()
    assert (bench.a.element.gone, bench.b.element.gone) == ([p], [])


def test_a_message_longer_than_a_buffer_breaks_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """No element sends it; a stranger may. Both ends hear of it, and the buffer is posted again."""
    bench = roce_bench(receives=1, **QUICK)
    p, q = bench.connect()
    with monkeypatch.context() as patch:
        patch.setattr(sharp_carrier, "LONGEST", 1 << 16)
        bench.say("a", OutgoingMessage(p, bytes(4100)))
    bench.run()
    assert (bench.b.element.heard, bench.a.element.gone, bench.b.element.gone) == ([], [p], [q])
    r, s = bench.connect()
    bench.say("a", OutgoingMessage(r, MESSAGE_1))
    bench.run()
    assert bench.b.element.heard == [(s, MESSAGE_1)]


def test_a_buffer_half_full_comes_back_with_the_release() -> None:
    bench = roce_bench(receives=1, config=RoceConfig(path_mtu=256), faults=Faults(delay=frozenset({99})), **QUICK)
    p, q = bench.connect()
    bench.say("a", OutgoingMessage(p, numbered(1, 4096)))
    bench.network.faults["a"].faults = Faults(drop=frozenset(range(3, 10_000)))
    bench.run()
    assert bench.a.element.gone == [p]
    bench.network.nics["b"].submit(lambda now: bench.b.carrier.release(q, now))
    bench.network.faults["a"].faults = Faults()
    r, s = bench.connect()
    bench.say("a", OutgoingMessage(r, MESSAGE_1))
    bench.run()
    assert bench.b.element.heard == [(s, MESSAGE_1)]


def test_numbers_are_not_used_twice() -> None:
    bench = roce_bench()
    first, _ = bench.connect()
    bench.a.carrier.release(first, 0)
    assert bench.connect()[0] == first + 1


# Multicast ------------------------------------------------------------------------------------------------------------


def test_multicast_goes_to_those_who_joined() -> None:
    bench = roce_bench("abc")
    for name in "bc":
        bench.sides[name].carrier.join(MGID, 0x53485250, 0)
    result = numbered(1, 64, opcode=0x90, flags=0x1C88)
    bench.say("a", OutgoingMessage(None, result, 7, MGID))
    bench.run()
    assert bench.b.element.heard == bench.c.element.heard == [(None, result)]
    assert bench.a.element.acknowledgements == []
    frame = bench.a.frames[0]
    packet = decode(frame)
    assert frame[62:126] == result  # behind the DETH (§2.1)
    assert (packet["bth"]["opcode"], packet["bth"]["destqp"], packet["bth"]["se"]) == (0x64, 0xFFFFFF, 0)
    assert packet["deth"]["q_key"] == 0x53485250
    assert (packet["ipv4"]["dst"], frame[:6].hex()) == (0xEF000007, "01005e000007")


def test_another_q_key_is_not_heard() -> None:
    bench = roce_bench(qkey=1)
    bench.b.carrier.join(MGID, 2, 0)
    bench.say("a", OutgoingMessage(None, MESSAGE_1, 0, MGID))
    bench.run()
    assert bench.b.element.heard == []
    bench.a.carrier.join(MGID, 2, bench.clock.now)  # now it knows
    bench.say("a", OutgoingMessage(None, MESSAGE_1, 0, MGID))
    bench.run()
    assert bench.b.element.heard == [(None, MESSAGE_1)]


def test_more_multicast_than_buffers() -> None:
    bench = roce_bench(receives=2, depth=2)
    bench.b.carrier.join(MGID, 0x53485250, 0)
    messages = [numbered(n) for n in range(50)]
    bench.say("a", *(OutgoingMessage(None, data, 0, MGID) for data in messages))
    bench.run()
    assert bench.b.data == messages


# Side by side ---------------------------------------------------------------------------------------------------------


def test_what_belongs_to_others_is_passed_on() -> None:
    """An adapter with an application of its own: its completions come out of the station, and work goes in."""
    bench = roce_bench()
    p, _ = bench.connect()
    numbers = {}
    for side, peer in ((bench.a, bench.b), (bench.b, bench.a)):
        hca = side.engine
        assert isinstance(hca, Hca)
        pd = hca.alloc_pd()
        numbers[side.address] = number = hca.create_qp(QpType.RC, pd)
        wanted = {
            "pkey_index": 0, "port": 1, "access_flags": 0, "av": AddressVector(peer.address), "dest_qpn": 0x12,
            "sq_psn": 0, "rq_psn": 0,
        }  # fmt: skip
        for state, attributes in bring_up_steps(QpType.RC, hca.config, wanted):
            hca.submit(ModifyQp(qp_num=number, state=state, attributes=attributes), 0)
        hca.submit(PostRecv(qp_num=number), 0)
    assert numbers == {A: 0x12, B: 0x12}
    bench.network.nics["a"].submit(PostSend(qp_num=0x12, wr_id=77))
    bench.say("a", OutgoingMessage(p, MESSAGE_1))
    bench.run()
    for side, receive in ((bench.a, False), (bench.b, True)):
        done = [event for event in side.events if isinstance(event, WorkCompletion)]
        assert [(event.qp_num, event.receive, event.ok) for event in done] == [(0x12, receive, True)]
    assert bench.b.data == [MESSAGE_1]


def answering(bench: Bench, q: int) -> None:
    bench.b.element.answer = lambda conn, data: OutgoingMessage(q, numbered(1000 + data[15]), 1 + data[15])


def test_an_answer_leaves_at_once() -> None:
    """The element of a station speaks when it is spoken to, without a timer."""
    bench = roce_bench()
    p, q = bench.connect()
    answering(bench, q)
    bench.say("a", *(OutgoingMessage(p, numbered(n)) for n in range(10)))
    bench.run(20 * US)  # four hops of 1 µs, and what 10 frames need
    assert bench.a.data == [numbered(1000 + n) for n in range(10)]


# Misuse ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 28, 30, 33, 62, 4100])
def test_what_is_no_message_is_refused(size: int) -> None:
    bench = roce_bench()
    p, _ = bench.connect()
    with pytest.raises(LocalError, match=f"data: {size} bytes are not legal; legal: 32 … 4096, a multiple of 4"):
        bench.say("a", OutgoingMessage(p, bytes(size)))


def test_misuse() -> None:
    hca = Hca(A)
    for name, value in (("receives", 0), ("depth", 0)):
        with pytest.raises(LocalError, match=f"{name}: 0 is not legal; legal: 1 and more"):
            RoceCarrier(hca, Dummy(), **{name: value})
    bench = roce_bench()
    p, _ = bench.connect()
    with pytest.raises(LocalError, match="conn: there is no connection 77"):
        bench.a.carrier.release(77, 0)
    with pytest.raises(LocalError, match="group: 0xff is no multicast group of IPv4"):
        bench.say("a", OutgoingMessage(None, MESSAGE_1, 0, 0xFF))
    with pytest.raises(LocalError, match="no multicast group"):
        bench.a.carrier.join(0xFF, 1, 0)
    with pytest.raises(LocalError, match="state: RTS → INIT is not legal"):
        bench.a.carrier.connect(p, address=B, remote=1, own_psn=0, their_psn=0, now=0)
    hca = bench.a.engine  # type: ignore[assignment]
    assert hca.qps[p].state is QpState.RTS
