# SPDX-License-Identifier: GPL-2.0-only
"""Sync groups: their end, their errors, their limits (ses.md §5.14)."""

import struct
from typing import Any

from tests.support.engine.world import KEY, A
from tests.support.ses.operations import SECOND, Peers
from tests.support.ses.requests import Here, Pair, ask, completions, later, som
from uetproto.engine import Mode, Region, SesConfig
from uetproto.engine.contract import MILLISECOND, NEVER, RemoteWrite, Write
from uetproto.engine.ses.headers import parse_extensions
from uetproto.engine.ses.sync import TargetSyncGroups
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode
from uetproto.wire.tuples import SesExtSyncHeader


def synced(**knobs: Any) -> Peers:
    return Peers(ses={"sync_operations": True, **knobs})


def member(x: Peers, total: int = 0, group: int = 7, **fields: Any) -> None:
    data = fields.pop("data", b"w")
    x.submit(Write(peer=0, data=data, key=KEY, sync=(group, total), mode=Mode.RUD, context=total, **fields))
    x.run()


def test_second_end_of_a_sync_group() -> None:
    x = synced()
    member(x, 3)
    member(x, 3)
    (done,) = completions(x)
    assert done.return_code is ReturnCode.OP_VIOLATION


def test_more_messages_than_announced() -> None:
    """Before the end comes: it is the end that is wrong (ses.md §5.14)."""
    x = synced()
    for _ in range(2):
        member(x)
    member(x, 2)
    assert [done.return_code for done in completions(x)] == [ReturnCode.OK, ReturnCode.OK, ReturnCode.OP_VIOLATION]


def test_an_error_in_a_sync_group() -> None:
    """The first error fails the end too (ses.md §5.14)."""
    x = synced()
    member(x, 2, completion_data=1)

    class Fails:
        length = 100_000

        def read(self, offset: int, length: int) -> bytes:
            return bytes(length)

        def write(self, offset: int, data: Any) -> None:
            raise OSError

        def flush(self) -> None: ...

    x.process.register(Region(55, Fails()))
    x.submit(Write(peer=0, data=b"w", key=55, sync=(7, 0), mode=Mode.RUD, context=0))
    x.run()
    assert {done.context: done.return_code for done in completions(x)} == {
        0: ReturnCode.HOST_UNSUCCESS_CMPL, 2: ReturnCode.HOST_UNSUCCESS_CMPL,
    }  # fmt: skip
    assert not any(isinstance(event, RemoteWrite) for event in x.b.events())


def test_message_error_in_a_sync_group() -> None:
    """MSG_ERROR is an error of the message like others: the end, which waits, gets it."""
    x = synced()
    late: list[int] = []
    x.b.target.late = lambda pdc, psn, answer, now: late.append(answer.header[1])
    end, part = struct.pack(">HH", 7, 2), struct.pack(">HH", 7, 0)
    x.b.target.on_request(Here(), 1, NextHdr.REQUEST_STD, som(Opcode.SYNC_WRITE, 1, message_id=2), 0, end + b"e", 0)
    assert ask(x, som(Opcode.SYNC_WRITE, 20_000, eom=0), part + bytes(4096)) == ReturnCode.OK
    assert ask(x, later(20_000, 0, 4096, eom=1, opcode=Opcode.MSG_ERROR)) == ReturnCode.INITIATOR_ERROR
    x.b.target.on_time(0)
    assert late == [ReturnCode.INITIATOR_ERROR]


def test_a_sync_group_that_is_not_complete() -> None:
    """Its state is dropped in time; the end gets DROPPED."""
    x = synced(sync_group_time=10 * MILLISECOND)
    member(x, 2)
    x.settle(1000)
    assert x.completion().return_code is ReturnCode.DROPPED
    assert 10 * MILLISECOND <= x.now < 20 * MILLISECOND


def test_first_error_of_a_sync_group() -> None:
    """It is that which the end gets; until then the group has a deadline (ses.md §5.14)."""

    class Message:
        def __init__(self, total: int) -> None:
            self.source, self.sync = A, SesExtSyncHeader(7, total)

    groups: Any = TargetSyncGroups(SesConfig())
    one, two, end = Message(0), Message(0), Message(3)
    assert [groups.join(message, 5) for message in (one, two, end)] == [None] * 3
    assert groups.deadline() == 5 + 60 * SECOND
    got: list[ReturnCode | None] = []
    groups.end(end, got.append)
    groups.fail(one, ReturnCode.AT_PERM)
    groups.fail(two, ReturnCode.UNCOR)
    assert got == [ReturnCode.AT_PERM]
    assert groups.deadline() == NEVER


def test_sync_groups_have_a_limit() -> None:
    x = synced(max_rx_messages=1)
    member(x, 2)
    member(x, 2, group=8)
    assert ReturnCode.UNCOR_TRNSNT in [r.return_code for r in x.answers()]


def test_extension_of_a_sync_write() -> None:
    x = synced()
    member(x, 1, data=bytes(5000))
    found = [parse_extensions(Opcode.SYNC_WRITE, data[12 + 44 :]).sync for source, data in x.sent if source == A]
    assert found[:2] == [(7, 1), (7, 1)]


def test_error_in_a_sync_group() -> None:
    """§5.14: an error in any message makes the one that ends the group fail; not only when its time is over."""
    x = Pair(sync_operations=True)
    x.do(Write(peer=0, data=b"x", key=5, sync=(1, 0), mode=Mode.RUD, context="bad"))
    x.do(Write(peer=0, data=b"y", key=KEY, sync=(1, 2), mode=Mode.RUD, completion_data=1, context="end"))
    x.run(SECOND)
    codes = {done.context: done.return_code for done in x.completions()}
    assert codes["bad"] is ReturnCode.BAD_MKEY
    assert "end" in codes
    assert codes["end"] is not ReturnCode.OK
