"""This module has collectives that a network carries out without a schedule: in its switches, or by multicast.

See collectives.md §3.9 and §3.10.
"""

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
    """This class holds the steps, messages and bytes of one rank in collectives."""

    steps: int = 0
    messages: int = 0
    """Number of messages sent, including those of no bytes."""
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_reduced: int = 0

    def add(self, other: "CollectiveCounters") -> None:
        """Add the counts of another part."""
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
        """Begin the part, after all ranks have got their parts."""

    def fail(self, error: UetError) -> None:
        """End the part with an error from outside."""


Ended: TypeAlias = Callable[[UetError | None], None]
"""Function that is called once at the end, with None or with the failure; the caller may then reuse the buffers."""
PartFactory: TypeAlias = Callable[[int, Array, Array, Ended], CollectivePart]
"""Function that makes the part of a rank from its rank in the group, its arrays INPUT and OUTPUT (both contiguous), and
its function `Ended`. It is called for all ranks in order before the first part starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadRequest:
    """This record describes a collective that all its ranks have asked for."""

    op: str
    """Operation of the catalogue."""
    algorithm: str
    ranks: tuple[int, ...]
    """Ranks of the network, in the order of the group."""
    group: int
    """Number that tells messages of this group from those of other groups; a later run does not use it again."""
    sequence: int
    """Number of the collective in its group."""
    dtype: np.dtype[Any]
    count: int
    """Number of elements of the full vector."""
    root: int
    """Group rank of the root."""
    reduce_op: ReduceOp | None
    sizes: tuple[int, ...] | None
    """Number of elements of each rank's block, if the numbers differ."""
    nodes: int | Sequence[Sequence[int]] | None = None
    """Number of nodes that share the group evenly, or the group ranks of each; None: each rank is a node."""
    sockets: int = 1
    """Number of sockets of each node."""

    @property
    def folding(self) -> "OffloadRequest":
        """Return the request with a reduction that has no `prepare` and `finish`, for a stage of a larger
        collective.
        """
        return replace(self, reduce_op=None if self.reduce_op is None else self.reduce_op.folding)


class Offload(ABC):
    """An offload has the algorithms that a network carries out."""

    algorithms: Mapping[str, tuple[str, ...]]
    """Names of the algorithms, by operation."""

    @abstractmethod
    def maker(self, request: OffloadRequest) -> PartFactory:
        """Return a function that makes each rank's part. Raises `LocalError` for a request that is not supported."""


class Offloads(Offload):
    """This class joins several offloads; if two have an algorithm of the same name, the first one is used."""

    def __init__(self, *members: Offload) -> None:
        self.members = list(members)

    @property
    def algorithms(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]
        """Return the algorithms that the members have now."""
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
        raise LocalError("algorithm", f"{request.algorithm} of {request.op}", legal)
