# SPDX-License-Identifier: GPL-2.0-only
"""This module holds every header table and code of the packet delivery sublayer, PDS (UE 1.0.1 §3.5).

If a bit of a header changes the meaning of other bits, the header with this bit set is a form with a suffix: `.syn`
(PDC establishment), `.probe` (answer to a probe), `.epsn` (ACK of a close, in a later revision of the specification),
`.rudi` (a NACK for a RUDI packet).
"""

from enum import Enum, IntEnum
from typing import NamedTuple

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header


class PdsType(IntEnum):
    """This code is the type of a PDS header: the first 5 bits of its prologue (UE 1.0.1 §3.5.10)."""

    TSS = 1
    RUD_REQ = 2
    ROD_REQ = 3
    RUDI_REQ = 4
    RUDI_RESP = 5
    UUD_REQ = 6
    ACK = 7
    ACK_CC = 8
    ACK_CCX = 9
    NACK = 10
    CP = 11
    NACK_CCX = 12
    RUD_CC_REQ = 13
    ROD_CC_REQ = 14


class Mode(IntEnum):
    """This enumeration has the delivery modes. The value of a mode is the PDS type of its requests (UE 1.0.1
    §3.5.6)."""

    RUD = PdsType.RUD_REQ
    """A packet is delivered exactly once, in any order (reliable, unordered)."""
    ROD = PdsType.ROD_REQ
    """Packets are delivered exactly once, in the order of submission (reliable, ordered)."""
    RUDI = PdsType.RUDI_REQ
    """A packet is delivered at least once, without a PDC (reliable, unordered, for idempotent operations)."""
    UUD = PdsType.UUD_REQ
    """A packet is sent once, without a PDC, and is not answered (unreliable, unordered)."""


class NextHdr(IntEnum):
    """This code says which SES header follows a PDS header."""

    NONE = 0
    REQUEST_SMALL = 1
    REQUEST_MEDIUM = 2
    REQUEST_STD = 3
    RESPONSE = 4
    RESPONSE_DATA = 5
    RESPONSE_DATA_SMALL = 6


class CtlType(IntEnum):
    """This code is the type of a control packet (UE 1.0.1 §3.5.16)."""

    NOOP = 0
    ACK_REQ = 1
    CLEAR_CMD = 2
    CLEAR_REQ = 3
    CLOSE_CMD = 4
    CLOSE_REQ = 5
    PROBE = 6
    CREDIT = 7
    CREDIT_REQ = 8
    NEGOTIATION = 9


class CpSender(Enum):
    """This value says which end of a PDC may send a control packet."""

    EITHER = "either end"
    SOURCE = "the source of the PSNs"
    DESTINATION = "the destination of the PSNs"
    INITIATOR = "the initiator"
    TARGET = "the target"


class CpPsn(Enum):
    """This value says what the field `psn` of a control packet means."""

    CONSUMED = "the next one: the packet consumes it"
    SUBJECT = "the PSN that the packet asks about"
    LAST = "the last PSN sent"
    NONE = "0"


class CpPayload(Enum):
    """This value says what the field `ctl_payload` of a control packet holds."""

    NOTHING = "0"
    MESSAGE_ID = "a message_id, or 0"
    PSN = "a PSN"
    CREDIT = "a credit, 24 bits"
    FEATURES = "feature data"


class ControlProfile(NamedTuple):
    """This tuple describes a type of control packet: who sends it, what its fields hold, and what answers it."""

    sender: CpSender
    psn: CpPsn
    ar: int
    """Value of the flag `ar`: 1 if an ACK answers the packet."""
    payload: CpPayload
    opens: bool
    """Whether the packet can open a PDC when it carries syn."""
    label: str
    """Name under which `ctl_payload` is shown. It is empty if `ctl_payload` is not shown."""
    purpose: str
    answer: str
    section: str = "pds.md §13"
    words: tuple[str, ...] = ("PSN %d", "psn")
    """Printf format of a line that shows the packet, followed by the names of the fields that fill the format."""

    @property
    def payload_mask(self) -> int:
        """Return the bits of `ctl_payload` that have a meaning."""
        return 0xFFFFFF if self.payload is CpPayload.CREDIT else 0xFFFFFFFF


_C, _W, _N, _D = CtlType, CpSender, CpPsn, CpPayload

CONTROLS: dict[CtlType, ControlProfile] = {
    # type            sender          psn          ar payload        opens  label, purpose, answer, section, words
    _C.NOOP:        ControlProfile(_W.EITHER,      _N.CONSUMED, 1, _D.NOTHING,    True,  "",
        "keeps a PDC alive, or opens it early", "an ACK"),
    _C.ACK_REQ:     ControlProfile(_W.SOURCE,      _N.SUBJECT,  1, _D.MESSAGE_ID, False, "message id",
        "asks for the answer to a PSN that was sent before", "an ACK with the response to that PSN, or a NACK"),
    _C.CLEAR_CMD:   ControlProfile(_W.SOURCE,      _N.NONE,     0, _D.PSN,        False, "CLEAR_PSN",
        "frees the guaranteed responses up to CLEAR_PSN", "nothing", "pds.md §9.3", ("%d", "ctl_payload")),
    _C.CLEAR_REQ:   ControlProfile(_W.DESTINATION, _N.NONE,     0, _D.PSN,        False, "PSN to clear",
        "asks for a clear", "a CLEAR_PSN in a request or in CLEAR_CMD", "pds.md §9.3", ("%d", "ctl_payload")),
    _C.CLOSE_CMD:   ControlProfile(_W.INITIATOR,   _N.CONSUMED, 1, _D.NOTHING,    False, "",
        "closes the PDC", "an ACK once the target has drained", "pds.md §6.5"),
    _C.CLOSE_REQ:   ControlProfile(_W.TARGET,      _N.CONSUMED, 1, _D.NOTHING,    False, "",
        "asks the initiator to close the PDC", "an ACK, and later CLOSE_CMD", "pds.md §6.4"),
    _C.PROBE:       ControlProfile(_W.SOURCE,      _N.LAST,     1, _D.PSN,        False, "SACK base wanted",
        "asks what has arrived", "an ACK that echoes probe_opaque",
        words=("0x%04x PSN %d SACK from %d", "probe_opaque", "psn", "ctl_payload")),
    _C.CREDIT:      ControlProfile(_W.DESTINATION, _N.NONE,     0, _D.CREDIT,     False, "credit",
        "grants credit", "nothing", words=("%d", "ctl_payload")),
    _C.CREDIT_REQ:  ControlProfile(_W.SOURCE,      _N.NONE,     0, _D.CREDIT,     False, "credit target",
        "asks for a credit", "CREDIT", words=("target %d", "ctl_payload")),
    _C.NEGOTIATION: ControlProfile(_W.EITHER,      _N.CONSUMED, 1, _D.FEATURES,   True,  "",
        "tells the features of its sender", "an ACK"),
}  # fmt: skip
"""Properties of each control packet type (UE 1.0.1 §3.5.16; pds.md §13). The engine, the audit, the fuzzer and the
dissectors read this table, and STATES.md is made from it. `engine/pds/states.py` says what the engine does with each
type."""


class AckReq(IntEnum):
    """This code is the field `req` of an ACK. It says what the sender of the ACK asks the receiver of the ACK to do."""

    NONE = 0
    CLEAR = 1
    CLOSE = 2


class CcType(IntEnum):
    NSCC = 0
    CREDIT = 1


class NackCode(IntEnum):
    """This code says why a packet was refused (UE 1.0.1 §3.5.12.7, Tables 3-58 and 3-59)."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    TRIMMED_ACK = 0x03
    NO_PDC_AVAIL = 0x04
    NO_CCC_AVAIL = 0x05
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_GTD_DEL_AVAIL = 0x08
    NO_SES_MSG_AVAIL = 0x09
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    ROD_OOO = 0x0D
    INV_DPDCID = 0x0E
    PDC_HDR_MISMATCH = 0x0F
    CLOSING = 0x10
    CLOSING_IN_ERR = 0x11
    PKT_NOT_RCVD = 0x12
    GTD_RESP_UNAVAIL = 0x13
    ACK_WITH_DATA = 0x14
    INVALID_SYN = 0x15
    PDC_MODE_MISMATCH = 0x16
    NEW_START_PSN = 0x17
    RCVD_SES_PROCG = 0x18
    UNEXP_EVENT = 0x19
    RCVR_INFER_LOSS = 0x1A
    EXP_NACK_NORMAL = 0xFD
    EXP_NACK_ERR = 0xFE
    EXP_NACK_FATAL = 0xFF


def _type(value: PdsType) -> F:
    return F(5, "type", PdsType, only=(value,))


_NEXT_HDR = F( 4, "next_hdr",     NextHdr,    doc="the SES header that follows")  # fmt: skip

# 3.1 Requests --------------------------------------------------------------------------------------------------------


def _request_head(kind: PdsType, syn: int) -> tuple[F, ...]:
    return (
        _type(kind),
        _NEXT_HDR,
        F( 2, "rsvd"),
        F( 1, "retx",                         doc="retransmission"),
        F( 1, "ar",                           doc="ACK requested"),
        F( 1, "syn",              only=(syn,), doc="PDC establishment"),
        F( 2, "rsvd2"),
        F(16, "clear_psn_offset", signed=True, doc="CLEAR_PSN = psn + this"),
        F(32, "psn",                          doc="packet sequence number"),
        F(16, "spdcid",                       doc="PDCID of the sender"),
    )  # fmt: skip


_TO_KNOWN_PDC = (F(16, "dpdcid", doc="PDCID of the receiver"),)
USE_RSV_PDC = 0x8000
"""Bit use_rsv_pdc in the 16-bit word of a SYN packet that holds pdc_info and psn_offset. This project chose the place
of the bit (wire.md §3)."""

_TO_NEW_PDC = (
    F( 4, "pdc_info",                         doc="highest bit: use_rsv_pdc"),
    F(12, "psn_offset",                       doc="Start_PSN = psn - this"),
)  # fmt: skip


def _request(name: str, title: str, kind: PdsType) -> tuple[Header, Header]:
    spec = "UE 1.0.1 §3.5.10.2"
    return (
        Header(f"pds.{name}", title, spec, 12, _request_head(kind, 0) + _TO_KNOWN_PDC),
        Header(f"pds.{name}.syn", f"{title}, PDC establishment", spec, 12, _request_head(kind, 1) + _TO_NEW_PDC),
    )


RUD_REQ, RUD_REQ_SYN = _request("rud_req", "RUD request", PdsType.RUD_REQ)
ROD_REQ, ROD_REQ_SYN = _request("rod_req", "ROD request", PdsType.ROD_REQ)
RUD_CC_REQ, RUD_CC_REQ_SYN = _request("rud_cc_req", "RUD request with CC state", PdsType.RUD_CC_REQ)
ROD_CC_REQ, ROD_CC_REQ_SYN = _request("rod_cc_req", "ROD request with CC state", PdsType.ROD_CC_REQ)

REQ_CC_STATE = Header("pds.req_cc_state", "CC state of a request", "UE 1.0.1 §3.5.10.3", 4, (
    F( 8, "ccc_id",                           doc="congestion control context"),
    F(24, "credit_target",                    doc="RCCC target, units of 256 bytes"),
))  # fmt: skip

# 3.6, 3.7 Without a PDC ----------------------------------------------------------------------------------------------


def _rudi(name: str, title: str, kind: PdsType) -> Header:
    return Header(f"pds.{name}", title, "UE 1.0.1 §3.5.10.8", 8, (
        _type(kind),
        _NEXT_HDR,
        F( 1, "rsvd"),
        F( 1, "m",                            doc="responses: the request was ECN-marked"),
        F( 1, "retx",                         doc="retransmission"),
        F( 4, "rsvd2"),
        F(16, "rsvd3"),
        F(32, "pkt_id"),
    ))  # fmt: skip


RUDI_REQ = _rudi("rudi_req", "RUDI request", PdsType.RUDI_REQ)
RUDI_RESP = _rudi("rudi_resp", "RUDI response", PdsType.RUDI_RESP)

UUD_REQ = Header("pds.uud_req", "UUD request", "UE 1.0.1 §3.5.10.9", 4, (
    _type(PdsType.UUD_REQ),
    _NEXT_HDR,
    F( 7, "flags"),
    F(16, "rsvd"),
))  # fmt: skip

# 3.2, 3.3 Acknowledgements -------------------------------------------------------------------------------------------

_ACK_PSN_OFFSET = F(16, "ack_psn_offset", signed=True, doc="ACK_PSN = cack_psn + this")
_PROBE_OPAQUE = F(16, "probe_opaque", doc="echoed from the probe")


def _ack_rows(kind: PdsType, probe: int) -> tuple[F, ...]:
    return (
        _type(kind),
        _NEXT_HDR,
        F( 1, "rsvd"),
        F( 1, "m",                            doc="the acknowledged packet was ECN-marked"),
        F( 1, "retx",                         doc="it was a retransmission"),
        F( 1, "p",                only=(probe,), doc="answers a probe"),
        F( 2, "req",              AckReq,     doc="asks for CLEAR or CLOSE"),
        F( 1, "rsvd2"),
        _PROBE_OPAQUE if probe else _ACK_PSN_OFFSET,
        F(32, "cack_psn",                     doc="cumulative ACK"),
        F(16, "spdcid",                       doc="PDCID of the sender"),
        F(16, "dpdcid",                       doc="PDCID of the receiver"),
    )  # fmt: skip


def _cc_rows(cc_type: F) -> tuple[F, ...]:
    return (
        cc_type,
        F( 4, "cc_flags"),
        F( 8, "mpr",                          doc="PSN range the receiver accepts, units of 128"),
        F(16, "sack_psn_offset",  signed=True, doc="bitmap base = cack_psn + this"),
        F(64, "sack_bitmap",                  doc="bit i (0 = lowest): base + i was received"),
    )  # fmt: skip


def _ack(name: str, title: str, kind: PdsType, size: int, more: tuple[F, ...] = ()) -> tuple[Header, Header]:
    spec = "UE 1.0.1 §3.5.10.4"
    return (
        Header(f"pds.{name}", title, spec, size, _ack_rows(kind, 0) + more),
        Header(f"pds.{name}.probe", f"{title}, answer to a probe", spec, size, _ack_rows(kind, 1) + more),
    )


ACK, ACK_PROBE = _ack("ack", "ACK", PdsType.ACK, 12)
ACK_CC, ACK_CC_PROBE = _ack(
    "ack_cc", "ACK with congestion control", PdsType.ACK_CC, 24, _cc_rows(F(4, "cc_type", CcType)))
ACK_CCX, ACK_CCX_PROBE = _ack(
    "ack_ccx", "ACK with extended congestion control", PdsType.ACK_CCX, 24, _cc_rows(F(4, "ccx_type")))

# UE 1.0.1 reserves the flag, 1.0.3 calls it epsn (wire.md §3.2, tss.md §11). It is set only in the ACK of a close,
# which carries no SES response; in an ACK with a SES response the bit is still reserved.
ACK_EPSN = Header("pds.ack.epsn", "ACK of a close, with Expected_PSN", "UE 1.0.3 §3.5.10.4", 16, (
    _type(PdsType.ACK),
    F( 4, "next_hdr",         NextHdr, only=(NextHdr.NONE,), doc="no SES header follows"),
    F( 1, "epsn",             only=(1,), doc="the expected PSN follows; reserved in UE 1.0.1"),
    F( 1, "m",                            doc="the acknowledged packet was ECN-marked"),
    F( 1, "retx",                         doc="it was a retransmission"),
    F( 1, "p",                only=(0,),  doc="answers a probe"),
    F( 2, "req",              AckReq,     doc="asks for CLEAR or CLOSE"),
    F( 1, "rsvd"),
    _ACK_PSN_OFFSET,
    F(32, "cack_psn",                     doc="cumulative ACK"),
    F(16, "spdcid",                       doc="PDCID of the sender"),
    F(16, "dpdcid",                       doc="PDCID of the receiver"),
    F(32, "expected_psn",                 doc="lowest Start_PSN of the next PDC"),
))  # fmt: skip

CC_STATE_NSCC = Header("pds.cc_state.nscc", "CC state of an ACK, NSCC", "UE 1.0.1 §3.6.9", 8, (
    F(16, "service_time",                     doc="receive to ACK, units of 128 ns"),
    F( 1, "restore_cwnd",                     doc="restore the saved window"),
    F( 7, "rcv_cwnd_pend",                    doc="window penalty, 1/128"),
    F(24, "rcvd_bytes",                       doc="received on this PDC, units of 256 bytes"),
    F(16, "ooo_count",                        doc="packets held out of order"),
))  # fmt: skip

CC_STATE_CREDIT = Header("pds.cc_state.credit", "CC state of an ACK, RCCC", "UE 1.0.1 §3.6.9", 8, (
    F(24, "credit",                           doc="cumulative grant, units of 256 bytes"),
    F( 8, "rsvd"),
    F(16, "rsvd2"),
    F(16, "ooo_count",                        doc="packets held out of order"),
))  # fmt: skip

CC_STATE_OTHER = Header("pds.cc_state.other", "CC state of an ACK, any other type", "UE 1.0.1 §3.6.9", 8, (
    F(64, "ack_cc_state"),
))  # fmt: skip

# xdp2 has 64 bits for this state; the table has 128 like the reference provider and Wireshark (wire.md §3.3).
CCX_STATE = Header("pds.ccx_state", "Extended CC state of an ACK", "UE 1.0.1 §3.5.10.5", 16, (
    F(128, "ack_ccx_state"),
))  # fmt: skip

# 3.4 Negative acknowledgements ---------------------------------------------------------------------------------------


def _nack(name: str, title: str, kind: PdsType) -> tuple[Header, Header]:
    def rows(nt: int, subject: F) -> tuple[F, ...]:
        return (
            _type(kind),
            _NEXT_HDR,
            F( 1, "rsvd"),
            F( 1, "m",                        doc="the packet was ECN-marked"),
            F( 1, "retx",                     doc="it was a retransmission"),
            F( 1, "nt",           only=(nt,), doc="0: RUD or ROD, 1: RUDI"),
            F( 3, "rsvd2"),
            F( 8, "nack_code",    NackCode),
            F( 8, "vendor_code"),
            subject,
            F(16, "spdcid",                   doc="PDCID of the sender, 0 when unknown"),
            F(16, "dpdcid",                   doc="PDCID of the receiver"),
            F(32, "nack_payload",             doc="by code: new start PSN, expected PSN"),
        )  # fmt: skip

    spec = "UE 1.0.1 §3.5.10.6"
    return (
        Header(f"pds.{name}", title, spec, 16, rows(0, F(32, "nack_psn", doc="PSN of the packet refused"))),
        Header(f"pds.{name}.rudi", f"{title} for RUDI", spec, 16, rows(1, F(32, "nack_pkt_id"))),
    )


NACK, NACK_RUDI = _nack("nack", "NACK", PdsType.NACK)
NACK_CCX, NACK_CCX_RUDI = _nack("nack_ccx", "NACK with extended congestion control", PdsType.NACK_CCX)

# xdp2 has 4 + 4 + 56 bits; the table has 16 bytes like the reference provider and Wireshark (wire.md §3.4).
NACK_CCX_STATE = Header("pds.nack_ccx_state", "Extended CC state of a NACK", "UE 1.0.1 §3.5.10.6", 16, (
    F( 4, "nccx_type"),
    F(60, "nack_ccx_state1"),
    F(64, "nack_ccx_state2"),
))  # fmt: skip

# 3.5 Control packet --------------------------------------------------------------------------------------------------


def _cp(name: str, title: str, syn: int, last: tuple[F, ...]) -> Header:
    return Header(name, title, "UE 1.0.1 §3.5.16", 16, (
        _type(PdsType.CP),
        F( 4, "ctl_type",         CtlType),
        F( 1, "rsvd"),
        F( 1, "isrod",                        doc="the PDC is ROD"),
        F( 1, "retx",                         doc="retransmission"),
        F( 1, "ar",                           doc="ACK requested"),
        F( 1, "syn",              only=(syn,), doc="PDC establishment"),
        F( 2, "rsvd2"),
        F(16, "probe_opaque",                 doc="PROBE only"),
        F(32, "psn"),
        F(16, "spdcid",                       doc="PDCID of the sender"),
    ) + last + (
        F(32, "ctl_payload",                  doc="by type: CLEAR_PSN, SACK base, credit, …"),
    ))  # fmt: skip


CP = _cp("pds.cp", "Control packet", 0, _TO_KNOWN_PDC)
CP_SYN = _cp("pds.cp.syn", "Control packet, PDC establishment", 1, _TO_NEW_PDC)

REQUESTS = (
    RUD_REQ, RUD_REQ_SYN, ROD_REQ, ROD_REQ_SYN, RUD_CC_REQ, RUD_CC_REQ_SYN, ROD_CC_REQ, ROD_CC_REQ_SYN,
)  # fmt: skip
CC_REQUESTS = (RUD_CC_REQ, RUD_CC_REQ_SYN, ROD_CC_REQ, ROD_CC_REQ_SYN)
ACKS = (ACK_EPSN, ACK, ACK_PROBE, ACK_CC, ACK_CC_PROBE, ACK_CCX, ACK_CCX_PROBE)
NACKS = (NACK, NACK_RUDI, NACK_CCX, NACK_CCX_RUDI)
WITH_SES = (*REQUESTS, RUDI_REQ, RUDI_RESP, UUD_REQ, *ACKS)
FIRST = (*WITH_SES, *NACKS, CP, CP_SYN)  # headers that a packet can begin with, told apart by `type`, `syn`, `p`, `nt`

_WITH_REQUEST = frozenset({NextHdr.REQUEST_SMALL, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_STD})
_WITH_DATA = frozenset({NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL})
LEGAL_NEXT_HDR: dict[int, frozenset[NextHdr]] = {
    PdsType.RUD_REQ:    _WITH_REQUEST | _WITH_DATA,
    PdsType.ROD_REQ:    _WITH_REQUEST | _WITH_DATA,
    PdsType.RUD_CC_REQ: _WITH_REQUEST | _WITH_DATA,
    PdsType.ROD_CC_REQ: _WITH_REQUEST | _WITH_DATA,
    PdsType.RUDI_REQ:   _WITH_REQUEST,
    PdsType.UUD_REQ:    _WITH_REQUEST,
    PdsType.RUDI_RESP:  _WITH_DATA | {NextHdr.RESPONSE},
    PdsType.ACK:        _WITH_DATA | {NextHdr.NONE, NextHdr.RESPONSE},
    PdsType.ACK_CC:     _WITH_DATA | {NextHdr.NONE, NextHdr.RESPONSE},
    PdsType.ACK_CCX:    _WITH_DATA | {NextHdr.NONE, NextHdr.RESPONSE},
    PdsType.NACK:       frozenset({NextHdr.NONE}),
    PdsType.NACK_CCX:   frozenset({NextHdr.NONE}),
}  # fmt: skip
"""SES headers that may follow a PDS header of each type (pds.md §3, §10)."""

HEADERS = (
    *REQUESTS, REQ_CC_STATE, RUDI_REQ, RUDI_RESP, UUD_REQ,
    *ACKS, CC_STATE_NSCC, CC_STATE_CREDIT, CC_STATE_OTHER, CCX_STATE,
    *NACKS, NACK_CCX_STATE, CP, CP_SYN,
)  # fmt: skip
