# SPDX-License-Identifier: GPL-2.0-only
"""Secure start decides with which PSN a PDC begins (UE 1.0.1 §3.5.8.2; pds.md §6.6, tss.md §11).

If a PSN of secured PDCs were used twice under one key, captured packets could be replayed. The target therefore refuses
a Start_PSN that may have been used before. This module has the rules for Start_PSNs, and TSS encrypts the packets.
These rules form the `StartPolicy` of one security domain, which is one endpoint here.

Serial comparison of PSNs is valid over half of the PSN space. Expected_PSN is 0 at first, a legal Start_PSN is at most
2^31 − 1 above Expected_PSN, and the domain needs a new key or epoch before Expected_PSN has advanced by 2^31.
"""

from typing import Protocol

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Rng
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
_FIRST_BITS, _LEAST_FIRST = 31, 1 << 16
"""Bits and least value of a Start_PSN while the initiator has closed no PDC: 2^16 … 2^31 − 1 (tss.md §11)."""


class StartPolicy(Protocol):
    """A policy of secure start chooses, demands and accepts Start_PSNs."""

    @property
    def expected(self) -> int | None:
        """Return Expected_PSN, the lowest Start_PSN that this target accepts without a demand, or None if it accepts no
        Start_PSN without a demand."""

    def first(self) -> int | None:
        """Return the Start_PSN for a PDC that this endpoint opens, or None if `PdcPool.draw_start` is to draw it."""

    def demand(self, start: int) -> int | None:
        """Return the Start_PSN that this target demands in place of `start`, or None if the target accepts `start`."""

    def confirms(self, start: int, demanded: int) -> bool:
        """Return True when a PDC in PENDING, whose target has demanded `demanded`, may start at `start`."""

    def closed(self, start: int, last: int, initiator: bool = False) -> None:
        """Take account of the PSNs of a closed PDC. `last` is the highest PSN that was used in either direction, and
        `initiator` is True if this endpoint opened the PDC."""

    def told(self, expected: int) -> None:
        """Store the Expected_PSN that a target sent in the ACK of a CLOSE_CMD (`closing_ack_epsn`)."""


def raised(expected: int, start: int, after: int) -> int:
    """Return Expected_PSN after a PDC has used the PSNs from `start` to `after` − 1; it is never below `expected`.

    If `after` is more than 2^31 above `expected`, serial comparison of the two gives the wrong order. Then only the
    comparison with `start` shows that the PSNs of the PDC are newer.
    """
    newer = diff32(start, expected) >= 0 or diff32(after, expected) > 0
    return after if newer else expected


class ExpectedStart:
    """The policy EXPECTED_0RTT accepts a Start_PSN at or above Expected_PSN without an extra round trip.

    A target keeps Expected_PSN. An initiator keeps the Start_PSN of its next PDC.
    """

    __slots__ = ("_after_close", "_rng", "begin", "expected")

    def __init__(self, after_close: str, rng: Rng) -> None:
        self._after_close = after_close
        self._rng = rng
        self.expected = 0
        """Lowest Start_PSN that a target accepts (`tgt_start_psn`)."""
        self.begin: int | None = None
        """Next Start_PSN of an initiator (`ini_start_psn`). It is None until a PDC has closed, and the initiator draws
        each Start_PSN until then."""

    def first(self) -> int:
        start = self.begin
        while start is None:
            drawn = self._rng.getrandbits(_FIRST_BITS)
            start = drawn if drawn >= _LEAST_FIRST else None
        return start

    def demand(self, start: int) -> int | None:
        """Return Expected_PSN if `start` is below Expected_PSN in serial order, else None."""
        return None if diff32(start, self.expected) >= 0 else self.expected

    def confirms(self, start: int, demanded: int) -> bool:
        """Return True if `start` is at or above the demanded Start_PSN.

        Every Start_PSN that the target refused before is below `demanded`. If such a Start_PSN were accepted, a late
        duplicate could open the PDC at a Start_PSN that its initiator no longer uses, and the initiator would take the
        ACKs of that PDC for ACKs of other packets.
        """
        return diff32(start, demanded) >= 0

    def used(self, start: int, last: int) -> tuple[int, int]:
        """Return the Start_PSN of a PDC, and the first PSN that counts as unused after the PDC has closed.

        `expected_psn_after_close` says which PSNs count as used.
        """
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
    """With the policy RANDOM_1RTT the target draws each Start_PSN. An initiator therefore always sends its first
    packets twice, the second time with the Start_PSN that the target demands."""

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
    """Return a policy of the type that `secure_start` names. Return None if it names no policy: then initiators choose
    the Start_PSN.
    """
    if config.secure_start == "expected":
        return ExpectedStart(config.expected_psn_after_close, rng)
    return RandomStart(rng) if config.secure_start == "random" else None
