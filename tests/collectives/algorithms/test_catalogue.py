# SPDX-License-Identifier: GPL-2.0-only
"""What cannot be is refused before anything is made, and the message says what is legal."""

from typing import Any

import pytest

from uetproto.collectives.algorithms.catalogue import ALGORITHMS, schedule, scheduled
from uetproto.errors import LocalError


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (
            ("all_sum", "ring", 4, 4),
            {},
            "op: 'all_sum' is not legal.*; legal: all_reduce, reduce_scatter, all_gather, broadcast",
        ),
        (
            ("all_reduce", "bruck", 4, 4),
            {},
            "algorithm: 'bruck' of all_reduce; legal: naive_star, naive_exchange",
        ),
        (
            ("all_reduce", "sharp", 4, 4),
            {},
            "'sharp' of all_reduce is done by the network itself, there is no schedule; legal are naive_star",
        ),
        (
            ("all_gather", "multicast", 4, 4),
            {},
            "'multicast' of all_gather is done by the network itself, there is no schedule; legal are ring",
        ),
        (("all_reduce", "ring", 0, 4), {}, "size: 0 ranks; legal is 1 and more"),
        (("all_reduce", "ring", 4, -1), {}, "count: -1 elements; legal is 0 and more"),
        (("barrier", "ring", 4, 1), {}, "count: 1 elements; a barrier has 0"),
        (("broadcast", "binomial", 4, 4), {"root": 4}, r"root: 4 is not in 0 \.\. 3"),
        (("all_reduce", "rab", 4, 4), {}, "nodes: rab needs to know them"),
        (("all_reduce", "rab", 6, 4), {"nodes": 4}, "nodes: 4 do not share 6 ranks evenly; legal are 1, 2, 3, 6"),
        (("all_reduce", "rab", 4, 4), {"nodes": [[0, 1], [2, 2]]}, r"nodes: .* all of 0 \.\. 3 once"),
        (("all_reduce", "rab", 3, 4), {"nodes": [[0, 1], [2]]}, "nodes: they are not as many ranks each"),
        (
            ("all_reduce", "rab", 4, 4),
            {"nodes": 2, "between": "star"},
            "between: 'star' is not legal; legal: ring",
        ),
        (("all_reduce", "nccl_ring", 4, 4), {"nodes": 2, "channels": 3}, r"channels: 3 is not in 1 \.\. 2"),
        (("all_reduce", "hcoll", 8, 4), {"nodes": 2, "sockets": 3}, "sockets: 3 do not share 4 .* legal are 1, 2, 4"),
        (("all_reduce", "hcoll", 8, 4), {"nodes": 2, "sockets": 0}, "sockets: 0; legal is 1 and more"),
        (("all_reduce", "double_tree", 4, 4), {"slices": 0}, "slices: 0; legal is 1 and more"),
        (
            ("all_reduce", "ring", 2, 4),
            {"sizes": [1, 3]},
            "sizes: all_reduce has no blocks of different",
        ),
        (("all_gather", "ring", 2, 0), {"sizes": [1, 2, 3]}, r"sizes: \[1, 2, 3\] are not 2 numbers from 0 on"),
        (("all_gather", "ring", 2, 5), {"sizes": [1, 2]}, "count: 5 elements, but the sizes make 3"),
        (("all_gather", "ring", 2, 5), {"splits": [[1, 2], [1, 2]]}, "splits: all_gather has none, only all_to_all"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], more: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        schedule(*arguments, **more)


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    made = schedule("all_reduce", "ring", 10**6, 10**12)
    assert made.length == 2 * (10**6 - 1)
    assert made.counts(5).output == 10**12


@pytest.mark.parametrize(("op", "name"), [(op, name) for op in ALGORITHMS for name in scheduled(op)])
def test_names_are_those_of_the_schedule(op: str, name: str) -> None:
    made = schedule(op, name, 4, nodes=2)
    assert (made.op, made.algorithm, made.size) == (op, name, 4)


def test_long_vectors_need_long_numbers() -> None:
    count = 2**33
    for op, name in (
        ("all_reduce", "ring"),
        ("all_gather", "bruck"),
        ("all_to_all", "pairwise"),
        ("all_to_all", "bruck"),
    ):
        for step in schedule(op, name, 8, count).steps(5):
            for item in (*step.sends, *step.receives):
                assert item.start >= 0
                assert 0 < item.count <= count
