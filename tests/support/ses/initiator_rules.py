"""This module makes a target refuse the first requests, to test the rules of the initiator."""

from tests.support.ses.operations import Peers
from uetproto.engine.ses.headers import SesRequest
from uetproto.wire.headers.uet_ses import ReturnCode


def refuse_first(x: Peers, count: int, code: ReturnCode) -> None:
    """Answer the first `count` requests with `code`."""
    seen = []

    def fault(request: SesRequest) -> ReturnCode | None:
        seen.append(request)
        return code if len(seen) <= count else None

    x.b.target.fault = fault
