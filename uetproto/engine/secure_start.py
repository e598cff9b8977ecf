"""Secure start: who says with which PSN a PDC begins (UE 1.0.1 §3.5.8.2; pds.md §6.6, tss.md §11).

Only the rules: a secured PDC never uses a PSN twice under one key, so the target refuses a Start_PSN that could have
been used. Sealing is none of the PDS's business. A policy belongs to one security domain, here to one endpoint.
"""

from typing import Protocol

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Rng
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF


class StartPolicy(Protocol):
    """The hooks of secure start."""

    def first(self) -> int | None:
        """Start_PSN of a PDC that this endpoint opens; None: drawn as always (pds.md §2.2)."""

    def demand(self, start: int) -> int | None:
        """Another Start_PSN that the target demands for a new PDC; None: this one is good."""

    def demand_again(self, start: int, demanded: int) -> int | None:
        """The same for a PENDING PDC, of which `demanded` was demanded."""

    def closed(self, start: int, last: int) -> None:
        """A PDC is closed; `last` is its last forward PSN."""


class ExpectedStart:
    """EXPECTED_0RTT: both ends keep Expected_PSN, and a PDC starts there or above it."""

    __slots__ = ("after_close", "expected")

    def __init__(self, after_close: str) -> None:
        self.after_close = after_close
        self.expected: int | None = None
        """None as long as no PDC was closed: any Start_PSN is good."""

    def first(self) -> int | None:
        return self.expected

    def demand(self, start: int) -> int | None:
        """Start_PSN ≥ Expected_PSN, serially."""
        return None if self.expected is None or diff32(start, self.expected) >= 0 else self.expected

    def demand_again(self, start: int, demanded: int) -> int | None:
        return self.demand(start)

    def closed(self, start: int, last: int) -> None:
        """Expected_PSN never falls (observed.md `expected_psn_after_close`)."""
        after = ((start if self.after_close == "start_plus_1" else last) + 1) & _M32
        if self.expected is None or diff32(after, self.expected) > 0:
            self.expected = after


class RandomStart:
    """RANDOM_1RTT: the target draws the Start_PSN of each PDC; the first flight is always sent twice."""

    __slots__ = ("_rng",)

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def first(self) -> int | None:
        return None

    def demand(self, start: int) -> int | None:
        drawn = self._rng.getrandbits(32)
        return drawn if drawn != start else drawn ^ 1

    def demand_again(self, start: int, demanded: int) -> int | None:
        return None if start == demanded else demanded

    def closed(self, start: int, last: int) -> None:
        """Nothing is remembered."""


def policy_of(config: PdsConfig, rng: Rng) -> StartPolicy | None:
    """The policy that `secure_start` names; None: PDCs start where their initiators say."""
    if config.secure_start == "expected":
        return ExpectedStart(config.expected_psn_after_close)
    return RandomStart(rng) if config.secure_start == "random" else None
