# SPDX-License-Identifier: GPL-2.0-only
"""This module makes SHARP requests of hosts, and runs operations and streams on aggregation nodes."""

import struct
from typing import Any

from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LLT, SAT, Net
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.messages import SharpMessage
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, Op, SharpOpcode

FLAGS = int(Flag.FIRST | Flag.LAST | Flag.REPRO)
STREAM = FLAGS | Flag.SAT | Flag.LOCK


def request(host: str, seq: int = 0, values: tuple[int, ...] = (1, 2), **changes: Any) -> SharpMessage:
    fields: dict[str, Any] = {
        "count": len(values), "op": Op.SUM, "dtype": Dtype.UNSIGNED, "coll": Coll.ALLREDUCE,
        "child_idx": HOSTS.index(host) & 1, "flags": FLAGS, "body": struct.pack(f">{len(values)}I", *values),
    }  # fmt: skip
    return SharpMessage(
        SharpOpcode.AGG_REQ, changes.pop("tree", LLT), JOB, changes.pop("group", GROUP), seq, **fields | changes
    )


def ready(config: SharpConfig | None = None, **more: Any) -> Net:
    net = Net(config, **more)
    net.join()
    net.clear()
    return net


def streaming(config: SharpConfig | None = None, **lock: int) -> Net:
    net = ready(config)
    net.join(tree=SAT)
    net.lock(**lock)
    net.clear()
    return net


def only(net: Net, host: str) -> SharpMessage:
    [message] = net.received(host)
    return message


def aggregate(net: Net, seq: int = 0, hosts: tuple[str, ...] = HOSTS, **changes: Any) -> None:
    for host in hosts:
        net.send(host, request(host, seq, **changes))
    net.run()


def chunk(
    host: str, vec_off: int, values: int = 8, *, last: bool = False, seq: int = 0, **changes: Any
) -> SharpMessage:
    flags = STREAM & ~(Flag.FIRST | Flag.LAST) | (Flag.LAST if last else 0) | (Flag.FIRST if not vec_off else 0)
    return request(host, seq, (3,) * values, tree=SAT, vec_off=vec_off, **{"flags": flags, **changes})


def stream(net: Net, *chunks: dict[str, Any], hosts: tuple[str, ...] = HOSTS) -> None:
    for fields in chunks:
        for host in hosts:
            net.send(host, chunk(host, **fields))
    net.run()
