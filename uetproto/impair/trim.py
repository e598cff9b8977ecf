# SPDX-License-Identifier: GPL-2.0-only
"""This module trims packets as switches do (cms.md §7): all but the first bytes of a packet is cut off."""

from uetproto.engine.contract import Trim
from uetproto.framing.dscp import IPV4_TYPE, Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.impair.unencoded_frames import UnencodedFrame
from uetproto.wire.headers.ethernet import IpProtocol, internet_checksum

_IPV4_SIZE, _IPV6_SIZE = 20, 40

MIN_TRIM_SIZE: dict[int, int] = {IpProtocol.UDP: 24, IpProtocol.UET: 20}
"""Number of bytes of IP payload that a trimmed packet keeps, for each IP protocol: the UDP or entropy header, and 16
bytes behind that header (cms.md §7)."""


def trim(frame: bytes, dscp: Dscp, *, last_hop: bool) -> bytes | None:
    """Return the trimmed frame with the DSCP of trimmed packets, or None for a frame that must not be trimmed.

    Addresses, entropy, ECN and the UDP length stay as they were. The IP length and the IPv4 checksum become those of
    the trimmed packet.
    """
    if not dscp.is_data(frame):
        return None
    if type(frame) is UnencodedFrame:
        reason = Trim.LAST_HOP if last_hop else Trim.TRIMMED
        return frame.trimmed(lambda whole: trim(whole, dscp, last_hop=last_hop), reason)
    mark = dscp.trimmed_last_hop if last_hop else dscp.trimmed
    head = bytearray(frame[:ETHERNET_SIZE])
    if frame[12:14] == IPV4_TYPE:
        size = MIN_TRIM_SIZE.get(frame[23])
        start = ETHERNET_SIZE + _IPV4_SIZE
        if size is None or frame[ETHERNET_SIZE] != 0x45 or len(frame) <= start + size:
            return None
        ip = bytearray(frame[ETHERNET_SIZE:start])
        ip[1] = mark << 2 | ip[1] & 3
        ip[2:4] = (_IPV4_SIZE + size).to_bytes(2, "big")
        ip[10:12] = b"\0\0"
        ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2, "big")
    else:
        size = MIN_TRIM_SIZE.get(frame[20])
        start = ETHERNET_SIZE + _IPV6_SIZE
        if size is None or len(frame) <= start + size:
            return None
        ip = bytearray(frame[ETHERNET_SIZE:start])
        ip[0] = ip[0] & 0xF0 | mark >> 2
        ip[1] = (mark & 3) << 6 | ip[1] & 0x3F
        ip[4:6] = size.to_bytes(2, "big")
    return b"".join((head, ip, frame[start : start + size]))
