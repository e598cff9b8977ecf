"""The host side of a group as data (sharp.md §3.4): (state, input) → (action, next state), and the same for its lock.

An action is the name of a method: of `sharp_host_group.HostGroup` in `GROUP`, of `sharp_host_lock.HostLock` in `LOCK`.
IDLE and JOBBED of that page are the manager's. A pair that is not in the table is no input there: what comes from
outside is dropped, a local call raises `LocalError`.
"""

from enum import Enum, auto
from typing import TypeAlias


class HostGroupState(Enum):
    """Of a group."""

    JOINING = auto()
    READY = auto()
    BUSY = auto()
    """Collectives are under way."""
    FAILED = auto()
    LEAVING = auto()
    LEFT = auto()


class HostGroupInput(Enum):
    """What happens to a group."""

    ALL_JOINED = auto()
    """JOIN_RESP OK on all trees."""
    REFUSED = auto()
    """A JOIN_RESP with an error."""
    COLLECTIVE = auto()
    """Local call."""
    ALL_DONE = auto()
    """Nothing is under way any more."""
    NACK = auto()
    ERROR = auto()
    """That concerns what is open or still to come; a connection that is lost; NACKs without end."""
    COLL_TIMEOUT = auto()
    LEAVE = auto()
    """Local call."""
    ALL_LEFT = auto()
    """LEAVE_RESP on all trees."""
    TIME = auto()
    """T_join is over, twice: the AN, which waits for it once, tells first (**choice**)."""
    NOT_UNLOCKED = auto()
    """The same, with no UNLOCK_RESP: LEAVE_REQ ends the lock as well, and nobody is gone without having said so."""


Row: TypeAlias = tuple[str, HostGroupState]

GROUP: dict[tuple[HostGroupState, HostGroupInput], Row] = {
    (HostGroupState.JOINING, HostGroupInput.ALL_JOINED):   ("joined",   HostGroupState.READY),
    (HostGroupState.JOINING, HostGroupInput.REFUSED):      ("fail",     HostGroupState.FAILED),
    (HostGroupState.JOINING, HostGroupInput.ERROR):        ("fail",     HostGroupState.FAILED),
    (HostGroupState.JOINING, HostGroupInput.TIME):         ("fail",     HostGroupState.FAILED),
    (HostGroupState.JOINING, HostGroupInput.LEAVE):        ("leave",    HostGroupState.LEAVING),
    (HostGroupState.READY,   HostGroupInput.COLLECTIVE):   ("begin",    HostGroupState.BUSY),
    (HostGroupState.READY,   HostGroupInput.ERROR):        ("fail",     HostGroupState.FAILED),
    (HostGroupState.READY,   HostGroupInput.LEAVE):        ("leave",    HostGroupState.LEAVING),
    (HostGroupState.BUSY,    HostGroupInput.COLLECTIVE):   ("begin",    HostGroupState.BUSY),
    (HostGroupState.BUSY,    HostGroupInput.ALL_DONE):     ("rest",     HostGroupState.READY),
    (HostGroupState.BUSY,    HostGroupInput.NACK):         ("wait",     HostGroupState.BUSY),
    (HostGroupState.BUSY,    HostGroupInput.ERROR):        ("fail",     HostGroupState.FAILED),
    (HostGroupState.BUSY,    HostGroupInput.COLL_TIMEOUT): ("time_out", HostGroupState.FAILED),
    (HostGroupState.BUSY,    HostGroupInput.LEAVE):        ("leave",    HostGroupState.LEAVING),
    (HostGroupState.FAILED,  HostGroupInput.COLLECTIVE):   ("refuse",   HostGroupState.FAILED),
    (HostGroupState.FAILED,  HostGroupInput.LEAVE):        ("leave",    HostGroupState.LEAVING),
    (HostGroupState.LEAVING, HostGroupInput.ALL_LEFT):     ("left",     HostGroupState.LEFT),
    (HostGroupState.LEAVING, HostGroupInput.TIME):         ("left",     HostGroupState.LEFT),
    (HostGroupState.LEAVING, HostGroupInput.NOT_UNLOCKED): ("ask_to_leave", HostGroupState.LEAVING),
}  # fmt: skip


class HostLockState(Enum):
    """Of the lock of a SAT, as one member of the group sees it."""

    FREE = auto()
    ASKED = auto()
    WAITING = auto()
    """LOCK_BUSY: it will be asked for again."""
    HELD = auto()
    RELEASING = auto()


class HostLockInput(Enum):
    """What happens to a lock."""

    WANT = auto()
    """An operation is to stream, or `SHARP_COLL_LOCK_ON_COMM_INIT`."""
    OK = auto()
    BUSY = auto()
    """LOCK_BUSY or LOCK_TIMEOUT, and tries are left."""
    BUSY_AT_LAST = auto()
    DENIED = auto()
    """LOCK_DENIED, or anything else that is not OK."""
    TIME = auto()
    """`SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT` is over."""
    SPENT = auto()
    """The operations of its batch are complete: the ANs have released it."""
    RELEASE = auto()
    """The group leaves, or the next operation has another target."""
    RELEASED = auto()
    """UNLOCK_RESP."""


LockRow: TypeAlias = tuple[str, HostLockState]

LOCK: dict[tuple[HostLockState, HostLockInput], LockRow] = {
    (HostLockState.FREE,      HostLockInput.WANT):         ("ask",     HostLockState.ASKED),
    (HostLockState.ASKED,     HostLockInput.OK):           ("take",    HostLockState.HELD),
    (HostLockState.ASKED,     HostLockInput.BUSY):         ("wait",    HostLockState.WAITING),
    (HostLockState.ASKED,     HostLockInput.BUSY_AT_LAST): ("give_up", HostLockState.FREE),
    (HostLockState.ASKED,     HostLockInput.DENIED):       ("give_up", HostLockState.FREE),
    (HostLockState.WAITING,   HostLockInput.TIME):         ("ask",     HostLockState.ASKED),
    (HostLockState.HELD,      HostLockInput.SPENT):        ("drop",    HostLockState.FREE),
    (HostLockState.HELD,      HostLockInput.RELEASE):      ("unlock",  HostLockState.RELEASING),
    (HostLockState.RELEASING, HostLockInput.RELEASED):     ("drop",    HostLockState.FREE),
}  # fmt: skip

__all__ = ["GROUP", "LOCK", "HostGroupInput", "HostGroupState", "HostLockInput", "HostLockState"]
