# SPDX-License-Identifier: GPL-2.0-only
"""What a peer may get wrong in mid-message, in a restart, a sync group, return data (ses.md §5, §9.6, §10)."""

from typing import Any

import pytest

from tests.support.engine.world import KEY as KEY_OF_PEERS
from tests.support.ses.checks_order import JOB, KEY, MTU, OTHER, Ask, C, Target
from tests.support.ses.headers import build_som
from tests.support.ses.operations import A, Peers, content
from uetproto.engine import Completion, Mode
from uetproto.engine.contract import Atomic, Read, Receive, Send, SendKind, Write
from uetproto.engine.ses.headers import build_extensions, parse_ses_response
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ReturnCode, Space
from uetproto.wire.tuples import SesExtRendezvousHeader, SesExtSyncHeader


def later(target: Target, opcode: int = Opcode.WRITE, **fields: Any) -> Ask:
    """The second packet of a message of three."""
    fields = {"som": 0, "eom": 0, "length": 3 * MTU, "message_offset": MTU, "payload": b"x" * MTU, **fields}
    return Ask(target, opcode, **fields)


# In the middle of a message ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"job": OTHER}, {"pid": 1}, {"index": 16}])
def test_the_address_is_the_same_in_all_packets(changes: dict[str, int]) -> None:
    """ses.md §15 items 5 and 32: another address exists too, and its packet must not write here."""
    t = Target()
    t.fep.attach(OTHER)
    t.fep.attach(JOB, 1)
    t.process.open(16)
    assert Ask(t, Opcode.WRITE, eom=0, length=3 * MTU, payload=bytes(MTU)).send() is C.OK
    assert later(t, **changes).send() is C.OP_VIOLATION
    assert bytes(t.region.memory.read(MTU, MTU)) == bytes(MTU)


def test_the_extension_is_the_same_in_all_packets() -> None:
    """ses.md §4.2: a held rendezvous has room for the eager bytes that its first packet named."""
    t = Target()

    def extension(eager: int) -> bytes:
        return SesExtRendezvousHeader.pack(eager, 0, 0, 15, eager, 5)

    long = {"length": 8 * MTU, "key": 0}
    first = Ask(t, Opcode.RENDEZVOUS_SEND, eom=0, payload=b"x" * MTU, extension=extension(2 * MTU), **long)
    with pytest.raises(AssertionError):
        first.send()  # NO_RESPONSE: it is held
    second = later(t, Opcode.RENDEZVOUS_SEND, message_offset=4 * MTU, extension=extension(6 * MTU), **long)
    assert second.send() is C.OP_VIOLATION


def test_a_closed_index_is_noticed_by_the_next_packet() -> None:
    """ses.md §10 step 7 is judged for each packet."""
    t = Target()
    assert Ask(t, Opcode.WRITE, eom=0, length=4 * MTU, payload=bytes(MTU)).send() is C.OK
    assert later(t, length=4 * MTU).send() is C.OK
    t.process.close(15)
    assert later(t, length=4 * MTU, message_offset=2 * MTU).send() is C.BAD_INDEX


# Stopped messages and restarts (ses.md §5.7) -------------------------------------------------------------------------

STOPPED = {"offset": 1 << 32, "key": 0, "length": 3 * MTU, "payload": b"x" * MTU}


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"ie": 1}, C.INITIATOR_ERROR), ({"job": 999}, C.BAD_JOB_ID), ({"length": 4 * MTU}, C.OP_VIOLATION)],
)  # fmt: skip
def test_checks_of_a_stopped_message(changes: dict[str, int], code: ReturnCode) -> None:
    """ses.md §5.13, §10: a bad packet of a message that is discarded is bad all the same; nobody asks for it then."""
    t = Target()
    assert Ask(t, Opcode.DEFERRABLE_SEND, eom=0, **STOPPED).send() is C.OK
    assert t.space(Space.SEND).pending == 1
    assert later(t, Opcode.DEFERRABLE_SEND, **{**STOPPED, **changes}).send() is code
    assert t.space(Space.SEND).pending == 0


def test_msg_error_of_a_stopped_message() -> None:
    """ses.md §5.12: its place is free again."""
    t = Target()
    assert Ask(t, Opcode.DEFERRABLE_SEND, eom=0, **STOPPED).send() is C.OK
    end = Ask(t, Opcode.MSG_ERROR, som=0, message_offset=MTU, **{**STOPPED, "payload": b""})
    assert end.send() is C.INITIATOR_ERROR
    assert t.space(Space.SEND).pending == 0


@pytest.mark.parametrize("changes", [{"opcode": Opcode.DEFERRABLE_TSEND}, {"key": 9}, {"index": 16}])
def test_a_restart_is_that_of_what_was_stopped(changes: dict[str, int]) -> None:
    """ses.md §5.7 D6: the token of one message does not open the buffer of another."""
    t = Target()
    t.process.open(16)
    assert Ask(t, Opcode.DEFERRABLE_SEND, **{**STOPPED, "length": 8, "payload": b"x" * 8}).send() is C.OK
    t.fep.submit(Receive(into=bytearray(8), job_id=JOB), 0)
    (token,) = t.fep.target.queues._tokens
    restart = {**STOPPED, "opcode": Opcode.DEFERRABLE_SEND, "offset": 2 << 32 | token, "length": 8, "payload": b"x" * 8}
    assert Ask(t, message_id=2, **{**restart, **changes}).send() is C.OP_VIOLATION
    assert Ask(t, message_id=3, version=1, **restart).send() is C.UNCOR  # steps 2 to 11 come first
    assert Ask(t, message_id=4, **restart).send() is C.OK


def test_a_refused_restart_ends_its_receive() -> None:
    """The buffer that was reserved for it is given back at once, in error."""
    x = Peers(ses={"truncation_policy": "refuse"})
    x.submit(Send(peer=0, data=content(9000), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    x.post(bytearray(10))
    x.run()
    x.settle()
    assert x.completion().return_code is ReturnCode.TOO_LONG
    assert [event.return_code for event in x.received()] == [ReturnCode.TOO_LONG]
    assert x.now < 10**12


# Order on ROD (ses.md §12, §13.4) ------------------------------------------------------------------------------------


def test_writes_keep_their_order_across_a_retry() -> None:
    """FI_ORDER_WAW: the younger one waits until the refused one was accepted."""
    x = Peers()
    codes = iter((ReturnCode.UNCOR_TRNSNT,))
    x.b.target.fault = lambda request: next(codes, None)
    x.submit(Write(peer=0, data=b"old", key=KEY_OF_PEERS))
    x.run()
    x.submit(Write(peer=0, data=b"new", key=KEY_OF_PEERS))
    x.settle()
    assert bytes(x.memory[:3]) == b"new"


def test_a_read_that_is_tried_again() -> None:
    """ses.md §12: nothing of the first attempt may be assumed stored."""
    data = content(12_000)
    x = Peers(bytearray(data))
    codes = iter((None, ReturnCode.UNCOR_TRNSNT))
    x.b.target.fault = lambda request: next(codes, None)
    into = bytearray(12_000)
    x.submit(Read(peer=0, into=into, key=KEY_OF_PEERS))
    x.settle()
    assert x.completion().ok
    assert into == data
    assert {answer.return_code for answer in x.answers(A)} <= {ReturnCode.OK, ReturnCode.UNDELIVERABLE}


# Return data (ses.md §9.6) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "value", "code"), [
    (1, ReturnCode.UNCOR, ReturnCode.UNCOR), (16, 0x10, ReturnCode.OP_VIOLATION), (7, 9, ReturnCode.BAD_JOB_ID),
])  # fmt: skip
def test_bad_return_data_fails_the_read(at: int, value: int, code: ReturnCode) -> None:
    """It does not come again: the read ends, and its PDC is free."""
    x = Peers()
    send = x.b.target.returns.send

    def spoil(pdc: Any, psn: int, next_hdr: int, header: bytes, *more: Any) -> Any:
        return send(pdc, psn, next_hdr, header[:at] + bytes((value,)) + header[at + 1 :], *more)

    x.b.target.returns.send = spoil  # type: ignore[method-assign]
    x.submit(Read(peer=0, into=bytearray(9000), key=KEY_OF_PEERS))
    x.settle()
    assert x.completion().return_code is code
    assert not any(pdc.locks for pdc in x.a.pds.pdcs.values())
    assert x.a.quiescent


def test_a_rendezvous_is_read_when_its_reader_says_so() -> None:
    """ses.md §5.9 R5: data that was refused was not read."""
    x = Peers(ses={"rendezvous_time": 10**12})
    x.post(bytearray(30_000))
    x.b.initiator._reader = lambda *_: None  # type: ignore[method-assign]
    x.submit(Send(peer=0, data=content(30_000), kind=SendKind.RENDEZVOUS))
    x.settle()
    assert not x.completion().ok
    assert not x.a.initiator.messages


# Sync groups (ses.md §5.14) -------------------------------------------------------------------------------------------


def member(t: Target, message_id: int, total: int = 0, **fields: Any) -> Ask:
    return Ask(
        t,
        Opcode.SYNC_WRITE,
        message_id=message_id,
        extension=build_extensions(sync=SesExtSyncHeader(7, total)),
        **fields,
    )


def test_the_end_of_a_group_is_answered_whatever_happens() -> None:
    """More messages than announced: OP_VIOLATION, and its end fails, or is dropped in time."""
    t = Target({"sync_operations": True})
    late: list[Any] = []
    t.fep.target.late = lambda *answer: late.append(answer)
    assert member(t, 1, 2, eom=0, length=2 * MTU, payload=bytes(MTU)).send() is C.OK
    assert member(t, 2).send() is C.OK
    assert member(t, 3).send() is C.OP_VIOLATION
    assert member(t, 1, 2, som=0, length=2 * MTU, message_offset=MTU, payload=bytes(MTU)).send() is None
    t.fep.target.on_time(1)
    assert len(late) == 1


def test_a_write_that_is_refused_fails_its_group() -> None:
    """An error in any message makes the end fail, at once."""
    x = Peers(ses={"sync_operations": True})
    x.submit(Write(peer=0, data=b"end", key=KEY_OF_PEERS, sync=(7, 2), completion_data=1, mode=Mode.RUD))
    x.submit(Write(peer=0, data=b"w", key=5, sync=(7, 0), mode=Mode.RUD))
    x.settle()
    assert [event.ok for event in x.a.events() if isinstance(event, Completion)] == [False, False]
    assert x.now < 10**12


def test_inval_ends_a_group() -> None:
    x = Peers(ses={"sync_operations": True})
    inval = {"opcode": AtomicOpcode.INVAL, "datatype": AtomicDatatype.UINT8, "key": KEY_OF_PEERS, "mode": Mode.RUD}
    x.submit(Atomic(peer=0, sync=(7, 2), **inval))  # type: ignore[arg-type]
    x.run()
    assert not x.a.quiescent
    x.submit(Write(peer=0, data=b"w", key=KEY_OF_PEERS, sync=(7, 0), mode=Mode.RUD))
    x.settle()
    assert [event.ok for event in x.a.events() if isinstance(event, Completion)] == [True, True]


# The target's own side -----------------------------------------------------------------------------------------------


class Broken:
    """A memory that cannot be written."""

    length = 16

    def read(self, offset: int, length: int) -> bytes:
        return bytes(length)

    def write(self, offset: int, data: Any) -> None:
        raise OSError("no")

    def flush(self) -> None: ...


@pytest.mark.parametrize("mode", [Mode.UUD, Mode.RUD])
@pytest.mark.parametrize("first", ["receive", "send"])
def test_memory_that_fails(mode: Mode, first: str) -> None:
    """ses.md §10 step 18: HOST_UNSUCCESS_CMPL, and never an exception."""
    x = Peers()
    if first == "receive" or mode is Mode.UUD:
        x.post(Broken())
    x.submit(Send(peer=0, data=b"hello", mode=mode))
    x.run()
    if first == "send" and mode is Mode.RUD:
        x.post(Broken())
    x.settle()
    assert [event.return_code for event in x.received()] == [ReturnCode.HOST_UNSUCCESS_CMPL]
    if mode is Mode.RUD:
        assert x.completion().return_code is ReturnCode.HOST_UNSUCCESS_CMPL


def test_memory_that_fails_at_a_second_read() -> None:
    """ses.md §9.6: the data of an ACK was not kept, and cannot be read again: an error is answered."""
    t = Target()
    header = build_som(Opcode.READ, 0, 0, 1, 0, 1, 1, JOB, 0, 15, 0, 16, KEY, 0, 8)

    def again() -> ReturnCode:
        answer = t.fep.on_reread(t.pdc, 1, NextHdr.REQUEST_STD, header, 0, b"")
        return ReturnCode(parse_ses_response(answer.header, answer.next_hdr).return_code)

    assert again() is C.OK

    def fails(offset: int, length: int) -> bytes:
        raise OSError("no")

    t.region.memory = Broken()
    t.region.memory.read = fails  # type: ignore[method-assign]
    assert again() is C.HOST_UNSUCCESS_CMPL


def test_a_compare_and_swap_that_fails_gives_its_buffer_back() -> None:
    x = Peers()
    x.post(Broken(), tag=8)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.CSWAP, datatype=AtomicDatatype.UINT32, data=bytes(4), compare=bytes(4),
                    tag=8))  # fmt: skip
    x.settle()
    assert [event.return_code for event in x.received()] == [ReturnCode.HOST_UNSUCCESS_CMPL]


def test_a_receive_is_posted_once() -> None:
    """ses.md §2.4: what is refused moves no generation."""
    x = Peers()
    receive = x.post(bytearray(4))
    index = x.process.spaces[Space.SEND][15]
    index.refuse_ordered()
    with pytest.raises(LocalError, match="posted already"):
        x.b.submit(receive, x.now)
    assert index.generation == 0


def test_a_write_beyond_the_last_address() -> None:
    x = Peers(ses={"max_msg_size": 4096})
    with pytest.raises(LocalError, match="offset"):
        x.submit(Write(peer=0, data=bytes(9000), key=KEY_OF_PEERS, offset=2**64 - 5000))
