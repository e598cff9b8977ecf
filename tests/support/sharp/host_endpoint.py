# SPDX-License-Identifier: GPL-2.0-only
"""This module has a host of SHARP without a network: it keeps the messages that the host sends."""

from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.endpoint import SharpHost
from uetproto.engine.sharp.host.work import Aggregate, Attachment, JoinGroup
from uetproto.engine.sharp.messages import JoinResponse, SharpMessage, parse
from uetproto.engine.sharp.options import SharpOptions
from uetproto.wire.headers.sharp import Coll, Dtype, Op, SharpOpcode

LLT, SAT, RESULT = 0x11, 0x12, SharpOpcode.AGG_RESULT


class Bench:
    """A host, with the messages that it sends."""

    def __init__(self, osts: int = 2, *, sat: bool = False, mgid: int = 0, **settings: str) -> None:
        self.host = SharpHost(0, SharpConfig(), SharpOptions.of({f"SHARP_COLL_{k}": v for k, v in settings.items()}))
        self.now = 0
        self.host.submit(JoinGroup(
            group_id=7, job_id=5, group_size=4, llt=Attachment(0, LLT), sat=Attachment(63, SAT) if sat else None,
            multicast=bool(mgid),
        ), 0)  # fmt: skip
        self.joins = self.sent()
        for join in self.joins:
            body = JoinResponse(2, 4, osts, 128, 3, 0, 1, 0, mgid).pack()
            self.answer(join, SharpOpcode.GROUP_JOIN_RESP, body=body)
        self.events = self.host.events()

    def sent(self) -> list[SharpMessage]:
        found = [parse(out.data) for out in self.host.poll(self.now)]
        assert all(isinstance(one, SharpMessage) for one in found)
        return found  # type: ignore[return-value]

    def answer(
        self, to: SharpMessage, opcode: int, *, body: bytes = b"", status: int = 0, flags: int = 0, **more: object
    ) -> None:
        message = SharpMessage(
            opcode, to.tree_id, 5, 7, to.seq, to.vec_off, to.count, to.op, to.dtype, to.tag_dtype, to.coll, 0, status,
            flags, body=body,
        )  # fmt: skip
        self.host.message(SAT if to.tree_id == 63 else LLT, message.pack(), self.now)

    def sum(self, count: int, op_id: int = 1) -> None:
        self.host.submit(Aggregate(
            op_id=op_id, group_id=7, coll=Coll.ALLREDUCE, op=Op.SUM, dtype=Dtype.UINT8,
            data=bytes(k % 251 for k in range(count)), count=count,
        ), self.now)  # fmt: skip

    def later(self, time: int) -> list[SharpMessage]:
        self.now += time
        return self.sent()
