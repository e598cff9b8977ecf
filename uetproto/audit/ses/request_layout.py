# SPDX-License-Identifier: GPL-2.0-only
"""This module finds the fields of SES request headers that are equal in all packets of a message (ses.md §2,
ses.md §15)."""

from operator import itemgetter
from typing import Any, NamedTuple

from uetproto.audit.reader.observed import Head, head_class
from uetproto.wire.headers.uet_ses import MEDIUM, REQUEST_SMALL, RTR_STD, STANDARD, Opcode

_M32 = 0xFFFFFFFF
COMMON = (
    "dc", "rel", "ri_generation", "job_id", "pid_on_fep", "resource_index", "initiator", "key", "request_length",
    "place",
)  # fmt: skip
"""Names of the fields, besides the opcode, that are equal in all packets of a message (ses.md §15, invariant 5). `key`
is the memory key or the match bits; `place` is buffer_offset, or the two tokens of a deferrable send as one number."""
_KEYS = ("memory_key", "match_bits")
_PLACES = ("buffer_offset", "initiator_restart_token", "target_restart_token")


class RequestLayout(NamedTuple):
    """This record holds the positions of fields in the request headers of one form."""

    standard: bool
    """Whether the header has a message_id."""
    offset: int
    """Index of the field message_offset in the header; the field payload_length is before it. The index is 0 if the
    header has no message_offset, as the header of the first packet of a message."""
    common: "itemgetter[Any] | None"
    """Function that returns the values of `COMMON` in a header. It is None if messages of this form have one packet
    only."""


def _layout(form: str) -> RequestLayout:
    names = head_class(form)._fields
    keys = [name for name in names if name in _KEYS]
    if form == RTR_STD.name or not keys or "message_id" not in names:
        return RequestLayout(form == RTR_STD.name, 0, None)
    wanted = [*COMMON[:7], *keys, "request_length", *(name for name in names if name in _PLACES)]
    offset = names.index("message_offset") if "message_offset" in names else 0
    return RequestLayout(True, offset, itemgetter(*(names.index(name) for name in wanted)))


LAYOUTS: dict[type, RequestLayout] = {
    head_class(header.name): _layout(header.name) for header in (*STANDARD, *MEDIUM, REQUEST_SMALL)
}
"""Maps the class of a request header to its layout."""


def common_of(head: Head, layout: RequestLayout) -> tuple[int, ...]:
    """Return the values of `COMMON` in a header. The tuple is empty if messages of this form have one packet only."""
    if layout.common is None:
        return ()
    values: tuple[int, ...] = layout.common(head)
    return values if len(values) == len(COMMON) else (*values[:-2], values[-2] << 32 | values[-1])


def clear_of(head: Head) -> int:
    """Return the CLEAR_PSN of a request. The sender has read the answers to all requests up to this PSN
    (UE 1.0.1 §3.5.11.4.4)."""
    clear: int = (head.psn + head.clear_psn_offset) & _M32
    return clear


def differ(one: Head, other: Head) -> bool:
    """Return whether two packets of a message differ in the opcode or in the fields of `COMMON`."""
    changed = one.opcode != other.opcode and Opcode.MSG_ERROR not in (one.opcode, other.opcode)
    return changed or common_of(one, LAYOUTS[type(one)]) != common_of(other, LAYOUTS[type(other)])
