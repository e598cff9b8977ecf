"""What happens next to two members of a secure domain, and what the attacker between them does, by chance.

Every episode draws its own settings and its own mixture of attacks. Only `random()` and `getrandbits()` of the
generator are used.
"""

from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, TypeVar

from uetproto.check.tss.end import MTU, SDI
from uetproto.check.tss.steps import DRESSES, MACHINE, MODES, RESTARTS, TssStep
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND, Rng
from uetproto.engine.pds.messages import build_nack
from uetproto.wire.headers.uet_pds import NackCode, PdsType

if TYPE_CHECKING:
    from uetproto.check.tss.machine import TssWorld

_T = TypeVar("_T")

PROFILES = (MACHINE,)
MSL = 200 * MILLISECOND
"""Of all episodes: old packets are to come back often. More than twice Σ RTO."""

_STARTS = (None, None, 1, 0x7FFFFFF0, 0xFFFFFFF0, 0xFFFFFFFF)
_STARTS_EXPECTED = (None, None, 1, 0x7FFF0000)
"""Within half a circle of 0, where Expected_PSN begins: what is refused as older must never be newer (§11)."""
_LENGTHS = (0, 1, 100, MTU, MTU + 1, 3 * MTU)
_FULL = 64
"""Packets on the wire from which on none is added."""
_STORM = 40
"""Old packets that come back one after the other, at most."""
_HEAD = 40
"""Bytes of a packet that are hit most often."""


class TssChooser:
    """Draws the settings of one episode (`terms`, `pds`), then its steps."""

    __slots__ = ("_actions", "_bounds", "_in_order", "_planned", "_random", "_rng", "pds", "terms")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._random = rng.random
        self.terms = self._terms()
        self.pds: dict[str, Any] = {
            "msl": MSL,
            "max_rto_retx_cnt": self._one((1, 3, 5)),
            "max_nack_retx_cnt": self._one((2, 5)),
            "new_pdc_time": self._one((MILLISECOND, 5 * MILLISECOND)),
            "close_req_time": 10 * MILLISECOND,
            "idle_time": SECOND,
        }
        if self._random() < 0.3:
            self.pds["max_pdcs"] = self._one((1, 2))
        if self._random() < 0.3:
            self.pds["closing_ack_epsn"] = True
        self._in_order = 0.3 + 0.6 * self._random()
        self._planned: deque[TssStep] = deque()
        weights = {
            self._deliver: 4.0,
            self._operate: 3.0,
            self._advance: 2.0,
            self._close: self._maybe(1.0),
            self._rest: self._maybe(0.5),
            self._rotate: self._maybe(0.5),
            self._epoch: self._maybe(0.2),
            self._restart: self._maybe(0.2),
            self._drop: self._maybe(2.0),
            self._replay: self._maybe(2.0),
            self._storm: self._maybe(0.5),
            self._flip: self._maybe(2.0),
            self._cut: self._maybe(1.0),
            self._extend: self._maybe(0.5),
            self._rewrite: self._maybe(2.0),
            self._splice: self._maybe(1.0),
            self._forge_nack: self._maybe(1.0),
            self._forge_packet: self._maybe(1.0),
        }
        self._actions: list[Callable[[Any], TssStep | None]] = list(weights)
        bounds = list(accumulate(weights.values()))
        self._bounds = [bound / bounds[-1] for bound in bounds]

    def _one(self, values: Sequence[_T]) -> _T:
        return values[int(self._random() * len(values))]

    def _maybe(self, weight: float) -> float:
        """A weight that every third episode does without."""
        return weight * self._random() if self._random() < 0.67 else 0.0

    def _terms(self) -> dict[str, Any]:
        mode = self._one(("direct", "cluster", "client-server"))
        has_ssi, version = self._random() < 0.5, self._one((4, 6))
        if mode == "direct" and version == 6:
            has_ssi = True  # else nonces would repeat (§6)
        start = self._one(("off", "expected", "random"))
        terms: dict[str, Any] = {
            "mode": mode, "start": start, "ip_version": version, "has_ssi": has_ssi,
            "start_psn": self._one(_STARTS_EXPECTED if start == "expected" else _STARTS),
        }  # fmt: skip
        if mode == "cluster" and self._random() < 0.5:
            terms["rekeys"] = True
        rare: dict[str, Sequence[Any]] = {
            "clear": (4, 12), "lifetime": (0, 1), "failures": (0, 3), "same_keys": (True,), "epoch": (0xFFF8, 0x7FFF),
        }  # fmt: skip
        return terms | {name: self._one(values) for name, values in rare.items() if self._random() < 0.3}

    # Steps

    def choose(self, world: "TssWorld") -> TssStep:
        """The next step, possible at this moment but for a few local wishes."""
        if self._planned:
            return self._planned.popleft()
        if world.flight and self._random() < self._in_order:
            return TssStep("deliver", number=next(iter(world.flight)))
        while True:
            step = self._actions[bisect(self._bounds, self._random())](world)
            if step is not None:
                return step

    def _number(self, world: "TssWorld") -> int | None:
        """A packet on the wire."""
        flight = world.flight
        return next(islice(flight, int(self._random() * len(flight)), None)) if flight else None

    def _deliver(self, world: "TssWorld") -> TssStep | None:
        number = self._number(world)
        return None if number is None else TssStep("deliver", number=number)

    def _drop(self, world: "TssWorld") -> TssStep | None:
        number = self._number(world)
        return None if number is None else TssStep("drop", number=number)

    # Applications, and the one who hands out keys

    def _operate(self, world: "TssWorld") -> TssStep | None:
        if len(world.flight) > _FULL:
            return None
        action = "read" if self._random() < 0.2 else "write"
        return TssStep(action, int(self._random() < 0.3), self._one(_LENGTHS), how=self._one(MODES))

    def _advance(self, world: "TssWorld") -> TssStep:
        longest = self._one((20 * MICROSECOND, 2 * MILLISECOND, 20 * MILLISECOND))
        return TssStep("advance", number=int(self._random() * longest))

    def _close(self, world: "TssWorld") -> TssStep:
        return TssStep("close", self._rng.getrandbits(1))

    def _rest(self, world: "TssWorld") -> TssStep:
        """So long that nothing but a floor knows of what was before."""
        return TssStep("advance", number=2 * MSL)

    def _rotate(self, world: "TssWorld") -> TssStep:
        """A step of it: what is in between, and whether the old key is ever forgotten, is left to chance."""
        steps = (TssStep("install"), TssStep("switch", 0), TssStep("switch", 1), TssStep("empty"))
        return self._one(steps)

    def _epoch(self, world: "TssWorld") -> TssStep:
        return TssStep("epoch", number=1 + int(self._random() * (world.terms.lifetime + 1)))

    def _restart(self, world: "TssWorld") -> TssStep:
        return TssStep("restart", self._rng.getrandbits(1), how=self._one(tuple(RESTARTS)))

    # The attacker

    def _replay(self, world: "TssWorld") -> TssStep | None:
        if not world.sent or len(world.flight) > _FULL:
            return None
        return TssStep("dup", number=int(self._random() * world.sent))

    def _storm(self, world: "TssWorld") -> TssStep | None:
        """All that was on the wire at some time comes back at once, in its order."""
        if not world.sent or len(world.flight) > _FULL:
            return None
        first = int(self._random() * world.sent)
        last = min(world.sent, first + 1 + int(self._random() * _STORM))
        self._planned.extend(TssStep("dup", number=number) for number in range(first + 1, last))
        return TssStep("dup", number=first)

    def _flip(self, world: "TssWorld") -> TssStep | None:
        number = self._number(world)
        if number is None:
            return None
        size = 8 * len(world.flight[number].data)
        if self._random() < 0.5:
            size = min(size, 8 * _HEAD)
        return TssStep("flip", number=number, at=int(self._random() * size))

    def _cut(self, world: "TssWorld") -> TssStep | None:
        number = self._number(world)
        if number is None:
            return None
        size = len(world.flight[number].data)
        if self._random() < 0.5:
            size = min(size, _HEAD)
        return TssStep("cut", number=number, at=int(self._random() * size), how=self._one(("", "trimmed")))

    def _extend(self, world: "TssWorld") -> TssStep | None:
        number = self._number(world)
        return None if number is None else TssStep("extend", number=number, data=self._bytes(20))

    def _rewrite(self, world: "TssWorld") -> TssStep | None:
        number = self._number(world)
        if number is None:
            return None
        an, epoch = self._rng.getrandbits(1), world.epochs.get(0, 0)
        field, value = self._one((
            ("sdi", self._one((0, SDI, SDI + 1, SDI + 2))), ("an", an), ("ssi", self._one((100, 200, 300))),
            ("epoch", (epoch + self._one((-20, -1, 1, 0x7FFF))) & 0xFFFF), ("tsc", int(self._random() * world.sent)),
            ("entropy", self._rng.getrandbits(16)), ("src", world.terms.addresses[an]),
            ("dst", world.terms.addresses[an]), ("swap", 0),
        ))  # fmt: skip
        return TssStep("rewrite", number=number, at=value, how=field)

    def _splice(self, world: "TssWorld") -> TssStep | None:
        number = self._number(world)
        at = int(self._random() ** 3 * world.sent)
        return None if number is None else TssStep("splice", number=number, at=at)

    def _forge_nack(self, world: "TssWorld") -> TssStep | None:
        """NEW_START_PSN for a PDC that there is: of all that could be forged the most harmful (§11)."""
        node = self._rng.getrandbits(1)
        pdcs = world.ends[node].fep.pds.pdcs
        if not pdcs:
            return None
        pdc = next(islice(pdcs.values(), int(self._random() * len(pdcs)), None))
        code = self._one((NackCode.NEW_START_PSN, NackCode.NEW_START_PSN, NackCode.INV_DPDCID))
        demanded = self._one((0, pdc.tx.start + 1, pdc.tx.start - 1, self._rng.getrandbits(32))) & 0xFFFFFFFF
        data = build_nack(code, 0, 0, pdc.tx.start, pdc.peer_id, pdc.local_id, demanded)
        return TssStep("forge", node, how=self._dress(world), data=bytes(data))

    def _forge_packet(self, world: "TssWorld") -> TssStep:
        """Any bytes, or such as begin with a type of packet that there is."""
        data = self._bytes(60)
        dress = self._dress(world)
        if data and self._random() < 0.7:
            data = bytes([self._one(tuple(PdsType)) << 3 | data[0] & 7]) + data[1:]
        return TssStep("forge", self._rng.getrandbits(1), how=dress, data=data)

    def _dress(self, world: "TssWorld") -> str:
        dress = self._one(tuple(DRESSES))
        return "clear" if dress == "insider" and world.terms.same_keys else dress

    def _bytes(self, longest: int) -> bytes:
        size = int(self._random() * longest)
        return self._rng.getrandbits(8 * size).to_bytes(size, "big") if size else b""
