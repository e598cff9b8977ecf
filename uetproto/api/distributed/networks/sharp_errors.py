# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the errors of a rank when SHARP fails or is refused; an error states the status, its libsharp code,
and the node that reports it (sharp.md §2.7)."""

from collections.abc import Iterable
from typing import Any

from uetproto.api.distributed.networks.sharp_fabric import SharpFabric
from uetproto.collectives.offload import OffloadRequest
from uetproto.collectives.transport import TransportError
from uetproto.engine.sharp.host.work import Trouble
from uetproto.engine.sharp.manager.grants import Rail
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import LibsharpStatus, Status


class SharpError(TransportError):
    """Raised when an aggregation fails; `status` is the status code of SHARP."""

    def __init__(self, text: str, status: Status) -> None:
        super().__init__(text, id="sharp-failed")
        self.status = status

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.status)  # each rank is told a copy


class SharpRefusedError(LocalError, RuntimeError):
    """Raised when SHARP does not support a collective, or when the manager grants no job; no packet was sent."""

    def __init__(self, text: str, status: LibsharpStatus) -> None:
        super().__init__(text, id="sharp-refused")
        self.status = status

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.status)  # each rank is told a copy


def failure(asked: OffloadRequest, place: int, trouble: Trouble, fabric: SharpFabric, rail: Rail) -> SharpError:
    """Return the error that the member number `place` of the group gets for an operation that failed on the tree of
    `rail`; `trouble` is the reason of the failure."""
    own = asked.ranks[place]
    status = trouble.status
    text = f"sharp: {asked.op} at rank {own}: {status.name} (0x{status:02x}, libsharp {trouble.code.value})"
    who, others = _who(asked, place, trouble, fabric, rail)
    text += f", says {who}"
    if others:
        text += f" of {', '.join(others)}"
    name = fabric.ranks[own].name
    if name in fabric.world.dead:  # a dead node takes all others for dead
        text += f"; {name} itself is dead"
    return SharpError(text, status)


_OF_THE_LEAF = (Status.PARENT_DOWN, Status.TIMEOUT_NO_PROGRESS)
"""Statuses with which a host reports its leaf node: the node is down, or sent no result before the host's timeout."""


def _who(asked: OffloadRequest, place: int, trouble: Trouble, fabric: SharpFabric, rail: Rail) -> tuple[str, list[str]]:
    """Return the name of the node that reported the failure, and the names of the children or the parent concerned."""
    fault = trouble.fault
    if fault is None or not fault.origin_depth:  # a host reported it: this one, or the rank that the message names
        member = place if fault is None else fault.an_id
        host = fabric.ranks[asked.ranks[member]].name if member < len(asked.ranks) else f"host {member}"
        leaf = fabric.name_of(rail.llt[member].an) if member < len(asked.ranks) else ""
        return host, [leaf] if leaf and trouble.status in _OF_THE_LEAF else []
    node = rail.tree.nodes.get(fault.an_id)
    others: list[int] = []
    if node is not None and trouble.status is Status.PARENT_DOWN and node.parent is not None:
        others = [node.parent]
    elif node is not None:
        others = [node.children[index].guid for index in sorted(fault.children) if index < len(node.children)]
    return fabric.name_of(fault.an_id), [fabric.name_of(guid) for guid in others]


def no_job(ranks: tuple[int, ...], status: LibsharpStatus, dead: Iterable[str]) -> SharpRefusedError:
    """Return the error for ranks to which the manager grants no job. The error names the nodes that are `dead`, as they
    may be the reason."""
    shown = ", ".join(map(str, ranks)) if len(ranks) <= 8 else f"{ranks[0]} … {ranks[-1]}"
    text = f"sharp: no job for ranks {shown}: {status.name} ({status.value})"
    if names := ", ".join(sorted(dead)):
        text += f"; dead: {names}"
    return SharpRefusedError(text, status)
