# SPDX-License-Identifier: GPL-2.0-only
"""This module puts frames into tunnels, whose headers Scapy makes."""

from collections.abc import Callable
from typing import Any

from scapy.contrib.erspan import ERSPAN_II, ERSPAN_III, ERSPAN_PlatformSpecific
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

_MACS = {"src": "02:00:00:00:aa:01", "dst": "02:00:00:00:aa:02"}
_OPTION = GeneveOptions(classid=0x102, type=0x80, data=b"\1\2\3\4")


def _v4(**fields: Any) -> Any:
    return Ether(**_MACS) / IP(src="192.0.2.1", dst="192.0.2.2", **fields)


def _v6() -> Any:
    return Ether(**_MACS) / IPv6(src="2001:db8::1", dst="2001:db8::2")


def _udp(port: int, **fields: Any) -> Any:
    return UDP(sport=50_000, dport=port, **fields)


def _mirror(header: Any, protocol: int) -> Any:
    return _v4() / GRE(proto=protocol, seqnum_present=1, sequence_number=5) / header


def _labels(*labels: tuple[int, int]) -> Any:
    stack = Ether(**_MACS, type=0x8847)
    for number, (label, cos) in enumerate(labels, 1):
        stack = stack / MPLS(label=label, cos=cos, s=int(number == len(labels)), ttl=60 + number)
    return stack


FRAMES: dict[str, Callable[[], Any]] = {
    "vxlan": lambda: _v4() / _udp(4789, chksum=0) / VXLAN(flags=8, gpid=0, vni=4242),
    "vxlan over ipv6": lambda: _v6() / _udp(4789) / VXLAN(flags=8, gpid=0, vni=0xFFFFFF),
    "vxlan with a group": lambda: _v4() / _udp(4789, chksum=0) / VXLAN(flags=0x88, gpflags=0x48, gpid=77, vni=1),
    "geneve": lambda: _v4() / _udp(6081, chksum=0) / GENEVE(vni=77, proto=0x6558),
    "geneve with options": lambda: (
        _v4() / _udp(6081) / GENEVE(vni=77, proto=0x6558, critical=1, oam=1, options=[_OPTION, _OPTION])
    ),
    "gre": lambda: _v4() / GRE(proto=0x6558),
    "gre over ipv6": lambda: _v6() / GRE(proto=0x6558, key_present=1, key=5),
    "gre with all": lambda: (
        _v4() / GRE(proto=0x6558, chksum_present=1, key_present=1, key=0xDEADBEEF, seqnum_present=1, sequence_number=12)
    ),
    "erspan i": lambda: _v4() / GRE(proto=0x88BE),
    "erspan ii": lambda: _mirror(ERSPAN_II(vlan=100, cos=3, en=2, session_id=7, index=0x12345), 0x88BE),
    "erspan iii": lambda: _mirror(
        ERSPAN_III(vlan=4095, cos=5, bso=1, session_id=1023, timestamp=0x11223344, sgt_other=55, p=1, hw=33,
                   d=1, gra=2), 0x22EB
    ),
    "erspan iii with a subheader": lambda: (
        _mirror(ERSPAN_III(vlan=100, session_id=7, timestamp=1, p=1, o=1), 0x22EB)
        / ERSPAN_PlatformSpecific(platf_id=3, info1=5, info2=6)
    ),
    "pseudowire": lambda: _labels((16, 0), (17, 5)) / Raw(b"\0\0\0\7"),
    "vxlan in gre in a vlan": lambda: (
        _v4() / GRE(proto=0x6558) / Ether(**_MACS) / Dot1Q(vlan=5, prio=3) / IP(src="198.51.100.1", dst="198.51.100.2")
        / _udp(4789, chksum=0) / VXLAN(flags=8, gpid=0, vni=3)
    ),
}  # fmt: skip
"""Maps names to what Scapy puts around an Ethernet frame."""

PACKETS: dict[str, Callable[[int], Any]] = {
    "geneve of ip": lambda kind: _v4() / _udp(6081, chksum=0) / GENEVE(vni=77, proto=kind),
    "gre of ip": lambda kind: _v4() / GRE(proto=kind),
    "erspan iii of ip": lambda kind: _mirror(ERSPAN_III(vlan=1, session_id=7, timestamp=1, ft=2), 0x22EB),
    "mpls": lambda kind: _labels((16, 1), (0xFFFFF, 7), (18, 0)),
    "mpls in udp": lambda kind: _v4() / _udp(6635, chksum=0) / MPLS(label=19, s=1, ttl=8),
    "mpls in gre": lambda kind: _v4() / GRE(proto=0x8847) / MPLS(label=19, s=1, ttl=8),
    "mpls in ip": lambda kind: _v4(proto=137) / MPLS(label=19, s=1, ttl=8),
}
"""Maps names to what Scapy puts around an IP packet with this EtherType."""

NAMES = (*FRAMES, *PACKETS)


def tunnelled(frame: bytes, name: str) -> bytes:
    """Return an Ethernet frame with the headers of a tunnel around it, or around the IP packet in it."""
    if name in FRAMES:
        return bytes(FRAMES[name]() / Raw(frame))
    return bytes(PACKETS[name](int.from_bytes(frame[12:14], "big")) / Raw(frame[14:]))
