# SPDX-License-Identifier: GPL-2.0-only
"""This module opens sealed packets of a capture with the keys of a key file, and makes plain frames of the packets
(tss.md §2–7)."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from uetproto.engine.tss.cipher import AssociatedData, Cipher, NonceSpace, Refused, SecurityHeader
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing
from uetproto.wire.headers.uet_tss import ICV_SIZE
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

_LIKE = 16
"""Greatest number of keys that are tried on a packet which those of its header do not open."""
_SOURCE = {"ipv4": 12, "ipv6": 8}  # where the source address stands in the header


class Opened(NamedTuple):
    """This is an opened packet: the frame as it would be without security, and the fields of the security header.

    The plain frame has neither security header nor ICV; its lengths and checksums are correct, and CRC32C ends it.
    """

    plain_frame: bytes
    sdi: int
    an: int
    epoch: int
    tsc: int
    ssi: int | None
    nonces: NonceSpace
    """Nonce space of the packet, by which a caller finds two packets with the same nonce under one key."""


class Opener:
    """An opener opens the packets of a capture for which it has keys; it keeps no state of flows."""

    def __init__(self, ring: KeyRing, *, link: str = "ethernet") -> None:
        """`link` is the first header of frames (`stack.LINKS`)."""
        self._ring = ring
        self._link = link
        self._ciphers: dict[tuple[int, int], list[tuple[DomainKey, Cipher]]] = {}

    def open(self, frame: bytes, packet: Packet | None = None) -> Opened | Refused:
        """Open a frame, or return the reason why it cannot be opened. `packet` is the decoded frame; if it is None, the
        frame is decoded here.

        No captured bytes raise an error.
        """
        if packet is None:
            packet = decode(frame, link=self._link)
        where = place(frame, packet)
        if isinstance(where, Refused):
            return where
        below, header, sealed = where
        sdi, an, ssi, epoch, tsc = header
        ciphers = self._ciphers_for(header)
        for cipher in ciphers:
            inner = cipher.open(header, below, sealed)
            if inner is not None:
                return Opened(_plain_frame(packet, inner), sdi, an, epoch, tsc, ssi, cipher.nonces_of(header, below))
        for other in self._like(header):
            as_sent = other.encode() + sealed[header.size :]
            if any(cipher.open(other, below, as_sent) is not None for cipher in self._ciphers_for(other)):
                reason = f"sealed under SDI {other.sdi}, AN {other.an} and epoch {other.epoch}, and changed since"
                return Refused(reason, sdi, sealed_as=other)
        if sdi not in self._ring:
            return Refused(f"no keys of SDI {sdi}", sdi)
        if not ciphers:
            return Refused(f"no key of SDI {sdi} for AN {an} and epoch {epoch}", sdi)
        return Refused(f"does not open with the keys of SDI {sdi} for AN {an}", sdi, tried=True)

    def _like(self, header: SecurityHeader) -> Iterator[SecurityHeader]:
        """Yield the headers that differ in SDI, AN or epoch alone, and have keys."""
        for sdi in islice(self._ring, _LIKE):
            if sdi != header.sdi:
                yield header._replace(sdi=sdi)
        if header.sdi in self._ring:
            yield header._replace(an=1 - header.an)
            epochs = {key.epoch for key in self._ring[header.sdi].keys[header.an]} - {None, header.epoch}
            yield from (header._replace(epoch=epoch) for epoch in islice(epochs, _LIKE) if epoch is not None)

    def _ciphers_for(self, header: SecurityHeader) -> list[Cipher]:
        domain = self._ring.get(header.sdi)
        if domain is None:
            return []
        return [cipher for key, cipher in self._ciphers_of(domain, header.an) if key.epoch in (None, header.epoch)]

    def _ciphers_of(self, domain: DomainConfig, an: int) -> list[tuple[DomainKey, Cipher]]:
        found = self._ciphers.get((domain.sdi, an))
        if found is None:
            found = self._ciphers[domain.sdi, an] = [(key, Cipher(domain, key)) for key in domain.keys[an]]
        return found


def place(frame: bytes, packet: Packet) -> tuple[AssociatedData, SecurityHeader, bytes] | Refused:
    """Return three parts of a sealed frame: associated data, security header and sealed bytes (tss.md §1). Any other
    frame is refused."""
    if not packet.layers or not packet.layers[-1].form.startswith("tss"):
        return Refused("not sealed")
    last = packet.layers[-1]
    sdi: int = last.values["sdi"]
    for note in ("trimmed", "truncated"):
        if note in packet.notes:
            return Refused(f"{note}: not all of it is there", sdi)
    if packet.error is not None or packet.trailer is None:
        return Refused(packet.error.reason if packet.error else "no ICV", sdi)
    ip = next(layer for layer in reversed(packet.layers) if layer.form in _SOURCE)
    version = 4 if ip.form == "ipv4" else 6
    addresses = ip.offset + _SOURCE[ip.form] + (8 if version == 4 else 32)
    below = AssociatedData(version, ip.values["src"], ip.values["dst"], _ahead(frame, addresses, packet.layers))
    header = SecurityHeader(sdi, last.values["an"], last.values.get("ssi"), last.values["epoch"], last.values["tsc"])
    return below, header, frame[last.offset : packet.payload_offset + len(packet.payload) + ICV_SIZE]


def _ahead(frame: bytes, start: int, layers: list[Layer]) -> bytes:
    """Return the bytes between addresses and security header, with a UDP checksum of 0 (tss.md §7.3)."""
    *_, carrier, last = layers
    ahead = frame[start : last.offset]
    return ahead[:-2] + bytes(2) if carrier.form == "udp" else ahead


def _plain_frame(packet: Packet, inner: bytes) -> bytes:
    plain = Packet(packet.layers[:-1], inner, Trailer("crc32c", 0), raw=packet.raw)
    return encode(plain, fill=True)
