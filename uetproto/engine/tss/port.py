"""The security of one endpoint: its secure domains by SDI, and what becomes of packets that are not sealed (tss.md §9).

The packets here begin where the security header does, or the PDS; the caller knows what stood below.
"""

from collections.abc import Collection

from uetproto.engine.tss.cipher import Below, Refused, SecurityHeader
from uetproto.engine.tss.domain import OpenedPacket, SecureDomain, TrimmedPart
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NACK, NackCode, PdsType
from uetproto.wire.tuples import PdsNackHeader

PLAIN = ("drop", "pass")
CLEAR_NACKS = {code.name: code for code in (NackCode.NEW_START_PSN, NackCode.INV_DPDCID)}
"""NACKs that some send in clear: no PDC exists that would bind them to a domain (§11, observed.md)."""


def nack_code(packet: bytes) -> int | None:
    """The code of a NACK; None: the packet is none."""
    if len(packet) < NACK.size or packet[0] >> 3 != PdsType.NACK:
        return None
    return PdsNackHeader.read(packet).nack_code


class SecurePort:
    """Opens what arrives at one endpoint."""

    def __init__(self, *, plain: str = "drop", clear_nacks: Collection[int] = ()) -> None:
        """`plain`: what becomes of packets in clear, drop or pass (§15); `clear_nacks`: the NACKs that pass in any
        case. Anybody can forge those (§11). Raises `LocalError` for what is not legal.
        """
        if plain not in PLAIN:
            raise LocalError("plain", f"{plain!r}", ", ".join(PLAIN))
        if not set(clear_nacks) <= set(CLEAR_NACKS.values()):
            raise LocalError("clear_nacks", sorted(clear_nacks), f"some of {', '.join(CLEAR_NACKS)}")
        self._passes = plain == "pass"
        self.clear_nacks = frozenset(clear_nacks)
        self.domains: dict[int, SecureDomain] = {}
        self.in_errored = 0
        """Packets with half a security header, or of an SDI that is not known here."""
        self.in_rx_encryption_bypass = 0
        """Packets in clear, dropped or passed."""
        self.out_rx_encryption_bypass = 0
        """NACKs sent in clear."""

    def receive(self, below: Below, packet: bytes, *, is_trimmed: bool = False) -> OpenedPacket | TrimmedPart | Refused:
        """The checks of §9, in its order. Never raises on bytes from outside."""
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
        """Whether a packet that opened belongs to a PDC of this SDI; one that does not is dropped, and counted."""
        if header.sdi == sdi:
            return True
        self.domains[header.sdi].counters.in_binding_failure_pkts += 1
        return False
