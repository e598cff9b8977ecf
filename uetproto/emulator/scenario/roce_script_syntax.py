"""Rows `[[step]]` of a script over RoCE: the keys they take, and the steps they stand for (`check.roce_steps`).

The two ends of the run have a queue pair each, and the script says what befalls them; time and wire stand still
otherwise. What is posted has bytes of its own, made up, with room for them at both ends:

    send = 700                  the initiator posts a SEND of 700 bytes; also node, opcode = "RDMA_WRITE", "RDMA_READ" …
                                as in libibverbs, fence, unsignaled, solicited, inline, cut (the byte at which the list
                                of its bytes is parted), add and compare of an ATOMIC, fault = "rkey" …: what is wrong
    recv = 2048                 the target posts a receive; node, cut, fault
    allow = 1                   one more packet with data may leave; "all": any number; node
    deliver = 2                 packet 2 arrives; [2, 3] or "2-9" several, "all" whatever is on the wire, oldest
                                first; likewise drop, dup, mark (CE)
    corrupt = 2, at = 60        the lowest bit of byte 60 of frame 2 changes
    advance = "1 ms"            time passes, timers run
    modify = "SQD"              the queue pair of the initiator goes there: RTS, SQD, ERR, RESET; node, and attributes
                                that may change on the way: access, timeout, retry_cnt …
    connect = 5                 both queue pairs to RESET and up to RTS again, with PSNs from 5 on; the wire is empty
    inject = "04 80 …"          bytes from the BTH on arrive at the target, as if its peer had sent them; node
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from uetproto.check.roce.steps import FLAGS, RECV_FAULTS, SEND_FAULTS, RoceStep, SendSpec
from uetproto.emulator.scenario.keys import BOOLEAN, HEX, TEXT, Key, choice, integer, one_of, or_all, time
from uetproto.emulator.scenario.roce_settings import ACCESS
from uetproto.emulator.scenario.script_syntax import FRAMES, Refuse, ScriptSyntax
from uetproto.engine.roce.config import legal_of
from uetproto.engine.roce.contract import Opcode, QpState
from uetproto.engine.roce.psn import MASK
from uetproto.engine.roce.segments import KINDS
from uetproto.errors import Location


class RoceRow(NamedTuple):
    """One step of a script; `where` says in what file and line it stands."""

    where: Location
    step: RoceStep


def _u64(value: Any) -> int:
    """TOML has 63 bits: more are told as a text."""
    number = int(value, 16) if isinstance(value, str) else value
    return int(integer(0, 2**64 - 1).check(number))


_U64 = Key(_u64, 'a whole number of 64 bits, or a text such as "0xffff"')
_CHANGING = ("timeout", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic")
_STATES = {state.name: state for state in (QpState.RTS, QpState.SQD, QpState.ERR, QpState.RESET)}
_BYTES = integer(0, 1 << 16)

ROCE = ScriptSyntax(
    actions={
        "send": _BYTES,
        "recv": _BYTES,
        "allow": or_all(integer(0, 1 << 30), -1),
        **dict.fromkeys(("deliver", "drop", "dup", "mark"), FRAMES),
        "corrupt": integer(0, 1 << 30),
        "advance": time(),
        "modify": choice(_STATES),
        "connect": integer(0, MASK),
        "inject": HEX,
    },
    others={
        "node": TEXT,
        "at": integer(0, 65535),
        "cut": _BYTES,
        "opcode": choice({opcode.name: opcode for opcode in KINDS}),
        **dict.fromkeys(FLAGS, BOOLEAN),
        "add": _U64,
        "compare": _U64,
        "fault": one_of(tuple(SEND_FAULTS)),
        "access": ACCESS,
        **{name: integer(legal_of(name)[0], legal_of(name)[-1]) for name in _CHANGING},
    },
    together={
        "send": ("node", "opcode", *FLAGS, "add", "compare", "fault", "cut"),
        "recv": ("node", "fault", "cut"),
        "corrupt": ("at",),
        "modify": ("node", "access", *_CHANGING),
        **dict.fromkeys(("allow", "inject"), ("node",)),
    },
)

_BY_TARGET = ("recv", "inject")
"""What the target does, or what befalls it, where the row names no node."""


def roce_steps_of(
    action: str, value: Any, more: dict[str, Any], nodes: Mapping[str, int], refuse: Refuse
) -> tuple[RoceStep, ...]:
    """The steps that a row stands for. `nodes` numbers initiator and target."""
    name = more.get("node")
    if name is not None and name not in nodes:
        raise refuse("node", f"no such node: {name!r}", ", ".join(nodes))
    node = nodes[name] if name is not None else int(action in _BY_TARGET)
    match action:
        case "send":
            return (RoceStep(action, node, value, more.get("cut", 0), _send(more)),)
        case "recv":
            fault = more.get("fault", "")
            if fault not in RECV_FAULTS:
                raise refuse("fault", f"{fault!r} is not legal", ", ".join(filter(None, RECV_FAULTS)))
            return (RoceStep(action, node, value, more.get("cut", 0), fault=fault),)
        case "deliver" | "drop" | "dup" | "mark":
            return tuple(RoceStep(action, number=number) for number in value)
        case "modify":
            return (RoceStep(action, node, state=value, attributes=_attributes(more)),)
        case "inject":
            return (RoceStep(action, node, data=value),)
    return (RoceStep(action, node, value, more.get("at", 0)),)


def _send(more: Mapping[str, Any]) -> SendSpec:
    plain = SendSpec()
    flags = plain.flags
    for name, flag in FLAGS.items():
        if more.get(name):
            flags ^= flag
    return SendSpec(
        more.get("opcode", Opcode.SEND), flags, more.get("add", plain.add), more.get("compare"), more.get("fault", "")
    )


def _attributes(more: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    names = {"access": "access_flags"}
    return tuple((names.get(name, name), int(value)) for name, value in more.items() if name != "node")
