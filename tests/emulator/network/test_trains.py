# SPDX-License-Identifier: GPL-2.0-only
"""Runs of equal packets that are handled as one: the capture, the memory, the counters and the times are those of a run
in which each packet is handled by itself.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import effort
from uetproto.api import fi, verbs
from uetproto.emulator.network.train_port import TrainPort
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.pds.trains import ReceivedTrain
from uetproto.errors import LocalError

MTU = 1024
SIZE = 150 * MTU + 77
CASES: dict[str, dict[str, Any]] = {
    "pair": {"topology": "pair"},
    "switch": {},
    "no trailer": {"how": fi.Encapsulation(crc=False)},
    "an ACK a packet": {"pds": PdsConfig(ack_gen_trigger=1)},
    "an ACK for many packets": {"pds": PdsConfig(ack_gen_trigger=1 << 15)},
    "ACKs with SACK": {"pds": PdsConfig(ack_cc="always")},
    "a window of 128 packets that closes": {
        "pds": PdsConfig(default_mpr=1, mp_range=128, ack_gen_trigger=1 << 15), "delay": "9 us"},
    "loss": {"faults": {"drop": [9, 40, 41, 77]}, "pds": PdsConfig(rto_init_time=20_000_000)},
    "damage": {"faults": {"corrupt": [30]}, "pds": PdsConfig(rto_init_time=20_000_000)},
    "duplicates": {"faults": {"duplicate": [12, 50]}},
    "ACKs and data that overtake": {"faults": {"reorder": 0.05, "reorder_by": 2}},
    "trimming in a short queue": {"trimming": True, "queue_capacity": 6000},
}  # fmt: skip


def run(folder: Path, trains: str, order: fi.Order, senders: int, **network: Any) -> list[Any]:
    """Write from each sender to the first node, and back from there; return all that can be seen."""
    names = [f"h{number}" for number in range(senders + 1)]
    file = folder / f"{trains}.pcapng"
    seen: list[Any] = []
    network = {"pds": PdsConfig(), "rate": "100 Gb/s"} | network
    with fi.Fabric(
        names, capture=str(file), taps="all", trains=trains, seed=3, ses=SesConfig(payload_mtu=MTU), **network
    ) as fabric:
        ends = [fabric.endpoint(name, msg_order=order) for name in names]
        buffers = [bytearray(SIZE) for _ in names]
        for number, end in enumerate(ends):
            peer = ends[0] if number else ends[1]
            mr = peer.domain.mr_reg(buffers[number])
            source = bytes(at * (number + 3) & 0xFF for at in range(SIZE))
            end.write(source, end.av.insert(peer.address), 0, mr.key)
        for end in ends:
            seen += [repr(entry) for entry in end.cq.sread(1)]
        world = fabric.world
        for name, node in world.nodes.items():
            nic, own = world.network.nics[name], node.engine.pds
            seen.append((name, nic.sent, nic.repeated, nic.received, nic.received_at, own.counters, own.nack_tx))
            seen += [
                (pdc.tx.una, pdc.tx.next, pdc.rx.cack, pdc.rx.max_clear, pdc.ack_gen_count, pdc.touched, pdc.wake_at,
                 [(record.psn, record.rto_at) for record in pdc.tx.records.values()]) for pdc in own.pdcs.values()
            ]  # fmt: skip
        seen += [(hop.link.frames, hop.link.bytes, hop.link.busy_until) for hop in world.network.hops]
        seen += [queue.peak for queue in world.network.queues.values()]
        seen += [world.now, len(world.clock), buffers]
    return [*seen, file.read_bytes()]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each train that is sent from now on adds the number of its packets."""
    sent: list[int] = []
    send = TrainPort.send

    def count(port: TrainPort, train: Any) -> int:
        sent.append(len(train.heads))
        return send(port, train)

    monkeypatch.setattr(TrainPort, "send", count)
    return sent


RUNS = [
    pytest.param(case, senders, order, id=f"{case}, {senders}, {mode}")
    for case, senders in (*((name, 1) for name in CASES), ("switch", 3), ("loss", 2))
    for mode, order in (("RUD", fi.Order.NONE), ("ROD", fi.Order.WAW))
]


@pytest.mark.parametrize(("case", "senders", "order"), effort(RUNS[::3], RUNS, RUNS))
def test_a_run_with_trains_is_the_run_without(
    case: str, senders: int, order: fi.Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(tmp_path, "off", order, senders, **CASES[case])
    sent = counted(monkeypatch)
    assert run(tmp_path, "on", order, senders, **CASES[case]) == plain
    assert len(sent) > 2


def test_packets_wait_while_their_endpoint_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes send and receive. What has arrived on one PDC is not looked at again for each train on the other."""
    looks: list[int] = []
    renew = ReceivedTrain.renew

    def count(run: ReceivedTrain, index: int, polled: bool) -> bool:
        looks.append(index)
        return renew(run, index, polled)

    sent = counted(monkeypatch)
    monkeypatch.setattr(ReceivedTrain, "renew", count)
    with fi.Fabric(["a", "b"]) as fabric:
        ends = [fabric.endpoint(name) for name in "ab"]
        for end, peer in zip(ends, ends[::-1], strict=True):
            mr = peer.domain.mr_reg(bytearray(SIZE * 20))
            end.write(bytes(SIZE * 20), end.av.insert(peer.address), 0, mr.key)
        for end in ends:
            end.cq.sread(1)
    assert len(looks) < len(sent)


def test_trains_are_refused_where_no_node_can_make_them() -> None:
    with pytest.raises(LocalError, match="trains: on"):
        fi.Fabric(trains="on", pds=PdsConfig(enb_ack_per_pkt=True))


# RoCE -----------------------------------------------------------------------------------------------------------------

ROCE: dict[str, dict[str, Any]] = {
    "plain": {},
    "an ACK for three packets": {"ack_req_interval": 3},
    "a window that closes": {"max_unacked_psns": 24},
    "late ACKs": {"ack_coalesce": 3, "ack_delay": 1_000_000, "ack_req_interval": 8},
    "no ICRC": {"icrc": False},
}


def run_roce(folder: Path, trains: str, faults: dict[str, Any], **config: Any) -> list[Any]:
    """Write and send on a queue pair, in both directions; return all that can be seen."""
    file, seen = folder / f"{trains}.pcapng", list[Any]()
    with verbs.Network(
        capture=str(file), taps="all", trains=trains, rate="100 Gb/s", faults=faults, seed=4,
        config=verbs.RoceConfig(path_mtu=MTU, timeout=5, **config),
    ) as net:  # fmt: skip
        pds = [net.device(name).alloc_pd() for name in net.devices]
        pairs = [pd.create_qp(verbs.QpType.RC, pd.device.create_cq()) for pd in pds]
        verbs.connect(*pairs)
        sources = [pd.reg_mr(bytearray(at * 7 & 0xFF for at in range(SIZE)), verbs.ALL) for pd in pds]
        buffers = [bytearray(SIZE) for _ in pds]
        targets = [pd.reg_mr(buffer, verbs.ALL) for pd, buffer in zip(pds, buffers, strict=True)]
        for source, qp, target, other in zip(sources, pairs, targets[::-1], pairs[::-1], strict=True):
            qp.post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=target.rkey)
            other.post_recv(target)
            qp.post_send(verbs.Opcode.SEND, source)
        world = net.world
        world.advance(2_000_000_000)
        for name, node in world.nodes.items():
            nic, engine = world.network.nics[name], node.engine
            seen.append((name, nic.sent, nic.repeated, nic.received, nic.received_at, engine.counters))
            seen += [
                (qp.requester.una, qp.requester.next, qp.requester.timer, qp.responder.epsn, qp.responder.done)
                for qp in engine.qps.values()
            ]
        seen += [repr(qp.send_cq.poll(8)) for qp in pairs]
        seen += [(hop.link.frames, hop.link.bytes, hop.link.busy_until) for hop in world.network.hops]
        seen += [world.now, len(world.clock), buffers]
    return [*seen, file.read_bytes()]


@pytest.mark.parametrize("faults", effort([{"drop": [150, 190]}], [{}, {"drop": [11, 60]}], [{}, {"drop": [11, 60]}]))
@pytest.mark.parametrize("case", ROCE)
def test_rc_with_trains_is_rc_without(
    case: str, faults: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_roce(tmp_path, "off", faults, **ROCE[case])
    sent = counted(monkeypatch)
    assert run_roce(tmp_path, "on", faults, **ROCE[case]) == plain
    assert len(sent) > 2


def test_a_pause_holds_frames_of_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PFC, the frames of a train leave one at a time, and a pause may hold some of them."""
    seen, sent = [], counted(monkeypatch)
    for trains in ("off", "on"):
        file = tmp_path / f"{trains}.pcapng"
        with verbs.Network(
            ("a", "b", "c"), capture=str(file), taps="all", trains=trains, rate="100 Gb/s", seed=4,
            pfc=verbs.Pfc(xoff=5000, xon=2000), config=verbs.RoceConfig(path_mtu=MTU),
        ) as net:  # fmt: skip
            target, *others = (net.device(name).alloc_pd() for name in net.devices)
            memory, senders = [bytearray(SIZE) for _ in others], []
            for number, (pd, buffer) in enumerate(zip(others, memory, strict=True)):
                here, there = (one.create_qp(verbs.QpType.RC, one.device.create_cq()) for one in (pd, target))
                verbs.connect(here, there)
                source, region = (
                    one.reg_mr(data, verbs.ALL) for one, data in ((pd, bytearray([number]) * SIZE), (target, buffer))
                )
                here.post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=region.addr, rkey=region.rkey)
                senders.append(here)
            entries = [repr(qp.send_cq.wait()) for qp in senders]
            gates = net.world.network.gates
            pauses = [(gate.pause.pauses, gate.pause.total) for gate in gates.values()]
            seen.append((entries, pauses, net.world.now, memory))
        seen[-1] += (file.read_bytes(),)
    assert seen[0] == seen[1]
    assert len(sent) > 10
    assert sum(count for count, _ in pauses) > 4
