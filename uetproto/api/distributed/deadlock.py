# SPDX-License-Identifier: GPL-2.0-only
"""This module explains a deadlock: which rank waits for which other rank (collectives.md §1.5).

The explanation is made only when no rank can proceed and nothing is in progress. The deadlock is then certain. It names
the shortest cycle of waiting ranks, or the rank whose matching call never comes.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from uetproto.api.distributed.errors import DeadlockError, Wait
from uetproto.errors import UetError


def explain(
    waits: Sequence[Wait], finished: Collection[int], failures: Mapping[int, UetError] | None = None
) -> DeadlockError:
    """Return the error of a run in which no rank can proceed.

    `finished` has the ranks whose program has returned. `failures` maps a rank to the error that the rank saw earlier.
    If some rank waits for a rank that has returned, the earlier error of the returned rank is named as a cause.
    """
    edges: dict[int, set[int]] = {}
    for wait in waits:
        edges.setdefault(wait.rank, set()).update(wait.needs)
    cycle = shortest_cycle(edges)
    # A rank that has returned will call nothing more.
    missing = sorted({rank for wait in waits for rank in wait.needs if rank in finished})
    if cycle:
        head = "deadlock: " + " -> ".join(map(str, (*cycle, cycle[0])))
    elif missing:
        ranks = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))} have"
        head = f"missing participant: {ranks} finished"
    else:
        head = "deadlock: nothing is under way"
    causes = [f"rank {rank} had failed: {failures[rank]}" for rank in missing if failures and rank in failures]
    return DeadlockError("\n  ".join([head, *map(str, waits), *causes]), cycle, tuple(waits))


def shortest_cycle(edges: dict[int, set[int]]) -> tuple[int, ...]:
    """Return the shortest cycle of ranks in which each rank waits for the next. The result begins with the smallest
    rank of the cycle; it is () if there is no cycle.

    `edges` maps each rank to the ranks for which it waits. Among equally short cycles the one with the smallest first
    rank is returned.
    """
    best: tuple[int, ...] = ()
    for start in sorted(edges):
        found = _back_to(start, edges)
        if found and (not best or len(found) < len(best)):
            best = found
    return best


def _back_to(start: int, edges: dict[int, set[int]]) -> tuple[int, ...]:
    before: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        rank = waiting.popleft()
        for needed in sorted(edges.get(rank, ())):
            if needed == start:
                path = [rank]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return tuple(reversed(path))
            if needed not in before and needed >= start:
                before[needed] = rank
                waiting.append(needed)
    return ()
