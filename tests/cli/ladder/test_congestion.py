# SPDX-License-Identifier: GPL-2.0-only
"""The ladder shows the congestion control state of requests and ACKs, where there is any."""

from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.each import each
from uetproto.wire.headers.uet_pds import CcType
from uetproto.wire.words.uet import cc_words

NSCC = {"service_time": 0, "restore_cwnd": 0, "rcv_cwnd_pend": 0, "rcvd_bytes": 0, "ooo_count": 0}


@each(
    "form, values, words",
    [
        ("pds.req_cc_state", {"ccc_id": 3, "credit_target": 17}, "ccc 3 target 17"),
        ("pds.cc_state.nscc", NSCC, ""),
        ("pds.cc_state.nscc", NSCC | {"rcvd_bytes": 17, "ooo_count": 2}, "rcvd 4,352 ooo 2"),
        ("pds.cc_state.nscc", NSCC | {"rcvd_bytes": 1, "service_time": 10}, "rcvd 256 service 1.28 µs"),
        ("pds.cc_state.nscc", NSCC | {"rcvd_bytes": 1, "rcv_cwnd_pend": 64}, "rcvd 256 penalty 64/128"),
        ("pds.cc_state.nscc", NSCC | {"rcvd_bytes": 1, "restore_cwnd": 1}, "rcvd 256 restore_cwnd"),
        ("pds.cc_state.credit", {"credit": 64, "ooo_count": 0}, "credit 64"),
        ("pds.cc_state.credit", {"credit": 64, "ooo_count": 1}, "credit 64 ooo 1"),
        ("pds.ack_cc", {}, ""),
        ("pds.ccx_state", {"ack_ccx_state": 0}, ""),
        ("pds.ccx_state", {"ack_ccx_state": (10 << 48 | 17 << 16 | 2) << 64}, "rcvd 4,352 service 1.28 µs ooo 2"),
    ],
)
def test_words(form: str, values: dict[str, int], words: str) -> None:
    assert cc_words(form, values) == words


def test_ack_ccx_by_its_type() -> None:
    """wire.md §3.3: the first 64 bits are those of an ACK_CC with this type; what another type means is not known."""
    values = {"ack_ccx_state": (64 << 40 | 1) << 64}
    assert cc_words("pds.ccx_state", values, CcType.CREDIT) == "credit 64 ooo 1"
    assert cc_words("pds.ccx_state", values, 15) == ""


def test_the_ladder_of_a_run_with_ack_ccx(tmp_path: Path) -> None:
    capture = str(tmp_path / "ccx.pcapng")
    assert invoke("run", "ladder-C2", "--set", "pds.ack_ccx=true", "--tap", "all", "-o", capture).exit_code == 0
    text = invoke("ladder", capture).output
    assert "ACK_CCX PSN 334 CACK 335 SACK 335 · OK · rcvd 3,584 service 4.99 µs" in text
