# SPDX-License-Identifier: GPL-2.0-only
"""NICs with several ports: the entropy value of a packet selects the port, here and there (cms.md §5)."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.emulator.network_fabrics import FIRST, Bench, roce
from uetproto import LocalError
from uetproto.api import fi
from uetproto.api.network import NetworkOptions
from uetproto.api.verbs.emulated import VerbsNetwork
from uetproto.api.verbs.node import NodeSpec as VerbsSpec
from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.ports import PortLinks, port_of
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.config import RoceConfig
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.wire.capture.pcap import open_capture

REQUEST = bytes.fromhex("1980ffff000120000001000001090001000000650000000f") + bytes(32)
TWO = {"rank0": 2, "rank1": 2}


def uet(entropy: int, *, udp: bool = True, version: int = 4, size: int = 1000) -> bytes:
    """A ROD request from rank 0 to rank 1."""
    framer = UetFramer(FIRST, version, Encapsulation(udp=udp))
    return framer.frame(Datagram(FIRST, FIRST + 1, REQUEST, bytes(size), entropy=entropy, ip_version=version))


def sender(network: BuiltNetwork, name: str) -> PortLinks:
    return PortLinks([link for end, link in network.links.items() if end.startswith(name)])


@pytest.mark.parametrize("ports", [2, 3, 4])
@pytest.mark.parametrize("values", [16, 64, 256])
def test_consecutive_entropy_values_are_spread_evenly(ports: int, values: int) -> None:
    """RUD uses aligned blocks of them."""
    for first in range(0, 1 << 16, 4096):
        counts = Counter(port_of(entropy, ports) for entropy in range(first, first + values))
        assert set(counts) == set(range(ports))
        assert max(counts.values()) - min(counts.values()) <= 4


@pytest.mark.parametrize("kind", ["switch", "leaf-spine", "pair"])
@pytest.mark.parametrize(("udp", "version"), [(True, 4), (False, 4), (True, 6), (False, 6)])
def test_a_flow_uses_one_port_here_and_there(kind: str, udp: bool, version: int) -> None:
    more: dict[str, Any] = {"hosts_per_leaf": 1} if kind == "leaf-spine" else {}
    bench = Bench(kind, 2, ports=TWO, **more)
    for entropy in range(64):
        sender(bench.network, "rank0").send(uet(entropy, udp=udp, version=version))
    bench.clock.run()
    sent = Counter(port_of(entropy, 2) for entropy in range(64))
    found = {ends: count for ends, count in bench.counters().items() if "rank0" in ends[0] or "rank1" in ends[1]}
    near, far = {"switch": ("switch", "switch"), "leaf-spine": ("leaf0", "leaf1"), "pair": ("rank1", "rank0")}[kind]
    assert found == {
        **{(f"rank0.{port}", near): count for port, count in sent.items()},
        **({} if kind == "pair" else {(far, f"rank1.{port}"): count for port, count in sent.items()}),
    }
    assert len(bench.inboxes[1].frames) == 64


def test_one_port_less_at_the_other_end() -> None:
    bench = Bench("switch", 2, ports={"rank0": 4})
    for entropy in range(40):
        sender(bench.network, "rank0").send(uet(entropy))
    bench.clock.run()
    assert bench.counters()["switch", "rank1"] == 40
    assert sum(count for (source, _), count in bench.counters().items() if source.startswith("rank0.")) == 40


@pytest.mark.parametrize("port", [0, 1])
def test_a_group_comes_by_the_port_that_joined(port: int) -> None:
    bench = Bench("leaf-spine", 2, ports=TWO, hosts_per_leaf=1)
    group = bytes.fromhex("01005e010203")
    bench.network.join(group, "rank1", port)
    for number in range(20):
        bench.network.links["rank0.0"].send(group + roce(0, 1, number)[6:])
    bench.clock.run()
    assert {target: count for (_, target), count in bench.counters().items() if "rank" in target} == {
        f"rank1.{port}": 20
    }


def test_faults_number_the_frames_of_all_ports() -> None:
    """A frame has the number that it has at the switch, whatever its port."""
    with fi.Fabric(nodes={"a": fi.NodeSpec(ports=2), "b": fi.NodeSpec(ports=2)}, faults={"drop": [3, 4]}) as fabric:
        a, b = fabric.endpoint("a"), fabric.endpoint("b")
        region = b.domain.mr_reg(memory := bytearray(40_000))
        a.write(bytes(40_000), b.address, 0, region.key)
        assert a.cq.sread(1)[0].ok
        assert fabric.world.network.faults["a"].done["drop"] == 2
        assert len(memory) == 40_000


# Bandwidth ------------------------------------------------------------------------------------------------------------


def time(path: Path, ports: int, *more: str) -> int:
    """The virtual time of a WRITE of 256 KiB between two nodes with so many ports."""
    path.write_bytes(bytes(1 << 18))
    settings = [f"input={path}", "payload_mtu=4096", *(f"nodes.rank{rank}.ports={ports}" for rank in (0, 2)), *more]
    result = run(load("gradient", settings))
    assert (result.failure, result.match) == (None, True)
    return result.virtual_time_ps


@pytest.mark.parametrize("ports", [2, 4])
def test_rud_uses_all_ports(tmp_path: Path, ports: int) -> None:
    settings = ("mode=rud", "pds.enb_ack_per_pkt=true", "fabric.delay=1 ns")
    one, several = (time(tmp_path / "input", number, *settings) for number in (1, ports))
    assert one / ports < several < 1.3 * one / ports


def test_rod_is_a_single_flow(tmp_path: Path) -> None:
    assert time(tmp_path / "input", 1, "mode=rod") == time(tmp_path / "input", 2, "mode=rod")


def test_a_nic_holds_few_frames_for_one_port() -> None:
    """While the other port is free the NIC makes more frames, but not all that one flow has."""
    bench = Bench("switch", 2, ports=TWO)
    both = sender(bench.network, "rank0")
    first = bench.network.links["rank0.0"]
    frame = next(frame for frame in map(uet, range(9)) if port_of(int.from_bytes(frame[34:36], "big"), 2) == 0)
    number = 0
    while both.busy_until <= 0:
        both.send(frame)
        number += 1
    assert first.frames == number
    assert 64 <= number * len(frame) / (first.mtu + 14) < 65


def test_a_dead_node_is_cut_off_from_all_its_ports() -> None:
    specs = {"a": fi.NodeSpec(ports=2), "b": fi.NodeSpec(), "c": fi.NodeSpec()}
    with fi.Fabric(nodes=specs, faults={}) as fabric:
        fabric.world.kill("a")
        links = fabric.world.network.links
        for entropy in range(8):
            sender(fabric.world.network, "a").send(uet(entropy))
        fabric.run()
        assert links["a.0"].frames + links["a.1"].frames == 8
        assert fabric.world.network.switches["switch"].unknown == 0


# Captures -------------------------------------------------------------------------------------------------------------


def test_a_capture_has_one_interface_for_all_ports(tmp_path: Path) -> None:
    """As of a bond: a request and its answer stand in one order, whatever their ports."""
    path = tmp_path / "all.pcapng"
    result = run(load("gradient-rud", ["nodes.rank0.ports=2"]), output=str(path))
    with open_capture(path) as capture:
        records = list(capture)
        assert [one.name for one in capture.interfaces] == ["rank0.0"]
    assert len(records) == len({record.data for record in records}) == result.packets > 4


# Refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gradient", {"nodes.rank0.ports": 0}, "0 is not legal; legal: a whole number, 1 … 4"),
        ("gradient", {"nodes.rank0.ports": 5}, "5 is not legal; legal: a whole number, 1 … 4"),
        ("gradient", {"nodes.rank0.ports": 2, "fabric.pfc": "true"}, "2: PFC pauses a NIC with one port; legal: 1"),
        ("ladder-L01", {"nodes.a.ports": 2}, "2: a script has no cables; legal: 1"),
        ("gradient", {"nodes.rank0.ports": 2, "fabric.topology": "pair"}, "the ends of a pair have different numbers"),
    ],
)  # fmt: skip
def test_a_scenario_is_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=r"nodes\.\w+\.ports") as caught:
        load(name, [f"{key}={value}" for key, value in settings.items()])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("specs", "options", "message"),
    [
        ({"a": VerbsSpec(ports=2), "a.1": VerbsSpec()}, {}, "nodes['a'].ports: 2: one is a.1, the name of another"),
        ({"a": VerbsSpec(ports=2), "b": VerbsSpec()}, {"pfc": Pfc()}, "nodes['a'].ports: 2: PFC pauses"),
        ({"a": VerbsSpec(ports=2), "b": VerbsSpec()}, {"topology": "pair"}, "the ends of a pair have different"),
        ({"a": VerbsSpec(ports=9), "b": VerbsSpec()}, {}, "nodes['a'].ports: 9 is not legal; legal: a whole number"),
        ({"a": VerbsSpec(), "b": VerbsSpec()}, {"ports": 0}, "ports: 0 is not legal; legal: a whole number, 1 … 4"),
        (
            {"a": VerbsSpec(), "b": VerbsSpec(), "n": VerbsSpec(ports=2, at="switch")}, {},
            "nodes['n'].ports: 2 is not legal; legal: 1, as the node is within a switch",
        ),
    ],
)  # fmt: skip
def test_a_program_is_refused(specs: dict[str, VerbsSpec], options: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError) as caught:
        VerbsNetwork(specs, NetworkOptions(**options), config=RoceConfig())
    assert message in str(caught.value)
