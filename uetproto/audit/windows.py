# SPDX-License-Identifier: GPL-2.0-only
"""This module lists the windows of senders with NSCC that an audit recomputes, by packet, for ladders and pages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from uetproto.audit.auditor import audit
from uetproto.audit.flows import Bounded
from uetproto.audit.judge import Heard
from uetproto.audit.pds.tracker_state import PdsEvent
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.wire.capture.pcap import Record, open_capture


def windows_of(
    source: Any, options: Options, opener: Callable[[Any], Any] = open_capture
) -> dict[int, int]:  # fmt: skip
    """Return the window in bytes by the number (from 1) of each request of a sender with NSCC, as far as it follows
    from the packets before. The capture has to have every packet, from a place near the sender; parameters that it does
    not state are inferred."""
    listeners = _WindowListeners()
    audit([source], replace(options, complete=True, rules=("PDS-WINDOW-*",)), listen=listeners, opener=opener)
    return listeners.found


def _note(found: dict[int, int], state: Any, seen: ObservedPacket) -> None:
    context = state.window.context
    if context.lost_at is None:  # else the sender took a packet for lost, and when it did does not show
        found[seen.number + 1] = int(context.window)


class _WindowListeners:
    """This class makes a listener for each interface. It is a `ListenerFactory`."""

    heard: Heard = MappingProxyType({PdsEvent.FLIGHT: _note, PdsEvent.FLIGHT_INFERRED: _note})

    def __init__(self) -> None:
        self.found: dict[int, int] = {}

    def __call__(self, file: str, interface: str, number: int) -> "_WindowListener":
        return _WindowListener(self.found)


class _WindowListener:
    """This class is a listener that hears of windows, and nothing else. It is a `PacketListener`."""

    tables: Sequence[Bounded] = ()

    def __init__(self, found: dict[int, int]) -> None:
        self.hears = found

    def take(self, record: Record) -> None: ...

    def see(self, seen: ObservedPacket) -> None: ...

    def rest(self) -> None: ...

    def sweep(self, now: int, quiet: bool) -> None: ...

    def end(self) -> None: ...
