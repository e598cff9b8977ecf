"""What one tries first: everything over one rank, or everything to everyone (collectives.md §3.2)."""

import numpy as np

from uetproto.collectives.algorithms.pattern import Phase, Table, everyone
from uetproto.collectives.algorithms.plan import Plan
from uetproto.collectives.algorithms.request import Request
from uetproto.collectives.algorithms.rooted import Star
from uetproto.collectives.algorithms.schedule import Buffer, Counts, Fold, Local, LocalWork
from uetproto.collectives.arrays import Messages


def star(asked: Request) -> Plan:
    """Reduce to the root, one rank after the other, and send out the result the same way: the root is a hot spot.

    Combined is the root's own value, then the others' in ascending order.
    """
    others = np.delete(everyone(asked.size), asked.root, axis=1)
    ranks = np.concatenate([np.array([[asked.root]], dtype=np.int32), others], axis=1)
    ends = np.array([[0, asked.count]])
    up, down = Star(asked.size, up=True), Star(asked.size, up=False)
    return asked.in_place(Phase(up, ranks, ends), Phase(down, ranks, ends, first=up.length), root=asked.root)


def exchange(asked: Request) -> Plan:
    """Every rank sends its vector to all others and combines all in ascending order of ranks: quadratic traffic."""
    size, count = asked.size, asked.count

    def table(rank: int | None) -> Messages:
        src = np.arange(size)[:, None]
        dst = (src + np.arange(1, size)) % size
        return Messages.of(
            step=0, src=src, dst=dst, buffer=Buffer.OUTPUT, start=0, target_buffer=Buffer.SCRATCH, target=src * count,
            count=count, fold=Fold.STORE,
        )  # fmt: skip

    def work(rank: int) -> dict[int, LocalWork]:
        own = Local(Buffer.OUTPUT, 0, Buffer.SCRATCH, rank * count, count)
        folds = (Local(Buffer.SCRATCH, i * count, Buffer.SCRATCH, 0, count, Fold.OWN_FIRST) for i in range(1, size))
        result = Local(Buffer.SCRATCH, 0, Buffer.OUTPUT, 0, count)
        return {0: LocalWork(after=(own, *folds, result))} if size > 1 else {}

    counts = Counts(count, count, size * count)
    return Plan(asked.op, asked.algorithm, size, lambda _: counts, (Table(min(1, size - 1), table),), work)
