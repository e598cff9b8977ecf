# SPDX-License-Identifier: GPL-2.0-only
"""This module has VLAN tags (IEEE 802.1Q), whose priority tells the classes of traffic apart.

Each frame on a cable has a tag of 4 bytes, except MAC control frames, which concern only their link. Within nodes and
switches frames have no tag; links count its bytes, and captures show it. A CRC32C or ICRC does not cover it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from uetproto.framing.dscp import Dscp, dscp_of
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.knobs import check_knobs, knob
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import VLAN, EtherType

_ADDRESSES = 12
_MAC_CONTROL = EtherType.MAC_CONTROL.to_bytes(2, "big")
_TPID = EtherType.VLAN.to_bytes(2, "big")
_CODEC = codec_of(VLAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vlan:
    """These parameters are the VLAN and the priorities of frames. Raises `LocalError` for an illegal value."""

    # fmt: off
    id: int = knob(1, range(1, 4095), "", "The VLAN of all frames; without it they have no tag.", "IEEE 802.1Q")
    priority: int = knob(3, range(8), "", "The priority (PCP) of data, which PFC pauses.", "IEEE 802.1Q")
    trimmed: int = knob(4, range(8), "", "The priority of trimmed packets.", "IEEE 802.1Q")
    control: int = knob(6, range(8), "", "The priority of all other packets.", "IEEE 802.1Q")
    # fmt: on

    def __post_init__(self) -> None:
        check_knobs(self)

    def tagger(self, dscp: Dscp) -> Callable[[bytes], bytes]:
        """Return the function that returns a frame as it is on a cable, by the DSCP of the frame."""
        priorities: dict[int | None, int] = dict.fromkeys((dscp.data, dscp.data_rtx), self.priority)
        priorities |= dict.fromkeys((dscp.trimmed, dscp.trimmed_last_hop), self.trimmed)
        tags = {pcp: _TPID + _CODEC.encode({"pcp": pcp, "vid": self.id})[:2] for pcp in range(8)}

        def tagged(frame: bytes) -> bytes:
            if frame[_ADDRESSES:ETHERNET_SIZE] == _MAC_CONTROL:
                return frame
            tag = tags[priorities.get(dscp_of(frame), self.control)]
            return b"".join((frame[:_ADDRESSES], tag, frame[_ADDRESSES:]))

        return tagged


def size_with_tag(size_of: Callable[[bytes], int]) -> Callable[[bytes], int]:
    """Return the function that returns how many bytes a frame has on a cable. `size_of` does so without a tag."""
    return lambda frame: size_of(frame) + (0 if frame[_ADDRESSES:ETHERNET_SIZE] == _MAC_CONTROL else VLAN.size)
