# SPDX-License-Identifier: GPL-2.0-only
"""This module records the events that the tracker of PDCs reports for a list of packets."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from tests.support.audit.build import PdsAudit
from tests.support.audit.pds_rules import Line, packets
from uetproto.audit.pds.tracker_state import PdcDirection, PdsEvent
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.wire.packet import Packet

TRIMMED = {"packet": Packet(notes=("trimmed",)), "content": None, "size": -1}


def _noted(name: str, log: "Log", state: Any, seen: ObservedPacket) -> None:
    log.note(name, state, seen)


HEARD = {event: partial(_noted, event.name) for event in PdsEvent}


class Log:
    """A log keeps the events of the tracker, with the numbers of the PDC and of the packet."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def note(self, name: str, state: Any, seen: ObservedPacket) -> None:
        self.told.append((name, state.number if isinstance(state, PdcDirection) else 0, seen.number))

    def of(self, name: str) -> list[tuple[int, int]]:
        return [(instance, number) for told, instance, number in self.told if told == name]


def follow(lines: Iterable[Line], options: Options | None = None) -> tuple[Log, PdsAudit]:
    log = Log()
    audit = PdsAudit(options or Options(), heard=HEARD, listener=log)
    audit.see(packets(lines))
    return log, audit
