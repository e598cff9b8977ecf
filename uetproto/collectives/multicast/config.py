# SPDX-License-Identifier: GPL-2.0-only
"""This module has the configuration of multicast. It must be the same on all ranks of a group (collectives.md
§3.10.1)."""

from dataclasses import asdict, dataclass

from uetproto.errors import LocalError

ORDERS = ("ascending", "from_next")
"""Orders in which a rank can fetch missing blocks: by ascending owner, or from the block of the next rank on. The order
`from_next` can deadlock (collectives.md §3.10.5)."""
MOST_DEPTH = 1 << 16
"""Largest value of `depth`, the number of posted receives. Each receive has a slot of memory."""
MOST_SCALE = 10**9
_COUNTS = ("mtu", "roots", "subgroups", "batch", "depth", "rate", "most_bytes", "tasks")


@dataclass(frozen=True, slots=True)
class MulticastConfig:
    """This record holds the parameters of multicast. Their defaults are those of the released code (collectives.md
    §3.10.1)."""

    mtu: int = 4096
    """Number of bytes of a chunk. The last chunk of a block may be shorter."""
    roots: int = 2
    """Number of ranks that send at the same time, M. If M does not divide the number of ranks, only one rank sends at a
    time."""
    subgroups: int = 1
    """Number of multicast groups among which each block is divided: W."""
    batch: int = 128
    """Largest number of chunks that are posted together. Only the last of them signals its completion."""
    depth: int = 128
    """Number of posted receives, RQ_DEPTH. Each receive has a slot of the staging ring."""
    scale: float = 5.0
    """Cutoff time divided by the time that the bytes need at `rate`. Missing chunks are fetched after the cutoff
    time."""
    rate: int = 7 * 10**9
    """Rate in bytes per second from which the cutoff timer is computed: B."""
    least: int = 0
    """Shortest time of the cutoff timer in picoseconds. Barriers and tokens take time even if there are few bytes."""
    link_rate: int | None = None
    """Rate of a link in bytes per second. Each of the M sending ranks sends at 1/M of this rate. None means that chunks
    are sent as fast as the network takes them (collectives.md §3.10.2)."""
    fetch_from: int = -1
    """Offset F(r) - r, where F(r) is the rank from which rank r fetches missing chunks. The value -1 means the previous
    rank of the ring. The value 1 means the next rank, from which the released code fetches."""
    order: str = "ascending"
    most_bytes: int = 512 << 20
    """Largest size of a receive buffer in bytes."""
    tasks: int = 16
    """Largest number of operations of a rank that are posted and not yet done."""

    def __post_init__(self) -> None:
        values = asdict(self)
        for name in _COUNTS:
            _whole(name, values[name], 1, "a whole number from 1 on")
        _whole("least", self.least, 0, "picoseconds from 0 on")
        if self.link_rate is not None:
            _whole("link_rate", self.link_rate, 1, "None, or bytes a second from 1 on")
        if self.depth > MOST_DEPTH:
            raise LocalError("depth", self.depth, f"1 … {MOST_DEPTH}", id="out-of-range")
        if type(self.scale) not in (int, float) or not 0 < self.scale <= MOST_SCALE:
            raise LocalError("scale", f"{self.scale!r}", f"a number above 0, up to {MOST_SCALE:,}", id="out-of-range")
        if type(self.fetch_from) is not int or self.fetch_from not in (-1, 1):
            raise LocalError("fetch_from", f"{self.fetch_from!r}", "-1, 1", id="out-of-range")
        if self.order not in ORDERS:
            raise LocalError("order", f"{self.order!r}", ", ".join(ORDERS), id="unknown-name")


def _whole(name: str, value: object, least: int, legal: str) -> None:
    if type(value) is not int or value < least:
        raise LocalError(name, f"{value!r}", legal, id="out-of-range")
