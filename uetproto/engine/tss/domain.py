# SPDX-License-Identifier: GPL-2.0-only
"""A secure domain at one endpoint has two keys; it seals packets, and opens or refuses packets (tss.md §3, §8–10).

The association number AN of a packet tells which of the two keys sealed it. The domain has no timers: the driver
installs, switches and removes keys when the key server says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from uetproto.engine.tss.cipher import AssociatedData, Cipher, PacketToSeal, Refused, Seal, SecurityHeader
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.errors import LocalError, shown
from uetproto.wire.headers.uet_pds import RUD_REQ

_M16 = 0xFFFF
_NEWER = 0x8000
"""Serial order of epochs: one is newer than another if it is less than this ahead (tss.md §9)."""
_HALF = 1 << 47
"""First counter of servers, whose half of the counters is the upper one (tss.md §4)."""
_LAST = 2**48 - 1
"""Largest counter: a TSC has 48 bits."""
_CLEAR_PDS = RUD_REQ.size
"""Bytes of the PDS header that must be in clear to read the PSN of a trimmed packet (tss.md §7.2)."""
_DISABLED, _LATE = "the domain is disabled", "its epoch is over"


@dataclass(slots=True)
class TssCounters:
    """These are the counters of one endpoint for one secure domain (tss.md §8, §9)."""

    in_auth_pkts: int = 0
    """Number of packets that were opened."""
    in_auth_fail: int = 0
    """Number of packets that could not be opened."""
    in_late_pkts: int = 0
    """Number of packets refused because their epoch is too old."""
    in_invalid: int = 0
    """Number of packets refused because the domain drops all packets, or because of their SSI or counter."""
    in_invalid_sa: int = 0
    """Number of packets refused because the domain is disabled."""
    in_trimmed: int = 0
    """Number of trimmed packets, which have lost their ICV and are dropped (tss.md §7.2)."""
    in_binding_failure_pkts: int = 0
    """Number of opened packets that came in another secure domain than that of their PDC."""
    out_auth_pkts: int = 0
    """Number of sealed packets."""
    out_errored_pkts: int = 0
    """Number of packets not sent because the domain is disabled, or has no key or no SSI for them."""
    out_invoke_fail: int = 0
    """Number of packets not sent because all counters of the key are used."""


class OpenedPacket(NamedTuple):
    """This is an opened packet with its security header; the header is None for a packet that was received in clear."""

    inner: bytes
    header: SecurityHeader | None


class TrimmedPart(NamedTuple):
    """These are the PDS bytes of a trimmed packet that were sent in clear; they are not authenticated (tss.md §7.2).

    Their only use is the PSN for a NACK TRIMMED.
    """

    clear: bytes
    header: SecurityHeader


class SealedRun(NamedTuple):
    """A sealed run has the frames of packets that were sealed one after the other in the same way."""

    frames: list[bytes]
    seal: Seal
    """How the first one was sealed; the counters of the others follow."""


class SecureDomain:
    """This is a secure domain at one member, with the keys, epochs and counters that the member keeps."""

    def __init__(
        self, domain: DomainConfig, address: int, ip_version: int, *, tx_an: int = 0, epoch: int = 0,
        ledger: NonceLedger | None = None, counter: int = 0,
    ) -> None:  # fmt: skip
        """`tx_an` is the association number with which the member seals first; `epoch` is the first epoch of the
        member; 0 stands for the epoch of its key. Under each key the member begins with `counter`, in its half.

        A member that may have lost its counter needs a new epoch, or a counter that it cannot have reached, as no nonce
        may be used twice.

        Raises `LocalError` if nonces would repeat (tss.md §4, §10).
        """
        _check_an("tx_an", tx_an)
        _check_epoch(epoch)
        _check_senders(domain, ip_version)
        self.domain = domain
        self.enabled = True
        self.domain_dropping = False
        """Whether all received packets are dropped, because too many packets could not be opened."""
        self.counters = TssCounters()
        self.tx_an = tx_an
        self._epochs = [keys[0].epoch or 0 if keys else 0 for keys in domain.keys]
        """Epoch of each AN. Each key has its own epoch, as members do not switch keys at the same time."""
        self._epochs[tx_an] = epoch or self._epochs[tx_an]
        self._slots: list[Cipher | None] = [Cipher(domain, keys[0], ledger) if keys else None for keys in domain.keys]
        self._spent: list[DomainKey] = []
        """Keys under which this member has sealed packets; they must not be installed again, as the counter would
        restart."""
        self._failures = 0
        self._ledger = ledger
        self._is_split = domain.mode == "client-server" and domain.strict_tsc_halves
        is_server = address in domain.servers
        self._first = (_HALF if self._is_split and is_server else 0) + counter
        end = min(self._first + domain.invoke_fatal_threshold, _LAST)
        self._end = min(end, _HALF) if self._is_split and not is_server else end
        self.tx_counter = self._first
        """Next counter of this member, for all its PDCs and peers."""
        self.last_seal: Seal | None = None
        """How the last packet was sealed."""
        self._begin()

    @property
    def tx_epoch(self) -> int:
        """Return the epoch of sealed packets."""
        return self._epochs[self.tx_an]

    # Sending

    def seal(self, below: AssociatedData, inner: bytes) -> bytes | None:
        """Return the sealed packet, from the security header to the ICV (tss.md §8).

        Each call uses a new counter, also for a retransmission. For a packet that must not be sent, return None and
        count the packet.
        """
        found = self._next_seal(below)
        if found is None:
            return None
        self.last_seal = found
        self.tx_counter += 1
        self.counters.out_auth_pkts += 1
        return found.cipher.seal(found.header, below, inner)

    def seal_run(self, below: AssociatedData, packets: Sequence[PacketToSeal]) -> SealedRun | None:
        """Seal the first packets of a sequence, those that have the same packet key, as `seal` does one after the
        other. `below` is that of the first packet; source and destination of all are the same.

        Return None if the first packet must not be sent, and count that packet.
        """
        seal = self._next_seal(below)
        if seal is None:
            return None
        counter = self.tx_counter
        count = min(len(packets), self._end - counter, _HALF - counter % _HALF, seal.cipher.same_key(seal.header))
        self.tx_counter += count
        self.counters.out_auth_pkts += count
        return SealedRun(seal.cipher.seal_run(seal.header, below, packets[:count]), seal)

    def _next_seal(self, below: AssociatedData) -> Seal | None:
        """Return how the next packet is sealed; None, after it is counted, if it must not be sent."""
        cipher = self._slots[self.tx_an]
        domain = self.domain
        ssi = domain.ssi_of(below.src, below.dst) if domain.ssis else None
        if not self.enabled or cipher is None or (ssi is None and domain.ssis):
            self.counters.out_errored_pkts += 1
            return None
        if self.tx_counter >= self._end:
            self.counters.out_invoke_fail += 1
            return None
        header = SecurityHeader(domain.sdi, self.tx_an, ssi, self._epochs[self.tx_an], self.tx_counter)
        return Seal(cipher, header, below)

    # Receiving

    def receive(
        self, header: SecurityHeader, below: AssociatedData, sealed: bytes, *, is_trimmed: bool = False
    ) -> OpenedPacket | TrimmedPart | Refused:
        """Apply the third check of tss.md §9 and all later checks, and open the packet. `sealed` starts with
        `header`."""
        domain = self.domain
        reason = self._reason_to_refuse(header, below)
        if reason is not None:
            return self._refuse(reason)
        if is_trimmed:
            return self._trimmed(header, sealed)
        cipher = self._slots[header.an]
        inner = cipher.open(header, below, sealed) if cipher else None
        if inner is None:
            self._fail()
            return Refused("does not open", domain.sdi)
        self.counters.in_auth_pkts += 1
        return OpenedPacket(inner, header)

    def opens(self, seal: Seal) -> bool:
        """Return whether `receive` would open a packet that arrives now as another member has sealed it, and those
        behind it in its `SealedRun`."""
        cipher = self._slots[seal.header.an]
        return cipher is not None and self._reason_to_refuse(seal.header, seal.below) is None and cipher.opens(seal)

    def _reason_to_refuse(self, header: SecurityHeader, below: AssociatedData) -> str | None:
        """Return why the checks 3 to 6 of tss.md §9 refuse a packet; None if they do not."""
        domain = self.domain
        if not self.enabled:
            return _DISABLED
        if self.domain_dropping:
            return "the domain drops all, after too many failures"
        if domain.ssis and header.ssi is None:
            return "no SSI"
        if self._is_split and bool(header.tsc & _HALF) is not (below.src in domain.servers):
            return "a counter from the half of the other side"
        if domain.rx_max_epoch_lifetime < (self._epochs[header.an] - header.epoch) & _M16 < _NEWER:
            return _LATE
        return None

    def _refuse(self, reason: str) -> Refused:
        """Count a packet that is refused before it is opened."""
        if reason == _DISABLED:
            self.counters.in_invalid_sa += 1
        elif reason == _LATE:
            self.counters.in_late_pkts += 1
        else:
            self.counters.in_invalid += 1
        return Refused(reason, self.domain.sdi)

    def _fail(self) -> None:
        self.counters.in_auth_fail += 1
        self._failures += 1
        if self._failures > self.domain.auth_fail_threshold:
            self.domain_dropping = True

    def _trimmed(self, header: SecurityHeader, sealed: bytes) -> TrimmedPart | Refused:
        """Return the PDS bytes in clear of a trimmed packet, whose ICV is lost; refuse it if they are too few (tss.md
        §7.2)."""
        clear = sealed[header.size : self.domain.clear_bytes]
        if len(clear) >= _CLEAR_PDS:
            return TrimmedPart(clear, header)
        self.counters.in_trimmed += 1
        return Refused("trimmed: its ICV is gone", self.domain.sdi)

    def clear_dropping(self) -> None:
        """Accept packets again, and reset the count of failures."""
        self.domain_dropping = False
        self._failures = 0

    # Keys: make before break (tss.md §10)

    def install(self, an: int, key: DomainKey) -> None:
        """Install a new key for an AN that is not in use.

        Raises `LocalError` if `an` is the AN that seals now and already has a key, or if `key` has sealed packets
        before.
        """
        _check_an("an", an)
        if an == self.tx_an and self._slots[an] is not None:
            raise LocalError("an", f"{an} is in use", 1 - an, id="security-state")
        if self._is_spent(key):
            raise LocalError("key", "it has sealed packets", "a new one", id="wrong-key")
        self._slots[an] = Cipher(self.domain, key, self._ledger)
        self._epochs[an] = key.epoch or 0
        if an == self.tx_an:
            self._begin()

    def switch(self, an: int) -> None:
        """Seal with the key of `an` from now on.

        Raises `LocalError` if `an` seals already, if it has no key, or if its key has sealed packets before.
        """
        _check_an("an", an)
        cipher = self._slots[an]
        if an == self.tx_an or cipher is None or self._is_spent(cipher.key):
            raise LocalError(
                "an", f"{an} has no new key", f"the idle one, {1 - self.tx_an}, after `install`", id="security-state"
            )
        self.tx_an = an
        self._begin()

    def has_key(self, an: int) -> bool:
        """Return whether an AN has a key."""
        return self._slots[an] is not None

    def empty(self, an: int) -> None:
        """Remove the key of an AN; the member can no longer seal or open packets with this AN."""
        _check_an("an", an)
        self._slots[an] = None

    def move_epoch(self, epoch: int) -> None:
        """Seal with a newer epoch from now on; the counter continues.

        Raises `LocalError` if the epoch is not newer. Raises it also if the member has a client's derived key, because
        this key is for one epoch only.
        """
        _check_epoch(epoch)
        cipher = self._slots[self.tx_an]
        if cipher is not None and cipher.key.derived:
            raise LocalError(
                "epoch", "the key was derived for another", "a rotation to one of the new epoch", id="security-state"
            )
        if not 0 < (epoch - self.tx_epoch) & _M16 < _NEWER:
            raise LocalError(
                "epoch", f"{epoch} is not newer than {self.tx_epoch}", f"up to {_NEWER - 1} further",
                id="security-state"
            )  # fmt: skip
        self._epochs[self.tx_an] = epoch

    def _begin(self) -> None:
        """Set the counter to its first value for the key that seals now, and note that the key is used."""
        self.tx_counter = self._first
        cipher = self._slots[self.tx_an]
        if cipher is not None:
            self._spent.append(cipher.key)

    def _is_spent(self, key: DomainKey) -> bool:
        return any(key.value == spent.value for spent in self._spent)


def _check_senders(domain: DomainConfig, ip_version: int) -> None:
    """Check that members with the same packet key differ in nonce prefix or half of the counters (tss.md §6).

    Raises `LocalError` otherwise, as two packets could have the same nonce.
    """
    if domain.mode == "direct" and ip_version == 6 and not domain.ssis:
        raise LocalError("ssis", "none; legal in mode direct over IPv6: one for each member", id="ssi-needed")
    splits = domain.mode == "client-server" and domain.strict_tsc_halves
    if splits and len(domain.servers) > 1 and (ip_version == 6 or domain.ssis):
        raise LocalError(
            "servers", f"{len(domain.servers)}, with one prefix of nonces", "one, with SSI or over IPv6",
            id="ssi-needed"
        )  # fmt: skip


def _check_an(name: str, an: int) -> None:
    if an not in (0, 1):
        raise LocalError(name, shown(an), "0, 1", id="out-of-range")


def _check_epoch(epoch: int) -> None:
    if epoch not in range(_M16 + 1):
        raise LocalError("epoch", shown(epoch), f"0 … {_M16}", id="out-of-range")
