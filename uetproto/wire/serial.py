# SPDX-License-Identifier: GPL-2.0-only
"""This module adds and compares serial numbers of 32 bits, such as PSNs (UE 1.0.1 §3.5.11.4, pds.md §2.1)."""


def add32(a: int, b: int) -> int:
    """Return a + b modulo 2^32."""
    return (a + b) & 0xFFFFFFFF


def diff32(a: int, b: int) -> int:
    """Return a - b modulo 2^32 as a signed 32-bit number. It is positive if `a` is newer than `b`."""
    return ((a - b + 0x80000000) & 0xFFFFFFFF) - 0x80000000
