"""The ladder shows the congestion control state of requests and ACKs, where there is any."""

from tests.support.each import each
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
    ],
)
def test_words(form: str, values: dict[str, int], words: str) -> None:
    assert cc_words(form, values) == words
