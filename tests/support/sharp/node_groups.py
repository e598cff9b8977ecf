# SPDX-License-Identifier: GPL-2.0-only
"""This module sends join and lock requests to aggregation nodes, and returns the state of a lock."""

from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LLT, SAT, Net
from uetproto.engine.sharp.messages import JoinRequest, LockBody, SharpMessage
from uetproto.engine.sharp.node.states import LockState
from uetproto.wire.headers.sharp import SharpOpcode


def join(net: Net, host: str, *, ranks: tuple[int, ...] | None = None, size: int = 4, job: int = JOB) -> None:
    ranks = (HOSTS.index(host),) if ranks is None else ranks
    body = JoinRequest(size, 2, 128, 3, 0, ranks).pack()
    net.send(host, SharpMessage(SharpOpcode.GROUP_JOIN_REQ, LLT, job, GROUP, 0, body=body))
    net.run()


def lock(
    net: Net, host: str, opcode: SharpOpcode = SharpOpcode.LOCK_REQ, *, token: int = 0, target: int = 0xFFFF
) -> None:
    net.send(host, SharpMessage(opcode, LLT, JOB, GROUP, 9, body=LockBody(SAT, 0xFFFF, token, 100, target).pack()))
    net.run()


def lock_of(net: Net, name: str) -> LockState:
    return net.nodes[name].groups[LLT, GROUP].lock.state
