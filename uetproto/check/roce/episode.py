# SPDX-License-Identifier: GPL-2.0-only
"""This module has the settings of an episode of RoCE, and makes the tables of the scenario that replays it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from uetproto.check.episode import Knobs, ScenarioSettings, left_out
from uetproto.check.roce.simulator import RoceSimulator
from uetproto.check.roce.step_generator import PROFILES, RoceStepGenerator
from uetproto.check.shrink import shorter, smaller
from uetproto.check.toml_text import BELOW, NODES, number_text
from uetproto.engine.contract import Rng
from uetproto.engine.roce.contract import Access, Opcode, QpType, SendFlags
from uetproto.knobs import time_text
from uetproto.steps.roce import FLAGS, RoceStep, SendSpec

__all__ = ["PROFILES", "RoceEpisode", "begin"]


def row(step: RoceStep) -> dict[str, Any]:
    """Return the keys of the `[[step]]` that stands for `step` in a scenario."""
    action, node = step.action, {"node": NODES[step.node]}
    number = number_text(step.number)
    cut = {"cut": step.at} if step.at else {}
    fault = {"fault": step.fault} if step.fault else {}
    match action:
        case "send":
            return {"send": number, **_send_keys(step.send or SendSpec()), **cut, **node}
        case "recv":
            return {"recv": number, **cut, **fault, **node}
        case "deliver" | "drop" | "dup" | "mark" | "connect":
            return {action: number}
        case "advance":
            return {action: time_text(step.number)}
        case "corrupt":
            return {"corrupt": number, "at": step.at + BELOW}
        case "modify":
            return {"modify": step.state.name, **dict(_attribute(*one) for one in step.attributes), **node}
        case "inject":
            return {"inject": step.data.hex(" "), **node}
    return {action: number, **node}


def _send_keys(send: SendSpec) -> dict[str, Any]:
    """Return the keys that differ from those of `SendSpec()`."""
    plain = SendSpec()
    keys: dict[str, Any] = {"opcode": send.opcode.name} if send.opcode is not Opcode.SEND else {}
    keys |= {name: True for name, flag in FLAGS.items() if (send.flags ^ SendFlags.SIGNALED) & flag}
    if send.add != plain.add:
        keys["add"] = hex(send.add)
    if send.compare is not None:
        keys["compare"] = hex(send.compare)
    return {**keys, "fault": send.fault} if send.fault else keys


def _attribute(name: str, value: int) -> tuple[str, Any]:
    if name == "access_flags":
        return "access", [str(flag.name).lower() for flag in Access if value & flag]
    return name, value


def simpler(step: RoceStep) -> Iterator[RoceStep]:
    """Yield variants of `step` with smaller values, the smallest first."""
    yield from (step._replace(node=node) for node in smaller(step.node))
    by = max(1, step.number >> 5) if step.action == "advance" else 1  # single picoseconds do not matter
    yield from (step._replace(number=number) for number in smaller(step.number, by=by))
    yield from (step._replace(at=at) for at in smaller(step.at))
    if step.fault:
        yield step._replace(fault="")
    for removed in step.attributes:
        yield step._replace(attributes=tuple(one for one in step.attributes if one != removed))
    yield from (step._replace(data=data) for data in shorter(step.data))
    if step.send is not None:
        plain = SendSpec()
        for name in SendSpec._fields:
            if getattr(step.send, name) != getattr(plain, name):
                yield step._replace(send=step.send._replace(**{name: getattr(plain, name)}))


@dataclass(frozen=True)
class RoceEpisode(ScenarioSettings):
    """These are the settings of an episode that two queue pairs play. The queue pairs themselves draw nothing at
    random."""

    kind: QpType
    qps: Knobs
    """Attributes of the queue pair of each end. Besides those that `ModifyQp` takes, `srq` says that the queue pair
    has a shared receive queue, and `number` is the number of the queue pair."""
    twin: bool = False

    step = RoceStep
    section = "roce"
    simpler = staticmethod(simpler)
    row = staticmethod(row)

    def names(self, node: int) -> list[str]:
        """Return the names of the knobs and attributes that can be reset to their defaults. The path MTU is not among
        them, as both ends must have the same one."""
        return [name for name in (*self.knobs[node], *self.qps[node]) if name != "path_mtu"]

    def without(self, node: int, name: str) -> "RoceEpisode":
        return replace(self, knobs=left_out(self.knobs, node, name), qps=left_out(self.qps, node, name))

    def simulator(self) -> RoceSimulator:
        return RoceSimulator(self.kind, self.knobs, self.qps, twin=self.twin)

    def run_keys(self) -> dict[str, Any]:
        return {"seed": 0, "transport": self.kind.name.lower()}

    def tables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the tables `[qp.NODE]` with the attributes of the queue pairs. The shared receive queue of a queue
        pair is named "shared"."""
        for node, attributes in zip(NODES, self.qps, strict=True):
            told = {name: "shared" if name == "srq" else int(value) for name, value in attributes.items()}
            yield f"qp.{node}", told


def begin(profile: str, rng: Rng) -> tuple[RoceStepGenerator, RoceEpisode]:
    """Draw the settings of an episode, and return them with the generator of its steps."""
    generator = RoceStepGenerator(profile, rng)
    return generator, RoceEpisode(generator.knobs, generator.kind, generator.qps, generator.twin)
