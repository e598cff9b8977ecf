# SPDX-License-Identifier: GPL-2.0-only
"""This module says how many payload bytes the headers of a packet imply (interfaces.md §3, ses.md §7.1)."""

from collections.abc import Mapping

from uetproto.wire.headers import uet_pds
from uetproto.wire.headers.uet_ses import NO_OPERANDS, OPCODE_PROFILES, Opcode
from uetproto.wire.packet import Layer

_OPEN_ENDED = frozenset(h.name for h in (*uet_pds.REQUESTS, uet_pds.REQ_CC_STATE, uet_pds.RUDI_REQ, uet_pds.UUD_REQ))
_NO_PAYLOAD = frozenset(code for code, row in OPCODE_PROFILES.items() if not row.payload)

DECIDING = ("opcode", "som", "eom", "atomic_opcode")
"""Fields whose values `implied_by` compares. They lie in the first two bytes of their headers."""


def implied_payload(layers: list[Layer]) -> int | None:
    """Return the number of payload bytes that the headers imply, or None if they do not imply any (interfaces.md §3,
    ses.md §7.1)."""
    source = implied_by(layers)
    return int(layers[source[0]].values[source[1]]) if isinstance(source, tuple) else source


def implied_by(layers: list[Layer]) -> tuple[int, str] | int | None:
    """Return where the length of the payload is stated: the index of a layer and the name of its field.

    If no field states the length, but the headers still imply it, return the number of bytes. If the headers imply no
    length, return None.

    The last header that is no SES extension decides, together with the extensions behind it.
    """
    index = len(layers) - 1
    form, values, _ = layers[index]
    extension: Mapping[str, int] = {}
    while form.startswith("ses.ext."):
        extension = extension or values
        index -= 1
        form, values, _ = layers[index]
    if "payload_length" in values:
        # The opcodes of responses count separately: RESPONSE_W_DATA is 2 as well.
        read_request = values["opcode"] == Opcode.READ and "return_code" not in values
        return 0 if read_request else (index, "payload_length")
    if "request_length" not in values:
        return None if form in _OPEN_ENDED else 0  # responses without data, NACKs and control packets carry nothing
    opcode, amo = values["opcode"], extension.get("atomic_opcode")
    if opcode in _NO_PAYLOAD or amo in NO_OPERANDS:
        return 0
    if opcode == Opcode.MSG_ERROR or not (values["som"] and values["eom"]):
        return None
    if "eager_length" in extension:
        return (len(layers) - 1, "eager_length")
    return (index, "request_length")
