# SPDX-License-Identifier: GPL-2.0-only
"""This module has the mutations of RoCE and InfiniBand packets, most of which change one field (interfaces.md §7).

A mutation that is neither in `CHANGES` nor in `CHANGES_OF_HISTORY` does not apply to RoCE. The rule of a mutation is
the rule of roce.md that the changed frame breaks, or None if no rule can find the change.
"""

from uetproto.wire.crc import crc32c
from uetproto.wire.forms import ROCE_FORMS
from uetproto.wire.headers.roce import (
    BTH,
    OPERATIONS,
    PMTUS,
    RD_OPCODES,
    RESPONSES,
    WHOLE_WRITES,
    Load,
    Nak,
    Operation,
    Transport,
)  # fmt: skip
from uetproto.wire.mutate import frame as mutate_frame
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
    over,
    payload_flip,
    pick,
    reserved_places,
    undefined,
    under,
)

_RESERVED_SYNDROMES = (*range(0x40, 0x60), *range(Nak.INVALID_RD_REQUEST + 1, 0x80))
"""Syndromes that are neither ACK nor RNR NAK nor NAK (roce.md §2.1)."""
_RESERVED_SYNDROME_BIT = 7
_SAME_PLACES = (
    (Operation.SEND_MIDDLE,              Operation.RDMA_WRITE_MIDDLE),
    (Operation.SEND_LAST,                Operation.RDMA_WRITE_LAST),
    (Operation.SEND_LAST_WITH_IMMEDIATE, Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE),
)  # fmt: skip
"""Pairs of operations, of a SEND and of a WRITE, with the same headers and the same position in their message."""
_OTHER = {a: b for pair in _SAME_PLACES for a, b in (pair, pair[::-1])}
_MANUFACTURERS = 0xC0
"""First opcode that is left to manufacturers (roce.md §3)."""
_NOT_SENT = 1 << 22
"""Number of requests larger than any sender has outstanding: few have more than 2^15 (roce.md §7, roce.md §14)."""


# One frame ------------------------------------------------------------------------------------------------------------


def _opcode(frame: Frame) -> int:
    return frame.value(frame.start, "opcode")


def _operation(frame: Frame) -> Operation | None:
    """Return the operation; None for a CNP."""
    opcode = _opcode(frame)
    return None if opcode >> 5 == Transport.CNP else Operation(opcode & 0x1F)


def reserved_bit(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set a bit of a reserved field, or the top bit of a syndrome, which is reserved, too (roce.md §2.1)."""
    places = [(index, field.name, 0, field.bits) for index, field in reserved_places(frame, ROCE_FORMS)]
    aeth = frame.find("syndrome", prefix="aeth")
    if aeth is not None:
        places.append((aeth, "syndrome", _RESERVED_SYNDROME_BIT, 1))
    index, name, lowest, bits = pick(rng, places)
    return frame.changed(index, name, frame.value(index, name) | 1 << lowest + below(rng, bits))


def bad_version(frame: Frame, rng: MutationRng) -> Mutation | None:
    return frame.changed(frame.start, "tver", 1 + below(rng, 15))


def unknown_opcode(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set an unknown opcode. 0x40–0x5f and 0xc0 or more are left out, because vendors may define them (roce.md §3)."""
    opcodes = [opcode for opcode in undefined(BTH["opcode"]) if opcode < _MANUFACTURERS and opcode not in RD_OPCODES]
    return frame.changed(frame.start, "opcode", pick(rng, opcodes))


def unknown_code(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set the syndrome of an AETH to an unknown value. Its reserved bit keeps its value."""
    index = frame.find("syndrome", prefix="aeth")
    if index is None:
        return None
    reserved = frame.value(index, "syndrome") & 1 << _RESERVED_SYNDROME_BIT
    return frame.changed(index, "syndrome", reserved | pick(rng, _RESERVED_SYNDROMES))


def extra_bytes(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Add bytes behind a payload whose size the BTH and RETH imply. Correct the pad and the lengths of lower
    headers."""
    packet = frame.packet
    size = len(packet.payload)
    plain = packet.trailer is not None and packet.trailer.ok and packet.pad == bytes(-size % 4) and "erf" not in packet
    if not plain or not _implied(frame):
        return None
    count = pick(rng, (1, 2, 3, 4, 8, 1 + below(rng, 64)))
    return frame.lengthened(rng.getrandbits(8 * count).to_bytes(count, "big"))


def _implied(frame: Frame) -> bool:
    """Return whether the headers of the packet imply the size of its payload, and rightly (roce.md §3, §4)."""
    operation, size = _operation(frame), len(frame.packet.payload)
    if operation in WHOLE_WRITES:
        return _dmalen(frame) is not None
    load = Load.NONE if operation is None else OPERATIONS[operation].load
    return {Load.NONE: size == 0, Load.WORD: size == 8, Load.FULL: size in PMTUS}.get(load, False)


def ip_length(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set the length in IP, GRH or LRH to a wrong value.

    If no other length contradicts it, no rule finds the change: the packet looks cut, or its ICRC looks wrong.
    """
    found = mutate_frame.ip_length(frame, rng)
    forms = {layer.form for layer in frame.packet.layers}
    contradicted = "udp" in forms or {"lrh", "grh"} <= forms
    return found._replace(rule="ROCE-LENGTH") if found and contradicted else found


def length_over(frame: Frame, rng: MutationRng) -> Mutation | None:
    return over(frame, rng, _dmalen(frame))


def length_under(frame: Frame, rng: MutationRng) -> Mutation | None:
    return under(frame, rng, _dmalen(frame))


def _dmalen(frame: Frame) -> tuple[int, str] | None:
    """Return layer and field that state the bytes of a message or answer, if the packet does not contradict them."""
    index, operation, size = frame.find("dmalen", prefix="reth"), _operation(frame), len(frame.packet.payload)
    if index is None or operation is Operation.FLUSH:  # the length in a FLUSH is that of a range in memory
        return None
    stated = frame.value(index, "dmalen")
    if operation is Operation.RDMA_READ_REQUEST:
        agrees = size == 0
    else:
        agrees = stated > size if operation is Operation.RDMA_WRITE_FIRST else stated == size
    return (index, "dmalen") if agrees else None


def opcode_change(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Change the opcode of a middle or last packet: from that of a SEND to that of a WRITE, or the reverse (roce.md
    §8)."""
    operation = _operation(frame)
    other = None if operation is None else _OTHER.get(operation)
    return None if other is None else frame.changed(frame.start, "opcode", _opcode(frame) & ~0x1F | other)


def key_change(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Flip a bit of an r_key, or of a p_key in the 15 bits that must match (roce.md §2).

    All packets between two queue pairs have the same p_key, so an audit finds its change. An r_key is stated only once
    in a request, so only the owner of the memory can find its change.
    """
    places: list[tuple[int, str, int, str | None]] = [(frame.start, "p_key", 15, "ROCE-KEY-CHANGE")]
    places += [(i, "r_key", 32, None) for i, layer in enumerate(frame.packet.layers) if "r_key" in layer.values]
    index, name, bits, rule = pick(rng, places)
    return frame.changed(index, name, frame.value(index, name) ^ (1 << below(rng, bits)))._replace(rule=rule)


def response_wrong_id(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set the PSN of a response to the PSN of a request that was not sent (roce.md §15). The PSN of a response
    identifies its request."""
    if _operation(frame) not in RESPONSES:
        return None
    ahead = _NOT_SENT + below(rng, _NOT_SENT)
    return frame.changed(frame.start, "psn", frame.value(frame.start, "psn") + ahead & 0xFFFFFF)


# Several frames -------------------------------------------------------------------------------------------------------

_Flow = tuple[int, int, int]  # source, destination, destqp
_ADDRESSES = (("ipv", "src", "dst"), ("grh", "sgid", "dgid"), ("lrh", "slid", "dlid"))


class RoceHistory:
    """A history keeps digests of earlier RC requests, for mutations that contradict them. It forgets the oldest."""

    def __init__(self, flows: int, packets: int) -> None:
        self.requests: Recent[_Flow, int] = Recent(flows, packets)
        """Digests of requests (see `_digest`), by flow and PSN."""

    def note(self, frame: Frame) -> None:
        flow, psn = _flow(frame), frame.value(frame.start, "psn")
        if flow is not None and psn not in self.requests.get(flow, {}):
            self.requests.note(flow, psn, _digest(frame))


def _flow(frame: Frame) -> _Flow | None:
    """Return the flow of an RC request; None for other packets: only RC retransmits a PSN with the same bytes (roce.md
    §9).
    """
    if _opcode(frame) >> 5 != Transport.RC or _operation(frame) in RESPONSES:
        return None
    for form, source, destination in _ADDRESSES:
        index = frame.find(source, destination, prefix=form)
        if index is not None:
            return frame.value(index, source), frame.value(index, destination), frame.value(frame.start, "destqp")
    return None


def _digest(frame: Frame) -> int:
    """Return a digest of opcode, headers behind the BTH, and payload, which a retransmission of the PSN repeats."""
    packet, bth = frame.packet, frame.packet.layers[frame.start]
    return crc32c(frame.data[bth.offset : bth.offset + 1]
                  + frame.data[bth.offset + bth.size : packet.payload_offset + len(packet.payload)])  # fmt: skip


def psn_two_contents(frame: Frame, rng: MutationRng, seen: RoceHistory) -> Mutation | None:
    flow = _flow(frame)
    if flow is None:
        return None
    digest, psn = _digest(frame), frame.value(frame.start, "psn")
    others = [other for other, content in seen.requests.get(flow, {}).items() if other != psn and content != digest]
    return frame.changed(frame.start, "psn", pick(rng, others)) if others else None


# The tables -----------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Ruled] = {
    # name                     what                rule of the audit
    "bad-crc":                (bad_crc,            "ROCE-ICRC"),
    "reserved-bit":           (reserved_bit,       "ROCE-RESERVED-BIT"),
    "bad-version":            (bad_version,        "ROCE-VERSION"),
    "unknown-opcode":         (unknown_opcode,     "ROCE-UNKNOWN-OPCODE"),
    "unknown-code":           (unknown_code,       "ROCE-SYNDROME"),
    "cut":                    (cut,                "ROCE-LENGTH"),  # if a length contradicts (roce.md §4)
    "extra-bytes":            (extra_bytes,        "ROCE-LENGTH"),
    "ip-length":              (ip_length,          None),  # ROCE-LENGTH where another length contradicts
    "length-over":            (length_over,        "ROCE-LENGTH"),
    "length-under":           (length_under,       "ROCE-LENGTH"),
    "opcode-change":          (opcode_change,      "ROCE-OPCODE-ORDER"),
    "key-change":             (key_change,         None),  # ROCE-KEY-CHANGE of a p_key
    "response-wrong-id":      (response_wrong_id,  "ROCE-PSN-NOT-SENT"),
    "payload-flip-crc-fixed": (payload_flip,       None),
}  # fmt: skip

CHANGES_OF_HISTORY: dict[str, RuledByHistory] = {
    "psn-two-contents": (psn_two_contents, "ROCE-PSN-TWO-CONTENTS"),
}
