"""This module has the configuration of multicast, the same on all ranks of a group (collectives.md §3.10.1)."""

from dataclasses import asdict, dataclass

from uetproto.errors import LocalError

ORDERS = ("ascending", "from_next")
"""Orders in which missing blocks can be fetched. `from_next` begins with the next rank's block and can deadlock
(§3.10.5)."""
MOST_DEPTH = 1 << 16
"""Largest number of receives in a queue: each receive has a slot of memory."""
MOST_SCALE = 10**9
_COUNTS = ("mtu", "roots", "subgroups", "batch", "depth", "rate", "most_bytes", "tasks")


@dataclass(frozen=True, slots=True)
class MulticastConfig:
    """These are the parameters of multicast; defaults are those of the released code (collectives.md §3.10.1)."""

    mtu: int = 4096
    """Bytes of a chunk, except the last one of a block."""
    roots: int = 2
    """Number of ranks that send at the same time, M; 1 is used if it does not divide the number of ranks."""
    subgroups: int = 1
    """Number of multicast groups among which each block is divided: W."""
    batch: int = 128
    """Number of chunks that are posted together; the last one is signalled."""
    depth: int = 128
    """Number of posted receives, each with a slot of the staging ring: RQ_DEPTH."""
    scale: float = 5.0
    """Factor by which the cutoff timer exceeds the time that the bytes need."""
    rate: int = 7 * 10**9
    """Bytes per second with which the cutoff timer is computed: B."""
    least: int = 0
    """Shortest time of the cutoff timer in picoseconds, as barrier and tokens take time even for few bytes."""
    link_rate: int | None = None
    """Bytes per second of a link, of which each root uses 1/M; None: as fast as the network takes them (collectives.md
    §3.10.2)."""
    fetch_from: int = -1
    """Offset F(r) - r of the rank from which rank r fetches: -1 is the left neighbour; the released code has the right
    one."""
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
