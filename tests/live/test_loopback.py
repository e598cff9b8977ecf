# SPDX-License-Identifier: GPL-2.0-only
"""The engines over UDP sockets of loopback: what both ends hold afterwards, and what an audit says of the captures."""

import random
import socket
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import addresses, clean, running
from uetproto import LocalError
from uetproto.analysis.decoding import Decoding
from uetproto.api import fi, verbs
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.pds.messages import parse
from uetproto.live import Interface
from uetproto.live.rate import PeerRate
from uetproto.wire.pcap import open_capture

SIZE = 200_000


def exchange(interfaces: list[Interface], **options: Any) -> tuple[fi.Fabric, fi.Fabric]:
    """Write to the other end and read back, and close; the memory is the same then."""
    here, there = (fi.Fabric(live=interface, **options) for interface in interfaces)
    a, b = here.endpoint("local"), there.endpoint("local")
    a.av.insert(b.address.pack())
    data, memory, back = random.Random(1).randbytes(SIZE), bytearray(SIZE), bytearray(SIZE)
    region = b.domain.mr_reg(memory)
    here.live.learn(there.live.node.address, PeerRate(there.live.path.buffer))
    with running(there.live):
        a.write(data, b.address, 0, region.key)
        assert [entry.ok for entry in a.cq.sread(timeout="20 s")] == [True]
        a.read(back, b.address, 0, region.key)
        assert [entry.ok for entry in a.cq.sread(timeout="20 s")] == [True]
        here.close()
    assert memory == back == data
    assert not here.live.path.counters.refused
    return here, there


@pytest.mark.parametrize("options", [{}, {"cc": "off", "pds": PdsConfig(mp_range=128, default_mpr=1)}])
def test_uet(tmp_path: Path, options: dict[str, Any]) -> None:
    files = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    here, _ = exchange(
        [Interface(at, capture=str(file)) for at, file in zip(addresses(), files, strict=True)], **options
    )
    clean(*files)
    for file in files:
        judged = audit([file], Options(complete=True, rules=("PDS-WINDOW-*",))).tallies
        assert judged["PDS-WINDOW-INFERRED"].judged == 0, "a capture says where it was taken, and of which windows"
        assert (judged["PDS-WINDOW-EXCEEDED"].judged > 0) is ("cc" not in options), "writes, and at the peer the data"
    ours, theirs = (Counter(packets_from(file, here.live.node.address)) for file in files)
    strange = [f"{parse(packet[:-4])}, {len(packet)} bytes, {ours[packet]} sent" for packet in theirs - ours]
    assert not strange, "received more often than sent"
    assert ours.total() == here.live.path.counters.sent > 2 * SIZE // 4096


def test_the_windows_that_a_capture_states_are_judged(tmp_path: Path) -> None:
    """The same packets are too many for a smaller window; the end that receives says nothing of the sender's."""
    files = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    exchange([Interface(at, capture=str(file)) for at, file in zip(addresses(), files, strict=True)])
    ours, theirs = (file.read_bytes() for file in files)
    for number, data in enumerate((ours, ours.replace(b"cc at=", b"cc no="), theirs.replace(b",to=", b",of="))):
        less = tmp_path / f"{number}.pcapng"
        assert b"base_rtt=100 us" in data
        less.write_bytes(data.replace(b"base_rtt=100 us", b"base_rtt=1.0 us"))
        found = audit([less], Options(complete=True, rules=("PDS-WINDOW-EXCEEDED",)))
        assert (found.tallies["PDS-WINDOW-EXCEEDED"].failed > 0) is (number == 0)


def packets_from(file: Path, source: int) -> list[bytes]:
    """The UDP payloads in a capture from an address."""
    with open_capture(file) as reader:
        return [record.data[28:] for record in reader if int.from_bytes(record.data[12:16], "big") == source]


def test_a_program_where_another_one_was_killed() -> None:
    """The target still holds the PDC of the first program; the second one has other PDCIDs."""
    at, target = addresses()
    with ExitStack() as stack:
        there = fi.Fabric(live=Interface(target))
        b = there.endpoint("local")
        region = b.domain.mr_reg(memory := bytearray(8))
        stack.enter_context(running(there.live))
        for seed in (1, 2):
            here = fi.Fabric(live=Interface(at, seed=seed))
            a = here.endpoint("local")
            a.av.insert(b.address)
            a.write(bytes([seed] * 8), b.address, 0, region.key)
            assert [entry.ok for entry in a.cq.sread(timeout="20 s")] == [True]
            assert memory == bytes([seed] * 8)
            here.live.close(drain=False)  # no CLOSE_CMD leaves


def test_ipv6_with_two_ports(tmp_path: Path) -> None:
    """On ::1 both ends have one address, and so two ports, which their captures state."""
    files = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    ports = [random.Random().randrange(10_000, 20_000) * 2 for _ in "ab"]
    ports[1] |= 1
    interfaces = [
        Interface("::1", local_port=port, checksum="off", capture=str(file))
        for port, file in zip(ports, files, strict=True)
    ]
    here = fi.Fabric(live=interfaces[0], how=fi.Encapsulation(udp_port=ports[1]))
    there = fi.Fabric(live=interfaces[1], how=fi.Encapsulation(udp_port=ports[0]))
    a, b = here.endpoint("local"), there.endpoint("local")
    a.av.insert(b.address)
    memory = bytearray(SIZE)
    region = b.domain.mr_reg(memory)
    with running(there.live):
        a.write(bytes(range(250)) * (SIZE // 250), b.address, 0, region.key)
        assert [entry.ok for entry in a.cq.sread(timeout="20 s")] == [True]
        here.close()
    assert memory == bytes(range(250)) * (SIZE // 250)
    clean(*files)
    for file in files:
        with open_capture(file) as reader:
            assert not [packet for _, packet in Decoding(reader=reader).packets(str(file), reader) if packet.error]


def test_entropy_values_beside_those_of_a_peer_at_the_same_address() -> None:
    """The peer has a run of ports; entropy values that are equal get others."""
    fabric = fi.Fabric(live=Interface("::1", local_port=random.Random().randrange(10_000, 40_000)))
    first = 0xC000 + random.Random().randrange(0x3000)
    with ExitStack() as stack:
        stack.callback(fabric.close)
        for port in range(first, first + 100):
            found = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            with suppress(OSError):
                found.bind(("::1", port))
        assert fabric.live.path.entropy(first & 0x3FFF) not in range(first, first + 100)


def connected(here: verbs.Network, there: verbs.Network) -> tuple[verbs.QP, verbs.QP]:
    """Bring up two queue pairs, as two programs do that tell each other their numbers."""
    ends = []
    for number, network in enumerate((here, there)):
        device = network.device("local")
        ends.append(device.alloc_pd().create_qp(verbs.QpType.RC, device.create_cq(), qp_num=0x100 + number))
    for number, (one, other) in enumerate((ends, ends[::-1])):
        verbs.connect_to(one, other.device.gid, dest_qpn=0x101 - number, sq_psn=5 + number, rq_psn=6 - number)
    return ends[0], ends[1]


def test_roce(tmp_path: Path) -> None:
    files = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    here, there = (
        verbs.Network(live=Interface(at, capture=str(file))) for at, file in zip(addresses(), files, strict=True)
    )
    qp, far = connected(here, there)
    source, target = qp.pd.reg_mr(bytearray(b"gradient" * 20_000)), far.pd.reg_mr(bytearray(160_000), rkey=0x1234)
    with running(there.live):
        qp.post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=0x1234)
        assert [entry.status for entry in qp.send_cq.wait(timeout="20 s")] == [verbs.Status.SUCCESS]
        here.close()
    assert bytes(target) == bytes(source)
    clean(*files)


def test_roce_with_two_ports(tmp_path: Path) -> None:
    """Both ends have the address ::1, and queue pairs of one number; their captures state the ports, and are clean."""
    files = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    ports = [random.Random().randrange(10_000, 20_000) * 2 for _ in "ab"]
    ports[1] |= 1
    here, there = (
        verbs.Network(
            live=Interface("::1", local_port=own, checksum="off", capture=str(file)),
            config=verbs.RoceConfig(udp_port=other),
        )
        for own, other, file in zip(ports, ports[::-1], files, strict=True)
    )
    ends = []
    for network in (here, there):
        device = network.device("local")
        ends.append(device.alloc_pd().create_qp(verbs.QpType.RC, device.create_cq(), qp_num=0x100))
        verbs.connect_to(ends[-1], "::1", dest_qpn=0x100, sq_psn=5, rq_psn=5)
    source, target = ends[0].pd.reg_mr(bytearray(range(256)) * 400), ends[1].pd.reg_mr(bytearray(102_400))
    with running(there.live):
        ends[0].post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=target.rkey)
        assert [entry.status for entry in ends[0].send_cq.wait(timeout="20 s")] == [verbs.Status.SUCCESS]
        here.close()
    assert bytes(target) == bytes(source)
    clean(*files)
    for file in files:
        with open_capture(file) as reader:
            assert not [packet for _, packet in Decoding(reader=reader).packets(str(file), reader) if packet.error]


def test_numbers_by_hand_that_are_not_legal() -> None:
    """What is told outside of the fabric is checked, and a queue pair that is refused is in RESET."""
    with verbs.Network(live=Interface(addresses(1)[0])) as net:
        device = net.device("local")
        pd, cq = device.alloc_pd(), device.create_cq()
        qp = pd.create_qp(verbs.QpType.RC, cq, qp_num=0x100)
        pd.reg_mr(bytearray(8), rkey=9)
        numbers: dict[str, Any] = {"dest_qpn": 0x101, "sq_psn": 0, "rq_psn": 0}
        for call, words in (
            (lambda: pd.create_qp(verbs.QpType.RC, cq, qp_num=0x100), "number: 256 is not legal"),
            (lambda: pd.create_qp(verbs.QpType.RC, cq, qp_num=1), "qp_num: 1 is not legal; legal: 2 …"),
            (lambda: pd.reg_mr(bytearray(8), rkey=9), "rkey: 9 is not legal"),
            (lambda: pd.reg_mr(bytearray(8), rkey=1 << 32), "rkey: 4294967296 is not legal"),
            (lambda: verbs.connect_to(qp, "10.0.0", **numbers), "peer: "),
            (lambda: verbs.connect_to(qp, "::1", **numbers), "peer: "),
            (lambda: verbs.connect_to(qp, "127.0.0.1", **numbers | {"dest_qpn": 1 << 24}), "dest_qpn: "),
            (lambda: verbs.connect_to(qp, "127.0.0.1", **numbers, mtu=1024), "attributes: mtu is not legal"),
        ):  # fmt: skip
            with pytest.raises(verbs.VerbsError, match=words):
                call()
            assert qp.state is verbs.QpState.RESET


def test_what_is_not_to_be_had(tmp_path: Path) -> None:
    """Each obstacle is said in one line, with the argument that it is about."""
    (local,) = addresses(1)
    with fi.Fabric(live=Interface(local)) as fabric:
        for text, interface in (
            ("local_port: port 4793 of .* is in use", Interface(local)),
            ("local: 192.0.2.1 is no address of this host", Interface("192.0.2.1")),
            ("device: fe80::1 is a link-local address", Interface("fe80::1")),
            ("path: 'udpp' is not legal .did you mean udp", Interface(local, path="udpp")),
        ):
            with pytest.raises(LocalError, match=text):
                fi.Fabric(live=interface)
        endpoint = fabric.endpoint("local")
        unreachable = fi.Address(fa=0xF0000001, pid_on_fep=0, start_index=15)  # 240.0.0.1
        endpoint.av.insert(unreachable)
        with pytest.raises(LocalError, match=r"peer: there is no way from 127[.0-9]* to 240\.0\.0\.1: "):
            endpoint.write(b"x", unreachable, 0, 7)
    illegal: list[dict[str, Any]] = [
        {"local": "10.0.0"}, {"local": "0.0.0.0"}, {"local": local, "entropies": 0},
        {"local": local, "segmentation": True},
    ]  # fmt: skip
    for wrong in illegal:
        with pytest.raises(LocalError, match="legal"):
            Interface(**wrong)


def test_a_link_that_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest packets are held against the MTU before the first one leaves."""
    local, far = addresses()
    monkeypatch.setattr("uetproto.live.sockets.mtu_towards", lambda *_: 1500)
    with fi.Fabric(live=Interface(local)) as fabric:
        endpoint, peer = (
            fabric.endpoint("local"),
            fi.Address(fa=int(Interface(far).address), pid_on_fep=0, start_index=15),
        )
        endpoint.av.insert(peer)
        with pytest.raises(
            LocalError, match=r"payload_mtu: its longest IP packets have 4\d* bytes; legal: at most 1500"
        ):
            endpoint.write(b"x", peer, 0, 7)
    with fi.Fabric(live=Interface(local), ses=SesConfig(payload_mtu=1024)) as fabric:
        fabric.live.check_peer(int(Interface(far).address))
