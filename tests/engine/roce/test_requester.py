# SPDX-License-Identifier: GPL-2.0-only
"""The rules of an RC requester, one by one (roce.md §9)."""

from typing import Any

import pytest

from tests.support.roce.world import BASE, MS, US, World
from uetproto.engine.roce.config import RoceConfig, rnr_wait_of, timeout_of
from uetproto.engine.roce.contract import Access, Opcode, PostSend, QpState, RocePacket, SendFlags, Sge, Status
from uetproto.engine.roce.packets import parse
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.roce import AETH, ATOMIC_ACK_ETH, BTH, Operation

SMALL = RoceConfig(path_mtu=256, credits=False)
ACKNOWLEDGE = Operation.ACKNOWLEDGE


def config(**changes: Any) -> RoceConfig:
    return RoceConfig(**({"path_mtu": 256, "credits": False} | changes))


def answer(
    w: World, psn: int, syndrome: int = 0x1F, operation: int = ACKNOWLEDGE, payload: bytes = b"", msn: int = 0,
    headers: bytes | None = None,
) -> None:  # fmt: skip
    """A response made by hand for A, and what A sends upon it goes to the wire."""
    bth = codec_of(BTH).encode({
        "opcode": operation, "p_key": 0xFFFF, "destqp": w.a.number, "psn": psn & 0xFFFFFF, "padcnt": -len(payload) & 3,
    })  # fmt: skip
    if headers is None:
        headers = b"" if operation == 0x0E else codec_of(AETH).encode({"syndrome": syndrome, "msn": msn})
    w.a.hca.receive(RocePacket(w.b.hca.address, w.a.hca.address, bth + headers + payload + bytes(-len(payload) & 3)),
                    w.now)  # fmt: skip
    w.take()


def psns(w: World) -> list[int]:
    """PSNs on the wire, which is emptied."""
    numbers = [p.psn for p in map(parse, w.wire) if p]
    w.wire.clear()
    return numbers


def test_a_message_is_cut_and_numbered() -> None:
    """§3, §7, §9: FIRST, MIDDLE, LAST; PSNs from sq_psn; a = 1 on the last packet."""
    w = World(a=SMALL)
    w.send(Opcode.SEND, 600)
    sent = w.sent()
    assert [(p.operation, p.psn, p.a, len(p.payload)) for p in sent] == [(0, 5, 0, 256), (1, 6, 0, 256), (2, 7, 1, 88)]


@pytest.mark.parametrize(("length", "operations"), [(0, [4]), (1, [4]), (256, [4]), (257, [0, 2]), (512, [0, 2])])
def test_only(length: int, operations: list[int]) -> None:
    w = World(a=SMALL)
    w.send(Opcode.SEND, length)
    assert [p.operation for p in w.sent()] == operations


ATOMICS = (Opcode.ATOMIC_CMP_AND_SWP, Opcode.ATOMIC_FETCH_AND_ADD)


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.RDMA_WRITE, Opcode.RDMA_READ, *ATOMICS])
def test_the_end_asks_for_an_acknowledgement(opcode: Opcode) -> None:
    """§9: a = 1 on the last packet of each message, on READ and ATOMIC."""
    w = World(a=SMALL)
    w.send(opcode, 8 if opcode in ATOMICS else 600)
    *before, last = [p.a for p in w.sent()]
    assert (any(before), last) == (False, 1)


@pytest.mark.parametrize(("opcode", "operands"), [
    (Opcode.ATOMIC_CMP_AND_SWP, (7, 5)), (Opcode.ATOMIC_FETCH_AND_ADD, (5, 0)),
])  # fmt: skip
def test_operands_of_atomics(opcode: Opcode, operands: tuple[int, int]) -> None:
    """§2 atomic_eth: swap and compare; or the number to add, and 0."""
    w = World(a=SMALL)
    w.send(opcode, 8, compare_add=5, swap=7)
    (sent,) = w.sent()
    assert (sent.values["swapdt"], sent.values["cmpdt"]) == operands


@pytest.mark.parametrize(("opcode", "solicits"), [
    (Opcode.SEND, 1), (Opcode.SEND_WITH_IMM, 1), (Opcode.SEND_WITH_INV, 1), (Opcode.RDMA_WRITE_WITH_IMM, 1),
    (Opcode.RDMA_WRITE, 0), (Opcode.RDMA_READ, 0),
])  # fmt: skip
def test_solicited(opcode: Opcode, solicits: int) -> None:
    """§2 se: only on the last packet of a SEND or of a WRITE with immediate."""
    w = World(a=SMALL)
    w.send(opcode, 600, send_flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
    *before, last = [p.se for p in w.sent()]
    assert (any(before), last) == (False, solicits)


def test_acknowledge_requests_on_the_way() -> None:
    """§9: every `ack_req_interval` packets besides the last one."""
    w = World(a=config(ack_req_interval=3))
    w.send(Opcode.RDMA_WRITE, 256 * 8)
    assert [p.a for p in w.sent()] == [0, 0, 1, 0, 0, 1, 0, 1]


def test_acknowledge_requests_within_a_small_window() -> None:
    """§9: a window without a question in it would only go on after a time-out."""
    w = World(a=config(max_unacked_psns=4))
    w.send(Opcode.RDMA_WRITE, 256 * 40)
    w.deliver_all()
    assert (w.statuses(), w.now) == ([Status.SUCCESS], 0)


def test_an_ack_covers_all_before_it() -> None:
    """§7, §9: completions in posting order; unsignalled ones are silent."""
    w = World(a=SMALL)
    for number in range(4):
        flags = SendFlags(0) if number == 1 else SendFlags.SIGNALED
        w.send(Opcode.RDMA_WRITE, 4, wr_id=number, send_flags=flags)
    answer(w, 7)
    assert [c.wr_id for c in w.done()] == [0, 2]
    answer(w, 8)
    assert [c.wr_id for c in w.done()] == [0, 2, 3]
    assert w.a.hca.deadline() is None or w.a.qp.requester.deadline() > 10**30


@pytest.mark.parametrize("psn", [4, 7, 8, 5 - (1 << 23), 5 + (1 << 23)])
def test_what_was_not_sent_is_not_acknowledged(psn: int) -> None:
    """§9, §15 item 5: outside the unacknowledged range: dropped."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 4)
    w.send(Opcode.RDMA_WRITE, 4)
    for syndrome in (0x1F, 0x60, 0x61, 0x2C):
        answer(w, psn, syndrome)
    assert w.done() == []
    assert psns(w) == [5, 6]
    assert w.a.qp.state is QpState.RTS


# Credits -------------------------------------------------------------------------------------------------------------


def test_credits_hold_sends_back() -> None:
    """§9: SSN ≤ LSN + 1, LSN = MSN + n(c); a plain WRITE needs none; 0x1f ends the limit."""
    w = World(a=config(credits=True))
    for _ in range(9):
        w.send(Opcode.SEND, 4)
    assert psns(w) == [5]
    answer(w, 5, 0x02, msn=1)  # n(2) = 2: LSN 3
    assert psns(w) == [6, 7, 8]
    answer(w, 8, 0x00, msn=4)
    assert psns(w) == [9]
    answer(w, 9, 0x1F, msn=5)
    assert psns(w) == [10, 11, 12, 13]


def test_the_reserved_bit_of_a_syndrome_is_ignored() -> None:
    """§2.1: bit 7, of ACKs and of NAKs."""
    w = World(a=config(credits=True))
    for _ in range(4):
        w.send(Opcode.SEND, 4)
    answer(w, 5, 0x80 | 0x01, msn=1)  # n(1) = 1: LSN 2
    assert psns(w) == [5, 6, 7]
    answer(w, 6, 0x80 | 0x62, msn=1)
    assert w.statuses()[:2] == [Status.SUCCESS, Status.REM_ACCESS_ERR]


def test_writes_need_no_credits() -> None:
    """§9: they raise LSN by one; a WRITE with immediate needs one."""
    w = World(a=config(credits=True))
    for opcode in (Opcode.RDMA_WRITE, Opcode.RDMA_WRITE, Opcode.RDMA_READ, Opcode.SEND, Opcode.RDMA_WRITE_WITH_IMM):
        w.send(opcode, 4)
    assert psns(w) == [5, 6, 7, 8]  # SSN 4 = LSN 3 + 1


def test_the_newest_acknowledged_psn_renews_credits() -> None:
    """§9: first row of the answers."""
    w = World(a=config(credits=True))
    for _ in range(3):
        w.send(Opcode.SEND, 4)
    answer(w, 5, 0x00, msn=1)
    assert psns(w) == [5, 6]
    answer(w, 6, 0x00, msn=2)
    assert psns(w) == [7]
    for _ in range(3):
        w.send(Opcode.SEND, 4)
    assert psns(w) == []
    answer(w, 7, 0x00, msn=3)
    assert psns(w) == [8]
    answer(w, 7, 0x02, msn=3)
    assert psns(w) == [9, 10]


def test_a_late_ack_takes_no_credits_away() -> None:
    w = World(a=config(credits=True))
    for _ in range(6):
        w.send(Opcode.SEND, 4)
    answer(w, 5, 0x03, msn=1)
    assert psns(w) == [5, 6, 7, 8, 9]
    answer(w, 6, 0x00, msn=2)
    assert w.a.qp.requester.lsn == 4


# Going back ----------------------------------------------------------------------------------------------------------


def test_sequence_error_goes_back() -> None:
    """§9: NAK 0x60 acknowledges before p; from p on all is sent again, byte for byte."""
    w = World(a=SMALL)
    for _ in range(4):
        w.send(Opcode.RDMA_WRITE, 300)
    first = {p.psn: bytes(p.packet.header) + bytes(p.packet.payload) for p in w.sent()}
    w.wire.clear()
    answer(w, 8, 0x60)
    again = {p.psn: bytes(p.packet.header) + bytes(p.packet.payload) for p in map(parse, w.wire) if p}
    assert list(again) == [8, 9, 10, 11, 12]
    assert all(first[psn] == data for psn, data in again.items())
    assert len(w.done()) == 1
    assert w.a.qp.requester.retries == 6


def test_time_out_goes_back() -> None:
    """§9: 4.096 µs × 2^8, from the oldest; the timer is restarted by each advance."""
    w = World(a=SMALL)
    assert timeout_of(8) == 1_048_576_000
    w.send(Opcode.RDMA_WRITE, 4)
    w.send(Opcode.RDMA_WRITE, 4)
    w.pass_time(1_000_000_000)
    answer(w, 5)
    assert psns(w) == [5, 6]
    w.pass_time(1_048_575_999)
    assert psns(w) == []
    w.pass_time(1)
    assert psns(w) == [6]


def test_no_time_out() -> None:
    """§9: timeout 0: never."""
    w = World(a=config(timeout=0))
    w.send(Opcode.RDMA_WRITE, 4)
    assert w.a.hca.deadline() is None


def test_a_time_out_that_changes() -> None:
    """§6, §9: what `timeout` says holds from now on, for packets that are out, too."""
    w = World(a=config(timeout=0))
    w.send(Opcode.SEND, 4)
    w.wire.clear()
    w.pass_time(100 * MS)
    w.modify(w.a, QpState.RTS, timeout=8)
    w.take()
    w.pass_time(timeout_of(8) - 1)
    assert psns(w) == []
    w.pass_time(1)
    assert psns(w) == [5]
    w.modify(w.a, QpState.RTS, timeout=0)
    w.take()
    w.pass_time(100 * MS)
    assert psns(w) == []


@pytest.mark.parametrize(("code", "nominal"), [(1, 8_192_000), (14, 67_108_864_000), (18, 1_073_741_824_000)])
def test_lengths_of_time_outs(code: int, nominal: int) -> None:
    """§9; up to four times that is legal."""
    assert timeout_of(code) == nominal
    assert timeout_of(code, 4) == 4 * nominal


@pytest.mark.parametrize("retries", [0, 3, 7])
def test_retry_count_is_finite(retries: int) -> None:
    """§9: 7 means seven; then RETRY_EXC_ERR and ERR, the rest is flushed in posting order."""
    w = World(a=config(retry_cnt=retries))
    for number in range(3):
        w.send(Opcode.RDMA_WRITE, 4, wr_id=number, send_flags=SendFlags(0))
    w.run(lambda _: False)
    assert [p.psn for p in w.sent()] == [5, 6, 7] * (retries + 1)
    assert [(c.wr_id, c.status) for c in w.done()] == [
        (0, Status.RETRY_EXC_ERR), (1, Status.WR_FLUSH_ERR), (2, Status.WR_FLUSH_ERR),
    ]  # fmt: skip
    assert w.now == timeout_of(8) * (retries + 1)
    assert (w.a.qp.state, w.b.qp.state) == (QpState.ERR, QpState.RTS)


def test_endless_retries_as_rxe_has_them() -> None:
    w = World(a=config(retry_cnt_seven="endless"))
    w.send(Opcode.RDMA_WRITE, 4)
    w.pass_time(100 * timeout_of(8))
    assert w.done() == []
    assert len(w.sent()) == 101


def test_retry_count_is_restored_by_an_advance() -> None:
    """§9: and it counts time-outs and NAKs 0x60 together."""
    w = World(a=config(retry_cnt=2))
    w.send(Opcode.RDMA_WRITE, 4)
    w.send(Opcode.RDMA_WRITE, 4)
    answer(w, 5, 0x60)
    w.pass_time(timeout_of(8))
    assert w.a.qp.requester.retries == 0
    answer(w, 5)
    assert w.a.qp.requester.retries == 2
    for _ in range(3):
        answer(w, 6, 0x60)
    assert w.statuses() == [Status.SUCCESS, Status.RETRY_EXC_ERR]


# Not ready -----------------------------------------------------------------------------------------------------------


def test_rnr_waits_and_resends() -> None:
    """§9: at least the time asked for; from p on; requests are queued meanwhile."""
    w = World(a=SMALL)
    w.send(Opcode.SEND, 4)
    w.send(Opcode.SEND, 4)
    assert psns(w) == [5, 6]
    answer(w, 5, 0x2C)
    w.send(Opcode.SEND, 4)
    w.pass_time(640 * US - 1)
    assert psns(w) == []
    w.pass_time(1)
    assert psns(w) == [5, 6, 7]


@pytest.mark.parametrize(("code", "wait"), [(0, 655_360 * US), (1, 10 * US), (12, 640 * US), (31, 491_520 * US)])
def test_lengths_of_rnr_waits(code: int, wait: int) -> None:
    """§2.1."""
    assert rnr_wait_of(code) == wait


@pytest.mark.parametrize("syndrome", [0x60, 0x2C])
def test_naks_during_the_wait_are_ignored(syndrome: int) -> None:
    """§9 RNR_WAIT: NAK 0x60, time-out (choice) and RNR NAK; an ACK slides."""
    w = World(a=SMALL)
    for _ in range(3):
        w.send(Opcode.SEND, 4)
    answer(w, 6, 0x20)
    psns(w)
    answer(w, 6, syndrome)
    w.pass_time(100 * MS)
    assert psns(w) == []
    answer(w, 6)
    assert w.statuses() == [Status.SUCCESS] * 2
    w.pass_time(rnr_wait_of(0) - 100 * MS)
    assert psns(w) == [7]


def test_naks_during_the_wait_otherwise() -> None:
    w = World(a=config(in_rnr_wait="resend"))
    w.send(Opcode.SEND, 4)
    answer(w, 5, 0x20)
    psns(w)
    answer(w, 5, 0x60)
    assert psns(w) == [5]


@pytest.mark.parametrize("retries", [0, 2, 6])
def test_rnr_retries(retries: int) -> None:
    """§9, §10: on its own count; then 13."""
    w = World(a=config(rnr_retry=retries))
    w.send(Opcode.SEND, 4)
    w.send(Opcode.SEND, 4)
    w.run()
    assert [p.psn for p in w.sent()].count(5) == retries + 1
    assert w.statuses() == [Status.RNR_RETRY_EXC_ERR, Status.WR_FLUSH_ERR]
    assert w.done()[0].vendor_err == 0x2C
    assert w.a.qp.requester.retries == 7


def test_seven_rnr_retries_are_endless() -> None:
    """§9: 7 = endless."""
    w = World(a=SMALL)
    w.send(Opcode.SEND, 4)
    for _ in range(300):
        w.deliver_all()
        w.pass_time(640 * US)
    assert [p.psn for p in w.sent()] == [5] * 301
    w.recv(10)
    w.run()
    assert w.statuses() == [Status.SUCCESS]


# READ and ATOMIC -----------------------------------------------------------------------------------------------------


def test_read() -> None:
    """§7: it takes as many PSNs as its response has packets; one request."""
    w = World(a=SMALL)
    w.b.memory[:700] = bytes(range(250)) * 2 + bytes(range(200))
    w.send(Opcode.RDMA_READ, 700, at=1000, wr_id=3)
    w.send(Opcode.RDMA_WRITE, 4, at=1000, to=800)
    assert [p.psn for p in w.sent()] == [5, 8]
    w.deliver_all()
    assert [p.psn for p in w.sent(w.b)] == [5, 6, 7, 8]
    assert w.a.memory[1000:1700] == w.b.memory[:700]
    assert [(c.wr_id, c.byte_len) for c in w.done()] == [(3, 700), (0, 4)]


def test_read_of_nothing() -> None:
    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 0)
    w.deliver_all()
    assert ([p.operation for p in w.sent(w.b)], w.statuses()) == ([0x10], [Status.SUCCESS])


@pytest.mark.parametrize("lost", [0, 1, 2, 5, 9])
def test_read_is_retried_from_its_middle(lost: int) -> None:
    """§9: a response ahead is an implied NAK; va and dmalen moved by whole PMTUs, PSN = the missing one."""
    w = World(a=SMALL)
    w.b.memory[:2500] = bytes(i % 251 for i in range(2500))
    w.send(Opcode.RDMA_READ, 2500)
    w.deliver()
    w.drop(lost)
    w.deliver_all()
    w.run()
    requests = [p for p in w.sent() if p.operation == 0x0C]
    assert len(requests) == 2
    again = requests[1]
    assert (again.psn, again.values["va"], again.values["dmalen"]) == (5 + lost, BASE + 256 * lost, 2500 - 256 * lost)
    assert w.statuses() == [Status.SUCCESS]
    assert w.a.memory[:2500] == w.b.memory[:2500]
    assert w.a.qp.requester.retries == 7


def test_implied_nak_of_an_ack() -> None:
    """§9: an ACK for a later SEND while a READ has no answer completes only what is before the READ."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 4)
    w.send(Opcode.RDMA_READ, 600)
    w.send(Opcode.RDMA_WRITE, 4)
    assert psns(w) == [5, 6, 9]
    answer(w, 9)
    assert len(w.done()) == 1
    assert psns(w) == [6, 9]
    answer(w, 9)  # once, until something advances
    assert psns(w) == []
    assert w.a.qp.requester.retries == 6


def test_implied_nak_every_time() -> None:
    w = World(a=config(implied_nak="every"))
    w.send(Opcode.RDMA_READ, 600)
    w.send(Opcode.RDMA_WRITE, 4)
    psns(w)
    answer(w, 8)
    answer(w, 8)
    assert psns(w) == [5, 8, 5, 8]


@pytest.mark.parametrize("syndrome", [0x60, 0x2C, 0x61])
def test_naks_behind_an_unanswered_read(syndrome: int) -> None:
    """§9: restart at the READ instead."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 600)
    w.send(Opcode.SEND, 4)
    psns(w)
    answer(w, 8, syndrome)
    assert psns(w) == [5, 8]
    assert w.done() == []


@pytest.mark.parametrize(("operation", "psn", "payload"), [
    (0x0E, 5, bytes(256)), (0x0F, 5, bytes(256)), (0x10, 5, bytes(256)), (0x0D, 5, bytes(252)), (0x0D, 5, bytes(260)),
    (0x12, 5, b""),
])  # fmt: skip
def test_bad_responses(operation: int, psn: int, payload: bytes) -> None:
    """§9: wrong kind or length: BAD_RESP_ERR, ERR."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 600)
    headers = codec_of(AETH).encode({"syndrome": 0x1F, "msn": 1}) if operation != 0x0E else b""
    if operation == 0x12:
        headers += codec_of(ATOMIC_ACK_ETH).encode({"origremdt": 0})
    answer(w, psn, operation=operation, payload=payload, headers=headers)
    assert w.statuses() == [Status.BAD_RESP_ERR]
    assert w.a.qp.state is QpState.ERR


@pytest.mark.parametrize(("operation", "size"), [(0x0E, 256), (0x0F, 84), (0x0F, 92), (0x10, 88), (0x0D, 88)])
def test_bad_responses_at_the_end(operation: int, size: int) -> None:
    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 600)
    answer(w, 5, operation=0x0D, payload=bytes(256))
    answer(w, 6, operation=0x0E, payload=bytes(256))
    answer(w, 7, operation=operation, payload=bytes(size))
    assert w.statuses() == [Status.BAD_RESP_ERR]


@pytest.mark.parametrize(("psn", "statuses"), [
    (5, [Status.BAD_RESP_ERR, Status.WR_FLUSH_ERR]), (6, [Status.SUCCESS, Status.BAD_RESP_ERR]),
])  # fmt: skip
def test_an_acknowledgement_with_data(psn: int, statuses: list[Status]) -> None:
    """It ends what it names, and acknowledges what is before; also where it names the last."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 8)
    w.send(Opcode.RDMA_WRITE, 8)
    answer(w, psn, payload=bytes(4))
    assert w.statuses() == statuses
    assert w.a.qp.state is QpState.ERR


def test_a_read_response_to_a_write() -> None:
    w = World(a=config(bad_response_status=19))
    w.send(Opcode.RDMA_WRITE, 4, wr_id=1)
    w.send(Opcode.RDMA_WRITE, 4, wr_id=2)
    answer(w, 6, operation=0x10)
    assert [(c.wr_id, c.status) for c in w.done()] == [(1, Status.SUCCESS), (2, Status.FATAL_ERR)]


@pytest.mark.parametrize(("operation", "psn", "size"), [(0x0E, 6, 256), (0x0F, 7, 88)])
def test_a_read_response_to_the_rest_of_a_write(operation: int, psn: int, size: int) -> None:
    """§9: of the right PSN and length, but it was not asked for: nothing is stored."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 600)
    answer(w, psn, operation=operation, payload=b"x" * size)
    assert w.statuses() == [Status.BAD_RESP_ERR]
    assert w.a.memory == bytes(1 << 16)


def test_limit_of_reads() -> None:
    """§9, §15 item 8: READs + ATOMICs unanswered ≤ max_rd_atomic; all else in posting order waits behind them."""
    w = World(a=SMALL, given={"max_rd_atomic": 2})
    for opcode in (Opcode.RDMA_READ, Opcode.ATOMIC_FETCH_AND_ADD, Opcode.RDMA_READ, Opcode.RDMA_WRITE):
        w.send(opcode, 8)
    assert psns(w) == [5, 6]
    answer(w, 5, operation=0x10, payload=bytes(8))
    assert psns(w) == [7, 8]


def test_fence() -> None:
    """§9: wait for all READs and ATOMICs."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 8)
    w.send(Opcode.RDMA_WRITE, 8, send_flags=SendFlags.SIGNALED | SendFlags.FENCE)
    assert psns(w) == [5]
    answer(w, 5, operation=0x10, payload=bytes(8))
    assert psns(w) == [6]


@pytest.mark.parametrize("order", ["little", "big"])
def test_atomics(order: Any) -> None:
    """§12: in memory the order is that of the host, on both ends; the answer is the old value."""
    w = World(a=config(atomic_order=order))
    w.b.memory[8:16] = (2**64 - 1).to_bytes(8, order)
    w.send(Opcode.ATOMIC_FETCH_AND_ADD, 8, to=8, compare_add=3)
    w.deliver_all()
    assert int.from_bytes(w.b.memory[8:16], order) == 2
    w.send(Opcode.ATOMIC_CMP_AND_SWP, 8, at=8, to=8, compare_add=2, swap=77)
    w.send(Opcode.ATOMIC_CMP_AND_SWP, 8, at=16, to=8, compare_add=2, swap=99)
    w.deliver_all()
    assert [int.from_bytes(w.a.memory[at : at + 8], order) for at in (0, 8, 16)] == [2**64 - 1, 2, 77]
    assert int.from_bytes(w.b.memory[8:16], order) == 77
    assert w.sent()[0].values["cmpdt"] == 0


def test_lost_atomic_answer() -> None:
    """§15 item 3: exactly once."""
    w = World(a=SMALL)
    w.send(Opcode.ATOMIC_FETCH_AND_ADD, 8, compare_add=1)
    w.deliver()
    w.drop()
    w.run()
    assert int.from_bytes(w.b.memory[:8], "little") == 1
    assert w.a.memory[:8] == bytes(8)
    assert w.statuses() == [Status.SUCCESS]


# Faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("syndrome", "status"), [(0x61, 9), (0x62, 10), (0x63, 11), (0xE1, 9)])
def test_fatal_naks(syndrome: int, status: int) -> None:
    """§9, §10: acknowledges before p; the request that holds p fails, the rest is flushed. Bit 7 is ignored."""
    w = World(a=SMALL)
    for number in range(3):
        w.send(Opcode.RDMA_WRITE, 300, wr_id=number)
    answer(w, 8, syndrome)
    assert [(c.wr_id, c.status) for c in w.done()] == [(0, 0), (1, status), (2, Status.WR_FLUSH_ERR)]
    assert w.done()[1].vendor_err == syndrome & 0x7F


@pytest.mark.parametrize("syndrome", [0x40, 0x5F, 0x64, 0x65, 0x7F])
@pytest.mark.parametrize("choice", ["drop", "fail"])
def test_reserved_syndromes(syndrome: int, choice: str) -> None:
    """§2.1: a choice."""
    w = World(a=config(reserved_syndrome=choice))
    w.send(Opcode.RDMA_WRITE, 4)
    answer(w, 5, syndrome)
    assert w.statuses() == ([] if choice == "drop" else [Status.BAD_RESP_ERR])


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.RDMA_WRITE, Opcode.RDMA_READ])
def test_own_key_is_bad(opcode: Opcode) -> None:
    """§10: 4, when its turn has come: what was posted before ends well."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 300, wr_id=1)
    w.send(opcode, wr_id=2, sg_list=(Sge(BASE, 4, 0x9999),))
    w.send(Opcode.RDMA_WRITE, 4, wr_id=3)
    assert [p.psn for p in w.sent()] == [5, 6]
    w.deliver_all()
    assert [(c.wr_id, c.status) for c in w.done()] == [
        (1, Status.SUCCESS), (2, Status.LOC_PROT_ERR), (3, Status.WR_FLUSH_ERR),
    ]  # fmt: skip


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.RDMA_READ])
def test_own_key_of_another_domain(opcode: Opcode) -> None:
    """§10: bad as well."""
    w = World(a=SMALL)
    other = w.a.hca.reg_mr(w.a.hca.alloc_pd(), bytearray(100), access=Access.LOCAL_WRITE)
    w.send(opcode, sg_list=(Sge(0, 4, other.lkey),))
    assert (w.sent(), w.statuses()) == ([], [Status.LOC_PROT_ERR])


def test_own_region_goes_while_it_is_read_into() -> None:
    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 600)
    w.a.hca.dereg_mr(w.a.mr)
    w.deliver_all()
    assert w.statuses() == [Status.LOC_PROT_ERR]


def test_gather_and_scatter_lists() -> None:
    """Bytes of several parts, cut anywhere."""
    w = World(a=SMALL)
    w.a.memory[:1000] = bytes(i % 249 for i in range(1000))
    parts = ((0, 100), (500, 0), (300, 300), (900, 100))
    w.recv(sg_list=tuple(w.b.sge(at, size)[0] for at, size in ((50, 7), (1000, 255), (2000, 300))))
    w.send(Opcode.SEND, sg_list=tuple(w.a.sge(at, size)[0] for at, size in parts))
    w.deliver_all()
    assert w.statuses() == [Status.SUCCESS]
    got = w.b.memory[50:57] + w.b.memory[1000:1255] + w.b.memory[2000:2238]
    assert got == w.a.memory[:100] + w.a.memory[300:600] + w.a.memory[900:1000]


def test_inline_is_copied_when_posted() -> None:
    w = World(a=SMALL)
    data = bytearray(b"before")
    w.recv(10)
    w.send(Opcode.SEND, sg_list=(), inline=data, send_flags=SendFlags.INLINE)
    data[:] = b"behind"
    w.pass_time(2 * MS)
    w.deliver_all()
    assert w.b.memory[:6] == b"before"
    assert len(w.sent()) == 2
    assert len({bytes(p.payload) for p in w.sent()}) == 1


def test_poll_takes_no_more_than_asked_for() -> None:
    """A slow driver pulls; nothing is lost."""
    w = World(a=SMALL)
    work = PostSend(qp_num=w.a.number, opcode=Opcode.RDMA_WRITE, sg_list=w.a.sge(0, 2560), remote_addr=BASE,
                    rkey=w.b.mr.rkey)  # fmt: skip
    w.a.hca.submit(work, 0)
    assert [len(w.a.hca.poll(0, limit)) for limit in (0, 1, 3, 100, 100)] == [0, 1, 3, 6, 0]
