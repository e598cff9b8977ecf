# SPDX-License-Identifier: GPL-2.0-only
"""Several tests of SES share this module: endpoints, and requests that no initiator sent (ses.md §4)."""

import random
from typing import Any

from tests.support.engine import world
from tests.support.engine.world import JOB, KEY
from tests.support.ses.headers import build_later, build_som
from tests.support.ses.operations import Peers
from tests.support.ses.world import US, Loss, World
from uetproto.engine import Mode, Region
from uetproto.engine.contract import Addressed, Completion, Receive, Received, Send
from uetproto.engine.pds.service import Response
from uetproto.engine.ses.headers import parse_ses_response
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode, Space

# Two endpoints back to back -------------------------------------------------------------------------------------------

SAFE = 1 << 63 | 5
"""An idempotent-safe key (ses.md §2.6)."""
NARROW = {"default_mpr": 1, "mp_range": 128}
"""A window of 128 packets: a long message is not all sent when the first answer comes."""


def completions(x: Peers) -> list[Completion]:
    return [event for event in x.a.events() if isinstance(event, Completion)]


def index_of(x: Peers, space: Space = Space.SEND) -> Any:
    return x.process.spaces[space][15]


# Requests that no initiator sent --------------------------------------------------------------------------------------


class Here:
    """A connection, as it is seen by SES."""

    mode, peer, local_id = Mode.RUD, world.A, 77


def ask(x: Peers, header: bytes, payload: bytes = b"", next_hdr: int = NextHdr.REQUEST_STD) -> int:
    answer = x.b.target.on_request(Here(), random.getrandbits(32), next_hdr, header, 0, payload, x.now)
    return int(answer.header[1])  # type: ignore[union-attr]


def som(opcode: int, length: int, *, eom: int = 1, key: int = KEY, message_id: int = 1, offset: int = 0) -> bytes:
    return build_som(opcode, 0, 0, 1, 0, eom, message_id, JOB, 0, 15, offset, 16, key, 0, length)


def later(length: int, size: int, at: int, *, eom: int = 0, offset: int = 0, opcode: int = Opcode.WRITE) -> bytes:
    return build_later(opcode, 0, 0, 1, 0, eom, 1, JOB, 0, 15, offset, 16, KEY, size, at, length)


# Two endpoints on a lossy wire ----------------------------------------------------------------------------------------

A, B, MTU = 1, 2, 1024
SLOW = Loss(0, 0, 10 * US, 10 * US)


class Pair(World):
    """Two endpoints: A sends, B receives; both have a process of the job, B has a region."""

    def __init__(self, *, pds: dict[str, Any] | None = None, loss: Loss | None = None, **ses: Any) -> None:
        super().__init__((A, B), ses=ses, mtu=MTU, pds=pds, loss=loss)
        self.a, self.b = self.feps[A], self.feps[B]
        self.mine, self.theirs = self.a.attach(JOB), self.b.attach(JOB)
        self.region = self.theirs.register(Region(KEY, self.memory(bytearray(64 * MTU))))

    def send(self, data: bytes = b"x", **fields: Any) -> None:
        self.do(Send(peer=B, data=data, **fields))

    def do(self, work: Addressed) -> None:
        work.peer, work.job_id = B, JOB
        self.submit(A, work)
        self.poll()

    def post(self, size: int = 64 * MTU, **fields: Any) -> Receive:
        receive = Receive(into=bytearray(size), job_id=JOB, **fields)
        self.submit(B, receive)
        self.poll()
        return receive

    def completions(self) -> list[Completion]:
        return [event for event in self.events[A] if isinstance(event, Completion)]

    def received(self) -> list[Received]:
        return [event for event in self.events[B] if isinstance(event, Received)]

    def index(self, space: Space = Space.SEND) -> Any:
        return self.theirs.spaces[space][15]

    def ask_b(self, header: bytes, payload: bytes = b"", mode: Mode = Mode.RUD) -> Any:
        """Hand a request that no initiator sent to the SES of B, and return its answer."""
        return self._ask(self.b, header, payload, mode)

    def ask_a(self, header: bytes, payload: bytes = b"", mode: Mode = Mode.RUD) -> Any:
        return self._ask(self.a, header, payload, mode)

    def _ask(self, fep: Any, header: bytes, payload: bytes, mode: Mode) -> Any:
        pdc = Pdc(mode)
        answer = fep.target.on_request(pdc, 1, NextHdr.REQUEST_STD, header, 0, payload, self.now)
        if isinstance(answer, Response):
            return ReturnCode(parse_ses_response(answer.header, answer.next_hdr).return_code)
        return answer


class Pdc:
    """A connection to `peer`, as it is seen by SES."""

    def __init__(self, mode: Mode, peer: int = B) -> None:
        self.mode, self.peer, self.local_id = mode, peer, 4711
