"""A management agent gives trees and quotas to an aggregation node and gets traps from it (sharp.md §1.8, §2.9)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from uetproto.engine.sharp.config import SharpConfig
from uetproto.wire.headers.sharp import Trap

ALL_PORTS = 255
PARENT_PORT = 254
"""Port number that all connections to parents have (**choice**). The port of a child is its child_idx, at most 251."""
OTHER_PORT = 253
"""Port number of multicast groups, and of connections that belong to no tree (**choice**)."""


class Quota(NamedTuple):
    """A QuotaConfig says what one job may use on one tree (sharp.md §2.9)."""

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
    """A trap for the manager, with the job, tree, connection, group and seq that it is about (sharp.md §1.8)."""

    trap: Trap
    syndrome: int
    """`Syndrome` if the trap is SHARP_ERROR, otherwise 0."""
    job_id: int
    tree_id: int
    conn: int
    """Connection that the trap is about; 0 if the trap is not about a single connection."""
    group_id: int
    seq: int


@dataclass(slots=True)
class NodeTree:
    """A TreeConfig says which parent and children this node has in one tree (sharp.md §2.9)."""

    tree_id: int
    mode: int
    """Type of the tree: 0 LLT, 1 SAT."""
    llt_tree_id: int
    parent: int | None
    """Connection to the parent; None at the top of the tree."""
    children: Mapping[int, int]
    """Connections to the children by child_idx."""
    depth: int = 1
    """Level of the node: 1 is a leaf, whose children are hosts."""
    enabled: bool = True
    child_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.child_of = {conn: child for child, conn in self.children.items()}


class ManagedPorts(Protocol):
    """The counters of the ports of a node, as the agent reads them."""

    def of(self, port: int) -> Counter[str]:
        """Return the counters of a port by published name; for `ALL_PORTS` the sums over all ports."""


class ManagedNode(Protocol):
    """The calls to an aggregation node by the agent; `node.aggregation_node.SharpNode` says what each call does."""

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
