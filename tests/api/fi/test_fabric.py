# SPDX-License-Identifier: GPL-2.0-only
"""The emulated network below: nodes, cables, faults, capture, time; the long way and the short way."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.fi_network import pair, requests
from uetproto import LocalError, decode
from uetproto.api import fi, verbs
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_ses import Opcode

Errno, Flag = fi.Errno, fi.Flag


def test_the_short_way(tmp_path: Path) -> None:
    path = tmp_path / "demo.pcapng"
    with fi.Fabric(capture=str(path)) as fabric:
        a, b = fabric.endpoint("a"), fabric.endpoint("b")
        memory = bytearray(4096)
        mr = b.domain.mr_reg(memory)
        a.write(b"gradient", b.address, 0, mr.key, context="w")
        entries = a.cq.sread(4)
    assert entries == [fi.CqTaggedEntry("w", Flag.WRITE | Flag.RMA, 8, None, 0, 0)]
    assert memory.startswith(b"gradient")
    (sent,) = requests(path)
    assert (sent.opcode, sent.payload, sent.values["memory_key"]) == (Opcode.WRITE, b"gradient", mr.key)


def test_the_long_way() -> None:
    fabric = fi.Fabric(("x", "y"))
    ends = {}
    for name in ("x", "y"):
        domain = fabric.domain(name)
        endpoint, av, tx, rx = domain.endpoint(), domain.av_open(), domain.cq_open(8), domain.cq_open()
        endpoint.bind(av)
        endpoint.bind(tx, Flag.TRANSMIT)
        endpoint.bind(rx, Flag.RECV)
        endpoint.enable()
        fabric.job.exchange[name] = endpoint.address.pack()
        ends[name] = endpoint
    x, y = ends["x"], ends["y"]
    dest = x.av.insert(fabric.job.exchange["y"])
    source = y.av.insert(fabric.job.exchange["x"])
    mr = y.domain.mr_reg(bytearray(8))
    x.write(b"data", dest, 4, mr.key, data=1)
    fabric.run()
    assert (len(x.tx_cq or ()), len(x.rx_cq or ()), len(y.tx_cq or ()), len(y.rx_cq or ())) == (1, 0, 0, 1)
    assert y.rx_cq is not None
    assert y.rx_cq.readfrom()[0][1] == source
    assert bytes(mr.view) == b"\0\0\0\0data"


@pytest.mark.parametrize("cc", ["off", "nscc+rccc"])
def test_frames_that_are_not_encoded(cc: str) -> None:
    """Each operation takes the time that it takes with bytes; reads show memory as it was when they were answered."""
    found = []
    for wire in ("bytes", "objects"):
        fabric = fi.Fabric(wire=wire, cc=cc, trimming=True, faults={"drop": 0.02}, seed=3)
        a, b = fabric.endpoint("a"), fabric.endpoint("b")
        here, there = bytearray(60_000), bytearray(bytes(range(250)) * 240)
        mr = b.domain.mr_reg(there)
        b.recv(bytearray(9000), context="r")
        a.read(here, b.address, 0, mr.key, context="read")
        a.write(bytes(50_000), b.address, 5, mr.key, context="write")
        a.send(bytes(9000), b.address, context="send")
        fabric.run()
        assert fabric.nodes["a"].fep.pds.objects is (wire == "objects")
        found.append((fabric.world.clock.now, a.cq.read(9), b.cq.read(9), bytes(here), bytes(there)))
    assert found[0] == found[1]
    assert len(found[0][1]) == 3


def test_loading_the_library_does_not_load_the_api() -> None:
    code = "import sys, uetproto, uetproto.api; print([n for n in sys.modules if 'api.' in n or 'emulator' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_getinfo() -> None:
    info = fi.Fabric({"a": fi.NodeSpec(address="10.1.0.1"), "b": fi.NodeSpec(ses=fi.SesConfig(profile="ai_base"))})
    first, second = info.getinfo()
    assert (first.fabric_name, first.prov_name, first.domain_name, first.src_addr) == ("UET", "uet", "a", "10.1.0.1")
    assert (first.caps, second.caps) == (fi.FepCap.AI_FULL | fi.FepCap.HPC, fi.FepCap.AI_BASE)
    assert (first.tx_size, first.rx_size, first.inject_size, first.iov_limit) == (256, 256, 1024, 8)
    assert (first.mr_key_size, first.cq_data_size, first.max_msg_size, first.mtu) == (8, 8, 2**32 - 2, 4096)


CUT: list[tuple[str, dict[str, Any], str]] = [
    ("one node", {"nodes": ("a",)}, "nodes: 1 nodes"),
    ("three on a cable", {"nodes": ("a", "b", "c"), "topology": "pair"}, "nodes: 3 nodes"),
    ("topology", {"topology": "ring"}, "topology: ring .*switch, pair"),
    ("rate", {"rate": "fast"}, "rate: fast"),
    ("delay", {"delay": -1}, "delay: -1"),
    ("mtu", {"mtu": 4096}, "mtu: 4096 .*payload_mtu of 4096"),
    ("address", {"nodes": {"a": fi.NodeSpec(address="here"), "b": fi.NodeSpec()}}, "address: here"),
    ("the same address", {"nodes": {"a": fi.NodeSpec(address="10.0.0.2"), "b": fi.NodeSpec()}}, "two addresses"),
    ("two families", {"nodes": {"a": fi.NodeSpec(address="fd00::9"), "b": fi.NodeSpec()}}, "IPv4 and IPv6"),
    ("tap", {"taps": ("c",)}, "taps: c .*all, or some of a, b"),
    ("faults of", {"faults_from": ("c",)}, "faults_from: c"),
    ("fault", {"faults": {"drops": 1}}, "faults: drops .*legal: drop, "),
    ("share", {"faults": fi.Faults(drop=1.5)}, "faults.drop: 1.5 .*0 … 1"),
    ("how many", {"faults": fi.Faults(reorder_by=-1)}, "faults.reorder_by: -1"),
    ("faults", {"faults": 5}, "faults: 5 "),
    ("mtu, no number", {"mtu": None}, "mtu: None"),
    ("mtu, large", {"mtu": 1 << 70}, "mtu: .*65535"),
    ("mtu, nan", {"mtu": float("nan")}, "mtu: nan"),
    ("capacity, text", {"queue_capacity": "x"}, "queue_capacity: x"),
    ("capacity, negative", {"queue_capacity": -1}, "queue_capacity: -1"),
    ("capacity, half", {"queue_capacity": 1.5}, "queue_capacity: 1.5"),
    ("trimming", {"trimming": 1}, "trimming: 1 .*true, false"),
    ("protocol", {"how": fi.Encapsulation(ip_protocol=-1)}, "how.ip_protocol: -1"),
    ("how", {"how": []}, r"how: \[\] .*Encapsulation"),
    ("pds", {"pds": {}}, r"pds: \{\} .*PdsConfig"),
    ("ses", {"ses": []}, r"ses: \[\] .*SesConfig"),
    (
        "ses of a node",
        {"nodes": {"a": fi.NodeSpec(ses=5), "b": fi.NodeSpec()}},  # type: ignore[arg-type]
        r"nodes\['a'\].ses: 5",
    ),
    ("seed", {"seed": object()}, "seed: "),
    ("no nodes", {"nodes": 5}, "nodes: 5 .*list of names"),
    ("letters", {"nodes": "ab"}, "nodes: ab .*list of names"),
    ("bytes", {"nodes": b"ab"}, "nodes: "),
    ("a node twice", {"nodes": ("a", "a", "b")}, "nodes: .*each name once"),
    ("no spec", {"nodes": {"a": {}, "b": {}}}, r"nodes\['a'\]: \{\} .*NodeSpec"),
    ("letters of taps", {"taps": "ab"}, "taps: ab .*list of names"),
    ("letters of faults", {"faults_from": "ab"}, "faults_from: ab .*list of names"),
]


@pytest.mark.parametrize(("arguments", "text"), [row[1:] for row in CUT], ids=[row[0] for row in CUT])
def test_what_cannot_be_built(arguments: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(fi.FiError, match=text) as raised:
        fi.Fabric(capture=str(tmp_path / "x.pcapng"), **arguments)
    assert raised.value.errno is Errno.FI_EINVAL
    assert not list(tmp_path.iterdir())


def test_a_capture_that_is_no_path() -> None:
    with pytest.raises(fi.FiError, match="capture: 5 "):
        fi.Fabric(capture=5)  # type: ignore[arg-type]


def test_faults_of_both_kinds_are_one() -> None:
    """Also the list of frame numbers, which the dataclass itself takes as it is."""
    for faults in (fi.Faults(drop=[0]), {"drop": [0]}):  # type: ignore[arg-type]
        two = pair(faults=faults)
        two.a.write(b"x", two.dest, 0, two.mr.key)
        assert two.a.cq.sread(1)[0].ok
        assert two.fabric.now > two.a.domain.node.pds.rto_init_time


def test_a_capacity_with_a_unit() -> None:
    two = pair(queue_capacity="1 MiB")
    assert {queue.capacity for queue in two.fabric.world.network.queues.values()} == {1 << 20}


def test_a_file_that_is_no_capture(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="pcapng"):
        fi.Fabric(capture=str(tmp_path / "x.txt"))


@pytest.mark.parametrize("address", ["10.9.8.7", "fd00::7"])
@pytest.mark.parametrize("topology", ["switch", "pair"])
def test_networks(address: str, topology: str) -> None:
    other = address[:-1] + "6"
    two = pair(nodes={"a": fi.NodeSpec(address=other), "b": fi.NodeSpec(address=address)}, topology=topology)
    two.a.write(bytes(9000 - 8192), two.dest, 0, two.mr.key)
    assert two.a.cq.sread(1)[0].ok
    legs = 4 if topology == "switch" else 2
    assert legs * 1_000_000 < two.fabric.now < legs * 1_100_000


def test_rate_and_delay() -> None:
    """4096 bytes at 8 Gb/s last 4.096 µs and a bit for the headers, once as there is no switch."""
    two = pair(topology="pair", rate="8 Gb/s", delay="3 us")
    two.a.write(bytes(4096), two.dest, 0, two.mr.key)
    two.a.cq.sread(1)
    assert 4_096_000 + 6_000_000 < two.fabric.now < 4_300_000 + 6_000_000


@pytest.mark.parametrize("taps", [None, "all", ("b",)])
def test_taps(taps: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    two = pair(path, taps=taps)
    two.a.write(b"x", two.dest, 0, two.mr.key)
    two.fabric.close()
    with open_capture(path) as records:
        frames = [(record.interface, decode(record.data)["ipv4"]["src"] & 0xFF) for record in records]
    assert {interface for interface, _ in frames} == ({0, 1} if taps == "all" else {0})
    assert frames[0] == (0, 1)
    assert len(frames) == (4 if taps == "all" else 2)


LEAVES: dict[str, Any] = {"topology": "leaf-spine", "shape": {"hosts_per_leaf": 2, "spines": 2}}


@pytest.mark.parametrize("api", [fi.Fabric, verbs.Network])
def test_taps_on_cables_and_switches(api: Any, tmp_path: Path) -> None:
    """A switch stands for all its cables, of which those to hosts are seen at the hosts."""
    path = tmp_path / "x.pcapng"
    api(tuple("abcd"), **LEAVES, capture=str(path), taps=("a", "spine1.leaf1", "leaf0")).close()
    with open_capture(path) as reader:
        list(reader)
        names = [interface.name for interface in reader.interfaces]
    assert names == ["a.0", "leaf1.spine1", "b.0", "leaf0.spine0", "leaf0.spine1"]
    for wrong in ("leaf2", "leaf0.leaf1", "e"):
        with pytest.raises(LocalError) as error:
            api(tuple("abcd"), **LEAVES, capture=str(path), taps=(wrong,))
        assert (error.value.name, "leaf0.spine0" in error.value.legal) == ("taps", True)


def test_a_cable_shows_what_passes_it(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with fi.Fabric(tuple("abcd"), **LEAVES, capture=str(path), taps=("a", "leaf0.spine0", "leaf0.spine1")) as fabric:
        a, d = fabric.endpoint("a"), fabric.endpoint("d")
        region = d.domain.mr_reg(bytearray(1 << 16))
        a.write(bytes(1 << 16), d.address, 0, region.key)
        assert a.cq.sread(1)[0].ok
    with open_capture(path) as records:
        at = Counter(record.interface for record in records)
    assert at[0] == at[1] + at[2] > 20


def test_faults_and_seed() -> None:
    def play(seed: int) -> tuple[int, int]:
        two = pair(seed=seed, faults={"drop": 0.2}, faults_from=("a",))
        two.a.write(bytes(4000), two.dest, 0, two.mr.key)
        for _ in range(50):
            two.a.write(b"y", two.dest, 4095, two.mr.key)
        two.fabric.run()
        assert all(entry.ok for entry in two.a.cq.read(99))
        assert (two.memory[:4000], two.memory[-1:]) == (bytes(4000), b"y")
        return two.fabric.now, two.fabric.world.network.faults["a"].done["drop"]

    assert play(1) == play(1)
    assert play(1) != play(2)
    assert play(1)[1] > 0


def test_a_peer_that_is_not_there() -> None:
    two = pair()
    dest = two.a.av.insert(fi.Address(fa=0x0A0000FF))
    two.a.write(b"x", dest, 0, 1, context="lost")
    (entry,) = two.a.cq.sread(1)
    assert isinstance(entry, fi.CqErrEntry)
    assert entry.pds is not None
    assert (entry.err, entry.code, entry.op_context) == (Errno.FI_EIO, "UNDELIVERABLE", "lost")
    assert entry.pds.reason.value in str(entry)


def test_running_time() -> None:
    fabric = fi.Fabric()
    assert fabric.run("5 us")
    assert fabric.now == 5_000_000
    assert fabric.run(5_000_001)
    assert fabric.now == 5_000_001
    with pytest.raises(fi.FiError, match=r"until: 5 us .*5000001 ps") as raised:
        fabric.run("5 us")
    assert raised.value.errno is Errno.FI_EINVAL
    assert not fabric.run(lambda: False)
    assert fabric.run(lambda: True)


def test_running_until_a_condition() -> None:
    two = pair()
    two.a.write(b"x", two.dest, 0, two.mr.key)
    assert two.fabric.run(lambda: two.memory[0] == ord("x"))
    assert 2_000_000 < two.fabric.now < 2_100_000
    assert two.a.cq.read() == []


def test_what_is_under_way_arrives_at_the_end() -> None:
    with pair().fabric as fabric:
        a, b = fabric.domains[0].endpoints[15], fabric.domains[1].endpoints[15]
        memory = bytearray(8)
        a.write(b"late", b.address, 0, b.domain.mr_reg(memory).key)
    assert memory.startswith(b"late")
    for call in (lambda: fabric.domain("a"), lambda: a.write(b"x", b.address, 0, 1), lambda: b.recv(bytearray(1))):
        with pytest.raises(fi.FiError, match="fabric is closed") as raised:
            call()
        assert raised.value.errno is Errno.FI_EOPBADSTATE
    assert a.cq.read()[0].ok


def test_an_exception_leaves_a_whole_capture(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"

    def fail() -> None:
        with fi.Fabric(capture=str(path)) as fabric:
            a, b = fabric.endpoint("a"), fabric.endpoint("b")
            a.write(b"x", b.address, 0, 1)
            fabric.run("1 us")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with open_capture(path) as records:
        assert len(list(records)) == 1
        assert not records.damage


def test_processes_of_one_node() -> None:
    """Each has its own PIDonFEP, its own indices and its own keys."""
    fabric = fi.Fabric()
    a = fabric.endpoint("a")
    first, second = fabric.endpoint("b"), fabric.endpoint("b")
    assert [end.domain.pid_on_fep for end in (first, second)] == [0, 1]
    buffers = bytearray(4), bytearray(4)
    for end, buffer in zip((first, second), buffers, strict=True):
        end.domain.mr_reg(buffer, requested_key=5)
    a.write(b"one.", first.address, 0, 5, data=1)
    a.write(b"two.", second.address, 0, 5, data=2)
    fabric.run()
    assert buffers == (b"one.", b"two.")
    assert [[entry.data for entry in end.cq.read(9)] for end in (first, second)] == [[1], [2]]  # type: ignore[attr-defined]


def test_jobs_are_apart() -> None:
    fabric = fi.Fabric()
    a = fabric.endpoint("a", job=fi.Job(7))
    b = fabric.endpoint("b")
    mr = b.domain.mr_reg(bytearray(4))
    a.write(b"x", b.address, 0, mr.key)
    (entry,) = a.cq.sread(1)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.err, entry.code) == (Errno.FI_EACCES, "BAD_JOB_ID")


def test_a_service_has_clients_of_any_job(tmp_path: Path) -> None:
    fabric = fi.Fabric(capture=str(tmp_path / "x.pcapng"))
    domain = fabric.domain("b", absolute=True, pid_on_fep=9)
    service = domain.endpoint(resource_index=3)
    service.bind(domain.av_open())
    service.bind(domain.cq_open())
    service.enable()
    memory = bytearray(4)
    mr = domain.mr_reg(memory)
    a = fabric.endpoint("a", job=fi.Job(7))
    dest = a.av.insert(service.address)
    a.write(b"hello"[:4], dest, 0, mr.key, data=1)
    fabric.close()
    assert a.cq.read()[0].ok
    assert memory == b"hell"
    assert len(service.cq.read(9)) == 1
    (sent,) = requests(tmp_path / "x.pcapng")
    assert [sent.values[name] for name in ("rel", "job_id", "pid_on_fep", "resource_index")] == [0, 7, 9, 3]


@pytest.mark.parametrize("what", ["write", "read", "send"])
def test_packets_that_overtake_make_nobody_wait_for_an_rto(what: str) -> None:
    """pds.md §8.3, §20 row 38: a permutation over a fat tree that loses nothing, each packet on a path of its own."""
    size, names = 100_000, [f"h{rank}" for rank in range(8)]

    def play(told: bool) -> tuple[bool, int]:
        pds = fi.PdsConfig(ack_on_gap_close=told)
        fabric = fi.Fabric(names, pds=pds, topology="fat-tree", shape={"k": 4}, queue_capacity="64 MB", seed=13)
        ends = [fabric.endpoint(name) for name in names]
        regions = [end.domain.mr_reg(bytearray(size)) for end in ends]
        for rank, end in enumerate(ends):
            other = (rank + 4) % 8
            if what == "send":
                ends[other].recv(bytearray(size))
                end.send(bytes(size), ends[other].address)
            else:
                buffer = bytearray(size)
                (end.write if what == "write" else end.read)(buffer, ends[other].address, 0, regions[other].key)
        entries = [
            entry for end in ends for entry in end.cq.sread(1 + (what == "send"), threshold=1 + (what == "send"))
        ]
        assert len(entries) == 8 + 8 * (what == "send")
        assert all(entry.ok for entry in entries)
        counters = [node.fep.pds.counters for node in fabric.world.nodes.values()]
        return fabric.now < pds.rto_init_time, sum(count.retx_rto for count in counters)

    assert play(told=True) == (True, 0)
    soon, repeated = play(told=False)
    assert not soon
    assert repeated > 0


def test_many_nodes_one_seed_one_capture(tmp_path: Path) -> None:
    """Everybody writes to, reads from and sends to everybody, over a network that loses, copies and reorders."""

    def play(path: Path) -> bytes:
        faults = {"drop": 0.05, "duplicate": 0.05, "reorder": 0.1}
        with fi.Fabric(tuple("abcd"), seed=5, faults=faults, capture=str(path), taps="all") as fabric:
            ends = [fabric.endpoint(name, msg_order=fi.Order.SAS if name in "ab" else fi.Order.NONE) for name in "abcd"]
            memories = [bytearray(4 * 10000) for _ in ends]
            keys = [end.domain.mr_reg(memory).key for end, memory in zip(ends, memories, strict=True)]
            inboxes: list[list[bytearray]] = [[bytearray(6000) for _ in range(3)] for _ in ends]
            fetched: list[bytearray] = []
            for end, inbox in zip(ends, inboxes, strict=True):
                for into in inbox:
                    end.recv(into)
            for me, end in enumerate(ends):
                for there, other in enumerate(ends):
                    if end is not other:
                        end.write(bytes([me + 1]) * 10000, other.address, me * 10000, keys[there])
                        end.send(bytes([me + 1]) * 6000, other.address)
            for end in ends:
                entries = end.cq.sread(99, threshold=9)
                assert [entry.ok for entry in entries] == [True] * 9
            for me, end in enumerate(ends):
                into = bytearray(10000)
                end.read(into, ends[me - 1].address, me * 10000, keys[me - 1])
                fetched.append(into)
            fabric.run()
        for me, memory in enumerate(memories):
            parts = [bytes([rank + 1] if rank != me else [0]) * 10000 for rank in range(4)]
            assert memory == b"".join(parts)
            assert sorted(inboxes[me]) == [bytes([rank + 1]) * 6000 for rank in range(4) if rank != me]
            assert fetched[me] == bytes([me + 1]) * 10000
        return path.read_bytes()

    assert play(tmp_path / "1.pcapng") == play(tmp_path / "2.pcapng")


def test_congestion_control_goes_with_a_network() -> None:
    """Endpoints ask their contexts, and switches mark, trim and drop nothing."""
    with fi.Fabric(("a", "b", "c", "d"), cc="nscc+rccc", lb="reps", trimming=True) as fabric:
        ends = [fabric.endpoint(name) for name in "abcd"]
        data = bytes(range(256)) * 2048
        memory = [bytearray(len(data)) for _ in range(3)]
        keys = [ends[3].domain.mr_reg(one).key for one in memory]
        for end, key in zip(ends, keys, strict=False):
            end.write(data, ends[3].address, 0, key)
        assert [end.cq.sread(1)[0].len for end in ends[:3]] == [len(data)] * 3
        assert memory == [data] * 3
        world = fabric.world
        assert world.network.marks + world.network.trims > 0
        assert world.network.drops == 0
        assert {fep.pds.congestion is None for fep in (node.fep for node in world.nodes.values())} == {False}


@pytest.mark.parametrize(("arguments", "text"), [
    ({"cc": "dcqcn"}, "cc: dcqcn is not legal; legal: nscc, rccc"),
    ({"cc": "nscc", "lb": "ecmp"}, "lb: ecmp is not legal; legal: oblivious"),
    ({"cc": "nscc", "trimming": 1}, "trimming: 1"),
])  # fmt: skip
def test_congestion_control_that_cannot_be(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(fi.FiError, match=f"^{text}"):
        fi.Fabric(**arguments)
