# SPDX-License-Identifier: GPL-2.0-only
"""This module asks a peer of RoCE what it has: whether it makes queue pairs of a service, and small tests."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from uetproto.conform.catalogue import ConformanceTest, load
from uetproto.conform.player import ConformanceVerdict, Link, Patience, round_trip
from uetproto.conform.questions import PeerAnswer
from uetproto.conform.roce.packets import RoceFacts, read
from uetproto.conform.roce.pairs import NEEDS, OPTIONAL, PairWish
from uetproto.conform.roce.play import ROCE, play
from uetproto.wire.headers.roce import Nak

_FILE = Path(__file__).parent.parent / "questions_roce.toml"
_SERVICES = ("uc", "ud")
_NUMBERS = (0x101, 77)
"""Queue pair and first PSN of ours of a queue pair that is only asked for."""


@cache
def _questions() -> Mapping[str, ConformanceTest]:
    return {test.id.removeprefix("ASK-").lower(): test for test in load([_FILE])}


def roce_askable() -> tuple[str, ...]:
    """Return the names of the capabilities that a peer of RoCE can be asked for."""
    return tuple(name for name in (*OPTIONAL, *NEEDS) if name in _SERVICES or name in _questions())


def roce_ask(name: str, link: Link, peer: RoceFacts, seed: str, patience: Patience) -> PeerAnswer:
    """Ask a peer of RoCE for a capability."""
    if name in _SERVICES:
        opened = peer.pairs.open([PairWish(name, *_NUMBERS)])
        if isinstance(opened, str):
            return PeerAnswer(name, None if peer.pairs.gone else False, f"asked: {opened}")
        peer.pairs.close(opened)
        return PeerAnswer(name, True, f"asked: it makes {OPTIONAL[name]}")
    test = _questions()[name]
    outcome = play(test, link, replace(peer, without=frozenset()), f"{seed}#ask {name}", patience)
    if outcome.verdict is ConformanceVerdict.PASS:
        return PeerAnswer(name, True, f"asked: {test.purpose}")
    if outcome.verdict is ConformanceVerdict.INCONCLUSIVE:
        return PeerAnswer(name, False if outcome.reason in peer.offers.values() else None, outcome.reason)
    found = (read(frame.data) for frame in outcome.frames if not frame.sent)
    naks = {one.values.get("nak") for one in found if one is not None}
    if Nak.INVALID_REQUEST in naks:
        return PeerAnswer(name, False, f"asked: {test.purpose} is refused with INVALID_REQUEST")
    if outcome.silent:
        if round_trip(link, peer, f"{seed}#ask {name} again", patience, ROCE) is None:
            return PeerAnswer(name, None, "not known: the peer answers nothing any more")
        return PeerAnswer(name, False, f"asked: {test.purpose} is not answered")
    return PeerAnswer(name, None, f"not known: {outcome.reason.partition(';')[0]}")
