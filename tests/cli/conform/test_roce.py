# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto conform --transport rc` over loopback, against `uetproto serve`."""

import json
import sys
from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import addresses
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.cli.conform.acts import ROCE_FACTS
from uetproto.cli.conform.hints import hint_of_pair
from uetproto.conform.catalogue import ROCE, load
from uetproto.conform.player import ConformanceVerdict, Outcome

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
    assert (result.exit_code, "MINE-1 is no test of uet; legal: uet, rc, uc, ud" in result.output) == (2, True)


def test_queue_pairs_of_a_file(tmp_path: Path) -> None:
    """--init writes what the tests need, `serve --pairs` makes it and fills in its numbers, --peer-file tests it."""
    here, there = addresses()
    file = tmp_path / "PEER.toml"
    hand = ("--transport", "rc", "--rendezvous", "off")
    only = ("--only", "ROCE-RC-00[12],ROCE-RC-07[34],ROCE-RC-09[01],ROCE-UC-00[13],ROCE-UD-00[16],ROCE-RQ-001")
    told = invoke(
        "conform", "--peer", there, "--local", here, *hand, "--rkey", "0x77", "--length", "64 KiB", *only, "--init",
        str(file), "--json",
    )  # fmt: skip
    assert json.loads(told.stdout)["pairs"] == {"rc": 13, "uc": 1, "ud": 2}
    early = invoke("conform", "--local", here, "--peer-file", str(file))
    assert (early.exit_code, "pairs.rc1.peer_qpn: is missing" in early.stderr) == (2, True)
    text = file.read_text(encoding="utf-8").replace('# file = "received', 'file = "received')
    file.write_text(text, encoding="utf-8")
    with serving(there, *hand, "--peer-gid", here, "--pairs", str(file)):
        result = invoke("conform", "--local", here, "--peer-file", str(file), *only, "--seed", "2")
        assert "11 tests: 10 pass, 0 fail, 1 inconclusive" in result.output, result.output
        assert "the peer has no work of its own" in result.output
        wrong = invoke("conform", "--local", here, "--peer-file", str(file), "--transport", "uet")
        assert f"--transport: uet is not what {file} says; legal: rc" in wrong.stderr
    assert (tmp_path / "received.jsonl").read_text(encoding="utf-8").count("\n") == 2
    assert "peer_qpn = 0," not in file.read_text(encoding="utf-8")


def test_a_rendezvous_is_asked_and_its_file_used(tmp_path: Path) -> None:
    here, there = addresses()
    file = tmp_path / "PEER.toml"
    with serving(there, "--transport", "rc"):
        told = invoke("conform", "--peer", there, "--local", here, "--transport", "ud", "--init", str(file))
        assert (told.exit_code, "has atomic  (asked: FETCH_ADD)" in told.output) == (0, True), told.output
        result = invoke("conform", "--local", here, "--peer-file", str(file), "--only", "ROCE-UD-00?", "--json")
    *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, summary["pass"], summary["tests"]) == (0, 9, 9)
    assert f"--transport ud --local {here} --peer-file {file} --seed" in results[0]["again"]


DRIVER = f"{sys.executable} -m uetproto.examples.conform_driver"
SEND = (
    f"{sys.executable} -m uetproto send --{{action}} {{what}} --transport rc --rendezvous off --local {{peer}}"
    " --peer {target} --qpn {peer_qpn} --psn {peer_psn} --peer-qpn {qpn} --peer-psn {psn} --rkey {key} --addr {addr}"
    " --payload-mtu {mtu}"
)


def test_a_driver_acts(tmp_path: Path) -> None:
    here, there = addresses()
    common = ("conform", "--as", "target", "--peer", there, "--local", here)
    only = effort("ROCE-INI-033,ROCE-INI-201", "*", "*")
    result = invoke(*common, "--transport", "rc", "--driver", DRIVER, "--only", only, "-o", str(tmp_path), "--json")
    *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one for one in results if one["verdict"] != "pass"] == []
    assert (result.exit_code, summary["pass"]) == (0, len(results))
    assert "RC_RDMA_READ_REQUEST" in (tmp_path / "ROCE-INI-033.txt").read_text(encoding="utf-8")
    result = invoke(*common, "--transport", "rc", "--driver", SEND, "--only", "ROCE-INI-010")
    assert (result.exit_code, "1 test: 1 pass" in result.output) == (0, True), result.output


def test_a_driver_tells_its_queue_pair_and_one_that_tells_nonsense_is_refused(tmp_path: Path) -> None:
    here, there = addresses()
    common = ("conform", "--as", "target", "--peer", there, "--local", here, "--transport", "rc")
    own = SEND.replace("--qpn {peer_qpn}", "--qpn 0x4321").replace("--psn {peer_psn}", "--psn 7")
    wrong = "a line with QPN and first PSN"
    for line, exit_code, words in (("0x4321 7", 0, "1 test: 1 pass"), ("7", 2, wrong), ("7" * 99, 2, wrong)):
        driver = tmp_path / "driver.sh"
        driver.write_text(f'echo "{line}" > "$UETPROTO_PAIR"; exec "$@"\n', encoding="utf-8")
        result = invoke(*common, "--only", "ROCE-INI-001", "--driver", f"sh {driver} {own}")
        assert (result.exit_code, words in result.output) == (exit_code, True), result.output


def test_by_hand_a_line_names_the_queue_pairs() -> None:
    here, there = addresses()
    hand = ("--rendezvous", "off", "--qpn", "0x33", "--psn", "9", "--peer-qpn", "0x22", "--peer-psn", "7")
    common = ("conform", "--as", "target", "--peer", there, "--local", here, *hand, "--wait", "0.2")
    result = invoke(*common, "--transport", "rc", "--only", "ROCE-INI-001")
    assert "ROCE-INI-001  at the peer: RC RDMA WRITE, 8 bytes (" in result.output
    assert f"to {here}, from queue pair 0x22, PSN 7, to 0x33, key 0x5151, address 0x100000, timeout 16" in result.output
    result = invoke(*common, "--transport", "ud", "--only", "ROCE-INI-202", "--json")
    act = json.loads(result.stdout.splitlines()[0])
    assert (act["kind"], act["mode"], act["action"], act["peer_qpn"]) == ("act", "ud", "send_imm", "34")
    assert {*act} == {"kind", *ROCE_FACTS}


def test_only_suggests_ids_of_the_transport() -> None:
    result = invoke("conform", "--peer", "127.0.0.9", "--transport", "rc", "--only", "NOPE")
    assert "--only: 'NOPE' matches no test; legal: a glob, such as ROCE-INI-*" in result.stderr
    result = invoke("conform", "--peer", "127.0.0.9", "--transport", "uc", "--only", "ROCE-UC-0010")
    assert "did you mean ROCE-UC-010 or ROCE-UC-001" in result.stderr
    for transport, glob, legal in (
        ((), "ROCE-UD-*", "matches no test of uet; legal: --transport rc, --transport ud"),
        (("--transport", "uc"), "ROCE-UD-001", "matches no test of uc; legal: --transport rc, --transport ud"),
        (("--transport", "rc"), "UET-TSS-001", "matches no test of rc; legal: --transport uet"),
    ):
        assert legal in invoke("conform", "--peer", "127.0.0.9", *transport, "--only", glob).stderr


def test_a_peer_that_takes_none_of_our_answers_is_told_why_perhaps() -> None:
    tests = [test for test in load(shipped=ROCE) if test.id in ("ROCE-INI-001", "ROCE-INI-002", "ROCE-INI-006")]
    outcomes = [Outcome(test, ConformanceVerdict.FAIL) for test in tests]
    assert "the peer takes none of our answers in 3 tests: has the queue pair" in hint_of_pair(outcomes)[0]
    outcomes[0].verdict = ConformanceVerdict.PASS
    assert hint_of_pair(outcomes) == []
