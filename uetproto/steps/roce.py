"""This module has the steps of a simulation of two queue pairs, as scripts have them and the fuzzer draws them.

Packets are numbered from 0 in the order in which they leave, whoever sends them; a copy gets a number of its own. They
stay on the wire until a step takes them, and time passes only when a step says so.
"""

from typing import NamedTuple

from uetproto.engine.roce.contract import Opcode, QpState, SendFlags

ACTIONS = {
    "send": "`node` posts a send of `number` bytes; `send` says which",
    "recv": "`node` posts a receive of `number` bytes; `fault` says what is wrong with it",
    "allow": "`node` may let `number` more packets with data leave; ALL lifts the limit",
    "deliver": "packet `number` arrives",
    "drop": "packet `number` is lost",
    "dup": "a copy of packet `number`, still on the wire or not any more, is on the wire",
    "mark": "packet `number` gets a CE mark",
    "corrupt": "the lowest bit of byte `at` of packet `number` changes; of the frame, where there are frames",
    "advance": "`number` picoseconds pass, timers run",
    "modify": "the queue pair of `node` goes to `state`, with `attributes`",
    "connect": "both queue pairs go to RESET and up to RTS again, with PSNs from `number` on; the wire is empty then",
    "inject": "the bytes `data`, from the BTH on, arrive at `node`, as if its peer had sent them",
}

SEND_FAULTS = {
    "": "nothing",
    "rkey": "no region has the r_key",
    "domain": "the region belongs to another protection domain",
    "right": "the region may be read, and nothing else",
    "range": "the last byte is behind the region",
    "alignment": "an ATOMIC at no multiple of 8",
    "lkey": "no region has the l_key",
    "qkey": "UD: it is not the q_key of the peer",
}
"""Faults that a send may have, with their meaning."""

RECV_FAULTS = ("", "lkey")

FLAGS = {"fence": SendFlags.FENCE, "unsignaled": SendFlags.SIGNALED, "solicited": SendFlags.SOLICITED,
         "inline": SendFlags.INLINE}  # fmt: skip
"""Keys of a row that change a flag of a send, which otherwise has only SIGNALED."""


class SendSpec(NamedTuple):
    """The properties that a send has, without its length."""

    opcode: Opcode = Opcode.SEND
    flags: SendFlags = SendFlags.SIGNALED
    add: int = 1
    """The number that an ATOMIC adds or swaps in."""
    compare: int | None = None
    """The number that CmpSwap compares; None: the number in memory."""
    fault: str = ""
    """The fault of the send, one of `SEND_FAULTS`."""


class RoceStep(NamedTuple):
    """A step; `ACTIONS` says what the fields mean for each action."""

    action: str
    node: int = 0
    """The end that acts: 0 for `a`, 1 for `b`."""
    number: int = 0
    at: int = 0
    send: SendSpec | None = None
    fault: str = ""
    state: QpState = QpState.RTS
    attributes: tuple[tuple[str, int], ...] = ()
    data: bytes = b""
