# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the codec for `uetproto bench`: each row compares the library with Scapy at the same work.

Both sides get the same frames, or make packets with the same bytes, which is checked first. Scapy is used in the form
in which it is fastest (`frames.ScapyPackets`); its layers above UDP are those of `uetproto.layers`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from uetproto import LocalError, Packet, decode, encode
from uetproto.bench.frames import ScapyPackets, fields_of, mixed, mixed_roce, request, roce_write, without_crc
from uetproto.bench.ratio import BenchResult, by_turns
from uetproto.wire.capture.pcap import PcapWriter

_PAYLOAD = 4096


def decoding(frames: int, seconds: float) -> Iterator[BenchResult]:
    """Yield how many frames per second the library and Scapy decode. Both decode the fields of all headers, and check
    the CRC32C."""
    one, many = encode(request(_PAYLOAD), fill=True), mixed(frames)
    for what, data, least in (
        (f"a frame of {len(one)} bytes to values, CRC checked", [one], 30),
        (f"{frames:,} frames of mixed traffic, CRC checked", many, 30),
    ):
        ours, theirs = _decoded(data, seconds, fields_of)
        yield BenchResult("decode", what, ours, "Ether(bytes)", theirs, least)


def decoding_roce(frames: int, seconds: float) -> Iterator[BenchResult]:
    """Yield how many RoCE frames per second the library and Scapy decode. Both decode the fields of all headers, and
    check the ICRC."""
    from uetproto.layers import RoceIcrc, bind_roce, unbind_roce

    def fields_and_icrc(packet: Any) -> object:
        if not packet[RoceIcrc].ok:
            raise LocalError("bench: Scapy finds an ICRC wrong", id="bench-failed")
        return fields_of(packet)

    one, many = encode(roce_write(_PAYLOAD), fill=True), mixed_roce(frames)
    bind_roce()
    for what, data, least in (
        (f"RoCE: a WRITE of {len(one)} bytes to values, ICRC checked", [one], 25),
        (f"RoCE: {frames:,} frames of mixed traffic, ICRC checked", many, 25),
    ):
        ours, theirs = _decoded(data, seconds, fields_and_icrc)
        yield BenchResult("roce", what, ours, "Ether(bytes), ok", theirs, least)
    unbind_roce()


def _decoded(frames: Sequence[bytes], seconds: float, read: Callable[[Any], object]) -> tuple[float, float]:
    """Return the frames per second that the library decodes, and those that Scapy dissects and `read` reads."""
    from scapy.layers.l2 import Ether

    from uetproto.layers.base import FormLayer

    for frame in frames[:1000]:
        packet, other = decode(frame), Ether(frame)
        upper = [dict(layer.values) for layer in packet.layers if layer.form not in ("ethernet", "ipv4", "ipv6", "udp")]
        found = [layer.sent_values() for layer in other.iterpayloads() if isinstance(layer, FormLayer)]
        if upper != found or packet.trailer is None or not packet.trailer.ok:
            raise LocalError("bench: Scapy dissects a frame otherwise than we do", id="bench-failed")

    def ours() -> None:
        for frame in frames:
            [layer.values for layer in decode(frame).layers]

    def theirs() -> None:
        for frame in frames:
            read(Ether(frame))

    rates = by_turns(ours, theirs, seconds)
    return rates[0] * len(frames), rates[1] * len(frames)


def encoding(seconds: float) -> Iterator[BenchResult]:
    """Yield the rates at which packets of 4 KiB are encoded. One rate includes the time to make the packets. Other
    rates are for packets that exist already: complete packets, and packets with missing fields, which the encoder
    fills."""
    yield from _encoded("encode", "", lambda: request(_PAYLOAD), seconds, (20, 15, 12))
    some, complete = request(_PAYLOAD), decode(encode(request(_PAYLOAD), fill=True))
    ours, whole = by_turns(lambda: encode(some, fill=True), lambda: encode(complete, fill=True), seconds)
    yield BenchResult("encode", "a partial packet, the other fields filled", ours, "the complete one", whole, 0.5)


def encoding_roce(seconds: float) -> Iterator[BenchResult]:
    """Yield the rates at which RoCE packets of 4 KiB are encoded. One rate includes the time to make the packets. The
    other rates are for packets that exist already."""
    yield from _encoded("roce", "RoCE: ", lambda: roce_write(_PAYLOAD), seconds, (15, 10, 8))


def _encoded(
    name: str, prefix: str, make: Callable[[], Packet], seconds: float, least: tuple[float, float, float]
) -> Iterator[BenchResult]:
    from scapy.layers.l2 import Ether

    frame = encode(make(), fill=True)
    complete = decode(frame)
    scapy = ScapyPackets(complete)
    existing, dissected = scapy.make(), Ether(frame)
    dissected.clear_cache()  # otherwise it would return the bytes that it was dissected from
    rows: tuple[tuple[str, Callable[[], bytes], str, Callable[[], bytes]], ...] = (
        ("made and encoded, CRC computed", lambda: encode(make(), fill=True), "fields set, built", scapy.encode),
        ("existing, CRC computed", lambda: encode(complete, fill=True), "build()", existing.build),
        ("existing, all fields kept", lambda: encode(complete), "clear_cache(), build()", dissected.build),
    )
    for (what, ours, baseline, theirs), required in zip(rows, least, strict=True):
        if not ours() == theirs() == frame:
            raise LocalError("bench: Scapy builds another frame than ours", id="bench-failed")
        rates = by_turns(ours, theirs, seconds)
        text = f"{prefix}a packet of {len(frame)} bytes, {what}"
        yield BenchResult(name, text, rates[0], baseline, rates[1], required)


def writing(packets: int, seconds: float, folder: Path) -> Iterator[BenchResult]:
    """Yield the rates at which a pcap file with nanoseconds is written: first from encoded frames, then from packets
    that must be encoded."""
    from scapy.utils import RawPcapWriter

    frame = encode(request(0, crc=False), fill=True)
    complete = decode(frame)
    existing = ScapyPackets(complete).make()
    frames, times = [frame] * packets, range(packets)
    ours, theirs = folder / "ours.pcap", folder / "scapy.pcap"

    def bytes_to_bytes() -> None:
        with PcapWriter(ours) as writer:
            writer.write_many(times, frames)

    def packets_to_bytes() -> None:
        with PcapWriter(ours) as writer:
            for time in times:
                writer.write(time, encode(complete, fill=True))

    def scapy(data: Callable[[], Iterable[bytes]]) -> None:
        writer = RawPcapWriter(str(theirs), linktype=1, nano=True, endianness="<", bufsz=1 << 20)
        writer.write_header(None)
        write = writer.write_packet
        for time, frame in zip(times, data(), strict=True):
            write(frame, sec=0, usec=time, caplen=len(frame), wirelen=len(frame))
        writer.close()

    rows: tuple[tuple[str, Callable[[], None], Callable[[], Iterable[bytes]], float], ...] = (
        ("frames of 98 bytes to a pcap", bytes_to_bytes, lambda: frames, 2),
        ("packets of 98 bytes, encoded to a pcap", packets_to_bytes, lambda: (existing.build() for _ in times), 12),
    )
    for what, function, data, least in rows:
        with without_crc():
            function()
            scapy(data)
            if ours.read_bytes()[_FILE_HEADER:] != theirs.read_bytes()[_FILE_HEADER:]:
                raise LocalError("bench: Scapy writes another capture than ours", id="bench-failed")
            rates = by_turns(function, partial(scapy, data), seconds)
        yield BenchResult("write", what, rates[0] * packets, "RawPcapWriter", rates[1] * packets, least)


_FILE_HEADER = 24
"""Size of the header of a pcap file in bytes, in which the two differ by the snap length."""
