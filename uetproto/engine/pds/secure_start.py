"""Secure start: who says with which PSN a PDC begins (UE 1.0.1 §3.5.8.2; pds.md §6.6, tss.md §11).

Only the rules: a secured PDC never uses a PSN twice under one key, so the target refuses a Start_PSN that could have
been used. Sealing is none of the PDS's business. A policy belongs to one security domain, here to one endpoint.

"Newer" is an order of half the circle only: Expected_PSN begins at 0, PDCs of a domain begin in the half above it, and
before it has gone half a circle the domain needs a new key or a new epoch, else the oldest packets are newer again.
"""

from typing import Protocol

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Rng
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
_FIRST_BITS, _LEAST_FIRST = 31, 1 << 16
"""Where an initiator begins that expects nothing yet: 2^16 … 2^31 − 1 (tss.md §11)."""


class StartPolicy(Protocol):
    """The hooks of secure start."""

    @property
    def expected(self) -> int | None:
        """The lowest Start_PSN that this endpoint takes without another round; None: there is none."""

    def first(self) -> int | None:
        """Start_PSN of a PDC that this endpoint opens; None: drawn as always (pds.md §2.2)."""

    def demand(self, start: int) -> int | None:
        """Another Start_PSN that the target demands for a new PDC; None: this one is good."""

    def confirms(self, start: int, demanded: int) -> bool:
        """A PENDING PDC, of which `demanded` was demanded, may begin at `start`."""

    def closed(self, start: int, last: int, initiator: bool = False) -> None:
        """A PDC is closed; `last` is its last PSN, in either direction; whether this endpoint had opened it."""

    def told(self, expected: int) -> None:
        """The target told its own Expected_PSN when it closed a PDC (`closing_ack_epsn`)."""


def raised(expected: int, start: int, after: int) -> int:
    """Expected_PSN once a PDC that began at `start` has used all PSNs below `after`: never one of these, never older.

    A PDC may begin far above it, so that `after` is more than half a circle away: it counts nevertheless.
    """
    newer = diff32(start, expected) >= 0 or diff32(after, expected) > 0
    return after if newer else expected


class ExpectedStart:
    """EXPECTED_0RTT: both ends keep Expected_PSN, and a PDC starts there or above it."""

    __slots__ = ("_after_close", "_rng", "begin", "expected")

    def __init__(self, after_close: str, rng: Rng) -> None:
        self._after_close = after_close
        self._rng = rng
        self.expected = 0
        """As a target: the lowest Start_PSN taken (`tgt_start_psn`)."""
        self.begin: int | None = None
        """As an initiator: the next Start_PSN (`ini_start_psn`); None: drawn, no PDC of ours was closed yet."""

    def first(self) -> int:
        start = self.begin
        while start is None:
            drawn = self._rng.getrandbits(_FIRST_BITS)
            start = drawn if drawn >= _LEAST_FIRST else None
        return start

    def demand(self, start: int) -> int | None:
        """Start_PSN ≥ Expected_PSN, serially."""
        return None if diff32(start, self.expected) >= 0 else self.expected

    def confirms(self, start: int, demanded: int) -> bool:
        """Above it too, as where nothing is PENDING: what is refused once must be refused for ever.

        Else a late copy could open a PDC at the Start_PSN that its initiator has left at our word, and the ACKs of that
        one would be taken for those of other packets.
        """
        return diff32(start, demanded) >= 0

    def used(self, start: int, last: int) -> tuple[int, int]:
        """Start_PSN of a PDC, and the first PSN after it (observed.md `expected_psn_after_close`)."""
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
        """Nothing is remembered."""

    def told(self, expected: int) -> None:
        """Nothing is expected."""


def policy_of(config: PdsConfig, rng: Rng) -> StartPolicy | None:
    """The policy that `secure_start` names; None: PDCs start where their initiators say."""
    if config.secure_start == "expected":
        return ExpectedStart(config.expected_psn_after_close, rng)
    return RandomStart(rng) if config.secure_start == "random" else None
