# SPDX-License-Identifier: GPL-2.0-only
"""This module decodes a frame header by header, whatever is wrong with it, and says what is wrong.

`stack.decode` tries `fast_walk` first, which decodes frames that have no defect.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from uetproto.wire.codec import Codec, codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c, trailer_crc
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, Candidates, matches, rows_after
from uetproto.wire.headers import ethernet as eth
from uetproto.wire.headers import roce, tunnels, uet_tss
from uetproto.wire.headers.ethernet import EtherType, IpProtocol
from uetproto.wire.headers.tunnels import ErspanFrame, TunnelProtocol
from uetproto.wire.icrc import ICRC_SIZE, VCRC_SIZE, icrc, vcrc
from uetproto.wire.implied import implied_payload
from uetproto.wire.packet import CRC_SUSPECT, Fault, Layer, Packet, Trailer
from uetproto.wire.shapes import SUSPECT_SIZES, header_reader

Settings = tuple[str, str, int, int, int, frozenset[int], str]
"""Settings of `stack.decode`: link, crc, udp_port, ip_protocol, roce_port, trimmed_dscp and rd."""


def walk(data: bytes, settings: Settings, truncated: bool) -> Packet:
    """Decode a frame one header at a time. This works for every frame, and is slower than `FastWalk`."""
    step = _Walk(data, truncated)
    _, step.crc, step.udp_port, step.ip_protocol, step.roce_port, step.trimmed_dscp, step.rd = settings
    step.link(settings[0])
    return step.packet


class _Walk:
    """A walk through one frame keeps its position, the end of the frame, and what it found."""

    __slots__ = (
        "crc", "crc_from", "data", "end", "ip_end", "ip_protocol", "layers", "packet", "pos", "rd", "roce_port",
        "trimmed", "trimmed_dscp", "truncated", "tunnels", "udp_checksum_at", "udp_port",
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
        self.tunnels = 0
        self.crc_from = 0
        self.udp_checksum_at: int | None = None
        if truncated:
            self.packet.notes = ("truncated",)

    # What a walk reports

    def note(self, name: str) -> None:
        if name not in self.packet.notes:
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
            self.ip()
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
        if ethertype in eth.VLAN_TYPES:
            self.stop("unknown", "more than two 802.1Q tags")
        else:
            self.carried(ethertype)

    def carried(self, ethertype: int) -> None:
        """Decode what an EtherType announces."""
        self.announced(_BY_ETHERTYPE, ethertype, f"EtherType 0x{ethertype:04x}")

    def announced(self, following: "_Announced", code: int, reason: str) -> None:
        """Decode what a code announces; stop with `reason` if this has no table."""
        follow = following.get(code)
        if follow is None:
            self.stop("unknown", reason)
        else:
            follow(self)

    def ip(self) -> None:
        """Decode an IP header, whose first bits tell the version."""
        is_ipv6 = self.pos < self.end and self.data[self.pos] >> 4 == 6
        (self.ipv6 if is_ipv6 else self.ipv4)()

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
        self.trimmed |= values["dscp"] in self.trimmed_dscp
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
        self.trimmed |= values["dscp"] in self.trimmed_dscp
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
        elif end > self.end and not (self.truncated or self.trimmed or self.packet.error):
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
            return self.announced(_BY_PORT, values["dport"], f"UDP port {values['dport']}: not UET")
        if protocol == self.ip_protocol:
            return self.uet(_AFTER_IP)
        return self.announced(_BY_PROTOCOL, protocol, f"IP protocol {protocol}")

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

    # Tunnels

    def tunnel(self, codec: Codec) -> Mapping[str, int] | None:
        """Decode the first header of a tunnel; return None if it does not fit, or if there are too many tunnels."""
        self.tunnels += 1
        if self.tunnels > tunnels.MOST_TUNNELS:
            self.stop("unknown", f"more than {tunnels.MOST_TUNNELS} tunnels in each other")
            return None
        return self.take(codec)

    def ethernet(self) -> None:
        self.typed(_ETHERNET)

    def vxlan(self) -> None:
        if self.tunnel(_VXLAN) is not None:
            self.ethernet()

    def geneve(self) -> None:
        values = self.tunnel(_GENEVE)
        if values is None:
            return
        if values["version"]:
            self.stop("unknown", f"GENEVE version {values['version']}")
        elif not values["opt_len"] or self.raw_layer("geneve.options", values["opt_len"] * 4):
            self.carried(values["protocol"])

    def gre(self) -> None:
        values = self.tunnel(_GRE)
        if values is None:
            return None
        if values["version"] or values["routing_present"]:
            return self.stop("unknown", f"GRE version {values['version']}, routing {values['routing_present']}")
        for flag, codec in _GRE_PARTS:
            if values[flag] and self.take(codec) is None:
                return None
        if values["protocol"] == TunnelProtocol.ERSPAN and not values["sequence_present"]:
            return self.ethernet()  # type I has no header of its own
        return self.carried(values["protocol"])

    def erspan(self) -> None:
        """Decode the header of a mirrored frame, which says whether the mirror has cut the frame."""
        if self.pos >= self.end:
            return self.cut_short(_ERSPAN_II.header.name, _ERSPAN_II.header.size)
        version = self.data[self.pos] >> 4
        codec = _ERSPAN.get(version)
        if codec is None:
            return self.stop("unknown", f"ERSPAN version {version}")
        values = self.take(codec)
        if values is None or (values.get("platform_present") and self.take(_ERSPAN_PLATFORM) is None):
            return None
        if values["truncated"]:
            self.truncated = True
            self.note("truncated")
        kind = values.get("frame_type", ErspanFrame.ETHERNET)
        if kind in (ErspanFrame.ETHERNET, ErspanFrame.IP):
            return self.ethernet() if kind == ErspanFrame.ETHERNET else self.ip()
        return self.stop("unknown", f"ERSPAN frame type {kind}")

    def mpls(self) -> None:
        """Decode a stack of labels, and what the first bits behind it announce (RFC 4928 §3)."""
        values = self.tunnel(_MPLS)
        for _ in range(tunnels.MOST_LABELS - 1):
            if values is None or values["bottom"]:
                break
            values = self.take(_MPLS)
        if values is None:
            return None
        if not values["bottom"]:
            return self.stop("unknown", f"more than {tunnels.MOST_LABELS} labels of MPLS")
        if self.pos >= self.end:
            return self.cut_short("what MPLS carries", 1)
        return self.announced(_BY_NIBBLE, self.data[self.pos] >> 4, "MPLS without IP or a control word")

    def pseudowire(self) -> None:
        if self.take(_MPLS_CONTROL) is not None:
            self.ethernet()

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
        elif end < self.end and not local:
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

_VXLAN, _GENEVE, _GRE, _MPLS, _MPLS_CONTROL, _ERSPAN_II, _ERSPAN_PLATFORM = (
    codec_of(header)
    for header in (
        tunnels.VXLAN, tunnels.GENEVE, tunnels.GRE, tunnels.MPLS, tunnels.MPLS_CONTROL, tunnels.ERSPAN_II,
        tunnels.ERSPAN_PLATFORM,
    )
)  # fmt: skip
_GRE_PARTS = [(flag, codec_of(header)) for flag, header in tunnels.GRE_PARTS.items()]
_ERSPAN = {header["version"].default: codec_of(header) for header in (tunnels.ERSPAN_II, tunnels.ERSPAN_III)}
_FOLLOW: dict[Header, Callable[[_Walk], None]] = {
    eth.ETHERNET: _Walk.ethernet,
    eth.IPV4: _Walk.ipv4,
    eth.IPV6: _Walk.ipv6,
    tunnels.VXLAN: _Walk.vxlan,
    tunnels.GENEVE: _Walk.geneve,
    tunnels.GRE: _Walk.gre,
    tunnels.ERSPAN_II: _Walk.erspan,
    tunnels.ERSPAN_III: _Walk.erspan,
    tunnels.MPLS: _Walk.mpls,
    tunnels.MPLS_CONTROL: _Walk.pseudowire,
}
_Announced = Mapping[int, Callable[[_Walk], None]]
_BY_ETHERTYPE: _Announced = {
    EtherType.ROCEV1: _Walk.grh,
    EtherType.MAC_CONTROL: _Walk.pfc,
    **{code: _FOLLOW[header] for code, header in tunnels.BY_ETHERTYPE.items()},
}
_BY_PROTOCOL: _Announced = {code: _FOLLOW[header] for code, header in tunnels.BY_PROTOCOL.items()}
_BY_PORT: _Announced = {code: _FOLLOW[header] for code, header in tunnels.BY_PORT.items()}
_BY_NIBBLE: _Announced = {code: _FOLLOW[header] for code, header in tunnels.BY_NIBBLE.items()}
