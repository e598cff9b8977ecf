# SPDX-License-Identifier: GPL-2.0-only
"""The quick way reads packets of every form, whole and cut anywhere, as the long way does."""

import random
from collections.abc import Iterator
from itertools import product

import pytest

from tests.support.audit import frames as f
from tests.support.audit.reader_fast_path import NoCrc, assert_same
from tests.support.effort import effort
from uetproto.audit.reader.expected_values import is_expected
from uetproto.audit.reader.fast_path import FastReader
from uetproto.audit.reader.fast_path_codegen import ReadFlows
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.slow_path import observe
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, FORMS, Candidates, code_fields, is_vendors, reserved_fields, rows_after
from uetproto.wire.implied import implied_payload
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.stack import decode

OF_LENGTH = {"payload_length": 24, "request_length": 24, "eager_length": 24}


def values_of(header: Header, rng: random.Random) -> dict[str, int]:
    """A usual header: reserved bits 0, codes that mean something, any numbers."""
    values = {}
    for field in header.fields:
        codes = code_fields(header.name).get(field.name)
        if field.name in OF_LENGTH:
            values[field.name] = OF_LENGTH[field.name]
        elif field.name in reserved_fields(header.name) or field.name == "version":
            values[field.name] = 0
        elif field.only or codes:
            known = [
                code for code in field.only or sorted(codes or ()) if not is_vendors(header.name, field.name, code)
            ]
            values[field.name] = rng.choice(known)
        else:
            values[field.name] = rng.randint(field.low, field.high)
    return values


def stacks(waiting: list[Candidates], rng: random.Random, above: tuple[Layer, ...] = ()) -> Iterator[tuple[Layer, ...]]:
    """Every sequence of headers that the rows of `NEXT` allow, one value of each code that leads to it."""
    if not waiting:
        yield above
        return
    *rest, candidates = waiting
    for header in candidates:
        rows = rows_after(header)
        ways: dict[str, dict[object, int]] = {}  # by field: for what follows, a value
        for name in dict.fromkeys(row.by for row in rows if row.by):
            codes = [code for code in code_fields(header.name)[name] if not is_vendors(header.name, name, code)]
            legal = [code for code in sorted(codes) if code in (header[name].only or codes)]
            ways[name] = {
                tuple(row.then.get(code, row.otherwise) for row in rows if row.by == name): code for code in legal
            }
        for chosen in product(*(way.values() for way in ways.values())):
            layer = f.changed(Layer(header.name, values_of(header, rng)), **dict(zip(ways, chosen, strict=True)))
            behind = [row.then.get(layer.values[row.by], row.otherwise) if row.by else row.otherwise for row in rows]
            yield from stacks(rest + [each for each in reversed(behind) if each], rng, (*above, layer))


def frame_of(layers: tuple[Layer, ...], lower: str) -> bytes:
    sealed = layers[-1].form.startswith("tss")
    implied = None if sealed else implied_payload(list(layers))
    payload = bytes(24 if implied is None else implied)
    return f.frame(*f.LOWER[lower], *layers, payload=payload, trailer=None if sealed else f.CRC)


def decoded(data: bytes, size: int, link: str) -> Packet:
    return decode(data[:size], link=link, length=len(data))


def long_way(data: bytes, size: int, link: str) -> ObservedPacket:
    return observe(decoded(data, size, link), data[:size], 0, 0)


def sizes_of(data: bytes, lower: str, layers: tuple[Layer, ...]) -> set[int]:
    """Before, at and behind the end of each header."""
    end = sum(FORMS[layer.form].size for layer in f.LOWER[lower])
    ends = [end := end + FORMS[layer.form].size for layer in layers]
    return {end + step for end in ends for step in (-1, 0, 1, 2, 3)}


@pytest.mark.parametrize("first", [header.name for header in FIRST])
def test_every_form_cut_anywhere(first: str) -> None:
    """Nothing is usual one way and not the other, and what both read is equal."""
    rng = random.Random(first)
    known = list(stacks([(FORMS[first],)], rng))
    for lower in rng.sample(list(f.LOWER), effort(2, 3, 3)):
        link = "raw" if lower == "no ethernet" else "ethernet"
        chosen = rng.sample(known, min(8, len(known)))
        frames = [frame_of(layers, lower) for layers in chosen]
        sizes = set().union(*(sizes_of(*each) for each in zip(frames, [lower] * len(frames), chosen, strict=True)))
        for size in [*rng.sample(sorted(sizes), min(effort(8, 12, 12), len(sizes))), 10_000]:
            compare([(data, min(size, len(data))) for data in frames], link, rng)


def compare(cases: list[tuple[bytes, int]], link: str, rng: random.Random) -> None:
    reader = FastReader("auto", ReadFlows(NoCrc(), {}))
    usual = [(data, size) for data, size in cases if is_expected(decoded(data, size, link), data[:size])]
    for data, size in usual * 5:
        reader.learn(data[:size], decoded(data, size, link))
    for data, size in usual:
        long = long_way(data, size, link)
        assert_same(reader.read(data[:size], 0, 0, size < len(data)), long._replace(packet=None))
    for data, size in cases:
        for _ in range(6):
            bit = 1 << rng.randrange(8 * size)
            wrong = (int.from_bytes(data[:size], "big") ^ bit).to_bytes(size, "big") + data[size:]
            assert_same_if_read(reader, wrong, size, link)
        for other in rng.sample(range(len(data)), 4):
            assert_same_if_read(reader, data, other, link)


def assert_same_if_read(reader: FastReader, data: bytes, size: int, link: str) -> None:
    quick = reader.read(data[:size], 0, 0, size < len(data))
    if quick is not None:
        assert_same(quick, long_way(data, size, link)._replace(packet=None))
        assert is_expected(decoded(data, size, link), data[:size])
