# SPDX-License-Identifier: GPL-2.0-only
"""This module opens sealed packets for `--keys FILE`, and counts the packets that no key opens."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from uetproto.engine.tss.cipher import Refused
from uetproto.engine.tss.keys import KeyRing
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.wire.packet import Fault, Packet
from uetproto.wire.words.text import count

_LISTED = 64  # SDIs counted separately, and reasons of each: noise must not fill the memory
_OTHERS = "other reasons"


@dataclass(slots=True)
class KeyTally:
    """This class holds the numbers of sealed and opened packets of one SDI."""

    sealed: int = 0
    opened: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Number of packets that were not opened, by reason."""

    @property
    def closed(self) -> int:
        return self.sealed - self.opened

    @property
    def why(self) -> str:
        """Return a text with the share of packets that were not opened, and the number of packets for each reason."""
        reasons = "; ".join(f"{reason} ({number})" for reason, number in self.reasons.most_common())
        return f"{self.closed / self.sealed:.1%}: {reasons}"

    def add(self, tried: Opened | Refused) -> None:
        self.sealed += 1
        if isinstance(tried, Opened):
            self.opened += 1
            return
        known = tried.reason in self.reasons or len(self.reasons) < _LISTED
        self.reasons[tried.reason if known else _OTHERS] += 1


class Keys:
    """This class opens sealed packets with the keys of a file, and counts for each SDI how many were opened."""

    def __init__(self, keys: str | KeyRing) -> None:
        """Take keys, or read a file of keys. Raises `LocalError`, which names the file and the wrong key, or `OSError`
        if the file cannot be read."""
        self.ring = keys if isinstance(keys, KeyRing) else KeyRing.read(keys)
        self._opener = Opener(self.ring)
        self._tallies: dict[int | None, KeyTally] = {}
        self.total = KeyTally()
        """Counts of the packets of all SDIs together."""

    def open(self, frame: bytes, sealed: Packet) -> Opened | Refused:
        """Try to open a sealed packet with the keys, and count the result."""
        tried = self._opener.open(frame, sealed)
        sdi: int | None = sealed["tss"]["sdi"]
        if sdi not in self._tallies and sdi not in self.ring and len(self._tallies) >= _LISTED:
            sdi = None
        for tally in (self._tallies.setdefault(sdi, KeyTally()), self.total):
            tally.add(tried)
        return tried

    def read(self, frame: bytes, sealed: Packet, decode: Callable[[bytes], Packet]) -> tuple[Packet, str]:
        """Return the packet and the result in words. The packet is opened if a key fits; `decode` decodes the opened
        frame."""
        tried = self.open(frame, sealed)
        if isinstance(tried, Opened):
            plain = decode(tried.plain_frame)
            return _opened(sealed, tried.plain_frame, plain), f"opened with SDI {tried.sdi} AN {tried.an}"
        if sealed.trailer is not None and sealed.error is None and self._fit(sealed):
            sealed.trailer = sealed.trailer._replace(ok=False)
        return sealed, tried.reason

    def _fit(self, sealed: Packet) -> bool:
        """Return whether there is a key for this packet. A packet that has a key and does not open has a wrong ICV."""
        tss = sealed["tss"]
        domain = self.ring.get(tss["sdi"])
        return domain is not None and any(key.epoch in (None, tss["epoch"]) for key in domain.keys[tss["an"]])

    @property
    def tallies(self) -> list[tuple[int | None, KeyTally]]:
        """Return the counts of sealed packets by SDI. If too many SDIs have no key, the entry None has the counts of
        those that have no entry of their own."""
        return sorted(self._tallies.items(), key=lambda item: (item[0] is None, item[0]))

    @property
    def complaints(self) -> list[str]:
        """Return for each SDI with packets that were not opened a text that says how many, and why."""
        return [
            f"{sdi_name(sdi)}: {tally.closed} of {count(tally.sealed, 'sealed packet')} did not open, {tally.why}"
            for sdi, tally in self.tallies
            if tally.closed
        ]


def sdi_name(sdi: int | None) -> str:
    return "other SDIs" if sdi is None else f"SDI {sdi}"


def _opened(sealed: Packet, frame: bytes, plain: Packet) -> Packet:
    """Return a sealed packet with its contents (interfaces.md §3): its own layers, then those of `plain`.

    `plain` is the opened packet, decoded; `frame` is the sealed frame. Offsets are those of the sealed frame; opened
    bytes that cannot be decoded are payload.
    """
    tss = sealed.layers[-1]
    inside = plain.layers[len(sealed.layers) - 1 :]
    payload, error = plain.payload, plain.error or sealed.error
    if plain.trailer is None or plain.trailer.kind != "crc32c":
        payload = frame[plain.payload_offset : tss.offset + len(sealed.payload)]
    if any(layer.form.startswith("tss") for layer in inside):
        error = Fault("malformed", tss.offset, "a security header within another")
    if error is not None and error.offset >= tss.offset:
        error = Fault(error.kind, error.offset + tss.size, error.reason)
    return Packet(
        [*sealed.layers, *(layer._replace(offset=layer.offset + tss.size) for layer in inside)],
        payload,
        sealed.trailer and sealed.trailer._replace(ok=True),
        tuple(note for note in sealed.notes if note != "sealed"),
        error,
        sealed.raw,
        plain.pad,
    )
