# SPDX-License-Identifier: GPL-2.0-only
"""This module chooses an algorithm as NCCL does: it compares the times of all candidates.

The times are those of the formulas (collectives.md §3.0, §3.8; sharp.md §4.4) on the given fabric. A candidate that is
not possible stays in the list with the reason, so that the report can say why SHARP was not used.
"""

from typing import Any, NamedTuple

from uetproto.collectives.algorithms.catalogue import expected
from uetproto.collectives.costs.formulas import Costs
from uetproto.collectives.costs.in_network import SharpCosts, sharp_time


class Candidate(NamedTuple):
    """This record holds one of the algorithms among which a choice is made."""

    algorithm: str
    time: float | None
    """Time in seconds by the formula of the algorithm. It is None if the algorithm is not possible."""
    why: str
    """Text that explains the time, or that says why the algorithm is not possible."""


class AlgorithmChoice(NamedTuple):
    """This record holds the chosen algorithm and all candidates."""

    op: str
    length: int
    algorithm: str
    candidates: tuple[Candidate, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the choice as an object for JSON."""
        return {
            "algorithm": self.algorithm,
            "candidates": [
                {
                    "algorithm": one.algorithm, "time_ps": None if one.time is None else round(one.time * 1e12),
                    "why": one.why,
                }
                for one in self.candidates
            ],
        }  # fmt: skip

    def text(self) -> str:
        """Return the choice as lines of text: a heading, and a line for each candidate."""
        rows = [f"{self.algorithm} for {self.op} of {self.length} bytes:"]
        for candidate in self.candidates:
            mark = "*" if candidate.algorithm == self.algorithm else " "
            time = "  not possible" if candidate.time is None else f"{candidate.time * 1e6:11.2f} µs"
            rows.append(f" {mark} {candidate.algorithm:<12}{time}   {candidate.why}")
        return "\n".join(rows)


class SharpOffer(NamedTuple):
    """This record holds the costs of SHARP on a fabric and the size in bytes from which vectors are streamed. If SHARP
    is not available, `costs` is None and `refused` has the reason."""

    costs: SharpCosts | None
    threshold: int | None = None
    refused: str = ""


HOST_BASED = ("ring", "double_tree")


def choose_all_reduce(size: int, length: int, costs: Costs, sharp: SharpOffer) -> AlgorithmChoice:
    """Choose among ring, double binary tree and SHARP the algorithm with the least time. At equal times, the first of
    them is chosen."""
    candidates = [_host_based(name, size, length, costs) for name in HOST_BASED]
    candidates.append(_offered(length, sharp))
    least = min((one for one in candidates if one.time is not None), key=lambda one: one.time or 0.0)
    return AlgorithmChoice("all_reduce", length, least.algorithm, tuple(candidates))


def _host_based(name: str, size: int, length: int, costs: Costs) -> Candidate:
    found = expected("all_reduce", name, size, length, costs)
    latency = found.steps * costs.alpha
    why = f"{found.steps} steps ({latency * 1e6:.2f} µs), {found.sent:,.0f} bytes from the busiest rank"
    return Candidate(name, found.time, why)


def _offered(length: int, sharp: SharpOffer) -> Candidate:
    if sharp.costs is None:
        return Candidate("sharp", None, sharp.refused or "no aggregation nodes in the fabric")
    streams = sharp.threshold is not None and length >= sharp.threshold
    what = "streaming tree" if streams else "low-latency tree"
    why = f"{what}, {sharp.costs.levels} levels ({sharp.costs.latency * 1e6:.2f} µs), {length:,} bytes from each rank"
    return Candidate("sharp", sharp_time(sharp.costs, length, sharp.threshold), why)
