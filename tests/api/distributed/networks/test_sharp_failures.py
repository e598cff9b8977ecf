# SPDX-License-Identifier: GPL-2.0-only
"""SHARP where packets are lost, where somebody dies, and where it is refused (sharp.md §2.7, §3.4, §6)."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.api.sharp_worlds import FOUR, LEAF_SPINE, bits, fold, network_of, run, sharp_of, world
from tests.support.effort import effort
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.sharp_errors import SharpError
from uetproto.engine.contract import SECOND
from uetproto.engine.sharp.host.states import HostGroupState
from uetproto.errors import LocalError, UetError
from uetproto.wire.headers.sharp import SharpOpcode, Status

OVER = pytest.mark.parametrize("transport", ["roce", "uet"])
NODES = ["rank0", "rank1", "rank2", "rank3", "an.leaf0", "an.leaf1", "an.spine0"]
FAULTS = {"drop": 0.03, "reorder": 0.05, "duplicate": 0.05}
AT = 90_000_000
"""Picoseconds: when somebody dies, after several operations."""


def values_of(count: int) -> list[Any]:
    draw = np.random.default_rng(count)
    return [draw.normal(size=count).astype(np.float32) for _ in range(4)]


def many(rank: int) -> list[bytes]:
    """Small and large ones."""
    results = []
    for count in (5, 40, 3000) * 4:
        x = values_of(count)[rank]
        dist.all_reduce(x, algorithm="sharp")
        results.append(bits(x))
    return results


WANTED = [bits(fold(FOUR, values_of(count), "SUM")) for count in (5, 40, 3000) * 4]


# Loss ---------------------------------------------------------------------------------------------------------------


@OVER
@pytest.mark.parametrize("seed", effort([2], [1, 2, 3], [1, 2, 3]))
def test_results_stay_right(transport: str, seed: int) -> None:
    """Invariants 6 and 9: whatever is lost, late, or comes twice."""
    made = world(4, transport, faults=FAULTS, faults_from=NODES, seed=seed)
    assert run(many, made) == [WANTED] * 4
    assert sum(nic.repeated for nic in network_of(made).world.network.nics.values()) > 0


def test_lost_multicast_results_are_asked_for_again() -> None:
    """A UD message is not repeated by itself: the host repeats its request, and has the result over RC (§3.2)."""

    def program(rank: int) -> list[float]:
        x = np.ones(4)
        results = []
        for _ in range(10):
            dist.all_reduce(x, algorithm="sharp")
            results.append(float(x[0]))
        return results

    made = world(4, sharp={"SHARP_COLL_ENABLE_SAT": 0}, faults={"drop": 0.2}, faults_from=["an.spine0"], seed=1)
    assert run(program, made) == [[4.0**power for power in range(1, 11)]] * 4
    fabric = sharp_of(made).fabric
    asked = [host.counters["sent"] for host in fabric.hosts.values()]
    assert min(asked) >= 1 + 10  # a join, and each operation once
    assert max(asked) > 1 + 10


# Death --------------------------------------------------------------------------------------------------------------


def endless(rank: int) -> None:
    while True:
        dist.all_reduce(values_of(3000)[rank], algorithm="sharp")


def killed(victim: str, transport: str, sharp: Any = True) -> tuple[dist.World, list[str]]:
    """What every rank was told."""
    made = world(4, transport, sharp)
    network = network_of(made)
    network.world.clock.at(AT, lambda _: network.kill(victim))
    told = ["nothing"] * 4

    def program(rank: int) -> None:
        try:
            endless(rank)
        except UetError as error:
            told[rank] = str(error)
            raise

    with pytest.raises(UetError):
        run(program, made)
    return made, told


@pytest.mark.parametrize(
    ("victim", "names"),
    [
        ("rank3", ["CHILD_DOWN (0x1d, libsharp -1), says an.leaf1 of rank3", "of an.leaf1; rank3 itself is dead"]),
        ("an.leaf0", ["says rank0 of an.leaf0", "says rank1 of an.leaf0"]),
        ("leaf1", ["says rank2 of an.leaf1", "says rank3 of an.leaf1"]),
        ("an.spine0", ["says an.leaf0 of an.spine0", "says an.leaf1 of an.spine0"]),
        ("spine0", ["says an.leaf0 of an.spine0", "says an.leaf1 of an.spine0"]),
    ],
)
@pytest.mark.parametrize("transport", effort(["roce"], ["roce", "uet"], ["roce", "uet"]))
def test_who_is_dead_is_named_at_every_member(transport: str, victim: str, names: list[str]) -> None:
    made, told = killed(victim, "uet" if victim == "an.leaf0" else transport)
    assert all(any(name in text for name in names) for text in told), told
    # Nor do the hosts rely on being told by each other's ranks: the protocol ends their groups, too.
    network_of(made).world.advance(10 * 10**12)
    states = [group.state for host in sharp_of(made).fabric.hosts.values() for group in host.groups.values()]
    assert len(states) == 4
    assert HostGroupState.BUSY not in states


def test_a_leaf_that_was_dead_before_is_named() -> None:
    """The manager does not find it: there is no tree to its hosts (§4.2)."""
    made = world(4)
    network_of(made).kill("leaf1")
    with pytest.raises(ValueError, match=r"no job for ranks 0, 1, 2, 3: NO_TREES \(-13\); dead: an\.leaf1"):
        run(many, made)


def test_a_silent_child_is_named_with_the_time_it_was_given() -> None:
    """Invariant 22. The host of rank 3 never hears of the collective: its AN misses it after T_ost."""
    made = world(4)
    fabric, idle = sharp_of(made).fabric, []
    clock = network_of(made).world.clock
    clock.at(SECOND // 4, lambda _: idle.append(network_of(made).world.idle))

    def program(rank: int) -> None:
        dist.barrier(algorithm="sharp")
        if rank == 3:
            fabric.hosts["rank3"].submit = lambda work, now: None  # type: ignore[method-assign]
        dist.all_reduce(np.ones(3), algorithm="sharp")

    text = r"TIMEOUT_NO_PROGRESS \(0x11, libsharp -1\), says an.leaf1 of rank3"
    with pytest.raises(SharpError, match=text) as raised:
        run(program, made)
    assert raised.value.status is Status.TIMEOUT_NO_PROGRESS
    assert clock.now > SECOND
    assert idle == [False]  # nothing moves, but hosts wait for what comes by itself


@OVER
@pytest.mark.parametrize("before", [True, False])
def test_new_groups_go_around_the_dead(transport: str, before: bool) -> None:
    """The manager discovers who is alive when the first group is made, and hears who has died since."""
    made = world(4, transport, shape={"hosts_per_leaf": 2, "spines": 2})
    network = network_of(made)

    def program(rank: int) -> bytes:
        other = dist.new_group([0, 2, 3])
        if not before:
            dist.barrier(algorithm="sharp")
        network.kill("spine0")
        x = values_of(3000)[rank]
        if rank != 1:
            dist.all_reduce(x, group=other, algorithm="sharp")
        return bits(x)

    results = run(program, made)
    del results[1]
    assert results == [bits(fold((0, (2, 3)), values_of(3000), "SUM"))] * 3
    (rail,) = list(sharp_of(made).fabric.manager.jobs.values())[-1].grant.rails
    assert sharp_of(made).fabric.name_of(rail.part.root) == "an.spine1"


@OVER
def test_a_rank_that_stops_ends_it_for_all(transport: str) -> None:
    told = ["nothing"] * 4

    def program(rank: int) -> None:
        try:
            dist.barrier(algorithm="sharp")
            if rank == 2:
                raise ZeroDivisionError("no more")
            dist.all_reduce(np.ones(3), algorithm="sharp")
        except UetError as error:
            told[rank] = str(error)

    with pytest.raises(ZeroDivisionError):
        run(program, world(4, transport))
    assert told == [*["rank 2 failed: ZeroDivisionError: no more"] * 2, "nothing", told[0]]


def test_only_what_is_there_can_be_killed() -> None:
    made = world(4)
    with made, pytest.raises(LocalError, match=r"name: leaf7 is not legal; legal: an\.leaf0, "):
        network_of(made).kill("leaf7")


# Fall back ----------------------------------------------------------------------------------------------------------

PROBE = {"HCOLL_ENABLE_SHARP": 1}
COUNTS = (4, 1500) * effort(4, 8, 8)
"""Elements of operations in a row."""
FALLS = [*product(("roce", "uet"), ("an.leaf0", "an.spine0"), ("SUM", "AVG"), (1, 2))]
FALLS = effort([one for at, one in enumerate(FALLS) if at.bit_count() % 2], FALLS, FALLS)  # every pair of values


@pytest.mark.parametrize(("transport", "victim", "op", "groups"), FALLS)
def test_ranks_do_it_by_themselves(transport: str, victim: str, op: str, groups: int) -> None:
    """Together, and from what was to be aggregated: no rank has a part of a result in its place."""

    def program(rank: int) -> list[list[float]]:
        results = []
        for count in COUNTS:
            x = np.arange(count, dtype=np.float32) + rank
            dist.all_reduce(x, getattr(dist.ReduceOp, op), algorithm="sharp")
            results.append(x[:3].tolist() + [float(x.sum())])
        return results

    made = world(4, transport, {**PROBE, "SHARP_COLL_GROUPS_PER_COMM": groups})
    network = network_of(made)
    network.world.clock.at(60_000_000, lambda _: network.kill(victim))
    factor = 1 if op == "AVG" else 4
    wanted = []
    for count in COUNTS:
        x = (np.arange(count, dtype=np.float32) + 1.5) * factor
        wanted.append(x[:3].tolist() + [float(x.sum())])
    told = run(program, made)
    assert all(np.allclose(mine, right, rtol=1e-5) for rank in told for mine, right in zip(rank, wanted, strict=True))
    assert sharp_of(made).notes[0].startswith("fell back: sharp: all_reduce at rank ")
    assert victim in " ".join(sharp_of(made).notes)


@OVER
def test_who_has_a_result_falls_back_with_who_has_none(transport: str) -> None:
    """All results have the same bits: those of rank 3 are lost, the others' do not count without it."""
    made = world(4, transport, {**PROBE, "coll_timeout": SECOND // 100})
    host = sharp_of(made).fabric.hosts["rank3"]
    take = host.message

    def message(conn: int | None, data: bytes, now: int) -> None:
        if data[1] != SharpOpcode.AGG_RESULT:
            take(conn, data, now)

    host.message = message  # type: ignore[method-assign]

    def program(rank: int) -> bytes:
        x = values_of(50)[rank]
        dist.all_reduce(x, algorithm="sharp")
        return bits(x)

    assert len(set(run(program, made))) == 1
    (note,) = sharp_of(made).notes
    assert note.endswith("at rank 3: TIMEOUT_NO_PROGRESS (0x11, libsharp -1), says rank3 of an.leaf1")


def test_where_the_ranks_are_dead_too_all_fail() -> None:
    _, told = killed("rank3", "roce", PROBE)
    assert all("rank" in text and text != "nothing" for text in told)


# Refusals -----------------------------------------------------------------------------------------------------------

FEW_OSTS = {"SHARP_COLL_JOB_QUOTA_OSTS": 1000}
NARROW = {"lab_radix": 2}

THREE = {"shape": {"hosts_per_leaf": 3}}
SUM, PRODUCT = dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT

REFUSED: dict[str, tuple[Any, ...]] = {  # type, operation, options of SHARP, cables, and what is said
    "dtype": ("complex64", SUM,     {},              {},    r"dtype: complex64: NOT_SUPPORTED \(-2\); SHARP does u"),
    "op":    ("float32",   PRODUCT, {"prod": False}, {},    r"op: PRODUCT: NOT_SUPPORTED \(-2\); SHARP does SUM"),
    "quota": ("float32",   SUM,     FEW_OSTS,        {},    r"no job for ranks 0, 1, 2, 3: QUOTA \(-7\)"),
    "radix": ("float32",   SUM,     NARROW,          THREE, r"no job for ranks 0, 1, 2, 3: NO_TREES \(-13\)"),
}  # fmt: skip


@OVER
@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_the_first_packet(transport: str, case: str) -> None:
    """With the published code and its name; or, when SHARP is only probed, done by the ranks."""
    type_, op, sharp, given, text = REFUSED[case]

    def program(rank: int) -> float:
        x = np.full(2, 2, type_)
        dist.all_reduce(x, op, algorithm="sharp")
        return float(x[0].real)

    made = world(4, transport, sharp, **given)
    with pytest.raises(ValueError, match=text):
        run(program, made)
    assert all(hop.link.frames == 0 for hop in network_of(made).world.network.hops)
    probes = world(4, transport, {**sharp, **PROBE}, **given)
    assert run(program, probes) == [16.0 if op is PRODUCT else 8.0] * 4
    (note,) = sharp_of(probes).notes
    assert note.startswith("fell back: ")


def test_switched_off() -> None:
    made = world(4, sharp={"HCOLL_ENABLE_SHARP": 0})
    assert run(many, made)[0][0] == run(many, world(4))[0][0]
    assert sharp_of(made).notes == ["HCOLL_ENABLE_SHARP is 0"]
    assert not sharp_of(made).fabric.manager.jobs


@OVER
@pytest.mark.parametrize(
    ("sharp", "given", "text"),
    [
        (True, {"topology": "pair", "shape": {}, "ranks": 2}, "sharp: topology pair.*a topology with switches"),
        (True, {"shape": None}, "shape: None; legal: a dictionary such as"),
        ({"SHARP_COLL_SAT": 1}, {}, "no option of SHARP .*; legal: SHARP_COLL_LOG_LEVEL"),
        ({"SHARP_COLL_ENABLE_SAT": "perhaps"}, {}, "SHARP_COLL_ENABLE_SAT: .*legal: 0, 1"),
        ({"sat_chunk": 33}, {}, "sat_chunk: 33 is not legal; legal: 32"),
        (7, {}, "sharp: 7.*True, or a dict of options"),
        ({7: 7}, {}, "sharp: .*True, or a dict of options"),
    ],
)
def test_options_that_cannot_be(transport: str, sharp: Any, given: dict[str, Any], text: str) -> None:
    given = {**LEAF_SPINE, "ranks": 4, **given}
    with pytest.raises(LocalError, match=text):
        dist.World(given.pop("ranks"), transport=transport, sharp=sharp, **given)
