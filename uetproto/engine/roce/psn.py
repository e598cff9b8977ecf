# SPDX-License-Identifier: GPL-2.0-only
"""PSN and MSN are numbers of 24 bits with serial arithmetic, which allows for the wrap (roce.md §7, §15 item 10)."""

BITS = 24
MASK = (1 << BITS) - 1
HALF = 1 << BITS - 1
"""Half of the PSN space. So many PSNs before the expected PSN (ePSN) count as duplicates, and at most so many PSNs may
be unacknowledged."""


def add(psn: int, count: int) -> int:
    """Return the PSN that is `count` after `psn`, or before `psn` if `count` is negative."""
    return psn + count & MASK


def diff(a: int, b: int) -> int:
    """Return a − b as a signed 24-bit number."""
    return (a - b + HALF & MASK) - HALF


def count_of_packets(length: int, path_mtu: int) -> int:
    """Return the number of packets, and thus of PSNs, of a message or READ response with `length` bytes. An empty
    message has one packet."""
    return max(1, -(-length // path_mtu))
