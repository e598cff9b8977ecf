"""What remains of a conversation when it is over: a row. Rows beyond a limit are summed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.audit.finding import Flow
from uetproto.audit.stats.times import Quantiles

ROWS = 10_000
"""Rows kept of each kind and vantage point; the others are summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    """What one end sent to the other: requests of a PDC, packets of a queue pair, RUDI or UUD."""

    kind: str
    """pdc, rudi, uud or qp."""
    flow: Flow
    number: int
    """Counts the uses of the same PDCIDs from 1."""
    mode: str | None
    """ROD or RUD, of a PDC."""
    first_ns: int
    last_ns: int
    busy_ns: int
    """When payload was sent or acknowledged for the last time."""
    packets: int
    bytes: int
    """On the wire, with all headers and every copy."""
    payload: int
    """Each packet once."""
    returned: int
    """Payload that came back in ACKs."""
    resent: Mapping[str, int]
    """Retransmissions by cause."""
    duplicates: int
    """Copies that are no retransmissions."""
    trimmed: int
    marked: int
    """With CE."""
    reordered: int
    """First transmissions that were seen behind a newer one."""
    depth: int
    """The most PSNs that one was behind."""
    acks: int
    refused: Mapping[str, int]
    """NACKs and NAKs by code."""
    window: tuple[int, int] | None
    """The most packets, and bytes of payload, that were unacknowledged at a time; None: no ACK was seen."""
    answered: Quantiles
    """From a request to the first ACK that covers it; of requests that were sent once."""
    messages: int
    latency: Quantiles
    """From the first packet of a message to its last response."""

    @property
    def goodput(self) -> int | None:
        """Bits of payload a second, while there was any; None: there is no time to divide by."""
        return _rate(self.payload, self.busy_ns - self.first_ns)

    def as_dict(self) -> dict[str, Any]:
        """A line of `stats --json`."""
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
    """One message."""

    flow: Flow
    opcode: str
    message_id: int | None
    psn: int
    """Of its first packet; of RUDI the pkt_id."""
    length: int | None
    """Bytes that it has, as its header says; None: it does not say."""
    first_ns: int
    packets: int
    bytes: int
    payload: int
    """What it carried, and what came back for it; each packet once."""
    resent: Mapping[str, int]
    latency: int | None
    """None: its first packet, its last one or an answer was not seen."""

    @property
    def goodput(self) -> int | None:
        return None if self.latency is None else _rate(self.payload, self.latency)

    def as_dict(self) -> dict[str, Any]:
        """A line of `stats --json`."""
        return {
            "kind": "message", "flow": dict(self.flow), "opcode": self.opcode, "message_id": self.message_id,
            "psn": self.psn, "length": self.length, "first_ns": self.first_ns, "packets": self.packets,
            "bytes": self.bytes, "payload": self.payload, "resent": dict(self.resent),
            "latency_ns": self.latency, "goodput_bps": self.goodput,
        }  # fmt: skip


Row = FlowRow | MessageRow


@dataclass(slots=True)
class RowTable:
    """Rows of one kind, the first ones; of the others the sums."""

    most: int = ROWS
    kept: list[Any] = field(default_factory=list)
    packets: int = 0
    bytes: int = 0
    payload: int = 0
    resent: Counter[str] = field(default_factory=Counter)
    """These four are of all rows."""
    others: Counter[str] = field(default_factory=Counter)
    """Of rows that were not kept: how many, and the same sums."""

    def add(self, row: Row) -> None:
        self.packets += row.packets
        self.bytes += row.bytes
        self.payload += row.payload
        self.resent.update(row.resent)
        if len(self.kept) < self.most:
            self.kept.append(row)
            return
        resent = sum(row.resent.values())
        self.others.update(
            {"rows": 1, "packets": row.packets, "bytes": row.bytes, "payload": row.payload, "resent": resent}
        )


def _rate(payload: int, ns: int) -> int | None:
    return payload * 8 * 10**9 // ns if ns > 0 else None
