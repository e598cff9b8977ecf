# SPDX-License-Identifier: GPL-2.0-only
"""Frames at the ports of two nodes as lines of a ladder: one a packet, with every number and flag it carries.

`7>3`: from PDCID 7 to PDCID 3, `?` is not known yet. `coff` is clear_psn_offset, `off` ack_psn_offset, `poff`
psn_offset, `soff` sack_psn_offset (pds.md §19); PSNs from 2^31 on are in hex. What is behind `|` is the congestion
control state, in the units of cms.md §1, and the SES header. A state of an ACK that is zero is left out.
"""

from typing import Any

from uetproto import Packet
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode
from uetproto.wire.headers.uet_ses import Opcode, ResponseOpcode, ReturnCode
from uetproto.wire.packet import Layer
from uetproto.wire.serial import add32


def name(packet: Packet) -> str:
    """Return the kind of a packet, the number by which a ladder calls it, and what the network did to it."""
    layer = _pds(packet)
    v, kind = layer.values, _kind(layer)
    number: Any = ""
    if "ctl_type" in v:
        number = _psn(v["psn"] or v["ctl_payload"])
    elif "cack_psn" in v:
        number = v["probe_opaque"] if v["p"] else _psn(add32(v["cack_psn"], v["ack_psn_offset"]))
    elif "nack_psn" in v or "psn" in v:
        number = _psn(v["nack_psn"] if "nack_psn" in v else v["psn"])
    elif "pkt_id" in v or "nack_pkt_id" in v:
        number = f"{v['pkt_id'] if 'pkt_id' in v else v['nack_pkt_id']:#x}"
    words = [kind, str(number), *packet.notes]
    if packet["ipv4"]["ecn"] == Ecn.CE:
        words.append("CE")
    return " ".join(word for word in words if word)


def line(packet: Packet) -> str:
    """Return a packet as a line, with all its numbers."""
    assert packet.error is None, packet
    assert packet.trailer is not None
    assert packet.trailer.ok
    layer = _pds(packet)
    v, kind = layer.values, _kind(layer)
    if "ctl_type" in v:
        columns = _control(v)
    elif "cack_psn" in v:
        columns = _ack(v)
    elif "nack_code" in v:
        columns = _nack(v)
    elif "pkt_id" in v:
        columns = f"pkt_id {v['pkt_id']:#x} retx {v['retx']} m {v['m']}"
    elif "clear_psn_offset" in v:
        columns = _request(v)
    else:
        columns = ""
    if "spdcid" in v:
        syn = v.get("syn")
        columns = f"{v['spdcid']}>{'?' if syn else v['dpdcid']} {columns}" + (f" poff {v['psn_offset']}" if syn else "")
    behind = [text for text in (_congestion(packet), _ses(packet)) if text]
    return " | ".join([f"{kind} {columns}".rstrip(), *behind])


def _pds(packet: Packet) -> Layer:
    return next(layer for layer in packet.layers if layer.form.startswith("pds."))


def _kind(layer: Layer) -> str:
    """A request of a RUD PDC, which ladders are about, is just that."""
    if "ctl_type" in layer.values:
        return CtlType(layer.values["ctl_type"]).name
    return layer.form.split(".")[1].upper().removeprefix("RUD_")


def _psn(psn: int) -> str:
    return str(psn) if psn < 1 << 31 else f"0x{psn:X}"


def _request(v: Any) -> str:
    psn, coff = v["psn"], v["clear_psn_offset"]
    clear = _psn(add32(psn, coff))
    return f"psn {_psn(psn)} clear {clear} coff {coff} retx {v['retx']} ar {v['ar']} syn {v['syn']}"


def _ack(v: Any) -> str:
    cack = v["cack_psn"]
    if v["p"]:
        columns = f"p {v['probe_opaque']} cack {_psn(cack)}"
    else:
        columns = f"ack {_psn(add32(cack, v['ack_psn_offset']))} cack {_psn(cack)} off {v['ack_psn_offset']:+}"
    columns += f" req {AckReq(v['req']).name} retx {v['retx']} m {v['m']}"
    if "mpr" in v:
        columns += f" mpr {v['mpr']} soff {v['sack_psn_offset']:+} sack {v['sack_bitmap']:#x}"
    return columns


def _nack(v: Any) -> str:
    subject = f"pkt_id {v['nack_pkt_id']:#x}" if v["nt"] else f"psn {_psn(v['nack_psn'])}"
    return f"{NackCode(v['nack_code']).name} {subject} payload {_psn(v['nack_payload'])} retx {v['retx']} m {v['m']}"


def _control(v: Any) -> str:
    opaque = f" opaque {v['probe_opaque']}" if v["ctl_type"] == CtlType.PROBE else ""
    flags = f"retx {v['retx']} ar {v['ar']} isrod {v['isrod']} syn {v['syn']}"
    return f"psn {_psn(v['psn'])} payload {_psn(v['ctl_payload'])}{opaque} {flags}"


def _congestion(packet: Packet) -> str:
    """The congestion control state of a request, or of an ACK where it is not zero."""
    layer = next((layer for layer in packet.layers if layer.form.startswith(("pds.req_cc", "pds.cc_state."))), None)
    if layer is None:
        return ""
    v = layer.values
    if "ccc_id" in v:
        return f"ccc {v['ccc_id']} target {v['credit_target']}"
    if not any(v.values()):
        return ""
    if "credit" in v:
        return f"credit {v['credit']} ooo {v['ooo_count']}"
    penalty = f" pend {v['rcv_cwnd_pend']}" if v["rcv_cwnd_pend"] else " restore" if v["restore_cwnd"] else ""
    return f"rcvd {v['rcvd_bytes']} service {v['service_time']} ooo {v['ooo_count']}{penalty}"


def _ses(packet: Packet) -> str:
    """The SES header: what it is, and which message or packet it is about."""
    layer = next((layer for layer in packet.layers if layer.form.startswith("ses.")), None)
    if layer is None:
        return ""
    v = layer.values
    about = {
        "mid": v.get("message_id", v.get("response_message_id")),
        "read": v.get("read_request_message_id"),
        "psn": v.get("original_request_psn"),
    }
    words = " ".join(f"{key} {number}" for key, number in about.items() if number is not None)
    if "return_code" in v:
        opcode = ResponseOpcode(v["opcode"]).name.removesuffix("_RESPONSE").removeprefix("RESPONSE_")
        return f"{opcode} {ReturnCode(v['return_code']).name} {words}"
    return f"{Opcode(v['opcode']).name} {words}".rstrip()
