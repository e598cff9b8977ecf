# SPDX-License-Identifier: GPL-2.0-only
"""Expert infos for what is wrong with one packet by itself: the rules of the audit, from the same tables."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support import paths
from tests.support.effort import effort
from tests.support.interop.tshark import folder, needs_tshark, run, write_pcap
from uetproto import decode
from uetproto.audit.rules import RULES
from uetproto.cli.main import cli
from uetproto.wire.capture.pcap import ETHERNET, open_capture
from uetproto.wire.forms import UET_FORMS
from uetproto.wire.mutate.mutation import mutate
from uetproto.wireshark.verdicts import VERDICTS

pytestmark = needs_tshark

WARNING = 0x600000
EACH = effort(30, 200, 200)
ALONE = (
    "bad-crc", "reserved-bit", "reserved-type", "bad-next-hdr", "bad-version", "unknown-opcode", "unknown-code", "cut",
    "extra-bytes", "ip-length", "length-over", "length-under", "clear-positive", "default-with-error",
)  # fmt: skip
"""Mutations that the packet alone betrays."""
WRONG = ("ses-fail-amo-unsupported-op",)
"""Golden captures of packets that are wrong by themselves: an atomic operation that does not exist."""
OURS = {f"uetp.expert.{verdict.name}" for verdict in VERDICTS} | {
    f"uetp.expert.{name}" for name in ("malformed", "reserved", "short", "crc", "crc_suspect")
}


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


def severities(frames: list[bytes], home: Path) -> list[int]:
    """The highest severity of the expert infos of each frame."""
    path = home / "frames.pcap"
    write_pcap(path, frames)
    out, _ = run(["-r", path, "-2", "-T", "fields", "-e", "_ws.expert.severity", "-E", "aggregator=,"], home)
    return [max((int(text) for text in line.split(",") if text), default=0) for line in out.splitlines()]


def generated(profile: str, folder: Path, *options: str) -> list[bytes]:
    path = folder / "clean.pcapng"
    assert cli.status(["generate", profile, "-o", str(path), "--seed", "3", *options]) == 0
    with open_capture(path) as records:
        return [record.data for record in records]


def test_verdicts_are_rules_of_the_audit() -> None:
    known = {rule.id: rule.severity.value for rule in RULES}
    assert {verdict.rule for verdict in VERDICTS} <= known.keys()
    assert {known[verdict.rule] for verdict in VERDICTS} == {"error"}


def test_spoilt_frames_have_a_warning_or_error(home: Path, tmp_path: Path) -> None:
    """At least 95 % of each mutation."""
    rng, frames, names = Random("spoilt"), generated("mixed", tmp_path, "--packets", "600"), []
    for name in ALONE:
        made = [m.frame for data in rng.sample(frames, len(frames)) if (m := mutate(name, data, rng)) is not None]
        names += [name] * len(made[:EACH])
        frames += made[:EACH]
    found = severities(frames, home)
    told = Counter(name for name, severity in zip(names, found[600:], strict=True) if severity >= WARNING)
    assert {name: told[name] / count for name, count in Counter(names).items() if told[name] < 0.95 * count} == {}
    assert min(Counter(names).values()) > EACH / 3


def golden_frames() -> dict[bool, list[bytes]]:
    """Frames of UET of the golden captures that are as they left, by whether they have a CRC32C."""
    found: dict[bool, list[bytes]] = {True: [], False: []}
    clean = [path for path in sorted(paths.PCAPS.rglob("*.pcap*")) if path.stem not in WRONG]
    for path in clean[:: effort(4, 1, 1)]:
        with open_capture(path) as records:
            frames = [
                record.data for record in records if record.link == ETHERNET and record.length == len(record.data)
            ]
        packets = [decode(data) for data in frames]
        crc = any(packet.trailer and packet.trailer.kind == "crc32c" for packet in packets)
        found[crc] += [data for data, packet in zip(frames, packets, strict=True)
                       if any(layer.form in UET_FORMS for layer in packet.layers)]  # fmt: skip
    return found


def test_clean_captures_have_no_verdict(home: Path, tmp_path: Path) -> None:
    golden = golden_frames()
    sends = [
        data for profile in ("sends", "atomics", "lossy") for data in generated(profile, tmp_path, "--packets", "300")
    ]
    for frames in (golden[True] + sends, golden[False]):
        path = home / "clean.pcap"
        write_pcap(path, frames)
        out, _ = run(["-r", path, "-2", "-Y", " || ".join(sorted(OURS)), "-T", "fields", "-e", "frame.number",
                      "-e", "_ws.expert.message"], home)  # fmt: skip
        assert out == ""
        assert frames
