# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto conform --as target`: the peer acts, by a driver or by hand."""

import json
import socket
import sys
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.effort import effort
from tests.support.live import addresses
from uetproto import LocalError
from uetproto.cli.conform.acts import FACTS, filled

SEND = (
    f"{sys.executable} -m uetproto send --{{action}} {{what}} --peer {{target}} --local {{peer}} --rendezvous off"
    " --key {key} --addr {addr} --mode {mode} --payload-mtu {mtu} --job-id {job} --pid {pid} --resource-index {index}"
    " --initiator-id {initiator}"
)
DRIVER = f"{sys.executable} -m uetproto.examples.conform_driver"


def target(*arguments: str) -> tuple[str, ...]:
    here, there = addresses()
    return ("conform", "--as", "target", "--peer", there, "--local", here, "--rto", "200", *arguments)


def test_send_as_the_driver_passes(tmp_path: Path) -> None:
    more = "UET-INI-022,UET-INI-063,UET-INI-080,UET-INI-062"
    only = effort("UET-INI-022,UET-INI-063", more, more)
    result = invoke(*target("--driver", SEND, "--only", only, "--json", "-o", str(tmp_path), "--seed", "3"))
    *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert {one["id"]: one["reason"] for one in results if one["verdict"] != "pass"} == {}
    assert (result.exit_code, summary["pass"]) == (0, len(results))
    assert "--driver" in results[0]["again"]
    assert "--as target" in results[0]["again"]
    assert (tmp_path / "UET-INI-022.pcapng").stat().st_size > 100


def test_the_driver_of_the_examples_does_what_send_does_not() -> None:
    only = effort("UET-INI-101,UET-INI-110", "UET-INI-101,UET-INI-104,UET-INI-110", "UET-INI-1*")
    result = invoke(*target("--driver", DRIVER, "--only", only))
    assert (result.exit_code, "0 fail, 0 inconclusive" in result.output) == (0, True), result.output


def script(folder: Path, text: str) -> str:
    path = folder / "driver.py"
    path.write_text(text, encoding="utf-8")
    return f"{sys.executable} {path}"


@pytest.mark.parametrize(("text", "told", "status"), [
    ("import sys; sys.exit('no such device')", "the driver ended with status 1: no such device", 1),
    ("import sys; sys.exit(77)", "the driver ended with status 77", 0),
    ("pass", "the driver ended with status 0", 1),
    ("print('x' * 10_000_000, flush=True); import sys; sys.exit(3)", "the driver ended with status 3: xxx", 1),
    ("import time; time.sleep(600)", "the driver has not ended", 1),
    ("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)", "the driver has not ended", 1),
])  # fmt: skip
def test_a_driver_without_packets_is_inconclusive(tmp_path: Path, text: str, told: str, status: int) -> None:
    driver = script(tmp_path, text)
    result = invoke(*target("--driver", driver, "--only", "UET-INI-00[12345]", "--wait", "1"))
    assert told in result.output
    assert result.exit_code == status
    assert "0 pass, 0 fail, 5 inconclusive" in result.output
    assert result.output.count("inconclusive: ") == (5 if status == 0 else 2)  # then nobody is asked any more


def test_a_program_that_has_the_address_of_the_peer_is_told() -> None:
    arguments = target("--driver", DRIVER, "--only", "UET-INI-001")
    there = arguments[4]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((there, 4793))
        result = invoke(*arguments)
    assert f"the driver ended with status 1: local_port: port 4793 of {there} is in use" in result.output
    assert f"hint: a program has UDP port 4793 of {there}: unless it is the one that acts" in result.output


def test_by_hand_a_line_says_what_the_peer_has_to_do(tmp_path: Path) -> None:
    arguments = target("--only", "UET-INI-002,UET-INI-063", "--wait", "0.2", "-o", str(tmp_path), "--key", "0x77")
    result = invoke(*arguments)
    here = arguments[6]
    assert f"UET-INI-002  at the peer: RUD write, 8,200 bytes ({tmp_path}/UET-INI-002.act), to {here}" in result.output
    assert "key 0x77, address 0x0, PIDonFEP 0, resource index 15, JobID 1" in result.output
    assert "UET-INI-063  at the peer: RUD read, 8 bytes, to" in result.output
    assert "no packet came in time" in result.output
    told = [json.loads(line) for line in invoke(*arguments, "--json").stdout.splitlines()]
    assert {*told[0]} == {"kind", *FACTS}
    assert (told[0]["kind"], told[0]["id"], told[0]["length"]) == ("act", "UET-INI-002", "8200")


def test_options_that_do_not_fit_are_refused() -> None:
    here, there = addresses()
    assert "does not go with --as initiator" in invoke("conform", "--peer", there, "--driver", "true").output
    assert "{adr} is not known" in invoke(*target("--driver", "run {adr}")).output
    assert "/nowhere/at/all: No such file" in invoke(*target("--driver", "/nowhere/at/all")).output
    assert "no test is left" in invoke("conform", "--as", "target", "--peer", there, "--only", "UET-PDS-001").output
    assert "--acts-from" in invoke(*target("--acts-from", "::1", "--driver", "true")).output
    with pytest.raises(LocalError, match="No closing quotation"):
        filled("run '", {})
    assert filled("run {key} '{\"a\": 1}' a{key}b", {"key": "7"}) == ["run", "7", '{"a": 1}', "a7b"]
    assert here
