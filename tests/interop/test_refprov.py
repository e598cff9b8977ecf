# SPDX-License-Identifier: GPL-2.0-only
"""The personality `refprov` sends what the reference provider sends (observed.md).

Two engines with its habits are given the workload of a capture, read from its SES requests, and their packets are
compared with those of the capture: for each PDC and direction the same packets in the same order, with all fields of
PDS and SES, PDCIDs and payload too; PSNs as their distance from Start_PSN. These tests are skipped where the captures
are absent.

There is no exception. Not compared, or made equal:

| what | why |
|---|---|
| Start_PSN, the first pkt_id of RUDI | chance; what follows is compared from there on |
| time, the order between the directions | of the machine on which the provider ran |
| when a message is submitted, a receive posted, a PDC closed | the application's: fed from the capture |
| back-off | chance: fed from the capture |
| whether answers come while a message is being sent | the machine's: it is sent at once, and again packet by packet |
| how many packets are SYN | the machine's: the provider builds the first flight whole, as its SYNs after an ACK show |
| entropy, the CRC's value | stand-ins on that occasion (observed.md) |
| ICV and TSC | `tests/tss/test_captures` has them |
| contents of return data | nobody knows what was in that memory; the length is compared |
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import pytest

from tests.support.interop.refprov_packets import REFPROV, Line, Place, Seen, lines, read, ring, seen
from tests.support.interop.refprov_run import HABITS, Run
from tests.support.interop.refprov_workload import workload
from uetproto.engine import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, Close, Completion, PdcClosed, Receive, Received, Send
from uetproto.wire.headers.uet_ses import ReturnCode

pytestmark = pytest.mark.skipif(not REFPROV.is_dir(), reason=f"no captures of the reference provider in {REFPROV}")

Knobs = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """A capture, and its run."""

    name: str
    knobs: Knobs = field(default_factory=dict)
    """What was set beside the provider's defaults, says the README of the captures."""
    pacing: tuple[bool, ...] = (False, True)
    """At once, and packet by packet."""

    @property
    def is_sealed(self) -> bool:
        return self.name.startswith("tss")


_BACKOFF = 87_400 * MICROSECOND

CASES = (
    Case("rod_send_4096"),
    Case("rud_send_4096"),
    # At once only: its READs, which are short, are all gone before the first data is back.
    Case("rod_rma_4096", pacing=(False,)),
    Case("rod_atomic"),
    Case("rod_close"),
    Case("rud_defer_send"),
    Case("rudi_rma_4096"),
    Case("tss_1rtt", {"pds": {"secure_start": "random"}}),
    # Others without loss
    Case("rod_send_100"),
    Case("rod_tagged_100"),
    Case("rud_no_match", {"ses": {"backoff_least": _BACKOFF, "backoff_most": _BACKOFF}}),
    Case("rod_ack_cc", {"pds": {"ack_cc": "always"}}),
    Case("rod_ack_ccx", {"pds": {"ack_cc": "always", "ack_ccx": True}}),
    Case("uud_send_100"),
    Case("rod_sync_write_100", {"ses": {"sync_operations": True}}),
    Case("v6_send_4096"),
    Case("tss_cluster"),
    Case("tss_close", {"pds": {"secure_start": "expected"}}),
)
BY_NAME = {case.name: case for case in CASES}
RUNS = [pytest.param(case, paced, id=f"{case.name}{'-paced' * paced}") for case in CASES for paced in case.pacing]


@cache
def _read(name: str, is_sealed: bool) -> list[Seen]:
    return read(REFPROV / f"{name}.pcap", ring() if is_sealed else None)


def captured(case: Case) -> list[Seen]:
    return _read(case.name, case.is_sealed)


def emulated(case: Case, knobs: Knobs | None = None, *, paced: bool = False) -> Run:
    """`knobs`: beside those of the case."""
    more = knobs or {}
    both = {name: {**case.knobs.get(name, {}), **more.get(name, {})} for name in HABITS}
    return Run(workload(captured(case)), knobs=both, ring=ring() if case.is_sealed else None, paced=paced)


def sent(case: Case, run: Run) -> dict[Place, list[Line]]:
    return lines(seen(run.sent, ring() if case.is_sealed else None))


@pytest.mark.parametrize(("case", "paced"), RUNS)
def test_same_packets_on_each_pdc_and_direction(case: Case, paced: bool) -> None:
    expected, found = lines(captured(case)), sent(case, emulated(case, paced=paced))
    assert found.keys() == expected.keys()
    for place, packets in expected.items():
        for number, (ours, theirs) in enumerate(zip(found[place], packets, strict=False)):
            assert ours == theirs, (place, number)
        assert len(found[place]) == len(packets), place


@pytest.mark.parametrize("case", CASES, ids=BY_NAME)
def test_all_operations_end_well(case: Case) -> None:
    """What was compared is a whole run: each operation completes, each send is received, each close closes two ends."""
    run, steps = emulated(case), workload(captured(case)).steps
    told = Counter(type(event) for event in run.events)
    asked = Counter(type(step.work) for step in steps)
    assert told[Completion] == asked.total() - asked[Receive] - asked[Close]
    assert told[Received] == asked[Receive] == asked[Send]
    assert told[PdcClosed] == 2 * asked[Close]
    assert all(event.ok for event in run.events if isinstance(event, Completion))
    assert all(event.return_code == ReturnCode.OK for event in run.events if isinstance(event, Received))
    assert all(event.error is None for event in run.events if isinstance(event, PdcClosed))


# Each habit -----------------------------------------------------------------------------------------------------------

SHOWN = {
    "closing_ack": "rod_close",
    "expected_psn_after_close": "tss_close",
    "closing_ack_epsn": "tss_close",
    "new_start_spdcid": "tss_1rtt",
    "cp_isrod": "rod_atomic",
    "cp_mode_check": "rod_close",
    "clear_at": "rud_send_4096",
    "ecn_capable": "rod_send_4096",
    "enb_ack_per_pkt": "rod_send_4096",
    "clear_cmd": "rud_defer_send",
    "ack_cc": "rod_send_4096",
    "mp_range": "rod_ack_cc",
    "first_message_id": "rod_send_100",
    "uud_opcode": "uud_send_100",
    "stop_list": "rud_defer_send",
    "deferral_tokens": "rud_defer_send",
    "rtr_resource_index": "rud_defer_send",
    "retry_message_id": "rud_no_match",
    "hd_in": "rod_rma_4096",
    "lone_read_eom": "rod_sync_write_100",
    "return_modified_length": "rod_rma_4096",
    "unexpected_policy": "rud_no_match",
    "payload_mtu": "rod_send_4096",
    "clear_nacks": "tss_1rtt",
}
"""A capture that differs from a run without the habit."""
NOT_SHOWN = {
    "only after a loss, or a packet that comes twice": (
        "ack_req_ar", "ack_copies_retx", "rudi_marks_retx", "clear_on_retransmission", "rod_recovery", "rod_gap",
        "dup_without_retx", "sack_base", "rto_init_time", "max_rto_retx_cnt", "nack_backoff", "max_nack_retx_cnt",
    ),
    "only where an ordered message has no buffer": ("rod_refusal", "response_generation", "rma_generation"),
    "what suits its target, and not what its initiator does": ("max_reads", "sync_operations"),
    "only with more PDCs, packets or time than any capture has": (
        "max_pdcs", "default_mpr", "msl", "new_pdc_time", "close_req_time",
    ),
    "only with return data that a close finds outstanding": ("close_drain",),
    "the workload says what is deferrable": ("large_send",),
    "only with packets that a receiver could refuse": ("plain", "strict_tsc_halves"),
}  # fmt: skip
"""The habits that these captures do not show, by why."""
_DEFAULTS = {"pds": asdict(PdsConfig()), "ses": asdict(SesConfig()), "security": {"clear_nacks": []}}


def test_each_habit_is_shown_or_it_is_said_why_not() -> None:
    habits = sorted(name for section in HABITS.values() for name in section)
    assert sorted([*SHOWN, *(name for names in NOT_SHOWN.values() for name in names)]) == habits


@pytest.mark.parametrize(("name", "capture"), SHOWN.items())
def test_without_the_habit_the_packets_differ(name: str, capture: str) -> None:
    case = BY_NAME[capture]
    section = next(section for section, names in HABITS.items() if name in names)
    run = emulated(case, {section: {name: _DEFAULTS[section][name]}}, paced=case.pacing[-1])
    assert sent(case, run) != lines(captured(case))
