# SPDX-License-Identifier: GPL-2.0-only
"""This module describes the headers of UET: "ROD_REQ SYN PSN 73728", "WRITE id 1 0–4096 of 12288"."""

from collections.abc import Iterable, Mapping
from typing import Any

from uetproto.wire.codec import header_class
from uetproto.wire.fields import Header
from uetproto.wire.headers.uet_pds import CC_STATE_CREDIT, CC_STATE_NSCC, CONTROLS, AckReq, CcType, CtlType, NackCode
from uetproto.wire.headers.uet_ses import (
    TAGGED,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)
from uetproto.wire.packet import Layer
from uetproto.wire.serial import add32, diff32
from uetproto.wire.words.text import code, octets, ranges, span

Values = Mapping[str, Any]


def sack_base(values: Values) -> int:
    return add32(values["cack_psn"], values["sack_psn_offset"])


def sacked(values: Values) -> list[tuple[int, int]]:
    """Return the PSNs that an ACK_CC or ACK_CCX reports as received in its bitmap, as ranges with inclusive ends
    (pds.md §2.1)."""
    base, bitmap = sack_base(values), values["sack_bitmap"]
    found: list[tuple[int, int]] = []
    for bit in range(64):
        if bitmap >> bit & 1:
            psn = add32(base, bit)
            if found and diff32(psn, found[-1][1]) == 1:
                found[-1] = (found[-1][0], psn)
            else:
                found.append((psn, psn))
    return found


def tss_words(values: Values) -> str:
    ssi = f" SSI {values['ssi']}" if "ssi" in values else ""
    return f"sealed, SDI {values['sdi']}{ssi} AN {values['an']} epoch {values['epoch']} TSC {values['tsc']}"


def pds_words(form: str, values: Values) -> str:
    kind = form.split(".")[1]
    name = kind.upper()
    if kind.startswith("ack"):
        return _ack(name, values)
    if kind.startswith("nack"):
        return _nack(name, values)
    if kind == "cp":
        return _control(values)
    if "pkt_id" in values:
        return f"{name} pkt_id 0x{values['pkt_id']:08x}{_flags(values)}{' m' if values['m'] else ''}"
    if "psn" in values:
        return f"{name}{' SYN' if values['syn'] else ''} PSN {values['psn']}{_flags(values)}"
    return name


_IN_CCX: dict[int, Header] = {CcType.NSCC: CC_STATE_NSCC, CcType.CREDIT: CC_STATE_CREDIT}
"""State of an ACK_CC with which that of an ACK_CCX begins, by ccx_type."""


def cc_words(form: str, values: Values, ccx_type: int = CcType.NSCC) -> str:
    """Return the congestion control state of a request or an ACK in words: "rcvd 512,000 service 1.28 µs ooo 3" (cms.md
    §1). The text is empty if the state is zero, as without congestion control. `ccx_type` is that of an ACK_CCX, whose
    state begins with that of an ACK_CC of this type (wire.md §3.3)."""
    match form.removeprefix("pds."):
        case "req_cc_state":
            return f"ccc {values['ccc_id']} target {values['credit_target']}"
        case "cc_state.nscc":
            words = [f"rcvd {256 * values['rcvd_bytes']:,}"] if values["rcvd_bytes"] else []
            if values["service_time"]:
                words.append(f"service {values['service_time'] * 0.128:.2f} µs")
            if values["rcv_cwnd_pend"]:
                words.append(f"penalty {values['rcv_cwnd_pend']}/128")
            if values["restore_cwnd"]:
                words.append("restore_cwnd")
        case "cc_state.credit":
            words = [f"credit {values['credit']}"]
        case "ccx_state" if ccx_type in _IN_CCX and values["ack_ccx_state"]:
            header = _IN_CCX[ccx_type]
            state = header_class(header).read(values["ack_ccx_state"].to_bytes(16, "big"))
            return cc_words(header.name, state._asdict())
        case _:
            return ""
    if values["ooo_count"]:
        words.append(f"ooo {values['ooo_count']}")
    return " ".join(words)


def _ack(name: str, values: Values) -> str:
    cack = values["cack_psn"]
    if "probe_opaque" in values:
        text = f"{name} of probe 0x{values['probe_opaque']:04x} CACK {cack}"
    else:
        text = f"{name} PSN {add32(cack, values['ack_psn_offset'])} CACK {cack}"
    if values.get("sack_bitmap"):
        text += f" SACK {ranges(sacked(values), 3)}"
    if "expected_psn" in values:
        text += f" next start at {values['expected_psn']}"
    if values["req"]:
        text += f" asks {code(AckReq, values['req'])}"
    return text + _flags(values) + (" m" if values["m"] else "")


def _nack(name: str, values: Values) -> str:
    nack_code, value = values["nack_code"], values["nack_payload"]
    text = f"{name} {code(NackCode, nack_code)}"
    if "nack_pkt_id" in values:
        text += f" pkt_id 0x{values['nack_pkt_id']:08x}"
    else:
        text += f" PSN {values['nack_psn']}"
    if nack_code == NackCode.ROD_OOO:
        text += f" expects {value}"
    elif nack_code == NackCode.NEW_START_PSN:
        text += f" start at {value}"
    return text + _flags(values) + (" m" if values["m"] else "")


def _control(values: Values) -> str:
    kind = values["ctl_type"]
    row = CONTROLS.get(kind)
    if row is None:
        words = f"PSN {values['psn']}"
    else:
        shown = {**values, "ctl_payload": values["ctl_payload"] & row.payload_mask}
        words = row.words[0] % tuple(shown[name] for name in row.words[1:])
    return f"CP {code(CtlType, kind, 'type')}{' SYN' if values['syn'] else ''} {words}{_flags(values)}"


def response_words(values: Values) -> str:
    opcode, result = values["opcode"], code(ReturnCode, values["return_code"], "return code")
    if "payload_length" in values:
        length = values["payload_length"]
        if "original_request_psn" in values:
            text = f"data of PSN {values['original_request_psn']} {octets(length)}"
        else:
            which = span(values["message_offset"], length, values["modified_length"])
            text = f"data of id {values['read_request_message_id']} {which}"
        return text if values["return_code"] == ReturnCode.OK else f"{text} {result}"
    text = result
    if opcode == ResponseOpcode.NO_RESPONSE:
        text = "no response yet"
    elif opcode > ResponseOpcode.NO_RESPONSE:
        text = f"response opcode 0x{opcode:02x} {result}"
    elif opcode == ResponseOpcode.RESPONSE:
        text += f" id {values['message_id']}"
    if values["list"]:
        text += f" {code(ResponseList, values['list'], 'list')}"
    return text


def request_words(values: Values, layers: Iterable[Layer], there: int | None) -> str:
    """Return a SES request in words. `layers` are all layers of its packet.

    `there` is the number of bytes behind the header, or None if some of these bytes were cut off.
    """
    opcode, total = values["opcode"], values["request_length"]
    words = [code(Opcode, opcode, "opcode")]
    for form, extra, _ in layers:
        if form.startswith("ses.ext.atomic"):
            words.append(code(AtomicOpcode, extra["atomic_opcode"], "operation"))
            words.append(code(AtomicDatatype, extra["atomic_datatype"], "datatype"))
        elif form == "ses.ext.rendezvous":
            words.append(f"eager {extra['eager_length']}")
    if "message_id" in values:
        words.append(f"id {values['message_id']}")
    if opcode in TAGGED and "match_bits" in values:
        words.append(f"tag 0x{values['match_bits']:x}")
    if "message_offset" in values:
        words.append(span(values["message_offset"], values["payload_length"], total))
    elif values["eom"] or "message_id" not in values or opcode == Opcode.DEFERRABLE_RTR:
        words.append(span(0, total, total))
    else:
        words.append(span(0, None if opcode == Opcode.READ else there, total))
    words += [name for name in ("ie", "dc") if values[name]]
    return " ".join(words)


def _flags(values: Values) -> str:
    return (" retx" if values.get("retx") else "") + (" ar" if values.get("ar") else "")
