# SPDX-License-Identifier: GPL-2.0-only
"""This module has the settings that the members of a secure domain share, and the keys that the key
server hands out."""

from dataclasses import dataclass

from uetproto.check.wire import ADDRESSES
from uetproto.engine.tss.keys import KEY_SIZE, DomainConfig, DomainKey

_V6 = 0xFD << 120
_SSIS = (100, 200)


@dataclass(frozen=True, slots=True)
class Terms:
    """This record has the settings that the members of a secure domain share. A setting that is also a field of
    `DomainConfig` has the same name there."""

    mode: str = "direct"
    start: str = "off"
    ip_version: int = 4
    has_ssi: bool = False
    rekeys: bool = False
    """Whether, in mode cluster, the packet key changes after every 16 packets."""
    clear: int = 0
    """Number of leading bytes of the PDS header that are not encrypted (tss.md §7.2)."""
    lifetime: int = 16
    """Value of `rx_max_epoch_lifetime` of the domain."""
    failures: int = 1000
    """Value of `auth_fail_threshold` of the domain."""
    same_keys: bool = False
    """Whether the second domain has the same first key as the first one. The attacker then does not know that key."""
    start_psn: int | None = None
    """Start_PSN of the first PDC. None means that it is drawn at random."""
    epoch: int = 0

    def domain(self, sdi: int, key: DomainKey, an: int = 0) -> DomainConfig:
        """Return the configuration of a domain with a single key, for the AN `an`. Raises `LocalError` for settings
        that exclude each other."""
        addresses = self.addresses
        return DomainConfig(
            sdi=sdi, mode=self.mode, keys=((), (key,)) if an else ((key,), ()),
            ssis=dict(zip(addresses, _SSIS, strict=True)) if self.has_ssi else {},
            servers=frozenset(addresses[1:]) if self.mode == "client-server" else frozenset(),
            rekey_mask=0xFFFF0 if self.rekeys else 0, rekey_shift=4 if self.rekeys else 0,
            crypto_offset=(16 if self.has_ssi else 12) + self.clear if self.clear else "header",
            rx_max_epoch_lifetime=self.lifetime, auth_fail_threshold=self.failures,
        )  # fmt: skip

    @property
    def addresses(self) -> tuple[int, int]:
        one, other = ADDRESSES
        return (one, other) if self.ip_version == 4 else (_V6 + one, _V6 + other)


def generation(number: int) -> DomainKey:
    """Return the key of the generation `number`. The key server hands out the keys in ascending order of these
    numbers."""
    return DomainKey(number.to_bytes(KEY_SIZE, "big"))
