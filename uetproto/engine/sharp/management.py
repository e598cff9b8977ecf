# SPDX-License-Identifier: GPL-2.0-only
"""A management agent gives trees and quotas to an aggregation node and gets traps from the node (sharp.md §1.8, §2.9).

This module has the data that agent and node exchange.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from uetproto.engine.sharp.config import SharpConfig
from uetproto.wire.headers.sharp import Trap

ALL_PORTS = 255
PARENT_PORT = 254
"""Port number of all connections to parents, a choice of this project. The port number of a child is its child_idx, at
most 251."""
OTHER_PORT = 253
"""Port number of multicast groups, and of connections that belong to no tree. The number is a choice of this
project."""


class Quota(NamedTuple):
    """A quota says how much of an aggregation node one job may use on one tree; QuotaConfig sets it (sharp.md §2.9)."""

    job_id: int
    tree_id: int
    osts: int = 0
    buffers: int = 0
    groups: int = 0
    qps: int = 0
    user_data: int = 0
    is_root: bool = False
    prevent_lock: bool = False
    reproducible: bool = False
    fp19: bool = False
    bfloat19: bool = False
    ud_qpn: int = 0
    job_key: int = 0


class TrapRaised(NamedTuple):
    """A raised trap reports an error to the manager, with the job, tree, connection, group and seq of the error
    (sharp.md §1.8)."""

    trap: Trap
    syndrome: int
    """`Syndrome` if the trap is SHARP_ERROR, otherwise 0."""
    job_id: int
    tree_id: int
    conn: int
    """Connection of the error; 0 if the error does not belong to a single connection."""
    group_id: int
    seq: int


@dataclass(slots=True)
class NodeTree:
    """A node tree holds the parent and the children of an aggregation node in one tree; TreeConfig sets it (sharp.md
    §2.9)."""

    tree_id: int
    mode: int
    """Type of the tree: 0 LLT, 1 SAT."""
    llt_tree_id: int
    parent: int | None
    """Connection to the parent; None if this node is the root of the tree."""
    children: Mapping[int, int]
    """Maps child_idx to the connection to this child."""
    depth: int = 1
    """Level of the node; level 1 is a leaf, whose children are hosts."""
    enabled: bool = True
    child_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.child_of = {conn: child for child, conn in self.children.items()}


class ManagedPorts(Protocol):
    """The agent reads the counters of the ports of an aggregation node by this protocol."""

    def of(self, port: int) -> Counter[str]:
        """Return the counters of a port by published name. The port `ALL_PORTS` has the sums over all ports."""


class ManagedNode(Protocol):
    """The agent controls an aggregation node by these calls; `node.aggregation_node.SharpNode` says what each call
    does."""

    an_id: int
    config: SharpConfig
    trees: dict[int, NodeTree]
    quotas: dict[tuple[int, int], Quota]

    @property
    def ports(self) -> ManagedPorts: ...
    def set_tree(
        self, tree_id: int, *, mode: int, llt_tree_id: int, parent: int | None, children: Mapping[int, int],
        depth: int = 1,
    ) -> None: ...  # fmt: skip
    def update_tree(self, tree_id: int, children: Mapping[int, int]) -> None: ...
    def remove_tree(self, tree_id: int) -> None: ...
    def disable_tree(self, tree_id: int) -> None: ...
    def set_quota(self, quota: Quota) -> None: ...
    def clear_quota(self, job: int, tree: int) -> None: ...
    def cleanup(self, job: int | None = None, tree: int | None = None) -> None: ...
