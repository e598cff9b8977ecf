# SPDX-License-Identifier: GPL-2.0-only
"""This module has two state tables: `GROUP` of a group at a host, and `LOCK` of its SAT lock (sharp.md §3.4). A table
maps (state, input) to (action, next state).

An action is the name of a method: in `GROUP` a method of `group.HostGroup`, in `LOCK` a method of `lock.HostLock`. Each
of these classes compiles its table at import. The states IDLE and JOBBED of sharp.md are not here, as the manager keeps
them. If the table has no entry for the present state and an input, the state stays: a message is dropped, and a local
call raises `LocalError`.
"""

from enum import Enum, auto

from uetproto.engine.sharp.state_tables import StateTable


class HostGroupState(Enum):
    """These are the states of a group at a host."""

    JOINING = auto()
    READY = auto()
    BUSY = auto()
    """At least one collective is in progress."""
    FAILED = auto()
    LEAVING = auto()
    LEFT = auto()


class HostGroupInput(Enum):
    """These are the inputs of a group at a host."""

    ALL_JOINED = auto()
    """JOIN_RESP OK has been received on all trees."""
    REFUSED = auto()
    """A JOIN_RESP carries an error."""
    COLLECTIVE = auto()
    """The application calls a collective."""
    ALL_DONE = auto()
    """No collective is in progress any more."""
    NACK = auto()
    ERROR = auto()
    """One of these has happened: an ERROR was received for an open or later operation, a connection failed, or the NACK
    retries are used up."""
    COLL_TIMEOUT = auto()
    LEAVE = auto()
    """The application leaves the group."""
    ALL_LEFT = auto()
    """LEAVE_RESP has been received on all trees."""
    TIME = auto()
    """The host has waited 2 · T_join for JOIN_RESP or LEAVE_RESP. This time is a choice of this project: an aggregation
    node gives up after T_join and answers, so its answer normally comes earlier."""
    NOT_UNLOCKED = auto()
    """The host has waited 2 · T_join for UNLOCK_RESP and now sends LEAVE_REQ, which ends the lock as well."""


GROUP: StateTable = {
    (HostGroupState.JOINING, HostGroupInput.ALL_JOINED):   ("joined",   HostGroupState.READY),
    (HostGroupState.JOINING, HostGroupInput.REFUSED):      ("fail",     HostGroupState.FAILED),
    (HostGroupState.JOINING, HostGroupInput.ERROR):        ("fail",     HostGroupState.FAILED),
    (HostGroupState.JOINING, HostGroupInput.TIME):         ("fail",     HostGroupState.FAILED),
    (HostGroupState.JOINING, HostGroupInput.LEAVE):        ("leave",    HostGroupState.LEAVING),
    (HostGroupState.READY,   HostGroupInput.COLLECTIVE):   ("begin",    HostGroupState.BUSY),
    (HostGroupState.READY,   HostGroupInput.ERROR):        ("fail",     HostGroupState.FAILED),
    (HostGroupState.READY,   HostGroupInput.LEAVE):        ("leave",    HostGroupState.LEAVING),
    (HostGroupState.BUSY,    HostGroupInput.COLLECTIVE):   ("begin",    HostGroupState.BUSY),
    (HostGroupState.BUSY,    HostGroupInput.ALL_DONE):     ("idle",     HostGroupState.READY),
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
    """These are the states of the lock of a SAT tree, as one member of the group sees it."""

    FREE = auto()
    ASKED = auto()
    WAITING = auto()
    """The lock was busy and will be requested again."""
    HELD = auto()
    RELEASING = auto()


class HostLockInput(Enum):
    """These are the inputs of the lock of a SAT tree at a host."""

    WANT = auto()
    """An operation is to use the SAT tree, or `SHARP_COLL_LOCK_ON_COMM_INIT` is set."""
    OK = auto()
    BUSY = auto()
    """LOCK_BUSY or LOCK_TIMEOUT was received, and retries are left."""
    BUSY_AT_LAST = auto()
    """LOCK_BUSY or LOCK_TIMEOUT was received, and no retry is left."""
    DENIED = auto()
    """LOCK_DENIED, or any other status that is not OK, was received."""
    TIME = auto()
    """The time `SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT` has passed since the lock was refused."""
    SPENT = auto()
    """The operations of the batch are complete, and the aggregation nodes have released the lock."""
    RELEASE = auto()
    """The group leaves, or the next operation has another target."""
    RELEASED = auto()
    """UNLOCK_RESP was received."""


LOCK: StateTable = {
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
