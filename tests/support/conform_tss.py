# SPDX-License-Identifier: GPL-2.0-only
"""A peer of conformance tests with keys in this process: our endpoint, whose packets are sealed."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from tests.support.conform import FACTS, PEER, US, AdapterLink
from uetproto.conform.packets import PeerFacts
from uetproto.conform.tss.sealing import Sealing
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.port import SecurePort
from uetproto.framing.framer import Framer
from uetproto.framing.tss import SealingFramer
from uetproto.framing.uet import Encapsulation
from uetproto.testing.adapters.engines import Config
from uetproto.testing.adapters.fep import FepEngine

SDI = 7
OURS, THEIRS = 0x100, 0x200
"""SSIs of both ends, if packets have one."""


def domain(mode: str = "direct", *, both: bool = True, ssis: bool = False, **settings: Any) -> DomainConfig:
    """Return the secure domain of both ends."""
    keys = ((DomainKey(bytes(range(32))),), (DomainKey(bytes(range(32, 64))),) if both else ())
    us, peer = int(ip_address(US)), int(ip_address(PEER))
    return DomainConfig(
        sdi=SDI, mode=mode, keys=keys, ssis={us: OURS, peer: THEIRS} if ssis else {},
        servers=frozenset((peer,) if mode == "client-server" else ()), **settings,
    )  # fmt: skip


class SealedEngine(FepEngine):
    """Our endpoint with keys, which begins in epoch 100."""

    framer: SealingFramer
    epoch = 100

    def make_framer(self, config: Config) -> Framer:
        told: DomainConfig = config["domain"]
        self.domain = SecureDomain(told, self.address, 4, epoch=self.epoch)
        port = SecurePort(**config.get("port", {}))
        port.domains[told.sdi] = self.domain
        how = Encapsulation(udp=config.get("udp", True))
        return SealingFramer(self.address, 4, how, port=port, domain=self.domain, now=lambda: self.now)


class SealedLink(AdapterLink):
    """A link to an endpoint with keys, and what is known of it."""

    def __init__(
        self, make: type[SealedEngine] = SealedEngine, told: DomainConfig | None = None, **config: Any
    ) -> None:
        self.told = domain() if told is None else told
        super().__init__(make, **{"domain": self.told, "knobs": {"secure_start": "expected"}} | config)

    def facts(self) -> PeerFacts:
        how = Encapsulation(udp=self.config.get("udp", True))
        security = Sealing(replace(self.told, ssis={}), FACTS.local, OURS if self.told.ssis else None, 1000)
        security.domain, security.epoch = self.told, SealedEngine.epoch
        return replace(FACTS, how=how, security=security)
