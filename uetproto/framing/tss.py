"""UET packets to sealed frames and back: the framer of a NIC with transport security (tss.md §7–10).

Every packet is sealed when it leaves, also one that left before: a retransmission has a counter of its own (§8). What
comes is opened before anyone reads its PDS (§9). A sealed frame has an ICV in place of the CRC32C.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from uetproto.emulator.network.link import ETHERNET_SIZE
from uetproto.emulator.scenario.security import Rotation, Security, Turn, tx_an
from uetproto.engine.contract import Datagram
from uetproto.engine.tss.cipher import Below, Refused
from uetproto.engine.tss.domain import SecureDomain, TrimmedPart
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.engine.tss.port import SecurePort, nack_code
from uetproto.framing.framer import CACHE, ip_size
from uetproto.framing.uet import Encapsulation, UetFramer

_LAST_EPOCH = 0xFFFF


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
        epoch_at: Turn | None = None,
        now: Callable[[], int],
        ecn_capable: bool = True,
    ) -> None:
        """`how`: of packets in clear, too, with a CRC32C or without. `now`: the time, for rotations and epochs."""
        super().__init__(address, ip_version, replace(how, crc=False), ecn_capable=ecn_capable)
        self._plain = UetFramer(address, ip_version, how, ecn_capable=ecn_capable)
        self.port = port
        self.domain = domain
        self._overhead = domain.domain.overhead
        self._rotation = rotation
        self._epoch_at = epoch_at
        self._is_timed = rotation is not None or epoch_at is not None
        self._now = now
        self._changed_at: int | None = None
        self._authenticated: dict[bytes, Below] = {}
        self._ahead = ETHERNET_SIZE + ip_size(ip_version)  # where the UDP or entropy header stands
        self.refused: Counter[str] = Counter()
        """Packets that were not opened, by why."""

    def frame(self, packet: Datagram) -> bytes:
        """No byte where no counter is left under the key (§8)."""
        if self._is_timed:
            self._keep_time()
        inner = b"".join((packet.header, packet.payload))
        if self.port.clear_nacks and nack_code(inner) in self.port.clear_nacks:
            self.port.out_rx_encryption_bypass += 1
            return self._plain.frame(packet)
        key = (packet.dst, packet.traffic_class, packet.entropy, len(inner) + self._overhead)
        head = (self._below.get(key) or self._remember_below(key)).head
        sealed = self.domain.seal(self._authenticated.get(head) or self._remember(head, packet.dst), inner)
        return head + sealed if sealed is not None else b""

    def packet(self, frame: bytes) -> Datagram | None:
        packet = super().packet(frame)
        if packet is None:
            return None
        if self._is_timed:
            self._keep_time()
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

    def _keep_time(self) -> None:
        """What the one who hands out keys has ordered for now (§10)."""
        domain, now = self.domain, self._now()
        sealed = domain.counters.out_auth_pkts
        if self._epoch_at is not None and self._epoch_at.has_come(sealed, now):
            domain.move_epoch((domain.tx_epoch + 1) & _LAST_EPOCH)
            self._epoch_at = None
        if self._rotation is not None:
            self._rotate(self._rotation, sealed, now)

    def _rotate(self, rotation: Rotation, sealed: int, now: int) -> None:
        """Make before break (§10): to the other key in its time; the old one is forgotten after the guard time."""
        domain = self.domain
        if self._changed_at is None:
            if rotation.turn.has_come(sealed, now):
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
        security = self._security
        member = security.members[node.name]
        settings = member.domain
        port = SecurePort(plain=member.plain, clear_nacks=member.clear_nacks)
        domain = SecureDomain(
            settings, node.address, node.ip_version, tx_an=tx_an(settings), epoch=member.epoch, ledger=self.ledger
        )
        port.domains[settings.sdi] = domain
        framer = SealingFramer(
            node.address, node.ip_version, how, port=port, domain=domain, rotation=security.rotation,
            epoch_at=security.epoch_at, now=self._now, ecn_capable=node.pds.ecn_capable,
        )  # fmt: skip
        self.framers[node.name] = framer
        return framer

    def report(self) -> dict[str, dict[str, Any]]:
        """By node: packets sealed, opened and refused, AN and epoch in use, and the counters of §9 that are not 0."""
        return {name: _report(framer) for name, framer in self.framers.items()}

    def troubles(self) -> Iterator[str]:
        """What could have kept a run from its end: packets refused, or not sent."""
        return (f"{name}: {text}" for name, framer in self.framers.items() for text in _troubles(framer))

    def failure(self, failure: str | None) -> str | None:
        """Why the run has failed, with what security has to say about it."""
        texts = [failure] if failure is not None else []
        if texts:
            texts += self.troubles()
        if self.ledger.repeated:
            texts.append(f"{self.ledger.repeated} packets were sealed with a nonce that was used before")
        return "; ".join(texts) or None


def _report(framer: SealingFramer) -> dict[str, Any]:
    counters, port = asdict(framer.domain.counters), framer.port
    counters |= {
        "in_errored": port.in_errored,
        "in_rx_encryption_bypass": port.in_rx_encryption_bypass,
        "out_rx_encryption_bypass": port.out_rx_encryption_bypass,
    }
    return {
        "sealed": framer.domain.counters.out_auth_pkts,
        "opened": framer.domain.counters.in_auth_pkts,
        "refused": dict(framer.refused),
        "an": framer.domain.tx_an,
        "epoch": framer.domain.tx_epoch,
        "counters": {name: count for name, count in counters.items() if count},
    }


def _troubles(framer: SealingFramer) -> Iterator[str]:
    """Of wrong keys: the SDI and the share of packets that did not open."""
    counters, sdi = framer.domain.counters, framer.domain.domain.sdi
    failed, tried = counters.in_auth_fail, counters.in_auth_fail + counters.in_auth_pkts
    if failed:
        yield f"{failed} of {tried} packets of SDI {sdi} did not open"
    for reason, count in framer.refused.items():
        if reason != "does not open":
            yield f"{count} refused: {reason}"
    if counters.out_invoke_fail:
        yield f"{counters.out_invoke_fail} not sent: no counter is left under the key of SDI {sdi}"
