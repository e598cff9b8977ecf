# SPDX-License-Identifier: GPL-2.0-only
"""This module plays the tests of RoCE in which the peer is the requester: it acts, and we answer as the test says."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from uetproto.conform.acting import COUNTED, ActedPlay, Actor
from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.player import Link, Outcome, Patience, Suite
from uetproto.conform.roce.packets import RoceAnswer, RoceFacts, is_response
from uetproto.conform.roce.pairs import NEEDS, CompletedWork, OpenPair, PairWish, PeerMemory, PeerSetup, TakenMessage
from uetproto.conform.roce.play import LIVENESS, OUR_ADDRESS, OUR_KEY, RocePlay, play
from uetproto.wire.headers.roce import Operation

_PSNS = 1 << 24
_TIMEOUT_UNIT = 4_096_000
"""Picoseconds that the local ACK time-out is a multiple of, by a power of two (roce.md §9)."""
_RETRIES = {"retry_cnt": 7, "rnr_retry": 7}
"""What a peer is asked for, if the test does not say otherwise."""
_ANSWERED = (Operation.RDMA_READ_REQUEST, Operation.COMPARE_SWAP, Operation.FETCH_ADD)
"""Requests that have an answer of their own in place of an ACK."""


class PairActor(Actor, Protocol):
    """An actor of RoCE knows which queue pair the peer acts on, once it does."""

    def pair(self) -> tuple[int, int] | None:
        """Return number and first PSN of the queue pair of the peer, or None if they are those that it was told."""


class DriverPairs:
    """This class has the queue pairs that a driver makes for each act, with the numbers that it is told. It is a
    `PairSource`."""

    lacks = tuple(NEEDS)
    gone = False

    def open(self, wishes: Sequence[PairWish], regions: Sequence[int] = ()) -> PeerSetup | str:
        return PeerSetup([_dictated(wish) for wish in wishes], {"": PeerMemory(0, 0, 0)})

    def messages(self, pair: OpenPair) -> list[TakenMessage]:
        return []

    def post(self, pair: OpenPair, work: Mapping[str, Any]) -> None:
        """Do nothing: the driver posts what the test wants."""

    def completed(self, pair: OpenPair) -> list[CompletedWork]:
        return []

    def close(self, opened: PeerSetup) -> None:
        """Do nothing: the queue pairs end with the driver."""


def _dictated(wish: PairWish) -> OpenPair:
    """Return a queue pair with a number and a first PSN of the peer that follow from ours."""
    theirs, first = random.Random(wish.number), random.Random(wish.psn)
    return OpenPair(
        wish.kind, wish.number, theirs.randrange(0x100, 0xFFFFF0), wish.psn, q_key=theirs.getrandbits(31),
        first=wish.settings.get("first", first.randrange(_PSNS)), settings=wish.settings,
    )  # fmt: skip


def timeout_of(rto: int) -> tuple[int, int]:
    """Return the shortest local ACK time-out that is not below an RTO in picoseconds: its code and its picoseconds."""
    code = next((code for code in range(1, 31) if _TIMEOUT_UNIT << code >= rto), 31)
    return code, _TIMEOUT_UNIT << code


def roce_acting(actor: PairActor, timeout: int) -> Suite:
    """Return how the tests are played in which an actor makes the peer act. `timeout` is the code of the time-out that
    the peer is asked for."""

    def made(
        test: ConformanceTest, link: Link, peer: RoceFacts, opened: PeerSetup, rng: random.Random, patience: Patience
    ) -> RocePlay:  # fmt: skip
        return _RoceActPlay(test, link, peer, opened, rng, patience, actor, timeout)

    return Suite(partial(_play, made), LIVENESS)


def _play(made: Any, test: ConformanceTest, link: Link, peer: RoceFacts, seed: str, patience: Patience) -> Outcome:
    return play(test, link, peer, seed, patience, made)


class _RoceActPlay(ActedPlay[RoceAnswer], RocePlay):
    """Plays one test of RoCE in which the peer acts, on the first queue pair of the test."""

    def __init__(
        self, test: ConformanceTest, link: Link, peer: RoceFacts, opened: PeerSetup, rng: random.Random,
        patience: Patience, actor: PairActor, timeout: int,
    ) -> None:  # fmt: skip
        super().__init__(test, link, peer, opened, rng, patience)
        self.actor: PairActor = actor
        self.timeout = timeout
        self.variables["imm"] = rng.getrandbits(32)
        self.ended: set[int] = set()
        """PSNs that were acknowledged at the end."""

    def keep(self, name: str, data: bytes) -> None:
        self.craft.data[name] = data

    def data_of_act(self, size: int) -> bytes:
        """Return the bytes of the act; of an atomic its operand, or both of a comparison."""
        cas = self.test.act.split()[1] == "cas"
        data = self.craft.bytes_of(2 * size if cas else size, self.variables, "act")
        if cas:
            self.variables["compare"] = int.from_bytes(data[:size], "big")
        self.variables["operand"] = int.from_bytes(data[-size:][:8], "big") if size else 0
        return data

    def place(self) -> Mapping[str, int]:
        pair = self.pairs[0]
        asked = {name: value for name, value in pair.settings.items() if name in (*_RETRIES, "timeout")}
        return {
            "key": OUR_KEY, "addr": OUR_ADDRESS, "mtu": self.peer.path_mtu, "qpn": pair.number, "psn": pair.psn,
            "peer_qpn": pair.theirs, "peer_psn": pair.first, "q_key": pair.q_key, "p_key": self.peer.p_key,
            "timeout": self.timeout, **_RETRIES, **asked,
            **{name: self.variables[name] for name in ("imm", "operand", "compare") if name in self.variables},
        }  # fmt: skip

    @property
    def without(self) -> frozenset[str]:
        return self.peer.without

    def frame(self, step: Mapping[str, Any]) -> bytes:
        self._learn()
        return super().frame(step)

    def matters(self, found: RoceAnswer) -> bool:
        """Return whether a packet is for a queue pair of this test; where the peer will go on is kept for the next
        one."""
        self._learn()
        if not super().matters(found):
            return False
        if not is_response(found):
            values, pair = found.values, self.pairs[0]
            packets = 1
            if found.kind == "rdma_read_request":
                packets = max(-(-values.get("dmalen", 0) // self.peer.path_mtu), 1)  # it may be cut
            behind = values["psn"] + packets & _PSNS - 1
            if behind - pair.first & _PSNS - 1 < _PSNS >> 1:
                pair.first = behind
        return True

    def _learn(self) -> None:
        """Take the number and the first PSN of the peer's queue pair, if it has told them."""
        told = self.actor.pair()
        if told is not None and not self.came:
            pair = self.pairs[0]
            pair.theirs, pair.first = self.variables["qp"], self.variables["first"] = told

    def counted(self, found: RoceAnswer) -> RoceAnswer:
        """Return a packet with what `arrival` says of it."""
        if is_response(found):
            return found
        more = self.arrival(found.values["psn"])
        return replace(found, values={**found.values, **more}, rows={**found.rows, **dict.fromkeys(more, COUNTED)})

    def tolerates(self, found: RoceAnswer) -> bool:
        return self.pairs[0].kind == "rc" and bool(found.values.get("copies"))

    def leave(self) -> None:
        super().leave()
        RocePlay.leave(self)
        self.pairs[0].dead = self.pairs[0].dead or self.test.ends == "error"

    def acknowledge(self, found: RoceAnswer) -> None:
        pair = self.pairs[0]
        if pair.kind != "rc" or not self.matters(found) or is_response(found):
            return
        if found.values["opcode"] in _ANSWERED or not found.values["a"]:
            return
        self.ended.add(found.values["psn"])
        told = {"psn": found.values["psn"], "syndrome": 0x1F, "msn": len(self.ended)}
        self.send({"send": "acknowledge", **told})
