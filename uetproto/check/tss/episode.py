"""Settings of an episode of the security sublayer."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from uetproto.check.episode import Knobs
from uetproto.check.tss.simulator import TssSimulator
from uetproto.check.tss.step_generator import PROFILES, TssStepGenerator
from uetproto.check.tss.steps import TssStep, simpler
from uetproto.engine.contract import Rng

__all__ = ["PROFILES", "TssEpisode", "begin"]


@dataclass(frozen=True)
class TssEpisode:
    """Two members of a secure domain (`EpisodeSettings`)."""

    draws: int
    """Seed of what the endpoints draw."""
    knobs: Knobs
    """`Terms` that the members agree on, then settings of `PdsConfig`."""
    objects: bool = False

    is_scenario: ClassVar[bool] = False

    def names(self, node: int) -> list[str]:
        return [*self.knobs[node]]

    def without(self, node: int, name: str) -> "TssEpisode":
        knobs = [{**knobs} for knobs in self.knobs]
        del knobs[node][name]
        return replace(self, knobs=(knobs[0], knobs[1]))

    def as_run(self) -> "TssEpisode":
        return self

    def simulator(self) -> TssSimulator:
        return TssSimulator(self.draws, *self.knobs)

    def step(self, action: str, number: int) -> TssStep:
        return TssStep(action, number=number)

    def simpler(self, step: TssStep) -> Iterable[TssStep]:
        return simpler(step)

    def with_bytes(self, step: TssStep) -> TssStep:
        """Return the step itself: packets are always encoded."""
        return step

    def __str__(self) -> str:
        terms, knobs = self.knobs
        told = (f"{name} = {value}" for name, value in (*terms.items(), *((f"pds.{k}", v) for k, v in knobs.items())))
        return "\n".join((f"draws {self.draws}", *told))


def begin(profile: str, rng: Rng) -> tuple[TssStepGenerator, TssEpisode]:
    """Draw the settings of an episode."""
    generator = TssStepGenerator(rng)
    return generator, TssEpisode(rng.getrandbits(64), (generator.terms, generator.pds))
