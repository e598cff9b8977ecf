# SPDX-License-Identifier: GPL-2.0-only
"""This module plays the tests in which the peer is the initiator: it acts, and we answer as the test says."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.expressions import value_of
from uetproto.conform.packets import IDEMPOTENT_SAFE, AnswerPacket, PeerFacts
from uetproto.conform.player import (
    ALWAYS,
    FLOODS,
    LIVENESS,
    MOST,
    AnswerT,
    ConformanceVerdict,
    Failed,
    Link,
    Outcome,
    Patience,
    Play,
    Suite,
    UetPlay,
)
from uetproto.conform.tss.play import SealedPlay
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND
from uetproto.errors import LocalError
from uetproto.wire.fields import Field

_AS_INITIATOR = (*ALWAYS, "ack_req", "clear_cmd", "credit_req", "close_cmd", "noop")
"""Kinds of packets that an initiator may send at any time: a test that minds has `forbid` or `expect` for them."""
_HAS_PSN = ("request", "noop", "close_cmd", "negotiation")
"""Kinds of packets of the peer that consume a PSN (pds.md §2.2)."""
_LOOK = 100 * MILLISECOND
"""Time after which we look whether the act of a peer has ended."""
_NUMBER, COUNTED = Field(32, "number"), Field(64, "counted")
_ALL = 0xFFFFFFFF
CANNOT = "cannot"
"""What `Actor.ended` returns if the peer cannot do what a test wants."""


@dataclass(frozen=True, slots=True)
class PeerAct:
    """This record says what the peer has to do in a test."""

    test: ConformanceTest
    mode: str
    operation: str
    length: int
    """Number of bytes."""
    data: bytes
    """Bytes that the peer has to write or send; the operands of an atomic, most significant byte first. They are empty
    for a read."""
    place: Mapping[str, int]
    """Numbers by name, of which a driver gets those that it knows: key, addr, mtu and so on."""


class Actor(Protocol):
    """An actor makes the peer act: it runs a program, or tells a person what to do."""

    def begin(self, act: PeerAct) -> None:
        """Begin the act."""

    def ended(self) -> str | None:
        """Return how the act ended, one of `catalogue.ENDS`, `CANNOT` if the peer cannot do it, or None if it has not
        ended or nobody knows."""

    def words(self) -> str:
        """Return what is known of the end of the act, in words."""

    def result(self) -> bytes | None:
        """Return the bytes that the peer has read, or None if they are not known."""

    def end(self) -> None:
        """End the act, whatever it does."""

    @property
    def tells(self) -> bool:
        """Return whether `ended` is known for acts of this actor."""


def patience_for(rto: int) -> Patience:
    """Return the times that suit a peer with this RTO, in picoseconds."""
    return Patience(
        max(2 * SECOND, 20 * rto), max(100 * MILLISECOND, rto * 5 // 2), end=max(30 * SECOND, 80 * rto),
        grace=20 * MILLISECOND,
    )  # fmt: skip


def acting(actor: Actor) -> Suite:
    """Return how the tests are played in which an actor makes the peer act."""
    return Suite(partial(_play, actor), LIVENESS)


def _play(actor: Actor, test: ConformanceTest, link: Link, peer: PeerFacts, seed: str, patience: Patience) -> Outcome:
    offers = peer.offers
    for name in test.needs:
        if offers[name]:
            return Outcome(test, ConformanceVerdict.INCONCLUSIVE, offers[name])
    kind = _ActPlay if peer.security is None else _SealedActPlay
    return kind(test, link, peer, seed, patience, actor).outcome()


class ActedPlay(Play[AnswerT]):
    """This base class plays one test in which the peer acts."""

    actor: Actor

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.came: dict[int, list[int]] = {}
        """Times at which the copies of each PSN of the peer came."""

    def arrival(self, psn: int) -> dict[str, int]:
        """Note that a packet with this PSN came, and return the number of `copies` that came before it, the
        microseconds `waited` since the last one, and half of them."""
        times = self.came.setdefault(psn, [])
        waited = (self.link.now - times[-1]) // MICROSECOND if times else 0
        times.append(self.link.now)
        return {"copies": len(times) - 1, "waited": waited, "half_waited": waited // 2}

    def outcome(self) -> Outcome:
        try:
            return super().outcome()
        finally:
            self.actor.end()

    def begin(self) -> None:
        """Let the peer act."""
        super().begin()
        mode, operation, length = self.test.act.split(maxsplit=2)
        with self.placed("act"):
            size = value_of("act", length, _NUMBER, self.variables)
            data, mtu = self.data_of_act(size), self.variables["mtu"]  # of a read what our memory has
        for number, at in enumerate(range(0, size, mtu), 1):
            self.keep(f"act.{number}", data[at : at + mtu])
        written = b"" if operation == "read" else data
        self.actor.begin(PeerAct(self.test, mode, operation, size, written, self.place()))

    @abstractmethod
    def keep(self, name: str, data: bytes) -> None:
        """Keep data of the test by a name."""

    @abstractmethod
    def data_of_act(self, size: int) -> bytes:
        """Return the bytes of the act, and keep them as "act"."""

    @abstractmethod
    def place(self) -> Mapping[str, int]:
        """Return where the peer has to act, and how: values of `PeerAct.place`."""

    @abstractmethod
    def acknowledge(self, found: AnswerT) -> None:
        """Acknowledge a packet of the peer and all before it. Nothing is judged any more."""

    @contextmanager
    def placed(self, key: str) -> Iterator[None]:
        """Add file and line of the test, and a key of it, to a `LocalError` of the block."""
        try:
            yield
        except LocalError as error:
            raise LocalError(f"{self.test.place}: {self.test.id}, {key}: {error}", id="test-file") from error

    def wait_for(self, *, silence: bool) -> int:
        return super().wait_for(silence=silence) if self.received else self.patience.act

    def next_frame(self, until: int) -> bytes | None:
        """Return the next frame of the peer. Raises `Failed` if the peer does not act at all."""
        if self.received:
            return self.link.receive(until)
        while (frame := self.link.receive(min(until, self.link.now + _LOOK))) is None:
            if (ended := self.actor.ended()) is not None:
                frame = self.link.receive(self.link.now)
            if frame is None and (ended is not None or self.link.now >= until):
                raise Failed(
                    f"the peer did not act: {self.actor.words()}", silent=ended != CANNOT,
                    verdict=ConformanceVerdict.INCONCLUSIVE,
                )  # fmt: skip
            if frame is not None:
                break
        return frame

    def compares(self, told: Any) -> bool:
        return not (str(told).startswith("@act") and "data" in self.without)

    @property
    @abstractmethod
    def without(self) -> frozenset[str]:
        """Return what the peer does not have."""

    def leave(self) -> None:
        """Acknowledge what the peer still sends until its act ends, and judge its end."""
        test, result, actor = self.test, self.result, self.actor
        judged = result.verdict is ConformanceVerdict.PASS and actor.tells and bool(test.ends or test.result)
        until = self.link.now + (self.patience.end if judged else self.patience.silence)
        while actor.ended() is None and self.link.now < until and self.received <= MOST:
            found = self.take(min(until, self.link.now + _LOOK))
            if found is not None and test.ends != "error":
                with suppress(Failed):  # what is wrong now is not judged any more
                    self.acknowledge(found)
        if self.received > MOST and result.verdict is ConformanceVerdict.PASS:
            result.verdict, result.reason = ConformanceVerdict.FAIL, FLOODS
        elif judged:
            self._judge_end()

    def _judge_end(self) -> None:
        """Fail a test that passed if the act of the peer did not end as it has to."""
        test, actor = self.test, self.actor
        ended, why, right = actor.ended(), "", None
        if test.result:
            with self.placed("result"):
                right = self.bytes_of(test.result)
        if test.ends and ended != test.ends:
            wrong = "did not end" if ended is None else f"ended otherwise ({ended})"
            why = f"the act has to end in {test.ends!r} at the peer, and {wrong}: {actor.words()}"
        elif (found := actor.result()) is not None and right is not None and found != right:
            told = f"{right[:32].hex()} ({len(right)} bytes)"
            why = f"the peer read {found[:32].hex()} ({len(found)} bytes), and it was sent {told}"
        if why:
            self.result.verdict, self.result.reason = ConformanceVerdict.FAIL, why


class _ActPlay(ActedPlay[AnswerPacket], UetPlay):
    """Plays one test in which the peer acts."""

    def __init__(
        self, test: ConformanceTest, link: Link, peer: PeerFacts, seed: str, patience: Patience, actor: Actor
    ) -> None:  # fmt: skip
        super().__init__(test, link, peer, seed, patience)
        self.actor = actor
        del self.variables["start"]  # the peer chooses it

    def keep(self, name: str, data: bytes) -> None:
        self.craft.data[name] = data

    def data_of_act(self, size: int) -> bytes:
        return self.craft.bytes_of(size, "act")

    def place(self) -> Mapping[str, int]:
        place = self.peer.variables()
        if self.test.act.startswith("rudi"):
            place["key"] |= IDEMPOTENT_SAFE
        return place

    @property
    def without(self) -> frozenset[str]:
        return self.peer.without

    def matters(self, found: AnswerPacket) -> bool:
        """Return whether a packet belongs to the act of the peer.

        The PDCID of the peer and its first PSN are learned from the first packet that has syn (pds.md §6.2).
        """
        values, variables = found.values, self.variables
        if values.get("dpdcid") == variables["other"]:  # of a PDC that we opened as the target
            return True
        if values.get("spdcid"):
            if "peer" not in variables and values.get("syn"):
                variables["peer"], variables["start"] = values["spdcid"], values["psn"] - values["psn_offset"] & _ALL
            if values["spdcid"] != variables.get("peer") or values.get("dpdcid", 0) not in (0, variables["us"]):
                self.result.aside += 1
                return False
        if found.kind in ("request", "rudi_request"):
            variables["message"] = values.get("message_id", variables.get("message", 1))
            variables["asked"] = values.get("request_length", variables.get("asked", 0))
        return True

    def counted(self, found: AnswerPacket) -> AnswerPacket:
        """Return a packet with what `arrival` says of it."""
        if found.kind not in _HAS_PSN or found.values.get("dpdcid") == self.variables["other"]:
            return found
        more = self.arrival(found.values["psn"])
        return replace(found, values={**found.values, **more}, rows={**found.rows, **dict.fromkeys(more, COUNTED)})

    def tolerates(self, found: AnswerPacket) -> bool:
        again = bool(found.values.get("copies")) and bool(found.values["retx"])
        return again or found.kind in _AS_INITIATOR

    def acknowledge(self, found: AnswerPacket) -> None:
        if not self.matters(found) or found.kind not in _HAS_PSN or "start" not in self.variables:
            return
        self.counted(found)
        last = found.values["psn"]
        while last + 1 & _ALL in self.came:
            last = last + 1 & _ALL
        told = "ack response" if found.kind == "request" else "ack"
        self.send({"send": told, "ack_psn": found.values["psn"], "cack_psn": last})


class _SealedActPlay(_ActPlay, SealedPlay):
    """Plays one test in which the peer acts with sealed packets."""
