# SPDX-License-Identifier: GPL-2.0-only
"""This module has the mutations of UET packets, most of which change one field (interfaces.md §7)."""

from collections.abc import Sequence

from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.fields import Field
from uetproto.wire.forms import FIRST, UET_FORMS
from uetproto.wire.headers.uet_pds import LEGAL_NEXT_HDR
from uetproto.wire.headers.uet_ses import VENDORS, Opcode, ResponseOpcode, ReturnCode
from uetproto.wire.implied import implied_by, implied_payload
from uetproto.wire.mutate.frame import (
    Frame,
    Mutation,
    MutationRng,
    Recent,
    Ruled,
    RuledByHistory,
    bad_crc,
    below,
    cut,
    ip_length,
    over,
    payload_flip,
    pick,
    reserved_places,
    undefined,
    under,
)
from uetproto.wire.serial import add32, diff32

# One frame ------------------------------------------------------------------------------------------------------------

_RESERVED_TYPES = [t for t in range(32) if not any(t in header["type"].only for header in FIRST)]
_SAME_LAYOUT = (Opcode.WRITE, Opcode.SEND, Opcode.TAGGED_SEND, Opcode.DEFERRABLE_SEND, Opcode.DEFERRABLE_TSEND)
"""Opcodes of messages of several packets whose headers have the same layout."""


def reserved_bit(frame: Frame, rng: MutationRng) -> Mutation | None:
    places = reserved_places(frame, UET_FORMS)
    if not places:
        return None
    index, field = pick(rng, places)
    return frame.changed(index, field.name, frame.value(index, field.name) ^ (1 << below(rng, field.bits)))


def reserved_type(frame: Frame, rng: MutationRng) -> Mutation | None:
    index = frame.find("type", prefix="pds.")
    return None if index is None else frame.changed(index, "type", pick(rng, _RESERVED_TYPES))


def bad_next_hdr(frame: Frame, rng: MutationRng) -> Mutation | None:
    index = frame.find("next_hdr")
    if index is None:
        return None
    legal = LEGAL_NEXT_HDR[frame.value(index, "type")]
    return frame.changed(index, "next_hdr", pick(rng, [value for value in range(16) if value not in legal]))


def bad_version(frame: Frame, rng: MutationRng) -> Mutation | None:
    index = frame.find("version", prefix="ses.")
    return None if index is None else frame.changed(index, "version", 1 + below(rng, 3))


def unknown_opcode(frame: Frame, rng: MutationRng) -> Mutation | None:
    index = frame.find("opcode", prefix="ses.")
    if index is None:
        return None
    return frame.changed(index, "opcode", pick(rng, _unknown(frame.field(index, "opcode"))))


def unknown_code(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set a code of a NACK, a control packet, a SES response or an atomic operation to an unknown value."""
    names = ("nack_code", "ctl_type", "return_code", "atomic_opcode", "atomic_datatype")
    places = [(i, name) for i, layer in enumerate(frame.packet.layers) for name in names if name in layer.values]
    if not places:
        return None
    index, name = pick(rng, places)
    return frame.changed(index, name, pick(rng, _unknown(frame.field(index, name))))


def _unknown(field: Field) -> list[int]:
    """Return codes without a definition; codes left to vendors may have a meaning and are excluded (wire.md §4, §5)."""
    return [value for value in undefined(field) if value not in VENDORS.get(field.values, ())]


def extra_bytes(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Add bytes behind a payload whose size the UET headers imply. Correct the lengths of lower headers."""
    packet = frame.packet
    doubtful = packet.trailer is not None and not packet.trailer.ok
    if doubtful or implied_payload(packet.layers) != len(packet.payload):
        return None
    count = pick(rng, (1, 2, 3, 5, 8, 1 + CRC_SIZE + below(rng, 60)))  # four bytes would be taken for a CRC
    return frame.lengthened(rng.getrandbits(8 * count).to_bytes(count, "big"))


def length_over(frame: Frame, rng: MutationRng) -> Mutation | None:
    return over(frame, rng, _stated_length(frame))


def length_under(frame: Frame, rng: MutationRng) -> Mutation | None:
    return under(frame, rng, _stated_length(frame))


def _stated_length(frame: Frame) -> tuple[int, str] | None:
    """Return layer and field that state the length of the payload, if the length is right; else None."""
    place = implied_by(frame.packet.layers)
    return place if isinstance(place, tuple) and frame.value(*place) == len(frame.packet.payload) else None


def _of_message(frame: Frame) -> int | None:
    """Return the index of the SES request header, if the packet is one of several of a message; else None."""
    index = frame.find("som", "eom", "message_id", prefix="ses.")
    if index is None or frame.value(index, "opcode") not in _SAME_LAYOUT:
        return None
    return None if frame.value(index, "som") and frame.value(index, "eom") else index


def opcode_change(frame: Frame, rng: MutationRng) -> Mutation | None:
    index = _of_message(frame)
    if index is None:
        return None
    opcode = frame.value(index, "opcode")
    return frame.changed(index, "opcode", int(pick(rng, [other for other in _SAME_LAYOUT if other != opcode])))


def key_change(frame: Frame, rng: MutationRng) -> Mutation | None:
    return _flip_bit(frame, rng, _of_message(frame), ("memory_key", "match_bits"), 56)


def job_change(frame: Frame, rng: MutationRng) -> Mutation | None:
    return _flip_bit(frame, rng, _of_message(frame), ("job_id",), 24)


def _flip_bit(frame: Frame, rng: MutationRng, index: int | None, names: Sequence[str], bits: int) -> Mutation | None:
    """Flip one of the low `bits` of the field in layer `index` that has one of the `names`."""
    if index is None:
        return None
    name = next(name for name in names if name in frame.packet.layers[index].values)
    return frame.changed(index, name, frame.value(index, name) ^ (1 << below(rng, bits)))


def clear_positive(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set CLEAR_PSN to the PSN of the packet itself, or to a PSN that was never sent (pds.md §2.1)."""
    index = frame.find("clear_psn_offset")
    if index is None or frame.value(index, "clear_psn_offset") >= 0:
        return None
    return frame.changed(index, "clear_psn_offset", pick(rng, (0, 1, 0x7FFF, rng.getrandbits(15))))


def response_wrong_id(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set the message id of a response to another value. 0 is left out, because a default response made by PDS may
    carry it (pds.md §9.4)."""
    index = frame.find("return_code", "message_id")
    if index is None:
        return None
    before = frame.value(index, "message_id")
    after = rng.getrandbits(16)
    return frame.changed(index, "message_id", after if after not in (0, before) else before ^ 0x8000 or 1)


def default_with_error(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Make a default response with an error code. A legal default response has success, or the code of a lost response
    (ses.md §9.1)."""
    index = frame.find("return_code", prefix="ses.response")
    if index is None or frame.value(index, "opcode") not in (ResponseOpcode.DEFAULT_RESPONSE, ResponseOpcode.RESPONSE):
        return None
    errors = [int(code) for code in ReturnCode if code > ReturnCode.OK]
    if frame.value(index, "opcode") == ResponseOpcode.DEFAULT_RESPONSE:
        return frame.changed(index, "return_code", pick(rng, errors))
    if frame.value(index, "return_code") in errors:
        return frame.changed(index, "opcode", ResponseOpcode.DEFAULT_RESPONSE)
    return None


# Several frames -------------------------------------------------------------------------------------------------------

_Flow = tuple[int, int, int]  # source, destination, spdcid


class UetHistory:
    """A history keeps properties of earlier requests, for mutations that contradict them. It forgets the oldest."""

    def __init__(self, flows: int, packets: int) -> None:
        self.requests: Recent[_Flow, tuple[int, bool, int]] = Recent(flows, packets)
        """Three properties of each packet, by flow and PSN: its CLEAR_PSN, whether it was a first transmission, and its
        digest (`_digest`)."""
        self.parts: Recent[tuple[_Flow, int], int] = Recent(flows, packets)
        """Payload sizes of the packets of each message, by flow and message id, then by offset in the message. The
        first packet has offset 0."""

    def note(self, frame: Frame) -> None:
        place = _request(frame)
        if place is None:
            return
        index, flow = place
        values = frame.packet.layers[index].values
        psn = values["psn"]
        if psn not in self.requests.get(flow, {}):
            clear = add32(psn, values["clear_psn_offset"])
            self.requests.note(flow, psn, (clear, not values["retx"], _digest(frame)))
        ses = _of_message(frame)
        if ses is not None:
            request = frame.packet.layers[ses].values
            message = flow, request["message_id"]
            self.parts.note(message, request.get("message_offset", 0), len(frame.packet.payload))


def _request(frame: Frame) -> tuple[int, _Flow] | None:
    """Return the header of a RUD or ROD request, and its flow."""
    index, ip = frame.find("clear_psn_offset"), frame.find("src", "dst", prefix="ipv")
    if index is None or ip is None:
        return None
    return index, (frame.value(ip, "src"), frame.value(ip, "dst"), frame.value(index, "spdcid"))


def _digest(frame: Frame) -> int:
    """Return a digest of the SES header and the payload, which a retransmission of the PSN repeats."""
    packet = frame.packet
    start = next((layer.offset for layer in packet.layers if layer.form.startswith("ses.")), packet.payload_offset)
    return crc32c(frame.data[start : packet.payload_offset + len(packet.payload)])


def psn_two_contents(frame: Frame, rng: MutationRng, seen: UetHistory) -> Mutation | None:
    place = _request(frame)
    if place is None or frame.packet.layers[place[0]].form.endswith(".syn"):
        return None  # the Start_PSN of a SYN packet would change as well
    index, flow = place
    digest, psn = _digest(frame), frame.value(index, "psn")
    known = seen.requests.get(flow, {}).items()
    others = [other for other, (_, _, content) in known if other != psn and content != digest]
    return frame.changed(index, "psn", pick(rng, others)) if others else None


def clear_falls(frame: Frame, rng: MutationRng, seen: UetHistory) -> Mutation | None:
    """Set CLEAR_PSN below the highest CLEAR_PSN of earlier packets of the flow.

    Only first transmissions with lower PSNs count as earlier, and this packet must be a first transmission, too.
    """
    place = _request(frame)
    if place is None or frame.value(place[0], "retx"):
        return None
    index, flow = place
    psn = frame.value(index, "psn")
    known = seen.requests.get(flow, {}).items()
    earlier = [diff32(clear, psn) for other, (clear, first, _) in known if first and diff32(other, psn) < 0]
    low = max(earlier, default=-0x8000)
    return frame.changed(index, "clear_psn_offset", max(-0x8000, low - 1 - below(rng, 64))) if low > -0x8000 else None


def som_twice(frame: Frame, rng: MutationRng, seen: UetHistory) -> Mutation | None:
    """Set SOM in a packet that is neither the first nor the last of its message.

    The last is left out, because a packet with SOM and EOM would have to carry the whole message.
    """
    place, ses = _request(frame), _of_message(frame)
    if place is None or ses is None or frame.value(ses, "som") or frame.value(ses, "eom"):
        return None
    return frame.changed(ses, "som", 1) if 0 in seen.parts.get((place[1], frame.value(ses, "message_id")), {}) else None


def offset_overlap(frame: Frame, rng: MutationRng, seen: UetHistory) -> Mutation | None:
    place, ses = _request(frame), _of_message(frame)
    if place is None or ses is None or frame.value(ses, "som"):
        return None
    own = frame.value(ses, "message_offset")
    parts = seen.parts.get((place[1], frame.value(ses, "message_id")), {}).items()
    others = [offset for offset, size in parts if offset != own and size]
    return frame.changed(ses, "message_offset", pick(rng, others)) if others else None


# The tables -----------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Ruled] = {
    # name                     what                  rule of the audit
    "bad-crc":                (bad_crc,             "WIRE-CRC"),
    "reserved-bit":           (reserved_bit,        "WIRE-RESERVED-BIT"),
    "reserved-type":          (reserved_type,       "PDS-RESERVED-TYPE"),
    "bad-next-hdr":           (bad_next_hdr,        "PDS-NEXT-HDR"),
    "bad-version":            (bad_version,         "SES-VERSION"),
    "unknown-opcode":         (unknown_opcode,      "SES-UNKNOWN-OPCODE"),
    "unknown-code":           (unknown_code,        "WIRE-UNKNOWN-CODE"),
    "cut":                    (cut,                 "WIRE-LENGTH"),
    "extra-bytes":            (extra_bytes,         "WIRE-LENGTH"),
    "ip-length":              (ip_length,           "WIRE-LENGTH"),
    "length-over":            (length_over,         "WIRE-LENGTH"),
    "length-under":           (length_under,        "WIRE-LENGTH"),
    "opcode-change":          (opcode_change,       "SES-OPCODE-CHANGE"),
    "key-change":             (key_change,          "SES-KEY-CHANGE"),
    "job-change":             (job_change,          "SES-JOB-CHANGE"),
    "clear-positive":         (clear_positive,      "PDS-CLEAR-POSITIVE"),
    "response-wrong-id":      (response_wrong_id,   "SES-RESPONSE-WRONG-ID"),
    "default-with-error":     (default_with_error,  "SES-DEFAULT-WITH-ERROR"),
    "payload-flip-crc-fixed": (payload_flip,        None),
}  # fmt: skip

CHANGES_OF_HISTORY: dict[str, RuledByHistory] = {
    "offset-overlap":   (offset_overlap,   "SES-OFFSET-OVERLAP"),
    "som-twice":        (som_twice,        "SES-SOM-TWICE"),
    "psn-two-contents": (psn_two_contents, "PDS-PSN-TWO-CONTENTS"),
    "clear-falls":      (clear_falls,      "PDS-CLEAR-FALLS"),
}  # fmt: skip
