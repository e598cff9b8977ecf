# SPDX-License-Identifier: GPL-2.0-only
"""This module has two Construct schemas: `ROCE` for packets behind UDP port 4791, `LRH` for native InfiniBand
packets."""

from collections.abc import Mapping
from typing import Any

from construct import Bytes, BytesInteger, Checksum, ConstructError, Container, Switch

from uetproto.errors import identified
from uetproto.schemas.packet import Given, PacketStruct, Rest, over_of, so_far, trailer_path
from uetproto.wire.forms import FORMS, ROCE_FORMS, Candidates
from uetproto.wire.headers import roce
from uetproto.wire.headers.ethernet import IPV4, IPV6, UDP
from uetproto.wire.icrc import ICRC_SIZE, VCRC_SIZE, icrc_of, vcrc

_ROCE_PARTS = {header.name: (header,) for header in roce.HEADERS if header not in (roce.LRH, roce.GRH)}
_ROCE_ORDER = (
    "bth", "rdeth", "deth", "xrceth", "feth", "reth", "atomic_eth", "aeth", "atomic_ack_eth", "imm", "ieth", "cnp",
)  # fmt: skip
assert {*_ROCE_ORDER, "lrh", "grh"} == {*ROCE_FORMS}


def _icrc_of(context: Any) -> int:
    """Return the ICRC of the packet that `context` holds, up to its pad."""
    data = so_far(context, ICRC_SIZE if context._parsing else 0)
    headers: list[tuple[str, bytes]] = []
    at = 0
    for part in ("lrh", "grh", "bth"):
        if context.get(part) is not None:
            headers.append((part, data[at : at + FORMS[part].size]))
            at += FORMS[part].size
    over, path = over_of(context), trailer_path(context)
    if over is not None and headers[0][0] == "lrh":
        raise identified(
            ConstructError("over has no place here: the packet begins with its LRH", path=path), "trailer-impossible"
        )
    return icrc_of(_covered(over, path) + headers, data[at:])


def _covered(over: bytes | None, path: str) -> list[tuple[str, bytes]]:
    """Return the headers below the BTH, by form and bytes. Raises `ConstructError` where they are not headers."""
    if over is None:
        return []
    network = {4: IPV4, 6: IPV6}.get(over[0] >> 4) if over else None
    if network is None or len(over) not in (network.size + UDP.size, IPV6.size):
        legal = "an IPv4 or IPv6 header without options and a UDP header, or a GRH alone"
        raise identified(ConstructError(f"over has {len(over)} bytes; legal: {legal}", path=path), "trailer-impossible")
    if len(over) == IPV6.size and network is IPV6:
        return [("grh", over)]
    return [(network.name, over[: network.size]), ("udp", over[network.size :])]


def _trailer_of_roce(context: Any) -> str:
    known = context.get("lrh") is not None or over_of(context) is not None
    return "checked" if known and context._params.get("crc", True) else "unchecked"


class RoceStruct(PacketStruct):
    """This construct is a RoCE packet: headers, `payload`, `pad` of `bth.padcnt` bytes, and the ICRC as `trailer`.

    The argument `over` gives the bytes before the BTH: the IP and UDP headers, or a GRH. The ICRC is then checked when
    a packet is parsed, and computed when it is built. Without `over` the ICRC is read and written unchecked.
    """

    def __init__(self, first: Candidates, parts: Mapping[str, Candidates], **more: Any) -> None:
        rest = {
            "payload": Rest(lambda context: context.bth.padcnt + ICRC_SIZE + self.behind(context)),
            "pad": Bytes(lambda context: int(context.bth.padcnt)),
            "trailer": Switch(_trailer_of_roce, {
                "checked": Checksum(BytesInteger(ICRC_SIZE, swapped=True), lambda crc: crc, _icrc_of),
                "unchecked": BytesInteger(ICRC_SIZE, swapped=True),
            }),
        }  # fmt: skip
        super().__init__(first, parts, **rest, **more)

    def behind(self, context: Any) -> int:
        """Return the number of bytes behind the ICRC."""
        return 0

    def prepared(self, given: Given, packet: Mapping[str, Any], path: str) -> None:
        pad, payload = self.bytes_of(packet, "pad", path), self.payload_of(packet, path)
        if "bth" in given:
            given["bth"].setdefault("padcnt", -len(payload) % 4 if pad is None else len(pad))

    def ending(self, packet: Mapping[str, Any], whole: dict[str, Any], context: Any, path: str) -> None:
        whole["payload"] = self.payload_of(packet, path)
        pad = self.bytes_of(packet, "pad", path)
        whole["pad"] = bytes(whole["bth"].padcnt) if pad is None else pad
        whole["trailer"] = packet.get("trailer")
        inner = Container(lrh=whole.get("lrh"), _params=context._params, _parsing=False)
        if whole["trailer"] is None and _trailer_of_roce(inner) == "unchecked":
            reason = "the ICRC is missing; give it, or over=, the IP and UDP headers, to compute it"
            raise identified(ConstructError(reason, path=f"{path} -> trailer"), "trailer-impossible")


class LrhStruct(RoceStruct):
    """This construct is a packet of native InfiniBand: LRH, optional GRH, the parts of a RoCE packet, and the VCRC.

    ICRC and VCRC are checked when a packet is parsed, and computed when it is built. With `crc=False` they are read and
    written unchecked. Lengths that are not given are computed.
    """

    def __init__(self, first: Candidates, parts: Mapping[str, Candidates]) -> None:
        covered = Checksum(
            BytesInteger(VCRC_SIZE, swapped=True),
            vcrc,
            lambda context: so_far(context, VCRC_SIZE if context._parsing else 0),
        )
        checked = {True: covered, False: BytesInteger(VCRC_SIZE, swapped=True)}
        super().__init__(first, parts, vcrc=Switch(lambda context: bool(context._params.get("crc", True)), checked))

    def behind(self, context: Any) -> int:
        return VCRC_SIZE

    def ending(self, packet: Mapping[str, Any], whole: dict[str, Any], context: Any, path: str) -> None:
        super().ending(packet, whole, context, path)
        size = sum(FORMS[fields["_form"]].size for part, fields in whole.items() if part in self.parts)
        size += len(whole["payload"]) + len(whole["pad"]) + ICRC_SIZE
        if "pktlen" not in (packet.get("lrh") or {}):
            whole["lrh"].pktlen = size // 4
        if "grh" in whole and "paylen" not in (packet.get("grh") or {}):
            whole["grh"].paylen = size - roce.LRH.size - roce.GRH.size
        whole["vcrc"] = packet.get("vcrc")
        if whole["vcrc"] is None and not context._params.get("crc", True):
            raise identified(ConstructError("the VCRC is missing", path=f"{path} -> vcrc"), "trailer-impossible")


_BELOW_BTH = {part: _ROCE_PARTS[part] for part in _ROCE_ORDER}
ROCE = RoceStruct((roce.BTH,), _BELOW_BTH)
LRH = LrhStruct((roce.LRH,), {"lrh": (roce.LRH,), "grh": (roce.GRH,), **_BELOW_BTH})
