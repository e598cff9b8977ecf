# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto run A B --compare`: the same bytes by several scenarios."""

import json
from pathlib import Path
from statistics import median

import pytest

import uetproto.cli.run  # noqa: F401 (its help names LENGTH and LOSS as they are when it is imported)
from tests.support.cli.frames import invoke
from uetproto.cli import compare
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load

PAIR = ("gradient", "gradient-roce")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB and one frame in ten, in place of 64 MiB and one in a thousand."""
    monkeypatch.setattr(compare, "LENGTH", 64 << 10)
    monkeypatch.setattr(compare, "LOSS", 0.1)


def test_json() -> None:
    done = invoke("run", *PAIR, "--compare", "--json")
    assert done.exit_code == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["scenario"] for line in lines] == list(PAIR)
    for line, overhead in zip(lines, (566, 252), strict=True):
        plain = line["plain"]
        assert plain["bytes"] == 12288
        assert plain["wire_bytes"] == 12288 + overhead
        assert plain["overhead"] == pytest.approx(overhead / 12288)
        lossy = line["lossy"]
        assert lossy["seeds"] == list(range(1, 11))
        for name in ("packets", "retransmissions", "wire_bytes", "virtual_time_ps"):
            spread = lossy[name]
            assert spread["low"] <= spread["median"] <= spread["high"]
        assert lossy["retransmissions"]["high"] > 0


def test_numbers_are_those_of_the_runs(tmp_path: Path) -> None:
    """Median and range over the ten seeds, recomputed."""
    (one,) = compare.compare(PAIR[1:], (), lambda text: None)
    path = tmp_path / "input"
    with compare._input() as same:
        path.write_bytes(same.read_bytes())
    results = [run(load(PAIR[1], [f"input={path}", "faults.drop=0.1", f"seed={seed}"])) for seed in range(1, 11)]
    times = [result.virtual_time_ps for result in results]
    assert one.as_dict()["lossy"]["virtual_time_ps"] == {
        "median": median(times), "low": min(times), "high": max(times),
    }  # fmt: skip


def test_for_people() -> None:
    done = invoke("run", *PAIR, "--compare")
    assert done.exit_code == 0
    head, first, second, *_ = done.stdout.splitlines()
    assert head.split() == ["as", "it", "is", "bytes", "packets", "on", "the", "wire", "overhead", "time"]
    assert first.split()[:5] == ["gradient", "12,288", "7", "12,854", "4.61%"]
    assert second.split()[:5] == ["gradient-roce", "12,288", "4", "12,540", "2.05%"]
    assert "64 KiB" not in done.stdout
    assert "10 seeds: median (lowest … highest)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ses-send",), "--compare ses-send: sends no input of its own choice; legal: scenarios with run.input"),
        (("gradient", "-o", "x.pcap"), "-o does not go with --compare"),
        (("gradient", "--seed", "1"), "--seed does not go with --compare"),
        (("gradient", "--check"), "--check does not go with --compare"),
    ],
)
def test_misuse(arguments: tuple[str, ...], message: str) -> None:
    done = invoke("run", *arguments, "--compare")
    assert done.exit_code == 2
    assert message in done.stderr


def test_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1, and which one it was."""
    done = invoke("run", PAIR[1], "--compare", "--set", "roce.icrc=on", "--set", "run.time_limit=1 us")
    assert done.exit_code == 1
    assert "failed" in done.stdout
