# SPDX-License-Identifier: GPL-2.0-only
"""This module shows mistakes in programs over torch.distributed: where torch hangs or gives wrong numbers, this
package explains the mistake.
"""

import sys
from collections.abc import Callable

import numpy as np

from uetproto.api import distributed as dist
from uetproto.errors import UetError


def both_send_first(rank: int) -> None:
    """Send first on both ranks: each rank waits for the other to receive."""
    x, y = np.full(1000, rank), np.zeros(1000, int)
    dist.send(x, dst=1 - rank)
    dist.recv(y, src=1 - rank)


def different_shapes(rank: int) -> None:
    """Use different shapes: the last batch of one rank is shorter, and was not padded."""
    dist.all_reduce(np.zeros(8 if rank == 0 else 7))


def different_types(rank: int) -> None:
    """Use different types: one rank computes in half precision."""
    dist.all_reduce(np.zeros(8, np.float32 if rank == 0 else np.float16))


def different_roots(rank: int) -> None:
    """Use different roots: each rank passes its own rank as `src`."""
    dist.broadcast(np.zeros(8), src=rank)


def different_order(rank: int) -> None:
    """Call collectives in different order: they are matched by their position, not by their names."""
    if rank == 0:
        dist.all_reduce(np.zeros(8))
        dist.barrier()
    else:
        dist.barrier()
        dist.all_reduce(np.zeros(8))


def missing_rank(rank: int) -> None:
    """Leave a rank out: only rank 0 saves the model, and only rank 0 calls the barrier."""
    dist.all_reduce(np.zeros(8))
    if rank == 0:
        dist.barrier()


def wrong_length(rank: int) -> None:
    """Receive into a tensor that is too short."""
    if rank == 0:
        dist.send(np.zeros(8), dst=1)
    else:
        dist.recv(np.zeros(4), src=0)


def changed_too_early(rank: int) -> None:
    """Change the buffer while it is being sent."""
    x = np.zeros(1000)
    work = dist.isend(x, dst=1) if rank == 0 else dist.irecv(x, src=0)
    if rank == 0:
        x += 1
    assert work is not None
    work.wait()


def wrong_tag(rank: int) -> None:
    """Use different tags on both ranks."""
    x = np.zeros(8)
    if rank == 0:
        dist.send(x, dst=1, tag=7)
    else:
        dist.recv(x, src=0, tag=8)


def read_in_stream_mode(rank: int) -> None:
    """Receive once more than is sent, in stream mode: the call returns, and the first read of the tensor hangs."""
    x = dist.Tensor(np.zeros(8))
    if rank == 0:
        dist.send(x, dst=1)
    else:
        dist.recv(x, src=0)
        dist.recv(x, src=0)
        print(x)


PROGRAMS: tuple[Callable[[int], None], ...] = (
    both_send_first, different_shapes, different_types, different_roots, different_order, missing_rank, wrong_length,
    changed_too_early, wrong_tag, read_in_stream_mode,
)  # fmt: skip


def explained(program: Callable[[int], None], transport: str = "uet") -> str:
    """Run a program on two ranks, and return the text of the error, or "nothing" if there is none."""

    def ready(rank: int) -> None:
        dist.init_process_group()
        program(rank)

    try:
        dist.run(ready, ranks=2, transport=transport, mode="stream" if program is read_in_stream_mode else "cpu")
    except UetError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main(transport: str = "uet") -> None:
    """Run all programs, and print the error of each."""
    for program in PROGRAMS:
        print(f"{program.__name__}: {program.__doc__}")
        for line in explained(program, transport).splitlines():
            print(f"    {line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
