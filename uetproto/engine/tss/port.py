# SPDX-License-Identifier: GPL-2.0-only
"""The secure port of an endpoint finds the secure domain of a packet, and handles packets that are not sealed (tss.md
§9).

The caller removes the lower headers, so that a packet begins with its security header or its PDS header.
"""

from collections.abc import Collection

from uetproto.engine.tss.cipher import AssociatedData, Refused, SecurityHeader
from uetproto.engine.tss.domain import OpenedPacket, SecureDomain, TrimmedPart
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NACK, NackCode, PdsType
from uetproto.wire.tuples import PdsNackHeader

PLAIN = ("drop", "pass")
CLEAR_NACKS = {code.name: code for code in (NackCode.NEW_START_PSN, NackCode.INV_DPDCID)}
"""Codes of the NACKs that some implementations send in clear, by name. No PDC determines a secure domain for these
NACKs (tss.md §11, observed.md)."""


def nack_code(packet: bytes) -> int | None:
    """Return the code of a NACK; None for any other packet."""
    if len(packet) < NACK.size or packet[0] >> 3 != PdsType.NACK:
        return None
    return PdsNackHeader.read(packet).nack_code


class SecurePort:
    """A secure port opens the packets that arrive at one endpoint; `domains` maps each SDI to its secure domain."""

    def __init__(self, *, plain: str = "drop", clear_nacks: Collection[int] = ()) -> None:
        """`plain` says whether packets in clear are dropped or passed (tss.md §15).

        `clear_nacks` are codes of NACKs that pass in clear in any case. Anybody can forge such NACKs (tss.md §11).
        Raises `LocalError` for values that are not legal.
        """
        if plain not in PLAIN:
            raise LocalError("plain", f"{plain!r}", ", ".join(PLAIN), id="unknown-name")
        if not set(clear_nacks) <= set(CLEAR_NACKS.values()):
            raise LocalError("clear_nacks", sorted(clear_nacks), f"some of {', '.join(CLEAR_NACKS)}", id="unknown-name")
        self._passes = plain == "pass"
        self.clear_nacks = frozenset(clear_nacks)
        self.domains: dict[int, SecureDomain] = {}
        self.in_errored = 0
        """Number of packets with an incomplete security header, or of an unknown SDI."""
        self.in_rx_encryption_bypass = 0
        """Number of packets received in clear, whether dropped or passed."""
        self.out_rx_encryption_bypass = 0
        """Number of NACKs sent in clear."""

    def receive(
        self, below: AssociatedData, packet: bytes, *, is_trimmed: bool = False
    ) -> OpenedPacket | TrimmedPart | Refused:
        """Apply the checks of tss.md §9 in its order, and open the packet. No received bytes raise an error."""
        if not packet or packet[0] >> 3 != PdsType.TSS:
            self.in_rx_encryption_bypass += 1
            passes = self._passes or nack_code(packet) in self.clear_nacks
            return OpenedPacket(packet, None) if passes else Refused("not sealed")
        header = SecurityHeader.of(packet)
        if header is None:
            self.in_errored += 1
            return Refused("half a security header")
        domain = self.domains.get(header.sdi)
        if domain is None:
            self.in_errored += 1
            return Refused("an SDI that is not known", header.sdi)
        return domain.receive(header, below, packet, is_trimmed=is_trimmed)

    def is_bound(self, header: SecurityHeader, sdi: int) -> bool:
        """Tell whether the header of an opened packet has `sdi`, which is the SDI of its PDC. Count a packet with
        another SDI."""
        if header.sdi == sdi:
            return True
        self.domains[header.sdi].counters.in_binding_failure_pkts += 1
        return False
