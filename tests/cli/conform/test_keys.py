# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto conform --keys` over loopback, against `uetproto serve --keys`."""

import json
import sys
from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import addresses
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.conform.catalogue import INITIATOR, ROCE, TSS, load, of_role
from uetproto.engine.tss.keys import KeyRing

FEW = effort("UET-TSS-*,UET-PDS-00[1-4],UET-PDS-028,UET-SES-00[1-3]", "*", "*")
KEYS = f"""[[sdi]]
id = 7
mode = "direct"
keys = [{{ an = 0, key = "{bytes(range(32)).hex()}" }}, {{ an = 1, key = "{bytes(range(32, 64)).hex()}" }}]
"""


def test_our_target_passes(tmp_path: Path) -> None:
    here, there = addresses()
    folder, keys = tmp_path / "report", tmp_path / "keys.toml"
    keys.write_text(KEYS, encoding="utf-8")
    with serving(there, "--keys", str(keys), "--ssi", "2"):
        result = invoke(
            "conform", "--peer", there, "--local", here, "--keys", str(keys), "--ssi", "1", "--only", FEW, "-o",
            str(folder), "--json",
        )  # fmt: skip
    *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one for one in results if one["verdict"] == "fail"] == []
    assert result.exit_code == 0
    assert summary["pass"] > 20
    sealed = {one["id"] for one in results if one["verdict"] == "pass"}
    assert {test.id for test in of_role(load(shipped=TSS), INITIATOR)} <= sealed
    assert "[opened]" in (folder / "UET-TSS-001.txt").read_text(encoding="utf-8")
    capture = folder / "UET-TSS-001.pcapng"
    assert audit([capture], Options(keys=KeyRing.read(keys))).findings == []
    assert bytes.fromhex("0c000007") in capture.read_bytes()  # sealed, with SSI, in SDI 7
    assert f"--keys {keys}" in results[0]["again"]


def test_a_peer_that_acts_seals_its_packets(tmp_path: Path) -> None:
    here, there = addresses()
    keys = tmp_path / "keys.toml"
    keys.write_text(KEYS, encoding="utf-8")
    driver = (
        f"{sys.executable} -m uetproto send --{{action}} {{what}} --peer {{target}} --local {{peer}} --rendezvous off"
    )
    common = ("conform", "--as", "target", "--peer", there, "--local", here, "--keys", str(keys), "--ssi", "1")
    few = (
        "--only",
        effort("UET-TSS-03[01]", "UET-TSS-03[01],UET-INI-001", "UET-TSS-03[01],UET-INI-001"),
        "-o",
        str(tmp_path / "report"),
    )
    result = invoke(*common, *few, "--driver", f"{driver} --keys {keys} --ssi 2 --payload-mtu {{mtu}}")
    assert (result.exit_code, "0 fail, 0 inconclusive" in result.output) == (0, True), result.output
    result = invoke(*common, "--only", "UET-INI-001", "--driver", driver)
    assert (result.exit_code, "it is not sealed (tss.md §1)" in result.output) == (1, True), result.output


def test_tests_of_sealed_packets_need_keys(tmp_path: Path) -> None:
    result = invoke("conform", "--peer", "127.0.0.9", "--only", "UET-TSS-00?")
    assert (result.exit_code, "--keys: is missing: UET-TSS-001 is of sealed packets" in result.output) == (2, True)
    keys = tmp_path / "keys.toml"
    keys.write_text(KEYS, encoding="utf-8")
    result = invoke("conform", "--peer", "127.0.0.9", "--keys", str(keys), "--transport", "rc")
    assert (result.exit_code, "--keys" in result.output) == (2, True)


def test_the_list_has_all_tests() -> None:
    told = [invoke("conform", "--list", "--json", *more).stdout for more in ((), ("--transport", "rc"))]
    listed = [json.loads(line)["id"] for text in told for line in text.splitlines()]
    expected = [*load(), *load(shipped=TSS), *load(shipped=ROCE)]
    assert sorted(listed) == sorted(test.id for test in expected)
