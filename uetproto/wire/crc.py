# SPDX-License-Identifier: GPL-2.0-only
"""This module computes the CRC32C that ends a UET packet without TSS (UE 1.0.1 §3.5.25, tss.md §12).

The CRC32C covers everything from the first byte of the IP source address to the last payload byte, with the UDP
checksum taken as 0. It is sent most significant byte first. `crc32` is the CRC of Ethernet, with which `icrc.py`
computes the ICRC.
"""

from fastcrc.crc32 import iscsi as crc32c
from fastcrc.crc32 import iso_hdlc as crc32

__all__ = ["CRC_SIZE", "crc32", "crc32c", "trailer_crc"]

CRC_SIZE = 4


def trailer_crc(frame: bytes, start: int, end: int, udp_checksum_at: int | None = None) -> int:
    """Return the CRC32C over `frame[start:end]`. The two bytes at `udp_checksum_at` are taken as 0, unless it is
    None."""
    if udp_checksum_at is None or frame[udp_checksum_at : udp_checksum_at + 2] == b"\0\0":
        return crc32c(frame[start:end])
    crc = crc32c(frame[start:udp_checksum_at])
    crc = crc32c(b"\0\0", crc)
    return crc32c(frame[udp_checksum_at + 2 : end], crc)
