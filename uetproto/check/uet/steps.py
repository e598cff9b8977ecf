"""What can happen to two endpoints, one step after the other: the rows of a script, and of what the fuzzer finds.

The same steps drive the fuzzer (thousands a second, without bytes) and `uetproto run` (`[[step]]`, real frames).
Packets are numbered from 0 in the order in which they leave, whoever sends them; a copy gets a number of its own. They
stay on the wire until a step takes them. Time passes only when a step says so.
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

ALL = -1
"""In place of a number: whatever is on the wire, oldest first."""

ANSWERS = (
    "ok",  # default response, not guaranteed
    "gtd",  # guaranteed response
    "later",  # nothing until `respond`
    "no_response",  # NO_RESPONSE, the real one by `respond`
    "data",  # read data in the ACK
    "return",  # status in the ACK, read data in the return direction
    "no_pkt_buffer", "no_gtd_del_avail", "no_ses_msg_avail", "no_resource", "rcvr_infer_loss",  # ses_nack
)  # fmt: skip
"""How SES answers a packet. An index into it travels in the field `initiator` of the SES header."""


class Message(NamedTuple):
    """A message that scripted SES hands over: legal SEND, READ or WRITE headers, made-up bytes."""

    packets: int = 1
    mode: Mode = Mode.RUD
    op: str = "send"
    """send, read, write."""
    message_id: int = 1
    answer: str = "ok"
    """One of `ANSWERS`: how the other SES answers each of its packets; a read says data or return."""
    reserved: bool = False
    """On a reserved PDC."""
    context: int = 0


class Step(NamedTuple):
    """One row; `ACTIONS` says what its fields mean."""

    action: str
    node: int = 0
    """0 for `a`, 1 for `b`."""
    number: int = 0
    at: int = 0
    answer: str = "ok"
    message: Message | None = None
    data: bytes = b""
