"""This module makes the rows of `uetproto stats`: a closed conversation becomes a row, and rows beyond a limit are
summed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.audit.finding import Flow
from uetproto.audit.stats.times import Quantiles

ROWS, ALL_ROWS = 10_000, 20_000
"""Rows of each kind that are kept of a vantage point, and of all together; the others are summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    """A row has the counts of what one end sent to the other: requests of a PDC, packets of a queue pair, RUDI or
    UUD."""

    kind: str
    """Kind of flow: "pdc", "rudi", "uud" or "qp"."""
    flow: Flow
    number: int
    """Number of this use of the same PDCIDs, from 1."""
    mode: str | None
    """Mode of a PDC, "ROD" or "RUD"; None: the flow is no PDC."""
    first_ns: int
    last_ns: int
    busy_ns: int
    """Time in nanoseconds at which payload was last sent or acknowledged."""
    packets: int
    bytes: int
    """Bytes that were sent on the wire, with all headers and every copy."""
    payload: int
    """Bytes of payload that were sent; every packet counts once."""
    returned: int
    """Bytes of payload that came back in ACKs."""
    resent: Mapping[str, int]
    """Numbers of retransmissions by cause."""
    duplicates: int
    """Number of copies that are not retransmissions."""
    trimmed: int
    marked: int
    """Number of packets with CE."""
    reordered: int
    """Number of first transmissions that were seen after a newer one."""
    depth: int
    """Largest number of PSNs by which a first transmission was late."""
    acks: int
    refused: Mapping[str, int]
    """Numbers of NACKs and NAKs by code."""
    window: tuple[int, int] | None
    """Largest number of packets, and of bytes of payload, that were unacknowledged at one time; None: no ACK was
    seen."""
    answered: Quantiles
    """Time from a request to the first ACK that covers it, for requests that were sent once."""
    messages: int
    latency: Quantiles
    """Time from the first packet of a message to its last response."""

    @property
    def goodput(self) -> int | None:
        """Return the bits of payload per second while payload was sent; None: the time is 0."""
        return _rate(self.payload, self.busy_ns - self.first_ns)

    def as_dict(self) -> dict[str, Any]:
        """Return the object of the row in `stats --json`."""
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
class MessageRow:
    """A row has the measurements of one message."""

    flow: Flow
    opcode: str
    message_id: int | None
    psn: int
    """PSN of the first packet; for RUDI, its pkt_id."""
    length: int | None
    """Length of the message in bytes, as its header states it; None: the header does not state it."""
    first_ns: int
    packets: int
    bytes: int
    payload: int
    """Bytes of payload that the message carried and that came back for it; every packet counts once."""
    resent: Mapping[str, int]
    latency: int | None
    """Latency in nanoseconds; None: the first packet, the last packet or an answer was not seen."""

    @property
    def goodput(self) -> int | None:
        return None if self.latency is None else _rate(self.payload, self.latency)

    def as_dict(self) -> dict[str, Any]:
        """Return the object of the row in `stats --json`."""
        return {
            "kind": "message", "flow": dict(self.flow), "opcode": self.opcode, "message_id": self.message_id,
            "psn": self.psn, "length": self.length, "first_ns": self.first_ns, "packets": self.packets,
            "bytes": self.bytes, "payload": self.payload, "resent": dict(self.resent),
            "latency_ns": self.latency, "goodput_bps": self.goodput,
        }  # fmt: skip


Row = FlowRow | MessageRow


@dataclass(slots=True)
class RowTable:
    """A table has the first rows of one kind, and the sums over the other rows."""

    most: int = ROWS
    room: list[int] = field(default_factory=lambda: [ALL_ROWS])
    """Holds the number of rows that all vantage points may still keep."""
    kept: list[Any] = field(default_factory=list)
    packets: int = 0
    bytes: int = 0
    payload: int = 0
    resent: dict[str, int] = field(default_factory=dict)
    """Counts retransmissions by cause; this and the three fields before are sums over all rows."""
    others: dict[str, int] = field(default_factory=dict)
    """Counts the rows that were not kept, and sums the same values over these rows."""

    def add(self, packets: int, size: int, payload: int, resent: Mapping[str, int], row: Callable[[], Row]) -> None:
        """Add the values of a row, and the row itself, which `row` makes, if there is room. `size`: bytes sent."""
        self.packets += packets
        self.bytes += size
        self.payload += payload
        for cause, number in resent.items():
            self.resent[cause] = self.resent.get(cause, 0) + number
        if len(self.kept) < self.most and self.room[0]:
            self.room[0] -= 1
            self.kept.append(row())
            return
        others = self.others = self.others or dict.fromkeys(("rows", "packets", "bytes", "payload", "resent"), 0)
        others["rows"] += 1
        others["packets"] += packets
        others["bytes"] += size
        others["payload"] += payload
        others["resent"] += sum(resent.values())


def _rate(payload: int, ns: int) -> int | None:
    return payload * 8 * 10**9 // ns if ns > 0 else None
