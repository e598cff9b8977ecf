# SPDX-License-Identifier: GPL-2.0-only
"""The commands as functions: the same results as on the command line, captures that can be asked, errors."""

import gc
import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import uetproto
from tests.support.cli.frames import invoke
from tests.support.each import each


def told(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(*arguments, "--json").output)
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two results differ in the names of files alone."""
    names = ("capture", "mutations_file", "keys_file", "side_file")
    return {key: value for key, value in json.loads(json.dumps(one)).items() if key not in names} == {
        key: value for key, value in other.items() if key not in names
    }


def test_run(tmp_path: Path) -> None:
    found = uetproto.run("gradient-lossy", {"payload_mtu": 2048, "faults.drop": 0.05}, seed=5, tap="all", check=True)
    path = str(tmp_path / "x.pcapng")
    settings = ("--set", "payload_mtu=2048", "--set", "faults.drop=0.05", "--seed", "5", "--tap", "all", "--check")
    assert same(found.as_dict(), told("run", "gradient-lossy", *settings, "-o", path))
    assert (found.ok, found.result.match, found.result.scenario) == (True, True, "gradient-lossy")
    assert [packet.data for packet in found.capture] == [packet.data for packet in uetproto.open(path)]
    assert len(found.flows) == len(found.pdcs) == 2
    assert found.audit().ok
    assert len(found.messages) == 2
    assert "<img" in found.ladder()._repr_html_()
    assert found.stats().packets == len(found.capture)


def test_values_of_settings() -> None:
    node = {"address": "10.0.0.9"}
    found = uetproto.run(
        "gradient", {"nodes.third": node, "pds.rto_init_time": "2 ms", "crc": False, "tap.nodes": "all"}
    )
    assert {packet.interface for packet in found.capture} >= {"rank0.0", "rank2.0"}
    assert found.capture[0].packet.trailer is None


def test_generate(tmp_path: Path) -> None:
    found = uetproto.generate("mixed", {"loss": 0.02}, packets=500, seed=3, mutate={"bad-crc": 0.1})
    path = str(tmp_path / "x.pcapng")
    arguments = ("--set", "loss=0.02", "--packets", "500", "--seed", "3", "--mutate", "bad-crc=0.1")
    assert same(found.as_dict(), told("generate", "mixed", *arguments, "-o", path))
    assert [packet.data for packet in found.capture] == [packet.data for packet in uetproto.open(path)]
    assert not found.audit().ok
    assert uetproto.generate("lossy", duration="20 us").result.virtual_time_ps >= 15_000_000


def test_generate_opens_what_it_sealed() -> None:
    assert len(uetproto.generate("sealed", packets=100).messages) > 0


def test_fabric() -> None:
    found = uetproto.fabric("incast", {"cc.entropy_values": 16}, hosts=4, flow_size="64 KiB", capture=True)
    arguments = ("--hosts", "4", "--flow-size", "64 KiB", "--set", "cc.entropy_values=16")
    assert same(found.as_dict(), told("fabric", "incast", *arguments))
    assert (found.ok, found.result.flows) == (True, 2)
    assert {flow.kind for flow in found.flows} == {"pdc"}
    import_module("uetproto.fabric.study")  # the name is now that of the package, which can be called

    assert uetproto.fabric("incast", hosts=4, flow_size=1000, wire="objects").ok


def test_collective() -> None:
    found = uetproto.collective("all_reduce", ranks=4, algorithm="ring", bytes="64KiB", capture=True, tap="all")
    arguments = ("all_reduce", "--ranks", "4", "--algorithm", "ring", "--bytes", "64KiB")
    assert same(found.as_dict(), told("collective", *arguments))
    assert (found.ok, found.result.correct) == (True, True)
    assert len(found.capture) > 0
    assert uetproto.collective("barrier", transport="model").ok


def test_a_capture_lives_as_long_as_it_is_used(tmp_path: Path) -> None:
    found = uetproto.run("gradient")
    capture = found.capture
    (path,) = capture.names
    del found
    gc.collect()
    assert len(list(capture)) == 7
    del capture
    gc.collect()
    assert not os.path.exists(path)
    kept = uetproto.run("gradient", output=tmp_path / "x.pcapng")
    assert kept.capture.names == (str(tmp_path / "x.pcapng"),)


def test_how_outcomes_show_themselves() -> None:
    found = uetproto.run("gradient", capture=False)
    assert "virtual_time_ps  " in repr(found)
    assert "<td" in found._repr_html_()
    with pytest.raises(uetproto.LocalError, match="capture: was not asked for; legal: with capture=True"):
        found.ladder()


@each(
    "call, text",
    [
        (lambda: uetproto.run("gradeint"), r"did you mean gradient"),
        (lambda: uetproto.run("gradient", {"payload_mut": 5}), r"did you mean ses.payload_mtu"),
        (lambda: uetproto.run("gradient", "mode=rud"), r"settings: 'mode=rud' is not legal"),
        (lambda: uetproto.run("gradient", seed=-1), "seed: -1 is not legal"),
        (lambda: uetproto.run("gradient", output="-"), "output: - is not legal"),
        (lambda: uetproto.generate("mixde"), "did you mean mixed"),
        (lambda: uetproto.generate("mixed", mutate={"bad-csc": 0.1}), "did you mean bad-crc"),
        (lambda: uetproto.generate("mixed", duration="5 parsec"), "duration: '5 parsec' is not legal"),
        (lambda: uetproto.fabric("incats"), "incats"),
        (lambda: uetproto.fabric("incast", cc="nsc"), "nsc"),
        (lambda: uetproto.fabric("incast", lb="mixde"), r"lb: 'mixde' is not legal \(did you mean mixed"),
        (lambda: uetproto.fabric("incast", rate="fast"), "rate: 'fast' is not legal"),
        (lambda: uetproto.fabric("incast", wire="objects", capture=True), "wire: objects cannot be captured"),
        (lambda: uetproto.collective("all_redcue"), "did you mean"),
        (lambda: uetproto.collective("all_reduce", transport="uet,roce"), "transport: uet, roce are several"),
        (lambda: uetproto.collective("all_reduce", algorithm="rnig"), "did you mean"),
    ],
)
def test_what_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(uetproto.LocalError, match=text):
        call()
