# SPDX-License-Identifier: GPL-2.0-only
"""This module has the formats of wire.md §2 and §3 that a naive peer needs, written apart from the codec, and PSN
arithmetic.

Both PDCIDs stand at the same place in all of them, and so does the PSN of requests and control packets.
"""

from enum import IntEnum
from struct import Struct

# The prologue is one 16-bit word: type [5], next_hdr or ctl_type [4], flags [7].
REQUEST = Struct(">HhIHH")  # prologue, clear_psn_offset, psn, spdcid, dpdcid
ACK = Struct(">HhIHH")  # prologue, ack_psn_offset, cack_psn, spdcid, dpdcid
ACK_CC = Struct(">BBhQ8x")  # behind an ACK: cc_type and cc_flags, mpr, sack_psn_offset, sack_bitmap, state
ACK_CCX = Struct(">BBhQ16x")
NACK = Struct(">HBBIHHI")  # prologue, nack_code, vendor_code, nack_psn, spdcid, dpdcid, nack_payload
CP = Struct(">HHIHHI")  # prologue, probe_opaque, psn, spdcid, dpdcid, ctl_payload
RUDI = Struct(">HHI")  # prologue, reserved, pkt_id
UUD = Struct(">HH")

ACK_FORMS = {7: None, 8: ACK_CC, 9: ACK_CCX}
"""Types of ACK, and the format of what follows the 12 bytes that all types have."""

RETX, AR, SYN = 0x10, 0x08, 0x04  # of requests and control packets; RETX also of ACK, NACK, RUDI
ISROD, P, NT = 0x20, 0x08, 0x08  # of control packets, ACK, NACK
CLEAR, CLOSE = 1, 2  # the field req of an ACK
NO_HEADER, RESPONSE = 0, 4  # next_hdr


class Type(IntEnum):
    RUD_REQ = 2
    ROD_REQ = 3
    RUDI_REQ = 4
    RUDI_RESP = 5
    UUD_REQ = 6
    NACK = 10
    CP = 11


class Ctl(IntEnum):
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


class Code(IntEnum):
    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    TRIMMED_ACK = 0x03
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
    RCVD_SES_PROCG = 0x18
    UNEXP_EVENT = 0x19
    RCVR_INFER_LOSS = 0x1A


MPR_UNIT = 128  # pds.md §8.6


def head(type: int, kind: int, flags: int = 0) -> int:
    """Return the prologue; `kind` is next_hdr or ctl_type."""
    return type << 11 | kind << 7 | flags


def wire(psn: int) -> int:
    """Return a PSN as it is on the wire, in 32 bits."""
    return psn & 0xFFFFFFFF


def near(psn: int, known: int) -> int:
    """Return the integer with these 32 bits that is nearest to a known PSN (pds.md §2.1)."""
    return known + ((psn - known + 0x8000_0000) & 0xFFFFFFFF) - 0x8000_0000
