# SPDX-License-Identifier: GPL-2.0-only
"""Captured frames opened, whatever stands around the packet, and why others stay sealed (tss.md §2–7)."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.effort import examples
from tests.support.tss.flows import Flow
from uetproto import Layer, Packet, Trailer, decode, encode
from uetproto.engine.tss.cipher import AssociatedData, Cipher, Refused, SecurityHeader
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing
from uetproto.engine.tss.opener import Opened, Opener

FIRST, SECOND, THIRD = (DomainKey(bytes([number]) * 32) for number in range(3))
DOMAIN = DomainConfig(sdi=5, mode="cluster", keys=((FIRST,), (SECOND,)))
HEADER = SecurityHeader(5, 0, None, 0, 9)
INNER = bytes.fromhex("118c00000001234500010000") + bytes(44)
A, B = Flow().src, Flow().dst

ETHERNET = Layer("ethernet", {"type": 0x0800})
IPV4 = Layer("ipv4", {"ttl": 9, "protocol": 17, "src": A, "dst": B})
UDP = Layer("udp", {"sport": 7, "dport": 4793})


def sealed(layers: list[Layer], key: DomainKey = FIRST, header: SecurityHeader = HEADER, **rest: Any) -> bytes:
    """A frame with these layers below the security header."""
    size = header.size + len(INNER) + 16
    empty = encode(Packet(layers, bytes(size)), fill=True)
    start, end = empty.index(A.to_bytes(4, "big") + B.to_bytes(4, "big")) + 8, len(empty) - size
    below = AssociatedData(4, A, B, empty[start:end])
    return encode(Packet(layers, Cipher(DOMAIN, key).seal(header, below, INNER), **rest), fill=True)


def opened(frame: bytes, domain: DomainConfig = DOMAIN, **link: str) -> Opened | Refused:
    return Opener(KeyRing({domain.sdi: domain}), **link).open(frame)


# What opens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "layers"),
    [
        ("ethernet", [ETHERNET, IPV4, UDP]),
        ("raw", [IPV4, UDP]),
        ("ethernet", [Layer("ethernet", {"type": 0x8100}), Layer("vlan", {"vid": 7, "type": 0x0800}), IPV4, UDP]),
        ("ethernet", [ETHERNET, Layer("ipv4", {**IPV4.values, "protocol": 253}), Layer("entropy", {"entropy": 3})]),
        (
            "ethernet",  # options are authenticated (§7.1)
            [ETHERNET, Layer("ipv4", {**IPV4.values, "ihl": 6}), Layer("ipv4.options", {"raw": b"\1\1\1\0"}), UDP],
        ),
    ],
    ids=["ethernet", "raw", "vlan", "native", "options"],
)
def test_what_stands_below(link: str, layers: list[Layer]) -> None:
    plain = encode(Packet(layers, INNER, Trailer("crc32c", 0)), fill=True)
    assert opened(sealed(layers), link=link)[:6] == (plain, 5, 0, 0, 9, None)


def test_padding_stays() -> None:
    layers = [ETHERNET, IPV4, UDP]
    plain = encode(Packet(layers, INNER, Trailer("crc32c", 0), raw=bytes(7)), fill=True)
    assert opened(sealed(layers, raw=bytes(7)))[:6] == (plain, 5, 0, 0, 9, None)


def test_options_of_ip_are_authenticated() -> None:
    options = Layer("ipv4.options", {"raw": b"\1\1\1\0"})
    frame = bytearray(sealed([ETHERNET, Layer("ipv4", {**IPV4.values, "ihl": 6}), options, UDP]))
    frame[34] ^= 2
    assert isinstance(opened(bytes(frame)), Refused)


def test_a_packet_that_is_decoded_already() -> None:
    frame = sealed([ETHERNET, IPV4, UDP])
    assert Opener(KeyRing({5: DOMAIN})).open(frame, decode(frame)) == opened(frame)


def test_keys_of_one_an_are_tried() -> None:
    """interfaces.md §9."""
    domain = replace(DOMAIN, keys=((THIRD, SECOND, FIRST), ()))
    assert isinstance(opened(sealed([ETHERNET, IPV4, UDP]), domain), Opened)
    only_epoch_1 = replace(DOMAIN, keys=((THIRD, DomainKey(FIRST.value, 1)), ()))
    frame = sealed([ETHERNET, IPV4, UDP], header=HEADER._replace(epoch=1))
    assert isinstance(opened(frame, only_epoch_1), Opened)
    assert isinstance(opened(sealed([ETHERNET, IPV4, UDP]), only_epoch_1), Refused)


@pytest.mark.parametrize("server", [A, B])
def test_both_directions_of_client_server(server: int) -> None:
    """The identity is the client's, whoever sends (§4)."""
    domain = replace(DOMAIN, mode="client-server", servers=frozenset({server}))
    below = Flow().below(0)
    frame = Flow().frame(Cipher(domain, FIRST).seal(HEADER, below, INNER))
    assert opened(frame, domain)[:6] == (Flow().plain_frame(INNER), 5, 0, 0, 9, None)
    other = replace(domain, servers=frozenset({A, B} - {server}))
    assert isinstance(opened(frame, other), Refused)


# What does not --------------------------------------------------------------------------------------------------------


def test_why_it_stays_sealed() -> None:
    layers = [ETHERNET, IPV4, UDP]
    frame = sealed(layers)
    trimmed = bytearray(frame)
    trimmed[15] = 16 << 2
    cut = encode(Packet(layers, HEADER.encode() + bytes(15)), fill=True)
    reasons = {
        encode(Packet(layers, INNER, Trailer("crc32c", 0)), fill=True): Refused("not sealed"),
        b"": Refused("not sealed"),
        bytes(trimmed): Refused("trimmed: not all of it is there", 5),
        cut: Refused("the ICV needs 16 bytes, 15 are there", 5),
        sealed(layers, header=HEADER._replace(sdi=6)): Refused("no keys of SDI 6", 6),
        sealed(layers, key=THIRD): Refused("does not open with the keys of SDI 5 for AN 0", 5, tried=True),
        frame[:-1] + bytes([frame[-1] ^ 1]): Refused("does not open with the keys of SDI 5 for AN 0", 5, tried=True),
    }
    assert {data: opened(data) for data in reasons} == reasons
    for changed in (HEADER._replace(an=1), HEADER._replace(sdi=6)):
        frame_as = frame.replace(HEADER.encode(), changed.encode())
        refused = Opener(KeyRing({5: DOMAIN, 6: replace(DOMAIN, sdi=6)})).open(frame_as)
        assert isinstance(refused, Refused)
        assert (refused.sdi, refused.sealed_as) == (changed.sdi, HEADER)
    pinned = replace(DOMAIN, keys=((DomainKey(FIRST.value, 0),), ()))
    refused = opened(frame.replace(HEADER.encode(), HEADER._replace(epoch=4).encode()), pinned)
    assert refused == Refused("sealed under SDI 5, AN 0 and epoch 0, and changed since", 5, sealed_as=HEADER)
    no_key = Refused("no key of SDI 5 for AN 0 and epoch 0", 5)
    assert opened(frame, replace(DOMAIN, keys=((), (SECOND,)))) == no_key
    assert opened(frame, replace(DOMAIN, keys=((DomainKey(FIRST.value, 1),), ()))) == no_key
    packet = decode(frame[:-20], length=len(frame))
    assert Opener(KeyRing({5: DOMAIN})).open(frame[:-20], packet) == Refused("truncated: not all of it is there", 5)


@given(
    layers=st.sampled_from(([ETHERNET, IPV4, UDP], [ETHERNET, Layer("ipv4", {**IPV4.values, "protocol": 253}),
                                                    Layer("entropy", {"entropy": 3})])),
    flips=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 255)), max_size=4),
    cut=st.integers(0, 150),
    link=st.sampled_from(("ethernet", "raw", "sll")),
)  # fmt: skip
@examples(300)
def test_no_bytes_raise(layers: list[Layer], flips: list[tuple[int, int]], cut: int, link: str) -> None:
    frame = bytearray(sealed(layers))
    for place, byte in flips:
        frame[place % len(frame)] ^= byte
    assert isinstance(opened(bytes(frame[: len(frame) - cut]), link=link), Opened | Refused)
    assert isinstance(opened(bytes(frame) + bytes(cut), link=link), Opened | Refused)
