# SPDX-License-Identifier: GPL-2.0-only
"""Which header a request has, what a profile allows, the pieces of a large one (ses.md §4, §8.4)."""

import struct
from typing import Any

import pytest

from tests.support.engine.world import KEY
from tests.support.ses.operations import MODES, Peers, content
from tests.support.ses.requests import SAFE, completions
from uetproto.engine import Mode, Region
from uetproto.engine.contract import Atomic, Read, RemoteWrite, Write
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, ReturnCode


@pytest.mark.parametrize(("profile", "code"), [("ai_base", ReturnCode.UNSUPPORTED_OP), ("ai_full", ReturnCode.OK)])
def test_short_headers_and_profiles(profile: str, code: ReturnCode) -> None:
    x = Peers(ses={"optimized_headers": True, "profile": profile})
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle()
    assert x.requests()[0].next_hdr == NextHdr.REQUEST_MEDIUM
    assert x.completion().return_code is code


@pytest.mark.parametrize(("profile", "code"), [("ai_full", ReturnCode.UNSUPPORTED_OP), ("hpc", ReturnCode.OK)])
def test_rudi_and_profiles(profile: str, code: ReturnCode) -> None:
    x = Peers(ses={"profile": profile})
    x.process.register(Region(SAFE, bytearray(10)))
    x.submit(Write(peer=0, data=b"x", key=SAFE, mode=Mode.RUDI))
    x.settle()
    assert x.completion().return_code is code


@pytest.mark.parametrize(
    ("work", "form"),
    [
        ({"offset": 4}, NextHdr.REQUEST_MEDIUM), ({"completion_data": 5}, NextHdr.REQUEST_MEDIUM),
        ({"offset": 4, "completion_data": 5}, NextHdr.REQUEST_STD), ({"key": 1 << 62 | 5}, NextHdr.REQUEST_SMALL),
        ({"key": 1 << 62 | 5, "completion_data": 5}, NextHdr.REQUEST_MEDIUM),
        ({"key": 1 << 62 | 1 << 12}, NextHdr.REQUEST_MEDIUM), ({"data": bytes(16_384)}, NextHdr.REQUEST_STD),
        ({"data": bytes(8192)}, NextHdr.REQUEST_MEDIUM), ({"data": bytes(8193)}, NextHdr.REQUEST_STD),
    ],
)  # fmt: skip
def test_which_header(work: dict[str, Any], form: NextHdr) -> None:
    """ses.md §4.1."""
    x = Peers(ses={"optimized_headers": True, "payload_mtu": 8192})
    for key in (1 << 62 | 5, 1 << 62 | 1 << 12):
        x.process.register(Region(key, bytearray(20_000)))
    x.submit(Write(**{"peer": 0, "data": b"abc", "key": KEY, **work}))
    x.settle()
    assert x.requests()[0].next_hdr == form
    assert x.completion().ok
    told = [event.data for event in x.b.events() if isinstance(event, RemoteWrite)]
    assert told == ([5] if "completion_data" in work else [])


@pytest.mark.parametrize("mode", MODES)
def test_pieces_of_a_large_write(mode: Mode) -> None:
    """ses.md §8.4: several messages, completion data with the last."""
    x = Peers(ses={"max_msg_size": 5000})
    x.submit(Write(peer=0, data=content(12_000), key=KEY, offset=10, completion_data=7, mode=mode))
    x.settle()
    assert bytes(x.memory[10:12_010]) == content(12_000)
    assert [event.length for event in x.b.events() if isinstance(event, RemoteWrite)] == [2000]
    into = bytearray(12_020)
    x.submit(Read(peer=0, into=into, key=KEY, offset=10, start=20, length=12_000, mode=mode))
    x.settle()
    assert into[20:] == content(12_000)
    assert [done.modified for done in completions(x)] == [12_000, 12_000]


def test_a_region_that_has_an_address() -> None:
    """ses.md §2.8: virtual addresses, for all that touches a region."""
    x = Peers(bytearray(struct.pack("<Q", 40)) + bytes(56), base=0x20000000)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, data=struct.pack("<Q", 2), key=KEY,
                    offset=0x20000000))  # fmt: skip
    into = bytearray(8)
    x.submit(Read(peer=0, into=into, key=KEY, offset=0x20000000))
    x.settle()
    assert struct.unpack("<Q", into) == (42,)
