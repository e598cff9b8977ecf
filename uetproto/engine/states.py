"""The state machines of a PDC as data: (state, input) → (action, next state).

Three tables: `CLOSED` for a packet that finds no PDC (pds.md §6.3, §6.5), `INITIATOR` (§6.4) and `TARGET` (§6.5).
An action is the name of a method: of `uet_pds.Pds` in the first table, of `uet_pdc.Pdc` in the others. An action that
refuses what it was handed (a PSN outside the window, say) leaves the state as it is. A pair that is not in the table:
a packet gets the default row of its input, a local call raises `LocalError`, and time or progress is no input there.
"""

from enum import Enum, IntEnum, auto
from typing import TypeAlias


class State(IntEnum):
    """UE 1.0.1 §3.5.9.3, Fig 3-48, and §3.5.9.4, Fig 3-49."""

    CLOSED = 0
    CREATING = 1
    """Initiator: SYN sent, PDCID of the target not known."""
    ESTABLISHED = 2
    QUIESCE = 3
    """No new messages, open ones finish; target: it has asked for the close."""
    ACK_WAIT = 4
    """Closing: the initiator waits for all ACKs, the target drains."""
    CLOSE_ACK_WAIT = 5
    """Initiator: CLOSE_CMD sent."""


class Input(IntEnum):
    """What happens to a PDC."""

    # packets of one PDC
    REQUEST = 0
    TRIMMED = auto()
    """A request of which only the header arrived."""
    ACK = auto()
    NACK = auto()
    """Class NORMAL or ERR."""
    NACK_FATAL = auto()
    """Class FATAL, and its PSN was sent."""
    NOOP = auto()
    ACK_REQ = auto()
    CLEAR_CMD = auto()
    CLEAR_REQ = auto()
    CLOSE_CMD = auto()
    CLOSE_REQ = auto()
    OTHER_CP = auto()
    """A control packet that is not supported."""
    # packets that may open a PDC
    SYN = auto()
    """Request or NOOP with syn = 1 of an unknown PDC; ROD: psn = Start_PSN."""
    SYN_GAP = auto()
    """The same, ROD, psn ≠ Start_PSN."""
    SYN_NO_ROOM = auto()
    """The same, and no PDC is free."""
    SYN_OLD = auto()
    """The same, of a PDC that was closed less than MSL ago."""
    SYN_CP = auto()
    """A control packet with syn = 1 that cannot open a PDC."""
    OLD_CLOSE_CMD = auto()
    """A CLOSE_CMD for a PDC that was closed less than MSL ago."""
    # local calls
    SEND = auto()
    """SES: first packet of a message."""
    SEND_MORE = auto()
    """SES: later packet of the open message."""
    RESPOND = auto()
    """SES: the response to a delivered packet."""
    CLOSE = auto()
    """A local wish to close; also from the peer by req = CLOSE, from the PSN limit, from idleness."""
    # progress
    MESSAGES_DONE = auto()
    """No message is open, no lock is held."""
    ALL_ACKED = auto()
    """Every PSN sent is acknowledged."""
    CLOSE_ACKED = auto()
    """The CLOSE_CMD is acknowledged."""
    DRAINED = auto()
    """Target: return direction acknowledged, every forward PSN up to the CLOSE_CMD complete."""
    # time
    RTO = auto()
    """Of a packet that may be repeated once more."""
    EXHAUSTED = auto()
    """Of a packet that may not be repeated any more, by RTO or by NACK."""
    RETX_TIME = auto()
    """NACK_Retx_Time is over."""
    CLEAR_TIME = auto()
    """PDS_Clear_Time of the source is over."""
    STORED_TIME = auto()
    """A guaranteed response is stored for 4 · PDS_Clear_Time."""
    CLOSE_REQ_TIME = auto()
    """Close_REQ_Time is over."""
    IDLE = auto()
    """No packet for the idle time."""


PACKETS = tuple(Input)[: Input.SEND]
LOCAL = (Input.SEND, Input.SEND_MORE, Input.RESPOND, Input.CLOSE)
PROGRESS = (Input.MESSAGES_DONE, Input.ALL_ACKED, Input.CLOSE_ACKED, Input.DRAINED)
TIMERS = tuple(Input)[Input.RTO :]


class Role(Enum):
    CLOSED = "no PDC"
    INITIATOR = "initiator"
    TARGET = "target"


S, I = State, Input  # noqa: E741 - two letters keep the tables readable

Table: TypeAlias = dict[tuple[State, Input], tuple[str, State]]

DEFAULTS = {
    I.REQUEST: "refuse_unexpected",
    I.TRIMMED: "drop",
    I.ACK: "drop",
    I.NACK: "drop",
    I.NACK_FATAL: "drop",
    I.NOOP: "refuse_unexpected",
    I.ACK_REQ: "refuse_unexpected",
    I.CLEAR_CMD: "drop",
    I.CLEAR_REQ: "drop",
    I.CLOSE_CMD: "refuse_unexpected",
    I.CLOSE_REQ: "refuse_unexpected",
    I.OTHER_CP: "refuse_unexpected",
}
"""A packet in a state that has no row for it: dropped, or NACK UNEXP_EVENT; counted (pds.md §6.3 row 14, §13)."""


def _same(state: State, rows: dict[Input, str]) -> Table:
    """Rows that do not leave the state."""
    return {(state, event): (action, state) for event, action in rows.items()}


# pds.md §6.3 rows 5–8 and 11, §6.5 rows CLOSED
CLOSED: Table = {
    **_same(S.CLOSED, {
        I.REQUEST: "refuse_unknown",
        I.TRIMMED: "drop",
        I.ACK: "drop",
        I.NACK: "drop",
        I.NACK_FATAL: "drop",
        I.NOOP: "refuse_unknown_cp",
        I.ACK_REQ: "refuse_unknown_cp",
        I.CLEAR_CMD: "refuse_unknown_cp",
        I.CLEAR_REQ: "refuse_unknown_cp",
        I.CLOSE_CMD: "refuse_unknown_cp",
        I.CLOSE_REQ: "refuse_unknown_cp",
        I.OTHER_CP: "refuse_unknown_cp",
        I.SYN_GAP: "refuse_gap",
        I.SYN_NO_ROOM: "refuse_no_pdc",
        I.SYN_OLD: "drop",
        I.SYN_CP: "drop",
        I.OLD_CLOSE_CMD: "repeat_closing_ack",
    }),
    (S.CLOSED, I.SYN): ("open_target", S.ESTABLISHED),
    (S.CLOSED, I.SEND): ("open_initiator", S.CREATING),
}  # fmt: skip

_DESTINATION = {
    I.REQUEST: "take_request",
    I.TRIMMED: "take_trimmed",
    I.NOOP: "take_psn_cp",
    I.ACK_REQ: "answer_ack_req",
    I.CLEAR_CMD: "take_clear",
    I.RESPOND: "respond",
    I.STORED_TIME: "ask_clear",
}
"""Destination half: pds.md §8, §9, §13."""
_SOURCE = {
    I.ACK: "take_ack",
    I.NACK: "take_nack",
    I.CLEAR_REQ: "answer_clear_req",
    I.RTO: "repeat",
    I.RETX_TIME: "repeat_refused",
    I.CLEAR_TIME: "send_clear",
}
"""Source half: pds.md §7.2, §9.3, §11, §12."""

# pds.md §6.4
INITIATOR: Table = {
    **_same(S.CREATING, {
        **_SOURCE,
        **_DESTINATION,
        I.SEND: "send_syn",
        I.SEND_MORE: "send_syn",
        I.CLOSE: "remember_close",
        I.CLEAR_REQ: "ignore",  # nothing is acknowledged, and a CLEAR_CMD with psn 0 cannot carry psn_offset
    }),
    (S.CREATING, I.ACK): ("take_ack", S.ESTABLISHED),
    (S.CREATING, I.REQUEST): ("take_request", S.ESTABLISHED),
    (S.CREATING, I.NOOP): ("take_psn_cp", S.ESTABLISHED),
    (S.CREATING, I.CLOSE_REQ): ("take_close_req", S.QUIESCE),
    (S.CREATING, I.NACK_FATAL): ("fail_by_nack", S.CLOSED),
    (S.CREATING, I.EXHAUSTED): ("fail_exhausted", S.CLOSED),

    **_same(S.ESTABLISHED, {**_SOURCE, **_DESTINATION, I.SEND: "send", I.SEND_MORE: "send"}),
    (S.ESTABLISHED, I.CLOSE_REQ): ("take_close_req", S.QUIESCE),
    (S.ESTABLISHED, I.CLOSE): ("quiesce", S.QUIESCE),
    (S.ESTABLISHED, I.IDLE): ("quiesce", S.QUIESCE),
    (S.ESTABLISHED, I.NACK_FATAL): ("fail_by_nack", S.CLOSED),
    (S.ESTABLISHED, I.EXHAUSTED): ("fail_exhausted", S.CLOSED),

    **_same(S.QUIESCE, {
        **_SOURCE, **_DESTINATION, I.SEND_MORE: "send", I.CLOSE_REQ: "take_psn_cp", I.CLOSE: "remember_close",
    }),
    (S.QUIESCE, I.MESSAGES_DONE): ("begin_close", S.ACK_WAIT),
    (S.QUIESCE, I.NACK_FATAL): ("fail_by_nack", S.CLOSED),
    (S.QUIESCE, I.EXHAUSTED): ("fail_exhausted", S.CLOSED),

    **_same(S.ACK_WAIT, {**_SOURCE, **_DESTINATION, I.CLOSE_REQ: "take_psn_cp", I.CLOSE: "remember_close"}),
    (S.ACK_WAIT, I.ALL_ACKED): ("send_close", S.CLOSE_ACK_WAIT),
    (S.ACK_WAIT, I.NACK_FATAL): ("fail_by_nack", S.CLOSED),
    (S.ACK_WAIT, I.EXHAUSTED): ("fail_exhausted", S.CLOSED),

    **_same(S.CLOSE_ACK_WAIT, {**_SOURCE, **_DESTINATION, I.CLOSE_REQ: "take_psn_cp", I.CLOSE: "remember_close"}),
    (S.CLOSE_ACK_WAIT, I.CLOSE_ACKED): ("free", S.CLOSED),
    (S.CLOSE_ACK_WAIT, I.NACK_FATAL): ("free", S.CLOSED),
    (S.CLOSE_ACK_WAIT, I.EXHAUSTED): ("free", S.CLOSED),
}  # fmt: skip

# pds.md §6.5
TARGET: Table = {
    **_same(S.ESTABLISHED, {**_SOURCE, **_DESTINATION}),
    (S.ESTABLISHED, I.CLOSE): ("send_close_req", S.QUIESCE),
    (S.ESTABLISHED, I.IDLE): ("send_close_req", S.QUIESCE),
    (S.ESTABLISHED, I.CLOSE_CMD): ("take_close", S.ACK_WAIT),
    (S.ESTABLISHED, I.NACK_FATAL): ("fail_by_nack", S.CLOSED),
    (S.ESTABLISHED, I.EXHAUSTED): ("fail_exhausted", S.CLOSED),

    **_same(S.QUIESCE, {**_SOURCE, **_DESTINATION, I.CLOSE: "remember_close"}),
    (S.QUIESCE, I.CLOSE_CMD): ("take_close", S.ACK_WAIT),
    (S.QUIESCE, I.CLOSE_REQ_TIME): ("fail_closing", S.CLOSED),
    (S.QUIESCE, I.NACK_FATAL): ("fail_by_nack", S.CLOSED),
    (S.QUIESCE, I.EXHAUSTED): ("fail_exhausted", S.CLOSED),

    **_same(S.ACK_WAIT, {
        **_SOURCE, **_DESTINATION, I.CLOSE_CMD: "ignore", I.CLOSE: "remember_close",
    }),
    (S.ACK_WAIT, I.IDLE): ("fail_closing", S.CLOSED),
    (S.ACK_WAIT, I.DRAINED): ("finish_close", S.CLOSED),
    (S.ACK_WAIT, I.NACK_FATAL): ("fail_by_nack", S.CLOSED),
    (S.ACK_WAIT, I.EXHAUSTED): ("fail_closing", S.CLOSED),
}  # fmt: skip

TABLES = {Role.CLOSED: CLOSED, Role.INITIATOR: INITIATOR, Role.TARGET: TARGET}
STATES = {
    Role.CLOSED: (S.CLOSED,),
    Role.INITIATOR: (S.CREATING, S.ESTABLISHED, S.QUIESCE, S.ACK_WAIT, S.CLOSE_ACK_WAIT),
    Role.TARGET: (S.ESTABLISHED, S.QUIESCE, S.ACK_WAIT),
}


def row(role: Role, state: State, event: Input) -> tuple[str, State] | None:
    """Action and next state, the default row included; None: a local call is illegal, time is no input there."""
    found = TABLES[role].get((state, event))
    if found is None and event in DEFAULTS:
        return DEFAULTS[event], state
    return found
