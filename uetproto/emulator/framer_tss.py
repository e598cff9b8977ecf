"""UET packets to sealed frames and back: the framer of a NIC with transport security (tss.md §7–10).

Every packet is sealed when it leaves, also one that left before: a retransmission has a counter of its own (§8). What
comes is opened before anyone reads its PDS (§9). A sealed frame has an ICV in place of the CRC32C.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from uetproto.emulator.framer_uet import Encapsulation, UetFramer
from uetproto.emulator.framing import CACHE, ip_size
from uetproto.emulator.link import ETHERNET_SIZE
from uetproto.emulator.security import Rotation, Security, tx_an
from uetproto.engine.contract import Datagram
from uetproto.engine.tss_domain import SecureDomain, TrimmedPart
from uetproto.engine.tss_ledger import NonceLedger
from uetproto.engine.tss_port import SecurePort
from uetproto.engine.uet_tss import Below, Refused


class SealingFramer(UetFramer):
    """Frames of one member of a secure domain. Counts what it does not let through, also by why."""

    def __init__(
        self,
        address: int,
        ip_version: int,
        how: Encapsulation,
        *,
        port: SecurePort,
        domain: SecureDomain,
        rotation: Rotation | None = None,
        now: Callable[[], int],
        ecn_capable: bool = True,
    ) -> None:
        """`how`: of packets in clear, too, with a CRC32C or without. `now`: the time, for rotations."""
        super().__init__(address, ip_version, replace(how, crc=False), ecn_capable=ecn_capable)
        self._plain = UetFramer(address, ip_version, how, ecn_capable=ecn_capable)
        self.port = port
        self.domain = domain
        self._overhead = domain.domain.overhead
        self._rotation = rotation
        self._now = now
        self._changed_at: int | None = None
        self._authenticated: dict[bytes, Below] = {}
        self._ahead = ETHERNET_SIZE + ip_size(ip_version)  # where the UDP or entropy header stands
        self.refused: Counter[str] = Counter()
        """Packets that were not opened, by why."""

    def frame(self, packet: Datagram) -> bytes:
        if self._rotation is not None:
            self._rotate(self._rotation)
        inner = b"".join((packet.header, packet.payload))
        key = (packet.dst, packet.traffic_class, packet.entropy, len(inner) + self._overhead)
        head = (self._below.get(key) or self._remember_below(key)).head
        sealed = self.domain.seal(self._authenticated.get(head) or self._remember(head, packet.dst), inner)
        assert sealed is not None  # a scenario has a key, and an SSI for all nodes or for none
        return head + sealed

    def packet(self, frame: bytes) -> Datagram | None:
        packet = super().packet(frame)
        if packet is None:
            return None
        if self._rotation is not None:
            self._rotate(self._rotation)
        head = frame[: self._start]
        below = self._authenticated.get(head) or self._remember(head, packet.dst, packet.src)
        opened = self.port.receive(below, bytes(packet.header), is_trimmed=bool(packet.trimmed))
        if isinstance(opened, Refused):
            self.refused[opened.reason] += 1
            return None
        if isinstance(opened, TrimmedPart):
            packet.header = opened.clear
            return packet
        if opened.header is None:
            return self._in_clear(frame)
        if not self.port.is_bound(opened.header, self.domain.domain.sdi):  # all PDCs here are of this one
            self.refused["another domain than that of its PDC"] += 1
            return None
        packet.header = opened.inner
        return packet

    def _in_clear(self, frame: bytes) -> Datagram | None:
        """A packet that is not sealed, where those may pass: it has a CRC32C, if the network has."""
        packet = self._plain.packet(frame)
        self.bad_crc += packet is None
        return packet

    def _remember(self, head: bytes, dst: int, src: int | None = None) -> Below:
        """What of the lower headers is authenticated (§7.1, §7.3)."""
        if len(self._authenticated) >= CACHE:
            self._authenticated.clear()
        ahead = self._zero_checksum(head)[self._ahead :]
        below = Below(self._version, self._address if src is None else src, dst, ahead)
        self._authenticated[head] = below
        return below

    def _rotate(self, rotation: Rotation) -> None:
        """Make before break (§10): to the other key in its time; the old one is forgotten after the guard time."""
        domain, now = self.domain, self._now()
        if self._changed_at is None:
            sealed, due = domain.counters.out_auth_pkts, rotation.time
            if (due is not None and now >= due) or (rotation.packets is not None and sealed >= rotation.packets):
                domain.switch(1 - domain.tx_an)
                self._changed_at = now
        elif now >= self._changed_at + rotation.guard:
            domain.empty(1 - domain.tx_an)


class Secured:
    """The security of one run: a port for each node, and one ledger of all nonces."""

    def __init__(self, security: Security, now: Callable[[], int]) -> None:
        self._security = security
        self._now = now
        self.ledger = NonceLedger()
        self.framers: dict[str, SealingFramer] = {}

    def framer(self, node: Any, how: Encapsulation) -> SealingFramer:
        """For the NIC of `node`."""
        settings = self._security.domains[node.name]
        port = SecurePort(plain=self._security.plain)
        an = tx_an(settings)
        domain = SecureDomain(settings, node.address, node.ip_version, tx_an=an, ledger=self.ledger)
        port.domains[settings.sdi] = domain
        framer = SealingFramer(
            node.address, node.ip_version, how, port=port, domain=domain, rotation=self._security.rotation,
            now=self._now, ecn_capable=node.pds.ecn_capable,
        )  # fmt: skip
        self.framers[node.name] = framer
        return framer

    def report(self) -> dict[str, dict[str, Any]]:
        """By node: packets sealed, opened and refused, the AN in use, and the counters of §9 that are not 0."""
        return {name: _report(framer) for name, framer in self.framers.items()}

    def failure(self, failure: str | None) -> str | None:
        """Why the run has failed, with what security has to say about it."""
        texts = [failure] if failure is not None else []
        if texts:
            texts += (text for name, framer in self.framers.items() if (text := _unopened(name, framer)))
        if self.ledger.repeated:
            texts.append(f"{self.ledger.repeated} packets were sealed with a nonce that was used before")
        return "; ".join(texts) or None


def _report(framer: SealingFramer) -> dict[str, Any]:
    counters, port = asdict(framer.domain.counters), framer.port
    counters |= {"in_errored": port.in_errored, "in_rx_encryption_bypass": port.in_rx_encryption_bypass}
    return {
        "sealed": framer.domain.counters.out_auth_pkts,
        "opened": framer.domain.counters.in_auth_pkts,
        "refused": dict(framer.refused),
        "an": framer.domain.tx_an,
        "counters": {name: count for name, count in counters.items() if count},
    }


def _unopened(name: str, framer: SealingFramer) -> str:
    """Of wrong keys: the SDI and the share of packets that did not open."""
    counters, sdi = framer.domain.counters, framer.domain.domain.sdi
    failed, tried = counters.in_auth_fail, counters.in_auth_fail + counters.in_auth_pkts
    return f"{name}: {failed} of {tried} packets of SDI {sdi} did not open" if failed else ""
