"""The host side of a group as data (sharp.md §3.4): (state, input) → (action, next state), and the same for its lock.

An action is the name of a method: of `sharp_host_group.HostGroup` in `GROUP`, of `sharp_host_lock.HostLock` in `LOCK`.
IDLE and JOBBED of that page are the manager's. A pair that is not in the table is no input there: what comes from
outside is dropped, a local call raises `LocalError`.
"""

from enum import Enum, auto
from typing import TypeAlias


class State(Enum):
    """Of a group."""

    JOINING = auto()
    READY = auto()
    BUSY = auto()
    """Collectives are under way."""
    FAILED = auto()
    LEAVING = auto()
    LEFT = auto()


class Input(Enum):
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


Row: TypeAlias = tuple[str, State]

GROUP: dict[tuple[State, Input], Row] = {
    (State.JOINING, Input.ALL_JOINED):   ("joined",   State.READY),
    (State.JOINING, Input.REFUSED):      ("fail",     State.FAILED),
    (State.JOINING, Input.ERROR):        ("fail",     State.FAILED),
    (State.JOINING, Input.TIME):         ("fail",     State.FAILED),
    (State.JOINING, Input.LEAVE):        ("leave",    State.LEAVING),
    (State.READY,   Input.COLLECTIVE):   ("begin",    State.BUSY),
    (State.READY,   Input.ERROR):        ("fail",     State.FAILED),
    (State.READY,   Input.LEAVE):        ("leave",    State.LEAVING),
    (State.BUSY,    Input.COLLECTIVE):   ("begin",    State.BUSY),
    (State.BUSY,    Input.ALL_DONE):     ("rest",     State.READY),
    (State.BUSY,    Input.NACK):         ("wait",     State.BUSY),
    (State.BUSY,    Input.ERROR):        ("fail",     State.FAILED),
    (State.BUSY,    Input.COLL_TIMEOUT): ("time_out", State.FAILED),
    (State.BUSY,    Input.LEAVE):        ("leave",    State.LEAVING),
    (State.FAILED,  Input.COLLECTIVE):   ("refuse",   State.FAILED),
    (State.FAILED,  Input.LEAVE):        ("leave",    State.LEAVING),
    (State.LEAVING, Input.ALL_LEFT):     ("left",     State.LEFT),
    (State.LEAVING, Input.TIME):         ("left",     State.LEFT),
    (State.LEAVING, Input.NOT_UNLOCKED): ("ask_to_leave", State.LEAVING),
}  # fmt: skip


class Lock(Enum):
    """Of the lock of a SAT, as one member of the group sees it."""

    FREE = auto()
    ASKED = auto()
    WAITING = auto()
    """LOCK_BUSY: it will be asked for again."""
    HELD = auto()
    RELEASING = auto()


class LockInput(Enum):
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


LockRow: TypeAlias = tuple[str, Lock]

LOCK: dict[tuple[Lock, LockInput], LockRow] = {
    (Lock.FREE,      LockInput.WANT):         ("ask",     Lock.ASKED),
    (Lock.ASKED,     LockInput.OK):           ("take",    Lock.HELD),
    (Lock.ASKED,     LockInput.BUSY):         ("wait",    Lock.WAITING),
    (Lock.ASKED,     LockInput.BUSY_AT_LAST): ("give_up", Lock.FREE),
    (Lock.ASKED,     LockInput.DENIED):       ("give_up", Lock.FREE),
    (Lock.WAITING,   LockInput.TIME):         ("ask",     Lock.ASKED),
    (Lock.HELD,      LockInput.SPENT):        ("drop",    Lock.FREE),
    (Lock.HELD,      LockInput.RELEASE):      ("unlock",  Lock.RELEASING),
    (Lock.RELEASING, LockInput.RELEASED):     ("drop",    Lock.FREE),
}  # fmt: skip

__all__ = ["GROUP", "LOCK", "Input", "Lock", "LockInput", "State"]
