# SPDX-License-Identifier: GPL-2.0-only
"""This module defines a finding: it says where a packet departs from the protocol, what was expected and seen, and
which rule says so."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.audit.rule import Rule, Severity
from uetproto.errors import SuggestsNames
from uetproto.wire.headers.uet_ses import Opcode

Flow = Mapping[str, Any]
"""Type of the names and values that identify the conversation of a finding: addresses, PDCIDs, message id, queue
pair."""

_PACKET = re.compile(r"#\d+|\bpacket \d+")
_OPCODES: dict[int, str] = {opcode: opcode.name for opcode in Opcode}


class FindingPlace(NamedTuple):
    """This record names a vantage point (a file and an interface) and the numbers of the packets that show a finding
    there."""

    file: str
    interface: str
    packets: tuple[int, ...]


@dataclass(slots=True)
class Finding(SuggestsNames):
    """This record describes one departure from the protocol. `packets` holds the numbers, in the file, of the packets
    that show it; the offending packet is the last one."""

    rule: Rule
    severity: Severity
    packets: tuple[int, ...]
    first_time_ns: int
    flow: Flow
    expected: str
    seen: str
    file: str = ""
    interface: str = ""
    vantage: int = 0
    """Number of the vantage point. File and interface do not identify a vantage point: a file may be given twice, and
    two interfaces may have the same name."""
    places: list[FindingPlace] = field(default_factory=list)
    """Other vantage points that show the same finding."""

    @property
    def packet(self) -> int:
        """Return the number of the offending packet."""
        return self.packets[-1]

    @property
    def text(self) -> str:
        """Return the finding in words: what must hold, what was expected, what was seen."""
        return f"{self.rule.says} Expected {self.expected}, seen {self.seen}."

    @property
    def everywhere(self) -> list[FindingPlace]:
        """Return all vantage points that show the finding. The finding's own vantage point is the first one."""
        return [FindingPlace(self.file, self.interface, self.packets), *self.places]

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints for the finding (interfaces.md §8)."""
        return {
            "kind": "finding", "rule": self.rule.id, "severity": self.severity.value, "file": self.file,
            "interface": self.interface, "packets": list(self.packets), "first_time_ns": self.first_time_ns,
            "flow": dict(self.flow), "expected": self.expected, "seen": self.seen, "cite": self.rule.cite,
            "text": self.text,
        } | ({"places": [place._asdict() for place in self.places]} if self.places else {})  # fmt: skip


def opcode_name(opcode: int) -> str:
    """Return the name of an SES opcode for the text of a finding; an unknown opcode is named by its number."""
    return _OPCODES.get(opcode, f"opcode {opcode:#04x}")


def unnumbered(text: str) -> str:
    """Return a text without its packet numbers, which differ between captures of the same traffic."""
    return _PACKET.sub("#", text)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Merge equal findings of several vantage points about the same flow into one finding, whose `places` lists the
    other vantage points.

    Equal findings of one vantage point are not merged with each other: the first is merged with the first of every
    other vantage point, the second with the second, and so on.
    """
    known: dict[Any, Finding] = {}
    times: Counter[Any] = Counter()
    for finding in findings:
        flow = json.dumps(dict(finding.flow), sort_keys=True, default=str)
        same = (finding.rule.id, flow, unnumbered(finding.expected), unnumbered(finding.seen))
        here = (*same, finding.vantage, finding.file, finding.interface)
        times[here] += 1
        first = known.setdefault((*same, times[here]), finding)
        if first is not finding:
            first.places.append(FindingPlace(finding.file, finding.interface, finding.packets))
    return list(known.values())
