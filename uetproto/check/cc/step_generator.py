# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the settings and the random steps of an episode of UET with congestion control."""

from typing import Any

from uetproto.check.cc.simulator import SIZE
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.uet.step_generator import UetStepGenerator
from uetproto.engine.cc.config import FORMS, PATHS
from uetproto.engine.contract import MICROSECOND, SECOND, Mode, Rng
from uetproto.steps.uet import UetStep

MACHINE = "cc"
"""Name by which `uetproto fuzz` selects this simulation."""
PROFILES = (MACHINE,)

_ALGORITHMS = ("nscc", "nscc", "rccc", "nscc+rccc")
_RTTS = (2 * MICROSECOND, 14 * MICROSECOND, 100 * MICROSECOND)
_PACKETS = (2, 4, 16, 64)
"""Bandwidth-delay products in packets."""
_RECEIVED = (0, 0, 0xFFFFFF, 0xFFFFF0)
"""rcvd_bytes with which PDCs begin, in units of 256 bytes."""
_LEFT_OUT = frozenset({"secure_start", "rod_gap", "rod_recovery", "entropy_values", "inferred_loss"})
"""Knobs of `PdsConfig` that this machine does not draw. With a secure start packets are numbered, and sent, anew; a
target that keeps packets after a gap reports them before it counts them."""
_RARE: dict[str, tuple[Any, ...]] = {
    "trimming": (False,), "quick_adapt": (False,), "base_rtt_probe": (True,), "rto": ("rtt",),
    "host_rate": (10**8, 10**9), "host_backlog": (1000, 10_000), "ack_gen_trigger": (0, 1 << 20),
}  # fmt: skip


class CcStepGenerator(UetStepGenerator):
    """This class draws the settings of one episode (`knobs`, `cc`, `received`), and then its steps."""

    __slots__ = ("cc", "received")

    def __init__(self, rng: Rng) -> None:
        super().__init__("rud", rng)
        self._modes = (Mode.RUD,) if self._random() < 0.7 else (Mode.RUD, Mode.ROD)
        self.received = self._one(_RECEIVED)
        rtt = self._one(_RTTS)
        self.cc: dict[str, Any] = {
            "algorithm": self._one(_ALGORITHMS), "form": self._one(FORMS), "lb": self._one(PATHS), "base_rtt": rtt,
            "rate": self._one(_PACKETS) * SIZE * 8 * SECOND // rtt, "entropy_values": self._one((1, 4, 16, 64)),
        }  # fmt: skip
        self.cc |= {name: self._one(values) for name, values in _RARE.items() if self._random() < 0.3}
        weights = dict(zip(self._choices, self._shares(), strict=True))
        for never in (self._restart, self._lose, self._control):
            weights[never] = 0.0
        weights[self._mark] += 2.0 * self._random()
        weights[self._noop_or_probe] = self._random()
        self._set_weights(weights)

    def _noop_or_probe(self, view: UetSimulator) -> UetStep:
        """Send a control packet, but no CREDIT of a driver, which would contradict the grants of the NIC."""
        return UetStep(self._one(("noop", "probe")), self._rng.getrandbits(1))

    def _shares(self) -> list[float]:
        """Return how often each kind of step is drawn."""
        before = [0.0, *self._bounds]
        scale = 20.0
        return [scale * (bound - low) for low, bound in zip(before, self._bounds, strict=False)]

    def _settings(self) -> dict[str, Any]:
        knobs = {name: value for name, value in super()._settings().items() if name not in _LEFT_OUT}
        if self._random() < 0.3:
            knobs |= {"inferred_loss": self._one(("sack", "probe", "ooo"))}
        return knobs
