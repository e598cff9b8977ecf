# SPDX-License-Identifier: GPL-2.0-only
"""This module has what the emulator's rates are compared with: a calibration loop, and the least work of a packet.

The calibration loop is pure Python. The ratio of a rate to it is about the same on any machine, so that a rate of an
earlier version can be kept as a ratio. `one_by_one` is the least that any loop over single packets does in Python: a
header, the CRC32C at both ends, two events, a record of a capture, and the bytes in the memory of the target.
"""

import struct
from heapq import heappop, heappush
from tempfile import TemporaryFile
from time import process_time

from uetproto.wire.crc import crc32c

PACKET, WINDOW, HEAD = 4096, 64, 98
"""Bytes of a payload, packets in flight, and bytes of all headers."""
_LOOPS = 200_000


def calibration() -> float:
    """Return the passes of a pure Python loop for each second of CPU."""
    queue: list[tuple[int, int, bytes]] = []
    pack, seen, now = struct.Struct(">HHIHH").pack, {}, 0
    began = process_time()
    for number in range(_LOOPS):
        heappush(queue, (now + 83 + number % 7, number, pack(1, 2, number, 3, 4)))
        if len(queue) > WINDOW:
            now, which, header = heappop(queue)
            seen[which & 1023] = header[4:8] + header[:2]
    return _LOOPS / (process_time() - began)


def one_by_one(packets: int, capture: bool) -> float:
    """Return packets for each second of CPU of a loop over single packets."""
    source = memoryview(_bytes(packets))
    target = bytearray(packets * PACKET)
    head, pack, rest = bytes(42), struct.Struct(">HHIHH").pack, bytes(HEAD - 42 - 12)
    base, record = crc32c(head[26:]), struct.Struct("<IIII").pack
    queue: list[tuple[int, int, bytes]] = []
    records: list[bytes] = []
    file = TemporaryFile(buffering=0)  # noqa: SIM115  closed below
    sent = done = flying = busy = now = 0
    began = process_time()
    while done < packets:
        while sent < packets and flying < WINDOW:
            header = pack(0x1234, 0, sent, 1, 2) + rest
            at = sent * PACKET
            payload = source[at : at + PACKET]
            crc = crc32c(payload, crc32c(header, base))
            frame = b"".join((head, header, payload, crc.to_bytes(4, "big")))
            start = max(busy, now)
            busy = start + 83
            heappush(queue, (busy + 1000, sent, frame))
            sent += 1
            flying += 1
            if capture:
                records += (record(start // 10**9, start % 10**9, len(frame), len(frame)), frame)
                if len(records) >= 512:
                    file.write(b"".join(records))
                    records.clear()
        now, number, frame = heappop(queue)
        if not frame:
            flying -= 1
            done += 1
            continue
        if crc32c(frame[42:-4], base) != int.from_bytes(frame[-4:], "big"):
            raise AssertionError("the floor's CRC32C is wrong")
        at = number * PACKET
        target[at : at + PACKET] = frame[HEAD:-4]
        heappush(queue, (now + 1000, number, b""))
    file.write(b"".join(records))
    seconds = process_time() - began
    file.close()
    if target != source:
        raise AssertionError("the floor's target has other bytes")
    return packets / seconds


def _bytes(packets: int) -> bytes:
    return bytes(range(256)) * (packets * PACKET // 256)


def aead(packets: int) -> float:
    """Return packets for each second of CPU of a loop that does nothing but to seal a packet by AES-256-GCM."""
    from uetproto.engine.tss.cipher import aes_gcm  # earlier versions, which the other rates are measured with, lack it

    encrypt, inner, authenticated = aes_gcm(bytes(32)).encrypt, bytes(PACKET + HEAD - 54), bytes(24)
    began = process_time()
    for number in range(packets):
        encrypt(number.to_bytes(12, "big"), inner, authenticated)
    return packets / (process_time() - began)
