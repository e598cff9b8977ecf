# SPDX-License-Identifier: GPL-2.0-only
"""This module takes from each packet what the page shows beside its arrow: first bytes, headers, flow, relative PSN."""

from base64 import b64encode
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from uetproto.cli.ladder.details import LadderDetails
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.roce import RESPONSES, Transport
from uetproto.wire.packet import Packet
from uetproto.wire.words.summary import address, hosts, pds_layer
from uetproto.wire.words.tenants import Tenants

_PAYLOAD = 16
_BYTES = 256
"""Bytes of the payload, and of a whole packet, that the page shows at most."""


class ShownPacket(NamedTuple):
    """This record is what the page has of a packet."""

    shape: int
    """Index of its sequence of headers."""
    data: str
    """First bytes, in base64."""
    size: int
    flow: int
    """Index of the flow, -1: none; answers have that of the packets that they answer."""
    psn: int | None
    """PSN counted from the first one of the flow, or None."""
    flight: int | None
    """Bytes that the sender has in flight with this packet, or None."""


class PagePackets(LadderDetails):
    """This class keeps what the page shows of packets, by their numbers."""

    def __init__(self, most: int, windows: Mapping[int, int] | None = None) -> None:
        """Make an empty table of the packets up to number `most`. `windows` is as in `LadderDetails`."""
        super().__init__(windows)
        self._most = most
        self.shown: dict[int, ShownPacket] = {}
        self.shapes: dict[tuple[tuple[str, int], ...], int] = {}
        self.flows: dict[str, int] = {}
        self._bases: dict[int, tuple[int, int]] = {}
        self._tenants = Tenants()

    def take(self, packet: Packet, data: bytes, time_ns: int, number: int, tap: Hashable) -> tuple[dict[str, str], str]:
        """Take a packet as `LadderDetails` does, and keep what the page shows of it."""
        found = super().take(packet, data, time_ns, number, tap)
        if number <= self._most:
            self.shown[number] = self._shown(packet, data)
        return found

    def _shown(self, packet: Packet, data: bytes) -> ShownPacket:
        opened = next(
            (at for at, layer in enumerate(packet.layers) if layer.form.startswith("tss")), len(packet.layers)
        )
        layers = packet.layers[: opened + 1]  # the bytes behind the security header are sealed
        shape = tuple((layer.form, layer.offset) for layer in layers)
        kept = data[: min(_BYTES, packet.payload_offset + _PAYLOAD)]
        flow, psn = self._flow(packet)
        return ShownPacket(
            self.shapes.setdefault(shape, len(self.shapes)), b64encode(kept).decode(), len(data), flow, psn,
            self.latest.get("uetp.analysis.bytes_in_flight"),
        )  # fmt: skip

    def _flow(self, packet: Packet) -> tuple[int, int | None]:
        """Return the index of the flow of a packet, and its PSN relative to the first one."""
        ends = hosts(packet)
        layer = pds_layer(packet)
        if ends is None:
            return -1, None
        bits = ends[2] | self._tenants.of(packet.layers) << 8
        src, dst = (address(one, bits) for one in ends[:2])
        if layer is not None:
            return self._flow_of_pds(layer.form, layer.values, src, dst)
        if "bth" not in packet:
            return -1, None
        bth = packet["bth"]
        answers = bth["opcode"] >> 5 == Transport.RC and bth["opcode"] & 0x1F in RESPONSES
        return self._relative(f"{src} → {dst} QP {bth['destqp']}" + " answers" * answers, bth["psn"], 24)

    def _flow_of_pds(self, form: str, head: Mapping[str, Any], src: str, dst: str) -> tuple[int, int | None]:
        if "cack_psn" in head or "nack_psn" in head:
            named = head.get("cack_psn", head.get("nack_psn"))
            return self._relative(f"{dst} → {src} PDC {head['dpdcid']}", named, 32, answers=True)
        if "spdcid" in head:
            own = None if form == "pds.cp" and "uetp.rel_psn" not in self.latest else head["psn"]
            return self._relative(f"{src} → {dst} PDC {head['spdcid']}", own, 32)
        if form == "pds.rudi_req":
            return self._relative(f"{src} → {dst} RUDI", head["pkt_id"], 32)
        if "pkt_id" in head or "nack_pkt_id" in head:
            named = head.get("pkt_id", head.get("nack_pkt_id"))
            return self._relative(f"{dst} → {src} RUDI", named, 32, answers=True)
        return self._relative(f"{src} → {dst} UUD", None, 32)

    def _relative(self, name: str, psn: Any, bits: int, answers: bool = False) -> tuple[int, int | None]:
        flow = self.flows.setdefault(name, len(self.flows))
        if psn is None:
            return flow, None
        if flow not in self._bases:
            if answers:
                return flow, None
            self._bases[flow] = psn, bits
        away = (psn - self._bases[flow][0]) & ((1 << bits) - 1)
        return flow, away - (1 << bits) if away >> (bits - 1) else away


def tables_of(shapes: dict[tuple[tuple[str, int], ...], int]) -> dict[str, list[list[Any]]]:
    """Return the fields of all headers in `shapes`, by form: bits, name, whether signed, and names of codes."""
    return {
        form: [
            [field.bits, field.name, field.signed, None if field.values is None else {
                str(int(one)): one.name for one in field.values
            }]
            for field in FORMS[form].fields
        ]
        for form in sorted({form for shape in shapes for form, _ in shape if form in FORMS})
    }  # fmt: skip
