# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the cases of collective algorithms that run over packets."""

from typing import Any

import numpy as np

from tests.support.collectives.cases import ROOTED, Case
from uetproto.collectives.algorithms.catalogue import HIERARCHICAL, schedule


def case_of(op: str, name: str, size: int, count: int) -> Case:
    more: dict[str, Any] = {"root": size - 1} if op in ROOTED else {}
    if name in HIERARCHICAL:
        more["nodes"] = 2
    if name == "double_tree":
        more["slices"] = 2
    if op == "barrier":
        return Case(schedule(op, name, size), np.zeros((1, size), int))
    if op == "all_to_all":
        count -= count % size
        return Case(schedule(op, name, size, count), np.full((size, size), count // size))
    sizes = [len(part) for part in np.array_split(np.arange(count), size)]
    return Case(schedule(op, name, size, count, **more), np.array([sizes]))
