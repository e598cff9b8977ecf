# SPDX-License-Identifier: GPL-2.0-only
"""Options of SHARP by their published names, each by what it changes in the packets of rank 0 (sharp.md §5)."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.api.sharp_worlds import network_of, run, sharp_of, world
from uetproto import decode
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.sharp_errors import SharpError
from uetproto.engine.roce.config import RoceConfig
from uetproto.errors import LocalError
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.sharp import Flag, SharpOpcode

UD_SEND = 100
_OPERATIONS = (SharpOpcode.AGG_REQ, SharpOpcode.AGG_RESULT)


class Seen(NamedTuple):
    """A message at rank 0."""

    opcode: SharpOpcode
    streams: bool
    length: int
    multicast: bool


def seen(tmp_path: Path, sharp: Any, sizes: list[int], transport: str = "roce") -> list[Seen]:
    """Messages of rank 0, in an all_reduce of each so many bytes; None of them: a barrier."""
    path = tmp_path / "run.pcapng"

    def program(rank: int) -> None:
        dist.barrier(algorithm="sharp")
        for size in sizes:
            dist.all_reduce(np.zeros(size, np.uint8), algorithm="sharp")

    run(program, world(4, transport, sharp, capture=str(path)))
    with open_capture(str(path)) as reader:
        packets = [decode(record.data, sharp=True) for record in reader]
    found = []
    for packet in packets:
        layers = {layer.form for layer in packet.layers}
        if "sharp" in layers:
            header = packet["sharp"]
            multicast = "bth" in layers and packet["bth"]["opcode"] == UD_SEND
            opcode, streams = SharpOpcode(header["opcode"]), bool(header["flags"] & Flag.SAT)
            found.append(Seen(opcode, streams, header["payload_len"], multicast))
    return found


def count(messages: list[Seen], opcode: SharpOpcode) -> int:
    return sum(message.opcode is opcode for message in messages)


def vectors(messages: list[Seen]) -> list[Seen]:
    """What rank 0 hands in, without the barrier."""
    return [message for message in messages if message.opcode is SharpOpcode.AGG_REQ and message.length]


@pytest.mark.parametrize("transport", ["roce", "uet"])
@pytest.mark.parametrize(("enabled", "streams"), [(0, False), (1, True)])
def test_enable_sat(tmp_path: Path, transport: str, enabled: int, streams: bool) -> None:
    messages = seen(tmp_path, {"SHARP_COLL_ENABLE_SAT": enabled}, [8096], transport)
    assert {message.streams for message in vectors(messages)} == {streams}
    assert count(messages, SharpOpcode.LOCK_REQ) == enabled
    assert count(messages, SharpOpcode.GROUP_JOIN_REQ) == 1 + enabled


def test_sat_threshold(tmp_path: Path) -> None:
    """8096, as the slides print it; bytes from which a vector is streamed."""
    assert not vectors(seen(tmp_path, True, [8095]))[0].streams
    assert vectors(seen(tmp_path, True, [8096]))[0].streams
    told = seen(tmp_path, {"SHARP_COLL_SAT_THRESHOLD": 64}, [63, 64])
    assert [message.streams for message in vectors(told)] == [False, True]


@pytest.mark.parametrize(("batch", "locks"), [(1, 5), (2, 3), (65535, 1)])
def test_lock_batch_size(tmp_path: Path, batch: int, locks: int) -> None:
    """Invariant 19: so many operations, and the lock is free."""
    messages = seen(tmp_path, {"SHARP_COLL_SAT_LOCK_BATCH_SIZE": batch}, [9000] * 5)
    assert count(messages, SharpOpcode.LOCK_REQ) == locks


@pytest.mark.parametrize(("retries", "pause"), [(1, 100), (3, 20), (0, 0)])
def test_lock_retries(retries: int, pause: int) -> None:
    """Another group holds the only flow of the aggregation nodes: after all tries it goes by the LLT (§3.4)."""
    sharp = {
        "sat_flows_per_an": 1, "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": 0, "SHARP_COLL_SAT_LOCK_RETRY_COUNT": retries,
        "SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT": max(1, pause),
    }  # fmt: skip

    def program(rank: int) -> tuple[float, float]:
        other = dist.new_group([0, 2, 3])
        dist.all_reduce(np.ones(3000), algorithm="sharp")
        x, start = np.ones(3000), dist.now()
        if rank != 1:
            dist.all_reduce(x, group=other, algorithm="sharp")
        return float(x[-1]), dist.now() - start

    results = run(program, world(4, sharp=sharp))
    del results[1]
    for total, took in results:
        assert total == 3
        assert retries * pause / 1000 <= took < (retries * pause + 1) / 1000


@pytest.mark.parametrize(("mode", "streams"), [(0, [True, True]), (1, [True, False]), (2, [True])])
def test_exclusive_lock_mode(mode: int, streams: list[bool]) -> None:
    """Of a second group on the same nodes: it shares their locks, does without a SAT, or is refused."""

    def program(rank: int) -> None:
        other = dist.new_group([0, 2, 3])
        dist.all_reduce(np.ones(3000), algorithm="sharp")
        if rank != 1:
            dist.all_reduce(np.ones(3000), group=other, algorithm="sharp")

    made = world(4, sharp={"SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": mode})
    if mode == 2:
        with pytest.raises(ValueError, match=r"no job for ranks 0, 2, 3: QUOTA \(-7\)"):
            run(program, made)
    else:
        run(program, made)
    jobs = sharp_of(made).fabric.manager.jobs.values()
    assert [bool(job.grant.rails[0].sat) for job in jobs] == streams


@pytest.mark.parametrize("asked", [0, 1])
def test_lock_on_comm_init(tmp_path: Path, asked: int) -> None:
    assert count(seen(tmp_path, {"SHARP_COLL_LOCK_ON_COMM_INIT": asked}, []), SharpOpcode.LOCK_REQ) == asked


@pytest.mark.parametrize(("osts", "window"), [("dynamic", 2), (2, 2), (5, 5), (12, 10)])
def test_osts_per_group(tmp_path: Path, osts: Any, window: int) -> None:
    """W: fragments that are open at a time; there are ten."""
    sharp = {"SHARP_COLL_OSTS_PER_GROUP": osts, "SHARP_COLL_ENABLE_MCAST_TARGET": 0}
    found = [message for message in seen(tmp_path, sharp, [1280]) if message.opcode in _OPERATIONS and message.length]
    most = opened = 0
    for message in found:
        opened += 1 if message.opcode is SharpOpcode.AGG_REQ else -1
        most = max(most, opened)
    assert (most, opened) == (window, 0)


@pytest.mark.parametrize(("asked", "length"), [(0, 128), (4, 4), (64, 64), (1024, 1024)])
def test_payload_per_ost(tmp_path: Path, asked: int, length: int) -> None:
    sharp = {"SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": asked}
    assert [message.length for message in vectors(seen(tmp_path, sharp, [3 * length]))] == [length] * 3


@pytest.mark.parametrize("enabled", [0, 1])
def test_enable_mcast_target(tmp_path: Path, enabled: int) -> None:
    sharp = {"SHARP_COLL_ENABLE_MCAST_TARGET": enabled}
    results = [m for m in seen(tmp_path, sharp, [8, 9000]) if m.opcode is SharpOpcode.AGG_RESULT]
    small, large = (m for m in results if m.length == 8), (m for m in results if m.length > 8)
    assert {message.multicast for message in small} == {bool(enabled)}
    assert {message.multicast for message in large} == {False}  # a SAT never


@pytest.mark.parametrize(("user_data", "multicast"), [(224, True), (225, False), (1024, False)])
def test_results_that_are_no_single_packet_come_over_rc(user_data: int, multicast: bool) -> None:
    """With the header of 32 bytes they have to fit the path MTU (§2.1)."""

    def program(rank: int) -> bytes:
        vector = np.full(2000, rank, np.uint8)
        dist.all_reduce(vector, algorithm="sharp")
        return vector.tobytes()

    options = {"SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": user_data, "SHARP_COLL_ENABLE_SAT": 0}
    made = world(4, "roce", options, config=RoceConfig(path_mtu=256))
    assert run(program, made) == [bytes([6]) * 2000] * 4
    groups = [group for host in sharp_of(made).fabric.hosts.values() for group in host.groups.values()]
    assert [group.by_multicast for group in groups] == [multicast] * 4


def test_the_path_mtu_is_that_of_the_transport() -> None:
    with pytest.raises(ValueError, match="sharp: path_mtu: 4096; legal: 1024, over this transport"):
        world(4, "roce", {"path_mtu": 4096}, config=RoceConfig(path_mtu=1024))


@pytest.mark.parametrize(("threshold", "messages"), [(0, 5), (1, 4), (3, 2), (9, 0)])
def test_resource_alloc_threshold(tmp_path: Path, threshold: int, messages: int) -> None:
    """So many collectives of a communicator are done by the ranks; the rest of a barrier and four vectors by SHARP."""
    sharp = {"SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD": threshold, "SHARP_COLL_ENABLE_SAT": 0}
    found = seen(tmp_path, sharp, [8] * 4)
    assert count(found, SharpOpcode.AGG_REQ) == messages
    assert count(found, SharpOpcode.GROUP_JOIN_REQ) == bool(messages)


def test_every_communicator_has_its_own_threshold() -> None:
    def program(rank: int) -> list[float]:
        other = dist.new_group([0, 2, 3])
        totals = []
        for group in (None, other, None):
            x = np.ones(4)
            if rank != 1 or group is None:
                dist.all_reduce(x, group=group, algorithm="sharp")
            totals.append(float(x[0]))
        return totals

    made = world(4, sharp={"SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD": 1})
    assert run(program, made)[0] == [4, 3, 4]
    [job] = sharp_of(made).fabric.manager.jobs.values()
    assert len(job.grant.rails[0].llt) == 4, "the other group had one collective only"
    assert sharp_of(made).notes == ["SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD is 1: the first by the ranks"]


@pytest.mark.parametrize(
    ("transport", "more", "refused"),
    [
        ("roce", {}, False),
        ("roce", {"SHARP_COLL_ENABLE_MCAST_TARGET": 0}, True),
        ("roce", {"mgid": "none"}, True),
        ("roce", {"SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": 1024}, True),
        ("uet", {}, True),
    ],
)
def test_group_is_target(transport: str, more: dict[str, Any], refused: bool) -> None:
    """Without results over RC there have to be those by multicast."""
    more_of = {"config": RoceConfig(path_mtu=1024)} if transport == "roce" else {}
    made = world(4, transport, {"SHARP_COLL_GROUP_IS_TARGET": 0, **more}, **more_of)
    if refused:
        with pytest.raises(ValueError, match=r"no job for ranks 0, 1, 2, 3: MCAST_TARGET \(-16\)"):
            run(lambda rank: dist.barrier(algorithm="sharp"), made)
    else:
        run(lambda rank: dist.barrier(algorithm="sharp"), made)


def test_ib_attributes() -> None:
    """Of every queue pair, at hosts and at aggregation nodes."""
    sharp = {
        "SHARP_COLL_IB_TIMEOUT": 12, "SHARP_COLL_IB_RETRY_COUNT": 3, "SHARP_COLL_IB_RNR_TIMER": 9,
        "SHARP_COLL_IB_RNR_RETRY": 2,
    }  # fmt: skip
    made = world(4, sharp=sharp)
    run(lambda rank: dist.barrier(algorithm="sharp"), made)
    fabric, checked = sharp_of(made).fabric, 0
    for name, carrier in fabric.carriers.items():
        hca = made.network.world.nodes[name].hca  # type: ignore[attr-defined]
        for number, connection in carrier.connections.items():
            if connection.up:
                found = hca.qps[number].attributes
                assert (found.timeout, found.retry_cnt, found.min_rnr_timer, found.rnr_retry) == (12, 3, 9, 2)
                checked += 1
    assert checked == 2 * 2 * (4 + 2)  # two ends of six edges of two trees


@pytest.mark.parametrize(("timeout", "retries", "most"), [(10, 7, 0.04), (10, 1, 0.01), (12, 7, 0.16)])
def test_how_long_a_lost_peer_is_asked(timeout: int, retries: int, most: float) -> None:
    """4.096 us * 2^timeout, so often and once more."""
    made = world(4, sharp={"SHARP_COLL_IB_TIMEOUT": timeout, "SHARP_COLL_IB_RETRY_COUNT": retries})
    network = network_of(made)

    def program(rank: int) -> None:
        dist.barrier(algorithm="sharp")
        if rank == 0:
            network.kill("an.leaf0")
        dist.barrier(algorithm="sharp")

    with pytest.raises(SharpError, match="PARENT_DOWN"):
        run(program, made)
    assert 4.096e-6 * 2**timeout * (retries + 1) <= network.now / 1e12 < most


@pytest.mark.parametrize("asked", [0, 1])
def test_enable_group_trim(asked: int) -> None:
    """A field of aggregation nodes, too: what a user says of it counts there."""
    made = world(4, sharp={"SHARP_COLL_ENABLE_GROUP_TRIM": asked})
    with made:
        assert {node.config.group_trim for node in sharp_of(made).fabric.nodes.values()} == {bool(asked)}


def test_uet_has_no_multicast() -> None:
    with pytest.raises(LocalError, match=r"sharp: mgid: 'ipv4'.*legal: none, over this transport"):
        world(4, "uet", {"mgid": "ipv4"})
