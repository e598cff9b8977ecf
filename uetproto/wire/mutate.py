"""Frames made wrong on purpose, by name (interfaces.md §7): one module for test traffic, fuzzing and auditing.

    wrong = MUTATIONS["bad-next-hdr"](frame, rng)               one frame tells all that is needed
    wrong = MUTATIONS_OF_HISTORY["clear-falls"](frame, rng, seen)   with what went past before: `seen.note(frame)`
    wrong = mutate(name, frame, rng, seen)                          any of both, by name

Each changes what it is called after and nothing else: the CRC and the IPv4 checksum are made right again, so that only
the rule named can find it. None: it does not apply to this frame. Pure; chance comes from the generator handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c, trailer_crc
from uetproto.wire.ethernet import internet_checksum
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FIRST, FORMS, UET_FORMS, matches, rows_after
from uetproto.wire.packet import Packet
from uetproto.wire.serial import add32, diff32
from uetproto.wire.stack import decode, encode, implied_by, implied_payload
from uetproto.wire.uet_pds import NextHdr, PdsType
from uetproto.wire.uet_ses import Opcode, ResponseOpcode, ReturnCode


class Rng(Protocol):
    """The two draws that are made; `random.Random(seed)` has them."""

    def getrandbits(self, k: int, /) -> int: ...

    def random(self) -> float: ...


class Mutation(NamedTuple):
    """A frame made wrong, and what is wrong with it."""

    frame: bytes
    form: str | None
    """The header, or None: the frame as a whole, its payload, its trailer."""
    field: str
    offset: int
    """Byte of the frame where the change begins."""
    before: int
    after: int
    """Values of the field; of a frame or a payload: its size, or the byte changed."""
    rule: str | None = None
    """What an audit must report; None: no audit can see it."""


Mutate = Callable[[bytes, Rng], Mutation | None]
MutateWithHistory = Callable[[bytes, Rng, "Seen"], Mutation | None]

_T = TypeVar("_T")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _below(rng: Rng, count: int) -> int:
    return int(rng.random() * count)


def _pick(rng: Rng, values: Sequence[_T]) -> _T:
    return values[_below(rng, len(values))]


# A frame to be changed -----------------------------------------------------------------------------------------------


class _Frame:
    """A decoded frame, and how one of its fields gets another value."""

    __slots__ = ("data", "packet")

    def __init__(self, data: bytes, packet: Packet) -> None:
        self.data = data
        self.packet = packet

    def find(self, *fields: str, prefix: str = "") -> int | None:
        """Index of the first layer whose form starts with `prefix` and has all `fields`."""
        for index, layer in enumerate(self.packet.layers):
            if layer.form.startswith(prefix) and all(name in layer.values for name in fields):
                return index
        return None

    def value(self, index: int, name: str) -> int:
        value: int = self.packet.layers[index].values[name]
        return value

    @property
    def end(self) -> int:
        """Where the packet ends, in bytes: payload and trailer are before, padding is behind."""
        return len(self.data) - len(self.packet.raw)

    def changed(self, index: int, name: str, value: int) -> Mutation:
        """The field `name` of layer `index` gets `value`, which fits its bits."""
        form, values, at = self.packet.layers[index]
        header = FORMS[form]
        data = bytearray(self.data)
        data[at : at + header.size] = codec_of(header).encode({**values, name: value})
        if form == "ipv4":
            self._mend_checksum(data, at)
        self._mend_crc(data)
        return Mutation(bytes(data), form, name, at + header.offset_of(name) // 8, values[name], value)

    def flipped(self, at: int, bit: int) -> Mutation:
        """One bit of the payload."""
        data = bytearray(self.data)
        data[at] ^= 1 << bit
        self._mend_crc(data)
        return Mutation(bytes(data), None, "payload", at, self.data[at], data[at])

    @staticmethod
    def _mend_checksum(data: bytearray, at: int) -> None:
        """Of the IPv4 header at `at`, with the length that it says."""
        head = data[at : at + 4 * (data[at] & 15)]
        head[10:12] = b"\0\0"
        data[at + 10 : at + 12] = internet_checksum(bytes(head)).to_bytes(2, "big")

    def _mend_crc(self, data: bytearray) -> None:
        """The trailer, where there is one that was right; it counts from the source address on (wire.md §7)."""
        packet = self.packet
        if packet.trailer is None or packet.trailer.kind != "crc32c" or not packet.trailer.ok:
            return
        start, udp_checksum_at = 0, None
        for form, _, at in packet.layers:
            if form in ("ipv4", "ipv6"):
                start = at + (12 if form == "ipv4" else 8)
            elif form == "udp":
                udp_checksum_at = at + 6
        end = self.end - CRC_SIZE
        data[end : end + CRC_SIZE] = trailer_crc(bytes(data), start, end, udp_checksum_at).to_bytes(CRC_SIZE, "big")


def _open(data: bytes) -> _Frame | None:
    """A whole, plain UET frame without a fault; None for any other."""
    packet = decode(data)
    if packet.error is not None or any(note != "padding" for note in packet.notes):
        return None
    return _Frame(data, packet)


# One frame -----------------------------------------------------------------------------------------------------------

_LEGAL_NEXT_HDR: dict[int, frozenset[int]] = {
    **dict.fromkeys(
        (PdsType.RUD_REQ, PdsType.ROD_REQ, PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ),
        frozenset({NextHdr.REQUEST_SMALL, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_STD, NextHdr.RESPONSE_DATA,
                   NextHdr.RESPONSE_DATA_SMALL}),
    ),
    **dict.fromkeys(
        (PdsType.RUDI_REQ, PdsType.UUD_REQ),
        frozenset({NextHdr.REQUEST_SMALL, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_STD}),
    ),
    PdsType.RUDI_RESP: frozenset({NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL}),
    **dict.fromkeys(
        (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX),
        frozenset({NextHdr.NONE, NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL}),
    ),
    **dict.fromkeys((PdsType.NACK, PdsType.NACK_CCX), frozenset({NextHdr.NONE})),
}  # fmt: skip
"""What may follow a PDS header of each type (pds.md §3, §10)."""
_RESERVED_TYPES = [t for t in range(32) if not any(t in header["type"].only for header in FIRST)]
_SAME_LAYOUT = (Opcode.WRITE, Opcode.SEND, Opcode.TAGGED_SEND, Opcode.DEFERRABLE_SEND, Opcode.DEFERRABLE_TSEND)
"""Opcodes of messages with several packets whose headers have the same places."""


def _bad_crc(frame: _Frame, rng: Rng) -> Mutation | None:
    trailer = frame.packet.trailer
    if trailer is None or trailer.kind != "crc32c":
        return None
    after = trailer.value ^ (1 << _below(rng, 32))
    at = frame.end - CRC_SIZE
    data = frame.data[:at] + after.to_bytes(CRC_SIZE, "big") + frame.data[frame.end :]
    return Mutation(data, None, "crc32c", at, trailer.value, after)


def _reserved_bit(frame: _Frame, rng: Rng) -> Mutation | None:
    places = [
        (index, field)
        for index, layer in enumerate(frame.packet.layers)
        if layer.form in UET_FORMS
        for field in UET_FORMS[layer.form].fields
        if field.name.startswith("rsvd")
    ]
    if not places:
        return None
    index, field = _pick(rng, places)
    return frame.changed(index, field.name, frame.value(index, field.name) ^ (1 << _below(rng, field.bits)))


def _reserved_type(frame: _Frame, rng: Rng) -> Mutation | None:
    index = frame.find("type", prefix="pds.")
    return None if index is None else frame.changed(index, "type", _pick(rng, _RESERVED_TYPES))


def _bad_next_hdr(frame: _Frame, rng: Rng) -> Mutation | None:
    index = frame.find("next_hdr")
    if index is None:
        return None
    legal = _LEGAL_NEXT_HDR[frame.value(index, "type")]
    return frame.changed(index, "next_hdr", _pick(rng, [value for value in range(16) if value not in legal]))


def _bad_version(frame: _Frame, rng: Rng) -> Mutation | None:
    index = frame.find("version", prefix="ses.")
    return None if index is None else frame.changed(index, "version", 1 + _below(rng, 3))


def _unknown_opcode(frame: _Frame, rng: Rng) -> Mutation | None:
    index = frame.find("opcode", prefix="ses.")
    if index is None:
        return None
    return frame.changed(index, "opcode", _pick(rng, _unknown(_field(frame, index, "opcode"))))


def _unknown_code(frame: _Frame, rng: Rng) -> Mutation | None:
    """Of a NACK, a control packet, a SES response, an atomic operation."""
    names = ("nack_code", "ctl_type", "return_code", "atomic_opcode", "atomic_datatype")
    places = [(i, name) for i, layer in enumerate(frame.packet.layers) for name in names if name in layer.values]
    if not places:
        return None
    index, name = _pick(rng, places)
    return frame.changed(index, name, _pick(rng, _unknown(_field(frame, index, name))))


def _field(frame: _Frame, index: int, name: str) -> Field:
    return FORMS[frame.packet.layers[index].form][name]


def _unknown(field: Field) -> list[int]:
    assert field.values is not None
    known = {int(code) for code in field.values}
    return [value for value in range(field.low, field.high + 1) if value not in known]


def _cut(frame: _Frame, rng: Rng) -> Mutation | None:
    """Bytes are missing at the end, and no length says so."""
    first = next(layer.offset for layer in frame.packet.layers if layer.form in UET_FORMS)
    at = first + _below(rng, frame.end - first)
    return Mutation(frame.data[:at], None, "frame", at, len(frame.data), at)


def _extra_bytes(frame: _Frame, rng: Rng) -> Mutation | None:
    """Bytes behind the payload that the headers imply; the lengths below count them."""
    packet = frame.packet
    doubtful = packet.trailer is not None and not packet.trailer.ok
    if doubtful or implied_payload(packet.layers) != len(packet.payload):
        return None
    count = _pick(rng, (1, 2, 3, 5, 8, 1 + CRC_SIZE + _below(rng, 60)))  # four would pass for a CRC
    payload = packet.payload + rng.getrandbits(8 * count).to_bytes(count, "big")
    data = encode(replace(packet, payload=payload), fill=True)
    at = packet.payload_offset + len(packet.payload)
    return Mutation(data, None, "payload", at, len(packet.payload), len(payload))


def _ip_length(frame: _Frame, rng: Rng) -> Mutation | None:
    for name in ("total_length", "payload_length"):
        index = frame.find(name, prefix="ipv")
        if index is not None:
            before = frame.value(index, name)
            near = before + (1 + _below(rng, 64)) * _pick(rng, (-1, 1))
            others = [value for value in (0, 1, 0xFFFF, near) if value != before and 0 <= value <= 0xFFFF]
            return frame.changed(index, name, _pick(rng, others))
    return None


def _length_over(frame: _Frame, rng: Rng) -> Mutation | None:
    place = _stated_length(frame)
    if place is None:
        return None
    index, name = place
    before, high = frame.value(index, name), _field(frame, index, name).high
    return frame.changed(index, name, min(high, before + 1 + _below(rng, 64))) if before < high else None


def _length_under(frame: _Frame, rng: Rng) -> Mutation | None:
    place = _stated_length(frame)
    before = 0 if place is None else frame.value(*place)
    return None if place is None or before == 0 else frame.changed(*place, _below(rng, before))


def _stated_length(frame: _Frame) -> tuple[int, str] | None:
    """Layer and field that say how long the payload is, where they are right."""
    place = implied_by(frame.packet.layers)
    return place if isinstance(place, tuple) and frame.value(*place) == len(frame.packet.payload) else None


def _of_message(frame: _Frame) -> int | None:
    """The SES request header of one of several packets of a message."""
    index = frame.find("som", "eom", "message_id", prefix="ses.")
    if index is None or frame.value(index, "opcode") not in _SAME_LAYOUT:
        return None
    return None if frame.value(index, "som") and frame.value(index, "eom") else index


def _opcode_change(frame: _Frame, rng: Rng) -> Mutation | None:
    index = _of_message(frame)
    if index is None:
        return None
    opcode = frame.value(index, "opcode")
    return frame.changed(index, "opcode", int(_pick(rng, [other for other in _SAME_LAYOUT if other != opcode])))


def _key_change(frame: _Frame, rng: Rng) -> Mutation | None:
    index = _of_message(frame)
    if index is None:
        return None
    name = "memory_key" if "memory_key" in frame.packet.layers[index].values else "match_bits"
    return frame.changed(index, name, frame.value(index, name) ^ (1 << _below(rng, 56)))


def _job_change(frame: _Frame, rng: Rng) -> Mutation | None:
    index = _of_message(frame)
    if index is None:
        return None
    return frame.changed(index, "job_id", frame.value(index, "job_id") ^ (1 << _below(rng, 24)))


def _clear_positive(frame: _Frame, rng: Rng) -> Mutation | None:
    """A packet that clears itself, or what was never sent (pds.md §2.1)."""
    index = frame.find("clear_psn_offset")
    if index is None or frame.value(index, "clear_psn_offset") >= 0:
        return None
    return frame.changed(index, "clear_psn_offset", _pick(rng, (0, 1, 0x7FFF, rng.getrandbits(15))))


def _response_wrong_id(frame: _Frame, rng: Rng) -> Mutation | None:
    """0 is left out: a default response that PDS made up may say so (pds.md §9.4)."""
    index = frame.find("return_code", "message_id")
    if index is None:
        return None
    before = frame.value(index, "message_id")
    after = rng.getrandbits(16)
    return frame.changed(index, "message_id", after if after not in (0, before) else before ^ 0x8000 or 1)


def _default_with_error(frame: _Frame, rng: Rng) -> Mutation | None:
    """DEFAULT_RESPONSE says success, or that the real response is gone (ses.md §9.1)."""
    index = frame.find("return_code", prefix="ses.response")
    if index is None or frame.value(index, "opcode") not in (ResponseOpcode.DEFAULT_RESPONSE, ResponseOpcode.RESPONSE):
        return None
    errors = [int(code) for code in ReturnCode if code > ReturnCode.OK]
    if frame.value(index, "opcode") == ResponseOpcode.DEFAULT_RESPONSE:
        return frame.changed(index, "return_code", _pick(rng, errors))
    if frame.value(index, "return_code") in errors:
        return frame.changed(index, "opcode", ResponseOpcode.DEFAULT_RESPONSE)
    return None


def _payload_flip(frame: _Frame, rng: Rng) -> Mutation | None:
    size = len(frame.packet.payload)
    return frame.flipped(frame.packet.payload_offset + _below(rng, size), _below(rng, 8)) if size else None


# Several frames ------------------------------------------------------------------------------------------------------

_Flow = tuple[int, int, int]  # source, destination, spdcid


class Seen:
    """What went past before, for mutations that contradict it. Bounded: the oldest flows and packets are forgotten."""

    def __init__(self, flows: int = 256, packets: int = 64) -> None:
        self._flows = flows
        self._packets = packets
        self._requests: dict[_Flow, dict[int, tuple[int, bool, int]]] = {}
        """By flow and PSN: CLEAR_PSN, whether it was a first transmission, a digest of what it carried."""
        self._messages: dict[tuple[_Flow, int], dict[int, int]] = {}
        """By flow and message id: size by offset of each packet; the first packet has offset 0."""

    def note(self, data: bytes) -> None:
        """A frame as it was before any mutation."""
        frame = _open(data)
        place = None if frame is None else _request(frame)
        if frame is None or place is None:
            return
        index, flow = place
        values = frame.packet.layers[index].values
        requests = self._requests.setdefault(flow, {})
        psn = values["psn"]
        requests.setdefault(psn, (add32(psn, values["clear_psn_offset"]), not values["retx"], _digest(frame)))
        _forget(requests, self._packets)
        _forget(self._requests, self._flows)
        ses = _of_message(frame)
        if ses is not None:
            request = frame.packet.layers[ses].values
            parts = self._messages.setdefault((flow, request["message_id"]), {})
            parts[request.get("message_offset", 0)] = len(frame.packet.payload)
            _forget(parts, self._packets)
            _forget(self._messages, self._flows)

    def requests(self, flow: _Flow) -> dict[int, tuple[int, bool, int]]:
        return self._requests.get(flow, {})

    def parts(self, flow: _Flow, message_id: int) -> dict[int, int]:
        return self._messages.get((flow, message_id), {})


def _forget(of: dict[_Key, _Value], most: int) -> None:
    while len(of) > most:
        del of[next(iter(of))]


def _request(frame: _Frame) -> tuple[int, _Flow] | None:
    """The header of a RUD or ROD request, and whose it is."""
    index, ip = frame.find("clear_psn_offset"), frame.find("src", "dst", prefix="ipv")
    if index is None or ip is None:
        return None
    return index, (frame.value(ip, "src"), frame.value(ip, "dst"), frame.value(index, "spdcid"))


def _digest(frame: _Frame) -> int:
    """Of the SES header and the payload: what a PSN stands for."""
    packet = frame.packet
    start = next((layer.offset for layer in packet.layers if layer.form.startswith("ses.")), packet.payload_offset)
    return crc32c(frame.data[start : packet.payload_offset + len(packet.payload)])


def _psn_two_contents(frame: _Frame, rng: Rng, seen: Seen) -> Mutation | None:
    place = _request(frame)
    if place is None or frame.packet.layers[place[0]].form.endswith(".syn"):
        return None  # the Start_PSN of a SYN packet would change as well
    index, flow = place
    digest, psn = _digest(frame), frame.value(index, "psn")
    others = [other for other, (_, _, content) in seen.requests(flow).items() if other != psn and content != digest]
    return frame.changed(index, "psn", _pick(rng, others)) if others else None


def _clear_falls(frame: _Frame, rng: Rng, seen: Seen) -> Mutation | None:
    """CLEAR_PSN below that of an earlier packet; both are first transmissions, whose order the PSNs tell."""
    place = _request(frame)
    if place is None or frame.value(place[0], "retx"):
        return None
    index, flow = place
    psn = frame.value(index, "psn")
    known = seen.requests(flow).items()
    earlier = [diff32(clear, psn) for other, (clear, first, _) in known if first and diff32(other, psn) < 0]
    low = max(earlier, default=-0x8000)
    return frame.changed(index, "clear_psn_offset", max(-0x8000, low - 1 - _below(rng, 64))) if low > -0x8000 else None


def _som_twice(frame: _Frame, rng: Rng, seen: Seen) -> Mutation | None:
    place, ses = _request(frame), _of_message(frame)
    if place is None or ses is None or frame.value(ses, "som"):
        return None
    return frame.changed(ses, "som", 1) if 0 in seen.parts(place[1], frame.value(ses, "message_id")) else None


def _offset_overlap(frame: _Frame, rng: Rng, seen: Seen) -> Mutation | None:
    place, ses = _request(frame), _of_message(frame)
    if place is None or ses is None or frame.value(ses, "som"):
        return None
    own = frame.value(ses, "message_offset")
    parts = seen.parts(place[1], frame.value(ses, "message_id")).items()
    others = [offset for offset, size in parts if offset != own and size]
    return frame.changed(ses, "message_offset", _pick(rng, others)) if others else None


# The tables ----------------------------------------------------------------------------------------------------------


def _single(change: Callable[[_Frame, Rng], Mutation | None], rule: str | None) -> Mutate:
    return lambda data, rng: _ruled(None if (frame := _open(data)) is None else change(frame, rng), rule)


def _historic(change: Callable[[_Frame, Rng, Seen], Mutation | None], rule: str) -> MutateWithHistory:
    return lambda data, rng, seen: _ruled(None if (frame := _open(data)) is None else change(frame, rng, seen), rule)


def _ruled(found: Mutation | None, rule: str | None) -> Mutation | None:
    """With its rule; None where the frame was wrong in this way before."""
    return None if found is None or found.before == found.after else found._replace(rule=rule)


MUTATIONS: dict[str, Mutate] = {
    # name                            what                  rule of the audit
    "bad-crc":                _single(_bad_crc,             "WIRE-CRC"),
    "reserved-bit":           _single(_reserved_bit,        "WIRE-RESERVED-BIT"),
    "reserved-type":          _single(_reserved_type,       "PDS-RESERVED-TYPE"),
    "bad-next-hdr":           _single(_bad_next_hdr,        "PDS-NEXT-HDR"),
    "bad-version":            _single(_bad_version,         "SES-VERSION"),
    "unknown-opcode":         _single(_unknown_opcode,      "SES-UNKNOWN-OPCODE"),
    "unknown-code":           _single(_unknown_code,        "WIRE-UNKNOWN-CODE"),
    "cut":                    _single(_cut,                 "WIRE-LENGTH"),
    "extra-bytes":            _single(_extra_bytes,         "WIRE-LENGTH"),
    "ip-length":              _single(_ip_length,           "WIRE-LENGTH"),
    "length-over":            _single(_length_over,         "WIRE-LENGTH"),
    "length-under":           _single(_length_under,        "WIRE-LENGTH"),
    "opcode-change":          _single(_opcode_change,       "SES-OPCODE-CHANGE"),
    "key-change":             _single(_key_change,          "SES-KEY-CHANGE"),
    "job-change":             _single(_job_change,          "SES-JOB-CHANGE"),
    "clear-positive":         _single(_clear_positive,      "PDS-CLEAR-POSITIVE"),
    "response-wrong-id":      _single(_response_wrong_id,   "SES-RESPONSE-WRONG-ID"),
    "default-with-error":     _single(_default_with_error,  "SES-DEFAULT-WITH-ERROR"),
    "payload-flip-crc-fixed": _single(_payload_flip,        None),
}  # fmt: skip

MUTATIONS_OF_HISTORY: dict[str, MutateWithHistory] = {
    "offset-overlap":   _historic(_offset_overlap,   "SES-OFFSET-OVERLAP"),
    "som-twice":        _historic(_som_twice,        "SES-SOM-TWICE"),
    "psn-two-contents": _historic(_psn_two_contents, "PDS-PSN-TWO-CONTENTS"),
    "clear-falls":      _historic(_clear_falls,      "PDS-CLEAR-FALLS"),
}  # fmt: skip

NAMES = (*MUTATIONS, *MUTATIONS_OF_HISTORY)

ABOUT: dict[str, str] = {
    "bad-crc":                "one bit of the CRC32C in the trailer",
    "reserved-bit":           "one bit of a reserved field of PDS, SES or TSS",
    "reserved-type":          "PDS type that is reserved",
    "bad-next-hdr":           "next_hdr that may not follow this PDS header",
    "bad-version":            "SES version other than 0",
    "unknown-opcode":         "SES opcode that is not defined",
    "unknown-code":           "undefined NACK code, control type, return code, AMO or datatype",
    "cut":                    "the frame ends early, and no length says so",
    "extra-bytes":            "bytes behind the payload that SES implies",
    "ip-length":              "length in the IP header other than that of the packet",
    "length-over":            "SES says more payload than there is",
    "length-under":           "SES says less payload than there is",
    "opcode-change":          "opcode other than in the rest of the message",
    "key-change":             "memory key or match bits other than in the rest of the message",
    "job-change":             "JobID other than in the rest of the message",
    "clear-positive":         "a packet that clears itself, or what was never sent",
    "response-wrong-id":      "response for a message id that was not asked",
    "default-with-error":     "default response with an error code",
    "payload-flip-crc-fixed": "one bit of the payload, the CRC made right again: no audit can see it",
    "offset-overlap":         "message_offset of another packet of the message",
    "som-twice":              "a second packet of a message with SOM",
    "psn-two-contents":       "PSN that stood for another packet",
    "clear-falls":            "CLEAR_PSN below that of an earlier packet",
}  # fmt: skip
"""What is wrong then, in a line."""


def mutate(name: str, data: bytes, rng: Rng, seen: Seen) -> Mutation | None:
    """Any of `NAMES`; `seen` has what went past before. None: it does not apply to this frame."""
    alone = MUTATIONS.get(name)
    return MUTATIONS_OF_HISTORY[name](data, rng, seen) if alone is None else alone(data, rng)


# Havoc ---------------------------------------------------------------------------------------------------------------


def mutate_transport(data: bytes, rng: Rng, other: bytes = b"") -> bytes:
    """Transport bytes (from the PDS header on) after one to four accidents, of which half respect the header tables.

    `other` is another packet, for the accident in which one begins and the other ends.
    """
    changed = bytearray(data)
    for _ in range(1 + _below(rng, 4)):
        if not changed or rng.random() < 0.5:
            _field_accident(changed, rng)
        else:
            _byte_accident(changed, rng, other)
    return bytes(changed)


def transport_headers(data: bytes) -> list[tuple[Header, int]]:
    """The headers that `data` begins with, and the byte where each starts; ends where one does not fit."""
    found: list[tuple[Header, int]] = []
    todo = [FIRST]
    at = 0
    while todo and len(data) - at >= 2:
        word = data[at] << 8 | data[at + 1]
        header = next((candidate for candidate in todo.pop() if matches(candidate, word)), None)
        if header is None or len(data) - at < header.size:
            break
        found.append((header, at))
        values = codec_of(header).decode(data, at)
        at += header.size
        for row in reversed(rows_after(header)):
            candidates = row.otherwise if row.by is None else row.then.get(values[row.by], row.otherwise)
            if candidates:
                todo.append(candidates)
    return found


def _field_accident(data: bytearray, rng: Rng) -> None:
    """One field of one header gets a border, a code, a neighbour, another bit, or anything."""
    headers = transport_headers(bytes(data))
    if not headers:
        data += rng.getrandbits(64).to_bytes(8, "big")
        return
    header, at = _pick(rng, headers)
    field = _pick(rng, header.fields)
    codec = codec_of(header)
    values = codec.decode(data, at)
    kind, before = _below(rng, 5), values[field.name]
    if kind == 0:
        after = _pick(rng, (field.low, field.high, 0))
    elif kind == 1 and field.values is not None:
        after = int(_pick(rng, list(field.values)))
    elif kind == 2:
        after = before + _pick(rng, (-2, -1, 1, 2, 1 << _below(rng, field.bits)))
    elif kind == 3:
        after = before ^ (1 << _below(rng, field.bits))
    else:
        after = rng.getrandbits(field.bits)
    values[field.name] = (after - field.low) % (1 << field.bits) + field.low
    data[at : at + header.size] = codec.encode(values)


_TELLING_BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def _byte_accident(data: bytearray, rng: Rng, other: bytes) -> None:
    at, kind = _below(rng, len(data)), _below(rng, 8)
    if kind < 2:
        data[at] ^= 1 << _below(rng, 8)
    elif kind == 2:
        data[at] = _pick(rng, _TELLING_BYTES)
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        del data[at : at + 1 + _below(rng, 8)]
    elif kind == 5:
        data[at:at] = data[at : at + 1 + _below(rng, 16)] * (1 + _below(rng, 4))
    elif kind == 6:
        data += rng.getrandbits(64).to_bytes(8, "big")[: 1 + _below(rng, 8)]
    else:
        data[at:] = other[_below(rng, len(other)) :] if other else b""
