# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the steps of a simulation of two UET endpoints.

The fuzzer draws thousands of steps a second, and makes no frames. `uetproto run` takes the steps from the tables
`[[step]]` of a scenario, and makes real frames. The packets of both endpoints are numbered together from 0, in the
order in which they leave. A copy gets a number of its own. A packet stays on the wire until a step delivers or drops
it, and time passes only when a step says so.
"""

from typing import NamedTuple

from uetproto.engine.contract import Mode

ACTIONS = {
    "submit": "SES of `node` hands over a message: `message` says which",
    "allow": "congestion control of `node` lets `number` more first transmissions leave; ALL lifts the limit",
    "deliver": "packet `number` arrives",
    "drop": "packet `number` is lost",
    "dup": "a copy of packet `number`, still on the wire or not any more, is on the wire",
    "trim": "packet `number` is cut as a switch would",
    "mark": "packet `number` gets a CE mark",
    "corrupt": "the lowest bit of byte `at` of packet `number` changes; of the frame, where there are frames",
    "advance": "`number` picoseconds pass, timers run",
    "respond": "SES of `node` answers, as `answer` says, the packet with PSN or pkt_id `number`: one that waits, or one"
    " that will come",
    "close": "`node` closes the PDCs that it opened",
    "ask_close": "`node` asks the initiator to close the PDCs of which it is the target",
    "noop": "`node` sends NOOP",
    "negotiate": "`node` sends NEGOTIATION with the features `number`",
    "probe": "`node` sends PROBE",
    "ask_credit": "`node` sends CREDIT_REQ for `number`",
    "give_credit": "`node` sends CREDIT `number`",
    "lose": "`node` loses the guaranteed response that it stores for PSN `number`",
    "restart": "`node` forgets everything, as after a power cycle",
    "inject": "the transport bytes `data` arrive at `node`, as if its peer had sent them",
}

REFUSALS = ("no_pkt_buffer", "no_gtd_del_avail", "no_ses_msg_avail", "no_resource", "rcvr_infer_loss")
"""Answers by which SES refuses a packet, so that PDS sends a NACK."""

ANSWERS = (
    "ok",  # default response, not guaranteed
    "gtd",  # guaranteed response
    "later",  # nothing until `respond`
    "no_response",  # NO_RESPONSE, the real one by `respond`
    "data",  # read data in the ACK
    "return",  # status in the ACK, read data in the return direction
    *REFUSALS,
)
"""Answers that the scripted SES can give to a packet. The sender of a request puts the index of the wanted answer into
the field `initiator` of the SES header."""


class MessageSpec(NamedTuple):
    """This tuple describes a message that the scripted SES submits. Its SEND, READ or WRITE headers are legal, and its
    bytes are generated."""

    packets: int = 1
    mode: Mode = Mode.RUD
    op: str = "send"
    message_id: int = 1
    answer: str = "ok"
    """Answer of the peer's SES to each packet, one of `ANSWERS`. A read is answered with "data" or "return"."""
    reserved: bool = False
    context: int = 0


class UetStep(NamedTuple):
    """This tuple is a step. `ACTIONS` says what its fields mean for each action."""

    action: str
    node: int = 0
    """Endpoint that acts: 0 for `a`, 1 for `b`."""
    number: int = 0
    at: int = 0
    answer: str = "ok"
    message: MessageSpec | None = None
    data: bytes = b""
