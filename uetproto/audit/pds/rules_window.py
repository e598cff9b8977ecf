# SPDX-License-Identifier: GPL-2.0-only
"""This module judges the windows of senders with NSCC: what is in flight against the window that `tracker_window`
recomputes."""

from uetproto.audit.pds.tracker_state import PdcDirection, PdsEvent
from uetproto.audit.pds.tracker_window import AuditedContext, is_beyond
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Severity, Verdict, Violation


def _in_flight(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    context: AuditedContext = state.window.context
    if context.lost_at is not None:
        return Inconclusive("its sender took a packet for lost, when it did does not show")
    if not is_beyond(context):
        return None
    window = f"twice {int(context.window)}" if context.inferred else f"{int(context.window)}"
    return Violation(
        f"at most {window} bytes in flight, the window, and a packet of {context.largest}", f"{context.in_flight} bytes"
    )


WINDOWS: tuple[Rule, ...] = (
    Rule(id="PDS-WINDOW-EXCEEDED", on=PdsEvent.FLIGHT, check=_in_flight, requires=Requires.ABSENCE,
         severity=Severity.WARNING, cite="UE 1.0.1 §3.6.13",
         says="With NSCC, what is in flight exceeds the window by a packet at most. The window is recomputed with the"
              " parameters of the sender."),
    Rule(id="PDS-WINDOW-INFERRED", on=PdsEvent.FLIGHT_INFERRED, check=_in_flight, requires=Requires.ABSENCE,
         severity=Severity.NOTE, cite=CHOICE,
         says="With NSCC, what is in flight exceeds twice the window by a packet at most. Rate and base RTT are"
              " inferred from the packets."),
)  # fmt: skip
