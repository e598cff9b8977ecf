# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the rows of `uetproto stats`. A closed conversation becomes a row, and rows beyond a limit are only
summed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from uetproto.audit.finding import Flow
from uetproto.audit.stats.times import Quantiles
from uetproto.errors import SuggestsNames
from uetproto.wire.flow_crc import NOTHING

ROWS, ALL_ROWS = 10_000, 20_000
"""Number of rows of flows, and of rows of messages, that are kept of one vantage point and of all vantage points
together. Further rows are only summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow(SuggestsNames):
    """This record has the counts of what one end sent to the other: requests of a PDC, or packets of a queue pair, RUDI
    or UUD."""

    kind: str
    """Kind of flow: "pdc", "rudi", "uud" or "qp"."""
    flow: Flow
    number: int
    """Number of this use of the same PDCIDs. It counts from 1."""
    mode: str | None
    """Mode of a PDC, "ROD" or "RUD". It is None if the flow is no PDC, or if the mode is not known."""
    first_ns: int
    last_ns: int
    busy_ns: int
    """Time in nanoseconds at which payload was last sent or acknowledged."""
    packets: int
    bytes: int
    """Bytes that were sent on the wire, with all headers and every copy."""
    payload: int
    """Bytes of payload that were sent. Each packet counts once, however many copies were sent."""
    returned: int
    """Bytes of payload that came back in ACKs of the other end."""
    resent: Mapping[str, int]
    """Number of retransmissions by cause."""
    duplicates: int
    """Number of copies that are not marked as retransmissions, such as copies that the network made."""
    trimmed: int
    marked: int
    """Number of packets with CE."""
    reordered: int
    """Number of first transmissions that were seen after a first transmission with a newer PSN."""
    depth: int
    """Largest number of PSNs by which a first transmission was behind the newest PSN."""
    acks: int
    refused: Mapping[str, int]
    """Number of NACKs and NAKs by code."""
    window: tuple[int, int] | None
    """Two numbers: the most packets that were unacknowledged at one time, and the most bytes of payload. It is None if
    no ACK was seen."""
    answered: Quantiles
    """Quantiles of the time from a request to the first ACK that covers it, for requests that were sent once."""
    messages: int
    latency: Quantiles
    """Quantiles of the time from the first packet of a message to its last response."""

    @property
    def goodput(self) -> int | None:
        """Return the bits of payload per second during the time in which payload was sent, or None if that time is
        0."""
        return _rate(self.payload, self.busy_ns - self.first_ns)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `stats --json` prints for the row."""
        return {
            "kind": self.kind, "flow": dict(self.flow), "number": self.number, "mode": self.mode,
            "first_ns": self.first_ns, "last_ns": self.last_ns, "packets": self.packets, "bytes": self.bytes,
            "payload": self.payload, "returned": self.returned, "resent": dict(self.resent),
            "duplicates": self.duplicates, "trimmed": self.trimmed, "marked": self.marked,
            "reordered": self.reordered, "reordering_depth": self.depth, "acks": self.acks,
            "refused": dict(self.refused), "window_packets": self.window and self.window[0],
            "window_bytes": self.window and self.window[1], "request_to_ack": self.answered.as_dict(),
            "messages": self.messages, "message_latency": self.latency.as_dict(), "goodput_bps": self.goodput,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow(SuggestsNames):
    """This record has the measurements of one message."""

    flow: Flow
    opcode: str
    message_id: int | None
    psn: int
    """PSN of the first packet of the message. For RUDI, this is the pkt_id."""
    length: int | None
    """Length of the message in bytes, as its header states it, or None if the header does not state it."""
    first_ns: int
    packets: int
    bytes: int
    payload: int
    """Bytes of payload that the message carried and that came back for it. Each packet counts once."""
    resent: Mapping[str, int]
    latency: int | None
    """Latency in nanoseconds. It is None if the first packet, the last packet or an answer was not seen."""

    @property
    def goodput(self) -> int | None:
        return None if self.latency is None else _rate(self.payload, self.latency)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `stats --json` prints for the row."""
        return {
            "kind": "message", "flow": dict(self.flow), "opcode": self.opcode, "message_id": self.message_id,
            "psn": self.psn, "length": self.length, "first_ns": self.first_ns, "packets": self.packets,
            "bytes": self.bytes, "payload": self.payload, "resent": dict(self.resent),
            "latency_ns": self.latency, "goodput_bps": self.goodput,
        }  # fmt: skip


Row = FlowRow | MessageRow
_NO_ROWS: list[Any] = []
"""Stands for the rows of a table that has none. It stays empty."""


class RowTable:
    """This class holds the first rows of one type, flows or messages, and the sums over the other rows."""

    __slots__ = ("bytes", "kept", "most", "others", "packets", "payload", "resent", "room")

    def __init__(self, most: int = ROWS, room: list[int] | None = None) -> None:
        """Make a table that keeps `most` rows. `room` is the number of rows that all vantage points together may still
        keep, as a list of one number that they share."""
        self.most = most
        self.room = [ALL_ROWS] if room is None else room
        self.kept: list[Any] = _NO_ROWS
        self.packets = self.bytes = self.payload = 0
        self.resent: dict[str, int] = NOTHING
        """Number of retransmissions by cause. This attribute and the three before it are sums over all rows."""
        self.others: dict[str, int] = NOTHING
        """Number of the rows that were not kept, and the sums over these rows. It is empty if all rows were kept."""

    def add(self, packets: int, size: int, payload: int, resent: Mapping[str, int], row: Callable[[], Row]) -> None:
        """Add the values of a row; `size` is its number of bytes sent. If there is room, keep the row itself, which
        `row` makes."""
        self.packets += packets
        self.bytes += size
        self.payload += payload
        if resent and not self.resent:
            self.resent = {}
        for cause, number in resent.items():
            self.resent[cause] = self.resent.get(cause, 0) + number
        if len(self.kept) < self.most and self.room[0]:
            self.room[0] -= 1
            if self.kept:
                self.kept.append(row())
            else:
                self.kept = [row()]
            return
        others = self.others = self.others or dict.fromkeys(("rows", "packets", "bytes", "payload", "resent"), 0)
        others["rows"] += 1
        others["packets"] += packets
        others["bytes"] += size
        others["payload"] += payload
        others["resent"] += sum(resent.values())


def _rate(payload: int, ns: int) -> int | None:
    return payload * 8 * 10**9 // ns if ns > 0 else None
