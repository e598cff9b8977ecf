# SPDX-License-Identifier: GPL-2.0-only
"""This module makes a target refuse the first requests, to test the rules of the initiator."""

from collections.abc import Sequence

from tests.support.ses.operations import Peers
from tests.support.ses.requests import index_of
from uetproto.engine.ses.headers import SesRequest
from uetproto.wire.headers.uet_ses import ReturnCode, Space


def refuse_first(x: Peers, count: int, code: ReturnCode) -> None:
    """Answer the first `count` requests with `code`."""
    refuse_with(x, [code] * count)


def refuse_with(x: Peers, codes: Sequence[ReturnCode]) -> None:
    """Answer the first requests with `codes`; with each BAD_GENERATION the generation of the index moves on."""
    left = list(codes)

    def fault(request: SesRequest) -> ReturnCode | None:
        code = left.pop(0) if left else None
        if code is ReturnCode.BAD_GENERATION:
            generation = (index_of(x).generation + 1) % 256
            for space in (Space.SEND, Space.RMA):
                index_of(x, space).generation = generation
        return code

    x.b.target.fault = fault
