"""Kinds of damage to packet delivery: at least one for each invariant of pds.md §18 that a capture can show."""

from tests.audit.kinds.kind import (
    Kind,
    answer,
    at,
    at_other,
    both,
    changed_time,
    copies,
    copy,
    drop,
    flip,
    insert,
    layer,
    payload,
    plus,
    put,
    put_on,
)  # fmt: skip
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode
from uetproto.wire.packet import Layer

_FAR = 1 << 20
_WRITE = at("ses.send_std", 9, som=0, eom=0)
"""A packet in the middle of a long message, and of its PDC."""
_READ_DATA = at("ses.response_data", 1)
_CLOSE = at("pds.cp", ctl_type=CtlType.CLOSE_CMD)
_IDS = {"spdcid": 7, "dpdcid": 3}
"""The PDCIDs of ladders, as the initiator sends them."""
_BACK = {"spdcid": 3, "dpdcid": 7}


def _cp(kind: CtlType, **values: int) -> Layer:
    return layer("pds.cp", ctl_type=kind, **values)


def _ack(cack: int, offset: int = 0, **values: int) -> Layer:
    return layer("pds.ack", cack_psn=cack, ack_psn_offset=offset, **values)


def _nack(code: NackCode, psn: int, payload: int = 0, **values: int) -> Layer:
    return layer("pds.nack", nack_code=code, nack_psn=psn, nack_payload=payload, **values)


NUMBERS = [
    Kind("a PSN jumps by 2^20, and all behind it", "pds 20", "long-rud", _WRITE, put_on("pds.rud_req",
         psn=plus(_FAR)), "PDS-PSN-JUMP"),
    Kind("likewise on ROD", "pds 20", "long-rod", _WRITE, put_on("pds.rod_req", psn=plus(_FAR)), "PDS-PSN-JUMP"),
    Kind("one PSN jumps by 2^20", "pds 20", "long-rud", _WRITE, put("pds", psn=plus(_FAR)), "PDS-PSN-JUMP"),
    Kind("a PSN of a target jumps by 2^20", "pds 20", "ses-read", _READ_DATA, put("pds", psn=plus(_FAR)),
         "PDS-PSN-JUMP"),
    Kind("CLOSE_CMD leaves a PSN out", "pds 20", "gradient", _CLOSE, both(at_other(at("pds.ack", 2), put("pds",
         cack_psn=plus(1))), put("pds", psn=plus(1))), "PDS-FIRST-CONSECUTIVE"),
    Kind("a PSN has two contents", "pds 20", "ladder-L18", at("pds.rod_req", 4),
         payload(lambda data: data[:-1] + b"!"), "PDS-PSN-TWO-CONTENTS"),
    Kind("a packet has the PSN of the one before", "pds 20", "long-rud", _WRITE, put("pds", psn=plus(-1)),
         "PDS-PSN-TWO-CONTENTS", {"SES-OFFSET-ORDER": "its offset is not that of this PSN"}),
    Kind("CLOSE_CMD has the PSN of a request", "pds 20", "gradient", _CLOSE, put("pds", psn=plus(-1)),
         "PDS-PSN-TWO-CONTENTS"),
    Kind("a retransmission without retx", "pds 24", "ladder-L09", at("pds.rud_req", 1), put("pds", retx=0, ar=0),
         "PDS-RETX-MISSING"),
    Kind("a retransmission of ROD without retx", "pds 24", "ladder-L18", at("pds.rod_req", 5), put("pds", retx=0),
         "PDS-RETX-MISSING", {"PDS-CLEAR-FALLS": "as a first transmission it clears more than its neighbours"}),
    Kind("an ACK invents retx", "pds 24", "gradient", at("pds.ack", 0), put("pds", retx=1), "PDS-ACK-RETX"),
    Kind("a packet of the renumbered PDC has another content", "pds 24", "ladder-L14", at("pds.rud_req.syn", 3),
         payload(lambda data: b"!" + data[1:]), "PDS-RENUMBERED", certain=True),
    Kind("a packet is sent twelve times", "pds 43", "ladder-L10", at("pds.rud_req", 1), copies(10), "PDS-COPIES"),
    Kind("the second retransmission comes too early", "pds 42", "ladder-L23", at("pds.rud_req", 4),
         changed_time(at("pds.rud_req", 2), 500_000), "PDS-RETX-BACKOFF"),
    Kind("more packets than the window has room for", "pds 21", "ladder-L04", at("pds.rud_req", 4), put("pds",
         clear_psn_offset=-2000), "PDS-WINDOW", {"PDS-CLEAR-FALLS": "it is below the CLEAR_PSN of the packet before"}),
]  # fmt: skip

IDS = [
    Kind("dpdcid is another in one packet", "pds 27", "long-rud", _WRITE, put("pds", dpdcid=plus(1, 16)),
         "PDS-DPDCID"),
    Kind("dpdcid is another in one bit", "pds 27", "long-rod", _WRITE, put("pds", dpdcid=flip(9)), "PDS-DPDCID"),
    Kind("dpdcid is that of the other PDC", "pds 27", "long-rud", at("pds.rud_req", 60, syn=0), put("pds",
         dpdcid=lambda value: 3 - value), "PDS-DPDCID"),
    Kind("dpdcid of read data is another", "pds 27", "ses-read", _READ_DATA, put("pds", dpdcid=9), "PDS-DPDCID"),
    Kind("dpdcid of a retransmission is another", "pds 27", "ladder-L18", at("pds.rod_req", 4), put("pds", dpdcid=9),
         "PDS-DPDCID"),
    Kind("dpdcid of CLOSE_CMD is another", "pds 27", "ladder-L26", _CLOSE, put("pds", dpdcid=9), "PDS-DPDCID"),
    Kind("dpdcid of an ACK is another", "pds 27", "gradient", at("pds.ack", 1), put("pds", dpdcid=9), "PDS-DPDCID"),
    Kind("dpdcid of an ACK_CC is another", "pds 27", "ladder-L04", at("pds.ack_cc", 1), put("pds", dpdcid=9),
         "PDS-DPDCID"),
    Kind("spdcid of a request is another", "pds 26", "long-rud", _WRITE, put("pds", spdcid=9), "PDS-SPDCID"),
    Kind("spdcid of read data is another", "pds 26", "ses-read", _READ_DATA, put("pds", spdcid=9), "PDS-SPDCID"),
    Kind("spdcid of CLOSE_CMD is another", "pds 26", "gradient", _CLOSE, put("pds", spdcid=9), "PDS-SPDCID"),
    Kind("a request has spdcid 0", "pds 26", "ladder-L04", at("pds.rud_req", 2), put("pds", spdcid=0),
         "PDS-SPDCID-ZERO"),
    Kind("a SYN packet has spdcid 0", "pds 26", "gradient", at("pds.rod_req.syn", 1), put("pds", spdcid=0),
         "PDS-SPDCID-ZERO"),
    Kind("CLOSE_CMD has spdcid 0", "pds 26", "gradient", _CLOSE, put("pds", spdcid=0), "PDS-SPDCID-ZERO"),
    Kind("an ACK comes from another PDC of the target", "pds 27", "gradient", at("pds.ack", 1), put("pds", spdcid=9),
         "PDS-TWO-TARGETS"),
    Kind("a NACK for want of a PDC has a PDCID", "pds 27", "ladder-L28", at("pds.nack"), put("pds", spdcid=3),
         "PDS-NACK-SPDCID"),
    Kind("a ROD packet on a RUD PDC", "pds 28", "long-rud", _WRITE, put("pds", "pds.rod_req"), "PDS-MODE"),
    Kind("a RUD packet on a ROD PDC", "pds 28", "gradient", at("pds.rod_req.syn", 1), put("pds", "pds.rud_req.syn"),
         "PDS-MODE"),
    Kind("a control packet tells another mode", "pds 28", "gradient", _CLOSE, put("pds", isrod=0), "PDS-CP-ISROD"),
]  # fmt: skip

SYN = [
    Kind("a SYN packet has another Start_PSN", "pds 25", "gradient", at("pds.rod_req.syn", 1), put("pds",
         psn_offset=0), "PDS-START"),
    Kind("a SYN packet has a later Start_PSN", "pds 25", "long-rud", at("pds.rud_req.syn", 4, spdcid=2), put("pds",
         psn_offset=plus(-1)), "PDS-START"),
    Kind("a SYN packet has an earlier Start_PSN", "pds 25", "long-rud", at("pds.rud_req.syn", 4, spdcid=2), put("pds",
         psn_offset=plus(7)), "PDS-START"),
    Kind("a SYN packet has a far Start_PSN", "pds 25", "gradient-rud", at("pds.rud_req.syn", 2), put("pds",
         psn_offset=4000), "PDS-START"),
    Kind("a SYN packet on ROD has an earlier Start_PSN", "pds 25", "long-rod", at("pds.rod_req.syn", 3, spdcid=2),
         put("pds", psn_offset=flip(6)), "PDS-START"),
    Kind("a second SYN with another Start_PSN and PSN", "pds 25", "long-rud", at("pds.rud_req.syn", 3, spdcid=2),
         put("pds", psn=plus(_FAR)), "PDS-STILL-OPEN"),
    Kind("a SYN packet behind one without SYN", "pds 25", "ses-medium", at("pds.rod_req", 6), put("pds",
         "pds.rod_req.syn", psn_offset=6), "PDS-SYN-LATE"),
    Kind("a packet without SYN among those with SYN", "pds 25", "gradient-rud", at("pds.rud_req.syn", 1), put("pds",
         "pds.rud_req", dpdcid=1), "PDS-SYN-LATE", found=1),
    Kind("a retransmission has SYN, unlike the first", "pds 25", "ladder-L09", at("pds.rud_req", 1), put("pds",
         "pds.rud_req.syn", psn_offset=0), "PDS-SYN-AGAIN"),
    Kind("a PDC begins at PSNs just used", "pds 47", "gradient", at("pds.rod_req.syn", 0), copy(7, put("pds",
         psn=73700), put("ses", message_id=2)), "PDS-START-DISTANCE"),
]  # fmt: skip

CLEAR = [
    Kind("CLEAR_PSN falls", "pds 11", "long-rud", at("ses.send_std", 25, eom=0), put("pds",
         clear_psn_offset=lambda value: value - 30), "PDS-CLEAR-FALLS"),
    Kind("CLEAR_PSN falls by 1", "pds 11", "ladder-L08", at("pds.rud_req", 5), put("pds", clear_psn_offset=-4),
         "PDS-CLEAR-FALLS"),
    Kind("CLEAR_PSN is before Start_PSN", "pds 11", "gradient", at("pds.rod_req.syn", 0), put("pds",
         clear_psn_offset=-2), "PDS-CLEAR-EARLY"),
    Kind("a packet clears itself", "pds 16", "ladder-L04", at("pds.rud_req", 3), put("pds", clear_psn_offset=0),
         "PDS-CLEAR-POSITIVE"),
    Kind("a packet clears what follows it", "pds 12", "ladder-L04", at("pds.rud_req", 3), put("pds",
         clear_psn_offset=5), "PDS-CLEAR-POSITIVE"),
    Kind("CLEAR_PSN covers what was not acknowledged", "pds 16", "gradient", at("pds.rod_req.syn", 2), put("pds",
         clear_psn_offset=-1), "PDS-CLEAR-AHEAD"),
    Kind("CLEAR_CMD clears what was not acknowledged", "pds 12", "gradient", at("pds.rod_req.syn", 2),
         insert(_cp(CtlType.CLEAR_CMD, isrod=1, spdcid=1, dpdcid=1, ctl_payload=73729)), "PDS-CLEAR-CMD-AHEAD"),
    Kind("CLEAR_CMD clears what was not sent", "pds 12", "ladder-L16", at("pds.cp", 2), put("pds", ctl_payload=340),
         "PDS-CLEAR-CMD-UNSENT"),
    Kind("CLEAR_CMD clears what was before Start_PSN", "pds 11", "gradient", at("pds.ack", 0),
         answer(_cp(CtlType.CLEAR_CMD, isrod=1, spdcid=1, dpdcid=1, ctl_payload=73700)), "PDS-CLEAR-CMD-EARLY"),
]  # fmt: skip

ACKS = [
    Kind("CACK_PSN falls", "pds 10", "gradient", at("pds.ack", 1), put("pds", cack_psn=plus(-3), ack_psn_offset=3),
         "PDS-CACK-FALLS"),
    Kind("CACK_PSN falls by 1", "pds 10", "ladder-L08", at("pds.ack", 1), put("pds", cack_psn=333, ack_psn_offset=2),
         "PDS-CACK-FALLS"),
    Kind("CACK_PSN is below what the packet cleared", "pds 13", "ladder-L08", at("pds.ack", 4), put("pds",
         cack_psn=334, ack_psn_offset=2), "PDS-CACK-BEHIND-CLEAR", {"PDS-CACK-FALLS": "it fell, too"}),
    Kind("CACK_PSN covers what was not seen", "pds 14", "gradient", at("pds.rod_req.syn", 1), drop(2),
         "PDS-CACK-HOLE"),
    Kind("a SYN packet is missing below CACK_PSN", "pds 34", "gradient-rud", at("pds.rud_req.syn", 0), drop(2),
         "PDS-ACK-UNSENT"),
    Kind("CACK_PSN covers what is not cleared", "pds 14", "ladder-L05", at("pds.ack_cc", 3), insert(_ack(336,
         **_BACK)), "PDS-CACK-UNCLEARED"),
    Kind("an ACK asks to clear what it covers", "pds 40", "ladder-L16", at("pds.ack_cc"), put("pds", cack_psn=333,
         ack_psn_offset=0, sack_psn_offset=-1), "PDS-CLEAR-REQ-CACK"),
    Kind("an ACK of a PSN before Start_PSN", "pds 17", "gradient", at("pds.ack", 0), put("pds", ack_psn_offset=-1),
         "PDS-ACK-EARLY"),
    Kind("CACK_PSN is before Start_PSN", "pds 17", "gradient", at("pds.ack", 0), put("pds", cack_psn=73720,
         ack_psn_offset=8), "PDS-ACK-EARLY", {"PDS-CACK-BEHIND-CLEAR": "it is below what the packet cleared, too"}),
    Kind("an ACK of what was not sent", "pds 17", "ladder-L09", at("pds.ack"), put("pds", ack_psn_offset=5),
         "PDS-ACK-UNSENT"),
    Kind("CACK_PSN of what was not sent", "pds 12", "gradient", at("pds.ack", 0), put("pds", cack_psn=plus(50)),
         "PDS-ACK-UNSENT"),
    Kind("an ACK of read data that was not sent", "pds 17", "ladder-L08", at("pds.ack", 3), put("pds",
         ack_psn_offset=7), "PDS-ACK-UNSENT"),
    Kind("a SACK bit of what was not sent", "pds 18", "ladder-L04", at("pds.ack_cc", 1), put("pds",
         sack_bitmap=1 << 40 | 5), "PDS-SACK-UNSENT"),
    Kind("a SACK bit of what was not sent, far off", "pds 18", "ladder-L12", at("pds.ack_cc", 1), put("pds",
         sack_bitmap=flip(63)), "PDS-SACK-UNSENT"),
    Kind("a SACK bit denies what CACK_PSN covers", "pds 18", "ladder-L04", at("pds.ack_cc", 1), put("pds",
         sack_bitmap=4), "PDS-SACK-ZERO"),
    Kind("a receiver offers no window", "pds 21", "ladder-L04", at("pds.ack_cc", 1), put("pds", mpr=0),
         "PDS-MPR-ZERO"),
]  # fmt: skip

CLOSE = [
    Kind("a new PSN behind CLOSE_CMD", "pds 30", "ladder-L26", at("pds.rud_req", 1), copy(3, put("pds", psn=341),
         put("ses", "ses.send_std.som", eom=1, message_id=2, request_length=64)), "PDS-NEW-AFTER-CLOSE"),
    Kind("CLOSE_CMD before the ACK of everything", "pds 31", "gradient", at("pds.ack", 1), drop(0),
         "PDS-CLOSE-UNACKED"),
    Kind("CLOSE_CMD from the target", "pds 31", "ladder-L26", at("pds.cp", 0), put("pds", ctl_type=CtlType.CLOSE_CMD),
         "PDS-CLOSE-CMD-ROLE"),
    Kind("CLOSE_CMD from the target of a PDC that began here", "pds 31", "gradient", at("pds.ack", 1),
         insert(_cp(CtlType.CLOSE_CMD, ar=1, isrod=1, psn=73728, spdcid=1, dpdcid=1)), "PDS-CLOSE-CMD-ROLE"),
    Kind("CLOSE_REQ from the initiator", "pds 31", "gradient", _CLOSE, put("pds", ctl_type=CtlType.CLOSE_REQ),
         "PDS-CLOSE-REQ-ROLE"),
    Kind("CLOSE_REQ from the initiator with psn 0", "pds 31", "gradient", _CLOSE, put("pds",
         ctl_type=CtlType.CLOSE_REQ, psn=0), "PDS-CLOSE-REQ-ROLE"),
    Kind("CLOSE_REQ with psn 0 in the middle", "pds 31", "ladder-L04", at("pds.rud_req", 3),
         insert(_cp(CtlType.CLOSE_REQ, ar=1, **_IDS)), "PDS-CLOSE-REQ-ROLE"),
    Kind("CLOSE_REQ with psn 0 on a long PDC", "pds 31", "long-rud", _WRITE, insert(_cp(CtlType.CLOSE_REQ, ar=1,
         spdcid=1, dpdcid=1)), "PDS-CLOSE-REQ-ROLE"),
    Kind("the initiator asks for a close in an ACK", "pds 31", "ladder-L08", at("pds.ack", 2), put("pds",
         req=AckReq.CLOSE), "PDS-CLOSE-ASKED"),
    Kind("the closing ACK while return data is open", "pds 32", "ses-read", at("pds.ack", 4), drop(1),
         "PDS-CLOSE-RETURN"),
    Kind("the ACK of CLOSE_CMD does not cover it", "pds 15", "gradient", at("pds.ack", 2), put("pds",
         cack_psn=plus(-1), ack_psn_offset=1), "PDS-CLOSE-CACK"),
    Kind("Expected_PSN is one that was used", "pds 47", "gradient", at("pds.ack", 2), put("pds", "pds.ack.epsn",
         expected_psn=73730), "PDS-EXPECTED-PSN"),
]  # fmt: skip

CONTROL = [
    Kind("ACK_REQ without ar", "pds.md §13", "gradient", at("pds.rod_req.syn", 2), insert(_cp(CtlType.ACK_REQ,
         isrod=1, psn=73730, spdcid=1, dpdcid=1)), "PDS-ACK-REQ-AR"),
    Kind("ACK_REQ for what was not sent", "pds.md §13", "gradient", at("pds.rod_req.syn", 2),
         insert(_cp(CtlType.ACK_REQ, isrod=1, ar=1, psn=73740, spdcid=1, dpdcid=1)), "PDS-ACK-REQ-UNSENT"),
    Kind("CLEAR_CMD asks for an ACK", "pds 33", "ladder-L16", at("pds.cp", 2), put("pds", ar=1), "PDS-CP-NO-ACK"),
    Kind("CLEAR_REQ asks for an ACK", "pds 33", "ladder-L16", at("pds.cp", 1), put("pds", ar=1), "PDS-CP-NO-ACK"),
    Kind("CLOSE_CMD does not ask for an ACK", "pds.md §13", "gradient", _CLOSE, put("pds", ar=0), "PDS-CP-ACK"),
    Kind("CLEAR_CMD has a PSN", "pds.md §13", "ladder-L16", at("pds.cp", 2), put("pds", psn=333), "PDS-CP-PSN"),
    Kind("a control packet of an unknown type", "pds.md §13", "gradient", _CLOSE, put("pds", ctl_type=14),
         "WIRE-UNKNOWN-CODE"),
    Kind("a NACK of what was not sent", "pds.md §12", "ladder-L09", at("pds.nack"), put("pds", nack_psn=340),
         "PDS-NACK-UNSENT"),
    Kind("ROD_OOO on RUD", "pds.md §12", "ladder-L09", at("pds.nack"), put("pds", nack_code=NackCode.ROD_OOO),
         "PDS-NACK-ROD-OOO"),
    Kind("ROD_OOO for the PSN that is expected", "pds.md §12", "ladder-L18", at("pds.nack"), put("pds",
         nack_payload=335), "PDS-NACK-ROD-OOO"),
    Kind("NEW_START_PSN demands the Start_PSN refused", "pds.md §6.6", "ladder-L14", at("pds.nack"), put("pds",
         nack_payload=5000), "PDS-NACK-NEW-START"),
    Kind("a NACK code that is not defined", "pds.md §12", "ladder-L09", at("pds.nack"), put("pds", nack_code=0xEE),
         "WIRE-UNKNOWN-CODE"),
]  # fmt: skip

WITHOUT = [
    Kind("a pkt_id for two requests that differ", "pds 45", "ses-rudi-read", at("pds.rudi_req", 1), put("pds",
         pkt_id=plus(-1)), "RUDI-PKT-ID-TWO-CONTENTS"),
    Kind("a pkt_id again, with another content", "pds 45", "ladder-L29", at("pds.rudi_req", 1), put("ses",
         memory_key=9), "RUDI-PKT-ID-TWO-CONTENTS", {"SES-KEY-CHANGE": "it is a packet of the same message"}),
    Kind("a pkt_id again before its answer, in long traffic", "pds 45", "long-rudi", at("pds.rudi_req", 20),
         put("pds", pkt_id=plus(-3)), "RUDI-PKT-ID-TWO-CONTENTS"),
    Kind("a retransmission on RUDI has another payload", "pds 45", "ladder-L29", at("pds.rudi_req", 1),
         payload(lambda data: data[:-1] + b"!"), "RUDI-PKT-ID-TWO-CONTENTS"),
    Kind("a response on RUDI to nobody", "pds 45", "ses-rudi-read", at("pds.rudi_resp", 1), put("pds",
         pkt_id=plus(99)), "RUDI-UNASKED"),
    Kind("UUD carries a SEND", "pds.md §15", "ses-datagram-send", at("pds.uud_req"), put("ses", opcode=5),
         "UUD-OPCODE"),
    Kind("a datagram without EOM", "pds.md §15", "ses-datagram-send", at("pds.uud_req"), put("ses", eom=0),
         "UUD-WHOLE"),
    Kind("a datagram has a message id", "pds.md §15", "ses-datagram-send", at("pds.uud_req"), put("ses",
         message_id=3), "UUD-MESSAGE-ID"),
]  # fmt: skip

KINDS = [*NUMBERS, *IDS, *SYN, *CLEAR, *ACKS, *CLOSE, *CONTROL, *WITHOUT]
