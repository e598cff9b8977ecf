# SPDX-License-Identifier: GPL-2.0-only
"""This fuzzer feeds mutated bytes to all code that takes bytes from outside: decoder, capture readers, engines.

A `FuzzTarget` runs one input and returns what occurred: names of headers, reasons of errors, counters, states. An
input at which something occurs for the first time joins the corpus from which the next inputs are made. The search
thus reaches new code without measuring the code that runs. An exception is a finding, and so is an input that takes
too long. The command of this fuzzer is `tools/fuzz`. Frames of RoCE have a target of their own, in
`check/roce/bytes.py`.
"""

import re
import struct
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from operator import attrgetter
from random import Random
from typing import ClassVar

from uetproto.check.shrink import shrink as fewer_steps
from uetproto.check.time_limit import time_limit
from uetproto.engine.config import PERSONALITIES, PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, AskClose, Close, Datagram, Mode, Trim, Write
from uetproto.engine.fep import Fep
from uetproto.engine.memory import BufferMemory, Region
from uetproto.engine.pds.messages import parse
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.service import Counters
from uetproto.engine.pds.states import Role
from uetproto.errors import LocalError
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.forms import FORMS, IP_PROTOCOL, ROCE_PORT, UDP_PORT
from uetproto.wire.headers.uet_pds import CtlType, PdsType
from uetproto.wire.mutate.havoc import mutate_transport
from uetproto.wire.mutate.mutation import MUTATIONS
from uetproto.wire.packet import Packet
from uetproto.wire.serial import diff32
from uetproto.wire.stack import TRIMMED_DSCP, decode, encode
from uetproto.wire.walk import walk

Features = Iterable[object]
"""Type of what occurred when one input was run: hashable objects, such as names of headers, reasons of errors and
counters."""


class FuzzTarget(ABC):
    """A fuzz target is code that takes bytes from outside, with the methods that the fuzzer calls."""

    name: ClassVar[str]

    def __init__(self, seeds: list[bytes]) -> None:
        """Keep `seeds`, the valid inputs with which the corpus begins."""
        self._seeds = seeds

    def seeds(self) -> list[bytes]:
        """Return the inputs with which the corpus begins."""
        return list(self._seeds)

    @abstractmethod
    def mutate(self, data: bytes, rng: Random, other: bytes) -> bytes:
        """Return a mutation of `data`. The mutation may contain parts of `other`, another input of the corpus."""

    @abstractmethod
    def run(self, data: bytes) -> Features:
        """Run one input and return what occurred. Every exception is a finding."""

    def pieces(self, data: bytes) -> list[bytes]:
        """Return the pieces of an input. Each piece can be left out, to make the input of a finding shorter."""
        return [data[at : at + 1] for at in range(len(data))]


class Disagreement(AssertionError):  # noqa: N818  it is no error of the program that runs
    """This exception says that the code under test returned a wrong result, although it raised no exception itself."""


def demand(holds: bool, text: str) -> None:
    """Raise `Disagreement` unless `holds` is true."""
    if not holds:
        raise Disagreement(text)


# Frames ---------------------------------------------------------------------------------------------------------------

_AUTO = ("ethernet", "auto", UDP_PORT, IP_PROTOCOL, ROCE_PORT, TRIMMED_DSCP, "raw")
_NUMBERS = re.compile(r"\d+")


class Decoder(FuzzTarget):
    """This target tests decoder and encoder. A decoded frame must be encoded to the same bytes, and the compiled
    decoders must give the same result as decoding header by header."""

    name = "decode"

    def __init__(self, frames: list[bytes]) -> None:
        super().__init__(frames)
        for data in frames * 10:
            decode(data)  # after this many frames the shapes are compiled

    def mutate(self, data: bytes, rng: Random, other: bytes) -> bytes:
        kind = rng.randrange(4)
        if kind == 0:
            found = rng.choice(list(MUTATIONS.values()))(data, rng)
            if found is not None:
                return found.frame
        start = rng.choice((14, 34, 38, 42, 54, 58, 62)) if kind < 3 else 0
        return data[:start] + mutate_transport(data[start:], rng, other[start:])

    def run(self, data: bytes) -> Features:
        packet = decode(data)
        demand(encode(packet) == data, "encode(decode(frame)) is another frame")
        demand(packet == walk(data, _AUTO, False), "the compiled shape says something else than the walk")
        decode(data[14:], link="raw", crc="on")
        return met_in(packet)


def met_in(packet: Packet) -> Iterator[object]:
    """Yield what a decoded packet has: pairs of adjacent headers, notes, the kind and the reason of an error, and the
    trailer."""
    above = ""
    for layer in packet.layers:
        yield above, layer.form
        above = layer.form
    yield above, packet.notes
    if packet.error is not None:
        yield above, packet.error.kind, _NUMBERS.sub("", packet.error.reason)
    yield above, packet.trailer and (packet.trailer.kind, packet.trailer.ok), bool(packet.payload), bool(packet.raw)


# Captures -------------------------------------------------------------------------------------------------------------


class Captures(FuzzTarget):
    """This target tests the capture readers. They must report damage, keep the order of the records, and not return
    more bytes than the file has."""

    name = "capture"

    def mutate(self, data: bytes, rng: Random, other: bytes) -> bytes:
        """Return the capture with one to four changes. Most changes are at offsets that are multiples of four bytes."""
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = 4 * rng.randrange(len(changed) // 4 + 1)
            kind = rng.randrange(8)
            if kind < 3:
                order = rng.choice("<>")
                number = rng.choice((0, 1, 2, 3, 5, 6, 8, 12, 0x7FFFFFFF, 0xFFFFFFFF, 0x0A0D0D0A, rng.getrandbits(12)))
                changed[at : at + 4] = struct.pack(order + "I", number)
            elif kind == 3:
                changed[at:] = mutate_transport(bytes(changed[at:]), rng, other)
            elif kind == 4:
                del changed[at : at + 4 * rng.randint(1, 64)]
            elif kind == 5:
                changed[at:at] = changed[at : at + 4 * rng.randint(1, 64)]
            elif kind == 6:
                start = 4 * rng.randrange(len(other) // 4 + 1)
                changed[at:] = other[start:]
            else:
                del changed[rng.randrange(len(changed) + 1) :]
        return bytes(changed[: 1 << 20])

    def run(self, data: bytes) -> Features:
        try:
            reader = open_capture(BytesIO(data))
        except LocalError as error:
            return [_NUMBERS.sub("", f"{error.value}")[-40:]]
        with reader:
            records = list(reader)
        offsets = [record.offset for record in records]
        demand(all(a < b for a, b in pairwise(offsets)), "records do not come in order")
        if not data.startswith(b"\x1f\x8b"):
            demand(sum(len(record.data) for record in records) <= len(data), "records have more bytes than the file")
        demand(all(len(record.data) <= record.length for record in records), "more captured than there was")
        return [
            len(records).bit_length(), *(record.link for record in records), len(reader.interfaces),
            *(_NUMBERS.sub("", damage.reason) for damage in reader.damage), ("damage", len(reader.damage)),
        ]  # fmt: skip

    def pieces(self, data: bytes) -> list[bytes]:
        return [data[at : at + 4] for at in range(0, len(data), 4)]


# Engines --------------------------------------------------------------------------------------------------------------


CLOSE_FIRST = 0x20


class Parcel:
    """A parcel is one packet of an input: the bytes that arrive at an endpoint, flags that say how they arrive, and
    the time before their arrival.

    A parcel is packed as flags, time, length, bytes. Bit 0 of the flags says which endpoint receives the packet (0
    initiator, 1 target). Bits 1–2 say how the packet was trimmed, bit 3 is the CE mark, and bit 4 says that the packet
    comes from an unknown address. If bit 5 is set, the receiving endpoint closes the PDC before the packet arrives. If
    bit 6 is set, each endpoint first receives what the other one has sent.
    """

    HEAD = struct.Struct(">BBH")
    __slots__ = ("data", "flags", "wait")

    def __init__(self, flags: int, wait: int, data: bytes) -> None:
        self.flags = flags & 0x7F
        self.wait = wait & 0xFF
        self.data = data[:0xFFFF]

    def pack(self) -> bytes:
        return self.HEAD.pack(self.flags, self.wait, len(self.data)) + self.data

    @property
    def duration(self) -> int:
        """Time in picoseconds that passes before the bytes arrive. It is 0, or 2^n µs with n from 0 to 24."""
        return MICROSECOND << (self.wait % 25) if self.wait else 0

    @staticmethod
    def unpack(data: bytes) -> "list[Parcel]":
        """Return all parcels of a packed input. A last parcel that was truncated has fewer bytes than its length
        says."""
        parcels = []
        at = 2
        while len(data) - at >= Parcel.HEAD.size:
            flags, wait, length = Parcel.HEAD.unpack_from(data, at)
            at += Parcel.HEAD.size
            parcels.append(Parcel(flags, wait, data[at : at + length]))
            at += length
        return parcels


class EngineConversation:
    """This class has the packets that two endpoints exchanged in a capture, and what two new endpoints need to take
    their places: addresses, PDCIDs and PSNs."""

    def __init__(self, frames: list[bytes]) -> None:
        packets = [decode(data) for data in frames]
        self.parcels: list[Parcel] = []
        self.ip_version = 6 if "ipv6" in packets[0] else 4
        ip = packets[0][f"ipv{self.ip_version}"]
        self.addresses: tuple[int, int] = (ip["src"], ip["dst"])
        self.opening: dict[str, int] | None = None
        self.mode = Mode.RUD
        self.request: dict[str, int] = {}
        self.mtu = 4096
        self.ids = [0, 0]
        self.starts: list[int | None] = [None, None]
        closes = False
        for data, packet in zip(frames, packets, strict=True):
            side = int(packet[f"ipv{self.ip_version}"]["src"] == self.addresses[1])
            head = next((layer for layer in packet.layers if layer.form.startswith("pds.")), None)
            if head is None:
                continue
            end = packet.payload_offset + len(packet.payload)
            first = CLOSE_FIRST if closes and side == 1 else 0  # the initiator closes, as that of the capture did
            closes = (closes and not first) or head.values.get("ctl_type") == CtlType.CLOSE_CMD
            self.parcels.append(Parcel(1 - side | first, 0, data[head.offset : end]))
            self._learn(side, packet, dict(head.values), FORMS[head.form].name.endswith(".syn"))

    def _learn(self, side: int, packet: Packet, head: dict[str, int], syn: bool) -> None:
        self.ids[side] = self.ids[side] or head.get("spdcid", 0)
        if "clear_psn_offset" in head and self.starts[side] is None:
            self.starts[side] = (head["psn"] - head.get("psn_offset", 0)) & 0xFFFFFFFF
            if head["type"] in (PdsType.ROD_REQ, PdsType.ROD_CC_REQ):
                self.mode = Mode.ROD
            if syn:
                self.opening = head
        if not self.request and "memory_key" in packet.layers[-1].values:
            self.request = dict(packet.layers[-1].values)
            if len(packet.payload) in _SES:
                self.mtu = len(packet.payload)

    def pack(self, number: int, settings: int) -> bytes:
        """Return the packets as an input of the fuzzer. The input begins with two bytes: the number of the
        conversation, and an index of `SETTINGS`."""
        return bytes((number, settings)) + b"".join(parcel.pack() for parcel in self.parcels)


class Guarded(BufferMemory):
    """This memory raises `Disagreement` for a write outside its bounds."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        demand(0 <= offset <= offset + len(data) <= self.length, f"write outside: {len(data)} bytes at {offset}")
        super().write(offset, data)


SETTINGS = (
    PdsConfig(),
    PdsConfig(mp_range=128, max_pdcs=2, reserved_pdcs=1, max_gtd_del=1, max_packet_buffers=2, close_thresh=0),
    PdsConfig(secure_start="expected", enb_ack_per_pkt=True, sack_base="trigger", ack_cc="always"),
    PdsConfig(secure_start="random", ack_ccx=True, ack_cc="always", rod_gap="reorder", dup_without_retx="answer"),
    PdsConfig(inferred_loss="probe", clear_cmd="immediate", close_drain="error", store_ack_read_data=False),
    PdsConfig(**PERSONALITIES["refprov"]["pds"]),
)
_SES = {mtu: SesConfig(payload_mtu=mtu) for mtu in (1024, 2048, 4096, 8192)}


class Engines(FuzzTarget):
    """This target gives mutated packets to two endpoints. They have the addresses, keys and PDCIDs of the endpoints in
    a capture.

    The target requires that the endpoints raise no exception and write nowhere outside the region, that their packets
    can be parsed, that PSNs stay in order (pds.md §18 items 12 and 13), that no PDC exists twice or beyond the limit
    (item 27), and that deadlines advance.
    """

    name = "engine"

    def __init__(self, conversations: list[EngineConversation]) -> None:
        self._conversations = known = conversations[:256]
        super().__init__([talk.pack(at, way) for way in range(len(SETTINGS)) for at, talk in enumerate(known)])

    def mutate(self, data: bytes, rng: Random, other: bytes) -> bytes:
        parcels, strange = Parcel.unpack(data), Parcel.unpack(other)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(parcels) + 1)
            kind = rng.randrange(10)
            if at == len(parcels) or kind == 0:
                parcels[at:at] = [rng.choice(strange)] if strange else []
                continue
            parcel = parcels[at]
            if kind < 5:
                given = rng.choice(strange).data if strange else b""
                changed = Parcel(parcel.flags, parcel.wait, mutate_transport(parcel.data, rng, given))
                parcels[at : at + rng.randrange(2)] = [changed]  # in its place, or before it
            elif kind == 5:
                parcels[at] = Parcel(parcel.flags ^ 1 << rng.randrange(7), parcel.wait, parcel.data)
            elif kind == 6:
                parcels[at] = Parcel(parcel.flags, rng.randrange(25), parcel.data)
            elif kind == 7:
                parcels.insert(rng.randrange(len(parcels)), parcel)
            elif kind == 8:
                parcels.insert(rng.randrange(len(parcels)), parcels.pop(at))
            else:
                del parcels[at]
        head = data[:2] if rng.randrange(16) else bytes((data[0], rng.randrange(len(SETTINGS))))
        return head + b"".join(parcel.pack() for parcel in parcels[:64])

    def run(self, data: bytes) -> Features:
        number, settings = data[:2] if len(data) >= 2 else (0, 0)
        stage = _Stage(self._conversations[number % len(self._conversations)], SETTINGS[settings % len(SETTINGS)])
        met: set[object] = set()
        for parcel in Parcel.unpack(data):
            met |= stage.take(parcel)
        stage.end()
        return met

    def pieces(self, data: bytes) -> list[bytes]:
        return [data[:2], *(parcel.pack() for parcel in Parcel.unpack(data))]


_COUNTERS = tuple(Counters().as_dict())
_counted = attrgetter(*_COUNTERS)


class _Stage:
    def __init__(self, talk: EngineConversation, settings: PdsConfig) -> None:
        self.talk = talk
        self.now = 0
        self.sent: list[Datagram] = []
        self.ends = [
            Fep(address, Random(address), pds=settings, ses=_SES[talk.mtu], ip_version=talk.ip_version)
            for address in talk.addresses
        ]
        self._attach(self.ends[1])
        if talk.opening is None:
            self._adopt()
        else:
            self._open()
        for end in self.ends:
            self._settle(end)

    def _attach(self, target: Fep) -> None:
        request = self.talk.request
        if not request:
            return
        process = target.attach(request["job_id"] if request["rel"] else None, request["pid_on_fep"],
                                (max(1, request["resource_index"]),))  # fmt: skip
        length = request["buffer_offset"] + request["request_length"]
        process.register(Region(request["memory_key"], Guarded(bytearray(min(length, 1 << 20)))))

    def _open(self) -> None:
        """Let the initiator begin a message like that of the capture, with the same PDCIDs and PSNs."""
        talk = self.talk
        self.ends[0].pds.preset(Preset(pdcid=talk.ids[0] or None, start_psn=talk.starts[0]))
        self.ends[1].pds.preset(Preset(pdcid=talk.ids[1] or None))
        length = min(talk.request.get("request_length", 0), 1 << 20)
        self.ends[0].submit(Write(
            peer=talk.addresses[1], data=bytes(length), key=talk.request.get("memory_key", 1), mode=talk.mode,
            job_id=talk.request.get("job_id", 1), pid_on_fep=talk.request.get("pid_on_fep", 0),
        ), 0)  # fmt: skip

    def _adopt(self) -> None:
        """Set up an established PDC: the capture begins after its first packet."""
        talk = self.talk
        for side, end in enumerate(self.ends):
            starts = [start if start is not None else 48 for start in talk.starts]
            preset = Preset(pdcid=talk.ids[side] or 1, peer_pdcid=talk.ids[1 - side] or 1,
                            forward_next=starts[0], return_next=starts[1])  # fmt: skip
            end.pds.adopt(talk.addresses[1 - side], talk.mode, side == 0, preset)

    def take(self, parcel: Parcel) -> set[object]:
        """Play one row and return what occurred."""
        flags, side = parcel.flags, parcel.flags & 1
        end, peer = self.ends[side], self.talk.addresses[1 - side]
        self.now += parcel.duration
        if flags & CLOSE_FIRST:
            self._wish_to_close(side)
        if flags & 0x40:
            self._exchange()
        pds = end.pds
        states = {pdc.state for pdc in pds.pdcs.values()}
        before, refused = _counted(pds.counters), dict(pds.nack_tx)
        end.receive(Datagram(
            peer ^ 0x55 if flags & 0x10 else peer, end.address, parcel.data, ecn_marked=bool(flags & 8),
            trimmed=Trim((flags >> 1 & 3) % 3), ip_version=self.talk.ip_version,
        ), self.now)  # fmt: skip
        self._settle(end)
        kind = int.from_bytes(parcel.data[:2], "big") >> 7  # type and next_hdr, or type and ctl_type
        met: set[object] = set()
        for name, was, value in zip(_COUNTERS, before, _counted(pds.counters), strict=True):
            if value != was:
                met |= {(kind, name), (name, value.bit_length())}
        met |= {(kind, code) for code, count in pds.nack_tx.items() if count != refused.get(code, 0)}
        return met | {(kind, state, pdc.state) for state in states for pdc in pds.pdcs.values()}

    def _wish_to_close(self, side: int) -> None:
        try:
            if side == 0:
                self.ends[0].submit(Close(peer=self.talk.addresses[1]), self.now)
            else:
                self.ends[1].submit(AskClose(pdcid=next(iter(self.ends[1].pds.pdcs), 0)), self.now)
        except LocalError:
            pass
        self._settle(self.ends[side])

    def _exchange(self) -> None:
        sent, self.sent = self.sent, []
        for packet in sent:
            for end in self.ends:
                if end.address == packet.dst:
                    end.receive(packet, self.now)
                    self._settle(end)

    def _settle(self, end: Fep) -> None:
        """Let an endpoint send; check its packets and its state."""
        for packet in end.poll(self.now):
            parse(packet.header)
            self.sent.append(packet)
        end.events()
        _check_numbers(end)

    def end(self) -> None:
        """Run timers for a while; time must advance."""
        for end in self.ends:
            stuck = 0
            for _ in range(20):
                due = end.deadline()
                if due is None:
                    break
                stuck = stuck + 1 if due <= self.now else 0
                demand(stuck < 4, f"the deadline stays: {due} ps")
                self.now = max(self.now, due)
                self._settle(end)


def _check_numbers(end: Fep) -> None:
    pds = end.pds
    demand(len(pds.pdcs) <= pds.config.max_pdcs + pds.config.reserved_pdcs, f"too many PDCs: {len(pds.pdcs)}")
    instances = [(pdc.peer, pdc.peer_id, pdc.rx.start) for pdc in pds.pdcs.values() if pdc.role is Role.TARGET]
    demand(len(set(instances)) == len(instances), f"pds 27: a target PDC is there twice: {instances}")
    for pdc in pds.pdcs.values():
        rx, tx = pdc.rx, pdc.tx
        in_order = diff32(rx.max_clear, rx.cack) <= 0 and diff32(rx.cack, rx.max_rcvd) <= 0
        demand(in_order, f"pds 13: max_clear {rx.max_clear}, CACK {rx.cack}, max_rcvd {rx.max_rcvd}")
        in_order = diff32(tx.peer_cack, tx.una) < 0 and diff32(tx.una, tx.next) <= 0
        demand(in_order, f"pds 12: peer_cack {tx.peer_cack}, una {tx.una}, next {tx.next}")


# The search -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BytesFinding:
    """A finding has an input at which a target failed, and how it failed."""

    target: str
    kind: str
    """Text that is equal for findings of the same cause. It has the target, the exception, and the function that
    raised it or, for a `Disagreement`, the first part of its text."""
    text: str
    data: bytes


LIMIT = 10.0
"""Limit of CPU time for one input, in seconds."""


def attempt(target: FuzzTarget, data: bytes) -> Features | BytesFinding:
    """Run one input. Return a `BytesFinding` if it failed, and otherwise what occurred."""
    try:
        with time_limit(LIMIT):
            return list(target.run(data))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.rpartition('uetproto/')[2]}:{last.name}"
        what = str(error).partition(":")[0] if isinstance(error, Disagreement) else place
        kind = f"{target.name}: {type(error).__name__}: {what}"
        return BytesFinding(target.name, kind, traceback.format_exc(), data)


def shrink(target: FuzzTarget, finding: BytesFinding, tries: int = 400) -> BytesFinding:
    """Return the same finding with fewer pieces of input. Halves of the input are left out first, then smaller and
    smaller parts; `tries` limits the number of runs."""
    best = finding

    def fails(pieces: Sequence[bytes]) -> bool:
        nonlocal best
        found = attempt(target, b"".join(pieces))
        if not isinstance(found, BytesFinding) or found.kind != finding.kind:
            return False
        best = found
        return True

    fewer_steps(target.pieces(finding.data), fails, lambda piece: (), tries)
    return best


MOST = 4096
"""Greatest number of inputs in the corpus of a target. If the corpus is full, a new input replaces a random one."""


@dataclass
class Search:
    """This class is the search with one target. It has the corpus, what has occurred so far, and the kinds of the
    findings."""

    target: FuzzTarget
    rng: Random
    executions: int = 0
    corpus: list[bytes] = field(default_factory=list)
    met: set[object] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._todo = self.target.seeds()

    def step(self) -> BytesFinding | None:
        """Run one input, which is a seed or a mutation of an input of the corpus. Return the shrunk finding if the
        input failed in a way not seen before, else None."""
        data = self._todo.pop() if self._todo else self._made()
        self.executions += 1
        met = attempt(self.target, data)
        if isinstance(met, BytesFinding):
            if met.kind in self.kinds:
                return None
            self.kinds.add(met.kind)
            return shrink(self.target, met)
        if not self.met.issuperset(met):
            self.met.update(met)
            if len(self.corpus) < MOST:
                self.corpus.append(data)
            else:
                self.corpus[self.rng.randrange(MOST)] = data
        return None

    def _made(self) -> bytes:
        if not self.corpus:
            return self.rng.randbytes(self.rng.randrange(64))
        return self.target.mutate(self.rng.choice(self.corpus), self.rng, self.rng.choice(self.corpus))
