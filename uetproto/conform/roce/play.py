# SPDX-License-Identifier: GPL-2.0-only
"""This module plays one test of RoCE against a peer, on queue pairs of its own."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.expressions import in_words, matches, named, value_of
from uetproto.conform.packets import NOTHING
from uetproto.conform.player import ConformanceVerdict, Failed, Link, Outcome, Patience, Play, Suite
from uetproto.conform.roce.hand import ends_pairs
from uetproto.conform.roce.packets import CNP, RoceAnswer, RoceCraft, RoceFacts, is_response, read
from uetproto.conform.roce.pairs import OpenPair, PeerSetup, TakenMessage, wishes_of
from uetproto.engine.contract import MILLISECOND
from uetproto.wire.fields import Field
from uetproto.wire.headers.roce import Nak

_NUMBER24, _NUMBER = Field(24, "number"), Field(64, "number")
_REPORTED = ("length", "immdt", "se", "srcqp")
_PAUSE = 5 * MILLISECOND
"""Time between two questions what the peer has received."""
_FULL = 0x8000
OUR_KEY, OUR_ADDRESS = 0x5151, 0x100000
"""r_key and address of memory of ours, which the peer's own requests name."""
ToldT = TypeVar("ToldT")


class RocePlay(Play[RoceAnswer]):
    """This class plays one test of RoCE."""

    told = ("psn", "msn", "credits", "timer", "nak", "syndrome", "origremdt", "destqp", "p_key")

    def __init__(
        self,
        test: ConformanceTest,
        link: Link,
        peer: RoceFacts,
        opened: PeerSetup,
        rng: random.Random,
        patience: Patience,
    ) -> None:
        variables = {"mtu": peer.path_mtu, "p_key": peer.p_key, "our_key": OUR_KEY, "our_addr": OUR_ADDRESS}
        for name, place in opened.memory.items():
            before = name and f"{name}_"
            variables |= {f"{before}key": place.key, f"{before}addr": place.address, f"{before}length": place.length}
        for number, pair in enumerate(opened.pairs, 1):
            behind = "" if number == 1 else str(number)
            told = {
                "qp": pair.theirs, "us": pair.number, "start": pair.psn, "msn": pair.msn, "q_key": pair.q_key,
                "first": pair.first,
            }  # fmt: skip
            variables |= {f"{name}{behind}": value for name, value in told.items()}
        super().__init__(test, link, patience, variables)
        self.peer, self.pairs = peer, opened.pairs
        self.craft = RoceCraft(peer, rng, link.entropy)

    def step(self, step: Mapping[str, Any]) -> None:
        if "received" in step:
            self._received(step)
        elif "completed" in step:
            self._completed(step)
        elif "post" in step:
            self._post(step)
        else:
            super().step(step)

    def frame(self, step: Mapping[str, Any]) -> bytes:
        return self.craft.frame(step, self._pair(step), self.variables)

    def bytes_of(self, told: Any) -> bytes:
        return self.craft.bytes_of(told, self.variables)

    def read(self, frame: bytes) -> RoceAnswer | None:
        return read(frame)

    def matters(self, found: RoceAnswer) -> bool:
        """Return whether a packet is for a queue pair of this test. A CNP matters to a test that needs CNPs, as any
        switch may mark packets.

        It has to have the P_Key of the queue pair. What it tells of the peer's PSN and MSN is kept for the next test.
        """
        values = found.values
        if found.kind == CNP and CNP not in self.test.needs:
            return False
        pair = next((pair for pair in self.pairs if pair.number == values["destqp"]), None)
        if pair is None:
            self.result.aside += 1
            return False
        if (values["p_key"] ^ self.peer.p_key) & ~_FULL:
            raise Failed(f"a packet of the peer is wrong: P_Key {values['p_key']:#06x} (roce.md §2)")
        if is_response(found) and pair.kind == "rc":
            psn = values["psn"]
            nak = values.get("nak", Nak.PSN_SEQUENCE_ERROR)
            pair.dead = pair.dead or nak != Nak.PSN_SEQUENCE_ERROR
            behind = psn if found.kind in ("nak", "rnr_nak") else psn + 1
            if behind - pair.psn & 0xFFFFFF < 1 << 23:
                pair.psn = behind & 0xFFFFFF
            pair.msn = values.get("msn", pair.msn)
        return True

    def leave(self) -> None:
        """Leave the queue pairs to the source of pairs, which is told by whoever plays.

        After a failure nobody knows which PSN a queue pair of RC expects, and what it has begun: it serves no further
        test, which would fail for that alone.
        """
        if self.result.verdict is ConformanceVerdict.FAIL:
            for pair in self.pairs:
                pair.dead = pair.dead or pair.kind == "rc"

    def differs_further(self, wanted: Mapping[str, Any], found: RoceAnswer) -> str:
        pair = self._pair(wanted)
        if found.values["destqp"] != pair.number:
            return f"it is for queue pair {found.values['destqp']:#x}, allowed is {pair.number:#x}"
        return ""

    def _pair(self, step: Mapping[str, Any]) -> OpenPair:
        number: int = step.get("on", 1)
        return self.pairs[number - 1]

    def _received(self, step: Mapping[str, Any]) -> None:
        """Hold what the receives of a queue pair have taken since the last such step against what is allowed."""
        found = self._told(step["received"], lambda: self.peer.pairs.messages(self._pair(step)))
        if len(found) != step["received"]:
            raise Failed(f"the receives of the peer took {len(found)} messages, allowed is {step['received']}")
        for message in found:
            self._compare(step, message)

    def _told(self, wanted: int, ask: Callable[[], list[ToldT]]) -> list[ToldT]:
        """Ask the peer until it has told so much, or until the time is over. No packet may come meanwhile but those
        that are allowed."""
        found: list[ToldT] = []
        until = self.link.now + (self.patience.answer if wanted else self.patience.silence)
        while True:
            packet = self.next(min(self.link.now + _PAUSE, until))
            if packet is not None and all(self._differs(one, packet) for one in self.allowed):
                raise Failed(self.wrong([{"expect": NOTHING}], packet))
            found += ask()
            if self.peer.pairs.gone:
                told = "the peer does not tell any more what it did"
                raise Failed(told, silent=True, verdict=ConformanceVerdict.INCONCLUSIVE)
            if (wanted and len(found) >= wanted) or self.link.now >= until:
                return found

    def _post(self, step: Mapping[str, Any]) -> None:
        """Have the peer post work. Its data are named, and their packets by the name with .1, .2 and so on."""
        work: dict[str, Any] = {"opcode": step["post"], "remote_addr": OUR_ADDRESS, "rkey": OUR_KEY}
        for name in ("length", "imm_data", "compare_add", "swap"):
            if name in step:
                work[name] = value_of(name, step[name], _NUMBER, self.variables)
        if "data" in step:
            name, mtu = str(step.get("as", "posted")), self.peer.path_mtu
            data = self.craft.bytes_of(step["data"], self.variables, name)
            for number, at in enumerate(range(0, len(data), mtu), 1):
                self.craft.data[f"{name}.{number}"] = data[at : at + mtu]
            work["data"] = data
        self.peer.pairs.post(self._pair(step), work)

    def _completed(self, step: Mapping[str, Any]) -> None:
        """Hold what work of the peer has completed since the last such step against what is allowed."""
        wanted = step["completed"]
        found = self._told(wanted, lambda: self.peer.pairs.completed(self._pair(step)))
        if len(found) != wanted:
            raise Failed(f"{len(found)} work requests of the peer have completed, allowed is {wanted}")
        for work in found:
            if work.status != step.get("status", work.status):
                raise Failed(f"work of the peer ended as {work.status}, allowed is {step['status']}")
            if "data" in step and work.data != (expected := self.bytes_of(step["data"])):
                raise Failed(f"the peer has read {work.data[:32].hex()}, allowed is {expected[:32].hex()}")

    def _compare(self, step: Mapping[str, Any], message: TakenMessage) -> None:
        """Raise `Failed` for a message that differs from what is allowed."""
        for name in _REPORTED:
            if name in step:
                seen = getattr(message, name)
                if seen is None or not matches(name, step[name], seen, _NUMBER, self.variables):
                    allowed = in_words(step[name], _NUMBER, self.variables)
                    shown = "missing" if seen is None else named(seen, _NUMBER)
                    raise Failed(f"{name} of what the peer received is {shown}, allowed is {allowed}")
        if step.get("network") and not self._has_network(message.data):
            raise Failed(f"the first 40 bytes are {message.data[:40].hex()}, allowed is the network header")
        if "data" in step:
            start = value_of("from", step.get("from", 0), _NUMBER24, self.variables)
            expected = self.bytes_of(step["data"])
            seen = message.data[start : message.length]
            if seen != expected:
                told = f"the peer received {seen[:32].hex()} of {len(seen)} bytes"
                raise Failed(f"{told}, allowed is {expected[:32].hex()} of {len(expected)}")

    def _has_network(self, data: bytes) -> bool:
        """Return whether the first 40 bytes of a receive of UD have the addresses of the network header (roce.md
        §11)."""
        peer, four = self.peer, self.peer.ip_version == 4
        size, at = (4, 32) if four else (16, 8)
        ends = peer.local.to_bytes(size, "big") + peer.address.to_bytes(size, "big")
        return data[20 if four else 0] >> 4 == peer.ip_version and data[at : at + 2 * size] == ends


def play(
    test: ConformanceTest, link: Link, peer: RoceFacts, seed: str, patience: Patience,
    make: Callable[..., RocePlay] = RocePlay,
) -> Outcome:  # fmt: skip
    """Play a test and return its outcome. `make` makes what plays it.

    First PSNs and data follow from the part of `seed` before a "#", and numbers of queue pairs from all of it, so that
    late answers to the test before are told apart. Raises `LocalError` for a step with a value that is not legal.
    """
    offers = peer.offers
    for name in test.needs:
        if offers[name]:
            return Outcome(test, ConformanceVerdict.INCONCLUSIVE, offers[name])
    if test.act and make is RocePlay:
        return Outcome(test, ConformanceVerdict.INCONCLUSIVE, "nobody makes the peer act (--as target)")
    rng = random.Random(f"{seed.partition('#')[0]}/{test.id}")
    numbers = random.Random(f"{seed}/{test.id}/QPNs").sample(range(0x100, 0xFFFFF0), len(test.pairs))
    starts = [pair.get("start", rng.randrange(1 << 24)) for pair in test.pairs]
    opened = peer.pairs.open(wishes_of(test.pairs, numbers, starts))
    if isinstance(opened, str):
        return Outcome(test, ConformanceVerdict.INCONCLUSIVE, opened, silent=peer.pairs.gone)
    try:
        return make(test, link, peer, opened, rng, patience).outcome()
    finally:
        peer.pairs.close(opened)


def gentle_first(tests: Iterable[ConformanceTest]) -> list[ConformanceTest]:
    """Return tests, those last in which the peer refuses a request: queue pairs made by hand serve none after it."""
    return sorted(tests, key=lambda test: bool(ends_pairs(test)))


LIVENESS = ConformanceTest(
    id="LIVENESS", section="roce.md §8", covers=(), purpose="The peer answers a WRITE of no bytes.", needs=(),
    pairs=({"kind": "rc"},), place=None,  # type: ignore[arg-type]  # it is in no file
    steps=(
        {"send": "rdma_write_only", "psn": "start", "a": 1},
        {"any": [{"expect": "ack"}, {"expect": "nak"}, {"expect": "rnr_nak"}]},
    ),
)  # fmt: skip
"""What is asked of a peer to know whether it answers at all."""
ROCE = Suite(play, LIVENESS)
