# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto fuzz --peer` over loopback, against `uetproto serve`."""

import json
from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.live import addresses
from tests.support.paths import PCAPS


def test_our_target_is_clean_and_its_personality_is_found(tmp_path: Path) -> None:
    here, there = addresses()
    common = ("--peer", there, "--local", here)
    with serving(there):
        clean = invoke("fuzz", *common, "--seed", "5", "--steps", "150", "-o", str(tmp_path / "clean"), "--json")
    summary = json.loads(clean.stdout.splitlines()[-1])
    assert (clean.exit_code, summary["findings"], summary["failed"]) == (0, 0, 0)
    assert summary["steps"] >= 150
    assert not (tmp_path / "clean").exists()
    folder = tmp_path / "found"
    with serving(there, "--personality", "refprov"):
        result = invoke("fuzz", *common, "--seed", "5", "--episode", "0", "-o", str(folder), "--json")
        finding, summary = (json.loads(line) for line in result.stdout.splitlines())
        assert (result.exit_code, summary["findings"], summary["episodes"]) == (1, 1, 1)
        assert finding["steps"] < finding["drawn"]
        again = invoke("conform", *common, "--tests", finding["file"])
    assert (again.exit_code, f"fail: {finding['id']}" in again.output) == (1, True)
    assert sorted(one.suffix for one in folder.iterdir()) == [".pcapng", ".toml", ".txt"]
    with serving(there):
        right = invoke("conform", *common, "--tests", finding["file"])
    assert right.exit_code == 0, right.output


def test_peers_of_roce_and_peers_with_keys_are_clean(tmp_path: Path) -> None:
    here, there = addresses()
    keys = str(PCAPS / "gradient-sealed-direct.keys.toml")
    for ours, theirs in (
        (("--transport", "rc"), ("--transport", "rc")),
        (("--keys", keys, "--ssi", "1"), ("--keys", keys, "--ssi", "2")),
    ):
        with serving(there, *theirs):
            result = invoke(
                "fuzz", "--peer", there, "--local", here, *ours, "--seed", "5", "--steps", "100", "-o",
                str(tmp_path / "clean"), "--json",
            )  # fmt: skip
        summary = json.loads(result.stdout.splitlines()[-1])
        assert (result.exit_code, summary["findings"], summary["failed"]) == (0, 0, 0), result.output
        assert summary["steps"] >= 100


def test_options_that_do_not_go_together_are_refused() -> None:
    here, there = addresses()
    for arguments, line in (
        (("--local", here), "--local: goes with --peer"),
        (("--without", "read"), "--without: goes with --peer"),
        (("pdc", "--peer", there), "MACHINE: does not go with --peer"),
        (("--peer", there, "--jobs", "1"), "--jobs: does not go with --peer"),
        (("--peer", there, "--without", "reads"), "'reads' is not legal"),
        (("--peer", there, "--without", "fetch", "--transport", "rc"), "'fetch' is not legal"),
        (("--transport", "rc"), "--transport: goes with --peer"),
        (("--peer", there, "--local", here), "no rendezvous at"),
    ):
        result = invoke("fuzz", *arguments)
        assert (result.exit_code, line in result.output) == (2, True), result.output
    silent = invoke("fuzz", "--peer", there, "--local", here, "--rendezvous", "off")
    assert (silent.exit_code, "does NOT answer" in silent.output) == (1, True)
