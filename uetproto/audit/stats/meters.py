# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the conversations of one vantage point. An open conversation has a meter; a closed conversation
becomes a row.

`uet.py` and `roce.py` translate the events of the trackers into calls of the meters.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from uetproto.audit.finding import Flow
from uetproto.audit.flows import SILENT
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.stats.flow import FlowMeter
from uetproto.audit.stats.message import MessageMeter
from uetproto.audit.stats.rows import RowTable
from uetproto.audit.stats.times import Times
from uetproto.audit.stats.trace import Trace
from uetproto.wire.crc import CRC_SIZE
from uetproto.wire.flow_crc import NOTHING
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.icrc import ICRC_SIZE
from uetproto.wire.implied import implied_payload

REQUESTS, MOST_OPEN, LEAST_OPEN = 1_000_000, 32_768, 128
"""`REQUESTS` is the greatest number of open requests that all flows together keep. `MOST_OPEN` and `LEAST_OPEN` bound
the number that one flow keeps. No window of a PDC is wider than `MOST_OPEN` (UE 1.0.1 §3.5.8.2)."""
TRACES = 256
"""Greatest number of flows whose trace is kept for a picture. The flows with the most packets are kept."""
_UNWANTED = 64
"""Numbers that are kept to be offered when a chosen number does not occur."""
_UNTRACED: list[Any] = []
"""Stands for the flows with a trace if no picture is made. It stays empty."""
_CE = Ecn.CE


@dataclass(slots=True)
class Drawn:
    """This record describes a flow that may be drawn in a plot."""

    flow: dict[str, Any]
    kind: str
    packets: int
    trace: Trace
    answered: Times
    latency: Times


@dataclass(slots=True)
class Measurements:
    """This record holds what was measured at one vantage point."""

    file: str
    interface: str
    flows: RowTable
    messages: RowTable
    kinds: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))
    """Number of packets by their first header of UET or RoCE."""
    packets: int = 0
    bytes: int = 0
    first_ns: int | None = None
    """Time of the first packet in nanoseconds, or None if there was no packet."""
    last_ns: int = 0
    answered: Times = field(default_factory=Times)
    """Times from a request to its ACK, over all flows."""
    latency: tuple[tuple[str, Times], ...] = ()
    """Opcodes, each with the latencies of its messages, over all flows. A dict would be larger."""
    drawn: Sequence[Drawn] = ()
    unwanted: frozenset[int] = frozenset()
    """Some of the PDCIDs and queue pairs that occur but were not chosen."""

    def latency_of(self, opcode: str) -> Times:
        """Return the latencies of the messages with an opcode."""
        for known, times in self.latency:
            if known == opcode:
                return times
        self.latency += ((opcode, times := Times()),)
        return times


class Meters:
    """This class holds the meters of one vantage point. An open conversation has a meter, which is found by the
    tracker's state of that conversation."""

    __slots__ = (
        "_crc", "_draw", "_number", "_swept", "_traced", "flows", "length", "measured", "most", "now", "requests",
        "since",
    )  # fmt: skip

    def __init__(
        self, measured: Measurements, *, most: int, wanted: int | None = None, draw: bool = False, crc: bool = True
    ) -> None:
        """Make the meters of a vantage point. Rows of closed flows are added to `measured`.

        `most` is the number of meters that are open at a time; a conversation has two. `wanted` limits the measurement
        to flows of this PDCID or queue pair. `draw` says that traces are kept for a picture, and `crc` that truncated
        packets had a CRC32C.
        """
        self.measured = measured
        self.flows: dict[Any, FlowMeter] = NOTHING
        self.requests = MOST_OPEN
        """Requests that a meter keeps open."""
        self.length = 0
        """Bytes of the present packet, counted on the wire."""
        self.now = 0
        """Time of the present packet in nanoseconds."""
        self.most = most
        self.since: int | None = None
        self._number = wanted
        self._draw = draw
        self._crc = CRC_SIZE if crc else 0
        self._traced: list[FlowMeter] = [] if draw else _UNTRACED
        self._swept = 0

    def of(self, kind: str, state: Any, mask: int) -> FlowMeter:
        """Return the meter of a flow. If the flow has no meter, a new one is opened. `mask` is the largest PSN."""
        return self.flows.get(state) or self._open(kind, state, mask)

    def counted(self, kind: str, state: Any, mask: int, seen: ObservedPacket) -> FlowMeter:
        """Return the meter of a flow as `of` does, and count the present packet, which the sender of the flow sent."""
        flow = self.flows.get(state) or self._open(kind, state, mask)
        flow.count(self.length, seen.time_ns, seen.ecn == _CE)
        return flow

    def size(self, seen: ObservedPacket) -> int:
        """Return the number of payload bytes of a packet. For a truncated packet, headers or the length on the wire
        imply this number."""
        if seen.size >= 0:
            return seen.size
        packet = seen.packet
        if packet is None or seen.is_trimmed or not packet.layers:
            return 0
        rest = self.length - packet.payload_offset
        if "bth" in packet:
            return max(0, rest - int(packet["bth"]["padcnt"]) - ICRC_SIZE)
        implied = implied_payload(packet.layers)
        return max(0, rest - self._crc if implied is None else implied)

    def over(self, flow: FlowMeter, message: MessageMeter, latency: int | None) -> None:
        """Add the measurements of a closed message as a row."""
        if self._number is not None and not self._is_wanted(flow.state.flow()):
            return
        self.measured.messages.add(
            message.packets, message.bytes, message.payload + message.returned, message.resent,
            lambda: message.row(flow.flow(), latency),
        )  # fmt: skip
        if latency is not None:
            self.measured.latency_of(message.opcode).add(latency)

    def __len__(self) -> int:
        return len(self.flows)

    @property
    def is_blank(self) -> bool:
        """Return whether new meters would do the same as these."""
        return not (self.flows or self._traced)

    def times(self) -> Iterator[int]:
        """Yield the time in nanoseconds of the last packet of each open flow."""
        return (flow.last_ns for flow in self.flows.values())

    def sweep(self, quiet: bool = False) -> None:
        """Close the meters of flows that are over or have been silent for long. If there are still too many flows,
        close the meters of the least recent flows. The flow of a closed PDC is over if no packet of it came since the
        last sweep or if `quiet` is True."""
        flows = self.flows
        for state in [state for state, flow in flows.items() if self._is_over(flow, quiet)]:
            self._close(state)
        if len(flows) > self.most or self.since is not None:
            oldest = sorted(flows, key=lambda state: flows[state].last_ns)
            surplus = max(0, len(flows) - self.most)
            if self.since is not None:
                surplus = max(surplus, bisect_left(oldest, self.since, key=lambda state: flows[state].last_ns))
                self.since = None
            for state in oldest[:surplus]:
                self._close(state)
        if not flows:
            self.flows = NOTHING
        self.requests = max(LEAST_OPEN, min(MOST_OPEN, REQUESTS // max(1, len(flows))))
        self._swept = self.now

    def end(self) -> None:
        """Close all flows. This must be called after the last packet."""
        for state in list(self.flows):
            self._close(state)
        if self._draw:
            self._end_traces()

    def _end_traces(self) -> None:
        self._traced = self._most_interesting()
        self.measured.drawn = [
            Drawn(dict(flow.state.flow()), flow.kind, flow.packets, flow.trace, flow.answered, flow.latency)
            for flow in self._traced
            if flow.trace is not None
        ]

    def _open(self, kind: str, state: Any, mask: int) -> FlowMeter:
        if self.flows is NOTHING:
            self.flows = {}
        flow = self.flows[state] = FlowMeter(kind, state, mask, self.now, self)
        if self._draw and kind != "rudi":
            flow.trace = Trace(mask)
            self._traced.append(flow)
            if len(self._traced) > 2 * TRACES:
                self._traced = self._most_interesting()
        return flow

    def _close(self, state: Any) -> None:
        self.flows[state].end()
        flow = self.flows.pop(state)
        if self._number is None or self._is_wanted(flow.state.flow()):
            self.measured.flows.add(flow.packets, flow.bytes, flow.payload, flow.resent, flow.row)
            self.measured.answered.merge(flow.answered)
        elif len(self.measured.unwanted) < _UNWANTED:
            self.measured.unwanted |= _numbers_of(flow.state.flow())

    def _is_over(self, flow: FlowMeter, quiet: bool) -> bool:
        if flow.last_ns < self.now - SILENT:
            return True
        return flow.kind == "pdc" and flow.state.pdc.closed and (quiet or flow.last_ns < self._swept)

    def _is_wanted(self, flow: Flow) -> bool:
        return self._number is None or self._number in _numbers_of(flow)

    def _most_interesting(self) -> list[FlowMeter]:
        """Return the flows to draw with the most packets, and drop the traces of the others."""
        wanted = [flow for flow in self._traced if self._is_wanted(flow.state.flow())]
        wanted.sort(key=lambda flow: -flow.packets)
        kept = wanted[:TRACES]
        for flow in self._traced:
            if flow not in kept:
                flow.trace = None
        return kept


def _numbers_of(flow: Flow) -> set[int]:
    return {flow[name] for name in ("spdcid", "dpdcid", "destqp", "srcqp") if flow.get(name)}


def name_in(names: type[Enum], value: int) -> str:
    """Return the name of a code, or its number if the code has no name."""
    try:
        return names(value).name
    except ValueError:
        return f"{value:#x}"
