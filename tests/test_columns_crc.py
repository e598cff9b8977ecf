# SPDX-License-Identifier: GPL-2.0-only
"""Columns judge the CRC32C of UET packets as `dissect` does: by the other packets of the flow."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support import columns as c
from tests.support.audit import frames as f
from tests.support.effort import effort
from tests.support.strategies import mutate, random_packet
from uetproto import Packet, columns, decode, encode
from uetproto.wire.capture import pcap
from uetproto.wire.flow_crc import decoded
from uetproto.wire.packet import Layer


def judged(path: Path) -> list[int | None]:
    """What the packets tell in the order of capture; None for malformed packets, of which columns tell no more."""

    def alone(record: pcap.Record, crc: str) -> Packet:
        return decode(record.data, link=pcap.LINK_NAMES[record.link], crc=crc, length=record.length)

    with pcap.open_capture(path) as reader:
        packets = [packet for _, packet in decoded(reader, alone)]
    return [None if packet.error else verdict(packet) for packet in packets]


def verdict(packet: Packet) -> int:
    if packet.trailer is None or packet.trailer.kind != "crc32c":
        return -2 if "crc-suspect" in packet.notes else -1
    return int(bool(packet.trailer.ok))


def any_frame(rng: random.Random) -> bytes:
    """A frame of one of a few flows, some of which have CRCs; some frames are damaged or end with another CRC."""
    host = rng.randrange(6)
    packet = random_packet(rng, crc=host < 3)
    layers = [
        Layer(form, {**values, "src": host, "dst": 77}) if form in ("ipv4", "ipv6") else Layer(form, values)
        for form, values, _ in packet.layers
    ]
    packet.layers[:] = layers
    data = encode(packet, fill=True)
    kind = rng.random()
    if kind < 0.15:
        return f.spoilt(data)
    return mutate(data, rng) if kind < 0.25 else data


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
def test_columns_judge_as_the_reader_of_packets_does(tmp_path: Path, suffix: str) -> None:
    rng = random.Random(f"crc {suffix}")
    frames = [any_frame(rng) for _ in range(effort(500, 1500, 6000))]
    lengths = [len(data) + (9 if rng.random() < 0.05 else 0) for data in frames]
    links = [(pcap.ETHERNET, data, length) for data, length in zip(frames, lengths, strict=True)]
    path = c.write(tmp_path / f"any.{suffix}", links)
    found = columns.read(path, crc32c=True).crc32c
    assert found is not None
    expected = judged(path)
    assert [
        (n, a, b) for n, (a, b) in enumerate(zip(found.tolist(), expected, strict=True)) if b not in (a, None)
    ] == []
    assert {0, 1, -1} <= Counter(expected).keys()


def first(psn: int, src: int, crc: bool = True) -> bytes:
    """The first packet of a longer message: its headers do not say how much it carries."""
    headers = (f.MAC, f.changed(f.V4, src=src), f.UDP, f.changed(f.REQUEST, psn=psn), f.FIRST)
    return f.frame(*headers, payload=bytes(1024), trailer=f.CRC if crc else None)


def test_a_flipped_bit_a_suspect_and_a_flow_without(tmp_path: Path) -> None:
    frames = [f.spoilt(first(0, 1)), f.spoilt(first(0, 2)), first(0, 3, crc=False), first(1, 1), first(1, 3, crc=False)]
    path = c.write(tmp_path / "x.pcap", [(pcap.ETHERNET, data, len(data)) for data in frames])
    assert columns.read(path, crc32c=True).crc32c.tolist() == [0, -2, -1, 1, -1] == judged(path)  # type: ignore[union-attr]
    assert columns.read(path).crc32c is None
    pieces = [piece.crc32c.tolist() for piece in columns.iter_batches(path, 2, crc32c=True)]  # type: ignore[union-attr]
    assert pieces == [[-2, -2], [-1, 1], [-1]]


def test_a_flow_is_known_in_later_pieces(tmp_path: Path) -> None:
    frames = [first(0, 1), first(1, 1), f.spoilt(first(2, 1)), first(3, 1)]
    path = c.write(tmp_path / "x.pcap", [(pcap.ETHERNET, data, len(data)) for data in frames])
    pieces = [piece.crc32c for piece in columns.iter_batches(path, 1, crc32c=True)]
    assert np.concatenate(pieces).tolist() == [1, 1, 0, 1]  # type: ignore[arg-type]


def test_interfaces_are_apart(tmp_path: Path) -> None:
    with pcap.open_writer(tmp_path / "x.pcapng", interfaces=[("a", pcap.ETHERNET), ("b", pcap.ETHERNET)]) as writer:
        for psn in range(4):
            writer.write(psn, first(psn, 1), interface=0)
            writer.write(psn, first(psn, 1, crc=False), interface=1)
    assert columns.read(tmp_path / "x.pcapng", crc32c=True).crc32c.tolist() == [1, -1] * 4  # type: ignore[union-attr]
