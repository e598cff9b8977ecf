"""This module decodes a frame to its layers with `decode`, and builds the same frame again, bit by bit, with `encode`.

Decoding never raises an error for the bytes of a frame. Bytes that cannot be decoded are kept as raw bytes, with a
reason. Four cases are told apart: *truncated* (the capture kept less than was on the wire), *trimmed* (a switch cut the
packet), *malformed* (the packet contradicts itself) and *unknown* (the packet is neither UET nor RoCE).
"""

import operator
from collections.abc import Mapping, Set
from dataclasses import replace
from functools import cache
from typing import Any

from uetproto.errors import LocalError, shown, similar, typed
from uetproto.wire.codec import Codec, codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c, trailer_crc
from uetproto.wire.fast_walk import FastWalk
from uetproto.wire.fields import Header
from uetproto.wire.forms import (
    FIRST,
    FORMS,
    IP_PROTOCOL,
    ROCE_PORT,
    UDP_PORT,
    UET_FORMS,
    Candidates,
    matches,
    rows_after,
)
from uetproto.wire.headers import ethernet as eth
from uetproto.wire.headers import roce, uet_tss
from uetproto.wire.headers.ethernet import EtherType, IpProtocol
from uetproto.wire.headers.uet_ses import SEND_STD_SOM
from uetproto.wire.icrc import ICRC_SIZE, VCRC_SIZE, icrc, vcrc
from uetproto.wire.implied import implied_payload
from uetproto.wire.inside import look_inside
from uetproto.wire.packet import CRC_SUSPECT, RAW_FORMS, Fault, Layer, Packet, Trailer
from uetproto.wire.shapes import SUSPECT_SIZES, Writers, completer, header_reader

LINKS = ("ethernet", "raw", "sll", "sll2", "infiniband", "erf")
CRC_MODES = ("auto", "on", "off")
RD_MODES = ("raw", "headers")
TRIMMED_DSCP = frozenset({16, 18})  # trimmed, trimmed at the last hop (cms.md §1)


# Decoding ------------------------------------------------------------------------------------------------------------


def decode(
    frame: bytes | bytearray | memoryview,
    *,
    link: str = "ethernet",
    crc: str = "auto",
    udp_port: int = UDP_PORT,
    ip_protocol: int = IP_PROTOCOL,
    roce_port: int = ROCE_PORT,
    length: int | None = None,
    trimmed_dscp: Set[int] = TRIMMED_DSCP,
    rd: str = "raw",
    sharp: bool = False,
    mcast: bool = False,
) -> Packet:
    """Decode one frame to its layers (wire.md §7, roce.md §1). No bytes of a frame raise an error.

    `link` names the first header (`LINKS`). `crc` says whether a CRC32C ends a UET packet: "on", "off" or "auto". With
    "auto" the last 4 bytes are a CRC32C if they match, or if the headers account for all bytes but 4. If the headers
    imply no length, "auto" takes a wrong CRC32C for payload, and adds the note crc-suspect if the payload is then 4
    bytes longer than a payload MTU. So pass "on" if packets are known to have a CRC32C; for a capture,
    `flow_crc.decoded` finds this out. RoCE always ends with an ICRC, which "off" leaves unchecked. `length` is the
    length of the frame on the wire in bytes, if the capture kept less. `rd` says whether the RoCE opcodes 0x40–0x5f
    are left "raw" or decoded as "headers" of RD. With `sharp`, SHARP messages are looked for in SENDs. With `mcast`,
    immediates are decoded as multicast immediates. Raises `LocalError` for a setting that is not legal.
    """
    data = frame if type(frame) is bytes else _bytes_of(frame)
    try:
        if type(trimmed_dscp) is not frozenset:
            trimmed_dscp = frozenset(trimmed_dscp)
        settings = (link, crc, udp_port, ip_protocol, roce_port, trimmed_dscp, rd)
        fast = _fast_walks.get(settings)
        truncated = length is not None and length > len(data)
    except TypeError:
        typed("trimmed_dscp", trimmed_dscp, Set, "a set of DSCPs")
        typed("length", 0 if length is None else length, int, "a number of bytes, or None")
        _check_settings(link, crc, udp_port, ip_protocol, roce_port, rd)
        raise
    if fast is None:
        fast = _fast_walk_for(settings)
    packet = None if truncated else fast.read(data)
    if packet is None:
        packet = walk(data, settings, truncated)
        fast.learn(data, packet)
    if sharp or mcast:
        look_inside(packet, with_sharp=sharp, with_mcast=mcast)
    return packet


def decode_at(ports: Set[int], frame: bytes, *, udp_port: int = UDP_PORT, **settings: Any) -> Packet:
    """Decode a frame as `decode` does, with `ports` as further UDP ports of UET, which a capture states of itself."""
    packet = decode(frame, udp_port=udp_port, **settings)
    if ports and packet.layers and packet.error is not None:
        form, values, _ = packet.layers[-1]
        if form == eth.UDP.name and values["dport"] in ports and values["dport"] != udp_port:
            return decode(frame, udp_port=values["dport"], **settings)
    return packet


def walk(data: bytes, settings: "_Settings", truncated: bool) -> Packet:
    """Decode a frame one header at a time. This works for every frame, and is slower than `FastWalk`."""
    step = _Walk(data, truncated)
    _, step.crc, step.udp_port, step.ip_protocol, step.roce_port, step.trimmed_dscp, step.rd = settings
    step.link(settings[0])
    return step.packet


_Settings = tuple[str, str, int, int, int, frozenset[int], str]
_fast_walks: dict[_Settings, FastWalk] = {}


def _fast_walk_for(settings: _Settings) -> FastWalk:
    """Check the settings once, and return the fast walk under them."""
    link, crc, udp_port, ip_protocol, roce_port, trimmed_dscp, rd = settings
    _check_settings(link, crc, udp_port, ip_protocol, roce_port, rd)
    if len(_fast_walks) >= 64:
        _fast_walks.clear()
    return _fast_walks.setdefault(settings, FastWalk(link, crc, trimmed_dscp))


def _check_settings(link: str, crc: str, udp_port: int, ip_protocol: int, roce_port: int, rd: str) -> None:
    check_choice("link", link, LINKS)
    check_choice("crc", crc, CRC_MODES)
    check_choice("rd", rd, RD_MODES)
    check_number("udp_port", udp_port, 0xFFFF)
    check_number("ip_protocol", ip_protocol, 0xFF)
    check_number("roce_port", roce_port, 0xFFFF)


def check_choice(name: str, value: str, legal: tuple[str, ...]) -> None:
    """Raise `LocalError` for a setting that is not one of the `legal` values."""
    if value not in legal:
        raise LocalError(name, f"{shown(value)} is not legal{similar(value, legal)}", ", ".join(legal))


def check_number(name: str, value: int, most: int) -> None:
    """Raise `LocalError` for a setting that is not a whole number from 0 to `most`."""
    if not isinstance(value, int) or not 0 <= value <= most:
        raise LocalError(name, f"{shown(value)} is not legal", f"0 … {most}")


def _bytes_of(frame: object) -> bytes:
    try:
        return bytes(memoryview(frame))  # type: ignore[arg-type]
    except TypeError:
        raise LocalError("frame", f"{shown(frame)} is not legal", "bytes, or an object that holds bytes") from None


class _Walk:
    """A walk through one frame keeps its position, the end of the frame, and what it found."""

    __slots__ = (
        "crc", "crc_from", "data", "end", "ip_end", "ip_protocol", "layers", "packet", "pos", "rd", "roce_port",
        "trimmed", "trimmed_dscp", "truncated", "udp_checksum_at", "udp_port",
    )  # fmt: skip

    crc: str
    udp_port: int
    ip_protocol: int
    roce_port: int
    trimmed_dscp: frozenset[int]
    rd: str

    def __init__(self, data: bytes, truncated: bool) -> None:
        self.data = data
        self.pos = 0
        self.end = self.ip_end = len(data)
        self.layers: list[Layer] = []
        self.packet = Packet(self.layers)
        self.trimmed = False
        self.truncated = truncated
        self.crc_from = 0
        self.udp_checksum_at: int | None = None
        if truncated:
            self.packet.notes = ("truncated",)

    # What a walk reports

    def note(self, name: str) -> None:
        self.packet.notes += (name,)

    def stop(self, kind: str, reason: str, offset: int | None = None) -> None:
        """Stop the walk: all bytes from `pos` on are kept raw. Only the first reason is reported."""
        packet = self.packet
        if packet.error is None:
            packet.error = Fault(kind, self.pos if offset is None else offset, reason)
        packet.raw = self.data[self.pos :]

    def cut_short(self, what: str, needed: int) -> None:
        """Stop at a header that does not fit; this is no fault if the capture or network removed the packet's end."""
        if self.truncated or self.trimmed:
            self.packet.raw = self.data[self.pos :]
        else:
            self.stop("malformed", f"{what} needs {needed} bytes, {max(0, self.end - self.pos)} are there")

    def take(self, codec: Codec) -> Mapping[str, int] | None:
        """Decode one header at `pos` and step over it; return None if it does not fit."""
        pos = self.pos
        if self.end - pos < codec.size:
            self.cut_short(codec.header.name, codec.size)
            return None
        values: Mapping[str, int] = codec.decode(self.data, pos)
        self.layers.append(Layer(codec.header.name, values, pos))
        self.pos = pos + codec.size
        return values

    # From the link to UET or RoCE

    def link(self, link: str) -> None:
        if link in _TYPED:
            self.typed(_TYPED[link])
        elif link == "raw":
            is_ipv6 = bool(self.data) and self.data[0] >> 4 == 6
            (self.ipv6 if is_ipv6 else self.ipv4)()
        elif link == "infiniband":
            self.infiniband()
        else:
            self.erf()

    def typed(self, codec: Codec) -> None:
        """Decode a header with an EtherType, and up to two 802.1Q tags."""
        values = self.take(codec)
        for _ in range(2):
            if values is None or values["type"] not in eth.VLAN_TYPES:
                break
            values = self.take(_VLAN)
        if values is None:
            return
        ethertype = values["type"]
        if ethertype == EtherType.IPV4:
            self.ipv4()
        elif ethertype == EtherType.IPV6:
            self.ipv6()
        elif ethertype == EtherType.ROCEV1:
            self.grh()
        elif ethertype == EtherType.MAC_CONTROL:
            self.pfc()
        elif ethertype in eth.VLAN_TYPES:
            self.stop("unknown", "more than two 802.1Q tags")
        else:
            self.stop("unknown", f"EtherType 0x{ethertype:04x}")

    def ipv4(self) -> None:
        start = self.pos
        values = self.take(_IPV4)
        if values is None:
            return None
        header, total = values["ihl"] * 4, values["total_length"]
        if values["version"] != 4 or header < 20:
            return self.stop("malformed", f"IPv4 header says version {values['version']}, ihl {values['ihl']}", start)
        if total < header:
            return self.stop("malformed", f"ipv4.total_length {total} is less than its header", start + 2)
        if not self.ends_at(start + total, "ipv4.total_length", start + 2):
            return None
        if header > 20 and not self.raw_layer("ipv4.options", header - 20):
            return None
        self.crc_from = start + 12
        self.trimmed = values["dscp"] in self.trimmed_dscp
        if values["mf"] or values["fragment_offset"]:
            return self.fragment()
        return self.transport(values["protocol"])

    def ipv6(self) -> None:
        start = self.pos
        values = self.take(_IPV6)
        if values is None:
            return None
        if values["version"] != 6:
            return self.stop("malformed", f"IPv6 header says version {values['version']}", start)
        if not self.ends_at(self.pos + values["payload_length"], "ipv6.payload_length", start + 4):
            return None
        self.crc_from = start + 8
        self.trimmed = values["dscp"] in self.trimmed_dscp
        protocol = values["next_header"]
        while protocol in eth.IPV6_EXTENSIONS:
            if self.end - self.pos < 2:
                return self.cut_short("ipv6.ext", 8)
            size = eth.ipv6_extension_length(protocol, self.data, self.pos)
            at = self.pos
            if size is None or not self.raw_layer("ipv6.ext", size):
                return None
            following = self.data[at]
            if protocol == IpProtocol.FRAGMENT and int.from_bytes(self.data[at + 2 : at + 4], "big") & 0xFFF9:
                return self.fragment()
            protocol = following
        return self.transport(protocol)

    def ends_at(self, end: int, field: str, offset: int) -> bool:
        """Set the end that the IP header states. Bytes behind it are padding; missing bytes are a fault."""
        self.ip_end = end
        if end < self.end:
            if end < self.pos:
                self.stop("malformed", f"{field} ends before the headers do", offset)
                return False
            self.end = end
            self.note("padding")
        elif end > self.end and not self.truncated and self.packet.error is None:
            missing = end - self.end
            self.packet.error = Fault("malformed", offset, f"{field}: the packet ends {missing} bytes earlier")
        return True

    def raw_layer(self, form: str, size: int) -> bool:
        if self.end - self.pos < size:
            self.cut_short(form, size)
            return False
        self.layers.append(Layer(form, {"raw": self.data[self.pos : self.pos + size]}, self.pos))
        self.pos += size
        return True

    def fragment(self) -> None:
        self.note("fragment")
        self.opaque()

    def opaque(self) -> None:
        """Take the remaining bytes as payload that cannot be decoded."""
        self.packet.payload = self.data[self.pos : self.end]
        self.packet.raw = self.data[self.end :]

    def transport(self, protocol: int) -> None:
        if protocol == IpProtocol.UDP:
            start = self.pos
            values = self.take(_UDP)
            if values is None:
                return self.mark_trimmed()
            length = values["length"]
            if length < 8:
                return self.stop("malformed", f"udp.length {length} is less than its header", start + 4)
            if start + length > self.ip_end:
                self.trimmed = True
            elif start + length < self.end:
                self.end = start + length
                if "padding" not in self.packet.notes:
                    self.note("padding")
            if values["dport"] == self.udp_port:
                if values["checksum"]:
                    self.udp_checksum_at = start + 6
                return self.uet(_AFTER_UDP)
            if values["dport"] == self.roce_port:
                self.roce(min(start + length, self.ip_end))
                if start + length > self.ip_end:
                    reason = f"udp.length {length} is more than IP carries"
                    self.packet.error = Fault("malformed", start + 4, reason)
                return None
            return self.stop("unknown", f"UDP port {values['dport']}: not UET")
        if protocol == self.ip_protocol:
            return self.uet(_AFTER_IP)
        return self.stop("unknown", f"IP protocol {protocol}")

    def mark_trimmed(self) -> None:
        if self.trimmed:
            self.note("trimmed")

    def pfc(self) -> None:
        if self.data[self.pos : self.pos + 2] not in (b"\1\1", b"\1", b""):
            return self.stop("unknown", "MAC control other than PFC")
        if self.take(_PFC) is not None and self.pos < self.end:
            self.note("padding")
            self.packet.raw = self.data[self.pos :]
        return None

    # InfiniBand

    def erf(self) -> None:
        """Decode an ERF record: header, extension headers while a type has its top bit set, InfiniBand packet."""
        values = self.take(_ERF)
        if values is None:
            return None
        size, more = 0, values["ext"]
        while more:
            at = self.pos + size
            size += eth.ERF_EXTENSION_SIZE
            more = at < self.end and self.data[at] >> 7
        if size and not self.raw_layer("erf.ext", size):
            return None
        if values["type"] != eth.ERF_INFINIBAND:
            return self.stop("unknown", f"ERF record type {values['type']}")
        return self.infiniband(self.pos + values["wlen"])

    def infiniband(self, wire_end: int | None = None) -> None:
        """Decode from the LRH on; `wire_end` is where the packet ended on the wire, if that is known."""
        start = self.pos
        values = self.take(_LRH)
        if values is None:
            return None
        end = start + values["pktlen"] * 4
        if end < self.pos:
            return self.stop("malformed", f"lrh.pktlen {values['pktlen']} is less than its header", start + 4)
        if wire_end is not None and self.end < wire_end:
            self.cut()
        if values["lnh"] == roce.Lnh.GLOBAL:
            return self.grh(end)
        if values["lnh"] == roce.Lnh.LOCAL:
            return self.roce(end, local=True)
        return self.stop("unknown", f"LRH next header {values['lnh']}")

    def grh(self, end: int | None = None) -> None:
        """Decode a GRH, behind an LRH that states that the packet ends at `end`, or behind EtherType 0x8915."""
        start = self.pos
        values = self.take(_GRH)
        if values is None:
            return None
        if values["ipver"] != 6:
            return self.stop("malformed", f"GRH says version {values['ipver']}", start)
        local = end is not None
        if end is None:
            end = self.pos + values["paylen"]
        elif end != self.pos + values["paylen"]:
            return self.stop("malformed", f"grh.paylen {values['paylen']} and lrh.pktlen contradict", start + 4)
        if values["nxthdr"] != roce.BTH_FOLLOWS:
            return self.stop("unknown", f"GRH next header {values['nxthdr']}")
        return self.roce(end, local)

    def cut(self) -> None:
        """Note a truncated packet: this is no fault, even if the record of the capture says that no byte is missing."""
        self.packet.error = None
        if not self.truncated:
            self.truncated = True
            self.note("truncated")

    def roce(self, end: int, local: bool = False) -> None:
        """Decode BTH, the headers of its opcode, payload, pad and ICRC up to `end`; with `local`, a VCRC follows."""
        if end > len(self.data):
            self.cut()
        elif end < self.end and not local and "padding" not in self.packet.notes:
            self.note("padding")
        self.trimmed = False
        self.end = min(end, self.end)
        values = self.take(_BTH)
        if values is None:
            return None
        upto = len(self.layers)  # the ICRC is masked down to here
        opcode = values["opcode"]
        following = roce.SEQUENCES.get(opcode)
        if self.rd == "raw" and opcode in roce.RD_OPCODES:
            self.packet.error = Fault("unknown", self.pos, f"opcode 0x{opcode:02x}: RD or vendor transport")
        elif following is None:
            self.packet.error = Fault("unknown", self.pos, f"opcode 0x{opcode:02x} is unknown")
        else:
            for header in following:
                if self.take(codec_of(header)) is None:
                    return None
        if end > len(self.data):
            return self.opaque()
        return self.invariant(values["padcnt"], self.layers[:upto], local)

    def invariant(self, padcnt: int, covered: list[Layer], local: bool) -> None:
        """Decode payload, pad, ICRC and VCRC."""
        data, packet, end = self.data, self.packet, self.end - ICRC_SIZE
        if end - padcnt < self.pos:
            return self.stop("malformed", f"{self.end - self.pos} bytes are no room for pad ({padcnt}) and ICRC")
        checks = self.crc != "off"
        value = int.from_bytes(data[end : self.end], "little")
        packet.trailer = Trailer("icrc", value, icrc(data, covered, end) == value if checks else None)
        packet.payload = data[self.pos : end - padcnt]
        packet.pad = data[end - padcnt : end]
        end = self.end
        if local and len(data) - end >= VCRC_SIZE:
            value = int.from_bytes(data[end : end + VCRC_SIZE], "little")
            start = next(layer.offset for layer in self.layers if layer.form == "lrh")
            packet.vcrc = Trailer("vcrc", value, vcrc(data[start:end]) == value if checks else None)
            end += VCRC_SIZE
        packet.raw = data[end:]
        if packet.raw and local and not self.truncated:
            self.note("padding")
        return None

    # UET

    def uet(self, choice: "_Choice") -> None:
        """Decode PDS, SES and extensions by the rows of `NEXT`, then payload and trailer."""
        self.mark_trimmed()
        data, layers, end, pos = self.data, self.layers, self.end, self.pos
        todo = [choice]
        reserved: Fault | None = None
        while todo:
            choice = todo.pop()
            if end - pos < 2:
                self.pos = pos
                return self.cut_short(choice.name, choice.size)
            step = choice[data[pos] << 8 | data[pos + 1]]
            if step is None:
                self.pos = pos
                return self.stop("malformed", f"{choice.name} of reserved type {data[pos] >> 3}")
            name, size, read, following = step
            if end - pos < size:
                self.pos = pos
                return self.cut_short(name, size)
            layer = read(data, pos)
            layers.append(layer)
            values = layer.values
            pos += size
            for by, then, otherwise in following:
                row = then.get(values[by], otherwise) if by else otherwise
                if row is None:
                    reserved = Fault("malformed", pos - size, f"{name}.{by} {values[by]} is reserved")
                elif row is not _NOTHING:
                    todo.append(row)
        self.pos = pos
        if reserved:
            return self.stop(reserved.kind, reserved.reason, reserved.offset)
        if layers[-1].form.startswith("tss"):
            return self.sealed()
        return self.payload()

    def sealed(self) -> None:
        self.note("sealed")
        if self.trimmed or self.truncated:
            return self.opaque()
        if self.end - self.pos < uet_tss.ICV_SIZE:
            return self.cut_short("the ICV", uet_tss.ICV_SIZE)
        self.packet.trailer = Trailer("icv", int.from_bytes(self.data[self.end - uet_tss.ICV_SIZE : self.end], "big"))
        self.packet.payload = self.data[self.pos : self.end - uet_tss.ICV_SIZE]
        self.packet.raw = self.data[self.end :]
        return None

    def payload(self) -> None:
        """Decode payload and CRC32C: compare what the headers imply with what is there (interfaces.md §3)."""
        data, packet, start, end = self.data, self.packet, self.pos, self.end
        if self.trimmed or self.truncated:
            return self.opaque()
        implied = implied_payload(self.layers)
        if self.crc != "off":
            there = end - start >= CRC_SIZE
            if there:
                value = int.from_bytes(data[end - CRC_SIZE : end], "big")
                if self.udp_checksum_at is None:
                    ok = crc32c(data[self.crc_from : end - CRC_SIZE]) == value
                else:
                    ok = trailer_crc(data, self.crc_from, end - CRC_SIZE, self.udp_checksum_at) == value
                if ok or self.crc == "on" or end - start - CRC_SIZE == implied:
                    packet.trailer = Trailer("crc32c", value, ok)
                    end -= CRC_SIZE
            elif self.crc == "on":
                return self.cut_short("the CRC", CRC_SIZE)
        packet.payload = data[start:end]
        packet.raw = data[self.end :]
        if implied is None and self.crc == "auto" and packet.trailer is None and end - start in SUSPECT_SIZES:
            self.note(CRC_SUSPECT)
        if implied is not None and end - start < implied and packet.error is None:
            packet.error = Fault("malformed", start, f"payload has {end - start} bytes, the headers imply {implied}")
        return None


class _Choice(dict[int, "_Step | None"]):
    """This table finds a candidate by the first two bytes of a header.

    It adds an entry for each value met, at most 65,536.
    """

    def __init__(self, candidates: Candidates, name: str) -> None:
        self.candidates = candidates
        self.name = name if len(candidates) > 1 else candidates[0].name
        self.size = min(header.size for header in candidates)

    def __missing__(self, word: int) -> "_Step | None":
        self[word] = found = next((_step(h) for h in self.candidates if matches(h, word)), None)
        return found


_NOTHING: Any = ()
_Following = tuple[tuple[str | None, dict[int, _Choice], _Choice | None], ...]
_Step = tuple[str, int, Any, _Following]  # form, size, reader, choices for the headers that follow, the next one last


@cache
def _step(header: Header) -> _Step:
    following = []
    for row in reversed(rows_after(header)):
        then = {value: _choice(candidates) for value, candidates in row.then.items()}
        following.append((row.by, then, None if row.otherwise is None else _choice(row.otherwise)))
    return (header.name, header.size, header_reader(header), tuple(following))


@cache
def _choice(candidates: Candidates) -> Any:
    """Return the choice among `candidates`; `_NOTHING` where nothing follows."""
    if not candidates:
        return _NOTHING
    return _Choice(candidates, candidates[0].name.split(".")[0])


_ETHERNET, _VLAN, _IPV4, _IPV6, _UDP, _SLL, _SLL2, _PFC, _ERF = (codec_of(header) for header in eth.HEADERS)
_TYPED = {"ethernet": _ETHERNET, "sll": _SLL, "sll2": _SLL2}
_LRH, _GRH, _BTH = (codec_of(header) for header in (roce.LRH, roce.GRH, roce.BTH))
_AFTER_UDP: _Choice = _choice(FIRST)
_AFTER_IP: _Choice = _choice((uet_tss.ENTROPY,))

# Encoding ------------------------------------------------------------------------------------------------------------


def encode(packet: Packet, *, fill: bool = False) -> bytes:
    """Return the bytes of `packet` with exactly the values that it has. Missing fields take their defaults.

    With `fill=True`, missing fields are computed from the others (`wire.defaults`): PDCIDs, codes that announce the
    next header, lengths, ends of messages. A field that is given stays, even if it is 0. But these are always computed:
    the lengths of IP, UDP, GRH and LRH, `ihl`, the IPv4 checksum, `padcnt` and the pad of RoCE, and the CRCs that the
    packet has. The UDP checksum is set to 0, as UET and RoCE send it. Raises `LocalError` for an unknown form or field,
    and for a value that does not fit its field.
    """
    try:
        data = _writers.write(packet, fill)
        return assemble(packet, fill) if data is None else data
    except (AttributeError, TypeError, ValueError):
        _check_types(packet)
        raise


def _check_types(packet: Packet) -> None:
    """Raise `LocalError` for a packet, or a part of one, that has a wrong type."""
    typed("packet", packet, Packet, "a Packet, as decode returns it")
    typed("layers", packet.layers, (list, tuple), "a list of Layer")
    for number, layer in enumerate(packet.layers):
        typed(f"layers[{number}]", layer, Layer, "a Layer, as in Layer('udp', {'dport': 4793})")
        typed(f"layers[{number}].form", layer.form, str, "the name of a form")
        typed(f"layers[{number}].values", layer.values, Mapping, "a mapping of fields")
    for name, trailer in (("trailer", packet.trailer), ("vcrc", packet.vcrc)):
        typed(name, trailer, (Trailer, type(None)), "a Trailer, or None")


def assemble(packet: Packet, fill: bool) -> bytes:
    """Encode a packet one layer at a time, as `encode` does. This works for every packet, and is slower than
    `Writers`."""
    for name, part in (("payload", packet.payload), ("pad", packet.pad), ("raw", packet.raw)):
        if not isinstance(part, bytes | bytearray | memoryview):
            raise LocalError(name, f"{shown(part)} is not legal", "bytes")
    if fill:
        packet = completed(packet)
        return _fill(packet, [_encode_layer(layer, _FILLED.get(layer.form, ())) for layer in packet.layers])
    parts = [_encode_layer(layer) for layer in packet.layers]
    trailers = _encode_trailer(packet.trailer), _encode_trailer(packet.vcrc)
    return b"".join((*parts, packet.payload, packet.pad, *trailers, packet.raw))


_writers = Writers()


def completed(packet: Packet) -> Packet:
    """Return the packet with a value for every field. The values of missing fields are computed from the others
    (`wire.defaults`)."""
    layers = packet.layers
    forms = tuple(layer.form for layer in layers)
    if not all(form in FORMS or form in RAW_FORMS for form in forms):
        return packet  # has no bytes, which encoding tells
    uet = 1 + max((i for i, form in enumerate(forms) if form in UET_FORMS), default=-1)
    size = sum(layer.size for layer in layers[uet:]) + len(packet.payload)
    if "sharp" in forms[uet:]:
        size += -size % 4
    values = [_set_values(layer) for layer in layers]
    added = completer(forms, tuple(map(frozenset, values)))(values, size)
    whole = [Layer(form, {**more, **v}, at) for (form, _, at), more, v in zip(layers, added, values, strict=True)]
    return replace(packet, layers=whole)


def _set_values(layer: Layer) -> dict[str, Any]:
    """Return the fields that are set and stay, as integers."""
    form, values, _ = layer
    if form in RAW_FORMS:
        return dict(values)
    try:
        return {name: operator.index(values[name]) for name in values if name not in _FILLED.get(form, ())}
    except TypeError:
        _encode_layer(layer, _FILLED.get(form, ()))  # raises `LocalError` with the name of the field
        raise


_TRAILER_SIZE = {"crc32c": CRC_SIZE, "icrc": ICRC_SIZE, "icv": uet_tss.ICV_SIZE, "vcrc": VCRC_SIZE}
_LITTLE = ("icrc", "vcrc")


def _encode_trailer(trailer: Trailer | None) -> bytes:
    if trailer is None:
        return b""
    kind, value, _ = trailer
    size = _TRAILER_SIZE.get(kind)
    if size is None:
        raise LocalError("trailer", f"{shown(kind)} is not legal", ", ".join(_TRAILER_SIZE))
    try:
        return operator.index(value).to_bytes(size, "little" if kind in _LITTLE else "big")
    except (TypeError, OverflowError):
        raise LocalError(kind, f"{value!r} is no number of {size} bytes") from None


_FILLED = {  # fields that `fill` sets, whatever the packet has
    "ipv4": ("version", "ihl", "total_length", "checksum"),
    "ipv6": ("payload_length",),
    "udp": ("length", "checksum"),
    "lrh": ("pktlen",),
    "grh": ("paylen",),
    "bth": ("padcnt",),
    "sharp": ("ext_words",),
}


def _encode_layer(layer: Layer, without: tuple[str, ...] = ()) -> bytes:
    header = FORMS.get(layer.form)
    if header is not None:
        values = layer.values
        return codec_of(header).encode({n: values[n] for n in values if n not in without} if without else values)
    if layer.form in RAW_FORMS:
        raw = layer.values.get("raw")
        if not isinstance(raw, bytes):
            raise LocalError(f"{layer.form}.raw", f"{raw!r} is not bytes")
        return raw
    known = (*FORMS, *RAW_FORMS)
    raise LocalError(layer.form, f"no such form{similar(layer.form, known)}", ", ".join(known))


def _fill(packet: Packet, parts: list[bytes]) -> bytes:
    """Compute lengths from the inside out, then checksums, then the CRC over the finished bytes."""
    trailer = packet.trailer
    kind = trailer.kind if trailer is not None else ""
    verbatim = bytes(CRC_SIZE) if kind in ("crc32c", "icrc") else _encode_trailer(trailer)
    has_bth = any(layer.form == "bth" for layer in packet.layers)
    pad = bytes(-len(packet.payload) % 4) if has_bth else packet.pad
    has_sharp = any(layer.form == "sharp" for layer in packet.layers)
    if has_sharp:
        pad = _fill_sharp(packet, parts)
    below = len(packet.payload) + len(pad) + len(verbatim)  # bytes behind the layer at hand
    options = 0
    crc_from = None
    position = sum(map(len, parts))
    for index in range(len(parts) - 1, -1, -1):
        form, part = packet.layers[index].form, parts[index]
        position -= len(part)
        if form == "udp":
            part = part[:4] + _u16("udp.length", below + 8) + b"\0\0"
        elif form == "ipv4.options":
            options = len(part)
            if options % 4:
                raise LocalError("ipv4.options", f"{options} bytes is not a multiple of 4")
        elif form == "ipv4":
            head = bytes([0x40 | (20 + options) // 4]) + part[1:2] + _u16("ipv4.total_length", below + 20)
            rest = part[4:10] + b"\0\0" + part[12:]
            following = parts[index + 1] if options else b""
            checksum = eth.internet_checksum(head + rest + following)
            part = head + part[4:10] + checksum.to_bytes(2, "big") + part[12:]
            options, crc_from = 0, position + 12 if crc_from is None else crc_from
        elif form == "ipv6":
            part = part[:4] + _u16("ipv6.payload_length", below) + part[6:]
            crc_from = position + 8 if crc_from is None else crc_from
        elif form == "grh":
            part = part[:4] + _u16("grh.paylen", below) + part[6:]
        elif form == "lrh":
            part = part[:4] + _words("lrh.pktlen", below + 8, part[4] & 0xF8) + part[6:]
        elif form == "bth":
            padcnt = 0 if has_sharp else len(pad)  # a SHARP message has a pad of its own
            part = part[:1] + bytes([part[1] & 0xCF | padcnt << 4]) + part[2:]
        parts[index] = part
        below += len(part)
    head = b"".join((*parts, packet.payload, pad))
    if kind == "icrc":
        _encode_trailer(trailer)  # raises for a trailer that is no number
        return _fill_invariant(packet, parts, head)
    if kind == "crc32c":
        if crc_from is None:
            raise LocalError("crc32c", "there is no IP header to count from")
        # `udp.checksum` was just set to 0, so nothing has to be masked.
        return b"".join((head, crc32c(head[crc_from:]).to_bytes(CRC_SIZE, "big"), packet.raw))
    return b"".join((head, verbatim, packet.raw))


def _fill_sharp(packet: Packet, parts: list[bytes]) -> bytes:
    """Compute the lengths of a SHARP message, unless it has more packets, and return its pad."""
    forms = [layer.form for layer in packet.layers]
    base = forms.index("sharp")
    body = base + 1 + sum(form.startswith("sharp.ext.") for form in forms)
    words = sum(map(len, parts[base + 1 : body])) // 4
    size = sum(map(len, parts[body:])) + len(packet.payload)
    head = parts[base] = bytes([parts[base][0] & 0xF0 | words]) + parts[base][1:]
    for form, values, _ in packet.layers:
        first = form == "bth" and values["opcode"] == roce.Operation.SEND_FIRST
        if first or (form == SEND_STD_SOM.name and not values["eom"]):
            return packet.pad
    parts[base] = head[:22] + _u16("sharp.payload_len", size) + head[24:]
    return bytes(-size % 4)


def _fill_invariant(packet: Packet, parts: list[bytes], head: bytes) -> bytes:
    """Return `head` (the finished bytes of `parts`, payload and pad) with ICRC and, where the packet has one, VCRC."""
    layers, offset, start = [], 0, 0
    for layer, part in zip(packet.layers, parts, strict=True):
        layers.append(Layer(layer.form, layer.values, offset))
        start = offset if layer.form == "lrh" else start
        offset += len(part)
        if layer.form == "bth":
            break
    else:
        raise LocalError("icrc", "there is no BTH")
    if not {layer.form for layer in layers} & {"lrh", "grh", "ipv4", "ipv6"}:
        raise LocalError("icrc", "there is no network header to count from")
    head += icrc(head, layers, len(head)).to_bytes(ICRC_SIZE, "little")
    if packet.vcrc is None:
        return head + packet.raw
    return b"".join((head, vcrc(head[start:]).to_bytes(VCRC_SIZE, "little"), packet.raw))


def _words(name: str, size: int, above: int) -> bytes:
    """Encode the length `size` (bytes, a multiple of 4) as a number of words in 11 bits, below the 5 bits `above`."""
    if size % 4 or size > 4 * 0x7FF:
        raise LocalError(name, f"{size} bytes are not 0 … 2047 words of 4")
    return (above << 8 | size // 4).to_bytes(2, "big")


def _u16(name: str, value: int) -> bytes:
    if value > 0xFFFF:
        raise LocalError(name, f"{value} is not in 0 … 65535")
    return value.to_bytes(2, "big")
