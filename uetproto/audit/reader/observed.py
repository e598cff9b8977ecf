"""An audit sees a packet as named tuples of its headers; what no rule needs is not kept.

`seen.head.psn` is the PSN of the header that leads the transport: a PDS header, a BTH, or a security header that was
not opened. The class of a header tells which header it is: `seen.head.form` is the name, such as `pds.rud_req.syn`.
"""

from typing import Any, NamedTuple

from uetproto.engine.tss.cipher import Refused
from uetproto.engine.tss.opener import Opened
from uetproto.wire.codec import header_class
from uetproto.wire.forms import FORMS
from uetproto.wire.packet import Packet

Head = Any
"""A header is a named tuple of the fields of its form (`wire.tuples`), with the class attribute `form`."""


class ObservedPacket(NamedTuple):
    """An observed packet is a packet as an audit sees it. Numbers count from 0 in its file, times are nanoseconds."""

    number: int
    time_ns: int
    src: int
    """Address of the sender, with its kind (`address.py`)."""
    dst: int
    dscp: int
    ecn: int
    entropy: int
    """UDP source port, or the field of the entropy header, which selects the path."""
    head: Head
    """Header that leads the transport: PDS header, BTH or security header."""
    ses: Head
    """SES request or response that follows `head`; None if there is none."""
    more: tuple[Head, ...]
    """Further headers: CC states, extensions, and RETH, AETH and others of RoCE."""
    size: int
    """Size of the payload in bytes; -1 if it is unknown because the capture kept less."""
    content: int | None
    """CRC32C that stands for SES header, extensions and payload, equal in all copies of a packet; None if not known."""
    packet: Packet | None
    """The decoded packet, if something is not as expected; None if reserved bits are 0, lengths agree and the CRC is
    right. For a truncated packet that has all its headers, None says this of the headers only."""
    opening: Opened | Refused | None = None
    """Result of opening a sealed packet; None if there are no keys or the packet is not sealed."""

    @property
    def is_trimmed(self) -> bool:
        return self.packet is not None and "trimmed" in self.packet.notes


def head_class(form: str) -> Any:
    """Return the class of the headers of a form (`wire.tuples`)."""
    return header_class(FORMS[form])
