# SPDX-License-Identifier: GPL-2.0-only
"""This module has the settings of an episode of the security sublayer."""

from dataclasses import dataclass

from uetproto.check.episode import EpisodeSettings
from uetproto.check.tss.simulator import TssSimulator
from uetproto.check.tss.step_generator import PROFILES, TssStepGenerator
from uetproto.check.tss.steps import TssStep, simpler
from uetproto.engine.contract import Rng

__all__ = ["PROFILES", "TssEpisode", "begin"]


@dataclass(frozen=True)
class TssEpisode(EpisodeSettings):
    """These are the settings of an episode that two members of a secure domain play. The first mapping in `knobs` has
    fields of `Terms`, and the second has fields of `PdsConfig`."""

    draws: int
    """Seed of all random numbers that the endpoints draw."""

    step = TssStep
    simpler = staticmethod(simpler)

    def simulator(self) -> TssSimulator:
        return TssSimulator(self.draws, *self.knobs)

    def __str__(self) -> str:
        terms, knobs = self.knobs
        told = (f"{name} = {value}" for name, value in (*terms.items(), *((f"pds.{k}", v) for k, v in knobs.items())))
        return "\n".join((f"draws {self.draws}", *told))


def begin(profile: str, rng: Rng) -> tuple[TssStepGenerator, TssEpisode]:
    """Draw the settings of an episode, and return them with the generator of its steps."""
    generator = TssStepGenerator(rng)
    return generator, TssEpisode((generator.terms, generator.pds), rng.getrandbits(64))
