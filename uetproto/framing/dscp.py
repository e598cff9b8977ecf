# SPDX-License-Identifier: GPL-2.0-only
"""This module maps traffic classes to DSCPs, and finds the DSCP of a frame."""

from dataclasses import dataclass

from uetproto.wire.headers.ethernet import EtherType

IPV4_TYPE, IPV6_TYPE = (kind.to_bytes(2, "big") for kind in (EtherType.IPV4, EtherType.IPV6))
"""EtherType of IPv4 and that of IPv6, as the two bytes in a frame."""


@dataclass(frozen=True, slots=True)
class Dscp:
    """This class holds the DSCP of each traffic class. The operator of the network chooses the values (cms.md §1)."""

    data: int = 8
    data_rtx: int = 10
    trimmed: int = 16
    trimmed_last_hop: int = 18
    control: int = 46

    def is_data(self, frame: bytes) -> bool:
        """Return whether the frame has a DSCP of data packets, which a switch may trim or pause."""
        return dscp_of(frame) in (self.data, self.data_rtx)


def dscp_of(frame: bytes) -> int | None:
    """Return the DSCP of a frame, or None if the frame is neither IPv4 nor IPv6."""
    kind = frame[12:14]
    if kind == IPV4_TYPE:
        return frame[15] >> 2
    if kind == IPV6_TYPE:
        return (frame[14] & 0x0F) << 2 | frame[15] >> 6
    return None
