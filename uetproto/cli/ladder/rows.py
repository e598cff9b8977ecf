# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the rows of a message sequence chart: an arrow for a packet, one row for a run of similar packets,
and one row for a pause."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from uetproto import Packet
from uetproto.analysis.decoding import Decoding
from uetproto.cli.ladder.details import LadderDetails
from uetproto.errors import argument
from uetproto.impair.frame_outcome import FrameOutcome
from uetproto.wire.capture.pcap import CaptureInterface, CaptureReader, Record
from uetproto.wire.headers.roce import RESPONSES, Transport
from uetproto.wire.serial import add32
from uetproto.wire.words.summary import count, hosts, pds_layer, ses_layer, summary, tone
from uetproto.wire.words.tenants import Tenants
from uetproto.wire.words.uet import cc_words

TONES = {
    # tone       style on a terminal, in words
    "data":    ("",        "request or data"),
    "ack":     ("green",   "ACK, response"),
    "control": ("cyan",    "control packet"),
    "retx":    ("yellow",  "retransmission"),
    "trimmed": ("magenta", "trimmed"),
    "nack":    ("red",     "NACK"),
    "lost":    ("red",     "lost on the way"),
    "bad":     ("alarm",   "malformed, CRC or ICV error"),
    "other":   ("dim",     "other"),
}  # fmt: skip

_FATES: dict[str | None, tuple[str, str]] = {
    # comment of the record  tone       mark
    FrameOutcome.LOST:              ("lost",    " [lost]"),
    FrameOutcome.TRIMMED:           ("trimmed", " [trimmed on the way]"),
    FrameOutcome.DAMAGED:           ("bad",     " [damaged on the way]"),
}  # fmt: skip
"""Category (a key of `TONES`) and mark of an arrow, by the comment that `uetproto run` writes about a captured frame.
Only pcapng has such comments."""

Host = tuple[int, int]
"""Type of a host: its IP address as a number, and the number of bits of the address, 32 or 128. A place between hosts
has `PLACE_BITS` in place of these."""
PLACE_BITS = 0

# Rows -----------------------------------------------------------------------------------------------------------------


class Sighting(NamedTuple):
    """This record is a copy of a packet: where, when, and what had happened to it."""

    place: str
    time_ns: int
    number: int
    """Number of the packet in the capture, counted from 1."""
    tone: str
    is_marked: bool
    """Whether the copy has an ECN mark."""


@dataclass(slots=True)
class Arrow:
    """This row is the arrow of one packet. Consecutive packets with an equal `like` may be drawn together as one
    row."""

    index: int
    time_ns: int  # since the first packet
    src: Host
    dst: Host
    tone: str
    text: str
    psn: int | None
    like: object
    marked: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    """Values that stand beside the arrow, by the names of `details.COLUMNS`."""
    why: str = ""
    """Why the packet was sent, with the section that says so."""
    place: str = ""
    """Name of the interface."""
    same: object = None
    """What the copies of the packet at other interfaces have in common."""
    via: tuple[Host, ...] = ()
    """Places between hosts where the packet was seen, in order."""
    seen: tuple[Sighting, ...] = ()
    """Copies of the packet, in the order of its way."""
    count: int = 1
    """Number of packets that the arrow stands for."""


@dataclass(slots=True)
class More:
    """This row stands for `count` further packets like that of the arrow before it. `psns` holds the first and the last
    PSN of these packets if their PSNs are consecutive, otherwise None."""

    count: int
    src: Host
    dst: Host
    tone: str
    psns: tuple[int, int] | None

    @property
    def text(self) -> str:
        return f"{self.count} more" + (f", PSN {self.psns[0]}–{self.psns[1]}" if self.psns else "")


@dataclass(slots=True)
class Pause:
    """This row stands for a time without packets."""

    ns: int


Row = Arrow | More | Pause


@dataclass(slots=True)
class LadderTally:
    """This class counts the packets that were not drawn, by cause, and the rows that were drawn."""

    malformed: int = 0
    other_packets: int = 0  # packets that are neither UET nor RoCE, or have no addresses, such as PFC
    elsewhere: int = 0  # packets of other interfaces
    marked: set[int] = field(default_factory=set)  # packets that are drawn as marked, on request
    drawn: int = 0  # rows that were drawn, without pauses
    cut: bool = False  # whether the limit of rows was reached


def not_drawn(tally: LadderTally, none: str) -> Iterator[str]:
    """Yield what a ladder leaves out, in words; `none` says that no packet was drawn."""
    if not tally.drawn and not tally.cut:
        yield none
    if tally.other_packets:
        yield f"not drawn: {count(tally.other_packets, 'packet')} without UET or RoCE between IP addresses"
    if tally.elsewhere:
        yield f"not drawn: {count(tally.elsewhere, 'packet')} of other interfaces ({argument('interface')})"


@dataclass(slots=True)
class LadderChoice:
    """This class selects the packets to draw, which all belong to one interface. If `interface` is None, they belong to
    the first interface of the capture."""

    interface: str | None = None
    pdc: int | None = None
    numbers: Sequence[range] | None = None
    marks: Collection[int] = frozenset()
    """Numbers of packets that are always drawn, each as a row of its own, even if `pdc` and `numbers` exclude them."""
    wanted: Sequence[int] | None = None
    """Items that are not 0 for packets that a filter wants, by their index, or None if there is no filter."""
    merged: bool = False
    """Whether packets of all interfaces are drawn."""
    details: LadderDetails | None = None
    """What tells of each arrow what the packets before it say."""

    @property
    def end(self) -> int | None:
        """Return the number that follows the last packet to be drawn, or None if packets are drawn to the end of the
        capture."""
        if self.numbers is None:
            return None
        return max([*(span.stop for span in self.numbers), *(number + 1 for number in self.marks)])

    def covers(self, number: int) -> bool:
        if number in self.marks:
            return True
        if self.wanted is not None and not (number < len(self.wanted) and self.wanted[number]):
            return False
        return self.numbers is None or any(number in span for span in self.numbers)


class LadderConversation:
    """This class selects the packets of a PDC or a queue pair, by its number.

    A RoCE packet names the destination queue pair, and only a datagram (UD) also names the source queue pair. Answers
    are therefore found by their UDP source port. Many implementations derive this port from the numbers of both queue
    pairs. The port is then equal in both directions (roce.md §1).
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._back: set[tuple[int, int, int]] = set()

    def has(self, packet: Packet) -> bool:
        if "bth" in packet:
            return self._is_of_queue_pair(packet)
        layer = pds_layer(packet)
        return layer is not None and self._number in (layer.values.get("spdcid"), layer.values.get("dpdcid"))

    def _is_of_queue_pair(self, packet: Packet) -> bool:
        is_to = packet["bth"]["destqp"] == self._number
        ends = hosts(packet)
        if ends is not None and "udp" in packet and packet["bth"]["opcode"] >> 5 == Transport.RC:
            src, dst, _ = ends
            port = next(layer.values["sport"] for layer in reversed(packet.layers) if layer.form == "udp")
            if is_to and len(self._back) < _MOST_ENDS:
                self._back.add((dst, src, port))
            elif (src, dst, port) in self._back:
                return True
        return is_to or ("deth" in packet and packet["deth"]["srcqp"] == self._number)


class RecordSource(Protocol):
    """This protocol describes records of a capture, or of an interface while they arrive, and their interfaces."""

    @property
    def interfaces(self) -> Sequence[CaptureInterface]: ...

    def __iter__(self) -> Iterator[Record]: ...


def arrows(
    file: str, reader: RecordSource, decoding: Decoding, choice: LadderChoice, tally: LadderTally
) -> Iterator[Arrow]:
    """Yield an arrow for each UET or RoCE packet of `file` that `choice` selects, and count in `tally` the packets that
    are not drawn."""
    chosen: dict[int, bool] = {}
    latest: dict[object, int] = {}
    tenants = Tenants()
    start_ns = None
    conversation = None if choice.pdc is None else LadderConversation(choice.pdc)
    end = choice.end

    def records() -> Iterator[Record]:
        for record in reader:
            number, past = record.interface, 0 if end is None else record.index - end
            if past >= _PAST:
                return
            if number not in chosen:
                named = choice.interface in (reader.interfaces[number].name, str(number))
                chosen[number] = choice.merged or (named if choice.interface is not None else number == 0)
            if chosen[number]:
                yield record
            elif past < 0 or end is None:
                tally.elsewhere += 1

    if isinstance(reader, CaptureReader):
        decoding = decoding._replace(reader=reader)
    for record, packet in decoding.packets(file, records()):
        if end is not None and record.index >= end:
            return
        packet, _ = decoding.opened(record, packet)
        ends = hosts(packet)
        columns: dict[str, str] = {}
        why = ""
        if choice.details is not None:
            columns, why = choice.details.take(packet, record.data, record.time_ns, record.index + 1, record.interface)
        is_part = conversation is None or conversation.has(packet)
        if not choice.covers(record.index):
            if ends is not None and "bth" in packet and tone(packet) != "bad":
                _is_repeated(latest, (*ends[:2], record.interface, tenants.of(packet.layers)), packet["bth"])
            continue
        if packet.error is not None and packet.error.kind == "malformed":
            tally.malformed += 1
        if ends is None or not _is_uet(packet):
            tally.other_packets += 1
            continue
        layer = pds_layer(packet)
        values = layer.values if layer else {}
        marked = record.index in choice.marks
        if not is_part and not marked:
            continue
        if marked:
            tally.marked.add(record.index)
        if start_ns is None:
            start_ns = record.time_ns
        src, dst, bits = ends
        tenant = tenants.of(packet.layers)
        bits |= tenant << 8
        fate = record.comment and record.comment.partition("; ")[0]  # further comments may follow
        kind, mark = _FATES.get(fate, (tone(packet), ""))
        like: object = record.index
        if kind != "bad" and "bth" in packet:
            values = packet["bth"]
            if _is_repeated(latest, (src, dst, record.interface, tenant), values) and kind == "data":
                kind = "retx"
            like = kind, values["opcode"], values["destqp"]
        elif kind != "bad":
            ses = ses_layer(packet)
            delivery = layer and (layer.form.removesuffix(".syn"), values.get("ctl_type"), values.get("spdcid"))
            like = kind, delivery, ses and (ses.values["opcode"], ses.values.get("return_code"))
        yield Arrow(
            record.index,
            record.time_ns - start_ns,
            (src, bits),
            (dst, bits),
            kind,
            " · ".join((summary(packet), *_congestion(packet))) + mark,
            values.get("psn"),
            record.index if marked else like,
            marked,
            columns,
            why,
            _place(reader, record.interface),
            (tenant, _same(packet, record.data)) if choice.merged else None,
        )


def _place(reader: RecordSource, number: int) -> str:
    """Return the name of an interface; of several captures that are merged, with the name of the file."""
    if getattr(reader, "is_merged", False):
        places: Sequence[str] = reader.places  # type: ignore[attr-defined]  # of `analysis.sources.MergedReader`
        return places[number]
    return reader.interfaces[number].name or str(number)


_SAME = 40  # bytes from the transport header on that copies of a packet share, also if a switch trims it


def _same(packet: Packet, data: bytes) -> object:
    """Return what the copies of a packet at several interfaces have in common."""
    at = next((one.offset for one in packet.layers if one.form.startswith(("pds.", "tss", "bth"))), 0)
    return hosts(packet), data[at : at + _SAME]


def _congestion(packet: Packet) -> Iterator[str]:
    """Yield the congestion control state of a packet in words, if it has any."""
    ccx_type = 0
    for form, values, _ in packet.layers:
        ccx_type = values.get("ccx_type", ccx_type)
        if form.startswith("pds.") and (words := cc_words(form, values, ccx_type)):
            yield words


def _is_repeated(latest: dict[object, int], ends: tuple[int, int, int, int], bth: Mapping[str, Any]) -> bool:
    """Return whether a packet of RC repeats an earlier one. It does so if its PSN is not beyond the latest PSN of its
    flow. `ends` are the addresses, the interface and the network."""
    if bth["opcode"] >> 5 != Transport.RC:
        return False
    flow, psn = (ends, bth["destqp"], bth["opcode"] & 0x1F in RESPONSES), bth["psn"]
    ahead = psn - latest.get(flow, psn - 1) & 0xFFFFFF
    if 0 < ahead < 1 << 23:
        latest[flow] = psn
        return False
    return True


def _is_uet(packet: Packet) -> bool:
    error = packet.error
    return error is None or any(layer.form.startswith(("pds.", "tss")) for layer in packet.layers)


_PAUSE = 100_000  # ns: a shorter time is no pause
_PAST = 1024  # packets behind the last one that is drawn, which tell whether its flow has a CRC
_MOST_ENDS = 65_536  # queue pairs whose source port is kept, to find answers
_SHORT = 5  # packets: a longer run of similar ones is drawn as one row
_PAUSE_RATIO = 10  # a pause is so many times longer than the mean time between packets


def rows(packets: Iterable[Arrow], collapse: bool = True) -> Iterator[Row]:
    """Yield the arrows and the pauses between them. If `collapse` is True, a long run of similar packets becomes its
    first arrow, a `More`, and its last arrow."""
    last_ns = gaps = total = 0
    run: _Run | None = None
    for arrow in packets:
        gap = arrow.time_ns - last_ns
        pause = gap >= _PAUSE and gap * gaps >= _PAUSE_RATIO * total
        if gap > 0 and not pause:
            gaps, total = gaps + 1, total + gap
        last_ns = arrow.time_ns
        if run and not pause and collapse and run.takes(arrow):
            run.add(arrow)
            continue
        if run:
            yield from run.end()
        if pause:
            yield Pause(gap)
        yield arrow
        run = _Run(arrow)
    if run:
        yield from run.end()


class _Run:
    """This class holds a run of similar arrows, whose first arrow is drawn already."""

    __slots__ = ("count", "first", "held", "in_order", "last")

    def __init__(self, first: Arrow) -> None:
        self.first = self.last = first
        self.held: list[Arrow] = []  # arrows after the first, as long as the run is short
        self.count = 1
        self.in_order = True  # whether the PSNs are consecutive

    def takes(self, arrow: Arrow) -> bool:
        return arrow.like == self.first.like and arrow.src == self.first.src and arrow.dst == self.first.dst

    def add(self, arrow: Arrow) -> None:
        before, after = self.last.psn, arrow.psn
        self.in_order = self.in_order and before is not None and after == add32(before, 1)
        self.count += 1
        self.last = arrow
        if self.count <= _SHORT:
            self.held.append(arrow)

    def end(self) -> Iterator[Row]:
        if self.count <= _SHORT:
            yield from self.held
            return
        hidden = self.count - 2
        psns = None
        if self.in_order and self.first.psn is not None:
            psns = add32(self.first.psn, 1), add32(self.first.psn, hidden)
        yield More(hidden, self.first.src, self.first.dst, self.first.tone, psns)
        yield self.last


def folded(packets: Iterable[Arrow], fewest: int = 3) -> Iterator[Row]:
    """Yield the arrows and the pauses between them. A run of at least `fewest` similar packets is one arrow:
    "12 × data"."""
    run: list[Arrow] = []
    for row in rows(packets, collapse=False):
        if isinstance(row, Arrow) and run and (row.like, row.src, row.dst) == (run[0].like, run[0].src, run[0].dst):
            run.append(row)
            continue
        yield from _folded(run, fewest)
        run = []
        if isinstance(row, Arrow):
            run = [row]
        else:
            yield row
    yield from _folded(run, fewest)


def _folded(run: list[Arrow], fewest: int) -> Iterator[Row]:
    if len(run) < fewest:
        yield from run
        return
    first, last = run[0], run[-1]
    text = first.text
    if first.psn is not None and last.psn == add32(first.psn, len(run) - 1):
        text = text.replace(f"PSN {first.psn}", f"PSN {first.psn}–{last.psn}", 1)
    marked = any(row.marked for row in run)
    yield replace(first, text=f"{len(run)} × {text}", columns=last.columns, marked=marked, count=len(run))


def limited(all_rows: Iterator[Row], limit: int | None, tally: LadderTally) -> Iterator[Row]:
    """Yield the first `limit` rows, or all rows if `limit` is None. Pauses do not count as rows."""
    for row in all_rows:
        if limit is not None and tally.drawn == limit:
            tally.cut = True
            return
        tally.drawn += not isinstance(row, Pause)
        yield row


# For programs ---------------------------------------------------------------------------------------------------------


def as_json(row: Row) -> str:
    """Return a row as one line of JSON."""
    if isinstance(row, Pause):
        shape: dict[str, Any] = {"row": "pause", "duration_ns": row.ns}
    else:
        ends = {"ip_version": 4 if row.src[1] == 32 else 6, "src": row.src[0], "dst": row.dst[0]}
        if isinstance(row, Arrow):
            shape = {"row": "packet", "index": row.index, "number": row.index + 1, "time_ns": row.time_ns, **ends}
        else:
            shape = {"row": "more", "count": row.count, **ends}
        shape |= {"tone": row.tone, "text": row.text}
        if isinstance(row, Arrow):
            shape |= {"marked": True} if row.marked else {}
            shape |= {"columns": dict(row.columns)} if row.columns else {}
            shape |= {"why": row.why} if row.why else {}
            shape |= {"count": row.count} if row.count > 1 else {}
            if row.seen:
                shape["seen"] = [{"place": one.place, "time_ns": one.time_ns, "number": one.number} for one in row.seen]
    return json.dumps(shape)  # ASCII, so that it is the same whatever the terminal can show
