# SPDX-License-Identifier: GPL-2.0-only
"""This module has the settings of an episode of UET, and makes the tables of the scenario that replays it."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from uetproto.check.episode import ScenarioSettings
from uetproto.check.shrink import shorter, smaller
from uetproto.check.toml_text import BELOW, NODES, number_text
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.uet.step_generator import PROFILES, UetStepGenerator
from uetproto.engine.contract import Rng
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.knobs import time_text
from uetproto.steps.uet import MessageSpec, UetStep

__all__ = ["PAYLOAD", "PROFILES", "UetEpisode", "begin"]

PAYLOAD = 4
"""Payload of a full packet in bytes, if packets are encoded. Packets that are objects count as packets of this size."""


def row(step: UetStep) -> dict[str, Any]:
    """Return the keys of the `[[step]]` that stands for `step` in a scenario."""
    action, node = step.action, {"node": NODES[step.node]}
    match action:
        case "submit":
            message = step.message or MessageSpec()
            more = {"message": message.message_id, "mode": message.mode.name.lower(), "op": message.op}
            more |= {"answer": message.answer} | node
            more |= {"reserved": True} if message.reserved else {}
            more |= {"context": message.context} if message.context else {}
            return {"submit": message.packets, **more}
        case "deliver" | "drop" | "dup" | "mark":
            return {action: number_text(step.number)}
        case "trim":
            return {action: number_text(step.number), **({"last_hop": True} if step.at else {})}
        case "corrupt":
            return {action: step.number, "at": step.at + BELOW}
        case "advance":
            return {action: time_text(step.number)}
        case "respond":
            return {action: step.number, "answer": step.answer, **node}
        case "inject":
            return {action: step.data.hex(" "), **node}
        case "close" | "ask_close" | "noop" | "probe" | "restart":
            return {action: NODES[step.node]}
    return {action: number_text(step.number), **node}


_PLAIN = MessageSpec()


def simpler(step: UetStep) -> Iterator[UetStep]:
    """Yield variants of `step` with smaller values, the smallest first."""
    yield from (step._replace(node=node) for node in smaller(step.node))
    yield from (step._replace(number=number) for number in smaller(step.number))
    yield from (step._replace(at=at) for at in smaller(step.at))
    if step.answer != _PLAIN.answer:
        yield step._replace(answer=_PLAIN.answer)
    yield from (step._replace(data=data) for data in shorter(step.data))
    if step.message is not None:
        yield from (step._replace(message=message) for message in _simpler_messages(step.message))


def _simpler_messages(message: MessageSpec) -> Iterator[MessageSpec]:
    for packets in smaller(message.packets, least=1):
        yield message._replace(packets=packets)
    for name in ("op", "answer", "reserved", "context", "message_id", "mode"):
        plain = getattr(_PLAIN, name)
        if getattr(message, name) != plain:
            yield message._replace(**{name: plain})


@dataclass(frozen=True)
class UetEpisode(ScenarioSettings):
    """These are the settings of an episode that two endpoints with scripted SES play."""

    draws: int
    """Seed of all random numbers that the endpoints draw (`[run] seed`)."""
    presets: tuple[Preset, Preset]
    objects: bool = True

    step = UetStep
    section = "pds"
    simpler = staticmethod(simpler)
    row = staticmethod(row)

    def as_run(self) -> "UetEpisode":
        return replace(self, objects=False)

    def simulator(self) -> UetSimulator:
        mtu = None if self.objects else PAYLOAD
        return UetSimulator(self.draws, self.knobs, self.presets, objects=self.objects, mtu=mtu)

    def with_bytes(self, step: UetStep) -> UetStep:
        """Return the step itself, unless it damages a packet. In that case return a step that drops the packet, as an
        endpoint drops an encoded packet whose CRC is wrong."""
        return step._replace(action="drop", at=0) if step.action == "corrupt" else step

    def run_keys(self) -> dict[str, Any]:
        return {"seed": self.draws, "ses": "scripted", "payload": PAYLOAD}

    def tables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the tables `[preset.NODE]` with the values that differ from the defaults."""
        default = Preset()
        names = [field.name for field in fields(default)]
        for node, preset in zip(NODES, self.presets, strict=True):
            values = {name: getattr(preset, name) for name in names}
            yield f"preset.{node}", {name: value for name, value in values.items() if value != getattr(default, name)}


def begin(profile: str, rng: Rng) -> tuple[UetStepGenerator, UetEpisode]:
    """Draw the settings of an episode, and return them with the generator of its steps."""
    generator = UetStepGenerator(profile, rng)
    return generator, UetEpisode(generator.knobs, rng.getrandbits(64), generator.presets)
