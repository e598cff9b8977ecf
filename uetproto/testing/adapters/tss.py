# SPDX-License-Identifier: GPL-2.0-only
"""This adapter drives our PDS behind our TSS: each packet that leaves is sealed, and each that arrives is opened."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, ClassVar

from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.port import SecurePort
from uetproto.framing.framer import Framer
from uetproto.framing.tss import SealingFramer
from uetproto.framing.uet import Encapsulation
from uetproto.testing.adapters.adapter import Capabilities
from uetproto.testing.adapters.engines import Config, PdcEngine, Work


def domain_of(told: Mapping[str, Any]) -> DomainConfig:
    """Return the secure domain that `config["tss"]` describes. Raises `LocalError` for values that are not legal."""
    first, other = ((DomainKey(bytes.fromhex(key)),) for key in told["keys"])
    return DomainConfig(
        sdi=told["sdi"], mode=told["mode"], keys=(first, other), crypto_offset=told["crypto_offset"],
        ssis={int(ip_address(address)): ssi for address, ssi in told["ssis"].items()},
        servers=frozenset(int(ip_address(address)) for address in told["servers"]),
    )  # fmt: skip


class TssEngine(PdcEngine):
    """This class drives a member of a secure domain that has our TSS and our PDS."""

    capabilities = Capabilities(
        work=(*PdcEngine.capabilities.work, "switch_key", "next_epoch"), modes=PdcEngine.capabilities.modes,
        knobs=PdcEngine.capabilities.knobs,
    )  # fmt: skip

    framer: SealingFramer

    def make_framer(self, config: Config) -> Framer:
        told, version = config["tss"], ip_address(config["address"]).version
        self.domain = SecureDomain(domain_of(told), self.address, version, epoch=told["epoch"])
        port = SecurePort()
        port.domains[told["sdi"]] = self.domain
        return SealingFramer(
            self.address, version, Encapsulation(udp=config.get("udp", True)), port=port, domain=self.domain,
            now=lambda: self.now,
        )  # fmt: skip

    def _switch_key(self, work: Work) -> None:
        self.domain.switch(work["an"])

    def _next_epoch(self, work: Work) -> None:
        self.domain.move_epoch(work["epoch"])

    works: ClassVar[dict[str, Callable[[Any, Work], None]]] = {
        **PdcEngine.works, "switch_key": _switch_key, "next_epoch": _next_epoch,
    }  # fmt: skip

    def poll(self) -> list[bytes]:
        return [frame for frame in super().poll() if frame]

    @property
    def refused(self) -> int:
        return super().refused + sum(self.framer.refused.values())
