# SPDX-License-Identifier: GPL-2.0-only
"""This module has two Construct schemas: `UET` for packets behind UDP port 4793, `NATIVE` for those behind IP protocol
253."""

from collections.abc import Iterable, Mapping
from typing import Any

from construct import Bytes, BytesInteger, Checksum, ConstructError, Container, Pass, Switch

from uetproto.errors import identified
from uetproto.schemas.packet import Chosen, PacketStruct, Rest, over_of, so_far
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, UET_FORMS, Candidates
from uetproto.wire.headers import uet_pds, uet_ses, uet_tss

_SES = (
    *uet_ses.STANDARD, *uet_ses.MEDIUM, uet_ses.REQUEST_SMALL, *uet_ses.RESPONSES,
)  # fmt: skip
_UET_PARTS: dict[str, Candidates] = {
    "tss": (uet_tss.TSS, uet_tss.TSS_SSI),
    "pds": uet_pds.FIRST,
    "cc": (
        uet_pds.REQ_CC_STATE, uet_pds.CC_STATE_NSCC, uet_pds.CC_STATE_CREDIT, uet_pds.CC_STATE_OTHER,
        uet_pds.CCX_STATE, uet_pds.NACK_CCX_STATE,
    ),
    "ses": _SES,
    "sync": (uet_ses.EXT_SYNC,),
    "rendezvous": (uet_ses.EXT_RENDEZVOUS,),
    "atomic": (uet_ses.EXT_ATOMIC, uet_ses.EXT_ATOMIC_CAS),
}  # fmt: skip
assert {h.name for headers in _UET_PARTS.values() for h in headers} == {*UET_FORMS} - {"entropy"}

_ANSWERS = (uet_pds.RUDI_RESP, *uet_pds.ACKS)
_NO_TRAILER = "no trailer"


def _trailer_of_uet(context: Any) -> str:
    """Return which trailer a packet has: an ICV behind a security header, else a CRC32C where the caller says so."""
    if context.get("tss") is not None:
        return "icv"
    if over_of(context) is not None:
        return "checked"
    return "unchecked" if context._params.get("crc") else _NO_TRAILER


_UET_TRAILERS = {
    "icv": Bytes(uet_tss.ICV_SIZE),
    "checked": Checksum(
        BytesInteger(CRC_SIZE),
        crc32c,
        lambda context: (over_of(context) or b"") + so_far(context, CRC_SIZE if context._parsing else 0),
    ),
    "unchecked": BytesInteger(CRC_SIZE),
}
_UET_TRAILER_SIZES = {"icv": uet_tss.ICV_SIZE, "checked": CRC_SIZE, "unchecked": CRC_SIZE}


class UetStruct(PacketStruct):
    """This construct is a UET packet: headers, `payload` and `trailer`.

    If the packet has the header `tss`, its `payload` is the cipher text and its `trailer` is the ICV. Otherwise the
    arguments say whether the `trailer` is a CRC32C:

    - `over` gives the bytes from the IP source address to the end of the UDP header, with a UDP checksum of 0. The
      CRC32C is then checked when a packet is parsed, and computed when it is built.
    - `crc=True` reads and writes the CRC32C unchecked.
    - Without either argument there is no trailer: all bytes behind the headers are `payload`.
    """

    def __init__(self, first: Candidates, parts: Mapping[str, Candidates]) -> None:
        rest = {
            "payload": Rest(lambda context: _UET_TRAILER_SIZES.get(_trailer_of_uet(context), 0)),
            "trailer": Switch(_trailer_of_uet, _UET_TRAILERS, Pass),
        }
        super().__init__(first, parts, **rest)

    def preferred(self, part: str, before: list[Chosen], fields: Mapping[str, Any]) -> Iterable[Header]:
        headers = self.parts[part]
        if part == "pds":
            return sorted(headers, key=lambda header: header.name.count("."))  # `pds.ack` before `pds.ack.epsn`
        if part == "ses" and before[0].header in _ANSWERS:
            return (*uet_ses.RESPONSES, *headers)
        if part == "ses" and "opcode" not in fields:
            return (uet_ses.REQUEST_STD_SOM, uet_ses.REQUEST_STD, *headers)
        return headers

    def ending(self, packet: Mapping[str, Any], whole: dict[str, Any], context: Any, path: str) -> None:
        whole["payload"] = self.payload_of(packet, path)
        trailer = packet.get("trailer")
        kind = _trailer_of_uet(Container(tss=whole.get("tss"), _params=context._params, _parsing=False))
        if kind in ("icv", "unchecked") and trailer is None:
            raise identified(
                ConstructError(f"the trailer ({kind}) is missing, and cannot be computed", path=f"{path} -> trailer"),
                "trailer-impossible",
            )
        if kind == _NO_TRAILER and trailer is not None:
            raise identified(
                ConstructError("a trailer needs crc=True, or over= to compute it", path=f"{path} -> trailer"),
                "trailer-impossible",
            )
        whole["trailer"] = trailer


UET = UetStruct(FIRST, _UET_PARTS)
NATIVE = UetStruct((uet_tss.ENTROPY,), {"entropy": (uet_tss.ENTROPY,), **_UET_PARTS})
