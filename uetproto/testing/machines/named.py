# SPDX-License-Identifier: GPL-2.0-only
"""This module finds a machine by its name. Its table is read without Hypothesis, and a machine is imported when it is
used."""

from importlib import import_module
from typing import TYPE_CHECKING

from uetproto.errors import LocalError, Location, shown, similar

if TYPE_CHECKING:
    from uetproto.testing.machines.machine import PlayedMachine

PLACES = {
    "pdc": "pdc:PdcMachine",
    "roce": "roce:RoceMachine",
    "ses_initiator": "ses:SesInitiatorMachine",
    "ses_target": "ses:SesTargetMachine",
    "sharp_node": "sharp_node:SharpNodeMachine",
    "tss": "tss:TssMachine",
    "sharp": "fabrics.sharp:SharpMachine",
    "multicast": "fabrics.multicast:MulticastMachine",
    "collectives": "fabrics.collectives:CollectivesMachine",
}
"""Module in this folder and class of each machine, by the name that `uetproto fuzz` has for it."""

FABRICS = ("sharp", "multicast", "collectives")
"""Machines that drive networks of our engines, and take no adapter."""

TURNS = {"ses": ("ses_target", "ses_initiator")}
"""Names that stand for several machines, which `uetproto fuzz` plays by turns."""


def machines_named(name: str) -> "list[type[PlayedMachine]]":
    """Return the machine with a name of `PLACES`, or those of `TURNS`. Raises `LocalError`."""
    return [machine_named(each) for each in TURNS.get(name, (name,))]


def machine_named(name: object, place: Location | None = None) -> "type[PlayedMachine]":
    """Return the machine with a name of `PLACES`. Raises `LocalError`, at `place` of a file of the user."""
    if not isinstance(name, str) or name not in PLACES:
        raise LocalError(
            "machine", f"{shown(name)} is no machine{similar(name, PLACES)}", ", ".join(PLACES), place=place,
            id="unknown-machine"
        )  # fmt: skip
    module, _, kind = PLACES[name].partition(":")
    found: type[PlayedMachine] = getattr(import_module(f"uetproto.testing.machines.{module}"), kind)
    return found
