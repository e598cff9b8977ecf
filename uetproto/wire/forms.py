# SPDX-License-Identifier: GPL-2.0-only
"""This module lists every header form by name, and says which header follows which.

A form is one layout of a header. Its name has a prefix for the layer, as in `pds.ack`. The parser, the Scapy layers and
the generator of the Wireshark plugin all read `NEXT`. If several rows of `NEXT` apply to a header, several headers
follow it, in the order of the rows: an ACK_CC is followed by its congestion-control state, then by the SES header. Of
several candidates, the next header is the first whose `only` fields match. All these fields lie within the first two
bytes. `ROCE_NEXT` is the same for RoCE, which Wireshark decodes itself. No header field announces SHARP messages or
multicast immediates, so `wire.inside` finds them.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cache

from uetproto.wire.fields import Field, Header
from uetproto.wire.headers import ethernet, mcast, roce, sharp, sharp_am, tunnels, uet_pds, uet_ses, uet_tss
from uetproto.wire.headers.numbers import IP_PROTOCOL as IP_PROTOCOL
from uetproto.wire.headers.numbers import ROCE_PORT as ROCE_PORT
from uetproto.wire.headers.numbers import UDP_PORT as UDP_PORT
from uetproto.wire.headers.roce import Lnh, Nak
from uetproto.wire.headers.uet_pds import LEGAL_NEXT_HDR, CcType, NextHdr
from uetproto.wire.headers.uet_ses import ATOMICS, RENDEZVOUS, SYNCS, VENDORS

TUNNEL_FORMS: dict[str, Header] = {header.name: header for header in tunnels.HEADERS}
LOWER_FORMS: dict[str, Header] = {header.name: header for header in ethernet.HEADERS} | TUNNEL_FORMS
UET_FORMS: dict[str, Header] = {
    header.name: header for module in (uet_tss, uet_pds, uet_ses) for header in module.HEADERS
}
ROCE_FORMS: dict[str, Header] = {header.name: header for header in roce.HEADERS}
SHARP_FORMS: dict[str, Header] = {header.name: header for module in (sharp, sharp_am) for header in module.HEADERS}
MCAST_FORMS: dict[str, Header] = {header.name: header for header in mcast.HEADERS}
FORMS: dict[str, Header] = LOWER_FORMS | UET_FORMS | ROCE_FORMS | SHARP_FORMS | MCAST_FORMS

Candidates = tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Next:
    """A row of `NEXT` says which header follows a header that is in `after`.

    The candidates are those that `then` has for the value of the field `by`. For any other value, or if `by` is None,
    they are those of `otherwise`. If `otherwise` is None, any other value is reserved. If there are no candidates, no
    header follows.
    """

    after: tuple[Header, ...]
    by: str | None = None
    then: dict[int, Candidates] = field(default_factory=dict)
    otherwise: Candidates | None = ()


FIRST: Candidates = (*uet_pds.FIRST, uet_tss.TSS, uet_tss.TSS_SSI)  # after UDP or the entropy header

NEXT = (
    # after                       by            then                                  otherwise
    Next((uet_tss.ENTROPY,),      otherwise=FIRST),
    Next(uet_pds.CC_REQUESTS,     otherwise=(uet_pds.REQ_CC_STATE,)),
    Next((uet_pds.ACK_CC, uet_pds.ACK_CC_PROBE), "cc_type", {
        CcType.NSCC:              (uet_pds.CC_STATE_NSCC,),
        CcType.CREDIT:            (uet_pds.CC_STATE_CREDIT,),
    },                                                                      otherwise=(uet_pds.CC_STATE_OTHER,)),
    Next((uet_pds.ACK_CCX, uet_pds.ACK_CCX_PROBE), otherwise=(uet_pds.CCX_STATE,)),
    Next((uet_pds.NACK_CCX, uet_pds.NACK_CCX_RUDI), otherwise=(uet_pds.NACK_CCX_STATE,)),
    Next(uet_pds.WITH_SES, "next_hdr", {
        NextHdr.NONE:                (),
        NextHdr.REQUEST_SMALL:       (uet_ses.REQUEST_SMALL,),
        NextHdr.REQUEST_MEDIUM:      uet_ses.MEDIUM,
        NextHdr.REQUEST_STD:         uet_ses.STANDARD,
        NextHdr.RESPONSE:            (uet_ses.RESPONSE,),
        NextHdr.RESPONSE_DATA:       (uet_ses.RESPONSE_DATA,),
        NextHdr.RESPONSE_DATA_SMALL: (uet_ses.RESPONSE_DATA_SMALL,),
    },                                                                      otherwise=None),
    Next(uet_ses.REQUESTS, "opcode", {
        **dict.fromkeys(sorted(SYNCS), (uet_ses.EXT_SYNC,)),
    }),
    Next(uet_ses.REQUESTS, "opcode", {
        **dict.fromkeys(RENDEZVOUS, (uet_ses.EXT_RENDEZVOUS,)),
        **dict.fromkeys(sorted(ATOMICS), (uet_ses.EXT_ATOMIC_CAS, uet_ses.EXT_ATOMIC)),
    }),
)  # fmt: skip


_LONGEST = max(map(len, roce.SEQUENCES.values()))
ROCE_NEXT = (
    Next((roce.LRH,), "lnh", {Lnh.LOCAL: (roce.BTH,), Lnh.GLOBAL: (roce.GRH,)}, otherwise=None),
    Next((roce.GRH,), "nxthdr", {roce.BTH_FOLLOWS: (roce.BTH,)}, otherwise=None),
    # Each row holds the candidates for one position behind the BTH. The first row has every known opcode; any other
    # opcode is reserved.
    Next((roce.BTH,), "opcode", {opcode: row[:1] for opcode, row in roce.SEQUENCES.items()}, otherwise=None),
    *(
        Next((roce.BTH,), "opcode", {o: (row[place],) for o, row in roce.SEQUENCES.items() if len(row) > place})
        for place in range(1, _LONGEST)
    ),
)  # fmt: skip


def matches(header: Header, word: int) -> bool:
    """Return whether a header that begins with the two bytes `word` has the values that identify `header`."""
    position = 0
    for row in header.fields:
        if row.only:
            shift = 16 - position - row.bits
            if (word >> shift) & ((1 << row.bits) - 1) not in row.only:
                return False
        position += row.bits
        if position >= 16:
            break
    return True


def rows_after(header: Header) -> tuple[Next, ...]:
    """Return the rows of `NEXT` and `ROCE_NEXT` that apply to `header`, in order."""
    return tuple(row for row in (*NEXT, *ROCE_NEXT) if header in row.after)


# Values that a field may have -----------------------------------------------------------------------------------------

_ALSO_RESERVED = {"pds.uud_req": ("flags",), "pds.ack_cc": ("cc_flags",), "pds.ack_cc.probe": ("cc_flags",),
                  "pds.ack_ccx": ("cc_flags",), "pds.ack_ccx.probe": ("cc_flags",)}  # fmt: skip
"""Fields that are reserved by wire.md §3.3 and §3.7 although their name does not say so."""

VERSIONS = ("version", "tver")
"""Fields of SES and of the BTH that hold a version. The version is 0 (wire.md §4, roce.md §2)."""

_VENDORS = {**VENDORS, CcType: range(14, 16)}
"""Maps an enumeration to the codes that a vendor may define (wire.md §3.3, §4, §5)."""

SYNDROMES = (*range(0x40), *Nak)
"""Syndromes that mean ACK, RNR NAK or NAK (roce.md §2.1). The reserved bit 7 is 0 in them."""


@cache
def reserved_fields(form: str) -> tuple[str, ...]:
    """Return the names of the fields of a form of header that are sent as 0."""
    if form not in UET_FORMS and form not in ROCE_FORMS and form != "ipv4":
        return ()
    rsvd = tuple(name for name in FORMS[form].names if name.startswith("rsvd"))
    return rsvd + _ALSO_RESERVED.get(form, ())


@cache
def code_fields(form: str) -> Mapping[str, frozenset[int]]:
    """Return a map with an entry for each field that holds a code in headers of this form. The entry has the codes that
    have a meaning, including the codes of vendors."""
    if form not in UET_FORMS and form != "bth" and form != "aeth":
        return {}
    header = FORMS[form]
    if form == "aeth":
        return {"syndrome": frozenset((*SYNDROMES, *(code | 0x80 for code in SYNDROMES)))}
    found = {field.name: _known(field) for field in header.fields if field.values is not None}
    if "next_hdr" in header.names:
        found["next_hdr"] = LEGAL_NEXT_HDR[header["type"].only[0]]
    return found


def _known(field: Field) -> frozenset[int]:
    return frozenset({*map(int, field.values or ()), *_VENDORS.get(field.values, ())})


def is_vendors(form: str, name: str, value: int) -> bool:
    """Return whether a code that `code_fields` lists for a field is one that vendors define."""
    return value not in _named(form, name)


@cache
def _named(form: str, name: str) -> Container[int]:
    """Return the codes of a field that have names, or all its values if none of them has a name."""
    values = FORMS[form][name].values
    return range(1 << FORMS[form][name].bits) if values is None else frozenset(int(code) for code in values)
