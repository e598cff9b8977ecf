"""Numbers of 24 bits: PSN and MSN (roce.md §7). Wrap at 2^24 changes nothing (§15 item 10)."""

BITS = 24
MASK = (1 << BITS) - 1
HALF = 1 << BITS - 1
"""ePSN − 2^23 … ePSN − 1 are duplicates; at most so many PSNs are unacknowledged."""


def add(psn: int, count: int) -> int:
    """The number `count` behind `psn`, before it if negative."""
    return psn + count & MASK


def diff(a: int, b: int) -> int:
    """a − b as a signed 24-bit number."""
    return (a - b + HALF & MASK) - HALF


def count_of_packets(length: int, path_mtu: int) -> int:
    """Packets, and so PSNs, of a message of `length` bytes; of a READ, its response: an empty one has one."""
    return max(1, -(-length // path_mtu))
