"""What the parts of an aggregation node use of each other: the node's services, a group, a lock, a stream."""

from collections import Counter
from typing import Protocol

from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.messages import LockBody, SharpMessage
from uetproto.engine.sharp.node.counters import PortsByConnection
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.pool import NodeTree, ResourcePool
from uetproto.engine.sharp.node.states import OpInput
from uetproto.wire.headers.sharp import Status


class Timed(Protocol):
    """The owner of a timer."""

    deadline: int

    def expired(self) -> None:
        """Handle the expiry of the timer."""


class GroupContext(Protocol):
    """What the operations and the lock of a group use of the group."""

    tree: NodeTree
    tree_id: int
    job_id: int
    group_id: int
    depth: int
    is_root: bool
    own_idx: int
    members: tuple[int, ...]

    @property
    def window(self) -> int:
        """Return W, the number of operations that may be open."""

    @property
    def user_data(self) -> int:
        """Return the bytes of user data of one OST."""

    @property
    def mgid(self) -> int:
        """Return the MGID of multicast results, or 0."""

    def conn_of(self, child: int) -> int:
        """Return the connection to a child."""

    def child_of_rank(self, rank: int) -> int:
        """Return the child below which a rank is, or -1."""

    def note_seq(self, child: int, seq: int) -> None:
        """Store the control counter of a child's last request."""

    def allocate_ost(self) -> bool:
        """Allocate an OST for one more operation; return whether there was one."""

    def release_ost(self, op: OstEntry) -> None:
        """Release the OST of an operation."""

    def send_up(self, data: bytes) -> None:
        """Send a message to the parent."""

    def send_all(self, data: bytes, *, parent: bool = True, but: int | None = None) -> None:
        """Send the same message to every child and to the parent."""

    def error(self, seq: int, code: int, children: frozenset[int], opcode: int) -> bytes:
        """Return an ERROR message of this group."""

    def nack(self, child: int, message: SharpMessage, code: Status) -> None:
        """Send a NACK to a child."""

    def respond(self, child: int, opcode: int, status: int, body: bytes = b"") -> None:
        """Send a control response to a child."""

    def ask_parent(self, opcode: int, body: bytes = b"", status: int = 0) -> None:
        """Send a control request to the parent."""

    def fatal(self, code: Status) -> None:
        """Handle the end of an operation with a code that ends the group."""


class StreamLock(Protocol):
    """What streaming operations use of the lock that permits them."""

    body: LockBody

    @property
    def held(self) -> bool:
        """Tell whether the lock is held."""

    def operation_finished(self, unlock: bool) -> None:
        """Count an operation of the batch."""


class LockedStream(Protocol):
    """What a lock uses of the streaming operations that it permits."""

    @property
    def busy(self) -> bool:
        """Tell whether an operation has begun and has not ended."""

    def end_all(self, event: OpInput, code: Status, children: frozenset[int] = frozenset()) -> int:
        """Fail all open operations."""


class NodeServices(Protocol):
    """What groups, operations and locks use of their node."""

    an_id: int
    config: SharpConfig
    counters: Counter[str]
    ports: PortsByConnection
    pool: ResourcePool
    dead: set[int]

    def send(self, conn: int, data: bytes, handle: int = 0) -> None:
        """Send a message on a connection that is not in error."""

    def send_group(self, data: bytearray, group: int) -> None:
        """Send a message to a multicast group."""

    def expect(self, op: OstEntry, child: int) -> int:
        """Return a handle whose acknowledgement says that the child has the result."""

    def start(self, timed: Timed, delay: int) -> None:
        """Start a timer, or restart it; a delay of 0 stops it."""

    def stop(self, timed: Timed) -> None:
        """Stop a timer."""

    def discard(self) -> None:
        """Count a message that no row of a table takes."""

    def control_seq(self, conn: int) -> int:
        """Return the next control counter of a connection."""

    def next_token(self) -> int:
        """Return a lock token that is not 0."""

    def next_mlid(self) -> int:
        """Return the MLID of the next multicast group."""

    def refuse(self, conn: int, message: SharpMessage, status: Status) -> None:
        """Refuse a request towards its sender."""

    def raise_trap(self, code: Status, group: GroupContext, children: frozenset[int], seq: int) -> None:
        """Raise the trap that is published for a status, if there is one."""

    def may_lock(self, group: GroupContext, sat_tree_id: int) -> Status:
        """Return OK if a group may lock a SAT tree, else what forbids it."""

    def lock_of(self, group: GroupContext) -> StreamLock | None:
        """Return the lock that permits the stream of a group of a SAT tree."""

    def stream_of(self, sat_tree_id: int, group_id: int) -> LockedStream | None:
        """Return the streaming operations of a group of a SAT tree."""


__all__ = ["GroupContext", "LockedStream", "NodeServices", "StreamLock", "Timed"]
