# SPDX-License-Identifier: GPL-2.0-only
"""Pairs of captures whose differences are known: the same traffic retimed, with other numbers, or with one change.

What is a PSN or a PDCID is said here anew, so that a mistake of `uetproto.diff` is not repeated.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from uetproto import Packet, decode
from uetproto.wire.capture.pcap import Record
from uetproto.wire.flow_crc import decoded
from uetproto.wire.forms import FORMS, ROCE_PORT
from uetproto.wire.mutate.frame import open_frame

LEFT_OUT = {"ipv4.checksum", "ipv4.identification", "udp.sport", "udp.dport", "udp.checksum", "entropy.entropy",
            "pds.cc_state.nscc.service_time"}  # fmt: skip


class Frame(NamedTuple):
    """A record of a capture."""

    time_ns: int
    data: bytes


class Known(NamedTuple):
    """The difference that a pair has: how many packets, and of a changed one the field."""

    missing: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    moved: int = 0
    changed: tuple[tuple[int, str], ...] = ()


class Seen(NamedTuple):
    """A packet as `uetproto.diff.diff` takes it."""

    number: int
    interface: str
    time_ns: int
    data: bytes
    packet: Packet


class Frames(list[Frame]):
    """A capture in memory, which gives its packets as often as wanted."""

    def packets(self) -> Iterator[Seen]:
        records = [Record(at, one.time_ns, one.data, len(one.data), 0, 1, 0, None) for at, one in enumerate(self)]
        for record, packet in decoded(records, lambda record, crc: decode(record.data, crc=crc)):
            yield Seen(record.index + 1, "", record.time_ns, record.data, packet)


class Again:
    """What iterates a capture anew each time."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[Seen]:
        return self._frames.packets()


# No difference --------------------------------------------------------------------------------------------------------


def retimed(frames: Frames, rng: Random) -> Frames:
    """Return the frames at another time, with other distances between them, and with other source ports."""
    now, found = rng.getrandbits(60), Frames()
    for one in frames:
        now += rng.randrange(5_000)
        found.append(Frame(now, one.data))
    return found


def renumbered(frames: Frames, rng: Random) -> Frames:
    """Return the frames with other PDCIDs, queue pairs, PSNs and entropies, and the CRCs of these."""
    by_host: dict[object, int] = {}
    by_pair: dict[object, int] = {}
    salt = rng.getrandbits(60)

    def other_id(host: int, value: int, bits: int) -> int:
        if not value or value in ((1 << bits) - 1, 1):  # unknown; everybody; management
            return value
        step = by_host.setdefault((host, bits), Random(f"{salt}{host}").randrange(1 << bits - 4))
        return (value - 2 + step) % ((1 << bits) - 3) + 2

    def other_psn(src: int, dst: int, value: int, bits: int) -> int:
        step = by_pair.setdefault(frozenset((src, dst)), Random(f"{salt}{sorted((src, dst))}").getrandbits(32))
        return value + step & (1 << bits) - 1

    found = Frames()
    for time_ns, data in frames:
        frame = open_frame(data, "ethernet", ROCE_PORT)
        if frame is None:
            found.append(Frame(time_ns, data))
            continue
        src = dst = 0
        for at, (form, values, _) in enumerate(frame.packet.layers):
            if form in ("ipv4", "ipv6"):
                src, dst = values["src"], values["dst"]
            changes: dict[str, int] = {}
            if form == "udp":
                changes["sport"] = rng.getrandbits(16) | 0xC000
            if form == "entropy":
                changes["entropy"] = rng.getrandbits(16)
            if form == "bth":
                changes = {"destqp": other_id(dst, values["destqp"], 24), "psn": other_psn(src, dst, values["psn"], 24)}
            elif form == "deth":
                changes = {"srcqp": other_id(src, values["srcqp"], 24)}
            elif form.startswith(("pds.", "ses.")):
                changes |= _of_uet(form, values, lambda psn: other_psn(src, dst, psn, 32))  # noqa: B023
                for name, host in (("spdcid", src), ("dpdcid", dst)):
                    if name in values:
                        changes[name] = other_id(host, values[name], 16)
            for name, value in changes.items():
                data = frame.changed(at, name, value).frame
                again = open_frame(data, "ethernet", ROCE_PORT)
                assert again is not None, (form, name)
                frame = again
        found.append(Frame(time_ns, data))
    return found


def _of_uet(form: str, values: Any, psn: Any) -> dict[str, int]:
    names = ["psn", "cack_psn", "nack_psn", "expected_psn", "original_request_psn", "pkt_id", "nack_pkt_id"]
    if values.get("ctl_type") in (2, 3, 6):  # CLEAR_CMD, CLEAR_REQ, PROBE
        names.append("ctl_payload")
    if values.get("ctl_type") in (2, 3, 7, 8):  # which have no PSN: the two of clear, CREDIT, CREDIT_REQ
        names.remove("psn")
    if "nack_psn" in values and values["nack_code"] in (0x0D, 0x17):  # ROD_OOO, NEW_START_PSN
        names.append("nack_payload")
    return {name: psn(values[name]) for name in names if name in values}


# One difference -------------------------------------------------------------------------------------------------------


def changed(frames: Frames, rng: Random) -> tuple[Frames, Known]:
    """Return the frames with one field of one of them changed, and its checksum and CRC corrected."""
    while True:
        number = rng.randrange(len(frames))
        frame = open_frame(frames[number].data, "ethernet", ROCE_PORT)
        if frame is None:
            continue
        places = [
            (at, name, FORMS[layer.form][name].bits)
            for at, layer in enumerate(frame.packet.layers)
            for name in (FORMS[layer.form].names if layer.form in FORMS else ())
            if f"{layer.form}.{name}" not in LEFT_OUT
        ]
        at, name, bits = rng.choice(places)
        field = frame.field(at, name)
        before = frame.value(at, name)
        after = (before & (1 << bits) - 1) ^ 1 << rng.randrange(bits)
        if field.signed and after >> bits - 1:
            after -= 1 << bits
        mutated = frame.changed(at, name, after).frame
        if any(one.data[42:-4] == mutated[42:-4] for one in frames):
            continue  # it is now a copy of another one: nobody can tell which was changed
        found = Frames(frames)
        found[number] = Frame(frames[number].time_ns, mutated)
        return found, Known(changed=((number + 1, f"{frame.packet.layers[at].form}.{name}"),))


def flipped(frames: Frames, rng: Random) -> tuple[Frames, Known]:
    """Return the frames with one bit of the payload of one of them changed, and its CRC corrected."""
    while True:
        number = rng.randrange(len(frames))
        frame = open_frame(frames[number].data, "ethernet", ROCE_PORT)
        if frame is None or not frame.packet.payload:
            continue
        at = frame.packet.payload_offset + rng.randrange(len(frame.packet.payload))
        found = Frames(frames)
        found[number] = Frame(frames[number].time_ns, frame.flipped(at, rng.randrange(8)).frame)
        return found, Known(changed=((number + 1, "payload"),))


def spoilt(frames: Frames, rng: Random) -> tuple[Frames, Known]:
    """Return the frames, of which one has a wrong CRC."""
    while True:
        number = rng.randrange(len(frames))
        frame = open_frame(frames[number].data, "ethernet", ROCE_PORT)
        if frame is None or frame.packet.trailer is None:
            continue
        data = bytearray(frames[number].data)
        frame.put_crc(data, frame.packet.trailer.value ^ 1 << rng.randrange(32))
        found = Frames(frames)
        found[number] = Frame(frames[number].time_ns, bytes(data))
        return found, Known(changed=((number + 1, "trailer"),))


def removed(frames: Frames, rng: Random) -> tuple[Frames, Known]:
    """Return the frames without one of them."""
    number = rng.randrange(len(frames))
    return Frames([*frames[:number], *frames[number + 1 :]]), Known(missing=(number + 1,))


def duplicated(frames: Frames, rng: Random) -> tuple[Frames, Known]:
    """Return the frames, of which one comes again, at once or later."""
    number = rng.randrange(len(frames))
    behind = min(len(frames), number + 1 + rng.choice((0, 0, 1, 5, 20)))
    return Frames([*frames[:behind], frames[number], *frames[behind:]]), Known(extra=(behind + 1,))


def reordered(frames: Frames, rng: Random) -> tuple[Frames, Known]:
    """Return the frames, of which one comes later, behind at least one other of its conversation and direction."""
    streams = [_stream(one.data) for one in frames]
    while True:
        number = rng.randrange(len(frames))
        later = [
            at for at in range(number + 1, min(number + 60, len(frames)))
            if streams[at] == streams[number] and frames[at].data[42:-4] != frames[number].data[42:-4]
        ]  # fmt: skip
        if not later or streams[number] is None:
            continue
        behind = rng.choice(later[:4])
        if any(frames[at].data[42:-4] == frames[number].data[42:-4] for at in range(len(frames)) if at != number):
            continue  # which of equal frames was moved, nobody can tell
        moved = [*frames[:number], *frames[number + 1 : behind + 1], frames[number], *frames[behind + 1 :]]
        return Frames(moved), Known(moved=1)


def _stream(data: bytes) -> object:
    packet = decode(data)
    ends = tuple((values["src"], values["dst"]) for form, values, _ in packet.layers if form in ("ipv4", "ipv6"))
    for form, values, _ in packet.layers:
        if form == "bth":
            return ends, values["destqp"]
        if form.startswith("pds."):
            return ends, form[:8] if "rud" in form and "spdcid" not in values else values.get("spdcid")
    return None


NONE = (retimed, renumbered)
ONE = (changed, changed, changed, flipped, spoilt, removed, duplicated, reordered)


def pairs(frames: Frames, count: int, seed: int) -> Iterator[tuple[str, Frames, Known]]:
    """`count` captures beside `frames`, each with what was done to it, and the difference that it has."""
    for number in range(count):
        rng = Random(f"{seed} {number}")
        other, known, told = frames, Known(), []
        for none in NONE:
            if rng.random() < 0.6:
                other = none(other, rng)
                told.append(none.__name__)
        if number % 4:
            one = ONE[rng.randrange(len(ONE))]
            other, known = one(other, rng)
            told.append(one.__name__)
        yield f"{number} {' '.join(told)} {known}", other, known
