# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto replay` over loopback, against `uetproto serve`."""

import json
from pathlib import Path
from typing import Any

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.live import addresses
from tests.support.paths import PCAPS
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options

FETCHING = str(PCAPS / "ses-fetching-atomic.pcapng")

PEER = """[peer]
address = "{}"
[link]
path_mtu = 4096
[memory]
key = 0x77
address = 0x10000
[pairs]
one = {{ kind = "rc", qpn = 0x101, psn = 98, peer_qpn = 0 }}
two = {{ kind = "rc", psn = 9, peer_qpn = 0, qpn = 0x102 }}
"""


def told(output: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    *differences, summary = [json.loads(line) for line in output.splitlines()]
    return differences, summary


def test_frames_and_work_of_a_capture(tmp_path: Path) -> None:
    here, there = addresses()
    capture = tmp_path / "replayed.pcapng"
    common = ("--peer", there, "--local", here, "--seed", "3", "--json")
    with serving(there):
        frames = invoke("replay", FETCHING, "--as", "10.0.0.11", "--frames", "-o", str(capture), *common)
        again = invoke("replay", str(capture), "--as", here, "--frames", "--ignore", "payload", *common)
        work = invoke("replay", FETCHING, "--as", "10.0.0.11", "--work", *common)
        same = invoke("replay", FETCHING, "--as", "10.0.0.11", "--work", "--ignore", "payload", *common)
    differences, summary = told(frames.stdout)
    assert frames.exit_code == 1
    assert (summary["sent"], summary["same"], summary["differs"], summary["missing"], summary["extra"]) == (
        3,
        1,
        2,
        0,
        0,
    )
    assert [one["packet"] for one in differences] == [1, 3]
    assert differences[0]["fields"]["payload"] == {"capture": "8 bytes, 28 at byte 7", "now": "8 bytes, 00 at byte 7"}
    found = audit([capture], Options(complete=True))
    assert found.findings == []
    _, summary = told(again.stdout)
    assert (again.exit_code, summary["same"], summary["sent"]) == (0, 3, 3)
    differences, summary = told(work.stdout)
    assert (work.exit_code, summary["sent"], summary["differs"], len(differences)) == (1, 2, 2, 2)
    _, summary = told(same.stdout)
    assert (same.exit_code, summary["same"], summary["differs"]) == (0, 2, 0)


def test_a_sealed_capture_is_replayed_with_its_keys() -> None:
    here, there = addresses()
    sealed = PCAPS / "gradient-sealed-cluster.pcapng"
    common = ("--as", "10.0.0.11", "--peer", there, "--local", here, "--json", "--ignore", "type")
    with serving(there):
        for mode in ("--frames", "--work"):
            keys = ("--captured-keys", str(sealed.with_suffix(".keys.toml")))
            _, summary = told(invoke("replay", str(sealed), mode, *keys, *common).stdout)
            assert (summary["differs"], summary["missing"], summary["extra"], summary["left_out"]) == (0, 0, 0, {})
            assert summary["same"] + summary.get("covered", 0)
    other = str(PCAPS / "gradient-sealed-direct.keys.toml")
    with serving(there, "--keys", other):
        anew = invoke("replay", str(sealed), "--work", *keys, "--keys", other, *common)
    assert (anew.exit_code, told(anew.stdout)[1]["same"]) == (0, 1), anew.output
    work = ("replay", str(sealed), "--work", *keys, "--keys", other, *common)
    with serving(there, "--keys", other, "--ssi", "7"):
        anew = invoke(*work, "--ssi", "8")
        refused = [invoke(*work, *more) for more in ((), ("--ssi", "7"))]
    assert (anew.exit_code, told(anew.stdout)[1]["same"]) == (0, 1), anew.output
    assert [one.exit_code for one in refused] == [2, 2]
    assert "packets of this end have SSI 7, and those of the peer have none" in refused[0].output
    assert "both ends have 7" in refused[1].output
    result = invoke("replay", str(sealed), "--frames", "--keys", other, *common)
    assert (result.exit_code, "does not go with --frames" in result.output) == (2, True)
    result = invoke("replay", str(sealed), "--frames", *common)
    assert (result.exit_code, "sealed" in result.output) == (2, True)


def test_roce_captures_over_a_rendezvous_and_by_hand(tmp_path: Path) -> None:
    here, there = addresses()
    common = ("--as", "10.0.0.11", "--peer", there, "--local", here, "--transport", "rc", "--seed", "3", "--json")
    captures = [str(PCAPS / f"{name}.pcapng") for name in ("roce-write", "roce-fetch-add", "roce-ud-send-imm")]
    with serving(there, "--transport", "rc"):
        for capture, frames, work, what in zip(captures, ((4, 2), (2, 0), (1, 0)), (2, 0, 1), ("", *["payload", ""]),
                                               strict=True):  # fmt: skip
            result = invoke("replay", capture, "--frames", "-o", str(tmp_path / "replayed.pcapng"), *common)
            differences, summary = told(result.stdout)
            assert ((summary["sent"], summary["same"]), summary["missing"], summary["extra"]) == (frames, 0, 0)
            assert {name for one in differences for name in one["fields"]} == ({"origremdt"} if what else set())
            assert audit([tmp_path / "replayed.pcapng"], Options(complete=True)).findings == []
            differences, summary = told(invoke("replay", capture, "--work", *common).stdout)
            assert (summary["same"], summary["missing"], summary["error"]) == (work, 0, None)
            assert {name for one in differences for name in one["fields"]} == ({what} if what else set())
    hand = ("--rendezvous", "off", "--key", "0x77", "--addr", "0x10000", "--payload-mtu", "4096")
    peer_file = tmp_path / "PEER.toml"
    peer_file.write_text(PEER.format(there), encoding="utf-8")
    with serving(there, "--transport", "rc", "--peer-gid", here, "--pairs", str(peer_file), *hand):
        two = ("replay", str(PCAPS / "roce-srq.pcapng"), "--work", "--as", "10.0.0.11", "--local", here, "--json")
        result = invoke(*two, "--peer-file", str(peer_file))
    assert (result.exit_code, told(result.stdout)[1]["same"]) == (0, 3), result.output
    result = invoke("replay", captures[2], "--work", *common, *hand)
    assert (result.exit_code, "no queue pair by hand is one of UD" in result.output) == (2, True), result.output
    result = invoke("replay", captures[2], "--work", *common, *hand, "--transport", "ud")
    assert (result.exit_code, told(result.stdout)[1]["same"]) == (0, 1), result.output


def test_what_cannot_be_replayed_is_refused_with_a_line() -> None:
    here, there = addresses()
    common = ("--peer", there, "--local", here)
    for arguments, line in (
        ((FETCHING, "--as", "10.9.9.9", "--frames"), "legal: 10.0.0.11, 10.0.1.11"),
        ((FETCHING, "--as", "10.0.0.11"), "neither --frames nor --work"),
        (("-", "--as", "10.0.0.11", "--work"), "- is no file"),
        ((FETCHING, "--as", "10.0.0.11", "--work", "--ignore", "sckpsn"), "'sckpsn' is no field"),
        ((FETCHING, "--as", "10.0.0.11", "--frames", "-o", FETCHING), "-o"),
        ((FETCHING, "--as", "10.0.0.11", "--frames"), "no rendezvous at"),
    ):
        result = invoke("replay", *arguments, *common)
        assert (result.exit_code, line in result.output) == (2, True), result.output
    result = invoke("replay", FETCHING, "--as", "10.0.0.11", "--frames", "--rendezvous", "off", *common)
    assert (result.exit_code, "the peer does not answer" in result.output) == (1, True)
