"""What can be chosen of multicast: all ranks of a group choose the same (collectives.md §3.10.1)."""

from dataclasses import dataclass

from uetproto.errors import LocalError

ORDERS = ("ascending", "from_next")
"""In which missing blocks are fetched. `from_next`, from the block of the next rank on, can deadlock (§3.10.5)."""
MOST_DEPTH = 1 << 16
"""Receives that a queue holds: each has a slot of memory."""
MOST_SCALE = 10**9
_COUNTS = ("mtu", "roots", "subgroups", "batch", "depth", "rate", "most_bytes", "tasks")


@dataclass(frozen=True, slots=True)
class MulticastConfig:
    """The defaults are those of the released code where §3.10.1 has them."""

    mtu: int = 4096
    """Bytes of a chunk, the last one of a block apart."""
    roots: int = 2
    """M: ranks that send at once, if it divides their number; else one."""
    subgroups: int = 1
    """W: multicast groups among which each block is divided."""
    batch: int = 128
    """Chunks posted together: the last one is signalled."""
    depth: int = 128
    """RQ_DEPTH: slots of the staging ring, for whoever posts the receives."""
    scale: float = 5.0
    """Of the cutoff timer: so much more time than the bytes need."""
    rate: int = 7 * 10**9
    """B, bytes a second: of the cutoff timer."""
    least: int = 0
    """Picoseconds: no cutoff is sooner. Barrier and tokens take their time, however few the bytes are."""
    link_rate: int | None = None
    """Bytes a second, of which each root takes the share 1/M; None: as fast as the network takes them (§3.10.2)."""
    fetch_from: int = -1
    """F(r) - r: the left neighbour; the released code has the right one."""
    order: str = "ascending"
    most_bytes: int = 512 << 20
    """Of a receive buffer."""
    tasks: int = 16
    """Operations of a rank that are posted and not done."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _whole(name, getattr(self, name), 1, "a whole number from 1 on")
        _whole("least", self.least, 0, "picoseconds from 0 on")
        if self.link_rate is not None:
            _whole("link_rate", self.link_rate, 1, "None, or bytes a second from 1 on")
        if self.depth > MOST_DEPTH:
            raise LocalError("depth", self.depth, f"1 … {MOST_DEPTH}")
        if type(self.scale) not in (int, float) or not 0 < self.scale <= MOST_SCALE:
            raise LocalError("scale", f"{self.scale!r}", f"a number above 0, up to {MOST_SCALE:,}")
        if type(self.fetch_from) is not int or self.fetch_from not in (-1, 1):
            raise LocalError("fetch_from", f"{self.fetch_from!r}", "-1, 1")
        if self.order not in ORDERS:
            raise LocalError("order", f"{self.order!r}", ", ".join(ORDERS))


def _whole(name: str, value: object, least: int, legal: str) -> None:
    if type(value) is not int or value < least:
        raise LocalError(name, f"{value!r}", legal)


__all__ = ["MOST_DEPTH", "ORDERS", "MulticastConfig"]
