# SPDX-License-Identifier: GPL-2.0-only
"""Requests that are wrong by themselves, or do not belong to their message (ses.md §7.1, §10)."""

import struct

import pytest

from tests.support.ses.operations import Peers
from tests.support.ses.requests import ask, later, som
from uetproto.engine.ses.segments import Reassembly
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode


@pytest.mark.parametrize(("length", "payload"), [(1, b""), (0, b"x"), (1, b"x")])
def test_no_op_has_nothing(length: int, payload: bytes) -> None:
    """ses.md §5.2."""
    assert ask(Peers(), som(Opcode.NO_OP, length), payload) == ReturnCode.OP_VIOLATION


def test_rendezvous_with_more_eager_bytes_than_it_has() -> None:
    """ses.md §5.9: eager_length ≤ request_length."""
    extension = struct.pack(">I", 20) + bytes(20)
    x = Peers()
    x.post(bytearray(100))
    assert ask(x, som(Opcode.RENDEZVOUS_SEND, 10, key=0), extension + bytes(20)) == ReturnCode.OP_VIOLATION


@pytest.mark.parametrize(
    ("atomic", "length", "payload", "code"),
    [
        (bytes((0x0D, 7, 2, 0)) + bytes(32), 8, b"", ReturnCode.OP_VIOLATION),
        (bytes((0x0D, 7, 2, 0)) + bytes(32), 32, b"", ReturnCode.OK),
        (bytes((0x0D, 7, 2, 0)) + bytes(32), 32, b"x", ReturnCode.OP_VIOLATION),
        (bytes((0x0B, 7, 2, 0)), 8, b"12345678", ReturnCode.OP_VIOLATION),
        (bytes((0x0B, 7, 2, 0)), 8, b"", ReturnCode.OK),
        (bytes((0x02, 7, 2, 0)), 16, bytes(16), ReturnCode.AMO_UNSUPPORTED_SIZE),
    ],
)
def test_operands(atomic: bytes, length: int, payload: bytes, code: ReturnCode) -> None:
    """ses.md §6.3: 32 bytes of a compare-and-swap, none of READ; a fetching one has one element."""
    assert ask(Peers(), som(Opcode.FETCHING_ATOMIC, length), atomic + payload) == code


@pytest.mark.parametrize(("read", "write"), [(False, True), (True, False)])
def test_fetching_needs_both_rights(read: bool, write: bool) -> None:
    """ses.md §10 step 13."""
    x = Peers()
    x.region.remote_read, x.region.remote_write = read, write
    assert ask(x, som(Opcode.FETCHING_ATOMIC, 8), bytes((2, 7, 2, 0)) + bytes(8)) == ReturnCode.PERM_VIOLATION


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        (later(20_000, 4096, 4096, offset=8), 4096), (later(20_001, 4096, 4096), 4096),
        (later(20_000, 4095, 4096), 4096), (later(20_000, 4096, 8000), 4096),
        (later(20_000, 4096, 4000), 4096), (later(20_000, 4096, 0), 4096),
        (later(20_000, 0, 4096, eom=1), 0), (later(20_000, 3616, 16_384), 3616), (later(20_000, 4096, 16_384), 4096),
        (later(20_000, 4096, 8192, opcode=Opcode.SEND), 4096),
    ],
)  # fmt: skip
def test_a_later_packet_that_does_not_belong(header: bytes, payload: int) -> None:
    """ses.md §7.1, §10 steps 10 and 16; nothing is stored."""
    x = Peers()
    assert ask(x, som(Opcode.WRITE, 20_000, eom=0), bytes(4096)) == ReturnCode.OK
    assert ask(x, later(20_000, 4096, 12_288), bytes(4096)) == ReturnCode.OK  # the short way has begun
    assert ask(x, header, b"x" * payload) == ReturnCode.OP_VIOLATION
    assert bytes(x.memory) == bytes(100_000)


@pytest.mark.parametrize("header", [later(20_000, 4096, 0), later(8192, 0, 8192, eom=1)], ids=["at 0", "empty end"])
def test_a_packet_that_is_seen_first(header: bytes) -> None:
    """What is wrong with it by itself (ses.md §7.1)."""
    x = Peers()
    assert ask(x, header, bytes(4096 if header[1] & 2 == 0 else 0)) == ReturnCode.OP_VIOLATION


def test_atomic_read_is_for_fetching() -> None:
    """ses.md §6.1."""
    code = ask(Peers(), som(Opcode.ATOMIC, 8), bytes((0x0B, 7, 2, 0)))
    assert code in (ReturnCode.AMO_UNSUPPORTED_OP, ReturnCode.AMO_UNSUPPORTED_SIZE)


def test_what_arrived() -> None:
    """Packets ahead of a gap are not there twice either, nor does a gap close over one (ses.md §7.1)."""
    arrived = Reassembly(100)
    assert arrived.add(20, 10)
    assert not arrived.add(20, 10)
    assert arrived.ranges() == [(20, 10)]
    assert arrived.add(0, 10)
    assert arrived.ranges() == [(0, 10), (20, 10)]
    assert not arrived.add(5, 5)
