"""The security of one endpoint: its secure domains by SDI, and what becomes of packets that are not sealed (tss.md §9).

The packets here begin where the security header does, or the PDS; the caller knows what stood below.
"""

from uetproto.engine.tss_domain import Received, SecureDomain, TrimmedPart
from uetproto.engine.uet_tss import Below, Refused, SecurityHeader
from uetproto.errors import LocalError
from uetproto.wire.uet_pds import PdsType

PLAIN = ("drop", "pass")


class SecurePort:
    """Opens what arrives at one endpoint."""

    def __init__(self, *, plain: str = "drop") -> None:
        """`plain`: what becomes of packets in clear, drop or pass (§15). Raises `LocalError` for anything else."""
        if plain not in PLAIN:
            raise LocalError(f"plain: {plain!r}; legal: {', '.join(PLAIN)}")
        self._passes = plain == "pass"
        self.domains: dict[int, SecureDomain] = {}
        self.in_errored = 0
        """Packets with half a security header, or of an SDI that is not known here."""
        self.in_rx_encryption_bypass = 0
        """Packets in clear, dropped or passed."""

    def receive(self, below: Below, packet: bytes, *, is_trimmed: bool = False) -> Received | TrimmedPart | Refused:
        """The checks of §9, in its order. Never raises on bytes from outside."""
        if not packet or packet[0] >> 3 != PdsType.TSS:
            self.in_rx_encryption_bypass += 1
            return Received(packet, None) if self._passes else Refused("not sealed")
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
