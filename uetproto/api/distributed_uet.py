"""Ranks over UET: each a fabric endpoint; grants and data are WRITEs with completion data (collectives.md §5)."""

from typing import Any

from uetproto.api.distributed_packets import DEPTH, RECORD, Grant, PacketEnd, PacketNetwork, names, options
from uetproto.api.fi_node import Encapsulation, FiNode, FiWorld
from uetproto.collectives.transport import Done, Failure
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Completion, Mode, RemoteWrite, Write
from uetproto.engine.memory import Region

_JOB, _PID, _INDEX = 1, 0, 15
_MAILBOX = 0
"""Key of the region to which grants are written: `DEPTH` records for each peer."""
_IS_GRANT = 1 << 63
"""Bit of the completion data; the number of the record is below it."""


class UetEnd(PacketEnd):
    """One rank, over RUD unless its network says otherwise."""

    network: "UetNetwork"

    def __init__(self, network: "UetNetwork", rank: int, node: FiNode) -> None:
        super().__init__(network, rank)
        self._node = node
        self._process = node.fep.attach(_JOB, _PID, (_INDEX,))
        self._mailbox = bytearray(self.size * DEPTH * RECORD)
        self._process.register(Region(_MAILBOX, self._mailbox))
        self._told = [0] * self.size
        node.listeners.append(self._event)

    def open(self, slot: int, into: memoryview) -> tuple[int, int]:
        self._process.register(Region(slot, into))
        return slot, 0

    def close(self, slot: int) -> None:
        del self._process.regions[slot]

    def tell(self, peer: int, grant: Grant, done: Done) -> None:
        record = self.rank * DEPTH + self._told[peer] % DEPTH
        self._told[peer] += 1
        self._write(peer, grant.pack(), _MAILBOX, record * RECORD, _IS_GRANT | record, done)

    def write(self, peer: int, grant: Grant, data: memoryview, done: Done) -> None:
        self._write(peer, data, grant.key, grant.address, grant.slot, done)

    def _write(self, peer: int, data: Any, key: int, offset: int, told: int, done: Done) -> None:
        self._node.submit(Write(
            peer=self.network.addresses[peer], data=data, key=key, offset=offset, completion_data=told,
            context=(peer, done), mode=self.network.mode, job_id=_JOB, pid_on_fep=_PID, resource_index=_INDEX,
            initiator=self.rank,
        ))  # fmt: skip

    def _event(self, event: Any) -> None:
        if isinstance(event, RemoteWrite):
            if event.data & _IS_GRANT:
                record = event.data - _IS_GRANT
                grant = Grant.unpack(self._mailbox[record * RECORD : (record + 1) * RECORD])
                self.told(record // DEPTH, grant)
            else:
                self.written(event.data)
        elif isinstance(event, Completion):
            peer, done = event.context
            failure = None
            if not event.ok:
                why = event.error.reason.value if event.error else event.return_code.name
                failure = Failure(f"message from rank {self.rank} to rank {peer}: {why}")
            done(failure)


class UetNetwork(PacketNetwork):
    """All ranks, each with a fabric endpoint."""

    def __init__(self, size: int, *, mode: Mode = Mode.RUD, **given: Any) -> None:
        """`mode`: RUD or ROD. Otherwise: those of `Cables`, `pds`, `ses`, `how`, faults, faults_from, seed, capture,
        taps; `hosts` and intra_bandwidth, intra_latency.
        """
        cables, intra, rest = options(size, given, ("pds", "ses", "how"))
        self.mode = mode
        defaults: dict[str, Any] = {"how": Encapsulation(), "pds": PdsConfig(), "ses": SesConfig()}
        world = FiWorld(names(size), cables=cables, **(defaults | rest))
        super().__init__(size, world, intra)
        nodes = list(world.nodes.values())
        self.addresses = [node.address for node in nodes]
        self.ends = [UetEnd(self, rank, node) for rank, node in enumerate(nodes[:size])]


def network(size: int, **given: Any) -> UetNetwork:
    """As `World(transport="uet")` makes it."""
    return UetNetwork(size, **given)


__all__ = ["UetEnd", "UetNetwork", "network"]
