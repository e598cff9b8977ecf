"""This module plays one test of RoCE against a peer, on queue pairs of its own."""

import random
from collections.abc import Mapping
from typing import Any

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.expressions import in_words, matches, named, value_of
from uetproto.conform.packets import NOTHING
from uetproto.conform.player import ConformanceVerdict, Failed, Link, Outcome, Patience, Play, Suite
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
        variables: dict[str, int] = {"mtu": peer.path_mtu, "p_key": peer.p_key}
        for name, place in opened.memory.items():
            before = name and f"{name}_"
            variables |= {f"{before}key": place.key, f"{before}addr": place.address, f"{before}length": place.length}
        for number, pair in enumerate(opened.pairs, 1):
            behind = "" if number == 1 else str(number)
            told = {"qp": pair.theirs, "us": pair.number, "start": pair.psn, "msn": pair.msn, "q_key": pair.q_key}
            variables |= {f"{name}{behind}": value for name, value in told.items()}
        super().__init__(test, link, patience, variables)
        self.peer, self.pairs = peer, opened.pairs
        self.craft = RoceCraft(peer, rng, link.entropy)
        self._taken: dict[int, list[TakenMessage]] = {}

    def step(self, step: Mapping[str, Any]) -> None:
        if "received" in step:
            self._received(step)
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
        """Leave the queue pairs to the source of pairs, which is told by whoever plays."""

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
        wanted, pair = step["received"], self._pair(step)
        found = self._taken.setdefault(pair.number, [])
        until = self.link.now + (self.patience.answer if wanted else self.patience.silence)
        while True:
            silent_until = min(self.link.now + _PAUSE, until)
            if (packet := self.next(silent_until)) is not None:
                raise Failed(self.wrong([{"expect": NOTHING}], packet))
            found += self.peer.pairs.messages(pair)
            if self.peer.pairs.gone:
                told = "the peer does not tell any more what it received"
                raise Failed(told, silent=True, verdict=ConformanceVerdict.INCONCLUSIVE)
            if (wanted and len(found) >= wanted) or self.link.now >= until:
                break
        if len(found) != wanted:
            raise Failed(f"the receives of the peer took {len(found)} messages, allowed is {wanted}")
        for message in found:
            self._compare(step, message)
        found.clear()

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


def play(test: ConformanceTest, link: Link, peer: RoceFacts, seed: str, patience: Patience) -> Outcome:
    """Play a test and return its outcome.

    First PSNs and data follow from the part of `seed` before a "#", and numbers of queue pairs from all of it, so that
    late answers to the test before are told apart. Raises `LocalError` for a step with a value that is not legal.
    """
    offers = peer.offers
    for name in test.needs:
        if offers[name]:
            return Outcome(test, ConformanceVerdict.INCONCLUSIVE, offers[name])
    rng = random.Random(f"{seed.partition('#')[0]}/{test.id}")
    numbers = random.Random(f"{seed}/{test.id}/QPNs").sample(range(0x100, 0xFFFFF0), len(test.pairs))
    starts = [pair.get("start", rng.randrange(1 << 24)) for pair in test.pairs]
    opened = peer.pairs.open(wishes_of(test.pairs, numbers, starts))
    if isinstance(opened, str):
        return Outcome(test, ConformanceVerdict.INCONCLUSIVE, opened, silent=peer.pairs.gone)
    try:
        return RocePlay(test, link, peer, opened, rng, patience).outcome()
    finally:
        peer.pairs.close(opened)


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
