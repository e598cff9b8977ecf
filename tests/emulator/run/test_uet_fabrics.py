# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios of many nodes over UET: congestion control, switches, slow and failing cables, captures."""

from pathlib import Path
from typing import Any

import pytest

from uetproto import LocalError
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.settings import load_text
from uetproto.wire.capture.pcap import open_capture

BASE = """
[run]
hosts = 4
mode = "rud"
[fabric]
topology = "leaf-spine"
hosts_per_leaf = 2
spines = 2
rate = "100 Gb/s"
trimming = true
"""
ROWS = """
[[operation]]
do = "{}"
length = "48 KiB"
"""


def play(text: str, what: str = "incast", **more: Any) -> RunResult:
    result = run(load_text(BASE + text + ROWS.format(what)), check=True, **more)
    assert result.ok, (result.failure, result.findings)
    return result


def test_four_nodes_do_different_things() -> None:
    """`peer` names the other end; each kind of work reaches memory, tagged messages too."""
    result = run(load_text(BASE.partition("[fabric]")[0] + """
[[operation]]
do = "region"
node = "h2"
length = 4096
[[operation]]
do = "write"
node = "h3"
peer = "h2"
length = 4096
[[operation]]
do = "read"
node = "h0"
peer = "h2"
length = 64
after = "all"
[[operation]]
do = "receive"
node = "h3"
tag = 7
length = 100
[[operation]]
do = "send"
node = "h2"
peer = "h3"
tag = 7
length = 100
[[operation]]
do = "nop"
node = "h1"
"""), check=True)  # fmt: skip
    assert result.ok, (result.failure, result.findings)
    assert [one["node"] for one in result.operations] == ["h3", "h0", "h3", "h2", "h1"]
    assert result.bytes == 4096 + 64 + 100
    assert result.counters["h2"]["data_rx"] > 0


def test_congestion_control_needs_shallower_queues() -> None:
    plain = play('[cc]\nalgorithm = "off"')
    nscc, both = play('[cc]\nalgorithm = "nscc"'), play('[cc]\nalgorithm = "nscc+rccc"')
    assert "switch_trimmed" not in plain.happened
    assert max(nscc.queue_peaks.values()) <= max(plain.queue_peaks.values())
    assert nscc.happened["switch_marked"] > 0
    assert both.packets > nscc.packets  # CREDIT


@pytest.mark.parametrize("text", [
    "[switch]\nshared_buffer = '1 MiB'\nbuffer_share = 1",
    "[switch]\necn = 'deterministic'\necn_at = 0.1", "[switch]\nhash_salt = 9",
    "[switch]\nmedium_weight = 0.25\ntrim_limit = 0.5", "pfc = true\n[switch]\nshared_buffer = '16 MiB'",
])  # fmt: skip
def test_switches_without_congestion_control(text: str) -> None:
    """The same flows arrive, whatever the switches do, and otherwise than with plain queues."""
    plain, found = play(""), play(text)
    assert found.sha256_target == plain.sha256_target
    assert (found.happened, found.queue_peaks) != (plain.happened, plain.queue_peaks)


def test_slow_cables_hold_up_what_takes_them() -> None:
    usual = play('[cc]\nalgorithm = "nscc"', "permutation").virtual_time_ps
    slow = play('slow = "leaf0.spine0/8, leaf0.spine1/8"\n[cc]\nalgorithm = "nscc"', "permutation").virtual_time_ps
    assert slow > 2 * usual


def test_a_failing_cable_loses_frames() -> None:
    result = play('fail = ["leaf0.spine1@3 us"]\n[cc]\nalgorithm = "nscc"', "permutation")
    assert result.retransmissions > 0


def test_a_capture_between_switches(tmp_path: Path) -> None:
    """Each direction of the cable is on the interface, and what crosses it stands on a host's interface, too."""
    path = tmp_path / "x.pcapng"
    play('[cc]\nalgorithm = "nscc"\n[tap]\nnodes = ["all"]', "permutation", output=str(path))
    with open_capture(path) as reader:
        hosts = {record.data[26:38] for record in reader}
    play('[cc]\nalgorithm = "nscc"\n[tap]\nnodes = ["h0", "spine0.leaf0"]', "permutation", output=str(path))
    with open_capture(path) as reader:
        records = list(reader)
    assert [one.name for one in reader.interfaces] == ["h0.0", "leaf0.spine0"]
    between = [record for record in records if record.interface == 1]
    assert {record.data[33] in (1, 2) for record in between} == {True, False}  # to and from leaf0
    assert {record.data[26:38] for record in between} <= hosts
    play('[cc]\nalgorithm = "nscc"\n[tap]\nnodes = ["leaf0"]', "permutation", output=str(path))
    with open_capture(path) as reader:
        list(reader)
    own = [f"h{host}.0" for host in range(8) if f"h{host}.0" in [one.name for one in reader.interfaces]]
    assert [one.name for one in reader.interfaces] == [*own, "leaf0.spine0", "leaf0.spine1"]
    assert 0 < len(own) < 8


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[cc]\nentropy_values = 8", "x.toml:12: cc.entropy_values: has no effect without cc.algorithm"),
        (
            "[cc]\nalgorithm = 'nsc'",
            r"x.toml:12: cc.algorithm: 'nsc' is not legal \(did you mean nscc\?\); legal: nscc",
        ),
        ("[cc]\nalgorithm = 'nscc'\nlb = 'x'", "x.toml:13: cc.lb: 'x' is not legal"),
        ("[switch]\necn_min = 1\necn_max = 0.5", "x.toml:12: switch.ecn_min: 1 is above ecn_max; legal: 0 … 0.5"),
        ("[switch]\nshared_buffer = 9", "x.toml:12: switch.shared_buffer: 9 bytes are less than one queue holds"),
        (
            "pfc = true\n[switch]\nshared_buffer = '256 KiB'",
            "shared_buffer: 262144 bytes are no headroom for pfc",
        ),
        ("slow = 'leaf0.spine7'", r"x.toml:11: fabric.slow: there is no leaf0.spine7 \(did you mean leaf0.spine"),
        ("slow = 'leaf0.spine0/1'", "x.toml:11: fabric.slow: .* is not legal; legal: a list of cables"),
        ("fail = ['leaf0.spine0@soon']", "x.toml:11: fabric.fail: .* is not legal"),
        ("fail = ['leaf0.spin0']", "x.toml:11: fabric.fail: there is no leaf0.spin0"),
        ("[tap]\nnodes = ['leaf0.spine9']", "x.toml:12: tap.nodes: there is no leaf0.spine9"),
        ("[tap]\nnodes = ['h9']", r"x.toml:12: tap.nodes: no such node: 'h9'"),
    ],
)
def test_refusals(text: str, error: str) -> None:
    with pytest.raises(LocalError, match=error):
        load_text(BASE + text + ROWS.format("incast"), "x")


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ('do = "write"\npeer = "h0"\nlength = 1', "operation.0.peer: is the node itself"),
        ('do = "write"\npeer = "h7"\nlength = 1', "operation.0.peer: no such node: 'h7'"),
        ('do = "incast"\nnode = "h1"\nlength = 1', "operation.0.node: does not go with incast"),
        ('do = "incast"', "operation.0: incast needs length"),
        ('do = "incast"\nmode = "rudi"\nlength = 1', None),
        ('do = "incst"\nlength = 1', "operation.0.do: 'incst'"),
    ],
)
def test_rows_that_cannot_be(row: str, error: str | None) -> None:
    text = f"{BASE}[[operation]]\n{row}\n"
    if error is None:
        load_text(text)
        return
    with pytest.raises(LocalError, match=error):
        load_text(text)


def test_congestion_control_is_of_uet() -> None:
    with pytest.raises(LocalError, match=r"cc\.algorithm: goes with UET; legal: off"):
        load_text('[run]\ntransport = "rc"\nhosts = 2\ninput = "gradient.npy"\n[cc]\nalgorithm = "nscc"\n')


OBJECTS = BASE + 'wire = "objects"\nqueue_capacity = "16 KiB"\n[cc]\nalgorithm = "nscc"\n'


def test_objects_have_the_results_of_bytes() -> None:
    """Trimmed and marked frames, too: the whole report is the same."""
    texts = (OBJECTS, OBJECTS.replace("objects", "bytes"))
    reports = [run(load_text(text + ROWS.format("incast"))).as_dict() for text in texts]
    assert reports[0] == reports[1]
    assert {"switch_trimmed", "switch_marked"} <= set(reports[0]["happened"])


@pytest.mark.parametrize(("more", "what"), [
    ('[tap]\nnodes = ["h0"]', "objects, with [tap]"), ("[faults]\ntrim = 0.1", "objects, with faults that trim"),
    ("[faults]\ncorrupt = [3]", "objects, with faults that corrupt"), ("[fabric]\npfc = true", "objects, with pfc"),
])  # fmt: skip
def test_what_needs_bytes_is_refused_with_its_line(more: str, what: str) -> None:
    text = OBJECTS + more + ROWS.format("incast")
    if more.startswith("[fabric]"):
        text = text.replace(more, "").replace('queue_capacity = "16 KiB"', "pfc = true")
    with pytest.raises(LocalError) as error:
        load_text(text, "mine")
    assert str(error.value) == f"mine.toml:11: fabric.wire: {what}; legal: bytes"


@pytest.mark.parametrize("more", [{"output": "never.pcapng"}, {"check": True}])
def test_captures_and_checks_of_objects_are_refused_with_a_line(more: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=r"mine.toml:11: fabric.wire: objects, with a c.*; legal: bytes"):
        run(load_text(OBJECTS + ROWS.format("incast"), "mine"), **more)
    assert not Path("never.pcapng").exists()
