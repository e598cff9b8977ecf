# SPDX-License-Identifier: GPL-2.0-only
"""This module reads rows `[[step]]` of a script: their keys, and the steps that they stand for.

A `ScriptSyntax` has the legal keys of one kind of script. With a real SES, a row is a `FrameStep`. Frames on the wire
are numbered from 0, and time passes only when a row says so:

    submit = 4096               the initiator writes the next 4096 bytes of the input ("all": all that remain)
    deliver = 2                 frame 2 arrives; [2, 3] several, "all" every frame on the wire, oldest first
    drop = 2                    frame 2 is lost; a list and "all" are legal here, too
    dup = 2                     a copy of frame 2, with a number of its own, is on the wire
    trim = 2                    a switch trims frame 2
    corrupt = 2, at = 60        the lowest bit of byte 60 of frame 2 changes
    advance = "1 ms"            time passes, timers run
    respond = 333, gtd = true, code = "NO_MATCH"
                                the target gives this answer when the request with PSN 333 arrives; if it does not
                                arrive before the last row, the run fails

With a scripted SES (`ses = "scripted"`), a row stands for steps of `steps.uet`, which the fuzzer uses, too. Nodes have
the names of the scenario:

    submit = 3                  the initiator hands over a message of 3 packets; also node, message (its id), mode,
                                op = "send", "read", "write", answer (how the other SES answers), reserved, context,
                                header = "small" (for a read of one packet; default: the standard header)
    allow = 1                   congestion control lets one more first transmission leave; "all": any number; node
    deliver = 2                 packet 2 arrives; [2, 3] or "2-9" several, "all" every packet on the wire, oldest
                                first; likewise drop, dup, trim, mark (CE)
    trim = 2, last_hop = true   the last switch on its way trims it; a packet that must not be trimmed stays whole and
                                is counted
    corrupt = 2, at = 60        the lowest bit of byte 60 of frame 2 changes
    advance = "1 ms"            time passes, timers run
    respond = 333               the target answers the packet with PSN 333: answer, or gtd, or code; node; if it does
                                not arrive before the last row, the run fails
    close = "a"                 node a closes its PDC; likewise ask_close, noop, probe, restart
    negotiate = 7               likewise ask_credit, give_credit, lose (removes the response stored for a PSN); node
    inject = "08 00 …"          transport bytes arrive at the target, as if its peer had sent them; node
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from uetproto.emulator.network.scripted_wire import ALL
from uetproto.engine.contract import PDC_MODES, Mode
from uetproto.errors import LocalError, Location, similar
from uetproto.knobs import KeyType
from uetproto.steps.uet import ANSWERS, MessageSpec, UetStep
from uetproto.toml.values import BOOLEAN, HEX, PSN, TEXT, choice, integer, one_of, or_all, time
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import ReturnCode

MODES = {mode.name.lower(): mode for mode in (Mode.ROD, Mode.RUD, Mode.RUDI, Mode.UUD)}
OPERATIONS = ("send", "read", "write")


_StepT = TypeVar("_StepT")


class ScriptRow(NamedTuple, Generic[_StepT]):
    """A script row is a step that a simulator plays. `where` is the place of the row in the scenario file."""

    where: Location
    step: _StepT
    header: str = "std"
    """Header of the SES request: "std" or "small"."""


@dataclass(frozen=True, slots=True)
class ScriptSyntax:
    """A script syntax has the legal keys of the rows of one kind of script. A row has exactly one action, and may have
    other keys that go with this action.
    """

    actions: Mapping[str, KeyType]
    others: Mapping[str, KeyType]
    together: Mapping[str, tuple[str, ...]]
    """Keys of `others` that each action may have."""
    needed: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"corrupt": ("at",)})
    """Keys of `others` that each action must have."""

    steps: Callable[[str, Any, Mapping[str, Any], "RowContext"], Iterator[Any]] | None = None
    """Function that yields the steps of a row. Its arguments are the action, the action's value, the other keys of the
    row, and the context. It is None for scripts with a real SES."""

    @property
    def keys(self) -> dict[str, KeyType]:
        return {**self.actions, **self.others}


_MOST_FRAMES = 1 << 16
"""Number of frames that one row may name at most."""


def _numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str) and (ends := re.fullmatch(r"(\d{1,9})-(\d{1,9})", value)):
        first, last = int(ends[1]), int(ends[2])
        if not first <= last < first + _MOST_FRAMES:
            raise ValueError(value)
        return tuple(range(first, last + 1))
    numbers = value if isinstance(value, list) else [value]
    if numbers and all(type(number) is int and number >= 0 for number in numbers):
        return tuple(numbers)
    raise ValueError(value)


def _one(key: KeyType) -> KeyType:
    return KeyType(lambda value: (key.check(value),), key.legal)


FRAMES = or_all(KeyType(_numbers, 'a frame number counted from 0, a list, a range "2-9" of at most 65536'), (ALL,))

REAL = ScriptSyntax(
    actions={
        "submit": _one(or_all(KeyType(integer(0, 1 << 62).check, "bytes"), ALL)),
        **dict.fromkeys(("deliver", "drop", "dup", "trim"), FRAMES),
        "corrupt": _one(integer(0, 1 << 30)),
        "advance": _one(time()),
        "respond": _one(PSN),
    },
    others={"at": integer(0, 65535), "gtd": BOOLEAN, "code": choice({code.name: code for code in ReturnCode})},
    together={"corrupt": ("at",), "respond": ("gtd", "code")},
)  # fmt: skip

_CODES = {"OK": "ok", **{code.name: code.name.lower() for code in NackCode if code.name.lower() in ANSWERS}}
"""Answer of the scripted SES for each `code` of a response: OK, or the name of a NACK code."""


_BY_TARGET = ("respond", "give_credit", "lose", "inject")
"""Actions that the target performs unless the row names a node."""


class Refuse(Protocol):
    """This protocol describes a function that returns the error for a key of a row, with file and line. The key ""
    stands for the row itself.
    """

    def __call__(self, key: str, value: object, legal: str = "", /, *, id: str) -> LocalError: ...


@dataclass(frozen=True, slots=True)
class RowContext:
    """A row context has the values that, with the keys of a row, determine its steps."""

    nodes: tuple[str, str]
    """Names of initiator and target. A step calls them node 0 and node 1."""
    mode: Mode
    """Mode of a message whose row has no key `mode`."""
    refuse: Refuse
    """Function that returns the error for a key of the row, from the key, the problem, and the legal values. The key ""
    stands for the row itself."""
    message_id: int = 1
    """Id of a message whose row has no key `message`: the number of `submit` rows up to and including this row."""

    def node(self, name: str, key: str) -> int:
        """Return the number of the node `name`, 0 or 1. Raises `LocalError`, which names the key `key` of the row, for
        an unknown node.
        """
        if name not in self.nodes:
            raise self.refuse(
                key, f"no such node: {name!r}{similar(name, self.nodes)}", ", ".join(self.nodes), id="unknown-node"
            )
        return self.nodes.index(name)


def uet_steps(action: str, value: Any, more: Mapping[str, Any], context: RowContext) -> Iterator[UetStep]:
    """Yield the steps that a row stands for. `value` is the value of the row's action, and `more` has the row's other
    keys.
    """
    node = context.node(more["node"], "node") if "node" in more else int(action in _BY_TARGET)
    match action:
        case "submit":
            yield UetStep(action, node, message=_message(value, more, context))
        case "deliver" | "drop" | "dup" | "trim" | "mark":
            yield from (UetStep(action, number=number, at=int(more.get("last_hop", False))) for number in value)
        case "close" | "ask_close" | "noop" | "probe" | "restart":
            yield UetStep(action, context.node(value, action))
        case "respond":
            yield UetStep(action, node, value, answer=_answer(more, context.refuse))
        case "inject":
            yield UetStep(action, node, data=value)
        case _:
            yield UetStep(action, node, value, at=more.get("at", 0))


def _message(packets: int, more: Mapping[str, Any], context: RowContext) -> MessageSpec:
    """Return the message that SES hands to PDS; refuse one that its mode cannot carry (pds.md §3)."""
    refuse = context.refuse
    mode = more.get("mode", context.mode)
    op = more.get("op", "send")
    name = mode.name.lower()
    if mode is Mode.RUDI and op == "send":
        raise refuse("", f"op 'send' is not legal with mode {name}", "read, write", id="not-with-mode")
    if mode is Mode.UUD and op != "send":
        raise refuse("", f"op {op!r} is not legal with mode {name}", "send", id="not-with-mode")
    if mode is Mode.UUD and packets != 1:
        raise refuse("submit", f"{packets} is not legal with mode {name}", "1", id="not-with-mode")
    if more.get("header") == "small" and (op != "read" or packets != 1 or mode not in PDC_MODES or "answer" in more):
        raise refuse(
            "header", "'small' is not legal here", "with op read, 1 packet, mode rud or rod, no answer",
            id="not-with-mode"
        )  # fmt: skip
    answer = more.get("answer", "return" if op == "read" else "ok")
    if answer in ("data", "return") and op != "read":
        raise refuse("answer", f"{answer!r} is not legal with op {op}", ", ".join(_ANY), id="not-with-operation")
    return MessageSpec(
        packets,
        mode,
        op,
        more.get("message", context.message_id),
        answer,
        more.get("reserved", False),
        more.get("context", 0),
    )


_ANY = tuple(answer for answer in ANSWERS if answer not in ("data", "return"))


def _answer(more: Mapping[str, Any], refuse: Refuse) -> str:
    """Return the answer that exactly one of `answer`, `gtd` and `code` gives."""
    said = [name for name in ("answer", "gtd", "code") if name in more]
    if len(said) != 1:
        raise refuse(
            "", f"says {' and '.join(said) or 'no answer'}", "one of answer, gtd, code", id="conflicting-arguments"
        )
    value = more[said[0]]
    return ("gtd" if value else "ok") if said[0] == "gtd" else value


SCRIPTED = ScriptSyntax(
    actions={
        "submit": integer(1, 1 << 16),
        "allow": or_all(integer(0, 1 << 30), ALL),
        **dict.fromkeys(("deliver", "drop", "dup", "trim", "mark"), FRAMES),
        "corrupt": integer(0, 1 << 30),
        "advance": time(),
        "respond": PSN,
        **dict.fromkeys(("close", "ask_close", "noop", "probe", "restart"), TEXT),
        **dict.fromkeys(("negotiate", "ask_credit", "give_credit", "lose"), PSN),
        "inject": HEX,
    },
    others={
        "at": integer(0, 65535),
        "last_hop": BOOLEAN,
        "node": TEXT,
        "message": integer(0, 65535),
        "context": integer(0, 65535),
        "mode": choice(MODES),
        "op": one_of(OPERATIONS),
        "answer": one_of(ANSWERS),
        "reserved": BOOLEAN,
        "header": one_of(("std", "small")),
        "gtd": BOOLEAN,
        "code": choice(_CODES),
    },
    together={
        "submit": ("node", "message", "mode", "op", "answer", "reserved", "context", "header"),
        "corrupt": ("at",),
        "trim": ("last_hop",),
        "respond": ("answer", "gtd", "code", "node"),
        **dict.fromkeys(("allow", "negotiate", "ask_credit", "give_credit", "lose", "inject"), ("node",)),
    },
    steps=uet_steps,
)
