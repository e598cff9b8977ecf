# SPDX-License-Identifier: GPL-2.0-only
"""This module has the class `PacketView`: a packet of a capture as a program or a person reads it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

from uetproto.analysis.html import packet_html
from uetproto.errors import LocalError, SuggestsNames
from uetproto.filters.display_filter import FilteredPacket
from uetproto.filters.fields import Seen
from uetproto.filters.lookup import FieldLookup
from uetproto.wire.capture.base import Record
from uetproto.wire.forms import FORMS
from uetproto.wire.packet import RAW_FORMS, Layer, Packet
from uetproto.wire.words.summary import address, from_to, hosts, pds_layer, ses_layer, stamp, summary
from uetproto.wire.words.text import code

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROTOCOLS = (
    ("sharp", "SHARP"), ("mcast", "multicast"), ("pds.", "UET"), ("tss", "UET"), ("lrh", "InfiniBand"), ("bth", "RoCE"),
    ("pfc", "PFC"), ("udp", "UDP"), ("ipv6", "IPv6"), ("ipv4", "IPv4"), ("ethernet", "Ethernet"),
)  # fmt: skip
"""Beginnings of forms, and the protocol of a packet that has such a header; the first that fits counts."""


class PacketView(SuggestsNames, FieldLookup):
    """A packet view is one packet of a capture: when it came, from where, what it says, and its bytes.

    `view["pds.rod_req"]["psn"]` is a field of a header, as in `Packet`, and `view["uetp.psn"]` is a value by its name
    in filters. What the packets around it say, such as `uetp.acked_in`, a packet of `Capture.analysed` has.
    """

    __slots__ = ("_names", "_seen", "packet", "record")

    packet: Packet
    """Decoded packet, as `uetproto.decode` returns it; opened, if it was sealed and there is a key."""
    record: Record
    """Record of the capture, whose time, length and interface are those of the packet."""

    def __init__(
        self, record: Record, packet: Packet, names: tuple[str, str] = ("", ""), seen: FilteredPacket | None = None
    ) -> None:
        """Make the view of a record. `names` has the names of its interface and of its capture; `seen` has what filters
        look at."""
        self.record, self.packet, self._names, self._seen = record, packet, names, seen

    @property
    def seen(self) -> Seen:
        """Return what the readers of fields look at."""
        return self._seen or AlonePacket(self.record, self.packet, self._names[0])

    # When and where ---------------------------------------------------------------------------------------------------

    @property
    def index(self) -> int:
        """Return the number of the packet, counted from 0."""
        return self.record.index

    @property
    def number(self) -> int:
        """Return the number of the packet, counted from 1, as Wireshark counts."""
        return self.record.index + 1

    @property
    def time_ns(self) -> int:
        """Return the time in nanoseconds since 1970, UTC."""
        return self.record.time_ns

    @property
    def time(self) -> datetime:
        """Return the time, to the microsecond. Raises `LocalError` for a time that a datetime cannot hold, which only a
        damaged capture has."""
        try:
            return _EPOCH + timedelta(microseconds=self.record.time_ns // 1000)
        except OverflowError:
            raise LocalError(
                "time", f"{self.record.time_ns} ns of packet {self.number}", "years up to 9999; `time_ns` has any",
                id="time-not-shown"
            ) from None  # fmt: skip

    @property
    def interface(self) -> str:
        """Return the name of the interface, or its number if it has no name."""
        return self._names[0] or str(self.record.interface)

    @property
    def capture(self) -> str:
        """Return the name of the capture that the packet is from."""
        return self._names[1]

    @property
    def length(self) -> int:
        """Return the number of bytes on the wire, which may be more than `data` has."""
        return self.record.length

    @property
    def data(self) -> bytes:
        """Return the bytes of the frame, as captured."""
        return self.record.data

    # What it says -----------------------------------------------------------------------------------------------------

    @property
    def layers(self) -> list[Layer]:  # type: ignore[override]  # a list that nobody assigns
        """Return the headers, the outermost first."""
        return self.packet.layers

    @property
    def payload(self) -> bytes:
        """Return the bytes that the headers carry."""
        return self.packet.payload

    @property
    def src(self) -> str:
        """Return the address of the sender as text: of IP, else of Ethernet; it is empty if there is none."""
        return self._ends()[0]

    @property
    def dst(self) -> str:
        """Return the address of the receiver as text, likewise."""
        return self._ends()[1]

    def _ends(self) -> tuple[str, str]:
        found = hosts(self.packet)
        if found is not None:
            return address(found[0], found[2]), address(found[1], found[2])
        for form, values, _ in self.packet.layers:
            if form == "ethernet":
                return address(values["src"], 48), address(values["dst"], 48)
        return "", ""

    @property
    def protocol(self) -> str:
        """Return the protocol: UET, RoCE, InfiniBand, SHARP, or the innermost lower layer."""
        for start, name in _PROTOCOLS:
            if any(layer.form.startswith(start) for layer in self.packet.layers):
                return name
        return ""

    @property
    def psn(self) -> int | None:
        """Return the PSN of the packet itself, or None if it has none, as an ACK."""
        layer = pds_layer(self.packet)
        values: Mapping[str, Any] = {} if layer is None else layer.values
        if not values and "bth" in self.packet:
            values = self.packet["bth"]
        found: int | None = values.get("psn")
        return found

    @property
    def opcode(self) -> str | None:
        """Return the name of the opcode: of SES, of a control packet, or of RoCE. It is None if there is none."""
        layer = ses_layer(self.packet)
        if layer is not None:
            return _name_of(layer, "opcode")
        layer = pds_layer(self.packet)
        if layer is not None:
            return _name_of(layer, "ctl_type")
        return next((_name_of(layer, "opcode") for layer in self.packet.layers if layer.form == "bth"), None)

    def summary(self) -> str:
        """Return the packet in one line: "ROD_REQ SYN PSN 73728 · WRITE id 1 0–4096 of 12288"."""
        return summary(self.packet)

    # As text ----------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<PacketView #{self.number} {from_to(self.packet)} {self.summary()}>"

    def __str__(self) -> str:
        """Return the headers with their fields, one header a line."""
        lines = [
            f"#{self.number}  {self.time_ns} ns  {self.length} bytes  {from_to(self.packet)}",
            f"  {self.summary()}",
        ]
        lines += [
            f"  {layer.form}: " + ", ".join(f"{name} {text}" for name, text in fields_of(layer))
            for layer in self.packet.layers
        ]
        if self.packet.payload:
            lines.append(f"  payload: {len(self.packet.payload)} bytes")
        if self.packet.error is not None:
            lines.append(f"  {self.packet.error.kind}: {self.packet.error.reason}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = f"#{self.number} · {stamp(self.time_ns)} · {self.length} bytes · {self.summary()}"
        return packet_html(head, [(one.form, one.offset, one.size, fields_of(one)) for one in self.layers], self.data)


class AlonePacket:
    """This class is what the readers of fields look at of a packet whose capture was not analysed."""

    def __init__(self, record: Record, packet: Packet, interface: str) -> None:
        self.record, self.packet, self.interface = record, packet, interface

    def _refuse(self) -> LocalError:
        return LocalError(
            "packet", "the packets around it were not analysed", "packets of capture.analysed()", id="not-analysed"
        )

    @property
    def row(self) -> Mapping[str, Any]:
        raise self._refuse()

    @property
    def since_first(self) -> int:
        raise self._refuse()

    @property
    def since_last(self) -> int:
        raise self._refuse()


def fields_of(layer: Layer) -> list[tuple[str, str]]:
    """Return the fields of a header with their values as text: addresses as such, codes by name."""
    if layer.form in RAW_FORMS:
        return [("raw", layer.values["raw"].hex())]
    header = FORMS[layer.form]
    found = []
    for name, value in layer.values.items():
        text = str(value)
        if name in ("src", "dst") and layer.form in ("ethernet", "ipv4", "ipv6"):
            text = address(value, header[name].bits)
        elif (codes := header[name].values) is not None and issubclass(codes, IntEnum):
            text = f"{value} ({code(codes, value)})"
        found.append((name, text))
    return found


def _name_of(layer: Layer, field: str) -> str | None:
    """Return the name of the code in a field of a header. It is None if the header has no such field."""
    if field not in layer.values:
        return None
    codes = FORMS[layer.form][field].values
    value: int = layer.values[field]
    return code(codes, value) if codes is not None and issubclass(codes, IntEnum) else str(value)
