# SPDX-License-Identifier: GPL-2.0-only
"""This module says in words what happened on a live link."""

from typing import Any

from uetproto import UetError
from uetproto.cli.terminal import many, printable
from uetproto.framing.tss import SealingFramer
from uetproto.live.faulty_path import FaultyPath
from uetproto.live.world import LiveWorld


def link_lines(summary: dict[str, Any]) -> list[str]:
    """Return lines about losses at this host, stops of the process, and the capture."""
    lines = [
        f"  faults to packets {way}: {', '.join(f'{count:,} {name}' for name, count in sorted(done.items()))}"
        for way, done in summary["faults"].items()
        if done
    ]
    for reason, count in summary["refused"].items():
        where = "lost" if "ICMP" in reason else "lost here"
        lines.append(f"  {many(count, 'packet was', 'packets were')} {where}: {reason}")
    sealing = summary.get("security")
    if sealing is not None:
        lines.append(f"  {many(sealing['sealed'], 'packet')} sealed, {sealing['opened']:,} opened")
        lines += [f"  {text}" for text in sealing["troubles"]]
    not_closed = summary.get("not_closed")
    if not_closed and summary["packets_received"]:
        told = "the peer may keep them until its program ends"
        lines.append(f"  PDCs that were not closed in order: {not_closed:,}; {told}")
    lines += [
        f"  this process stood still for {time / 10**12:.1f} s (a stopped process, or a host that slept)"
        for time in summary["stood_still_ps"]
    ]
    if summary["capture"] is not None:
        lines.append(f"  capture {printable(summary['capture'])}")
    return lines


def failure(error: UetError | None) -> dict[str, str | None]:
    """Return the error that ended a command, and its id, for JSON."""
    return {"error": None if error is None else str(error), "error_id": None if error is None else error.id}


def link_facts(world: LiveWorld, capture: str | None) -> dict[str, Any]:
    """Return what `link_lines` tells of, for a summary in JSON, and how many packets were sent and received."""
    path = world.path
    return {
        "packets_sent": path.counters.sent, "packets_received": path.counters.received,
        "refused": dict(path.counters.refused), "faults": path.done if isinstance(path, FaultyPath) else {},
        "stood_still_ps": world.driver.stood_still, "capture": capture, "security": _sealing(world),
    }  # fmt: skip


def _sealing(world: LiveWorld) -> dict[str, Any] | None:
    """Return how many packets were sealed and opened, and why others were not; None if packets travel in clear."""
    framer = world.framer
    if not isinstance(framer, SealingFramer):
        return None
    counters = framer.domain.counters
    return {"sealed": counters.out_auth_pkts, "opened": counters.in_auth_pkts, "troubles": list(framer.troubles())}


def duration(picoseconds: float) -> str:
    """Return a time as text."""
    for unit, name in ((10**12, "s"), (10**9, "ms"), (10**6, "µs")):
        if picoseconds >= unit:
            return f"{picoseconds / unit:.2f} {name}"
    return f"{picoseconds / 1000:.0f} ns"


def rate(size: int, picoseconds: int) -> str:
    """Return the rate of bytes in a time as text."""
    return f"{size / max(picoseconds, 1) * 10**6:,.1f} MB/s"
