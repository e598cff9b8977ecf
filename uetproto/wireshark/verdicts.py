# SPDX-License-Identifier: GPL-2.0-only
"""This module says which rules of `uetproto audit` the plugin judges: those that need nothing but the packet itself.

A field has a rule if the tables of `wire.forms` limit its values. The plugin knows these values from here, and shows an
expert info for each other one. Lengths and CRCs are judged by hand-written code of the prelude.
"""

from typing import NamedTuple

from uetproto.wire.fields import Header
from uetproto.wire.forms import UET_FORMS, VERSIONS, code_fields, reserved_fields
from uetproto.wire.headers.uet_pds import REQUESTS
from uetproto.wire.headers.uet_ses import RESPONSES, ResponseOpcode, ReturnCode


class PacketVerdict(NamedTuple):
    """A verdict is what an expert info says. Its filter is "uetp.expert." and the name."""

    name: str
    rule: str
    """Rule of the audit that judges the same."""
    text: str
    group: str


RESERVED_BIT = PacketVerdict("reserved_bit", "WIRE-RESERVED-BIT", "A reserved bit is set", "PROTOCOL")
UNKNOWN_CODE = PacketVerdict("unknown_code", "WIRE-UNKNOWN-CODE", "A code has no meaning", "PROTOCOL")
UNKNOWN_OPCODE = PacketVerdict("unknown_opcode", "SES-UNKNOWN-OPCODE", "The opcode has no meaning", "PROTOCOL")
NEXT_HDR = PacketVerdict("next_hdr", "PDS-NEXT-HDR", "This header may not follow the PDS header", "PROTOCOL")
VERSION = PacketVerdict("version", "SES-VERSION", "The version of SES is not 0", "PROTOCOL")
CLEAR = PacketVerdict(
    "clear_positive", "PDS-CLEAR-POSITIVE", "A packet clears itself or what was never sent", "SEQUENCE"
)
DEFAULT = PacketVerdict(
    "default_error", "SES-DEFAULT-WITH-ERROR", "A default response has an error code", "RESPONSE_CODE"
)
LENGTH = PacketVerdict("length", "WIRE-LENGTH", "Lengths contradict each other", "MALFORMED")

VERDICTS = (RESERVED_BIT, UNKNOWN_CODE, UNKNOWN_OPCODE, NEXT_HDR, VERSION, CLEAR, DEFAULT, LENGTH)

_RULE_OF_CODE = {"opcode": UNKNOWN_OPCODE, "next_hdr": NEXT_HDR}


class Judged(NamedTuple):
    """A judged field has a verdict unless its value is in `legal`, or negative where `legal` is None. If `only_if`
    names a field and a value, the field is judged only where that field has that value."""

    field: str
    verdict: PacketVerdict
    legal: tuple[int, ...] | None
    only_if: tuple[str, int] | None = None


def judged_fields(header: Header) -> tuple[Judged, ...]:
    """Return the fields of a header that have a rule, in the order in which the audit judges them."""
    if header.name not in UET_FORMS:
        return ()
    found = [Judged(name, RESERVED_BIT, (0,)) for name in reserved_fields(header.name)]
    for name, legal in code_fields(header.name).items():
        if name != "type" and len(legal) < 1 << header[name].bits:
            found.append(Judged(name, _RULE_OF_CODE.get(name, UNKNOWN_CODE), tuple(sorted(map(int, legal)))))
    if header.name.startswith("ses.") and VERSIONS[0] in header.names:
        found.append(Judged(VERSIONS[0], VERSION, (0,)))
    if header in REQUESTS:
        found.append(Judged("clear_psn_offset", CLEAR, None))
    if header in RESPONSES:
        good = (int(ReturnCode.NULL), int(ReturnCode.OK))
        found.append(Judged("return_code", DEFAULT, good, ("opcode", int(ResponseOpcode.DEFAULT_RESPONSE))))
    return tuple(found)
