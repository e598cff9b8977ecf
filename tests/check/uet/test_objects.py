# SPDX-License-Identifier: GPL-2.0-only
"""Runs without bytes do what runs with bytes do (architecture.md rule 4): the same steps, packet for packet."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.uet.step_generator import PROFILES, UetStepGenerator
from uetproto.engine import Datagram
from uetproto.engine.pds.messages import Control, Message, parse
from uetproto.errors import LocalError
from uetproto.steps.uet import UetStep


def told(simulator: UetSimulator, packet: Datagram) -> Any:
    """A packet as both kinds of run tell it: its values, and all bytes behind the PDS header."""
    if packet.trimmed:
        return "trimmed"
    message: Message = packet.message if simulator.objects else parse(bytes(packet.header))
    values = {name: getattr(message, name) for name in message.__slots__ if name != "size"}
    if isinstance(message, Control):
        values["syn"] = int(values["syn"])
    return type(message).__name__, {k: int(v) if isinstance(v, bool) else v for k, v in values.items()}


def run(simulator: UetSimulator, steps: Iterable[UetStep]) -> tuple[list[UetStep], list[Any]]:
    """The steps that took place, and all packets on the wire, in their order."""
    done, packets, seen = [], [], 0
    for step in steps:
        if step.action in ("corrupt", "inject"):  # about bytes
            continue
        try:
            simulator.apply(step)
        except LocalError:  # not at this moment
            continue
        done.append(step)
        packets += [
            (n, told(simulator, simulator.flight[n])) for n in range(seen, simulator.sent) if n in simulator.flight
        ]
        seen = simulator.sent
    return done, packets


@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("number", range(4))
def test_same_steps_same_packets(profile: str, number: int) -> None:
    generator = UetStepGenerator(profile, random.Random(f"objects/{profile}/{number}"))
    one, other = (
        UetSimulator(number, generator.knobs, generator.presets, objects=objects) for objects in (True, False)
    )
    steps, packets = run(one, (generator.choose(one) for _ in range(400)))
    again, same = run(other, steps)
    assert again == steps
    assert same == packets
    assert {**other.report(), "steps": one.steps} == one.report()
    assert packets
