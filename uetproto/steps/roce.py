# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the steps of a simulation of two queue pairs. Scripts list them, and the fuzzer draws them.

The packets of both queue pairs are numbered together from 0, in the order in which they leave. A copy gets a number of
its own. A packet stays on the wire until a step delivers or drops it, and time passes only when a step says so.
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
"""Faults that a send may have, by name, and what is wrong with the send."""

RECV_FAULTS = ("", "lkey")

FLAGS = {"fence": SendFlags.FENCE, "unsignaled": SendFlags.SIGNALED, "solicited": SendFlags.SOLICITED,
         "inline": SendFlags.INLINE}  # fmt: skip
"""Flags of a send, by the key of a script step that changes the flag. Without these keys a send has only SIGNALED."""


class SendSpec(NamedTuple):
    """This tuple describes a send, except its length."""

    opcode: Opcode = Opcode.SEND
    flags: SendFlags = SendFlags.SIGNALED
    add: int = 1
    """Number that an ATOMIC adds or swaps in."""
    compare: int | None = None
    """Number that CmpSwap compares with memory. None stands for the number in memory: the swap then happens."""
    fault: str = ""
    """Fault of the send, one of `SEND_FAULTS`. It is empty if the send is right."""


class RoceStep(NamedTuple):
    """This tuple is a step. `ACTIONS` says what its fields mean for each action."""

    action: str
    node: int = 0
    """Endpoint that acts: 0 for `a`, 1 for `b`."""
    number: int = 0
    at: int = 0
    send: SendSpec | None = None
    fault: str = ""
    state: QpState = QpState.RTS
    attributes: tuple[tuple[str, int], ...] = ()
    data: bytes = b""
