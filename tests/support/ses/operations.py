# SPDX-License-Identifier: GPL-2.0-only
"""This module has two endpoints, each with a process of a job, which run SES operations."""

import random
from typing import Any

from tests.support.engine.world import JOB, A, B, Pair
from uetproto.engine import Completion, Mode
from uetproto.engine.contract import (
    Addressed,
    Receive,
    Received,
)
from uetproto.engine.pds.messages import parse
from uetproto.engine.ses.headers import parse_ses_request, parse_ses_response
from uetproto.wire.headers.uet_pds import NextHdr

SECOND = 10**12
MODES = (Mode.ROD, Mode.RUD)


class Peers(Pair):
    """Two endpoints that both have a process of the job; `b` has a region, too."""

    def __init__(self, memory: Any = None, **more: Any) -> None:
        super().__init__(bytearray(100_000) if memory is None else memory, **more)
        self.memory = self.region.memory.view
        self.mine = self.a.attach(JOB)

    def submit(self, work: Addressed) -> None:
        work.peer, work.job_id = B, JOB
        self.a.submit(work, self.now)

    def post(self, into: Any, **fields: Any) -> Receive:
        receive = Receive(into=into, job_id=JOB, **fields)
        self.b.submit(receive, self.now)
        return receive

    def settle(self, limit: int = 200) -> None:
        """Run, and let time pass, until both ends have nothing to do."""
        self.run()
        for _ in range(limit):
            if self.a.quiescent and self.b.quiescent:
                break
            before = self.now
            self.wait()
            if self.now == before:
                break

    def completion(self) -> Completion:
        """Return the completion of the operation."""
        (completion,) = [event for event in self.a.events() if isinstance(event, Completion)]
        return completion

    def received(self) -> list[Received]:
        return [event for event in self.b.events() if isinstance(event, Received)]

    def requests(self, source: int = A) -> list[Any]:
        """Return the SES requests that an end sent, retransmissions included."""
        found = []
        for sender, data in self.sent:
            message = parse(data)
            next_hdr = getattr(message, "next_hdr", NextHdr.NONE)
            if sender == source and next_hdr in (3, 2, 1) and type(message).__name__ in ("Request", "Rudi", "Uud"):
                found.append(parse_ses_request(data, message.size, next_hdr))
        return found

    def answers(self, source: int = B) -> list[Any]:
        """Return the SES responses in ACKs, and return data."""
        found = []
        for sender, data in self.sent:
            message = parse(data)
            next_hdr = getattr(message, "next_hdr", NextHdr.NONE)
            if sender == source and next_hdr in (NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL):
                found.append(parse_ses_response(data[message.size :], next_hdr))
        return found


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)
