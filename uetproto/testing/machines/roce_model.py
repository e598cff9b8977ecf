# SPDX-License-Identifier: GPL-2.0-only
"""The model of two queue pairs on RC: the memory that each end may access, what completes in which order, and what the
receives, reads and atomics return.

An end executes the requests of its peer in posting order and once each, so the model computes the result of an atomic
when the atomic is posted (roce.md §15).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.errors import shown
from uetproto.testing.machines.judge import Verdicts
from uetproto.testing.machines.world import IMPLEMENTATION, PEER, WorldFailure

NAMES = ("the implementation", "the peer")
WINDOW = 2560
"""Number of bytes of the region that a peer may access."""
COUNTER = WINDOW - 8
"""Offset in the region of the 8 bytes that all atomics change."""
_MASK = (1 << 64) - 1

ORDER, EARLY, FAILED, COMPLETED = (
    "ROCE-COMPLETION-ORDER", "ROCE-COMPLETED-EARLY", "ROCE-COMPLETED-FAILED", "ROCE-COMPLETED",
)  # fmt: skip
RECEIVED, MEMORY, READ, ATOMIC = "ROCE-RECEIVED", "ROCE-MEMORY", "ROCE-READ-DATA", "ROCE-ATOMIC-RESULT"


@dataclass(slots=True)
class RoceRequest:
    """A request is a work request of the send queue of an end."""

    number: int
    op: str
    offset: int = 0
    """Offset in the region of the other end."""
    data: bytes = b""
    """Bytes to send or to write, or what a read must return if no later write changes it."""
    imm: int | None = None
    before: int = 0
    """Value of the counter before an atomic."""
    after: int = 0
    """Value of the counter after an atomic."""
    later: list["RoceRequest"] = field(default_factory=list)
    """Writes that were posted after a read and before its completion, and that a repeated read may return."""

    @property
    def receives(self) -> bool:
        """Return whether the request uses a receive of the other end."""
        return self.op == "send" or (self.op == "write" and self.imm is not None)

    def at(self, offset: int) -> int | None:
        """Return the byte that a write stores at an offset, or None if it stores none there."""
        place = offset - self.offset
        return self.data[place] if self.op == "write" and 0 <= place < len(self.data) else None


class RoceEndModel:
    """This class has the requests and receives of one end, and the region of the other end, which they change."""

    def __init__(self, region: bytes) -> None:
        """`region` is the content of the region of the other end."""
        self.pending: deque[RoceRequest] = deque()
        """Requests without a completion."""
        self.posted = bytearray(region)
        """Content of the region when all posted requests are executed."""
        self.done = bytearray(region)
        """Content of the region when only completed requests are executed."""
        self.counter = int.from_bytes(region[COUNTER:], "little")
        self.counters = {self.counter}
        """Values that the counter may have now."""
        self.seen = bytes(region)
        """Content of the region of the other end when it was observed last."""
        self.messages: deque[RoceRequest] = deque()
        """Requests that use a receive of the other end, and that were not received."""
        self.receives: deque[int] = deque()
        """Posted receives of this end without a completion."""


class RoceModel:
    """This class compares the events of both ends, and their memory, with the protocol."""

    def __init__(self, verdicts: Verdicts, observable: bool, losses: int, regions: tuple[bytes, bytes]) -> None:
        """`observable` and `losses` are capabilities of the implementation; `regions` is the content of the regions of
        both ends."""
        self._verdicts, self._observable, self._losses = verdicts, observable, losses
        self.ends = RoceEndModel(regions[PEER]), RoceEndModel(regions[IMPLEMENTATION])
        self.shows = [observable, True]
        """Whether the memory of each end can be observed."""
        self.failed = False
        """Whether a request or a receive has failed, so that others may fail or stay."""

    # Work

    def post(self, node: int, request: RoceRequest) -> None:
        """Note that an end posts a request."""
        end = self.ends[node]
        if request.op == "write":
            for read in end.pending:
                if read.op == "read":
                    read.later.append(request)
            end.posted[request.offset : request.offset + len(request.data)] = request.data
        elif request.op == "atomic":
            end.counter = request.after
            end.counters.add(end.counter)
        end.pending.append(request)
        if request.receives:
            end.messages.append(request)

    def expected(self, node: int, offset: int, length: int) -> bytes:
        """Return what a read that is posted now must return."""
        return bytes(self.ends[node].posted[offset : offset + length])

    def missing_receives(self, node: int) -> int:
        """Return the number of receives that an end must still post for the requests of its peer."""
        return max(0, len(self.ends[1 - node].messages) - len(self.ends[node].receives))

    # Events

    def on_event(self, node: int, event: Mapping[str, Any], disturbed: int) -> None:
        """Compare an event of an end. `disturbed`: number of frames that were lost so far. Raises `WorldFailure`."""
        kind = event.get("event")
        if kind not in ("completion", "received"):
            return
        ok = event.get("ok") is True
        if not ok:
            self._verdicts.judged[FAILED] += 1
            if not self.failed and disturbed <= self._losses:
                raise WorldFailure(
                    FAILED, f"{shown(event.get('id'))} of {NAMES[node]} failed ({shown(event.get('reason'))}); only"
                    f" {disturbed} frames were lost"
                )  # fmt: skip
            self.failed = True
        if kind == "received":
            self._on_received(node, event, ok)
        else:
            self._on_completion(node, event, ok)

    def _on_received(self, node: int, event: Mapping[str, Any], ok: bool) -> None:
        receives, messages = self.ends[node].receives, self.ends[1 - node].messages
        self._verdicts.judged[RECEIVED] += 1
        number, what = event.get("id"), f"receive {shown(event.get('id'))} of {NAMES[node]}"
        if not receives or receives[0] != number:
            raise WorldFailure(ORDER, f"{what} completed; {_next(receives)}")
        receives.popleft()
        if not ok:
            return
        if not messages:
            raise WorldFailure(RECEIVED, f"{what} completed, but {NAMES[1 - node]} has sent nothing more")
        message = messages.popleft()
        data = message.data if message.op == "send" else b""
        if event.get("data") != data.hex() or event.get("imm") != message.imm:
            raise WorldFailure(
                RECEIVED, f"{what} has {shown(event.get('data'))}, immediate {shown(event.get('imm'))}; {message.op}"
                f" {message.number} has {shown(data.hex())}, immediate {message.imm}"
            )  # fmt: skip

    def _on_completion(self, node: int, event: Mapping[str, Any], ok: bool) -> None:
        end, number = self.ends[node], event.get("id")
        self._verdicts.judged[ORDER] += 1
        if not end.pending or end.pending[0].number != number:
            numbers = [request.number for request in end.pending]
            raise WorldFailure(ORDER, f"request {shown(number)} of {NAMES[node]} completed; {_next(numbers)}")
        request = end.pending[0]
        if not ok:
            end.pending.popleft()
            return
        self._check_result(node, request, event)
        end.pending.popleft()

    def _check_result(self, node: int, request: RoceRequest, event: Mapping[str, Any]) -> None:
        """Compare what a request returned and what it did to the memory of the other end."""
        end, what = self.ends[node], f"{request.op} {request.number} of {NAMES[node]}"
        if request.op == "read":
            self._verdicts.judged[READ] += 1
            _check_read(what, request, event.get("data"))
        elif request.op == "atomic":
            self._verdicts.judged[ATOMIC] += 1
            if event.get("old") != request.before:
                raise WorldFailure(ATOMIC, f"{what} returned {shown(event.get('old'))}, and not {request.before}")
            end.counters = {request.after, *(each.after for each in end.pending if each.op == "atomic")}
        if request.op in ("read", "atomic"):
            return
        if node == PEER and not self._observable:
            self._verdicts.skip(EARLY, "observe gives no events and no memory")
            return
        self._verdicts.judged[EARLY] += 1
        if any(message is request for message in end.messages):
            raise WorldFailure(EARLY, f"{what} completed; {NAMES[1 - node]} has not completed a receive for it")
        if request.op == "write":
            end.done[request.offset : request.offset + len(request.data)] = request.data
            if self.shows[1 - node]:
                self._check_memory(1 - node, EARLY, f"{what} completed; ")
            else:
                self._verdicts.skip(EARLY, "observe gives no memory")

    # Memory

    def on_memory(self, node: int, memory: str) -> None:
        """Take the region of an end in hexadecimal: each byte is what completed writes stored, or what a write without
        a completion stores. Raises `WorldFailure`."""
        try:
            seen = bytes.fromhex(memory)
        except ValueError:
            seen = b""
        if len(seen) != WINDOW:
            raise WorldFailure(MEMORY, f"the region of {NAMES[node]} is {shown(memory)}, and not {WINDOW} bytes")
        end = self.ends[1 - node]
        end.seen = seen
        self._check_memory(node, MEMORY, "")
        values = {int.from_bytes(seen[COUNTER:], "little"), int.from_bytes(seen[COUNTER:], "big")}
        if not values & end.counters:
            legal = ", ".join(map(str, sorted(end.counters)))
            raise WorldFailure(MEMORY, f"the counter of {NAMES[node]} is {min(values)}; legal is {legal}")

    def _check_memory(self, node: int, name: str, after: str) -> None:
        """Compare the bytes before the counter with the writes."""
        end = self.ends[1 - node]
        self._verdicts.judged[name] += 1
        if end.seen[:COUNTER] == end.done[:COUNTER]:
            return
        writes = [each for each in end.pending if each.op == "write"]
        for at in range(COUNTER):
            byte, done = end.seen[at], end.done[at]
            if byte != done and not any(write.at(at) == byte for write in writes):
                raise WorldFailure(
                    name, f"{after}byte {at} of the region of {NAMES[node]} is {byte:#04x}; the last write that"
                    f" completed stored {done:#04x}"
                )  # fmt: skip

    # The end

    def is_done(self) -> bool:
        """Return whether all requests completed. Those of a black box never do, so that it gets all the time there is
        to send again."""
        return not any(end.pending for end in self.ends)

    def end(self, disturbed: int) -> None:
        """Compare the end of a run, after which the network delivered everything. `disturbed`: number of frames that
        were lost. Raises `WorldFailure`."""
        if not self._observable and disturbed > self._losses:
            for name in (COMPLETED, MEMORY):
                self._verdicts.skip(name, "observe does not say whether a queue pair has failed")
            return
        for node, end in enumerate(self.ends):
            if node == IMPLEMENTATION and not self._observable:
                self._verdicts.skip(COMPLETED, "observe gives no completions")
            else:
                self._verdicts.judged[COMPLETED] += 1
                if end.pending and not self.failed:
                    first = end.pending[0]
                    raise WorldFailure(
                        COMPLETED, f"{first.op} {first.number} of {NAMES[node]} never completed, although the network"
                        " delivers all frames"
                    )  # fmt: skip
            if not self.shows[1 - node]:
                self._verdicts.skip(MEMORY, "observe gives no memory")
            elif not self.failed and end.seen[:COUNTER] != end.posted[:COUNTER]:
                raise WorldFailure(MEMORY, f"the region of {NAMES[1 - node]} has not all bytes that were written")


def _next(numbers: Any) -> str:
    return f"the next one to complete is {numbers[0]}" if numbers else "none is posted"


def _check_read(what: str, request: RoceRequest, data: Any) -> None:
    """Compare what a read returned with the region, which writes posted after the read may have changed."""
    try:
        got = bytes.fromhex(data)
    except (TypeError, ValueError):
        got = None
    if got is None or len(got) != len(request.data):
        raise WorldFailure(READ, f"{what} returned {shown(data)}, and not {len(request.data)} bytes")
    for at, (byte, due) in enumerate(zip(got, request.data, strict=True)):
        if byte != due and not any(write.at(request.offset + at) == byte for write in request.later):
            raise WorldFailure(READ, f"{what}: byte {at} is {byte:#04x}, and not {due:#04x}")


def after_atomic(kind: str, before: int, operand: int, swap: int) -> int:
    """Return the value that an atomic stores where it finds `before`."""
    if kind == "fetch_add":
        return before + operand & _MASK
    return swap if before == operand else before
