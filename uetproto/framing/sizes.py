# SPDX-License-Identifier: GPL-2.0-only
"""This module has the sizes of headers and trailers: how many bytes of an IP packet are not payload.

Every check of an MTU uses these sizes.
"""

from uetproto.wire.headers.ethernet import ETHERNET, IPV4, IPV6, UDP
from uetproto.wire.headers.roce import BTH, DETH, IMM, RETH
from uetproto.wire.headers.uet_pds import ROD_REQ
from uetproto.wire.headers.uet_ses import EXT_RENDEZVOUS, REQUEST_STD_SOM
from uetproto.wire.headers.uet_tss import ENTROPY
from uetproto.wire.icrc import ICRC_SIZE

ETHERNET_SIZE = ETHERNET.size
UET_REQUEST = ROD_REQ.size + REQUEST_STD_SOM.size
"""Size of the PDS header and the standard SES header of a request, in bytes."""
UET_EXTENSION = EXT_RENDEZVOUS.size
"""Size of the longest extension header before a full payload, in bytes: that of a rendezvous send."""
ROCE_REQUEST = BTH.size + RETH.size + IMM.size
"""Size of the longest RoCE headers before a full payload, in bytes: those of a WRITE with immediate data."""
ROCE_DATAGRAM = BTH.size + DETH.size + IMM.size
"""Size of the RoCE headers of a datagram with immediate data, in bytes."""


def ip_size(ip_version: int) -> int:
    """Return the size of the IP header in bytes."""
    return IPV4.size if ip_version == 4 else IPV6.size


def below_uet(ip_version: int, *, udp: bool) -> int:
    """Return the size in bytes of the headers before the PDS header: IP, and UDP or the entropy header."""
    return ip_size(ip_version) + (UDP.size if udp else ENTROPY.size)


def below_roce(ip_version: int) -> int:
    """Return the size in bytes of the headers before the BTH: IP and UDP."""
    return ip_size(ip_version) + UDP.size


def around_roce(ip_version: int, headers: int = ROCE_REQUEST) -> int:
    """Return the number of bytes of a RoCEv2 packet, from IP to the ICRC, that are not payload.

    `headers` is the number of bytes of the BTH and its extension headers.
    """
    return below_roce(ip_version) + headers + ICRC_SIZE
