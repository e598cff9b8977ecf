# SPDX-License-Identifier: GPL-2.0-only
"""Whether a packet ends with a CRC32C, where its own headers do not tell: the other packets of its flow do."""

from collections.abc import Iterator

import pytest

from tests.support.audit import frames as f
from uetproto import Packet, decode, encode
from uetproto.wire.capture.pcap import ETHERNET, Record
from uetproto.wire.flow_crc import PATIENCE, decoded
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS


def first(psn: int = 7, *, crc: bool = True, size: int = 4096, src: int = 0x0A000001) -> bytes:
    """The first packet of a longer message: its headers do not say how much it carries."""
    headers = (f.MAC, f.changed(f.V4, src=src), f.UDP, f.changed(f.REQUEST, psn=psn), f.FIRST)
    return f.frame(*headers, payload=bytes(size), trailer=f.CRC if crc else None)


def records(frames: list[bytes]) -> list[Record]:
    return [Record(number, number, data, len(data), 0, ETHERNET, 0, None) for number, data in enumerate(frames)]


def alone(record: Record, crc: str) -> Packet:
    return decode(record.data, crc=crc, length=record.length)


def verdicts(frames: list[bytes], *, pipe: bool = False) -> list[bool | None]:
    """Whether the CRC of each packet is right; None for a packet without."""
    found = list(decoded(records(frames), alone, pipe=pipe))
    assert [record.index for record, _ in found] == list(range(len(frames)))
    assert all(encode(packet) == record.data for record, packet in found)
    return [packet.trailer and packet.trailer.ok for _, packet in found]


@pytest.mark.parametrize("mtu", PAYLOAD_MTUS)
def test_a_lone_wrong_crc_is_suspected(mtu: int) -> None:
    for _ in range(20):  # also where the shape was compiled
        packet = decode(f.spoilt(first(size=mtu)))
        assert (packet.trailer, len(packet.payload), packet.notes) == (None, mtu + 4, ("crc-suspect",))
        assert decode(first(size=mtu)).notes == ()
        assert decode(first(size=mtu, crc=False)).notes == ()


def test_what_is_no_payload_mtu_and_4_bytes_is_not_suspected() -> None:
    told = f.frame(
        *f.LOWER["ipv4"], f.REQUEST, f.changed(f.WRITE, request_length=4100), payload=bytes(4100), trailer=None
    )
    for data in (told, first(size=4099, crc=False), first(size=2044, crc=False)):
        assert decode(data).notes == ()
    for crc in ("on", "off"):
        assert decode(f.spoilt(first()), crc=crc).notes == ()


@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("at", [0, 1, 9, 19])
def test_a_flipped_bit_shows_wherever_the_flow_has_a_crc(at: int, pipe: bool) -> None:
    frames = [first(psn) for psn in range(20)]
    frames[at] = f.spoilt(frames[at])
    assert verdicts(frames, pipe=pipe) == [number != at for number in range(20)]


def test_a_flow_without_crc_has_none_and_its_neighbour_has() -> None:
    without = [first(psn, crc=False, src=0x0A000009) for psn in range(10)]
    assert verdicts(without) == [None] * 10
    mixed = [
        frame for psn, one in enumerate(without) for frame in (one, f.spoilt(first(psn)) if psn < 3 else first(psn))
    ]
    assert verdicts(mixed) == [None, False, None, False, None, False] + [None, True] * 7


def test_a_suspect_stays_one_where_no_packet_of_its_flow_tells() -> None:
    frames = [f.spoilt(first(psn)) for psn in range(3)]
    assert [packet.notes for _, packet in decoded(records(frames), alone)] == [("crc-suspect",)] * 3
    flow = [*frames, first(3)]
    assert [packet.notes for _, packet in decoded(records(flow), alone)] == [()] * 4


@pytest.mark.parametrize("other", [None, 0x0A000009], ids=["one flow", "a flow with CRCs behind one without"])
def test_a_pipe_holds_back_16_packets_of_a_flow(other: int | None) -> None:
    read = 0

    def source() -> Iterator[Record]:
        nonlocal read
        for record in records(frames):
            read += 1
            yield record

    frames = [first(psn, crc=False) for psn in range(40)]
    if other is not None:
        frames = [first(0, src=other), frames[0], *(first(psn, src=other) for psn in range(40))]
    held = [read - record.index for record, _ in decoded(source(), alone, pipe=True)]
    assert max(held) == PATIENCE + (other is not None)  # the packet of the other flow, too
    assert held[-1] == 1


@pytest.mark.parametrize(("pipe", "there"), [(False, [False] * 40 + [True]), (True, [None] * 40 + [True])])
def test_a_file_waits_longer_for_a_right_crc(pipe: bool, there: list[bool | None]) -> None:
    flow = [*(f.spoilt(first(psn)) for psn in range(40)), first(40)]
    assert verdicts(flow, pipe=pipe) == there


def test_what_is_held_from_a_file_is_bounded() -> None:
    frames = [first(0, crc=False, size=24), *[first(psn, src=0x0A000009, size=24) for psn in range(2)] * 3000]
    source = iter(records(frames))
    next(decoded(source, alone))
    assert len(list(source)) >= 1900
