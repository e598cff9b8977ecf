# SPDX-License-Identifier: GPL-2.0-only
"""The state machines of a PDC are three tables, which map a state and an input to an action and the next state.

`CLOSED` is for packets and calls without a PDC (pds.md §6.3, §6.5), `INITIATOR` (§6.4) and `TARGET` (§6.5) are for the
two ends of a PDC. In `CLOSED`, an action is the name of a method of `sublayer.Pds`. In the other two tables, it is the
name of a function in `actions.ACTIONS`. The state does not change if the action returns False (for a PSN outside the
window, for instance). If a table has no entry for an input in a state, the kind of the input decides: a packet gets the
default action of its input (`DEFAULTS`), a local call raises `LocalError`, and time or progress has no effect.
"""

from enum import Enum, IntEnum, auto
from typing import TypeAlias

from uetproto.wire.headers.uet_pds import CONTROLS, CpSender


class State(IntEnum):
    """A PDC has these states (UE 1.0.1 §3.5.9.3, Fig 3-48, and §3.5.9.4, Fig 3-49)."""

    CLOSED = 0
    CREATING = 1
    """The initiator sends packets with syn, and does not know the PDCID of the target for certain."""
    PENDING = 2
    """The target has demanded another Start_PSN and waits for a packet with it (secure start)."""
    ESTABLISHED = 3
    QUIESCE = 4
    """A close was requested. Messages that were begun are finished before the PDC closes."""
    ACK_WAIT = 5
    """The PDC is closing. The initiator waits for all ACKs, and the target for the last data that it returns."""
    CLOSE_ACK_WAIT = 6
    """The initiator has sent CLOSE_CMD, and waits for its ACK."""


class Input(IntEnum):
    """These are the inputs of the state machines. `GLOSSARY` explains each input."""

    # packets of one PDC
    REQUEST = 0
    TRIMMED = auto()
    ACK = auto()
    NACK = auto()
    NACK_FATAL = auto()
    NEW_START = auto()
    NOOP = auto()
    ACK_REQ = auto()
    CLEAR_CMD = auto()
    CLEAR_REQ = auto()
    CLOSE_CMD = auto()
    CLOSE_REQ = auto()
    PROBE = auto()
    CREDIT = auto()
    CREDIT_REQ = auto()
    NEGOTIATION = auto()
    OTHER_CP = auto()
    CONFIRM = auto()
    OTHER_START = auto()
    # packets that may open a PDC
    SYN = auto()
    SYN_NO_PDC = auto()
    SYN_NO_CCC = auto()
    SYN_NO_BITMAP = auto()
    SYN_INSECURE = auto()
    SYN_GAP = auto()
    SYN_OLD = auto()
    SYN_CP = auto()
    OLD_CLOSE_CMD = auto()
    # local calls
    SEND = auto()
    SEND_MORE = auto()
    RETURN = auto()
    RESPOND = auto()
    SEND_CP = auto()
    SEND_PROBE = auto()
    SEND_CREDIT = auto()
    CLOSE = auto()
    # progress
    MESSAGES_DONE = auto()
    ALL_ACKED = auto()
    CLOSE_ACKED = auto()
    DRAINED = auto()
    # time
    RTO = auto()
    EXHAUSTED = auto()
    RETX_TIME = auto()
    CLEAR_TIME = auto()
    STORED_TIME = auto()
    CLOSE_REQ_TIME = auto()
    NEW_PDC_TIME = auto()
    PROBE_TIME = auto()
    IDLE = auto()


CONTROL_INPUTS: dict[int, Input] = {kind: Input[kind.name] for kind in CONTROLS}
"""Input of the state table for each type of control packet."""
_CONTROLS = [(Input[kind.name], control) for kind, control in CONTROLS.items()]
PACKETS = tuple(Input)[: Input.SEND]
LOCAL = tuple(Input)[Input.SEND : Input.MESSAGES_DONE]
PROGRESS = (Input.MESSAGES_DONE, Input.ALL_ACKED, Input.CLOSE_ACKED, Input.DRAINED)
TIMERS = tuple(Input)[Input.RTO :]


class Role(Enum):
    CLOSED = "no PDC"
    INITIATOR = "initiator"
    TARGET = "target"


S, I = State, Input  # noqa: E741 - two letters keep the tables readable

GLOSSARY = {
    # packets of one PDC
    I.REQUEST: ("ROD_REQ or RUD_REQ with all its bytes", "pds.md §8.1"),
    I.TRIMMED: ("a request of which only the header arrived", "pds.md §14"),
    I.ACK: ("ACK, ACK_CC or ACK_CCX", "pds.md §7.2"),
    I.NACK: ("NACK of class NORMAL or ERR", "pds.md §12"),
    I.NACK_FATAL: ("NACK of class FATAL about a PSN that was sent", "pds.md §12"),
    I.NEW_START: ("NACK NEW_START_PSN", "pds.md §6.6"),
    **{event: (f"control packet {event.name}: {control.purpose}", control.section) for event, control in _CONTROLS},
    I.OTHER_CP: ("a control packet that is not supported", "pds.md §13"),
    I.CONFIRM: ("a packet with syn = 1 for a PENDING PDC, with a Start_PSN that the policy accepts", "pds.md §6.6"),
    I.OTHER_START: ("a packet with syn = 1 for a PENDING PDC, with a Start_PSN that the policy refuses", "pds.md §6.6"),
    # packets that may open a PDC
    I.SYN: ("request, NOOP or NEGOTIATION with syn = 1 of an unknown PDC; not SYN_GAP", "pds.md §6.2"),
    I.SYN_NO_PDC: ("as SYN, but no PDC is free", "pds.md §6.3"),
    I.SYN_NO_CCC: ("as SYN, but no congestion-control context is free", "pds.md §6.3"),
    I.SYN_NO_BITMAP: ("as SYN, but no PSN tracking resource is free", "pds.md §6.3"),
    I.SYN_INSECURE: ("as SYN, but secure start demands another Start_PSN", "pds.md §6.6"),
    I.SYN_GAP: ("as SYN or CONFIRM, on ROD with psn ≠ Start_PSN, at a target that discards after a gap", "pds.md §6.3"),
    I.SYN_OLD: ("as SYN, but of a PDC that was closed less than MSL ago", "pds.md §6.2"),
    I.SYN_CP: ("a control packet with syn = 1 that cannot open a PDC", "pds.md §6.3"),
    I.OLD_CLOSE_CMD: ("CLOSE_CMD for a PDC that was closed less than MSL ago", "pds.md §6.5"),
    # local calls
    I.SEND: ("SES has a first packet of a message to send", "pds.md §7.1"),
    I.SEND_MORE: ("SES has a later packet of the open message to send", "pds.md §7.1"),
    I.RETURN: ("SES passes read data for the return direction", "pds.md §10"),
    I.RESPOND: ("SES passes the response to a delivered packet", "pds.md §8.2"),
    I.SEND_CP: ("a local call to send NOOP or NEGOTIATION", "pds.md §13"),
    I.SEND_PROBE: ("a local call to send PROBE", "pds.md §13"),
    I.SEND_CREDIT: ("a local call to send CREDIT or CREDIT_REQ", "pds.md §13"),
    I.CLOSE: ("a request to close: a local call, req = CLOSE of the peer, or PSNs that run out", "pds.md §6.4"),
    # progress
    I.MESSAGES_DONE: ("no message is open or queued, no lock is held", "pds.md §6.4"),
    I.ALL_ACKED: ("every PSN sent is acknowledged, and CLOSE_CMD fits the window", "pds.md §6.4"),
    I.CLOSE_ACKED: ("the CLOSE_CMD is acknowledged", "pds.md §6.4"),
    I.DRAINED: ("target: all return data is acknowledged, all PSNs below the CLOSE_CMD are complete", "pds.md §6.5"),
    # time
    I.RTO: ("the RTO of a packet expires, and the packet may be retransmitted once more", "pds.md §11.1"),
    I.EXHAUSTED: ("the retransmissions of a packet, or the PSNs of the PDC, are used up", "pds.md §11.1, §11.2"),
    I.RETX_TIME: ("NACK_Retx_Time is over", "pds.md §11.2"),
    I.CLEAR_TIME: ("PDS_Clear_Time of the source is over", "pds.md §9.3"),
    I.STORED_TIME: ("4 · PDS_Clear_Time is over, and a guaranteed response is still stored", "pds.md §9.3"),
    I.CLOSE_REQ_TIME: ("Close_REQ_Time is over", "pds.md §6.5"),
    I.NEW_PDC_TIME: ("New_PDC_Time of a PENDING target is over", "pds.md §6.5"),
    I.PROBE_TIME: ("Tail_Loss_Time without an ACK is over (`inferred_loss = probe`)", "pds.md §11.4"),
    I.IDLE: ("no packet was sent or received for the idle time", "pds.md §16"),
}  # fmt: skip
"""Explanation of each input, and the section that defines the reaction."""

Table: TypeAlias = dict[tuple[State, Input], tuple[str, State]]

DEFAULTS = {
    I.REQUEST: "refuse_unexpected",
    I.TRIMMED: "drop",
    I.ACK: "drop",
    I.NACK: "drop",
    I.NACK_FATAL: "drop",
    I.NEW_START: "drop",
    **{event: "refuse_unexpected" if control.ar else "drop" for event, control in _CONTROLS},
    I.OTHER_CP: "refuse_unexpected",
}
"""Default action for each input that is a packet, if the state table has no entry for this input in the current state.
The packet is counted, and is dropped or answered by NACK UNEXP_EVENT (pds.md §6.3 row 14, §13)."""


def _same(state: State, rows: dict[Input, str]) -> Table:
    """Return table rows for `state` whose next state is `state`."""
    return {(state, event): (action, state) for event, action in rows.items()}


def _fails(*states: State) -> Table:
    """Return the rows of some states for inputs that end a PDC in error."""
    actions = {I.NACK_FATAL: "fail_by_nack", I.EXHAUSTED: "fail_exhausted"}
    return {(state, event): (action, S.CLOSED) for state in states for event, action in actions.items()}


# pds.md §6.3 rows 5–8 and 11, §6.5 rows CLOSED
CLOSED: Table = {
    **_same(S.CLOSED, {
        I.REQUEST: "refuse_unknown",
        I.TRIMMED: "drop",
        I.ACK: "drop",
        I.NACK: "drop",
        I.NACK_FATAL: "drop",
        I.NEW_START: "drop",
        **{event: "refuse_unknown_cp" for event, _ in _CONTROLS},
        I.OTHER_CP: "refuse_unknown_cp",
        I.SYN_NO_PDC: "refuse_no_pdc",
        I.SYN_NO_CCC: "refuse_no_ccc",
        I.SYN_NO_BITMAP: "refuse_no_bitmap",
        I.SYN_GAP: "refuse_gap",
        I.SYN_OLD: "drop",
        I.SYN_CP: "drop",
        I.OLD_CLOSE_CMD: "repeat_closing_ack",
    }),
    (S.CLOSED, I.SYN): ("open_target", S.ESTABLISHED),
    (S.CLOSED, I.SYN_INSECURE): ("open_pending", S.PENDING),
    (S.CLOSED, I.SEND): ("open_initiator", S.CREATING),
    (S.CLOSED, I.SEND_CP): ("open_initiator", S.CREATING),
}  # fmt: skip

_DESTINATION = {
    I.REQUEST: "take_request",
    I.TRIMMED: "take_trimmed",
    I.NOOP: "take_psn_cp",
    I.NEGOTIATION: "take_psn_cp",
    I.ACK_REQ: "answer_ack_req",
    I.CLEAR_CMD: "take_clear",
    I.PROBE: "answer_probe",
    I.CREDIT_REQ: "answer_credit_req",
    I.RESPOND: "respond",
    I.STORED_TIME: "ask_clear",
}
"""Actions of the destination half by input (pds.md §8, §9, §13)."""
_SOURCE = {
    I.ACK: "take_ack",
    I.NACK: "take_nack",
    I.CLEAR_REQ: "answer_clear_req",
    I.CREDIT: "take_credit",
    I.RTO: "retransmit",
    I.RETX_TIME: "retransmit_from",
    I.CLEAR_TIME: "send_clear",
    I.PROBE_TIME: "probe_for_loss",
}
"""Actions of the source half by input (pds.md §7.2, §9.3, §11, §12)."""
_PROBING = {I.SEND_PROBE: "send_probe", I.SEND_CREDIT: "send_credit"}
"""Local calls that need a PDC whose two ends know each other (pds.md §11.4, §13)."""

# pds.md §6.4
INITIATOR: Table = {
    **_fails(S.CREATING, S.ESTABLISHED, S.QUIESCE, S.ACK_WAIT),
    **_same(S.CREATING, {
        **_SOURCE,
        **_DESTINATION,
        I.NEW_START: "renumber",
        I.SEND: "send",
        I.SEND_MORE: "send",
        I.SEND_CP: "queue_cp",
        I.CLOSE: "remember_close",
        I.CLEAR_REQ: "ignore",  # nothing is acknowledged, and CLEAR_CMD has psn 0, from which no psn_offset follows
        I.CREDIT_REQ: "ignore",  # the answer, CREDIT, has psn 0, too
        I.PROBE: "ignore",  # the answer would need the PDCID of the target
    }),
    (S.CREATING, I.ACK): ("take_ack", S.ESTABLISHED),
    (S.CREATING, I.REQUEST): ("take_request", S.ESTABLISHED),
    (S.CREATING, I.NOOP): ("take_psn_cp", S.ESTABLISHED),
    (S.CREATING, I.NEGOTIATION): ("take_psn_cp", S.ESTABLISHED),
    (S.CREATING, I.CLOSE_REQ): ("take_close_req", S.QUIESCE),

    **_same(S.ESTABLISHED, {
        **_SOURCE, **_DESTINATION, **_PROBING, I.SEND: "send", I.SEND_MORE: "send", I.SEND_CP: "queue_cp",
        I.NEW_START: "ignore",
    }),
    (S.ESTABLISHED, I.CLOSE_REQ): ("take_close_req", S.QUIESCE),
    (S.ESTABLISHED, I.CLOSE): ("quiesce", S.QUIESCE),
    (S.ESTABLISHED, I.IDLE): ("quiesce", S.QUIESCE),

    **_same(S.QUIESCE, {
        **_SOURCE, **_DESTINATION, **_PROBING, I.SEND_MORE: "send", I.CLOSE_REQ: "take_psn_cp",
        I.CLOSE: "remember_close", I.NEW_START: "ignore", I.IDLE: "keep_alive",
    }),
    (S.QUIESCE, I.MESSAGES_DONE): ("begin_close", S.ACK_WAIT),

    **_same(S.ACK_WAIT, {
        **_SOURCE, **_DESTINATION, **_PROBING, I.CLOSE_REQ: "take_psn_cp", I.CLOSE: "remember_close",
        I.NEW_START: "ignore",
    }),
    (S.ACK_WAIT, I.ALL_ACKED): ("send_close", S.CLOSE_ACK_WAIT),

    **_same(S.CLOSE_ACK_WAIT, {
        **_SOURCE, **_DESTINATION, **_PROBING, I.CLOSE_REQ: "take_psn_cp", I.CLOSE: "remember_close",
        I.NEW_START: "ignore",
    }),
    (S.CLOSE_ACK_WAIT, I.CLOSE_ACKED): ("free", S.CLOSED),
    (S.CLOSE_ACK_WAIT, I.NACK_FATAL): ("free", S.CLOSED),
    (S.CLOSE_ACK_WAIT, I.EXHAUSTED): ("free", S.CLOSED),
}  # fmt: skip

# pds.md §6.5
TARGET: Table = {
    **_fails(S.ESTABLISHED, S.QUIESCE),
    **_same(S.PENDING, {
        I.OTHER_START: "demand_start", I.SYN_GAP: "refuse_gap", I.TRIMMED: "ignore",
        I.ACK: "ignore", I.NACK: "ignore", I.NACK_FATAL: "ignore",
        **{event: "ignore" for event, control in _CONTROLS if control.sender is not CpSender.TARGET},
        I.OTHER_CP: "ignore",
    }),
    (S.PENDING, I.CONFIRM): ("confirm", S.ESTABLISHED),
    (S.PENDING, I.NEW_PDC_TIME): ("give_up_pending", S.CLOSED),

    **_same(S.ESTABLISHED, {
        **_SOURCE, **_DESTINATION, **_PROBING, I.RETURN: "take_return", I.SEND: "send", I.SEND_MORE: "send",
        I.SEND_CP: "queue_cp",
    }),
    (S.ESTABLISHED, I.CLOSE): ("ask_close", S.QUIESCE),
    (S.ESTABLISHED, I.IDLE): ("ask_close", S.QUIESCE),
    (S.ESTABLISHED, I.CLOSE_CMD): ("take_close", S.ACK_WAIT),

    **_same(S.QUIESCE, {
        **_SOURCE, **_DESTINATION, **_PROBING, I.RETURN: "take_return", I.SEND: "send", I.SEND_MORE: "send",
        I.CLOSE: "remember_close",
    }),
    (S.QUIESCE, I.CLOSE_CMD): ("take_close", S.ACK_WAIT),
    (S.QUIESCE, I.CLOSE_REQ_TIME): ("fail_closing", S.CLOSED),

    **_same(S.ACK_WAIT, {
        **_SOURCE, **_DESTINATION, I.RETURN: "take_return", I.SEND: "send", I.SEND_MORE: "send",
        I.CLOSE_CMD: "ignore", I.CLOSE: "remember_close",
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
    Role.TARGET: (S.PENDING, S.ESTABLISHED, S.QUIESCE, S.ACK_WAIT),
}


def row(role: Role, state: State, event: Input) -> tuple[str, State] | None:
    """Return the action and the next state for an input. If the state table has no entry and the input is a packet,
    return the default action, and `state` as the next state.

    Return None if the input is not legal in the state or has no effect.
    """
    found = TABLES[role].get((state, event))
    if found is None and event in DEFAULTS:
        return DEFAULTS[event], state
    return found
