# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto conform --init` and `--peer-file`, against `uetproto serve`."""

import json
from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.live import addresses


def test_a_file_is_written_used_and_not_overwritten(tmp_path: Path) -> None:
    here, there = addresses()
    file = tmp_path / "PEER.toml"
    common = ("--local", here, "--seed", "3")
    with serving(there, "--key", "0x77", "--job-id", "9", "--addr", "0x1000"):
        result = invoke("conform", "--init", str(file), "--peer", there, *common)
        assert (result.exit_code, "has rudi" in result.output) == (0, True), result.output
        text = file.read_text(encoding="utf-8")
        assert "key = 119\n" in text
        again = invoke("conform", "--init", str(file), "--peer", there, *common)
        assert (again.exit_code, "is there; legal: another name, or --overwrite" in again.output) == (2, True)
        assert file.read_text(encoding="utf-8") == text
        result = invoke("conform", "--init", str(file), "--overwrite", "--peer", there, *common, "--json")
        told = json.loads(result.stdout)
        assert (told["overwritten"], told["capabilities"]["read"]) == (True, True)
        result = invoke(
            "conform", "--peer-file", str(file), *common, "--only", "UET-SES-00[126],UET-RUDI-003", "--json"
        )
        *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
        assert (summary["pass"], summary["peer"]) == (4, there), results
        assert results[0]["again"] == (
            f"uetproto conform --peer {there} --local {here} --peer-file {file} --seed 3 --only UET-RUDI-003"
        )
        wrong = invoke("conform", "--peer-file", str(file), *common, "--key", "1")
        assert f"--key: 1 is not what {file} says; legal: 119" in wrong.output
        wrong = invoke("conform", "--peer-file", str(file), "--peer", "127.0.0.1", *common)
        assert "--peer: 127.0.0.1 is not the peer of" in wrong.output
        file.write_text(text.replace("read = true", "read = false"), encoding="utf-8")
        result = invoke("conform", "--peer-file", str(file), *common, "--only", "UET-SES-00[12]")
        assert "the peer has no READ" in result.output
    file.unlink()
    result = invoke("conform", "--init", str(file), "--peer", there, "--rendezvous", "off", *common)
    assert (result.exit_code, file.exists(), "nothing is known of the peer" in result.output) == (1, False, True)
    assert invoke("conform", "--peer-file", str(file), *common).exit_code == 2
