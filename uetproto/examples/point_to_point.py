# SPDX-License-Identifier: GPL-2.0-only
"""This module shows point-to-point operations: a given source or any source, batches of operations, and buffers that
must not change before `wait`.
"""

import sys

import numpy as np

from uetproto.api import distributed as dist


def hand_over(rank: int) -> str:
    """Send on one rank and receive on the other; both calls block until the data is received."""
    dist.init_process_group()
    x = np.arange(4) if rank == 0 else np.zeros(4, int)
    if rank == 0:
        dist.send(x, dst=1)
    else:
        dist.recv(x, src=0)
    return f"has {x.tolist()}"


def shift(rank: int) -> str:
    """Pass tensors around the ring: isend and irecv return at once, so that no order of calls can deadlock."""
    dist.init_process_group()
    size = dist.get_world_size()
    mine, theirs = np.full(2, rank), np.zeros(2, int)
    sending = dist.isend(mine, dst=(rank + 1) % size)
    receiving = dist.irecv(theirs, src=(rank - 1) % size)
    assert sending is not None
    assert receiving is not None
    receiving.wait()  # `theirs` may be read only after this
    sending.wait()  # `mine` may be changed only after this
    return f"sent {mine.tolist()}, got {theirs.tolist()}"


def exchange(rank: int) -> str:
    """Begin all operations of a batch at once: an exchange between neighbours cannot deadlock, whatever their order."""
    dist.init_process_group()
    size = dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    halo = np.zeros(2, int)
    edge = np.array([10 * rank, 10 * rank + 9])
    batch = [
        dist.P2POp(dist.isend, edge[:1], left),
        dist.P2POp(dist.isend, edge[1:], right),
        dist.P2POp(dist.irecv, halo[:1], left),
        dist.P2POp(dist.irecv, halo[1:], right),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return f"has {edge.tolist()} between {halo[0]} and {halo[1]}"


def first_come(rank: int) -> str:
    """Receive without a source: the receive takes the first message, and returns the rank of its sender."""
    dist.init_process_group()
    if rank > 0:
        dist.sleep((4 - rank) * 1e-5)  # rank 3 is the quickest
        dist.send(np.array([rank]), dst=0)
        return "sent its number"
    x = np.zeros(1, int)
    return f"heard ranks {[dist.recv(x) for _ in range(dist.get_world_size() - 1)]}"


PROGRAMS = {hand_over: 2, shift: 4, exchange: 3, first_come: 4}
"""Maps each program to its number of ranks."""


def main(transport: str = "uet") -> None:
    """Run all examples, and print what each rank reports."""
    for program, ranks in PROGRAMS.items():
        print(f"{program.__name__}: {program.__doc__}")
        for rank, text in enumerate(dist.run(program, ranks=ranks, transport=transport)):
            print(f"    rank {rank} {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
