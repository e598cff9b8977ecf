# SPDX-License-Identifier: GPL-2.0-only
"""This module finds RoCE packets that are shorter than their length fields say, although the capture does not mark them
as truncated.

Some capture tools keep a fixed number of bytes of each packet and record that number as the packet's length. By the
rules of roce.md §4 alone, such a packet cannot be distinguished from a malformed one. A packet is suspected to be
truncated in this way only if no packet of the capture has more bytes.
"""

from collections.abc import Callable, Mapping
from typing import Any

from uetproto.audit.reader.expected_values import Misfit
from uetproto.wire.packet import Packet

SUSPECTED = "suspected truncation"
"""Note that marks a packet as perhaps truncated."""

_ENDS: dict[str, tuple[str, Callable[[Mapping[str, Any]], int]]] = {
    # form   field              where the packet ends, from its offset on
    "ipv4": ("total_length",   lambda values: values["total_length"]),
    "ipv6": ("payload_length", lambda values: values["payload_length"] + 40),
    "lrh":  ("pktlen",         lambda values: values["pktlen"] * 4),
    "grh":  ("paylen",         lambda values: values["paylen"] + 40),
}  # fmt: skip


def mark_suspected(packet: Packet, kept: int) -> None:
    """Mark `packet` as perhaps truncated if its headers say that it is longer than `kept`, its number of bytes
    according to the capture."""
    sent = 0
    if "erf" in packet and "lrh" in packet:  # the ERF record holds the length on the wire
        sent = next(layer.offset for layer in packet.layers if layer.form == "lrh") + packet["erf"]["wlen"]
    if "truncated" in packet.notes and sent <= kept:
        packet.notes += (SUSPECTED,)


def kept_bytes(packet: Packet) -> int:
    """Return how many bytes of a packet are left if its end is missing."""
    return packet.payload_offset + len(packet.payload) + len(packet.raw)


def missing_end(packet: Packet) -> Misfit:
    """Return a `Misfit` that names the outermost length field of a packet, and says how many bytes before the stated
    end the packet ends."""
    form, values, offset = next(layer for layer in packet.layers if layer.form in _ENDS)
    name, end_of = _ENDS[form]
    missing = offset + end_of(values) - kept_bytes(packet)
    return Misfit("lengths that agree", f"{form}.{name}: the packet ends {missing} bytes earlier")
