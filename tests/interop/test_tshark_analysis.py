# SPDX-License-Identifier: GPL-2.0-only
"""What the plugin says of the packets around a packet, against `stats --per-packet`: the same, frame by frame."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from tests.support.audit.build import GOLDEN
from tests.support.effort import effort
from tests.support.interop.analysis import differences
from tests.support.interop.tshark import copied, folder, needs_tshark, run
from uetproto.cli.main import cli
from uetproto.wire.capture.pcap import Record, open_capture, open_writer

pytestmark = needs_tshark

ALL = sorted(GOLDEN.glob("*.pcapng"))
FEW = [
    "gradient-lossy",
    "ladder-L14",
    "ladder-L24",
    "ses-read",
    "ses-rudi-read",
    "ses-rendezvous-send",
    "roce-read",
    "incast-roce",
]
CAPTURES = effort([GOLDEN / f"{name}.pcapng" for name in FEW], ALL, ALL)
GENERATED = effort(1, 20, 20)
WITH_TREE = ("-R", "frame")
"""A read filter: the first pass has a tree, and so knows the interface of a packet."""

HISTORY = (
    "opcode-change", "job-change", "key-change", "response-wrong-id", "offset-overlap", "som-twice", "psn-two-contents",
    "clear-falls",
)  # fmt: skip
"""Mutations that only other packets betray."""
EXPERTS = {name: f"uetp.expert.{name.replace('-', '_')}" for name in HISTORY}


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


def joined(captures: list[Path], path: Path) -> Path:
    """One capture with an interface for each of `captures`, whose packets follow those of the one before."""
    with open_writer(path, interfaces=[(each.stem, 1) for each in captures]) as writer:
        for number, each in enumerate(captures):
            with open_capture(each) as reader:
                for record in reader:
                    writer.write(number * 10**9 + record.time_ns, record.data, interface=number)
    path.chmod(0o644)
    return path


def test_golden_captures(home: Path) -> None:
    assert differences(joined(CAPTURES, home / "golden.pcapng"), home, *WITH_TREE) == []


def damaged(path: Path, seed: int) -> Path:
    """Drop, repeat and trim packets, and exchange neighbours."""
    rng, kept = Random(seed), []
    with open_capture(path) as reader:
        for record in reader:
            draw = rng.random()
            kept += [] if draw < 0.03 else [record, record] if draw < 0.06 else [record]
            if draw > 0.97 and len(kept) > 1:
                kept[-2:] = kept[-1], kept[-2]
    times = sorted(record.time_ns for record in kept)
    changed = path.with_name(f"damaged-{path.name}")
    with open_writer(changed) as writer:
        for record, time_ns in zip(kept, times, strict=True):
            writer.write(time_ns, _trimmed(record) if rng.random() < 0.03 else record.data)
    changed.chmod(0o644)
    return changed


def _trimmed(record: Record) -> bytes:
    data = bytearray(record.data)
    data[15] = 16 << 2  # the DSCP of trimmed packets, in a frame with IPv4
    return bytes(data)


@pytest.mark.parametrize("seed", range(GENERATED))
def test_generated_captures_with_losses_of_the_capture(home: Path, seed: int) -> None:
    path = home / "generated.pcapng"
    profile = ("lossy", "mixed")[seed % 2]
    options = ["--packets", str(effort(600, 5000, 5000)), "--seed", str(seed)]
    assert CliRunner().invoke(cli, ["generate", profile, "-o", str(path), *options]).exit_code == 0
    path.chmod(0o644)
    changed = damaged(path, seed)
    assert differences(path, home) == []
    assert differences(changed, home) == []


def test_an_answer_is_looked_for_at_the_tap_of_the_request(home: Path) -> None:
    path = home / "taps.pcapng"
    assert CliRunner().invoke(cli, ["run", "gradient", "--tap", "all", "-o", str(path)]).exit_code == 0
    path.chmod(0o644)
    assert differences(path, home, *WITH_TREE) == []


def test_expert_infos(home: Path) -> None:
    """A clean capture has none of the analysis; what was lost by the capture has."""
    clean = copied(GOLDEN / "gradient.pcapng", home)
    out, _ = run(["-r", clean, "-q", "-z", "expert"], home)
    assert "SEQUENCE" not in out.upper()
    lossy = copied(GOLDEN / "gradient-lossy.pcapng", home)
    with open_capture(lossy) as reader, open_writer(home / "gap.pcapng") as writer:
        for record in reader:
            if record.index != 3:
                writer.write(record.time_ns, record.data)
    (home / "gap.pcapng").chmod(0o644)
    out, _ = run(["-r", home / "gap.pcapng", "-T", "fields", "-e", "uetp.expert.lost", "-e", "frame.number"], home)
    assert [line for line in out.splitlines() if not line.startswith("\t")] == ["1\t16"]


def told(path: Path, home: Path) -> list[set[str]]:
    """The contradictions that the plugin tells of each frame."""
    fields = [word for name in EXPERTS.values() for word in ("-e", name)]
    out, _ = run(["-r", path, "-2", "-T", "fields", "-E", "separator=|", *fields], home)
    return [{name for name, text in zip(EXPERTS, line.split("|"), strict=True) if text} for line in out.splitlines()]


def generated(path: Path, packets: int, *options: str) -> Path:
    arguments = ["generate", "mixed", "-o", str(path), "--packets", str(packets), *options]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    path.chmod(0o644)
    return path


def test_packets_that_contradict_others_are_errors(home: Path) -> None:
    """At least 95 % of each mutation, and nothing in the same capture without them."""
    packets = effort(1000, 10_000, 10_000)
    assert not any(told(generated(home / "clean.pcapng", packets), home))
    shares = [word for name in HISTORY for word in ("--mutate", f"{name}=0.02")]
    path = generated(home / "wrong.pcapng", packets, *shares)
    found = told(path, home)
    lines = (home / "wrong.pcapng.mutations.jsonl").read_text().splitlines()
    mutated = [(row["index"], row["mutation"]) for row in map(json.loads, lines)]
    seen = Counter(name for index, name in mutated if found[index])
    made = Counter(name for _, name in mutated)
    assert set(made) == set(HISTORY)
    assert sum(seen.values()) >= 0.95 * len(mutated), {name: (seen[name], made[name]) for name in made}


def test_two_passes_without_a_filter_warn_of_several_interfaces(home: Path) -> None:
    capture = joined([GOLDEN / "gradient-lossy.pcapng", GOLDEN / "ses-read.pcapng"], home / "two.pcapng")
    fields = ["-2", "-r", capture, "-T", "fields", "-e", "uetp.pdc"]
    assert "add -Y frame" in run(fields, home)[1]
    assert "add -Y frame" not in run([*fields, "-Y", "frame"], home)[1]
    assert "add -Y frame" not in run([*fields[:2], copied(GOLDEN / "ses-read.pcapng", home), *fields[3:]], home)[1]
