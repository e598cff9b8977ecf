# SPDX-License-Identifier: GPL-2.0-only
"""This module has the settings of an episode of UET with congestion control."""

from dataclasses import dataclass, replace
from typing import Any

from uetproto.check.cc.simulator import CcSimulator
from uetproto.check.cc.step_generator import PROFILES, CcStepGenerator
from uetproto.check.episode import EpisodeSettings
from uetproto.check.uet.episode import PAYLOAD, simpler
from uetproto.engine.contract import Rng
from uetproto.steps.uet import UetStep

__all__ = ["PROFILES", "CcEpisode", "begin"]

_OF_CC = "cc."
"""Prefix of the names of settings of congestion control, which node 0 has for both."""


@dataclass(frozen=True)
class CcEpisode(EpisodeSettings):
    """These are the settings of an episode that two endpoints with congestion control and scripted SES play."""

    draws: int
    """Seed of all random numbers that the endpoints draw."""
    cc: dict[str, Any]
    """Fields of `CcConfig`, of both endpoints."""
    received: int
    """rcvd_bytes with which every PDC begins, in units of 256 bytes."""
    without_bytes: bool = True

    step = UetStep
    simpler = staticmethod(simpler)

    @property
    def objects(self) -> bool:
        return self.without_bytes

    def simulator(self) -> CcSimulator:
        mtu = None if self.without_bytes else PAYLOAD
        return CcSimulator(self.draws, self.knobs, self.cc, self.received, objects=self.without_bytes, mtu=mtu)

    def as_run(self) -> "CcEpisode":
        return replace(self, without_bytes=False)

    def with_bytes(self, step: UetStep) -> UetStep:
        """Return the step itself, unless it damages a packet; then one that drops it, as a CRC does."""
        return step._replace(action="drop", at=0) if step.action == "corrupt" else step

    def names(self, node: int) -> list[str]:
        return [*super().names(node), *(_OF_CC + name for name in (self.cc if node == 0 else ()))]

    def without(self, node: int, name: str) -> "CcEpisode":
        if not name.startswith(_OF_CC):
            return super().without(node, name)
        return replace(self, cc={key: value for key, value in self.cc.items() if _OF_CC + key != name})

    def __str__(self) -> str:
        told = [f"draws {self.draws}", f"received {self.received}"]
        told += [f"cc.{name} = {value}" for name, value in self.cc.items()]
        for node, knobs in zip("ab", self.knobs, strict=True):
            told += [f"{node}.pds.{name} = {value}" for name, value in knobs.items()]
        return "\n".join(told)


def begin(profile: str, rng: Rng) -> tuple[CcStepGenerator, CcEpisode]:
    """Draw the settings of an episode, and return them with the generator of its steps."""
    generator = CcStepGenerator(rng)
    return generator, CcEpisode(generator.knobs, rng.getrandbits(64), generator.cc, generator.received)
