# SPDX-License-Identifier: GPL-2.0-only
"""This module registers the invariants of pds.md §18, and selects those that apply to a PDC."""

from enum import Enum
from typing import TypeAlias

from uetproto.check.registry import Check, Disruption, Kind, Registry
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import PDC_MODES, Mode, PdcClosed
from uetproto.engine.pds.messages import Control, Request


class PdsScope(Enum):
    """The scope of an invariant says when the invariant is checked, and with which arguments."""

    STEP = "a PDC after a step that touched it: shadow, full (a scan of everything)"
    PACKET = "a packet that leaves: shadow, packet, datagram, sent (None when it consumes no PSN)"
    DELIVERY = "a packet that reaches SES: shadow, psn, SES header, payload"
    OUTCOME = "what SES gets back for a packet: shadow, track, index, error, response"
    END = "a simulator in which nothing is left to do"
    PAIR = "two runs, or two states"


class Occasion(Enum):
    """An occasion is a further condition for the check of an invariant, besides the types of packet or event."""

    SOURCE_CHANGE = "STEP: a number of the source half changed"
    DESTINATION_CHANGE = "STEP: a number of the destination half changed"
    TIME_PASSED = "STEP: time passed"
    FIRST_TRANSMISSION = "PACKET: the first transmission of a request"
    RETRANSMISSION = "PACKET: the retransmission of a request"


def with_pdc(config: PdsConfig, mode: Mode) -> bool:
    """Return whether the mode is RUD or ROD, whatever the configuration."""
    return mode in PDC_MODES


PDS: Registry[PdsScope] = Registry("pds", with_pdc)
invariant, broken = PDS.invariant, PDS.broken

Packet: TypeAlias = Request | Control
"""Type of a packet that carries a PSN: a request or a control packet."""

_NUMBERS = range(10, 24)
"""Numbers of the invariants that are checked first: the others rely on consistent PSNs."""


class CheckPlan:
    """A check plan has the checks that apply to one configuration and mode. They are selected once, and not again at
    each step.

    The kinds of a `STEP` invariant are the types of arrived packets, or of events, after which it is checked. A
    `PACKET` invariant with the kind `PdcClosed` is also checked for packets that a closed PDC sends.
    """

    __slots__ = ("arrived", "closed", "copy", "delivery", "first", "leaves", "outcome", "source", "step")

    def __init__(self, config: PdsConfig, mode: Mode, disruptions: Disruption) -> None:
        found = PDS.holding(disruptions, config, mode)
        found.sort(key=lambda entry: (entry.number not in _NUMBERS, entry.number))

        def of(scope: PdsScope, *kinds: Kind) -> tuple[Check, ...]:
            return tuple(i.check for i in found if i.scope is scope and (not kinds or not {*kinds}.isdisjoint(i.kinds)))

        kinds = {kind for i in found for kind in i.kinds}
        self.source = of(PdsScope.STEP, Occasion.SOURCE_CHANGE)
        self.step = of(PdsScope.STEP, Occasion.SOURCE_CHANGE, Occasion.DESTINATION_CHANGE)
        self.first = of(PdsScope.PACKET, Request, Occasion.FIRST_TRANSMISSION)
        self.copy = of(PdsScope.PACKET, Request, Occasion.RETRANSMISSION)
        self.arrived = {kind: checks for kind in kinds if (checks := of(PdsScope.STEP, kind))}
        """Maps the type of an arrived packet, or of an event, to the checks that follow it."""
        self.closed = of(PdsScope.STEP, PdcClosed)
        self.leaves = {kind: checks for kind in kinds if (checks := of(PdsScope.PACKET, kind))}
        """Maps the type of a packet that is sent to the checks of that packet."""
        self.delivery = of(PdsScope.DELIVERY)
        self.outcome = of(PdsScope.OUTCOME)
