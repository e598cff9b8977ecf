"""A secure domain at one endpoint: its two keys, how it seals packets, which packets it refuses (tss.md §3, §8–10).

The domain has no timers: the driver installs, switches and empties keys when the key server says so.
"""

from dataclasses import dataclass
from typing import NamedTuple

from uetproto.engine.tss.cipher import AssociatedData, Cipher, Refused, SecurityHeader
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.errors import LocalError, shown
from uetproto.wire.headers.uet_pds import RUD_REQ

_M16 = 0xFFFF
_NEWER = 0x8000
"""Distance from which an epoch is newer (tss.md §9)."""
_HALF = 1 << 47
"""First counter of servers (tss.md §4)."""
_LAST = 2**48 - 1
_CLEAR_PDS = RUD_REQ.size
"""Bytes of the PDS that a trimmed packet must have in clear for its PSN to be read (tss.md §7.2)."""


@dataclass(slots=True)
class TssCounters:
    """The counters that one endpoint has for one domain (tss.md §8, §9)."""

    in_auth_pkts: int = 0
    """Counts packets that were opened."""
    in_auth_fail: int = 0
    """Counts packets that could not be opened."""
    in_late_pkts: int = 0
    """Counts packets refused for their epoch."""
    in_invalid: int = 0
    """Counts packets refused as the domain is latched, or for their SSI or counter."""
    in_invalid_sa: int = 0
    """Counts packets refused as the domain is disabled."""
    in_trimmed: int = 0
    """Counts trimmed packets, which have lost their ICV and are dropped (tss.md §7.2)."""
    in_binding_failure_pkts: int = 0
    """Counts opened packets whose domain is not that of their PDC."""
    out_auth_pkts: int = 0
    """Counts sealed packets."""
    out_errored_pkts: int = 0
    """Counts packets not sent as the domain is disabled, or has no key or no SSI for them."""
    out_invoke_fail: int = 0
    """Counts packets not sent as no counter is left under the key."""


class OpenedPacket(NamedTuple):
    """An opened packet and its security header, which is None for a packet in clear."""

    inner: bytes
    header: SecurityHeader | None


class TrimmedPart(NamedTuple):
    """The PDS bytes of a trimmed packet that were sent in clear, which nothing authenticates (tss.md §7.2).

    They serve for the PSN of a NACK TRIMMED only.
    """

    clear: bytes
    header: SecurityHeader


class SecureDomain:
    """A secure domain with the state that one member keeps for it."""

    def __init__(
        self, domain: DomainConfig, address: int, ip_version: int, *, tx_an: int = 0, epoch: int = 0,
        ledger: NonceLedger | None = None,
    ) -> None:  # fmt: skip
        """`tx_an` and `epoch` are the first ones; a member that may have lost its counter needs a new epoch.

        Raises `LocalError` where nonces would repeat (tss.md §4, §10).
        """
        _check_an("tx_an", tx_an)
        _check_epoch(epoch)
        _check_senders(domain, ip_version)
        self.domain = domain
        self.enabled = True
        self.domain_dropping = False
        """Tells whether the latch is set, which drops all received packets."""
        self.counters = TssCounters()
        self.tx_an = tx_an
        self._epochs = [keys[0].epoch or 0 if keys else 0 for keys in domain.keys]
        """Epoch of each AN: it belongs to the key, as the members of a rotation do not switch at the same time."""
        self._epochs[tx_an] = epoch or self._epochs[tx_an]
        self._slots: list[Cipher | None] = [Cipher(domain, keys[0], ledger) if keys else None for keys in domain.keys]
        self._spent: list[DomainKey] = []
        """Keys that have sealed packets and must not start at counter 0 again."""
        self._failures = 0
        self._ledger = ledger
        self._is_split = domain.mode == "client-server" and domain.strict_tsc_halves
        is_server = address in domain.servers
        self._first = _HALF if self._is_split and is_server else 0
        end = min(self._first + domain.invoke_fatal_threshold, _LAST)
        self._end = min(end, _HALF) if self._is_split and not is_server else end
        self.tx_counter = self._first
        """Next counter of this member, for all its PDCs and peers."""
        self._begin()

    @property
    def tx_epoch(self) -> int:
        """Return the epoch of sealed packets."""
        return self._epochs[self.tx_an]

    # Sending

    def seal(self, below: AssociatedData, inner: bytes) -> bytes | None:
        """Return the packet from security header to ICV, with a new counter also for a retransmission (tss.md §8).

        Return None for a packet that must not be sent, which is counted.
        """
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
        self.tx_counter += 1
        self.counters.out_auth_pkts += 1
        return cipher.seal(header, below, inner)

    # Receiving

    def receive(
        self, header: SecurityHeader, below: AssociatedData, sealed: bytes, *, is_trimmed: bool = False
    ) -> OpenedPacket | TrimmedPart | Refused:
        """Apply the checks of tss.md §9 from the third on, in its order. `header` is the start of `sealed`."""
        counters, domain = self.counters, self.domain
        if not self.enabled:
            counters.in_invalid_sa += 1
            return Refused("the domain is disabled", domain.sdi)
        if self.domain_dropping:
            counters.in_invalid += 1
            return Refused("the domain drops all, after too many failures", domain.sdi)
        if domain.ssis and header.ssi is None:
            counters.in_invalid += 1
            return Refused("no SSI", domain.sdi)
        if self._is_split and bool(header.tsc & _HALF) is not (below.src in domain.servers):
            counters.in_invalid += 1
            return Refused("a counter from the half of the other side", domain.sdi)
        if domain.rx_max_epoch_lifetime < (self._epochs[header.an] - header.epoch) & _M16 < _NEWER:
            counters.in_late_pkts += 1
            return Refused("its epoch is over", domain.sdi)
        if is_trimmed:
            return self._trimmed(header, sealed)
        cipher = self._slots[header.an]
        inner = cipher.open(header, below, sealed) if cipher else None
        if inner is None:
            self._fail()
            return Refused("does not open", domain.sdi)
        counters.in_auth_pkts += 1
        return OpenedPacket(inner, header)

    def _fail(self) -> None:
        self.counters.in_auth_fail += 1
        self._failures += 1
        if self._failures > self.domain.auth_fail_threshold:
            self.domain_dropping = True

    def _trimmed(self, header: SecurityHeader, sealed: bytes) -> TrimmedPart | Refused:
        """Drop a trimmed packet, whose ICV is lost, except its PDS bytes in clear (tss.md §7.2)."""
        clear = sealed[header.size : self.domain.clear_bytes]
        if len(clear) >= _CLEAR_PDS:
            return TrimmedPart(clear, header)
        self.counters.in_trimmed += 1
        return Refused("trimmed: its ICV is gone", self.domain.sdi)

    def clear_dropping(self) -> None:
        """Clear the latch and the count of failures."""
        self.domain_dropping = False
        self._failures = 0

    # Keys: make before break (tss.md §10)

    def install(self, an: int, key: DomainKey) -> None:
        """Install a new key for the idle AN. Raises `LocalError` for the AN in use, and for a key that has sealed."""
        _check_an("an", an)
        if an == self.tx_an and self._slots[an] is not None:
            raise LocalError("an", f"{an} is in use", 1 - an)
        if self._is_spent(key):
            raise LocalError("key", "it has sealed packets", "a new one")
        self._slots[an] = Cipher(self.domain, key, self._ledger)
        self._epochs[an] = key.epoch or 0
        if an == self.tx_an:
            self._begin()

    def switch(self, an: int) -> None:
        """Seal with the key of the other AN from now on. Raises `LocalError` if there is none, or it has sealed."""
        _check_an("an", an)
        cipher = self._slots[an]
        if an == self.tx_an or cipher is None or self._is_spent(cipher.key):
            raise LocalError("an", f"{an} has no new key", f"the idle one, {1 - self.tx_an}, after `install`")
        self.tx_an = an
        self._begin()

    def empty(self, an: int) -> None:
        """Remove the key of an AN; packets with this AN fail from now on."""
        _check_an("an", an)
        self._slots[an] = None

    def move_epoch(self, epoch: int) -> None:
        """Use a newer epoch; counters continue. Raises `LocalError` for an older one, or under a client's key."""
        _check_epoch(epoch)
        cipher = self._slots[self.tx_an]
        if cipher is not None and cipher.key.derived:
            raise LocalError("epoch", "the key was derived for another", "a rotation to one of the new epoch")
        if not 0 < (epoch - self.tx_epoch) & _M16 < _NEWER:
            raise LocalError("epoch", f"{epoch} is not newer than {self.tx_epoch}", f"up to {_NEWER - 1} further")
        self._epochs[self.tx_an] = epoch

    def _begin(self) -> None:
        """Start the counter for the first packet under a key."""
        self.tx_counter = self._first
        cipher = self._slots[self.tx_an]
        if cipher is not None:
            self._spent.append(cipher.key)

    def _is_spent(self, key: DomainKey) -> bool:
        return any(key.value == spent.value for spent in self._spent)


def _check_senders(domain: DomainConfig, ip_version: int) -> None:
    """Check that members with one packet key differ in nonce prefix or in the half of the counter (tss.md §6)."""
    if domain.mode == "direct" and ip_version == 6 and not domain.ssis:
        raise LocalError("ssis", "none; legal in mode direct over IPv6: one for each member")
    splits = domain.mode == "client-server" and domain.strict_tsc_halves
    if splits and len(domain.servers) > 1 and (ip_version == 6 or domain.ssis):
        raise LocalError("servers", f"{len(domain.servers)}, with one prefix of nonces", "one, with SSI or over IPv6")


def _check_an(name: str, an: int) -> None:
    if an not in (0, 1):
        raise LocalError(name, shown(an), "0, 1")


def _check_epoch(epoch: int) -> None:
    if epoch not in range(_M16 + 1):
        raise LocalError("epoch", shown(epoch), f"0 … {_M16}")
