# SPDX-License-Identifier: GPL-2.0-only
"""This module has the model of packet delivery: what each end was told to send, what was delivered and completed.

RUD and ROD deliver each packet exactly once, ROD in order; RUDI at least once; UUD promises nothing (pds.md §3, §18).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.errors import shown
from uetproto.testing.adapters.adapter import AdapterFault
from uetproto.testing.machines.judge import Verdicts
from uetproto.testing.machines.world import IMPLEMENTATION, PEER, WorldFailure
from uetproto.wire.serial import diff32

NAMES = ("the implementation", "the peer")

COMPLETED_ONCE, COMPLETED_EARLY, FAILED = "PDS-COMPLETED-ONCE", "PDS-COMPLETED-EARLY", "PDS-FAILED"
DELIVERED_ONCE, DELIVERED_WRONG, ORDER = "PDS-DELIVERED-ONCE", "PDS-DELIVERED-WRONG", "PDS-ROD-DELIVERY-ORDER"
COMPLETED, DELIVERED = "PDS-COMPLETED", "PDS-DELIVERED"
CLOSED = "PDC-CLOSED"
WINDOW, CACK, CLEAR = "PDC-WINDOW", "PDC-CACK-FORWARD", "PDC-CLEAR-FORWARD"

STATE: dict[str, tuple[str, ...]] = {
    WINDOW: ("pdcid", "start_psn", "una", "next", "window"),
    CACK: ("pdcid", "start_psn", "cack_psn"),
    CLEAR: ("pdcid", "start_psn", "clear_psn"),
}
"""The invariants about observed PDCs, each with the keys that it needs."""
NUMBERS = tuple(dict.fromkeys(key for keys in STATE.values() for key in keys))
"""The keys of observed PDCs that are numbers."""


@dataclass(slots=True)
class SentMessage:
    """A message that an end was told to send."""

    number: int
    mode: str
    packets: tuple[str, ...]
    delivered: list[int] = field(default_factory=list)
    """Number of deliveries of each packet, by index."""
    ended: bool | None = None
    """Whether the message succeeded; None before its completion."""

    @property
    def missing(self) -> int:
        """Return the number of packets that were never delivered."""
        return self.delivered.count(0)


class PdcModel:
    """This class compares the events of both ends, and what is observed of the implementation, with the protocol."""

    def __init__(self, verdicts: Verdicts, observable: bool, losses: int) -> None:
        """`observable` and `losses` are capabilities of the implementation."""
        self._verdicts, self._observable, self._losses = verdicts, observable, losses
        self.sent: tuple[dict[int, SentMessage], dict[int, SentMessage]] = ({}, {})
        """The messages of each end by id."""
        self._of: dict[str, tuple[int, SentMessage, int]] = {}
        """Maps each packet to its end, its message and its index."""
        self._turn: tuple[list[str], list[str]] = ([], [])
        """The packets of each end on ROD that are still to be delivered, in order."""
        self.in_order = True
        """Whether all packets on ROD use one PDC, so that they are delivered in order. It is False after a close."""
        self.unanswered: tuple[list[str], list[str]] = ([], [])
        """The packets that each end has delivered and that its SES has not answered yet."""
        self.closing: tuple[set[int], set[int]] = (set(), set())
        """The PDCIDs of each end that were to be closed."""
        self._last: list[Any] = []
        self._seen: dict[Any, Mapping[str, Any]] = {}
        """The PDCs of the implementation as they were observed last."""

    def submit(self, node: int, message: SentMessage) -> None:
        """Note that an end is told to send a message."""
        message.delivered = [0] * len(message.packets)
        self.sent[node][message.number] = message
        for index, packet in enumerate(message.packets):
            self._of[packet] = node, message, index
        if message.mode == "rod":
            self._turn[node].extend(message.packets)

    def withdraw(self, node: int, message: SentMessage) -> None:
        """Note that an end refused the message that was submitted last."""
        del self.sent[node][message.number]
        for packet in message.packets:
            del self._of[packet]
        if message.mode == "rod":
            del self._turn[node][-len(message.packets) :]

    # Events

    def to_close(self, node: int, initiator: bool, state: Mapping[str, Any]) -> set[int]:
        """Return the PDCIDs that an end has in one role, without those whose start is pending; `state` is what can be
        observed of the peer."""
        role = "initiator" if initiator else "target"
        pdcs = self._last if node == IMPLEMENTATION else state.get("pdcs", ())
        open_now = [pdc for pdc in pdcs if pdc.get("role") == role and pdc.get("state") != "pending"]
        return {pdc["pdcid"] for pdc in open_now if "pdcid" in pdc}

    def on_event(
        self, node: int, event: Mapping[str, Any], disturbed: int, late: bool = False, hasty: bool = False
    ) -> None:
        """Compare an event of an end with the model. Raises `WorldFailure`.

        `disturbed` is the number of frames that were lost, trimmed or damaged so far; `late`: SES answers later;
        `hasty`: PDCs may end in error, so that messages fail.
        """
        match event.get("event"):
            case "delivery":
                self._on_delivery(node, event.get("data"), late, hasty)
            case "completion":
                self._on_completion(node, event, disturbed, hasty)

    def _on_delivery(self, node: int, data: Any, late: bool, hasty: bool) -> None:
        sender, message, index = self._of.get(data, (node, None, 0)) if isinstance(data, str) else (node, None, 0)
        if message is None or sender == node:
            raise WorldFailure(
                DELIVERED_WRONG, f"{NAMES[node]} delivered {shown(data)}, which {NAMES[1 - node]} did not send"
            )
        message.delivered[index] += 1
        if late and message.mode in ("rud", "rod"):
            self.unanswered[node].append(data)
        what = f"packet {index} of message {message.number} ({message.mode}) of {NAMES[sender]}"
        if message.mode in ("rud", "rod"):
            self._verdicts.judged[DELIVERED_ONCE] += 1
            if message.delivered[index] > 1 and not hasty:  # known limit of pds.md §18: a SYN packet outlives MSL
                raise WorldFailure(DELIVERED_ONCE, f"{what} was delivered {message.delivered[index]} times")
        if message.mode == "rod" and self.in_order:
            self._verdicts.judged[ORDER] += 1
            turn = self._turn[sender]
            if turn[0] != data:
                _, due, at = self._of[turn[0]]
                raise WorldFailure(ORDER, f"{what} was delivered before packet {at} of message {due.number}")
            del turn[0]

    def _on_completion(self, node: int, event: Mapping[str, Any], disturbed: int, hasty: bool) -> None:
        number = event.get("id")
        message = self.sent[node].get(number) if isinstance(number, int) else None
        self._verdicts.judged[COMPLETED_ONCE] += 1
        if message is None or message.ended is not None:
            why = "was never submitted" if message is None else "had completed before"
            raise WorldFailure(COMPLETED_ONCE, f"message {shown(number)} of {NAMES[node]} completed, but {why}")
        message.ended = event.get("ok") is True
        if not message.ended:
            self.in_order = False
            self._verdicts.judged[FAILED] += 1
            if disturbed <= self._losses and not hasty:
                raise WorldFailure(
                    FAILED, f"message {number} of {NAMES[node]} failed ({shown(event.get('reason'))}); only"
                    f" {disturbed} frames were lost"
                )  # fmt: skip
        elif message.mode == "uud":
            return
        elif node == PEER and not self._observable:
            self._verdicts.skip(COMPLETED_EARLY, "observe gives no deliveries")
        else:
            self._verdicts.judged[COMPLETED_EARLY] += 1
            if message.missing:
                raise WorldFailure(
                    COMPLETED_EARLY, f"message {number} of {NAMES[node]} completed; {message.missing} of its packets"
                    " were not delivered"
                )  # fmt: skip
            if not {*message.packets}.isdisjoint(self.unanswered[1 - node]):
                raise WorldFailure(
                    COMPLETED_EARLY, f"message {number} of {NAMES[node]} completed; SES of {NAMES[1 - node]} has not"
                    " answered all of its packets"
                )  # fmt: skip

    # State

    def on_state(self, state: Mapping[str, Any] | None) -> None:
        """Compare the PDCs of the implementation with those observed before. Raises `WorldFailure`, and `AdapterFault`
        for values of a wrong type."""
        pdcs = None if state is None else state.get("pdcs")
        if not isinstance(pdcs, list):
            for name in STATE:
                self._verdicts.skip(name, "observe gives no PDCs")
            return
        if pdcs == self._last:
            return
        self._last = pdcs
        now = {}
        for pdc in pdcs:
            _check_types(pdc)
            before = self._seen.get(pdc.get("pdcid"), {})
            for name, keys in STATE.items():
                missing = [key for key in keys if type(pdc.get(key)) is not int]
                if missing:
                    self._verdicts.skip(name, f"observe gives no {missing[0]} of a PDC")
                    continue
                self._verdicts.judged[name] += 1
                _check_state(name, pdc, before if before.get("start_psn") == pdc.get("start_psn") else {})
            now[pdc.get("pdcid")] = pdc
        self._seen = now

    # The end

    def _still_open(self, state: Mapping[str, Any]) -> tuple[set[int], set[int]]:
        """Return the PDCIDs of each end that were to be closed and are still open; `state` is that of the peer."""
        peers = {pdc["pdcid"] for pdc in state.get("pdcs", ())}
        return self.closing[IMPLEMENTATION] & self._seen.keys(), self.closing[PEER] & peers

    def is_done(self, state: Mapping[str, Any]) -> bool:
        """Return whether all messages have completed, and no PDC is left that was to be closed. Messages whose
        completion cannot be observed do not count. `state` is what can be observed of the peer."""
        ends = (IMPLEMENTATION, PEER) if self._observable else (PEER,)
        done = all(message.ended is not None for node in ends for message in self.sent[node].values())
        return done and not any(self._still_open(state))

    def end(self, state: Mapping[str, Any]) -> None:
        """Check at the end of a run that the messages completed and were delivered, and that PDCs closed. Raises
        `WorldFailure`.

        Before the call, the network has delivered all frames. `state` is what can be observed of the peer.
        """
        for node, messages in enumerate(self.sent):
            for message in messages.values():
                self._end_of(node, message)
        for node, pdcids in enumerate(self._still_open(state)):
            self._verdicts.judged[CLOSED] += len(self.closing[node])
            for pdcid in pdcids:
                raise WorldFailure(
                    CLOSED, f"PDC {pdcid:#x} of {NAMES[node]} is still open, although {NAMES[node]} was told to close"
                    " it, and the network delivers all frames"
                )  # fmt: skip

    def _end_of(self, node: int, message: SentMessage) -> None:
        what = f"message {message.number} ({message.mode}) of {NAMES[node]}"
        if node == IMPLEMENTATION and not self._observable:
            self._verdicts.skip(COMPLETED, "observe gives no completions")
        else:
            self._verdicts.judged[COMPLETED] += 1
            if message.ended is None:
                raise WorldFailure(COMPLETED, f"{what} never completed, although the network delivers all frames")
        if message.mode == "uud" or message.ended is False:
            return
        if node == PEER and not self._observable:
            self._verdicts.skip(DELIVERED, "observe gives no deliveries")
            return
        self._verdicts.judged[DELIVERED] += 1
        if message.missing:
            raise WorldFailure(DELIVERED, f"{message.missing} packets of {what} were never delivered")


def _check_types(pdc: object) -> None:
    """Raise `AdapterFault` for an observed PDC that is no mapping, and for a number that is none."""
    if not isinstance(pdc, Mapping):
        raise AdapterFault("adapter-garbage", f"observe: state: pdcs: {shown(pdc)} is not a mapping")
    for key in NUMBERS:
        if key in pdc and type(pdc[key]) is not int:
            raise AdapterFault(
                "adapter-garbage", f"observe: state: {key} of a PDC is {shown(pdc[key])}, and not a whole number"
            )


def _check_state(name: str, pdc: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Check one invariant of an observed PDC. `before` is the same PDC as it was observed last, or empty."""
    pdcid = pdc["pdcid"]
    if name == WINDOW:
        ahead, legal = diff32(pdc["next"], pdc["una"]), max(pdc["window"], before.get("window", 0))
        grows = pdc["next"] != before.get("next", pdc["una"])  # a window that became smaller recalls no packet
        if ahead < 0 or (grows and ahead > legal):
            raise WorldFailure(name, f"PDC {pdcid:#x}: {ahead} PSNs are outstanding, {legal} are legal")
        return
    key = "cack_psn" if name == CACK else "clear_psn"
    if before and diff32(pdc[key], before[key]) < 0:
        raise WorldFailure(name, f"PDC {pdcid:#x}: {key} went back from {before[key]:#x} to {pdc[key]:#x}")
