# SPDX-License-Identifier: GPL-2.0-only
"""This module represents a packet by named tuples of its headers for an audit. Anything that no rule needs is left out.

`seen.head` is the first transport header: a PDS header, a BTH, or a security header if the packet was not opened.
`seen.head.psn` is the PSN in this header, and `seen.head.form` is the name of its form, such as `pds.rud_req.syn`.
"""

from typing import Any, NamedTuple

from uetproto.engine.tss.cipher import Refused
from uetproto.engine.tss.opener import Opened
from uetproto.wire.codec import header_class
from uetproto.wire.forms import FORMS
from uetproto.wire.packet import Packet

Head = Any
"""Type of a header: a named tuple of the fields of its form (`wire.tuples`), with the class attribute `form`."""


class ObservedPacket(NamedTuple):
    """This record holds a packet as an audit sees it. `number` counts the records of a file from 0, and `time_ns` is
    the time of capture in nanoseconds."""

    number: int
    time_ns: int
    src: int
    """Address of the sender, as a number that also tells the type of address (`address.py`)."""
    dst: int
    dscp: int
    ecn: int
    entropy: int
    """UDP source port, or the field of the entropy header; it selects the path through the network."""
    head: Head
    """First transport header: a PDS header, a BTH or a security header. It is None if no such header can be read."""
    ses: Head
    """SES header of a request or response, or None if there is none or the capture cut it."""
    more: tuple[Head, ...]
    """Further headers: states of congestion control, extensions of SES, and headers of RoCE behind the BTH, such as
    RETH and AETH."""
    size: int
    """Size of the payload in bytes. It is -1 if the size is unknown because the packet is not whole."""
    content: int | None
    """CRC32C over the SES header, its extensions and the payload, which is equal in all copies of a packet. It is None
    if the packet is not whole."""
    packet: Packet | None
    """Decoded packet, if something is not as expected. It is None if reserved bits are 0, lengths agree and the CRC is
    right. For a truncated packet that has all its headers, None says this of the headers only."""
    opening: Opened | Refused | None = None
    """Result of opening a sealed packet. It is None if there are no keys or the packet is not sealed."""
    outer: int = 0
    """Number of bytes of the UDP or entropy header and of the trailer of a UET packet."""

    @property
    def is_trimmed(self) -> bool:
        return self.packet is not None and "trimmed" in self.packet.notes


def head_class(form: str) -> Any:
    """Return the class of the named tuples for headers of a form (`wire.tuples`)."""
    return header_class(FORMS[form])
