"""What a network does of a collective by itself: in its switches, or by multicast, without a schedule (§3.9, §3.10)."""

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
    """Steps, messages and bytes of one rank in collectives."""

    steps: int = 0
    messages: int = 0
    """Messages sent, with those of no bytes."""
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_reduced: int = 0

    def add(self, other: "CollectiveCounters") -> None:
        """Adds the counts of another part."""
        for name in CollectiveCounters.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class CollectivePart(Protocol):
    """One rank in one collective. `runner.Execution` is one."""

    counted: CollectiveCounters
    ended: bool

    def start(self) -> None:
        """All ranks are there: begins."""

    def fail(self, error: UetError) -> None:
        """Ends it from outside."""


Ended: TypeAlias = Callable[[UetError | None], None]
"""Told once: None, or the failure; then buffers are free."""
PartFactory: TypeAlias = Callable[[int, Array, Array, Ended], CollectivePart]
"""Makes the part of a rank of the group: its number there, INPUT and OUTPUT, contiguous. Called for all in order, and
then each part starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadRequest:
    """One collective, as all its ranks ask for it."""

    op: str
    """Of the catalogue."""
    algorithm: str
    ranks: tuple[int, ...]
    """Of the network, in the order of the group."""
    group: int
    """Distinguishes its messages from those of other groups; not used again in a later run."""
    sequence: int
    """Of the collective in its group."""
    dtype: np.dtype[Any]
    count: int
    """Elements of the full vector."""
    root: int
    """Rank of the group."""
    reduce_op: ReduceOp | None
    sizes: tuple[int, ...] | None
    """Elements of each rank's block where they differ."""
    nodes: int | Sequence[Sequence[int]] | None = None
    """How many share the group evenly, or the places of each; None: each rank is one."""
    sockets: int = 1
    """Of each node."""

    @property
    def folding(self) -> "OffloadRequest":
        """Without what its reduction does before and after: for a stage of a whole that does it."""
        return replace(self, reduce_op=None if self.reduce_op is None else self.reduce_op.folding)


class Offload(ABC):
    """Algorithms that are a network's own."""

    algorithms: Mapping[str, tuple[str, ...]]
    """Their names, by operation."""

    @abstractmethod
    def maker(self, request: OffloadRequest) -> PartFactory:
        """Raises `LocalError` for what it does not do, naming what is legal."""


class Offloads(Offload):
    """Several as one; of two with an algorithm of the same name the first one does it."""

    def __init__(self, *members: Offload) -> None:
        self.members = list(members)

    @property
    def algorithms(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]
        """Those that the members have now."""
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


__all__ = ["OffloadRequest", "CollectiveCounters", "Ended", "PartFactory", "Offload", "Offloads", "CollectivePart"]
