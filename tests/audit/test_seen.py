"""The quick way from bytes to `Seen` gives what the long way gives, or nothing."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.audit import frames as f
from uetproto.audit.quick import QuickReader
from uetproto.audit.seen import Seen
from uetproto.audit.seen_long import seen_of
from uetproto.wire.crc import crc32c
from uetproto.wire.pcap import LINK_NAMES, open_capture
from uetproto.wire.stack import decode

CAPTURES = sorted(f.GOLDEN.glob("*.pcap*"))
UPPER = {
    "write": (f.REQUEST, f.WRITE),
    "first of several": (f.REQUEST, f.FIRST),
    "sealed": (f.SEALED,),
}


class NoCrc(dict[tuple[int, int], bool]):
    """Every flow is known to have none, so that readers of packets without one are asked as well."""

    def get(self, *_: object) -> bool:  # type: ignore[override]
        return False


def long_way(data: bytes, link: str = "ethernet", crc: str = "auto", number: int = 0) -> Seen:
    return seen_of(decode(data, link=link, crc=crc), data, number, number)


def taught(frames: list[bytes], link: str = "ethernet", crc: str = "auto") -> QuickReader:
    """A reader that has met these frames several times."""
    reader = QuickReader(crc, NoCrc(), {})
    for data in frames * 5:
        if reader.read(data, 0, 0) is None and long_way(data, link, crc).packet is None:
            reader.learn(data, decode(data, link=link, crc=crc))
    return reader


def classes(seen: Seen) -> Iterator[type]:
    yield type(seen.head)
    yield type(seen.ses)
    yield from map(type, seen.more)


def assert_same(quick: Seen | None, long: Seen) -> None:
    assert quick == long
    assert quick is not None
    assert list(classes(quick)) == list(classes(long))


@pytest.mark.parametrize("crc", ["auto", "off"])
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_both_ways_are_equal_on_every_golden_capture(path: Path, crc: str) -> None:
    with open_capture(path) as capture:
        records = [record for record in capture if record.length == len(record.data)]
    link = LINK_NAMES[records[0].link]
    reader = taught([record.data for record in records], link, crc)
    for record in records:
        quick = reader.read(record.data, record.index, record.time_ns)
        long = seen_of(decode(record.data, link=link, crc=crc), record.data, record.index, record.time_ns)
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
        (0x0A000001, 0x0A000002) if "6" not in lower else (f.V6.values["src"], f.V6.values["dst"])
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
        for each in wrong:
            quick = reader.read(each, 0, 0)
            assert quick is None or quick == long_way(each)


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
    seen = seen_of(decode(data[:90], length=len(data)), data[:90], 0, 0)
    assert (seen.size, seen.content, seen.ses) == (-1, None, None)
    assert seen.head.psn == 7
    assert seen.packet is not None


def test_usual_packets_are_counted_whichever_way_they_take() -> None:
    data = f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE)
    reader = taught([data])
    reader.read(data, 0, 0)
    [(kind, number)] = reader.counts.items()
    assert kind == (("ethernet", "ipv4", "udp", "pds.rud_req", "ses.request_std.som"), "crc32c")
    assert number == 6


def test_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.audit.quick._MOST", 2)
    frames = [f.frame(f.MAC, f.changed(f.V4, dscp=dscp), f.UDP, f.ACK, f.RESPONSE, payload=b"") for dscp in range(9)]
    reader = taught(frames)
    assert len(reader._by_shape) <= 2
    for data in frames:
        seen = reader.read(data, 0, 0)
        assert seen is None or seen == long_way(data)
