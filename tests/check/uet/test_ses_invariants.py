# SPDX-License-Identifier: GPL-2.0-only
"""How a message is cut into packets (ses.md §15 items 1–7, 16): what the rules let pass, and what they find."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.ses.headers import build_later, build_som
from uetproto.check.registry import InvariantViolation
from uetproto.check.uet.ses_invariants import SegmentChecks
from uetproto.engine.ses.headers import AtomicExtension, build_extensions
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode
from uetproto.wire.tuples import SesExtRendezvousHeader

MTU = 1024
Packet = tuple[bytes, bytes]


def first(opcode: int = Opcode.WRITE, length: int = 2000, eom: int = 0, payload: int = MTU, **more: Any) -> Packet:
    extension = more.pop("extension", b"")
    return build_som(opcode, 0, 0, 1, 0, eom, 1, 101, 0, 15, 0, 16, 7, 0, length, **more), extension + bytes(payload)


def later(
    at: int, size: int, eom: int = 1, opcode: int = Opcode.WRITE, length: int = 2000, payload: int | None = None,
    extension: bytes = b"", message_id: int = 1, key: int = 7,
) -> Packet:  # fmt: skip
    header = build_later(opcode, 0, 0, 1, 0, eom, message_id, 101, 0, 15, 0, 16, key, size, at, length)
    return header, extension + bytes(size if payload is None else payload)


def judged(packets: list[Packet]) -> str | None:
    """The number of the invariant that is broken."""
    segments = SegmentChecks(MTU)
    packet: Any = SimpleNamespace(next_hdr=NextHdr.REQUEST_STD)
    try:
        for header, payload in packets:
            segments.add(packet, header, payload)
    except InvariantViolation as violation:
        return violation.number
    assert segments.open is None, "the message has no end"
    return None


READ, SEND = Opcode.READ, Opcode.DEFERRABLE_SEND
EAGER = SesExtRendezvousHeader.pack(1500, 0, 0, 15, 1500, 7)
ADD = build_extensions(atomic=AtomicExtension(0x02, 0x07, 2))
SWAP = build_extensions(atomic=AtomicExtension(0x0D, 0x07, 2, 1, 2))
FETCH = build_extensions(atomic=AtomicExtension(0x0B, 0x07, 2))
TAGGED = Opcode.RENDEZVOUS_TSEND


@pytest.mark.parametrize(
    "packets",
    [
        [first(), later(MTU, 976)],
        [first(length=0, eom=1, payload=0)],
        [first(length=5, eom=1, payload=5), first(length=6, eom=1, payload=6)],
        [first(READ, payload=0), later(MTU, 976, opcode=READ, payload=0)],
        [first(TAGGED, 9000, extension=EAGER), later(MTU, 476, 1, TAGGED, 9000, extension=EAGER)],
        [first(Opcode.ATOMIC, 16, 1, 16, extension=ADD)],
        [first(Opcode.FETCHING_ATOMIC, 32, 1, 0, extension=SWAP)],
        [first(Opcode.FETCHING_ATOMIC, 8, 1, 0, extension=FETCH)],
        [first(), later(MTU, 0, opcode=Opcode.MSG_ERROR)],
        [first(SEND, 5000), later(MTU, MTU, 0, SEND, 5000), later(2 * MTU, 0, 1, SEND, 5000)],
    ],
    ids=["two packets", "empty", "two messages", "read", "rendezvous", "atomic", "swap", "fetch", "error", "stopped"],
)  # fmt: skip
def test_good_messages(packets: list[Packet]) -> None:
    assert judged(packets) is None


@pytest.mark.parametrize(
    ("packets", "number"),
    [
        ([later(MTU, 976)], "ses 3"),
        ([first(), first()], "ses 3"),
        ([first(eom=1)], "ses 3"),
        ([first(), later(MTU, MTU, 1, length=3000), later(2 * MTU, 952, length=3000)], "ses 5/16"),
        ([first(length=3000), later(MTU, MTU, 1, length=3000)], "ses 3"),
        ([first(), later(MTU, 976, 0)], "ses 6"),
        ([first(), later(MTU, 976, message_id=2)], "ses 5/16"),
        ([first(), later(MTU, 976, key=8)], "ses 5/16"),
        ([first(), later(MTU, 976, opcode=Opcode.SEND)], "ses 5/16"),
        ([first(payload=1000)], "ses 7"),
        ([first(), later(MTU, 976, payload=970)], "ses 7"),
        ([first(READ)], "ses 7"),
        ([first(length=3000), later(MTU, 500, 0, length=3000)], "ses 6"),
        ([first(length=3000), later(2 * MTU, MTU, 0, length=3000)], "ses 2"),
        ([first(), later(0, 976)], "ses 2"),
        ([first(length=2048), later(MTU, MTU, 0, length=2048)], "ses 3"),
        ([first(), later(MTU, 1000)], "ses 1"),
        ([first(TAGGED, 9000, extension=EAGER), later(MTU, 500, 1, TAGGED, 9000, extension=EAGER)], "ses 1"),
        ([first(), later(MTU, 0)], "ses 1"),
        ([first(), later(500, 0, opcode=Opcode.MSG_ERROR)], "ses 1"),
        ([first(), later(MTU, 0, opcode=Opcode.MSG_ERROR, payload=5)], "ses 1"),
        ([first(), later(MTU, 0, opcode=Opcode.MSG_ERROR, key=8)], "ses 5/16"),
    ],
)
def test_bad_messages(packets: list[Packet], number: str) -> None:
    assert judged(packets) == number
