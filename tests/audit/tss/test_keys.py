# SPDX-License-Identifier: GPL-2.0-only
"""What keys tell of a capture: packets that do not open though they have to, and nonces used twice under one key."""

import itertools
from dataclasses import replace

import pytest

from tests.support.audit import frames as f
from tests.support.audit.build import A, B
from tests.support.each import each
from tests.support.tss.sealing import KEY, domain, over, sealed
from uetproto.audit.report import AuditReport
from uetproto.engine.tss.cipher import context, derive
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing
from uetproto.engine.tss.ledger import NonceLedger

pytest.importorskip("cryptography")

PLAIN = f.frame(f.MAC, f.V4, f.UDP, f.REQUEST, f.WRITE)
V6 = 0xFD << 120
TOLD = ("TSS-ICV", "TSS-NONCE-*", "TSS-*-ORDER")


def between(src: int, dst: int, version: int = 4) -> bytes:
    """The plain packet, between other ends."""
    return over(f.frame(f.MAC, f.changed(f.V4, src=src, dst=dst), f.UDP, f.REQUEST, f.WRITE), version=version)


def ring(*domains: DomainConfig) -> KeyRing:
    return KeyRing({each.sdi: replace(each, strict_tsc_halves=False) for each in domains})


def why(report: AuditReport, rule: str) -> tuple[int, int, dict[str, int]]:
    """How often a rule was judged and passed, and why it was not judged."""
    tally = report.tallies[rule]
    return tally.judged, tally.passed, dict(tally.not_judged)


# Forged packets -------------------------------------------------------------------------------------------------------

AT = {"address": 29, "port": 35, "AN": 42, "SDI": 45, "epoch": 47, "counter": 53, "ciphertext": 80, "ICV": -1}
"""Bytes of a sealed frame over UDP of which one bit is changed."""


@pytest.mark.parametrize("at", AT.values(), ids=AT)
@pytest.mark.parametrize("wrong", [(0,), (30,), (0, 1, 17, 28, 39)], ids=["first", "middle", "five"])
def test_a_forged_bit(at: int, wrong: tuple[int, ...]) -> None:
    """Each is found, wherever it is, and nothing else is said of it."""
    frames = [sealed(PLAIN, domain(), tsc=tsc) for tsc in range(40)]
    for number in wrong:
        frames[number] = f.spoilt(frames[number], at)
    report = f.audited(frames, keys=ring(domain()), rules=TOLD, complete=True, ordered=True)
    assert f.found(report) == [("TSS-ICV", number) for number in wrong]
    assert why(report, "TSS-ICV") == (40, 40 - len(wrong), {})


def test_a_forged_bit_in_a_run() -> None:
    """What was in the packet is missing, and nobody is accused of it."""
    frames = f.frames_of("gradient-sealed-lossy.pcapng")
    keys = KeyRing.read(f.GOLDEN / "gradient-sealed-lossy.keys.toml")
    assert f.found(f.audited(frames, keys=keys, complete=True, ordered=True)) == []
    for number in range(len(frames)):
        forged = [*frames[:number], f.spoilt(frames[number], -3), *frames[number + 1 :]]
        report = f.audited(forged, keys=keys, complete=True)
        assert f.found(report) == [("TSS-ICV", number)]


def test_without_keys_nothing_is_said_to_open() -> None:
    frames = [f.spoilt(sealed(PLAIN, domain(), tsc=tsc)) for tsc in range(8)]
    assert why(f.audited(frames), "TSS-ICV") == (0, 0, {"no keys": 8})
    other = f.audited(frames, keys=ring(domain(sdi=2)))
    assert why(other, "TSS-ICV") == (0, 0, {"not whole, or no key for it": 8})
    wrong = f.audited(frames, keys=ring(domain()))
    assert wrong.findings == []
    assert why(wrong, "TSS-ICV") == (0, 0, {"no other packet opens that has its key": 8})


def test_a_packet_that_is_cut_may_open() -> None:
    frames = [sealed(PLAIN, domain(), tsc=tsc) for tsc in range(8)]
    file = f.capture([frames[0], frames[1][:-1], *frames[2:]], lengths=[len(frame) for frame in frames])
    report = f.audit([file], f.Options(keys=ring(domain()), rules=TOLD))
    assert report.findings == []
    assert why(report, "TSS-ICV") == (7, 7, {"not whole, or no key for it": 1})


def test_the_next_key_of_an_an_may_be_missing() -> None:
    """AN 0, AN 1, and AN 0 with a key that the file does not have: no packet of that key has to open."""
    later = replace(domain(), keys=((DomainKey(bytes(32)),), ()))
    frames = [
        *(sealed(PLAIN, domain(), tsc=tsc) for tsc in range(9)),
        *(sealed(PLAIN, domain(), tsc=tsc, an=1) for tsc in range(9)),
        *(sealed(PLAIN, later, tsc=tsc) for tsc in range(9)),
    ]
    report = f.audited(frames, keys=ring(domain()), rules=TOLD, ordered=True)
    assert report.findings == []
    assert why(report, "TSS-ICV") == (18, 18, {"no other packet opens that has its key": 9})


def test_a_client_does_not_open_what_another_client_says() -> None:
    """A client's file has its own derived key only; its own packets are judged in both directions."""
    of = domain("client-server", servers=[B])
    key, mask = derive(KEY, b"U2", context(0, 0, A.to_bytes(4, "big")))
    own = replace(of, keys=((DomainKey(key + mask),), ()), servers=frozenset())
    ends = [(A, B), (B, A), (A + 7, B), (B, A + 7)]
    frames = [sealed(between(*each), of, tsc=tsc) for tsc in range(5) for each in ends]
    frames[12] = f.spoilt(frames[12])
    report = f.audited(frames, keys=ring(own), rules=TOLD)
    assert f.found(report) == [("TSS-ICV", 12)]
    assert why(report, "TSS-ICV") == (10, 9, {"no other packet opens that has its key": 10})


# Nonces ---------------------------------------------------------------------------------------------------------------

SENDERS = [(A, B), (B, A), (A + 7, B), (B, A + 7)]
"""From client to server and back, twice: B is the server."""


@each("ssi", [None, 9])
@each("version", [4, 6])
@each("mode", ["direct", "cluster", "client-server"])
@each("pair", list(itertools.combinations(SENDERS, 2)))
def test_two_senders_with_one_counter(
    pair: tuple[tuple[int, int], ...], mode: str, version: int, ssi: int | None
) -> None:
    """What the ledger of the nonces says is found with the keys; without them it never passes."""
    wide = V6 if version == 6 else 0
    of, ledger = domain(mode, servers=[B + wide] if mode == "client-server" else []), NonceLedger()
    frames = [sealed(between(*ends, version), of, tsc=tsc, ssi=ssi, ledger=ledger) for ends in pair for tsc in range(6)]
    report = f.audited(frames, keys=ring(of), rules=TOLD)
    blind = f.audited(frames, rules=TOLD)
    by_one = pair[0][0] == pair[1][0]
    rule = "TSS-NONCE-REUSED" if by_one else "TSS-NONCE-SHARED"
    assert f.found(report) == [(rule, number) for number in range(6, 12) if ledger.repeated]
    assert ledger.repeated in (0, 6)
    tally = blind.tallies["TSS-NONCE-SHARED"]
    assert tally.passed == 0
    if not by_one:  # a sender has one counter for all its peers
        assert tally.failed == len(blind.findings) <= ledger.repeated
        assert not ledger.repeated or tally.asked == 6


def test_what_is_compared_with_nobody_does_not_pass() -> None:
    """One sender shares its nonces with nobody."""
    report = f.audited([sealed(PLAIN, domain(), tsc=tsc, ssi=1) for tsc in range(6)], keys=ring(domain()))
    assert why(report, "TSS-NONCE-SHARED") == (0, 0, {})
    assert why(report, "TSS-NONCE-REUSED") == (6, 6, {})
