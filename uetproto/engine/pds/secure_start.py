"""Secure start decides with which PSN a PDC begins (UE 1.0.1 §3.5.8.2; pds.md §6.6, tss.md §11).

A secured PDC never uses a PSN twice under one key, so the target refuses a Start_PSN that could have been used. This
module holds the rules only; TSS seals packets. A policy belongs to one security domain, here to one endpoint.

Serial order covers half of the PSN space: Expected_PSN begins at 0, PDCs of a domain begin in the half above it, and
the domain needs a new key or epoch before Expected_PSN has advanced by half the space.
"""

from typing import Protocol

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Rng
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
_FIRST_BITS, _LEAST_FIRST = 31, 1 << 16
"""Range of the first Start_PSN of an initiator that has closed no PDC yet: 2^16 … 2^31 − 1 (tss.md §11)."""


class StartPolicy(Protocol):
    """A policy makes the decisions of secure start."""

    @property
    def expected(self) -> int | None:
        """Return the lowest Start_PSN that this endpoint accepts without another round; None: there is none."""

    def first(self) -> int | None:
        """Return the Start_PSN of a PDC that this endpoint opens; None: it is drawn (pds.md §2.2)."""

    def demand(self, start: int) -> int | None:
        """Return another Start_PSN that the target demands for a new PDC; None: `start` is accepted."""

    def confirms(self, start: int, demanded: int) -> bool:
        """Return True when a PDC in PENDING, from which `demanded` was demanded, may begin at `start`."""

    def closed(self, start: int, last: int, initiator: bool = False) -> None:
        """Note a closed PDC: its last PSN in either direction, and whether this endpoint had opened it."""

    def told(self, expected: int) -> None:
        """Note the Expected_PSN that a target sent when it closed a PDC (`closing_ack_epsn`)."""


def raised(expected: int, start: int, after: int) -> int:
    """Return Expected_PSN after a PDC that began at `start` used all PSNs below `after`; it never goes back.

    A PDC may begin so far above that `after` is more than half the space away: it counts nevertheless.
    """
    newer = diff32(start, expected) >= 0 or diff32(after, expected) > 0
    return after if newer else expected


class ExpectedStart:
    """Makes a PDC start at or above Expected_PSN, which both ends keep (EXPECTED_0RTT)."""

    __slots__ = ("_after_close", "_rng", "begin", "expected")

    def __init__(self, after_close: str, rng: Rng) -> None:
        self._after_close = after_close
        self._rng = rng
        self.expected = 0
        """Lowest Start_PSN that a target accepts (`tgt_start_psn`)."""
        self.begin: int | None = None
        """Next Start_PSN of an initiator (`ini_start_psn`); None: it is drawn, as no own PDC was closed yet."""

    def first(self) -> int:
        start = self.begin
        while start is None:
            drawn = self._rng.getrandbits(_FIRST_BITS)
            start = drawn if drawn >= _LEAST_FIRST else None
        return start

    def demand(self, start: int) -> int | None:
        """Demand Expected_PSN for a Start_PSN below it, in serial order."""
        return None if diff32(start, self.expected) >= 0 else self.expected

    def confirms(self, start: int, demanded: int) -> bool:
        """Accept Start_PSNs at or above the demanded one; a refused Start_PSN stays refused.

        Otherwise a late copy could open a PDC at a Start_PSN that its initiator has left, and the initiator would take
        the ACKs of that PDC for those of other packets.
        """
        return diff32(start, demanded) >= 0

    def used(self, start: int, last: int) -> tuple[int, int]:
        """Return the Start_PSN of a PDC and the first PSN after it (observed.md `expected_psn_after_close`)."""
        return start, ((start if self._after_close == "start_plus_1" else last) + 1) & _M32

    def closed(self, start: int, last: int, initiator: bool = False) -> None:
        begin, after = self.used(start, last)
        if not initiator:
            self.expected = raised(self.expected, begin, after)
        else:
            self.begin = after if self.begin is None else raised(self.begin, begin, after)

    def told(self, expected: int) -> None:
        if self.begin is None or diff32(expected, self.begin) > 0:
            self.begin = expected


class RandomStart:
    """RANDOM_1RTT: the target draws the Start_PSN of each PDC; the first flight is always sent twice."""

    __slots__ = ("_rng",)

    expected = None

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def first(self) -> int | None:
        return None

    def demand(self, start: int) -> int | None:
        drawn = self._rng.getrandbits(32)
        return drawn if drawn != start else drawn ^ 1

    def confirms(self, start: int, demanded: int) -> bool:
        return start == demanded

    def closed(self, start: int, last: int, initiator: bool = False) -> None:
        """Do nothing: this policy keeps no state."""

    def told(self, expected: int) -> None:
        """Do nothing: this policy expects no PSN."""


def policy_of(config: PdsConfig, rng: Rng) -> StartPolicy | None:
    """Return the policy that `secure_start` names; None: initiators choose the Start_PSN."""
    if config.secure_start == "expected":
        return ExpectedStart(config.expected_psn_after_close, rng)
    return RandomStart(rng) if config.secure_start == "random" else None
