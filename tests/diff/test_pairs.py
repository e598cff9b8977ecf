# SPDX-License-Identifier: GPL-2.0-only
"""Pairs of captures with a known difference: `diff` finds exactly that. A share in `ci`, 240 pairs in `full`."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.diff_pairs import Again, Frame, Frames, Known, pairs
from tests.support.effort import effort
from uetproto.analysis.commands import collective
from uetproto.diff import DiffResult, diff
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.capture.pcap import open_capture

TRAFFIC = (
    "mixed",
    "lossy",
    "atomics",
    "sends",
    "roce-rc",
    "roce-uc",
    "roce-ud",
    "roce-mixed",
    "sharp-uet",
    "sharp-roce",
)
PAIRS = effort(6, 24, 200)
"""Pairs of each kind of traffic."""
PACKETS = effort(150, 400, 1_000)


@cache
def captured(name: str) -> Frames:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "capture.pcapng"
        if name.startswith("sharp"):
            collective(
                "all_reduce", algorithm="sharp", ranks=4, bytes="16KiB", topology="leaf-spine",
                transport=name.removeprefix("sharp-"), output=str(path),
            )  # fmt: skip
        else:
            generate(load(name), str(path), packets=PACKETS)
        with open_capture(path) as records:
            return Frames([Frame(record.time_ns, bytes(record.data)) for record in records][:PACKETS])


def check(result: DiffResult, known: Known) -> None:
    assert sorted(one.number_a or 0 for one in result.missing) == sorted(known.missing)
    assert len(result.extra) == len(known.extra)
    assert len(result.moved) == known.moved
    assert [one.number_a for one in result.changed] == [number for number, _ in known.changed]
    for one, (_, name) in zip(result.changed, known.changed, strict=True):
        found = {field.field for field in one.fields}
        assert name in found or found & {"form", "headers"}, (name, found)  # a type that nobody knows has no fields
    assert result.differs == (known != Known())


@pytest.mark.parametrize("name", TRAFFIC)
def test_known_differences_are_found_and_no_others(name: str) -> None:
    frames = captured(name)
    for told, other, known in pairs(frames, PAIRS, seed=TRAFFIC.index(name)):
        result = diff(Again(frames), Again(other))
        try:
            check(result, known)
        except AssertionError as error:
            raise AssertionError(f"{name} {told}:\n{result}") from error
