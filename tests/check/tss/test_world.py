# SPDX-License-Identifier: GPL-2.0-only
"""The simulator of two members of a secure domain and an attacker: what its steps do, and what its invariants see."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography")

from uetproto.check.registry import InvariantViolation
from uetproto.check.tss import invariants
from uetproto.check.tss.endpoint import LONGEST, OfferedMemory, TssOperation, content
from uetproto.check.tss.invariants import tss_6_outcome, tss_8_opened_once
from uetproto.check.tss.simulator import Terms, TssSimulator
from uetproto.check.tss.step_generator import TssStepGenerator
from uetproto.check.tss.steps import ACTIONS, TssStep, simpler
from uetproto.engine.contract import MILLISECOND, SECOND, Completion
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ReturnCode

TERMS: list[dict[str, Any]] = [
    {"mode": mode, "ip_version": version, "has_ssi": has_ssi, "rekeys": mode == "cluster", "start": start}
    for mode in ("direct", "cluster", "client-server")
    for version in (4, 6)
    for has_ssi in (False, True)
    for start in ("off", "expected", "random")
    if has_ssi or (mode, version) != ("direct", 6)
]


def simulator(**terms: Any) -> TssSimulator:
    return TssSimulator(1, terms, {"msl": 50 * MILLISECOND})


def play(w: TssSimulator, *steps: TssStep) -> TssSimulator:
    for step in steps:
        w.apply(step)
    return w


def deliver_all(w: TssSimulator) -> TssSimulator:
    while w.flight:
        w.apply(TssStep("deliver", number=next(iter(w.flight))))
    return w


def write(length: int = 100, node: int = 0, how: str = "rud") -> TssStep:
    return TssStep("write", node, length, how=how)


@pytest.mark.parametrize("terms", TERMS, ids=lambda terms: "-".join(str(value) for value in terms.values()))
def test_messages_of_all_modes_arrive(terms: dict[str, Any]) -> None:
    w = play(simulator(**terms), write(3000), write(0, 1, "rod"), TssStep("read", 0, 2000, how="rod"))
    w.finish()
    assert [one.outcomes for end in w.ends for one in end.operations] == [1, 1, 1]
    assert all(w.ends[1].memory.written)
    assert sum(end.refused for end in w.ends) == 0


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (TssStep("flip", at=8 * 30 + 3), "in_auth_fail"),
        (TssStep("cut", at=40), "in_auth_fail"),
        (TssStep("cut", at=40, how="trimmed"), "in_trimmed"),
        (TssStep("extend", data=b"x"), "in_auth_fail"),
        (TssStep("rewrite", at=1, how="tsc"), "in_auth_fail"),
        (TssStep("rewrite", at=17, how="epoch"), "in_auth_fail"),
        (TssStep("rewrite", at=0xFFE0, how="epoch"), "in_late_pkts"),
        (TssStep("rewrite", at=1, how="an"), "in_auth_fail"),
        (TssStep("rewrite", at=7, how="ssi"), "in_auth_fail"),
        (TssStep("rewrite", at=9, how="entropy"), "in_auth_fail"),
        (TssStep("rewrite", at=0x0A000009, how="src"), "in_auth_fail"),
        (TssStep("splice", at=0), ""),
    ],
    ids=lambda value: str(value),
)
def test_what_is_changed_is_refused_and_sent_again(attack: TssStep, reason: str) -> None:
    w = deliver_all(play(simulator(), write(), attack))
    counters = w.ends[1].domain.counters
    if reason:
        assert getattr(counters, reason) == w.ends[1].refused == 1
    w.finish()
    assert all(w.ends[1].memory.written)
    assert counters.in_auth_pkts


@pytest.mark.parametrize(
    ("how", "refused"), [("clear", "in_rx_encryption_bypass"), ("raw", "in_errored"), ("guess", ""), ("insider", "")]
)
def test_forgeries(how: str, refused: str) -> None:
    w = deliver_all(
        play(simulator(), TssStep("forge", 1, how=how, data=b"\x08" * 10 if how == "raw" else b"\x50" * 16))
    )
    end = w.ends[1]
    assert end.refused == end.counted == 1
    if refused:
        assert getattr(end.port, refused) == 1
    assert end.domain.counters.in_auth_fail == (how == "guess")
    assert end.port.domains[2].counters.in_binding_failure_pkts == (how == "insider")


def test_back_to_where_it_came_from() -> None:
    w = play(simulator(mode="cluster", has_ssi=True), write(), TssStep("rewrite", how="swap"), TssStep("deliver"))
    assert w.ends[0].domain.counters.in_auth_fail == 1


def test_another_domain_with_the_same_keys() -> None:
    """The SDI of a packet is authenticated (tss.md §7.1)."""
    w = play(simulator(same_keys=True), write(), TssStep("rewrite", at=2, how="sdi"), TssStep("deliver"))
    assert w.ends[1].port.domains[2].counters.in_auth_fail == 1
    with pytest.raises(LocalError, match="has no key of the other"):
        w.apply(TssStep("forge", how="insider"))


def test_a_rotation_in_the_midst_of_a_message() -> None:
    """Make before break: nothing is refused until the old key is gone (tss.md §10, §14 property 12)."""
    w = play(simulator(), write(3000), TssStep("install"), TssStep("switch", 0), write(3000))
    with pytest.raises(LocalError, match="same AN"):
        w.apply(TssStep("empty"))
    play(w, TssStep("switch", 1), TssStep("deliver"))
    assert w.ends[1].refused == 0
    play(w, TssStep("empty"), TssStep("deliver", number=1))
    assert w.ends[1].refused == 1
    with pytest.raises(LocalError):
        w.apply(TssStep("switch", 0))
    w.finish()
    assert all(w.ends[1].memory.written)


def test_old_epochs() -> None:
    w = play(simulator(lifetime=1), write(), TssStep("dup"), TssStep("epoch", number=1), TssStep("deliver"))
    assert w.ends[1].domain.counters.in_late_pkts == 0
    play(w, TssStep("epoch", number=1), TssStep("deliver", number=1))
    assert w.ends[1].domain.counters.in_late_pkts == 1


@pytest.mark.parametrize("how", ["epoch", "floor"])
def test_after_a_restart_nothing_old_is_taken(how: str) -> None:
    """tss.md §11, weak spots: the floor survives, or the epoch moves."""
    w = deliver_all(play(deliver_all(play(simulator(start="expected"), write())), TssStep("close")))
    deliver_all(play(w, TssStep("advance", number=SECOND)))
    assert not w.ends[1].fep.pds.pdcs
    sent = w.sent
    play(w, TssStep("restart", 1, how=how), *(TssStep("dup", number=number) for number in range(sent)))
    w.finish()
    assert sum(w.ends[1].memory.written) == 100
    assert (w.ends[1].domain.counters.in_late_pkts > 0) is (how == "epoch")
    play(w, write(how="rod")).finish()
    assert [one.outcomes for one in w.ends[0].operations] == [1, 1]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (write(LONGEST + 1), "legal: 0"),
        (write(how="uud"), "rud, rod"),
        (TssStep("deliver", number=9), "not on the wire"),
        (TssStep("dup", number=9), "has not left"),
        (TssStep("flip", number=9), "not on the wire"),
        (TssStep("restart", how="x"), "legal: epoch, floor"),
        (TssStep("restart", how="floor"), "legal with Expected_PSN"),
        (TssStep("rewrite", how="psn"), "legal: sdi"),
        (TssStep("forge", how="x"), "legal: clear"),
        (TssStep("switch"), "no new key"),
        (TssStep("epoch", number=99), "legal: 1 … 17"),
        (TssStep("cut", at=9999), "bytes"),
        (TssStep("flip", at=99999), "bit"),
        (TssStep("splice", at=99), "no packet left"),
    ],
    ids=lambda value: str(value),
)
def test_what_is_not_possible(step: TssStep, said: str) -> None:
    with pytest.raises(LocalError, match=said):
        play(simulator(), write(), step)


def test_terms_that_do_not_go_together() -> None:
    with pytest.raises(LocalError, match="one for each member"):
        simulator(mode="direct", ip_version=6)


def test_every_action_is_told_and_done() -> None:
    assert set(simulator().actions) == set(ACTIONS)


def test_old_packets_do_not_come_back_without_secure_start() -> None:
    """Nothing would stop them (tss.md §11): there the network keeps to MSL."""
    w = deliver_all(deliver_all(play(simulator(), write())))
    w = play(w, TssStep("advance", number=SECOND), TssStep("dup"), TssStep("deliver", number=w.sent))
    assert not w.flight
    assert sum(w.ends[1].memory.written) == 100


def test_one_seed_one_run() -> None:
    def bytes_of(seed: str) -> list[bytes]:
        generator = TssStepGenerator(random.Random(seed))
        w = TssSimulator(1, generator.terms, generator.pds)
        for _ in range(300):
            try:
                w.apply(generator.choose(w))
            except LocalError:
                continue
        return [packet.data for packet in w.wire.history]

    assert bytes_of("1") == bytes_of("1") != bytes_of("2")


def test_memory_sees_what_does_not_belong_there() -> None:
    """Item 4: anything twice, elsewhere, or changed."""
    for offset, data, harm in (
        (10, content(1, 10, 20), ""),
        (10, content(1, 11, 20), "other bytes"),
        (90, content(1, 90, 20), "other bytes"),
    ):
        memory = OfferedMemory(1)
        memory.give(100)
        memory.write(offset, data)
        assert memory.harm[:11] == harm
        memory.write(offset, data)
        assert memory.harm
    whole = content(1, 0, 4 * 65521)[:LONGEST]
    assert whole == b"".join(content(1, at, 1024) for at in range(0, LONGEST, 1024))
    wraps = 65521 - 100
    assert content(0, wraps, 300) == content(0, wraps, 100) + content(0, wraps + 100, 200)


def test_a_message_without_an_outcome_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 7."""
    w = play(simulator(), write())
    monkeypatch.setattr(w.ends[0].fep, "events", list)
    with pytest.raises(InvariantViolation, match="tss 7: 1 messages of a have no outcome"):
        w.finish()


def test_a_success_that_is_none_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 6."""
    w = play(simulator(), write())
    monkeypatch.setattr(w.ends[1].memory, "write", lambda offset, data: None)
    with pytest.raises(InvariantViolation, match="tss 6: a write of a is not there"):
        w.finish()


def test_what_a_message_must_not_do_is_seen() -> None:
    """It completes twice; a read brings what is not there; an old SYN opens a PDC again."""
    w = simulator()
    well = Completion(None, 0, 1, 8, ReturnCode.OK)
    read = TssOperation(0, 0, 8, into=bytearray(content(1, 0, 8)))
    tss_6_outcome(w, read, well)
    with pytest.raises(InvariantViolation, match="a message of a completes twice"):
        tss_6_outcome(w, read, well)
    with pytest.raises(InvariantViolation, match="a read other bytes than there are"):
        tss_6_outcome(w, TssOperation(0, 0, 8, into=bytearray(content(0, 0, 8))), well)
    tss_6_outcome(w, TssOperation(0, 0, 8, into=bytearray(8)), well._replace(return_code=ReturnCode.UNDELIVERABLE))
    pdc: Any = SimpleNamespace(peer_id=7, rx=SimpleNamespace(start=5000))
    tss_8_opened_once(w, w.ends[0], pdc)
    tss_8_opened_once(w, w.ends[1], pdc)
    with pytest.raises(InvariantViolation, match="a opens a second PDC with Start_PSN 0x1388"):
        tss_8_opened_once(w, w.ends[0], pdc)


def test_no_key_shows() -> None:
    told = repr(simulator().terms) + repr(simulator().ends[0].domain) + repr(Terms().domain(1, world_key()))
    assert bytes(32).hex()[:20] not in told


def world_key() -> Any:
    return simulator().ends[0].domain.domain.keys[0][0]


def test_simpler_steps_say_less() -> None:
    step = TssStep("forge", 1, 8, 4, "clear", b"abcd")
    assert TssStep("forge", 1, 8, 4, "clear", b"") in list(simpler(step))
    assert str(step) == "forge    node 1 number 8 at 4 how clear data 61626364"
    assert str(TssStep("install")) == "install"


def test_every_invariant_is_registered() -> None:
    """The simulator checks what is in the register, so that none can be forgotten."""
    named = {name for name in vars(invariants) if name.startswith("tss_")}
    assert {entry.name for entry in invariants.TSS.entries.values()} == named
    assert list(invariants.TSS.entries) == list(range(1, len(named) + 1))
    assert {entry.scope for entry in invariants.TSS.entries.values()} == set(invariants.TssScope)
    assert all(entry.statement for entry in invariants.TSS.entries.values())
