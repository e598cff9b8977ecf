# SPDX-License-Identifier: GPL-2.0-only
"""This module takes from a decoded packet of UET what the analysis needs."""

from collections.abc import Mapping
from typing import Any

from uetproto.audit.per_packet.copies import BYTES
from uetproto.audit.per_packet.sender import Transmission
from uetproto.wire.packet import Layer, Packet

_IP_START = {"ipv4": ("total_length", 0), "ipv6": ("payload_length", 40)}
"""Maps an IP header to its field of a length, and to the number of bytes before those that the field counts."""


class PacketSeen:
    """This class holds what the analysis needs of a packet of UET."""

    __slots__ = (
        "data", "dst", "entropy", "head", "kind", "layers", "left", "number", "ses", "size", "src", "time_ns",
        "trimmed",
    )  # fmt: skip

    def __init__(self, number: int, time_ns: int, packet: Packet, at: int, data: bytes) -> None:
        """Take a packet whose layer `at` is the PDS header."""
        self.number, self.time_ns = number, time_ns
        self.kind, self.head, offset = packet.layers[at]
        self.src = self.dst = self.entropy = 0
        end = offset
        for form, values, start in packet.layers[:at]:
            if form in _IP_START:
                name, header = _IP_START[form]
                self.src, self.dst, end = values["src"], values["dst"], start + header + values[name]
            elif form == "udp":
                self.entropy, end = values["sport"], start + values["length"]
            elif form == "entropy":
                self.entropy = values["entropy"]
        self.size = end - offset
        self.data = data[offset : min(end, offset + BYTES)]
        self.trimmed = "trimmed" in packet.notes
        self.layers: list[Layer] = packet.layers
        self.ses: Mapping[str, Any] | None = None
        """Fields of the SES header; None: there is none."""
        for form, values, _ in packet.layers[at + 1 :]:
            if form.startswith("ses.") and self.ses is None:
                self.ses = values
        last = packet.layers[-1]
        self.left = end - last.offset - last.size
        """Bytes behind the headers, with the CRC if there is one."""

    @property
    def sent(self) -> Transmission:
        """Return what the direction of a PDC needs of the packet."""
        return Transmission(self.number, self.time_ns, self.size, bool(self.head.get("retx")), self.trimmed)
