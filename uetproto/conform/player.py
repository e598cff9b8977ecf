# SPDX-License-Identifier: GPL-2.0-only
"""This module plays one conformance test against a peer, and judges what the peer answers.

It knows neither sockets nor clocks: a `Link` sends and receives frames, on a real link (`live_link.py`) or in virtual
time.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.expressions import in_words, matches, named, value_of
from uetproto.conform.packets import NOTHING, AnswerPacket, PacketCraft, PeerFacts, read, sacked, what_else
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.errors import LocalError
from uetproto.wire.fields import Field
from uetproto.wire.headers.uet_pds import NackCode

ALWAYS = ("clear_req", "credit", "close_req", "probe")
"""Kinds of packets that a peer may send at any time (pds.md §13)."""
MOST = 4096
"""Number of packets of a peer in one test from which on it floods."""
FLOODS = f"the peer floods: more than {MOST} packets in one test"
"""Why a test fails then."""
_NEAR = 256
"""PSNs of a test that are not so far above its first one count as sent when its PDC is closed."""
_FREE = ("save", "data", "sack", "expect", "allow", "forbid", "on")
_NUMBER = Field(32, "number")


class Link(Protocol):
    """A link carries frames to one peer and back."""

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""

    def entropy(self, value: int) -> int:
        """Return the entropy value with which the link sends what shall have `value`: one that it can send."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def receive(self, until: int) -> bytes | None:
        """Return the next frame that arrives, or None if none does until the time `until`."""


class ConformanceVerdict(Enum):
    """A verdict says how a test ended."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """The peer does not offer what the test needs, or answers nothing at all."""


@dataclass(frozen=True, slots=True)
class Patience:
    """This record says how long a test waits, in picoseconds."""

    answer: int = SECOND
    """Longest time for which an answer is waited for."""
    silence: int = 30 * MILLISECOND
    """Time for which nothing has to come where no answer is right."""
    act: int = 10 * SECOND
    """Longest time from what the peer is told to do to its first packet."""
    grace: int = 0
    """Time after a packet of ours in which what a step forbids may still come, as it was on its way."""
    end: int = 30 * SECOND
    """Longest time in which an act of the peer ends, also in an error."""

    @classmethod
    def of(cls, rtt: int) -> "Patience":
        """Return the times that suit a measured round-trip time."""
        return cls(max(SECOND, 50 * rtt), max(30 * MILLISECOND, 8 * rtt))


@dataclass(slots=True)
class PlayedFrame:
    """This record is a frame of a test."""

    time: int
    sent: bool
    data: bytes


@dataclass(slots=True)
class Outcome:
    """This record says how a test ended, and why."""

    test: ConformanceTest
    verdict: ConformanceVerdict
    reason: str = ""
    step: int = 0
    """Number of the step that decided, from 1; 0: none did."""
    frames: list[PlayedFrame] = field(default_factory=list)
    silent: bool = False
    """Whether the test failed as an answer is missing."""
    tries: int = 1
    """Number of times that the test was played."""
    packet: int | None = None
    """Number of the packet that decided, from 0; None if none did."""
    aside: int = 0
    """Number of packets of the peer that belong to no PDC of the test."""


class Failed(Exception):  # noqa: N818 - it is a verdict
    """This exception ends a test with a verdict."""

    def __init__(
        self, reason: str, *, silent: bool = False, verdict: ConformanceVerdict = ConformanceVerdict.FAIL
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.silent, self.verdict = silent, verdict


def play(test: ConformanceTest, link: Link, peer: PeerFacts, seed: str, patience: Patience) -> Outcome:
    """Play a test and return its outcome.

    First PSNs and data follow from the part of `seed` before a "#". PDCIDs follow from all of it, as a peer refuses
    those that it closed a short time ago (pds.md §6.2 item 9). Raises `LocalError` for a step with a value that is not
    legal.
    """
    offers = peer.offers
    for name in test.needs:
        if offers[name]:
            return Outcome(test, ConformanceVerdict.INCONCLUSIVE, offers[name])
    if test.act:
        return Outcome(test, ConformanceVerdict.INCONCLUSIVE, "nobody makes the peer act (--as target)")
    return UetPlay(test, link, peer, seed, patience).outcome()


class Answer(Protocol):
    """An answer is a packet of the peer: its kind, the values of its headers by field, and its payload."""

    @property
    def kind(self) -> str: ...

    @property
    def values(self) -> Mapping[str, int]: ...

    @property
    def rows(self) -> Mapping[str, Field]: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def fault(self) -> str:
        """Return why the packet is wrong by itself. The text is empty if it is not."""


AnswerT = TypeVar("AnswerT", bound=Answer)


class Play(ABC, Generic[AnswerT]):
    """This base class plays one test, step by step. A subclass makes the packets of a protocol, and reads them."""

    told: tuple[str, ...]
    """Fields of a packet of the peer that verdicts name."""

    def __init__(self, test: ConformanceTest, link: Link, patience: Patience, variables: dict[str, int]) -> None:
        self.test, self.link, self.patience, self.variables = test, link, patience, variables
        self.allowed: list[Mapping[str, Any]] = []
        self.forbidden: list[Mapping[str, Any]] = []
        self.wanted: list[Mapping[str, Any]] = []
        """What the present step waits for."""
        self.result = Outcome(test, ConformanceVerdict.PASS)
        self.received = 0
        self.sent_at = -SECOND
        """Time of our last packet."""
        self.strange = ""
        """What the last frame is that is none of the protocol, in words."""

    @abstractmethod
    def frame(self, step: Mapping[str, Any]) -> bytes:
        """Return the frame of a step of our side."""

    @abstractmethod
    def bytes_of(self, told: Any) -> bytes:
        """Return the bytes that a test writes."""

    @abstractmethod
    def read(self, frame: bytes) -> AnswerT | None:
        """Return the packet of the peer in a frame, or None if it is none of the protocol."""

    @abstractmethod
    def matters(self, found: AnswerT) -> bool:
        """Return whether a packet belongs to this test and is not one that may come at any time."""

    def begin(self) -> None:
        """Begin the test. What has come since the last one is thrown away, up to a limit."""
        for _ in range(MOST):
            if self.link.receive(self.link.now) is None:
                break

    def what_else(self, frame: bytes) -> str:
        """Return what a frame is that is none of the protocol, in words."""
        return "no packet of the protocol"

    @abstractmethod
    def leave(self) -> None:
        """Free the peer for the next test. Nothing is judged any more."""

    def compares(self, told: Any) -> bool:
        """Return whether the bytes that a test writes can be compared with those of a packet."""
        return True

    def counted(self, found: AnswerT) -> AnswerT:
        """Return a packet that belongs to this test, with what was counted of it as further values."""
        return found

    def tolerates(self, found: AnswerT) -> bool:
        """Return whether a packet that no step allows is no fault."""
        return False

    def wait_for(self, *, silence: bool) -> int:
        """Return the longest time in picoseconds to wait for a packet, or for nothing."""
        return self.patience.silence if silence else self.patience.answer

    def next_frame(self, until: int) -> bytes | None:
        """Return the next frame of the peer, or None if none comes in time."""
        return self.link.receive(until)

    def differs_further(self, wanted: Mapping[str, Any], found: AnswerT) -> str:
        """Return how a packet differs from what a protocol alone can tell, in words; empty if it does not."""
        return ""

    def outcome(self) -> Outcome:
        result = self.result
        self.begin()
        for number, step in enumerate(self.test.steps, 1):
            try:
                self.step(step)
            except Failed as failed:
                result.verdict, result.reason, result.step = failed.verdict, str(failed), number
                result.silent = failed.silent
                if not failed.silent and failed.verdict is ConformanceVerdict.FAIL:
                    came = (number for number, frame in enumerate(result.frames) if not frame.sent)
                    result.packet = max(came, default=None)
                break
            except LocalError as error:
                place = f"{self.test.place}: {self.test.id}, step {number}"
                raise LocalError(f"{place}: {error}", id="test-file") from error
        self.leave()
        return result

    def step(self, step: Mapping[str, Any]) -> None:
        """Take a step. Raises `Failed`."""
        if "send" in step:
            self.send(step)
        elif "allow" in step:
            self.allowed.append({"expect": step["allow"], **step})
        elif "forbid" in step:
            self.forbidden.append({"expect": step["forbid"], **step})
        elif "all" in step:
            left = list(step["all"])
            while left:
                left.remove(self._await(left))
        else:
            self._await(step.get("any", [step]))

    def send(self, step: Mapping[str, Any]) -> None:
        """Send the packet of a step."""
        frame = self.frame(step)
        self.result.frames.append(PlayedFrame(self.link.now, True, frame))
        self.link.send(frame)
        self.sent_at = self.link.now

    def _await(self, wanted: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Wait for a packet that one of the expectations allows, and return this expectation."""
        self.wanted = wanted
        silence = next((one for one in wanted if one["expect"] == NOTHING), None)
        until = self.link.now + self.wait_for(silence=silence is not None)
        tolerated = ""
        while (found := self.next(until)) is not None:
            for one in wanted:
                if not self._differs(one, found):
                    self._save(one, found)
                    return one
            if any(not self._differs(one, found) for one in self.allowed):
                continue
            if not self.tolerates(found):
                raise Failed(self.wrong(wanted, found))
            tolerated = f"; {self.wrong(wanted, found)}"
        if silence is None:
            strange = f"; what came is {self.strange}" if self.strange else ""
            raise Failed(f"no answer came; allowed is {self._words(wanted)}{tolerated}{strange}", silent=True)
        return silence

    def next(self, until: int) -> AnswerT | None:
        """Return the next packet of the peer that matters to the test, or None if none comes in time."""
        while (frame := self.next_frame(until)) is not None:
            self.result.frames.append(PlayedFrame(self.link.now, False, frame))
            self.received += 1
            if self.received > MOST:
                raise Failed(FLOODS)
            found = self.read(frame)
            if found is None:
                self.strange = self.what_else(frame)
                continue
            if found.fault:
                raise Failed(f"a packet of the peer is wrong: {found.fault}")
            if self.matters(found):
                found = self.counted(found)
                settled = self.link.now - self.sent_at >= self.patience.grace
                if settled and any(not self._differs(one, found) for one in self.forbidden):
                    raise Failed(f"{self._said(found)}, which is forbidden here")
                return found
        return None

    def _differs(self, wanted: Mapping[str, Any], found: AnswerT) -> str:
        """Return how a packet differs from what is allowed, in words; empty if it does not."""
        if wanted["expect"] != found.kind:
            return f"allowed is {wanted['expect']}"
        for name, pattern in wanted.items():
            if name in _FREE:
                continue
            row = found.rows.get(name)
            if row is None:
                return f"it has no {name}"
            if not matches(name, pattern, found.values[name], row, self.variables):
                seen = named(found.values[name], row)
                return f"{name} is {seen}, allowed is {in_words(pattern, row, self.variables)}"
        if (
            "data" in wanted
            and self.compares(wanted["data"])
            and found.payload != (expected := self.bytes_of(wanted["data"]))
        ):
            return f"its data is {found.payload[:32].hex()}, allowed is {expected[:32].hex()}"
        return self.differs_further(wanted, found)

    def _said(self, found: AnswerT) -> str:
        told = (f"{name} {named(found.values[name], found.rows[name])}" for name in self.told if name in found.values)
        return f"the peer sent {found.kind} ({', '.join(told)})"

    def wrong(self, wanted: list[Mapping[str, Any]], found: AnswerT) -> str:
        """Return what the peer sent, and what is allowed, in words."""
        return "; ".join((self._said(found), *(self._differs(one, found) for one in wanted)))

    def _words(self, wanted: Iterable[Mapping[str, Any]]) -> str:
        """Return expectations in words."""
        texts = []
        for one in wanted:
            names = ", ".join(
                f"{name} {' or '.join(map(str, pattern)) if isinstance(pattern, list) else pattern}"
                for name, pattern in one.items() if name not in _FREE
            )  # fmt: skip
            texts.append(f"{one['expect']} ({names})" if names else one["expect"])
        return " or ".join(texts)

    def _save(self, wanted: Mapping[str, Any], found: AnswerT) -> None:
        """Keep values of a packet as variables."""
        for variable, name in wanted.get("save", {}).items():
            if name not in found.values:
                raise LocalError("save", f"{name!r} is no field of the packet", ", ".join(found.values), id="test-file")
            self.variables[variable] = found.values[name]

    def take(self, until: int) -> AnswerT | None:
        """Return the next packet of the peer, which is not judged, or None if none comes in time."""
        while self.received <= MOST and (frame := self.link.receive(until)) is not None:
            self.received += 1
            self.result.frames.append(PlayedFrame(self.link.now, False, frame))
            if (found := self.read(frame)) is not None:
                return found
        return None


class UetPlay(Play[AnswerPacket]):
    """This class plays one test of UET in which we are the initiator."""

    told: tuple[str, ...] = (
        "nack_code", "nack_psn", "psn", "ack_psn", "cack_psn", "pkt_id", "return_code", "spdcid"
    )  # fmt: skip

    def __init__(self, test: ConformanceTest, link: Link, peer: PeerFacts, seed: str, patience: Patience) -> None:
        rng = random.Random(f"{seed.partition('#')[0]}/{test.id}")
        us, other = random.Random(f"{seed}/{test.id}/PDCIDs").sample(range(1, 1 << 16), 2)
        start = rng.randrange(1 << 32)
        super().__init__(test, link, patience, peer.variables() | {"us": us, "other": other, "start": start})
        self.peer = peer
        self.craft = PacketCraft(peer, rng, link.entropy)
        self.is_rod = False
        """Whether the PDC of the test is one of ROD."""
        self.returned: set[int] = set()
        """PSNs of requests of the peer that were seen."""

    def frame(self, step: Mapping[str, Any]) -> bytes:
        if "start" in step:  # the test chooses the first PSN
            self.variables["start"] = value_of("start", step["start"], _NUMBER, self.variables)
            step = {name: value for name, value in step.items() if name != "start"}
        if step.get("syn"):
            self.is_rod = step["send"].startswith("rod") or bool(step.get("isrod"))
        return self.craft.frame(step, self.variables)

    def bytes_of(self, told: Any) -> bytes:
        return self.craft.bytes_of(told)

    def read(self, frame: bytes) -> AnswerPacket | None:
        return read(frame, self.peer.how)

    def what_else(self, frame: bytes) -> str:
        return what_else(frame, self.peer.how)

    def matters(self, found: AnswerPacket) -> bool:
        """Return whether a packet belongs to this test and is not one that may come at any time.

        The PDCID of the peer is learned from the first packet that has one (pds.md §6.2).
        """
        values = found.values
        if values.get("dpdcid", 0) not in (0, self.variables["us"], self.variables["other"]):
            self.result.aside += 1
            return False
        if found.kind in ALWAYS:
            return False
        if found.kind == "request":
            if values["psn"] in self.returned and values["retx"]:
                return any(one.get("retx") for one in self.wanted)  # else it is no news
            self.returned.add(values["psn"])
        if values.get("spdcid") and values.get("dpdcid") == self.variables["us"]:
            self.variables.setdefault("peer", values["spdcid"])
        return True

    def differs_further(self, wanted: Mapping[str, Any], found: AnswerPacket) -> str:
        if "sack" in wanted:
            psns = {value_of("sack", psn, _NUMBER, self.variables) for psn in wanted["sack"]}
            if more := sacked(found.values) - psns:
                return f"its SACK bitmap has PSN {min(more)}, which was not received"
        return ""

    def leave(self) -> None:
        """Close the PDC of the test.

        CLOSE_CMD has the PSN above all those of the test. A peer that lacks some of them waits for them, so they are
        then filled with NOOPs.
        """
        if "peer" not in self.variables:
            return
        if self.returned:  # the peer waits for ACKs of its return direction
            last_returned = max(self.returned, key=lambda psn: psn - self.variables["start"] & 0xFFFFFFFF)
            self.send({"send": "ack response", "cack_psn": last_returned})
        offsets = (
            found.values["psn"] - self.variables["start"] & 0xFFFFFFFF for found in self._ours()
            if "psn" in found.values and found.values["spdcid"] == self.variables["us"]
        )  # fmt: skip
        last = max((offset for offset in offsets if offset < _NEAR), default=0)
        rod = {"isrod": self.is_rod}
        close = {"send": "close_cmd", "psn": f"start + {last + 1}", **rod}
        self.send(close)
        if not self._closed(last + 1):  # PSNs below it are missing at the peer
            for offset in range(last + 1):
                self.send({"send": "noop", "psn": f"start + {offset}", "retx": 1, **rod})
                self.take(self.link.now)
            # CLOSE_CMD has cleared nothing above the gaps.
            self.send({"send": "clear_cmd", "psn": 0, "ctl_payload": f"start + {last}", **rod})
            self.send({**close, "retx": 1})
            self._closed(last + 1)

    def _closed(self, offset: int) -> bool:
        """Return whether the peer tells within a short time that the PDC is closed."""
        until = self.link.now + self.patience.silence
        while (found := self.take(until)) is not None:
            values = found.values
            if values.get("dpdcid") == self.variables["us"] and (
                values.get("nack_code") == NackCode.INV_DPDCID
                or values.get("ack_psn") == values.get("cack_psn") == self.variables["start"] + offset & 0xFFFFFFFF
            ):
                return True
        return False

    def _ours(self) -> Iterable[AnswerPacket]:
        found = (self.read(frame.data) for frame in self.result.frames if frame.sent)
        return (one for one in found if one is not None)


LIVENESS = ConformanceTest(
    id="LIVENESS", section="pds.md §13", covers=(), purpose="The peer answers a NOOP that opens a PDC.", needs=(),
    place=None,  # type: ignore[arg-type]  # it is in no file
    steps=({"send": "noop", "psn": "start", "syn": 1}, {"any": [{"expect": "ack"}, {"expect": "nack"}]}),
)  # fmt: skip
"""What is asked of a peer to know whether it answers at all."""


_ASKED = 3
"""Number of times that a peer is asked whether it answers at all, as a packet may be lost."""


class Suite(NamedTuple):
    """This tuple says how the tests of a protocol are played, and what a peer is asked to know whether it answers."""

    play: Callable[[ConformanceTest, Link, Any, str, Patience], Outcome]
    liveness: ConformanceTest


UET = Suite(play, LIVENESS)


def round_trip(link: Link, peer: Any, seed: str, patience: Patience, suite: Suite = UET) -> int | None:
    """Return the time in picoseconds in which the peer answers, or None if it does not.

    The time is 0 if the peer cannot be asked.
    """
    for number in range(_ASKED):
        outcome = suite.play(suite.liveness, link, peer, f"{seed}#{number}", patience)
        if outcome.verdict is ConformanceVerdict.INCONCLUSIVE:
            return None if outcome.silent else 0
        if outcome.verdict is ConformanceVerdict.PASS:
            sent = next(frame for frame in outcome.frames if frame.sent)
            answer = next(frame for frame in outcome.frames if not frame.sent)
            return max(answer.time - sent.time, 1)
    return None


def judge(
    test: ConformanceTest, link: Link, peer: Any, seed: str, patience: Patience, tries: int = 1, suite: Suite = UET
) -> Outcome:
    """Play a test, and return its outcome. `peer` has the facts that the suite needs, such as `PeerFacts`.

    A missing answer is a fault only of a peer that answers at all. On a link that loses packets a test that fails is
    played up to `tries` times, until it passes: a fault of the peer makes it fail each time, unless the packet that
    shows it is lost.
    """
    for number in range(1, tries + 1):
        outcome = suite.play(test, link, peer, f"{seed}#{number}", patience)
        outcome.tries = number
        if outcome.verdict is not ConformanceVerdict.FAIL:
            break
        asked = f"{seed}#{test.id}#{number}"
        if outcome.silent and not test.act and round_trip(link, peer, asked, patience, suite) is None:
            outcome.verdict = ConformanceVerdict.INCONCLUSIVE
            outcome.reason = f"the peer answers nothing any more; {outcome.reason}"
            break
    return outcome
