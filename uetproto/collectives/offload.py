# SPDX-License-Identifier: GPL-2.0-only
"""This module defines collectives that a network carries out without a schedule, in its switches or by multicast
(collectives.md §3.9, §3.10)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from uetproto.collectives.dtypes import Array
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.errors import LocalError, UetError


@dataclass(slots=True)
class CollectiveCounters:
    """This class counts the steps, messages and bytes of one rank in collectives."""

    steps: int = 0
    messages: int = 0
    """Number of messages that the rank sent, including messages of no bytes."""
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_reduced: int = 0

    def add(self, other: "CollectiveCounters") -> None:
        """Add the counts of `other` to these counts."""
        self.steps += other.steps
        self.messages += other.messages
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.bytes_reduced += other.bytes_reduced


class CollectivePart(Protocol):
    """This protocol describes one rank's part of a collective, such as `runner.Execution`."""

    counted: CollectiveCounters
    ended: bool

    def start(self) -> None:
        """Begin the part. It is called after the parts of all ranks were made."""

    def fail(self, error: UetError) -> None:
        """End the part with an error that arose elsewhere."""


Ended: TypeAlias = Callable[[UetError | None], None]
"""Type of a function that is called once at the end of a collective, with None or with the error. From then on the
buffers of the collective may be reused."""
PartFactory: TypeAlias = Callable[[int, Array, Array, Ended], CollectivePart]
"""Type of a function that makes the part of a rank. Its arguments are the rank in the group, the arrays INPUT and
OUTPUT (both contiguous), and a function `Ended`. It is called for all ranks in order before the first part starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadRequest:
    """This record describes a collective that all ranks of a group have called."""

    op: str
    """Name of the operation, which is a key of `catalogue.ALGORITHMS`."""
    algorithm: str
    ranks: tuple[int, ...]
    """Members of the group, in the order of the group. Each is given by its rank in the network."""
    group: int
    """Number of the group, which the messages of the group carry. No other group has this number, and no later run uses
    it again."""
    sequence: int
    """Running number of the collective in its group."""
    dtype: np.dtype[Any]
    count: int
    """Number of elements of the full vector."""
    root: int
    """Rank of the root in the group."""
    reduce_op: ReduceOp | None
    sizes: tuple[int, ...] | None
    """Number of elements of each rank's block. It is None if all blocks have the default size."""
    nodes: int | Sequence[Sequence[int]] | None = None
    """Number of nodes that share the group evenly, or the group ranks of each node. None means that each rank is a
    node."""
    sockets: int = 1
    """Number of sockets of each node."""

    @property
    def folding(self) -> "OffloadRequest":
        """Return a copy of this request for a stage of a larger collective. The reduce operation of the copy combines
        elements in the same way, but does not scale them before or after."""
        return replace(self, reduce_op=None if self.reduce_op is None else self.reduce_op.folding)


class Offload(ABC):
    """This class describes the algorithms that a network carries out."""

    algorithms: Mapping[str, tuple[str, ...]]
    """Names of the algorithms that the network carries out, by operation."""

    @abstractmethod
    def maker(self, request: OffloadRequest) -> PartFactory:
        """Return a function that makes the part of each rank. Raises `LocalError` if the request is not supported."""


class Offloads(Offload):
    """This class combines several `Offload` objects into one. If two of them have an algorithm of the same name, the
    first one carries it out."""

    def __init__(self, *members: Offload) -> None:
        self.members = list(members)

    @property
    def algorithms(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]
        """Return the names of the algorithms that the joined offloads have at this time, by operation."""
        found: dict[str, dict[str, None]] = {}
        for member in self.members:
            for op, names in member.algorithms.items():
                found.setdefault(op, {}).update(dict.fromkeys(names))
        return {op: tuple(names) for op, names in found.items()}

    def maker(self, request: OffloadRequest) -> PartFactory:
        for member in self.members:
            if request.algorithm in member.algorithms.get(request.op, ()):
                return member.maker(request)
        legal = ", ".join(self.algorithms.get(request.op, ())) or "none"
        raise LocalError("algorithm", f"{request.algorithm} of {request.op}", legal, id="unknown-algorithm")
