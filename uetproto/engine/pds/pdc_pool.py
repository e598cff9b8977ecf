"""The pool of PDCs of an endpoint holds PDCIDs, free or in quarantine, draws Start_PSNs, and keeps tombstones.

UE 1.0.1 §3.5.8; pds.md §2.2 (reuse of PDCIDs and PSNs), §6.1 (pools), §6.2 items 3 and 9, §16 (MSL).
"""

from collections import deque
from dataclasses import asdict, dataclass

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Rng
from uetproto.engine.pds.lifecycle import Tombstone, tombstone_of
from uetproto.engine.pds.messages import Control
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.secure_start import ExpectedStart, policy_of, raised
from uetproto.engine.pds.states import Role, State
from uetproto.errors import LocalError
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
_MAX_PDCID = 0xFFFF
_START_DISTANCE = 1 << 16
"""Least distance of a Start_PSN from the last PSN used on its PDCID (pds.md §2.2)."""

_PSNS = range(1 << 32)
_PRESETS = {
    "pdcid": range(1, 1 << 16), "start_psn": _PSNS, "peer_pdcid": range(1 << 16), "forward_next": _PSNS,
    "return_next": _PSNS, "ack_gen_count": range(1 << 31), "expected_psn": _PSNS,
}  # fmt: skip


@dataclass(slots=True)
class Preset:
    """A preset gives numbers to a PDC in place of drawn ones (`[preset]` of a scenario).

    For a PDC still to be opened: `pdcid` and `start_psn`, used once. For `Pds.adopt`, an ESTABLISHED PDC in the middle
    of its life, also the others; nothing is in flight: CACK = CLEAR = the PSN before `forward_next`, `return_next`.
    """

    pdcid: int | None = None
    start_psn: int | None = None
    peer_pdcid: int = 0
    forward_next: int = 0
    return_next: int = 0
    ack_gen_count: int = 0
    """Number of bytes that an adopted PDC counts as received since the last ACK (pds.md §8.3)."""
    expected_psn: int | None = None
    """Expected_PSN of secure start for the endpoint (pds.md §6.6); after a restart, the former `Pds.expected_psn`."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            limit = _PRESETS[name]
            if value is not None and (type(value) is not int or value not in limit):
                raise LocalError(name, f"{value!r} is not legal", f"{limit.start} … {limit[-1]}")


class PdcPool:
    """Holds the open PDCs, and the PDCIDs that are free, reserved or in quarantine."""

    def __init__(self, config: PdsConfig, rng: Rng) -> None:
        self.config = config
        self.rng = rng
        self.start_policy = policy_of(config, rng)
        """Policy of secure start (pds.md §6.6); a harness may replace it."""
        self.pdcs: dict[int, Pdc] = {}
        """The open PDCs by local PDCID."""
        self._by_peer: dict[tuple[int, int], Pdc] = {}
        """PDCs by {address, PDCID} of the peer, where its PDCID is known."""
        self.presets: deque[Preset] = deque()
        self.expiring: deque[tuple[int, Tombstone]] = deque()
        """Closed PDCs with the time when their PDCID and tombstone are released."""
        self._quarantined: set[int] = set()
        self.tombstones: dict[tuple[int, int, int], Tombstone] = {}
        """Targets closed less than MSL ago, by {address, PDCID} of the peer and Start_PSN (pds.md §6.2 item 9)."""
        self._closed: dict[int, Tombstone] = {}
        """Targets closed less than MSL ago by local PDCID: the last one that had it."""
        self.last_psn: dict[int, int] = {}
        self.reserved_open = self.targets = 0
        self._reserved: set[int] = set()
        self.spare: set[int] = set()
        """Reserved PDCIDs that no PDC has."""
        self.cccs: dict[int, int] = {}
        """Number of PDCs of each peer, which share its congestion-control context."""
        self.next_id = 1

    def preset(self, preset: Preset) -> None:
        """Put the numbers for the next PDC that is opened here, in either role, in the queue."""
        if preset.pdcid is not None and (preset.pdcid in self.pdcs or self._is_preset(preset.pdcid)):
            raise LocalError("pdcid", f"{preset.pdcid} is in use, or preset for another PDC")
        if preset.expected_psn is not None:
            if not isinstance(self.start_policy, ExpectedStart):
                raise LocalError("expected_psn", f"{preset.expected_psn} is not legal without secure_start expected")
            self.start_policy.expected = self.start_policy.begin = preset.expected_psn
        if preset.pdcid is not None or preset.start_psn is not None:
            self.presets.append(preset)

    @property
    def expected_psn(self) -> int | None:
        """Return the Expected_PSN that a target needs after a restart (tss.md §11); None without secure_start expected.

        It is newer than every PSN of the PDCs opened to this endpoint, open ones included. The driver stores it and
        presets it in the next endpoint under the same keys; without it, a new key or epoch is needed. An initiator
        needs no number: the target demands one, at the cost of a round trip.
        """
        policy = self.start_policy
        if not isinstance(policy, ExpectedStart):
            return None
        expected = policy.expected
        for pdc in self.pdcs.values():
            if pdc.role is Role.TARGET and pdc.state is not State.PENDING:
                expected = raised(expected, *policy.used(pdc.rx.start, pdc.last_psn))
        return expected

    def has_room(self, reserved: bool) -> bool:
        """Return True when another PDC may be opened: its pool has room, and a PDCID is free or not in quarantine."""
        open_now = len(self.pdcs)
        if open_now + len(self.expiring) >= _MAX_PDCID:
            return False
        if reserved:
            return self.reserved_open + len(self.spare) < self.config.reserved_pdcs
        return open_now - self.reserved_open < self.config.max_pdcs

    def reserve(self) -> int:
        """Reserve two PDCIDs for `Pds.open_reserved`, an even one and the next; return the even one.

        A peer can then be told which PDCs will be opened to it. Raises `LocalError` when the pool has fewer.
        """
        room = self.config.reserved_pdcs - self.reserved_open - len(self.spare)
        for even in range(_MAX_PDCID - 1, 0, -2):
            if room < 2:
                break
            pair = {even, even + 1}
            if not (pair & self.pdcs.keys() or pair & self._quarantined or pair & self._reserved):
                self._reserved |= pair
                self.spare |= pair
                return even
        raise LocalError(
            "reserved_pdcs", f"{self.config.reserved_pdcs} are too few; {room} are left, legal: 2 and more"
        )

    def release(self, even: int) -> None:
        """Release a pair of reserved PDCIDs; PDCs that still use them end as usual."""
        pair = {even, even + 1}
        self._reserved -= pair
        self.spare -= pair

    def allocate(self, preset: Preset) -> int:
        """Return a local PDCID: never 0, not in use and not in quarantine."""
        if preset.pdcid is not None:
            if preset.pdcid in self.pdcs:
                raise LocalError(f"PDCID {preset.pdcid} is in use")
            return preset.pdcid
        for _ in range(_MAX_PDCID):
            local = self.next_id
            self.next_id = local % _MAX_PDCID + 1
            taken = local in self.pdcs or local in self._quarantined or local in self._reserved
            if not taken and not self._is_preset(local):
                return local
        raise LocalError("no PDCID is free")

    def _is_preset(self, local: int) -> bool:
        return any(preset.pdcid == local for preset in self.presets)

    def draw_start(self, local: int) -> int:
        """Return a random Start_PSN: not 0, and away from the last PSN used on this PDCID (pds.md §2.2)."""
        last = self.last_psn.get(local)
        while True:
            start = self.rng.getrandbits(32)
            if start and (last is None or abs(diff32(start, last)) >= _START_DISTANCE):
                return start

    def enroll(self, pdc: Pdc) -> None:
        """Add an opened PDC to its pools."""
        self.pdcs[pdc.local_id] = pdc
        self.reserved_open += pdc.reserved
        self.spare.discard(pdc.local_id)
        self.targets += pdc.role is Role.TARGET
        self.cccs[pdc.peer] = self.cccs.get(pdc.peer, 0) + 1
        if pdc.peer_id:
            self._by_peer[pdc.peer, pdc.peer_id] = pdc

    def quarantine(self, pdc: Pdc, clean: bool, now: int) -> None:
        """Remove a closed PDC; its PDCID and its tombstone stay in quarantine for MSL."""
        del self.pdcs[pdc.local_id]
        self.reserved_open -= pdc.reserved
        if pdc.local_id in self._reserved:
            self.spare.add(pdc.local_id)
        self.targets -= pdc.role is Role.TARGET
        self.cccs[pdc.peer] -= 1
        if not self.cccs[pdc.peer]:
            del self.cccs[pdc.peer]
        if pdc.peer_id and self._by_peer.get((pdc.peer, pdc.peer_id)) is pdc:
            del self._by_peer[pdc.peer, pdc.peer_id]
        initiator = pdc.role is Role.INITIATOR
        self.last_psn[pdc.local_id] = pdc.tx.last
        delivered = initiator or pdc.rx.max_rcvd != (pdc.rx.start - 1) & _M32  # else it was PENDING
        if self.start_policy is not None and delivered:
            self.start_policy.closed(pdc.rx.start, pdc.last_psn, initiator)
        tombstone = tombstone_of(pdc, clean)
        self.expiring.append((now + self.config.msl, tombstone))
        if self.config.pdcid_quarantine == "MSL":
            self._quarantined.add(pdc.local_id)
        if not initiator and delivered:
            self.tombstones[pdc.peer, pdc.peer_id, pdc.rx.start] = self._closed[pdc.local_id] = tombstone

    def release_expired(self, now: int) -> None:
        """Release the PDCIDs and tombstones whose MSL is over."""
        expiring = self.expiring
        while expiring and expiring[0][0] <= now:
            old = expiring.popleft()[1]
            self._quarantined.discard(old.local_id)
            if self.tombstones.get((old.peer, old.peer_id, old.start)) is old:
                del self.tombstones[old.peer, old.peer_id, old.start]
            if self._closed.get(old.local_id) is old:
                del self._closed[old.local_id]

    def tombstone(self, packet: Control, src: int) -> Tombstone | None:
        """Return the PDC that this CLOSE_CMD closed before (pds.md §20 row 17)."""
        old = self._closed.get(packet.dpdcid)
        if old is None or (old.peer, old.peer_id, old.close_psn) != (src, packet.spdcid, packet.psn):
            return None
        return old

    def learned(self, pdc: Pdc, before: int) -> None:
        """Register the PDCID of a target, which its initiator knows now.

        A peer that uses a PDCID twice does not remove the PDC of which this endpoint is the target.
        """
        if before and self._by_peer.get((pdc.peer, before)) is pdc:
            del self._by_peer[pdc.peer, before]
        known = self._by_peer.get((pdc.peer, pdc.peer_id))
        if known is None or known.role is Role.INITIATOR:
            self._by_peer[pdc.peer, pdc.peer_id] = pdc

    def of_syn(self, src: int, spdcid: int) -> Pdc | None:
        """Return the PDC that a SYN packet belongs to, by the address and PDCID of the sender.

        Without quarantine (`pdcid_quarantine` = 0) the peer may have closed on a CLOSE_CMD whose ACK was lost, and
        used the PDCID again: it no longer names the PDC that waits here for the ACK.
        """
        pdc = self._by_peer.get((src, spdcid))
        if pdc is None or pdc.state is not State.CLOSE_ACK_WAIT or self.config.pdcid_quarantine == "MSL":
            return pdc
        del self._by_peer[src, spdcid]
        return None


def is_sender(pdc: Pdc, src: int, spdcid: int) -> bool:
    """Return True when address and PDCID of a sender fit the PDC (pds.md §6.3 rows 3, 12).

    Before ESTABLISHED any PDCID fits (row 4).
    """
    known = spdcid if pdc.state is State.CREATING else pdc.peer_id
    return src == pdc.peer and spdcid == known != 0
