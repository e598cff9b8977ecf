# SPDX-License-Identifier: GPL-2.0-only
"""The same packets in another wrapping, in another file, or cut off: what is found stays, and nothing comes to it."""

import io
import struct
from collections.abc import Callable, Iterable
from functools import cache

import pytest

from tests.support.audit.frames import GOLDEN
from tests.support.each import each
from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.wire.capture.pcap import ETHERNET, RAW, SLL, SLL2, PcapngWriter, Record, open_capture
from uetproto.wire.crc import CRC_SIZE, trailer_crc
from uetproto.wire.headers.ethernet import internet_checksum

PLAIN = Options()
STRICT = Options(complete=True, ordered=True)
CAPTURES = (
    "gradient-v6", "gradient-native-v6", "gradient-nocrc", "gradient-lossy", "gradient-sealed-direct", "incast-roce",
    "ladder-L29", "roce-fail-unaligned", "roce-v6", "ses-fail-amo-unsupported-op", "ses-read", "ses-rudi-write",
)  # fmt: skip
CUT = (
    "gradient", "gradient-native-v6", "incast-roce", "ladder-L30", "roce-fail-read-lost", "ses-compare-swap",
    "ses-fetching-atomic", "ses-read", "ses-rendezvous-tsend", "ses-rudi-read", "ses-small",
)  # fmt: skip
"""Headers of every size, and what a header that is cut off would have said."""
SNAPLENS = (14, 34, 40, 42, 44, 50, *range(54, 140, effort(24, 4, 4)), 99, 123, 200)
TIMES = effort(3, 6, 6)

Found = list[tuple[str, tuple[int, ...]]]
Wrap = Callable[[bytes], bytes]


@cache
def records(name: str) -> tuple[Record, ...]:
    with open_capture(GOLDEN / f"{name}.pcapng") as capture:
        return tuple(capture)


def written(records: Iterable[Record], link: int = ETHERNET) -> io.BytesIO:
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        writer.add_interface("", link)
        for record in records:
            writer.write(record.time_ns, record.data, length=record.length)
    file.seek(0)
    return file


def found(report: AuditReport) -> Found:
    return sorted((finding.rule.id, finding.packets) for finding in report.findings)


def judged(report: AuditReport) -> dict[str, tuple[int, int]]:
    return {name: (tally.asked, tally.judged) for name, tally in report.tallies.items()}


@cache
def usual(name: str, options: Options) -> AuditReport:
    return audit([GOLDEN / f"{name}.pcapng"], options)


# Wrapped --------------------------------------------------------------------------------------------------------------


def network_at(frame: bytes) -> int:
    """Where IP begins."""
    at = 14
    while frame[at - 2 : at] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    return at


def tagged(*tags: bytes) -> Wrap:
    return lambda frame: frame[:12] + b"".join(tags) + frame[12:]


def with_extension(kind: int, content: str) -> Wrap:
    """An IPv6 extension header; its first byte will be what followed."""
    body = bytes.fromhex(content)

    def wrap(frame: bytes) -> bytes:
        at = network_at(frame)
        if frame[at] >> 4 != 6:
            return frame
        following = frame[at + 6]
        size = int.from_bytes(frame[at + 4 : at + 6], "big") + len(body)
        head = frame[at : at + 4] + size.to_bytes(2, "big") + bytes([kind]) + frame[at + 7 : at + 40]
        behind = bytes([following]) + body[1:] + frame[at + 40 :]
        checksum = at + 40 + len(body) + 6 if following == 17 else None
        return with_crc(frame, frame[:at] + head + behind, at + 8, at + 46 if checksum else None, checksum)

    return wrap


def with_crc(before: bytes, after: bytes, start: int, old_checksum: int | None, checksum: int | None) -> bytes:
    """A right CRC32C, where there was one: it covers extension headers, too."""
    if trailer_crc(before, start, len(before) - CRC_SIZE, old_checksum) != int.from_bytes(before[-CRC_SIZE:], "big"):
        return after
    return after[:-CRC_SIZE] + trailer_crc(after, start, len(after) - CRC_SIZE, checksum).to_bytes(CRC_SIZE, "big")


WRAPS: dict[str, Wrap] = {
    "VLAN": tagged(b"\x81\x00\x00\x05"),
    "priority tag": tagged(b"\x81\x00\xe0\x00"),
    "two tags": tagged(b"\x88\xa8\x00\x05", b"\x81\x00\x00\x07"),
    "padded to 64": lambda frame: frame.ljust(64, b"\0"),
    "bytes behind": lambda frame: frame + b"\xa5\x5a\xff",
    "hop-by-hop": with_extension(0, "0000010400000000"),
    "destination options": with_extension(60, "0001010c" + "00" * 12),
    "whole in a fragment header": with_extension(44, "0000000000000007"),
}


EXTENSIONS = ("hop-by-hop", "destination options", "whole in a fragment header")
ICRCS_OF_V6: Found = [("ROCE-ICRC-CAPTURE", (0,)), ("ROCE-ICRC-CAPTURE", (3,))]
"""An ICRC covers the length and the next header of IPv6: behind an extension header, none is right."""


@each("name", CAPTURES)
@each("wrap", WRAPS)
def test_wrapped(wrap: str, name: str) -> None:
    for options in (PLAIN, STRICT):
        frames = [(record, WRAPS[wrap](record.data)) for record in records(name)]
        report = audit([written(one._replace(data=data, length=len(data)) for one, data in frames)], options)
        wrong = ICRCS_OF_V6 if name == "roce-v6" and wrap in EXTENSIONS else []
        assert found(report) == sorted([*found(usual(name, options)), *wrong])
        assert report.others == usual(name, options).others
        asked = {rule: number for rule, (number, _) in judged(report).items()}
        assert asked == {rule: number for rule, (number, _) in judged(usual(name, options)).items()}


def cooked(frame: bytes, link: int) -> bytes:
    """Without Ethernet, or with what Linux puts in its place."""
    at = network_at(frame)
    kind = frame[at - 2 : at]
    sll = bytes(4) + b"\x00\x06" + frame[6:12] + bytes(2) + kind
    sll2 = kind + bytes(2) + bytes(4) + b"\x00\x01\x00\x06" + frame[6:12] + bytes(2)
    return {RAW: b"", SLL: sll, SLL2: sll2}[link] + frame[at:]


@pytest.mark.parametrize("link", [RAW, SLL, SLL2])
@pytest.mark.parametrize("name", CAPTURES)
def test_other_link_types(name: str, link: int) -> None:
    frames = [(record, cooked(record.data, link)) for record in records(name)]
    report = audit([written((one._replace(data=data, length=len(data)) for one, data in frames), link)], STRICT)
    assert found(report) == found(usual(name, STRICT))
    assert judged(report) == judged(usual(name, STRICT))


# In another file ------------------------------------------------------------------------------------------------------


def pcap(name: str, order: str, unit: int) -> io.BytesIO:
    """`unit`: nanoseconds."""
    magic = 0xA1B2C3D4 if unit == 1000 else 0xA1B23C4D
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262_144, ETHERNET)]
    for record in records(name):
        seconds, rest = divmod(record.time_ns, 10**9)
        parts += [struct.pack(order + "IIII", seconds, rest // unit, len(record.data), record.length), record.data]
    return io.BytesIO(b"".join(parts))


def block(order: str, kind: int, body: bytes) -> bytes:
    size = struct.pack(order + "I", len(body) + -len(body) % 4 + 12)
    return struct.pack(order + "I", kind) + size + body + bytes(-len(body) % 4) + size


def pcapng(name: str, order: str, resolution: int) -> io.BytesIO:
    """`resolution`: as `if_tsresol` has it."""
    parts = [block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))]
    parts.append(block(order, 1, struct.pack(order + "HHIHHB3xHH", ETHERNET, 0, 0, 9, 1, resolution, 0, 0)))
    units = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    for record in records(name):
        time = record.time_ns * units // 10**9
        head = struct.pack(order + "IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(record.data), record.length)
        parts.append(block(order, 6, head + record.data))
    return io.BytesIO(b"".join(parts))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", CAPTURES)
def test_other_files(name: str, order: str) -> None:
    files = [pcap(name, order, 1), pcap(name, order, 1000)]
    files += [pcapng(name, order, resolution) for resolution in (6, 9, 12, 0x80 | 30)]
    for file in files:
        report = audit([file], STRICT)
        assert found(report) == found(usual(name, STRICT))
        assert judged(report) == judged(usual(name, STRICT))


# Not all of it --------------------------------------------------------------------------------------------------------


def often(name: str, snaplen: int) -> io.BytesIO:
    """The same connections several times, long after they were over: the quick way is taken as well."""
    cut = [record._replace(data=record.data[:snaplen]) for record in records(name)]
    return written(one._replace(time_ns=one.time_ns + 10**12 * again) for again in range(TIMES) for one in cut)


@pytest.mark.parametrize("options", [PLAIN, STRICT], ids=["plain", "complete"])
@pytest.mark.parametrize("name", CUT)
def test_cut_off(name: str, options: Options) -> None:
    whole = found(audit([often(name, 1 << 16)], options))
    for snaplen in SNAPLENS:
        extra = [one for one in found(audit([often(name, snaplen)], options)) if one not in whole]
        assert extra == [], snaplen


def fragments(record: Record, size: int = 512) -> list[Record]:
    data, at = record.data, network_at(record.data)
    body = data[at + 20 :]
    if data[at] != 0x45 or len(body) <= size:
        return [record]
    parts = []
    for offset in range(0, len(body), size):
        part = body[offset : offset + size]
        more = 0x2000 if offset + size < len(body) else 0
        head = bytearray(data[at : at + 20])
        head[2:4] = (20 + len(part)).to_bytes(2, "big")
        head[6:8] = (more | offset // 8).to_bytes(2, "big")
        head[10:12] = bytes(2)
        head[10:12] = internet_checksum(bytes(head)).to_bytes(2, "big")
        frame = data[:at] + bytes(head) + part
        parts.append(record._replace(data=frame, length=len(frame)))
    return parts


@pytest.mark.parametrize("name", ["ses-medium", "ses-rudi-write", "ses-sync-write"])
def test_fragments(name: str) -> None:
    """Nobody puts them together: what they say was not seen, and a capture with them is not complete."""
    parts = [part for record in records(name) for part in fragments(record)]
    assert len(parts) > len(records(name))
    assert found(audit([written(parts)], PLAIN)) == []
    report = audit([written(parts)], STRICT)
    assert found(report) == []
    whole = usual(name, STRICT)
    assert sum(tally.not_judged["headers are cut off"] for tally in report.tallies.values()) > 0
    assert sum(tally.not_judged["headers are cut off"] for tally in whole.tallies.values()) == 0


ABSENT = "PDS-ACK-UNSENT"


def without_requests() -> list[Record]:
    """An ACK whose requests are not there: wrong, if nothing is missing."""
    return [record for record in records("ses-medium") if record.index not in range(2, 8)]


def test_what_is_missing_is_a_finding_where_nothing_is_missing() -> None:
    assert ABSENT in {rule for rule, _ in found(audit([written(without_requests())], STRICT))}
    assert found(audit([written(without_requests())], PLAIN)) == []


def test_a_damaged_capture_is_not_complete() -> None:
    data = written(without_requests()).getvalue()
    report = audit([io.BytesIO(data[:-7])], STRICT)
    assert {rule for rule, _ in found(report)} == {"CAP-DAMAGED"}
    assert report.tallies[ABSENT].not_judged["the capture is damaged"] > 0
    assert report.tallies[ABSENT].failed == 0
