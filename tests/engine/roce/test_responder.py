# SPDX-License-Identifier: GPL-2.0-only
"""The rules of an RC responder, one by one (roce.md §8, §8.1, §12)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.roce.responder import (
    OPERATION_OF,
    atomic,
    hand,
    packet,
    reth,
)
from tests.support.roce.world import ALL, BASE, QP_A, World
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AsyncType,
    Opcode,
    QpState,
    RocePacket,
    SendFlags,
    Status,
    WcFlags,
    WcOpcode,
)
from uetproto.engine.roce.packets import parse
from uetproto.engine.roce.segments import MessagePhase, MessageStep
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.roce import BTH, IETH, IMM, Operation, Transport

SMALL = RoceConfig(path_mtu=256, credits=False)


ACKNOWLEDGE = Operation.ACKNOWLEDGE


def ack(psn: int, msn: int) -> list[tuple[int, int, int, int]]:
    return [(ACKNOWLEDGE, psn, 0x1F, msn)]


def nak(psn: int, syndrome: int, msn: int = 0) -> list[tuple[int, int, int, int]]:
    return [(ACKNOWLEDGE, psn, syndrome, msn)]


def full(step: MessageStep, psn: int) -> RocePacket:
    """A legal packet of this kind: FIRST and MIDDLE are full."""
    operation = OPERATION_OF[step]
    if step is MessageStep.READ:
        return packet(operation, psn, reth(10))
    if step is MessageStep.ATOMIC:
        return packet(operation, psn, atomic())
    headers = {MessageStep.RDMA_WRITE_FIRST: reth(600), MessageStep.RDMA_WRITE_ONLY: reth(1)}.get(step, b"")
    many = step.name.endswith(("FIRST", "MIDDLE"))
    return packet(operation, psn, headers, bytes(256 if many else 1))


PREFIX = {
    MessagePhase.IDLE: [],
    MessagePhase.IN_SEND: [MessageStep.SEND_FIRST],
    MessagePhase.IN_WRITE: [MessageStep.RDMA_WRITE_FIRST],
}

PAGE = """
                  IDLE      IN_SEND  IN_WRITE
SEND_FIRST        IN_SEND   NAK      NAK
SEND_MIDDLE       NAK       IN_SEND  NAK
SEND_LAST         NAK       IDLE     NAK
SEND_ONLY         IDLE      NAK      NAK
RDMA_WRITE_FIRST  IN_WRITE  NAK      NAK
RDMA_WRITE_MIDDLE NAK       NAK      IN_WRITE
RDMA_WRITE_LAST   NAK       NAK      IDLE
RDMA_WRITE_ONLY   IDLE      NAK      NAK
READ              IDLE      NAK      NAK
ATOMIC            IDLE      NAK      NAK
"""
"""roce.md §8, the table of message states, turned on its side."""


def states_of_the_page() -> list[tuple[MessagePhase, MessageStep, MessagePhase | None]]:
    heads, *rows = (line.split() for line in PAGE.strip().splitlines())
    return [
        (MessagePhase[head], MessageStep[name], None if cell == "NAK" else MessagePhase[cell])
        for name, *cells in rows
        for head, cell in zip(heads, cells, strict=True)
    ]


@pytest.mark.parametrize(("phase", "step", "then"), states_of_the_page())
def test_order_of_packets(phase: MessagePhase, step: MessageStep, then: MessagePhase | None) -> None:
    """§8, the table of message states: what is not in it is NAK 0x61 and ERR."""
    w = World(a=SMALL)
    w.recv(1000)
    psn = 5
    for before in PREFIX[phase]:
        assert hand(w, full(before, psn)) == ack(psn, 0)
        psn += 1
    if phase is MessagePhase.IN_WRITE and then is MessagePhase.IDLE:  # its last packet has all that is left
        hand(w, full(MessageStep.RDMA_WRITE_MIDDLE, psn))
        psn += 1
        answers = hand(w, packet(OPERATION_OF[step], psn, payload=bytes(600 - 512)))
    else:
        answers = hand(w, full(step, psn))
    if then is None:
        assert answers == nak(psn, 0x61)
        assert w.b.qp.state is QpState.ERR
    else:
        assert answers[0][1:3] == (psn, 0x1F)
        assert w.b.qp.state is QpState.RTS
        assert w.b.qp.responder.phase is then


BAD_KEY = 0x9999


@pytest.mark.parametrize(("sent", "given", "syndrome"), [
    # one packet that fails two checks, their numbers behind it
    (packet(Operation.RDMA_WRITE_LAST, 7, payload=b"x"), {}, 0x60),                                       # 2, 3
    (packet(Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE, 5, bytes(4), b"x"), {}, 0x61),                      # 3, 5
    (packet(Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE, 5, reth(1) + bytes(4), b"x"), {"access_flags": 1}, 0x61),  # 4, 5
    (packet(Operation.RDMA_WRITE_ONLY, 5, reth(1, r_key=BAD_KEY), b"x"), {"access_flags": 1}, 0x61),      # 4, 8
    (packet(Operation.SEND_ONLY, 5, payload=bytes(260)), {}, 0x2C),                                       # 5, 7
    (packet(Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE, 5, reth(1, r_key=BAD_KEY) + bytes(4), b"x"), {}, 0x2C),  # 5, 8
    (packet(Operation.RDMA_READ_REQUEST, 5, reth(1, r_key=BAD_KEY)), {"max_dest_rd_atomic": 0}, 0x61),    # 6, 8
    (packet(Operation.RDMA_WRITE_ONLY, 5, reth(2, r_key=BAD_KEY), b"x"), {}, 0x61),                       # 7, 8
    (packet(Operation.FETCH_ADD, 5, atomic(BASE + 4, r_key=BAD_KEY)), {}, 0x62),                          # 8, 9
])  # fmt: skip
def test_the_first_check_that_fails_decides(sent: RocePacket, given: dict[str, int], syndrome: int) -> None:
    """§8, the order of checks; no receive is posted."""
    w = World(a=SMALL, given=given)
    assert [answer[2] for answer in hand(w, sent)] == [syndrome]


@pytest.mark.parametrize(("change", "what"), [
    ({"tver": 1}, "version"), ({"destqp": 0x99}, "destqp"), ({"p_key": 0x7FFE}, "p_key"), ({"src": 77}, "peer"),
    ({"operation": Transport.UC << 5 | Operation.SEND_ONLY}, "transport"),
    ({"operation": 0x44, "headers": bytes(12)}, "transport"),
])  # fmt: skip
def test_silent_drops(change: dict[str, Any], what: str) -> None:
    """§8 check 1."""
    w = World(a=SMALL)
    w.recv(10)
    sent: dict[str, Any] = {"operation": Operation.SEND_ONLY, "psn": 5} | change
    assert hand(w, packet(**sent)) == []
    assert w.b.hca.counters == {what: 1}
    assert w.b.qp.responder.epsn == 5


@pytest.mark.parametrize("size", range(12 + 16))
def test_every_prefix_is_dropped(size: int) -> None:
    """§8 check 1: a WRITE ONLY cut short of its headers."""
    w = World(a=SMALL)
    sent = packet(Operation.RDMA_WRITE_ONLY, 5, reth(0))
    assert hand(w, replace(sent, header=bytes(sent.header)[:size])) == []
    assert w.b.hca.counters == {"length": 1}


def test_pad_longer_than_payload() -> None:
    """§1: a negative payload is malformed."""
    sent = packet(Operation.SEND_ONLY, 5, padcnt=0)
    cut = codec_of(BTH).encode(codec_of(BTH).decode(sent.header) | {"padcnt": 3})
    w = World(a=SMALL)
    assert hand(w, replace(sent, header=cut)) == []
    assert w.b.hca.counters == {"length": 1}


def test_ahead_is_refused_once() -> None:
    """§8 check 2: NAK 0x60 with ePSN, once until ePSN has come."""
    w = World(a=SMALL)
    w.recv(10)
    w.recv(10)
    assert hand(w, full(MessageStep.SEND_ONLY, 7)) == nak(5, 0x60)
    assert hand(w, full(MessageStep.SEND_ONLY, 6)) == []
    assert hand(w, full(MessageStep.SEND_ONLY, 5)) == ack(5, 1)
    assert hand(w, full(MessageStep.SEND_ONLY, 7)) == nak(6, 0x60, 1)


def test_ahead_is_refused_every_time_if_so_configured() -> None:
    w = World(a=RoceConfig(path_mtu=256, credits=False, psn_nak="every"))
    assert [hand(w, full(MessageStep.SEND_ONLY, psn)) for psn in (7, 6)] == [nak(5, 0x60)] * 2


def test_no_psn_nak_after_an_rnr_nak() -> None:
    """§8 check 2, 5: ePSN stays, nothing is stored, and packets ahead are not refused."""
    w = World(a=SMALL)
    assert hand(w, full(MessageStep.SEND_ONLY, 5)) == nak(5, 0x20 | 12)
    assert hand(w, full(MessageStep.SEND_ONLY, 6)) == []
    w.recv(10)
    assert hand(w, full(MessageStep.SEND_ONLY, 5)) == ack(5, 1)


@pytest.mark.parametrize("step", [MessageStep.RDMA_WRITE_ONLY, MessageStep.READ, MessageStep.ATOMIC])
def test_rights_of_the_queue_pair(step: MessageStep) -> None:
    """§8 check 4: NAK 0x61, both ERR; QP_FATAL."""
    w = World(a=SMALL, given={"access_flags": Access.LOCAL_WRITE})
    assert hand(w, full(step, 5)) == nak(5, 0x61)
    assert w.asynchronous(w.b) == [AsyncType.QP_FATAL]
    assert w.b.qp.state is QpState.ERR


@pytest.mark.parametrize("operation", [0x15, 0x18, 0x1B, Operation.FLUSH, Operation.ATOMIC_WRITE, 0x1E, 0x1F])
def test_unknown_opcodes(operation: int) -> None:
    """§8 check 4."""
    w = World(a=SMALL)
    assert hand(w, packet(operation, 5, bytes(32)))[0] == nak(5, 0x61)[0]


@pytest.mark.parametrize(("operation", "rnr"), [
    (Operation.SEND_FIRST, True), (Operation.SEND_ONLY, True), (Operation.SEND_ONLY_WITH_IMMEDIATE, True),
    (Operation.SEND_ONLY_WITH_INVALIDATE, True), (Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE, True),
    (Operation.RDMA_WRITE_ONLY, False), (Operation.RDMA_WRITE_FIRST, False), (Operation.RDMA_READ_REQUEST, False),
])  # fmt: skip
def test_who_needs_a_receive(operation: Operation, rnr: bool) -> None:
    """§8 check 5."""
    w = World(a=SMALL)
    first = operation in (Operation.SEND_FIRST, Operation.RDMA_WRITE_FIRST)
    size = 256 if first else 0
    headers = {
        Operation.SEND_ONLY_WITH_IMMEDIATE: bytes(4),
        Operation.SEND_ONLY_WITH_INVALIDATE: codec_of(IETH).encode({"r_key": 0x1235}),
        Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE: reth(0) + bytes(4),
        Operation.RDMA_WRITE_ONLY: reth(0),
        Operation.RDMA_WRITE_FIRST: reth(300),
        Operation.RDMA_READ_REQUEST: reth(0),
    }.get(operation, b"")
    answers = hand(w, packet(operation, 5, headers, bytes(size)))
    assert (answers[0][2] == 0x2C) is rnr
    assert w.b.qp.responder.epsn == (5 if rnr else 6)


@pytest.mark.parametrize("step", [MessageStep.READ, MessageStep.ATOMIC])
def test_no_resources(step: MessageStep) -> None:
    """§8 check 6: max_dest_rd_atomic is 0."""
    w = World(a=SMALL, given={"max_dest_rd_atomic": 0})
    assert hand(w, full(step, 5)) == nak(5, 0x61)


@pytest.mark.parametrize("sent", [
    packet(Operation.SEND_FIRST, 5, payload=bytes(252)), packet(Operation.SEND_FIRST, 5, payload=bytes(260)),
    packet(Operation.SEND_ONLY, 5, payload=bytes(260)), packet(Operation.RDMA_WRITE_ONLY, 5, reth(5), bytes(4)),
    packet(Operation.RDMA_WRITE_ONLY, 5, reth(3), bytes(4)),
    packet(Operation.RDMA_WRITE_FIRST, 5, reth(256), bytes(256)),
    packet(Operation.RDMA_WRITE_FIRST, 5, reth(2**31 + 1), bytes(256)),
    packet(Operation.RDMA_READ_REQUEST, 5, reth(2**31 + 1)), packet(Operation.RDMA_READ_REQUEST, 5, reth(4), bytes(4)),
    packet(Operation.FETCH_ADD, 5, atomic(), bytes(4)), packet(Operation.SEND_ONLY, 5, payload=bytes(4), padcnt=1),
])  # fmt: skip
def test_wrong_length(sent: RocePacket) -> None:
    """§8 check 7."""
    w = World(a=SMALL)
    w.recv(1000)
    assert hand(w, sent) == nak(5, 0x61)
    assert w.b.memory == bytes(1 << 16)
    assert w.statuses(w.b, True) == [Status.WR_FLUSH_ERR]


def test_last_without_bytes() -> None:
    """§3: LAST has 1 … PMTU."""
    w = World(a=SMALL)
    w.recv(1000)
    hand(w, full(MessageStep.SEND_FIRST, 5))
    assert hand(w, packet(Operation.SEND_LAST, 6)) == nak(6, 0x61)


@pytest.mark.parametrize("length", [9, 300])
def test_longer_than_the_receive(length: int) -> None:
    """§10: the requester ends with 9, the receive with 1, both ERR; nothing outside the receive is written."""
    w = World(a=SMALL)
    w.recv(length - 1, wr_id=1)
    w.recv(1000, wr_id=2)
    w.a.memory[:length] = b"\xaa" * length
    w.send(Opcode.SEND, length)
    w.deliver_all()
    assert w.statuses() == [Status.REM_INV_REQ_ERR]
    assert [(c.wr_id, c.status) for c in w.received()] == [(1, Status.LOC_LEN_ERR), (2, Status.WR_FLUSH_ERR)]
    assert w.received()[0].vendor_err == w.done()[0].vendor_err == 0x61
    assert (w.a.qp.state, w.b.qp.state) == (QpState.ERR, QpState.ERR)
    assert w.b.memory[length - 1 :] == bytes(len(w.b.memory) - length + 1)


@pytest.mark.parametrize(("headers", "syndrome"), [
    (reth(4, r_key=0x9999), 0x62), (reth(4, va=BASE - 1), 0x62), (reth(4, va=BASE + (1 << 16) - 3), 0x62),
    (reth(4, va=(1 << 64) - 2), 0x62), (reth(4, va=BASE + (1 << 16) - 4), None),
])  # fmt: skip
def test_keys_and_ranges(headers: bytes, syndrome: int | None) -> None:
    """§8 check 8, §10: 10, QP_ACCESS_ERR; the last byte of a region is legal."""
    w = World(a=SMALL)
    answers = hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, headers, b"abcd"))
    assert answers == (ack(5, 1) if syndrome is None else nak(5, syndrome))
    assert w.asynchronous(w.b) == ([] if syndrome is None else [AsyncType.QP_ACCESS_ERR])


@pytest.mark.parametrize("operation", [Operation.RDMA_WRITE_FIRST, Operation.RDMA_READ_REQUEST])
@pytest.mark.parametrize(("left", "syndrome"), [(600, 0x1F), (599, 0x62)])
def test_the_whole_message_lies_in_the_region(operation: Operation, left: int, syndrome: int) -> None:
    """§8 check 8: the range of the whole dmalen, at the packet with the RETH; nothing is written or read before."""
    w = World(a=SMALL)
    payload = bytes(256) if operation == Operation.RDMA_WRITE_FIRST else b""
    answers = hand(w, packet(operation, 5, reth(600, va=BASE + (1 << 16) - left), payload))
    assert answers[0][1:3] == (5, syndrome)


@pytest.mark.parametrize("step", [MessageStep.RDMA_WRITE_ONLY, MessageStep.READ, MessageStep.ATOMIC])
def test_rights_of_the_region(step: MessageStep) -> None:
    """§8 check 8."""
    w = World(a=SMALL)
    w.b.mr.access = Access.LOCAL_WRITE
    assert hand(w, full(step, 5)) == nak(5, 0x62)


def test_another_domain() -> None:
    """§8 check 8."""
    w = World(a=SMALL)
    other = w.b.hca.reg_mr(w.b.hca.alloc_pd(), bytearray(100), addr=BASE, access=ALL)
    assert hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4, r_key=other.rkey), b"abcd")) == nak(5, 0x62)


@pytest.mark.parametrize("operation", [Operation.RDMA_WRITE_ONLY, Operation.RDMA_READ_REQUEST])
def test_keys_are_not_looked_at_for_no_bytes(operation: Operation) -> None:
    """§8 check 8: skipped if dmalen = 0."""
    w = World(a=SMALL)
    assert hand(w, packet(operation, 5, reth(0, va=3, r_key=0x9999)))[0][1:] == (5, 0x1F, 1)


@pytest.mark.parametrize(("order", "syndrome"), [("key_first", 0x62), ("alignment_first", 0x61)])
def test_misaligned_atomic(order: str, syndrome: int) -> None:
    """§8 checks 8 and 9: their order is a choice."""
    w = World(a=RoceConfig(credits=False, check_order=order))
    assert hand(w, packet(Operation.FETCH_ADD, 5, atomic(BASE + 4, r_key=0x9999))) == nak(5, syndrome)
    w = World(a=RoceConfig(credits=False, check_order=order))
    assert hand(w, packet(Operation.FETCH_ADD, 5, atomic(BASE + 4, 1))) == nak(5, 0x61)
    assert w.b.memory == bytes(1 << 16)


def test_bad_key_of_the_receive() -> None:
    """§10: the requester ends with 11, the receive with 4; QP_FATAL."""
    w = World(a=SMALL)
    w.recv(10)
    w.b.hca.dereg_mr(w.b.mr)
    w.send(Opcode.SEND, 10)
    w.deliver_all()
    assert w.statuses() == [Status.REM_OP_ERR]
    assert w.statuses(w.b, True) == [Status.LOC_PROT_ERR]
    assert w.asynchronous(w.b) == [AsyncType.QP_FATAL]


def test_region_gone_while_it_is_written_or_read() -> None:
    """§8 check 10: the local side cannot; what came before stays written."""
    w = World(a=SMALL)
    hand(w, full(MessageStep.RDMA_WRITE_FIRST, 5))
    w.b.hca.dereg_mr(w.b.mr)
    assert hand(w, packet(Operation.RDMA_WRITE_MIDDLE, 6, payload=bytes(256))) == nak(6, 0x63)

    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 1024)
    w.b.hca.receive(w.wire.pop(), 0)
    w.wire += w.b.hca.poll(0, 2)
    w.b.hca.dereg_mr(w.b.mr)
    w.take()
    w.deliver_all()
    assert w.statuses() == [Status.REM_OP_ERR]


def test_region_of_the_receive_goes_between_two_packets() -> None:
    """§10: what has come stays, what comes is not stored; 11 and 4."""
    w = World(a=SMALL)
    w.a.memory[:600] = b"\x11" * 600
    w.recv(1000)
    w.send(Opcode.SEND, 600)
    w.deliver()
    w.b.hca.dereg_mr(w.b.mr)
    w.deliver_all()
    assert (w.statuses(), w.statuses(w.b, True)) == ([Status.REM_OP_ERR], [Status.LOC_PROT_ERR])
    assert w.b.memory[:600] == b"\x11" * 256 + bytes(344)


def test_completion_of_a_send() -> None:
    """§10: byte_len, immediate, queue pair of the sender, solicited."""
    w = World(a=SMALL)
    w.recv(1000, wr_id=9)
    w.a.memory[:700] = bytes(range(250)) * 2 + bytes(200)
    w.send(Opcode.SEND_WITH_IMM, 700, imm_data=0x01020304, send_flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
    w.deliver_all()
    (got,) = w.received()
    assert (got.wr_id, got.opcode, got.byte_len, got.imm_data) == (9, WcOpcode.RECV, 700, 0x01020304)
    assert (got.wc_flags, got.src_qp, got.solicited) == (WcFlags.WITH_IMM, QP_A, True)
    assert w.b.memory[:700] == w.a.memory[:700]
    assert [p.se for p in w.sent()] == [0, 0, 1]  # §2: only the last packet


def test_completion_of_a_write_with_immediate() -> None:
    """§8, §10: byte_len is dmalen; the receive is used up and nothing is written into it."""
    w = World(a=SMALL)
    w.recv(1000, at=5000)
    w.a.memory[:300] = b"\x55" * 300
    w.send(Opcode.RDMA_WRITE_WITH_IMM, 300, imm_data=7)
    w.deliver_all()
    (got,) = w.received()
    assert (got.opcode, got.byte_len, got.imm_data) == (WcOpcode.RECV_RDMA_WITH_IMM, 300, 7)
    assert w.b.memory[:300] == b"\x55" * 300
    assert w.b.memory[5000:6000] == bytes(1000)


def test_write_with_immediate_meets_no_receive_at_its_last_packet() -> None:
    """§8 check 5: RNR NAK at LAST, of which nothing is stored; it is sent again alone and ends the message."""
    w = World(a=SMALL)
    w.a.memory[:600] = b"\x55" * 600
    w.send(Opcode.RDMA_WRITE_WITH_IMM, 600, imm_data=7)
    w.deliver_all()
    assert w.b.memory[:513] == b"\x55" * 512 + b"\0"
    assert w.sent(w.b)[-1].values["syndrome"] == 0x2C
    w.recv(0)
    w.run()
    assert w.statuses() == [Status.SUCCESS]
    assert [p.operation for p in w.sent()] == [0x06, 0x07, 0x09, 0x09]
    assert [c.byte_len for c in w.received()] == [600]
    assert w.b.memory[:600] == b"\x55" * 600


def test_send_with_invalidate() -> None:
    """§2 ieth: the r_key is told in the completion, and allows nothing from then on."""
    w = World(a=SMALL)
    other = w.b.hca.reg_mr(w.b.pd, bytearray(10), access=ALL)
    w.recv(10)
    w.send(Opcode.SEND_WITH_INV, 3, invalidate_rkey=other.rkey)
    w.deliver_all()
    (got,) = w.received()
    assert (got.wc_flags, got.invalidated_rkey) == (WcFlags.WITH_INV, other.rkey)
    w.send(Opcode.RDMA_WRITE, 3, remote_addr=0, rkey=other.rkey)
    w.deliver_all()
    assert w.statuses() == [Status.SUCCESS, Status.REM_ACCESS_ERR]


def test_invalidate_of_a_strange_key() -> None:
    w = World(a=SMALL)
    w.recv(10)
    w.send(Opcode.SEND_WITH_INV, 3, invalidate_rkey=0x9999)
    w.deliver_all()
    assert w.statuses() == [Status.REM_ACCESS_ERR]


def test_a_send_longer_than_any_message() -> None:
    """§6, §8 check 7: whatever the receive holds."""
    w = World(a=SMALL, b=RoceConfig(path_mtu=256, credits=False, max_message=600))
    w.recv(1000)
    w.send(Opcode.SEND, 601)
    w.deliver_all()
    assert (w.statuses(), w.statuses(w.b, True)) == ([Status.REM_INV_REQ_ERR], [Status.WR_FLUSH_ERR])


# Duplicates ----------------------------------------------------------------------------------------------------------


def test_duplicate_write_is_acknowledged_and_not_executed() -> None:
    """§8.1: PSN ePSN − 1, the present MSN."""
    w = World(a=SMALL)
    hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"abcd"))
    hand(w, packet(Operation.RDMA_WRITE_ONLY, 6, reth(4), b"efgh"))
    assert hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"abcd", a=0)) == ack(6, 2)
    assert w.b.memory[:4] == b"efgh"


def test_duplicate_write_the_other_way() -> None:
    """§8.1: hfi1 answers if a = 1, with a READ or ATOMIC saved later if there is one."""
    w = World(a=RoceConfig(path_mtu=256, credits=False, duplicate_write="requested"))
    hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"abcd"))
    assert hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"abcd", a=0)) == []
    assert hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"abcd")) == ack(5, 1)
    hand(w, packet(Operation.FETCH_ADD, 6, atomic(swap=1)))
    assert hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"abcd"))[0][:2] == (Operation.ATOMIC_ACKNOWLEDGE, 6)


def test_duplicate_atomic_is_answered_from_what_was_saved() -> None:
    """§8.1, §15 item 3: found by PSN, never executed twice."""
    w = World(a=SMALL)
    w.b.memory[:8] = (41).to_bytes(8, "little")
    for psn in (5, 6, 5):
        w.b.hca.receive(packet(Operation.FETCH_ADD, psn, atomic(swap=1)), 0)
    answers = [parse(p) for p in w.b.hca.poll(0)]
    assert [(p.psn, p.values["origremdt"]) for p in answers if p] == [(5, 41), (6, 42), (5, 41)]
    assert int.from_bytes(w.b.memory[:8], "little") == 43


@pytest.mark.parametrize("step", [MessageStep.READ, MessageStep.ATOMIC])
def test_recycled_entry(step: MessageStep) -> None:
    """§8 check 6, §8.1: the oldest is recycled; its duplicate is dropped silently."""
    w = World(a=SMALL, given={"max_dest_rd_atomic": 2})
    for psn in (5, 6, 7):
        hand(w, full(step, psn))
    assert hand(w, full(step, 5)) == []
    assert len(hand(w, full(step, 6))) == 1


@pytest.mark.parametrize(("headers", "answered"), [
    (reth(700), True), (reth(444, va=BASE + 256), False), (reth(700, r_key=0x1234), False), (reth(701), False),
    (reth(700, va=BASE + 1), False),
])  # fmt: skip
def test_duplicate_read(headers: bytes, answered: bool) -> None:
    """§8.1: same r_key and its range inside the saved one, from present memory; else silent drop.

    The PSNs have to be inside as well: a response to the second case, at the first PSN, would be another one.
    """
    w = World(a=SMALL)
    w.b.memory[:700] = b"\x01" * 700
    assert [p[1] for p in hand(w, packet(Operation.RDMA_READ_REQUEST, 5, reth(700)))] == [5, 6, 7]
    w.b.memory[:700] = b"\x02" * 700
    w.b.hca.receive(packet(Operation.RDMA_READ_REQUEST, 5, headers), 0)
    answers = [parse(p) for p in w.b.hca.poll(0)]
    if headers == reth(444, va=BASE + 256):
        assert [p.psn for p in answers if p] == [5, 6]  # inside, and as asked
    else:
        assert [p.psn for p in answers if p] == ([5, 6, 7] if answered else [])
        assert all(set(bytes(p.payload)) == {2} for p in answers if p)
    assert w.b.qp.responder.msn == 1


@pytest.mark.parametrize("headers", [
    reth(700, va=BASE + 1024, r_key=0x7777), reth(700, va=BASE + 1023), reth(300, va=BASE + 1023),
])  # fmt: skip
def test_duplicate_read_of_other_bytes(headers: bytes) -> None:
    """§8.1: bytes that may well be read, but were not asked for with this PSN: silent drop."""
    w = World(a=SMALL)
    w.b.hca.reg_mr(w.b.pd, bytearray(5000), addr=BASE, access=ALL, rkey=0x7777)
    hand(w, packet(Operation.RDMA_READ_REQUEST, 5, reth(700, va=BASE + 1024)))
    assert hand(w, packet(Operation.RDMA_READ_REQUEST, 5, headers)) == []


def test_duplicate_read_from_its_middle() -> None:
    """§8.1, §9: PSN from the request, FIRST again."""
    w = World(a=SMALL)
    hand(w, packet(Operation.RDMA_READ_REQUEST, 5, reth(700)))
    answers = hand(w, packet(Operation.RDMA_READ_REQUEST, 6, reth(700 - 256, va=BASE + 256)))
    assert [(p[0], p[1]) for p in answers] == [(0x0D, 6), (0x0F, 7)]


def test_a_response_that_is_being_sent_goes_back() -> None:
    """A READ asked for again while its response is on the way is not sent twice as a whole."""
    w = World(a=SMALL)
    w.b.memory[:2560] = bytes(i % 251 for i in range(2560))
    w.b.hca.receive(packet(Operation.RDMA_READ_REQUEST, 5, reth(2560)), 0)
    first = w.b.hca.poll(0, 4)
    w.b.hca.receive(packet(Operation.RDMA_READ_REQUEST, 6, reth(2304, va=BASE + 256)), 0)
    second = w.b.hca.poll(0)
    numbers = [p.psn for p in map(parse, [*first, *second]) if p]
    assert numbers == [5, 6, 7, 8, *range(6, 15)]
    assert b"".join(bytes(p.payload) for p in second) == w.b.memory[256:2560]


def test_a_response_asked_for_where_it_has_not_come_so_far() -> None:
    """What is asked for again is still to come: nothing changes."""
    w = World(a=SMALL)
    w.b.hca.receive(packet(Operation.RDMA_READ_REQUEST, 5, reth(2560)), 0)
    first = w.b.hca.poll(0, 2)
    w.b.hca.receive(packet(Operation.RDMA_READ_REQUEST, 9, reth(2560 - 1024, va=BASE + 1024)), 0)
    assert [p.psn for p in map(parse, [*first, *w.b.hca.poll(0)]) if p] == list(range(5, 15))


# Acknowledgements ----------------------------------------------------------------------------------------------------


def test_credits() -> None:
    """§2.1: the largest code whose credits are posted; 0x1f with a shared queue."""
    w = World(a=RoceConfig(path_mtu=256))
    for _ in range(8):
        w.recv(10)
    assert hand(w, full(MessageStep.SEND_ONLY, 5)) == [(ACKNOWLEDGE, 5, 5, 1)]  # n(5) = 6, n(6) = 8, 7 are left
    w = World(a=RoceConfig(path_mtu=256), srq=True)
    assert hand(w, full(MessageStep.RDMA_WRITE_ONLY, 5)) == ack(5, 1)


def test_coalesced_acknowledgements() -> None:
    """§8: one ACK may cover many; it leaves after `ack_delay` at the latest."""
    w = World(a=RoceConfig(path_mtu=256, credits=False, ack_coalesce=3, ack_delay=1000))
    assert [hand(w, full(MessageStep.RDMA_WRITE_ONLY, psn)) for psn in (5, 6)] == [[], []]
    assert hand(w, full(MessageStep.RDMA_WRITE_ONLY, 7)) == ack(7, 3)
    assert hand(w, full(MessageStep.RDMA_WRITE_ONLY, 8)) == []
    assert w.b.hca.deadline() == 1000
    w.now = 1000
    assert [p.psn for p in map(parse, w.b.hca.poll(1000)) if p] == [8]


@pytest.mark.parametrize(("step", "answer"), [
    (MessageStep.READ, Operation.RDMA_READ_RESPONSE_ONLY), (MessageStep.ATOMIC, Operation.ATOMIC_ACKNOWLEDGE),
])  # fmt: skip
def test_an_answer_acknowledges_what_was_owed(step: MessageStep, answer: Operation) -> None:
    """§8: a READ or ATOMIC response acknowledges all before it, so there is no ACK of its own."""
    w = World(a=RoceConfig(path_mtu=256, credits=False, ack_coalesce=9, ack_delay=1000))
    assert hand(w, full(MessageStep.RDMA_WRITE_ONLY, 5)) == []
    assert [p[0] for p in hand(w, full(step, 6))] == [answer]
    w.now = 5000
    assert w.b.hca.poll(5000) == []


def test_unasked_packets_are_not_acknowledged() -> None:
    """§8: free for packets with a = 0; here none is sent."""
    w = World(a=SMALL)
    assert hand(w, packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"abcd", a=0)) == []


def test_a_nak_does_not_overtake_a_response() -> None:
    """§8: the READ accepted before is answered, then the NAK follows, though the queue pair is in ERR already."""
    w = World(a=SMALL)
    w.b.hca.receive(packet(Operation.RDMA_READ_REQUEST, 5, reth(700)), 0)
    w.b.hca.receive(packet(Operation.SEND_LAST, 8, b"", b"x"), 0)
    assert w.b.qp.state is QpState.ERR
    operations = [p.operation for p in map(parse, w.b.hca.poll(0)) if p]
    assert operations == [0x0D, 0x0E, 0x0F, ACKNOWLEDGE]


def test_established_once() -> None:
    """§6: the first request in RTR: event COMM_EST."""
    w = World(a=SMALL, up=False)
    for side, peer in ((w.a, w.b), (w.b, w.a)):
        for state in (QpState.INIT, QpState.RTR):
            w.modify(side, state, **w.attributes(side, peer, state, 5, {}))
    for psn in (5, 6):
        assert hand(w, full(MessageStep.RDMA_WRITE_ONLY, psn)) == ack(psn, psn - 4)
    assert w.asynchronous(w.b) == [AsyncType.COMM_EST]


def test_immediate_is_handed_on() -> None:
    """§2 imm: the four bytes as a number."""
    w = World(a=SMALL)
    w.recv(0)
    hand(w, packet(Operation.SEND_ONLY_WITH_IMMEDIATE, 5, codec_of(IMM).encode({"immdt": 0xFFFFFFFE})))
    assert w.received()[0].imm_data == 0xFFFFFFFE
