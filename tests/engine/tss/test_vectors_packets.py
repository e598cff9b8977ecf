# SPDX-License-Identifier: GPL-2.0-only
"""Whole packets, sealed and opened again, byte by byte: tss.md §13.7."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.tss.flows import Flow
from uetproto import decode
from uetproto.engine.tss.cipher import Cipher, SecurityHeader, context, derive, nonce
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing
from uetproto.engine.tss.opener import Opener

H = bytes.fromhex

I = H(  # noqa: E741 - its name in the page
    "118c00000001234500010000"
    "0503000100000001000200030000000000000000000000011122334455667788000000000000000000000010"
    "000102030405060708090a0b0c0d0e0f"
)
COUNTED = DomainKey(bytes(range(32)))
KI = DomainKey(H("34448a064292601b11a0978f56a2d34cf3fc35ede1a6bc04f8db3e5243a2b0ca"))
REKEY: dict[str, Any] = {"rekey_mask": 0x0000FFFF00000000, "rekey_shift": 32}


@dataclass(frozen=True)
class Case:
    """One packet of the page: what goes in, and what every step makes of it."""

    flow: Flow
    domain: DomainConfig
    header: SecurityHeader
    tss: str
    iv: str
    aad: str
    ciphertext: str
    icv: str
    size: int
    clear: str = ""
    """PDS bytes that are not encrypted."""
    mask: str = "000000000000000000000000"

    @property
    def sealed(self) -> bytes:
        return H(self.tss + self.clear + self.ciphertext + self.icv)

    @property
    def key(self) -> DomainKey:
        return self.domain.keys[self.header.an][0]


CASES = {
    "A": Case(
        Flow(4), DomainConfig(sdi=1, mode="direct", keys=((COUNTED,), ())), SecurityHeader(1, 0, 100, 0, 1),
        tss="0c000001000000640000000000000001",
        iv="000000640000000000000001",
        aad="c0a82a01c0a82a02424200000c000001000000640000000000000001",
        ciphertext="aee24c9882f7098bd650cb7a2ee8cf7843a36e79f286d56e4dede1e60c3228a01d0c538bddafae04"
        "695f5e5b50d6a95b946097591a3ed4ee8474abb0c47fe095aae3d2925908e33f",
        icv="4af160115a82aaf276409906af0f8d05",
        size=142,
    ),
    "B": Case(
        Flow(4), DomainConfig(sdi=1, mode="cluster", keys=((KI,), ()), **REKEY),
        SecurityHeader(1, 0, None, 0x1DC0, 0x74E500000023),
        tss="080000011dc074e500000023",
        iv="676eb32d3b70c9b8d5c20e2f",
        aad="c0a82a01c0a82a0242420000080000011dc074e500000023",
        ciphertext="45a0fdb39804275bced67b4557312f53320746ac151e997c4735342dea71f3146d60a4e4e335938b"
        "a51e70ec904a218172906f120ef679615da8bbdca5ba3636958219c865742151",
        icv="f9da5233f0720d41f745c2df156afe02",
        size=138,
        mask="a7c6992c26b0bd5dd5c20e0c",
    ),
    "C": Case(
        Flow(4), DomainConfig(sdi=1, mode="client-server", keys=((), (KI,))), SecurityHeader(1, 1, 100, 0, 7),
        tss="0d000001000000640000000000000007",
        iv="222b7d122deade2c2aadfbf1",
        aad="c0a82a01c0a82a02424200000d000001000000640000000000000007",
        ciphertext="4cb7f93ef32db224275100d83224c269b81ee5728c153c5b495bf06f74a328359436aee400aae1db"
        "da652191364c4b47b57a8a7335f5519d58fe0d0621c3a6fcb0fd120429af69c0",
        icv="1d2fb58b88283f51447a0d9f749923cc",
        size=142,
        mask="222b7d762deade2c2aadfbf6",
    ),
    "D": Case(
        Flow(6), DomainConfig(sdi=0x1234, mode="cluster", keys=((KI,), ()), **REKEY),
        SecurityHeader(0x1234, 0, None, 0x1DC0, 0x74E500000023),
        tss="080012341dc074e500000023",
        iv="9c96b74132751279cd5ded1c",
        aad="20010cb0000000000fc0000000000abc20010cb0000000000fc0000000000abd42420000"
        "080012341dc074e500000023",
        ciphertext="1a5cb0b74aa30c953b7193a69216ee8a59f5957568ff702d33d092968f06cc7580e39bef4abcb922"
        "e5499b8e023f68933f7445c417f8097f6afd0c9bf1d399b56a720dca33c7ec6f",
        icv="62ec47f0351f296e96e20220f0b92987",
        size=158,
        mask="9c96a5752fb5669ccd5ded3f",
    ),
    "E": Case(
        Flow(4), DomainConfig(sdi=1, mode="direct", keys=((COUNTED,), ()), crypto_offset=28),
        SecurityHeader(1, 0, 100, 0, 2),
        tss="0c000001000000640000000000000002",
        iv="000000640000000000000002",
        aad="c0a82a01c0a82a02424200000c000001000000640000000000000002118c00000001234500010000",
        clear="118c00000001234500010000",
        ciphertext="eed2b0ca36b50fa07fb88b5b8ba02d85e073aefbe865543c4695fa739a76e010c36280b9612d8914"
        "3d15ff1b8d56608f713a1033c612b371f7fa5bfd",
        icv="f7210676cf15b3b603c8114f25ef7345",
        size=142,
    ),
    "F": Case(
        Flow(4, udp=True), DomainConfig(sdi=1, mode="direct", keys=((COUNTED,), ())), SecurityHeader(1, 0, 100, 0, 3),
        tss="0c000001000000640000000000000003",
        iv="000000640000000000000003",
        aad="c0a82a01c0a82a02424212b9007000000c000001000000640000000000000003",
        ciphertext="23be07fc9ef11b1e52415749623795cf3e063b85771cce37d63945642b63af362d5d2e6fed321ab8"
        "1bf62fa7726f339cb57fa5e7145ef6c1c976ee8b09a35dc21300e72227202de6",
        icv="667854d921bd9c994053f2c8bd17046c",
        size=146,
    ),
}  # fmt: skip

each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@each
def test_the_steps(case: Case) -> None:
    below = case.flow.below(len(case.sealed))
    assert case.header.encode().hex() == case.tss
    assert SecurityHeader.of(case.sealed) == case.header
    assert nonce(case.header, below, H(case.mask)).hex() == case.iv
    assert (below.run + H(case.tss + case.clear)).hex() == case.aad


@each
def test_sealed_and_opened(case: Case) -> None:
    below = case.flow.below(len(case.sealed))
    cipher = Cipher(case.domain, case.key)
    assert cipher.seal(case.header, below, I) == case.sealed
    assert cipher.open(case.header, below, case.sealed) == I


@each
def test_the_frame_opened(case: Case) -> None:
    """What comes out is the frame that would have been sent without TSS."""
    frame = case.flow.frame(case.sealed)
    assert len(frame) == case.size
    sdi, an, ssi, epoch, tsc = case.header
    opened = Opener(KeyRing({sdi: case.domain})).open(frame)
    assert opened[:6] == (case.flow.plain_frame(I), sdi, an, epoch, tsc, ssi)


@pytest.mark.parametrize(
    ("case", "head"),
    [
        ("A", "0200000000020200000000010800450200800000400040fd642bc0a82a01c0a82a0242420000"),
        ("B", "02000000000202000000000108004502007c0000400040fd642fc0a82a01c0a82a0242420000"),
        ("D", "02000000000202000000000186dd602000000068fd40"),
    ],
)
def test_the_headers_of_the_frame(case: str, head: str) -> None:
    frame = CASES[case].flow.frame(CASES[case].sealed)
    assert frame.startswith(H(head))
    assert frame.endswith(CASES[case].sealed)


def test_the_derived_key_of_c() -> None:
    made = context(0, 0, H("00000064"))
    assert made.hex() == "00000000000000000064"
    key, mask = derive(KI.value, b"U2", made)
    assert key.hex() == "33e54308529b78dda016fc201516d7742dd23d777c369faa29f33b2b6b91664b"
    assert mask.hex() == "222b7d762deade2c2aadfbf6"


ADDRESSES_OF_D = "20010cb0000000000fc0000000000abc20010cb0000000000fc0000000000abd"


@pytest.mark.parametrize(
    ("flow", "covered", "crc", "head"),
    [
        (Flow(4), 84, "0a887e7e",
         "0200000000020200000000010800450200640000400040fd6447c0a82a01c0a82a0242420000"),
        (Flow(6), 108, "dcbdc1ba",
         "02000000000202000000000186dd602000000050fd40" + ADDRESSES_OF_D + "42420000"),
        (Flow(4, udp=True), 88, "1df51b95",
         "020000000002020000000001080045020068000040004011652fc0a82a01c0a82a02424212b900540000"),
        (Flow(6, udp=True), 112, "21a5faa4",
         "02000000000202000000000186dd6020000000541140" + ADDRESSES_OF_D + "424212b900540000"),
    ],
    ids=["IPv4", "IPv6", "IPv4 UDP", "IPv6 UDP"],
)  # fmt: skip
def test_packets_with_crc(flow: Flow, covered: int, crc: str, head: str) -> None:
    """The same inner packet without TSS."""
    frame = H(head) + I + H(crc)
    assert flow.plain_frame(I) == frame
    assert len(frame) - 4 - flow.start == covered
    packet = decode(frame, crc="on")
    assert packet.error is None
    assert packet.trailer is not None
    assert packet.trailer.ok
