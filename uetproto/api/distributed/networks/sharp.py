# SPDX-License-Identifier: GPL-2.0-only
"""This module runs collectives by SHARP in aggregation nodes (sharp.md §4.3). All ranks of a group use SHARP, or only
the leaders: one rank of each host.

The first collective of a group of ranks creates its trees, connections and SHARP groups.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from uetproto.api.distributed.choice import choose
from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.api.distributed.networks.sharp_errors import SharpRefusedError, failure, no_job
from uetproto.api.distributed.networks.sharp_fabric import SharpFabric, layout_of_cables
from uetproto.api.distributed.networks.sharp_groups import Communicator, RankHost
from uetproto.api.distributed.networks.sharp_log import LogLevel, SharpLog
from uetproto.api.distributed.networks.sharp_parts import SharpCollective, SharpPart
from uetproto.api.distributed.networks.sharp_works import ALGORITHM, COLLECTIVES, check
from uetproto.api.network import NetworkOptions
from uetproto.api.node import LocalNode
from uetproto.collectives.algorithms.by_schedule import by_schedule
from uetproto.collectives.algorithms.leaders import by_leaders, nodes_of
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectivePart, Ended, Offload, OffloadRequest, PartFactory
from uetproto.collectives.transport import TransportError
from uetproto.engine.sharp.host.work import Trouble
from uetproto.engine.sharp.manager.aggregation_manager import DEFAULT_USER_DATA
from uetproto.engine.sharp.manager.grants import JobGrant, Rail
from uetproto.engine.sharp.options import WITHOUT_EFFECT, declined, disabled
from uetproto.errors import UetError
from uetproto.wire.headers.sharp import LibsharpStatus

LEADERS = "hcoll_sharp"
"""Name of the all-reduce in three stages: within each host, by SHARP among the leaders of the hosts, and from each
leader to its host (collectives.md §3.8)."""


class SharpOffload(Offload):
    """This class runs collectives by SHARP in the aggregation nodes of a network."""

    algorithms: Mapping[str, tuple[str, ...]] = {
        **dict.fromkeys(COLLECTIVES, (ALGORITHM,)), "all_reduce": (ALGORITHM, LEADERS),
    }  # fmt: skip

    def __init__(
        self, network: PacketNetwork, fabric: SharpFabric, ranks: Sequence[LocalNode], cables: NetworkOptions,
        psn: Callable[[], int],
    ) -> None:  # fmt: skip
        """Start the SHARP fabric in the world of the network, which must exist."""
        fabric.start(network.world, ranks, layout_of_cables(cables, len(ranks)), psn)
        self.fabric = fabric
        self.notes: list[str] = []
        """Reasons why collectives did not use SHARP, and options that have no effect."""
        self.log = SharpLog(fabric.options)
        self.by_ranks: list[str] = []
        """Algorithms by which the ranks carried out collectives instead."""
        for name in fabric.options.unused:
            self.note(f"{name}: {WITHOUT_EFFECT}")
        for name in fabric.unused:
            self.note(f"{name}: {WITHOUT_EFFECT} over this transport")
        self._network = network
        self._sides: dict[int, RankHost] = {}
        self._communicators: dict[tuple[int, ...], Communicator | LibsharpStatus] = {}
        self._done_before: Counter[tuple[int, ...]] = Counter()
        """Number of collectives of each group of ranks before it got its SHARP group."""

    def maker(self, asked: OffloadRequest) -> PartFactory:
        if asked.algorithm == LEADERS:
            why = disabled(self.fabric.options, asked.op)
            if why is not None:
                return self._by_ranks(asked, why)
            nodes = nodes_of(asked, self.fabric.options.sbgp)
            leaders = tuple(asked.ranks[node[0]] for node in nodes)
            return by_leaders(asked, nodes, self._among(replace(asked.folding, ranks=leaders)), self._network.end)
        if self.fabric.options.sbgp:
            self.note(f"HCOLL_SBGP: {WITHOUT_EFFECT} on {asked.algorithm}, which has no hierarchy")
        return self._among(asked)

    def why_not(self, asked: OffloadRequest) -> str | None:
        """Return None if the options let SHARP run a collective. Otherwise return why the ranks run the collective
        themselves."""
        options, nbytes = self.fabric.options, asked.count * asked.dtype.itemsize
        streams = bool(options.enable_sat and nbytes >= options.sat_threshold)
        return declined(
            options, asked.op, nbytes, len(asked.ranks), options.osts_of(0, 0),
            options.user_data or DEFAULT_USER_DATA, streams=streams,
        )  # fmt: skip

    def _among(self, asked: OffloadRequest) -> PartFactory:
        """Return a factory for all requesting ranks to run the collective by SHARP."""
        if len(asked.ranks) == 1:
            return self._by_schedule(asked)  # one rank only copies its input
        why = self.why_not(asked)
        if why is not None:
            return self._by_ranks(asked, why)
        falls_back = self.fabric.options.fall_back
        try:
            check(asked, self.fabric.config)
            if self._is_early(asked.ranks):
                return self._by_ranks(asked)
            communicator = self._communicator(asked.ranks)
        except SharpRefusedError as refused:
            self.log.write(LogLevel.ERROR, asked.ranks[0], "context.c:195", str(refused))
            if not falls_back:
                raise
            self._fell_back(asked, str(refused))
            return self._by_ranks(asked)
        self.log.write(LogLevel.DEBUG, asked.ranks[0], "coll.c", f"{asked.op} of {asked.count} {asked.dtype.name}")

        def told(place: int, trouble: Trouble, rail: Rail) -> TransportError:
            return failure(asked, place, trouble, self.fabric, rail)

        instead = self._by_schedule(asked.folding) if falls_back else None
        whole = SharpCollective(asked, communicator, told, instead, partial(self._fell_back, asked))

        def make(place: int, input_: Array, output: Array, done: Ended) -> CollectivePart:
            def ended(error: UetError | None) -> None:
                done(error)
                self.fabric.world.wake()

            return SharpPart(whole, place, input_, output, ended)

        return make

    def _is_early(self, ranks: tuple[int, ...]) -> bool:
        """Tell whether the ranks still run this collective by themselves, as the allocation threshold says."""
        threshold = self.fabric.options.alloc_threshold
        if self._done_before[ranks] >= threshold:
            return False
        self._done_before[ranks] += 1
        self.note(f"SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD is {threshold}: the first by the ranks")
        return True

    def _by_ranks(self, asked: OffloadRequest, why: str | None = None) -> PartFactory:
        """Return a factory for the ranks to run the collective by themselves, and note this and the reason."""
        if why is not None:
            self.note(why)
        self.by_ranks.append(choose(asked.op, asked.count * asked.dtype.itemsize, asked.sizes is None))
        return self._by_schedule(asked)

    def _fell_back(self, asked: OffloadRequest, why: str) -> None:
        """Note that a collective failed in SHARP and that the ranks run it."""
        self.note(f"fell back: {why}")
        self.log.write(LogLevel.WARN, asked.ranks[0], "coll.c", f"{asked.op} falls back: {why}")

    def _by_schedule(self, asked: OffloadRequest) -> PartFactory:
        """Return a factory for the ranks to run the collective by themselves."""
        length = asked.count * asked.dtype.itemsize
        return by_schedule(asked, choose(asked.op, length, asked.sizes is None), self._network.end)

    def note(self, text: str) -> None:
        """Add a text to `notes`, unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)

    def close(self) -> None:
        """End all SHARP jobs of this network."""
        for found in self._communicators.values():
            if isinstance(found, Communicator):
                self.fabric.manager.end_job(found.grant.job_id)
        self._communicators.clear()

    def _communicator(self, ranks: tuple[int, ...]) -> Communicator:
        """Return the communicator of the ranks. Raises `SharpRefusedError` if the manager grants no job."""
        found = self._communicators.get(ranks)
        if found is None:
            grant = self.fabric.begin_job(ranks)
            if isinstance(grant, JobGrant):
                found = Communicator(self.fabric, [self._side(rank) for rank in ranks], grant)
                self.log.job(ranks[0], len(ranks), grant)
            else:
                found = grant
            self._communicators[ranks] = found
        if not isinstance(found, Communicator):
            raise no_job(ranks, found, self.fabric.world.dead)
        return found

    def _side(self, rank: int) -> RankHost:
        if rank not in self._sides:
            self._sides[rank] = RankHost(self.fabric, rank)
        return self._sides[rank]
