# SPDX-License-Identifier: GPL-2.0-only
"""This module has the security settings of a run whose packets TSS seals: the members of the secure domain, and when
they change keys and epochs (tss.md §3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from uetproto.engine.tss.keys import DomainConfig, KeyRing


class RekeyTrigger(NamedTuple):
    """A trigger says when a node changes its key or epoch: after a number of sealed packets, or at a time."""

    packets: int | None
    """Number of sealed packets after which the node changes its key or epoch, or None if `time` says when."""
    time: int | None
    """Time of the change in picoseconds, or None if `packets` says when."""

    def is_due(self, sealed: int, now: int) -> bool:
        """Return whether the change is due at time `now`, after `sealed` sealed packets."""
        if self.packets is not None:
            return sealed >= self.packets
        return self.time is not None and now >= self.time


class KeyRotation(NamedTuple):
    """A rotation says when a node changes to the key of its other AN (tss.md §10)."""

    trigger: RekeyTrigger
    guard: int = 0
    """Number of picoseconds after the change during which the node still accepts the old key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityMember:
    """A member is one node of a secure domain: its configuration, and what it does with packets in clear."""

    domain: DomainConfig
    """Configuration of the domain at this node. Its keys and thresholds may differ from those of other nodes."""
    epoch: int = 0
    """Epoch in which the node starts."""
    plain: str = "drop"
    """Whether the node drops received packets in clear, "drop", or accepts them, "pass"."""
    clear_nacks: frozenset[int] = frozenset()
    """Codes of NACKs that the node sends and accepts in clear (observed.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """This class holds the members of a secure domain, by node name, and when they change keys and epochs."""

    members: Mapping[str, SecurityMember]
    rotation: KeyRotation | None = None
    epoch_at: RekeyTrigger | None = None
    """Trigger of the change to the next epoch, at each node. It is None if the epoch does not change."""

    @property
    def domain(self) -> DomainConfig:
        """Return the domain of the first node. The domains of other nodes differ only in keys and thresholds."""
        return next(iter(self.members.values())).domain

    @property
    def is_clear_in_part(self) -> bool:
        """Return whether some nodes send some packets in clear."""
        return any(member.clear_nacks for member in self.members.values())

    def ring(self) -> KeyRing:
        """Return the keys of all nodes, for an observer that decrypts the packets."""
        first = self.domain
        domains = [member.domain for member in self.members.values()]
        slots = (tuple(dict.fromkeys(key for one in domains for key in one.keys[an])) for an in (0, 1))
        shared = ("sdi", "mode", "servers", "rekey_mask", "rekey_shift", "crypto_offset", "ipv6_ssi_context")
        return KeyRing(
            {first.sdi: DomainConfig(keys=(next(slots), next(slots)), **{k: getattr(first, k) for k in shared})}
        )


def tx_an(domain: DomainConfig) -> int:
    """Return the AN with which a member begins: the first AN that has a key."""
    return 0 if domain.keys[0] else 1
