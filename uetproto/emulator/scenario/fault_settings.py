# SPDX-License-Identifier: GPL-2.0-only
"""This module reads what scenarios say of faults: the section `[faults]`, and the rows `[[faults.target]]`."""

from typing import Any

from uetproto.emulator.scenario.target_faults import TargetFault
from uetproto.impair.faults import Faults
from uetproto.knobs import KeyType, with_defaults
from uetproto.toml.file import SectionReader
from uetproto.toml.values import NAMES, TEXT, WHICH, choice, integer, time
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode


def _packets(value: Any) -> frozenset[int]:
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(value)
    return frozenset(numbers)


FAULT_KEYS = with_defaults({
    "drop": WHICH.says("The frames that are lost."),
    "duplicate": WHICH.says("The frames that arrive twice."),
    "reorder": WHICH.says("The frames that later frames overtake."),
    "delay": WHICH.says("The frames that arrive late."),
    "corrupt": WHICH.says("The frames of which one bit changes."),
    "trim": WHICH.says("The frames that are trimmed."),
    "reorder_by": integer(1, 1 << 16).says("So many later frames overtake a reordered frame."),
    "reorder_time": time(1).says("A reordered frame that is not overtaken is held back for so long."),
    "delay_time": time(1).says("A delayed frame is held back for so long."),
    "from": NAMES.says("The nodes whose frames are at risk.", "all"),
}, Faults)  # fmt: skip

TARGET_FAULT_KEYS = {
    "answer": choice(
        {c.name: c for c in ReturnCode if c not in (ReturnCode.NULL, ReturnCode.OK, ReturnCode.EXTENDED)}
    ).says("The return code of the refusal; it is required."),
    "node": TEXT.says("The target that refuses.", "the target of [run]"),
}
MATCH_KEYS = {
    "opcode": choice({code.name: int(code) for code in Opcode}).says("The opcode of the request."),
    "packet": KeyType(_packets, "a number counted from 0, or a list of numbers").says(
        "Which of the requests that fit all other keys.", "all of them"
    ),
    "message_id": integer(0, 65535).says("The message id of the request."),
    "message_offset": integer(0, 2**32 - 1).says("The offset of the packet in its message."),
    "request_length": integer(0, 2**32 - 1).says("The length of the message."),
    "job_id": integer(0, 2**24 - 1).says("The JobID of the request."),
    "pid_on_fep": integer(0, 4095).says("The PIDonFEP of the request."),
    "resource_index": integer(0, 4095).says("The resource index of the request."),
    "initiator": integer(0, 2**32 - 1).says("The initiator id of the request."),
    "key": integer(0, 2**64 - 1).says("The memory key of the request."),
    "buffer_offset": integer(0, 2**64 - 1).says("The buffer_offset of the request."),
}
"""Keys of `match`: fields of `SesRequest`, and `packet`, the number among the requests that fit the other keys."""
_FAULT_OF = {"reorder_by": "reorder", "reorder_time": "reorder", "delay_time": "delay"}
"""Keys of `[faults]` that say how, by key, and the key that says which frames."""


def faults_of(reader: SectionReader) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """Return the arguments of `Faults`, and the nodes whose frames are at risk, if they are given. Raises `LocalError`
    for values that are not legal."""
    values = reader.table("faults", FAULT_KEYS, reader.data.get("faults", {}), nested=("target",))
    for key, of in _FAULT_OF.items():
        if key in values and not values.get(of):
            raise reader.refuse(
                f"faults.{key}", f"has no effect without faults.{of}", f"with faults.{of}", id="no-effect"
            )
    return values, values.pop("from", None)


def target_fault(reader: SectionReader, number: int, row: Any, ends: tuple[str, str]) -> TargetFault:
    """Return a row `[[faults.target]]`, counted from 0, of a run with these ends, the target last. Raises `LocalError`
    for values that are not legal."""
    path = f"faults.target.{number}"
    values = reader.table(path, TARGET_FAULT_KEYS, row, nested=("match",))
    if "answer" not in values:
        raise reader.refuse(path, "answer is missing", TARGET_FAULT_KEYS["answer"].legal, id="missing-key")
    node = values.get("node", ends[1])
    if node not in ends:
        raise reader.refuse(f"{path}.node", f"no such end: {node!r}", ", ".join(ends), id="unknown-node")
    fits = reader.table(f"{path}.match", MATCH_KEYS, row.get("match", {}))
    return TargetFault(node, fits, fits.pop("packet", None), values["answer"])
