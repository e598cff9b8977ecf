"""Follows secure domains: the counters that a sender used under a key, and packets in the clear beside sealed ones.

SDI, AN and epoch identify a key from outside. After a rotation an AN stands for another key: counters that come again
then contradict nothing.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.flows import SILENT, Flows
from uetproto.audit.judge import Judge
from uetproto.audit.reader.address import IPV6, address_text, bits_of, ends
from uetproto.audit.reader.observed import ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.wire.headers.uet_tss import TSS, TSS_SSI

RANGES = 4_096
"""Most ranges of counters that are kept for one sender and key."""
CONTENTS = 4_096
"""Most packets of one sender and key for which a checksum is kept."""

SenderKey = tuple[int, int, int | None]
"""Holds SDI, address and SSI."""
End = tuple[int, int, int]
"""Identifies an end of a PDC by its address, its PDCID and the address of its peer."""


class TssEvent(Enum):
    """Names the events of secure domains; the state is the `SecureSender`, if nothing else is said."""

    SEALED = auto()
    """A sealed packet came; the event is only counted."""
    AGAIN = auto()
    """A counter came that was used before; `was` is the earlier packet, if it is still known."""
    SHARED = auto()
    """A counter came that another sender with the same SSI has used, in packet `was`."""
    FELL = auto()
    """A counter is below an earlier one of the same key."""
    EPOCH_FELL = auto()
    """An epoch is below an earlier one of the same AN."""
    AN_BACK = auto()
    """A sender returned to the key that it used before the present key."""
    HALF = auto()
    """A packet came in a domain that splits its counters between clients and servers; state: `SplitCounter`."""
    INSIDE = auto()
    """A packet came on a PDC that has sealed packets; state: `ClearPacket`."""
    CLEAR = auto()
    """A packet came in the clear on a PDC that has sealed packets; state: `ClearPacket`."""


@dataclass(slots=True, eq=False)
class UsedCounters:
    """Holds the counters that a sender used under one key: as ranges, and the newest ones with a checksum."""

    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    contents: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    """Maps a counter to the number of its packet, and the checksum of its bytes."""
    floor: int = -1
    """Holds the counter up to which all ranges were dropped."""
    newest: int = -1
    seen_at: int = 0
    """Holds the number of the last packet."""

    def add(self, tsc: int) -> bool:
        """Add a counter, and return whether it is new; False: the counter was used, or is too old to know."""
        starts, ends = self._starts, self._ends
        if ends and tsc == ends[-1] + 1:
            ends[-1] = tsc
            return True
        if tsc <= self.floor:
            return False
        at = bisect_right(starts, tsc)
        if at and tsc <= ends[at - 1]:
            return False
        joins_left = at > 0 and ends[at - 1] == tsc - 1
        joins_right = at < len(starts) and starts[at] == tsc + 1
        if joins_left and joins_right:
            ends[at - 1] = ends.pop(at)
            starts.pop(at)
        elif joins_left:
            ends[at - 1] = tsc
        elif joins_right:
            starts[at] = tsc
        else:
            starts.insert(at, tsc)
            ends.insert(at, tsc)
            if len(starts) > RANGES:
                starts.pop(0)
                self.floor = ends.pop(0)
        return True

    def keep(self, tsc: int, number: int, content: int | None) -> None:
        """Store number and checksum of a packet."""
        self.contents[tsc] = number, content
        if len(self.contents) > CONTENTS:
            del self.contents[next(iter(self.contents))]

    @property
    def ranges(self) -> int:
        return len(self._starts)


@dataclass(slots=True, eq=False)
class SecureSender:
    """Holds the state of a sender of a secure domain."""

    key: SenderKey
    last_ns: int
    counters: dict[tuple[int, int], UsedCounters] = field(default_factory=dict)
    """Maps AN and epoch to the counters used."""
    an: int | None = None
    """Holds the AN in use."""
    rotated: list[int] = field(default_factory=lambda: [-1, -1])
    """Holds, for each AN, the number of the last packet that had it."""
    was: tuple[int, int | None] | None = None
    before: int | None = None
    """Holds the greater counter or epoch that an event refers to."""

    def flow(self) -> Flow:
        sdi, src, ssi = self.key
        flow: dict[str, Any] = {"sdi": sdi, "src": address_text(src)}
        return flow if ssi is None else flow | {"ssi": ssi}

    @property
    def mode_is_told_by_address(self) -> bool:
        """Tell whether the address may be part of the key, as in IPv6."""
        return self.key[1] & IPV6 != 0


class SplitCounter(NamedTuple):
    """Holds a sealed packet of mode client-server."""

    sender: SecureSender
    from_server: bool

    def flow(self) -> Flow:
        return self.sender.flow()


class ClearPacket(NamedTuple):
    """Holds a packet of a PDC, and the number of a sealed packet of the same PDC."""

    seen: ObservedPacket
    sealed: int

    def flow(self) -> Flow:
        return ends(self.seen.src, self.seen.dst)


class TssTracker:
    """Follows the secure domains of one vantage point."""

    def __init__(self, judge: Judge, options: Options) -> None:
        self._tell = {event: judge.on(event) for event in TssEvent}
        self._sealed = self._tell[TssEvent.SEALED]
        self.flows: Flows[SenderKey, SecureSender] = Flows(options.max_flows)
        self._by_key = self.flows.by_key
        self._by_ssi: dict[tuple[int, int], list[SecureSender]] = {}
        self._keys = options.keys
        self._most = options.max_flows
        self.packets = 0
        """Counts packets with a security header."""
        self._last = -1
        """Holds the number of the last sealed packet; the packet inside has the same number."""
        self._pdcs: dict[End, tuple[int, int]] = {}
        """Maps the ends of PDCs with sealed packets to number and time of the last of these."""
        self.see_by_class = {head_class(header.name): self.see for header in (TSS, TSS_SSI)}

    @property
    def any_sealed(self) -> bool:
        """Tell whether a sealed packet was seen: from then on packets of PDCs have to be followed as well."""
        return self._last >= 0

    def see(self, seen: ObservedPacket) -> None:
        """Follow a packet with a security header."""
        head = seen.head
        self._last = seen.number
        self.packets += 1
        key = (head.sdi, seen.src, head.ssi if head.sp else None)
        sender = self._by_key.get(key)
        if sender is None:
            sender = self._by_key[key] = SecureSender(key, seen.time_ns)
            if head.sp:
                self._by_ssi.setdefault((head.sdi, head.ssi), []).append(sender)
        sender.last_ns = seen.time_ns
        self._sealed(sender, seen)
        counters = sender.counters.get((head.an, head.epoch))
        if counters is None:
            counters = self._opened(sender, seen)
        if head.an != sender.an:
            counters = self._rotated(sender, seen, counters)
        tsc: int = head.tsc
        if counters.add(tsc):
            counters.keep(tsc, seen.number, seen.content)
            if tsc > counters.newest:
                counters.newest = tsc
            else:
                sender.before = counters.newest
                self._tell[TssEvent.FELL](sender, seen)
        else:
            self._again(sender, seen, counters)
        counters.seen_at = sender.rotated[head.an] = seen.number
        if head.sp:
            self._others(sender, seen)
        if self._keys is not None:
            self._halves(sender, seen)

    def see_inside(self, seen: ObservedPacket) -> None:
        """Follow a packet of a PDC: it was sealed if it has the number of the last sealed packet."""
        ends = _ends(seen)
        if seen.number == self._last:
            self._tell[TssEvent.INSIDE](ClearPacket(seen, seen.number), seen)
            for end in ends:
                self._pdcs[end] = seen.number, seen.time_ns
            if len(self._pdcs) > 2 * self._most:
                del self._pdcs[next(iter(self._pdcs))]
            return
        for end in ends:
            sealed = self._pdcs.get(end)
            if sealed is not None:
                state = ClearPacket(seen, sealed[0])
                self._tell[TssEvent.INSIDE](state, seen)
                self._tell[TssEvent.CLEAR](state, seen)
                return

    def sweep(self, now: int) -> None:
        if not self.flows.is_due():
            return
        before = len(self._by_key)
        self.flows.sweep(now)
        self._by_key = self.flows.by_key
        if len(self._by_key) != before:
            self._by_ssi.clear()
            for (sdi, _, ssi), sender in self._by_key.items():
                if ssi is not None:
                    self._by_ssi.setdefault((sdi, ssi), []).append(sender)
        self._pdcs = {end: last for end, last in self._pdcs.items() if last[1] > now - SILENT}

    def _opened(self, sender: SecureSender, seen: ObservedPacket) -> UsedCounters:
        """Begin a key that this sender did not use before; the epochs of an AN are bounded."""
        head = seen.head
        epochs = [epoch for an, epoch in sender.counters if an == head.an]
        newer = [epoch for epoch in epochs if 0 < (epoch - head.epoch) & 0xFFFF < 0x8000]
        if newer and sender.an != head.an:
            _forget_key(sender, head.an)
        elif newer:
            sender.before = newer[-1]
            self._tell[TssEvent.EPOCH_FELL](sender, seen)
        elif len(epochs) > _EPOCHS:
            del sender.counters[head.an, epochs[0]]
        counters = sender.counters[head.an, head.epoch] = UsedCounters()
        return counters

    def _rotated(self, sender: SecureSender, seen: ObservedPacket, counters: UsedCounters) -> UsedCounters:
        """Follow a change of the AN: to the next key, or back to a late packet of the key before."""
        head = seen.head
        if counters.newest >= 0:
            if head.tsc > counters.newest:
                self._tell[TssEvent.AN_BACK](sender, seen)
            elif head.tsc < counters.newest - _LATE:
                _forget_key(sender, head.an)
                counters = sender.counters[head.an, head.epoch] = UsedCounters()
        sender.an = head.an
        return counters

    def _again(self, sender: SecureSender, seen: ObservedPacket, counters: UsedCounters) -> None:
        head = seen.head
        sender.was = counters.contents.get(head.tsc)
        copy = sender.was is not None and sender.was[1] == seen.content
        first = sender.was[0] if sender.was is not None else counters.seen_at
        if not copy and sender.rotated[1 - head.an] > first:  # the AN has another key now
            _forget_key(sender, head.an)
            fresh = sender.counters[head.an, head.epoch] = UsedCounters()
            fresh.add(head.tsc)
            fresh.keep(head.tsc, seen.number, seen.content)
            fresh.newest, fresh.seen_at = head.tsc, seen.number
            return
        self._tell[TssEvent.AGAIN](sender, seen)

    def _others(self, sender: SecureSender, seen: ObservedPacket) -> None:
        """Compare with other senders of the same SSI: in mode client-server the other end of a connection."""
        head = seen.head
        for other in self._by_ssi.get((head.sdi, head.ssi), ()):
            if other is sender:
                continue
            counters = other.counters.get((head.an, head.epoch))
            was = counters.contents.get(head.tsc) if counters is not None else None
            if was is not None and max(sender.rotated[1 - head.an], other.rotated[1 - head.an]) < was[0]:
                sender.was = was
                self._tell[TssEvent.SHARED](sender, seen)
                return

    def _halves(self, sender: SecureSender, seen: ObservedPacket) -> None:
        assert self._keys is not None
        domain = self._keys.get(seen.head.sdi)
        if domain is not None and domain.servers:  # only mode client-server has servers
            self._tell[TssEvent.HALF](SplitCounter(sender, bits_of(seen.src) in domain.servers), seen)


_EPOCHS = 32
"""Epochs of one AN that are kept of a sender."""
_LATE = 64
"""Bounds by how many counters packets overtake each other; a packet further behind has another key."""


def _forget_key(sender: SecureSender, an: int) -> None:
    """Drop the counters of an AN: it stands for another key now."""
    for key in [key for key in sender.counters if key[0] == an]:
        del sender.counters[key]


def _ends(seen: ObservedPacket) -> list[End]:
    """Return the ends of a PDC that a packet names."""
    head = seen.head
    spdcid, dpdcid = getattr(head, "spdcid", 0), getattr(head, "dpdcid", 0)
    found = [(seen.src, spdcid, seen.dst)] if spdcid else []
    return [*found, (seen.dst, dpdcid, seen.src)] if dpdcid else found
