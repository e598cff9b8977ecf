# SPDX-License-Identifier: GPL-2.0-only
"""Each defence of a secure domain, taken away: an attacker who does what he likes by chance gets through, and the
fuzzer sees it (tss.md §6–§11, §14).
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("cryptography")

from tests.support.effort import effort
from uetproto.check import fuzz as module
from uetproto.check.finding import FuzzFinding
from uetproto.check.tss import endpoint as tss_end
from uetproto.check.tss import simulator as tss_simulator
from uetproto.check.tss import terms as tss_terms
from uetproto.engine.config import PdsConfig
from uetproto.engine.pds.secure_start import ExpectedStart, RandomStart
from uetproto.engine.tss.cipher import AssociatedData, Cipher, SecurityHeader
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig
from uetproto.engine.tss.port import SecurePort
from uetproto.wire.headers.uet_tss import ICV_SIZE

EPISODES = 150
"""In which a missing defence has to show."""

Patch = pytest.MonkeyPatch


def first_finding(seed: int = 1) -> FuzzFinding | None:
    for tally in islice(module.fuzz("tss", seed), EPISODES):
        if tally.findings:
            return tally.findings[0]
    return None


@pytest.fixture(autouse=True)
def as_drawn(monkeypatch: Patch) -> None:
    """What is found need not be small."""
    monkeypatch.setattr(module, "EFFORT", -1)


def no_authentication(patch: Patch) -> None:
    """What does not open is taken as it is."""
    whole = Cipher.open

    def open_(self: Cipher, header: SecurityHeader, below: AssociatedData, sealed: bytes) -> bytes | None:
        opened = whole(self, header, below, sealed)
        return sealed[header.size : -ICV_SIZE] if opened is None else opened

    patch.setattr(Cipher, "open", open_)


def clear_is_taken(patch: Patch) -> None:
    """Packets in clear pass, and with them a NACK NEW_START_PSN that anybody can write (§11)."""
    patch.setattr(tss_end, "SecurePort", lambda: SecurePort(plain="pass"))


def addresses_are_not_authenticated(patch: Patch) -> None:
    whole = AssociatedData.__init__

    def init(self: AssociatedData, ip_version: int, src: int, dst: int, ahead: bytes) -> None:
        whole(self, ip_version, src, dst, ahead)
        self.run = ahead

    patch.setattr(AssociatedData, "__init__", init)


def entropy_is_not_authenticated(patch: Patch) -> None:
    whole = AssociatedData.__init__
    patch.setattr(
        AssociatedData, "__init__", lambda self, version, src, dst, ahead: whole(self, version, src, dst, b"")
    )


def another_domain_is_taken(patch: Patch) -> None:
    """PDCs are not bound to their domain (§9)."""
    patch.setattr(SecurePort, "is_bound", lambda self, header, sdi: True)


def an_empty_key_still_opens(patch: Patch) -> None:
    """The other AN is accepted for ever (§10 step 4)."""
    patch.setattr(SecureDomain, "empty", lambda self, an: None)


def old_epochs_are_taken(patch: Patch) -> None:
    patch.setattr("uetproto.engine.tss.domain._NEWER", 0)
    patch.setattr(SecureDomain, "move_epoch", lambda self, epoch: self._epochs.__setitem__(self.tx_an, epoch))


def a_restart_keeps_its_epoch(patch: Patch) -> None:
    """It has forgotten its counter, and begins anew where it began (§10)."""
    whole = SecureDomain.__init__

    def init(self: SecureDomain, *arguments: Any, epoch: int = 0, **more: Any) -> None:
        whole(self, *arguments, **more)

    patch.setattr(SecureDomain, "__init__", init)


def counters_stand_still(patch: Patch) -> None:
    """A retransmission is sealed as it was before (§8)."""
    whole = SecureDomain.seal

    def seal(self: SecureDomain, below: AssociatedData, inner: bytes) -> bytes | None:
        before = self.tx_counter
        sealed = whole(self, below, inner)
        self.tx_counter = before + (before % 50 != 7)
        return sealed

    patch.setattr(SecureDomain, "seal", seal)


def one_half_for_both(patch: Patch) -> None:
    """Client and server share key and prefix (§4)."""
    patch.setattr(tss_terms, "DomainConfig", partial(DomainConfig, strict_tsc_halves=False))


def no_floor(patch: Patch) -> None:
    """Any Start_PSN is good."""
    patch.setattr(ExpectedStart, "demand", lambda self, start: None)


def floor_forgets(patch: Patch) -> None:
    """A close does not raise it."""
    patch.setattr(ExpectedStart, "closed", lambda *arguments: None)


def floor_of_the_reference_provider(patch: Patch) -> None:
    """Start + 1: PSNs of the old PDC come back in the next one, and its packets with them (§11, `[D]`)."""
    patch.setattr(tss_simulator, "PdsConfig", partial(PdsConfig, expected_psn_after_close="start_plus_1"))


def nothing_is_drawn(patch: Patch) -> None:
    """RANDOM_1RTT without a PSN of its own: whatever comes is good."""
    patch.setattr(RandomStart, "demand", lambda self, start: None)


def failures_count_twice(patch: Patch) -> None:
    whole = SecureDomain._fail

    def fail(self: SecureDomain) -> None:
        whole(self)
        self.counters.in_auth_fail += 1

    patch.setattr(SecureDomain, "_fail", fail)


SOONER = {floor_of_the_reference_provider: 6}
"""Seeds that find a fault sooner than the first one."""


@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        (no_authentication, {"tss 1"}),
        (clear_is_taken, {"tss 1", "tss 3"}),
        (addresses_are_not_authenticated, {"tss 1"}),
        (entropy_is_not_authenticated, {"tss 1"}),
        (another_domain_is_taken, {"tss 1"}),
        (an_empty_key_still_opens, {"tss 2"}),
        (old_epochs_are_taken, {"tss 2"}),
        (a_restart_keeps_its_epoch, {"tss 2", "tss 5"}),
        (counters_stand_still, {"tss 5"}),
        (one_half_for_both, {"tss 5"}),
        (no_floor, {"tss 4", "tss 8"}),
        (floor_forgets, {"tss 4", "tss 8"}),
        (floor_of_the_reference_provider, {"tss 4", "tss 6"}),
        (nothing_is_drawn, {"tss 4"}),
        (failures_count_twice, {"tss 3"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_defence_is_found(mutant: Callable[[Patch], None], kinds: set[str], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    finding = first_finding(SOONER.get(mutant, 1))
    assert finding is not None
    assert finding.kind in kinds, finding.text
    assert not finding.only_once


def test_nothing_is_found_with_all_of_them() -> None:
    """One seed, a fair sample; `uetproto fuzz tss` plays on."""
    assert not any(tally.failed for tally in islice(module.fuzz("tss", 5), effort(15, 60, 600)))
