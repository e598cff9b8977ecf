# SPDX-License-Identifier: GPL-2.0-only
"""This module seals the packets of our side of a test, with a right or a wrong security header, and opens those of the
peer (tss.md §2–7)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from uetproto.conform.expressions import Variables, value_of
from uetproto.engine.tss.cipher import AssociatedData, Cipher, NonceSpace, Refused, SecurityHeader
from uetproto.engine.tss.keys import DomainConfig, KeyRing
from uetproto.engine.tss.opener import Opener
from uetproto.errors import LocalError, shown, similar
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.headers.uet_tss import ICV_SIZE, TSS_SSI
from uetproto.wire.packet import Packet
from uetproto.wire.stack import decode, encode

FIELDS = {row.name: row for row in TSS_SSI.fields if row.name in ("an", "sdi", "ssi", "epoch", "tsc")}
"""Fields of the security header that a test may choose."""
NONE = "none"
"""Value of `ssi` with which a packet has none, and of `tss` with which it is not sealed."""


class OpenedAnswer(NamedTuple):
    """This tuple is a packet of the peer that was opened."""

    plain_frame: bytes
    """The frame as it would be without security; CRC32C ends it."""
    header: Mapping[str, int]
    """Values of the security header by field."""
    fault: str
    """Why the packet is wrong although it opens, such as a nonce that was used before; empty if it is not."""


class Sealing:
    """This class is our side of a secure domain. It lives as long as the tests of a peer, as no nonce may be used
    twice."""

    def __init__(self, domain: DomainConfig, local: int, ssi: int | None, counter: int) -> None:
        """`ssi` is our own; None: packets carry none. `counter` is one that this host has not reached under the key."""
        self.domain = domain if ssi is None else replace(domain, ssis={local: ssi})
        self.ssi = ssi
        self.an = 0 if domain.keys[0] else 1
        self.epoch = self._epoch_of(self.an)
        self.floor = 0
        """Lowest Start_PSN that the peer accepts, as far as it is known (tss.md §11)."""
        self._counter = counter
        is_server = local in domain.servers
        self._half = 1 << 47 if domain.mode == "client-server" and is_server else 0
        self._ciphers: dict[int, Cipher] = {}
        self._opener = Opener(self.ring)
        self._nonces: dict[tuple[NonceSpace, int, int], bytes] = {}
        """The frame that each nonce of the peer sealed."""

    @property
    def ring(self) -> KeyRing:
        """Return the keys for a reader of captures."""
        return KeyRing({self.domain.sdi: self.domain})

    @property
    def has_second_key(self) -> bool:
        return bool(self.domain.keys[1 - self.an])

    def _epoch_of(self, an: int) -> int:
        keys = self.domain.keys[an]
        return (keys[0].epoch or 0) if keys else 0

    def variables(self) -> dict[str, int]:
        """Return the variables that tests may use of the domain."""
        return {"an": self.an, "sdi": self.domain.sdi, "ssi": self.ssi or 0, "epoch": self.epoch, "floor": self.floor}

    # Sealing

    def seal(self, frame: bytes, settings: Mapping[str, Any], step: Mapping[str, Any], variables: Variables) -> bytes:
        """Return a sealed frame with the packet of a plain frame, which has no CRC32C.

        `settings` are those of `decode`. The keys of `step` say what is wrong: `tss`, fields of the security header
        under which the packet is sealed; `changed`, fields that change behind the sealing; `icv`.
        """
        packet = decode(frame, **settings)
        at = next((layer.offset for layer in packet.layers if layer.form.startswith("pds.")), None)
        lower = [layer for layer in packet.layers if not layer.form.startswith(("pds.", "ses."))]
        inner = frame[lower[-1].offset + lower[-1].size if at is None else at :]
        header = self._header(step.get("tss", {}), variables)
        place = bytes(header.size + len(inner) + ICV_SIZE)
        whole = encode(Packet(lower, place), fill=True)
        head = whole[: len(whole) - len(place)]
        ip = next(layer for layer in lower if layer.form in ("ipv4", "ipv6"))
        version = 4 if ip.form == "ipv4" else 6
        ahead = head[ip.offset + (20 if version == 4 else 40) :]  # a UDP checksum is 0
        below = AssociatedData(version, ip.values["src"], ip.values["dst"], ahead)
        sealed = self._cipher(header.an).seal(header, below, inner)
        changed = self._header(step["changed"], variables, header) if "changed" in step else header
        sealed = changed.encode() + sealed[header.size :]
        icv = step.get("icv", "right")
        if icv not in ("right", "wrong"):
            raise LocalError("icv", f"{shown(icv)} is not legal", "right, wrong", id="test-file")
        return head + (sealed if icv == "right" else sealed[:-1] + bytes((sealed[-1] ^ 1,)))

    def _header(self, told: Any, variables: Variables, base: SecurityHeader | None = None) -> SecurityHeader:
        """Return a security header with the next counter, or `base`, with the fields that a test chooses."""
        if not isinstance(told, dict):
            raise LocalError(
                "tss", f"{shown(told)} is not legal", f"{NONE}, or a table of {', '.join(FIELDS)}", id="test-file"
            )
        if base is None:
            base = SecurityHeader(self.domain.sdi, self.an, self.ssi, self.epoch, self._half + self._counter)
            self._counter += 1
        for name, value in told.items():
            if name not in FIELDS:
                raise LocalError(name, f"is no field of tss{similar(name, FIELDS)}", ", ".join(FIELDS), id="test-file")
            number = None if name == "ssi" and value == NONE else value_of(name, value, FIELDS[name], variables)
            if number is not None and not 0 <= number <= FIELDS[name].high:
                raise LocalError(name, f"{number} is not legal", f"0 … {FIELDS[name].high}", id="test-file")
            base = SecurityHeader(**{**base._asdict(), name: number})
        return base

    def _cipher(self, an: int) -> Cipher:
        """Return the cipher of an AN; one without a key seals with the key of the other."""
        found = self._ciphers.get(an)
        if found is None:
            keys = self.domain.keys[an] or self.domain.keys[1 - an]
            found = self._ciphers[an] = Cipher(self.domain, keys[0])
        return found

    # Opening

    def forget(self) -> None:
        """Forget the nonces of the peer that were seen."""
        self._nonces.clear()

    def open(self, frame: bytes, settings: Mapping[str, Any]) -> OpenedAnswer | Refused | None:
        """Return the packet of a sealed frame, why it does not open, or None if it is not sealed."""
        packet = decode(frame, **settings)
        if not packet.layers or not packet.layers[-1].form.startswith(PdsType.TSS.name.lower()):
            return None
        opened = self._opener.open(frame, packet)
        if isinstance(opened, Refused):
            return opened
        header = {"an": opened.an, "sdi": opened.sdi, "epoch": opened.epoch, "tsc": opened.tsc}
        header |= {} if opened.ssi is None else {"ssi": opened.ssi}
        before = self._nonces.setdefault((opened.nonces, opened.epoch, opened.tsc), frame)
        fault = "" if before == frame else f"its nonce has sealed another packet: counter {opened.tsc} (tss.md §6)"
        return OpenedAnswer(opened.plain_frame, header, fault)
