# SPDX-License-Identifier: GPL-2.0-only
"""This module follows what senders with NSCC have in flight, and recomputes their windows (cms.md §3).

The window is that of the model that the fuzzer has, too (`check.cc.model`), with the parameters of the sender: those
that the caller or the capture states, or inferred ones. When a sender takes a packet for lost does not show: then its
window is not judged until it must be fully open again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from operator import attrgetter
from typing import Any, NamedTuple

from uetproto.audit.judge import Tell
from uetproto.audit.pds.tracker_state import M32, PdcDirection, PdsEvent
from uetproto.audit.reader.address import IPV4, IPV6
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.contract import SECOND, AckReport, Trim
from uetproto.errors import LocalError, argument, similar
from uetproto.knobs import RATE, TIME, KeyType, keys_of
from uetproto.wire.capture.base import CaptureInterface
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.serial import diff32

NOMINAL = 40
"""Number of bytes that the nominal size of a packet has beyond its transport bytes (cms.md §1)."""
QUANTUM = 256
"""Bytes of a unit of rcvd_bytes."""
MOST = 4_096
"""Greatest number of contexts that are followed at the same time."""
MOST_FLYING = 1_000_000
"""Greatest number of packets in flight that are kept, of all contexts together."""
SLACKS = (0, -1_000, 1_000)
"""Times in picoseconds that are added to those between packets, as captures round times to nanoseconds. The window may
be any of those that follow."""
NEAR = 8
"""A round-trip time below this part of the base RTT shows that the packets were not captured at their sender."""
READY = 2
"""Number of full packets that may leave after an ACK or NACK had arrived and before the sender could heed it."""
LONG = 1_000
"""Least size in bytes of a packet whose distance to the next one shows the rate of the link."""
_PS = 1_000
_SPARE = 64
_SERVICE_UNIT, _UNKNOWN_SERVICE = 128_000, 0xFFFF
_M24, _HALF24 = 0xFFFFFF, 1 << 23
_M64 = (1 << 64) - 1
_TRIMMED = {NackCode.TRIMMED: Trim.TRIMMED, NackCode.TRIMMED_LASTHOP: Trim.LAST_HOP}


def _bytes(value: Any) -> int:
    if type(value) is not int or not 1 <= value < 1 << 40:
        raise ValueError(value)
    return value


_ALL = keys_of(CcConfig)
KEYS: dict[str, KeyType] = {
    "rate": _ALL["rate"], "base_rtt": _ALL["base_rtt"],
    "max_wnd": KeyType(_bytes, "bytes, from 1 on").says("MaxWnd; by default 1.5 times rate and base RTT."),
    **{name: _ALL[name] for name in (
        "mtu", "mss", "algorithm", "form", "trimming", "quick_adapt", "base_rtt_probe", "probe_allowance",
    )},
}  # fmt: skip
"""Parameters of a sender with NSCC, as `--cc` and the comments of captures state them."""
NEEDED = ("rate", "base_rtt")
STATED = "cc "
"""Beginning of the comment of an interface that states them."""
_AT, _TO = f"{STATED}at=", "to="
"""Beginnings of what comments state of one end."""
_WORDS = {"true": True, "false": False, "on": True, "off": False}


class WindowParameters(NamedTuple):
    """This record has the parameters that the window of a sender depends on."""

    config: CcConfig
    max_wnd: int


def parameters_of(text: str) -> WindowParameters:
    """Return the parameters in a text such as "rate=100 Gb/s,base_rtt=12 us". Raises `LocalError` for a text
    that has unknown, illegal or too few parameters."""
    values: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, raw = (one.strip() for one in part.partition("="))
        if name not in KEYS or not equals:
            raise LocalError(
                argument("cc"), f"{part.strip()!r} is not legal{similar(name, KEYS)}",
                f"{', '.join(KEYS)}, as in rate=100 Gb/s", id="unknown-key"
            )  # fmt: skip
        key = KEYS[name]
        value: Any = _WORDS.get(raw, raw)
        if raw.isascii() and raw.isdecimal() and key.unit not in (RATE, TIME):
            value = int(raw[:20])
        try:
            values[name] = key.check(value)
        except ValueError:
            raise LocalError(argument("cc", name), f"{raw!r} is not legal", key.legal, id="wrong-format") from None
    missing = [name for name in NEEDED if name not in values]
    if missing:
        raise LocalError(
            argument("cc"), f"{', '.join(missing)} is missing", "rate and base_rtt at least", id="missing-argument"
        )
    max_wnd = values.pop("max_wnd", None)
    try:
        config = CcConfig(**values)
    except LocalError as error:
        raise LocalError(argument("cc", error.name), error.value, error.legal, id=error.id) from None
    return WindowParameters(config, config.max_wnd if max_wnd is None else max_wnd)


def check_given(cc: str | None, complete: bool) -> None:
    """Raise `LocalError` for given parameters that are not legal, or have no effect."""
    if cc is not None:
        parameters_of(cc)
        if not complete:
            raise LocalError(
                argument("cc", cc), "has no effect without every packet", f"with {argument('complete', True)}",
                id="no-effect"
            )  # fmt: skip


class StatedWindows:
    """This class has what the comments of interfaces say of the end where a live link was captured: its address, and
    the parameters of its windows towards each peer. Such a comment is "cc at=10.0.0.1,to=10.0.0.2,rate=…"."""

    def __init__(self, at: int, interfaces: Sequence[CaptureInterface]) -> None:
        self._at, self._interfaces = at, interfaces

    @classmethod
    def of(cls, options: Options) -> "StatedWindows | None":
        """Return what the capture says, or None if it does not say where it was taken, or if the caller knows it
        better."""
        found = _statement(options.stated_cc)
        return None if options.cc is not None or found is None else cls(found[0], options.interfaces)

    def towards(self, sender: int, receiver: int) -> tuple[int, WindowParameters] | None:
        """Return the last parameters of a sender towards a receiver, with their number, or None if they are not
        stated, as those of any other end."""
        if sender != self._at:
            return None
        for number in range(len(self._interfaces) - 1, -1, -1):
            found = _statement(self._interfaces[number].comment or "")
            if found is not None and found[:2] == (sender, receiver) and found[2] is not None:
                return number, found[2]
        return None


@lru_cache(64)
def _statement(comment: str) -> tuple[int, int | None, WindowParameters | None] | None:
    """Return the address where packets were captured, that of a peer, and the parameters of windows towards it, as a
    comment states them. Peer and parameters are None if there are none; None: the comment states no address."""
    at, _, more = comment.partition(",")
    to, _, rest = more.partition(",")
    try:
        here = _number_of(at.removeprefix(_AT))
        if not at.startswith(_AT) or not to.startswith(_TO):
            return (here, None, None) if at.startswith(_AT) else None
        return here, _number_of(to.removeprefix(_TO)), parameters_of(rest)
    except ValueError:
        return None


def _number_of(text: str) -> int:
    address = ip_address(text)
    return int(address) | (IPV4 if address.version == 4 else IPV6)


class RecomputedWindow:
    """This class has the window that follows from the parameters and the packets, once for each of `SLACKS`."""

    __slots__ = ("_before", "_heeded", "_models", "base_rtt")

    def __init__(self, parameters: WindowParameters) -> None:
        config = parameters.config
        self._heeded = READY * 8 * SECOND * config.mtu // config.rate
        """Picoseconds after which the sender heeds an answer."""
        self._before: deque[tuple[int, float]] = deque()
        """Times of the last answers and the windows before them, which fall."""
        from uetproto.check.cc.model import NsccModel  # captures with NSCC alone need it

        self._models = tuple(NsccModel(config, slack) for slack in SLACKS)
        for one in self._models:
            one.cwnd = one.max_wnd = parameters.max_wnd
        self.base_rtt = config.base_rtt

    def largest(self, now: int) -> float:
        """Return the largest window that a packet may have been sent by that leaves now."""
        before = self._before
        while before and before[0][0] < now - self._heeded:
            before.popleft()
        return max(self._present, before[0][1]) if before else self._present

    @property
    def _present(self) -> float:
        return max(one.cwnd for one in self._models)

    @property
    def is_open(self) -> bool:
        """Return whether the window is as large as it becomes."""
        return any(one.cwnd >= one.max_wnd for one in self._models)

    @property
    def inflight(self) -> int:
        """Return the bytes in flight, by rcvd_bytes."""
        return self._models[0].inflight

    def add(self, size: int) -> None:
        """Note bytes that are in flight now, or with a negative `size`, that no longer are."""
        for one in self._models:
            one.inflight += size

    def ack(self, report: AckReport, now: int) -> None:
        self._note(now)
        for one in self._models:
            one.ack(report if report.rtt is None else report._replace(rtt=report.rtt + one.slack), now)

    def nack(self, size: int, trim: Trim, rtt: int | None, now: int) -> None:
        self._note(now)
        for one in self._models:
            one.nack(size, trim, None if rtt is None else rtt + one.slack, now)

    def _note(self, now: int) -> None:
        """Note the window before an answer."""
        before, window = self._before, self._present
        while before and before[-1][1] <= window:
            before.pop()
        before.append((now, window))


@dataclass(slots=True, eq=False)
class SentPsn:
    """This record has what is known of a request that no ACK has covered yet."""

    size: int
    """Nominal size in bytes."""
    time: int
    """Time of the last transmission in picoseconds."""
    order: int
    """Number of the last transmission, counted over all requests."""
    sends: int = 1
    flies: bool = True
    """Whether the packet is in flight: neither reported as received nor refused."""
    landed: bool = False
    """Whether a SACK bitmap has reported the packet as received."""
    overtaken: bool = False
    """Whether a packet that was sent later has arrived, so that the sender may have taken this one for lost."""


@dataclass(slots=True, eq=False)
class AuditedContext:
    """This class holds what was seen of one congestion control context: all PDCs of a mode from one host to another."""

    model: "RecomputedWindow | None"
    """Window of the sender; None as long as its parameters are not known."""
    inferred: bool
    """Whether the parameters are inferred from packets."""
    flying: int = 0
    """Nominal bytes of the packets in flight, by the ACKs' CACK_PSNs and SACK bitmaps."""
    overtaken: int = 0
    """Nominal bytes of the packets in flight that were overtaken."""
    windows: list["DirectionWindow"] = field(default_factory=list)
    is_nscc: bool = False
    """Whether the capture, or an ACK with the state of NSCC, shows that the sender has NSCC."""
    is_near: bool | None = None
    """Whether the packets were captured at their sender; None: no round-trip time has shown it yet."""
    stated: int | None = None
    """Number of the interface whose comment states the parameters of the sender, at which the packets were captured.
    None: no comment states them."""
    lost_at: int | None = None
    """Number of the last transmission when the sender took a packet for lost, whose window is not known since then."""
    largest: int = 0
    """Nominal size of the largest request."""
    in_flight: int = 0
    """Bytes in flight at the event, and `window`, the window then."""
    window: float = 0
    early: tuple[PdcDirection, ObservedPacket, int, float] | None = None
    """First request beyond the window before it was known where the packets were captured."""


@dataclass(slots=True, eq=False)
class DirectionWindow:
    """This class holds what was seen of one direction of a PDC, for its context."""

    context: AuditedContext
    sent: dict[int, SentPsn] = field(default_factory=dict)
    order: deque[tuple[int, SentPsn]] = field(default_factory=deque)
    """Transmissions that none has overtaken, with their numbers."""
    low: int = 0
    """PSN from which on all requests may be in `sent`."""
    total: int = 0
    """Nominal bytes of all first transmissions."""
    rcvd: int | None = None
    """Newest rcvd_bytes; None: there was none."""
    balance: int = 0
    """Nominal bytes in flight, by rcvd_bytes."""


class Windows:
    """This class follows the contexts of senders with NSCC. It needs a capture with every packet, in order."""

    __slots__ = ("_contexts", "_given", "_order", "_packets", "_previous", "_rates", "_stated", "_tell")

    def __init__(
        self, tell: Mapping[PdsEvent, Tell], given: WindowParameters | None, stated: StatedWindows | None = None
    ) -> None:
        """`given` are the parameters of all senders, and `stated` those of the end where the capture was taken. With
        neither they are inferred."""
        self._tell = tell
        self._given = given
        self._stated = stated
        self._contexts: dict[tuple[int, int, bool], AuditedContext] = {}
        self._order = self._packets = 0
        self._previous: dict[int, tuple[int, int]] = {}
        """Time and size of the last long request of a sender."""
        self._rates: dict[int, int] = {}
        """Greatest rate in bits a second at which long requests of a sender followed each other."""

    # What a sender does

    def request(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Note a request, and judge what is in flight with it."""
        window = direction.window
        if window is None:
            if direction.has_no_window or seen.size < 0:
                return
            window = direction.window = self._open(direction, seen)
        size = (
            NOMINAL
            + seen.outer
            + seen.size
            + sum(FORMS[one.form].size for one in (seen.head, seen.ses, *seen.more) if one)
        )
        context, now, psn = window.context, seen.time_ns * _PS, seen.head.psn
        self._order += 1
        if self._given is None:
            self._note_rate(seen.src, now, size)
        record = window.sent.get(psn)
        if record is None:
            if diff32(psn, window.low) < 0:
                return  # a copy of what is acknowledged
            if self._packets >= MOST_FLYING:
                self._give_up()
                return
            self._packets += 1
            record = window.sent[psn] = SentPsn(size, now, self._order)
            window.total += size
        else:
            if record.landed:
                return
            if record.flies:
                context.lost_at = self._order
                self._land(window, record)
            record.time, record.order, record.sends, record.flies = now, self._order, record.sends + 1, True
            size = record.size
        window.order.append((self._order, record))
        if len(window.order) > 2 * len(window.sent) + _SPARE:
            live = sorted(window.sent.values(), key=attrgetter("order"))
            window.order = deque((one.order, one) for one in live if one.flies and not one.overtaken)
        context.largest = max(context.largest, size)
        context.flying += size
        window.balance += size
        if context.model is not None:
            context.model.add(size)
        if context.is_near is not False and context.model is not None:
            self._judge(direction, window, seen)

    def _open(self, direction: PdcDirection, seen: ObservedPacket) -> DirectionWindow:
        key = direction.sender, direction.other.sender, bool(direction.pdc.rod)
        context = self._contexts.get(key)
        stated = None if self._stated is None else self._stated.towards(*key[:2])
        if context is None or (stated is not None and stated[0] != context.stated):
            if len(self._contexts) >= MOST:
                for window in self._contexts.pop(next(iter(self._contexts))).windows:
                    self._packets -= len(window.sent)
                    window.sent.clear()
            given = self._given if stated is None else stated[1]
            model = None if given is None else RecomputedWindow(given)
            context = self._contexts[key] = AuditedContext(model, given is None)
            if self._stated is not None:
                context.is_near = context.is_nscc = stated is not None
                context.stated = None if stated is None else stated[0]
        window = DirectionWindow(context, low=seen.head.psn)
        context.windows.append(window)
        return window

    def _judge(self, direction: PdcDirection, window: DirectionWindow, seen: ObservedPacket) -> None:
        context = window.context
        model = context.model
        assert model is not None
        context.in_flight, context.window = (
            min(context.flying, model.inflight) - context.overtaken,
            model.largest(seen.time_ns * _PS),
        )
        if context.is_near and context.is_nscc:
            self._tell[PdsEvent.FLIGHT_INFERRED if context.inferred else PdsEvent.FLIGHT](direction, seen)
        elif context.early is None and is_beyond(context):
            context.early = direction, seen, context.in_flight, context.window

    def _note_rate(self, sender: int, now: int, size: int) -> None:
        """Note how fast requests follow each other."""
        time, before = self._previous.get(sender, (now, 0))
        if size >= LONG:
            if before and now > time:
                rate = before * 8 * SECOND // (now - time)
                self._rates[sender] = max(self._rates.get(sender, 0), rate)
            self._previous[sender] = now, size
        elif sender in self._previous:
            del self._previous[sender]
        if len(self._previous) > MOST:
            self._previous.clear()
            self._rates.clear()

    def closed(self, direction: PdcDirection) -> None:
        """Take back what a PDC that ends has in flight."""
        window, direction.window = direction.window, None
        if window is None:
            return
        self._packets -= len(window.sent)
        context = window.context
        for one in window.sent.values():
            self._land(window, one)
        if context.model is not None:
            context.model.add(-window.balance)
        if window in context.windows:
            context.windows.remove(window)
        if context.early is not None and context.early[0] is direction:
            context.early = None

    def _give_up(self) -> None:
        """Follow no context any more: too much is in flight."""
        for context in self._contexts.values():
            context.is_near = False
            for window in context.windows:
                window.sent.clear()
        self._packets = 0

    # What its peer answers

    def ack(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Note an ACK: what it covers is no longer in flight, and its state changes the window."""
        window = direction.window
        if window is None:
            return
        head, context = seen.head, window.context
        state: Any = next((one for one in seen.more if one.form.startswith("pds.cc_state.")), None)
        nscc = state is not None and state.form == "pds.cc_state.nscc"
        if not nscc and not context.is_nscc:
            direction.has_no_window = True  # another congestion control, or none
            self.closed(direction)
            return
        context.is_nscc = True
        cack, probe = head.cack_psn, "ack_psn_offset" not in head._fields
        named = None if probe else window.sent.get((cack + head.ack_psn_offset) & M32)
        rtt = None
        if named is not None and (not nscc or state.service_time != _UNKNOWN_SERVICE):
            rtt = self._rtt(context, named, head.retx, state.service_time if nscc else 0, seen)
        size = self._cover(window, cack)
        if named is not None:
            size += self._arrive(window, named)
        if "sack_bitmap" in head._fields:
            size += self._sack(window, (cack + head.sack_psn_offset) & M32, head.sack_bitmap)
        new = self._newly_received(window, state.rcvd_bytes, size) if nscc else size
        window.balance -= new
        model = context.model
        if model is not None:
            penalty, restore = (state.rcv_cwnd_pend, bool(state.restore_cwnd)) if nscc else (0, False)
            model.ack(AckReport(new, bool(head.m), rtt, penalty, restore), seen.time_ns * _PS)
            if context.lost_at is not None and model.is_open and not self._is_unsettled(context):
                context.lost_at = None

    def _rtt(
        self, context: AuditedContext, named: SentPsn, retx: int, service: int, seen: ObservedPacket
    ) -> int | None:
        if named.sends != (2 if retx else 1):
            return None
        now = seen.time_ns * _PS
        rtt = now - named.time - service * _SERVICE_UNIT
        if context.model is None and context.is_near is not False:
            self._infer(context, rtt, seen)
        model = context.model
        if model is not None and context.stated is None:
            if rtt * NEAR < model.base_rtt:
                context.is_near, context.early = False, None
            elif context.is_near is None:
                context.is_near = True
                if context.early is not None and context.is_nscc:
                    direction, first, context.in_flight, context.window = context.early
                    context.early = None
                    self._tell[PdsEvent.FLIGHT_INFERRED if context.inferred else PdsEvent.FLIGHT](direction, first)
        return rtt if rtt > 0 else None

    def _infer(self, context: AuditedContext, rtt: int, seen: ObservedPacket) -> None:
        """Infer the parameters: the base RTT is that of the first packet, the rate the greatest that was seen. At the
        receiver an ACK follows sooner than two packets could."""
        rate = self._rates.get(seen.dst, 0)
        if not rate or rtt > SECOND or not 256 <= context.largest < 1 << 16:
            return
        if rtt < 2 * 8 * SECOND * context.largest // rate:
            context.is_near = False
            return
        config = CcConfig(
            rate=min(rate, 10**15), base_rtt=rtt, mtu=context.largest, mss=context.largest, trimming=False
        )
        context.model = RecomputedWindow(WindowParameters(config, config.max_wnd))
        context.model.add(context.flying)

    @staticmethod
    def _newly_received(window: DirectionWindow, rcvd: int, size: int) -> int:
        """Return the bytes that rcvd_bytes reports for the first time; `size`: those of the packets that the ACK
        covers first."""
        known = window.rcvd
        if known is None:
            if not rcvd:
                return size
            # the PDC may be older than the capture: then its first rcvd_bytes does not tell what is new
            known = 0 if rcvd * QUANTUM < window.total + QUANTUM else (rcvd - -(-size // QUANTUM)) & _M24
        more = (rcvd - known) & _M24
        if more >= _HALF24:
            return 0
        window.rcvd = rcvd
        return more * QUANTUM

    def _land(self, window: DirectionWindow, record: SentPsn) -> int:
        """Note that a packet is no longer in flight, and return its size if it was."""
        if not record.flies:
            return 0
        record.flies = False
        window.context.flying -= record.size
        if record.overtaken:
            record.overtaken = False
            window.context.overtaken -= record.size
        return record.size

    def _arrive(self, window: DirectionWindow, record: SentPsn) -> int:
        """Note that a packet was received, and return its size if it was not known before."""
        if record.landed:
            return 0
        record.landed = True
        order = window.order
        while order and order[0][0] <= record.order:
            number, one = order.popleft()
            if one.flies and one.order == number and one is not record:
                one.overtaken = True
                window.context.overtaken += one.size
        if record.flies:
            return self._land(window, record)
        window.balance += record.size  # it was refused, and has arrived after all
        if window.context.model is not None:
            window.context.model.add(record.size)
        return record.size

    def _cover(self, window: DirectionWindow, cack: int) -> int:
        size = 0
        sent, low = window.sent, window.low
        if diff32(cack, low) >= 0:
            for step in range(min(diff32(cack, low) + 1, 1 << 16)):
                record = sent.pop((low + step) & M32, None)
                if record is not None:
                    self._packets -= 1
                    size += self._arrive(window, record)
            window.low = (cack + 1) & M32
        return size

    def _sack(self, window: DirectionWindow, base: int, bitmap: int) -> int:
        size, sent, left = 0, window.sent, bitmap & _M64
        while left:
            lowest = left & -left
            record = sent.get((base + lowest.bit_length() - 1) & M32)
            if record is not None and not record.landed:
                size += self._arrive(window, record)
            left ^= lowest
        return size

    def nack(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Note a NACK, whose packet is no longer in flight."""
        window = direction.window
        if window is None:
            return
        head = seen.head
        record = window.sent.get(head.nack_psn)
        if head.nack_code == NackCode.ROD_OOO:
            for psn, later in window.sent.items():
                if diff32(psn, head.nack_payload & M32) >= 0 and later.flies:
                    self._refuse(window, later, Trim.NO, None, seen)
        elif record is None or not record.flies:
            return
        elif head.nack_code == NackCode.RCVD_SES_PROCG:
            self._arrive(window, record)
        else:
            rtt = self._rtt(window.context, record, head.retx, 0, seen)
            self._refuse(window, record, _TRIMMED.get(head.nack_code, Trim.NO), rtt, seen)

    def _refuse(
        self, window: DirectionWindow, record: SentPsn, trim: Trim, rtt: int | None, seen: ObservedPacket
    ) -> None:
        self._land(window, record)
        window.balance -= record.size
        if window.context.model is not None:
            window.context.model.nack(record.size, trim, rtt, seen.time_ns * _PS)

    @staticmethod
    def _is_unsettled(context: AuditedContext) -> bool:
        """Return whether packets are in flight that the sender may have taken for lost."""
        lost_at = context.lost_at or 0
        return any(one.flies and one.order <= lost_at for window in context.windows for one in window.sent.values())


def is_beyond(context: AuditedContext) -> bool:
    """Return whether more than a packet is in flight beyond the window, or beyond twice the window if it is
    inferred."""
    return context.in_flight > context.window * (2 if context.inferred else 1) + context.largest


def window_parameters(options: Options) -> WindowParameters | None:
    """Return the parameters that the caller of the audit gives, else those that the comment of the interface states, if
    it states any. Raises `LocalError` for parameters of the caller that are not legal."""
    if options.cc is not None:
        return parameters_of(options.cc)
    if not options.stated_cc.startswith(STATED):
        return None
    try:
        return parameters_of(options.stated_cc.removeprefix(STATED))
    except LocalError:
        return None
