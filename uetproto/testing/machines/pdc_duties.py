# SPDX-License-Identifier: GPL-2.0-only
"""This module has what an implementation of PDS owes for each packet that reaches it, seen from the frames at its port.

These rules need to know which frames arrived intact and when, so that `uetproto audit` cannot have them. They leave to
the implementation what pds.md leaves to it, and are silent when a PDC closes, as late packets may be dropped then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.engine.contract import MILLISECOND, Mode
from uetproto.engine.pds.messages import Ack, Control, Message, Nack, Request, parse
from uetproto.engine.pds.nacks import FATAL_CODES, NACKS
from uetproto.errors import RemoteError
from uetproto.testing.machines.judge import Verdicts
from uetproto.testing.machines.world import Flying, WorldFailure
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode
from uetproto.wire.serial import diff32

PROMPT = MILLISECOND
"""Picoseconds within which an answer must leave. A source with the default RTO sends its packet again after this
time."""
_LOWER, _CRC = 42, 4
"""Bytes of Ethernet, IPv4 and UDP before PDS, and of the CRC32C behind the payload."""
_BEHIND = 100
"""A packet so many PSNs below CACK_PSN may be older than the window, and is then dropped."""
_M32 = 0xFFFFFFFF

UNANSWERED, CLEAR_TAKEN = "PDS-UNANSWERED", "PDS-CLEAR-TAKEN"
NACK_NT = "PDS-NACK-NT"
NACK_RETX, CLEAR_REQ = "PDS-NACK-RETX-EARLY", "PDS-CLEAR-REQ-EARLY"


@dataclass(slots=True)
class _Conversation:
    """What is known of a PDC of the peer, by the PDCID of the peer."""

    start: int | None = None
    """Start_PSN of the SYN packets of the peer."""
    acked: bool = False
    """Whether the implementation has sent an ACK, so that Start_PSN does not change any more."""
    cack: int | None = None
    """Highest CACK_PSN that the implementation has told."""
    arrived: dict[int, int | None] = field(default_factory=dict)
    """PSNs that have arrived, in whatever condition, each with the CLEAR_PSN of its first copy if it was intact."""
    last_arrival: int = -1
    closing: bool = False
    """Whether the PDC closes, has closed or has failed: late packets may be dropped."""
    cleared: tuple[int, int] | None = None
    """Time and ctl_payload of the last CLEAR_REQ of the implementation."""


@dataclass(slots=True)
class _Own:
    """What is known of a PSN that the implementation has sent."""

    number: int
    """Number of the frame of its last transmission."""
    rod: bool
    unsure: bool = False
    """Whether a NACK about an earlier transmission, or a copy, has come since, which may count or not."""
    refused_until: int = -1
    """Time before which it must not be sent again, because of a NACK."""


class Duties:
    """This class follows the frames of one run (`world.Watch`)."""

    def __init__(self, verdicts: Verdicts, knobs: Mapping[str, Any], timed: bool) -> None:
        """`knobs` are the settings that the implementation follows. `timed`: whether its times are exact."""
        self._verdicts, self._knobs, self._timed = verdicts, knobs, timed
        self.late = False
        """Whether SES answers requests later, with `responded`."""
        self._of: dict[int, _Conversation] = {}
        self._owed: dict[tuple[int, int], int] = {}
        """Time at which each packet of the peer that must be answered arrived, by PDCID and PSN."""
        self._waiting: dict[str, tuple[int, int]] = {}
        """PDCID and PSN of requests that wait for SES, by SES header and payload."""
        self._own: dict[tuple[int, int], _Own] = {}
        """What the implementation has sent and is not acknowledged, by its PDCID and PSN."""
        self._known: set[int] = set()
        """PDCIDs of the implementation for which the peer has sent an ACK, a request or a control packet."""

    # What arrives

    def arrives(self, number: int, frame: Flying, now: int) -> None:
        """Note a frame of the peer that reaches the implementation. `number` is that of the frame."""
        message = _parsed(frame.data) if frame.intact else None
        if message is None:
            self._arrives_spoilt(frame)
            return
        self._look_for_close(message, sent=False)
        match message:
            case Request():
                self._request(message, frame, now)
            case Control():
                self._control(message, frame, now)
            case Ack():
                self._ack(message, now)
            case Nack():
                self._nack(message, number, frame, now)

    def _arrives_spoilt(self, frame: Flying) -> None:
        message = _parsed(frame.before) if frame.before is not None else None
        if isinstance(message, Request | Control):
            self._conversation(message).arrived.setdefault(message.psn, None)

    def _conversation(self, packet: Request | Control) -> _Conversation:
        found = self._of.setdefault(packet.spdcid, _Conversation())
        if packet.syn and packet.start_psn != found.start and not found.acked:
            found = self._of[packet.spdcid] = _Conversation(packet.start_psn)
        return found

    def _request(self, request: Request, frame: Flying, now: int) -> None:
        of, psn = self._conversation(request), request.psn
        self._known.add(request.dpdcid)
        of.last_arrival = now
        if request.syn and request.start_psn != of.start:
            return  # a late packet of another Start_PSN (secure start)
        first = psn not in of.arrived
        of.arrived.setdefault(psn, request.clear_psn)
        if self.late:
            if first and request.mode is Mode.RUD and (request.ar or request.retx):
                data = frame.data[_LOWER + request.size : -_CRC].hex()
                self._waiting.setdefault(data, (request.spdcid, psn))
        elif (request.ar and first) or request.retx:
            self._owe(of, request, request.mode is Mode.ROD, frame, now)

    def _control(self, control: Control, frame: Flying, now: int) -> None:
        of = self._conversation(control)
        of.last_arrival = now
        self._known.add(control.dpdcid)
        if control.ctl_type in (CtlType.NOOP, CtlType.NEGOTIATION):
            first = control.psn not in of.arrived
            of.arrived.setdefault(control.psn, None)
            if (control.start_psn == of.start if control.syn else True) and (first or control.retx):
                self._owe(of, control, bool(control.isrod), frame, now)

    def _owe(self, of: _Conversation, packet: Request | Control, rod: bool, frame: Flying, now: int) -> None:
        """Note that a packet must be answered, unless it may be dropped or buffered."""
        psn = packet.psn
        below = (psn - 1) & _M32
        in_order = psn == of.start or (of.cack is not None and diff32(of.cack, below) >= 0)
        old = of.cack is not None and diff32(of.cack, psn) >= (_BEHIND if packet.retx else 0)
        if not frame.copied and not of.closing and not old and (in_order or not rod):
            self._verdicts.judged[UNANSWERED] += 1
            self._owed.setdefault((packet.spdcid, psn), now)

    def _ack(self, ack: Ack, now: int) -> None:
        self._known.add(ack.dpdcid)
        for pdcid, psn in [key for key in self._own if key[0] == ack.dpdcid]:
            told = 0 <= (psn - ack.sack_base) & _M32 < 64 and ack.sack_bitmap >> ((psn - ack.sack_base) & _M32) & 1
            answered = psn == ack.ack_psn or diff32(ack.cack_psn, psn) >= 0
            if answered or (told and not self._own[pdcid, psn].rod):  # on ROD its source may still go back to it
                del self._own[pdcid, psn]

    def _nack(self, nack: Nack, number: int, frame: Flying, now: int) -> None:
        """Note until when a packet that the peer refuses must not be sent again (pds.md §11.2). A NACK about an earlier
        transmission does not count, nor one that the implementation ignores."""
        own, row = self._own.get((nack.dpdcid, nack.psn)), NACKS.get(nack.code)
        if own is None or row is None or not row.delayed:
            return
        own.unsure = own.unsure or frame.copied or number < own.number
        if own.unsure:
            return
        if own.rod and any(pdcid == nack.dpdcid and diff32(psn, nack.psn) < 0 for pdcid, psn in self._own):
            own.unsure = True  # going back to a lower PSN sends this one again; or its time runs from now on
            return
        if (not row.opening or nack.dpdcid not in self._known) and own.refused_until < now:
            own.refused_until = now + self._knobs.get("nack_retx_time", 0)

    def responded(self, data: str, now: int) -> None:
        """Note that SES answers a request, whose SES header and payload are `data`, so that its ACK must leave."""
        key = self._waiting.pop(data, None)
        if key is not None and not self._of[key[0]].closing:
            self._verdicts.judged[UNANSWERED] += 1
            self._owed.setdefault(key, now)

    # What leaves

    def leaves(self, number: int, data: bytes, now: int) -> None:
        """Judge a frame of the implementation. Raises `WorldFailure`."""
        message = _parsed(data)
        self._look_for_close(message, sent=True)
        match message:
            case Ack():
                self._leaving_ack(message)
            case Nack():
                self._leaving_nack(message)
            case Request():
                self._leaving_request(message, number, now)
            case Control() if message.ctl_type == CtlType.CLEAR_REQ:
                self._leaving_clear_req(message, now)

    def _leaving_ack(self, ack: Ack) -> None:
        of = self._of.setdefault(ack.dpdcid, _Conversation())
        of.acked = True
        if of.cack is None or diff32(ack.cack_psn, of.cack) > 0:
            of.cack = ack.cack_psn
        self._forgive(lambda key: key[0] == ack.dpdcid and (key[1] == ack.ack_psn or diff32(ack.cack_psn, key[1]) >= 0))
        clear = of.arrived.get(ack.ack_psn) if ack.probe_opaque is None else None
        if clear is not None:
            self._verdicts.judged[CLEAR_TAKEN] += 1
            if diff32(ack.cack_psn, clear) < 0:
                raise WorldFailure(
                    CLEAR_TAKEN, f"the ACK of PSN {ack.ack_psn} has CACK_PSN {ack.cack_psn}, although the request had"
                    f" CLEAR_PSN {clear} (UE 1.0.1 §3.5.11.4.4)"
                )  # fmt: skip

    def _leaving_nack(self, nack: Nack) -> None:
        key = nack.dpdcid, nack.psn
        self._verdicts.judged[NACK_NT] += 1
        if nack.rudi and (nack.dpdcid or nack.spdcid):
            raise WorldFailure(
                NACK_NT, f"the NACK has nt 1, which is for RUDI, and dpdcid {nack.dpdcid} (UE 1.0.1 §3.5.10.6)"
            )
        if nack.code != NackCode.RCVD_SES_PROCG or not self.late:
            self._owed.pop(key, None)
        if nack.code != NackCode.RCVD_SES_PROCG and self.late:  # it was not delivered
            self._waiting = {data: waits for data, waits in self._waiting.items() if waits != key}
            self._of.setdefault(nack.dpdcid, _Conversation()).arrived.pop(nack.psn, None)

    def _leaving_request(self, request: Request, number: int, now: int) -> None:
        own = self._own.setdefault((request.spdcid, request.psn), _Own(number, request.mode is Mode.ROD))
        if request.retx and "nack_retx_time" in self._knobs and self._timed:
            self._verdicts.judged[NACK_RETX] += 1
            if now < own.refused_until:
                raise WorldFailure(
                    NACK_RETX, f"PSN {request.psn} is sent again {(own.refused_until - now) / 1e6:g} µs before"
                    " NACK_Retx_Time is over (UE 1.0.1 §3.5.12.7)"
                )  # fmt: skip
        own.number, own.unsure, own.refused_until = number, False, -1

    def _leaving_clear_req(self, control: Control, now: int) -> None:
        of = self._of.setdefault(control.dpdcid, _Conversation())
        if of.cleared is not None and "pds_clear_time" in self._knobs and self._timed:
            self._verdicts.judged[CLEAR_REQ] += 1
            at, psn = of.cleared
            if psn == control.payload and of.last_arrival < at and now - at < self._knobs["pds_clear_time"]:
                raise WorldFailure(
                    CLEAR_REQ, f"CLEAR_REQ for PSN {psn} again after {(now - at) / 1e6:g} µs, less than"
                    " PDS_Clear_Time, although nothing arrived meanwhile (UE 1.0.1 §3.5.16.3)"
                )  # fmt: skip
        of.cleared = now, control.payload

    def _look_for_close(self, message: Message | None, sent: bool) -> None:
        """Expect no answers on a PDC any more that closes or fails. `sent`: the implementation sent the packet."""
        if isinstance(message, Control):
            closes = message.ctl_type in (CtlType.CLOSE_CMD, CtlType.CLOSE_REQ)
        elif isinstance(message, Ack):
            closes = message.req == AckReq.CLOSE
        else:
            closes = isinstance(message, Nack) and message.code in FATAL_CODES
        if closes and isinstance(message, Control | Ack | Nack):
            pdcid = message.dpdcid if sent else message.spdcid
            self._of.setdefault(pdcid, _Conversation()).closing = True
            self._forgive(lambda key: key[0] == pdcid)

    def _forgive(self, which: Callable[[tuple[int, int]], bool]) -> None:
        for key in [key for key in self._owed if which(key)]:
            del self._owed[key]

    def end(self) -> None:
        """Expect no answers any more."""
        self._forgive(lambda key: True)
        self._waiting.clear()

    # Time

    def check(self, now: int) -> None:
        """Raise `WorldFailure` for a packet whose answer is late."""
        for (pdcid, psn), at in self._owed.items():
            if now - at > PROMPT and self._timed:
                raise WorldFailure(
                    UNANSWERED, f"no ACK or NACK for PSN {psn} of PDC {pdcid} of the peer, which reached the"
                    f" implementation {(now - at) / 1e6:g} µs ago (UE 1.0.1 §3.5.12.2)"
                )  # fmt: skip


def _parsed(data: bytes) -> Message | None:
    """Return the PDS header of a frame, or None for what is not decoded."""
    try:
        return parse(data[_LOWER:-_CRC])
    except RemoteError:
        return None
