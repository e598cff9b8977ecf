"""The one place between bytes and meaning: raw headers become slotted dataclasses that hold only legal values.

`parse` (PDS) and `parse_ses_request`, `parse_ses_response` (SES) validate and may refuse with `RemoteError`, whose
`code` is what to answer (0: nothing, drop). The `build_*` functions make header bytes from values that the engine
knows to be legal; they do not check again. Numbers that travel as offsets (CLEAR_PSN, ACK_PSN, SACK base) are whole
PSNs here (UE 1.0.1 §3.5.11.4, pds.md §2.1). Reserved fields are sent as zero and ignored on receipt.
"""

from dataclasses import dataclass

from uetproto.engine.contract import Buffer, Mode, Trim
from uetproto.errors import RemoteError
from uetproto.wire import uet_pds, uet_ses
from uetproto.wire.codec import codec_of
from uetproto.wire.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode

_M32 = 0xFFFFFFFF

SES_SIZE: dict[int, int] = {
    NextHdr.NONE: 0,
    NextHdr.REQUEST_SMALL: uet_ses.REQUEST_SMALL.size,
    NextHdr.REQUEST_MEDIUM: uet_ses.REQUEST_MEDIUM.size,
    NextHdr.REQUEST_STD: uet_ses.REQUEST_STD.size,
    NextHdr.RESPONSE: uet_ses.RESPONSE.size,
    NextHdr.RESPONSE_DATA: uet_ses.RESPONSE_DATA.size,
    NextHdr.RESPONSE_DATA_SMALL: uet_ses.RESPONSE_DATA_SMALL.size,
}
"""Bytes of the SES header that `next_hdr` announces (wire.md §2)."""

IN_REQUEST: frozenset[int] = frozenset({
    NextHdr.REQUEST_SMALL, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_STD,
    NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL,
})  # fmt: skip
"""What may follow a request: SES requests, or return data (pds.md §10)."""
IN_ACK: frozenset[int] = frozenset({NextHdr.NONE, NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL})


# PDS -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Request:
    """RUD or ROD request (UE 1.0.1 §3.5.10.2)."""

    mode: Mode
    next_hdr: int
    retx: int
    ar: int
    syn: int
    clear_psn: int
    psn: int
    spdcid: int
    dpdcid: int
    """Of the receiver; 0 in a SYN packet."""
    start_psn: int
    """SYN packet: psn − psn_offset; else 0."""
    size: int
    """Bytes of the PDS header: the SES header starts there."""


@dataclass(slots=True)
class Ack:
    """ACK, ACK_CC, ACK_CCX (UE 1.0.1 §3.5.10.4)."""

    type: int
    next_hdr: int
    marked: int
    retx: int
    req: int
    ack_psn: int
    """Acknowledged PSN; `cack_psn` in the answer to a probe."""
    probe_opaque: int | None
    cack_psn: int
    spdcid: int
    dpdcid: int
    mpr: int
    """Units of 128 PSNs; 0: keep what you have."""
    sack_base: int
    sack_bitmap: int
    size: int
    """Bytes of the PDS header: the SES response starts there."""


@dataclass(slots=True)
class Nack:
    """NACK, NACK_CCX (UE 1.0.1 §3.5.10.6)."""

    code: int
    rudi: int
    """nt = 1: `psn` is the pkt_id of a RUDI packet."""
    retx: int
    marked: int
    psn: int
    spdcid: int
    dpdcid: int
    payload: int


@dataclass(slots=True)
class Control:
    """Control packet (UE 1.0.1 §3.5.16)."""

    ctl_type: int
    isrod: int
    retx: int
    ar: int
    syn: int
    psn: int
    spdcid: int
    dpdcid: int
    start_psn: int
    payload: int


Message = Request | Ack | Nack | Control

_request = codec_of(uet_pds.RUD_REQ)
_request_syn = codec_of(uet_pds.RUD_REQ_SYN)
_ack = codec_of(uet_pds.ACK)
_ack_cc = codec_of(uet_pds.ACK_CC)
_nscc = codec_of(uet_pds.CC_STATE_NSCC)
_nack = codec_of(uet_pds.NACK)
_cp = codec_of(uet_pds.CP)
_cp_syn = codec_of(uet_pds.CP_SYN)

_PLAIN = _request.size
_WITH_CC = _PLAIN + uet_pds.REQ_CC_STATE.size
_ACK_SIZE: dict[int, int] = {
    PdsType.ACK: uet_pds.ACK.size,
    PdsType.ACK_CC: uet_pds.ACK_CC.size + uet_pds.CC_STATE_NSCC.size,
    PdsType.ACK_CCX: uet_pds.ACK_CCX.size + uet_pds.CCX_STATE.size,
}
_REQUEST_MODE: dict[int, tuple[Mode, int]] = {
    PdsType.RUD_REQ: (Mode.RUD, _PLAIN),
    PdsType.ROD_REQ: (Mode.ROD, _PLAIN),
    PdsType.RUD_CC_REQ: (Mode.RUD, _WITH_CC),
    PdsType.ROD_CC_REQ: (Mode.ROD, _WITH_CC),
}


def parse(data: Buffer, trimmed: Trim = Trim.NO) -> Message:
    """One packet, PDS header onward. Raises `RemoteError` for what cannot be decoded (pds.md §6.3 row 1).

    The SES header that `next_hdr` announces is there completely, unless the packet is trimmed (pds.md §14).
    """
    length = len(data)
    if length < 1:
        raise RemoteError("empty packet", 0)
    kind = data[0] >> 3
    found = _REQUEST_MODE.get(kind)
    if found is not None:
        mode, size = found
        if length < size:
            raise RemoteError("request cut short", 0)
        _, next_hdr, _, retx, ar, syn, _, clear, psn, spdcid, dpdcid = _request.unpack(data)
        if next_hdr not in IN_REQUEST:
            raise RemoteError(f"next_hdr {next_hdr} in a request", 0)
        if length < size + SES_SIZE[next_hdr] and not trimmed:
            raise RemoteError("SES header cut short", 0)
        start = 0
        if syn:
            start, dpdcid = (psn - _request_syn.unpack(data)[-1]) & _M32, 0
        return Request(mode, next_hdr, retx, ar, syn, (psn + clear) & _M32, psn, spdcid, dpdcid, start, size)
    if kind in _ACK_SIZE:
        return _parse_ack(data, kind, length)
    if kind in (PdsType.NACK, PdsType.NACK_CCX):
        if length < _nack.size + (uet_pds.NACK_CCX_STATE.size if kind == PdsType.NACK_CCX else 0):
            raise RemoteError("NACK cut short", 0)
        _, next_hdr, _, marked, retx, nt, _, code, _, psn, spdcid, dpdcid, payload = _nack.unpack(data)
        if next_hdr != NextHdr.NONE:
            raise RemoteError(f"next_hdr {next_hdr} in a NACK", 0)
        return Nack(code, nt, retx, marked, psn, spdcid, dpdcid, payload)
    if kind == PdsType.CP:
        if length < _cp.size:
            raise RemoteError("control packet cut short", 0)
        _, ctl, _, isrod, retx, ar, syn, _, _, psn, spdcid, dpdcid, payload = _cp.unpack(data)
        start = 0
        if syn:
            start, dpdcid = (psn - _cp_syn.unpack(data)[-2]) & _M32, 0
        return Control(ctl, isrod, retx, ar, syn, psn, spdcid, dpdcid, start, payload)
    raise RemoteError(f"type {kind}", 0)


def _parse_ack(data: Buffer, kind: int, length: int) -> Ack:
    size = _ACK_SIZE[kind]
    if length < size:
        raise RemoteError("ACK cut short", 0)
    if kind == PdsType.ACK:
        _, next_hdr, _, marked, retx, probe, req, _, offset, cack, spdcid, dpdcid = _ack.unpack(data)
        mpr = bitmap = 0
        base = cack
    else:  # ACK_CCX has the rows of ACK_CC
        (_, next_hdr, _, marked, retx, probe, req, _, offset, cack, spdcid, dpdcid,
         _, _, mpr, base_offset, bitmap) = _ack_cc.unpack(data)  # fmt: skip
        base = (cack + base_offset) & _M32
    if next_hdr not in IN_ACK:
        raise RemoteError(f"next_hdr {next_hdr} in an ACK", 0)
    if length < size + SES_SIZE[next_hdr]:
        raise RemoteError("SES response cut short", 0)
    opaque, ack_psn = (offset & 0xFFFF, cack) if probe else (None, (cack + offset) & _M32)
    return Ack(kind, next_hdr, marked, retx, req, ack_psn, opaque, cack, spdcid, dpdcid, mpr, base, bitmap, size)


def build_request(
    mode: int, next_hdr: int, retx: int, ar: int, clear_offset: int, psn: int, spdcid: int, dpdcid: int
) -> bytes:
    """A request on an established PDC; `clear_offset` is CLEAR_PSN − psn, signed."""
    return _request.pack(mode, next_hdr, 0, retx, ar, 0, 0, clear_offset, psn, spdcid, dpdcid)


def build_syn_request(
    mode: int, next_hdr: int, retx: int, ar: int, clear_offset: int, psn: int, spdcid: int, psn_offset: int
) -> bytes:
    """A request while the PDCID of the target is not known (pds.md §6.2); `psn_offset` is psn − Start_PSN, 0–4095."""
    return _request_syn.pack(mode, next_hdr, 0, retx, ar, 1, 0, clear_offset, psn, spdcid, 0, psn_offset)


def build_ack(
    next_hdr: int, marked: int, retx: int, req: int, ack_offset: int, cack: int, spdcid: int, dpdcid: int
) -> bytes:
    """A plain ACK; `ack_offset` is ACK_PSN − CACK_PSN, signed."""
    return _ack.pack(PdsType.ACK, next_hdr, 0, marked, retx, 0, req, 0, ack_offset, cack, spdcid, dpdcid)


def build_ack_cc(
    next_hdr: int, marked: int, retx: int, req: int, ack_offset: int, cack: int, spdcid: int, dpdcid: int,
    mpr: int, sack_offset: int, sack_bitmap: int,
) -> bytes:  # fmt: skip
    """An ACK_CC without congestion-control state (NSCC, all zero); `sack_offset` is base − CACK_PSN, signed."""
    return _ack_cc.pack(
        PdsType.ACK_CC, next_hdr, 0, marked, retx, 0, req, 0, ack_offset, cack, spdcid, dpdcid,
        uet_pds.CcType.NSCC, 0, mpr, sack_offset, sack_bitmap,
    ) + bytes(_nscc.size)  # fmt: skip


def build_nack(code: int, marked: int, retx: int, psn: int, spdcid: int, dpdcid: int, payload: int = 0) -> bytes:
    return _nack.pack(PdsType.NACK, NextHdr.NONE, 0, marked, retx, 0, 0, code, 0, psn, spdcid, dpdcid, payload)


def build_control(
    ctl_type: int, isrod: int, retx: int, ar: int, psn: int, spdcid: int, dpdcid: int, payload: int = 0
) -> bytes:
    return _cp.pack(PdsType.CP, ctl_type, 0, isrod, retx, ar, 0, 0, 0, psn, spdcid, dpdcid, payload)


def build_syn_control(
    ctl_type: int, isrod: int, retx: int, ar: int, psn: int, spdcid: int, psn_offset: int, payload: int = 0
) -> bytes:
    return _cp_syn.pack(PdsType.CP, ctl_type, 0, isrod, retx, ar, 1, 0, 0, psn, spdcid, 0, psn_offset, payload)


# SES -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SesRequest:
    """A SES request of any form (ses.md §3); a field that the form does not have is 0, `message_id` None."""

    next_hdr: int
    opcode: int
    version: int
    dc: int
    ie: int
    rel: int
    hd: int
    eom: int
    som: int
    message_id: int | None
    ri_generation: int
    job_id: int
    pid_on_fep: int
    resource_index: int
    buffer_offset: int
    initiator: int
    key: int
    """memory_key, match_bits or tokens, by opcode."""
    header_data: int
    payload_length: int | None
    """Explicit length of a packet with som = 0; None: implied."""
    message_offset: int
    request_length: int


@dataclass(slots=True)
class SesResponse:
    """The fields that every SES response has in common (ses.md §9)."""

    list: int
    opcode: int
    return_code: int
    message_id: int
    job_id: int
    modified_length: int


_std_som = codec_of(uet_ses.REQUEST_STD_SOM)
_std = codec_of(uet_ses.REQUEST_STD)
_medium = codec_of(uet_ses.REQUEST_MEDIUM)
_small = codec_of(uet_ses.REQUEST_SMALL)
_response = codec_of(uet_ses.RESPONSE)

OPTIMIZED_KEY = 1 << 62
"""Bit OPTIMIZED of a memory key: its lowest 12 bits are the index of the small header (ses.md §2.6)."""


def parse_ses_request(data: Buffer, at: int, next_hdr: int) -> SesRequest:
    """The SES request header at byte `at`, which `parse` found complete.

    Any opcode is read with the form `request_*`: all forms agree in size and in what is used before the opcode is
    judged (wire.md §0). Raises `RemoteError` when `next_hdr` is not a request.
    """
    if next_hdr == NextHdr.REQUEST_STD:
        if data[at + 1] & 1:
            (_, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, _, pid, _, index,
             offset, initiator, key, header_data, length) = _std_som.unpack(data, at)  # fmt: skip
            return SesRequest(
                next_hdr, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, pid, index,
                offset, initiator, key, header_data, None, 0, length,
            )  # fmt: skip
        (_, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, _, pid, _, index,
         offset, initiator, key, _, payload_length, message_offset, length) = _std.unpack(data, at)  # fmt: skip
        return SesRequest(
            next_hdr, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, pid, index,
            offset, initiator, key, 0, payload_length, message_offset, length,
        )  # fmt: skip
    if next_hdr == NextHdr.REQUEST_MEDIUM:
        (_, opcode, version, dc, ie, rel, hd, eom, som, _, length, generation, job, _, pid, _, index,
         shared, initiator, key) = _medium.unpack(data, at)  # fmt: skip
        offset, header_data = (0, shared) if hd else (shared, 0)
        return SesRequest(
            next_hdr, opcode, version, dc, ie, rel, hd, eom, som, None, generation, job, pid, index,
            offset, initiator, key, header_data, None, 0, length,
        )  # fmt: skip
    if next_hdr == NextHdr.REQUEST_SMALL:
        (_, opcode, version, dc, ie, rel, hd, eom, som, _, length, generation, job, _, pid, _, index,
         offset) = _small.unpack(data, at)  # fmt: skip
        return SesRequest(
            next_hdr, opcode, version, dc, ie, rel, hd, eom, som, None, generation, job, pid, index,
            offset, 0, OPTIMIZED_KEY | index, 0, None, 0, length,
        )  # fmt: skip
    raise RemoteError(f"next_hdr {next_hdr} is not a request", ReturnCode.OP_VIOLATION)


def parse_ses_response(data: Buffer, next_hdr: int) -> SesResponse:
    """The SES response at the start of `data`. Raises `RemoteError` for a short one, or another version."""
    if len(data) < SES_SIZE[NextHdr.RESPONSE]:
        raise RemoteError("SES response cut short", 0)
    which, opcode, version, code, message_id, _, job, length = _response.unpack(data)
    if version != 0:
        raise RemoteError(f"SES version {version}", ReturnCode.UNCOR)
    if next_hdr != NextHdr.RESPONSE:
        message_id, length = 0, 0  # other forms keep other fields there
    return SesResponse(which, opcode, code, message_id, job, length)


def build_write_som(
    dc: int, ie: int, rel: int, hd: int, eom: int, message_id: int, job_id: int, pid_on_fep: int,
    resource_index: int, buffer_offset: int, initiator: int, key: int, header_data: int, request_length: int,
) -> bytes:  # fmt: skip
    """First packet of a WRITE, standard header (ses.md §8.2)."""
    return _std_som.pack(
        0, Opcode.WRITE, 0, dc, ie, rel, hd, eom, 1, message_id, 0, job_id, 0, pid_on_fep, 0, resource_index,
        buffer_offset, initiator, key, header_data, request_length,
    )  # fmt: skip


def build_later(
    opcode: int, dc: int, ie: int, rel: int, hd: int, eom: int, message_id: int, job_id: int, pid_on_fep: int,
    resource_index: int, buffer_offset: int, initiator: int, key: int, payload_length: int, message_offset: int,
    request_length: int,
) -> bytes:  # fmt: skip
    """A later packet of a message, standard header."""
    return _std.pack(
        0, opcode, 0, dc, ie, rel, hd, eom, 0, message_id, 0, job_id, 0, pid_on_fep, 0, resource_index,
        buffer_offset, initiator, key, 0, payload_length, message_offset, request_length,
    )  # fmt: skip


def build_response(
    opcode: int, return_code: int, message_id: int, job_id: int, modified_length: int,
    which: int = ResponseList.EXPECTED, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """A SES response without data (ses.md §9.2)."""
    return _response.pack(which, opcode, 0, return_code, message_id, ri_generation, job_id, modified_length)


def build_made_up_response(message_id: int) -> bytes:
    """The default response that PDS makes when the real one is gone (pds.md §9.4): status unknown, lengths 0."""
    return build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.NULL, message_id, 0, 0)


def message_id_of(data: Buffer, at: int, next_hdr: int) -> int:
    """message_id of the SES request at byte `at`, 0 when its form has none."""
    return int.from_bytes(data[at + 2 : at + 4], "big") if next_hdr == NextHdr.REQUEST_STD else 0


def is_no_response(data: Buffer, next_hdr: int) -> bool:
    """True when the SES response says that the real one is still to come (ses.md §9.1)."""
    return next_hdr == NextHdr.RESPONSE and data[0] & 0x3F == ResponseOpcode.NO_RESPONSE


__all__ = [
    "Ack",
    "AckReq",
    "Control",
    "CtlType",
    "Message",
    "Nack",
    "NackCode",
    "NextHdr",
    "Request",
    "SesRequest",
    "SesResponse",
    "build_ack",
    "build_ack_cc",
    "build_control",
    "build_later",
    "build_made_up_response",
    "build_nack",
    "build_request",
    "build_response",
    "build_syn_control",
    "build_syn_request",
    "build_write_som",
    "is_no_response",
    "message_id_of",
    "parse",
    "parse_ses_request",
    "parse_ses_response",
]  # fmt: skip
