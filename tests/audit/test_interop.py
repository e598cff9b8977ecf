# SPDX-License-Identifier: GPL-2.0-only
"""Captures of our engines and the reference provider on the two ends of a wire: each finding is explained by a row of
observed.md, "With our engines on the other end of a wire", or is a habit. Skipped where the captures are absent.
"""

from functools import cache

import pytest

from tests.support import paths
from uetproto.audit.auditor import audit
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity

INTEROP = paths.SHARED / "captures" / "interop"

pytestmark = pytest.mark.skipif(
    not INTEROP.is_dir(), reason=f"no captures of an exchange with the provider in {INTEROP}"
)

HABITS = frozenset({
    "WIRE-ECN", "SES-MESSAGE-ID-ZERO", "SES-HD-LATER", "SES-ROD-NO-MATCH", "SES-RESPONSE-GENERATION", "PDS-CP-ISROD",
    "PDS-CLOSE-CACK", "PDS-ACK-RETX", "SES-MESSAGING-CODE",
})  # fmt: skip
"""Rules that the provider departs from (`tests/audit/test_refprov.py`)."""
SHOWN = {
    # c_gen_refprov_rod (row 2) has a READ that is repeated as it was, which breaks no rule
    "client_big_rod_rma": {"PDS-SILENT"},  # row 8
    "client_lossdef_rud_untag": {"PDS-SILENT", "PDS-ACK-REQ-SILENT"},  # row 4
    "client_somlost_all": {"SES-HD-BEHIND"},  # row 5
    "client_somlost_som": {"SES-HD-BEHIND"},  # row 5
    "server_first_lost": {"PDS-SILENT"},  # row 3
    "server_syncoff_rod": {"PDS-SILENT"},  # the provider was gone when ours closed
    "server_third_lost_ooo": {"PDS-SILENT", "PDS-CLOSE-UNACKED"},  # row 3: it closes with packets outstanding
}
"""What the other rules find in a capture; nothing in those that are not named."""
CAPTURES = sorted(path.stem for path in INTEROP.glob("*.pcap"))


@cache
def findings(name: str, personality: str | None = "refprov") -> list[Finding]:
    return audit([INTEROP / f"{name}.pcap"], Options(complete=True, personality=personality)).findings


@pytest.mark.parametrize("name", CAPTURES)
def test_each_finding_is_explained(name: str) -> None:
    assert {finding.rule.id for finding in findings(name)} - HABITS == SHOWN.get(name, set())


def test_they_are_all_here() -> None:
    assert len(CAPTURES) == 16
    assert set(CAPTURES) >= SHOWN.keys()


@pytest.mark.parametrize("name", CAPTURES)
def test_what_the_provider_does_is_a_note(name: str) -> None:
    """But that it closes a PDC with packets outstanding."""
    wrong = {finding.rule.id for finding in findings(name) if finding.severity is not Severity.NOTE}
    assert wrong == SHOWN.get(name, set()) & {"PDS-CLOSE-UNACKED"}


def told(name: str, rule: str) -> list[tuple[tuple[int, ...], str, str]]:
    return [(one.packets, one.expected, one.seen) for one in findings(name) if one.rule.id == rule]


def test_an_operation_that_is_never_answered() -> None:
    """Row 4: PSNs 0x85bd9210 to 0x85bd9212, of the message in packets 197 to 200."""
    assert told("client_lossdef_rud_untag", "PDS-SILENT") == [
        ((197, 233), f"an ACK of PSN {0x85BD9210}", "none after 1 copies and 5 ACK_REQs")
    ]
    asked = told("client_lossdef_rud_untag", "PDS-ACK-REQ-SILENT")
    assert [packets for packets, _, _ in asked] == [(228,), (229,), (230,)], "the fourth of each"


@pytest.mark.parametrize(("name", "taken"), [
    ("client_somlost_som", "no completion data in #21"),
    ("client_somlost_all", "0x40000000400, payload_length and message_offset, in #21"),
])  # fmt: skip
def test_completion_data_that_differs(name: str, taken: str) -> None:
    """Row 5: #27, the SOM packet, comes last; the provider has taken #21 for it."""
    expected = "completion data 0xcaa in the first packet of the message that arrives"
    assert told(name, "SES-HD-BEHIND") == [((20, 26), expected, taken)]
    assert "SES-HD-BEHIND" not in {finding.rule.id for finding in findings(name, None)}, "to others it is right"
