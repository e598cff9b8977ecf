# SPDX-License-Identifier: GPL-2.0-only
"""This module judges each RoCE or InfiniBand packet by itself: its ICRC, lengths, reserved bits and codes (roce.md §2,
roce.md §4)."""

from typing import Any

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import Inconclusive, Rule, Severity, Verdict, Violation
from uetproto.audit.wire.tracker import SenderIcrc, WireEvent, misfit_of_roce_in, packet_of, reserved_bit
from uetproto.wire.forms import ROCE_FORMS, SYNDROMES
from uetproto.wire.headers.roce import RD_OPCODES, SEQUENCES

_MANUFACTURER = range(0xC0, 0x100)
_SYNDROME_RESERVED = 0x80


def _icrc(_: Any, seen: ObservedPacket) -> Verdict:
    trailer = packet_of(seen).trailer
    if trailer is None or trailer.ok is None:
        return Inconclusive(
            "no ICRC between these two is right, and --crc on does not say that the capture left them alone"
        )
    return None if trailer.ok else Violation("the ICRC of the packet", f"0x{trailer.value:08x}")


def _sender_icrc(state: SenderIcrc, _: ObservedPacket) -> Verdict:
    if not state.others_are_right:
        return Inconclusive("no ICRC of the capture is right")
    return Violation("right ICRCs, as other packets have", f"0 of {state.wrong} right") if state.wrong else None


def _capture_icrc(state: SenderIcrc, _: ObservedPacket) -> Verdict:
    if state.others_are_right:
        return None
    return Violation("right ICRCs, unless the capture changed the packets", f"0 of {state.wrong} right")


def _length(state: Any, seen: ObservedPacket) -> Verdict:
    """Judge the lengths of a packet, or return what a tracker says of a length that other packets contradict."""
    if state.verdict is not None:
        verdict: Verdict = state.verdict
        return verdict
    packet = packet_of(seen)
    if packet.error is not None:
        return Violation("lengths that agree", packet.error.reason)
    misfit = misfit_of_roce_in(seen)
    return Violation(*misfit) if misfit else None


def _reserved(_: Any, seen: ObservedPacket) -> Verdict:
    found = reserved_bit(seen, ROCE_FORMS)
    if found is None and "aeth" in packet_of(seen) and packet_of(seen)["aeth"]["syndrome"] & _SYNDROME_RESERVED:
        return Violation("bit 7 of aeth.syndrome 0", "1")
    return found


def _version(_: Any, seen: ObservedPacket) -> Verdict:
    return Violation("tver 0", str(seen.head.tver)) if seen.head.tver else None


def _opcode(_: Any, seen: ObservedPacket) -> Verdict:
    opcode = seen.head.opcode
    if opcode in RD_OPCODES:
        return Inconclusive("RD, or a vendor's transport in its place")
    if opcode in SEQUENCES:
        return None
    return Inconclusive("a manufacturer's") if opcode in _MANUFACTURER else Violation("an opcode", f"0x{opcode:02x}")


def _syndrome(_: Any, seen: ObservedPacket) -> Verdict:
    code = next(header.syndrome for header in seen.more if header.form == "aeth") & ~_SYNDROME_RESERVED
    return None if code in SYNDROMES else Violation("ACK, RNR NAK or NAK", f"syndrome 0x{code:02x}")


RULES = (
    Rule(id="ROCE-ICRC", on=WireEvent.ICRC, check=_icrc, cite="IBTA volume 1, ICRC",
         says="A packet ends with a correct ICRC.", obscures=True),
    Rule(id="ROCE-ICRC-SENDER", on=WireEvent.SENDER_ICRC, check=_sender_icrc, cite="IBTA volume 1, ICRC",
         says="Where ICRCs of a capture are right, those of every sender are."),
    Rule(id="ROCE-ICRC-CAPTURE", on=WireEvent.SENDER_ICRC, check=_capture_icrc, severity=Severity.WARNING,
         cite="IBTA volume 1, ICRC", says="Some ICRC of a capture is right."),
    Rule(id="ROCE-LENGTH", on=WireEvent.ROCE_LENGTH, check=_length, cite="IBTA volume 1, packet lengths",
         says="The lengths of payload and pad agree with opcode, RETH and outer headers.", obscures=True),
    Rule(id="ROCE-RESERVED-BIT", on=WireEvent.BTH, check=_reserved, cite="IBTA volume 1, packet formats",
         says="Reserved bits are sent as 0."),
    Rule(id="ROCE-VERSION", on=WireEvent.BTH, check=_version, cite="IBTA volume 1, BTH",
         says="The version of the transport header is 0."),
    Rule(id="ROCE-UNKNOWN-OPCODE", on=WireEvent.OPCODE, check=_opcode, cite="IBTA volume 1, BTH opcodes",
         says="The opcode is defined.", obscures=True),
    Rule(id="ROCE-SYNDROME", on=WireEvent.AETH, check=_syndrome, cite="IBTA volume 1, AETH syndrome",
         says="The syndrome of an AETH is not reserved."),
)  # fmt: skip
