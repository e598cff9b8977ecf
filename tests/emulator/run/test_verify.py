# SPDX-License-Identifier: GPL-2.0-only
"""`--check` finds what is wrong, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from uetproto import decode, encode
from uetproto.check.registry import InvariantViolation
from uetproto.check.uet import invariants
from uetproto.emulator.run.play import run
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import Datagram, TrafficClass
from uetproto.framing.uet import Encapsulation, UetFramer

REQUEST = bytes.fromhex("1980ffff000120000001000001090001000000650000000f") + bytes(28) + b"\0\0\x10\0"


def frame() -> bytes:
    return UetFramer(1, 4, Encapsulation()).frame(Datagram(1, 2, REQUEST, bytes(4096)))


def changed(form: str, field: str, value: int) -> Callable[[], bytes]:
    def change() -> bytes:
        packet = decode(frame())
        values: Any = packet[form]
        values[field] = value
        return encode(packet, fill=field != "checksum")

    return change


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (frame, None),
        (changed("ipv4", "df", 0), "may be fragmented"),
        (changed("ipv4", "dscp", 46), "DSCP 46; legal here: 8, 10"),
        (changed("ipv4", "ecn", 0), "data that is not ECN-capable"),
        (changed("udp", "checksum", 7), "has an UDP checksum"),
        (changed("ipv4", "checksum", 7), "the IPv4 checksum does not match"),
        (lambda: frame()[:-1] + b"\0", "the CRC32C does not match"),
        (lambda: frame()[:-500], "malformed at byte"),
        (
            lambda: UetFramer(1, 4, Encapsulation()).frame(Datagram(1, 2, REQUEST, bytes(4096), TrafficClass.CONTROL)),
            "DSCP 46",
        ),
    ],
)
def test_judge(make: Callable[[], bytes], expected: str | None) -> None:
    judge = FrameJudge(load("gradient"))
    judge.watch(None).write(0, make(), interface=0)
    found = judge.findings(0)
    if expected is None:
        assert found == ()
    else:
        assert found[0].startswith("rank0.0, #1: ")
        assert any(expected in text for text in found)
    assert judge.findings(1) == ()  # one frame was spoilt on purpose


def test_guards_tell_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ledger: object, full: bool) -> None:
        raise InvariantViolation("pds 99", "made up")

    monkeypatch.setitem(invariants.INVARIANTS, 10, replace(invariants.INVARIANTS[10], check=broken))
    invariants.plan.cache_clear()
    try:
        result = run(load("gradient"), check=True)
    finally:
        invariants.plan.cache_clear()
    assert result.match
    assert not result.ok
    assert result.findings == ("pds 99: made up",)
    monkeypatch.undo()
    assert run(load("gradient"), check=True).ok
