# SPDX-License-Identifier: GPL-2.0-only
"""This module has the framer of a NIC with security, which turns packets into sealed frames and back (tss.md §7–10).

It seals a packet each time that the packet is sent, so a retransmission has a new counter (tss.md §8). It opens a frame
before the PDS header is read (tss.md §9). A sealed frame has an ICV in place of the CRC32C.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from uetproto.engine.contract import NEVER, Datagram, TrafficClass
from uetproto.engine.train import ArrivingRun, Train, TrainAck
from uetproto.engine.tss.cipher import AssociatedData, Refused, Seal
from uetproto.engine.tss.domain import SecureDomain, TrimmedPart
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.engine.tss.port import SecurePort, nack_code
from uetproto.framing.framer import CACHE
from uetproto.framing.security import KeyRotation, RekeyTrigger, Security, tx_an
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.framing.tss_trains import OpenedRun, seal_train, take_ack
from uetproto.framing.uet import Encapsulation, UetFramer

_LAST_EPOCH = 0xFFFF


class SealingFramer(UetFramer):
    """A sealing framer makes and opens the frames of one member of a secure domain, and counts why it drops frames."""

    def __init__(
        self,
        address: int,
        ip_version: int,
        how: Encapsulation,
        *,
        port: SecurePort,
        domain: SecureDomain,
        rotation: KeyRotation | None = None,
        epoch_at: RekeyTrigger | None = None,
        now: Callable[[], int],
        ecn_capable: bool = True,
        local_port: int | None = None,
    ) -> None:
        """Make the framer of a member. `how` is the encapsulation of sealed packets and of packets in clear, `now`
        returns the time in picoseconds, and `local_port` is that of `UetFramer`."""
        super().__init__(address, ip_version, replace(how, crc=False), ecn_capable=ecn_capable, local_port=local_port)
        self._plain = UetFramer(address, ip_version, how, ecn_capable=ecn_capable, local_port=local_port)
        self.port = port
        self.domain = domain
        self.now = now
        self.overhead = domain.domain.overhead
        self._rotation = rotation
        self._epoch_at = epoch_at
        self.is_timed = rotation is not None or epoch_at is not None
        self._changed_at: int | None = None
        self._authenticated: dict[bytes, AssociatedData] = {}
        self._above_ip = ETHERNET_SIZE + ip_size(ip_version)  # offset of the UDP or entropy header
        self.refused: Counter[str] = Counter()
        """Number of packets that were not opened, by reason."""

    def frame(self, packet: Datagram) -> bytes:
        """Return the sealed frame. It is empty if all counter values of the key are used (tss.md §8)."""
        if self.is_timed:
            self.keep_time()
        inner = b"".join((packet.header, packet.payload))
        if self._leaves_in_clear(inner):
            self.port.out_rx_encryption_bypass += 1
            return self._plain.frame(packet)
        head = self._head_for(packet, len(inner))
        sealed = self.domain.seal(self.authenticated(head, packet.dst), inner)
        return head + sealed if sealed is not None else b""

    def _leaves_in_clear(self, inner: bytes) -> bool:
        return bool(self.port.clear_nacks) and nack_code(inner) in self.port.clear_nacks

    def lower(self, packet: Datagram, size: int | None = None) -> bytes:
        """Return all bytes before the security header, or before the PDS header of a packet in clear."""
        inner = b"".join((packet.header, packet.payload))
        return self._plain.lower(packet) if self._leaves_in_clear(inner) else super().lower(packet)

    def packet(self, frame: bytes) -> Datagram | None:
        packet = super().packet(frame)
        if packet is None:
            return None
        if self.is_timed:
            self.keep_time()
        head = frame[: self._start]
        below = self.authenticated(head, packet.dst, packet.src)
        opened = self.port.receive(below, bytes(packet.header), is_trimmed=bool(packet.trimmed))
        if isinstance(opened, Refused):
            self.refused[opened.reason] += 1
            return None
        if isinstance(opened, TrimmedPart):
            packet.header = opened.clear
            return packet
        if opened.header is None:
            plain = self._plain.packet(frame)  # not sealed: accepted here after the check of its CRC32C
            self.bad_crc += plain is None
            return plain
        if not self.port.is_bound(opened.header, self.domain.domain.sdi):  # all PDCs are bound to this domain
            self.refused["another domain than that of its PDC"] += 1
            return None
        packet.header = opened.inner
        return packet

    def authenticated(self, head: bytes, dst: int, src: int | None = None) -> AssociatedData:
        """Return the part of the lower headers that is authenticated (tss.md §7.1, §7.3), and keep it."""
        found = self._authenticated.get(head)
        if found is not None:
            return found
        if len(self._authenticated) >= CACHE:
            self._authenticated.clear()
        ahead = self._zero_checksum(head)[self._above_ip :]
        below = AssociatedData(self._version, self._address if src is None else src, dst, ahead)
        self._authenticated[head] = below
        return below

    @property
    def last_seal(self) -> Seal | None:
        return self.domain.last_seal

    def frames(self, train: Train) -> list[bytes]:
        return seal_train(self, train)

    def follow(self, run: ArrivingRun, train: Train, index: int) -> ArrivingRun | None:
        opened = OpenedRun(self, run, train)
        return opened if opened.accept(index) else None

    def takes_ack(self, ack: TrainAck) -> bool:
        return take_ack(self, ack)

    def packet_of_ack(self, ack: TrainAck) -> Datagram:
        packet = super().packet(ack.frame)
        assert packet is not None
        packet.header = b"".join((ack.packet.header, ack.packet.payload))
        return packet

    def lower_of_train(self, train: Train) -> list[bytes]:
        """Return the lower headers of the packets of a train."""
        key = (train.dst, TrafficClass.DATA, train.size)
        head = self._heads.get(key) or self._build_head(key)
        built = {entropy: head.with_entropy(entropy) for entropy in set(train.entropies)}
        return [built[entropy] for entropy in train.entropies]

    def next_change(self) -> tuple[int, int]:
        """Return the number of sealed packets and the instant from which on `keep_time` changes anything; NEVER for
        each of them that does not matter."""
        rotation, triggers, guard_ends = self._rotation, [self._epoch_at], NEVER
        if rotation is not None:
            if self._changed_at is None:
                triggers.append(rotation.trigger)
            elif self.domain.has_key(1 - self.domain.tx_an):
                guard_ends = self._changed_at + rotation.guard
        packets = min((one.packets for one in triggers if one is not None and one.packets is not None), default=NEVER)
        times = (one.time for one in triggers if one is not None and one.packets is None and one.time is not None)
        return packets, min(min(times, default=NEVER), guard_ends)

    def next_turn(self) -> int:
        if not self.is_timed:
            return NEVER
        packets, time = self.next_change()
        return 0 if self.domain.counters.out_auth_pkts >= packets else time

    def keep_time(self) -> None:
        """Change key and epoch if it is time (tss.md §10)."""
        domain, now = self.domain, self.now()
        sealed = domain.counters.out_auth_pkts
        if self._epoch_at is not None and self._epoch_at.is_due(sealed, now):
            domain.move_epoch((domain.tx_epoch + 1) & _LAST_EPOCH)
            self._epoch_at = None
        if self._rotation is not None:
            self._rotate(self._rotation, sealed, now)

    def troubles(self) -> Iterator[str]:
        """Yield a text for each kind of packets that did not open, were refused, or were not sent."""
        counters, sdi = self.domain.counters, self.domain.domain.sdi
        failed, tried = counters.in_auth_fail, counters.in_auth_fail + counters.in_auth_pkts
        if failed:
            yield f"{failed} of {tried} packets of SDI {sdi} did not open"
        for reason, count in self.refused.items():
            if reason != "does not open":
                yield f"{count} refused: {reason}"
        if counters.out_invoke_fail:
            yield f"{counters.out_invoke_fail} not sent: no counter is left under the key of SDI {sdi}"

    def _rotate(self, rotation: KeyRotation, sealed: int, now: int) -> None:
        """Change to the other key when it is time, and delete the old key after the guard time (tss.md §10)."""
        domain = self.domain
        if self._changed_at is None:
            if rotation.trigger.is_due(sealed, now):
                domain.switch(1 - domain.tx_an)
                self._changed_at = now
        elif now >= self._changed_at + rotation.guard:
            domain.empty(1 - domain.tx_an)


def sealing_framer(
    security: Security, name: str, address: int, ip_version: int, how: Encapsulation, *, now: Callable[[], int],
    ecn_capable: bool = True, local_port: int | None = None, ledger: NonceLedger | None = None, counter: int = 0,
) -> SealingFramer:  # fmt: skip
    """Return the framer of the member `name` of a secure domain, at an address. `counter` is that of `SecureDomain`."""
    member = security.members[name]
    settings = member.domain
    port = SecurePort(plain=member.plain, clear_nacks=member.clear_nacks)
    domain = SecureDomain(
        settings, address, ip_version, tx_an=tx_an(settings), epoch=member.epoch, ledger=ledger, counter=counter
    )
    port.domains[settings.sdi] = domain
    return SealingFramer(
        address, ip_version, how, port=port, domain=domain, rotation=security.rotation, epoch_at=security.epoch_at,
        now=now, ecn_capable=ecn_capable, local_port=local_port,
    )  # fmt: skip


class Secured:
    """This class makes and keeps the sealing framers of all nodes of a run, and one record of the nonces they use."""

    def __init__(self, security: Security, now: Callable[[], int]) -> None:
        self._security = security
        self._now = now
        self.ledger = NonceLedger()
        self.framers: dict[str, SealingFramer] = {}

    def framer(self, node: Any, how: Encapsulation) -> SealingFramer:
        """Return a framer for the NIC of `node`."""
        framer = self.framers[node.name] = sealing_framer(
            self._security, node.name, node.address, node.ip_version, how, now=self._now,
            ecn_capable=node.pds.ecn_capable, ledger=self.ledger,
        )  # fmt: skip
        return framer

    def report(self) -> dict[str, dict[str, Any]]:
        """Return a dict for each node, by node name. It has the numbers of packets that the node sealed, opened and
        refused, the AN and epoch of the node, and those of its counters that are not 0."""
        return {name: _report(framer) for name, framer in self.framers.items()}

    def troubles(self) -> Iterator[str]:
        """Yield a text for each reason for which packets of a node were refused or not sent. These texts can explain
        why a run did not end."""
        return (f"{name}: {text}" for name, framer in self.framers.items() for text in framer.troubles())

    def failure(self, failure: str | None) -> str | None:
        """Return why a run failed, or None if it did not fail.

        If `failure` is a text, the result begins with it, and the texts of `troubles` follow. A run also fails if a
        nonce was used twice. The result then says how often.
        """
        texts = [] if failure is None else [failure, *self.troubles()]
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
