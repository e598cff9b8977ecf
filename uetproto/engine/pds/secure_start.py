"""Secure start decides with which PSN a PDC begins (UE 1.0.1 §3.5.8.2; pds.md §6.6, tss.md §11).

No PSN of secured PDCs may be used twice under one key, or captured packets could be replayed: so the target refuses a
Start_PSN that may have been used. This module has the rules for Start_PSNs; TSS seals the packets. A policy belongs to
one security domain, here to one endpoint.

Serial comparison works over half of the PSN space: Expected_PSN is 0 at first, a Start_PSN is legal up to 2^31 − 1
above it, and the domain needs a new key or epoch before Expected_PSN has advanced by 2^31.
"""

from typing import Protocol

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Rng
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
_FIRST_BITS, _LEAST_FIRST = 31, 1 << 16
"""Bits and least value of a Start_PSN while the initiator has closed no PDC: 2^16 … 2^31 − 1 (tss.md §11)."""


class StartPolicy(Protocol):
    """A policy makes the decisions of secure start."""

    @property
    def expected(self) -> int | None:
        """Return Expected_PSN, the lowest Start_PSN that this endpoint accepts at once; None: it accepts none."""

    def first(self) -> int | None:
        """Return the Start_PSN for a PDC that this endpoint opens; None: `PdcPool.draw_start` draws it."""

    def demand(self, start: int) -> int | None:
        """Return the Start_PSN that the target demands in place of `start`; None: the target accepts `start`."""

    def confirms(self, start: int, demanded: int) -> bool:
        """Return True when a PDC in PENDING may begin at `start`, after the target has demanded `demanded`."""

    def closed(self, start: int, last: int, initiator: bool = False) -> None:
        """Note a closed PDC: its Start_PSN, its last PSN in either direction, and whether this endpoint opened it."""

    def told(self, expected: int) -> None:
        """Note the Expected_PSN that a target sent when it closed a PDC (`closing_ack_epsn`)."""


def raised(expected: int, start: int, after: int) -> int:
    """Return the new Expected_PSN, never lower than `expected`, after a PDC has used the PSNs from `start` to before
    `after`.

    If `after` is more than 2^31 above `expected`, serial order is reversed, and only `start` shows that the PSNs are
    newer.
    """
    newer = diff32(start, expected) >= 0 or diff32(after, expected) > 0
    return after if newer else expected


class ExpectedStart:
    """The policy EXPECTED_0RTT: a PDC starts at or above Expected_PSN, and needs no extra round trip if it does.

    A target keeps the PSN that it expects; an initiator keeps the PSN with which its next PDC begins.
    """

    __slots__ = ("_after_close", "_rng", "begin", "expected")

    def __init__(self, after_close: str, rng: Rng) -> None:
        self._after_close = after_close
        self._rng = rng
        self.expected = 0
        """Lowest Start_PSN that a target accepts (`tgt_start_psn`)."""
        self.begin: int | None = None
        """Next Start_PSN of an initiator (`ini_start_psn`); None: it has closed no PDC yet, and draws the Start_PSN."""

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
        """Return True for a Start_PSN at or above the demanded one. Any Start_PSN that was refused before is below it.

        If a refused Start_PSN were accepted, a late duplicate could open the PDC at a Start_PSN that its initiator no
        longer uses, and the initiator would take the ACKs of that PDC for ACKs of other packets.
        """
        return diff32(start, demanded) >= 0

    def used(self, start: int, last: int) -> tuple[int, int]:
        """Return Start_PSN and the first PSN that counts as unused after a PDC (`expected_psn_after_close`)."""
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
    """The policy RANDOM_1RTT: the target draws each Start_PSN, so that the first packets are always sent twice."""

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
