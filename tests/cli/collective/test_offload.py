# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto collective` with algorithms of the network itself: SHARP and multicast."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import invoke
from tests.support.effort import effort
from uetproto import decode
from uetproto.api.distributed.networks import roce as distributed_roce
from uetproto.api.distributed.networks.packets import RECORD
from uetproto.api.distributed.networks.roce import RoceNetwork
from uetproto.cli.collective.links import LinkMeter
from uetproto.cli.collective.run import CollectiveCase, PreparedCase
from uetproto.cli.main import cli
from uetproto.collectives.algorithms.catalogue import ALGORITHMS
from uetproto.collectives.costs.measure import MeasuredCollective
from uetproto.collectives.dtypes import dtype
from uetproto.emulator.network.built import BuiltNetwork, LinkHop
from uetproto.wire.capture.pcap import open_capture

LEAVES = ("--topology", "leaf-spine", "--transport", "roce")
BY_SHARP = [op for op, makers in ALGORITHMS.items() if "sharp" in makers]


def objects(*arguments: str) -> list[dict[str, Any]]:
    done = invoke("collective", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def run(op: str, algorithm: str, ranks: int, length: int, **more: Any) -> tuple[PreparedCase, MeasuredCollective]:
    usual: dict[str, Any] = {"transport": "roce", "kind": "leaf-spine", "dtype": dtype("float32")}
    prepared = PreparedCase(CollectiveCase(op=op, algorithm=algorithm, ranks=ranks, length=length, **(usual | more)))
    found = prepared.run()
    assert found.correct
    return prepared, found


# Bytes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["uet", "roce"])
@pytest.mark.parametrize(("ranks", "length"), [(4, 512), (8, effort(1 << 14, 1 << 16, 1 << 16)), (12, 12 << 10)])
def test_the_ring_moves_more_than_sharp(transport: str, ranks: int, length: int) -> None:
    """sharp.md §4.4: 2(N-1)/N exactly, of a host and over all links, by LLT and by SAT."""
    _, ring = run("all_reduce", "ring", ranks, length, transport=transport)
    _, sharp = run("all_reduce", "sharp", ranks, length, transport=transport)
    assert sharp.sent == (length,) * ranks
    assert ring.busiest * ranks == 2 * (ranks - 1) * sharp.busiest
    assert ring.payload * ranks == 2 * (ranks - 1) * sharp.payload
    assert sharp.payload == sharp.promised
    assert sharp.wire is not None
    assert sharp.wire > sharp.payload


@pytest.mark.parametrize(("ranks", "per_leaf"), [(4, 4), (8, 4), (16, 4)])
def test_the_ring_moves_more_than_multicast(ranks: int, per_leaf: int) -> None:
    """collectives.md §3.10.7."""
    shape = {"hosts_per_leaf": per_leaf}
    _, ring = run("all_gather", "ring", ranks, ranks * 5000, shape=shape)
    _, multicast = run("all_gather", "multicast", ranks, ranks * 5000, shape=shape)
    assert multicast.sent == (5000,) * ranks
    assert ring.payload * ranks == 2 * (ranks - 1) * multicast.payload
    assert multicast.payload == multicast.promised


@pytest.mark.parametrize(("op", "algorithm"), [("all_reduce", "sharp"), ("all_gather", "multicast")])
def test_the_meter_counts_what_metered_links_count(
    op: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """But for grants of the barriers that multicast starts with, which are no payload of the collective."""
    networks = []

    def network(size: int, **given: Any) -> Any:
        networks.append(RoceNetwork(size, **given))
        return networks[-1]

    _, found = run(op, algorithm, 8, 65536)
    monkeypatch.setattr(distributed_roce, "network", network)
    monkeypatch.setattr(
        LinkMeter, "__init__", lambda meter, network, transport, sharp: setattr(meter, "_hops", network.hops)
    )
    run(op, algorithm, 8, 65536)
    hops = {f"{hop.source} > {hop.target}": hop.payload for hop in networks[0].world.network.hops}
    assert found.links is not None
    assert sum(link.payload for link in found.links) > 0
    for link in found.links:
        grants = hops[link.link] - link.payload
        assert grants == 0 if algorithm == "sharp" else grants % RECORD == 0 <= grants


@pytest.mark.parametrize("transport", ["uet", "roce"])
@pytest.mark.parametrize("stream", ["0", "1"])
def test_the_kinds_of_frames_on_a_link_stay_few(transport: str, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else differs between messages of SHARP, such as their match bits."""
    metered: list[LinkHop] = []
    made = LinkMeter.__init__

    def init(meter: LinkMeter, built: BuiltNetwork, *given: Any, **more: Any) -> None:
        made(meter, built, *given, **more)
        metered.extend((*built.hops, *built.inner_hops))

    monkeypatch.setattr(LinkMeter, "__init__", init)
    run("all_reduce", "sharp", 4, 64 << 10, transport=transport, sharp={"SHARP_COLL_ENABLE_SAT": stream})
    assert max(hop.link.frames for hop in metered) > 60
    assert max(len(hop.link._kinds) for hop in metered) < 10


def test_a_switch_is_told_beside_its_ports() -> None:
    _, found = run("all_gather", "multicast", 8, 8 * 4096)
    assert found.network is not None
    copies = {(port.switch, port.port): port.frames for port in found.network.groups}
    assert {copies["leaf0", f"rank{rank}"] for rank in range(4)} == {7}  # not the own one
    assert sum(frames for (_, port), frames in copies.items() if port.startswith("leaf")) == 8
    _, found = run("all_reduce", "sharp", 8, 256)
    assert found.network is not None
    nodes = {name: counts for name, counts in found.network.counters.items() if name.startswith("an.")}
    assert set(nodes) == {"an.leaf0", "an.leaf1", "an.spine0"}  # the other spines have no part
    assert all(counts["frames_sent"] and counts["bytes_received"] for counts in nodes.values())


# Steps and time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", BY_SHARP)
@pytest.mark.parametrize("length", [256, effort(32768, 65536, 65536)])
def test_beside_the_formula(op: str, length: int) -> None:
    _, found = run(op, "sharp", 8, 0 if op == "barrier" else length)
    assert found.formula is not None
    assert (found.steps, found.busiest) == (found.formula.steps, found.formula.bytes_per_rank)
    assert 0.6 * found.formula.time < found.time < 1.4 * found.formula.time


@pytest.mark.parametrize(("kind", "levels"), [("switch", 1), ("leaf-spine", 2), ("fat-tree", 3)])
def test_latency_by_the_depth_of_the_tree(kind: str, levels: int) -> None:
    """sharp.md §4.4: 2L hops; the same however many hosts there are."""
    times = []
    for ranks in (10, 16):
        prepared, found = run("barrier", "sharp", ranks, 0, kind=kind)
        assert prepared.sharp is not None
        assert found.steps == 2 * levels
        times.append(found.time)
        assert found.time == pytest.approx(levels * 2.2e6, rel=0.02)
    assert times[0] == pytest.approx(times[1], rel=0.01)


@pytest.mark.parametrize(("ranks", "roots", "steps"), [(8, 2, 4), (8, 1, 8), (8, 4, 2), (7, 2, 7)])
def test_steps_of_multicast(ranks: int, roots: int, steps: int) -> None:
    """collectives.md §3.0: N/M; one root where M does not divide N."""
    _, found = run("all_gather", "multicast", ranks, ranks * 4096, multicast={"roots": roots})
    assert found.formula is not None
    assert found.steps == found.formula.steps == steps
    assert found.time < 1.1 * found.formula.time
    _, found = run("broadcast", "multicast", ranks, 4096, multicast={"roots": roots})
    assert found.steps == 1
    assert sum(found.sent) == 4096


@pytest.mark.parametrize(("sockets", "levels", "edges"), [(1, 1, 2), (2, 2, 6), (4, 2, 12)])
def test_leaders(sockets: int, levels: int, edges: int) -> None:
    """collectives.md §3.8: within a host, or with several sockets within each, no packet."""
    prepared, found = run("all_reduce", "hcoll_sharp", 8, 4096, kind="rails", shape={"gpus_per_node": 4},
                          options={"sockets": sockets})  # fmt: skip
    within = (4 // sockets).bit_length() - 1
    assert found.formula is not None
    assert found.steps == found.formula.steps == 2 * within + 2 * levels
    assert found.busiest == found.formula.bytes_per_rank == (1 + within) * 4096
    assert found.busiest_nic == prepared.nic_bytes == 4096
    assert found.payload == found.promised == 2 * edges * 4096


@pytest.mark.parametrize("kind", ["switch", "leaf-spine"])
@pytest.mark.parametrize(("groups", "length", "more"), [
    (2, 1 << 15, {}),
    (2, 12 << 10, {}),  # two parts would be below the threshold
    (3, 1 << 15, {}),  # of three trees two are flows of an aggregation node
    (4, 1 << 15, {"SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": 0, "semaphores": 4}),
])  # fmt: skip
def test_several_trees_are_as_fast_as_one(kind: str, groups: int, length: int, more: dict[str, Any]) -> None:
    """sharp.md §4.1, §4.2: with one port no faster, either. A job takes one semaphore for all its trees."""
    _, one = run("all_reduce", "sharp", 8, length, kind=kind)
    prepared, found = run("all_reduce", "sharp", 8, length, kind=kind,
                          sharp={"SHARP_COLL_GROUPS_PER_COMM": groups, **more})  # fmt: skip
    assert prepared.sharp is not None
    assert found.formula is not None
    assert one.formula is not None
    assert (prepared.sharp.trees, prepared.sharp.costs.trees, prepared.sharp.costs.lanes) == (groups, 2, 1)
    assert found.formula.time == one.formula.time
    assert found.payload == found.promised
    assert found.time == pytest.approx(one.time, rel=0.01)


@pytest.mark.parametrize(
    ("transport", "kind", "length"),
    [
        ("roce", "switch", 4 << 20), ("uet", "switch", 1 << 17), ("roce", "leaf-spine", 1 << 17),
        ("uet", "leaf-spine", 1 << 17),
    ],
)  # fmt: skip
def test_a_tree_for_each_port(transport: str, kind: str, length: int) -> None:
    """sharp.md §4.1: large vectors are divided; each port carries the half of them, up and down."""
    more: dict[str, Any] = {"kind": kind, "transport": transport, "sharp": {"sat_chunk": 4064}}
    more |= {"shape": {"hosts_per_leaf": 1, "spines": 2}} if kind == "leaf-spine" else {}
    (_, one), (prepared, two) = (run("all_reduce", "sharp", 2, length, ports=ports, **more) for ports in (1, 2))
    assert length < 4 << 20 or one.time >= 1.8 * two.time
    assert prepared.sharp is not None
    assert prepared.sharp.costs.lanes == 2
    assert one.formula is not None
    assert two.formula is not None
    half = length / 2 * 8 / 400e9 * 1e12
    assert one.formula.time - two.formula.time == pytest.approx(half)
    assert one.time - two.time > 0.95 * half
    assert (two.sent, two.payload, two.busiest_nic) == (one.sent, one.payload, one.busiest_nic) == (
        (length, length), two.promised, length,
    )  # fmt: skip
    assert two.links is not None
    ports = {link.link: link.payload for link in two.links if "rank" in link.link}
    assert len(ports) == 2 * 2 * 2
    assert set(ports.values()) == {length // 2}


def test_as_many_streams_as_flows_and_osts() -> None:
    """An aggregation node has OSTs for three windows; with more flows and OSTs each port has a stream."""
    times = []
    for more, streams in (({}, 2), ({"sat_flows_per_an": 4}, 3), ({"sat_flows_per_an": 4, "osts": 512}, 4)):
        prepared, found = run("all_reduce", "sharp", 2, 256 << 10, ports=4, kind="switch", sharp=more)
        assert prepared.sharp is not None
        assert (prepared.sharp.trees, prepared.sharp.costs.trees) == (4, streams)
        assert found.network is not None
        assert "nacks" not in found.network.counters["rank0"]
        times.append(found.time)
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("transport", "spread"), [("uet", 2), ("roce", 1)])
def test_messages_of_the_ranks_on_two_ports(transport: str, spread: int) -> None:
    """Over uet a message is spread over the ports; over roce it uses that of its queue pair. The formula agrees."""
    formulas = []
    for ports in (1, 2):
        _, found = run("all_reduce", "recursive_doubling", 2, 1 << 20, transport=transport, kind="switch", ports=ports)
        assert found.formula is not None
        assert found.time == pytest.approx(found.formula.time, rel=0.1)
        formulas.append(found.formula.time - 6e6)  # three times two cables
    assert formulas[0] == pytest.approx(spread * formulas[1])


def test_the_report_tells_the_ports() -> None:
    text = invoke("collective", "all_reduce", "--ranks", "2", "--bytes", "32KiB", "--algorithm", "sharp",
                  "--ports", "2", "--transport", "roce").stdout  # fmt: skip
    assert "switch, 2 ports a NIC, seed 0" in text
    assert "streamed from 8,096 bytes on, on 2 of 2 trees, 131,072 in flight on each\n" in text
    assert "switch > rank0.0 … 4 links " in text


def test_ports_of_aggregation_nodes() -> None:
    """A join on each tree, and two chunks of 2048 bytes: each message up is one down, with 32 bytes before it."""
    arguments = ("all_reduce", "--ranks", "8", "--algorithm", "sharp", "--bytes", "4096", *LEAVES,
                 "--sharp", "SHARP_COLL_SAT_THRESHOLD=1")  # fmt: skip
    (found,) = objects(*arguments)
    ports = found["in_network"]["aggregation_ports"]
    children = {f"child {child}" for child in range(4)}
    assert {name: set(of) for name, of in ports.items()} == {
        "an.leaf0": {*children, "parent"}, "an.leaf1": {*children, "parent"}, "an.spine0": {"child 0", "child 1"},
    }  # fmt: skip
    for leaf, child in (("an.leaf0", "child 0"), ("an.leaf1", "child 1")):
        up, down = ports[leaf]["parent"], ports["an.spine0"][child]
        assert up["rcds_sent_bytes"] == down["hba_received_bytes"] > 4096 + 2 * 32
        assert down["rcds_sent_bytes"] == up["hba_received_bytes"] > 4096 + 2 * 32
    text = invoke("collective", *arguments).stdout
    assert "    an.spine0 child 0 " in text
    assert text.count(" child ") + text.count(" parent ") == 4


# Falling back, and the choice ---------------------------------------------------------------------------------------

TOO_MANY = ("--sharp", "SHARP_COLL_JOB_QUOTA_OSTS=5000")


@pytest.mark.parametrize(
    "option",
    ["HCOLL_ENABLE_SHARP=0", "NCCL_SHARP_DISABLE=1", "NCCL_COLLNET_ENABLE=0", "HCOLL_ML_DISABLE_ALLREDUCE=1",
     "HCOLL_SHARP_NP=9"],
)  # fmt: skip
def test_what_the_ranks_run_stands_beside_its_own_formula(option: str) -> None:
    told = ("all_reduce", "--algorithm", "sharp", "--bytes", "64KiB", *LEAVES, "--sharp", option)
    (found,) = objects(*told)
    (ring,) = objects("all_reduce", "--algorithm", "ring", "--bytes", "64KiB", *LEAVES)
    for name in ("steps", "bytes_per_rank_tx", "payload_on_links", "formula", "correct"):
        assert found[name] == ring[name]
    name, _, value = option.partition("=")
    first, second = found["in_network"]["notes"]
    assert first.startswith(f"{name} is {value}")
    assert second == "the ranks ran ring, whose formula stands beside it"
    text = invoke("collective", *told).stdout
    assert f"\n  {first}\n  {second}\n" in text
    assert "by the schedule" in text
    assert "levels of aggregation nodes" not in text


def test_the_leaders_without_sharp_have_no_formula() -> None:
    arguments = ("all_reduce", "--ranks", "8", "--algorithm", "hcoll_sharp", "--bytes", "64", "--transport", "roce",
                 "--topology", "rails:gpus_per_node=4")  # fmt: skip
    (found,) = objects(*arguments, "--sharp", "HCOLL_ENABLE_SHARP=0")
    assert found["formula"] is None
    assert found["in_network"]["notes"][1].startswith("the leaders ran recursive_doubling: there is no formula")
    (found,) = objects(*arguments, "--sharp", "HCOLL_ML_DISABLE_ALLREDUCE=1")
    assert found["formula"]["steps"] == found["steps"] == 3


@pytest.mark.parametrize(("subgroups", "steps"), [("p2p", 4), ("basesmuma,p2p", 6), ("basesmsocket,p2p", 6)])
def test_a_hierarchy_takes_the_time_of_its_formula(subgroups: str, steps: int) -> None:
    """The time in which the group is made is not part of it, though a reduction comes before."""
    (found,) = objects("all_reduce", "--ranks", "8", "--algorithm", "hcoll_sharp", "--bytes", "64",
                       "--transport", "roce", "--topology", "rails:gpus_per_node=4", "--sockets", "2",
                       "--sharp", f"HCOLL_SBGP={subgroups}")  # fmt: skip
    assert found["steps"] == found["formula"]["steps"] == steps
    assert found["virtual_time_ps"] == pytest.approx(found["formula"]["time_ps"], rel=0.01)


def test_the_log_has_the_lines_that_users_know() -> None:
    """sharp.md §10; without the option there is none, and an option without effect has a line of its own."""
    told = ("all_reduce", "--algorithm", "sharp", "--bytes", "64", *LEAVES)
    (found,) = objects(*told)
    assert found["in_network"]["log"] == []
    more = ("--sharp", "SHARP_COLL_LOG_LEVEL=3", "--sharp", "HCOLL_MAIN_IB=mlx5_0:1")
    text = invoke("collective", *told, *more).stdout
    for line in ("context.c:485 INFO job (ID: 1) resource request quota: ( osts:0 user_data_per_ost:0 max_groups:0",
                 "context.c:628 INFO tree_info: type:LLT tree idx:0 treeID:0x0 quota: ( osts:51 user_data_per_ost:128",
                 "comm.c:417 INFO [group#:0] group id:1 tree idx:0 rail_idx:0 group size:4"):  # fmt: skip
        assert f"\n  rank0:0:0 - {line}" in text
    assert "\n  HCOLL_MAIN_IB: accepted without effect\n" in text


def test_falls_back_and_says_why() -> None:
    (found,) = objects("all_reduce", "--algorithm", "sharp", "--bytes", "64", *LEAVES, *TOO_MANY,
                       "--sharp", "HCOLL_ENABLE_SHARP=1")  # fmt: skip
    assert found["in_network"]["notes"] == [
        "fell back: sharp: no job for ranks 0, 1, 2, 3: QUOTA (-7)",
        "the ranks ran recursive_doubling, whose formula stands beside it",
    ]
    assert (found["steps"], found["formula"]["steps"], found["correct"]) == (2, 2, True)
    assert found["bytes_per_rank_tx"] == [128] * 4  # recursive doubling


def test_an_aggregation_that_fails_is_explained() -> None:
    """Children have no time at all: T_ost (sharp.md §3.4); the trap of §1.8 says who gave up."""
    arguments = ("all_reduce", "--ranks", "8", "--algorithm", "sharp", "--bytes", "64", *LEAVES,
                 "--sharp", "t_ost=1 ns", "--sharp", "HCOLL_ENABLE_SHARP=1")  # fmt: skip
    (found,) = objects(*arguments)
    assert found["in_network"]["traps"] == ["an.leaf0: SHARP_ERROR, syndrome 1", "an.leaf1: SHARP_ERROR, syndrome 1"]
    assert any(note.startswith("fell back: sharp: all_reduce at rank") for note in found["in_network"]["notes"])
    assert found["in_network"]["counters"]["an.leaf0"]["errors"] == 1
    assert found["steps"] == 3
    assert found["formula"] is None
    assert found["in_network"]["notes"][-1] == "SHARP failed and the ranks did it: there is no formula for both"
    text = invoke("collective", *arguments).stdout
    assert "  trap: an.leaf0: SHARP_ERROR, syndrome 1\n" in text
    assert "  fell back: sharp: all_reduce at rank" in text


@pytest.mark.parametrize(
    ("more", "chosen", "why"),
    [
        (("--bytes", "64", *LEAVES), "sharp", "low-latency tree, 1 levels"),
        (("--bytes", "256KiB", *LEAVES), "sharp", "streaming tree, 1 levels"),
        (("--bytes", "256KiB", *LEAVES, "--sharp", "SHARP_COLL_ENABLE_SAT=0"), "double_tree", "low-latency tree"),
        (("--bytes", "64", *LEAVES, *TOO_MANY), "double_tree", "no job: QUOTA (-7)"),
        (("--bytes", "64", *LEAVES, "--dtype", "complex64"), "double_tree", "dtype: complex64: NOT_SUPPORTED (-2)"),
        (("--bytes", "1MiB", "--transport", "model"), "ring", "sharp over model; legal with --transport uet, roce"),
        (("--bytes", "64", "--ranks", "2", "--topology", "pair"), "ring", "sharp with --topology pair, which has no"),
    ],
)
def test_the_choice_is_explained(more: tuple[str, ...], chosen: str, why: str) -> None:
    (found,) = objects("all_reduce", "--algorithm", "auto", *more)
    choice = found["choice"]
    assert found["algorithm"] == choice["algorithm"] == chosen
    candidates = {one["algorithm"]: one for one in choice["candidates"]}
    assert list(candidates) == ["ring", "double_tree", "sharp"]
    assert candidates["sharp"]["why"].startswith(why)
    assert found["formula"]["time_ps"] == candidates[chosen]["time_ps"]
    assert candidates[chosen]["time_ps"] == min(one["time_ps"] for one in candidates.values() if one["time_ps"])
    text = invoke("collective", "all_reduce", "--algorithm", "auto", *more).stdout
    assert f"{chosen} for all_reduce of" in text
    assert f"* {chosen} " in text


# Side by side -------------------------------------------------------------------------------------------------------


def test_two_operations_are_two_tables() -> None:
    done = invoke("collective", "all_reduce,all_gather", "--ranks", "8", "--bytes", "32KiB", *LEAVES,
                  "--compare", "ring,double_tree,sharp,multicast")  # fmt: skip
    assert done.exit_code == 0, done.output
    first, second = done.stdout.split("\n\n")
    assert [line.split()[0] for line in first.splitlines()[2:5]] == ["ring", "double_tree", "sharp"]
    assert [line.split()[0] for line in second.splitlines()[2:5]] == ["ring", "sharp", "multicast"]
    assert "ring / sharp: bytes a rank 1.750, on all links 1.750, with headers 1." in first
    assert "ring / multicast: bytes a rank 7.000, on all links 1.750, with headers 1." in second
    assert (first + second).count("2(N−1)/N = 1.750") == 2


def test_plot(tmp_path: Path) -> None:
    path = tmp_path / "all.svg"
    done = invoke("collective", "all_reduce,all_gather", "--bytes", "4KiB", *LEAVES,
                  "--compare", "ring,sharp,multicast", "--plot", str(path))  # fmt: skip
    assert done.exit_code == 0, done.output
    text = path.read_text()
    assert text.count("payload on all links") == 2
    assert {"all_reduce: time, µs", "all_gather: time, µs", "multicast"} <= {
        part.split("</text>")[0].rsplit(">", 1)[-1] for part in text.split("<text")
    }


def test_aggregation_nodes_can_be_captured(tmp_path: Path) -> None:
    path = tmp_path / "spine.pcapng"
    done = invoke("collective", "all_reduce", "--ranks", "8", "--algorithm", "sharp", "--bytes", "64", "-o", str(path),
                  "--topology", "leaf-spine:spines=1", "--transport", "roce", "--tap", "an.spine0")  # fmt: skip
    assert done.exit_code == 0, done.output
    with open_capture(path) as capture:
        packets = [decode(record.data, sharp=True) for record in capture]
    assert sum("sharp" in packet and packet["sharp"]["opcode"] == 0x10 for packet in packets) == 2  # of two leaves


def test_the_help_names_them() -> None:
    text = invoke("collective", "--help").stdout
    assert all(f" {name}*" in text for name in ("sharp", "hcoll_sharp", "multicast"))


# Refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("all_reduce --algorithm sharp --transport model", "sharp over model; legal with --transport uet, roce"),
        ("all_gather --algorithm multicast", "multicast over uet; legal with --transport roce"),
        ("all_reduce --algorithm multicast", "'multicast' of all_reduce; legal: naive_star"),
        ("all_reduce --ranks 2 --algorithm sharp --topology pair", "which has no switch"),
        ("all_reduce --algorithm sharp --schedule", "'sharp' of all_reduce is done by the network itself, there is no"),
        ("all_gather --algorithm multicast --schedule", "there is no schedule; legal are ring, doubling, bruck"),
        ("all_reduce --algorithm auto --schedule", "--schedule runs nothing; legal: ring, double_tree"),
        ("all_gather --algorithm auto", "'auto' of all_gather; legal: ring"),
        ("all_reduce,all_sum", "op: 'all_sum'; legal: all_reduce"),
        ("all_reduce,scatter --compare ring,sharp", "ring, sharp: scatter has none of them; legal: binomial, linear"),
        ("all_reduce --sharp sat_chunk=32", "--sharp sat_chunk=32: goes with --algorithm auto, hcoll_sharp, sharp"),
        ("all_reduce --algorithm sharp --sharp sat_chunk", "--sharp sat_chunk: legal is NAME=VALUE"),
        ("all_reduce --algorithm sharp --sharp t_ost=5", "--sharp t_ost=5: has no unit; legal: a time such as"),
        ("all_reduce --algorithm sharp --sharp t_ost=5s0", "--sharp t_ost=5s0: is not legal; legal: a time such as"),
        (
            "all_gather --algorithm multicast --multicast least=5",
            "--multicast least=5: has no unit; legal: a time",
        ),
        ("all_reduce --algorithm sharp --sharp foo=1", "--sharp foo=1: no such name; legal: options such as SHARP_"),
        ("all_gather --algorithm ring --multicast roots=1", "--multicast roots=1: goes with --algorithm multicast"),
        ("all_gather --algorithm multicast --multicast foo=1", "--multicast foo=1: no such name; legal: mtu, roots"),
        ("all_gather --algorithm multicast --multicast roots=0", "roots: 0; legal: a whole number from 1 on"),
        ("all_reduce --algorithm sharp -o x.pcap --tap leaf", "leaf0, and with SHARP an.SWITCH"),
        ("all_reduce --transport model --ports 2", "--ports 2: model has no NICs; legal with --transport uet, roce"),
        ("all_reduce --algorithm ring --schedule --ports 2", "--ports 2: --schedule says what ranks send"),
        ("all_reduce --ports 5", "5 is not in the range 1<=x<=4"),
        (
            "all_reduce --algorithm hcoll_sharp --topology rails:gpus_per_node=4 --sockets 3",
            "sockets: 3 do not share 4 ranks a node evenly; legal are 1, 2, 4",
        ),
    ],
)
def test_misuse(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before the first packet: no run, no file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PreparedCase, "_network", None)
    assert cli.status(["collective", *arguments.split()]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("all_reduce --algorithm sharp --dtype complex64", "dtype: complex64: NOT_SUPPORTED (-2); SHARP does uint8"),
        ("all_reduce --algorithm sharp --sharp SHARP_COLL_JOB_QUOTA_OSTS=5000", "ranks 0, 1, 2, 3: QUOTA (-7)"),
        ("all_reduce --algorithm sharp --sharp sat_chunk=7", "sat_chunk: 7 is not legal; legal: 32"),
        ("all_reduce --algorithm sharp --sharp first_mlid=0x10", "first_mlid: 16 is not legal; legal: 49152 … 65534"),
        ("all_reduce --algorithm sharp --sharp repro=maybe", "repro: 'maybe' is not legal; legal: True, False"),
        ("all_reduce --algorithm sharp --sharp SHARP_COLL_ENABLE_SAT=2", "SHARP_COLL_ENABLE_SAT: '2' is not legal"),
        ("all_gather --algorithm multicast --multicast mtu=9000", "mtu 9000; legal: up to the path_mtu of 4096"),
        ("all_reduce --algorithm sharp -o x.pcap --tap an.leaf7", "all, or some of rank0"),
    ],
)
def test_the_network_refuses(arguments: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With the published code."""
    told = [str(tmp_path / one) if one == "x.pcap" else one for one in arguments.split()]
    assert cli.status(["collective", *told, "--bytes", "64", *LEAVES]) == 2
    assert message in capsys.readouterr().err
