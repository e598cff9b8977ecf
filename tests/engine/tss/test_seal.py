# SPDX-License-Identifier: GPL-2.0-only
"""Seal and open one packet, whatever mode, addresses and offset: tss.md §14, properties 1–3, 6–9, 17, 18."""

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from tests.support.effort import examples
from tests.support.tss.flows import Flow
from uetproto import decode
from uetproto.engine.tss.cipher import AssociatedData, Cipher, Refused, SecurityHeader, context, derive, kdf
from uetproto.engine.tss.domain import OpenedPacket, SecureDomain
from uetproto.engine.tss.keys import DERIVED_SIZE, MODES, DomainConfig, DomainKey, KeyRing
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.errors import LocalError
from uetproto.wire.stack import TRIMMED_DSCP

KEY = DomainKey(bytes(range(32)))
BELOW = Flow().below(0)


@dataclass(frozen=True)
class Secured:
    """A flow, the domain that both ends are in, and a packet of it."""

    flow: Flow
    domain: DomainConfig
    inner: bytes
    tsc64: int

    @property
    def cipher(self) -> Cipher:
        return Cipher(self.domain, KEY)

    @property
    def header(self) -> SecurityHeader:
        ssi = self.domain.ssi_of(self.flow.src, self.flow.dst)
        return SecurityHeader(self.domain.sdi, 1, ssi, self.tsc64 >> 48, self.tsc64 & (2**48 - 1))

    @property
    def size(self) -> int:
        return self.header.size + len(self.inner) + 16

    @property
    def below(self) -> AssociatedData:
        return self.flow.below(self.size)

    @property
    def sealed(self) -> bytes:
        return self.cipher.seal(self.header, self.below, self.inner)

    @property
    def frame(self) -> bytes:
        return self.flow.frame(self.sealed)

    def open(self, frame: bytes) -> Opened | Refused:
        return Opener(KeyRing({self.domain.sdi: self.domain})).open(frame)


@st.composite
def secured(draw: st.DrawFn, **fixed: Any) -> Secured:
    flow = Flow(fixed.get("version") or draw(st.sampled_from((4, 6))), draw(st.booleans()))
    flow = draw(st.sampled_from((flow, flow.back())))
    mode = fixed.get("mode") or draw(st.sampled_from(MODES))
    values: dict[str, Any] = {"sdi": draw(st.integers(0, 2**24 - 1)), "mode": mode, "keys": ((), (KEY,))}
    if draw(st.booleans()):
        values["ssis"] = {flow.src: 1, flow.dst: draw(st.integers(2, 2**32 - 1))}
    if mode == "cluster":
        values |= draw(st.sampled_from(({}, {"rekey_mask": 0xFF00, "rekey_shift": 8})))
    if mode == "client-server":
        values["servers"] = draw(st.sampled_from((frozenset[int](), frozenset({flow.src}), frozenset({flow.dst}))))
    values["crypto_offset"] = draw(st.one_of(st.just("header"), st.integers(12, 30), st.sampled_from((60, 1000))))
    values["ipv6_ssi_context"] = draw(st.sampled_from(("large", "small")))
    inner = b"\x11" + draw(st.binary(min_size=11, max_size=200))
    return Secured(flow, DomainConfig(**values), inner, draw(st.integers(0, 2**64 - 1)))


# One packet -----------------------------------------------------------------------------------------------------------


@given(case=secured())
@examples(200)
def test_what_is_sealed_opens(case: Secured) -> None:
    """Property 1, and the clear bytes of §7.2."""
    sealed = case.sealed
    assert len(sealed) == len(case.inner) + case.header.size + 16
    assert case.cipher.open(case.header, case.below, sealed) == case.inner
    clear = max(0, case.domain.clear_bytes - case.header.size)
    assert sealed[case.header.size :].startswith(case.inner[:clear])
    sdi, an, ssi, epoch, tsc = case.header
    assert case.open(case.frame)[:6] == (case.flow.plain_frame(case.inner), sdi, an, epoch, tsc, ssi)


@given(case=secured(), bit=st.integers(0, 2**16))
@examples(400)
def test_no_bit_may_change(case: Secured, bit: int) -> None:
    """Property 2: addresses, entropy or UDP header, security header, ciphertext, ICV."""
    frame = bytearray(case.frame)
    place = case.flow.start + bit // 8 % (len(frame) - case.flow.start)
    checksum = range(case.flow.end - 2, case.flow.end) if case.flow.udp else ()
    assume(place not in checksum)
    frame[place] ^= 1 << bit % 8
    assert isinstance(case.open(bytes(frame)), Refused)


@given(case=secured(), cut=st.integers(1, 300))
def test_no_byte_may_be_missing(case: Secured, cut: int) -> None:
    sealed = case.sealed
    assert case.cipher.open(case.header, case.below, sealed[:-cut]) is None


@pytest.mark.parametrize("offset", range(12, 30))
def test_every_crypto_offset(offset: int) -> None:
    """§7.2: so many bytes from the first of the security header on are in clear, and no byte more."""
    header, inner = SecurityHeader(1, 0, None, 0, 1), bytes(range(100, 140))
    cipher = Cipher(DomainConfig(sdi=1, mode="direct", keys=((KEY,), ()), crypto_offset=offset), KEY)
    sealed = cipher.seal(header, BELOW, inner)
    assert sealed[:offset] == header.encode() + inner[: offset - 12]
    assert sealed[offset : offset + 4] != inner[offset - 12 :][:4]
    assert cipher.open(header, BELOW, sealed) == inner


_MAY_CHANGE = {4: (*range(12), 15, 18, 19, 22, 24, 25), 6: (*range(12), 15, 16, 17, 21)}
"""Ethernet addresses; ToS, id, TTL and checksum of IPv4; class, flow label and hop limit of IPv6."""


@given(case=secured(), place=st.integers(0, 100), byte=st.integers(1, 255))
@examples(200)
def test_what_the_path_may_change(case: Secured, place: int, byte: int) -> None:
    """Property 3. A UDP checksum is ignored (§7.3)."""
    frame = bytearray(case.frame)
    udp = (case.flow.end - 2, case.flow.end - 1) if case.flow.udp else ()
    places = (*_MAY_CHANGE[case.flow.version], *udp)
    frame[places[place % len(places)]] ^= byte
    packet = decode(bytes(frame))
    assume(packet["ip" + f"v{case.flow.version}"]["dscp"] not in TRIMMED_DSCP)
    opened = case.open(bytes(frame))
    assert isinstance(opened, Opened)
    assert opened.plain_frame[case.flow.start :] == case.flow.plain_frame(case.inner)[case.flow.start :]


@given(inner=st.binary(min_size=12, max_size=100), mode=st.sampled_from(MODES))
def test_sealed_again_is_another_packet(inner: bytes, mode: str) -> None:
    """Property 6: a retransmission is a new sealing (§8)."""
    member = SecureDomain(DomainConfig(sdi=1, mode=mode, keys=((KEY,), ())), Flow().src, 4)
    first, second = (member.seal(Flow().below(0), inner) for _ in range(2))
    assert first is not None
    assert second is not None
    (one, two) = (SecurityHeader.of(first), SecurityHeader.of(second))
    assert one is not None
    assert two == one._replace(tsc=one.tsc + 1)
    assert first[12:-16] != second[12:-16]
    assert first[-16:] != second[-16:]


# Who can open what ----------------------------------------------------------------------------------------------------


@given(case=secured(mode="cluster"))
@examples(100)
def test_a_packet_with_another_source_does_not_open(case: Secured) -> None:
    """Property 7."""
    assert case.cipher.open(case.header, replace(case, flow=case.flow.back()).below, case.sealed) is None


@given(version=st.sampled_from((4, 6)), tsc64=st.integers(0, 2**64 - 1), inner=st.binary(max_size=100))
def test_senders_of_a_cluster_have_keys_of_their_own(version: int, tsc64: int, inner: bytes) -> None:
    """Property 7: equal TSC64, different SDKs."""
    case = Secured(Flow(version), DomainConfig(sdi=1, mode="cluster", keys=((), (KEY,))), inner, tsc64)
    own, peers = (
        DomainKey(b"".join(derive(KEY.value, b"U1", context(tsc64 >> 48, 0, end.below.source))))
        for end in (case, replace(case, flow=case.flow.back()))
    )
    assert own != peers
    alone = DomainConfig(sdi=1, mode="client-server")
    assert Cipher(alone, own).open(case.header, case.below, case.sealed) == inner
    assert Cipher(alone, peers).open(case.header, case.below, case.sealed) is None


def client_key(ssi: int) -> DomainKey:
    """What a client is given: packet key and IV mask of epoch 0 (§4)."""
    key, mask = derive(KEY.value, b"U2", context(0, 0, ssi.to_bytes(4, "big")))
    assert len(key + mask) == DERIVED_SIZE
    return DomainKey(key + mask)


@given(inner=st.binary(min_size=12, max_size=64))
def test_clients_of_a_server_cannot_read_each_other(inner: bytes) -> None:
    """Property 8: nor forge each other's packets."""
    server, a, b = 0x0A000001, 0x0A000002, 0x0A000003
    members = {server: 1, a: 2, b: 3}
    of_all = DomainConfig(sdi=1, mode="client-server", keys=((KEY,), ()), ssis=members, servers=frozenset({server}))
    of_a, of_b = (replace(of_all, keys=((client_key(members[end]),), ())) for end in (a, b))
    at_server, at_a, at_b = (SecureDomain(how, end, 4) for how, end in ((of_all, server), (of_a, a), (of_b, b)))

    def carry(sender: SecureDomain, receiver: SecureDomain, src: int, dst: int) -> object:
        below = Flow(src=src, dst=dst).below(0)
        sealed = sender.seal(below, inner)
        assert sealed is not None
        header = SecurityHeader.of(sealed)
        assert header is not None
        result = receiver.receive(header, below, sealed)
        return result.inner if isinstance(result, OpenedPacket) else None

    for client, address in ((at_a, a), (at_b, b)):
        assert carry(client, at_server, address, server) == inner
        assert carry(at_server, client, server, address) == inner
    assert carry(at_server, at_a, server, b) is None  # reads along
    assert carry(at_a, at_server, b, server) is None  # pretends to be b


# Keys -----------------------------------------------------------------------------------------------------------------


@given(
    key=st.binary(min_size=32, max_size=32),
    epoch=st.integers(0, 2**16 - 1),
    rekey=st.integers(0, 2**32 - 1),
    identity=st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    label=st.sampled_from((b"U1", b"U2")),
    bit=st.integers(0, 2**16),
)
def test_every_bit_counts_in_a_derived_key(
    key: bytes, epoch: int, rekey: int, identity: bytes, label: bytes, bit: int
) -> None:
    """Property 9, §5.1: a block's input is 16 or 32 bytes, the output 44; one bit of it changes key and mask."""
    made = context(epoch, rekey, identity)
    assert len(b"\1" + label + b"\0" + made + b"\1\x60") == (16 if len(identity) == 4 else 32)
    assert kdf(key, label + b"\0" + made + b"\1\x60", 44) == b"".join(derive(key, label, made))

    parts = key + label + made
    flipped = bytearray(parts)
    flipped[bit // 8 % len(parts)] ^= 1 << bit % 8
    other = derive(bytes(flipped[:32]), bytes(flipped[32:34]), bytes(flipped[34:]))
    assert all(one != two for one, two in zip(derive(key, label, made), other, strict=True))
    assert [len(part) for part in other] == [32, 12]


@pytest.mark.parametrize(
    ("version", "how", "identity"),
    [
        (4, "large", bytes.fromhex("00000064")),
        (6, "small", bytes.fromhex("00000064")),
        (6, "large", Flow(6).src.to_bytes(16, "big")),
    ],
)
def test_the_identity_of_a_sender_with_ssi(version: int, how: str, identity: bytes) -> None:
    """§5.2: under IPv6 it is the address, as on the wire, or by choice the SSI."""
    domain = DomainConfig(sdi=1, mode="cluster", keys=((KEY,), ()), ipv6_ssi_context=how)
    header = SecurityHeader(1, 0, 100, 0, 1)
    sealed = Cipher(domain, KEY).seal(header, Flow(version).below(0), b"inner")
    key, mask = derive(KEY.value, b"U1", context(0, 0, identity))
    alone = DomainConfig(sdi=1, mode="client-server", keys=((DomainKey(key + mask),), ()))
    assert Cipher(alone, DomainKey(key + mask)).open(header, Flow(version).below(0), sealed) == b"inner"


@pytest.mark.parametrize(
    ("mask", "shift", "tsc64", "rekey"),
    [
        (0xFF00, 8, 0x1FF, 1),  # a new packet key every 256 packets
        (0xFF00, 8, 0x200, 2),
        (0xFFFF00000000, 32, 0x1FFFFFFFF, 1),  # every 2^32
        (0xFFFF00000000, 32, 0x200000000, 2),
        (0xFFFF << 48, 48, 7 << 48 | 9, 7),  # every epoch
        (0, 0, 2**64 - 1, 0),
    ],
)
def test_rekey(mask: int, shift: int, tsc64: int, rekey: int) -> None:
    """§5.4: its bits come from epoch and counter of the packet."""
    domain = DomainConfig(sdi=1, mode="cluster", rekey_mask=mask, rekey_shift=shift)
    header = SecurityHeader(1, 0, None, tsc64 >> 48, tsc64 & 2**48 - 1)
    sealed = Cipher(domain, KEY).seal(header, BELOW, b"inner")
    for other, inner in ((rekey, b"inner"), (rekey ^ 1, None)):
        key = DomainKey(b"".join(derive(KEY.value, b"U1", context(tsc64 >> 48, other, BELOW.source))))
        assert Cipher(DomainConfig(sdi=1, mode="client-server"), key).open(header, BELOW, sealed) == inner


def test_forged_epochs_do_not_fill_the_memory() -> None:
    cipher = Cipher(DomainConfig(sdi=1, mode="cluster", keys=((KEY,), ())), KEY)
    good = SecurityHeader(1, 0, None, 0, 1)
    sealed = cipher.seal(good, BELOW, b"inner")
    for epoch in range(5000):
        assert cipher.open(good._replace(epoch=epoch), BELOW, sealed) == (b"inner" if epoch == 0 else None)
        assert len(cipher._derived) <= 4096
    assert cipher.open(good, BELOW, sealed) == b"inner"


def test_a_security_header_cut_short_is_none() -> None:
    for ssi, size in ((None, 12), (7, 16)):
        whole = SecurityHeader(1, 1, ssi, 2, 3).encode()
        assert len(whole) == size
        assert [SecurityHeader.of(whole[:cut]) for cut in range(size)] == [None] * size


# The package cryptography ---------------------------------------------------------------------------------------------


def test_nothing_is_loaded_before_the_first_key() -> None:
    """Who does not seal does not need it."""
    code = "import sys, uetproto.engine.tss.port, uetproto.engine.tss.opener; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(LocalError, match=r"pip install 'uetproto\[security\]'"):
        Cipher(DomainConfig(sdi=1, mode="direct"), KEY)


# Trailers -------------------------------------------------------------------------------------------------------------


@given(case=secured(), bits=st.lists(st.integers(0, 2**16), min_size=1, max_size=2, unique=True))
@examples(200)
def test_the_crc_sees_one_or_two_wrong_bits(case: Secured, bits: list[int]) -> None:
    """Property 17."""
    frame = bytearray(case.flow.plain_frame(case.inner))
    start, covered = case.flow.start, 8 * (len(frame) - case.flow.start)
    checksum = range(case.flow.end - 2, case.flow.end) if case.flow.udp else ()
    places = {bit % covered for bit in bits}
    assume(not any(start + place // 8 in checksum for place in places))
    for place in places:
        frame[start + place // 8] ^= 1 << place % 8
    packet = decode(bytes(frame), crc="on")
    assert packet.trailer is None or packet.trailer.ok is False


@given(case=secured(), dscp=st.integers(0, 63), ecn=st.integers(0, 3), hops=st.integers(0, 255))
def test_the_crc_does_not_see_what_the_path_changes(case: Secured, dscp: int, ecn: int, hops: int) -> None:
    """Property 17: DSCP, ECN, TTL."""
    assume(dscp not in TRIMMED_DSCP)
    inner = bytes.fromhex("118c00000001234500010000") + bytes(44)
    frame = bytearray(case.flow.plain_frame(inner))
    if case.flow.version == 4:
        frame[15], frame[22] = dscp << 2 | ecn, hops
    else:
        frame[14:16] = (6 << 12 | dscp << 6 | ecn << 4).to_bytes(2, "big")
        frame[21] = hops
    packet = decode(bytes(frame), crc="on")
    assert packet.trailer is not None
    assert packet.trailer.ok


@given(case=secured())
def test_one_trailer_inside_the_lengths(case: Secured) -> None:
    """Property 18, and the lengths of §7.4."""
    sealed = case.frame
    opened = case.open(sealed)
    assert isinstance(opened, Opened)
    assert decode(sealed).trailer == ("icv", int.from_bytes(sealed[-16:], "big"), None)
    for frame in (sealed, opened.plain_frame):
        packet = decode(frame)
        size = len(frame) - 14
        if case.flow.version == 4:
            assert packet["ipv4"]["total_length"] == size
        else:
            assert packet["ipv6"]["payload_length"] == size - 40
        if case.flow.udp:
            assert packet["udp"]["length"] == size - (20 if case.flow.version == 4 else 40)
    assert len(sealed) - len(opened.plain_frame) == case.header.size + 16 - 4
