# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the tables of the headers that carry a packet inside another one: VXLAN, GENEVE, GRE, ERSPAN, MPLS.

Options of GENEVE have no table: they are kept as raw bytes, in the one field `raw` of the form `geneve.options`.
"""

from enum import IntEnum

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header
from uetproto.wire.headers import ethernet
from uetproto.wire.headers.ethernet import IpProtocol


class TunnelProtocol(IntEnum):
    """This enumeration has the EtherTypes that say what GRE and GENEVE carry."""

    IPV4 = 0x0800
    ERSPAN_III = 0x22EB
    TRANSPARENT_ETHERNET = 0x6558
    IPV6 = 0x86DD
    MPLS = 0x8847
    MPLS_MULTICAST = 0x8848
    ERSPAN = 0x88BE


class ErspanFrame(IntEnum):
    """This enumeration has the kinds of mirrored frames."""

    ETHERNET = 0
    IP = 2


VXLAN_PORT = 4789
GENEVE_PORT = 6081
MPLS_PORT = 6635
"""UDP ports of VXLAN (RFC 7348 §5), GENEVE (RFC 8926 §3.3) and MPLS in UDP (RFC 7510 §3)."""

VXLAN = Header("vxlan", "VXLAN", "RFC 7348", 8, (
    # bits  name                  values           meaning
    F( 1, "gbp",                                   doc="the group policy extension is used"),
    F( 3, "rsvd1"),
    F( 1, "i",                                     doc="the VNI is valid"),
    F( 4, "rsvd2"),
    F( 1, "dont_learn",                            doc="of the group policy extension"),
    F( 2, "rsvd3"),
    F( 1, "policy_applied",                        doc="of the group policy extension"),
    F( 3, "rsvd4"),
    F(16, "group_policy_id"),
    F(24, "vni",                                   doc="network"),
    F( 8, "rsvd5"),
))  # fmt: skip

GENEVE = Header("geneve", "GENEVE", "RFC 8926", 8, (
    F( 2, "version"),
    F( 6, "opt_len",                               doc="words of 4 bytes of options"),
    F( 1, "oam",                                   doc="a control packet"),
    F( 1, "critical",                              doc="critical options are there"),
    F( 6, "rsvd1"),
    F(16, "protocol",             TunnelProtocol),
    F(24, "vni",                                   doc="network"),
    F( 8, "rsvd2"),
))  # fmt: skip

GRE = Header("gre", "GRE", "RFC 2784, RFC 2890", 4, (
    F( 1, "checksum_present",                      doc="gre.checksum follows"),
    F( 1, "routing_present",                       doc="of RFC 1701: not decoded"),
    F( 1, "key_present",                           doc="gre.key follows"),
    F( 1, "sequence_present",                      doc="gre.sequence follows"),
    F( 9, "rsvd"),
    F( 3, "version"),
    F(16, "protocol",             TunnelProtocol),
))  # fmt: skip

GRE_CHECKSUM = Header("gre.checksum", "GRE checksum", "RFC 2784 §2.5", 4, (
    F(16, "checksum",                              doc="over the GRE header and what it carries"),
    F(16, "rsvd"),
))  # fmt: skip

GRE_KEY = Header("gre.key", "GRE key", "RFC 2890 §2.1", 4, (
    F(32, "key"),
))  # fmt: skip

GRE_SEQUENCE = Header("gre.sequence", "GRE sequence number", "RFC 2890 §2.2", 4, (
    F(32, "sequence"),
))  # fmt: skip

ERSPAN_II = Header("erspan.ii", "ERSPAN type II", "draft-foschiano-erspan-03", 8, (
    F( 4, "version",              only=(1,)),
    F(12, "vlan"),
    F( 3, "cos"),
    F( 2, "encap",                                 doc="how the frame was tagged at the port"),
    F( 1, "truncated",                             doc="the mirrored frame was cut"),
    F(10, "session_id"),
    F(12, "rsvd"),
    F(20, "port",                                  doc="index of the port that was mirrored"),
))  # fmt: skip

ERSPAN_III = Header("erspan.iii", "ERSPAN type III", "draft-foschiano-erspan-03", 12, (
    F( 4, "version",              only=(2,)),
    F(12, "vlan"),
    F( 3, "cos"),
    F( 2, "bso",                                   doc="whether the frame was short, long or damaged"),
    F( 1, "truncated",                             doc="the mirrored frame was cut"),
    F(10, "session_id"),
    F(32, "timestamp",                             doc="in the unit of `granularity`"),
    F(16, "sgt",                                   doc="security group"),
    F( 1, "pdu",                                   doc="the mirrored frame is Ethernet"),
    F( 5, "frame_type",           ErspanFrame),
    F( 6, "hw_id",                                 doc="engine of the switch"),
    F( 1, "direction",                             doc="0: received at the port, 1: sent"),
    F( 2, "granularity",                           doc="0: 100 µs, 1: 100 ns, 2: IEEE 1588, 3: set by the user"),
    F( 1, "platform_present",                      doc="erspan.platform follows"),
))  # fmt: skip

ERSPAN_PLATFORM = Header("erspan.platform", "ERSPAN platform-specific subheader", "draft-foschiano-erspan-03", 8, (
    F( 6, "platform_id"),
    F(58, "info"),
))  # fmt: skip

MPLS = Header("mpls", "MPLS label", "RFC 3032 §2.1", 4, (
    F(20, "label"),
    F( 3, "tc",                                    doc="traffic class"),
    F( 1, "bottom",                                doc="the last label"),
    F( 8, "ttl"),
))  # fmt: skip

MPLS_CONTROL = Header("mpls.control", "Control word of a pseudowire", "RFC 4448 §4.6", 4, (
    F( 4, "zero",                 only=(0,)),
    F(12, "rsvd"),
    F(16, "sequence",                              doc="0: not counted"),
))  # fmt: skip

GRE_PARTS = {
    "checksum_present": GRE_CHECKSUM,
    "key_present": GRE_KEY,
    "sequence_present": GRE_SEQUENCE,
}
"""Maps each flag of GRE to the header that follows if the flag is set, in the order of the headers."""

HEADERS = (VXLAN, GENEVE, GRE, *GRE_PARTS.values(), ERSPAN_II, ERSPAN_III, ERSPAN_PLATFORM, MPLS, MPLS_CONTROL)

MOST_TUNNELS = 4
"""Number of tunnels that are followed into each other. VXLAN, GENEVE, GRE and a stack of labels each count as one."""
MOST_LABELS = 16
"""Number of labels of one stack that are followed."""

# What carries what ----------------------------------------------------------------------------------------------------

BY_ETHERTYPE: dict[int, Header] = {
    TunnelProtocol.IPV4: ethernet.IPV4,
    TunnelProtocol.IPV6: ethernet.IPV6,
    TunnelProtocol.TRANSPARENT_ETHERNET: ethernet.ETHERNET,
    TunnelProtocol.MPLS: MPLS,
    TunnelProtocol.MPLS_MULTICAST: MPLS,
    TunnelProtocol.ERSPAN: ERSPAN_II,
    TunnelProtocol.ERSPAN_III: ERSPAN_III,
}
"""Maps an EtherType to the header that it announces, in Ethernet, GRE and GENEVE alike. Either EtherType of ERSPAN
announces both types of its header, which their version tells apart."""
BY_PROTOCOL: dict[int, Header] = {IpProtocol.GRE: GRE, IpProtocol.MPLS: MPLS}
BY_PORT: dict[int, Header] = {VXLAN_PORT: VXLAN, GENEVE_PORT: GENEVE, MPLS_PORT: MPLS}
"""Maps an IP protocol, and a UDP port, to the header of the tunnel that it announces."""
BY_NIBBLE: dict[int, Header] = {4: ethernet.IPV4, 6: ethernet.IPV6, 0: MPLS_CONTROL}
"""Maps the first four bits behind a stack of labels to the header that begins there (RFC 4928 §3)."""
