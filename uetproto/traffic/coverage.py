"""What traffic has met: forms, opcodes, codes, cells of the atomic operations (interfaces.md §7)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import IntEnum

from uetproto.engine.ses_atomics import LEGAL
from uetproto.engine.ses_opcodes import OPERATIONS
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.stack import decode
from uetproto.wire.uet_pds import CtlType, NackCode
from uetproto.wire.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ResponseOpcode, ReturnCode

CODES: dict[str, tuple[str, type[IntEnum]]] = {
    # kind       field          its codes
    "requests":  ("opcode",      Opcode),
    "responses": ("opcode",      ResponseOpcode),
    "returns":   ("return_code", ReturnCode),
    "nacks":     ("nack_code",   NackCode),
    "controls":  ("ctl_type",    CtlType),
}  # fmt: skip
"""What is counted beside forms and cells of the atomic operations."""

KINDS = ("forms", *CODES, "atomics")
POSSIBLE: dict[str, int] = {
    "forms": len(UET_FORMS),
    **{kind: len(codes) for kind, (_, codes) in CODES.items()},
    "requests": len(OPERATIONS),
    "atomics": sum(map(len, LEGAL.values())),
}
"""How many there are of each kind; of atomics, the cells of {AMO, datatype} that are legal (ses.md §6)."""


class Coverage:
    """Counts what is in frames as they left the endpoints: a step on the way into a capture."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        for frame in frames:
            self._note(frame)
        return frames

    def _note(self, frame: bytes) -> None:
        counts = self.counts
        for form, values, _ in decode(frame).layers:
            if form not in UET_FORMS:
                continue
            counts["forms"][form] += 1
            for kind, (field, codes) in CODES.items():
                if field in values and FORMS[form][field].values is codes:
                    counts[kind][_name(codes, values[field])] += 1
            if "atomic_opcode" in values:
                amo, datatype = values["atomic_opcode"], values["atomic_datatype"]
                counts["atomics"][f"{_name(AtomicOpcode, amo)} {_name(AtomicDatatype, datatype)}"] += 1

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {kind: dict(sorted(counts.items())) for kind, counts in self.counts.items()}


def _name(codes: type[IntEnum], value: int) -> str:
    try:
        return codes(value).name
    except ValueError:
        return f"{value:#x}"


def table(counts: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str, int]]:
    """Rows for people: kind (in its first row, with how many there are of it), name, count."""
    for kind, of_kind in counts.items():
        head = f"{kind} {len(of_kind)} of {POSSIBLE[kind]}"
        for name, count in of_kind.items() or (("none", 0),):
            yield head, name, count
            head = ""
