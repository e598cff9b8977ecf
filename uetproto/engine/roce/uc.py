# SPDX-License-Identifier: GPL-2.0-only
"""This module has requester and responder of UC, which has no acknowledgements and no retries (roce.md §11)."""

from collections import deque

from uetproto.engine.roce.contract import PostSend, RocePacket, SendFlags, Status
from uetproto.engine.roce.inbound import Inbound
from uetproto.engine.roce.memory import BadKeyError
from uetproto.engine.roce.packets import Parsed
from uetproto.engine.roce.psn import add, count_of_packets
from uetproto.engine.roce.qp import Qp, RequesterHalf
from uetproto.engine.roce.requester import Wqe, bytes_of, headers_of
from uetproto.engine.roce.responder import RIGHTS
from uetproto.engine.roce.segments import ENDS, MESSAGE_STATES, STARTS, MessagePhase, MessageStep, operation_at
from uetproto.engine.train_splits import Split

_ALONE = Split.MODE.number


class UcRequester(RequesterHalf):
    """The requester of a UC queue pair completes a work request when its last packet was sent."""

    def __init__(self, qp: Qp) -> None:
        self.qp = qp
        self.path_mtu = qp.attributes.path_mtu
        self.wqes: deque[Wqe] = deque()
        self.psn = qp.attributes.sq_psn
        self.index = 0
        """Number of packets of the oldest work request that were sent."""
        self.posted = 0

    @property
    def busy(self) -> bool:
        return bool(self.wqes) and self.wqes[0].begun

    @property
    def posted_now(self) -> int:
        return len(self.wqes)

    def post(self, work: PostSend) -> None:
        self.posted += 1
        self.wqes.append(Wqe(work, self.posted, bytes_of(self.qp, work)))

    def pump(self, now: int, out: list[RocePacket], budget: int) -> int:
        sent = 0
        while sent < budget and self.wqes:
            wqe = self.wqes[0]
            if not wqe.begun and not self.qp.behaviour.begins:
                break
            try:
                if not wqe.begun:
                    wqe.bytes.check()
                    wqe.begun = True
                self._send(wqe, now, out)
            except BadKeyError:
                self._fail(wqe)
                break
            sent += 1
        return sent

    def _send(self, wqe: Wqe, now: int, out: list[RocePacket]) -> None:
        count, index = count_of_packets(wqe.length, self.path_mtu), self.index
        offset = index * self.path_mtu
        operation = operation_at(wqe.kind.family, index, count)
        last = index == count - 1
        headers = headers_of(operation, wqe.work, wqe.length) if last or not index else b""
        payload = wqe.bytes.read(offset, min(self.path_mtu, wqe.length - offset))
        se = 1 if last and wqe.kind.receives and wqe.work.send_flags & SendFlags.SOLICITED else 0
        out.append(self.packet(wqe, operation, headers, payload, se, now))
        self.qp.hca.tally.source[_ALONE] += 1
        self.psn = add(self.psn, 1)
        self.index += 1
        if last:
            self._end(wqe, Status.SUCCESS)
            self.qp.drain()

    def packet(
        self, wqe: Wqe, operation: int, headers: bytes, payload: bytes | bytearray | memoryview, se: int, now: int
    ) -> RocePacket:
        return self.qp.path.packet(operation, self.psn, headers, payload, se=se)

    def _end(self, wqe: Wqe, status: Status) -> None:
        self.wqes.popleft()
        self.index = 0
        if status != Status.SUCCESS or wqe.work.send_flags & SendFlags.SIGNALED:
            length = wqe.length if status == Status.SUCCESS else 0
            self.qp.complete_send(wqe.work, wqe.kind.completion, status, length, 0)

    def _fail(self, wqe: Wqe) -> None:
        self._end(wqe, Status.LOC_PROT_ERR)
        self.qp.send_failed()

    def flush(self) -> None:
        while self.wqes:
            self._end(self.wqes[0], Status.WR_FLUSH_ERR)


class UcResponder(Inbound):
    """The responder of a UC queue pair drops a message if a packet of the message was lost or is not legal.

    The state of the queue pair does not change then.
    """

    def __init__(self, qp: Qp) -> None:
        super().__init__(qp)
        self.epsn = qp.attributes.rq_psn

    def take(self, parsed: Parsed, now: int) -> None:
        count = self.qp.hca.count
        if parsed.psn != self.epsn:
            self.phase = MessagePhase.IDLE  # a receive in use is kept for the next message
            if parsed.step not in STARTS:
                count("out of sequence")
                return
        self.epsn = add(parsed.psn, 1)
        why = self._fault(parsed)
        if why is None:
            try:
                self.store(parsed)
            except BadKeyError:
                why = "cannot be stored"
        if why is not None:
            count(why)
            self.phase = MessagePhase.IDLE
            return
        assert parsed.step is not None
        self.phase = MESSAGE_STATES[self.phase][parsed.step]
        if parsed.step in ENDS:
            self.finish(parsed)

    def _fault(self, parsed: Parsed) -> str | None:
        """Return why a packet and its message are dropped, the name of the counter; None if it is legal."""
        step = parsed.step
        if step not in MESSAGE_STATES[self.phase]:
            return "out of order"
        right = RIGHTS.get(step, 0)
        if self.qp.attributes.access_flags & right != right:
            return "no right"
        if self.needs_receive(parsed) and self.qp.peek_receive() is None:
            return "no receive"
        if not self.size_is_right(parsed) or not self.fits_receive(parsed):
            return "wrong length"
        if step in (MessageStep.RDMA_WRITE_FIRST, MessageStep.RDMA_WRITE_ONLY) and not self.keys_are_good(
            parsed, RIGHTS[step], parsed.values["dmalen"]
        ):
            return "remote access"
        return None
