# SPDX-License-Identifier: GPL-2.0-only
"""This module decides for each flow whether its packets end with a CRC, because no packet says so (wire.md §7).

One right CRC32C proves that a flow has CRCs. Until a flow is decided, its packets without a right CRC wait in a queue,
and so do later packets that must not overtake them. The number of waiting packets is limited. If the limit is reached
and no right CRC has come, the first packets of the flow decide. Every reader of captures uses `FlowCrc`. `decoded` is
the reader that returns packets in the order of capture.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.wire.capture.base import Record
from uetproto.wire.crc import CRC_SIZE, trailer_crc
from uetproto.wire.packet import Layer, Packet, crc_start, network_of, udp_checksum_at

PATIENCE = 16
"""Number of packets at the start of a flow that decide whether the flow has CRCs, if no packet has a right CRC. When a
pipe is read, this is also the largest number of packets of a flow that wait."""
_HELD_TOGETHER = 4096
HELD = 16_384
_FLOWS = 1 << 18

NOTHING: dict[Any, Any] = {}
"""Empty table that is used in place of every table without entries, so that a vantage point takes little memory.
Nothing is ever added to it."""

Flow = tuple[Any, ...]
"""Identity of a flow: its interface, IP version, and source and destination addresses."""


class UndecidedPacket(NamedTuple):
    """This tuple holds a packet that may have to wait until it is known whether its flow has a CRC."""

    flow: Flow
    packet: Packet
    data: bytes
    right: bool | None
    """Whether the CRC of the packet is right. It is None if the packet need not have a CRC, or if the CRC was not
    captured."""
    roce: bool
    kept: Any
    """Object that the reader of the capture stores with the packet, such as its record."""


@dataclass(slots=True)
class _Queue:
    """A queue holds packets that are handed on together."""

    packets: list[UndecidedPacket] = field(default_factory=list)
    undecided: set[tuple[Flow, bool]] = field(default_factory=set)
    of_flow: Counter[Flow] = field(default_factory=Counter)


class KnownFlows(dict[Flow, bool]):
    """This dictionary has, by flow, whether the packets of the flow have a CRC. When it is full, it is emptied."""

    __slots__ = ()

    def __setitem__(self, flow: Flow, there: bool) -> None:
        if len(self) >= _FLOWS:
            self.clear()
        super().__setitem__(flow, there)


class FlowCrc:
    """This class decides for each flow that was captured at one place whether its packets have a CRC."""

    __slots__ = ("_always", "_in_order", "_number", "_of_flow", "_out", "_without", "crc32c", "held", "icrc")

    def __init__(
        self, mode: str, out: Callable[[UndecidedPacket], None], *, in_order: bool = False, of_flow: int = HELD,
        held: list[int] | None = None,
    ) -> None:  # fmt: skip
        """Pass each packet to `out` as soon as it is decided whether its flow has CRCs.

        If `mode` is "on", UET packets end with a CRC32C, and ICRCs are as sent. If it is "off", no packet has a CRC32C.
        If it is "auto", the packets of each flow decide. Packets between the same two addresses keep their order, and
        with `in_order` all packets do. At most `of_flow` packets of a flow are held, and at most 4096 packets whose
        order is kept together. `held` is a list whose only item is the number of packets that are held. Objects that
        share this list have one common limit.
        """
        self.crc32c = KnownFlows()
        self.icrc = KnownFlows()
        self._always = {"on": True, "off": False}.get(mode)
        self._out = out
        self._in_order = in_order
        self._of_flow = of_flow
        self._without: dict[tuple[Flow, bool], list[int]] = NOTHING
        """Number of first packets of undecided flows without a right CRC, and of those that are long enough for one."""
        self.held: dict[frozenset[Any], _Queue] = NOTHING
        """Packets that wait, by the ends of their flow. This and the table before it are made with the first such
        packet."""
        self._number = [0] if held is None else held

    def take(self, waiting: UndecidedPacket) -> None:
        """Take the next packet in the order of capture, and pass on all packets that need not wait any more."""
        flow, roce = waiting.flow, waiting.roce
        if waiting.right:
            (self.icrc if roce else self.crc32c)[flow] = True
        undecided = waiting.right is False and self.decided(flow, roce) is None
        queue = self.held.get(self._key(flow)) if self.held else None
        if queue is None and not undecided:
            self._out(waiting)
            return
        if queue is None:
            if self.held is NOTHING:
                self.held, self._without = {}, {}
            queue = self.held.setdefault(self._key(flow), _Queue())
        queue.packets.append(waiting)
        queue.of_flow[flow] += 1
        self._number[0] += 1
        if undecided:
            queue.undecided.add((flow, roce))
            votes = self._without.setdefault((flow, roce), [0, 0])
            if votes[0] < PATIENCE:
                votes[0] += 1
                votes[1] += waiting.packet.trailer is not None
            if roce and votes[0] >= PATIENCE:  # a sender that captures its own packets may see no right ICRC
                self._settle(flow, roce)
        if len(queue.packets) >= _HELD_TOGETHER or queue.of_flow[flow] >= self._of_flow:
            for undecided_flow, of_roce in queue.undecided:
                self._settle(undecided_flow, of_roce)
        if all(self.decided(*each) is not None for each in queue.undecided):
            self._release(self._key(flow))
        elif self._number[0] >= HELD:
            self.end()

    @property
    def is_empty(self) -> bool:
        """Return whether no packet waits, and no flow is undecided."""
        return not (self.held or self._without)

    def end(self) -> None:
        """Decide the remaining flows by the packets that came, and pass on all packets that are held."""
        for flow, roce in list(self._without):
            if roce and any(self.icrc.values()):
                self.icrc[flow] = True  # another flow has a right ICRC, so the capture did not change all
            self._settle(flow, roce)
        for key in list(self.held):
            self._release(key)

    def decided(self, flow: Flow, roce: bool = False) -> bool | None:
        """Return whether the packets of a flow have a CRC32C. With `roce`, return whether their ICRCs are as they were
        sent. Return None if that is not known yet."""
        if roce and not self._always:
            there = self.icrc.get(flow)
            return self.icrc.get(flow[::-1]) if there is None else there
        return self.crc32c.get(flow) if self._always is None else self._always

    def _key(self, flow: Flow) -> frozenset[Any]:
        return frozenset() if self._in_order else frozenset(flow)

    def _settle(self, flow: Flow, roce: bool) -> None:
        without, placed = self._without.pop((flow, roce), (0, 0))
        if self.decided(flow, roce) is None:
            known = self.icrc if roce else self.crc32c
            known[flow] = not roce and placed * 2 >= without

    def _release(self, key: frozenset[Any]) -> None:
        queue = self.held.pop(key)
        self._number[0] -= len(queue.packets)
        for flow, roce in queue.undecided:
            self._without.pop((flow, roce), None)
        for waiting in queue.packets:
            self._out(waiting)


# One packet ----------------------------------------------------------------------------------------------------------


def verdict(packet: Packet, data: bytes) -> bool | None:
    """Return whether the last bytes of a UET packet are a right CRC32C.

    Return None if the packet is incomplete, too short, or sealed by TSS, because it then need not have a CRC32C.
    """
    layers, notes, trailer = packet.layers, packet.notes, packet.trailer
    if "truncated" in notes or "trimmed" in notes or "fragment" in notes or layers[-1].form.startswith("tss"):
        return None
    if trailer is not None and trailer.ok is not False:
        return trailer.ok
    end = end_of(layers)
    if end > len(data) or end - crc_start(layers) < CRC_SIZE:
        return None
    return trailer is None and ends_with_crc(data, layers, end)


def ends_with_crc(data: bytes, layers: list[Layer], end: int) -> bool:
    """Return whether the four bytes before the offset `end` are the right CRC32C of the packet."""
    value = int.from_bytes(data[end - CRC_SIZE : end], "big")
    return trailer_crc(data, crc_start(layers), end - CRC_SIZE, udp_checksum_at(layers)) == value


def end_of(layers: list[Layer]) -> int:
    """Return the offset of the end of a UET packet, according to the lengths in its IP and UDP headers."""
    network = network_of(layers)
    values = network.values
    end: int = network.offset + values.get("total_length", 40 + values.get("payload_length", 0))
    for form, fields, offset in layers:
        if form == "udp" and offset > network.offset:
            end = min(end, offset + fields["length"])
    return end


# A capture -----------------------------------------------------------------------------------------------------------


def decoded(
    records: Iterable[Record], decode: Callable[[Record, str], Packet], *, pipe: bool = False
) -> Iterator[tuple[Record, Packet]]:
    """Yield records and their packets in the order of capture. `decode(record, crc)` decodes each record.

    `crc` is "on" for a packet without a right CRC in a flow whose other packets have CRCs, otherwise "auto". Records
    are read ahead until each flow is decided. From a `pipe`, at most `PATIENCE` packets of a flow are read ahead.
    """
    ready: list[tuple[Record, Packet]] = []

    def out(waiting: UndecidedPacket) -> None:
        _, packet, _, right, _, record = waiting
        if right is False and packet.trailer is None and flows.decided(waiting.flow):
            packet = decode(record, "on")
        ready.append((record, packet))

    flows = FlowCrc("auto", out, in_order=True, of_flow=PATIENCE if pipe else HELD)
    known = flows.crc32c
    for record in records:
        packet = decode(record, "auto")
        layers, trailer = packet.layers, packet.trailer
        last = layers[-1][0][:4] if layers else ""
        if not flows.held and last not in _UET and (last != "shar" or "pds" not in packet):
            yield record, packet
            continue
        flow = _flow(layers, record.interface)
        there = known.get(flow)
        if trailer is not None and trailer[2] and trailer[0] == "crc32c":
            right: bool | None = True
        elif there is False or "pds" not in packet:
            right = None  # `decode` would have found a right one
        else:
            right = verdict(packet, record.data)
        if right is not False and not flows.held:
            if right and not there:
                known[flow] = True
            yield record, packet
            continue
        flows.take(UndecidedPacket(flow, packet, record.data, right, False, record))
        yield from ready
        ready.clear()
    flows.end()
    yield from ready


_UET = ("pds.", "ses.")


def _flow(layers: list[Layer], interface: int) -> Flow:
    for form, values, _ in reversed(layers):
        if form == "ipv4" or form == "ipv6":
            return interface, form, values["src"], values["dst"]
    return (interface,)
