# SPDX-License-Identifier: GPL-2.0-only
"""The quick way from bytes to `ObservedPacket` gives what the long way gives, or nothing."""

import random
from pathlib import Path

import pytest

from tests.support.audit import frames as f
from tests.support.audit.reader_fast_path import (
    NoCrc,
    assert_same,
)
from tests.support.each import each
from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.reader.address import IPV6
from uetproto.audit.reader.expected_values import is_expected
from uetproto.audit.reader.fast_path import FastReader
from uetproto.audit.reader.fast_path_codegen import ReadFlows
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.slow_path import observe
from uetproto.wire.capture.pcap import LINK_NAMES, open_capture
from uetproto.wire.crc import crc32c
from uetproto.wire.stack import decode

CAPTURES = sorted(f.GOLDEN.glob("*.pcap*"))
UPPER = {
    "write": (f.REQUEST, f.WRITE),
    "first of several": (f.REQUEST, f.FIRST),
    "sealed": (f.SEALED,),
}


def long_way(data: bytes, link: str = "ethernet", crc: str = "auto", number: int = 0) -> ObservedPacket:
    return observe(decode(data, link=link, crc=crc), data, number, number)


def taught(frames: list[bytes], link: str = "ethernet", crc: str = "auto") -> FastReader:
    """A reader that has met these frames several times."""
    reader = FastReader(crc, ReadFlows(NoCrc(), {}))
    for data in frames * 5:
        if reader.read(data, 0, 0) is None and long_way(data, link, crc).packet is None:
            reader.learn(data, decode(data, link=link, crc=crc))
    return reader


@each("crc", ["auto", "off"])
@each("path", CAPTURES)
def test_both_ways_are_equal_on_every_golden_capture(path: Path, crc: str) -> None:
    with open_capture(path) as capture:
        records = [record for record in capture if record.length == len(record.data)]
    link = LINK_NAMES[records[0].link]
    reader = taught([record.data for record in records], link, crc)
    for record in records[:: effort(2, 1, 1)]:
        quick = reader.read(record.data, record.index, record.time_ns)
        long = observe(decode(record.data, link=link, crc=crc), record.data, record.index, record.time_ns)
        if quick is not None:
            assert_same(quick, long)


@pytest.mark.parametrize("upper", UPPER)
@pytest.mark.parametrize("lower", f.LOWER)
def test_encapsulations_take_the_quick_way(lower: str, upper: str) -> None:
    trailer, link = (None if upper == "sealed" else f.CRC), "raw" if lower == "no ethernet" else "ethernet"
    data = f.frame(*f.LOWER[lower], *UPPER[upper], trailer=trailer)
    seen = taught([data], link).read(data, 3, 4)
    assert_same(seen, long_way(data, link)._replace(number=3, time_ns=4))
    assert seen is not None
    assert seen.entropy == 0xC123
    assert (seen.src, seen.dst) == (
        (0x0A000001, 0x0A000002) if "6" not in lower else (IPV6 | f.V6.values["src"], IPV6 | f.V6.values["dst"])
    )


@pytest.mark.parametrize("lower", ["ipv4", "native ipv6"])
@pytest.mark.parametrize("trailer", [f.CRC, None])
def test_whatever_is_damaged_is_the_same_both_ways(lower: str, trailer: f.Trailer | None) -> None:
    good = [f.frame(*f.LOWER[lower], *upper, trailer=trailer) for upper in (UPPER["write"], UPPER["first of several"])]
    good.append(f.frame(*f.LOWER[lower], f.ACK, f.RESPONSE, payload=b"", trailer=trailer))
    reader = taught(good)
    rng = random.Random(lower)
    for data in good:
        assert reader.read(data, 0, 0) is not None
        wrong = [f.spoilt(data, at) for at in range(len(data))]
        wrong += [data[: rng.randrange(len(data))] for _ in range(20)] + [data + bytes(4), data + b"x"]
        for damaged in wrong:
            quick = reader.read(damaged, 0, 0)
            assert quick is None or quick == long_way(damaged)


def test_roce_takes_the_quick_way() -> None:
    write = f.roce(f.BTH, f.RETH)
    ack = f.roce(*f.ROCE_ACK, payload=b"")
    reader = taught([write, ack])
    assert_same(reader.read(write, 0, 0), long_way(write))
    assert_same(reader.read(ack, 0, 0), long_way(ack))
    for at in range(len(write)):
        wrong = f.spoilt(write, at)
        quick = reader.read(wrong, 0, 0)
        assert quick is None or quick == long_way(wrong)


def test_content_is_what_is_equal_in_all_copies() -> None:
    one = long_way(f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE))
    again = long_way(f.frame(*f.LOWER["vlan"], f.changed(f.REQUEST, retx=1, clear_psn_offset=-3), f.WRITE))
    other = long_way(f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE, payload=b"x" * 24))
    assert one.content == again.content != other.content
    data = f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE)
    assert one.content == crc32c(data[54:-4])


def test_what_was_not_captured_is_not_known() -> None:
    data = f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE)
    seen = observe(decode(data[:90], length=len(data)), data[:90], 0, 0)
    assert (seen.size, seen.content, seen.ses) == (-1, None, None)
    assert seen.head.psn == 7
    assert seen.packet is not None


def cut_long_way(data: bytes, size: int, link: str = "ethernet") -> ObservedPacket:
    return observe(decode(data[:size], link=link, length=len(data)), data[:size], 0, 0)


def taught_cut(frames: list[bytes], size: int) -> FastReader:
    """A reader that has met these frames several times, of which `size` bytes were captured."""
    reader = FastReader("auto", ReadFlows(NoCrc(), {}))
    for data in frames * 5:
        packet = decode(data[:size], length=len(data))
        if is_expected(packet, data[:size]):
            reader.learn(data[:size], packet)
    return reader


@each("path, size", [
    (path, size) for at, path in enumerate(CAPTURES) for size in effort(((96, 128)[at % 2],), (96, 128), (96, 128))
])  # fmt: skip
def test_both_ways_are_equal_where_the_end_was_not_captured(path: Path, size: int) -> None:
    with open_capture(path) as capture:
        frames = [record.data for record in capture if record.length == len(record.data) > size and record.link == 1]
    reader = taught_cut(frames, size)
    for data in frames:
        quick = reader.read(data[:size], 0, 0, True)
        if quick is not None:
            assert_same(quick, cut_long_way(data, size)._replace(packet=None))
            assert (quick.size, quick.content) == (-1, None)


@pytest.mark.parametrize("upper", UPPER)
def test_what_is_damaged_is_never_usual_where_the_end_was_not_captured(upper: str) -> None:
    data = f.frame(*f.LOWER["ipv4"], *UPPER[upper], trailer=None if upper == "sealed" else f.CRC)
    size = len(data) - 10
    reader = taught_cut([data], size)
    assert reader.read(data[:size], 0, 0, True) == cut_long_way(data, size)._replace(packet=None)
    for at in range(size):
        wrong = f.spoilt(data, at)
        quick = reader.read(wrong[:size], 0, 0, True)
        packet = decode(wrong[:size], length=len(wrong))
        assert quick is None or is_expected(packet, wrong[:size])
    assert reader.read(data, 0, 0, True) is None
    assert reader.read(data[: size - 40], 0, 0, True) is None
    assert reader.read(data[:size], 0, 0) is None


def test_cut_packets_are_judged_as_far_as_they_go() -> None:
    """The rules about a packet alone are asked as often as if each took the long way."""
    frames = [
        f.frame(*f.LOWER["ipv4"], f.changed(f.REQUEST, psn=psn), f.changed(f.FIRST, message_id=psn))
        for psn in range(30)
    ]
    lengths = [len(data) for data in frames]
    capture = f.capture([data[:-10] for data in frames], lengths=lengths)
    report = audit([capture], Options(rules=("WIRE-*", "SES-VERSION", "PDS-NEXT-HDR")))
    judged = {rule: tally.judged for rule, tally in report.tallies.items()}
    nothing = ("WIRE-CRC", "WIRE-LENGTH", "WIRE-GRE-CHECKSUM")
    assert {judged[rule] for rule in nothing} == {0}
    assert {number for rule, number in judged.items() if rule not in nothing} == {30}


@pytest.mark.parametrize("trailer", [f.CRC, None])
def test_padding_is_usual(trailer: f.Trailer | None) -> None:
    data = f.frame(*f.LOWER["ipv4"], f.ACK, f.RESPONSE, payload=b"", trailer=trailer)
    reader = taught([data])
    for padding in (bytes(3), b"padding"):
        assert_same(reader.read(data + padding, 0, 0), long_way(data + padding))
    assert reader.read(data[:-1], 0, 0) is None
    padded_before = taught([data + bytes(3)])
    assert_same(padded_before.read(data, 0, 0), long_way(data))


def test_a_crc_behind_the_padding_is_not_usual() -> None:
    data = f.frame(*f.LOWER["ipv4"], f.ACK, f.RESPONSE, payload=b"", trailer=None)
    behind = data + bytes(6)
    behind += crc32c(behind[26:]).to_bytes(4, "big")
    assert taught([data]).read(behind, 0, 0) is None


def test_usual_packets_are_counted_whichever_way_they_take() -> None:
    data = f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE)
    reader = taught([data])
    reader.read(data, 0, 0)
    [(kind, number)] = reader.counts(reader.here.flows).items()
    assert kind == (("ethernet", "ipv4", "udp", "pds.rud_req", "ses.request_std.som"), "crc32c", True)
    assert number == 6


def test_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.audit.reader.fast_path._MOST", 2)
    frames = [f.frame(f.MAC, f.changed(f.V4, dscp=dscp), f.UDP, f.ACK, f.RESPONSE, payload=b"") for dscp in range(9)]
    reader = taught(frames)
    assert len(reader._by_shape) <= 2
    for data in frames:
        seen = reader.read(data, 0, 0)
        assert seen is None or seen == long_way(data)
