# SPDX-License-Identifier: GPL-2.0-only
"""This module finds the PDC and the direction of a packet by PDCIDs, and by PSNs where PDCIDs were used again."""

from typing import Protocol, TypeVar

from uetproto.audit.flows import Flows
from uetproto.audit.pds.tracker_state import FAR, FEWEST, MOST, NEVER, RECORDS, AuditedPdc, Hosts, PdcDirection
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.wire.flow_crc import NOTHING
from uetproto.wire.serial import add32, diff32

Value = TypeVar("Value")
Key = tuple[int, int, int]
"""Key of an end of a PDC: the address and the PDCID of the end, and the address of its peer."""

QUARANTINE = 10**9
"""Nanoseconds of silence after which a PDCID may belong to another PDC; the MSL (maximum segment lifetime) is twice as
long."""
REOPENING = 2_000
"""Nanoseconds that a PDC takes at least to get its ACKs, to close, and to open again: two round trips of 1 µs."""
PAIRS = 65_536
"""Greatest number of entries in each of three tables of `PdcTable`: pairs of hosts (`again`), PDCs by Start_PSN, and
ends that were dropped."""


class TableOwner(Protocol):
    """This protocol describes the owner of a `PdcTable`; the table tells its owner of each direction that it adds or
    drops."""

    def opened(self, direction: PdcDirection) -> None:
        """Note a direction that the table has added."""

    def closed(self, direction: PdcDirection) -> None:
        """Note a direction that the table drops."""


class PdcTable:
    """This class holds the PDCs that are open. A PDC has two ends, and each end sends in one direction."""

    __slots__ = ("_begun", "_dropped", "_owner", "_starts", "again", "certain", "flows", "most")

    def __init__(self, most: int, owner: TableOwner, *, certain: bool = False) -> None:
        """Make an empty table that keeps `most` PDCs. `certain` says that the capture is promised to be complete and
        ordered."""
        self.flows: Flows[Key, PdcDirection] = Flows(2 * most, self._forgotten)
        self._owner = owner
        self.certain = certain
        self._starts: dict[Key, PdcDirection] = {} if certain else NOTHING
        """Maps sender, Start_PSN and receiver to the newest PDC that has them. It is empty unless the capture is
        `certain`."""
        self._begun: dict[Hosts, bool] = {} if certain else NOTHING
        """Maps a pair of hosts to whether the first packet of a PDC seen between them was a SYN packet. It is empty
        unless the capture is `certain`."""
        self._dropped: dict[Key, None] = {} if certain else NOTHING
        """Ends that were dropped, to which late packets may still come. It is empty unless the capture is
        `certain`."""
        self.again: dict[Hosts, None] = NOTHING
        """Pairs of hosts between which a PDC uses PSNs of the PDC before it."""
        self.most = MOST
        """Number of PSN records that a direction keeps."""

    @property
    def by_key(self) -> dict[Key, PdcDirection]:
        """Return the known ends by key. Each `sweep` may replace this dictionary by a new one."""
        return self.flows.by_key

    @property
    def forgotten(self) -> dict[str, int]:
        return {"silent": self.flows.silent // 2, "evicted": (self.flows.evicted + 1) // 2}

    def close(self) -> None:
        """Drop all PDCs after the last packet. The links between their objects are removed. Python frees objects at
        once only if they do not refer to each other."""
        ends = list(self.flows)
        for direction in ends:
            direction.pdc.initiator = direction.before = direction.after = None
        for direction in ends:
            del direction.other
        del self._owner, self.flows

    # Requests and control packets: `seen.src` is the end that is looked for ----------------------------------------

    def of_syn(self, seen: ObservedPacket, own: int, start: int) -> PdcDirection:
        """Return the direction of a SYN packet. If the known PDC on the PDCID has another Start_PSN, a new PDC begins,
        and its direction is returned.

        If the packet surely belongs to a known PDC although its PDCID or Start_PSN differs, the direction of that PDC
        is returned, and the caller reports the difference.
        """
        direction = self.by_key.get((seen.src, own, seen.dst))
        if direction is None:
            misnamed = self._starts.get((seen.src, start, seen.dst)) if seen.head.psn_offset else None
            if misnamed is not None and misnamed.id and misnamed.fits(seen.head.psn):
                return misnamed
            direction = self._pair(seen, own, 0)
        elif _has_another_start(direction, seen.head, start) or (
            _goes_on(direction, seen.head, start) and (self.certain or _is_no_successor(direction, seen, start))
        ):
            return direction
        elif direction.start is None and _can_start(direction, start):
            pass
        elif direction.start != start:
            before = direction.before
            if before is not None and before.start == start:
                return before
            direction = self.renew(seen, direction, 0)
        if direction.start is None:
            direction.start = start
            direction.pdc.initiator = direction
            if direction.lowest is None:
                direction.next = start
            if self.certain:
                _remember(self._starts, (seen.src, start, seen.dst), direction)
        return direction

    def of_sender(self, seen: ObservedPacket, own: int, peer: int, psn: int | None) -> PdcDirection:
        """Return the direction in which the sender of a packet without SYN sends. `psn` is a PSN of that direction, or
        None if the packet has none."""
        direction = self.by_key.get((seen.src, own, seen.dst))
        if direction is None:
            back = self.by_key.get((seen.dst, peer, seen.src)) if peer else None
            if back is None or back.other.id not in (0, own) or (psn is not None and not back.other.is_near(psn)):
                return self._pair(seen, own, peer, None if back is None else back.other)
            direction = back.other
            before = direction.before
            if before is not None and before.id == own and psn is not None and _is_old(direction, before, psn):
                return before
            self.learn(direction, own)
        if psn is None or direction.is_near(psn):
            return direction
        before = direction.before
        if before is not None and before.is_near(psn):
            return before
        return self.renew(seen, direction, peer)

    def misnamed(self, seen: ObservedPacket, own: int, peer: int, psn: int) -> PdcDirection | None:
        """Return the direction to which a request surely belongs although its SPDCID is not the known PDCID of its
        sender, or None if there is no such direction."""
        named = self.by_key.get((seen.src, own, seen.dst))
        back = self.by_key.get((seen.dst, peer, seen.src)) if peer else None
        if back is None or back.other is named or not back.other.id or (named is not None and named.is_near(psn)):
            return None
        return back.other if back.other.fits(psn) else None

    # ACKs and NACKs: `seen.dst` is the end that is looked for ---------------------------------------------------------

    def of_receiver(self, seen: ObservedPacket, own: int, peer: int, cack: int) -> PdcDirection | None:
        """Return the direction whose requests an ACK answers, or None if the ACK belongs to a PDC that was dropped."""
        direction = self.by_key.get((seen.dst, peer, seen.src))
        if direction is None:
            back = self.by_key.get((seen.src, own, seen.dst))
            if back is None or back.other.id not in (0, peer):
                return self._pair(seen, own, peer, None if back is None else back.other).other
            direction = back.other
            self.learn(direction, peer)
        if direction.is_near(cack) and direction.other.id in (0, own):
            if direction.other.id == 0 and _may_end(direction, cack):
                self.learn(direction.other, own)
                direction.other.learned = seen.number
            return direction
        before = direction.before
        if before is not None and before.is_near(cack) and before.other.id in (0, own):
            return before
        if direction.is_near(cack) and direction.other.id != own:
            return direction  # the caller handles the different PDCID
        return self.renew(seen, direction.other, peer).other if own else None

    def answered(self, seen: ObservedPacket) -> PdcDirection | None:
        """Return the direction of the request that an ACK surely answers although the ACK's DPDCID is not the known
        PDCID of its receiver. It is None if there is no such request."""
        head = seen.head
        named = self.by_key.get((seen.dst, head.dpdcid, seen.src))
        back = self.by_key.get((seen.src, head.spdcid, seen.dst))
        if back is None or back.other is named or back.other.id in (0, head.dpdcid) or back.pdc.over:
            return None
        direction = back.other
        if "ack_psn_offset" not in head._fields or (named is not None and named.is_near(head.cack_psn)):
            return None
        record = direction.records.get(add32(head.cack_psn, head.ack_psn_offset))
        return direction if record is not None and direction.is_near(head.cack_psn) else None

    def refused(self, seen: ObservedPacket, peer: int) -> PdcDirection | None:
        """Return the direction whose packet a NACK refuses, or None if the PDC is not known."""
        return self.by_key.get((seen.dst, peer, seen.src))

    def is_unknown(self, *keys: Key) -> bool:
        """Return whether the ends with these keys surely have had no PDC. This is known only in a complete and ordered
        capture that has the SYN packet of the first PDC between the two hosts."""
        if not self.certain or any(key in self.by_key or key in self._dropped for key in keys):
            return False
        here, _, there = keys[0]
        return self._begun.get((here, there) if here < there else (there, here), False)

    def is_unsent(self, direction: PdcDirection | None, peer: int, psn: int) -> bool:
        """Return whether an answer to this PDC surely names a PSN that was not sent, because that PSN is far from all
        PSNs of the PDC."""
        if direction is None or not self.certain or direction.other.id not in (0, peer) or direction.is_near(psn):
            return False
        before = direction.before
        return before is None or not before.is_near(psn)

    # Instances --------------------------------------------------------------------------------------------------------

    def renew(self, seen: ObservedPacket, direction: PdcDirection, peer: int) -> PdcDirection:
        """Begin another PDC on the PDCID of `direction`, and return the new PDC's direction from the same sender. This
        sender sent the packet `seen`."""
        return self._pair(seen, direction.id, peer, direction if direction.after is None else direction.after)

    def note_again(self, hosts: Hosts) -> None:
        """Note that, between these hosts, a PDC uses PSNs of the closed or refused PDC before it."""
        if len(self.again) < PAIRS:
            self.pairs()[hosts] = None

    def pairs(self) -> dict[Hosts, None]:
        """Return the dictionary `again`, to which the caller may add pairs of hosts. The first call makes it."""
        if self.again is NOTHING:
            self.again = {}
        return self.again

    def sweep(self, now: int, quiet: bool = False) -> None:
        """Drop PDCs that were already closed at the last sweep, PDCs that are silent at `now` (nanoseconds), and the
        least recent PDCs if there are too many. If `quiet` is True, drop all closed PDCs."""
        flows = self.flows
        if not flows.is_due():
            return
        for direction in list(flows):
            pdc = direction.pdc
            if pdc.closed and (quiet or pdc.swept):
                self._forgotten(direction)
        for direction in flows:
            direction.pdc.swept = direction.pdc.closed
        flows.sweep(now)
        self.most = max(FEWEST, min(MOST, RECORDS // max(1, len(self.by_key))))
        for direction in flows:
            if direction.pdc.closed:
                direction.shorten(0)
            elif len(direction.records) > self.most:
                direction.shorten(self.most // 2)

    def _pair(self, seen: ObservedPacket, own: int, peer: int, old: PdcDirection | None = None) -> PdcDirection:
        """Add a PDC and return its direction in which `seen` was sent. `old` is the same direction of the PDC that had
        the PDCID before, or None."""
        pdc = AuditedPdc(1 if old is None else old.pdc.instance + 1, seen.time_ns)
        here, there = PdcDirection(pdc, seen.src, own), PdcDirection(pdc, seen.dst, peer)
        here.other, there.other = there, here
        if old is not None:
            old.pdc.over = True
            for new, end in ((here, old), (there, old.other)):
                self._drop(end)
                if end.before is not None:
                    self._owner.closed(end.before)
                    end.before = None
                end.shorten(MOST // 4)
                new.before, end.after = end, new
        if self.certain and here.hosts not in self._begun and len(self._begun) < PAIRS:
            self._begun[here.hosts] = "psn_offset" in seen.head._fields
        for end in (here, there):
            if end.id:
                self._place(end)
            self._owner.opened(end)
        return here

    def learn(self, direction: PdcDirection, pdcid: int) -> None:
        """Set the PDCID of the sender of `direction` to `pdcid`. The old PDCID was wrong or not known. A `pdcid` of 0
        changes nothing."""
        if pdcid and direction.id != pdcid:
            direction.id = pdcid
            if not direction.pdc.over:
                self._place(direction)

    def _place(self, direction: PdcDirection) -> None:
        """Enter an end into the table. Another PDC that had the PDCID of this end is dropped."""
        key = (direction.sender, direction.id, direction.other.sender)
        displaced = self.by_key.get(key)
        if displaced is not None and displaced.pdc is not direction.pdc:
            self._forgotten(displaced)
        self.by_key[key] = direction

    def _drop(self, direction: PdcDirection) -> None:
        key = (direction.sender, direction.id, direction.other.sender)
        if self.by_key.get(key) is direction:
            del self.by_key[key]
        direction.fast = NEVER

    def _forgotten(self, direction: PdcDirection) -> None:
        if direction.pdc.forgotten:
            return  # as the other end
        direction.pdc.over = direction.pdc.forgotten = True
        for end in (direction, direction.other):
            self._drop(end)
            if self.certain:
                _remember(self._dropped, (end.sender, end.id, end.other.sender), None)
            self._owner.closed(end)
            if end.before is not None:
                self._owner.closed(end.before)
                end.before = None
        direction.pdc.initiator = None
        for end in (direction, direction.other):
            end.forget_other()


def _has_another_start(direction: PdcDirection, head: Head, start: int) -> bool:
    """Return whether a SYN packet surely belongs to this PDC although the packet has another Start_PSN."""
    if direction.start in (None, start) or direction.demanded is not None:
        return False
    before = direction.before
    if before is not None and before.start == start:
        return False
    clears_more = "clear_psn_offset" in head._fields and head.psn_offset + head.clear_psn_offset < -1
    if diff32(start, direction.next) >= 0 and not clears_more:
        return False  # the first packets of a new PDC, which may begin behind the PSNs of one that failed
    return direction.fits(head.psn)


def _goes_on(direction: PdcDirection, head: Head, start: int) -> bool:
    """Return whether a SYN packet has the psn_offset of the next packet of this PDC although it has another Start_PSN.

    A new PDC would begin with psn_offset 0, so in a complete and ordered capture the packet surely belongs to this PDC.
    """
    if direction.start in (None, start) or direction.demanded is not None or direction.nacked or direction.pdc.over:
        return False
    if direction.pdc.close_psn is not None or (direction.before is not None and direction.before.start == start):
        return False
    expected: int = head.psn_offset
    return 0 < expected == diff32(direction.next, direction.start or 0)


def _is_no_successor(direction: PdcDirection, seen: ObservedPacket, start: int) -> bool:
    """Return whether a SYN packet for which `_goes_on` holds cannot belong to a later PDC whose first packets were not
    captured.

    Either PSNs of the later PDC would be those of this one, or the packet continues a message, no ACK came, and the
    time since the last packet of this PDC is too short to close it and to open another.
    """
    passed = seen.time_ns - direction.pdc.last_ns
    if abs(diff32(start, direction.start or 0)) < seen.head.psn_offset:
        return 0 <= passed < QUARANTINE
    continues = seen.ses is not None and getattr(seen.ses, "som", 1) == 0
    return continues and direction.cack is None and 0 < passed < REOPENING


def _remember(known: dict[Key, Value], key: Key, value: Value) -> None:
    known[key] = value
    if len(known) > PAIRS:
        del known[next(iter(known))]


def _can_start(direction: PdcDirection, start: int) -> bool:
    """Return whether the packets seen of a direction, all without SYN, can belong to a PDC that begins at `start`."""
    if direction.is_return:
        return False
    oldest, cack = direction.lowest, direction.cack
    return (oldest is None or 0 <= diff32(oldest, start) < FAR) and (cack is None or -1 <= diff32(cack, start) < FAR)


def _may_end(direction: PdcDirection, cack: int) -> bool:
    """Return whether an ACK may belong to this PDC, because its CACK_PSN is not older than Start_PSN allows. The SPDCID
    of such an ACK is the PDCID of the other end."""
    return direction.start is None or diff32(cack, direction.start) >= -1


def _is_old(direction: PdcDirection, before: PdcDirection, psn: int) -> bool:
    """Return whether a PSN that the target used belongs to the PDC before this one, because the PSN is below Start_PSN,
    at which both directions of a PDC begin."""
    start = direction.other.start
    return before.is_near(psn) and (start is None or diff32(psn, start) < 0)
