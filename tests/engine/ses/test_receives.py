# SPDX-License-Identifier: GPL-2.0-only
"""Receives and their index: states and generations, room, truncation, owners (ses.md §2.4, §2.8, §9.4)."""

import pytest

from tests.support.engine.world import JOB, B
from tests.support.ses.operations import Peers, content
from tests.support.ses.requests import Here, Pair, completions, index_of, som
from uetproto.engine import Mode
from uetproto.engine.contract import Atomic, Nop, Receive, Send
from uetproto.engine.ses.addressing import IndexState
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ResponseOpcode, ReturnCode, Space


def test_an_atomic_is_not_truncated() -> None:
    """A target location that is too short: BAD_ADDR, whatever is done with sends (ses.md §10 step 14)."""
    x = Peers()
    into = bytearray(3)
    x.post(into, tag=3)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT32, data=b"abcd", tag=3))
    x.settle()
    assert x.completion().return_code is ReturnCode.BAD_ADDR
    assert into == bytes(3)


def test_alignment_inside_a_receive() -> None:
    """ses.md §6.3: the address is that in the buffer, behind what came before."""
    x = Peers()
    x.post(bytearray(64), tag=3, least=1)
    for datatype, data in ((AtomicDatatype.UINT8, b"a"), (AtomicDatatype.UINT32, b"abcd")):
        x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=datatype, data=data, tag=3))
    x.settle()
    assert [done.return_code for done in completions(x)] == [ReturnCode.OK, ReturnCode.AMO_UNALIGNED]


def test_posting_does_not_undo_its_owner() -> None:
    """DISABLED stays until it is enabled; DISABLED_GEN does not (ses.md §2.4)."""
    x = Peers()
    index_of(x).disable()
    x.post(bytearray(9))
    assert index_of(x).state is IndexState.DISABLED
    x.submit(Send(peer=0, data=b"x"))
    x.settle()
    assert x.completion().return_code is ReturnCode.DISABLED


def test_generations_go_round() -> None:
    """modulo 256 (ses.md §2.4)."""
    x = Peers(ses={"unexpected_policy": "refuse"})
    index_of(x).generation = 255
    x.a.initiator.generations[B, JOB, 0, Space.SEND, 15] = 255
    x.submit(Send(peer=0, data=b"x"))
    x.run()
    (answer,) = x.answers()
    assert (answer.return_code, answer.ri_generation) == (ReturnCode.DISABLED_GEN, 255)  # §9.2: the current one
    x.post(bytearray(1))
    assert index_of(x).generation == 0
    x.settle()
    assert x.completion().ok


@pytest.mark.parametrize(("knob", "told"), [("always", 5), ("on_error", 0)])
def test_generation_in_good_answers(knob: str, told: int) -> None:
    """observed.md `response_generation`."""
    x = Peers(ses={"response_generation": knob})
    index_of(x).generation = index_of(x, Space.RMA).generation = 5
    x.a.initiator.generations[B, JOB, 0, Space.SEND, 15] = 5
    x.post(bytearray(9000))
    x.submit(Send(peer=0, data=bytes(9000)))
    x.submit(Nop(peer=0))
    x.settle()
    assert [done.ok for done in completions(x)] == [True, True]
    assert {r.ri_generation for r in x.answers()} == {told}


def test_datagrams_have_no_generation() -> None:
    """ses.md §2.4."""
    x = Peers()
    into = bytearray(9)
    x.post(into)
    index_of(x).generation = 4
    x.submit(Send(peer=0, data=b"x", mode=Mode.UUD))
    x.settle()
    assert into[:1] == b"x"


def test_offset_in_a_receive() -> None:
    """A buffer_offset that is not 0 starts that many bytes into the buffer (ses.md §2.8), and takes its room."""
    x = Peers()
    into = bytearray(10)
    x.post(into)
    x.submit(Send(peer=0, data=b"abcdefgh", offset=4))
    x.settle()
    assert into == bytes(4) + b"abcdef"
    assert x.completion().modified == 6
    y = Peers(ses={"truncation_policy": "refuse"})
    y.post(bytearray(10))
    y.submit(Send(peer=0, data=b"abcdefgh", offset=4))
    y.settle()
    assert y.completion().return_code is ReturnCode.TOO_LONG


def test_truncated_in_a_later_packet() -> None:
    """Each answer says what is written (ses.md §9.4), also those before the last."""
    x = Peers()
    x.post(bytearray(5000))
    x.submit(Send(peer=0, data=content(12_288)))
    x.settle()
    assert [(r.opcode, r.modified_length) for r in x.answers()] == [(ResponseOpcode.RESPONSE, 5000)] * 3


def test_a_buffer_of_one_job() -> None:
    """ses.md §2.2: an absolute service, a buffer for one client."""
    x = Peers()
    x.b.attach(None, 7)
    into = bytearray(9)
    x.b.submit(Receive(into=into, job_id=None, pid_on_fep=7, only_job=1), x.now)
    for job in (2, 1):
        x.a.submit(Send(peer=B, data=b"x", job_id=job, pid_on_fep=7, relative=False, mode=Mode.RUD), x.now)
        x.settle()
    assert [done.return_code for done in completions(x)] == [ReturnCode.BAD_JOB_ID, ReturnCode.OK]


def test_queue_of_receives_has_an_end() -> None:
    x = Peers(ses={"rx_size": 2})
    for _ in range(2):
        x.post(bytearray(1))
    with pytest.raises(LocalError, match="rx_size"):
        x.post(bytearray(1))
    x.post(bytearray(1), tag=1)  # a queue of its own


def test_wildcards_are_hpc() -> None:
    """ses.md §4.3."""
    x = Peers(ses={"profile": "ai_full"})
    with pytest.raises(LocalError, match="ignore"):
        x.post(bytearray(1), tag=1, ignore=1)
    x.post(bytearray(1), tag=1)


@pytest.mark.parametrize("first", ["receive", "send"])
def test_key_field_of_an_untagged_send(first: str) -> None:
    """The target ignores it (ses.md §2.7)."""
    x = Peers()
    if first == "receive":
        x.post(bytearray(1))
    x.b.target.on_request(Here(), 1, NextHdr.REQUEST_STD, som(Opcode.SEND, 1, key=99), 0, b"x", x.now)
    if first == "send":
        x.post(bytearray(1))
    (got,) = x.received()
    assert (got.tag, got.length) == (0, 1)


def test_truncated_to_nothing() -> None:
    """§9.4: modified_length is what was written, also when that is nothing."""
    x = Pair()
    x.post(0)
    x.send(b"ten bytes!")
    x.settle()
    (done,) = x.completions()
    assert done.ok
    assert done.modified == 0
