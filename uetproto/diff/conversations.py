# SPDX-License-Identifier: GPL-2.0-only
"""This module sorts the packets of a capture by conversation and direction."""

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Any

from uetproto.audit.per_packet.pdcs import PdcUses
from uetproto.audit.per_packet.queue_pairs import QueuePairs
from uetproto.audit.per_packet.sender import Sender
from uetproto.diff.normal import CapturedPacket, Normaliser
from uetproto.wire.headers.uet_pds import CONTROLS, CpPsn, CtlType
from uetproto.wire.packet import Packet
from uetproto.wire.serial import add32

_OWN_PSN = frozenset(kind for kind, row in CONTROLS.items() if row.psn is CpPsn.CONSUMED)

Ends = tuple[Hashable, Hashable]


class Stream:
    """This class holds the packets of one direction of a conversation, in the order of the capture: 40 bytes each."""

    __slots__ = ("bodies", "families", "ids", "numbers", "psns", "shapes", "whole")

    def __init__(self) -> None:
        self.numbers = array("Q")
        self.bodies = array("q")
        self.shapes = array("B")
        self.families = array("H")
        self.ids = array("I")
        """PDCIDs or queue pairs, those of the sender and of the receiver of each packet; 0: it has none."""
        self.psns = array("I")
        """PSNs, `MOST` a packet."""
        self.whole = array("q")
        """Hashes of bytes and time, if they are compared."""

    def __len__(self) -> int:
        return len(self.numbers)

    def ids_at(self, at: int) -> Sequence[int]:
        """Return the PDCIDs or queue pairs of the sender and the receiver of a packet."""
        return self.ids[2 * at : 2 * at + 2]


class Conversation:
    """This class is a conversation: a PDC, a pair of queue pairs, RUDI, UUD or other packets between two ends."""

    __slots__ = ("ends", "kind", "numbers", "order", "senders", "streams")

    def __init__(self, kind: str, ends: Ends, order: int) -> None:
        self.kind, self.ends, self.order = kind, ends, order
        """Sender and receiver of the first direction; `order` counts the conversations of the capture."""
        self.streams = [Stream(), Stream()]
        self.senders: tuple[Sender, Sender] | None = None
        """Both directions of a PDC, which know their PDCIDs once the capture has told them."""
        self.numbers: list[int | None] = [None, None]
        """Queue pairs of the sender of each direction."""

    @property
    def bits(self) -> int:
        """Return the number of bits of a PSN."""
        return 24 if self.kind == "QP" else 32

    def id(self, direction: int) -> int | None:
        """Return the PDCID or the queue pair of the sender of a direction; None if the capture does not tell it."""
        return self.numbers[direction] if self.senders is None else self.senders[direction].id


class Conversations:
    """This class holds the conversations of one capture, by interface."""

    def __init__(self, normaliser: Normaliser, families: dict[str, int], strict: bool) -> None:
        """Make an empty table. `families` gives a number to each sequence of headers; both captures share it."""
        self._normaliser, self._families, self._strict = normaliser, families, strict
        self._count = count().__next__
        self._taps: dict[str, _Tap] = {}
        self.packets = 0
        self.unopened = 0
        """Number of sealed packets that were not opened."""

    def take(self, packets: Iterable[CapturedPacket]) -> None:
        """Sort all packets of a capture."""
        normal = self._normaliser.normal
        for seen in packets:
            packet, data, interface = seen.packet, seen.data, seen.interface
            tap = self._taps.get(interface)
            if tap is None:
                tap = self._taps[interface] = _Tap(self._count, self._normaliser)
            conversation, direction = tap.place(packet)
            stream = conversation.streams[direction]
            body, shape, psns = normal(packet, data)
            stream.numbers.append(seen.number)
            stream.bodies.append(body)
            stream.shapes.append(shape)
            stream.psns.extend(psns)
            stream.ids.extend(_ids(packet))
            stream.families.append(self._family(packet))
            if self._strict:
                stream.whole.append(hash((bytes(data), seen.time_ns)))
            self.packets += 1
            self.unopened += "sealed" in packet.notes

    def _family(self, packet: Packet) -> int:
        """Return the number of what sort of packet it is: variants of a header are of one sort."""
        name = "/".join([layer.form.partition("_cc")[0].removesuffix(".syn") for layer in packet.layers[2:5]])
        return self._families.setdefault(name, min(len(self._families), 0xFFFF))

    def of_interfaces(self) -> dict[str, list[Conversation]]:
        """Return the conversations by the name of their interface, in the order in which they began."""
        return {name: tap.joined() for name, tap in self._taps.items()}


def _ids(packet: Packet) -> tuple[int, int]:
    """Return the PDCIDs or queue pairs of the sender and of the receiver of a packet; 0: it has none."""
    sender = receiver = 0
    for form, values, _ in packet.layers:
        if form.startswith("pds."):
            return values.get("spdcid", 0), values.get("dpdcid", 0)
        if form == "bth":
            receiver = values["destqp"]
        elif form == "deth":
            sender = values["srcqp"]
    return sender, receiver


class _Tap:
    """This class finds the conversation of each packet of an interface."""

    def __init__(self, number: Callable[[], int], normaliser: Normaliser) -> None:
        self._number, self._normaliser = number, normaliser
        self.all: list[Conversation] = []
        self._pdcs = PdcUses(count().__next__)
        self._of_use: dict[int, Conversation] = {}
        self._opening: dict[Hashable, tuple[Sender, int, int | None]] = {}
        """Maps ends and PDCID to the latest direction, its Start_PSN, and another one that was seen once."""
        self._ending: set[int] = set()
        """Indices of PDCs that were closed, or that refused a packet."""
        self._pairs = QueuePairs(count().__next__, {})
        self._of_pair: dict[int, Conversation] = {}
        self._by_key: dict[Hashable, Conversation] = {}

    def place(self, packet: Packet) -> tuple[Conversation, int]:
        """Return the conversation of a packet and its direction there."""
        src: Hashable = 0
        dst: Hashable = 0
        for form, values, _ in packet.layers:
            if form in ("ipv4", "ipv6"):
                src, dst = (self._normaliser.address(form, values[name]) for name in ("src", "dst"))
            elif form == "ethernet":
                src, dst = values["src"], values["dst"]
            elif form.startswith("pds."):
                return self._of_pds(form, values, src, dst)
            elif form == "bth":
                return self._of_roce(packet, values, src, dst)
            elif form.startswith("tss") and "sealed" in packet.notes:
                return self._keyed(f"SDI {values['sdi']}", src, dst)
            elif form == "grh":
                src, dst = values["sgid"], values["dgid"]
            elif form == "lrh":
                src, dst = values["slid"], values["dlid"]
        return self._keyed("other", src, dst)

    def _of_pds(self, form: str, head: Any, src: Any, dst: Any) -> tuple[Conversation, int]:
        if form.startswith("pds.rudi") or form.endswith(".rudi"):
            return self._keyed("RUDI", src, dst)
        if form == "pds.uud_req":
            return self._keyed("UUD", src, dst)
        pdcs = self._pdcs
        if "cack_psn" in head or "nack_psn" in head:
            answered = pdcs.answered(src, dst, head, head.get("cack_psn", head.get("nack_psn")))
            if answered is None:
                return self._keyed("no PDC", src, dst)
            sender = answered.other
        elif "ctl_type" in head and head["ctl_type"] not in _OWN_PSN:
            sender = pdcs.known(src, dst, head)
        elif head["syn"]:
            sender = self._opened(src, dst, head)
        else:
            sender = pdcs.sent(src, dst, head)
        if "nack_psn" in head or head.get("ctl_type") == CtlType.CLOSE_CMD:
            self._ending.add(sender.use.index)
        found = self._of_use.get(sender.use.index)
        if found is None:
            conversation = self._new("PDC", (src, dst))
            self._of_use[sender.use.index] = conversation
            conversation.senders = sender, sender.other
            return conversation, 0
        senders = found.senders
        return found, 0 if senders is None or sender is senders[0] else 1

    def _opened(self, src: Any, dst: Any, head: Any) -> Sender:
        """Return the direction of a packet with syn = 1. A single one with another Start_PSN is taken for a packet that
        was changed, unless the PDC was closed or refused a packet before."""
        key, start = (src, dst, head["spdcid"]), add32(head["psn"], -head["psn_offset"])
        known = self._opening.get(key)
        is_alone = known is not None and start not in known[1:] and known[0].use.index not in self._ending
        if known is not None and is_alone:
            self._opening[key] = known[0], known[1], start
            return known[0]
        sender = self._pdcs.opened(src, dst, head)
        if known is None or known[0] is not sender:
            self._opening[key] = sender, start, None
        return sender

    def _of_roce(self, packet: Packet, head: Any, src: Any, dst: Any) -> tuple[Conversation, int]:
        index, receiver = self._pairs.take(packet.layers), head["destqp"]
        conversation = self._of_pair.get(index)
        if conversation is None:
            conversation = self._of_pair[index] = self._new("QP", (src, dst))
            conversation.numbers[1] = receiver
        direction = 0 if conversation.ends[0] == src and conversation.numbers[1] == receiver else 1
        if "deth" in packet:
            conversation.numbers[direction] = packet["deth"]["srcqp"]
        conversation.numbers[1 - direction] = receiver
        return conversation, direction

    def joined(self) -> list[Conversation]:
        """Return all conversations. Directions of queue pairs that turned out to be of one pair are one."""
        for later, earlier in self._pairs.alias.items():
            one, other = self._of_pair.get(earlier), self._of_pair.pop(later, None)
            if one is not None and other is not None and not one.streams[1]:
                one.streams[1], one.numbers[0] = other.streams[0], other.numbers[1]
                self.all.remove(other)
        self._pairs.alias.clear()
        return self.all

    def _keyed(self, kind: str, src: Any, dst: Any) -> tuple[Conversation, int]:
        for direction, ends in enumerate(((src, dst), (dst, src))):
            conversation = self._by_key.get((kind, ends))
            if conversation is not None:
                return conversation, direction
        conversation = self._by_key[kind, (src, dst)] = self._new(kind, (src, dst))
        return conversation, 0

    def _new(self, kind: str, ends: Ends) -> Conversation:
        conversation = Conversation(kind, ends, self._number())
        self.all.append(conversation)
        return conversation
