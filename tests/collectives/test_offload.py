# SPDX-License-Identifier: GPL-2.0-only
"""Several offloads as one."""

from typing import Any

import numpy as np
import pytest

from uetproto.collectives.offload import Offload, OffloadRequest, Offloads, PartFactory
from uetproto.errors import LocalError


class Named(Offload):
    """Says who was asked."""

    def __init__(self, name: str, **algorithms: tuple[str, ...]) -> None:
        self.name = name
        self.algorithms = algorithms

    def maker(self, asked: OffloadRequest) -> PartFactory:
        return lambda *_: self.name  # type: ignore[return-value]


def asked(op: str, algorithm: str) -> OffloadRequest:
    return OffloadRequest(
        op=op, algorithm=algorithm, ranks=(0, 1), group=0, sequence=0, dtype=np.dtype(int), count=1, root=0,
        reduce_op=None, sizes=None,
    )  # fmt: skip


def test_each_does_its_own() -> None:
    both: Any = Offloads(Named("m", broadcast=("multicast",), all_gather=("multicast",)))
    assert both.algorithms == {"broadcast": ("multicast",), "all_gather": ("multicast",)}
    both.members.append(Named("s", broadcast=("sharp", "multicast"), barrier=("sharp",)))
    assert both.algorithms == {
        "broadcast": ("multicast", "sharp"), "all_gather": ("multicast",), "barrier": ("sharp",),
    }  # fmt: skip
    for op, algorithm, name in [
        ("broadcast", "sharp", "s"),
        ("broadcast", "multicast", "m"),
        ("barrier", "sharp", "s"),
    ]:
        assert both.maker(asked(op, algorithm))(0, None, None, None) == name


@pytest.mark.parametrize(("op", "legal"), [("all_gather", "multicast"), ("reduce", "none")])
def test_what_none_does(op: str, legal: str) -> None:
    with pytest.raises(LocalError, match=f"algorithm: sharp of {op}; legal: {legal}"):
        Offloads(Named("m", all_gather=("multicast",))).maker(asked(op, "sharp"))
