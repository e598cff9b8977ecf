# SPDX-License-Identifier: GPL-2.0-only
"""This module judges the packets of secure domains: their ICVs, counters, epochs and association numbers (ANs). It
also judges packets in the clear on PDCs that have sealed packets (tss.md §4, tss.md §8)."""

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Severity, Verdict, Violation
from uetproto.audit.tss.tracker import (
    Authenticity,
    ClearPacket,
    RepeatedNonce,
    SecureSender,
    SplitCounter,
    TssEvent,
)
from uetproto.wire.words.text import numbered

_HALF = 1 << 47
"""Bit of a counter that servers set."""


def _icv(state: Authenticity, _: ObservedPacket) -> Verdict:
    return state.verdict


def _reused(state: RepeatedNonce, seen: ObservedPacket) -> Verdict:
    was = state.was
    if was is None:
        return Inconclusive("too long ago")
    if was.content is None or seen.content is None:
        return Inconclusive("content not known")
    if was.content == seen.content:
        return None  # the network copied it
    return Violation(
        f"a TSC that was not used: {numbered(was.number)} has {seen.head.tsc}", "other bytes", (was.number,)
    )


def _shared(state: RepeatedNonce, seen: ObservedPacket) -> Verdict:
    was, head = state.was, seen.head
    if was is None or state.doubt is not None:
        return Inconclusive(state.doubt or "too long ago")
    if was.content == seen.content:
        return None
    what = f"SSI {head.ssi}" if head.sp else f"one key of SDI {head.sdi}"
    return Violation(f"counters of their own for both senders with {what}", f"TSC {head.tsc} of both", (was.number,))


def _fell(state: SecureSender, seen: ObservedPacket) -> Violation:
    return Violation(f"a TSC above {state.before}", str(seen.head.tsc))


def _epoch_fell(state: SecureSender, seen: ObservedPacket) -> Violation:
    return Violation(f"epoch {state.before} or a later one", str(seen.head.epoch))


def _an_back(_: SecureSender, seen: ObservedPacket) -> Violation:
    return Violation(f"AN {1 - seen.head.an}, to which its sender changed", f"AN {seen.head.an}, counting on")


def _half(state: SplitCounter, seen: ObservedPacket) -> Violation | None:
    is_upper = bool(seen.head.tsc & _HALF)
    if is_upper == state.from_server:
        return None
    who = "a server" if state.from_server else "a client"
    return Violation(f"bit 47 of the TSC {int(state.from_server)}, from {who}", str(int(is_upper)))


def _clear(state: ClearPacket, _: ObservedPacket) -> Violation:
    return Violation("a sealed packet", "one in the clear", (state.sealed,))


_ON = TssEvent

RULES = (
    Rule(id="TSS-ICV", on=_ON.ICV, check=_icv, cite="UE 1.0.1 §3.7", covers=("tss 2",),
         says="A sealed packet opens with a key that opens others of its SDI and AN."),
    Rule(id="TSS-NONCE-REUSED", on=_ON.AGAIN, of=_ON.SEALED, check=_reused, cite="UE 1.0.1 §3.7",
         covers=("tss 4",), says="No TSC is used twice under one key by one sender."),
    Rule(id="TSS-NONCE-SHARED", on=_ON.SHARED, of=_ON.COMPARED, check=_shared, cite="UE 1.0.1 §3.7",
         covers=("tss 4",), says="Two senders with one key and one prefix of nonces do not use the same TSC."),
    Rule(id="TSS-TSC-ORDER", on=_ON.FELL, of=_ON.SEALED, check=_fell, requires=Requires.ORDER, cite="UE 1.0.1 §3.7",
         covers=("tss 5",), says="The TSC of a sender only grows."),
    Rule(id="TSS-EPOCH-ORDER", on=_ON.EPOCH_FELL, of=_ON.SEALED, check=_epoch_fell, requires=Requires.ORDER,
         cite="UE 1.0.1 §3.7", says="The epoch of a sender only grows."),
    Rule(id="TSS-AN-ORDER", on=_ON.AN_BACK, of=_ON.SEALED, check=_an_back, requires=Requires.ORDER,
         severity=Severity.NOTE, cite="UE 1.0.1 §3.7",
         says="A sender that has changed to another AN does not use the old key again."),
    Rule(id="TSS-TSC-HALF", on=_ON.HALF, check=_half, severity=Severity.NOTE, cite=CHOICE,
         says="In mode client-server, servers set bit 47 of the TSC and clients do not."),
    Rule(id="TSS-CLEAR-AMONG-SEALED", on=_ON.CLEAR, of=_ON.INSIDE, check=_clear,
         severity=Severity.NOTE, cite="UE 1.0.1 §3.7", says="All packets of a PDC are sealed, if any is."),
)  # fmt: skip
