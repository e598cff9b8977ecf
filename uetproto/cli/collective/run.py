# SPDX-License-Identifier: GPL-2.0-only
"""This module runs one operation of `uetproto collective` with real tensors over one emulated fabric, and measures its
time, messages and bytes."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any

from uetproto.api import distributed as dist
from uetproto.api.distributed.choice import choose
from uetproto.api.distributed.networks.hosts import ALLOW_CROSS, NEVER_CROSS, PREFER_SAME_NIC
from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.api.distributed.networks.transports import TRANSPORTS
from uetproto.api.distributed.networks.uet import SES
from uetproto.cli.collective.links import LinkMeter
from uetproto.cli.collective.offload import SHARP, Offer, OffloadMonitor, levels_of, multicast_costs, offer, refusal
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, OPTIONS, buffers
from uetproto.collectives.algorithms.catalogue import schedule as schedule_of
from uetproto.collectives.algorithms.leaders import nodes_of
from uetproto.collectives.algorithms.schedule import Schedule
from uetproto.collectives.costs.choice import AlgorithmChoice, SharpOffer, choose_all_reduce
from uetproto.collectives.costs.formulas import Costs, nic_bytes
from uetproto.collectives.costs.in_network import FORMULAS, InNetworkCase, multicast_traversals, sharp_traversals
from uetproto.collectives.costs.measure import (
    FormulaResult,
    MeasuredCollective,
    MeasuredNetwork,
    formula,
    in_picoseconds,
    message_times,
    promised,
)
from uetproto.collectives.costs.sample import Dtype, Sample, check_sample
from uetproto.collectives.dtypes import Array
from uetproto.collectives.model import ModelNetwork, Path
from uetproto.collectives.offload import OffloadRequest
from uetproto.collectives.topology.gpu_matrix import GpuMatrix
from uetproto.collectives.topology.graph import Topology
from uetproto.collectives.topology.intra_node import IntraNode
from uetproto.collectives.topology.kinds import topology
from uetproto.collectives.transport import SECOND
from uetproto.emulator.congestion import OFF
from uetproto.emulator.network.layouts import LAYOUTS
from uetproto.emulator.network.pfc import Pfc
from uetproto.engine.contract import MICROSECOND
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.sharp.options import BY_NAME, SharpOptions, disabled
from uetproto.errors import LocalError
from uetproto.impair.red import Red

RATE = 400 * 10**9
"""Default rate of every cable in bits per second."""
DELAY = MICROSECOND
"""Default delay of every cable, and delay of a hop within a host, in picoseconds."""
MARKS_PER_GIGABIT = 1_000, 4_000
"""Bytes in a queue, for each Gb/s of a link, up to which DCQCN's switches mark nothing, and above which they mark
everything; at 400 Gb/s 400 kB and 1.6 MB."""
MARKS_AT_MOST = 0.2
"""Chance of a mark at the larger of these lengths."""
WAYS = 3
"""Number of times that the delay of a path counts in the time of a message: the grant, the bytes and the
acknowledgement each cross the fabric once."""
MOST_RANKS = 4096
"""Largest number of ranks in a run that is modelled without packets."""
MOST_WITH_PACKETS = 256
MOST_HELD = 64 << 30
"""Largest total size in bytes of the vectors of all ranks of a run."""
AUTO = "auto"
"""Name that stands in place of an algorithm. It asks for the algorithm with the shortest predicted time
(`costs.choice`)."""
MULTICAST = "multicast"

Progress = Callable[[int, int], None]
"""Type of a function that reports progress. Its arguments are the number of messages sent so far, and the number of all
messages of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCase:
    """This record describes a run of one operation by one algorithm."""

    op: str
    algorithm: str | None
    """Name of the algorithm. None means the default for this number of bytes. `AUTO` means the algorithm with the
    shortest predicted time, as NCCL chooses it; SHARP is one of the candidates."""
    ranks: int
    length: int
    """Size of the full vector in bytes."""
    dtype: Dtype
    reduce_op: dist.ReduceOp = dist.ReduceOp.SUM
    transport: str = "uet"
    kind: str = "switch"
    """Name of the topology, such as `switch` or `leaf-spine`."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    matrix: GpuMatrix | None = None
    """Matrix of the connections between the GPUs of a host; it applies to each host. None means a generated matrix,
    which is like that of a DGX."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options `channels`, `slices`, `sockets` and `between` of the algorithm. An algorithm ignores an option that it
    does not have."""
    cross_nic: int = PREFER_SAME_NIC
    ports: int = 1
    """Number of ports of each NIC."""
    sharp: Mapping[str, Any] = field(default_factory=dict)
    """Settings of SHARP that differ from the defaults."""
    multicast: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    cc: str = OFF
    """Congestion control: of UET, with switches that trim; of RoCE "dcqcn", "pfc" or "dcqcn+pfc"."""
    lb: str = "mixed"
    """Path selection with the congestion control of UET."""
    rate: int = RATE
    """Rate of every cable in bits per second."""
    delay: int = DELAY
    """Delay of every cable in picoseconds."""
    mtu: int | None = None
    """Largest payload of a packet in bytes. None means that of the transport."""
    loss: float = 0
    """Share of the frames that hosts send which are lost."""
    trains: str = "auto"
    """Whether runs of equal packets are handled together (`NetworkFeatures.trains`)."""


class PreparedCase:
    """This class holds a case that was found to be legal, with its schedule and its topology. The method `run` runs the
    case."""

    def __init__(self, case: CollectiveCase) -> None:
        """Check a case and prepare its run. Raises `LocalError` if the case is not legal."""
        packets = case.transport in TRANSPORTS
        most = MOST_WITH_PACKETS if packets else MOST_RANKS
        if not 1 <= case.ranks <= most:
            raise LocalError("ranks", f"{case.ranks}; legal over {case.transport}: 1 … {most}", id="out-of-range")
        self.topology = topology(case.kind, case.ranks, **case.shape)
        count = check_sample(case.op, case.ranks, case.length, case.dtype, case.reduce_op)
        self.case, self.count = case, count
        self.hosts = _hosts(self.topology)
        self.matrix = case.matrix or self.topology.matrix()
        self.choice = self._choose() if case.algorithm == AUTO else None
        algorithm = case.algorithm or choose(case.op, case.length, even=True)
        if self.choice is not None:
            algorithm = self.choice.algorithm
        self.case = replace(case, algorithm=algorithm)
        self.nodes = self.hosts if algorithm in HIERARCHICAL else None
        self.options = {name: value for name, value in case.options.items() if algorithm in OPTIONS[name]}
        self.groups = (
            nodes_of(self._asked, self._subgroups)
            if algorithm == "hcoll_sharp"
            else [[rank] for rank in range(case.ranks)]
        )
        """Groups of ranks. The first rank of a group is its leader, and only the leaders use the aggregation nodes."""
        row = ALGORITHMS[case.op].get(algorithm)
        self.offloaded = row is not None and row.make is None
        """This flag is True if the network carries out the collective, so that the ranks follow no schedule."""
        self.schedule: Schedule
        if self.offloaded:
            refused = refusal(algorithm, case.transport, case.kind)
            if refused is not None:
                raise LocalError("algorithm", refused, id="not-with-transport")
            self.schedule = buffers(case.op, algorithm, case.ranks, count)
        else:
            self.schedule = schedule_of(case.op, algorithm, case.ranks, count, nodes=self.nodes, **self.options)
        if case.cross_nic == NEVER_CROSS and len(set(map(len, self.hosts))) > 1:
            gpus = self.topology.gpus_per_node
            raise LocalError(
                "cross_nic", "0, but not all rails reach all hosts", f"ranks a multiple of {gpus}, or 1, 2",
                id="not-with-topology"
            )  # fmt: skip

    def check_memory(self) -> None:
        """Raise `LocalError` if the tensors of all ranks together are larger than `MOST_HELD` bytes."""
        if self.case.length * self.case.ranks > MOST_HELD:
            most = MOST_HELD // self.case.ranks
            raise LocalError(
                "bytes", f"{self.case.length}; legal with {self.case.ranks} ranks: at most {most}", id="too-large"
            )

    @property
    def algorithm(self) -> str:
        return self.schedule.algorithm

    def bandwidth(self, a: int, b: int) -> int:
        """Return the bandwidth between two ranks of the same host in bytes per second."""
        return self.matrix.bandwidth(self.topology.local(a), self.topology.local(b))

    @property
    def relays(self) -> bool:
        """Return whether a rank of the sender's host forwards the messages that go to another rail (PXN)."""
        return self.case.transport in TRANSPORTS and self.case.cross_nic != ALLOW_CROSS

    @property
    def between(self) -> Costs:
        """Return the costs between hosts: the latency alpha and the time per byte beta. If messages are relayed, these
        costs include the hop within the host."""
        if self.case.transport not in TRANSPORTS:
            return Costs(Path().alpha / SECOND, 8 / Path().rate)
        hops, relayed = self._farthest
        return Costs(
            (WAYS * hops * self.case.delay) / SECOND + relayed * self.inside.alpha,
            8 / (self.case.rate * self._ports_of_a_message) + relayed * self.inside.beta, gap=0,
        )  # fmt: skip

    @property
    def _ports_of_a_message(self) -> int:
        """Return how many ports a message uses. A message over UET uses all ports, because RUD spreads its packets; one
        over RoCE uses the port of its queue pair."""
        return self.case.ports if self.case.transport == "uet" else 1

    @cached_property
    def _farthest(self) -> tuple[int, bool]:
        """Return the number of cables on the longest path of a message, and whether any message is relayed."""
        if self.offloaded:
            return max((self.topology.hops(0, b) for b in range(1, self.case.ranks)), default=0), False
        columns = self.schedule.arrays()
        pairs = set(zip(columns["src"].tolist(), columns["dst"].tolist(), strict=True))
        apart = [(a, b) for a, b in pairs if not self.topology.together(a, b)]
        sent = [(self.topology.relay(a, b) if self.relays else a, b) for a, b in apart]
        return max((self.topology.hops(a, b) for a, b in sent), default=0), sent != apart

    @property
    def inside(self) -> Costs:
        """Return the costs alpha and beta within a host. Beta is that of the slowest connection between neighbouring
        ranks."""
        slowest = min(
            (self.bandwidth(a, b) for host in self.hosts for a, b in zip(host, host[1:] + host[:1], strict=True)),
            default=1,
        )
        return Costs(DELAY / SECOND, 1 / slowest, gap=0 if self.case.transport in TRANSPORTS else None)

    @cached_property
    def formula(self) -> FormulaResult | None:
        """Return the steps, the bytes and the time that the formula of the algorithm gives, or None if the algorithm
        has no formula."""
        case = self.case
        if self.offloaded:
            return self._formula_in_network()
        costs = self.between if len(self.hosts) > 1 else self.inside
        return formula(
            case.op, self.algorithm, case.ranks, case.length, costs,
            nodes=len(self.hosts), inside=self.inside, **self.options,
        )  # fmt: skip

    def _formula_in_network(self) -> FormulaResult | None:
        case, multicast = self.case, None
        found = FORMULAS[case.op].get(self.algorithm)
        if found is None:
            return None
        if case.ranks == 1:
            return FormulaResult(0, 0, 0)
        if self.algorithm == MULTICAST:
            way = self._farthest[0] * case.delay / SECOND
            multicast = multicast_costs(self._network(None, None), case.op, self.between.alpha, way, case.rate / 8)
        elif self.sharp is None:
            return None
        return in_picoseconds(found(InNetworkCase(
            size=case.ranks, length=case.length, sharp=None if self.sharp is None else self.sharp.costs,
            threshold=None if self.sharp is None else self.sharp.threshold, multicast=multicast,
            local=case.ranks // len(self.groups), inside=self.inside,
        )))  # fmt: skip

    @property
    def sharp(self) -> Offer | None:
        """Return what the aggregation manager grants for this case, with the costs, or None if SHARP cannot carry the
        case out."""
        return self._offer if isinstance(self._offer, Offer) else None

    @cached_property
    def _offer(self) -> Offer | str:
        """Return what the aggregation manager grants for this case, or the reason why SHARP cannot carry the case
        out."""
        case = self.case
        refused = refusal("sharp", case.transport, case.kind)
        if refused is not None:
            return refused
        network = self._network(None, None, sharp=True)
        return offer(network, [members[0] for members in self.groups], self._asked, case.delay / SECOND, case.rate / 8)

    @property
    def _subgroups(self) -> tuple[str, ...]:
        """Return the subgroups that the setting HCOLL_SBGP names."""
        texts = {name: str(value) for name, value in self.case.sharp.items() if name == "HCOLL_SBGP"}
        found: tuple[str, ...] = SharpOptions.of(texts).sbgp
        return found

    @property
    def _asked(self) -> OffloadRequest:
        case = self.case
        return OffloadRequest(
            op=case.op, algorithm="sharp", ranks=tuple(range(case.ranks)), group=0, sequence=0, dtype=case.dtype,
            count=self.count, root=0, reduce_op=case.reduce_op, sizes=None, nodes=self.hosts,
            sockets=self.options.get("sockets", 1),
        )  # fmt: skip

    def _choose(self) -> AlgorithmChoice:
        if self.case.op != "all_reduce":
            raise LocalError("algorithm", f"auto of {self.case.op}; legal with all_reduce", id="not-with-operation")
        by_ring = PreparedCase(replace(self.case, algorithm="ring"))
        found = by_ring._offer
        if isinstance(found, Offer):
            offered = SharpOffer(found.costs, found.threshold)
        else:
            offered = SharpOffer(None, refused=found)
        costs = by_ring.between if len(self.hosts) > 1 else by_ring.inside
        return choose_all_reduce(self.case.ranks, self.case.length, costs, offered)

    @property
    def nic_bytes(self) -> float | None:
        """Return the bytes that the busiest NIC sends to other hosts (collectives.md §3.8), or None if the algorithm is
        not hierarchical."""
        if self.nodes is None:
            return None
        if self.offloaded:
            return self.case.length
        hosts, ranks, options = len(self.hosts), self.case.ranks, self.options
        chosen = {name: options[name] for name in ("between", "channels") if name in options}
        return nic_bytes(self.algorithm, hosts, ranks // hosts, self.case.length, **chosen)

    @property
    def promised(self) -> int | None:
        """Return the bytes on all links together as the schedule or a formula predicts them, or None if nothing
        predicts them."""
        case = self.case
        if self.algorithm == MULTICAST:
            return self._promised_by_multicast()
        if self.offloaded:
            adds = self.algorithm in SHARP and case.op in ("all_reduce", "all_gather", "barrier")
            return sharp_traversals(self.sharp.edges, case.length) if adds and self.sharp is not None else None
        return promised(self.schedule, self.topology, self.item, relay=self.relays).trav

    def _promised_by_multicast(self) -> int | None:
        if self.case.kind not in ("switch", "leaf-spine"):
            return None
        size, roots = self.case.ranks, 1 if self.case.op == "broadcast" else self.case.ranks
        leaves = {self.topology.links[self.topology.up(rank)].target for rank in range(size)}
        return multicast_traversals(size, len(leaves), self.case.length // roots, roots)

    @property
    def item(self) -> int:
        """Return the size of an element in bytes. An element of a barrier counts as one byte."""
        return 1 if self.case.op == "barrier" else self.case.dtype.itemsize

    @property
    def conditions(self) -> dict[str, Any]:
        """Return the fields of `MeasuredCollective` that tell under which conditions the case runs."""
        case = self.case
        shape = ",".join(f"{name}={value}" for name, value in case.shape.items())
        return {
            "transport": case.transport, "topology": f"{case.kind}:{shape}" if shape else case.kind,
            "dtype": case.dtype.name, "seed": case.seed, "ports": case.ports,
            "cc": case.cc, "lb": case.lb if case.cc != OFF and case.transport == "uet" else None,
        }  # fmt: skip

    def run(
        self, capture: str | None = None, taps: list[str] | None = None, progress: Progress | None = None
    ) -> MeasuredCollective:
        """Run the case and return the measurements. If `capture` names a file, the frames at the ports of the nodes
        `taps` are captured to it."""
        case, total = self.case, len(self.schedule.arrays()["step"])
        inner = self._network(capture, taps)
        meter = None
        if isinstance(inner, PacketNetwork):
            meter = LinkMeter(inner.world.network, case.transport, sharp=self.offloaded)
        watched = MeasuredNetwork(inner, _paced(progress, total), timed=isinstance(inner, PacketNetwork))
        monitor = OffloadMonitor(inner) if self.offloaded and isinstance(inner, PacketNetwork) else None
        sample = Sample(self.schedule, case.dtype, case.reduce_op, case.seed)
        with dist.World(
            case.ranks, transport=watched, nodes=self.nodes, algorithm={case.op: self.algorithm}, **self.options
        ) as world:  # fmt: skip
            world.run(lambda rank: _program(case.op, sample.inputs[rank], sample.outputs[rank], rank, case.reduce_op))
            if monitor is None:
                steps, messages, sent = len(watched.steps), watched.messages, watched.sent
            else:
                steps = self._steps(inner, monitor, max(found.steps for found in world.counted))
                messages = sum(found.messages for found in world.counted)
                sent = [found.bytes_sent for found in world.counted]
            counts = world.counts
            told = case.trains == "on" and isinstance(inner, PacketNetwork)
            trains = inner.world.network.trains if told else {}
        report = None if monitor is None else monitor.report()
        theory, trav = self.formula, self.promised
        if monitor is not None and report is not None and monitor.fell_back:
            theory, trav, why = self._formula_instead(monitor.by_ranks)
            report = replace(report, notes=(*report.notes, why))
        done = max(event.now for event in world.trace if event.state == "done")
        return MeasuredCollective(
            op=case.op, algorithm=self.algorithm, ranks=case.ranks, bytes=case.length, steps=steps,
            messages=messages, sent=tuple(sent), links=None if meter is None else meter.counts(),
            promised=trav, time=done - (report.made if report is not None else 0), formula=theory,
            correct=sample.correct, network=report, choice=self.choice, counts=counts,
            message_times=message_times(watched.times), trains=trains, **self.conditions,
        )  # fmt: skip

    def _formula_instead(self, by_ranks: str | None) -> tuple[FormulaResult | None, int | None, str]:
        """Return the formula, the bytes on all links, and a line of text, for a collective that SHARP did not carry
        out. The ranks ran the algorithm `by_ranks` instead; it is None if they did so because SHARP failed during the
        operation."""
        if by_ranks is None:
            return None, None, "SHARP failed and the ranks did it: there is no formula for both"
        options = SharpOptions.of({name: str(value) for name, value in self.case.sharp.items() if name in BY_NAME})
        if self.algorithm != "sharp" and disabled(options, self.case.op) is None:
            return None, None, f"the leaders ran {by_ranks}: there is no formula for this hierarchy"
        instead = PreparedCase(replace(self.case, algorithm=by_ranks, options={}))
        return instead.formula, instead.promised, f"the ranks ran {by_ranks}, whose formula stands beside it"

    def _steps(self, network: Any, monitor: OffloadMonitor, counted: int) -> int:
        """Return the number of steps of a collective that the network carries out.

        For SHARP it counts the levels of the tree, up and down. For multicast it counts the blocks that one chain of
        senders sends in turn.
        """
        if self.case.ranks == 1:
            return 0
        if self.algorithm == MULTICAST:
            group = network.multicast.group(tuple(range(self.case.ranks)))
            tokens = sum(machines.operation.counted.tokens for machines in group.machines if machines.operation)
            roots = sum(machines.operation is not None for machines in group.machines) - tokens
            return 1 + tokens // roots if roots and self.case.op == "all_gather" else 1
        if monitor.grant is None or monitor.fell_back:
            return counted
        return counted - 1 + 2 * levels_of(monitor.grant)

    def _network(self, capture: str | None, taps: list[str] | None, *, sharp: bool = False) -> Any:
        case = self.case
        if case.transport not in TRANSPORTS:
            return ModelNetwork(case.ranks, self._path)
        more: dict[str, Any] = {"shape": dict(case.shape)} if case.kind in LAYOUTS else {}
        if sharp or (self.offloaded and self.algorithm in SHARP):
            more |= {"sharp": dict(case.sharp), "inner_rate": case.rate * self._most_ports}
        elif self.offloaded:
            more["multicast"] = dict(case.multicast)
        if case.loss:
            more["faults"] = {"drop": case.loss}
        more |= self._uet() if case.transport == "uet" else self._roce()
        network: PacketNetwork = import_module(TRANSPORTS[case.transport]).network(
            case.ranks, topology=case.kind, rate=case.rate, delay=case.delay, hosts=self.hosts,
            cross_nic=case.cross_nic, ports=case.ports, seed=case.seed, capture=capture, taps=taps,
            metered=True, trains=case.trains, **more,
        )  # fmt: skip
        network.intra = IntraNode(self.bandwidth, latency=DELAY)
        return network

    def _uet(self) -> dict[str, Any]:
        """Return the options of the network that only UET has."""
        case = self.case
        more: dict[str, Any] = {} if case.mtu is None else {"ses": replace(SES, payload_mtu=case.mtu)}
        return more | {"cc": case.cc} | ({} if case.cc == OFF else {"lb": case.lb, "trimming": True})

    def _roce(self) -> dict[str, Any]:
        """Return the options of the network that only RoCE has."""
        case, chosen = self.case, self.case.cc.split("+")
        config = RoceConfig() if case.mtu is None else RoceConfig(path_mtu=case.mtu)
        more: dict[str, Any] = {}
        if "dcqcn" in chosen:
            config = replace(config, congestion="dcqcn")
            kmin, kmax = (number * case.rate // 10**9 for number in MARKS_PER_GIGABIT)
            more["red"] = Red(kmin=kmin, kmax=kmax, pmax=MARKS_AT_MOST)
        if "pfc" in chosen:
            more["pfc"] = Pfc()
        return more | ({} if config == RoceConfig() else {"config": config})

    @property
    def _most_ports(self) -> int:
        """Return the number of ports of the largest switch.

        The rate of an aggregation node follows from it: such a node reduces the input of all ports at line rate
        (sharp.md §1.1).
        """
        ranks, ports, layout = self.case.ranks, self.case.ports, self.topology
        if self.case.kind == "switch":
            return ranks * ports
        hosts = Counter(layout.neighbour(rank) for rank in range(ranks))
        return max(
            len(layout.leaving[vertex]) + hosts[vertex] * (ports - 1)
            for vertex in range(layout.size, len(layout.leaving))
        )  # fmt: skip

    def _path(self, a: int, b: int) -> Path:
        if self.topology.together(a, b):
            return Path(DELAY, 8 * self.bandwidth(a, b), "host")
        return Path()


def _hosts(layout: Topology) -> list[list[int]]:
    hosts: dict[int, list[int]] = {}
    for rank in range(layout.size):
        hosts.setdefault(layout.node(rank), []).append(rank)
    return list(hosts.values())


def _paced(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return a function that reports progress about a hundred times."""
    if progress is None:
        return lambda messages: None
    every = max(1, total // 100)

    def tick(messages: int) -> None:
        if messages % every == 0:
            progress(messages, total)

    return tick


def _program(op: str, input_: Array, output: Array, rank: int, reduce_op: dist.ReduceOp) -> None:
    """Run the program of one rank; rank 0 is the root."""
    dist.init_process_group()
    size = dist.get_world_size()

    def blocks(of: Array) -> list[Array] | None:
        return None if rank else list(of.reshape(size, -1))

    programs: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(input_, reduce_op),
        "reduce": lambda: dist.reduce(input_, 0, reduce_op),
        "broadcast": lambda: dist.broadcast(input_, 0),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(output, input_, reduce_op),
        "all_gather": lambda: dist.all_gather_into_tensor(output, input_),
        "scatter": lambda: dist.scatter(output, blocks(input_), 0),
        "gather": lambda: dist.gather(input_, blocks(output), 0),
        "all_to_all": lambda: dist.all_to_all_single(output, input_),
        "barrier": dist.barrier,
    }
    programs[op]()
