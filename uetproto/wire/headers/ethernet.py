# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the tables of headers below UET and RoCE: Ethernet, 802.1Q, IP, UDP, PFC, and links of captures.

Addresses are integers here and in JSON; other outputs show them as text. IPv4 options and the extension headers of IPv6
and ERF have no table: they are kept as raw bytes, in the one field `raw` of the forms `ipv4.options`, `ipv6.ext` and
`erf.ext`.
"""

from enum import IntEnum

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header


class EtherType(IntEnum):
    IPV4 = 0x0800
    ARP = 0x0806
    VLAN = 0x8100
    IPV6 = 0x86DD
    MPLS = 0x8847
    MPLS_MULTICAST = 0x8848
    MAC_CONTROL = 0x8808
    QINQ = 0x88A8
    ROCEV1 = 0x8915


class IpProtocol(IntEnum):
    HOP_BY_HOP = 0
    ICMP = 1
    TCP = 6
    UDP = 17
    ROUTING = 43
    FRAGMENT = 44
    GRE = 47
    ESP = 50
    AH = 51
    ICMPV6 = 58
    NO_NEXT_HEADER = 59
    DESTINATION = 60
    MOBILITY = 135
    MPLS = 137
    HIP = 139
    SHIM6 = 140
    UET = 253


class Ecn(IntEnum):
    NOT_ECT = 0
    ECT1 = 1
    ECT0 = 2
    CE = 3


VLAN_TYPES = (EtherType.VLAN, EtherType.QINQ)

ETHERNET = Header("ethernet", "Ethernet II", "IEEE 802.3", 14, (
    # bits  name                  values      meaning
    F(48, "dst"),
    F(48, "src"),
    F(16, "type",                 EtherType),
))  # fmt: skip

VLAN = Header("vlan", "802.1Q tag", "IEEE 802.1Q", 4, (
    F( 3, "pcp",                              doc="priority"),
    F( 1, "dei",                              doc="drop eligible"),
    F(12, "vid",                              doc="VLAN"),
    F(16, "type",                 EtherType),
))  # fmt: skip

IPV4 = Header("ipv4", "IPv4", "RFC 791", 20, (
    F( 4, "version",              only=(4,)),
    F( 4, "ihl",                  only=(5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), doc="header words of 4 bytes"),
    F( 6, "dscp"),
    F( 2, "ecn",                  Ecn),
    F(16, "total_length"),
    F(16, "identification"),
    F( 1, "rsvd"),
    F( 1, "df",                               doc="do not fragment"),
    F( 1, "mf",                               doc="more fragments"),
    F(13, "fragment_offset",                  doc="in units of 8 bytes"),
    F( 8, "ttl"),
    F( 8, "protocol",             IpProtocol),
    F(16, "checksum"),
    F(32, "src"),
    F(32, "dst"),
))  # fmt: skip

IPV6 = Header("ipv6", "IPv6", "RFC 8200", 40, (
    F(  4, "version",             only=(6,)),
    F(  6, "dscp"),
    F(  2, "ecn",                 Ecn),
    F( 20, "flow_label"),
    F( 16, "payload_length"),
    F(  8, "next_header",         IpProtocol),
    F(  8, "hop_limit"),
    F(128, "src"),
    F(128, "dst"),
))  # fmt: skip

UDP = Header("udp", "UDP", "RFC 768", 8, (
    F(16, "sport",                            doc="for UET the entropy value"),
    F(16, "dport"),
    F(16, "length"),
    F(16, "checksum",                         doc="for UET sent as 0 and ignored"),
))  # fmt: skip

SLL = Header("sll", "Linux cooked capture", "LINKTYPE_LINUX_SLL", 16, (
    F(16, "packet_type"),
    F(16, "arphrd"),
    F(16, "addr_length"),
    F(64, "addr"),
    F(16, "type",                 EtherType),
))  # fmt: skip

SLL2 = Header("sll2", "Linux cooked capture v2", "LINKTYPE_LINUX_SLL2", 20, (
    F(16, "type",                 EtherType),
    F(16, "rsvd"),
    F(32, "if_index"),
    F(16, "arphrd"),
    F( 8, "packet_type"),
    F( 8, "addr_length"),
    F(64, "addr"),
))  # fmt: skip

PFC = Header("pfc", "Priority-based flow control", "IEEE 802.1Qbb", 20, (
    F(16, "opcode",               only=(0x0101,)),
    F(16, "enable",                           doc="bit i: class i is meant"),
    *(F(16, f"pause{i}",                      doc="in 512 bit times, 0: resume") for i in range(8)),
))  # fmt: skip

ERF = Header("erf", "Extensible record format", "LINKTYPE_ERF", 16, (
    F(64, "ts",                               doc="time, least significant byte first"),
    F( 1, "ext",                              doc="extension headers follow"),
    F( 7, "type",                             doc="21: InfiniBand"),
    F( 8, "flags"),
    F(16, "rlen",                             doc="bytes of the record"),
    F(16, "lctr",                             doc="records lost before"),
    F(16, "wlen",                             doc="bytes on the wire"),
))  # fmt: skip
ERF_INFINIBAND = 21
ERF_EXTENSION_SIZE = 8

HEADERS = (ETHERNET, VLAN, IPV4, IPV6, UDP, SLL, SLL2, PFC, ERF)


def internet_checksum(data: bytes) -> int:
    """Return the complement of the ones' complement sum of RFC 1071 over `data` of even length."""
    # 2^16 is 1 modulo 65535, so the big number modulo 65535 is the ones' complement sum of its 16-bit words.
    total = int.from_bytes(data, "big")
    return 0xFFFF - (total % 0xFFFF or (0xFFFF if total else 0))


def ipv6_extension_length(protocol: int, data: bytes, offset: int) -> int | None:
    """Return the size in bytes of the IPv6 extension header at `offset`, or None for a header that cannot be skipped.

    `protocol` is the number of this extension header. The rules are those of RFC 8200 §4, and for AH those of RFC 4302.
    `data` must have at least two bytes from `offset` on.
    """
    if protocol == IpProtocol.FRAGMENT:
        return 8
    if protocol == IpProtocol.AH:
        return (data[offset + 1] + 2) * 4
    if protocol in _GENERIC_EXTENSIONS:
        return (data[offset + 1] + 1) * 8
    return None


_GENERIC_EXTENSIONS = frozenset({
    IpProtocol.HOP_BY_HOP, IpProtocol.ROUTING, IpProtocol.DESTINATION,
    IpProtocol.MOBILITY, IpProtocol.HIP, IpProtocol.SHIM6,
})  # fmt: skip
IPV6_EXTENSIONS = _GENERIC_EXTENSIONS | {IpProtocol.FRAGMENT, IpProtocol.AH}
