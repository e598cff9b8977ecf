# SPDX-License-Identifier: GPL-2.0-only
"""This module writes captures, and compares the columns of `uetproto.columns` with the packets of `decode`."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import paths
from uetproto import columns, decode
from uetproto.wire.capture import pcap
from uetproto.wire.forms import FORMS
from uetproto.wire.stack import RAW_FORMS

SHARED = paths.SHARED
Frame = tuple[int, bytes, int]  # link type, bytes captured, length on the wire


def write(path: Path, frames: Iterable[Frame], links: tuple[int, ...] = (pcap.ETHERNET,)) -> Path:
    with pcap.open_writer(path, interfaces=[("", link) for link in links]) as writer:
        for number, (link, data, length) in enumerate(frames):
            writer.write(number * 1_000_003, data, interface=links.index(link), length=length)
    return path


def expected(
    path: Path, **options: Any
) -> tuple[dict[str, dict[str, list[Any]]], list[pcap.Record], list[pcap.Damage]]:
    forms: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    with pcap.open_capture(path) as reader:
        records = list(reader)
        damage = list(reader.damage)
    for record in records:
        if record.link not in pcap.LINK_NAMES:
            continue
        packet = decode(record.data, link=pcap.LINK_NAMES[record.link], length=record.length, crc="off", **options)
        for form, values, _ in packet.layers:
            if form not in RAW_FORMS:
                forms[form]["index"].append(record.index)
                for name, value in values.items():
                    forms[form][name].append(value)
    return forms, records, damage


def as_integers(array: np.ndarray[Any, Any]) -> list[int]:
    if array.dtype.kind == "V":
        assert {len(value) for value in array.tolist()} == {array.dtype.itemsize}
        return [int.from_bytes(value, "big") for value in array.tolist()]
    return array.tolist()


def agrees(path: Path, found: columns.Columns | None = None, **options: Any) -> columns.Columns:
    """Compare every value of every field of every form."""
    forms, records, damage = expected(path, **options)
    found = columns.read(path, **options) if found is None else found
    assert found.packets == len(records)
    assert found.times.tolist() == [record.time_ns for record in records]
    assert found.lengths.tolist() == [record.length for record in records]
    assert list(found.damage) == damage
    assert found.forms == tuple(form for form in FORMS if form in forms)
    for form, rows in found.items():
        assert list(rows) == ["index", *FORMS[form].names]
        for name in rows:
            assert as_integers(rows[name]) == forms[form][name], f"{form}.{name}"
    return found
