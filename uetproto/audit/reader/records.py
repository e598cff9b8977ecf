# SPDX-License-Identifier: GPL-2.0-only
"""This module decodes the packets of a capture, opens the sealed ones, and removes copies made by mirror ports. The
order of capture is kept."""

from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

from uetproto.audit.reader.address import at_port
from uetproto.audit.reader.crc_of_packet import (
    add_udp_after_bad_ip,
    is_crc_right,
    is_roce,
    is_uet,
    mark_absent,
    mark_wrong,
    reread_as_plain_ack,
)
from uetproto.audit.reader.expected_values import is_expected
from uetproto.audit.reader.fast_path import FastReader, Kind
from uetproto.audit.reader.fast_path_codegen import ReadFlows
from uetproto.audit.reader.mirror import Copies
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.slow_path import is_cut_short, observe
from uetproto.audit.reader.truncation import mark_suspected
from uetproto.wire.capture.base import StatedPort
from uetproto.wire.capture.pcap import LINK_NAMES, Record
from uetproto.wire.flow_crc import HELD, NOTHING, PATIENCE, Flow, FlowCrc, UndecidedPacket
from uetproto.wire.headers.uet_tss import TSS, TSS_SSI
from uetproto.wire.packet import Packet
from uetproto.wire.stack import decode_at


class Resting(NamedTuple):
    """This record has what is kept of a `Reading` while its interface is idle."""

    longest: int = 0
    others: int = 0
    with_crc: tuple[tuple[Flow, bool], ...] = ()
    """Flows of UET, each with a flag: True if the packets of the flow have a CRC32C."""


UNUSED = Resting()
"""Record of an interface whose packets are not read yet."""
_FLOWS_AT_REST = 16
"""Greatest number of flows of a `Reading` that may rest."""
_SHARED = 4_096
"""Greatest number of `Resting` that are known, so that equal ones are kept once."""


class Readers:
    """This class holds what all interfaces of one link type share: the compiled shapes of packets, and the keys."""

    def __init__(self, link: int, options: Options, *, pipe: bool = False) -> None:
        """Make readers of a link type. `pipe` says that the capture is no file, so few packets may wait."""
        self.of_flow = PATIENCE if pipe else HELD
        """Greatest number of packets of a flow that wait."""
        self.link = LINK_NAMES.get(link)
        self.quick = FastReader(options.crc, ReadFlows({}, {}))
        self.read = self.quick.read
        self.inner = FastReader("on", ReadFlows({}, {}))
        """Reader of packets that were opened."""
        self.opener = _opener(options, self.link)
        self.held = [0]
        """Number of packets that wait until it is decided whether their flow has a CRC."""
        self._resting: dict[Resting, Resting] = {}

    def shared(self, resting: Resting) -> Resting:
        """Return a record that equals `resting`. Interfaces with equal records share one object."""
        if len(self._resting) >= _SHARED:
            self._resting.clear()
        return self._resting.setdefault(resting, resting)


class Reading:
    """This class turns the records of one interface of a capture into observed packets."""

    __slots__ = (
        "_copies", "_cut_quickly", "_flows", "_flows_opened", "_flows_read", "_inner", "_link", "_opener", "_options",
        "_quick", "_read", "_see", "copies", "longest", "missing", "opened", "others", "unopened",
    )  # fmt: skip

    def __init__(
        self, link: int, options: Options, see: Callable[[ObservedPacket], None], *, truncated_fast: bool = True,
        readers: Readers | None = None, rested: Resting = UNUSED,
    ) -> None:  # fmt: skip
        """Make a reading without packets, or one that goes on where another one came to rest (`rested`). `link` is the
        link type. `see` gets every packet of UET and RoCE, and every malformed one. `truncated_fast` says that
        truncated packets which are otherwise as expected need no `ObservedPacket.packet`. If `readers` are shared with
        other interfaces, `enter` must be called before packets of this one follow those of another."""
        readers = readers or Readers(link, options)
        self._link = readers.link
        self._options = options
        self._see = see
        self._flows = FlowCrc(options.crc, self._hand_on, of_flow=readers.of_flow, held=readers.held)
        self._quick, self._inner, self._opener = readers.quick, readers.inner, readers.opener
        if rested.with_crc:
            self._flows.crc32c.update(rested.with_crc)
        self._flows_read = ReadFlows(self._flows.crc32c, self._flows.icrc)
        self._flows_opened = None if self._opener is None else ReadFlows({}, {})
        self._read = readers.read
        self._cut_quickly = truncated_fast
        self._copies = Copies(self._link or "") if options.mirror else None
        self.longest = rested.longest
        """Greatest number of bytes that the capture kept of a packet."""
        self.others = rested.others
        """Number of packets that are of other protocols, or of a link type that is not decoded."""
        self.missing: str | None = None
        """Reason why the headers of some captured packets cannot be read, or None if all can be read."""
        self.copies = 0
        """Number of packets that are copies made by a mirror port."""
        self.unopened: dict[str, int] = NOTHING
        """Number of sealed packets that the keys do not open, by reason."""
        self.opened = 0
        """Number of sealed packets that the keys open."""
        self.enter()

    @property
    def vnis(self) -> set[int]:
        """Return the VNIs of the tunnels of all interfaces that share readers with this one."""
        return {*self._quick.here.tenants}

    @property
    def take(self) -> Callable[[Record], None]:
        """Return the function that takes the next record."""
        return self._take_one if self._copies is None else self._take_once

    @property
    def _take_one(self) -> Callable[[Record], None]:
        if self._options.stated_ports:
            return self._take_between_ports
        return self._take if self._opener is None else self._take_and_open

    def enter(self) -> None:
        """Note that the next records are of this interface."""
        self._quick.here.flows = self._flows_read
        if self._flows_opened is not None:
            self._inner.here.flows = self._flows_opened

    @property
    def expected(self) -> dict[Kind, int]:
        """Return the number of packets that are as expected, by `Kind`, which names their headers and trailer."""
        expected = self._quick.counts(self._flows_read)
        if self._flows_opened is not None:
            expected = Counter(expected)
            for kind, number in self._inner.counts(self._flows_opened).items():
                expected[kind._replace(trailer=None)] += number  # their trailer was made when they were opened
        return expected

    @property
    def may_have_crc(self) -> bool:
        """Return whether packets of UET may end with a CRC32C: those of some flow do, or no flow is decided yet."""
        known = self._flows.crc32c.values()
        return self._options.crc != "off" and (any(known) or not known)

    @property
    def icrc_of(self) -> Mapping[Flow, bool]:
        """Return a map from each flow of RoCE to whether the ICRC of any of its packets is right."""
        return self._flows.icrc

    def _take_once(self, record: Record) -> None:
        if self._copies is not None and self._copies.is_copy(record.data, record.time_ns):
            self.copies += 1
        else:
            self._take_one(record)

    def _take(self, record: Record) -> None:
        index, time_ns, data, length, _, _, _, _ = record
        kept = len(data)
        if kept > self.longest:
            self.longest = kept
        seen = self._read(data, index, time_ns, length != kept)
        if seen is None:
            self._take_slowly(record)
        elif self._flows.held:
            self._take_behind(seen, record)
        else:
            self._see(seen)

    def _take_between_ports(self, record: Record) -> None:
        """Take a record of a capture that has stated several UDP ports, whose packets are decoded one by one."""
        self.longest = max(self.longest, len(record.data))
        self._take_slowly(record)

    def _take_and_open(self, record: Record) -> None:
        """Take a record, and open the packet if it is sealed."""
        data = record.data
        self.longest = max(self.longest, len(data))
        whole = record.length == len(data) and not self._flows.held
        seen = self._read(data, record.index, record.time_ns) if whole else None
        if seen is None:
            self._take_slowly(record)
            return
        if seen.head.form in _SEALED:
            self._open(seen, self._decoded(data, record.length), data)
        else:
            self._see(seen)

    def end(self) -> None:
        """Hand on the packets that still wait for the decision whether their flow has a CRC. It must be called after
        the last record."""
        self._flows.end()

    def rest(self) -> Resting | None:
        """Return what must be kept so that a new `Reading` goes on in the place of this one. Return None if that is too
        much to keep for every interface. `expected` is not kept."""
        flows, known = self._flows, self._flows.crc32c
        if self._copies is not None or self._opener is not None or self.missing is not None:
            return None
        if flows.icrc or len(known) > _FLOWS_AT_REST or not flows.is_empty:
            return None
        if self._options.crc == "auto" and not any(known.values()) and not all(kind.whole for kind in self.expected):
            return None  # `may_have_crc` decides later how the packets that were truncated are counted
        return Resting(self.longest, self.others, tuple(known.items()))

    def close(self) -> None:
        """Drop the references to this object's own methods, because they would keep the object in memory."""
        del self._flows, self._see

    def _take_behind(self, seen: ObservedPacket, record: Record) -> None:
        """Queue an expected packet, while others wait for the decision whether their flow has a CRC."""
        packet = self._decoded(record.data, record.length)
        roce = "bth" in packet
        right = True if packet.trailer and packet.trailer.ok else None
        self._flows.take(UndecidedPacket((seen.src, seen.dst), packet, b"", right, roce, seen))

    def _decoded(self, data: bytes, length: int, crc: str | None = None) -> Packet:
        options = self._options
        return decode_at(
            options.stated_ports, data, link=self._link or "", crc=crc or options.crc, udp_port=options.udp_port,
            ip_protocol=options.ip_protocol, roce_port=options.roce_port, rd=options.rd, length=length,
        )  # fmt: skip

    def _take_slowly(self, record: Record) -> None:
        if self._link is None:
            self.others += 1
            return
        data = record.data
        packet = self._decoded(data, record.length)
        if is_cut_short(packet):
            self.missing = "headers are cut off"
        if _is_malformed(packet):
            add_udp_after_bad_ip(packet, data)
            reread_as_plain_ack(packet)
        roce, uet = is_roce(packet, self._options), is_uet(packet, self._options)
        if not (roce or uet):
            self.others += 1
            return
        if roce and record.length == len(data):
            mark_suspected(packet, len(data))
        if roce:
            right = packet.trailer.ok if packet.trailer and not _is_malformed(packet) else None
        else:  # a sealed packet has no CRC32C, even if other packets have one
            looks = uet and (self._options.crc != "off" or "sealed" in packet.notes)
            right = is_crc_right(packet, data) if looks else None
        seen = observe(packet, data, record.index, record.time_ns, self._quick.here.tenants)
        seen = _told_apart(seen, packet, self._options.stated_ports)
        self._flows.take(UndecidedPacket((seen.src, seen.dst), packet, data, right, roce, seen))

    def _hand_on(self, waiting: UndecidedPacket) -> None:
        flow, packet, data, right, roce, seen = waiting
        if right is False and self._flows.decided(flow, roce):
            mark_wrong(packet, data)
            seen = seen._replace(packet=packet)
        elif right is False:
            mark_absent(packet, roce)
        cut = self._cut_quickly and "truncated" in packet.notes
        if data and (seen.packet is None or (cut and is_expected(packet, data))):
            self._quick.learn(data, packet)
        if self._opener is not None and "sealed" in packet.notes:
            self._open(seen, packet, data)
        else:
            self._see(seen)

    def _open(self, seen: ObservedPacket, packet: Packet, data: bytes) -> None:
        """Open a sealed packet; hand on its security header, and then the packet inside it."""
        opened = self._opener.open(data, packet)
        self._see(seen._replace(opening=opened))
        frame: bytes | None = getattr(opened, "plain_frame", None)
        if frame is None:
            if self.unopened is NOTHING:
                self.unopened = {}
            self.unopened[opened.reason] = self.unopened.get(opened.reason, 0) + 1
            self.missing = "sealed packets do not open"
            return
        self.opened += 1
        plain = self._inner.read(frame, seen.number, seen.time_ns)
        if plain is None:
            plain = self._plain(frame, seen)
        self._see(plain)

    def _plain(self, frame: bytes, seen: ObservedPacket) -> ObservedPacket:
        """Observe the opened frame by the slow path."""
        inner = self._decoded(frame, len(frame), "on")
        plain = observe(inner, frame, seen.number, seen.time_ns)
        if plain.packet is None:
            self._inner.learn(frame, inner)
        inner.trailer = None  # the trailer was made when the packet was opened
        return plain


_SEALED = frozenset({TSS.name, TSS_SSI.name})


def _is_malformed(packet: Packet) -> bool:
    return packet.error is not None and packet.error.kind == "malformed"


def _told_apart(seen: ObservedPacket, packet: Packet, stated: Set[StatedPort]) -> ObservedPacket:
    """Return a packet whose ends share an address with their ports, of which the packet has the receiver's."""
    ports = {one.port for one in stated}
    if len(ports) != 2 or seen.src != seen.dst:
        return seen
    port = next((values["dport"] for form, values, _ in reversed(packet.layers) if form == "udp"), 0)
    if port not in ports:
        return seen
    (other,) = ports - {port}
    return seen._replace(src=at_port(seen.src, other), dst=at_port(seen.dst, port))


def _opener(options: Options, link: str | None) -> Any:
    """Return the `Opener` of sealed packets; None without keys."""
    if options.keys is None or link is None:
        return None
    from uetproto.engine.tss.opener import Opener  # it needs cryptography, which others may lack

    return Opener(options.keys, link=link)
