# SPDX-License-Identifier: GPL-2.0-only
"""This module builds headers of packet delivery that a test sends itself, from the values of their fields (pds.md
§1)."""

from uetproto.engine.pds.messages import USE_RSV_PDC as _USE_RSV_PDC
from uetproto.wire.headers import uet_pds
from uetproto.wire.headers.uet_pds import AckReq, NextHdr, PdsType
from uetproto.wire.tuples import (
    PdsAckCcHeader,
    PdsAckEpsnHeader,
    PdsAckHeader,
    PdsCpHeader,
    PdsCpSynHeader,
    PdsNackHeader,
    PdsRudiReqHeader,
    PdsRudReqHeader,
    PdsRudReqSynHeader,
    PdsUudReqHeader,
)

_NSCC = bytes(uet_pds.CC_STATE_NSCC.size)
_CCX = bytes(uet_pds.CCX_STATE.size)


def build_request(
    mode: int, next_hdr: int, retx: int, ar: int, clear_offset: int, psn: int, spdcid: int, dpdcid: int
) -> bytes:
    """Build a request on an established PDC; `clear_offset` is CLEAR_PSN − psn, signed."""
    return PdsRudReqHeader.pack(next_hdr, retx, ar, clear_offset, psn, spdcid, dpdcid, type=mode)


def build_syn_request(
    mode: int, next_hdr: int, retx: int, ar: int, clear_offset: int, psn: int, spdcid: int, psn_offset: int,
    reserved: int = 0,
) -> bytes:  # fmt: skip
    """Build a request with syn (pds.md §6.2); `psn_offset` is psn − Start_PSN, 0–4095."""
    info = _USE_RSV_PDC if reserved else 0
    return PdsRudReqSynHeader.pack(
        type=mode, next_hdr=next_hdr, retx=retx, ar=ar, clear_psn_offset=clear_offset, psn=psn, spdcid=spdcid,
        pdc_info=info, psn_offset=psn_offset,
    )  # fmt: skip


def build_ack(
    next_hdr: int, marked: int, retx: int, req: int, ack_offset: int, cack: int, spdcid: int, dpdcid: int,
    probe: int = 0,
) -> bytes:  # fmt: skip
    """Build a plain ACK; `ack_offset` is ACK_PSN − CACK_PSN, signed; with `probe` the opaque of a PROBE."""
    return PdsAckHeader.pack(
        next_hdr, marked, retx, req, ack_offset, cack, spdcid, dpdcid, p=probe
    )  # fmt: skip


def build_ack_epsn(
    marked: int, retx: int, ack_offset: int, cack: int, spdcid: int, dpdcid: int, expected: int
) -> bytes:  # fmt: skip
    """Build the ACK of a close that carries the PSN expected next (pds.md §6.6)."""
    return PdsAckEpsnHeader.pack(
        m=marked, retx=retx, req=AckReq.NONE, ack_psn_offset=ack_offset, cack_psn=cack, spdcid=spdcid, dpdcid=dpdcid,
        expected_psn=expected,
    )  # fmt: skip


def build_ack_cc(
    next_hdr: int, marked: int, retx: int, req: int, ack_offset: int, cack: int, spdcid: int, dpdcid: int,
    mpr: int, sack_offset: int, sack_bitmap: int, probe: int = 0, ccx: bool = False,
) -> bytes:  # fmt: skip
    """Build an ACK_CC with a zero NSCC state, or an ACK_CCX; `sack_offset` is base − CACK_PSN."""
    kind, cc_type, state = (PdsType.ACK_CCX, 0, _CCX) if ccx else (PdsType.ACK_CC, uet_pds.CcType.NSCC, _NSCC)
    return PdsAckCcHeader.pack(
        next_hdr, marked, retx, req, ack_offset, cack, spdcid, dpdcid, cc_type, 0, mpr, sack_offset, sack_bitmap,
        type=kind, p=probe,
    ) + state  # fmt: skip


def build_nack(
    code: int, marked: int, retx: int, psn: int, spdcid: int, dpdcid: int, payload: int = 0, rudi: int = 0
) -> bytes:
    """Build a NACK; with `rudi` the subject is a pkt_id and both PDCIDs are 0."""
    return PdsNackHeader.pack(
        next_hdr=NextHdr.NONE, m=marked, retx=retx, nt=rudi, nack_code=code, vendor_code=0, nack_psn=psn, spdcid=spdcid,
        dpdcid=dpdcid, nack_payload=payload,
    )  # fmt: skip


def build_rudi(response: bool, next_hdr: int, marked: int, retx: int, pkt_id: int) -> bytes:
    """Build a RUDI request or response (pds.md §15)."""
    kind = PdsType.RUDI_RESP if response else PdsType.RUDI_REQ
    return PdsRudiReqHeader.pack(type=kind, next_hdr=next_hdr, m=marked, retx=retx, pkt_id=pkt_id)


def build_uud(next_hdr: int) -> bytes:
    """Build a UUD request (pds.md §15)."""
    return PdsUudReqHeader.pack(next_hdr=next_hdr, flags=0)


def build_control(
    ctl_type: int, isrod: int, retx: int, ar: int, psn: int, spdcid: int, dpdcid: int, payload: int = 0,
    opaque: int = 0,
) -> bytes:  # fmt: skip
    return PdsCpHeader.pack(
        ctl_type=ctl_type, isrod=isrod, retx=retx, ar=ar, probe_opaque=opaque, psn=psn, spdcid=spdcid, dpdcid=dpdcid,
        ctl_payload=payload,
    )  # fmt: skip


def build_syn_control(
    ctl_type: int, isrod: int, retx: int, ar: int, psn: int, spdcid: int, psn_offset: int, payload: int = 0,
    reserved: int = 0,
) -> bytes:  # fmt: skip
    info = _USE_RSV_PDC if reserved else 0
    return PdsCpSynHeader.pack(
        ctl_type=ctl_type, isrod=isrod, retx=retx, ar=ar, probe_opaque=0, psn=psn, spdcid=spdcid, pdc_info=info,
        psn_offset=psn_offset, ctl_payload=payload,
    )  # fmt: skip
