# SPDX-License-Identifier: GPL-2.0-only
"""This module asks a peer what it has: each question is a small test, whose verdict is the answer."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from uetproto.conform.catalogue import ConformanceTest, load
from uetproto.conform.packets import OPTIONAL, AnswerPacket, PeerFacts, read
from uetproto.conform.player import ConformanceVerdict, Link, Outcome, Patience, play, round_trip
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS, ReturnCode

_FILE = Path(__file__).parent / "questions.toml"
_REFUSED = (
    ReturnCode.UNSUPPORTED_OP, ReturnCode.UNSUPPORTED_SIZE, ReturnCode.AMO_UNSUPPORTED_OP,
    ReturnCode.AMO_UNSUPPORTED_DT, ReturnCode.AMO_UNSUPPORTED_SIZE,
)  # fmt: skip
"""Return codes that say that a peer does not have something (ses.md §9.5)."""
_MTU, _RETURNS = "mtu", "returns"


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """This record is what a peer answered to a question."""

    name: str
    """Name of the capability: a key of [capabilities] in PEER.toml."""
    has: bool | None
    """Whether the peer has it; None if its answer does not tell."""
    words: str


@cache
def _questions() -> dict[str, ConformanceTest]:
    return {test.id.removeprefix("ASK-").lower(): test for test in load([_FILE])}


def askable() -> tuple[str, ...]:
    """Return the names of the capabilities that a peer can be asked for, in the order of `OPTIONAL`."""
    return tuple(name for name in OPTIONAL if name in _questions())


def ask(name: str, link: Link, peer: PeerFacts, seed: str, patience: Patience) -> PeerAnswer:
    """Ask a peer for a capability."""
    test = _questions()[name]
    outcome = play(test, link, replace(peer, without=frozenset()), f"{seed}#ask {name}", patience)
    if outcome.verdict is ConformanceVerdict.PASS:
        return PeerAnswer(name, True, f"asked: {test.purpose}")
    if outcome.verdict is ConformanceVerdict.INCONCLUSIVE:
        return PeerAnswer(name, None, f"not asked: {outcome.reason}")
    codes = [code for one in _answers(outcome, peer) if (code := one.values.get("return_code")) in _REFUSED]
    if codes:
        return PeerAnswer(name, False, f"asked: {test.purpose} is refused with {ReturnCode(codes[-1]).name}")
    if name == _RETURNS and any("read_request_message_id" in found.values for found in _answers(outcome, peer)):
        return PeerAnswer(name, False, "asked: the data of a read of 64 bytes comes in the ACK")
    if outcome.silent:
        if round_trip(link, peer, f"{seed}#ask {name} again", patience) is None:
            return PeerAnswer(name, None, "not known: the peer answers nothing any more")
        return PeerAnswer(name, False, f"asked: {test.purpose} is not answered")
    return PeerAnswer(name, None, f"not known: {outcome.reason.partition(';')[0]}")


def _answers(outcome: Outcome, peer: PeerFacts) -> Iterable[AnswerPacket]:
    """Return the packets of the peer."""
    found = (read(frame.data, peer.how) for frame in outcome.frames if not frame.sent)
    return (one for one in found if one is not None)


def crc_of(link: Link, peer: PeerFacts, seed: str, patience: Patience) -> tuple[bool, int] | None:
    """Return whether the packets of the peer have a CRC32C, first as its facts say and then otherwise, and the
    round-trip time in picoseconds; None if it answers nothing."""
    for crc in (peer.how.crc, not peer.how.crc):
        facts = replace(peer, how=replace(peer.how, crc=crc))
        if (rtt := round_trip(link, facts, f"{seed}#crc {crc}", patience)) is not None:
            return crc, rtt
    return None


def payload_mtu_of(link: Link, peer: PeerFacts, seed: str, patience: Patience) -> int | None:
    """Return the largest payload MTU of a write that the peer takes, up to the one that the link carries; None if it
    takes none."""
    test = _questions()[_MTU]
    for size in sorted((one for one in PAYLOAD_MTUS if one <= peer.payload_mtu), reverse=True):
        outcome = play(test, link, replace(peer, payload_mtu=size), f"{seed}#mtu {size}", patience)
        if outcome.verdict is ConformanceVerdict.PASS:
            return size
    return None
