"""RoCE packets that end before their lengths say so, though the capture calls what it has of them all there was.

Some captures keep so many bytes of each packet and forget that there were more; roce.md §4 leaves both alike. Those
have no longer packet: one is short only where more was kept of another.
"""

from collections.abc import Callable, Mapping
from typing import Any

from uetproto.audit.rule import Violation
from uetproto.wire.packet import Packet

SHORT = "short"
"""Noted of a packet that may be one."""

_ENDS: dict[str, tuple[str, Callable[[Mapping[str, Any]], int]]] = {
    # form   field              where the packet ends, from its offset on
    "ipv4": ("total_length",   lambda values: values["total_length"]),
    "ipv6": ("payload_length", lambda values: values["payload_length"] + 40),
    "lrh":  ("pktlen",         lambda values: values["pktlen"] * 4),
    "grh":  ("paylen",         lambda values: values["paylen"] + 40),
}  # fmt: skip


def note_short(packet: Packet, kept: int) -> None:
    """Of a packet of which the capture says that it has all, `kept` bytes."""
    sent = 0
    if "erf" in packet and "lrh" in packet:  # this record says better what there was
        sent = next(layer.offset for layer in packet.layers if layer.form == "lrh") + packet["erf"]["wlen"]
    if "truncated" in packet.notes and sent <= kept:
        packet.notes += (SHORT,)


def kept_of(packet: Packet) -> int:
    """How many bytes there are of a packet whose end is missing."""
    return packet.payload_offset + len(packet.payload) + len(packet.raw)


def shortage(packet: Packet) -> Violation:
    """What is missing of a short packet, by its first length."""
    form, values, offset = next(layer for layer in packet.layers if layer.form in _ENDS)
    name, end_of = _ENDS[form]
    missing = offset + end_of(values) - kept_of(packet)
    return Violation("lengths that agree", f"{form}.{name}: the packet ends {missing} bytes earlier")
