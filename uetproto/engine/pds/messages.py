# SPDX-License-Identifier: GPL-2.0-only
"""PDS headers are parsed from bytes to dataclasses, and packed to bytes.

`parse` raises `RemoteError` for illegal bytes; the packet is dropped then. `pack` does not check the fields; requests
and ACKs have no `pack`, as `source` and `destination` make their bytes without an object. Fields that are offsets on
the wire (CLEAR_PSN, ACK_PSN, SACK base) are whole PSNs here (UE 1.0.1 §3.5.11.4, pds.md §2.1). Reserved fields are sent
as zero and ignored on receipt.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from uetproto.engine.contract import Buffer, Mode, Trim
from uetproto.engine.pds.service import SES_SIZE
from uetproto.errors import RemoteError
from uetproto.wire.headers import uet_pds
from uetproto.wire.headers.uet_pds import NextHdr, PdsType
from uetproto.wire.tuples import (
    PdsAckCcHeader,
    PdsAckEpsnHeader,
    PdsAckHeader,
    PdsCpHeader,
    PdsCpSynHeader,
    PdsNackHeader,
    PdsReqCcStateHeader,
    PdsRudiReqHeader,
    PdsRudReqHeader,
    PdsRudReqSynHeader,
    PdsUudReqHeader,
)

_M32 = 0xFFFFFFFF

IN_REQUEST: frozenset[int] = frozenset({
    NextHdr.REQUEST_SMALL, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_STD,
    NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL,
})  # fmt: skip
"""Values of `next_hdr` that may follow a request: SES requests, or return data (pds.md §10)."""
REQUESTS: frozenset[int] = frozenset({NextHdr.REQUEST_SMALL, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_STD})
"""Values of `next_hdr` that may follow a RUDI or UUD request."""
IN_RUDI_RESPONSE: frozenset[int] = frozenset({
    NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL,
})  # fmt: skip
IN_ACK: frozenset[int] = frozenset({NextHdr.NONE, NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL})


# PDS -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Request:
    """This class holds a RUD or ROD request (UE 1.0.1 §3.5.10.2)."""

    mode: Mode
    next_hdr: int
    retx: int
    ar: int
    syn: int
    clear_psn: int
    psn: int
    spdcid: int
    dpdcid: int
    """PDCID of the receiver. It is 0 in a SYN packet."""
    start_psn: int
    """Start_PSN of the PDC, psn − psn_offset, in a SYN packet. It is 0 in any other packet."""
    size: int
    """Size of the PDS header in bytes, after which the SES header starts."""
    reserved: int = 0
    """Whether a SYN packet carries use_rsv_pdc."""
    ccc_id: int = 0
    credit_target: int | None = None
    """Fields of req_cc_state, in a request with congestion control state; the target is None in any other request."""

    @property
    def packed_size(self) -> int:
        return _PLAIN if self.credit_target is None else _WITH_CC

    @property
    def repeats(self) -> bool:
        return bool(self.retx)


@dataclass(slots=True)
class Ack:
    """This class holds an ACK, ACK_CC or ACK_CCX (UE 1.0.1 §3.5.10.4)."""

    type: int
    next_hdr: int
    marked: int
    retx: int
    req: int
    ack_psn: int
    """Acknowledged PSN. In the answer to a PROBE it is equal to `cack_psn`."""
    probe_opaque: int | None
    """Opaque value of the PROBE that the ACK answers, or None if the ACK answers no PROBE."""
    cack_psn: int
    spdcid: int
    dpdcid: int
    mpr: int
    """Window of the destination in units of 128 PSNs, or 0 if the window does not change."""
    sack_base: int
    sack_bitmap: int
    size: int
    """Size of the PDS header in bytes, after which the SES response starts."""
    epsn: int | None = None
    """Expected_PSN in the ACK of a CLOSE_CMD, a field later than UE 1.0.1 (pds.md §6.6), or None if it is absent."""
    cc_type: int = 0
    cc_state: Buffer = b""
    """Congestion control state of an ACK_CC, or the first 8 bytes of that of an ACK_CCX; empty in any other ACK (cms.md
    §1)."""

    repeats = False

    @property
    def packed_size(self) -> int:
        return _ACK_SIZE[self.type] if self.epsn is None else PdsAckEpsnHeader.size


@dataclass(slots=True)
class Nack:
    """This class holds a NACK or NACK_CCX (UE 1.0.1 §3.5.10.6)."""

    code: int
    rudi: int
    """Whether `psn` is the pkt_id of a RUDI packet (nt = 1)."""
    retx: int
    marked: int
    psn: int
    spdcid: int
    dpdcid: int
    payload: int

    repeats = False
    packed_size = PdsNackHeader.size

    def pack(self) -> bytes:
        return PdsNackHeader.pack(
            next_hdr=NextHdr.NONE, m=self.marked, retx=self.retx, nt=self.rudi, nack_code=self.code, vendor_code=0,
            nack_psn=self.psn, spdcid=self.spdcid, dpdcid=self.dpdcid, nack_payload=self.payload,
        )  # fmt: skip


@dataclass(slots=True)
class Control:
    """This class holds a control packet (UE 1.0.1 §3.5.16)."""

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
    reserved: int = 0
    """Whether a SYN packet carries use_rsv_pdc."""
    size: int = 16
    opaque: int = 0
    """Value that the sender of a PROBE chooses and that the ACK echoes. It is 0 in other control packets."""

    packed_size = PdsCpHeader.size

    @property
    def repeats(self) -> bool:
        return bool(self.retx)

    def pack(self) -> bytes:
        front = (self.ctl_type, self.isrod, self.retx, self.ar, self.opaque, self.psn, self.spdcid)
        if not self.syn:
            return PdsCpHeader.pack(*front, self.dpdcid, self.payload)
        info = USE_RSV_PDC if self.reserved else 0
        return PdsCpSynHeader.pack(*front, info, (self.psn - self.start_psn) & 0xFFF, self.payload)


@dataclass(slots=True)
class Rudi:
    """This class holds a RUDI request or response (UE 1.0.1 §3.5.10.8)."""

    response: bool
    next_hdr: int
    marked: int
    retx: int
    pkt_id: int
    size: int
    """Size of the PDS header in bytes, after which the SES header starts."""

    packed_size = PdsRudiReqHeader.size

    @property
    def repeats(self) -> bool:
        return bool(self.retx) and not self.response

    def pack(self) -> bytes:
        kind = PdsType.RUDI_RESP if self.response else PdsType.RUDI_REQ
        return PdsRudiReqHeader.pack(self.next_hdr, self.marked, self.retx, self.pkt_id, type=kind)


@dataclass(slots=True)
class Uud:
    """This class holds a UUD request (UE 1.0.1 §3.5.10.9)."""

    next_hdr: int
    size: int
    """Size of the PDS header in bytes, after which the SES header starts."""

    repeats = False
    packed_size = PdsUudReqHeader.size

    def pack(self) -> bytes:
        return PdsUudReqHeader.pack(self.next_hdr, flags=0)


Message = Request | Ack | Nack | Control | Rudi | Uud

USE_RSV_PDC = uet_pds.USE_RSV_PDC >> 12
"""Bit of use_rsv_pdc within pdc_info, a field of 4 bits (pds.md §1)."""

_ACK = PdsType.ACK  # looked up once: with every packet, Class.MEMBER would cost as much as a call
_PLAIN = PdsRudReqHeader.size
_WITH_CC = _PLAIN + uet_pds.REQ_CC_STATE.size
CC_STATE = uet_pds.CC_STATE_NSCC.size
"""Bytes of the congestion control state of an ACK_CC, with which that of an ACK_CCX begins."""
_ACK_SIZE: dict[int, int] = {
    PdsType.ACK: uet_pds.ACK.size,
    PdsType.ACK_CC: uet_pds.ACK_CC.size + CC_STATE,
    PdsType.ACK_CCX: uet_pds.ACK_CCX.size + uet_pds.CCX_STATE.size,
}
_REQUEST_MODE: dict[int, tuple[Mode, int]] = {
    PdsType.RUD_REQ: (Mode.RUD, _PLAIN),
    PdsType.ROD_REQ: (Mode.ROD, _PLAIN),
    PdsType.RUD_CC_REQ: (Mode.RUD, _WITH_CC),
    PdsType.ROD_CC_REQ: (Mode.ROD, _WITH_CC),
}


def parse(data: Buffer, trimmed: Trim = Trim.NO) -> Message:
    """Parse a packet that starts with its PDS header. Raises `RemoteError` if it cannot be decoded (pds.md §6.3 row 1).

    The caller may rely on a complete SES header, unless the packet is trimmed (pds.md §14).
    """
    length = len(data)
    if length < 1:
        raise cut_short("packet", length, 1)
    kind = data[0] >> 3
    found = _REQUEST_MODE.get(kind)
    if found is not None:
        mode, size = found
        if length < size:
            raise cut_short("request", length, size)
        _, next_hdr, _, retx, ar, syn, _, clear, psn, spdcid, dpdcid = PdsRudReqHeader.unpack(data)
        if next_hdr not in IN_REQUEST:
            raise _wrong_next_hdr("request", next_hdr, IN_REQUEST)
        if length < size + SES_SIZE[next_hdr] and not trimmed:
            raise cut_short("SES header", length - size, SES_SIZE[next_hdr])
        clear_psn = (psn + clear) & _M32
        ccc_id, target = (0, None) if size == _PLAIN else PdsReqCcStateHeader.unpack(data, _PLAIN)
        if not syn:
            return Request(mode, next_hdr, retx, ar, 0, clear_psn, psn, spdcid, dpdcid, 0, size, 0, ccc_id, target)
        if not spdcid:
            raise RemoteError(0, 0, name="spdcid of a SYN packet", legal="1 … 65535", id="malformed-packet")
        head = PdsRudReqSynHeader.read(data)
        start = (psn - head.psn_offset) & _M32
        reserved = _reserved(head.pdc_info)
        return Request(mode, next_hdr, retx, ar, 1, clear_psn, psn, spdcid, 0, start, size, reserved, ccc_id, target)
    if kind in _ACK_SIZE:
        return _parse_ack(data, kind, length, trimmed)
    if kind in (PdsType.NACK, PdsType.NACK_CCX):
        needed = PdsNackHeader.size + (uet_pds.NACK_CCX_STATE.size if kind == PdsType.NACK_CCX else 0)
        if length < needed:
            raise cut_short("NACK", length, needed)
        nack = PdsNackHeader.read(data)
        if nack.next_hdr != NextHdr.NONE:
            raise _wrong_next_hdr("NACK", nack.next_hdr, (NextHdr.NONE,))
        return Nack(
            nack.nack_code, nack.nt, nack.retx, nack.m, nack.nack_psn, nack.spdcid, nack.dpdcid, nack.nack_payload
        )
    if kind == PdsType.CP:
        if length < PdsCpHeader.size:
            raise cut_short("control packet", length, PdsCpHeader.size)
        cp = PdsCpHeader.read(data)
        dpdcid, start, reserved = cp.dpdcid, 0, 0
        if cp.syn:
            if not cp.spdcid:
                raise RemoteError(0, 0, name="spdcid of a SYN packet", legal="1 … 65535", id="malformed-packet")
            head_syn = PdsCpSynHeader.read(data)
            dpdcid, start, reserved = 0, (cp.psn - head_syn.psn_offset) & _M32, _reserved(head_syn.pdc_info)
        return Control(
            cp.ctl_type, cp.isrod, cp.retx, cp.ar, cp.syn, cp.psn, cp.spdcid, dpdcid, start, cp.ctl_payload, reserved,
            cp.size, cp.probe_opaque,
        )  # fmt: skip
    if kind in (PdsType.RUDI_REQ, PdsType.RUDI_RESP):
        return _parse_rudi(data, kind == PdsType.RUDI_RESP, length, trimmed)
    if kind == PdsType.UUD_REQ:
        next_hdr = PdsUudReqHeader.read(data).next_hdr if length >= PdsUudReqHeader.size else NextHdr.NONE
        if next_hdr not in REQUESTS:
            raise _wrong_next_hdr("UUD request", next_hdr, REQUESTS)
        if length < PdsUudReqHeader.size + SES_SIZE[next_hdr]:
            raise cut_short("UUD request", length, PdsUudReqHeader.size + SES_SIZE[next_hdr])
        return Uud(next_hdr, PdsUudReqHeader.size)
    raise RemoteError(kind, 0, name="type", legal=", ".join(str(int(one)) for one in PdsType), id="malformed-packet")


def cut_short(name: str, length: int, needed: int) -> RemoteError:
    """Return the error for a packet part called `name` that has `length` bytes but needs `needed` bytes.

    A packet with this error is dropped without an answer.
    """
    return RemoteError(
        f"cut short: {length} bytes", 0, name=name, legal=f"{needed} bytes and more", id="malformed-packet"
    )


def _wrong_next_hdr(where: str, next_hdr: int, legal: Iterable[int]) -> RemoteError:
    """Return the error for a next_hdr that is not legal in a packet; it is not answered."""
    return RemoteError(
        next_hdr, 0, name=f"next_hdr of a {where}", legal=", ".join(str(int(one)) for one in sorted(legal)),
        id="malformed-packet"
    )  # fmt: skip


def _reserved(info: int) -> int:
    """Return use_rsv_pdc of a SYN packet, 0 or 1."""
    return int(info & USE_RSV_PDC != 0)


def _parse_rudi(data: Buffer, response: bool, length: int, trimmed: Trim) -> Rudi:
    if length < PdsRudiReqHeader.size:
        raise cut_short("RUDI header", length, PdsRudiReqHeader.size)
    head = PdsRudiReqHeader.read(data)  # a response has the same layout
    next_hdr = head.next_hdr
    legal = IN_RUDI_RESPONSE if response else REQUESTS
    if next_hdr not in legal:
        raise _wrong_next_hdr(f"RUDI {'response' if response else 'request'}", next_hdr, legal)
    if length < head.size + SES_SIZE[next_hdr] and not trimmed:
        raise cut_short("SES header", length - head.size, SES_SIZE[next_hdr])
    return Rudi(response, next_hdr, head.m, head.retx, head.pkt_id, head.size)


def _parse_ack(data: Buffer, kind: int, length: int, trimmed: Trim) -> Ack:
    size = _ACK_SIZE[kind]
    if length < size:
        raise cut_short("ACK", length, size)
    expected = None
    if kind == _ACK:
        _, next_hdr, epsn, marked, retx, probe, req, _, offset, cack, spdcid, dpdcid = PdsAckHeader.unpack(data)
        mpr = bitmap = cc_type = 0
        base = cack
        if epsn and next_hdr == NextHdr.NONE and not probe:  # else the flag is reserved
            size = PdsAckEpsnHeader.size
            if length < size:
                raise cut_short("ACK", length, size)
            expected = PdsAckEpsnHeader.read(data).expected_psn
    else:  # ACK_CCX has the same layout as ACK_CC
        (_, next_hdr, _, marked, retx, probe, req, _, offset, cack, spdcid, dpdcid,
         cc_type, _, mpr, base_offset, bitmap) = PdsAckCcHeader.unpack(data)  # fmt: skip
        base = (cack + base_offset) & _M32
    if next_hdr not in IN_ACK:
        raise _wrong_next_hdr("ACK", next_hdr, IN_ACK)
    if length < size + SES_SIZE[next_hdr] and not trimmed:
        raise cut_short("SES response", length - size, SES_SIZE[next_hdr])
    opaque, ack_psn = (offset & 0xFFFF, cack) if probe else (None, (cack + offset) & _M32)
    state = data[PdsAckCcHeader.size : PdsAckCcHeader.size + CC_STATE] if kind != _ACK else b""
    return Ack(
        kind, next_hdr, marked, retx, req, ack_psn, opaque, cack, spdcid, dpdcid, mpr, base, bitmap, size, expected,
        cc_type, state,
    )  # fmt: skip
