# SPDX-License-Identifier: GPL-2.0-only
"""WRITE from end to end: the worked example, segmentation, completions, errors in the order of ses.md §10."""

import io
import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.each import each
from tests.support.engine.world import JOB, KEY, A, B, Pair
from tests.support.pds.headers import build_syn_request
from tests.support.ses.headers import build_later, build_som
from uetproto.engine import (
    Completion,
    FileMemory,
    MessageFailed,
    MessageStored,
    Mode,
    PdcClosed,
    PdcErrorReason,
    Preset,
    Region,
    RemoteWrite,
    SesConfig,
    TrafficClass,
    Write,
)  # fmt: skip
from uetproto.engine.contract import NEVER, PDC_MODES, Close
from uetproto.engine.pds.states import Input
from uetproto.engine.ses.checks import CHECKS
from uetproto.engine.ses.headers import SesRequest, build_response
from uetproto.engine.ses.segments import Reassembly
from uetproto.engine.ses.work import operation_of, plan_of
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ResponseOpcode, ReturnCode

EXAMPLE = """
    01090001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 00000000 00000000 00003000
    01080001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 00001000 00001000 00003000
    010a0001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 00001000 00002000 00003000
"""


def completions(pair: Pair) -> list[Completion]:
    return [event for event in pair.a.events() if isinstance(event, Completion)]


def test_worked_example() -> None:
    """ses.md §5.3, §8.1, §8.2, bit by bit: PSNs, SES headers, the default response."""
    data = random.Random(7).randbytes(12288)
    memory = bytearray(12288)
    pair = Pair(memory)
    pair.a.pds.preset(Preset(pdcid=1, start_psn=0x12000))
    pair.write(data, context="row")
    pair.run()
    headers = [bytes.fromhex(line) for line in EXAMPLE.split("\n") if line.strip()]
    requests = [data for source, data in pair.sent if source == A]
    assert [r[12:56] for r in requests] == headers
    assert [int.from_bytes(r[4:8], "big") for r in requests] == [0x12000, 0x12001, 0x12002]
    assert [r[0] >> 3 for r in requests] == [Mode.ROD] * 3
    assert [r[56:] for r in requests] == [data[i : i + 4096] for i in range(0, 12288, 4096)]
    answers = [data for source, data in pair.sent if source == B]
    assert {a[12:].hex() for a in answers} == {"000100010000006500003000"}
    assert memory == data
    assert completions(pair) == [Completion("row", B, 1, 12288, ReturnCode.OK, modified=12288)]
    assert MessageStored(A, 1, KEY, 0, 12288) in pair.b.events()
    pair.close()
    pair.run()
    assert pair.a.events() == [PdcClosed(B, 1, Mode.ROD, True)]
    assert pair.a.deadline() is None


def test_bad_key_answer_of_the_example() -> None:
    """ses.md §8.2: opcode RESPONSE, modified_length 0."""
    pair = Pair(bytearray(10))
    pair.process.regions.clear()
    pair.write(bytes(10))
    pair.run()
    assert next(data for source, data in pair.sent if source == B)[-12:].hex() == "011c00010000006500000000"
    assert completions(pair)[0].return_code == ReturnCode.BAD_MKEY


@each("mode", PDC_MODES)
@each("mtu", [1024, 4096])
@each("length", [0, 1, 1023, 1024, 1025, 4096, 4097, 10_000, 300_001])
def test_every_length(length: int, mtu: int, mode: Mode) -> None:
    """ses.md §7.1; an empty message is one packet."""
    data = random.Random(length).randbytes(length)
    memory = bytearray(length + 10)
    pair = Pair(memory, ses={"payload_mtu": mtu})
    pair.write(data, mode=mode, offset=5)
    pair.run()
    assert memory == bytes(5) + data + bytes(5)
    assert completions(pair)[0].ok
    requests = [data for source, data in pair.sent if source == A and data[0] >> 3 in PDC_MODES]
    assert len(requests) == max(1, -(-length // mtu))
    assert pair.b.target.messages == {}


def test_completion_data() -> None:
    """ses.md §8.4: hd in all packets, the data in the SOM packet, one completion at the target."""
    pair = Pair(bytearray(12288))
    pair.write(bytes(12288), completion_data=0xCAFE)
    pair.run()
    requests = [data for source, data in pair.sent if source == A]
    assert [r[13] for r in requests] == [0x0D, 0x0C, 0x0E]
    assert requests[0][44:52] == (0xCAFE).to_bytes(8, "big")
    remote = [event for event in pair.b.events() if isinstance(event, RemoteWrite)]
    assert remote == [RemoteWrite(A, 0, JOB, 0, 15, 12288, 0xCAFE)]


def test_delivery_complete_waits_for_observability() -> None:
    """ses.md §13.2: `dc` adds 0x20 to the flags; its answer waits for write_latency."""
    pair = Pair(bytearray(4096), ses={"write_latency": 5_000_000})
    pair.write(bytes(4096), delivery_complete=True)
    pair.run()
    assert [data[13] for _, data in pair.sent] == [0x2B]
    pair.wait()
    assert completions(pair)[0].ok
    assert pair.now >= 5_000_000


def test_virtual_addresses() -> None:
    """ses.md §2.8: the application's address in buffer_offset, base of the region the same."""
    memory = bytearray(100)
    pair = Pair(memory, base=0x20000000)
    pair.write(b"x" * 10, offset=0x20000010)
    pair.run()
    assert memory[16:26] == b"x" * 10


def test_absolute_addressing() -> None:
    """ses.md §2.2: the job id is not part of the address."""
    pair = Pair(bytearray(1))
    memory = bytearray(8)
    pair.b.attach(None, 3, (20,)).register(Region(9, memory))
    pair.write(b"absolute", key=9, relative=False, pid_on_fep=3, resource_index=20, job_id=7777)
    pair.run()
    assert (bytes(memory), completions(pair)[0].ok) == (b"absolute", True)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"job_id": 102}, ReturnCode.BAD_JOB_ID),
        ({"pid_on_fep": 1}, ReturnCode.BAD_PID),
        ({"resource_index": 16}, ReturnCode.BAD_INDEX),
        ({"key": 8}, ReturnCode.BAD_MKEY),
        ({"offset": 1}, ReturnCode.BAD_ADDR),
        ({"offset": (1 << 64) - 1}, ReturnCode.BAD_ADDR),
        ({"job_id": 102, "pid_on_fep": 1, "resource_index": 16, "key": 8}, ReturnCode.BAD_JOB_ID),
        ({"pid_on_fep": 1, "resource_index": 16, "key": 8}, ReturnCode.BAD_PID),
        ({"resource_index": 16, "key": 8, "offset": 1}, ReturnCode.BAD_INDEX),
        ({"key": 8, "offset": 1}, ReturnCode.BAD_MKEY),
        ({"relative": False}, ReturnCode.BAD_PID),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", PDC_MODES)
def test_addressing_errors_in_order(fields: dict[str, Any], code: ReturnCode, mode: Mode) -> None:
    """ses.md §10: the first step that fails gives the code; memory is untouched (§15 item 10)."""
    memory = bytearray(5000)
    pair = Pair(memory)
    pair.write(b"\xff" * 5000, mode=mode, **fields)
    pair.run()
    assert completions(pair)[0].return_code == code
    assert memory == bytes(5000)
    assert [e.return_code for e in pair.b.events() if isinstance(e, MessageFailed)] == [code]


def _no_write(pair: Pair) -> None:
    pair.region.remote_write = False


def _other_job(pair: Pair) -> None:
    pair.region.job_restriction = 102


def _disabled(pair: Pair) -> None:
    pair.region.enabled = False


def _index_off(pair: Pair) -> None:
    pair.process.indices[15].disable()


def _poisoned(pair: Pair) -> None:
    pair.region.fault = ReturnCode.HOST_POISONED


def _injected(pair: Pair) -> None:
    pair.b.target.fault = lambda request: ReturnCode.DROPPED


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_no_write, ReturnCode.PERM_VIOLATION), (_other_job, ReturnCode.BAD_MKEY), (_disabled, ReturnCode.BAD_MKEY),
        (_index_off, ReturnCode.DISABLED), (_poisoned, ReturnCode.HOST_POISONED), (_injected, ReturnCode.DROPPED),
    ],
)  # fmt: skip
def test_region_errors(spoil: Any, code: ReturnCode) -> None:
    memory = bytearray(9000)
    pair = Pair(memory)
    spoil(pair)
    pair.write(b"\xff" * 9000)
    pair.run()
    assert completions(pair)[0].return_code == code
    assert memory == bytes(9000)


def test_first_error_wins_and_is_echoed() -> None:
    """ses.md §9.3, §10: a region withdrawn in flight gives CANCELLED, for the rest of the message too."""
    pair = Pair(bytearray(20 * 4096))
    pair.write(bytes(20 * 4096))
    first, *rest = pair.a.poll(0)
    pair.b.receive(first, 0)
    pair.region.enabled = False
    pair.b.receive(rest[0], 0)
    pair.region.enabled = True
    for packet in rest[1:]:
        pair.b.receive(packet, 0)
    for packet in pair.b.poll(0):
        pair.a.receive(packet, 0)
    pair.run()
    assert completions(pair)[0].return_code == ReturnCode.CANCELLED


def test_message_error_ends_a_refused_message() -> None:
    """ses.md §5.12: the initiator stops, MSG_ERROR takes the place of what was not sent."""
    pair = Pair(bytearray(10), pds={"default_mpr": 1, "mp_range": 128})
    pair.write(bytes(1000 * 4096), key=8)
    pair.run()
    requests = [data for source, data in pair.sent if source == A and data[0] >> 3 in PDC_MODES]
    assert requests[-1][12] == Opcode.MSG_ERROR
    assert len(requests) == 129
    assert requests[-1][13] & 3 == 2
    assert completions(pair)[0].return_code == ReturnCode.BAD_MKEY
    assert pair.b.target.messages == {}
    pair.wait()
    assert pair.a.quiescent


def test_above_max_msg_size_is_several_messages_and_one_completion() -> None:
    """ses.md §8.4, last row."""
    data = random.Random(1).randbytes(16384)
    memory = bytearray(16384)
    pair = Pair(memory, ses={"max_msg_size": 4096})
    pair.write(data, completion_data=1, context=5)
    pair.run()
    requests = [data for source, data in pair.sent if source == A]
    assert [int.from_bytes(r[14:16], "big") for r in requests] == [1, 2, 3, 4]
    assert [int.from_bytes(r[24:32], "big") for r in requests] == [0, 4096, 8192, 12288]
    assert completions(pair) == [Completion(5, B, 1, 16384, ReturnCode.OK, modified=16384)]
    assert memory == data
    assert len([e for e in pair.b.events() if isinstance(e, RemoteWrite)]) == 1


def test_split_covers_exactly() -> None:
    job = operation_of(Write(peer=B, data=bytes(10), key=0, start=2, offset=100), SesConfig(max_msg_size=3))
    pieces = [plan_of(job, piece) for piece in range(job.count)]
    assert [(p.start, p.body, p.offset) for p in pieces] == [(2, 3, 100), (5, 3, 103), (8, 2, 106)]
    assert operation_of(Write(peer=B, data=b"", key=0), SesConfig(max_msg_size=3)).count == 1


def test_files_in_windows() -> None:
    """Source and target may be files of any length; order of arrival does not matter (ses.md §15 item 8)."""
    data = random.Random(3).randbytes(300_000)
    target = io.BytesIO()
    pair = Pair(FileMemory(target, len(data), window=10_000, windows=2))
    pair.write(FileMemory(io.BytesIO(data), window=7_000, windows=2), mode=Mode.RUD)
    packets = pair.a.poll(0)
    random.Random(4).shuffle(packets)
    for packet in packets:
        pair.b.receive(packet, 0)
    pair.run()
    assert target.getvalue() == data


def test_unsupported_operations() -> None:
    """ses.md §5.1, §4.2, §10 steps 2 to 4: not in this revision, not on RUD; NO_OP; version before opcode."""
    for byte0, flags, code in [
        *((opcode, 0x0B, ReturnCode.UNSUPPORTED_OP) for opcode in (0x10, 0x11, 0x12, 0x2F, 0x30, 0x3E, 0x3F)),
        (Opcode.DATAGRAM_SEND, 0x0B, ReturnCode.OP_VIOLATION),
        (Opcode.ATOMIC, 0x0B, ReturnCode.OP_VIOLATION),  # without its extension
        (Opcode.RENDEZVOUS_SEND, 0x0B, ReturnCode.OP_VIOLATION),
        (Opcode.DEFERRABLE_RTR, 0x0B, ReturnCode.OP_VIOLATION),  # nobody gave out that token
        (Opcode.NO_OP, 0x0B, ReturnCode.OK),
        (Opcode.WRITE, 0x4B, ReturnCode.UNCOR),
        (Opcode.READ, 0x4B, ReturnCode.UNCOR),
        (Opcode.MSG_ERROR, 0x0B, ReturnCode.OP_VIOLATION),
    ]:  # fmt: skip
        assert answer_to(Pair(bytearray(8)), byte0, flags) == code


def answer_to(pair: Pair, byte0: int, flags: int, length: int = 0, payload: bytes = b"") -> int:
    """Return code of the answer to one SOM packet."""
    ses = bytearray(build_som(Opcode.WRITE, 0, 0, 1, 0, 1, 1, JOB, 0, 15, 0, 0, KEY, 0, length))
    ses[0], ses[1] = byte0, flags
    header = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 1, -1, 100, 5, 0)
    return _exchange(pair, header + bytes(ses) + payload)


def _exchange(pair: Pair, data: bytes) -> int:
    from uetproto.engine import Datagram

    pair.b.receive(Datagram(A, B, data), 0)
    (packet,) = pair.b.poll(0)
    return bytes(packet.header)[-11] & 0x3F


@pytest.mark.parametrize(
    ("flags", "length", "payload"),
    [
        (0x0B, 9, 8),  # shorter than implied
        (0x0B, 8, 9),  # longer than implied
        (0x09, 8, 8),  # SOM without EOM, fits one packet
        (0x0B, 5000, 4096),  # SOM and EOM, does not fit one packet
    ],
)  # fmt: skip
def test_length_rules(flags: int, length: int, payload: int) -> None:
    """ses.md §7.1, §10 step 10."""
    assert answer_to(Pair(bytearray(9000)), Opcode.WRITE, flags, length, bytes(payload)) == ReturnCode.OP_VIOLATION


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"request_length": 8193}, ReturnCode.OP_VIOLATION), ({"buffer_offset": 8}, ReturnCode.OP_VIOLATION),
        ({"key": KEY + 1}, ReturnCode.PERM_VIOLATION), ({"message_offset": 4095}, ReturnCode.OP_VIOLATION),
        ({"payload_length": 4095}, ReturnCode.OP_VIOLATION), ({"short": 96}, ReturnCode.OP_VIOLATION),
        ({"eom": 0}, ReturnCode.OP_VIOLATION),
        ({"ie": 1}, ReturnCode.INITIATOR_ERROR), ({"job_id": 5}, ReturnCode.BAD_JOB_ID), ({}, ReturnCode.OK),
    ],
)  # fmt: skip
def test_second_packet_must_be_consistent(changed: dict[str, int], code: ReturnCode) -> None:
    """ses.md §10 steps 5, 10, 16, 17; `ie`: §5.13."""
    pair = Pair(bytearray(20000))
    som = build_som(Opcode.WRITE, 0, 0, 1, 0, 0, 1, JOB, 0, 15, 0, 0, KEY, 0, 8192)
    header = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 1, -1, 100, 5, 0)
    assert _exchange(pair, header + som + bytes(4096)) == ReturnCode.OK
    fields = {
        "opcode": Opcode.WRITE, "dc": 0, "ie": 0, "rel": 1, "hd": 0, "eom": 1, "message_id": 1, "job_id": JOB,
        "pid_on_fep": 0, "resource_index": 15, "buffer_offset": 0, "initiator": 0, "key": KEY, "payload_length": 4096,
        "message_offset": 4096, "request_length": 8192, **changed,
    }  # fmt: skip
    size = 4096 - fields.pop("short", 0)  # an EOM packet that does not reach the end
    if size != 4096:
        fields["payload_length"] = size
    header = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 1, -1, 101, 5, 1)
    assert _exchange(pair, header + build_later(**fields) + bytes(size)) == code


def test_checks_follow_the_page() -> None:
    steps = [check.step for check in CHECKS]
    assert steps == sorted(steps)
    assert {check.step for check in CHECKS if check.once} <= {8, 11, 12, 13, 14, 15}


def test_no_message_state_left_is_a_pds_nack() -> None:
    """ses.md §10 step 11: UNCOR_TRNSNT with ses_nack; PDS repeats, SES of the initiator does not notice."""
    pair = Pair(bytearray(20000), ses={"max_rx_messages": 1})
    pair.b.target.messages[0, 0] = SimpleNamespace(error=None)  # type: ignore[assignment]
    pair.write(bytes(20000), mode=Mode.RUD)
    pair.run()
    assert pair.b.pds.nack_tx == {NackCode.NO_SES_MSG_AVAIL: 5}
    pair.b.target.messages.clear()
    pair.wait()
    assert completions(pair)[0].ok


def test_idle_message_state_is_dropped() -> None:
    """ses.md §7.2: 5000 ms."""
    pair = Pair(bytearray(20000))
    pair.write(bytes(20000))
    pair.b.receive(pair.a.poll(0)[0], 0)
    assert len(pair.b.target.messages) == 1
    pair.b.poll(5000 * 10**9)
    assert not pair.b.target.messages


def test_poll_limit_lets_a_driver_pull() -> None:
    pair = Pair(bytearray(100 * 4096))
    pair.write(bytes(100 * 4096))
    counts = [len(pair.a.poll(0, 30)) for _ in range(5)]
    assert counts == [30, 30, 30, 10, 0]


def test_objects_mode_gives_the_same() -> None:
    """A datagram handed on as it is, header and payload apart (architecture.md rule 4)."""
    memory = bytearray(10_000)
    pair = Pair(memory)
    pair.write(b"o" * 10_000)
    for packet in pair.a.poll(0):
        assert packet.traffic_class is TrafficClass.DATA
        pair.b.receive(packet, 0)
    assert memory == b"o" * 10_000


@pytest.mark.parametrize(
    "fields",
    [{"key": 1 << 64}, {"job_id": -1}, {"pid_on_fep": 4096}, {"resource_index": 4096}, {"initiator": 1 << 32},
     {"offset": -1}, {"completion_data": 1 << 64}, {"mode": 2}, {"length": 11}, {"start": 11}],
)  # fmt: skip
def test_illegal_work(fields: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=next(iter(fields))):
        Pair(bytearray(1)).write(bytes(10), **fields)


def test_close_without_a_pdc() -> None:
    pair = Pair(bytearray(1))
    with pytest.raises(LocalError, match="no such PDC"):
        pair.a.submit(Close(peer=B), 0)


def test_time_never_goes_back() -> None:
    pair = Pair(bytearray(1))
    pair.a.poll(5)
    with pytest.raises(LocalError, match="time goes back"):
        pair.a.poll(4)


def test_fault_hook_sees_the_request() -> None:
    seen: list[SesRequest] = []
    pair = Pair(bytearray(9000))
    pair.b.target.fault = seen.append  # type: ignore[assignment]
    pair.write(bytes(9000))
    pair.run()
    assert [r.message_offset for r in seen] == [0, 4096, 8192]
    assert completions(pair)[0].ok
    assert pair.now < NEVER


class _Zeros:
    """A source without memory behind it."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.reads = 0

    def read(self, offset: int, length: int) -> bytes:
        self.reads += 1
        return bytes(length)


def test_a_hundred_gibibytes_cost_one_window() -> None:
    """Packets are made when they may leave: never more than MP_RANGE of them."""
    source = _Zeros(100 << 30)
    pair = Pair(bytearray(1))
    pair.write(source)
    assert source.reads == 0
    assert len(pair.a.poll(0)) == source.reads == 1024
    assert len(pair.a.initiator.messages) == 26
    assert pair.a.poll(0) == []


@pytest.mark.parametrize("form", ["medium", "small"])
def test_single_packet_forms_are_executed(form: str) -> None:
    """ses.md §4.1: medium with a full key, small with an optimized one; message_id 0 in the answer."""
    from uetproto.wire.codec import codec_of
    from uetproto.wire.headers import uet_ses

    memory = bytearray(32)
    pair = Pair(memory)
    pair.process.register(Region(1 << 62 | 9, memory))
    common = {"opcode": 1, "rel": 1, "eom": 1, "som": 1, "request_length": 8, "job_id": JOB, "buffer_offset": 4}
    if form == "medium":
        next_hdr, table = NextHdr.REQUEST_MEDIUM, uet_ses.REQUEST_MEDIUM
        common |= {"resource_index": 15, "memory_key": KEY}
    else:
        next_hdr, table = NextHdr.REQUEST_SMALL, uet_ses.REQUEST_SMALL
        common |= {"resource_index": 9}
    header = build_syn_request(Mode.RUD, next_hdr, 0, 1, -1, 100, 5, 0)
    assert _exchange(pair, header + codec_of(table).encode(common) + b"12345678") == ReturnCode.OK
    assert memory[4:12] == b"12345678"
    assert not pair.b.target.messages


@pytest.mark.parametrize(("answer", "code"), [
    ("001c00010000006500000000", ReturnCode.BAD_MKEY),  # default response with an error: an error (R)
    ("000000010000006500000000", ReturnCode.OK),  # NULL: no information
    ("013000010000006500000000", ReturnCode.UNCOR),  # vendor code
    ("011c00000000006500000000", ReturnCode.BAD_MKEY),  # an error without an id
    ("011c00020000006500000000", ReturnCode.OK),  # the answer to another message: says nothing about this one
    ("005c00010000006500000000", ReturnCode.UNCOR),  # another version
])  # fmt: skip
def test_reading_responses(answer: str, code: ReturnCode) -> None:
    """ses.md §9.3."""
    from tests.support.pds.headers import build_ack
    from uetproto.engine import Datagram

    pair = Pair(bytearray(1))
    pair.a.pds.preset(Preset(pdcid=9, start_psn=50))
    pair.write(b"x")
    pair.a.poll(0)
    pair.a.receive(Datagram(B, A, build_ack(NextHdr.RESPONSE, 0, 0, 0, 0, 50, 4, 9) + bytes.fromhex(answer)), 0)
    assert completions(pair)[0].return_code == code


def test_attach_and_detach() -> None:
    """ses.md §14.1 phase 11: later packets of the job get BAD_JOB_ID; in the middle of a message too."""
    memory = bytearray(20 * 4096)
    pair = Pair(memory)
    pair.write(b"x" * 20 * 4096)
    first, *rest = pair.a.poll(0)
    pair.b.receive(first, 0)
    pair.b.detach(pair.process)
    for packet in rest:
        pair.b.receive(packet, 0)
    for packet in pair.b.poll(0):
        pair.a.receive(packet, 0)
    assert completions(pair)[0].return_code == ReturnCode.BAD_JOB_ID
    assert memory.count(b"x") == 4096
    with pytest.raises(LocalError, match="not attached"):
        pair.b.detach(pair.process)
    for job, pid, indices in ((1 << 24, 0, ()), (1, 4096, ()), (1, 0, (0,))):
        with pytest.raises(LocalError):
            pair.b.attach(job, pid, indices)


@pytest.mark.parametrize("arguments", [{"address": 0}, {"address": 1 << 32}, {"address": 1, "ip_version": 5}])
def test_illegal_endpoints(arguments: dict[str, int]) -> None:
    from uetproto.engine import Fep

    with pytest.raises(LocalError):
        Fep(rng=random.Random(1), **arguments)


def test_unknown_work() -> None:
    with pytest.raises(LocalError, match="work: str is not legal; legal: Write, Read, Atomic, "):
        Pair(bytearray(1)).a.submit("write", 0)  # type: ignore[arg-type]


def test_ipv6() -> None:
    from uetproto.engine import Fep

    a, b = (Fep(n << 100, random.Random(n), ip_version=6) for n in (1, 2))
    memory = bytearray(4)
    b.attach(JOB).register(Region(KEY, memory))
    a.submit(Write(peer=b.address, data=b"six!", key=KEY, job_id=JOB), 0)
    (packet,) = a.poll(0)
    assert (packet.ip_version, packet.dst) == (6, b.address)
    b.receive(packet, 0)
    assert (bytes(memory), b.poll(0)[0].ip_version) == (b"six!", 6)


class _FullDisk:
    """Memory that fails: at every write, or when all is written and must be kept."""

    def __init__(self, length: int, at_flush: bool) -> None:
        self.length = length
        self.at_flush = at_flush

    def read(self, offset: int, length: int) -> bytes:
        return bytes(length)

    def write(self, offset: int, data: Any) -> None:
        if not self.at_flush and offset:
            raise OSError("no space left")

    def flush(self) -> None:
        if self.at_flush:
            raise OSError("no space left")


@pytest.mark.parametrize("latency", [0, 1000])
@pytest.mark.parametrize("at_flush", [False, True])
def test_memory_that_fails(at_flush: bool, latency: int) -> None:
    """ses.md §10 step 18: the peer is told; `receive` does not raise."""
    pair = Pair(_FullDisk(20_000, at_flush), ses={"write_latency": latency})
    pair.write(bytes(20_000), delivery_complete=True)
    pair.run()
    while not pair.a.quiescent:
        pair.wait()
    assert completions(pair)[0].return_code == ReturnCode.HOST_UNSUCCESS_CMPL
    assert [e.return_code for e in pair.b.events() if isinstance(e, MessageFailed)] == [ReturnCode.HOST_UNSUCCESS_CMPL]
    assert not pair.b.target.messages


def test_read_only_memory_is_not_registered_for_writes() -> None:
    with pytest.raises(LocalError, match="read-only"):
        Region(1, b"constant")
    assert Region(1, b"constant", remote_write=False).length == 8


def test_more_messages_than_ids() -> None:
    """ses.md §3: all pieces of one operation are accepted, or none."""
    pair = Pair(bytearray(1), ses={"max_msg_size": 1})
    with pytest.raises(LocalError, match="65534 message_ids"):
        pair.write(bytes(65_535))
    assert not pair.a.initiator.messages
    assert pair.a.pds.quiescent
    pair.write(bytes(65_534))
    assert len(pair.a.initiator.messages) == 65_534


@pytest.mark.parametrize("form", ["standard", "medium"])
def test_refused_single_packets_leave_nothing(form: str) -> None:
    """ses.md §10: the message was seen whole, whatever length it claims; a peer cannot pile up state."""
    from uetproto.engine import Datagram
    from uetproto.wire.codec import codec_of
    from uetproto.wire.headers import uet_ses

    pair = Pair(bytearray(8))
    for number in range(20):
        if form == "standard":
            next_hdr = NextHdr.REQUEST_STD
            ses = build_som(Opcode.WRITE, 0, 0, 1, 0, 1, number, JOB, 0, 15, 0, 0, KEY, 0, 1000)
        else:
            next_hdr = NextHdr.REQUEST_MEDIUM
            ses = codec_of(uet_ses.REQUEST_MEDIUM).encode({
                "opcode": 1, "rel": 1, "eom": 1, "som": 1, "request_length": 1000, "job_id": JOB,
                "resource_index": 15, "memory_key": KEY,
            })  # fmt: skip
        header = build_syn_request(Mode.RUD, next_hdr, 0, 1, -1, 100 + number, 5, number)
        pair.b.receive(Datagram(A, B, header + ses + b"short"), 0)
    assert not pair.b.target.messages
    assert len([e for e in pair.b.events() if isinstance(e, MessageFailed)]) == 20


def test_a_gap_that_no_window_allows() -> None:
    """What lies above the first gap of a message is bounded, whatever a peer sends."""
    arrived = Reassembly(1 << 32)
    assert all(arrived.add(number * 1024, 1024) for number in range(1, 32641))
    assert not arrived.add(32641 * 1024, 1024)
    assert arrived.add(0, 1024)
    assert arrived.edge == 32641 * 1024 == arrived.received
    assert arrived.add(32641 * 1024, 1024)


def test_late_answers_end_with_their_pdc() -> None:
    """A PDCID may be in use again before `write_latency` is over."""
    pair = Pair(bytearray(10), ses={"write_latency": 10_000 * 10**9}, pds={"msl": 0})
    pair.write(bytes(10), delivery_complete=True)
    pair.run()
    assert pair.b.target.waiting
    (pdc,) = pair.b.pds.pdcs.values()
    pdc.step(Input.EXHAUSTED, PdcErrorReason.RTO_EXHAUSTED, pair.now)
    assert not pair.b.target.waiting


def test_other_opcodes_with_the_id_of_a_write() -> None:
    """ses.md §10 step 16: same opcode in all packets of a message."""
    pair = Pair(bytearray(20_000))
    som = build_som(Opcode.WRITE, 0, 0, 1, 0, 0, 1, JOB, 0, 15, 0, 0, KEY, 0, 8192)
    header = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 1, -1, 100, 5, 0)
    assert _exchange(pair, header + som + bytes(4096)) == ReturnCode.OK
    header = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 1, -1, 101, 5, 1)
    nothing = bytearray(build_som(Opcode.WRITE, 0, 0, 1, 0, 1, 1, JOB, 0, 15, 0, 0, KEY, 0, 0))
    nothing[0] = Opcode.NO_OP
    assert _exchange(pair, header + bytes(nothing)) == ReturnCode.OP_VIOLATION


def test_idle_time_counts_from_the_last_packet() -> None:
    """ses.md §7.2: each message for itself."""
    pair = Pair(bytearray(40_000))
    for offset in (0, 20_000):
        pair.write(bytes(20_000), offset=offset, mode=Mode.RUD)
    packets = pair.a.poll(0)
    second = 10**12
    for at, packet in ((0, packets[0]), (3 * second, packets[5]), (4 * second, packets[1])):
        pair.b.receive(packet, at)
    pair.b.poll(5 * second)
    assert pair.b.target.deadline() == 8 * second
    assert len(pair.b.target.messages) == 2
    pair.b.poll(8 * second)
    assert [message.offset for message in pair.b.target.messages.values()] == [0]
    pair.b.poll(9 * second)
    assert not pair.b.target.messages
    assert pair.b.target.deadline() == NEVER


def test_message_error_twice_or_with_som() -> None:
    """ses.md §5.12 (2), (3): OP_VIOLATION, and the message goes on as it was; (4): then INITIATOR_ERROR."""
    pair = Pair(bytearray(20_000))
    som = build_som(Opcode.WRITE, 0, 0, 1, 0, 0, 1, JOB, 0, 15, 0, 0, KEY, 0, 12_288)
    header = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 1, -1, 100, 5, 0)
    assert _exchange(pair, header + som + bytes(4096)) == ReturnCode.OK
    codes = (ReturnCode.OP_VIOLATION, ReturnCode.INITIATOR_ERROR, ReturnCode.OP_VIOLATION)
    for number, (flags, code) in enumerate(zip((0x0B, 0x0A, 0x0A), codes, strict=True), 1):
        end = build_later(Opcode.MSG_ERROR, 0, 0, 1, 0, 1, 1, JOB, 0, 15, 0, 0, KEY, 0, 8192, 12_288)
        header = build_syn_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 1, -1, 100 + number, 5, number)
        assert _exchange(pair, header + end[:1] + bytes([flags]) + end[2:]) == code
    assert [message.end for message in pair.b.target.messages.values()] == [8192]


def test_bytes_below_the_edge() -> None:
    """ses.md §7.1: packets are disjoint."""
    arrived = Reassembly(4096)
    assert arrived.add(0, 1024)
    assert arrived.add(1024, 1024)
    assert not arrived.add(0, 1024)
    assert not arrived.add(1024, 1024)
    assert arrived.received == 2048


def test_first_error_of_an_operation() -> None:
    """ses.md §9.3: later answers do not heal it, nor do later messages of the operation."""
    pair = Pair(bytearray(16_384), ses={"max_msg_size": 8192})
    codes = iter([ReturnCode.DROPPED, ReturnCode.NO_MATCH, None, None])
    pair.b.target.fault = lambda request: next(codes)
    pair.write(bytes(16_384), mode=Mode.RUD)
    pair.run()
    while not pair.a.quiescent:
        pair.wait()
    assert completions(pair)[0].return_code == ReturnCode.DROPPED
    pair.write(bytes(8192), mode=Mode.RUD)
    (message,) = pair.a.initiator.messages.values()
    pair.a.poll(pair.now)
    for index, code in enumerate((ReturnCode.BAD_ADDR, ReturnCode.BAD_MKEY)):
        answer = build_response(ResponseOpcode.RESPONSE, code, message.message_id, JOB, 0)
        message.on_response(index, NextHdr.RESPONSE, answer, pair.now)
    assert completions(pair)[0].return_code == ReturnCode.BAD_ADDR
