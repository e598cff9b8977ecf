# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the layouts of fabrics with several switches, by the functions of
`uetproto.collectives.topology`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from uetproto.collectives.topology.graph import Topology as Layout
from uetproto.collectives.topology.kinds import PARAMETERS, topology
from uetproto.errors import LocalError, similar

LAYOUTS = ("leaf-spine", "fat-tree", "rails")
"""Names of the topologies that have a layout."""

KEYS = tuple(dict.fromkeys(name for kind in LAYOUTS for name in PARAMETERS[kind]))
"""Names of all parameters of layouts. No layout has all of them; `PARAMETERS` has the names for each layout."""

MOST_CABLES = 1 << 15
"""Greatest number of cables in a fabric. Two queues and two links emulate each cable."""


def layout_of(kind: str, stations: int, parameters: Mapping[str, Any]) -> Layout | None:
    """Return the layout of the topology `kind` with `stations` hosts, or None for a topology that has no layout. Rank i
    is the i-th host.

    Raises `LocalError` for parameters that the topology does not have, for a number of hosts that it cannot have, and
    for too many cables.
    """
    if kind not in LAYOUTS:
        for name in parameters:
            having = [other for other in LAYOUTS if name in PARAMETERS[other]]
            legal = f"topology {', '.join(having)}" if having else ", ".join(KEYS)
            raise LocalError(name, f"does not go with topology {kind}", legal, id="not-with-topology")
        return None
    for name in parameters:
        if name not in PARAMETERS[kind]:
            raise LocalError(
                name, f"does not go with topology {kind}", ", ".join(PARAMETERS[kind]), id="not-with-topology"
            )
    layout = topology(kind, stations, **parameters)
    if len(layout.cables) > MOST_CABLES:
        raise LocalError("topology", f"{len(layout.cables)} cables", f"at most {MOST_CABLES}", id="too-many")
    return layout


def cables_between_switches(layout: Layout | None) -> dict[str, tuple[str, str]]:
    """Return the cables between switches by name, such as "leaf0.spine1": the names of both directions, "leaf0 >
    spine1" and "spine1 > leaf0". A network with at most one switch has no layout, and no such cable."""
    if layout is None:
        return {}
    ends = [(layout.name(one), layout.name(other)) for one, other in layout.cables if min(one, other) >= layout.size]
    return {f"{one}.{other}": (f"{one} > {other}", f"{other} > {one}") for one, other in ends}


def cable_of(layout: Layout | None, name: str) -> str:
    """Return the name of a cable between switches as `cables_between_switches` has it; `name` may have its ends in
    either order. Raises `LocalError` for a cable that does not exist."""
    cables = cables_between_switches(layout)
    if name in cables:
        return name
    for found, (_, back) in cables.items():
        if name == back.replace(" > ", "."):
            return found
    shown = ", ".join(list(cables)[:8]) + (" …" if len(cables) > 8 else "")
    raise LocalError(
        "link", f"there is no {name}{similar(name, cables)}", shown or "none, there is only one switch",
        id="unknown-place"
    )  # fmt: skip


def places_of(layout: Layout | None, name: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return where a capture is taken that is asked for at `name`: a host, a cable between switches, or all cables of
    a switch, of which those to hosts are seen at the hosts. `hosts` are the hosts in the order of their ranks. Raises
    `LocalError` for a place that does not exist."""
    if name in hosts:
        return (name,)
    if layout is None or name not in layout.switches:
        try:
            return (cable_of(layout, name),)
        except LocalError:
            kinds = (hosts, () if layout is None else layout.switches, tuple(cables_between_switches(layout)))
            known = [*hosts, *kinds[1], *kinds[2]]
            legal = "; ".join(", ".join(one[:4]) + (" …" if len(one) > 4 else "") for one in kinds if one)
            raise LocalError("tap", f"there is no {name}{similar(name, known)}", legal, id="unknown-place") from None
    vertex, cables = layout.size + layout.switches.index(name), cables_between_switches(layout)
    others = [layout.links[link].target for link in layout.leaving[vertex]]
    ends = {frozenset(cable.split(" > ")): known for known, (cable, _) in cables.items()}
    return tuple(
        hosts[other] if other < layout.size else ends[frozenset((name, layout.name(other)))] for other in others
    )


__all__ = [
    "KEYS", "LAYOUTS", "MOST_CABLES", "PARAMETERS", "Layout", "cable_of", "cables_between_switches", "layout_of",
    "places_of",
]  # fmt: skip
