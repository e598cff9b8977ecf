# SPDX-License-Identifier: GPL-2.0-only
"""The order of checks at a target (ses.md §10): the first step that fails gives the code.

Each step has one *fault* that breaks it and nothing else. A request with the faults of a step and of all later ones,
or of a step and the next one, must be answered with the code of that step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.ses.checks_order import (
    JOB,
    KEY,
    MTU,
    OTHER,
    Ask,
    C,
    Target,
)
from uetproto.engine import Mode, Region
from uetproto.engine.contract import Receive
from uetproto.engine.pds.service import Refusal
from uetproto.engine.ses.addressing import IndexState
from uetproto.engine.ses.headers import AtomicExtension, build_extensions
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ReturnCode, Space


def _set(**changes: Any) -> Callable[[Ask], None]:
    def apply(ask: Ask) -> None:
        for name, value in changes.items():
            setattr(ask, name, value)

    return apply


def _mode(mode: Mode) -> Callable[[Ask], None]:
    def apply(ask: Ask) -> None:
        ask.target.pdc.mode = mode

    return apply


def _region(**changes: Any) -> Callable[[Ask], None]:
    def apply(ask: Ask) -> None:
        for name, value in changes.items():
            setattr(ask.target.region, name, value)

    return apply


def _index(space: Space, state: IndexState) -> Callable[[Ask], None]:
    def apply(ask: Ask) -> None:
        ask.target.space(space).state = state

    return apply


def _both(*faults: Callable[[Ask], None]) -> Callable[[Ask], None]:
    def apply(ask: Ask) -> None:
        for fault in faults:
            fault(ask)

    return apply


def _post(size: int, only_job: int | None = None) -> Callable[[Ask], None]:
    def apply(ask: Ask) -> None:
        ask.target.fep.submit(Receive(into=bytearray(size), job_id=JOB, only_job=only_job), 0)

    return apply


@dataclass(frozen=True)
class Fault:
    """A step of ses.md §10, what breaks it, and the code."""

    step: str
    code: Any
    apply: Callable[[Ask], None]
    also: tuple[str, ...] = ()
    """Steps whose fault cannot be there at the same time: this one makes them good, or is made good by them."""


WRITE = (
    Fault("2", C.UNCOR, _set(version=1)),
    Fault("3", C.UNSUPPORTED_OP, _set(opcode=0x2A)),
    Fault("4", C.OP_VIOLATION, _both(_mode(Mode.RUDI), _set(hd=1))),
    Fault("5", C.BAD_JOB_ID, _set(job=999)),
    Fault("6", C.BAD_PID, _set(pid=3)),
    Fault("7", C.BAD_INDEX, _set(index=3)),
    Fault("8", C.DISABLED, _index(Space.RMA, IndexState.DISABLED)),
    Fault("10", C.OP_VIOLATION, _set(payload=bytes(3))),
    Fault("12", C.BAD_MKEY, _region(enabled=False)),
    Fault("13 job", C.BAD_MKEY, _region(job_restriction=OTHER)),
    Fault("13 access", C.PERM_VIOLATION, _region(remote_write=False)),
    Fault("13 RUDI", C.OP_VIOLATION, _mode(Mode.RUDI)),
    Fault("14", C.BAD_ADDR, _set(offset=8 * MTU - 1)),
    Fault("17", C.INITIATOR_ERROR, _set(ie=1)),
    Fault("18", C.AT_NO_TRANS, _region(fault=C.AT_NO_TRANS)),
)
"""Of a WRITE of one packet."""

ATOMIC = (
    Fault("2", C.UNCOR, _set(version=1)),
    Fault("4", C.OP_VIOLATION, _set(extension=b"", payload=b"ab"), ("10", "15 op", "15 size", "15 align")),
    Fault("5", C.BAD_JOB_ID, _set(job=999)),
    Fault("6", C.BAD_PID, _set(pid=3)),
    Fault("7", C.BAD_INDEX, _set(index=3)),
    Fault("8", C.DISABLED, _index(Space.RMA, IndexState.DISABLED)),
    Fault("10", C.OP_VIOLATION, _set(eom=0)),
    Fault("12", C.BAD_MKEY, _region(enabled=False)),
    Fault("13 access", C.PERM_VIOLATION, _region(remote_write=False)),
    Fault("14", C.BAD_ADDR, _set(offset=8 * MTU - 4), ("15 align",)),
    Fault("15 op", C.AMO_UNSUPPORTED_OP, _set(
        extension=build_extensions(atomic=AtomicExtension(0x50, AtomicDatatype.UINT64, 2)))),
    Fault("15 size", C.AMO_UNSUPPORTED_SIZE, _set(length=12)),
    Fault("15 align", C.AMO_UNALIGNED, _set(offset=4), ("14",)),
    Fault("17", C.INITIATOR_ERROR, _set(ie=1)),
    Fault("18", C.HOST_POISONED, _region(fault=C.HOST_POISONED)),
)  # fmt: skip

SEND = (
    Fault("2", C.UNCOR, _set(version=1)),
    Fault("3", C.UNSUPPORTED_OP, _set(opcode=0x2A)),
    Fault("4", C.OP_VIOLATION, _mode(Mode.RUDI), ("8", "8 gen", "12", "13 job", "14")),
    Fault("5", C.BAD_JOB_ID, _set(job=999)),
    Fault("6", C.BAD_PID, _set(pid=3)),
    Fault("7", C.BAD_INDEX, _set(index=3)),
    Fault("8 disabled", C.DISABLED, _index(Space.SEND, IndexState.DISABLED), ("8 disabled_gen",)),
    Fault("8 disabled_gen", C.DISABLED_GEN, _index(Space.SEND, IndexState.DISABLED_GEN)),
    Fault("8 gen", C.BAD_GENERATION, _set(generation=7)),
    Fault("10", C.OP_VIOLATION, _set(payload=bytes(3))),
    Fault("12", C.NO_MATCH, lambda ask: None, ("13 job", "14")),
    Fault("13 job", C.BAD_JOB_ID, _post(4, OTHER), ("14",)),
    Fault("14", C.TOO_LONG, _post(4)),
    Fault("17", C.INITIATOR_ERROR, _set(ie=1)),
)
"""With `unexpected_policy` and `truncation_policy` refuse."""

KINDS: dict[str, tuple[Fault, ...]] = {"write": WRITE, "atomic": ATOMIC, "send": SEND}


def ask_of(kind: str) -> Ask:
    """A good request of that kind."""
    if kind == "send":
        return Ask(Target({"unexpected_policy": "refuse", "truncation_policy": "refuse"}), Opcode.SEND, key=0)
    if kind == "atomic":
        extension = build_extensions(atomic=AtomicExtension(AtomicOpcode.SUM, AtomicDatatype.UINT64, 2))
        return Ask(Target(), Opcode.ATOMIC, extension=extension)
    return Ask(Target(), Opcode.WRITE)


def _apply(ask: Ask, faults: list[Fault]) -> None:
    """Later ones first, so that an earlier one has its way where both set the same field."""
    for fault in reversed(faults):
        fault.apply(ask)


def _with_later(kind: str) -> list[Any]:
    cases = []
    for at, fault in enumerate(KINDS[kind]):
        later = [f for f in KINDS[kind][at + 1 :] if f.step not in fault.also]
        cases.append(pytest.param(kind, [fault, *later], id=f"{kind}-{fault.step}-and-later"))
        cases.append(pytest.param(kind, [fault], id=f"{kind}-{fault.step}-alone"))
        cases.extend(pytest.param(kind, [fault, f], id=f"{kind}-{fault.step}-and-{f.step}") for f in later[:1])
    return cases


@pytest.mark.parametrize(("kind", "faults"), [case for kind in KINDS for case in _with_later(kind)])
def test_first_failing_step(kind: str, faults: list[Fault]) -> None:
    ask = ask_of(kind)
    if kind == "send" and not any(f.step in ("12", "13 job", "14") for f in faults):
        _post(64)(ask)
    before = bytes(ask.target.region.memory.read(0, 8 * MTU))
    _apply(ask, faults)
    assert ask.send() == faults[0].code
    assert bytes(ask.target.region.memory.read(0, 8 * MTU)) == before


@pytest.mark.parametrize("kind", KINDS)
def test_good_request(kind: str) -> None:
    ask = ask_of(kind)
    if kind == "send":
        _post(64)(ask)
    assert ask.send() is C.OK


def test_datagram_is_not_answered() -> None:
    """§5.6: another opcode on UUD is reported nowhere."""
    ask = Ask(Target(), Opcode.WRITE)
    ask.target.pdc.mode = Mode.UUD
    assert isinstance(ask.send(), Refusal)
    assert ask.target.fep.target.dropped == 1
    assert ask.target.region.memory.read(0, 8) == bytes(8)


# Steps 9, 11 and 16: what a message brings with it --------------------------------------------------------------------


def message_of(target: Target, **changes: Any) -> list[Ask]:
    """The two packets of a WRITE of 2 MTU."""
    fields = {"length": 2 * MTU, "payload": b"x" * MTU, **changes}
    return [
        Ask(target, Opcode.WRITE, eom=0, **fields),
        Ask(target, Opcode.WRITE, som=0, message_offset=MTU, **fields),
    ]


PER_PACKET = (
    Fault("2", C.UNCOR, _set(version=1)),
    Fault("3", C.UNSUPPORTED_OP, _set(opcode=0x2A)),
    Fault("4", C.OP_VIOLATION, _set(opcode=Opcode.DATAGRAM_SEND)),
    Fault("5", C.BAD_JOB_ID, _set(job=999)),
    Fault("6", C.BAD_PID, _set(pid=3)),
    Fault("7", C.BAD_INDEX, _set(index=3)),
    Fault("10", C.OP_VIOLATION, _set(payload=bytes(3))),
    Fault("16 length", C.OP_VIOLATION, _set(length=3 * MTU, eom=0)),
    Fault("16 opcode", C.OP_VIOLATION, _set(opcode=Opcode.SYNC_WRITE)),
    Fault("16 key", C.PERM_VIOLATION, _set(key=KEY + 1)),
    Fault("17", C.INITIATOR_ERROR, _set(ie=1)),
    Fault("18", C.HOST_POISONED, _region(fault=C.HOST_POISONED)),
    Fault("18 withdrawn", C.CANCELLED, _region(enabled=False)),
)
"""What is judged at each packet; the last row is §11.3 rule 7."""

ONCE = (
    Fault("8", C.DISABLED, _index(Space.RMA, IndexState.DISABLED)),
    Fault("13 job", C.BAD_MKEY, _region(job_restriction=OTHER)),
    Fault("13 access", C.PERM_VIOLATION, _region(remote_write=False)),
    Fault("14", C.BAD_ADDR, _region(length=MTU)),
)
"""What is judged at the first packet seen of a message."""


@pytest.mark.parametrize("fault", PER_PACKET, ids=lambda fault: fault.step)
def test_judged_at_every_packet(fault: Fault) -> None:
    target = Target({"sync_operations": False})
    first, second = message_of(target)
    assert first.send() is C.OK
    fault.apply(second)
    code = C.UNSUPPORTED_OP if fault.step == "16 opcode" else fault.code  # in no profile here: step 3 is before
    assert second.send() is code
    assert target.region.memory.read(MTU, MTU) == bytes(MTU)


def test_another_opcode_inside_a_message() -> None:
    target = Target()
    first, second = message_of(target)
    assert first.send() is C.OK
    second.opcode, second.payload = Opcode.READ, b""
    assert second.send() is C.OP_VIOLATION


@pytest.mark.parametrize("fault", ONCE, ids=lambda fault: fault.step)
def test_judged_once(fault: Fault) -> None:
    """What changes in the middle of a message does no harm; what fails at its first packet fails all."""
    target = Target()
    first, second = message_of(target)
    assert first.send() is C.OK
    fault.apply(second)
    assert second.send() is C.OK
    later, rest = message_of(target, message_id=2)
    assert later.send() is fault.code
    for good in (_region(enabled=True, job_restriction=None, remote_write=True, length=8 * MTU),
                 _index(Space.RMA, IndexState.ENABLED)):  # fmt: skip
        good(rest)
    assert rest.send() is fault.code


def test_generation_that_moves_inside_a_message() -> None:
    """§10: a generation that moves in the middle of a message does no harm."""
    target = Target()
    packets = message_of(target, key=0)
    for ask in packets:
        ask.opcode = Opcode.SEND
    _post(2 * MTU)(packets[0])
    assert packets[1].send() is C.OK  # the first one seen
    target.space(Space.SEND).generation = 3
    assert packets[0].send() is C.OK


@pytest.mark.parametrize("fault", PER_PACKET, ids=lambda fault: fault.step)
def test_a_message_in_error(fault: Fault) -> None:
    """Step 9: after steps 2–7, and before all others, the stored code is echoed."""
    target = Target({"sync_operations": True})
    first, second = message_of(target, key=KEY + 5)
    assert first.send() is C.BAD_MKEY
    fault.apply(second)
    before = fault.step in ("2", "3", "4", "5", "6", "7")
    assert second.send() is (fault.code if before else C.BAD_MKEY)


@pytest.mark.parametrize("fault", WRITE, ids=lambda fault: fault.step)
def test_no_state_for_a_message(fault: Fault) -> None:
    """Step 11: UNCOR_TRNSNT with ses_nack is a NACK; steps 2–10 are before it, 12–18 behind it."""
    target = Target({"max_rx_messages": 1})
    assert message_of(target)[0].send() is C.OK
    ask = message_of(target, message_id=2)[0]
    fault.apply(ask)
    answer = ask.send()
    if fault.step in ("2", "3", "4", "5", "6", "7", "8", "10"):
        assert answer is fault.code
    elif fault.step != "13 RUDI":  # no state is needed there
        assert answer == Refusal(NackCode.NO_SES_MSG_AVAIL)


def test_a_record_that_makes_room() -> None:
    """Step 11: an error is kept until its message was seen (§10), unless the generation gives it again (§2.4)."""
    target = Target({"max_rx_messages": 1})
    first, second = message_of(target, key=0)
    first.opcode = second.opcode = Opcode.SEND
    first.generation = second.generation = 3
    assert first.send() is C.BAD_GENERATION
    bad, rest = message_of(target, message_id=2, key=KEY + 5)
    assert bad.send() is C.BAD_MKEY
    assert message_of(target, message_id=3)[0].send() == Refusal(NackCode.NO_SES_MSG_AVAIL)
    assert second.send() is C.BAD_GENERATION
    rest.key = KEY
    assert rest.send() is C.BAD_MKEY


@pytest.mark.parametrize(("later", "code"), [("17", C.PERM_VIOLATION), ("18", C.PERM_VIOLATION)])
def test_consistency_comes_before_memory(later: str, code: ReturnCode) -> None:
    target = Target()
    first, second = message_of(target)
    assert first.send() is C.OK
    _apply(second, [Fault("16", code, _set(key=KEY + 1)), next(f for f in PER_PACKET if f.step == later)])
    assert second.send() is code


def test_initiator_error_comes_before_memory() -> None:
    target = Target()
    first, second = message_of(target)
    assert first.send() is C.OK
    _apply(second, [f for f in PER_PACKET if f.step in ("17", "18")])
    assert second.send() is C.INITIATOR_ERROR


@pytest.mark.parametrize(("offset", "size"), [(0, MTU), (MTU, 0), (5, MTU), (2 * MTU, MTU), (2 * MTU, 1)])
def test_ranges_inside_a_message(offset: int, size: int) -> None:
    """§7.1: only the last packet is short, and it ends at the end; nothing comes twice (step 16)."""
    target = Target()
    first, second = message_of(target)
    assert first.send() is C.OK
    second.message_offset, second.payload = offset, bytes(size)
    assert second.send() is C.OP_VIOLATION


def test_bytes_that_came_before() -> None:
    target = Target()
    first, _ = message_of(target, length=3 * MTU)
    middle = Ask(target, Opcode.WRITE, som=0, eom=0, message_offset=MTU, length=3 * MTU, payload=b"y" * MTU)
    assert first.send() is C.OK
    assert middle.send() is C.OK
    middle.payload = b"z" * MTU
    assert middle.send() is C.OP_VIOLATION
    assert target.region.memory.read(MTU, MTU) == b"y" * MTU


# Special paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [f for f in PER_PACKET if f.step in ("2", "5", "6", "7")], ids=lambda f: f.step)
def test_addressing_of_msg_error(fault: Fault) -> None:
    """Steps 1–8, then §5.12."""
    target = Target()
    first, second = message_of(target)
    assert first.send() is C.OK
    second.opcode, second.payload = Opcode.MSG_ERROR, b""
    fault.apply(second)
    assert second.send() is fault.code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": 1}, C.UNCOR), ({"pid": 9, "index": 9, "rel": 1, "job": 999}, C.OP_VIOLATION),
        ({"pid": 9, "index": 9}, C.OP_VIOLATION),
    ],
)  # fmt: skip
def test_addressing_of_a_restart(changes: dict[str, Any], code: ReturnCode) -> None:
    """Steps 1–4, then the token: JobID, PIDonFEP and RI are not looked up (§5.8)."""
    ask = Ask(Target(), Opcode.DEFERRABLE_RTR, key=77, length=0)
    _set(**changes)(ask)
    assert ask.send() is code


@pytest.mark.parametrize(
    ("rel", "job", "pid", "code"),
    [(0, 999, 7, C.OK), (0, JOB, 0, C.BAD_PID), (1, 999, 7, C.BAD_JOB_ID), (1, JOB, 7, C.BAD_PID)],
)
def test_absolute_addresses(rel: int, job: int, pid: int, code: ReturnCode) -> None:
    """Step 5 is skipped; the JobID is authorisation only (§2.2)."""
    target = Target()
    target.fep.attach(None, 7).register(Region(KEY, bytearray(100)))
    assert Ask(target, Opcode.WRITE, rel=rel, job=job, pid=pid).send() is code
