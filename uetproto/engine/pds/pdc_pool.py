# SPDX-License-Identifier: GPL-2.0-only
"""The pool of an endpoint holds its open PDCs, allocates PDCIDs, and draws Start_PSNs.

A closed PDC leaves a record (`lifecycle.Tombstone`) for MSL, and its PDCID is in quarantine for that time. UE 1.0.1
§3.5.8; pds.md §2.2 (reuse of PDCIDs and PSNs), §6.1 (pools), §6.2 items 3 and 9, §16 (MSL).
"""

from collections import deque
from dataclasses import dataclass

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
    """A preset sets the PDCID, the PSNs and other numbers of a PDC, which the engine otherwise chooses.

    A scenario has it as `[preset]`. The next PDC that is opened uses `pdcid` and `start_psn`. `Pds.adopt` makes an
    ESTABLISHED PDC, which uses the other numbers as well. No packet is in flight on such a PDC: `forward_next` and
    `return_next` are the next PSNs of the two directions, and CACK_PSN and CLEAR_PSN are one lower.
    """

    pdcid: int | None = None
    start_psn: int | None = None
    peer_pdcid: int = 0
    forward_next: int = 0
    return_next: int = 0
    ack_gen_count: int = 0
    """Number of bytes that an adopted PDC counts as received since the last ACK (pds.md §8.3)."""
    expected_psn: int | None = None
    """Expected_PSN of an endpoint with secure start (pds.md §6.6). After a restart it is the value that
    `Pds.expected_psn` had before the restart."""

    def __post_init__(self) -> None:
        for name, limit in _PRESETS.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value not in limit):
                raise LocalError(name, f"{value!r} is not legal", f"{limit.start} … {limit[-1]}", id="out-of-range")


class PdcPool:
    """This class holds the open PDCs, and the PDCIDs that are free, reserved or in quarantine."""

    def __init__(self, config: PdsConfig, rng: Rng) -> None:
        self.config = config
        self.rng = rng
        self.start_policy = policy_of(config, rng)
        """Policy of secure start (pds.md §6.6), or None without secure start. A test may replace the policy."""
        self.pdcs: dict[int, Pdc] = {}
        """The open PDCs by local PDCID."""
        self._by_peer: dict[tuple[int, int], Pdc] = {}
        """PDCs by {address, PDCID} of the peer, where its PDCID is known."""
        self.presets: deque[Preset] = deque()
        self.expiring: deque[tuple[int, Tombstone]] = deque()
        """Records of closed PDCs, each with the time in picoseconds at which the PDCID and the record are released."""
        self._quarantined: set[int] = set()
        self.tombstones: dict[tuple[int, int, int], Tombstone] = {}
        """Records of the PDCs of which this endpoint was the target, and which were closed less than MSL ago. The key
        is address of the peer, PDCID of the peer, and Start_PSN (pds.md §6.2 item 9)."""
        self._closed: dict[int, Tombstone] = {}
        """The same records by local PDCID; of several with one PDCID the last."""
        self.last_psn: dict[int, int] = {}
        """The last PSN sent on each local PDCID by a closed PDC."""
        self.reserved_open = self.targets = 0
        self._reserved: set[int] = set()
        self.spare: set[int] = set()
        """PDCIDs of `reserve` that no PDC uses now."""
        self.cccs: dict[int, int] = {}
        """Number of open PDCs to each peer. All PDCs to one peer share one congestion-control context."""
        self.next_id = 1

    def preset(self, preset: Preset) -> None:
        """Queue PDCID and Start_PSN for the next PDC of this endpoint, in either role, and set Expected_PSN at once.

        Raises `LocalError` for a PDCID that is in use or in another preset, and for `expected_psn` without secure
        start.
        """
        if preset.pdcid is not None and (preset.pdcid in self.pdcs or self._is_preset(preset.pdcid)):
            raise LocalError("pdcid", f"{preset.pdcid} is in use, or preset for another PDC", id="already-there")
        if preset.expected_psn is not None:
            if not isinstance(self.start_policy, ExpectedStart):
                raise LocalError(
                    "expected_psn", f"{preset.expected_psn} is not legal without secure_start expected",
                    id="inconsistent-values"
                )  # fmt: skip
            self.start_policy.expected = self.start_policy.begin = preset.expected_psn
        if preset.pdcid is not None or preset.start_psn is not None:
            self.presets.append(preset)

    @property
    def expected_psn(self) -> int | None:
        """Return the Expected_PSN that a target needs after a restart (tss.md §11).

        The value is above every PSN of the PDCs that were opened to this endpoint, also of the PDCs that are still
        open. The driver stores the value, and presets it in the next endpoint that uses the same keys. An endpoint that
        has lost the value needs a new key or epoch. An initiator needs no stored value, because the target demands a
        Start_PSN at the cost of a round trip. The value is None unless `secure_start` is `expected`.
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
        """Return True when another PDC may be opened: a PDCID is free, and the limit of PDCs is not reached.

        The limit is `reserved_pdcs` if `reserved` is True, else `max_pdcs`.
        """
        open_now = len(self.pdcs)
        if open_now + len(self.expiring) >= _MAX_PDCID:
            return False
        if reserved:
            return self.reserved_open + len(self.spare) < self.config.reserved_pdcs
        return self.free > 0

    @property
    def free(self) -> int:
        """Return how many more PDCs that are not reserved may be open (`max_pdcs`)."""
        return self.config.max_pdcs - (len(self.pdcs) - self.reserved_open)

    def reserve(self) -> int:
        """Reserve an even PDCID and the next odd PDCID for `Pds.open_reserved`, and return the even PDCID.

        The caller may announce the PDCIDs to a peer before it opens PDCs to that peer. Raises `LocalError` when fewer
        than two reserved PDCIDs are left.
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
            "reserved_pdcs", f"{self.config.reserved_pdcs} are too few; {room} are left, legal: 2 and more",
            id="resources-exhausted"
        )  # fmt: skip

    def release(self, even: int) -> None:
        """Release the reserved PDCIDs `even` and `even` + 1. PDCs that still use these PDCIDs stay open."""
        pair = {even, even + 1}
        self._reserved -= pair
        self.spare -= pair

    def allocate(self, preset: Preset) -> int:
        """Return the PDCID of the preset, or, if it has none, a local PDCID that is free and not 0.

        A PDCID is free when it is not in use, preset, reserved or in quarantine. Raises `LocalError` if the PDCID of
        the preset is in use, or no PDCID is free.
        """
        if preset.pdcid is not None:
            if preset.pdcid in self.pdcs:
                raise LocalError(f"PDCID {preset.pdcid} is in use", id="already-there")
            return preset.pdcid
        for _ in range(_MAX_PDCID):
            local = self.next_id
            self.next_id = local % _MAX_PDCID + 1
            taken = local in self.pdcs or local in self._quarantined or local in self._reserved
            if not taken and not self._is_preset(local):
                return local
        raise LocalError("no PDCID is free", id="resources-exhausted")

    def _is_preset(self, local: int) -> bool:
        return any(preset.pdcid == local for preset in self.presets)

    def draw_start(self, local: int) -> int:
        """Return a random Start_PSN that is not 0 and is far from the last PSN used on this PDCID (pds.md §2.2)."""
        last = self.last_psn.get(local)
        while True:
            start = self.rng.getrandbits(32)
            if start and (last is None or abs(diff32(start, last)) >= _START_DISTANCE):
                return start

    def enroll(self, pdc: Pdc) -> None:
        """Add an opened PDC to the pool, and count the PDC in the limits of the pool."""
        self.pdcs[pdc.local_id] = pdc
        self.reserved_open += pdc.reserved
        self.spare.discard(pdc.local_id)
        self.targets += pdc.role is Role.TARGET
        self.cccs[pdc.peer] = self.cccs.get(pdc.peer, 0) + 1
        if pdc.peer_id:
            self._by_peer[pdc.peer, pdc.peer_id] = pdc

    def quarantine(self, pdc: Pdc, clean: bool, now: int) -> None:
        """Remove a closed PDC, and keep its record for MSL.

        If `pdcid_quarantine` is MSL, the PDCID stays unused for that time as well.
        """
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
        delivered = initiator or pdc.rx.max_rcvd != (pdc.rx.start - 1) & _M32  # False: it never left PENDING
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
        """Return the record of the PDC that this CLOSE_CMD has already closed, or None (pds.md §20 row 17)."""
        old = self._closed.get(packet.dpdcid)
        if old is None or (old.peer, old.peer_id, old.close_psn) != (src, packet.spdcid, packet.psn):
            return None
        return old

    def learned(self, pdc: Pdc, before: int) -> None:
        """Register a PDC of this initiator under the PDCID of its target, in place of the PDCID `before`.

        This endpoint may itself be the target of a PDC with the same peer address and peer PDCID. If such a PDC is
        registered, it stays registered, and `pdc` is not added.
        """
        if before and self._by_peer.get((pdc.peer, before)) is pdc:
            del self._by_peer[pdc.peer, before]
        known = self._by_peer.get((pdc.peer, pdc.peer_id))
        if known is None or known.role is Role.INITIATOR:
            self._by_peer[pdc.peer, pdc.peer_id] = pdc

    def of_syn(self, src: int, spdcid: int) -> Pdc | None:
        """Return the PDC that has the address and the PDCID of the sender of a SYN packet, or None if no PDC has them.

        If the ACK of a CLOSE_CMD was lost, this endpoint still waits for the ACK. With `pdcid_quarantine` 0, the peer
        may have used its PDCID for a new PDC meanwhile. The SYN packet then belongs to the new PDC, and the result is
        None.
        """
        pdc = self._by_peer.get((src, spdcid))
        if pdc is None or pdc.state is not State.CLOSE_ACK_WAIT or self.config.pdcid_quarantine == "MSL":
            return pdc
        del self._by_peer[src, spdcid]
        return None


def is_sender(pdc: Pdc, src: int, spdcid: int) -> bool:
    """Return True when a sender has the address and the PDCID of the peer of the PDC (pds.md §6.3 rows 3, 12).

    In CREATING, any PDCID other than 0 is accepted (row 4).
    """
    known = spdcid if pdc.state is State.CREATING else pdc.peer_id
    return src == pdc.peer and spdcid == known != 0
