# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the secure domains of a capture. It decides which sealed packets are authentic, which counters
each sender used under a key, and which packets are in the clear although other packets of the same PDC are sealed.

If one of the given keys opens a packet, all packets with that key must have different nonces, whoever sent them (tss.md
§4, §6). Without keys, SDI, AN and epoch stand for a key. A rotation gives an AN another key. A counter that repeats
after a rotation is therefore no violation. If keys were tried on a packet and none opens it, its fields are ignored.
"""

from dataclasses import dataclass, field
from enum import auto
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.flows import SILENT, Flows
from uetproto.audit.judge import MOST, Judge
from uetproto.audit.reader.address import IPV6, address_text, bits_of, ends
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Event, Inconclusive, Verdict, Violation
from uetproto.audit.tss.counters import CounterUse, UsedCounters, UsedNonces
from uetproto.engine.tss.cipher import NonceSpace, Refused, SecurityHeader
from uetproto.engine.tss.opener import Opened
from uetproto.wire.words.text import numbered

SenderKey = tuple[int, int, int | None]
"""Identifies a sender of a secure domain: SDI, address, and SSI. The SSI is None if the packets carry none."""
SpaceKey = NonceSpace | tuple[int, int, int | None]
"""Identifies the nonces that must differ from each other. It is the `NonceSpace` of a packet that was opened; for
other packets it is SDI, AN and SSI. The SSI is None if the packets carry none."""
EvidenceKey = tuple[int, int, tuple[int, int] | None, tuple[SenderKey, int] | None]
"""Identifies a key by four values. The first two are SDI and AN. The third has both addresses if each client may have a
key of its own; otherwise it is None. The fourth is None until a sender has returned to the AN after a rotation; then it
has this sender and the number of its returns."""
End = tuple[int, int, int]
"""Identifies one end of a PDC: its address, its PDCID and the address of its peer."""


class TssEvent(Event):
    """This enumeration has the events of secure domains. The state of an event is the `SecureSender`, unless the
    description of the event names another one."""

    ICV = auto()
    """The ICV of a sealed packet was found right or wrong, or cannot be judged. The state of the event is an
    `Authenticity`."""
    SEALED = auto()
    """A sealed packet was opened, or no key was tried on it. No rule judges this event; it counts the packets whose
    counters, epochs and ANs are judged."""
    AGAIN = auto()
    """A sender used a nonce that it had used before. The state of the event is a `RepeatedNonce`."""
    COMPARED = auto()
    """A sender used a nonce with a key and a prefix that another sender uses, too. No rule judges this event; it
    counts the nonces that were compared."""
    SHARED = auto()
    """A sender used a nonce that another sender had used before. The state of the event is a `RepeatedNonce`."""
    FELL = auto()
    """The counter of a packet is below an earlier one of the same sender and key."""
    EPOCH_FELL = auto()
    """The epoch of a packet is below an earlier one of the same sender and AN."""
    AN_BACK = auto()
    """A sender changed to the key of the other AN, and then used the previous key again, with a new highest counter."""
    HALF = auto()
    """A packet came in a domain of mode client-server, where bit 47 of the counter says whether a server sent the
    packet. The state of the event is a `SplitCounter`."""
    INSIDE = auto()
    """A packet, sealed or not, came on a PDC that has sealed packets. No rule judges this event; it counts the packets
    that the rule for the event CLEAR concerns. The state of the event is a `ClearPacket`."""
    CLEAR = auto()
    """A packet came in the clear on a PDC that has sealed packets. The state of the event is a `ClearPacket`."""


@dataclass(slots=True, eq=False)
class SecureSender:
    """This class has the state of one sender of a secure domain: the counters and the ANs that it used."""

    key: SenderKey
    last_ns: int
    counters: dict[tuple[int, int], UsedCounters] = field(default_factory=dict)
    """Maps AN and epoch to the counters that were used with that AN and epoch."""
    an: int | None = None
    """AN of the key that the sender uses at present. It is None before the first packet."""
    an_back: int | None = None
    """AN of the previous key, if a packet came with that key and a counter above all earlier ones of the key. A second
    such packet sets `an` to this AN. The value is None if no such packet came."""
    rotated: list[int] = field(default_factory=lambda: [-1, -1])
    """Two packet numbers: that of the last packet with AN 0, and that of the last packet with AN 1. A number is -1 if
    no packet had the AN."""
    last_an: int | None = None
    """AN of the last packet on which keys were tried, whether or not one of the keys opened the packet. It is None
    before the first such packet."""
    returns: list[int] = field(default_factory=lambda: [-1, -1])
    """Two numbers: how often the sender returned to AN 0, and how often to AN 1. A number is -1 before the first use of
    the AN, and 0 after the first use."""
    before: int | None = None
    """Counter (event FELL) or epoch (event EPOCH_FELL) of an earlier packet. The present packet has a lower one. The
    value is None before the first such event."""

    def flow(self) -> Flow:
        sdi, src, ssi = self.key
        flow: dict[str, Any] = {"sdi": sdi, "src": address_text(src)}
        return flow if ssi is None else flow | {"ssi": ssi}


class Authenticity(NamedTuple):
    """The state of the event ICV has the sender of a sealed packet, and the verdict on the ICV of the packet."""

    sender: SecureSender
    verdict: Verdict

    def flow(self) -> Flow:
        return self.sender.flow()


class RepeatedNonce(NamedTuple):
    """The state of the events AGAIN and SHARED describes a nonce that was used before. `doubt` says whether the earlier
    use may have had another key."""

    sender: SecureSender
    was: CounterUse | None
    """Packet that used the nonce before. It is None if that packet is no longer stored."""
    doubt: str | None = None
    """Reason why the earlier packet with the nonce may have another key. It is None if both packets have the same
    key."""

    def flow(self) -> Flow:
        return self.sender.flow()


@dataclass(slots=True)
class KeyEvidence:
    """This class says whether a key has opened a packet. As long as the key has opened no packet, the packets that it
    failed to open wait in `waiting` for their verdict."""

    opened: int | None = None
    """Number of the last packet that the key opened. It is None if the key has opened no packet."""
    waiting: list[tuple[SecureSender, ObservedPacket]] = field(default_factory=list)


class SplitCounter(NamedTuple):
    """The state of the event HALF has the sender of a packet in a domain of mode client-server, and says whether that
    sender is a server."""

    sender: SecureSender
    from_server: bool

    def flow(self) -> Flow:
        return self.sender.flow()


class ClearPacket(NamedTuple):
    """The state of the events INSIDE and CLEAR has a packet of a PDC, and the number of a sealed packet of the same
    PDC."""

    seen: ObservedPacket
    sealed: int

    def flow(self) -> Flow:
        return ends(self.seen.src, self.seen.dst)


class TssTracker:
    """This class follows the secure domains of one vantage point."""

    def __init__(self, judge: Judge, options: Options) -> None:
        self._tell = judge.rules.tell(TssEvent)
        self._sealed = self._tell[TssEvent.SEALED]
        self.flows: Flows[SenderKey, SecureSender] = Flows(options.max_flows)
        self._by_key = self.flows.by_key
        self.spaces: Flows[SpaceKey, UsedNonces] = Flows(options.max_flows)
        self._evidence: dict[EvidenceKey, KeyEvidence] = {}
        self._keys = options.keys
        self._most = options.max_flows
        self.packets = 0
        """Number of packets with a security header."""
        self._last = -1
        """Number of the last sealed packet; the packet inside has the same number."""
        self._pdcs: dict[End, tuple[int, int]] = {}
        """Maps the ends of PDCs with sealed packets to number and time of the last sealed packet."""

    @property
    def any_sealed(self) -> bool:
        """Return whether a sealed packet was seen. From then on the tracker must follow the packets of PDCs, too."""
        return self._last >= 0

    def see(self, seen: ObservedPacket) -> None:
        """Follow a packet with a security header: judge its ICV, and compare its counter, epoch and nonce with earlier
        ones."""
        head = seen.head
        self._last = seen.number
        self.packets += 1
        key = (head.sdi, seen.src, head.ssi if head.sp else None)
        sender = self._by_key.get(key)
        if sender is None:
            sender = self._by_key[key] = SecureSender(key, seen.time_ns)
        sender.last_ns = seen.time_ns
        if not self._is_believed(sender, seen):
            return
        self._sealed(sender, seen)
        counters = sender.counters.get((head.an, head.epoch))
        if counters is None:
            counters = self._opened(sender, seen)
        if head.an != sender.an:
            counters = self._rotated(sender, seen, counters)
        tsc: int = head.tsc
        opened = seen.opening if isinstance(seen.opening, Opened) else None
        if counters.add(tsc):
            if opened is None:
                counters.keep(tsc, seen)
            if tsc > counters.newest:
                counters.newest = tsc
            else:
                sender.before = counters.newest
                self._tell[TssEvent.FELL](sender, seen)
        elif opened is None:
            self._again(sender, seen, counters)
        counters.seen_at = sender.rotated[head.an] = seen.number
        if opened is not None:
            self._compare_opened(sender, seen, opened.nonces)
        elif head.sp or seen.src & IPV6:  # otherwise the prefix of the nonce is the sender's address
            self._compare(sender, seen)
        if self._keys is not None:
            self._halves(sender, seen)

    def see_inside(self, seen: ObservedPacket) -> None:
        """Follow a packet of a PDC. If earlier packets of the PDC were sealed and this packet is in the clear, report
        this packet. If this packet has the number of the last sealed packet, it was sealed itself."""
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
        self.flows.sweep(now)
        self._by_key = self.flows.by_key
        self.spaces.sweep(now)
        while len(self._evidence) > self._most:
            self._give_up(self._evidence.pop(next(iter(self._evidence))))
        self._pdcs = {end: last for end, last in self._pdcs.items() if last[1] > now - SILENT}

    def end(self) -> None:
        """Report, at the end of the capture, the packets that cannot be judged because their key opened no packet."""
        for evidence in self._evidence.values():
            self._give_up(evidence)
        self._evidence.clear()

    # Which packets open

    def _is_believed(self, sender: SecureSender, seen: ObservedPacket) -> bool:
        """Report whether a packet opens; return False if keys were tried and none opened it."""
        opening = seen.opening
        if opening is None:
            self._tell_icv(sender, seen, _NO_KEYS)
            return True
        if isinstance(opening, Refused) and opening.sealed_as is not None:
            self._tell_icv(sender, seen, _changed(seen, opening.sealed_as))
            return False
        if isinstance(opening, Refused) and not opening.tried:
            self._tell_icv(sender, seen, _NO_KEY)
            return True
        if seen.head.an != sender.last_an:
            sender.last_an = seen.head.an
            sender.returns[seen.head.an] += 1
        evidence = self._evidence.setdefault(self._evidence_key(sender, seen), KeyEvidence())
        if isinstance(opening, Opened):
            self._tell_icv(sender, seen, None)
            evidence.opened = seen.number
            for earlier in evidence.waiting:
                self._tell_icv(*earlier, _unopened(earlier[1], seen.number))
            evidence.waiting.clear()
            return True
        if evidence.opened is not None:
            self._tell_icv(sender, seen, _unopened(seen, evidence.opened))
        elif len(evidence.waiting) < MOST:
            evidence.waiting.append((sender, seen))
        else:
            self._tell_icv(sender, seen, _KEY_UNKNOWN)
        return False

    def _evidence_key(self, sender: SecureSender, seen: ObservedPacket) -> EvidenceKey:
        """Return what has one key: a domain with an AN, unless clients have keys of their own or the AN came back."""
        assert self._keys is not None
        sdi, an = seen.head.sdi, seen.head.an
        domain = self._keys[sdi]
        by_client = domain.mode == "client-server" and (not domain.servers or any(k.derived for k in domain.keys[an]))
        returns = sender.returns[an]
        return sdi, an, (seen.src, seen.dst) if by_client else None, (sender.key, returns) if returns else None

    def _give_up(self, evidence: KeyEvidence) -> None:
        for sender, seen in evidence.waiting:
            self._tell_icv(sender, seen, _KEY_UNKNOWN)

    def _tell_icv(self, sender: SecureSender, seen: ObservedPacket, verdict: Verdict) -> None:
        self._tell[TssEvent.ICV](Authenticity(sender, verdict), seen)

    # Counters

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
                if sender.an_back != head.an:  # one packet may be wrong; two have changed the AN
                    self._tell[TssEvent.AN_BACK](sender, seen)
                    sender.an_back = head.an
                    return counters
            elif head.tsc < counters.newest - _LATE:
                _forget_key(sender, head.an)
                counters = sender.counters[head.an, head.epoch] = UsedCounters()
        sender.an, sender.an_back = head.an, None
        return counters

    def _again(self, sender: SecureSender, seen: ObservedPacket, counters: UsedCounters) -> None:
        head = seen.head
        was = counters.contents.get(head.tsc)
        copy = was is not None and was.content == seen.content
        first = was.number if was is not None else counters.seen_at
        if not copy and sender.rotated[1 - head.an] > first:  # the AN has another key now
            _forget_key(sender, head.an)
            fresh = sender.counters[head.an, head.epoch] = UsedCounters()
            fresh.add(head.tsc)
            fresh.keep(head.tsc, seen)
            fresh.newest, fresh.seen_at = head.tsc, seen.number
            return
        self._tell[TssEvent.AGAIN](RepeatedNonce(sender, was), seen)

    def _compare_opened(self, sender: SecureSender, seen: ObservedPacket, space: NonceSpace) -> None:
        """Compare the nonce with all others under the same key."""
        nonces = self._use(sender, seen, space)
        if nonces is not None:
            was = nonces.used.contents.get(_tsc64(seen))
            by_other = nonces.is_shared if was is None else was.src != seen.src
            self._tell[TssEvent.SHARED if by_other else TssEvent.AGAIN](RepeatedNonce(sender, was), seen)

    def _compare(self, sender: SecureSender, seen: ObservedPacket) -> None:
        """Compare the nonce with those of other senders whose prefix is the same. The packets do not tell whether these
        senders have the same key."""
        head = seen.head
        ssi = head.ssi if head.sp else None
        nonces = self._use(sender, seen, (head.sdi, head.an, ssi))
        if nonces is None:
            return
        was = nonces.used.contents.get(_tsc64(seen))
        if was is None or was.src != seen.src:
            other = self._by_key.get((head.sdi, was.src, ssi)) if was is not None else None
            doubt = "IPv6: whether two senders have one key is told by --keys" if seen.src & IPV6 else None
            if was is not None and (
                other is None or was.number <= max(s.rotated[1 - head.an] for s in (sender, other))
            ):
                doubt = "the AN may have another key"
            self._tell[TssEvent.SHARED](RepeatedNonce(sender, was, doubt), seen)
        nonces.used.keep(_tsc64(seen), seen)

    def _use(self, sender: SecureSender, seen: ObservedPacket, space: SpaceKey) -> UsedNonces | None:
        """Note a nonce. Return the used ones if it was used before, else None."""
        nonces = self.spaces.by_key.get(space)
        if nonces is None:
            nonces = self.spaces.by_key[space] = UsedNonces(seen.src)
        nonces.last_ns = seen.time_ns
        nonces.is_shared |= nonces.first != seen.src
        if nonces.is_shared:
            self._tell[TssEvent.COMPARED](sender, seen)
        if not nonces.used.add(_tsc64(seen)):
            return nonces
        nonces.used.keep(_tsc64(seen), seen)
        return None

    def _halves(self, sender: SecureSender, seen: ObservedPacket) -> None:
        assert self._keys is not None
        domain = self._keys.get(seen.head.sdi)
        if domain is not None and domain.servers:  # only mode client-server has servers
            self._tell[TssEvent.HALF](SplitCounter(sender, bits_of(seen.src) in domain.servers), seen)


_EPOCHS = 32
"""Epochs of one AN that are kept of a sender."""
_LATE = 64
"""Bounds by how many counters packets overtake each other; a packet further behind has another key."""


_NO_KEYS = Inconclusive("no keys")
_NO_KEY = Inconclusive("not whole, or no key for it")
_KEY_UNKNOWN = Inconclusive("no other packet opens that has its key")


def _unopened(seen: ObservedPacket, opened: int) -> Violation:
    head = seen.head
    expected = f"the ICV of the key of SDI {head.sdi} and AN {head.an}, which {numbered(opened)} has"
    return Violation(expected, "another ICV", (opened,) if opened < seen.number else ())


def _changed(seen: ObservedPacket, sealed_as: SecurityHeader) -> Violation:
    told = [f"SDI {head.sdi}, AN {head.an}, epoch {head.epoch}" for head in (sealed_as, seen.head)]
    return Violation(f"the header under which it was sealed: {told[0]}", told[1])


def _tsc64(seen: ObservedPacket) -> int:
    """Return epoch and counter as one number, which belongs to one packet under a key."""
    tsc64: int = seen.head.epoch << 48 | seen.head.tsc
    return tsc64


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
