# SPDX-License-Identifier: GPL-2.0-only
"""The model of SES: what each operation must return, which receive takes which message, and what memory must hold.

Operations on ROD are executed in the order of their submission; the others work on bytes that no other operation uses
at the same time (ses.md §11, §13, §15).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.errors import shown
from uetproto.testing.machines.judge import Verdicts
from uetproto.testing.machines.ses_memory import RegionModel
from uetproto.testing.machines.world import IMPLEMENTATION, PEER, WorldFailure
from uetproto.wire.headers.uet_ses import ReturnCode

NAMES = ("the implementation", "the peer")
COMPLETED, COMPLETED_ONCE, COMPLETED_EARLY = "SES-COMPLETED", "SES-COMPLETED-ONCE", "SES-COMPLETED-EARLY"
FAILED, RETURN_CODE = "SES-FAILED", "SES-RETURN-CODE"
READ_DATA, ATOMIC_RESULT, MEMORY = "SES-READ-DATA", "SES-ATOMIC-RESULT", "SES-MEMORY"
RECEIVED, RECEIVED_ONCE, RECEIVED_WRONG = "SES-RECEIVED", "SES-RECEIVED-ONCE", "SES-RECEIVED-WRONG"
MATCH, ORDER = "SES-MATCH", "SES-MATCH-ORDER"
TRUNCATED, CANCELLED = "SES-TRUNCATED", "SES-CANCELLED"
ALL_BITS = (1 << 64) - 1
LOST = "more frames were lost than the implementation bears"
TELLING = 8
"""Bytes from which on no two messages of a run are equal."""

OK = frozenset({ReturnCode.OK})
SENDS = OK | {ReturnCode.NO_MATCH, ReturnCode.DISABLED_GEN, ReturnCode.DISABLED, ReturnCode.UNCOR_TRNSNT}
"""Codes of a send; all but OK say that it found no receive in time (ses.md §11.2)."""
LONG = frozenset({ReturnCode.TOO_LONG, ReturnCode.UNSUPPORTED_SIZE})
"""Codes of a send that is longer than its receive if the target does not truncate (ses.md §10 step 14, §17 row 6)."""


@dataclass(slots=True, kw_only=True)
class AskedOperation:
    """An operation that the initiator was told to do."""

    number: int
    op: str
    mode: str
    codes: frozenset[ReturnCode] = OK
    key: int = 0
    offset: int = 0
    data: bytes = b""
    tag: int | None = None
    source: int = 0
    """Initiator id of a message."""
    kind: str = "plain"
    wanted: bytes | None = None
    """What a read, or an atomic that fetches, must return; None: it returns nothing, or its order is open."""
    counts: bool = False
    """Whether it fetches and adds 1, in any order with others."""
    observable: bool = False
    """Whether its bytes must be in memory when it has completed."""
    late: bool = False
    """Whether its bytes may still be on their way into memory when it has completed: it is a write without delivery
    complete, and later operations have no order with it (ses.md §13.2). Nothing else then works on these bytes."""
    ended: bool | None = None
    """Whether it succeeded; None before its completion."""
    epoch: int = 0
    """How often PDCs were closed before. Between operations of different epochs there is no order."""
    receive: int | None = None
    """The id of the receive that took the message. A datagram that the network copied may be taken again."""

    @property
    def is_send(self) -> bool:
        """Return whether it is a message to a receive."""
        return self.op in ("send", "tagged_send") and ReturnCode.OK in self.codes

    @property
    def origin(self) -> str:
        """Return tag and initiator id of a message, in words."""
        return f"tag {self.tag}" + (f", initiator {self.source}" if self.source else "")

    def __str__(self) -> str:
        return f"{self.op} {self.number} ({self.mode})"


@dataclass(slots=True)
class ModelReceive:
    """A receive that the target was told to post."""

    number: int
    tag: int | None
    ignore: int
    room: int
    """Number of bytes that it takes."""
    source: int | None = None
    """Initiator id of the messages that it takes; None: those of any."""
    taken: int | None = None
    """The id of the send that it took; -1: its message failed."""
    withdrawn: bool = False
    """Whether the target was told to cancel it, and did not refuse."""
    cancelled: bool = False

    def matches(self, sent: AskedOperation) -> bool:
        """Return whether it may take a send (ses.md §2.7, §11.3)."""
        if self.source is not None and self.source != sent.source:
            return False
        if self.tag is None or sent.tag is None:
            return self.tag is sent.tag
        return (self.tag ^ sent.tag) & ~self.ignore & ALL_BITS == 0


@dataclass(slots=True)
class SesModel:
    """This class compares the events of both ends, and the memory of the target, with the protocol."""

    verdicts: Verdicts
    initiator: int
    """Number of the end that submits operations; the other end is their target."""
    observed: tuple[bool, bool]
    """Whether the events of each end are observed."""
    losses: int
    """How many frames may be lost before an operation may fail."""
    regions: dict[int, RegionModel]
    peek: Callable[[int, int, int], bytes | None]
    """Returns bytes of a region of the target, by key, offset and length; None: it cannot."""
    counter: tuple[int, int]
    """Key and offset of the counter to which operations that count add."""
    operations: dict[int, AskedOperation] = field(default_factory=dict)
    receives: dict[int, ModelReceive] = field(default_factory=dict)
    fetched: list[int] = field(default_factory=list)
    gave_up: bool = False
    """Whether an operation failed because too many frames were lost; its effect is then open."""
    repeats: bool = False
    """Whether frames were lost or late so far, so that they may have been sent again."""
    epoch: int = 0
    """How often PDCs were closed."""
    _mixed: bool = False
    """Whether operations of an earlier epoch may still be under way."""

    @property
    def target(self) -> int:
        return 1 - self.initiator

    def mix(self) -> None:
        """Note that an end closes its PDCs."""
        self.epoch += 1
        self._mixed = True

    def under_way(self) -> int:
        """Return the number of operations of which no completion was observed."""
        return sum(asked.ended is None for asked in self.operations.values())

    def is_in_order(self) -> bool:
        """Return whether operations on ROD are executed in the order of their submission: not after a close, as their
        PDC is another one. Our own engine, as the target, has executed what has completed."""
        self._mixed = self._mixed and (self.target == IMPLEMENTATION or self.under_way() > 0)
        return not self._mixed

    # Events

    def on_event(self, node: int, event: Mapping[str, Any], disturbed: int) -> None:
        """Compare an event of an end. `disturbed`: number of frames that were lost so far. Raises `WorldFailure`."""
        kind = event.get("event")
        if kind == "completion" and node == self.initiator:
            self._on_completion(event, disturbed)
        elif kind == "received" and node == self.target:
            self._on_received(event, disturbed)
        elif kind == "cancelled" and node == self.target:
            self._on_cancelled(event.get("id"))

    def _judge(self, name: str, holds: bool, text: str) -> None:
        self.verdicts.judged[name] += 1
        if not holds:
            raise WorldFailure(name, text)

    def _on_completion(self, event: Mapping[str, Any], disturbed: int) -> None:
        number = event.get("id")
        asked = self.operations.get(number) if isinstance(number, int) else None
        if asked is None or asked.ended is not None:
            why = "was never submitted" if asked is None else "had completed before"
            raise WorldFailure(COMPLETED_ONCE, f"operation {shown(number)} of {NAMES[self.initiator]} {why}")
        self.verdicts.judged[COMPLETED_ONCE] += 1
        if asked.key in self.regions and not asked.late:
            self.regions[asked.key].done(asked.number, repeats=asked.mode == "rudi")
        ok, code = event.get("ok") is True, event.get("code")
        asked.ended = ok
        if code == ReturnCode.UNDELIVERABLE or (not ok and code is None and ReturnCode.OK in asked.codes):
            self._judge(
                FAILED, disturbed > self.losses,
                f"{asked} failed ({shown(event.get('reason'))}); only {disturbed} frames were lost",
            )  # fmt: skip
            self.gave_up = True
            return
        self._check_code(asked, ok, code)
        if ok:
            self._check_result(asked, event.get("data"))
            self._check_effect(asked)

    def _check_code(self, asked: AskedOperation, ok: bool, code: Any) -> None:
        codes = asked.codes | (LONG if asked.is_send and self._may_be_long(asked) else frozenset())
        legal = " or ".join(f"{each.name} ({each:#04x})" for each in sorted(codes))
        if code is None:
            self._judge(RETURN_CODE, ok == (ReturnCode.OK in asked.codes), f"{asked}: ok is {ok}; legal is {legal}")
            if not ok:
                self.verdicts.skip(RETURN_CODE, "a completion gives no code")
            return
        told = f"{code:#04x}" if isinstance(code, int) else shown(code)
        self._judge(RETURN_CODE, code in codes, f"{asked} returned {told}; legal is {legal}")
        self._judge(RETURN_CODE, ok == (code == ReturnCode.OK), f"{asked} returned {told}, but ok is {ok}")

    def _may_be_long(self, asked: AskedOperation) -> bool:
        """Return whether there was a receive for the message that is too short."""
        return any(each.matches(asked) and each.room < len(asked.data) for each in self.receives.values())

    def _check_result(self, asked: AskedOperation, data: Any) -> None:
        if asked.wanted is None and not asked.counts:
            return
        name = READ_DATA if asked.op == "read" else ATOMIC_RESULT
        found = _bytes(data)
        if self.gave_up:
            self.verdicts.skip(name, LOST)
        elif found is None:
            self.verdicts.skip(name, "a completion gives no data")
        elif asked.counts:
            self.fetched.append(int.from_bytes(found, "little"))
        elif asked.wanted is not None and self._may_repeat(asked, found):
            self.verdicts.skip(name, "a read that is repeated may return newer bytes")
        elif asked.wanted is not None:
            self._judge(name, found == asked.wanted, f"{asked} at {asked.offset} {_difference(found, asked.wanted)}")

    def _may_repeat(self, asked: AskedOperation, found: bytes) -> bool:
        """Return whether a wrong result may come from a read that was executed again for a lost ACK (ses.md §9.6)."""
        if asked.op != "read" or found == asked.wanted or not self.repeats:
            return False
        return self.regions[asked.key].may_repeat(asked.number, asked.offset, asked.wanted or b"", found)

    def _check_effect(self, asked: AskedOperation) -> None:
        """Check what must be so when an operation has completed: the target has stored or received its bytes."""
        if self.gave_up:
            self.verdicts.skip(COMPLETED_EARLY, LOST)
        elif asked.observable:
            seen = self.peek(asked.key, asked.offset, len(asked.data))
            if seen is None:
                self.verdicts.skip(COMPLETED_EARLY, "the memory of the target is not shown")
            else:
                self._judge(
                    COMPLETED_EARLY, seen == asked.data,
                    f"{asked} at {asked.offset} completed; the target {_difference(seen, asked.data)}",
                )  # fmt: skip
        elif asked.is_send and asked.mode != "uud" and self.target == PEER and len(asked.data) >= TELLING:
            takes = asked.receive is not None or (asked.kind == "rendezvous" and self._may_take(asked))
            self._judge(COMPLETED_EARLY, takes, f"{asked} completed, but no receive took it")

    def _may_take(self, asked: AskedOperation) -> bool:
        """Return whether a receive may have matched the message, and still get its last bytes: the source of a
        rendezvous may complete when they leave in an ACK that PDS keeps (ses.md §9.6)."""
        return any(each.matches(asked) and each.taken is None for each in self.receives.values())

    def _on_received(self, event: Mapping[str, Any], disturbed: int) -> None:
        number, name = event.get("id"), NAMES[self.target]
        posted = self.receives.get(number) if isinstance(number, int) else None
        if posted is None or posted.taken is not None or posted.cancelled:
            why = "was never posted" if posted is None else "had taken a message, or was cancelled, before"
            raise WorldFailure(RECEIVED_ONCE, f"receive {shown(number)} of {name} {why}")
        self.verdicts.judged[RECEIVED_ONCE] += 1
        code, sends = event.get("code", ReturnCode.OK), [each for each in self.operations.values() if each.is_send]
        if code in LONG and any(posted.matches(each) and len(each.data) > posted.room for each in sends):
            posted.taken = -1
            return
        if code != ReturnCode.OK:
            self._judge(FAILED, disturbed > self.losses, f"receive {number} of {name} failed: {code}")
            posted.taken = -1
            self.gave_up = True
            return
        data = _bytes(event.get("data"))
        waiting = [asked for asked in sends if asked.receive is None or asked.mode == "uud"]
        alike = [asked for asked in waiting if asked.data[: posted.room] == data]
        what = f"receive {number} of {name}"
        self._judge(RECEIVED_WRONG, bool(alike), f"{what} took {shown(event.get('data'))}, which nobody sent")
        tagged = "untagged" if posted.tag is None else f"tag {posted.tag}, ignores {posted.ignore:#x}"
        fits = [asked for asked in alike if posted.matches(asked)]
        if posted.source is not None:
            tagged += f", from initiator {posted.source}"
        self._judge(MATCH, bool(fits), f"{what} ({tagged}) took {alike[0]}, {alike[0].origin}")
        sent = fits[0]
        if "tag" in event and sent.tag is not None:
            sent = next((asked for asked in fits if asked.tag == event["tag"]), sent)
            self._judge(MATCH, event["tag"] == sent.tag, f"{what} tells tag {event['tag']} of {sent}, tag {sent.tag}")
        sent.receive, posted.taken = posted.number, sent.number
        length = event.get("length")
        if isinstance(length, int) and len(sent.data) > posted.room >= TELLING:
            self._judge(
                TRUNCATED, length == len(sent.data),
                f"{what} has {posted.room} bytes and took {sent} of {len(sent.data)}; its length tells {length}",
            )  # fmt: skip

    def _on_cancelled(self, number: Any) -> None:
        posted = self.receives.get(number) if isinstance(number, int) else None
        right = posted is not None and posted.withdrawn and posted.taken is None and not posted.cancelled
        self._judge(
            CANCELLED, right,
            f"receive {shown(number)} of {NAMES[self.target]} was cancelled, but nobody asked for it, or it had ended",
        )  # fmt: skip
        if posted is not None:
            posted.cancelled = True

    # The end

    def is_done(self) -> bool:
        """Return whether all operations completed whose completion can be observed."""
        return not self.observed[self.initiator] or all(asked.ended is not None for asked in self.operations.values())

    def end(self, disturbed: int) -> None:
        """Compare the end of a run, after which the network delivered everything. Raises `WorldFailure`."""
        for asked in self.operations.values():
            if not self.observed[self.initiator]:
                self.verdicts.skip(COMPLETED, "observe gives no completions")
            else:
                self._judge(COMPLETED, asked.ended is not None, f"{asked} never completed")
            if asked.is_send and asked.mode != "uud" and asked.ended and len(asked.data) >= TELLING:
                if self.observed[self.target]:
                    self._judge(RECEIVED, asked.receive is not None, f"{asked} completed, but no receive took it")
                else:
                    self.verdicts.skip(RECEIVED, "observe gives no receives")
        for posted in self.receives.values():
            if posted.withdrawn and self.observed[self.target]:
                self._judge(
                    CANCELLED, posted.cancelled or posted.taken is not None,
                    f"receive {posted.number} of {NAMES[self.target]} was to be cancelled; it never ended",
                )  # fmt: skip
        unknown = not self.observed[IMPLEMENTATION] and disturbed > self.losses
        if self.gave_up or unknown:
            for name in (MEMORY, ORDER, ATOMIC_RESULT):
                self.verdicts.skip(name, LOST)
            return
        self._check_counter()
        self._check_matching()
        for key, region in self.regions.items():
            seen = self.peek(key, 0, len(region.data))
            if seen is None:
                self.verdicts.skip(MEMORY, "the memory of the target is not shown")
                continue
            self._judge(MEMORY, seen == region.data, f"region {key:#x} {_difference(seen, region.data)}")

    def _check_counter(self) -> None:
        """Check that each value of the counter was fetched once."""
        if self.fetched:
            key, offset = self.counter
            end = int.from_bytes(self.regions[key].read(offset, 8), "little")
            found = sorted(self.fetched)
            self._judge(
                ATOMIC_RESULT, len({*found}) == len(found) and found[-1] < end,
                f"sums of 1 fetched {found}; at the end the counter is {end}",
            )  # fmt: skip

    def _check_matching(self) -> None:
        """Check that older receives and, on ROD, older sends came first (ses.md §11.3)."""
        sends = [
            asked for asked in self.operations.values() if asked.receive is not None and len(asked.data) >= TELLING
        ]
        for later in sends:
            took = self.receives[later.receive or 0]
            for older in self.receives.values():
                if older.number < took.number and older.matches(later) and not older.cancelled:
                    self._judge(
                        ORDER, older.taken is not None,
                        f"receive {took.number} took {later}, although receive {older.number} was posted before",
                    )  # fmt: skip
            for first in sends:
                ordered = first.mode == later.mode == "rod" and first.epoch == later.epoch
                if first.number < later.number and ordered and took.matches(first):
                    other = self.receives[first.receive or 0]
                    self._judge(
                        ORDER, other.number < took.number or not other.matches(later),
                        f"receive {took.number} took {later}, before {first} was received",
                    )  # fmt: skip


def _bytes(data: Any) -> bytes | None:
    """Return the bytes of hexadecimal text; None for anything else."""
    try:
        return bytes.fromhex(data)
    except (TypeError, ValueError):
        return None


def _difference(found: bytes | bytearray, wanted: bytes | bytearray) -> str:
    """Return where bytes differ from those that are right, as the end of a sentence."""
    if len(found) != len(wanted):
        return f"has {len(found)} bytes instead of {len(wanted)}"
    at = next((n for n, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]), 0)
    return f"has {found[at : at + 8].hex(' ')} from byte {at} on instead of {wanted[at : at + 8].hex(' ')}"
