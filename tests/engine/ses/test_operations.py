# SPDX-License-Identifier: GPL-2.0-only
"""Every operation of ses.md §5 from end to end: memory, completions, what goes over the wire."""

import struct
from typing import Any

import pytest

from tests.support.engine.world import KEY, A, B
from tests.support.ses.operations import (
    MODES,
    SECOND,
    Peers,
    content,
)
from uetproto.engine import Completion, Event, Mode, Region, RemoteWrite, SesConfig
from uetproto.engine.contract import (
    Addressed,
    Atomic,
    Nop,
    Read,
    RemoteAccess,
    Send,
    SendKind,
    Write,
)
from uetproto.engine.ses.headers import parse_extensions
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import (
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)


def region_of(peers: Peers, **fields: Any) -> Region:
    return peers.process.register(Region(99, bytearray(100), **fields))


# Reads (ses.md §5.4, §9.6) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [0, 1, 16, 17, 4096, 4097, 12_288, 50_000])
def test_read(mode: Mode, length: int) -> None:
    """ses.md §5.4; `unlock` of §1: the PDC is held until the data is there, and not longer."""
    data = content(length)
    x = Peers(bytearray(data))
    into = bytearray(length)
    x.submit(Read(peer=0, into=into, key=KEY, mode=mode, context="r"))
    x.settle()
    done = x.completion()
    assert (done.ok, done.context, done.length, done.opcode) == (True, "r", length, Opcode.READ)
    assert into == data
    assert x.a.quiescent
    assert x.b.quiescent
    assert not any(pdc.locks for pdc in x.a.pds.pdcs.values())
    asked = x.requests()
    assert [r.message_offset for r in asked] == [4096 * k for k in range(max(1, -(-length // 4096)))]


def test_read_with_a_long_return_queue() -> None:
    """Reads are accepted as their data leaves: a long one costs no memory (pds.md §10)."""
    data = content(4096 * 3000)
    x = Peers(bytearray(data))
    into = bytearray(len(data))
    x.submit(Read(peer=0, into=into, key=KEY, mode=Mode.RUD))
    x.settle()
    assert x.completion().ok
    assert into == data


def test_read_bytes_of_the_page() -> None:
    """ses.md §8.4: return data k = 1 of the worked example."""
    x = Peers(bytearray(content(12_288)))
    x.submit(Read(peer=0, into=bytearray(12_288), key=KEY, initiator=0))
    x.settle()
    returned = [data for source, data in x.sent if source == B and b"\x02\x01" in data[:40]]
    assert bytes.fromhex("0201000100000065000110000000300000001000") in b"".join(returned)


def test_read_without_the_right() -> None:
    x = Peers()
    x.region.remote_read = False
    into = bytearray(9000)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.settle()
    assert x.completion().return_code is ReturnCode.PERM_VIOLATION
    assert into == bytes(9000)


def test_read_in_rudi() -> None:
    """Data travels in the RUDI response; executing it twice does no harm (ses.md §5.4, §15 item 33)."""
    key = 1 << 63 | 5
    x = Peers(ses={"profile": "hpc"})
    data = content(10_000)
    x.process.register(Region(key, bytearray(data)))
    into = bytearray(10_000)
    x.submit(Read(peer=0, into=into, key=key, mode=Mode.RUDI))
    x.submit(Write(peer=0, data=b"w" * 5000, key=key, mode=Mode.RUDI, offset=5000))
    x.settle()
    assert [event.ok for event in x.a.events() if isinstance(event, Completion)] == [True, True]
    assert into[:5000] == data[:5000]
    assert x.process.regions[key].memory.read(5000, 5000) == b"w" * 5000


# Atomics (ses.md §6) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_atomic_sum_of_an_array(mode: Mode) -> None:
    """ses.md §5.10, §6.3: as many elements as operands; counters of the region hear of it (§13.3)."""
    before = struct.pack("<4I", 1, 2, 3, 0xFFFFFFFF)
    x = Peers(bytearray(before))
    x.submit(Atomic(
        peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT32, key=KEY, mode=mode,
        data=struct.pack("<4I", 10, 20, 30, 2),
    ))  # fmt: skip
    x.settle()
    assert x.completion().ok
    assert struct.unpack("<4I", x.memory) == (11, 22, 33, 1)
    (access,) = [event for event in x.b.events() if isinstance(event, RemoteAccess)]
    assert (access.read, access.written) == (False, True)


@pytest.mark.parametrize("ack_data", [16, 0])
def test_fetching_atomic(ack_data: int) -> None:
    """The value before; in the ACK, or in the return direction (ses.md §9.6). cpu_coherent is asked for (§6.4)."""
    x = Peers(bytearray(struct.pack("<Q", 40)), pds={"max_ack_data_size": ack_data})
    result = bytearray(8)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, data=struct.pack("<Q", 2), key=KEY,
                    result=result))  # fmt: skip
    x.settle()
    assert x.completion().ok
    assert struct.unpack("<Q", result) == (40,)
    assert struct.unpack("<Q", x.memory) == (42,)
    assert parse_extensions(Opcode.FETCHING_ATOMIC, x.sent[0][1][12 + 44 :]).atomic == (2, 7, 0x02, None, None)
    assert x.a.quiescent
    assert x.b.quiescent


@pytest.mark.parametrize(("compare", "after"), [(40, 7), (41, 40)])
def test_compare_and_swap(compare: int, after: int) -> None:
    """ses.md §15 item 23: memory changes if the comparison holds; the old value comes back always."""
    x = Peers(bytearray(struct.pack("<Q", 40)))
    result = bytearray(8)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.CSWAP, datatype=AtomicDatatype.UINT64, data=struct.pack("<Q", 7),
                    compare=struct.pack("<Q", compare), key=KEY, result=result))  # fmt: skip
    x.settle()
    done = x.completion()
    assert (done.ok, done.length) == (True, 8)
    assert struct.unpack("<Q", result) == (40,)
    assert struct.unpack("<Q", x.memory) == (after,)
    assert x.requests()[0].request_length == 32


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"opcode": 0x50}, ReturnCode.AMO_UNSUPPORTED_OP), ({"datatype": 0x0E}, ReturnCode.AMO_UNSUPPORTED_DT),
        ({"datatype": 0x0A, "opcode": 0x08}, ReturnCode.AMO_UNSUPPORTED_DT),
        ({"data": bytes(7)}, ReturnCode.AMO_UNSUPPORTED_SIZE), ({"offset": 4}, ReturnCode.AMO_UNALIGNED),
        ({"offset": 1000}, ReturnCode.BAD_ADDR), ({"key": 5}, ReturnCode.BAD_MKEY),
    ],
)  # fmt: skip
def test_atomic_errors(fields: dict[str, Any], code: ReturnCode) -> None:
    """ses.md §6.3, §10 steps 12 to 15: nothing is changed."""
    x = Peers(bytearray(64))
    work = {"opcode": AtomicOpcode.SUM, "datatype": AtomicDatatype.UINT64, "data": bytes([1] * 8), "key": KEY}
    x.submit(Atomic(peer=0, **{**work, **fields}))  # type: ignore[arg-type]
    x.settle()
    assert x.completion().return_code is code
    assert bytes(x.memory) == bytes(64)


def test_trap() -> None:
    x = Peers(bytearray(struct.pack("<f", 3e38)), ses={"atomic_trap": True})
    x.submit(
        Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.FLOAT, data=struct.pack("<f", 3e38), key=KEY)
    )
    x.settle()
    assert x.completion().return_code is ReturnCode.AMO_FP_OVERFLOW
    assert bytes(x.memory) == struct.pack("<f", 3e38)


# Sends (ses.md §5.5, §11) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tag", [None, 77])
@pytest.mark.parametrize("length", [0, 5, 4096, 10_000])
@pytest.mark.parametrize("first", ["receive", "send"])
def test_send(mode: Mode, tag: int | None, length: int, first: str) -> None:
    """Expected, or held until the receive is posted: then the answer is guaranteed and says OVERFLOW.

    ses.md §5.5, §9.1, §9.7 (what is guaranteed), §11.1, §11.2; the completion waits for that answer (§13.1), and tells
    who sent it (§2.5).
    """
    x = Peers()
    data, into = content(length), bytearray(20_000)
    receive = x.post(into, tag=tag) if first == "receive" else None
    x.submit(Send(peer=0, data=data, tag=tag, mode=mode, completion_data=9))
    x.run()
    if receive is None:
        assert x.received() == []
        receive = x.post(into, tag=tag)
    x.settle()
    (got,) = x.received()
    assert got.receive is receive
    assert (got.tag, got.length, got.data, got.initiator, got.source) == (tag or 0, length, 9, 16, A)
    assert got.overflow == (first == "send")
    assert into[:length] == data
    assert x.completion().ok
    assert x.a.quiescent
    assert x.b.quiescent
    overflow = [answer for answer in x.answers() if answer.list == ResponseList.OVERFLOW]
    assert bool(overflow) == (first == "send")
    assert all(answer.modified_length == length and answer.return_code == ReturnCode.OK for answer in overflow)


def test_truncated_send() -> None:
    """ses.md §9.2, §9.4: modified_length is what was written."""
    x = Peers()
    into = bytearray(5000)
    x.post(into)
    x.submit(Send(peer=0, data=content(10_000)))
    x.settle()
    (got,) = x.received()
    assert (got.length, got.message_length) == (5000, 10_000)
    assert into == content(10_000)[:5000]
    assert x.completion().modified == 5000


def test_too_long_where_the_target_says_so() -> None:
    x = Peers(ses={"truncation_policy": "refuse"})
    x.post(bytearray(5000))
    x.submit(Send(peer=0, data=content(10_000)))
    x.settle()
    assert x.completion().return_code is ReturnCode.TOO_LONG
    assert x.received() == []


def test_multi_receive() -> None:
    """ses.md §5.5: the next slice of the buffer."""
    x = Peers()
    into = bytearray(100)
    x.post(into, least=40)
    for byte, size in ((1, 30), (2, 30), (3, 10)):
        x.submit(Send(peer=0, data=bytes([byte]) * size))
    x.settle()
    assert [(event.start, event.length, event.spent) for event in x.received()] == [
        (0, 30, False), (30, 30, False), (60, 10, True),
    ]  # fmt: skip
    assert into[:70] == b"\x01" * 30 + b"\x02" * 30 + b"\x03" * 10
    x.submit(Send(peer=0, data=b"\x04"))
    x.run()
    assert x.received() == []  # 30 bytes are left: less than 40, so the buffer takes no more


def test_datagram() -> None:
    """UUD: no answer, nobody is told of a drop (ses.md §5.6)."""
    x = Peers()
    into = bytearray(100)
    x.post(into)
    x.submit(Send(peer=0, data=b"hello", mode=Mode.UUD))
    x.submit(Send(peer=0, data=b"lost", mode=Mode.UUD))
    x.settle()
    assert [event.ok for event in x.a.events() if isinstance(event, Completion)] == [True, True]
    assert into[:5] == b"hello"
    assert x.b.target.dropped == 1
    assert [r.opcode for r in x.requests()] == [Opcode.DATAGRAM_SEND] * 2
    assert all(r.message_id == 0 for r in x.requests())
    assert all(source == A for source, _ in x.sent)


# Refusals (ses.md §2.4, §12) -----------------------------------------------------------------------------------------


def test_no_match_is_tried_again() -> None:
    x = Peers(ses={"unexpected_policy": "refuse"})
    into = bytearray(9000)
    x.submit(Send(peer=0, data=content(9000), mode=Mode.RUD, tag=3))
    x.run()
    assert not x.a.quiescent
    x.post(into, tag=3)
    x.settle()
    done = x.completion()
    assert done.ok
    assert done.refusals == 1
    assert into == content(9000)
    assert 50 * 10**9 <= x.now <= 110 * 10**9


def test_refusals_have_an_end() -> None:
    x = Peers(ses={"unexpected_policy": "refuse", "message_retry_limit": 3})
    x.submit(Send(peer=0, data=b"x", mode=Mode.RUD))
    x.settle()
    done = x.completion()
    assert (done.return_code, done.refusals, done.ok) == (ReturnCode.NO_MATCH, 4, False)


@pytest.mark.parametrize("knob", ["disabled_gen", "no_match_first"])
def test_order_on_rod_across_a_refusal(knob: str) -> None:
    """DISABLED_GEN, then BAD_GENERATION with the new number; the order of sends holds (ses.md §2.4, §12)."""
    x = Peers(ses={"unexpected_policy": "refuse", "rod_refusal": knob})
    for n in range(5):
        x.submit(Send(peer=0, data=bytes([n]), context=n))
    x.run()
    codes = [answer.return_code for answer in x.answers()]
    first = ReturnCode.NO_MATCH if knob == "no_match_first" else ReturnCode.DISABLED_GEN
    assert codes == [first] + [ReturnCode.DISABLED_GEN] * 4
    into = [bytearray(1) for _ in range(5)]
    for buffer in into:
        x.post(buffer)
    x.submit(Send(peer=0, data=b"\x05", context=5))
    last = bytearray(1)
    x.post(last)
    x.settle()
    assert b"".join(into) + last == bytes(range(6))
    assert [event.context for event in x.a.events() if isinstance(event, Completion)] == [0, 1, 2, 3, 4, 5]
    assert ReturnCode.BAD_GENERATION in [answer.return_code for answer in x.answers()]


# Deferrable sends (ses.md §5.7, §5.8) --------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", [{}, {"deferral_tokens": "reuse", "stop_list": "first"}])
@pytest.mark.parametrize("tag", [None, 5])
def test_deferred_send(knobs: dict[str, str], tag: int | None) -> None:
    x = Peers(ses=knobs)
    data, into = content(20_000), bytearray(20_000)
    x.submit(Send(peer=0, data=data, tag=tag, mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    assert x.received() == []
    x.post(into, tag=tag)
    x.settle()
    assert x.completion().ok
    assert into == data
    (got,) = x.received()
    assert got.length == 20_000
    (restart,) = x.requests(B)
    assert restart.opcode == Opcode.DEFERRABLE_RTR
    assert x.a.quiescent
    assert x.b.quiescent


@pytest.mark.parametrize(("a", "b"), [("strict", "reuse"), ("reuse", "strict")])
def test_both_ways_of_tokens_understand_each_other(a: str, b: str) -> None:
    """observed.md `deferral_tokens`: an end of the one kind and an end of the other."""
    x = Peers(ses={"deferral_tokens": b})
    x.a.initiator.config = SesConfig(deferral_tokens=a)
    into = bytearray(20_000)
    x.submit(Send(peer=0, data=content(20_000), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    x.post(into)
    x.settle()
    assert x.completion().ok
    assert into == content(20_000)


def test_deferrable_with_a_buffer_is_a_send() -> None:
    x = Peers()
    into = bytearray(20_000)
    x.post(into)
    x.submit(Send(peer=0, data=content(20_000), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.settle()
    assert x.completion().ok
    assert into == content(20_000)
    assert x.requests(B) == []


def test_nobody_comes_for_a_deferred_send() -> None:
    """Both ends forget it after 5000 ms."""
    x = Peers()
    x.submit(Send(peer=0, data=content(20_000), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.settle()
    done = x.completion()
    assert done.timed_out
    assert not done.ok
    assert x.now >= 5 * SECOND
    assert x.a.quiescent
    assert x.b.quiescent


# Rendezvous (ses.md §5.9) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tag", [None, 5])
@pytest.mark.parametrize("eager", [-1, 0, 5000])
@pytest.mark.parametrize("first", ["receive", "send"])
def test_rendezvous(mode: Mode, tag: int | None, eager: int, first: str) -> None:
    x = Peers(ses={"eager_length": eager, "profile": "ai_full+hpc"})
    data, into = content(30_000), bytearray(30_000)
    if first == "receive":
        x.post(into, tag=tag)
    x.submit(Send(peer=0, data=data, tag=tag, mode=mode, kind=SendKind.RENDEZVOUS))
    x.run()
    if first == "send":
        x.post(into, tag=tag)
    x.settle()
    assert x.completion().ok
    assert into == data
    (got,) = x.received()
    assert (got.length, got.return_code) == (30_000, ReturnCode.OK)
    assert {r.opcode for r in x.requests(B)} == {Opcode.READ}
    assert not x.mine.regions
    assert x.a.quiescent
    assert x.b.quiescent


# The rest ------------------------------------------------------------------------------------------------------------


def test_no_op() -> None:
    """ses.md §5.2: is there anybody at that address (§2.1)?"""
    x = Peers()
    x.submit(Nop(peer=0))
    x.settle()
    assert x.completion().ok
    x.submit(Nop(peer=0, pid_on_fep=3))
    x.settle()
    assert x.completion().return_code is ReturnCode.BAD_PID


def test_tsend_atomics() -> None:
    """ses.md §5.11: the operand works on a posted receive."""
    x = Peers()
    into, result = bytearray(struct.pack("<I", 5)), bytearray(4)
    x.post(into, tag=8)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT32, data=struct.pack("<I", 3), tag=8,
                    result=result))  # fmt: skip
    x.settle()
    assert x.completion().ok
    assert (struct.unpack("<I", into), struct.unpack("<I", result)) == ((8,), (5,))
    (got,) = x.received()
    assert (got.opcode, got.length) == (Opcode.TSEND_FETCH_ATOMIC, 4)


@pytest.mark.parametrize("last", ["write", "atomic"])
def test_sync_group(last: str) -> None:
    """The end of a group waits for its writes (ses.md §5.14)."""
    x = Peers(ses={"sync_operations": True})
    end: Addressed = Write(peer=0, data=b"end", key=KEY, offset=16, sync=(7, 3), completion_data=1, mode=Mode.RUD)
    if last == "atomic":
        end = Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT8, data=b"\x01", key=KEY, offset=16,
                     sync=(7, 3), mode=Mode.RUD)  # fmt: skip
    x.submit(end)
    x.run()
    before = x.b.events()
    assert not any(isinstance(event, RemoteWrite) for event in before)
    assert x.memory[16] != 1
    for n in range(2):
        x.submit(Write(peer=0, data=content(9000), key=KEY, offset=100 + 9000 * n, sync=(7, 0), mode=Mode.RUD))
    x.settle()
    assert [event.ok for event in x.a.events() if isinstance(event, Completion)] == [True] * 3
    after: list[Event] = x.b.events()
    assert any(isinstance(event, RemoteWrite) for event in after) == (last == "write")
    assert x.memory[16] == (1 if last == "atomic" else ord("e"))


@pytest.mark.parametrize("key", [KEY, 1 << 62 | 5])
@pytest.mark.parametrize("kind", ["write", "read", "atomic", "fetch"])
def test_optimized_headers(key: int, kind: str) -> None:
    """Medium and small headers are sent, executed and answered like standard ones (ses.md §4.1, §9.6)."""
    x = Peers(ses={"optimized_headers": True})
    memory = x.process.register(Region(key, bytearray(100))).memory if key != KEY else x.region.memory
    result = bytearray(4)
    work: dict[str, Addressed] = {
        "write": Write(peer=0, data=b"abcd", key=key),
        "read": Read(peer=0, into=bytearray(64), key=key),
        "atomic": Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT32, data=b"abcd", key=key),
        "fetch": Atomic(peer=0, opcode=2, datatype=AtomicDatatype.UINT32, data=b"abcd", key=key, result=result),
    }
    x.submit(work[kind])
    x.settle()
    assert x.completion().ok
    assert x.requests()[0].next_hdr == (NextHdr.REQUEST_MEDIUM if key == KEY else NextHdr.REQUEST_SMALL)
    assert memory.read(0, 4) == (bytes(4) if kind == "read" else b"abcd")
    assert x.answers()[0].opcode in (ResponseOpcode.DEFAULT_RESPONSE, ResponseOpcode.RESPONSE_W_DATA)


def test_truncated_rendezvous() -> None:
    """The target reads what it has room for; that is enough for the initiator."""
    x = Peers()
    into = bytearray(10_000)
    x.post(into)
    x.submit(Send(peer=0, data=content(30_000), kind=SendKind.RENDEZVOUS))
    x.settle()
    done = x.completion()
    assert (done.ok, done.modified) == (True, 10_000)
    assert into == content(30_000)[:10_000]
    (got,) = x.received()
    assert (got.length, got.message_length) == (10_000, 30_000)


def test_message_ids_run_out() -> None:
    """A message that has no id waits for one (ses.md §3: never 0 or 0xffff)."""
    x = Peers()
    x.a.initiator.messages = {n: object() for n in range(1, 0xFFFF)}  # type: ignore[misc]
    with pytest.raises(LocalError, match="message_ids that are free"):
        x.submit(Nop(peer=0))
    del x.a.initiator.messages[77]
    x.submit(Nop(peer=0))
    x.run()
    assert x.completion().message_id == 77
