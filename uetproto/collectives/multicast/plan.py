# SPDX-License-Identifier: GPL-2.0-only
"""This module plans a multicast operation. The plan is the same for all ranks (collectives.md §3.10.1, §3.10.2).

The blocks of a plan are contiguous in the receive buffer. An all_gather has one block for each rank; a broadcast has
only the block of the root.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.wire import CHUNK_IDS
from uetproto.collectives.transport import SECOND
from uetproto.errors import LocalError


class Subgroup(NamedTuple):
    """This record describes a byte range that is the same in every block. It is sent to a multicast group of its own,
    with chunk ids of its own."""

    number: int
    start: int
    """Offset in bytes at which this range starts in a block."""
    length: int
    mtu: int

    @property
    def chunks(self) -> int:
        """Return C, the number of chunks of this range in a block."""
        return -(-self.length // self.mtu)

    def offset(self, idx: int) -> int:
        """Return the offset of chunk `idx` in its block, in bytes."""
        return self.start + idx * self.mtu

    def span(self, idx: int, chunks: int = 1) -> int:
        """Return the number of bytes of `chunks` consecutive chunks from `idx` on. The last chunk of a block may be
        short."""
        return min(self.length - idx * self.mtu, chunks * self.mtu)


@dataclass(frozen=True, slots=True)
class MulticastPlan:
    """This record holds the plan of one operation. The functions `all_gather` and `broadcast` make it."""

    op: str
    size: int
    """Number of ranks: N."""
    length: int
    """Number of bytes of a block: n."""
    owners: Sequence[int]
    """Ranks that send a block, in the order of the blocks."""
    config: MulticastConfig
    subgroups: tuple[Subgroup, ...]

    @property
    def bytes(self) -> int:
        """Return the number of bytes of the receive buffer."""
        return len(self.owners) * self.length

    @property
    def cutoff(self) -> int:
        """Return the time in picoseconds from arming the receivers until they fetch missing chunks."""
        return max(self.config.least, round(self.config.scale * self.bytes * SECOND / self.config.rate))

    # Blocks

    def block(self, owner: int) -> int | None:
        """Return the number of the block that the rank `owner` sends, or None if it sends none."""
        if self.op == "all_gather":
            return owner
        return 0 if owner == self.owners[0] else None

    def owns(self, rank: int) -> bool:
        """Return whether a rank has a block to send."""
        return self.block(rank) is not None

    # Chains

    @property
    def roots(self) -> int:
        """Return M, the number of chains of consecutive ranks. The ranks of a chain send one after the other, and the
        chains send at the same time."""
        senders, asked = len(self.owners), self.config.roots
        return asked if senders % asked == 0 else 1

    @property
    def _chain(self) -> int:
        """Return R, the number of ranks of a chain."""
        return len(self.owners) // self.roots

    def starts(self, owner: int) -> bool:
        """Return whether a rank is the first of its chain. The first rank sends without a token; all other ranks wait
        for a token."""
        return self.op == "broadcast" or owner % self._chain == 0

    def finishes(self, owner: int) -> bool:
        """Return whether a rank is the last of its chain. The last rank passes no token on."""
        return self.op == "broadcast" or (owner + 1) % self._chain == 0

    # The ring of recovery

    def source(self, rank: int) -> int:
        """Return F(r), the rank of the ring from which rank r fetches missing chunks."""
        return (rank + self.config.fetch_from) % self.size

    def visitor(self, rank: int) -> int:
        """Return V(r), the rank of the ring that fetches missing chunks from rank r."""
        return (rank - self.config.fetch_from) % self.size

    def fetch_order(self, rank: int, missing: list[int]) -> list[int]:
        """Return the owners of missing blocks, sorted in the order in which `rank` requests the blocks (collectives.md
        §3.10.5)."""
        if self.config.order == "ascending":
            return sorted(missing)
        return sorted(missing, key=lambda owner: (owner - rank - 1) % self.size)


def all_gather(size: int, length: int, config: MulticastConfig | None = None) -> MulticastPlan:
    """Return the plan of an all_gather among `size` ranks, in which each rank sends `length` bytes to all ranks."""
    return _plan("all_gather", size, length, range(size), config)


def broadcast(size: int, length: int, root: int, config: MulticastConfig | None = None) -> MulticastPlan:
    """Return the plan of a broadcast among `size` ranks, in which the root sends `length` bytes to all ranks."""
    if not 0 <= root < size:
        raise LocalError("root", root, f"0 … {size - 1}", id="out-of-range")
    return _plan("broadcast", size, length, (root,), config)


def _plan(op: str, size: int, length: int, owners: Sequence[int], config: MulticastConfig | None) -> MulticastPlan:
    config = config or MulticastConfig()
    if not 1 <= size < CHUNK_IDS:
        raise LocalError("size", size, f"1 … {CHUNK_IDS - 1}", id="out-of-range")
    parts, mtu, blocks = config.subgroups, config.mtu, len(owners)
    most = min((CHUNK_IDS - 1) // blocks * mtu * parts, config.most_bytes // blocks)
    if not 0 <= length <= most:
        text = f"legal: 0 … {most} with {blocks} blocks, MTU {mtu}, {parts} subgroups"
        raise LocalError("length", f"{length}; {text}, receive buffer up to {config.most_bytes}", id="out-of-range")
    ends = [w * length // parts for w in range(parts + 1)]
    subgroups = tuple(Subgroup(w, ends[w], ends[w + 1] - ends[w], mtu) for w in range(parts))
    return MulticastPlan(op, size, length, owners, config, subgroups)
