"""Rows `[[step]]` of a script: the keys they take, and the steps they stand for.

With a real SES a row is a `steps.UetStep`. With a scripted one (`ses = "scripted"`) it stands for steps of `check.steps`,
the vocabulary that the fuzzer shares; nodes have the names of the scenario:

    submit = 3                  the initiator hands over a message of 3 packets; also node, message (its id), mode,
                                op = "send", "read", "write", answer (how the other SES answers), reserved, context,
                                header = "small": of a read of one packet, in place of the standard one
    allow = 1                   congestion control lets one more first transmission leave; "all": any number; node
    deliver = 2                 packet 2 arrives; [2, 3] or "2-9" several, "all" whatever is on the wire, oldest
                                first; likewise drop, dup, trim, mark (CE)
    trim = 2, last_hop = true   it is cut by the last switch on its way; what must not be cut stays, and is counted
    corrupt = 2, at = 60        the lowest bit of byte 60 of frame 2 changes
    advance = "1 ms"            time passes, timers run
    respond = 333               the target answers that PSN: answer, or gtd, or code; node; a PSN that does not come
                                before the last row fails the run
    close = "a"                 likewise ask_close, noop, probe, restart: what the node does
    negotiate = 7               likewise ask_credit, give_credit, lose (the response stored for a PSN); node
    inject = "08 00 …"          transport bytes arrive at the target, as if its peer had sent them; node
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from uetproto.check.uet.steps import ANSWERS, MessageSpec, UetStep
from uetproto.check.wire import ALL
from uetproto.emulator.scenario.keys import BOOLEAN, HEX, PSN, TEXT, Key, choice, integer, one_of, or_all, time
from uetproto.engine.contract import PDC_MODES, Mode
from uetproto.errors import LocalError, Location
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import ReturnCode

MODES = {mode.name.lower(): mode for mode in (Mode.ROD, Mode.RUD, Mode.RUDI, Mode.UUD)}
OPERATIONS = ("send", "read", "write")


class ScriptRow(NamedTuple):
    """One step of a script with scripted SES; `where` says in what file and line it stands."""

    where: Location
    step: UetStep
    header: str = "std"
    """Of the SES request: std, or small."""


@dataclass(frozen=True, slots=True)
class ScriptSyntax:
    """The rows of one kind of script: the keys that are actions, and those that go with them."""

    actions: Mapping[str, Key]
    others: Mapping[str, Key]
    together: Mapping[str, tuple[str, ...]]
    """Which of the others an action takes."""
    needed: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"corrupt": ("at",)})
    """Which of them it cannot do without."""

    @property
    def keys(self) -> dict[str, Key]:
        return {**self.actions, **self.others}


_MOST_FRAMES = 1 << 16
"""Frames that one row may name."""


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


def _one(key: Key) -> Key:
    return Key(lambda value: (key.check(value),), key.legal)


FRAMES = or_all(Key(_numbers, 'a frame number counted from 0, a list, a range "2-9" of at most 65536'), (ALL,))

REAL = ScriptSyntax(
    actions={
        "submit": _one(or_all(Key(integer(0, 1 << 62).check, "bytes"), ALL)),
        **dict.fromkeys(("deliver", "drop", "dup", "trim"), FRAMES),
        "corrupt": _one(integer(0, 1 << 30)),
        "advance": _one(time()),
        "respond": _one(PSN),
    },
    others={"at": integer(0, 65535), "gtd": BOOLEAN, "code": choice({code.name: code for code in ReturnCode})},
    together={"corrupt": ("at",), "respond": ("gtd", "code")},
)  # fmt: skip

_CODES = {"OK": "ok", **{code.name: code.name.lower() for code in NackCode if code.name.lower() in ANSWERS}}
"""`code` of a response: OK, or a refusal, by the name of the NACK that it brings."""

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
)

_BY_TARGET = ("respond", "give_credit", "lose", "inject")
"""What the target does, or what befalls it, where the row names no node."""


class Refuse(Protocol):
    """Returns the error for a key of the row, with file and line; key "": for the row."""

    def __call__(self, key: str, value: object, legal: str = "", /) -> LocalError: ...


def steps_of(
    action: str, value: Any, more: dict[str, Any], nodes: Mapping[str, int], mode: Mode, message_id: int, refuse: Refuse
) -> tuple[UetStep, ...]:
    """The steps that a row stands for. `nodes` numbers initiator and target; `mode` and `message_id` are what a
    message has that says nothing else."""

    def number_of(name: str, key: str) -> int:
        if name not in nodes:
            raise refuse(key, f"no such node: {name!r}", ", ".join(nodes))
        return nodes[name]

    node = number_of(more["node"], "node") if "node" in more else int(action in _BY_TARGET)
    match action:
        case "submit":
            return (UetStep(action, node, message=_message(value, more, mode, message_id, refuse)),)
        case "deliver" | "drop" | "dup" | "trim" | "mark":
            return tuple(UetStep(action, number=number, at=int(more.get("last_hop", False))) for number in value)
        case "close" | "ask_close" | "noop" | "probe" | "restart":
            return (UetStep(action, number_of(value, action)),)
        case "respond":
            return (UetStep(action, node, value, answer=_answer(more, refuse)),)
        case "inject":
            return (UetStep(action, node, data=value),)
    return (UetStep(action, node, value, at=more.get("at", 0)),)


def _message(packets: int, more: Mapping[str, Any], mode: Mode, message_id: int, refuse: Refuse) -> MessageSpec:
    """What SES is to hand over, if the mode may carry it (pds.md §3)."""
    mode = more.get("mode", mode)
    op = more.get("op", "send")
    name = mode.name.lower()
    if mode is Mode.RUDI and op == "send":
        raise refuse("", f"op 'send' is not legal with mode {name}", "read, write")
    if mode is Mode.UUD and op != "send":
        raise refuse("", f"op {op!r} is not legal with mode {name}", "send")
    if mode is Mode.UUD and packets != 1:
        raise refuse("submit", f"{packets} is not legal with mode {name}", "1")
    if more.get("header") == "small" and (op != "read" or packets != 1 or mode not in PDC_MODES or "answer" in more):
        raise refuse("header", "'small' is not legal here", "with op read, 1 packet, mode rud or rod, no answer")
    answer = more.get("answer", "return" if op == "read" else "ok")
    if answer in ("data", "return") and op != "read":
        raise refuse("answer", f"{answer!r} is not legal with op {op}", ", ".join(_ANY))
    return MessageSpec(
        packets, mode, op, more.get("message", message_id), answer, more.get("reserved", False), more.get("context", 0)
    )


_ANY = tuple(answer for answer in ANSWERS if answer not in ("data", "return"))


def _answer(more: Mapping[str, Any], refuse: Refuse) -> str:
    """`answer`, `gtd = true`, or `code`; one of them."""
    said = [name for name in ("answer", "gtd", "code") if name in more]
    if len(said) != 1:
        raise refuse("", f"says {' and '.join(said) or 'no answer'}", "one of answer, gtd, code")
    value = more[said[0]]
    return ("gtd" if value else "ok") if said[0] == "gtd" else value
