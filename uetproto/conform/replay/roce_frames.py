# SPDX-License-Identifier: GPL-2.0-only
"""This module sends the RoCEv2 packets of one side of a capture to a live peer, with other numbers of queue pairs,
PSNs, keys, addresses and ICRCs."""

import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from uetproto.conform.player import Link, Patience
from uetproto.conform.replay.differences import NormalAnswer, distance, in_words
from uetproto.conform.replay.frames import FrameReplay, Replayed
from uetproto.conform.replay.roce_side import (
    BEGINS,
    ENDS,
    NO_PAIR,
    PAGE,
    PSNS,
    CapturedPair,
    PairKey,
    RoceSurvey,
    kind_of,
)
from uetproto.conform.replay.side import SidePacket
from uetproto.conform.roce.hand import HandPairs
from uetproto.conform.roce.packets import CNP, RoceAnswer, RoceFacts, is_response, read
from uetproto.conform.roce.pairs import MOST_AT_ONCE, MOST_REGIONS, OpenPair, PairWish
from uetproto.errors import LocalError
from uetproto.wire.headers.roce import PMTUS, Nak
from uetproto.wire.packet import Layer, Trailer
from uetproto.wire.stack import encode

_REMEMBERED = 1 << 15
"""Number of messages of a queue pair whose ends are remembered, at least."""
GRH_SIZE = 40
"""Number of bytes before the payload in a receive of UD (roce.md §11)."""
MOST_RECEIVES = 32
"""Largest number of receives that a queue pair has at a time; those that were taken are posted again."""
_NOT_PLAYED = "of another service than RC, UC and UD"
_ANSWERS = "answers to requests of the other side"
_LATE = "of messages that began before the capture"
_NOT_COMPARED = frozenset((
    "destqp", "srcqp", "p_key", "q_key",  # others each time
    "syndrome", "credits", "timer",  # its parts; how many receives are posted, and when the next one is
))  # fmt: skip
_TOLD = ("nak", "msn", "origremdt")
_REFUSED = ("nak", "rnr_nak")


class ReplayPlaces(NamedTuple):
    """This tuple says what stands for the queue pairs and the memory of the capture."""

    pairs: Mapping[CapturedPair, OpenPair]
    of_key: Mapping[int, tuple[int, int]]
    """The peer's key for each key, and what is added to addresses."""

    def of(self, key: int, address: int) -> tuple[int, int]:
        """Return key and address as they are sent."""
        found = self.of_key.get(key)
        return (key, address) if found is None else (found[0], address + found[1] & 0xFFFFFFFFFFFFFFFF)


def places_for(
    survey: RoceSurvey, facts: RoceFacts, seed: str, *, addresses: bool = True, only: int | None = None,
    service: str | None = None,
) -> ReplayPlaces:  # fmt: skip
    """Return a queue pair of the peer for each one of the capture, and memory for that of each key: made at the
    rendezvous, or those that somebody made by hand as long as there are any.

    Without `addresses` keys and addresses stay as they are; `only` is the single key that is replaced, and `service`
    the only one that is played. Raises `LocalError` if there is no queue pair, or too little memory.
    """
    rng = random.Random(f"{seed}/pairs")
    wanted = [one for one in survey.pairs.values() if service in (None, one.kind)]
    if not wanted:
        kinds = ", ".join(sorted({one.kind for one in survey.pairs.values()}))
        raise LocalError(
            "--transport", f"this side sends nothing over {str(service).upper()}", kinds, id="nothing-to-replay"
        )
    captured, found = wanted[:MOST_AT_ONCE], dict[CapturedPair, OpenPair]()
    if isinstance(facts.pairs, HandPairs):
        free = [pair for pair in facts.pairs.pairs if not pair.dead and not pair.settings]
        for one in captured:
            fitting = next((pair for pair in free if pair.kind == one.kind), None)
            if fitting is not None:
                free.remove(fitting)
                found[one] = fitting
        if not found:
            kinds = ", ".join(sorted({one.kind.upper() for one in captured}))
            raise LocalError(
                "--peer-qpn", f"no queue pair by hand is one of {kinds}", "a rendezvous", id="nothing-to-replay"
            )
        regions = survey.placed(facts.pairs.memory[""])
    else:
        numbers = rng.sample(range(0x100, 0xFFFFF0), len(captured))
        wishes = [
            PairWish(one.kind, number, rng.randrange(PSNS), settings_of(one, facts.path_mtu))
            for one, number in zip(captured, numbers, strict=True)
        ]
        opened = facts.pairs.open(wishes, survey.regions[:MOST_REGIONS])
        if isinstance(opened, str):
            raise LocalError(
                "--peer", opened, "a peer whose rendezvous makes queue pairs, or --rendezvous off",
                id="nothing-to-replay"
            )  # fmt: skip
        found, regions = dict(zip(captured, opened.pairs, strict=True)), [*opened.regions]
    of_key = {
        key: (region.key, region.address + low % PAGE - low)
        for (key, (low, _)), region in zip(survey.ranges.items(), regions, strict=False)
        if addresses and only in (None, key)
    }
    return ReplayPlaces(found, of_key)


def settings_of(pair: CapturedPair, path_mtu: int) -> Mapping[str, int]:
    """Return what a queue pair of the peer has to be like to answer as that of the capture did. `path_mtu` is that of
    other queue pairs of the peer."""
    mtu = pair.path_mtu
    if mtu is None and pair.largest > path_mtu:
        mtu = next((size for size in PMTUS if size >= pair.largest), None)
    size = {} if mtu is None else {"path_mtu": mtu}
    needed = min(pair.receives, MOST_RECEIVES)
    room = max(pair.longest, 1) + (GRH_SIZE if pair.kind == "ud" else 0)
    return {**size, "receives": needed, "again": 1, "receive_size": room}


@dataclass(slots=True, kw_only=True)
class _Direction:
    """How PSNs and MSNs count, in the capture or now."""

    start: int
    msn: int | None = None
    """MSN before the first message, once an answer has told it."""


@dataclass(slots=True, kw_only=True)
class ReplayedPair(Replayed):
    """This class is a queue pair of the other end in the capture, and the one of the peer that stands for it."""

    captured: CapturedPair
    now: OpenPair
    ends: list[int] = field(default_factory=list)
    """Distances of the PSNs at which the last messages end, of what was sent, and how many there were before."""
    before: int = 0
    counts: tuple[_Direction, _Direction]

    def note_end(self, at: int) -> None:
        """Note that a message ends at a distance; one that is sent again is none."""
        place = bisect_left(self.ends, at)
        if self.ends[place : place + 1] != [at] and (place or not self.before):
            insort(self.ends, at)
        if len(self.ends) > 2 * _REMEMBERED:
            del self.ends[:_REMEMBERED]
            self.before += _REMEMBERED

    def done(self, at: int, *, refused: bool) -> int:
        """Return how many messages an answer at a distance says to be complete."""
        return self.before + (bisect_left if refused else bisect_right)(self.ends, at)

    @property
    def shift(self) -> int:
        """Return what is added to PSNs."""
        return self.counts[1].start - self.counts[0].start


class RoceFrameReplay(FrameReplay[RoceAnswer]):
    """This class plays the RoCEv2 packets of one side, and aligns the answers of RC."""

    def __init__(
        self, link: Link, peer: RoceFacts, patience: Patience, seed: str, survey: RoceSurvey, places: ReplayPlaces, *,
        ignored: frozenset[str] = frozenset(), recorded: Callable[[int, bytes], None] = lambda time, frame: None,
    ) -> None:  # fmt: skip
        """`recorded` gets each frame with its time."""
        super().__init__(link, patience, seed, ignored, recorded)
        self.peer, self.places, self._survey, opened = peer, places, survey, places.pairs
        self.pairs: dict[PairKey, ReplayedPair] = {
            key: ReplayedPair(number=one.number, captured=one, now=opened[one], counts=(
                _Direction(start=one.start), _Direction(start=opened[one].psn, msn=opened[one].msn)
            ))
            for key, one in survey.pairs.items() if one in opened
        }  # fmt: skip
        of_captured = {pair.captured: pair for pair in self.pairs.values()}
        self._answering = {key: of_captured[one] for key, one in survey.answering.items() if one in of_captured}
        self._mine = {pair.now.number: pair for pair in self.pairs.values()}

    def send(self, one: SidePacket[RoceAnswer]) -> None:
        answer = one.answer
        reason = self._left_out(one)
        if reason:
            self.left_out[reason] += 1
            return
        pair = self.pairs[one.other, answer.values["destqp"]]
        operation = answer.values["opcode"] & 0x1F
        if answer.kind != CNP and operation in ENDS:
            pair.note_end(distance(answer.values["psn"], pair.captured.start, 24))
        self.put(self._rewritten(answer, pair))
        self.sent += 1

    def _left_out(self, one: SidePacket[RoceAnswer]) -> str:
        """Return why a packet is not sent, or an empty text."""
        answer, key = one.answer, (one.other, one.answer.values["destqp"])
        if answer.kind != CNP and kind_of(answer) is None:
            return _NOT_PLAYED
        if answer.kind != CNP and is_response(answer):
            return _ANSWERS
        if key not in self._survey.pairs:
            return _ANSWERS if answer.kind == CNP else _LATE
        if key not in self.pairs:
            return NO_PAIR
        late = distance(answer.values["psn"], self._survey.pairs[key].start, 24) < 0
        return _LATE if late and answer.kind != CNP and answer.values["opcode"] & 0x1F not in BEGINS else ""

    def _rewritten(self, answer: RoceAnswer, pair: ReplayedPair) -> bytes:
        """Return the frame of a packet as it is sent now."""
        packet = answer.packet
        at = next(place for place, layer in enumerate(packet.layers) if layer.form == "bth")
        layers = [Layer(layer.form, self._values(dict(layer.values), pair)) for layer in packet.layers[at:]]
        if answer.kind == CNP:  # it names no request
            layers[0] = Layer("bth", {**layers[0].values, "psn": answer.values["psn"]})
        ip = next(layer.values for layer in packet.layers if layer.form in ("ipv4", "ipv6"))
        entropy = self.link.entropy(packet["udp"]["sport"])
        lower = self.peer.lower({"dscp": ip["dscp"], "ecn": ip["ecn"]}, entropy)
        return encode(
            replace(packet, layers=[*lower, *layers], trailer=Trailer("icrc", 0), notes=(), raw=b""), fill=True
        )

    def _values(self, values: dict[str, int], pair: ReplayedPair) -> dict[str, int]:
        if "destqp" in values:
            values |= {"destqp": pair.now.theirs, "psn": (values["psn"] + pair.shift) % PSNS}
            if values["p_key"] == pair.captured.p_key:
                values["p_key"] = self.peer.p_key
        if "srcqp" in values:
            values["srcqp"] = pair.now.number
            if values["q_key"] == pair.captured.q_key and pair.now.q_key:
                values["q_key"] = pair.now.q_key
        if "r_key" in values:
            values["r_key"], address = self.places.of(values["r_key"], values.get("va", 0))
            if "va" in values:
                values["va"] = address
        return values

    def expect(self, one: SidePacket[RoceAnswer]) -> None:
        pair = self._answering.get((one.other, one.answer.values["destqp"]))
        if pair is None or one.answer.fault:
            return
        found = self._normal(one.answer, pair, 0, one.number)
        if found is not None:
            self.wait_for(found, pair)

    def read(self, frame: bytes) -> RoceAnswer | None:
        return read(frame)

    def arrive(self, found: RoceAnswer) -> None:
        pair = self._mine.get(found.values["destqp"])
        if pair is None:
            self.aside += 1
            return
        answer = self._normal(found, pair, 1, None)
        if answer is not None:
            self.alignment.arrive(answer)

    def _normal(self, found: RoceAnswer, pair: ReplayedPair, side: int, number: int | None) -> NormalAnswer | None:
        """Return an answer in the form that is compared, or None for one that is not compared."""
        if found.kind == CNP or not is_response(found):
            return None
        values, counts = dict(found.values), pair.counts[side]
        at = distance(values["psn"], counts.start, 24)
        refuses = found.kind in _REFUSED
        distances = ["psn"]
        if "msn" in values:
            done = pair.done(at, refused=refuses)
            base = values["msn"] - done if counts.msn is None else counts.msn
            if found.kind != "rdma_read_response_first":  # some count the READ at its last packet alone
                counts.msn = base
            values["msn"] = distance(values["msn"], base, 24)
            distances.append("msn")
        values["psn"] = at
        rows = dict(found.rows)
        compared = {name: value for name, value in values.items() if name not in _NOT_COMPARED}
        told = in_words((f"queue pair {pair.number}, {found.kind}", at), _TOLD, values, rows)
        implied = at - 1 if refuses or "RESPONSE" in found.kind.upper() else at
        fatal = found.kind == "nak" and values["nak"] != Nak.PSN_SEQUENCE_ERROR
        return NormalAnswer(
            (pair.number, found.kind, at), compared, rows, frozenset(distances), found.payload, number, found.fault,
            told, None if fatal else implied, at if found.kind == "ack" else None,
        )  # fmt: skip
