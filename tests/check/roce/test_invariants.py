# SPDX-License-Identifier: GPL-2.0-only
"""Each of the 12 invariants of roce.md §15 can fail: the engine is broken on purpose, and that number says so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from uetproto.check import fuzz as module
from uetproto.check.fuzz import fuzz
from uetproto.check.registry import Disruption
from uetproto.check.roce import invariants as roce_invariants
from uetproto.check.roce.invariants import INVARIANTS, RoceScope, plan
from uetproto.engine.contract import NEVER
from uetproto.engine.roce.contract import QpType, SendFlags, Status, WcOpcode
from uetproto.engine.roce.inbound import Inbound
from uetproto.engine.roce.packets import Parsed
from uetproto.engine.roce.psn import add, diff
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.requester import RcRequester, Wqe
from uetproto.engine.roce.responder import RcResponder, ShortResponse
from uetproto.engine.roce.segments import MessageStep
from uetproto.engine.roce.uc import UcRequester, UcResponder
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.roce import BTH, Operation

Break = Callable[[pytest.MonkeyPatch], None]
MUTANTS: list[tuple[int, str, str, int, Break]] = []
"""Number of the invariant, machine, what is said, a seed that soon finds it, and what is done to the engine."""


def mutant(number: int, says: str = "", machine: str = "rc", seed: int = 1) -> Callable[[Break], Break]:
    def register(broken: Break) -> Break:
        MUTANTS.append((number, machine, says, seed, broken))
        return broken

    return register


def around(patch: pytest.MonkeyPatch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    patch.setattr(owner, name, make(getattr(owner, name)))


@mutant(1)
def complete_twice(patch: pytest.MonkeyPatch) -> None:
    def make(complete: Any) -> Any:
        def twice(self: Qp, *arguments: Any) -> None:
            complete(self, *arguments)
            complete(self, *arguments)

        return twice

    around(patch, Qp, "complete_send", make)


@mutant(1, "is complete before")
def flushed_from_behind(patch: pytest.MonkeyPatch) -> None:
    def flush(self: RcRequester) -> None:
        for number in reversed(range(self.head, self.posted + 1)):
            wqe = self.wqes.pop(number)
            self.qp.complete_send(wqe.work, wqe.kind.completion, Status.WR_FLUSH_ERR, 0, 0)
        self.head = self.at = self.posted + 1

    patch.setattr(RcRequester, "flush", flush)


@mutant(1, "ends with SUCCESS after an error")
def flushed_as_if_done(patch: pytest.MonkeyPatch) -> None:
    def make(complete: Any) -> Any:
        def well(self: Qp, work: Any, opcode: Any, status: Status, *more: Any) -> None:
            complete(self, work, opcode, Status.SUCCESS if status is Status.WR_FLUSH_ERR else status, *more)

        return well

    around(patch, Qp, "complete_send", make)


@mutant(1, "is not signaled", "uc")
def unsignaled_is_told(patch: pytest.MonkeyPatch) -> None:
    def make(end: Any) -> Any:
        def told(self: UcRequester, wqe: Wqe, status: Status) -> None:
            wqe._work = replace(wqe.work, send_flags=SendFlags.SIGNALED)
            end(self, wqe, status)

        return told

    around(patch, UcRequester, "_end", make)


@mutant(2)
def last_byte_is_lost(patch: pytest.MonkeyPatch) -> None:
    def make(store: Any) -> Any:
        def short(self: Inbound, parsed: Parsed) -> None:
            data = bytes(parsed.payload)
            parsed.payload = data[:-1] + bytes(1) if data else data
            store(self, parsed)

        return short

    around(patch, Inbound, "store", make)


@mutant(2, "RDMA_READ")
def responses_are_stored_one_byte_off(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def shifted(self: RcRequester, psn: int, parsed: Parsed, now: int) -> None:
            parsed.payload = bytes(parsed.payload[1:]) + bytes(parsed.payload[:1])
            take(self, psn, parsed, now)

        return shifted

    around(patch, RcRequester, "_take_response", make)


@mutant(2)
def acknowledged_too_far(patch: pytest.MonkeyPatch) -> None:
    """What a NAK refuses counts as done."""
    around(
        patch, RcRequester, "_acknowledge", lambda ack: lambda self, psn, now: ack(self, min(psn + 1, self.next), now)
    )


@mutant(3)
def duplicates_act(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def again(self: RcResponder, parsed: Parsed, now: int) -> None:
            if parsed.step is MessageStep.ATOMIC:
                epsn, msn = self.epsn, self.msn
                self._atomic(parsed)
                self.epsn, self.msn = epsn, msn
            else:
                take(self, parsed, now)

        return again

    around(patch, RcResponder, "_take_duplicate", make)


@mutant(3, "to the counter")
def adds_twice(patch: pytest.MonkeyPatch) -> None:
    def make(atomic: Any) -> Any:
        def double(self: RcResponder, parsed: Parsed) -> None:
            parsed.values = {**parsed.values, "swapdt": 2 * parsed.values["swapdt"]}
            atomic(self, parsed)

        return double

    around(patch, RcResponder, "_atomic", make)


@mutant(3)
def answers_new_value(patch: pytest.MonkeyPatch) -> None:
    around(patch, RcResponder, "_answer_atomic", lambda answer: lambda self, psn, old: answer(self, psn, old + 1))


@mutant(4)
def duplicates_count(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def count(self: RcResponder, parsed: Parsed, now: int) -> None:
            self.msn = add(self.msn, 1)
            take(self, parsed, now)

        return count

    around(patch, RcResponder, "_take_duplicate", make)


@mutant(5, "was never sent")
def far_away(patch: pytest.MonkeyPatch) -> None:
    around(patch, RcResponder, "_answer_nak", lambda nak: lambda self, psn, why: nak(self, add(psn, -(1 << 22)), why))


@mutant(5, "has not executed")
def ahead_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def eager(self: RcResponder, parsed: Parsed, now: int) -> None:
            if diff(parsed.psn, self.epsn) > 0:
                self.answers.append(ShortResponse(Operation.ACKNOWLEDGE, parsed.psn, self.aeth()))
            else:
                take(self, parsed, now)

        return eager

    around(patch, RcResponder, "take", make)


@mutant(5)
def one_too_far(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(self: RcResponder) -> None:
        self.epsn = add(self.epsn, 1)
        acknowledged(self)
        self.epsn = add(self.epsn, -1)

    acknowledged = RcResponder._acknowledge
    patch.setattr(RcResponder, "_acknowledge", acknowledge)


@mutant(6)
def write_uses_a_receive(patch: pytest.MonkeyPatch) -> None:
    def make(finish: Any) -> Any:
        def also(self: Inbound, parsed: Parsed) -> None:
            finish(self, parsed)
            if parsed.step is MessageStep.RDMA_WRITE_ONLY and self.qp.peek_receive() is not None:
                self.qp.hold_receive()
                self.qp.end_receive(Status.SUCCESS, WcOpcode.RECV)

        return also

    around(patch, Inbound, "finish", make)


@mutant(7)
def any_length_fits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbound, "fits_receive", lambda self, parsed: True)


@mutant(7)
def any_key_is_good(patch: pytest.MonkeyPatch) -> None:
    def remote(self: Any, pd: int, rkey: int, va: int, length: int, right: int) -> Any:
        return self.by_rkey.get(rkey) or next(iter(self.by_rkey.values()))

    patch.setattr("uetproto.engine.roce.memory.Regions.remote", remote)


@mutant(8)
def no_limit(patch: pytest.MonkeyPatch) -> None:
    def make(begin: Any) -> Any:
        def forgets(self: RcRequester, wqe: Wqe) -> bool:
            self.unanswered = 0
            return bool(begin(self, wqe))

        return forgets

    around(patch, RcRequester, "_begin", make)


@mutant(9, "awaited after")
def no_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RcRequester, "deadline", lambda self: NEVER)


@mutant(9, "without end", seed=6)
def waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("uetproto.engine.roce.requester.rnr_wait_of", lambda code: NEVER)


@mutant(9, "no step had a fault")
def gives_up_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RcRequester, "_retry", lambda self, *_: self._fail(Status.RETRY_EXC_ERR))


@mutant(9, "not flushed are")
def receives_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Qp, "flush_receives", lambda self: None)


@mutant(10)
def numbers_of_25_bits(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def dull(self: RcRequester, parsed: Parsed, now: int) -> None:
            if self.una <= parsed.psn:  # as if numbers never began anew
                take(self, parsed, now)

        return dull

    around(patch, RcRequester, "take", make)


@mutant(10, machine="uc")
def stops_before_the_wrap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("uetproto.engine.roce.uc.add", lambda psn, count: min(psn + count, 0xFFFFFF))


@mutant(11)
def reserved_bits_are_lost(patch: pytest.MonkeyPatch) -> None:
    class Lossy:
        decode = staticmethod(codec_of(BTH).decode)

        @staticmethod
        def encode(values: dict[str, int]) -> bytes:
            return codec_of(BTH).encode({**values, "rsvd": 0})

    patch.setattr(roce_invariants, "codec_of", lambda header: Lossy if header is BTH else codec_of(header))


@mutant(12, machine="uc")
def gaps_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def deaf(self: UcResponder, parsed: Parsed, now: int) -> None:
            self.epsn = parsed.psn
            take(self, parsed, now)

        return deaf

    around(patch, UcResponder, "take", make)


@mutant(12, machine="ud")
def payload_in_the_wrong_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("uetproto.engine.roce.ud.GRH_SIZE", 41)


def test_all_are_there() -> None:
    assert sorted(INVARIANTS) == list(range(1, 13))
    assert {number for number, *_ in MUTANTS} == set(INVARIANTS)


@pytest.mark.parametrize(
    ("number", "machine", "says", "seed", "broken"), MUTANTS, ids=[m[-1].__name__ for m in MUTANTS]
)
def test_it_can_fail(
    number: int, machine: str, says: str, seed: int, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EFFORT", -1)  # what is found need not be small
    broken(monkeypatch)
    found: set[tuple[str, str]] = set()
    for tally in fuzz(machine, seed, steps=60_000):
        found |= {(finding.kind, finding.text) for finding in tally.findings}
        if any(kind == f"roce {number}" and says in text for kind, text in found):
            return
    raise AssertionError(f"found was {found}")


@pytest.mark.parametrize("machine", ["rc", "uc", "ud"])
def test_nothing_is_found_in_the_engine(machine: str) -> None:
    assert [finding.text for tally in fuzz(machine, 3, steps=3_000) for finding in tally.findings] == []


@pytest.mark.parametrize("kind", list(QpType))
def test_who_is_asked(kind: QpType) -> None:
    """Those of other services are not; and after bytes that nobody sent only what a forger cannot break."""
    asked = {check.__name__.split("_")[1] for checks in plan(kind, Disruption.NONE).values() for check in checks}
    left = {check.__name__.split("_")[1] for checks in plan(kind, Disruption.FORGED).values() for check in checks}
    only = {"2", "3", "4", "5", "8"} if kind is QpType.RC else {"12"}
    assert asked == {"1", "6", "7", "9", "10", "11"} | only
    assert left == {"1", "7", "9", "11"} | only & {"8"}


def test_statements() -> None:
    for entry in INVARIANTS.values():
        assert entry.statement
        assert isinstance(entry.scope, RoceScope)
