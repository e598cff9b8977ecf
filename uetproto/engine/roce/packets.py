# SPDX-License-Identifier: GPL-2.0-only
"""This module parses and packs RoCE packets, by the header tables of `wire.headers.roce` (roce.md §2, §3)."""

from dataclasses import dataclass
from struct import Struct
from typing import Any

from uetproto.engine.contract import Buffer, TrafficClass, Trim
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import AddressVector, RocePacket
from uetproto.engine.roce.psn import MASK
from uetproto.engine.roce.segments import STEPS, MessageStep
from uetproto.engine.train import Train
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.roce import BTH, SEQUENCES, Operation
from uetproto.wire.tuples import BthHeader

_HEADERS = {opcode: tuple(codec_of(header) for header in headers) for opcode, headers in SEQUENCES.items()}
_FULL_MEMBER = 0x8000
_NOTHING: dict[str, int] = {}
_NO_TRIM = Trim.NO


_PACK_WORD, _MASKED = Struct(">I").pack, MASK.__and__
_ASKS = 1 << 31
"""Bit a of the word that ends a BTH, which has the PSN in its lowest bits."""
BTH_WORD_AT = BTH.offset_of("a") // 8
"""Number of bytes of a BTH before its last word, which has bit a and the PSN."""
_SEND_ONLY, _ACKNOWLEDGE = Operation.SEND_ONLY, Operation.ACKNOWLEDGE


@dataclass(slots=True)
class MessagePacket(RocePacket):
    """A message packet is the only packet of a message, or the acknowledgement of one. A driver that recognizes its
    frame passes it to the receiver as an object, which has what the receiver would read (`messages`)."""

    number: int = 0
    """Number of the queue pair of the receiver."""
    psn: int = 0
    p_key: int = 0
    data: bytes | None = None
    """The message, or None in an acknowledgement."""


class Parsed:
    """This class holds a received packet and the fields of its BTH. `values` has the fields of the headers after the
    BTH, by name.
    """

    __slots__ = (
        "a", "destqp", "known", "opcode", "operation", "p_key", "packet", "padcnt", "payload", "psn", "se", "step",
        "tver", "values",
    )  # fmt: skip

    def __init__(self, packet: RocePacket) -> None:
        """Read the BTH of `packet`, which must be complete. `parse` sets `payload` and `values`."""
        self.packet = packet
        (
            self.opcode, self.se, _, self.padcnt, self.tver, self.p_key, _, _, _, self.destqp, self.a, _, self.psn,
        ) = BthHeader.unpack(packet.header)  # fmt: skip
        self.operation = self.opcode & 0x1F
        self.known = self.opcode in _HEADERS
        self.step: MessageStep | None = STEPS.get(self.operation) if self.known else None
        self.payload: Buffer = b""
        self.values = _NOTHING

    @property
    def pad_is_legal(self) -> bool:
        """Return True when payload and pad together have a multiple of 4 bytes (roce.md §4)."""
        return (len(self.payload) + self.padcnt) % 4 == 0


def parse(packet: RocePacket) -> Parsed | None:
    """Return a parsed packet, or None if the packet is shorter than its headers and pad (roce.md §8 check 1)."""
    data = packet.header
    if len(data) < BthHeader.size:
        return None
    parsed = Parsed(packet)
    at = BthHeader.size
    values = _NOTHING
    for header in _HEADERS.get(parsed.opcode, ()):
        if len(data) < at + header.size:
            return None
        found = header.decode(data, at)
        values = {**values, **found} if values else found
        at += header.size
    payload: Buffer = packet.payload
    if not len(payload):
        payload = memoryview(data)[at:] if len(data) > at else b""
    padcnt = parsed.padcnt
    if padcnt:
        if len(payload) < padcnt:
            return None
        payload = memoryview(payload)[: len(payload) - padcnt]
    parsed.payload, parsed.values = payload, values
    return parsed


def keys_match(a: int, b: int) -> bool:
    """Return True when two P_Keys match (roce.md §2).

    They match if their low 15 bits are equal and not 0, and at least one of them is the P_Key of a full member.
    """
    return (a ^ b) & ~_FULL_MEMBER == 0 and a & ~_FULL_MEMBER != 0 and (a | b) & _FULL_MEMBER != 0


def source_port(flow_label: int, own: int, remote: int) -> int:
    """Return the UDP source port that follows from a flow label, or from the queue pair numbers if the flow label is 0
    (roce.md §1)."""
    if not flow_label:
        product = own * remote
        product ^= product >> 20
        product ^= product >> 40
        flow_label = product & 0xFFFFF
    return flow_label & 0x3FFF ^ flow_label >> 14 | 0xC000


class RocePath:
    """A path from a queue pair to a peer holds the values that all packets on this path have in common."""

    __slots__ = (
        "_dst",
        "_entropy",
        "_fronts",
        "_hop_limit",
        "_label",
        "_m",
        "_p_key",
        "_samples",
        "_src",
        "_transport",
        "_version",
        "remote",
    )

    def __init__(
        self, transport: int, own: int, address: int, ip_version: int, av: AddressVector, remote: int, p_key: int,
        config: RoceConfig,
    ) -> None:  # fmt: skip
        self._transport = transport << 5
        self._src = address
        self._dst = av.dst
        self._version = ip_version
        self._entropy = source_port(av.flow_label, own, remote)
        self._hop_limit = av.hop_limit or 0
        self._label = av.flow_label
        self._p_key = p_key
        self._m = config.m
        self.remote = remote
        self._fronts: dict[int, bytes] = {}
        """Bytes of a BTH before its last word, by the operation of packets without pad."""
        self._samples: dict[int, RocePacket] = {}
        """Packet that has the size of the packets of trains, by their operation."""

    def packet(
        self, operation: int, psn: int, headers: bytes = b"", payload: Buffer = b"", *, a: int = 0, se: int = 0,
        again: bool = False,
    ) -> RocePacket:  # fmt: skip
        """Return a packet with BTH, `headers`, `payload` and pad. If `again` is True, the packet is a
        retransmission."""
        pad = -len(payload) & 3
        bth = BthHeader.pack(
            self._transport | operation, se, self._m, pad, 0, self._p_key, 0, 0, self.remote, a, psn & MASK
        )
        if pad:
            payload = bytes(payload) + bytes(pad)
        kind = TrafficClass.DATA_RTX if again else TrafficClass.DATA
        return RocePacket(
            self._src, self._dst, bth + headers, payload, kind, self._entropy, ip_version=self._version,
            hop_limit=self._hop_limit, flow_label=self._label,
        )  # fmt: skip

    def _front(self, operation: int) -> bytes:
        front = self._fronts.get(operation)
        if front is None:
            front = self._fronts[operation] = bytes(self.packet(operation, 0).header[:BTH_WORD_AT])
        return front

    def train(self, operation: int, psn: int, asks: range, payloads: list[Buffer]) -> Train:
        """Return packets from `psn` on, whose payloads have the same size in all trains of the path, a multiple of 4
        bytes. Those at the indices `asks` ask for an acknowledgement."""
        sample, count = self._samples.get(operation), len(payloads)
        if sample is None:
            sample = self._samples[operation] = self.packet(operation, 0, b"", bytes(len(payloads[0])))
            sample.header, rest = self._front(operation), bytes(sample.header[BTH_WORD_AT:])
            sample.payload = rest + bytes(sample.payload)
        words = list(map(_PACK_WORD, map(_MASKED, range(psn, psn + count))))
        for at in asks:
            words[at] = _PACK_WORD(psn + at & MASK | _ASKS)
        return Train(self._src, self._dst, words, payloads, [self._entropy] * count, self._version, sample, asks)

    def message(self, psn: int, data: bytes) -> MessagePacket:
        """Return the packet of a SEND of one packet, whose length is a multiple of 4 bytes."""
        psn &= MASK
        return MessagePacket(
            self._src, self._dst, self._front(_SEND_ONLY) + _PACK_WORD(psn | _ASKS), data, TrafficClass.DATA,
            self._entropy, False, _NO_TRIM, self._version, None, b"", self._hop_limit, self._label,
            self.remote, psn, self._p_key, data,
        )  # fmt: skip

    def message_ack(self, psn: int, aeth: bytes) -> MessagePacket:
        """Return the acknowledgement of all messages up to `psn`."""
        return MessagePacket(
            self._src, self._dst, b"".join((self._front(_ACKNOWLEDGE), _PACK_WORD(psn), aeth)), b"", TrafficClass.DATA,
            self._entropy, False, _NO_TRIM, self._version, None, b"", self._hop_limit, self._label,
            self.remote, psn, self._p_key,
        )  # fmt: skip


def congestion_notification(path: Any, opcode: int, body: bytes) -> RocePacket:
    """Return a CNP to the sender of a packet with the ECN mark CE. A CNP has becn 1, PSN 0 and m 0 (roce.md §5,
    §13)."""
    packet: RocePacket = path.packet(0, 0)
    bth = BthHeader.pack(
        opcode=opcode, se=0, m=0, padcnt=0, tver=0, p_key=0xFFFF, fecn=0, becn=1, destqp=path.remote, a=0, psn=0
    )
    packet.header = bth + body
    packet.traffic_class = TrafficClass.CONTROL
    return packet
