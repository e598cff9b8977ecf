# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node has three state machines, whose tables map (state, input) to (action, next state).

`GROUP` is for a group on one tree (sharp.md §3.1). `OPERATION` is for one operation of a group, or for one chunk of a
SAT operation (sharp.md §3.2, §3.3). `LOCK` is for the lock of a SAT tree for one group (sharp.md §3.3). An action is
the name of a method of `group.AggregationGroup`, `operations.GroupOperations` or `lock.GroupLock`. Each of these
classes compiles its table at import. A message for which the table has no entry is counted and dropped. Every other
input, such as the expiry of a timer, occurs only in states that have an entry for it.
"""

from enum import Enum, IntEnum

from uetproto.engine.sharp.state_tables import StateTable

# Group (sharp.md §3.1) ------------------------------------------------------------------------------------------------


class GroupState(IntEnum):
    NONE = 0
    JOINING = 1
    READY = 2
    LEAVING = 3
    FAILED = 4


class GroupInput(Enum):
    """These are the inputs of a group; the value of each member describes the input."""

    JOIN = "JOIN_REQ with new ranks; READY: also one of a child that has left or has forgotten the group"
    JOIN_KNOWN = "JOIN_REQ that repeats known ranks"
    JOIN_WRONG = "JOIN_REQ: a rank already under another child, or another group_size or job"
    JOIN_REFUSED = "JOIN_REQ: job unknown, groups or OSTs used up, tree disabled"
    COMPLETE = "root: ranks known = group_size"
    ACCEPTED = "JOIN_RESP OK from the parent"
    REJECTED = "JOIN_RESP with an error from the parent"
    T_JOIN = "T_join is over"
    LEAVE = "LEAVE_REQ from some children"
    LEAVE_LAST = "LEAVE_REQ from the last child; FAILED: from the last live one"
    LEFT = "LEAVE_RESP from the parent; at a root, or without a parent, at once"
    CHILD_LOST = "connection to a child in error, or its heartbeats missed"
    PARENT_LOST = "connection to the parent in error"
    FATAL = "an operation of the group ended with DATA_CORRUPT, CHILD_DOWN or PARENT_DOWN"
    REQUEST = "AGG_REQ or LOCK_REQ"
    CLEANUP = "ResourceCleanup that covers the job"


_S, _I = GroupState, GroupInput

GROUP: StateTable = {
    (_S.NONE, _I.JOIN): ("create", _S.JOINING),
    (_S.NONE, _I.JOIN_REFUSED): ("refuse_join", _S.NONE),
    (_S.JOINING, _I.JOIN): ("add", _S.JOINING),
    (_S.JOINING, _I.JOIN_KNOWN): ("ignore", _S.JOINING),
    (_S.JOINING, _I.JOIN_WRONG): ("refuse_join", _S.JOINING),
    (_S.JOINING, _I.COMPLETE): ("grant", _S.READY),
    (_S.JOINING, _I.ACCEPTED): ("relay_grant", _S.READY),
    (_S.JOINING, _I.REJECTED): ("relay_refusal", _S.NONE),
    (_S.JOINING, _I.T_JOIN): ("give_up", _S.NONE),
    (_S.JOINING, _I.LEAVE): ("give_up", _S.NONE),
    (_S.JOINING, _I.LEAVE_LAST): ("give_up", _S.NONE),
    (_S.JOINING, _I.CHILD_LOST): ("give_up", _S.NONE),
    (_S.JOINING, _I.PARENT_LOST): ("give_up", _S.NONE),
    (_S.JOINING, _I.CLEANUP): ("cancel", _S.NONE),
    (_S.READY, _I.JOIN_KNOWN): ("repeat_grant", _S.READY),
    (_S.READY, _I.JOIN): ("refuse_join", _S.READY),
    (_S.READY, _I.JOIN_WRONG): ("refuse_join", _S.READY),
    (_S.READY, _I.REQUEST): ("serve", _S.READY),
    (_S.READY, _I.LEAVE): ("mark", _S.READY),
    (_S.READY, _I.LEAVE_LAST): ("forward_leave", _S.LEAVING),
    (_S.READY, _I.CHILD_LOST): ("fail_child", _S.FAILED),
    (_S.READY, _I.PARENT_LOST): ("fail_parent", _S.FAILED),
    (_S.READY, _I.FATAL): ("fail", _S.FAILED),
    (_S.READY, _I.CLEANUP): ("cancel", _S.NONE),
    (_S.LEAVING, _I.LEFT): ("finish_leave", _S.NONE),
    (_S.LEAVING, _I.T_JOIN): ("finish_leave", _S.NONE),
    (_S.LEAVING, _I.PARENT_LOST): ("finish_leave", _S.NONE),
    (_S.LEAVING, _I.CHILD_LOST): ("ignore", _S.LEAVING),
    (_S.LEAVING, _I.REQUEST): ("refuse_request", _S.LEAVING),
    (_S.LEAVING, _I.CLEANUP): ("cancel", _S.NONE),
    (_S.FAILED, _I.REQUEST): ("refuse_request", _S.FAILED),
    (_S.FAILED, _I.JOIN): ("refuse_join", _S.FAILED),
    (_S.FAILED, _I.JOIN_KNOWN): ("refuse_join", _S.FAILED),
    (_S.FAILED, _I.JOIN_WRONG): ("refuse_join", _S.FAILED),
    (_S.FAILED, _I.LEAVE): ("mark", _S.FAILED),
    (_S.FAILED, _I.LEAVE_LAST): ("forward_leave", _S.LEAVING),
    (_S.FAILED, _I.CHILD_LOST): ("ignore", _S.FAILED),
    (_S.FAILED, _I.PARENT_LOST): ("ignore", _S.FAILED),
    (_S.FAILED, _I.CLEANUP): ("cancel", _S.NONE),
}


# Operation (sharp.md §3.2) --------------------------------------------------------------------------------------------


class OpState(IntEnum):
    FREE = 0
    COLLECT = 1
    UP = 2
    DONE = 3
    ERR = 4


class OpInput(Enum):
    """These are the inputs of an operation, or of a SAT chunk; the value of each member describes the input."""

    REQ = "AGG_REQ from a new child, same signature; FREE: in the window, and an OST is available"
    REQ_NO_OST = "AGG_REQ, lazy policy and no OST is left in the pool"
    REQ_AHEAD = "AGG_REQ with seq ≥ base + W"
    REQ_EARLY = "as REQ_AHEAD, but the child has the multicast result of seq - W, and this node does not yet"
    REQ_CACHED = "AGG_REQ with seq < base, its result still cached"
    REQ_STALE = "AGG_REQ with seq < base, no cache"
    REQ_BAD = "AGG_REQ that breaks rule 3, 4 or 5 of sharp.md §2.8, or one of SAT (sharp.md §3.3)"
    REQ_AGAIN = "AGG_REQ again from a child; COLLECT: identical bytes, RETX ignored"
    REQ_CHANGED = "AGG_REQ again from a child, different bytes"
    REQ_OTHER = "AGG_REQ with a different signature; BCAST: second one with data"
    ALL_UP = "every child has contributed, not root"
    ALL_ROOT = "every child has contributed, root"
    RESULT = "AGG_RESULT, signature matches; FREE: its result is cached"
    RESULT_OTHER = "AGG_RESULT, signature differs"
    NACK = "NACK OST_EXHAUSTED or SEQ_AHEAD from the parent"
    NACK_LAST = "as NACK, after `rnr_retry` of them"
    ERROR_ABOVE = "ERROR from the parent"
    ERROR_BELOW = "ERROR from a child, seq in the window"
    CHILD_LOST = "a child of the group fails"
    PARENT_LOST = "the parent fails"
    CANCEL = "a child leaves, or ResourceCleanup"
    T_OST = "T_ost is over"
    T_RESULT = "T_result is over"
    T_RESULT_LAST = "T_result is over after `retry` retransmissions"
    T_RNR = "T_rnr is over"
    FINISHED = "every child has acknowledged the result, or sent a seq ≥ this seq + W"
    T_ERR = "T_err is over, and every lower seq is finished"


_O, _E = OpState, OpInput
_OPEN = (_O.COLLECT, _O.UP)

OPERATION: StateTable = {
    (_O.FREE, _E.REQ): ("allocate", _O.COLLECT),
    (_O.FREE, _E.REQ_NO_OST): ("refuse", _O.FREE),
    (_O.FREE, _E.REQ_AHEAD): ("refuse", _O.FREE),
    (_O.FREE, _E.REQ_EARLY): ("hold_back", _O.FREE),
    (_O.FREE, _E.REQ_CACHED): ("repeat_result", _O.FREE),
    (_O.FREE, _E.REQ_STALE): ("refuse", _O.FREE),
    (_O.FREE, _E.REQ_BAD): ("raise_error", _O.ERR),
    (_O.FREE, _E.RESULT): ("take_late_result", _O.FREE),
    (_O.FREE, _E.ERROR_ABOVE): ("relay_down", _O.ERR),
    (_O.FREE, _E.ERROR_BELOW): ("relay_around", _O.ERR),
    (_O.COLLECT, _E.REQ): ("store", _O.COLLECT),
    (_O.COLLECT, _E.REQ_AGAIN): ("drop_duplicate", _O.COLLECT),
    (_O.COLLECT, _E.REQ_CHANGED): ("raise_error", _O.ERR),
    (_O.COLLECT, _E.REQ_OTHER): ("raise_error", _O.ERR),
    (_O.COLLECT, _E.ALL_UP): ("send_up", _O.UP),
    (_O.COLLECT, _E.ALL_ROOT): ("distribute", _O.DONE),
    (_O.COLLECT, _E.T_OST): ("raise_error", _O.ERR),
    (_O.UP, _E.REQ_AGAIN): ("drop_duplicate", _O.UP),
    (_O.UP, _E.RESULT): ("forward_result", _O.DONE),
    (_O.UP, _E.RESULT_OTHER): ("raise_error", _O.ERR),
    (_O.UP, _E.NACK): ("wait_rnr", _O.UP),
    (_O.UP, _E.NACK_LAST): ("raise_error", _O.ERR),
    (_O.UP, _E.T_RNR): ("send_again", _O.UP),
    (_O.UP, _E.T_RESULT): ("send_again", _O.UP),
    (_O.UP, _E.T_RESULT_LAST): ("raise_error", _O.ERR),
    **{(state, event): ("raise_error", _O.ERR)
       for state in _OPEN for event in (_E.REQ_BAD, _E.CHILD_LOST, _E.PARENT_LOST, _E.CANCEL)},
    **{(state, _E.ERROR_ABOVE): ("relay_down", _O.ERR) for state in _OPEN},
    **{(state, _E.ERROR_BELOW): ("relay_around", _O.ERR) for state in _OPEN},
    (_O.DONE, _E.REQ_AGAIN): ("repeat_result", _O.DONE),
    (_O.DONE, _E.RESULT): ("take_late_result", _O.DONE),
    (_O.DONE, _E.FINISHED): ("evict", _O.FREE),
    (_O.ERR, _E.REQ_AGAIN): ("repeat_error", _O.ERR),
    (_O.ERR, _E.REQ_BAD): ("repeat_error", _O.ERR),
    (_O.ERR, _E.T_ERR): ("evict", _O.FREE),
}  # fmt: skip


# Lock (sharp.md §3.3) -------------------------------------------------------------------------------------------------


class LockState(IntEnum):
    L_FREE = 0
    L_PENDING = 1
    L_TENT = 2
    L_HELD = 3


class LockInput(Enum):
    """These are the inputs of the lock of a SAT tree for one group; the value of each member describes the input."""

    REQ = "LOCK_REQ from a child of the group"
    REQ_DENIED = "LOCK_REQ, prevent_lock set for the job"
    ALL = "all children have sent LOCK_REQ"
    GRANTED = "root: no child and no node has marked an obstacle in LOCK_REQ"
    REFUSED = "root: a child or a node has marked an obstacle in LOCK_REQ"
    OK_ABOVE = "LOCK_RESP OK from the parent"
    REFUSED_ABOVE = "LOCK_RESP with anything else from the parent"
    T_LOCK = "T_lock is over"
    OPERATION_DONE = "operation finished: LAST result sent"
    USED_UP = "operation finished, and the batch is used up, or the operation had the flag UNLOCK"
    UNLOCK = "UNLOCK_REQ from a child, right token"
    UNLOCK_WRONG = "UNLOCK_REQ from a child, any other token"
    UNLOCK_ALL = "UNLOCK_REQ from all children, no operation open"
    END = "group FAILED, LEAVE, or ResourceCleanup"


_L, _K = LockState, LockInput

LOCK: StateTable = {
    (_L.L_FREE, _K.REQ): ("collect", _L.L_PENDING),
    (_L.L_FREE, _K.OK_ABOVE): ("give_back", _L.L_FREE),
    (_L.L_PENDING, _K.REQ): ("collect", _L.L_PENDING),
    (_L.L_PENDING, _K.ALL): ("hold_tentatively", _L.L_TENT),
    (_L.L_PENDING, _K.OK_ABOVE): ("give_back", _L.L_PENDING),
    (_L.L_TENT, _K.REQ): ("ignore", _L.L_TENT),
    (_L.L_TENT, _K.GRANTED): ("grant", _L.L_HELD),
    (_L.L_TENT, _K.REFUSED): ("refuse", _L.L_FREE),
    (_L.L_TENT, _K.OK_ABOVE): ("commit", _L.L_HELD),
    (_L.L_TENT, _K.REFUSED_ABOVE): ("relay_refusal", _L.L_FREE),
    (_L.L_PENDING, _K.T_LOCK): ("time_out", _L.L_FREE),
    (_L.L_TENT, _K.T_LOCK): ("time_out", _L.L_FREE),
    **{(state, _K.REQ_DENIED): ("deny", state) for state in _L},
    **{(state, _K.UNLOCK_WRONG): ("refuse_unlock", state) for state in _L},
    **{(state, _K.UNLOCK): ("refuse_unlock", state) for state in (_L.L_FREE, _L.L_PENDING, _L.L_TENT)},
    **{(state, _K.END): ("release", _L.L_FREE) for state in (_L.L_PENDING, _L.L_TENT)},
    (_L.L_HELD, _K.REQ): ("confirm", _L.L_HELD),
    (_L.L_HELD, _K.OK_ABOVE): ("ignore", _L.L_HELD),
    (_L.L_HELD, _K.OPERATION_DONE): ("count", _L.L_HELD),
    (_L.L_HELD, _K.USED_UP): ("release", _L.L_FREE),
    (_L.L_HELD, _K.UNLOCK): ("collect_unlock", _L.L_HELD),
    (_L.L_HELD, _K.UNLOCK_ALL): ("unlock", _L.L_FREE),
    (_L.L_HELD, _K.END): ("release", _L.L_FREE),
}  # fmt: skip


TABLES: dict[str, tuple[StateTable, type[IntEnum], type[Enum]]] = {
    "Group of an aggregation node (sharp.md §3.1)": (GROUP, GroupState, GroupInput),
    "Operation of an aggregation node (sharp.md §3.2, §3.3)": (OPERATION, OpState, OpInput),
    "Lock of a SAT tree (sharp.md §3.3)": (LOCK, LockState, LockInput),
}
