"""How steps and attributes of queue pairs are written in a scenario; `emulator.roce_rows` reads them."""

from typing import Any

from uetproto.check.roce.steps import FLAGS, RoceStep, Send
from uetproto.check.uet.steps import ALL
from uetproto.engine.roce.contract import Access, Opcode, SendFlags

BELOW = 14 + 20 + 8
"""Bytes of a frame below the BTH: Ethernet, IPv4, UDP."""


def attributes(qp: dict[str, Any]) -> dict[str, Any]:
    """The keys of a `[qp.NAME]`; a shared receive queue has a name there."""
    return {name: "shared" if name == "srq" else int(value) for name, value in qp.items()}


def row(step: RoceStep, nodes: tuple[str, ...]) -> dict[str, Any]:
    """The keys of a `[[step]]`."""
    action, node = step.action, {"node": nodes[step.node]}
    number = "all" if step.number == ALL else step.number
    cut = {"cut": step.at} if step.at else {}
    fault = {"fault": step.fault} if step.fault else {}
    match action:
        case "send":
            return {"send": number, **_send(step.send or Send()), **cut, **node}
        case "recv":
            return {"recv": number, **cut, **fault, **node}
        case "deliver" | "drop" | "dup" | "mark" | "connect":
            return {action: number}
        case "corrupt":
            return {"corrupt": number, "at": step.at + BELOW}
        case "modify":
            return {"modify": step.state.name, **dict(_attribute(*one) for one in step.attributes), **node}
        case "inject":
            return {"inject": step.data.hex(" "), **node}
    return {action: number, **node}


def _send(send: Send) -> dict[str, Any]:
    """What is not as in `Send()`."""
    plain = Send()
    keys: dict[str, Any] = {"opcode": send.opcode.name} if send.opcode is not Opcode.SEND else {}
    keys |= {name: True for name, flag in FLAGS.items() if (send.flags ^ SendFlags.SIGNALED) & flag}
    if send.add != plain.add:
        keys["add"] = hex(send.add)
    if send.compare is not None:
        keys["compare"] = hex(send.compare)
    return {**keys, "fault": send.fault} if send.fault else keys


def _attribute(name: str, value: int) -> tuple[str, Any]:
    if name == "access_flags":
        return "access", [str(flag.name).lower() for flag in Access if value & flag]
    return name, value
