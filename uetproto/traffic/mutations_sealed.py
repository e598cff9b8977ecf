# SPDX-License-Identifier: GPL-2.0-only
"""This module mutates the content of sealed packets, and seals the packets again (tss.md §7).

A reader of the capture who has the keys finds the mutations that the side file lists, as in a capture in clear. The
mutated packet is sealed with the nonce of the original packet, and replaces this packet in the capture.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TextIO

from uetproto.engine.contract import Rng
from uetproto.engine.tss.cipher import Cipher, Refused
from uetproto.engine.tss.keys import KeyRing
from uetproto.engine.tss.opener import Opened, Opener, place
from uetproto.traffic.mutations import Mutator
from uetproto.wire.crc import CRC_SIZE
from uetproto.wire.mutate import uet as mutate_uet
from uetproto.wire.mutate.frame import Frame, Mutation
from uetproto.wire.packet import Packet
from uetproto.wire.stack import decode, encode

OUTSIDE = ("cut", "ip-length")
"""Mutations of the sealed frame itself: they change the end of the frame, or the IP length, which no ICV covers."""


class SealedMutator(Mutator):
    """This class mutates frames of a secure domain. A trimmed frame stays as it is, because it cannot be decrypted."""

    def __init__(self, shares: Mapping[str, float], rng: Rng, side: TextIO, ring: KeyRing) -> None:
        super().__init__(shares, rng, side)
        self._ring = ring
        self._opener = Opener(ring)
        self._ciphers: dict[tuple[int, int], Cipher] = {}

    def _changed(self, name: str, frame: bytes) -> Mutation | None:
        packet = decode(frame)
        opened = self._opener.open(frame, packet)
        if isinstance(opened, Refused):
            return None
        if name in OUTSIDE:
            change, rule = mutate_uet.CHANGES[name]
            found = change(Frame(frame, packet, len(packet.layers) - 1), self._rng)
            return found and found._replace(rule=rule)
        found = super()._changed(name, opened.plain_frame)
        return found and self._resealed(packet, opened, found)

    def _watch(self, frame: bytes) -> None:
        opened = self._opener.open(frame)
        if isinstance(opened, Opened):
            super()._watch(opened.plain_frame)

    def _resealed(self, packet: Packet, opened: Opened, found: Mutation) -> Mutation | None:
        """Seal the changed packet again, and return the mutation of the sealed frame.

        Return None for a change of the CRC, which a sealed packet does not have.
        """
        *_, tss = packet.layers
        before, after = opened.plain_frame, found.frame
        inner = after[tss.offset : -CRC_SIZE]
        if len(before) == len(after) and before[:-CRC_SIZE] == after[:-CRC_SIZE]:
            return None
        frame = bytearray(encode(replace(packet, payload=inner), fill=True))
        if len(before) == len(after):  # otherwise the lengths were changed, and are right already
            for at in range(tss.offset):
                frame[at] ^= before[at] ^ after[at]
        where = place(bytes(frame), decode(bytes(frame)))
        if isinstance(where, Refused):
            return None
        below, header, _ = where
        sealed = self._cipher(opened).seal(header, below, inner)
        offset = found.offset + (tss.size if found.offset >= tss.offset else 0)
        return found._replace(frame=bytes(frame[: tss.offset]) + sealed, offset=offset)

    def _cipher(self, opened: Opened) -> Cipher:
        """Return the cipher; all endpoints have the same key for an AN."""
        found = self._ciphers.get((opened.sdi, opened.an))
        if found is None:
            domain = self._ring[opened.sdi]
            found = self._ciphers[opened.sdi, opened.an] = Cipher(domain, domain.keys[opened.an][0])
        return found
