# SPDX-License-Identifier: GPL-2.0-only
"""This module runs a program on ranks that have a default process group."""

from uetproto.api import distributed as dist


def run(program, ranks=4, **world):
    """Run a program on ranks, each of which has a default group."""

    def ready(rank):
        dist.init_process_group()
        return program(rank)

    return dist.run(ready, ranks=ranks, **world)
