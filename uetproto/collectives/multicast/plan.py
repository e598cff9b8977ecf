"""One operation by multicast, the same for all ranks: its chunks, its chains, its cutoff (collectives.md §3.10.1-2).

A plan is made once and handed to every rank. Its blocks lie in the receive buffer one after the other: of all_gather
the one of each rank, of broadcast the root's alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.wire import CHUNK_IDS
from uetproto.errors import LocalError

SECOND = 10**12
"""Picoseconds."""


class Subgroup(NamedTuple):
    """A byte range of every block, which has its own multicast group and chunk ids."""

    number: int
    start: int
    """In a block."""
    length: int
    mtu: int

    @property
    def chunks(self) -> int:
        """C: of a block."""
        return -(-self.length // self.mtu)

    def offset(self, idx: int) -> int:
        """Where a chunk lies in its block."""
        return self.start + idx * self.mtu

    def span(self, idx: int, chunks: int = 1) -> int:
        """Bytes of a run of chunks: the last one of a block may be short."""
        return min(self.length - idx * self.mtu, chunks * self.mtu)


@dataclass(frozen=True, slots=True)
class MulticastPlan:
    """Made by `all_gather` or `broadcast`."""

    op: str
    size: int
    """N."""
    length: int
    """n: bytes of a block."""
    owners: Sequence[int]
    """The rank that sends each block."""
    config: MulticastConfig
    subgroups: tuple[Subgroup, ...]

    @property
    def bytes(self) -> int:
        """Of the receive buffer."""
        return len(self.owners) * self.length

    @property
    def cutoff(self) -> int:
        """Picoseconds from arming until what is missing is given up."""
        return max(self.config.least, round(self.config.scale * self.bytes * SECOND / self.config.rate))

    # Blocks

    def block(self, owner: int) -> int | None:
        """Which block a rank sends; None: it sends none."""
        if self.op == "all_gather":
            return owner
        return 0 if owner == self.owners[0] else None

    def owns(self, rank: int) -> bool:
        """Whether a rank has a block to send."""
        return self.block(rank) is not None

    # Chains

    @property
    def roots(self) -> int:
        """M: as many chains of consecutive ranks."""
        senders, asked = len(self.owners), self.config.roots
        return asked if senders % asked == 0 else 1

    @property
    def _chain(self) -> int:
        """R: ranks of a chain."""
        return len(self.owners) // self.roots

    def starts(self, owner: int) -> bool:
        """It sends at once; the others wait for a token."""
        return self.op == "broadcast" or owner % self._chain == 0

    def finishes(self, owner: int) -> bool:
        """It passes no token on."""
        return self.op == "broadcast" or (owner + 1) % self._chain == 0

    # The ring of recovery

    def source(self, rank: int) -> int:
        """F(r): the rank that it fetches from."""
        return (rank + self.config.fetch_from) % self.size

    def visitor(self, rank: int) -> int:
        """V(r): the rank that fetches from it."""
        return (rank - self.config.fetch_from) % self.size

    def fetch_order(self, rank: int, missing: list[int]) -> list[int]:
        """Owners of missing blocks, in the order in which a rank asks for them (§3.10.5)."""
        if self.config.order == "ascending":
            return sorted(missing)
        return sorted(missing, key=lambda owner: (owner - rank - 1) % self.size)


def all_gather(size: int, length: int, config: MulticastConfig | None = None) -> MulticastPlan:
    """Each rank sends `length` bytes to all."""
    return _plan("all_gather", size, length, range(size), config)


def broadcast(size: int, length: int, root: int, config: MulticastConfig | None = None) -> MulticastPlan:
    """The root sends `length` bytes to all."""
    if not 0 <= root < size:
        raise LocalError("root", root, f"0 … {size - 1}")
    return _plan("broadcast", size, length, (root,), config)


def _plan(op: str, size: int, length: int, owners: Sequence[int], config: MulticastConfig | None) -> MulticastPlan:
    config = config or MulticastConfig()
    if not 1 <= size < CHUNK_IDS:
        raise LocalError("size", size, f"1 … {CHUNK_IDS - 1}")
    parts, mtu, blocks = config.subgroups, config.mtu, len(owners)
    most = min((CHUNK_IDS - 1) // blocks * mtu * parts, config.most_bytes // blocks)
    if not 0 <= length <= most:
        text = f"legal: 0 … {most} with {blocks} blocks, MTU {mtu}, {parts} subgroups"
        raise LocalError("length", f"{length}; {text}, receive buffer up to {config.most_bytes}")
    ends = [w * length // parts for w in range(parts + 1)]
    subgroups = tuple(Subgroup(w, ends[w], ends[w + 1] - ends[w], mtu) for w in range(parts))
    return MulticastPlan(op, size, length, owners, config, subgroups)


__all__ = ["SECOND", "MulticastPlan", "Subgroup", "all_gather", "broadcast"]
