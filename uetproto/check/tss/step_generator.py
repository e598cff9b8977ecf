# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the settings and the random steps of an episode of TSS. The steps are those of two members of a
secure domain, and of an attacker between them.
"""

import sys
from collections import deque
from itertools import islice
from typing import Any, ClassVar

from uetproto.check.step_generator import StepGenerator
from uetproto.check.tss.endpoint import MTU, SDI
from uetproto.check.tss.simulator import TssSimulator
from uetproto.check.tss.steps import DRESSES, MACHINE, MODES, RESTARTS, TssStep
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND, Rng
from uetproto.engine.pds.messages import Nack
from uetproto.wire.headers.uet_pds import NackCode, PdsType

PROFILES = (MACHINE,)
MSL = 200 * MILLISECOND
"""Maximum segment lifetime (MSL) of all episodes, in picoseconds. It is short: many old packets arrive only after this
time has passed. It is longer than twice the sum of the RTOs."""

_STARTS = (None, None, 1, 0x7FFFFFF0, 0xFFFFFFF0, 0xFFFFFFFF)
_STARTS_EXPECTED = (None, None, 1, 0x7FFF0000)
"""Start_PSNs to draw where secure start is `expected`. Expected_PSN begins at 0; they are less than 2^31 above it, so
that none counts as older (tss.md §11)."""
_LENGTHS = (0, 1, 100, MTU, MTU + 1, 3 * MTU)
_FULL = 64
"""Number of packets on the wire from which on none is added."""
_STORM = 40
"""Greatest number of old packets that are replayed one after the other."""
_HEAD = 40
"""Number of leading bytes that half of the changes hit."""


class TssStepGenerator(StepGenerator[TssSimulator, TssStep]):
    """This class draws the settings of one episode (`terms`, `pds`), and then its steps."""

    __slots__ = ("_planned", "pds", "terms")

    crowd: ClassVar[int] = sys.maxsize

    def __init__(self, rng: Rng) -> None:
        super().__init__(rng)
        self._near = sys.maxsize
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
        self._set_weights(
            {
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
        )

    def _terms(self) -> dict[str, Any]:
        mode = self._one(("direct", "cluster", "client-server"))
        has_ssi, version = self._random() < 0.5, self._one((4, 6))
        if mode == "direct" and version == 6:
            has_ssi = True  # without SSI nonces would repeat (tss.md §6)
        start = self._one(("off", "expected", "random"))
        terms: dict[str, Any] = {
            "mode": mode, "start": start, "ip_version": version, "has_ssi": has_ssi,
            "start_psn": self._one(_STARTS_EXPECTED if start == "expected" else _STARTS),
        }  # fmt: skip
        if mode == "cluster" and self._random() < 0.5:
            terms["rekeys"] = True
        rare: dict[str, tuple[Any, ...]] = {
            "clear": (4, 12), "lifetime": (0, 1), "failures": (0, 3), "same_keys": (True,), "epoch": (0xFFF8, 0x7FFF),
        }  # fmt: skip
        return terms | {name: self._one(values) for name, values in rare.items() if self._random() < 0.3}

    # Steps

    def choose(self, view: TssSimulator) -> TssStep:
        return self._planned.popleft() if self._planned else super().choose(view)

    def _to_number(self, action: str, number: int) -> TssStep:
        return TssStep(action, number=number)

    # Applications and key management

    def _operate(self, view: TssSimulator) -> TssStep | None:
        if len(view.flight) > _FULL:
            return None
        action = "read" if self._random() < 0.2 else "write"
        return TssStep(action, int(self._random() < 0.3), self._one(_LENGTHS), how=self._one(MODES))

    def _advance(self, view: TssSimulator) -> TssStep:
        longest = self._one((20 * MICROSECOND, 2 * MILLISECOND, 20 * MILLISECOND))
        return TssStep("advance", number=int(self._random() * longest))

    def _close(self, view: TssSimulator) -> TssStep:
        return TssStep("close", self._rng.getrandbits(1))

    def _rest(self, view: TssSimulator) -> TssStep:
        """Let so much time pass that only a stored Expected_PSN tells old packets from new ones."""
        return TssStep("advance", number=2 * MSL)

    def _rotate(self, view: TssSimulator) -> TssStep:
        """Return one step of a key rotation; which steps follow, and when, is random."""
        steps = (TssStep("install"), TssStep("switch", 0), TssStep("switch", 1), TssStep("empty"))
        return self._one(steps)

    def _epoch(self, view: TssSimulator) -> TssStep:
        return TssStep("epoch", number=1 + int(self._random() * (view.terms.lifetime + 1)))

    def _restart(self, view: TssSimulator) -> TssStep:
        return TssStep("restart", self._rng.getrandbits(1), how=self._one(tuple(RESTARTS)))

    # The attacker

    def _replay(self, view: TssSimulator) -> TssStep | None:
        if not view.sent or len(view.flight) > _FULL:
            return None
        return TssStep("dup", number=int(self._random() * view.sent))

    def _storm(self, view: TssSimulator) -> TssStep | None:
        """Replay consecutive old packets at once, in their order."""
        if not view.sent or len(view.flight) > _FULL:
            return None
        first = int(self._random() * view.sent)
        last = min(view.sent, first + 1 + int(self._random() * _STORM))
        self._planned.extend(TssStep("dup", number=number) for number in range(first + 1, last))
        return TssStep("dup", number=first)

    def _flip(self, view: TssSimulator) -> TssStep | None:
        number = self._number(view)
        if number is None:
            return None
        size = 8 * len(view.flight[number].data)
        if self._random() < 0.5:
            size = min(size, 8 * _HEAD)
        return TssStep("flip", number=number, at=int(self._random() * size))

    def _cut(self, view: TssSimulator) -> TssStep | None:
        number = self._number(view)
        if number is None:
            return None
        size = len(view.flight[number].data)
        if self._random() < 0.5:
            size = min(size, _HEAD)
        return TssStep("cut", number=number, at=int(self._random() * size), how=self._one(("", "trimmed")))

    def _extend(self, view: TssSimulator) -> TssStep | None:
        number = self._number(view)
        return None if number is None else TssStep("extend", number=number, data=self._bytes(20))

    def _rewrite(self, view: TssSimulator) -> TssStep | None:
        number = self._number(view)
        if number is None:
            return None
        an, epoch = self._rng.getrandbits(1), view.epochs.get(0, 0)
        field, value = self._one((
            ("sdi", self._one((0, SDI, SDI + 1, SDI + 2))), ("an", an), ("ssi", self._one((100, 200, 300))),
            ("epoch", (epoch + self._one((-20, -1, 1, 0x7FFF))) & 0xFFFF), ("tsc", int(self._random() * view.sent)),
            ("entropy", self._rng.getrandbits(16)), ("src", view.terms.addresses[an]),
            ("dst", view.terms.addresses[an]), ("swap", 0),
        ))  # fmt: skip
        return TssStep("rewrite", number=number, at=value, how=field)

    def _splice(self, view: TssSimulator) -> TssStep | None:
        number = self._number(view)
        at = int(self._random() ** 3 * view.sent)
        return None if number is None else TssStep("splice", number=number, at=at)

    def _forge_nack(self, view: TssSimulator) -> TssStep | None:
        """Forge a NACK for an existing PDC, mostly NEW_START_PSN, the most harmful packet to forge (tss.md §11)."""
        node = self._rng.getrandbits(1)
        pdcs = view.ends[node].fep.pds.pdcs
        if not pdcs:
            return None
        pdc = next(islice(pdcs.values(), int(self._random() * len(pdcs)), None))
        code = self._one((NackCode.NEW_START_PSN, NackCode.NEW_START_PSN, NackCode.INV_DPDCID))
        demanded = self._one((0, pdc.tx.start + 1, pdc.tx.start - 1, self._rng.getrandbits(32))) & 0xFFFFFFFF
        data = Nack(code, 0, 0, 0, pdc.tx.start, pdc.peer_id, pdc.local_id, demanded).pack()
        return TssStep("forge", node, how=self._dress(view), data=bytes(data))

    def _forge_packet(self, view: TssSimulator) -> TssStep:
        """Forge random bytes, or bytes that begin with an existing packet type."""
        data = self._bytes(60)
        dress = self._dress(view)
        if data and self._random() < 0.7:
            data = bytes([self._one(tuple(PdsType)) << 3 | data[0] & 7]) + data[1:]
        return TssStep("forge", self._rng.getrandbits(1), how=dress, data=data)

    def _dress(self, view: TssSimulator) -> str:
        dress = self._one(tuple(DRESSES))
        return "clear" if dress == "insider" and view.terms.same_keys else dress

    def _bytes(self, longest: int) -> bytes:
        size = int(self._random() * longest)
        return self._rng.getrandbits(8 * size).to_bytes(size, "big") if size else b""
