# SPDX-License-Identifier: GPL-2.0-only
"""This module makes lists of packets of one PDC, and audits them with the PDS rules."""

from collections.abc import Iterable
from typing import Any

from tests.support.audit.build import IPDCID, TPDCID, A, B, PdsAudit, head, packet
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.wire.headers.uet_pds import CtlType, NackCode

ALL = Options(complete=True, ordered=True)
START = 1000
Line = tuple[int, Head, dict[str, Any]]
"""Type of a packet: sender (A or B), header, other fields of `ObservedPacket`."""


def syn(psn: int, clear: int = START - 1, *, start: int = START, **others: Any) -> Line:
    """Return a request of A that opens the PDC."""
    kind, seen = others.pop("kind", "rud"), others.pop("seen", {})
    values = {"next_hdr": 3, "clear_psn_offset": clear - psn, "psn_offset": psn - start, "spdcid": IPDCID} | others
    return A, head(f"pds.{kind}_req.syn", psn=psn, **values), {"content": psn} | seen


def req(psn: int, clear: int = START - 1, **others: Any) -> Line:
    """Return a request of A."""
    kind, seen = others.pop("kind", "rud"), others.pop("seen", {})
    values = {"next_hdr": 3, "clear_psn_offset": clear - psn, "spdcid": IPDCID, "dpdcid": TPDCID} | others
    return A, head(f"pds.{kind}_req", psn=psn, **values), {"content": psn} | seen


def back(psn: int, clear: int, **others: Any) -> Line:
    """Return a packet of B with read data."""
    values = {"next_hdr": 5, "clear_psn_offset": clear - psn, "spdcid": TPDCID, "dpdcid": IPDCID} | others
    return B, head("pds.rud_req", psn=psn, **values), {"content": psn}


def ack(psn: int, cack: int, **others: Any) -> Line:
    """Return an ACK of B."""
    form = others.pop("form", "pds.ack_cc" if "sack_bitmap" in others else "pds.ack")
    more = {"mpr": 8} if form == "pds.ack_cc" else {}
    values = {"ack_psn_offset": psn - cack, "cack_psn": cack, "spdcid": TPDCID, "dpdcid": IPDCID} | more | others
    return B, head(form, **values), {}


def ack_of_a(psn: int, cack: int, **others: Any) -> Line:
    values = {"ack_psn_offset": psn - cack, "cack_psn": cack, "spdcid": IPDCID, "dpdcid": TPDCID} | others
    return A, head("pds.ack", **values), {}


def nack(psn: int, code: NackCode, **others: Any) -> Line:
    values = {"nack_psn": psn, "nack_code": code, "spdcid": TPDCID, "dpdcid": IPDCID} | others
    return B, head("pds.nack", **values), {}


def cp(kind: CtlType, psn: int = 0, payload: int = 0, **others: Any) -> Line:
    """Return a control packet of A."""
    values = {"ctl_type": kind, "psn": psn, "ctl_payload": payload, "spdcid": IPDCID, "dpdcid": TPDCID} | others
    return A, head("pds.cp", **values), {}


def close(psn: int, **others: Any) -> Line:
    return cp(CtlType.CLOSE_CMD, psn, **({"ar": 1} | others))


def packets(lines: Iterable[Line]) -> list[ObservedPacket]:
    return [
        packet(number, src, A + B - src, header, **({"content": 0} | more))
        for number, (src, header, more) in enumerate(lines)
    ]


OPEN = (syn(START), ack(START, START))
"""Packets of a PDC with one packet, which is acknowledged."""
TWO = (syn(START), syn(START + 1), ack(START, START), ack(START + 1, START + 1))


def found(lines: Iterable[Line], options: Options = ALL) -> list[tuple[str, int]]:
    audit = PdsAudit(options)
    audit.see(packets(lines))
    return [(finding.rule.id, finding.packet) for finding in audit.end()]
