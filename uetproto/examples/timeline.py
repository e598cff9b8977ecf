# SPDX-License-Identifier: GPL-2.0-only
"""This program draws the training step of `fsdp`: when a rank computed, when its collectives ran, and its packets.

`python -m uetproto.examples.timeline step.svg roce` writes step.svg, or step.png. Without a transport it is uet. The
times of collectives are those of the trace of the world; packets are those of a capture at the port of rank 0.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from uetproto.analysis.capture import open_captures
from uetproto.api import distributed as dist
from uetproto.examples import fsdp

TRANSPORTS = ("uet", "roce")
SUFFIXES = (".svg", ".png")
RANK = 0
"""The rank that is drawn."""
COLOURS = {"computation": "C7", "all_gather": "C0", "reduce_scatter": "C1"}


class DrawnStep(NamedTuple):
    """A training step as the rank saw it; all times are in microseconds."""

    name: str
    spans: dict[str, list[tuple[float, float]]]
    """Begin and duration of each computation and of each collective, by the names of `COLOURS`."""
    sent: list[float]
    received: list[float]
    end: float


def played(program: Callable[..., Any], transport: str) -> DrawnStep:
    """Run a program of `fsdp`, and return what the rank did."""
    task = fsdp.data()
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "step.pcapng"
        with dist.World(fsdp.RANKS, transport=transport, capture=str(capture), taps=[f"rank{RANK}"]) as world:
            world.run(program, (task,))
        packets = [(packet.src, packet.time_ns / 1e3) for packet in open_captures(capture)]
    own = packets[0][0]
    return DrawnStep(
        program.__name__.replace("_", " "),
        {
            "computation": [(begin * 1e6, (end - begin) * 1e6) for rank, begin, end in task.computed if rank == RANK],
            **_collectives(world.trace),
        },
        [time for src, time in packets if src == own],
        [time for src, time in packets if src != own],
        world.now / 1e6,
    )


def _collectives(trace: Iterable[Any]) -> dict[str, list[tuple[float, float]]]:
    """Return begin and duration of each collective of the rank."""
    posted: dict[str, int] = {}
    spans: dict[str, list[tuple[float, float]]] = {"all_gather": [], "reduce_scatter": []}
    for event in trace:
        if event.rank == RANK and event.state == "posted":
            posted[event.op] = event.now
        elif event.rank == RANK and event.state == "done":
            name = next(name for name in spans if event.op.startswith(name))
            begin = posted.pop(event.op)
            spans[name].append((begin / 1e6, (event.now - begin) / 1e6))
    return spans


def draw(steps: list[DrawnStep], path: str, transport: str) -> None:
    """Write a picture with a panel for each step, over one time axis."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "uetproto", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(11, 2.6 * len(steps)), dpi=120, layout="constrained")
        panels = figure.subplots(len(steps), 1, sharex=True, squeeze=False)[:, 0]
        lanes = [*COLOURS, "packets sent", "packets received"]
        for axes, step in zip(panels, steps, strict=True):
            for place, (name, colour) in enumerate(COLOURS.items()):
                axes.broken_barh(step.spans[name], (place - 0.35, 0.7), color=colour, edgecolor="white", linewidth=0.8)
            for place, times in enumerate((step.sent, step.received), len(COLOURS)):
                axes.vlines(times, place - 0.35, place + 0.35, color="C2", linewidth=0.6)
            axes.axvline(step.end, color="black", linestyle=":", linewidth=1)
            axes.set_yticks(range(len(lanes)), lanes)
            axes.set_ylim(len(lanes) - 0.5, -0.5)
            axes.set_title(f"{step.name}: {step.end:.1f} µs")
            axes.grid(axis="x", alpha=0.3)
        panels[-1].set_xlabel("time, µs")
        panels[-1].set_xlim(left=0)
        what = f"{fsdp.LAYERS} sharded layers, forward and backward"
        figure.suptitle(f"rank {RANK} of {fsdp.RANKS}: {what}, over {transport}")
        metadata = {"Date": None} if path.endswith(".svg") else {"Software": None}  # the same bytes each time
        figure.savefig(path, metadata=metadata)


def main(path: str = "step.svg", transport: str = "uet") -> None:
    """Run both programs of `fsdp`, and draw them. What cannot be drawn ends the program with a line."""
    if transport not in TRANSPORTS:
        sys.exit(f"{transport}: legal are {', '.join(TRANSPORTS)}, which have packets")
    if not path.endswith(SUFFIXES):
        sys.exit(f"{path}: legal are names in {', '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        sys.exit("a picture needs matplotlib: pip install 'uetproto[plot]'")
    draw([played(program, transport) for program in fsdp.PROGRAMS], path, transport)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
