# SPDX-License-Identifier: GPL-2.0-only
"""This module makes captures whose times are far from those of a clock."""

import struct
from collections.abc import Iterable
from pathlib import Path


def shifted(path: Path, seconds: int, frames: Iterable[bytes]) -> Path:
    """Write a pcapng whose interface adds `seconds` to every time (if_tsoffset); the frames are 1 µs apart."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack("<2I", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    parts = [
        block(0x0A0D0D0A, struct.pack("<I2Hq", 0x1A2B3C4D, 1, 0, -1)),
        block(1, struct.pack("<2HI2HB3x2Hq2H", 1, 0, 0, 9, 1, 9, 14, 8, seconds, 0, 0)),
    ]
    for number, data in enumerate(frames):
        parts.append(block(6, struct.pack("<5I", 0, 0, 1_000 * number, len(data), len(data)) + data))
    path.write_bytes(b"".join(parts))
    return path
