# SPDX-License-Identifier: GPL-2.0-only
"""This module has SHARP aggregation nodes with faults."""

from collections.abc import Mapping
from typing import Any

from uetproto.engine.contract import Engine
from uetproto.engine.sharp.messages import SharpMessage, parse
from uetproto.testing import Capabilities, SharpNodeEngine
from uetproto.wire.headers.sharp import Flag, SharpOpcode

BTH = slice(42, 54)
"""Place of the BTH in a frame over IPv4."""
ACK = 0x11


class BlackBox(SharpNodeEngine):
    """Our node, of which nothing can be observed."""

    capabilities = Capabilities(observable=False, work=("allreduce", "barrier"))

    def observe(self) -> Any:
        super().observe()


class _Changed(SharpNodeEngine):
    """A node that gets other messages than those that arrive."""

    def make(self, config: Mapping[str, Any]) -> Engine:
        made = super().make(config)
        take = self.node.message

        def message(conn: int | None, data: bytes, now: int) -> None:
            found = parse(data)
            if isinstance(found, SharpMessage) and conn is not None:
                self.change(conn, found)
                data = bytes(found.pack())
            take(conn, data, now)

        self.node.message = message  # type: ignore[method-assign]
        return made

    def change(self, conn: int, message: SharpMessage) -> None:
        """Change a message that arrives."""


class LosesChild(_Changed):
    """A node that leaves out the operand of its second child."""

    def change(self, conn: int, message: SharpMessage) -> None:
        if message.opcode == SharpOpcode.AGG_REQ and message.child_idx == 1 and message.body:
            message.flags |= Flag.NODATA
            message.body = b""


class OwnResult(_Changed):
    """A node that gives its children its own part of the sum, and not that of the whole tree."""

    def change(self, conn: int, message: SharpMessage) -> None:
        group = self.node.groups.get((message.tree_id, message.group_id))
        if message.opcode == SharpOpcode.AGG_RESULT and group is not None:
            op = group.operations._find(message)
            up = None if op is None else parse(op.up)
            if isinstance(up, SharpMessage) and len(up.body) == len(message.body):
                message.body = up.body


class Agrees(_Changed):
    """A node that takes the operation of the first request for that of all."""

    def make(self, config: Mapping[str, Any]) -> Engine:
        self.first: dict[tuple[int, int, int], int] = {}
        return super().make(config)

    def change(self, conn: int, message: SharpMessage) -> None:
        if message.opcode == SharpOpcode.AGG_REQ:
            message.op = self.first.setdefault((message.tree_id, message.group_id, message.seq), message.op)


class RoundsOften(SharpNodeEngine):
    """A node that rounds sums of short floats after each operand."""

    capabilities = Capabilities(work=SharpNodeEngine.capabilities.work, knobs=("retry_cnt_seven",))

    def make(self, config: Mapping[str, Any]) -> Engine:
        return super().make({**config, "knobs": {**config["knobs"], "acc_native": True}})


class Leaks(SharpNodeEngine):
    """A node that does not release the OSTs of a group."""

    def make(self, config: Mapping[str, Any]) -> Engine:
        made = super().make(config)
        self.node.pool.release = lambda group: None  # type: ignore[method-assign]
        return made


class NoRetransmission(SharpNodeEngine):
    """A node that sends nothing again."""

    def reset(self, config: Mapping[str, Any]) -> None:
        super().reset(config)
        self.sent: set[bytes] = set()

    def poll(self) -> list[bytes]:
        frames = [frame for frame in super().poll() if frame[42] == ACK or frame[30:34] + frame[BTH] not in self.sent]
        self.sent |= {frame[30:34] + frame[BTH] for frame in frames}
        return frames
