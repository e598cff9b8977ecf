# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto collective`: what it measures, what it promises, what it refuses."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import Result

from tests.support import paths
from tests.support.cli.frames import invoke
from tests.support.effort import effort
from uetproto import decode
from uetproto.api.distributed.networks.packets import RECORD
from uetproto.cli.collective.run import RATE, CollectiveCase, PreparedCase
from uetproto.cli.main import cli
from uetproto.cli.outputs import check_plot
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, scheduled
from uetproto.collectives.costs.measure import MeasuredCollective, promised
from uetproto.collectives.costs.sample import Sample
from uetproto.collectives.dtypes import dtype
from uetproto.collectives.reduce_ops import OPS, ReduceOp
from uetproto.errors import LocalError
from uetproto.wire.capture.pcap import open_capture

KEYS = [
    "op", "algorithm", "ranks", "bytes", "steps", "bytes_per_rank_tx", "bytes_on_links", "payload_on_links",
    "virtual_time_ps", "formula", "correct", "drops", "trims", "marks", "retransmissions", "transport", "topology",
    "dtype", "seed", "ports", "cc", "lb", "message_times",
]  # fmt: skip
PNG = b"\x89PNG\r\n\x1a\n"


def call(*arguments: str) -> Result:
    return invoke("collective", *arguments)


def objects(*arguments: str) -> list[dict[str, Any]]:
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def case(
    op: str = "all_reduce", algorithm: str = "ring", ranks: int = 4, length: int = 4096, **more: Any
) -> CollectiveCase:
    return CollectiveCase(op=op, algorithm=algorithm, ranks=ranks, length=length, dtype=dtype("float32"), **more)


# Numbers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
def test_json_of_a_ring(transport: str) -> None:
    """interfaces.md §10, and collectives.md §3.0: 2(N-1) steps, 2(N-1)/N · D bytes a rank."""
    (found,) = objects("all_reduce", "--ranks", "4", "--algorithm", "ring", "--bytes", "4096", "--transport", transport)
    assert list(found) == KEYS
    assert found["steps"] == found["formula"]["steps"] == 6
    assert found["bytes_per_rank_tx"] == [6144] * 4
    assert found["formula"]["bytes_per_rank"] == 6144
    assert found["payload_on_links"] == 2 * 4 * 6144  # to the switch, and from it
    assert found["correct"] is True
    if transport == "model":
        assert found["bytes_on_links"] is None
        assert found["virtual_time_ps"] == found["formula"]["time_ps"] == 6 * (10**6 + 1024 * 20)
    else:
        assert found["bytes_on_links"] > found["payload_on_links"]
        assert found["formula"]["time_ps"] == 6 * (6 * 10**6 + 1024 * 20)
        assert found["virtual_time_ps"] == pytest.approx(found["formula"]["time_ps"], rel=0.02)


LOSING = ("all_reduce", "--ranks", "8", "--bytes", "1MiB", "--algorithm", "tree")
"""Two children send 1 MiB each to their parent at once: the queue of the switch overflows."""


@pytest.mark.parametrize("transport", ["uet", "roce"])
def test_a_run_that_lost_something_says_so(transport: str) -> None:
    (found,) = objects(*LOSING, "--transport", transport)
    assert found["correct"] is True
    assert found["drops"] > 0
    assert found["retransmissions"]["RTO"] >= found["drops"]
    told = f"{found['drops']} frames dropped, 0 trimmed, {sum(found['retransmissions'].values())} packets sent again"
    assert f"  {told}" in call(*LOSING, "--transport", transport).stdout
    several = call(*LOSING[:-2], "--compare", "tree,ring", "--transport", transport).stdout
    assert f"\ntree, 8 ranks: {told}" in several
    assert "ring, 8 ranks" not in several


def test_what_was_run_is_told() -> None:
    (found,) = objects(
        "all_reduce", "--topology", "rails:gpus_per_node=2", "--dtype", "int16", "--seed", "7", "--bytes", "4KiB",
        "--ports", "2",
    )  # fmt: skip
    assert {name: found[name] for name in KEYS[-12:-3]} == {
        "drops": 0, "trims": 0, "marks": 0, "retransmissions": {}, "transport": "uet",
        "topology": "rails:gpus_per_node=2", "dtype": "int16", "seed": 7, "ports": 2,
    }  # fmt: skip
    (planned,) = objects("all_reduce", "--algorithm", "ring", "--schedule")
    assert [planned[name] for name in KEYS[-12:-8]] == [None] * 4


@pytest.mark.parametrize(
    ("option", "value"),
    [("--rate", "1 Gb/s"), ("--delay", "7 us"), ("--mtu", "1024"), ("--loss", "0.1"), ("--trains", "on")],
)
def test_a_schedule_has_no_fabric(option: str, value: str) -> None:
    refused = call("all_reduce", "--algorithm", "ring", "--schedule", option, value)
    assert refused.exit_code == 2
    assert f"{option} {value}: --schedule runs nothing on a fabric" in refused.stderr


EVERY = [(op, name) for op in ALGORITHMS for name in scheduled(op)]


@pytest.mark.parametrize(("op", "algorithm"), EVERY)
def test_bytes_on_every_link_are_those_of_the_schedule(op: str, algorithm: str) -> None:
    """Counted frame by frame, over one switch and between hosts of two ranks, where some bytes meet no link."""
    length = 0 if op == "barrier" else 2048
    fabrics: list[dict[str, Any]] = [{"kind": "rails", "shape": {"gpus_per_node": 2}, "transport": "roce"}]
    if algorithm not in HIERARCHICAL:
        fabrics.append({"transport": "uet"})
    for fabric in fabrics:
        prepared = PreparedCase(case(op, algorithm, length=length, **fabric))
        found = prepared.run()
        assert found.correct
        assert found.links is not None
        expected = promised(prepared.schedule, prepared.topology, prepared.item)
        counted = {link.link: link.payload for link in found.links}
        ends = {rank: prepared.topology.label(prepared.topology.up(rank)) for rank in range(4)}
        assert [counted[ends[rank]] for rank in range(4)] == expected.tx.tolist()
        assert found.payload == expected.trav
        if found.formula is not None:
            assert (found.steps, found.busiest) == (found.formula.steps, found.formula.bytes_per_rank)


def test_a_message_as_long_as_a_record_is_not_taken_for_one() -> None:
    """UET ranks tell each other in 40 bytes where bytes may go; so may data be 40 bytes."""
    found = PreparedCase(case("broadcast", "linear", ranks=3, length=40)).run()
    assert found.payload == found.promised == 2 * 2 * 40


def test_latency_is_linear_for_the_ring_and_logarithmic_for_trees() -> None:
    """collectives.md §7."""
    found = objects("all_reduce", "--ranks", "2,4,8,16", "--bytes", "256", "--compare", "ring,double_tree")
    times = {(one["algorithm"], one["ranks"]): one["virtual_time_ps"] for one in found}
    step = times["ring", 2] / 2
    for ranks in (4, 8, 16):
        assert times["ring", ranks] == pytest.approx(2 * (ranks - 1) * step, rel=0.02)
        assert times["double_tree", ranks] <= 2 * (ranks - 1).bit_length() * step * 1.02


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
def test_no_bus_is_faster_than_a_link(transport: str) -> None:
    """Invariant 39."""
    length = effort(1 << 15, 1 << 18, 1 << 18)
    for op in ALGORITHMS:
        for algorithm in set(scheduled(op)) - HIERARCHICAL:
            found = PreparedCase(case(op, algorithm, 4, 0 if op == "barrier" else length, transport=transport)).run()
            assert found.busbw <= RATE / 8
            assert found.algbw == pytest.approx(found.bytes / found.time * 1e12)


def test_an_algorithm_without_a_formula_runs_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(ALGORITHMS["all_reduce"]["ring"], formula=None)
    monkeypatch.setitem(ALGORITHMS["all_reduce"], "unknown", row)
    told = ("all_reduce", "--algorithm", "unknown", "--bytes", "4KiB", "--transport", "model")
    (found,) = objects(*told)
    assert found["formula"] is None
    assert found["correct"] is True
    assert "no formula for all_reduce by unknown" in call(*told).stdout
    compared = call("all_reduce", "--compare", "ring,unknown", "--bytes", "4KiB", "--transport", "model").stdout
    assert "no formula for all_reduce by unknown\n" in compared


def test_within_hosts_time_passes_and_no_packet() -> None:
    found = PreparedCase(case(kind="rails", ranks=4)).run()
    assert found.links is not None
    assert {link.frames for link in found.links} == {0}
    assert found.formula is not None
    assert found.time == pytest.approx(found.formula.time, rel=0.01)
    assert found.busiest == 6144


def test_packets_that_overtake_each_other_wait_for_no_timer() -> None:
    """Between leaves there are several ways; the ring takes no longer than its formula says."""
    found = PreparedCase(case(ranks=8, length=1 << 20, kind="rails", shape={"gpus_per_node": 4})).run()
    assert found.formula is not None
    assert found.time < 1.02 * found.formula.time
    assert found.payload == found.promised


def test_one_rank_sends_nothing() -> None:
    (found,) = objects("all_reduce", "--ranks", "1", "--algorithm", "ring", "--bytes", "64")
    assert (found["steps"], found["bytes_per_rank_tx"], found["bytes_on_links"]) == (0, [0], 0)
    assert found["correct"]


def test_one_seed_one_run() -> None:
    arguments = ("all_reduce", "--ranks", "3", "--bytes", "1KiB", "--transport", "roce", "--seed")
    assert objects(*arguments, "7") == objects(*arguments, "7")


# Tensors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["int8", "uint64", "bool", "float16", "float64", "bfloat16", "complex64"])
def test_results_are_numpys(name: str) -> None:
    for reduce_op in (getattr(ReduceOp, op) for op in OPS):
        try:
            reduce_op.check(dtype(name))
        except LocalError:
            continue
        for op in ("all_reduce", "reduce", "reduce_scatter"):
            one = CollectiveCase(op=op, algorithm="binomial" if op == "reduce" else "ring", ranks=3, length=96,
                       dtype=dtype(name), reduce_op=reduce_op, transport="model")  # fmt: skip
            assert PreparedCase(one).run().correct, (op, reduce_op)


@pytest.mark.parametrize(("op", "algorithm"), [key for key in EVERY if key[0] != "barrier"])
def test_a_wrong_result_is_seen(op: str, algorithm: str) -> None:
    """What never ran is not correct, nor is one bit too many."""
    schedule = PreparedCase(case(op, algorithm, shape={"gpus_per_node": 2}, transport="model")).schedule
    sample = Sample(schedule, dtype("int32"), ReduceOp.SUM, seed=1)
    assert not sample.correct


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_a_float_is_wrong_by_more_than_rounding(name: str) -> None:
    schedule = PreparedCase(case("reduce", "binomial", transport="model")).schedule
    sample = Sample(schedule, dtype(name), ReduceOp.SUM, seed=1)
    right = np.sum(sample.inputs, axis=0).astype(sample.inputs[0].dtype)
    sample.outputs[0][...] = right
    assert sample.correct
    sample.outputs[0][7] += 1
    assert not sample.correct


def test_a_wrong_result_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sample, "correct", False)
    done = call("all_reduce", "--ranks", "2", "--bytes", "8")
    assert done.exit_code == 1
    assert "differs from NumPy's" in done.stdout


# For people ---------------------------------------------------------------------------------------------------------


def test_one_collective() -> None:
    done = call("all_reduce", "--ranks", "4", "--algorithm", "ring", "--bytes", "4KiB")
    assert done.exit_code == 0
    lines = {line.split("  ")[1].strip(): line.split() for line in done.stdout.splitlines() if line.startswith("  ")}
    assert lines["steps"][-2:] == ["6", "6"]
    assert lines["bytes a rank sends"][-2:] == ["6,144", "6,144"]
    assert lines["bytes all ranks send"][-1] == "24,576"
    assert float(lines["busbw, GB/s"][-1]) == pytest.approx(1.5 * float(lines["algbw, GB/s"][-1]), abs=2e-3)  # 2(N-1)/N
    assert "rank0 > switch … 8 links" in done.stdout
    assert "result equals NumPy's" in done.stdout


@pytest.mark.parametrize(("length", "algorithm"), [("32KiB", "recursive_doubling"), ("33KiB", "ring")])
def test_without_an_algorithm_the_size_decides(length: str, algorithm: str) -> None:
    assert objects("all_reduce", "--bytes", length, "--transport", "model")[0]["algorithm"] == algorithm


def test_compare_is_a_table() -> None:
    done = call("all_reduce", "--ranks", "4", "--bytes", "4KiB", "--compare", "ring,recursive_doubling")
    head, columns, first, second = done.stdout.splitlines()
    assert head == "all_reduce: 4 ranks, 4,096 bytes of float32, SUM, over uet, switch, seed 0"
    assert columns.split()[0] == "algorithm"
    assert first.split()[:5] == ["ring", "6", "6", "6,144", "6,144"]
    assert second.split()[:5] == ["recursive_doubling", "2", "2", "8,192", "8,192"]


def test_all_are_those_that_the_hosts_allow() -> None:
    flat = objects("all_reduce", "--compare", "all", "--bytes", "64", "--transport", "model")
    both = objects("all_reduce", "--compare", "all", "--bytes", "64", "--transport", "model",
                   "--topology", "leaf-spine:gpus_per_node=2")  # fmt: skip
    assert {one["algorithm"] for one in flat} == set(scheduled("all_reduce")) - HIERARCHICAL
    assert {one["algorithm"] for one in both} == set(scheduled("all_reduce"))


def test_a_sweep_has_a_row_for_each_number_of_ranks() -> None:
    done = call("barrier", "--ranks", "2,4", "--compare", "dissemination,ring")
    *_, first, second = done.stdout.splitlines()
    assert first.split()[:2] == ["2", "1"]
    assert second.split()[:2] == ["4", "2"]


@pytest.mark.parametrize("ranks", ["4", "2,4"])
def test_plots(ranks: str, tmp_path: Path) -> None:
    for name in ("a.png", "a.svg"):
        done = call("all_reduce", "--ranks", ranks, "--bytes", "64", "--transport", "model", "--compare", "ring,tree",
                    "--plot", str(tmp_path / name))  # fmt: skip
        assert done.exit_code == 0, done.output
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"ring", "tree"} <= texts


def test_a_plot_of_several_transports_names_them(tmp_path: Path) -> None:
    done = call("all_reduce", "--ranks", "2", "--bytes", "64", "--transport", "uet,roce", "--algorithm", "ring",
                "--plot", str(tmp_path / "a.svg"))  # fmt: skip
    assert done.exit_code == 0, done.output
    texts = {text.text for text in ElementTree.parse(tmp_path / "a.svg").iter("{http://www.w3.org/2000/svg}text")}
    assert {"ring uet", "ring roce"} <= texts
    assert not any("over uet" in (text or "") for text in texts)


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = call("all_reduce", "--plot", "a.svg")
    assert "pip install 'uetproto[plot]'" in done.stderr


def test_the_schedule_alone(tmp_path: Path) -> None:
    drawn = tmp_path / "ring.svg"
    done = call("all_reduce", "--algorithm", "ring", "--bytes", "64", "--schedule", "--plot", str(drawn))
    assert done.exit_code == 0
    assert "→1 12:16 +" in done.stdout
    assert "checked: 24 messages, 384 bytes, at most 96 by a rank; formula: 6 steps, 96 bytes" in done.stdout
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")
    (found,) = objects("all_reduce", "--algorithm", "ring", "--bytes", "64", "--schedule")
    assert list(found) == KEYS
    assert (found["steps"], found["bytes_per_rank_tx"], found["virtual_time_ps"]) == (6, [96] * 4, None)


# Captures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tap", "ranks"), [(None, 1), ("all", 4), ("1,2", 2)])
def test_capture(tap: str | None, ranks: int, tmp_path: Path) -> None:
    """A port in the ring of 4 sees 6 messages go and 6 come: of each a record, data, and an acknowledgement of both."""
    path = tmp_path / "ring.pcapng"
    more = () if tap is None else ("--tap", tap)
    done = call("all_reduce", "--algorithm", "ring", "--bytes", "4KiB", "-o", str(path), *more)
    assert done.exit_code == 0, done.output
    with open_capture(path) as reader:
        packets = [decode(record.data) for record in reader]
    sizes = Counter(len(packet.payload) for packet in packets)
    assert sizes == {1024: 12 * ranks, RECORD: 12 * ranks, 0: 24 * ranks}


# Refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("foo", "op: 'foo'; legal: all_reduce, reduce_scatter"),
        ("all_reduce --algorithm bruck", "legal: naive_star, naive_exchange, ring"),
        ("all_reduce --compare ring,foo", "'foo' of all_reduce; legal: naive_star"),
        ("all_reduce --algorithm in_network", "legal: naive_star"),
        ("all_reduce --ranks 0", "whole numbers, 1 … 4096"),
        ("all_reduce --ranks x", "whole numbers, 1 … 4096"),
        ("all_reduce --ranks 257", "ranks: 257; legal over uet: 1 … 256"),
        ("all_reduce --ranks 64 --bytes 1000GiB", "bytes: 1073741824000; legal with 64 ranks: at most 1073741824"),
        ("all_reduce --ranks 4097 --transport model", "ranks: 4097; legal over model: 1 … 4096"),
        ("all_reduce --ranks 3 --topology pair", "3 ranks do not fit a pair; legal: 2 ranks"),
        ("all_reduce --ranks 17 --topology fat-tree:k=4", "legal: 16 ranks, or k 6 and more"),
        ("all_reduce --topology fat-tree:j=4", "'j=4' is no parameter of fat-tree; legal: k=N"),
        ("all_reduce --topology fat-tree:k=1000000", "'k=1000000'; legal: a number of at most 6 digits"),
        ("all_reduce --topology torus", "no such topology; legal: pair, switch"),
        ("all_reduce --algorithm rab --ranks 6 --topology switch:gpus_per_node=4", "as many ranks each"),
        ("all_to_all --algorithm xor --ranks 3 --bytes 12", "legal for any are pairwise"),
        ("all_reduce --bytes 10", "legal: multiples of 4"),
        ("all_gather --ranks 3 --bytes 16", "legal: multiples of 12"),
        ("all_reduce --bytes many", 'a text such as "1 MiB"'),
        ("barrier --bytes 4", "legal: 0"),
        ("all_reduce --dtype text", "legal: bool, int8"),
        ("all_reduce --op BAND", "BAND on float32; legal for BAND: bool, int"),
        ("all_reduce --op FOO", "no such operation; legal: SUM, PRODUCT"),
        ("broadcast --op SUM", "legal with all_reduce, reduce, reduce_scatter"),
        ("all_reduce --transport tcp", "no such transport: tcp; legal: model, uet, roce"),
        ("all_reduce --transport uet,model", "the model has no packets; legal: model alone"),
        ("all_reduce --transport model -o x.pcap", "legal with --transport uet, roce"),
        ("all_reduce --compare ring,tree -o x.pcap", "a capture holds one collective, here are 2"),
        ("all_reduce -o - --json", "both want standard output"),
        ("all_reduce --tap 1", "needs -o FILE"),
        ("all_reduce -o x.pcap --tap 4", "legal are ranks, 0 … 3"),
        ("all_reduce --plot x.gif", ".png, .svg"),
        ("all_reduce --plot nowhere/x.svg", "there is no directory nowhere"),
        ("all_reduce --plot .svg", "legal are names in .png, .svg"),
        ("all_reduce --plot .", "is a directory"),
        ("all_reduce --plot there.svg", "there.svg: is a directory; legal: the name of a file in it"),
        ("all_reduce --plot there.svg/x.png/y.png", "there is no directory there.svg/x.png"),
        (f"all_reduce --plot {'x' * 300}.svg", "File name too long; legal: a file that can be written"),
        ("all_reduce --schedule --plot there.svg", "is a directory"),
        (
            "all_reduce --algorithm ring --channels 2",
            "--channels 2: all_reduce by ring has none; legal with all_reduce by nccl_tree, nccl_ring",
        ),
        (
            "all_reduce --slices 2",
            "--slices 2: all_reduce by ring has none; legal with all_reduce by tree, double_tree",
        ),
        (
            "all_gather --slices 2",
            "--slices 2: all_gather by ring has none; legal with all_reduce by tree, double_tree",
        ),
        ("all_reduce --compare ring,tree --sockets 2", "--sockets 2: all_reduce by ring, tree has none; legal"),
        ("all_reduce --algorithm tree --between ring", "--between ring: all_reduce by tree has none; legal"),
        ("all_reduce --algorithm tree --slices 0", "--slices"),
        (
            "all_reduce --algorithm rab --topology switch:gpus_per_node=2 --between star",
            "between: 'star' is not legal; legal: ring, halving_doubling",
        ),
        (
            "all_reduce --algorithm nccl_ring --topology switch:gpus_per_node=2 --channels 3",
            "channels: 3 is not in 1 .. 2",
        ),
        ("all_reduce --algorithm hcoll --topology switch:gpus_per_node=4 --sockets 3", "legal are 1, 2, 4"),
        ("all_reduce --cross-nic 1", "--cross-nic 1: a host has one NIC; legal: --topology rails"),
        ("all_reduce --cross-nic 3 --topology rails", "legal are 0 never leave the rail, 1 allow, 2 prefer"),
        (
            "all_reduce --cross-nic 1 --topology rails --transport model",
            "model has no NICs; legal with --transport uet",
        ),
        (
            "all_reduce --cross-nic 0 --ranks 6 --topology rails:gpus_per_node=4",
            "legal: ranks a multiple of 4, or 1, 2",
        ),
        ("all_reduce --cross-nic 0 --topology rails --schedule", "--schedule says what ranks send"),
        ("all_reduce --schedule --plot x.png", "a schedule is drawn as .svg"),
        ("all_reduce --schedule -o x.pcap", "--schedule runs nothing"),
        ("all_reduce --cc dcqcn", "--cc dcqcn: dcqcn not over uet; legal: with --transport roce"),
        ("all_reduce --cc bbr", "no such algorithm: bbr; legal: off; over uet nscc, rccc"),
        ("all_reduce --cc nscc --lb ecmp", "--lb ecmp: no such path selection; legal: oblivious"),
        ("all_reduce --lb reps", "--lb reps: without congestion control; legal: with --cc"),
        ("all_reduce --cc nscc --transport roce", "nscc not over roce; legal: with --transport uet"),
        ("all_reduce --mtu 1500", "--mtu 1500: is not legal; legal: 1024, 2048, 4096, 8192"),
        ("all_reduce --mtu 8192 --transport uet,roce", "legal: 1024, 2048, 4096"),
        ("all_reduce --rate fast", "--rate fast: legal is"),
        ("all_reduce --loss 2", "--loss"),
        ("all_reduce --loss 0.1 --transport model", "--loss 0.1: the model has no packets"),
        ("all_gather --cc nscc --algorithm multicast", "multicast has senders that do not wait"),
    ],
)
def test_misuse(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before the first packet: no run, no file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.svg").mkdir()
    monkeypatch.setattr(PreparedCase, "_network", None)
    assert cli.status(["collective", *arguments.split()]) == 2
    assert message in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["there.svg"]


def test_a_plot_that_is_there_is_kept_until_it_is_drawn(tmp_path: Path) -> None:
    """The look whether it can be written changes nothing."""
    old = tmp_path / "old.svg"
    old.write_text("old")
    check_plot(str(old))
    assert old.read_text() == "old"
    check_plot(str(tmp_path / "new.svg"))
    assert list(tmp_path.iterdir()) == [old]


# Options of algorithms ----------------------------------------------------------------------------------------------


def test_the_help_has_an_example_of_each_option() -> None:
    text = call("--help").stdout
    examples = [line for line in text.splitlines() if line.strip().startswith("uetproto collective ")]
    for option in ("--channels", "--slices", "--sockets", "--between", "--cross-nic", "--sharp", "--multicast"):
        (example,) = [line.split()[2:] for line in examples if f" {option} " in line]
        done = call(*example, "--bytes", "16KiB")
        assert done.exit_code == 0, (example, done.output)
        assert "equals NumPy's" in done.stdout


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
@pytest.mark.parametrize(("algorithm", "options", "steps", "busiest", "nic"), [
    # M = 2, G = 4, D = 64 KiB; collectives.md §3.8: steps, bytes of the busiest rank, bytes of the busiest NIC
    ("nccl_ring", {"channels": 1}, 14, 114688, 114688),
    ("nccl_ring", {"channels": 4}, 14, 114688, 114688 / 4),
    ("nccl_tree", {"channels": 1}, 8, 131072, 65536),
    ("nccl_tree", {"channels": 4}, 8, 6 * 16384 + 16384, 16384),
    ("nccl_tree", {"channels": 2, "slices": 4}, 11, 131072, 32768),
    ("hcoll", {"sockets": 2, "between": "recursive_doubling"}, 5, 3 * 65536, 65536),
    ("split_rail", {"between": "double_tree"}, 8, 2 * 3 * 16384 + 16384, 16384),
])  # fmt: skip
def test_numbers_with_options(
    transport: str, algorithm: str, options: dict[str, Any], steps: int, busiest: float, nic: float
) -> None:
    prepared = PreparedCase(case(algorithm=algorithm, ranks=8, length=65536, kind="rails", shape={"gpus_per_node": 4},
                             options=options, transport=transport))  # fmt: skip
    found, theory = prepared.run(), prepared.formula
    assert theory is not None
    assert found.correct
    assert (found.steps, found.busiest) == (theory.steps, theory.bytes_per_rank) == (steps, busiest)
    assert prepared.nic_bytes == nic
    if found.links is not None:
        assert found.busiest_nic == nic
        assert found.payload == found.promised
        assert not [link for link in found.links if link.frames and "spine" in link.link]
        slowest = found.steps * prepared.between.alpha * 1e12 + theory.time  # a slice more is a step more
        once = 2.5e6 if transport == "roce" else 0  # before the first step
        assert found.time < (slowest if "slices" in options else 1.05 * theory.time + once)


def test_more_channels_are_faster_and_beside_their_formula() -> None:
    """Each NIC carries a share: with megabytes it is bytes that count."""
    times = []
    for channels in (1, 2, 4):
        (found,) = objects("all_reduce", "--ranks", "8", "--algorithm", "nccl_ring", "--bytes", "4MiB", "--transport",
                           "roce", "--topology", "rails:gpus_per_node=4", "--channels", str(channels))  # fmt: skip
        assert found["virtual_time_ps"] == pytest.approx(found["formula"]["time_ps"], rel=0.1)
        times.append(found["virtual_time_ps"])
    assert times[0] > 1.2 * times[1] > 1.2 * 1.2 * times[2]


@pytest.mark.parametrize("transport", ["uet", "roce"])
def test_cross_nic(transport: str) -> None:
    """Over the spines where NICs may be crossed; else over a rank of the own host."""
    spines = {}
    for policy in (0, 1, 2):
        found = PreparedCase(case("all_to_all", "pairwise", 8, 4096, kind="rails", shape={"gpus_per_node": 4},
                              transport=transport, cross_nic=policy)).run()  # fmt: skip
        assert found.links is not None
        assert found.payload == found.promised
        spines[policy] = sum(link.payload for link in found.links if "spine" in link.link)
    assert spines == {0: 0, 1: 2 * 8 * 3 * 512, 2: 0}  # of each rank three blocks, up and down


def test_a_comparison_gives_each_algorithm_its_options() -> None:
    done = call("all_reduce", "--ranks", "8", "--bytes", "4KiB", "--topology", "rails:gpus_per_node=4", "--channels",
                "2", "--compare", "ring,nccl_ring")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "channels 2" in done.stdout.splitlines()[0]


def test_a_gpu_matrix_says_how_fast_hosts_are() -> None:
    here = paths.ROOT / "tests" / "collectives" / "topology"
    times = []
    for name in ("topo_nvlink.txt", "topo_pcie.txt"):
        (found,) = objects(
            "all_reduce", "--algorithm", "ring", "--bytes", "1MiB", "--topology", "rails", "--gpus", str(here / name),
        )  # fmt: skip
        times.append(found["virtual_time_ps"])
        assert found["virtual_time_ps"] == pytest.approx(found["formula"]["time_ps"], rel=0.3)
    assert times[0] < times[1]


def test_measured_names_are_those_of_the_interface() -> None:
    one = MeasuredCollective(
        op="barrier", algorithm="ring", ranks=1, bytes=0, steps=0, messages=0, sent=(0,), links=None, promised=0,
        time=0, formula=None, correct=True, transport="model", topology="switch", dtype="float32", seed=0,
    )  # fmt: skip
    assert list(one.as_dict()) == KEYS
    assert one.as_dict()["formula"] is None
    assert np.array(one.sent).sum() == 0


def test_transports_and_congestion_control_side_by_side() -> None:
    fabric = ("--ranks", "8", "--bytes", "512KiB", "--topology", "leaf-spine:hosts_per_leaf=4,spines=1")
    both = ("--transport", "uet,roce", "--cc", "off,nscc,pfc,dcqcn+pfc", "--algorithm", "linear")
    done = objects("all_to_all", *fabric, *both)
    ways = [(one["transport"], one["cc"], one["lb"]) for one in done]
    assert ways == [
        ("uet", "off", None), ("uet", "nscc", "mixed"), ("roce", "off", None), ("roce", "pfc", None),
        ("roce", "dcqcn+pfc", None),
    ]  # fmt: skip
    for one in done:
        times = one["message_times"]
        assert 0 < times["p50"] <= times["p99"] <= times["max"] <= one["virtual_time_ps"]
    assert all(one["drops"] == 0 for one in done if "pfc" in one["cc"])
    assert done[1]["marks"] > 0
    table = call("all_to_all", *fabric, *both).stdout.splitlines()
    assert [line.split()[1:3] for line in table[2:]] == [
        ["uet", "off"], ["uet", "nscc"], ["roce", "off"], ["roce", "pfc"], ["roce", "dcqcn+pfc"]
    ]  # fmt: skip
    assert f"{done[1]['virtual_time_ps'] / 1e6:,.2f}" in table[3]


def test_several_switches_have_congestion_control_unless_it_is_off() -> None:
    small = ("all_to_all", "--ranks", "4", "--bytes", "4KiB", "--topology")
    spine = "leaf-spine:hosts_per_leaf=2,spines=1"
    asked = [("switch",), (spine,), (spine, "--cc", "off"), (spine, "--lb", "reps"), (spine, "--transport", "roce")]
    found = [objects(*small, *more)[0] for more in asked]
    assert [(one["cc"], one["lb"]) for one in found] == [
        ("off", None), ("nscc", "mixed"), ("off", None), ("nscc", "reps"), ("off", None)
    ]  # fmt: skip


def test_rate_delay_payload_and_loss_are_those_that_were_asked_for() -> None:
    small = ("broadcast", "--ranks", "2", "--bytes", "1MiB", "--algorithm", "linear")
    plain, slow, short, lossy = (
        objects(*small, *more)[0]
        for more in (
            (),
            ("--rate", "100 Gb/s"),
            ("--mtu", "1024", "--delay", "2 us"),
            ("--loss", "0.01", "--seed", "3"),
        )
    )
    assert 3 < slow["virtual_time_ps"] / plain["virtual_time_ps"] < 4
    assert slow["formula"]["time_ps"] > 3 * plain["formula"]["time_ps"]
    assert short["bytes_on_links"] > plain["bytes_on_links"] + 2 * 768 * 60
    assert lossy["drops"] > 0
    assert sum(lossy["retransmissions"].values()) > 0
