# SPDX-License-Identifier: GPL-2.0-only
"""This module runs all_gather and broadcast by multicast, for ranks over RoCE (collectives.md §3.10).

Each group of ranks has its own queue pairs. Each block is divided into ranges, one for each subgroup, and each subgroup
has a multicast group. The queue pairs and multicast groups are made at the first operation of the group of ranks. A
failure may leave the ranks of the group in different states, so the next operation makes new queue pairs and multicast
groups.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from uetproto.api.distributed.errors import invalid, unknown
from uetproto.api.distributed.networks.multicast_end import (
    MOST_GROUPS,
    MOST_SUBGROUPS,
    MulticastGroupEnd,
    MulticastNetwork,
    addresses,
    join_ring,
)
from uetproto.collectives.dtypes import Array, bytes_of
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.plan import MulticastPlan, all_gather, broadcast
from uetproto.collectives.multicast.rank import MulticastRank, PostedOperation
from uetproto.collectives.offload import CollectiveCounters, Ended, Offload, OffloadRequest, PartFactory
from uetproto.collectives.transport import SECOND
from uetproto.errors import LocalError, UetError
from uetproto.framing.sizes import ETHERNET_SIZE, ROCE_DATAGRAM, around_roce

ALGORITHM = "multicast"
_AROUND = ETHERNET_SIZE + around_roce(6, ROCE_DATAGRAM)
"""Number of bytes that a frame adds to a chunk: its headers and trailers."""
_POSTED = 1 << 30
"""Size of the task ring: more posted operations than any program has, so that the ring never limits them."""
_PLAIN = MulticastConfig()
_NAMES = tuple(part.name for part in fields(MulticastConfig))


class MulticastOffload(Offload):
    """This class runs the collective algorithm "multicast"."""

    algorithms: Mapping[str, tuple[str, ...]] = {"all_gather": (ALGORITHM,), "broadcast": (ALGORITHM,)}

    def __init__(self, network: MulticastNetwork, given: MulticastConfig | Mapping[str, Any] | None = None) -> None:
        """Check the configuration. `given` is a whole configuration, or the parameters that differ from those of
        `fitting`; None stands for no such parameters."""
        self.network = network
        self._given = {} if given is None else given
        self._groups: dict[tuple[int, ...], _MulticastGroup] = {}
        self._made = 0
        if not isinstance(self._given, MulticastConfig | Mapping):
            raise invalid("multicast", repr(given), "MulticastConfig(...), or its keywords", id="wrong-type")
        if isinstance(self._given, Mapping):
            for name in self._given:
                if name not in _NAMES:
                    raise unknown("multicast", name, _NAMES)
        config = self.config(network.size)
        if config.mtu > network.path_mtu:
            raise invalid(
                "multicast", f"mtu {config.mtu}", f"up to the path_mtu of {network.path_mtu}", id="inconsistent-values"
            )
        if config.subgroups > MOST_SUBGROUPS:
            raise invalid("multicast", f"{config.subgroups} subgroups", f"up to {MOST_SUBGROUPS}", id="too-many")

    def config(self, size: int) -> MulticastConfig:
        """Return the configuration of a group of `size` ranks."""
        if isinstance(self._given, MulticastConfig):
            return replace(self._given, tasks=_POSTED)
        return MulticastConfig(**(fitting(self.network, size, self._given) | dict(self._given) | {"tasks": _POSTED}))

    def maker(self, request: OffloadRequest) -> PartFactory:
        if request.sizes is not None:
            raise LocalError(
                "sizes", f"{', '.join(map(str, request.sizes))}; legal with multicast: blocks of one size",
                id="uneven-split"
            )  # fmt: skip
        group, length = self.group(request.ranks), request.count * request.dtype.itemsize
        if request.op == "broadcast":
            plan = broadcast(group.size, length, request.root, group.config)
        else:
            plan = all_gather(group.size, length // group.size, group.config)

        def make(place: int, input_: Array, output: Array, done: Ended) -> _MulticastPart:
            source = bytes_of(input_).data if plan.owns(place) else None
            return _MulticastPart(group, place, plan, source, bytes_of(output).data, done)

        return make

    def group(self, ranks: tuple[int, ...]) -> "_MulticastGroup":
        """Return the `_MulticastGroup` of some ranks; the first call makes it and its queue pairs."""
        found = self._groups.get(ranks)
        if found is None:
            if self._made == MOST_GROUPS:
                raise LocalError(
                    "group", f"{MOST_GROUPS} were made", "no further ones in this network", id="resources-exhausted"
                )
            found = self._groups[ranks] = _MulticastGroup(self, self._made, ranks)
            self._made += 1
        return found

    def forget(self, group: "_MulticastGroup") -> None:
        """Forget a group in which an operation failed, so that the next operation of the same ranks makes a new
        `_MulticastGroup`."""
        if self._groups.get(group.ranks) is group:
            del self._groups[group.ranks]


class _MulticastGroup:
    """The ends (`MulticastGroupEnd`) and protocol machines (`MulticastRank`) of all ranks of a group."""

    def __init__(self, offload: MulticastOffload, number: int, ranks: tuple[int, ...]) -> None:
        self.ranks, self.size, self.config = ranks, len(ranks), offload.config(len(ranks))
        self._offload, self._network = offload, offload.network
        self._joined: list[tuple[int, str]] = []
        try:
            for address in addresses(number, self.config.subgroups):
                for rank in ranks:
                    self._join(address, self._network.node(rank).name)
        except LocalError:
            self._leave()
            raise
        self.ends = [MulticastGroupEnd(self._network, number, ranks, p, self.config) for p in range(self.size)]
        join_ring(self.ends)
        self.machines = [MulticastRank(end, self.config) for end in self.ends]
        for end, machines in zip(self.ends, self.machines, strict=True):
            end.machines = machines
        self.parts = 0
        """Number of parts of operations that have not ended."""
        self._failed = False

    def _join(self, address: int, node: str) -> None:
        self._network.world.join(address, node)
        self._joined.append((address, node))

    def _leave(self) -> None:
        for address, node in self._joined:
            self._network.world.leave(address, node)

    def ended(self, error: UetError | None) -> None:
        """Count a part that has ended. After a failure the last part closes the group, after all callbacks."""
        self.parts -= 1
        if error is not None and not self._failed:
            self._failed = True
            self._offload.forget(self)
        if self._failed and not self.parts:
            self._network.timers.at(self._network.now, self._close)

    def _close(self) -> None:
        self._leave()
        for end in self.ends:
            end.close()


class _MulticastPart:
    """The part of one rank in one operation."""

    def __init__(
        self, group: _MulticastGroup, place: int, plan: MulticastPlan, source: memoryview | None,
        into: memoryview | None,
        done: Ended,
    ) -> None:  # fmt: skip
        self.counted = CollectiveCounters(steps=1)
        self.ended = False
        self._group, self._machines = group, group.machines[place]
        self._plan, self._source, self._into, self._done = plan, source, into, done
        self._posted: PostedOperation | None = None
        group.parts += 1

    def start(self) -> None:
        if not self.ended:
            posted = self._machines.post(self._plan, self._source, self._into, self._finish)
            self._posted = posted

    def fail(self, error: UetError) -> None:
        if self._posted is not None:
            self._posted.fail(error)
        self._finish(error)

    def _finish(self, error: UetError | None) -> None:
        if self.ended:
            return
        self.ended = True
        operation = None if self._posted is None else self._posted.operation
        if operation is not None:
            found = operation.counted
            self.counted.messages = found.chunks_sent + found.tokens + found.requests + found.grants + found.fins
            self.counted.bytes_sent = found.bytes_sent
            self.counted.bytes_received = self._plan.bytes - found.bytes_sent
        self._group.ended(error)
        self._done(error)


def fitting(network: MulticastNetwork, size: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `MulticastConfig` that fit a network of `size` ranks: chunks that fill a packet, a rate
    that the links carry, and a cutoff timer that expires only after loss.

    `given` has the parameters that the program sets. If several roots send at once, each root sends at its share of the
    link rate. The parameter `batch` is then so small that a switch queue holds the batches of all roots. The parameter
    `least` is the lower bound of the cutoff timer; it is twice the time that tokens and barriers take across the
    fabric.
    """
    mtu, roots = given.get("mtu", network.path_mtu), given.get("roots", _PLAIN.roots)
    subgroups = given.get("subgroups", _PLAIN.subgroups)
    if not all(type(value) is int and value > 0 for value in (mtu, roots, subgroups)):
        return {}  # `MulticastConfig` refuses it
    built = network.world.network
    rate = min(node.rate for node in network.world.nodes.values()) // 8
    hop = max(hop.link.delay + hop.link.duration(hop.link.mtu) for hop in built.hops)
    way, rounds = _longest_way(built.hops) * hop, (size - 1).bit_length()
    beside = 0 if network.nodes is None else network.intra.latency  # messages of barriers may pass within a host
    tails = subgroups * _AROUND * SECOND // max(1, rate)  # time for the headers of the last, short chunks of a block
    goodput = max(1, rate * mtu // (mtu + _AROUND))
    found: dict[str, Any] = {"mtu": mtu, "rate": min(_PLAIN.rate, goodput)}
    found["least"] = 2 * ((way + tails) * (size + 1) + 4 * rounds * (way + beside))
    if roots > 1:
        found["link_rate"] = goodput
        room = min((queue.capacity for queue in built.queues.values()), default=1 << 20)
        found["batch"] = max(1, min(_PLAIN.batch, room // (roots * subgroups * (mtu + _AROUND))))
    return found


def _longest_way(hops: Iterable[Any]) -> int:
    """Return the number of links between the first node and the farthest one, at least the number between any two
    hosts."""
    nexts: dict[str, list[str]] = {}
    for hop in hops:
        nexts.setdefault(hop.source, []).append(hop.target)
    (first, *_), seen, length = nexts, set[str](), -1
    edge = {first}
    while edge:
        seen |= edge
        edge = {target for source in edge for target in nexts.get(source, ())} - seen
        length += 1
    return length


def traffic(offload: MulticastOffload, length: int) -> list[CollectiveCounters]:
    """Run an all_gather in which each rank contributes `length` bytes, and return the counters of each rank. The bytes
    that arrive are not stored.

    Raises the error with which the all_gather failed.
    """
    network = offload.network
    group = offload.group(tuple(range(network.size)))
    plan = all_gather(network.size, length, group.config)
    source = memoryview(bytes(length))
    results: list[UetError | None] = []
    parts = [_MulticastPart(group, place, plan, source, None, results.append) for place in range(network.size)]
    for end in group.ends:
        end.only_count(True)
    try:
        for part in parts:
            part.start()
        _run(network, lambda: len(results) == network.size or any(results))
        error = next(filter(None, results), None)
        if len(results) < network.size:
            error = error or UetError(
                "; ".join(str(machines.operation) for machines in group.machines), id="message-lost"
            )
            for part in parts:
                part.fail(error)
    finally:
        for end in group.ends:
            end.only_count(False)
    if error is not None:
        raise error
    return [part.counted for part in parts]


def _run(network: MulticastNetwork, ready: Callable[[], bool]) -> None:
    """Run the network until `ready()`, or until nothing more happens."""
    timers = network.timers
    while not ready():
        if timers.fire(network.now):
            continue
        instant = timers.next
        network.run(lambda instant=instant: ready() or timers.next != instant, instant)  # type: ignore[misc]
        if ready() or timers.next != instant:
            continue
        if instant is None:
            return
        network.advance(instant)
