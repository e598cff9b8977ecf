# SPDX-License-Identifier: GPL-2.0-only
"""Every rule about sealed packets: counters and epochs that violate it, and a twin that is right."""

import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.audit import frames as f
from tests.support.audit.build import GOLDEN, ROOT, A, B, head, packet
from tests.support.audit.tss_rules import (
    KEYS,
    Line,
    TssAudit,
    observed,
    sealed,
)
from uetproto import Layer
from uetproto.audit.auditor import audit
from uetproto.audit.reader.address import IPV6
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.audit.rules import BY_ID
from uetproto.audit.tss.counters import CONTENTS, RANGES, UsedCounters
from uetproto.audit.tss.rules import RULES
from uetproto.engine.tss.keys import DomainConfig, KeyRing
from uetproto.wire.capture.pcap import ETHERNET, RAW

REFPROV = Path(os.environ.get("UETPROTO_SHARED", ROOT.parent / "shared")) / "captures" / "refprov"
HALF = 1 << 47
SEALED_SSI = Layer("tss.ssi", {"sp": 1, "sdi": 7, "tsc": 9, "ssi": 3})
V6 = IPV6 | 0xFD00 << 112


def split(tsc: int, src: int) -> Line:
    src, dst, leads, others = sealed(tsc, src)
    return src, dst, leads._replace(sdi=1), others


def inside(**values: int) -> Line:
    """What was in the packet before."""
    return A, B, head("pds.rud_req", spdcid=7, dpdcid=3, **values), {"inside": True}


def nack() -> Line:
    return B, A, head("pds.nack", dpdcid=7), {}


class Case(NamedTuple):
    """A violation, its packets, and what is right instead."""

    rule: str
    wrong: list[Line]
    packets: tuple[int, ...]
    right: list[Line]


CASES = (
    Case("TSS-NONCE-REUSED", [sealed(0), sealed(1), sealed(1), sealed(2)], (1, 2), [sealed(n) for n in range(4)]),
    Case("TSS-NONCE-REUSED", [sealed(0), sealed(5), sealed(0)], (0, 2),
         [sealed(0), sealed(5), sealed(0, content=1000)]),  # the network copied it
    Case("TSS-NONCE-SHARED", [sealed(0, ssi=9), sealed(0, B, ssi=9)], (0, 1),
         [sealed(0, ssi=9), sealed(HALF, B, ssi=9), sealed(0, B, ssi=8), sealed(1, ssi=9)]),
    Case("TSS-TSC-ORDER", [sealed(0), sealed(2), sealed(1)], (2,), [sealed(0), sealed(2), sealed(3)]),
    Case("TSS-EPOCH-ORDER", [sealed(0), sealed(1, epoch=1), sealed(2), sealed(3, epoch=0xFFFF)], (3,),
         [sealed(0, epoch=0xFFFF), sealed(1, epoch=0), sealed(2, epoch=1)]),
    Case("TSS-AN-ORDER", [sealed(0), sealed(0, an=1), sealed(1)], (2,),
         [sealed(0), sealed(0, an=1), sealed(0), sealed(1)]),
    Case("TSS-TSC-HALF", [split(HALF, A)], (0,), [split(0, A)]),
    Case("TSS-TSC-HALF", [split(0, B)], (0,), [split(HALF, B)]),
    Case("TSS-CLEAR-AMONG-SEALED", [sealed(0), inside(), nack()], (0, 1), [sealed(0), inside(), sealed(0, B)]),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_violation(case: Case) -> None:
    (found,) = TssAudit().see(observed(case.wrong))
    assert (found.rule.id, found.packets) == (case.rule, case.packets)
    assert found.text
    assert found.as_dict()["flow"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_twin(case: Case) -> None:
    assert TssAudit().see(observed(case.right)) == []


def test_every_rule_has_a_case() -> None:
    """That of TSS-ICV needs keys: test_keys.py."""
    assert {case.rule for case in CASES} == {rule.id for rule in RULES} - {"TSS-ICV"}
    covered = {name for rule in (*RULES, BY_ID["TSS-CRC-TOO"]) for name in rule.covers}
    assert covered == {"tss 2", "tss 4", "tss 5", "tss 18"}


@pytest.mark.parametrize("lower", f.LOWER.values(), ids=f.LOWER)
@pytest.mark.parametrize(
    "leads", [f.SEALED, Layer("tss.ssi", {"sp": 1, "sdi": 7, "tsc": 9, "ssi": 3})], ids=["tss", "ssi"]
)
def test_a_crc_behind_an_icv(lower: tuple[Layer, ...], leads: Layer) -> None:
    """Found wherever it is, also when readers for usual sealed packets have been made."""
    good = [f.frame(*lower, leads, payload=bytes([n]) * 60, trailer=None) for n in range(30)]
    wrong = f.frame(*lower, leads, payload=bytes(56), trailer=f.CRC)
    frames = [*good[:4], wrong, *good[4:], wrong, wrong[:-9]]
    link = ETHERNET if lower[0].form == "ethernet" else RAW
    lengths = [len(each) for each in frames[:-1]] + [len(wrong)]
    for crc in ("auto", "on", "off"):  # which is about packets that are not sealed
        report = audit([f.capture(frames, link, lengths)], Options(rules=("TSS-CRC-TOO",), crc=crc))
        assert f.found(report) == [("TSS-CRC-TOO", 4), ("TSS-CRC-TOO", 31)]
        tally = report.tallies["TSS-CRC-TOO"]
        assert (tally.judged, dict(tally.not_judged)) == (32, {"cut by the capture": 1})


def test_order_is_judged_only_where_it_is_promised() -> None:
    for case in CASES:
        ids = {finding.rule.id for finding in TssAudit(Options()).see(observed(case.wrong))}
        assert not ids & {"TSS-TSC-ORDER", "TSS-EPOCH-ORDER", "TSS-AN-ORDER", "TSS-TSC-HALF"}


# What must not be found -----------------------------------------------------------------------------------------------


def test_an_an_that_comes_again_has_another_key() -> None:
    """Two rotations: AN 0, AN 1, and AN 0 with the next key, whose counter begins at 0."""
    lines = [sealed(n, an=an) for an in (0, 1, 0, 1) for n in range(100)]
    assert TssAudit().see(observed(lines)) == []


@pytest.mark.parametrize(
    "domain",
    [
        DomainConfig(sdi=1, mode="client-server", keys=KEYS),
        DomainConfig(sdi=1, mode="cluster", keys=KEYS),
        DomainConfig(sdi=2, mode="client-server", keys=KEYS, servers=frozenset({B})),
    ],
    ids=["no server", "another mode", "another domain"],
)
def test_halves_are_those_of_clients_and_servers(domain: DomainConfig) -> None:
    """Where nobody is known to be a server, all counters are as good."""
    audit_ = TssAudit(Options(keys=KeyRing({domain.sdi: domain})))
    assert audit_.see(observed([split(0, A), split(HALF | 1, A), split(2, B), split(HALF | 3, B)])) == []
    assert audit_.judge.tallies["TSS-TSC-HALF"].judged == 0


@pytest.mark.parametrize("begin", [0, 5])
def test_the_next_key_of_an_an_is_followed_like_the_first(begin: int) -> None:
    """Its counters are new, and none of them is used twice."""
    lines = [*(sealed(n) for n in range(100)), sealed(0, an=1), sealed(begin, content=1), sealed(begin, content=2)]
    assert [(f.rule.id, f.packets) for f in TssAudit().see(observed(lines))] == [("TSS-NONCE-REUSED", (101, 102))]


def test_unknown_bytes_rest() -> None:
    audit_ = TssAudit()
    src, dst, leads, _ = sealed(0)
    assert audit_.see(observed([sealed(0), (src, dst, leads, {"content": None})])) == []
    assert audit_.judge.tallies["TSS-NONCE-REUSED"].not_judged == {"content not known": 1}


def test_senders_with_one_ssi_over_ipv6_may_have_keys_of_their_own() -> None:
    src, dst, leads, others = sealed(0, ssi=9)
    lines = [(V6 + a, V6 + b, leads, others) for a, b in ((src, dst), (dst, src))]
    audit_ = TssAudit()
    assert audit_.see(observed(lines)) == []
    assert audit_.judge.tallies["TSS-NONCE-SHARED"].judged == 0


def test_late_packets_of_any_order() -> None:
    rng = random.Random(1)
    lines = [sealed(n, content=n, an=n // 500 % 2, epoch=n // 500) for n in range(2000)]
    lines = sorted(lines + lines[::7], key=lambda line: line[2].tsc + 20 * rng.random())
    assert TssAudit(Options()).see(observed(lines)) == []


# Counters -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_counters_are_those_of_a_set(seed: int) -> None:
    rng = random.Random(seed)
    counters, known = UsedCounters(), set[int]()
    for _ in range(2000):
        tsc = rng.randrange(1500)
        assert counters.add(tsc) == (tsc not in known)
        known.add(tsc)
    assert counters.ranges == len({tsc for tsc in known if tsc - 1 not in known})


def test_counters_are_bounded_and_forget_the_oldest() -> None:
    counters = UsedCounters()
    for tsc in range(0, 4 * RANGES, 2):
        assert counters.add(tsc)
        counters.keep(tsc, packet(tsc, A, B, head("tss")))
    assert counters.ranges == RANGES
    assert len(counters.contents) == CONTENTS
    assert not counters.add(1)  # too old to tell
    assert counters.add(4 * RANGES - 3)


def test_silent_senders_are_forgotten() -> None:
    tracker = TssAudit().tracker
    for seen in observed([sealed(0, ssi=9), inside()]):
        (tracker.see if "sdi" in seen.head._fields else tracker.see_inside)(seen)
    tracker.sweep(61 * 10**9)
    assert tracker.flows.forgotten == {"silent": 1, "evicted": 0}
    assert not tracker._by_key
    assert not tracker.spaces.by_key
    assert not tracker._pdcs


# Captures -------------------------------------------------------------------------------------------------------------

SEALED = sorted(path for glob in ("*-sealed-*.pcapng", "secure-start-*.pcapng") for path in GOLDEN.glob(glob))
ON_PURPOSE = {"secure-start-clear-nack.pcapng": ["TSS-CLEAR-AMONG-SEALED"] * 3}
"""The reference provider's habit."""


@pytest.mark.parametrize("path", SEALED, ids=lambda path: path.stem)
@pytest.mark.parametrize("with_keys", [True, False])
def test_golden(path: Path, with_keys: bool) -> None:
    if with_keys:
        pytest.importorskip("cryptography")
    keys = KeyRing.read(path.with_suffix(".keys.toml")) if with_keys else None
    report = audit([path], Options(rules=("tss-*",), keys=keys, complete=True, ordered=True))
    assert report.tallies["TSS-NONCE-REUSED"].judged
    assert [f.rule.id for f in report.findings] == (ON_PURPOSE.get(path.name, []) if with_keys else [])


@pytest.mark.skipif(not REFPROV.is_dir(), reason=f"{REFPROV} is not here")
def test_reference_provider() -> None:
    """No sender of it uses a counter twice."""
    report = audit(sorted(REFPROV.glob("*.pcap")), Options(rules=("tss-*",)))
    assert report.tallies["TSS-NONCE-REUSED"].judged
    assert [f for f in report.findings if f.severity is not Severity.NOTE] == []
