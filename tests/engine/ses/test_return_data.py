# SPDX-License-Identifier: GPL-2.0-only
"""Return data: what it must say, on which PDC it comes, what may be read again (ses.md §5.4, §9.6)."""

from typing import Any

import pytest

from tests.support.engine.world import JOB, KEY, A, B
from tests.support.ses.operations import Peers, content
from tests.support.ses.requests import Here, completions, som
from uetproto.engine.contract import PdcErrorReason, PdsError, Read
from uetproto.engine.pds.messages import parse
from uetproto.engine.ses.headers import build_response_data, parse_ses_request
from uetproto.engine.ses.received import default_response
from uetproto.engine.ses.returns import ReturnMessage
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [
        (4, JOB + 1, ReturnCode.BAD_JOB_ID), (10, 4000, ReturnCode.OP_VIOLATION), (12, 77, ReturnCode.OP_VIOLATION),
        (16, 9000, ReturnCode.OP_VIOLATION), (16, 8191, ReturnCode.OP_VIOLATION), (8, 99, ReturnCode.UNDELIVERABLE),
    ],
    ids=["job", "payload_length", "modified_length", "offset", "end", "id"],
)  # fmt: skip
def test_return_data_that_is_not_that_of_the_read(at: int, value: int, code: ReturnCode) -> None:
    """JobID of the read; offset and length in it; modified_length its request_length (ses.md §5.4, §10)."""
    x = Peers(bytearray(content(4096 * 2)))
    send = x.b.target.returns.send

    def changed(pdc: Any, psn: int, next_hdr: int, header: bytes, *rest: Any) -> Any:
        size = 2 if at in (8, 10) else 4
        return send(pdc, psn, next_hdr, header[:at] + value.to_bytes(size, "big") + header[at + size :], *rest)

    x.b.target.returns.send = changed  # type: ignore[method-assign,assignment]
    into = bytearray(8192)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.run()
    codes = {r.return_code for r in x.answers(A)}
    assert code in codes
    assert codes <= {code, ReturnCode.OP_VIOLATION}
    assert into == bytes(8192)
    assert not any(done.ok for done in completions(x))


def test_return_data_on_another_pdc() -> None:
    """A message is known by its PDC too (ses.md §9.6: the same PDC)."""
    x = Peers(bytearray(content(8192)))
    into = bytearray(8192)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.a.poll(x.now)
    header = build_response_data(1, JOB, 4096, 8192, 0)
    answer = x.a.on_request(Here(), 1, NextHdr.RESPONSE_DATA, header, 0, bytes(4096), x.now)
    assert answer.header[1] == ReturnCode.UNDELIVERABLE  # type: ignore[union-attr]
    assert x.a.initiator.bad_responses == 1


def test_what_may_be_read_again() -> None:
    """Data of a read; of a fetching atomic the stored value must be repeated (ses.md §9.6)."""
    x = Peers()
    for opcode, extension, payload, again in (
        (Opcode.READ, b"", b"", True), (Opcode.FETCHING_ATOMIC, bytes((2, 7, 2, 0)), bytes(8), False),
    ):  # fmt: skip
        answer = x.b.target.on_request(Here(), 1, NextHdr.REQUEST_STD, som(opcode, 8), 0, extension + payload, x.now)
        assert (answer.gtd, answer.rereadable) == (True, again)  # type: ignore[union-attr]


def test_who_hears_that_a_region_was_read() -> None:
    """All bytes, in ACKs and in the return direction (ses.md §5.4)."""
    x = Peers(bytearray(20_000))
    read: list[int] = []
    x.region.on_read = lambda size, now: read.append(size)
    for length in (10, 9000):
        x.submit(Read(peer=0, into=bytearray(length), key=KEY))
        x.settle()
        assert sum(read) == length
        read.clear()


def test_all_data_goes_the_same_way() -> None:
    """Also a short last packet, in the return direction, when the read does not fit an ACK (ses.md §9.6)."""
    x = Peers(bytearray(content(5000)))
    into = bytearray(4100)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.settle()
    assert into == content(5000)[:4100]
    carriers = [parse(data) for source, data in x.sent if source == B]
    with_data = [c for c in carriers if getattr(c, "next_hdr", NextHdr.NONE) == NextHdr.RESPONSE_DATA]
    assert [type(c).__name__ for c in with_data] == ["Request", "Request"]


def test_return_data_without_a_pdc() -> None:
    """The PDC is gone before or after PDS has the data: nothing of it is left (ses.md §15 item 36)."""
    x = Peers()
    returns, pdc, accepted = x.b.target.returns, Here(), default_response(parse_ses_request(som(2, 9), 0, 3))
    answers = [returns.send(pdc, n, NextHdr.RESPONSE_DATA, b"", b"x", None, accepted) for n in range(300)]
    assert [answer is None for answer in answers] == [n >= 255 for n in range(300)]
    returns.closed(pdc)
    assert returns._accepted == {}
    returns.flush(x.b.pds, x.now)
    assert (returns.open, returns.queued) == (0, False)
    assert returns._waiting == {}
    returns.open = 1
    lost = ReturnMessage(returns, pdc, NextHdr.RESPONSE_DATA, b"", b"x", None)
    lost.on_error(0, PdsError(PdcErrorReason.PEER_CLOSED), x.now)
    assert returns.open == 0
