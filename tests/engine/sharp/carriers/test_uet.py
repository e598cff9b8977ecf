# SPDX-License-Identifier: GPL-2.0-only
"""SHARP over UET: frames, reserved PDCs, order, acknowledgements, loss (sharp.md §2.1, §6 item 26)."""

from collections import Counter

import pytest

from tests.support.sharp.carriers import MESSAGE_1, MS, US, A, B, Bench, Dummy, numbered, uet_bench
from uetproto import LocalError, decode
from uetproto.engine.contract import EVERY_JOB, Close, Completion, Mode, Receive, Received, Send
from uetproto.engine.fep import Fep
from uetproto.engine.pds.states import Role
from uetproto.engine.sharp.carriers.uet import UetCarrier, values_of
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.impair.faults import Faults
from uetproto.wire.headers.sharp import SharpOpcode
from uetproto.wire.headers.uet_pds import USE_RSV_PDC, NackCode

SAT = 0x8000
LLT_ID, SAT_ID = 0, 63


def fep_of(bench: Bench, name: str) -> Fep:
    fep = bench.sides[name].engine
    assert isinstance(fep, Fep)
    return fep


def requests(frames: list[bytes]) -> list[bytes]:
    """Those of types 2 and 3, RUD and ROD requests, behind Ethernet, IPv4 and UDP."""
    return [frame[42:] for frame in frames if frame[42] >> 3 in (2, 3)]


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize(
    ("flags", "first", "later"), [(0x1880, 0x118C, 0x1188), (0x1880 | SAT, 0x198C, 0x1988)], ids=["LLT", "SAT"]
)
def test_message_1_is_a_frame_of_162_bytes(flags: int, first: int, later: int, optimized: bool) -> None:
    """Every field of both tables of §2.1; LLT by RUD, SAT by ROD; always with the standard header."""
    bench = uet_bench(crc=False, ses={"optimized_headers": optimized})
    p, q = bench.connect()
    message = MESSAGE_1[:30] + flags.to_bytes(2, "big") + MESSAGE_1[32:]
    for _ in range(2):
        bench.say("a", OutgoingMessage(p, message, 1))
        bench.run(50 * US)
    syn, plain = [frame for frame in bench.a.frames if frame[42] >> 3 in (2, 3)]
    assert len(syn) == len(plain) == 162
    assert syn[98:] == plain[98:] == message
    for frame, start in ((syn, first), (plain, later)):
        assert int.from_bytes(frame[42:44], "big") == start
        spdcid = int.from_bytes(frame[50:52], "big")
        assert spdcid == p + (start < 0x1900)
    assert int.from_bytes(syn[52:54], "big") == USE_RSV_PDC == 0x8000  # psn_offset 0
    assert int.from_bytes(plain[52:54], "big") in fep_of(bench, "b").pds.pdcs
    ses = syn[54:98]
    message_id = ses[2:4]
    assert ses == bytes.fromhex("050f") + message_id + bytes.fromhex(
        "00 000005 0000 00a6 0000000000000000 00000000 0000000700000000 5348525000001001 00000040"
    )
    packet = decode(syn, sharp=True)
    assert (packet["sharp"]["group_id"], packet["sharp"]["flags"]) == (7, flags)
    assert (packet["udp"]["dport"], packet["ses.send_std.som"]["header_data"]) == (4793, 0x5348525000001001)
    assert bench.b.element.heard == [(q, message), (q, message)]
    assert bench.a.element.acknowledgements == [(p, 1), (p, 1)]


def test_over_ipv6_it_begins_at_118() -> None:
    bench = uet_bench(crc=False, ip_version=6)
    p, _ = bench.connect()
    bench.say("a", OutgoingMessage(p, MESSAGE_1))
    bench.run(MS)
    assert bench.a.frames[0][118:] == MESSAGE_1
    assert bench.b.data == [MESSAGE_1]


def test_what_the_message_says_the_headers_say() -> None:
    """child_idx, group and seq, tree and opcode; the mode by opcode and flag SAT."""
    data = bytearray(MESSAGE_1)
    data[2:4], data[4:8], data[8:16], data[28] = b"\x00\x3f", b"\0\xab\xcd\xef", bytes(range(1, 9)), 0xFB
    values = values_of(bytes(data))
    assert (values.job_id, values.initiator) == (0xABCDEF, 0xFB)
    assert values.match_bits == 0x0102030405060708
    assert values.header_data == 0x53485250_003F_10_01
    bench = uet_bench(crc=False)
    bench.say("a", OutgoingMessage(bench.connect()[0], bytes(data)))
    bench.run(MS)
    ses = decode(bench.a.frames[0])["ses.send_std.som"]
    assert {name: ses[name] for name in ("job_id", "initiator", "match_bits", "header_data")} == {
        "job_id": 0xABCDEF, "initiator": 0xFB, "match_bits": values.match_bits, "header_data": values.header_data,
    }  # fmt: skip
    modes = {opcode: values_of(numbered(0, opcode=opcode)).mode for opcode in SharpOpcode}
    assert {opcode for opcode, mode in modes.items() if mode is Mode.RUD} == {0x10, 0x90}
    assert values_of(numbered(0, flags=SAT)).mode is Mode.ROD


def test_each_direction_its_own_pdc() -> None:
    """An answer is a SEND of its own, not response data; both ends opened what they send on (§2.1)."""
    bench = uet_bench()
    p, q = bench.connect()
    bench.b.element.answer = lambda conn, data: OutgoingMessage(q, numbered(data[15], opcode=0x90), 9)
    bench.say("a", OutgoingMessage(p, numbered(3), 8))
    bench.run(50 * US)
    assert bench.a.data == [numbered(3, opcode=0x90)]
    assert (bench.a.element.acknowledgements, bench.b.element.acknowledgements) == ([(p, 8)], [(q, 9)])
    for name, own, other in (("a", p, q), ("b", q, p)):
        pdcs = {(pdc.role, pdc.reserved): pdc for pdc in fep_of(bench, name).pds.pdcs.values()}
        assert set(pdcs) == {(Role.INITIATOR, True), (Role.TARGET, True)}
        assert pdcs[Role.INITIATOR, True].local_id == own + 1
        assert pdcs[Role.TARGET, True].peer_id == other + 1


@pytest.mark.parametrize(
    "faults",
    [Faults(drop=0.1), Faults(duplicate=0.2), Faults(reorder=0.2, reorder_by=3), Faults(corrupt=0.1),
     Faults(drop=0.05, duplicate=0.05, reorder=0.1, corrupt=0.05)],
    ids=["drop", "duplicate", "reorder", "corrupt", "all"],
)  # fmt: skip
@pytest.mark.parametrize("mtu", [4096, 1024])
def test_exactly_once_and_rod_in_order(faults: Faults, mtu: int) -> None:
    """Two connections, both ways, LLT and SAT, more messages than buffers and than are under way."""
    bench = uet_bench(
        faults=faults, ses={"payload_mtu": mtu}, pds={"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31}, receives=4,
        depth=8,
    )  # fmt: skip
    pairs = [bench.connect(), bench.connect()]
    streams = [numbered(n, 64 + 64 * (n % 60), tree=SAT_ID, flags=SAT) for n in range(40)]
    small = [numbered(n, tree=LLT_ID) for n in range(40)]
    both = [message for pair in zip(streams, small, strict=True) for message in pair]
    for p, q in pairs:
        bench.say("a", *(OutgoingMessage(p, data, n + 1) for n, data in enumerate(both)))
        bench.say("b", *(OutgoingMessage(q, data, n + 1) for n, data in enumerate(both)))
    bench.run()
    for name, conns in (("a", [p for p, _ in pairs]), ("b", [q for _, q in pairs])):
        element = bench.sides[name].element
        for conn in conns:
            heard = [data for to, data in element.heard if to == conn]
            assert [data for data in heard if data[30] & 0x80] == streams
            assert Counter(data for data in heard if not data[30] & 0x80) == Counter(small)
            assert sorted(n for to, n in element.acknowledgements if to == conn) == list(range(1, 81))
        assert element.gone == []
        assert bench.sides[name].carrier.counters == {}


def test_every_syn_says_use_rsv_pdc() -> None:
    """sharp.md §6 item 26, with loss."""
    bench = uet_bench(faults=Faults(drop=0.2), pds={"max_rto_retx_cnt": 15}, crc=False, seed=3)
    p, q = bench.connect()
    bench.say("a", *(OutgoingMessage(p, numbered(n, flags=SAT * (n % 2))) for n in range(20)))
    bench.say("b", *(OutgoingMessage(q, numbered(n, flags=SAT * (n % 2))) for n in range(20)))
    bench.run()
    sent = requests(bench.a.frames + bench.b.frames)
    syns = [frame for frame in sent if frame[1] & 0x04]
    assert len(syns) >= 4
    assert all(frame[10] & 0x80 for frame in syns)
    for frame in sent:
        message = frame[56:]
        assert frame[17:20] == message[5:8]  # JobID
        assert int.from_bytes(frame[52:56], "big") == len(message)  # request_length
        assert not message[30] & 0x04  # MCAST


def test_lost_after_the_last_retry() -> None:
    """Once, for all that was under way and that waited."""
    bench = uet_bench(faults=Faults(delay=frozenset({0})), depth=2)
    p, q = bench.connect()
    bench.cut("a")
    bench.say("a", *(OutgoingMessage(p, numbered(n, flags=SAT * (n % 2)), n + 1) for n in range(5)))
    bench.run()
    assert (bench.a.element.gone, bench.a.element.acknowledgements) == ([p], [])
    assert bench.b.element.heard == []
    bench.say("a", OutgoingMessage(p, numbered(9)))
    bench.run()
    assert (bench.a.element.gone, bench.a.carrier.counters["unsent"]) == ([p], 1)
    assert not bench.a.carrier.connections[p].waiting
    bench.say("b", OutgoingMessage(q, numbered(1)))
    bench.run()
    assert bench.a.element.heard == []  # nor does anything come any more


def test_a_release_closes_both_directions_and_gives_the_pdcids_back() -> None:
    bench = uet_bench(pds={"reserved_pdcs": 4})
    p, q = bench.connect()
    bench.b.element.answer = lambda conn, data: OutgoingMessage(q, data)
    bench.say("a", OutgoingMessage(p, numbered(1)), OutgoingMessage(p, numbered(2, flags=SAT)))
    bench.run(MS)
    assert [len(fep_of(bench, name).pds.pdcs) for name in "ab"] == [4, 4]
    bench.network.nics["a"].submit(lambda now: bench.a.carrier.release(p, now))
    bench.run(100 * MS)
    assert [len(fep_of(bench, name).pds.pdcs) for name in "ab"] == [0, 0]
    assert (bench.a.element.gone, bench.b.element.gone) == ([], [q])  # the other end was not asked
    bench.network.nics["b"].submit(lambda now: bench.b.carrier.release(q, now))
    bench.run(5000 * MS)  # MSL and more
    r, s = bench.connect()
    bench.b.element.answer = None
    bench.say("a", OutgoingMessage(r, MESSAGE_1))
    bench.run(MS)
    assert bench.b.element.heard[-1] == (s, MESSAGE_1)


def test_a_release_leaves_other_connections_to_the_same_peer() -> None:
    bench = uet_bench()
    (p, _), (r, s) = bench.connect(), bench.connect()
    for _ in range(2):
        bench.say("a", OutgoingMessage(p, numbered(1)), OutgoingMessage(r, numbered(2)))
        bench.run(MS)
        if p in bench.a.carrier.connections:
            bench.network.nics["a"].submit(lambda now: bench.a.carrier.release(p, now))
            bench.run(MS)
    assert bench.a.element.gone == []
    assert [data for conn, data in bench.b.element.heard if conn == s] == [numbered(2)] * 2
    assert r + 1 in fep_of(bench, "a").pds.pdcs


def test_nothing_waits_for_a_poll() -> None:
    """Messages are heard, and their buffers posted again, with the packet: the NIC may not poll for long."""
    bench = uet_bench(receives=1)
    p, _ = bench.connect()
    bench.a.element.to_say = [OutgoingMessage(p, numbered(n)) for n in range(10)]
    for packet in bench.a.station.poll(0):
        bench.b.station.receive(packet, 0)
    assert bench.b.data == [numbered(n) for n in range(10)]


def test_reserved_pdcs_do_not_rest_away() -> None:
    """An idle connection stays: its PDCIDs are its name."""
    bench = uet_bench()
    p, q = bench.connect()
    bench.say("a", OutgoingMessage(p, numbered(1)))
    bench.run(100_000 * MS)
    bench.say("a", OutgoingMessage(p, numbered(2)))
    bench.run(MS)
    assert bench.b.element.heard == [(q, numbered(1)), (q, numbered(2))]


def test_pool_too_small() -> None:
    bench = uet_bench(pds={"reserved_pdcs": 3})
    bench.a.carrier.allocate()
    with pytest.raises(LocalError, match="reserved_pdcs: 3 are too few; 1 are left, legal: 2 and more"):
        bench.a.carrier.allocate()


def test_reserved_pdcids_count_in_the_pool() -> None:
    """While no PDC has them, and after one had them (pds.md §6.3 row 6)."""
    bench = uet_bench(pds={"reserved_pdcs": 2})
    bench.b.carrier.allocate()
    stray(bench)
    assert fep_of(bench, "b").pds.nack_tx[NackCode.NO_PDC_AVAIL] > 0
    bench = uet_bench(pds={"reserved_pdcs": 5}, faults=Faults(delay=frozenset({0})))
    p, _ = bench.connect()
    bench.cut("a")
    bench.say("a", OutgoingMessage(p, MESSAGE_1))
    bench.run()
    assert bench.a.element.gone == [p]
    bench.a.carrier.allocate()
    with pytest.raises(LocalError, match="reserved_pdcs: 5 are too few; 1 are left"):
        bench.a.carrier.allocate()


def test_reserved_pdcids_are_nobody_elses() -> None:
    bench = uet_bench()
    p, _ = bench.connect()
    pds = fep_of(bench, "a").pds
    pds.pool.next_id = p
    assert pds.open_initiator(B, Mode.ROD, 0).local_id == 1


# What does not fit ----------------------------------------------------------------------------------------------------


def stray(bench: Bench, **changes: object) -> None:
    """A SEND to the service that no carrier made."""
    values = values_of(MESSAGE_1)
    work = {
        "peer": B, "mode": Mode.RUD, "job_id": 5, "resource_index": 0x0A6, "initiator": 0, "data": MESSAGE_1,
        "match_bits": 7 << 32, "completion_data": values.header_data, "reserved": True,
    }  # fmt: skip
    bench.network.nics["a"].submit(Send(**(work | changes)))  # type: ignore[arg-type]
    bench.run(MS)


def test_sharp_on_a_shared_pdc_is_dropped() -> None:
    bench = uet_bench()
    bench.connect()
    stray(bench, reserved=False)
    assert (bench.b.element.heard, bench.b.carrier.counters) == ([], {"inc_on_shared_pdc": 1})
    stray(bench)  # reserved, but not one that was told
    assert (bench.b.element.heard, bench.b.carrier.counters["unknown_connection"]) == ([], 1)


@pytest.mark.parametrize(
    ("changes", "counter"),
    [
        ({"completion_data": 0x53485251_0000_10_01}, "bad_values"),
        ({"completion_data": None}, "bad_values"),
        ({"job_id": 6}, "bad_values"),
        ({"data": bytes(28)}, "bad_length"),
        ({"data": MESSAGE_1 + b"x"}, "bad_length"),
        ({"data": bytes(4100)}, "bad_length"),
        ({"data": MESSAGE_1[:30] + b"\x1c\x80" + MESSAGE_1[32:]}, "mcast"),
    ],
)
def test_strange_values_on_a_connection_are_dropped(changes: dict[str, object], counter: str) -> None:
    bench = uet_bench()
    p, q = bench.connect()
    bench.say("a", OutgoingMessage(p, MESSAGE_1))
    bench.run(MS)
    stray(bench, pdc_context=p, **changes)
    assert bench.b.element.heard == [(q, MESSAGE_1)]
    assert bench.b.carrier.counters == {counter: 1}


def test_every_job_reaches_the_service_and_nothing_else() -> None:
    """The service is beside the processes of jobs: their indices stay theirs."""
    bench = uet_bench()
    p, _ = bench.connect()
    fep = fep_of(bench, "b")
    fep.attach(5, 0, (15,))
    for job in (4, 5):
        message = MESSAGE_1[:4] + job.to_bytes(4, "big") + MESSAGE_1[8:]
        bench.say("a", OutgoingMessage(p, message))
    bench.run(MS)
    assert [data[7] for _, data in bench.b.element.heard] == [4, 5]
    into = bytearray(8)
    bench.network.nics["b"].submit(Receive(into=into, job_id=5))
    bench.network.nics["a"].submit(Send(peer=B, job_id=5, data=b"for job5", context="mine"))
    bench.network.nics["a"].submit(Send(peer=B, job_id=4, data=b"for job4", context="nobody's"))
    bench.run(MS)
    assert bytes(into) == b"for job5"
    done = {event.context: event.ok for event in bench.a.events if isinstance(event, Completion)}
    assert done == {"mine": True, "nobody's": False}
    assert [event.job_id for event in bench.b.events if isinstance(event, Received)] == [5]
    assert bench.b.element.heard[2:] == []
    assert fep.target.processes.find(EVERY_JOB, 0) is not None


def test_multicast_is_refused() -> None:
    bench = uet_bench()
    p, _ = bench.connect()
    with pytest.raises(LocalError, match="multicast is not legal over UET"):
        bench.a.carrier.join(0xFFFF << 32 | 0xEF000007, 1, 0)
    with pytest.raises(LocalError, match="group: 0xef000007 is not legal; legal: none"):
        bench.say("a", OutgoingMessage(None, MESSAGE_1, 0, 0xEF000007))
    with pytest.raises(LocalError, match="data: the flag MCAST is not legal over UET"):
        bench.say("a", OutgoingMessage(p, numbered(1, flags=0x1C80)))


def test_misuse() -> None:
    fep = fep_of(uet_bench(), "a")
    with pytest.raises(LocalError, match="pid_on_fep: 0 is attached already"):
        UetCarrier(fep, Dummy())
    with pytest.raises(LocalError, match="receives: 257 is not legal; legal: 1 … rx_size, 256"):
        uet_bench(receives=257)
    bench = uet_bench()
    p, q = bench.connect()
    with pytest.raises(LocalError, match=f"conn: {p} is connected already"):
        bench.a.carrier.connect(p, address=B, remote=q, own_psn=0, their_psn=0, now=0)
    other = bench.a.carrier.allocate()
    with pytest.raises(LocalError, match="remote: 7 is not legal; legal: an even PDCID"):
        bench.a.carrier.connect(other, address=B, remote=7, own_psn=0, their_psn=0, now=0)
    for work in (Send(peer=B, data=b"", match_bits=1, tag=1), Send(peer=B, data=b"", match_bits=1, mode=Mode.UUD)):
        with pytest.raises(LocalError, match="match_bits: not legal with tag or mode UUD"):
            bench.network.nics["a"].submit(work)
    pds = fep_of(bench, "a").pds
    with pytest.raises(LocalError, match="pdcid: 7 is not legal; legal: a reserved one"):
        pds.open_reserved(7, B, Mode.ROD, 0, 0)
    with pytest.raises(LocalError, match="no such PDC"):
        pds.submit(Close(peer=B, pdcid=p), 0)
    assert A not in [pdc.peer for pdc in pds.pdcs.values()]
