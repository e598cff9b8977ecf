"""Layouts of fabrics with several switches: those of `uetproto.collectives`, taken by the emulator from here only."""

from collections.abc import Mapping
from typing import Any

from uetproto.collectives.topology.graph import Topology as Layout
from uetproto.collectives.topology.kinds import PARAMETERS, topology
from uetproto.errors import LocalError

LAYOUTS = ("leaf-spine", "fat-tree", "rails")
"""Topologies that have a layout."""

KEYS = tuple(dict.fromkeys(name for kind in LAYOUTS for name in PARAMETERS[kind]))
"""What may be said of them; `PARAMETERS` tells which goes with which."""

MOST_CABLES = 1 << 15
"""Each is two queues and two links here."""


def layout_of(kind: str, stations: int, parameters: Mapping[str, Any]) -> Layout | None:
    """Rank i of the layout is the i-th station. None for topologies that have no layout.

    Raises `LocalError` for parameters that do not go with the topology, and for stations that do not fit.
    """
    if kind not in LAYOUTS:
        for name in parameters:
            having = [other for other in LAYOUTS if name in PARAMETERS[other]]
            legal = f"topology {', '.join(having)}" if having else ", ".join(KEYS)
            raise LocalError(name, f"does not go with topology {kind}", legal)
        return None
    for name in parameters:
        if name not in PARAMETERS[kind]:
            raise LocalError(name, f"does not go with topology {kind}", ", ".join(PARAMETERS[kind]))
    layout = topology(kind, stations, **parameters)
    if len(layout.cables) > MOST_CABLES:
        raise LocalError("topology", f"{len(layout.cables)} cables", f"at most {MOST_CABLES}")
    return layout


__all__ = ["KEYS", "LAYOUTS", "MOST_CABLES", "PARAMETERS", "Layout", "layout_of"]
