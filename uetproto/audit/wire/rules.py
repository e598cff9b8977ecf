# SPDX-License-Identifier: GPL-2.0-only
"""This module judges each UET packet alone: its CRC, lengths, reserved bits and codes (wire.md §1, wire.md §7)."""

from typing import Any

from uetproto.audit.reader.crc_of_packet import CRC_TOO
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Rule, Severity, Verdict, Violation
from uetproto.audit.wire.tracker import WireEvent, misfit_of_uet_in, packet_of, reserved_bit, reserved_type
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS, UET_FORMS, VERSIONS, code_fields, is_vendors
from uetproto.wire.headers.ethernet import Ecn, internet_checksum
from uetproto.wire.headers.tunnels import GRE_CHECKSUM
from uetproto.wire.packet import Layer, gre_checksum, inner_from
from uetproto.wire.stack import encode


def _damaged(state: Any, _: ObservedPacket) -> Verdict:
    return Violation("a record", f"{state.where}: {state.reason}") if state.reason else None


def _crc(_: Any, seen: ObservedPacket) -> Verdict:
    trailer = packet_of(seen).trailer
    if trailer is not None and trailer.ok is False:
        return Violation("the CRC32C of the packet", f"0x{trailer.value:08x}")
    return None if trailer is not None else Inconclusive("the last 4 bytes may be a wrong CRC32C")


def _length(_: Any, seen: ObservedPacket) -> Verdict:
    packet = packet_of(seen)
    if packet.error is not None:
        return Violation("lengths that agree", packet.error.reason)
    misfit = misfit_of_uet_in(seen)
    return Violation(*misfit) if misfit else None


def _type(_: Any, seen: ObservedPacket) -> Verdict:
    kind = reserved_type(packet_of(seen))
    return None if kind is None else Violation("a type of 1 … 14", str(kind))


def _next_hdr(_: Any, seen: ObservedPacket) -> Verdict:
    legal = code_fields(seen.head.form)["next_hdr"]
    if seen.head.next_hdr in legal:
        return None
    return Violation(f"one of {', '.join(map(str, sorted(legal)))} behind {seen.head.form}", str(seen.head.next_hdr))


_RULED_ELSEWHERE = ("type", "next_hdr", "opcode")


def _codes(_: Any, seen: ObservedPacket) -> Verdict:
    """Judge the codes that have no rule of their own."""
    for form, values, _offset in packet_of(seen).layers:
        for name, known in code_fields(form).items() if form in UET_FORMS else ():
            if name not in _RULED_ELSEWHERE and values[name] not in known:
                return Violation(f"a code that {form}.{name} has", f"0x{values[name]:x}")
    return None


def _opcode(_: Any, seen: ObservedPacket) -> Verdict:
    form, opcode = seen.ses.form, seen.ses.opcode
    if opcode not in code_fields(form)["opcode"]:
        return Violation("an opcode that is defined", f"0x{opcode:02x}")
    return Inconclusive("the opcode is a vendor's") if is_vendors(form, "opcode", opcode) else None


def _version(_: Any, seen: ObservedPacket) -> Verdict:
    version = getattr(seen.ses, VERSIONS[0])
    return Violation("version 0", str(version)) if version else None


def _checksum(_: Any, seen: ObservedPacket) -> Verdict:
    """Judge all IPv4 headers, those of tunnels too."""
    unsure: Verdict = None
    for form, header, _offset in packet_of(seen).layers:
        if form != "ipv4":
            continue
        wanted = internet_checksum(codec_of(FORMS["ipv4"]).encode({**header, "checksum": 0}))
        if not header["checksum"]:
            unsure = Inconclusive("0: left to the adapter, behind the tap")
        elif header["ihl"] > 5:
            unsure = Inconclusive("IPv4 options")
        elif wanted != header["checksum"]:
            return Violation(f"0x{wanted:04x}", f"0x{header['checksum']:04x}")
    return unsure


def _gre_checksum(_: Any, seen: ObservedPacket) -> Verdict:
    packet = packet_of(seen)
    if "truncated" in packet.notes:
        return Inconclusive("the end of the packet is missing")
    data = encode(packet)
    for index, (form, values, _offset) in enumerate(packet.layers):
        if form == GRE_CHECKSUM.name and (wanted := gre_checksum(packet.layers, index, data)) != values["checksum"]:
            return Violation(f"0x{wanted:04x}", f"0x{values['checksum']:04x}")
    return None


def _inside(seen: ObservedPacket) -> list[Layer]:
    """Return the layers of the packet that tunnels carry, or of a packet without a tunnel."""
    layers = packet_of(seen).layers
    return layers[inner_from(layers) :]


def _fragmentable(_: Any, seen: ObservedPacket) -> Verdict:
    for form, values, _offset in _inside(seen):
        if form == "ipv4" and not values["df"]:
            return Violation("DF 1", "DF 0")
    return None


def _udp_checksum(_: Any, seen: ObservedPacket) -> Verdict:
    for form, values, _offset in _inside(seen):
        if form == "udp" and values["checksum"]:
            return Violation("0", f"0x{values['checksum']:04x}")
    return None


def _ecn(_: Any, seen: ObservedPacket) -> Verdict:
    return Violation("ECT(0)", "not ECT") if seen.ecn == Ecn.NOT_ECT else None


def _crc_too(_: Any, seen: ObservedPacket) -> Verdict:
    return Violation("an ICV", "a right CRC32C behind it") if CRC_TOO in packet_of(seen).notes else None


RULES = (
    Rule(id="CAP-DAMAGED", on=WireEvent.CAPTURE, check=_damaged, severity=Severity.NOTE, cite=CHOICE,
         says="A capture can be read to its end."),
    Rule(id="WIRE-CRC", on=WireEvent.CRC, check=_crc, cite="UE 1.0.1 §3.5.25",
         says="In a flow with CRC32C, every packet ends with a correct CRC32C.", obscures=True),
    Rule(id="WIRE-LENGTH", on=WireEvent.LENGTH, check=_length, cite="UE 1.0.1 §3.4.2",
         says="The lengths in IP, UDP and SES agree with the packet.", obscures=True),
    Rule(id="WIRE-RESERVED-BIT", on=WireEvent.HEADERS, cite="UE 1.0.1 §3.4, §3.5, §3.7",
         check=lambda _, seen: reserved_bit(seen, UET_FORMS), says="Reserved bits are sent as 0."),
    Rule(id="WIRE-UNKNOWN-CODE", on=WireEvent.HEADERS, check=_codes, cite="UE 1.0.1 §3.4, §3.5",
         says="Codes are defined, or left to vendors.", obscures=True),
    Rule(id="PDS-RESERVED-TYPE", on=WireEvent.TYPE, check=_type, cite="UE 1.0.1 §3.5.10",
         says="The type of a PDS header is not reserved.", obscures=True),
    Rule(id="PDS-NEXT-HDR", on=WireEvent.NEXT_HDR, check=_next_hdr, cite="UE 1.0.1 §3.5.10",
         says="What follows a PDS header is allowed by the type of that header.", obscures=True),
    Rule(id="SES-VERSION", on=WireEvent.SES, check=_version, cite="UE 1.0.1 §3.4.1",
         says="The version of SES is 0."),
    Rule(id="SES-UNKNOWN-OPCODE", on=WireEvent.SES, check=_opcode, cite="UE 1.0.1 §3.4.1.4",
         says="The opcode of a request or response is defined, or a vendor's."),
    Rule(id="WIRE-IP-CHECKSUM", on=WireEvent.IPV4, check=_checksum, severity=Severity.WARNING, cite="RFC 791 §3.1",
         says="The checksum of an IPv4 header is correct."),
    Rule(id="WIRE-GRE-CHECKSUM", on=WireEvent.GRE, check=_gre_checksum, severity=Severity.WARNING, cite="RFC 2784 §2.5",
         says="The checksum of a GRE header that has one is correct."),
    Rule(id="WIRE-DF", on=WireEvent.NETWORK, check=_fragmentable, severity=Severity.NOTE, cite="UE 1.0.1 §3.2",
         says="UET in IPv4 may not be fragmented."),
    Rule(id="WIRE-UDP-CHECKSUM", on=WireEvent.NETWORK, check=_udp_checksum, severity=Severity.NOTE,
         cite="UE 1.0.3 §3.5.10.1", says="The UDP checksum of UET is sent as 0."),
    Rule(id="WIRE-ECN", on=WireEvent.DATA, check=_ecn, severity=Severity.NOTE, cite="UE 1.0.1 §3.6",
         says="Requests are sent as ECN-capable."),
    Rule(id="TSS-CRC-TOO", on=WireEvent.ICV, check=_crc_too, cite="UE 1.0.1 §3.7", covers=("tss 18",),
         says="A sealed packet ends with its ICV, and has no CRC32C."),
)  # fmt: skip
