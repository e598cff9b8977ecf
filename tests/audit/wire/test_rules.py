# SPDX-License-Identifier: GPL-2.0-only
"""Each rule about a packet alone finds what breaks it, at the right packet, and nothing in its clean twin."""

import random

import pytest

from tests.support.audit import frames as f
from tests.support.audit.wire_rules import (
    GOOD,
    V4,
)
from tests.support.each import each
from tests.support.effort import effort
from uetproto.audit.roce import rules_wire as rules_roce_wire
from uetproto.audit.rule import CHOICE, Severity
from uetproto.audit.wire import rules as rules_wire
from uetproto.wire.forms import FORMS, code_fields, is_vendors
from uetproto.wire.headers.roce import RD_OPCODES
from uetproto.wire.mutate.mutation import MUTATIONS

RULES = {rule.id: rule for rule in (*rules_wire.RULES, *rules_roce_wire.RULES)}
GOOD_ROCE = f.roce(f.BTH, f.RETH)
GOOD_GRE = f.frame(
    f.MAC, f.Layer("ipv4", {"src": 1, "dst": 2}), f.Layer("gre", {}), f.Layer("gre.checksum", {}), *V4[1:], f.REQUEST,
    f.WRITE,
)  # fmt: skip


def _with(layer: f.Layer, **fields: int) -> bytes:
    """The good packet with other fields in one of its headers."""
    layers = [f.changed(each, **fields) if each.form == layer.form else each for each in (*V4, f.REQUEST, f.WRITE)]
    return f.frame(*layers)


def _at(data: bytes, position: int, *values: int) -> bytes:
    wrong = bytearray(data)
    wrong[position : position + len(values)] = bytes(values)
    return bytes(wrong)


VIOLATED = {
    # rule                 how it is broken
    "WIRE-CRC":            f.spoilt(GOOD),
    "WIRE-LENGTH":         f.frame(*V4, f.REQUEST, f.WRITE, payload=bytes(25)),
    "WIRE-RESERVED-BIT":   _with(f.REQUEST, rsvd2=1),
    "WIRE-UNKNOWN-CODE":   f.frame(*V4, f.ACK, f.changed(f.RESPONSE, return_code=0x2A), payload=b""),
    "PDS-RESERVED-TYPE":   f.frame(*V4, payload=b"\xf8" + bytes(60)),
    "PDS-NEXT-HDR":        f.frame(*V4, f.changed(f.REQUEST, next_hdr=9), payload=bytes(60)),
    "SES-VERSION":         _with(f.WRITE, version=2),
    "SES-UNKNOWN-OPCODE":  _with(f.WRITE, opcode=0x2C),
    "WIRE-IP-CHECKSUM":    f.spoilt(GOOD, 24),
    "WIRE-GRE-CHECKSUM":   f.spoilt(GOOD_GRE, 38),
    "WIRE-DF":             _with(f.V4, df=0),
    "WIRE-UDP-CHECKSUM":   _at(GOOD, 40, 1, 2),
    "WIRE-ECN":            _with(f.V4, ecn=0),
    "ROCE-ICRC":           f.spoilt(GOOD_ROCE),
    "ROCE-LENGTH":         f.roce(f.BTH, f.changed(f.RETH, dmalen=23)),
    "ROCE-RESERVED-BIT":   f.roce(f.changed(f.BTH, rsvd2=4), f.RETH),
    "ROCE-VERSION":        f.roce(f.changed(f.BTH, tver=1), f.RETH),
    "ROCE-UNKNOWN-OPCODE": f.roce(f.changed(f.BTH, opcode=0x1F)),
    "ROCE-SYNDROME":       f.roce(f.ROCE_ACK[0], f.changed(f.ROCE_ACK[1], syndrome=0x41), payload=b""),
    "TSS-CRC-TOO":         f.frame(*V4, f.SEALED, payload=bytes(40)),
}  # fmt: skip


def test_every_rule_is_violated_here_or_in_the_tests_of_reading() -> None:
    assert set(VIOLATED) | {"CAP-DAMAGED", "ROCE-ICRC-SENDER", "ROCE-ICRC-CAPTURE"} == set(RULES)


@pytest.mark.parametrize("rule", VIOLATED)
def test_rule(rule: str) -> None:
    good = GOOD_ROCE if rule.startswith("ROCE") else GOOD_GRE if "GRE" in rule else GOOD
    only = f.audited([good, good, VIOLATED[rule], good], rules=tuple(RULES))
    assert f.found(only) == [(rule, 2)]
    assert only.tallies[rule].failed == 1
    clean = f.audited([good] * 4, rules=tuple(RULES))
    assert f.found(clean) == []


@pytest.mark.parametrize("rule", VIOLATED)
def test_rule_without_crc_and_inside_ipv6(rule: str) -> None:
    """Findings that do not rest on IPv4 or a CRC are the same elsewhere."""
    if rule in ("PDS-RESERVED-TYPE", "PDS-NEXT-HDR", "SES-VERSION", "SES-UNKNOWN-OPCODE", "WIRE-RESERVED-BIT"):
        data = VIOLATED[rule]
        wrong = f.frame(*f.LOWER["native ipv6"], payload=data[42:-4], trailer=None)
        assert f.found(f.audited([wrong], rules=tuple(RULES))) == [(rule, 0)]


def test_counts_are_those_of_packets_that_could_break_a_rule() -> None:
    ack = f.frame(*V4, f.ACK, f.RESPONSE, payload=b"")
    nack = f.frame(*V4, f.Layer("pds.nack", {"nack_code": 5, "nack_psn": 3}), payload=b"")
    tallies = f.audited([GOOD, GOOD_ROCE, ack, nack] * 12 + [VIOLATED["WIRE-CRC"]], rules=tuple(RULES)).tallies
    judged = {rule: tally.judged for rule, tally in tallies.items()}
    assert judged == {
        "CAP-DAMAGED": 1, "WIRE-CRC": 37, "WIRE-LENGTH": 36, "WIRE-RESERVED-BIT": 36, "WIRE-UNKNOWN-CODE": 36,
        "PDS-RESERVED-TYPE": 36, "PDS-NEXT-HDR": 36, "SES-VERSION": 24, "SES-UNKNOWN-OPCODE": 24,
        "WIRE-IP-CHECKSUM": 48, "WIRE-GRE-CHECKSUM": 0, "WIRE-DF": 36, "WIRE-UDP-CHECKSUM": 36, "WIRE-ECN": 12,
        "ROCE-ICRC": 12, "ROCE-ICRC-SENDER": 1, "ROCE-ICRC-CAPTURE": 1,
        "ROCE-LENGTH": 12, "ROCE-RESERVED-BIT": 12, "ROCE-VERSION": 12, "ROCE-UNKNOWN-OPCODE": 12,
        "ROCE-SYNDROME": 0, "TSS-CRC-TOO": 0,
    }  # fmt: skip


def test_a_lone_packet_that_may_end_with_a_wrong_crc_is_not_judged() -> None:
    def first(extra: int) -> bytes:
        return f.frame(*V4, f.REQUEST, f.changed(f.FIRST, som=1, eom=0), payload=bytes(4096 + extra), trailer=None)

    tally = f.audited([first(4)], rules=("WIRE-CRC",)).tallies["WIRE-CRC"]
    assert dict(tally.not_judged) == {"the last 4 bytes may be a wrong CRC32C": 1}
    assert (tally.judged, tally.failed) == (0, 0)
    assert not f.audited([first(0)], rules=("WIRE-CRC",)).tallies["WIRE-CRC"].not_judged


def test_trimmed_packets_have_no_crc_and_no_length() -> None:
    whole = f.frame(*V4, f.REQUEST, f.FIRST, payload=bytes(400))
    cut = bytearray(whole[:128])
    cut[15] = 16 << 2 | 2  # DSCP of trimmed packets
    cut[16:18] = (128 - 14).to_bytes(2, "big")
    cut[24:26] = b"\0\0"
    trimmed = bytes(cut)
    tallies = f.audited([whole] * 3 + [trimmed] * 5, rules=tuple(RULES)).tallies
    assert (tallies["WIRE-CRC"].judged, tallies["WIRE-LENGTH"].judged, tallies["WIRE-RESERVED-BIT"].judged) == (3, 3, 8)
    assert tallies["WIRE-IP-CHECKSUM"].not_judged.total() == 5
    assert not any(tally.failed for tally in tallies.values())


def test_codes_of_vendors_and_of_vendors_transports_are_not_judged() -> None:
    vendor = _with(f.WRITE, opcode=0x31)
    other = f.roce(f.changed(f.BTH, opcode=RD_OPCODES[4]))
    report = f.audited([GOOD, vendor, GOOD_ROCE, other], rules=tuple(RULES))
    assert f.found(report) == []
    assert report.tallies["SES-UNKNOWN-OPCODE"].not_judged.total() == 1
    assert report.tallies["ROCE-UNKNOWN-OPCODE"].not_judged.total() == 1


def test_an_icrc_that_is_right_nowhere_was_changed_by_the_capture() -> None:
    report = f.audited([f.spoilt(GOOD_ROCE)] * 30, rules=tuple(RULES))
    assert f.found(report) == [("ROCE-ICRC-CAPTURE", 0)]
    assert report.findings[0].severity is Severity.WARNING
    assert report.tallies["ROCE-ICRC"].not_judged.total() == 30


def test_only_sources_make_errors() -> None:
    for rule in RULES.values():
        assert rule.cite != CHOICE or rule.severity is Severity.NOTE
        assert ".md" not in rule.cite


# Mutations ------------------------------------------------------------------------------------------------------------

CAPTURES = (
    "gradient.pcapng", "gradient-native-v6.pcapng", "gradient-nocrc.pcapng", "ladder-L09.pcapng", "ladder-L18.pcapng",
    "ses-fetching-atomic.pcapng", "gradient-roce.pcapng", "roce-compare-swap.pcapng",
)  # fmt: skip


def _says_enough(form: str | None, field: str, after: int) -> bool:
    """A mutation that a packet alone betrays: no code of a vendor, no length that only other packets contradict."""
    if form not in FORMS:
        return True
    if form == "bth" and field == "opcode" and after >= 0xC0:
        return False  # a manufacturer's
    return after not in code_fields(form).get(field, ()) or not is_vendors(form, field, after)


@each("name", MUTATIONS)
@each("capture", CAPTURES)
def test_mutations_are_found_where_they_are(capture: str, name: str) -> None:
    frames = f.frames_of(capture)
    rng = random.Random(f"{capture} {name}")
    for _ in range(effort(4, 8, 8)):
        at = rng.randrange(len(frames))
        mutation = MUTATIONS[name](frames[at], rng)
        if (
            mutation is None
            or mutation.rule not in RULES
            or not _says_enough(mutation.form, mutation.field, mutation.after)
        ):
            continue
        if mutation.field == "dmalen":
            continue  # the tracker of queue pairs adds up what was sent
        report = f.audited([*frames[:at], mutation.frame, *frames[at + 1 :]], rules=tuple(RULES))
        assert f.found(report) == [(mutation.rule, at)], mutation._replace(frame=b"")


def test_bytes_of_any_kind_never_raise() -> None:
    rng = random.Random(9)
    frames = f.frames_of("gradient.pcapng") + f.frames_of("gradient-roce.pcapng")
    wrong = []
    for _ in range(600):
        data = bytearray(rng.choice(frames)[: rng.randrange(1, 200)])
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.getrandbits(8)
        wrong.append(bytes(data))
    report = f.audited(wrong, rules=tuple(RULES))
    assert report.packets == 600
