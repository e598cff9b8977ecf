# SPDX-License-Identifier: GPL-2.0-only
"""This module seals and opens single packets by AES-256-GCM (tss.md §2–7). The packet key is the key of a secure domain
or is derived from this key.

Only this module imports the package `cryptography`, and only when a key is used. `domain` checks the fields of security
headers. tss.md §13 has test vectors.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from uetproto.engine.tss.keys import KEY_SIZE, MASK_SIZE, DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.errors import missing_package
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.headers.uet_tss import ICV_SIZE
from uetproto.wire.tuples import TssHeader, TssSsiHeader

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALL_COUNTERS = 2**48
"""Number of counters that there are: a TSC has 48 bits."""
_TSC_SIZE = 6
_LABELS = {"cluster": b"U1", "client-server": b"U2"}
_CACHE = 4096
"""Limit of derived keys that are kept for one key, so that forged epochs and addresses do not use up the memory."""


class SecurityHeader(NamedTuple):
    """This is the security header of a packet (tss.md §2)."""

    sdi: int
    """Secure domain identifier."""
    an: int
    """Association number, 0 or 1, which selects the key."""
    ssi: int | None
    """Secure source identifier; None if the header has none."""
    epoch: int
    tsc: int
    """Packet counter of the sender, 48 bits."""

    @classmethod
    def of(cls, data: bytes) -> "SecurityHeader | None":
        """Return the security header at the start of `data`; None if `data` does not start with a whole header."""
        if not data or data[0] >> 3 != PdsType.TSS:
            return None
        if data[0] & 0x04:
            if len(data) < TssSsiHeader.size:
                return None
            ssi = TssSsiHeader.read(data)
            return cls(ssi.sdi, ssi.an, ssi.ssi, ssi.epoch, ssi.tsc)
        if len(data) < TssHeader.size:
            return None
        plain = TssHeader.read(data)
        return cls(plain.sdi, plain.an, None, plain.epoch, plain.tsc)

    def encode(self) -> bytes:
        sdi, an, ssi, epoch, tsc = self
        if ssi is None:
            return TssHeader.pack(an=an, sdi=sdi, epoch=epoch, tsc=tsc)
        return TssSsiHeader.pack(an=an, sdi=sdi, ssi=ssi, epoch=epoch, tsc=tsc)

    @property
    def size(self) -> int:
        """Return the number of bytes of the header."""
        return TssHeader.size if self.ssi is None else TssSsiHeader.size

    @property
    def tsc64(self) -> int:
        """Return the 64 bits of epoch and counter, as the nonce contains them."""
        return self.epoch << 48 | self.tsc


class Refused(NamedTuple):
    """This result says why a packet was not opened."""

    reason: str
    sdi: int | None = None
    """SDI of the packet; None if the packet has none."""
    tried: bool = False
    """Whether a reader of captures tried keys on the packet, and none of them opened it."""
    sealed_as: SecurityHeader | None = None
    """Security header with which a reader of captures could open the packet, because the packet's own header was
    changed after sealing; None if no such header is known."""


class NonceSpace(NamedTuple):
    """A nonce space, an epoch and a counter identify a nonce: two nonces of one packet key are equal only if all three
    are equal (tss.md §6).
    """

    key: DomainKey
    identity: bytes
    """Bytes for which the packet key is derived: the label of the mode, then the SSI or address of the member. They are
    empty if `key` itself is the packet key."""
    prefix: int
    """First 32 bits of the nonce: SSI, IPv4 address of the sender, or SDI."""


class AssociatedData:
    """The associated data are the authenticated bytes before the security header, from the source address on (tss.md
    §7.1, §7.3).

    They are the same in all packets of a flow. A caller may therefore keep the object.
    """

    __slots__ = ("destination", "dst", "ip_version", "run", "source", "src")

    def __init__(self, ip_version: int, src: int, dst: int, ahead: bytes) -> None:
        """`ahead` holds the bytes between destination address and security header, with a UDP checksum of 0."""
        size = 4 if ip_version == 4 else 16
        self.ip_version = ip_version
        self.src = src
        self.dst = dst
        self.source = src.to_bytes(size, "big")
        self.destination = dst.to_bytes(size, "big")
        self.run = self.source + self.destination + ahead


class Seal(NamedTuple):
    """A seal says how a member sealed a packet: under which keys, with which header, and over which lower headers."""

    cipher: "Cipher"
    header: SecurityHeader
    below: AssociatedData


PacketToSeal: TypeAlias = tuple[bytes, bytes, bytes]
"""Type of a packet that `Cipher.seal_run` seals: the bytes of the frame before the security header, those of them that
are authenticated (`AssociatedData.run`), and the inner packet."""


# Keys and nonces ------------------------------------------------------------------------------------------------------


def context(epoch: int, rekey: int, identity: bytes) -> bytes:
    """Return the context for a key derivation (tss.md §5.2): 10 bytes for an identity of 4 bytes, or 26 bytes for an
    identity of 16 bytes."""
    head = epoch.to_bytes(2, "big") + rekey.to_bytes(4, "big")
    return head + identity if len(identity) == 4 else bytes(4) + head + identity


def kdf(key: bytes, fixed_input: bytes, size: int) -> bytes:
    """Return `size` bytes derived from a key: NIST SP 800-108 in counter mode with AES-CMAC (tss.md §5.1).

    The counter of 8 bits precedes the fixed input.
    """
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.cmac import CMAC

    blocks = []
    for counter in range(1, -(-size // 16) + 1):
        block = CMAC(AES(key))
        block.update(bytes([counter]) + fixed_input)
        blocks.append(block.finalize())
    return b"".join(blocks)[:size]


def derive(key: bytes, label: bytes, context: bytes) -> tuple[bytes, bytes]:
    """Return the packet key and the IV mask that are derived from a key of the domain (tss.md §5.1)."""
    size = KEY_SIZE + MASK_SIZE
    out = kdf(key, label + b"\0" + context + (8 * size).to_bytes(2, "big"), size)
    return out[:KEY_SIZE], out[KEY_SIZE:]


def nonce(header: SecurityHeader, below: AssociatedData, mask: bytes = bytes(MASK_SIZE)) -> bytes:
    """Return the IV of a packet, 12 bytes: sender, epoch and counter, XORed with the mask (tss.md §6)."""
    return _nonce(header, below, int.from_bytes(mask, "big"))


def _nonce(header: SecurityHeader, below: AssociatedData, mask: int) -> bytes:
    return ((_prefix(header, below) << 64 | header.tsc64) ^ mask).to_bytes(MASK_SIZE, "big")


def _prefix(header: SecurityHeader, below: AssociatedData) -> int:
    if header.ssi is not None:
        return header.ssi
    return below.src if below.ip_version == 4 else header.sdi


# Sealing --------------------------------------------------------------------------------------------------------------


def aes_gcm(key: bytes) -> "AESGCM":
    """Return the cipher of a packet key, AES-256-GCM."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


class _PacketKey:
    """A packet key: its AES-GCM cipher, its IV mask, and with a ledger the nonces that were used."""

    __slots__ = ("aead", "mask", "used", "value")

    def __init__(self, key: bytes, mask: bytes, ledger: NonceLedger | None) -> None:
        self.value = key
        self.aead = aes_gcm(key)
        self.mask = int.from_bytes(mask, "big")
        self.used = ledger.of(key, self.mask) if ledger is not None else None


class Cipher:
    """A cipher seals and opens packets of a domain under one key of the domain, and keeps the packet keys that are
    derived from this key (tss.md §5.4).
    """

    def __init__(self, domain: DomainConfig, key: DomainKey, ledger: NonceLedger | None = None) -> None:
        try:
            from cryptography.exceptions import InvalidTag
        except ImportError:
            raise missing_package("security", "cryptography", "security") from None
        self._invalid = InvalidTag
        self._domain = domain
        self.key = key
        self._ledger = ledger
        self._offset = domain.clear_bytes
        self._label = _LABELS.get(domain.mode, b"")
        self._derived: dict[tuple[int, int, bytes], _PacketKey] = {}
        self._only: _PacketKey | None = None
        """Packet key of all packets, in mode direct and for a client's derived key; None if packet keys are derived."""
        if not self._label or key.derived:
            mask = key.value[KEY_SIZE:] or bytes(MASK_SIZE)
            self._only = _PacketKey(key.value[:KEY_SIZE], mask, ledger)

    def __repr__(self) -> str:
        return f"<Cipher of SDI {self._domain.sdi}, mode {self._domain.mode}>"

    def seal(self, header: SecurityHeader, below: AssociatedData, inner: bytes) -> bytes:
        """Return the sealed packet, from the first byte of the security header to the last byte of the ICV (tss.md
        §7)."""
        clear = header.encode()
        hidden = self._offset - len(clear)
        if hidden > 0:  # the first bytes behind the security header stay in clear (tss.md §7.2)
            clear, inner = clear + inner[:hidden], inner[hidden:]
        key = self._only or self._key_of(header, below)
        iv = _nonce(header, below, key.mask)
        if key.used is not None:
            key.used.note(iv)
        return clear + key.aead.encrypt(iv, inner, below.run + clear)

    def seal_run(self, header: SecurityHeader, below: AssociatedData, packets: Sequence[PacketToSeal]) -> list[bytes]:
        """Return the frames of packets, which are those that `seal` makes of one after the other with ascending
        counters. `header` and `below` are those of the first packet; all have the same packet key (`same_key`)."""
        key = self._only or self._key_of(header, below)
        first, mask = _prefix(header, below) << 64 | header.tsc64, key.mask
        ivs = [(iv ^ mask).to_bytes(MASK_SIZE, "big") for iv in range(first, first + len(packets))]
        if key.used is not None:
            key.used.note_all(ivs)
        encrypt, join, hidden = key.aead.encrypt, b"".join, self._offset - header.size
        front, frames, tsc = header.encode()[:-_TSC_SIZE], [], header.tsc
        for iv, (head, authenticated, inner) in zip(ivs, packets, strict=True):
            clear = front + tsc.to_bytes(_TSC_SIZE, "big")
            if hidden > 0:
                clear, inner = clear + inner[:hidden], inner[hidden:]
            frames.append(join((head, clear, encrypt(iv, inner, authenticated + clear))))
            tsc += 1
        return frames

    def same_key(self, header: SecurityHeader) -> int:
        """Return the number of successive counters, from that of `header` on, that have the same packet key."""
        mask = self._domain.rekey_mask
        if self._only or not mask:
            return ALL_COUNTERS
        lowest = mask & -mask
        return lowest - (header.tsc64 & (lowest - 1))

    def opens(self, seal: Seal) -> bool:
        """Return whether `open` would open a packet that arrives as it was sealed, and those behind it that have the
        same key for their sealer (`same_key`)."""
        own, other, (sealer, header, below) = self._domain, seal.cipher._domain, seal
        if self._offset != sealer._offset:
            return False
        here = self._only or self._key_of(header, below)
        there = sealer._only or sealer._key_of(header, below)
        if here.value != there.value or here.mask != there.mask:
            return False
        return self._only is not None or (own.rekey_mask, own.rekey_shift) == (other.rekey_mask, other.rekey_shift)

    def open(self, header: SecurityHeader, below: AssociatedData, sealed: bytes) -> bytes | None:
        """Return the inner packet; None if the sealed packet cannot be opened. `sealed` starts with `header`."""
        size, end = header.size, len(sealed) - ICV_SIZE
        if end < size:
            return None
        split = min(max(size, self._offset), end)
        key = self._only or self._key_of(header, below)
        iv = _nonce(header, below, key.mask)
        try:
            plain = key.aead.decrypt(iv, sealed[split:], below.run + sealed[:split])
        except self._invalid:
            return None
        return sealed[size:split] + plain if split > size else plain

    def nonces_of(self, header: SecurityHeader, below: AssociatedData) -> NonceSpace:
        """Return the nonce space of a packet."""
        identity = b"" if self._only else self._label + self._identity(header, below)
        return NonceSpace(self.key, identity, _prefix(header, below))

    def _key_of(self, header: SecurityHeader, below: AssociatedData) -> _PacketKey:
        domain = self._domain
        rekey = (header.tsc64 & domain.rekey_mask) >> domain.rekey_shift
        place = header.epoch, rekey, self._identity(header, below)
        found = self._derived.get(place)
        if found is None:
            if len(self._derived) >= _CACHE:
                self._derived.clear()
            found = _PacketKey(*derive(self.key.value, self._label, context(*place)), self._ledger)
            self._derived[place] = found
        return found

    def _identity(self, header: SecurityHeader, below: AssociatedData) -> bytes:
        """Return the SSI or address for which the key is derived: of the sender, or in mode client-server of the
        client (tss.md §4)."""
        domain = self._domain
        if header.ssi is not None and (below.ip_version == 4 or domain.ipv6_ssi_context == "small"):
            return header.ssi.to_bytes(4, "big")
        return below.destination if below.src in domain.servers else below.source
