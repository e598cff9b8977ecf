# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto conform` over loopback, against `uetproto serve`."""

import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.live import addresses
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.conform.catalogue import TSS, load

FEW = "UET-PDS-00?,UET-PDS-02?,UET-TRIM-001,UET-ENC-*,UET-RUDI-001,UET-SES-00?,UET-SES-035"


def test_our_target_passes_and_its_personality_fails(tmp_path: Path) -> None:
    here, there = addresses()
    folder, report, page = tmp_path / "report", tmp_path / "report.xml", tmp_path / "report.html"
    common = ("conform", "--peer", there, "--local", here, "--seed", "3")
    with serving(there):
        result = invoke(*common, "--only", FEW, "-o", str(folder), "--junit", str(report), "--json")
    *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one for one in results if one["verdict"] != "pass"] == []
    assert (result.exit_code, summary["pass"], summary["fail"], summary["seed"]) == (0, len(results), 0, 3)
    captures = sorted(path.name for path in folder.glob("*.pcapng"))
    assert captures == sorted(f"{one['id']}.pcapng" for one in results)
    assert len(captures) > 20
    assert "ACK" in (folder / "UET-PDS-001.txt").read_text(encoding="utf-8")
    assert audit([folder / "UET-PDS-001.pcapng"], Options(complete=True)).findings == []
    suite = ElementTree.parse(report).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == (str(len(results)), "0")
    with serving(there, "--personality", "refprov"):
        result = invoke(
            *common, "--only", "UET-PDS-020,UET-PDS-001,UET-PDS-056", "--junit", str(report), "--html", str(page)
        )
    assert result.exit_code == 1
    assert "fail: UET-PDS-020" in result.output
    assert "fail: UET-PDS-056" in result.output
    assert f"again: uetproto conform --peer {there} --local {here} --seed 3 --only UET-PDS-020" in result.output
    assert "3 tests: 1 pass, 2 fail, 0 inconclusive" in result.output
    assert len(ElementTree.parse(report).getroot().findall(".//failure")) == 2
    assert "uetproto conform: 2 of 3 tests fail" in page.read_text(encoding="utf-8")


def test_a_peer_that_does_not_answer_is_told_once() -> None:
    here, there = addresses()
    result = invoke("conform", "--peer", there, "--local", here, "--rendezvous", "off", "--only", "UET-UUD-*")
    assert (result.exit_code, "does NOT answer" in result.output) == (1, True)
    assert "3 tests: 0 pass, 0 fail, 3 inconclusive" in result.output


def test_the_command_that_repeats_a_test_of_a_file_names_the_file(tmp_path: Path) -> None:
    here, there = addresses()
    file = tmp_path / "mine.toml"
    steps = """steps = [
        { send = "rud write", psn = "start", syn = 1, ar = 1, data = 8 }, { expect = "ack", return_code = "BAD_MKEY" },
    ]"""
    head = 'id = "MINE-1"\nsection = "pds.md §6.2"\npurpose = "A right write is refused."\n'
    file.write_text(f"[[test]]\n{head}{steps}\n", encoding="utf-8")
    with serving(there):
        result = invoke("conform", "--peer", there, "--local", here, "--tests", str(file))
        assert result.exit_code == 1
        (again,) = [line for line in result.output.splitlines() if "again: " in line]
        repeated = invoke(*shlex.split(again.partition("uetproto ")[2].partition(" -o ")[0]))
    assert (repeated.exit_code, "fail: MINE-1" in repeated.output) == (1, True)


def test_a_wrong_key_and_a_folder_that_is_a_file(tmp_path: Path) -> None:
    """When the answers to most failures refuse the same thing, a line names the option that may be wrong."""
    here, there = addresses()
    file = tmp_path / "file"
    file.touch()
    common = ("conform", "--peer", there, "--local", here, "--rendezvous", "off", "--only", "UET-SES-00[1258]")
    with serving(there, "--rendezvous", "off"):
        wrong = invoke(*common, "--key", "9")
        assert "hint: the peer answers BAD_MKEY in 4 of 4 failures: --key 9 may be wrong" in wrong.output
        right = invoke(*common, "--json")
        assert json.loads(right.stdout.splitlines()[-1])["hints"] == []
        refused = invoke(*common, "-o", str(file))
        assert (refused.exit_code, "File exists; legal: a folder, or a new name" in refused.stderr) == (2, True)


def test_a_report_that_cannot_be_written_is_refused_before_the_first_test(tmp_path: Path) -> None:
    """Also root may not make a file in /proc. If a report fails all the same, the sum is told before."""
    here, there = addresses()
    common = ("conform", "--peer", there, "--local", here, "--rendezvous", "off", "--only", "UET-UUD-001")
    for option in ("--html", "--junit", "--init"):
        refused = invoke(*common, option, "/proc/report")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"{option} /proc/report: No such file or directory; legal: a file that can be written" in refused.stderr
    full = invoke(*common, "--junit", str(tmp_path / "report.xml"), "--html", "/dev/full")
    assert "1 test: 0 pass, 0 fail, 1 inconclusive" in full.stdout
    assert (full.exit_code, "--html /dev/full: No space left on device" in full.stderr) == (2, True)
    assert (tmp_path / "report.xml").exists()


def test_a_peer_at_our_own_address() -> None:
    """A raw socket receives what we send ourselves; it is not taken for what the peer sends."""
    native = ("--ip-protocol", "252", "--path", "raw")
    with serving("::1", *native, "--rendezvous", "4794"):
        more = ("--rendezvous", "4794", "--only", "UET-PDS-00[1-4],UET-SES-001")
        result = invoke("conform", "--peer", "::1", "--local", "::1", *native, *more)
    assert "5 tests: 5 pass, 0 fail, 0 inconclusive" in result.output, result.output


def test_the_list_has_all_tests_and_needs_no_peer() -> None:
    result = invoke("conform", "--list", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [
        test.id for test in load() + load(shipped=TSS)
    ]
    assert invoke("conform").exit_code == 2
