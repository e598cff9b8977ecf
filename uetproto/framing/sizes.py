"""This module has header sizes: how many bytes of an IP packet stand around a payload. Every check of an MTU takes its
numbers here.
"""

from uetproto.wire.headers.ethernet import ETHERNET, IPV4, IPV6, UDP
from uetproto.wire.headers.roce import BTH, DETH, IMM, RETH
from uetproto.wire.headers.uet_pds import ROD_REQ
from uetproto.wire.headers.uet_ses import EXT_RENDEZVOUS, REQUEST_STD_SOM
from uetproto.wire.headers.uet_tss import ENTROPY
from uetproto.wire.icrc import ICRC_SIZE

ETHERNET_SIZE = ETHERNET.size
UET_REQUEST = ROD_REQ.size + REQUEST_STD_SOM.size
"""Bytes of the PDS header and the standard SES header of a request."""
UET_EXTENSION = EXT_RENDEZVOUS.size
"""Bytes of the longest extension header that stands before a full payload: that of a rendezvous send."""
ROCE_REQUEST = BTH.size + RETH.size + IMM.size
"""Bytes of the longest RoCE headers that stand before a full payload: those of a WRITE with immediate data."""
ROCE_DATAGRAM = BTH.size + DETH.size + IMM.size
"""Bytes of the RoCE headers of a datagram with immediate data."""


def ip_size(ip_version: int) -> int:
    """Return the bytes of the IP header."""
    return IPV4.size if ip_version == 4 else IPV6.size


def below_uet(ip_version: int, *, udp: bool) -> int:
    """Return the bytes of the IP packet before the transport header: the IP header, and UDP or the entropy header."""
    return ip_size(ip_version) + (UDP.size if udp else ENTROPY.size)


def below_roce(ip_version: int) -> int:
    """Return the bytes of the IP packet before the BTH."""
    return ip_size(ip_version) + UDP.size


def around_roce(ip_version: int, headers: int = ROCE_REQUEST) -> int:
    """Return the bytes of a RoCEv2 packet that are not payload, with `headers` bytes from the BTH to the payload."""
    return below_roce(ip_version) + headers + ICRC_SIZE
