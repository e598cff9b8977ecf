# SPDX-License-Identifier: GPL-2.0-only
"""This module damages packets at random, for fuzzing. Half of the changes are to fields of the header tables."""

from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, Candidates, matches, rows_after
from uetproto.wire.mutate.frame import MutationRng, below, pick


def mutate_transport(data: bytes, rng: MutationRng, other: bytes = b"", first: Candidates = FIRST) -> bytes:
    """Return the transport bytes `data` with one to four random changes, half of which are to fields of headers.

    `other` is another packet. A possible change replaces the end of `data` by the end of `other`. `first` are the
    headers with which `data` may begin: those behind UDP port 4793, or a BTH, GRH or LRH.
    """
    changed = bytearray(data)
    for _ in range(1 + below(rng, 4)):
        if not changed or rng.random() < 0.5:
            _field_accident(changed, rng, first)
        else:
            _byte_accident(changed, rng, other)
    return bytes(changed)


def transport_headers(data: bytes, first: Candidates = FIRST) -> list[tuple[Header, int]]:
    """Return the headers at the start of `data`, each with its offset in bytes, up to the first that is cut or
    unknown."""
    found: list[tuple[Header, int]] = []
    todo = [first]
    at = 0
    while todo and len(data) - at >= 2:
        word = data[at] << 8 | data[at + 1]
        header = next((candidate for candidate in todo.pop() if matches(candidate, word)), None)
        if header is None or len(data) - at < header.size:
            break
        found.append((header, at))
        values = codec_of(header).decode(data, at)
        at += header.size
        for row in reversed(rows_after(header)):
            candidates = row.otherwise if row.by is None else row.then.get(values[row.by], row.otherwise)
            if candidates:
                todo.append(candidates)
    return found


def _field_accident(data: bytearray, rng: MutationRng, first: Candidates) -> None:
    """Set one field of one header to a limit, a defined code, a sum, its value with one bit flipped, or any value."""
    headers = transport_headers(bytes(data), first)
    if not headers:
        data += rng.getrandbits(64).to_bytes(8, "big")
        return
    header, at = pick(rng, headers)
    field = pick(rng, header.fields)
    codec = codec_of(header)
    values = codec.decode(data, at)
    kind, before = below(rng, 5), values[field.name]
    if kind == 0:
        after = pick(rng, (field.low, field.high, 0))
    elif kind == 1 and field.values is not None:
        after = pick(rng, [int(code) for code in field.values])
    elif kind == 2:
        after = before + pick(rng, (-2, -1, 1, 2, 1 << below(rng, field.bits)))
    elif kind == 3:
        after = before ^ (1 << below(rng, field.bits))
    else:
        after = rng.getrandbits(field.bits)
    values[field.name] = (after - field.low) % (1 << field.bits) + field.low
    data[at : at + header.size] = codec.encode(values)


_TELLING_BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def _byte_accident(data: bytearray, rng: MutationRng, other: bytes) -> None:
    at, kind = below(rng, len(data)), below(rng, 8)
    if kind < 2:
        data[at] ^= 1 << below(rng, 8)
    elif kind == 2:
        data[at] = pick(rng, _TELLING_BYTES)
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        del data[at : at + 1 + below(rng, 8)]
    elif kind == 5:
        data[at:at] = data[at : at + 1 + below(rng, 16)] * (1 + below(rng, 4))
    elif kind == 6:
        data += rng.getrandbits(64).to_bytes(8, "big")[: 1 + below(rng, 8)]
    else:
        data[at:] = other[below(rng, len(other)) :] if other else b""
