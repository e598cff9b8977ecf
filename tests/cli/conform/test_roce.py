# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto conform --transport rc` over loopback, against `uetproto serve`."""

import json
from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import addresses
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.conform.catalogue import ROCE, load

FEW = effort("ROCE-RC-00?,ROCE-RC-03[0-4],ROCE-RC-05[0-2],ROCE-RC-09[016],ROCE-UC-001,ROCE-UD-00[13]", "*", "*")


def test_our_target_passes(tmp_path: Path) -> None:
    here, there = addresses()
    folder, report = tmp_path / "report", tmp_path / "report.xml"
    with serving(there, "--transport", "rc"):
        result = invoke(
            "conform", "--peer", there, "--local", here, "--transport", "rc", "--seed", "3", "--only", FEW,
            "-o", str(folder), "--junit", str(report), "--json",
        )  # fmt: skip
    *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one for one in results if one["verdict"] != "pass"] == []
    assert (result.exit_code, summary["pass"], summary["fail"]) == (0, len(results), 0)
    assert len(results) > 20
    assert sorted(path.stem for path in folder.glob("*.pcapng")) == [one["id"] for one in results]
    assert "RDMA_WRITE_ONLY" in (folder / "ROCE-RC-001.txt").read_text(encoding="utf-8")
    assert audit([folder / "ROCE-RC-001.pcapng"], Options(complete=True)).findings == []
    assert f"uetproto conform --peer {there} --transport rc --local {here} --seed 3 --only" in results[0]["again"]


def test_a_queue_pair_made_by_hand() -> None:
    here, there = addresses()
    hand = ("--transport", "rc", "--rendezvous", "off", "--rkey", "0x1234", "--addr", "0x10000")
    ours = ("--qpn", "0x33", "--psn", "9", "--peer-qpn", "0x22", "--peer-psn", "7")
    theirs = ("--qpn", "0x22", "--psn", "7", "--peer-qpn", "0x33", "--peer-psn", "9", "--peer-gid", here)
    with serving(there, *hand, *theirs):
        result = invoke(
            "conform", "--peer", there, "--local", here, *hand, *ours, "--only", "ROCE-RC-00[12],ROCE-RC-07[34]"
        )  # fmt: skip
    assert "4 tests: 3 pass, 0 fail, 1 inconclusive" in result.output
    assert "no RC queue pair is left that was made by hand" in result.output
    assert result.exit_code == 0


def test_the_list_has_the_tests_of_roce() -> None:
    result = invoke("conform", "--list", "--transport", "rc", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [test.id for test in load(shipped=ROCE)]


def test_a_test_of_another_transport_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[test]]\nid = "MINE-1"\nsection = "roce.md §8"\npurpose = "A WRITE is acknowledged."\npairs = ["rc"]\n'
        'steps = [{ send = "rdma_write_only", psn = "start", a = 1 }, { expect = "ack" }]\n',
        encoding="utf-8",
    )
    assert "MINE-1" in invoke("conform", "--list", "--transport", "rc", "--tests", str(file)).output
    result = invoke("conform", "--list", "--tests", str(file))
    assert (result.exit_code, "MINE-1 is no test of uet; legal: uet, or rc" in result.output) == (2, True)
