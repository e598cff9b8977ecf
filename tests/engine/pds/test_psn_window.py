# SPDX-License-Identifier: GPL-2.0-only
"""Destination numbers against a slow model that keeps everything (pds.md §2.3, §8.1, §8.5)."""

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from uetproto.engine.config import PdsConfig
from uetproto.engine.pds.psn_window import DONE, PsnWindow, StoredSlot, UnansweredSlot, Verdict
from uetproto.engine.pds.retransmit import SendRecord, SendWindow

M32 = 0xFFFFFFFF
STEP = st.tuples(st.sampled_from(["done", "stored", "waiting", "answer", "clear"]), st.integers(0, 140))


@given(start=st.sampled_from([5, 0xFFFFFFF0, 0x7FFFFFF8]), steps=st.lists(STEP, max_size=60))
def test_against_a_model(start: int, steps: list[tuple[str, int]]) -> None:
    """PSNs are counted from 0 in the model: `state` has each one received, `cleared` how many are cleared."""
    window = PsnWindow(start, 128, rod=False)
    state: dict[int, str] = {}
    cleared = 0

    def complete(n: int) -> bool:
        return state.get(n) == "done" or (state.get(n) == "stored" and n < cleared)

    def edge() -> int:
        n = 0
        while complete(n):
            n += 1
        return n

    for what, n in steps:
        psn = (start + n) & M32
        if what == "clear":
            legal = all(state.get(k) in ("done", "stored") for k in range(n))
            assert window.clear((psn - 1) & M32) is (legal or n <= cleared)
            if legal:
                cleared = max(cleared, n)
        elif what == "answer":
            if state.get(n) == "waiting":
                window.answer(psn, StoredSlot(4, b""))
                state[n] = "stored"
        elif n not in state and n < edge() + 128:
            assert window.classify(psn) is Verdict.NEW
            slots = {"done": DONE, "stored": StoredSlot(4, b""), "waiting": UnansweredSlot(0, 0, False, 0, False)}
            window.take(psn, slots[what])  # type: ignore[arg-type]
            state[n] = what
        else:
            expected = Verdict.AHEAD if n >= edge() + 128 else Verdict.PRIOR if n < edge() else Verdict.DUPLICATE
            assert window.classify(psn) is expected
        assert window.cack == (start - 1 + edge()) & M32
        assert window.max_rcvd == (start + max(state, default=-1)) & M32
        assert window.stored == sum(kind == "stored" and k >= cleared for k, kind in state.items())
        for rule in ("tracked", "trigger", "cack_plus_1"):
            base = window.sack_base(rule, window.max_rcvd)
            bits = window.sack_bitmap(base)
            first = ((base - start + 0x8000) & M32) - 0x8000
            assert bits == sum(1 << i for i in range(64) if first + i < edge() or first + i in state)


def test_rod_discards_after_a_gap() -> None:
    window = PsnWindow(100, 128, rod=True)
    assert window.classify(101) is Verdict.GAP
    window.take(100, UnansweredSlot(0, 0, False, 0, False))
    assert (window.cack, window.expected) == (99, 101)
    assert window.classify(101) is Verdict.NEW
    assert window.classify(100) is Verdict.DUPLICATE


@pytest.mark.parametrize(("psn", "verdict"), [
    (99, Verdict.BEHIND), (100, Verdict.PRIOR), (150, Verdict.NEW), (277, Verdict.NEW), (278, Verdict.AHEAD),
])  # fmt: skip
def test_edges(psn: int, verdict: Verdict) -> None:
    window = PsnWindow(100, 128, rod=False)
    for done in range(100, 150):
        window.take(done, DONE)
    assert window.classify(psn) is verdict


def test_tracked_base_moves_on_after_an_ack() -> None:
    """pds.md §8.5: max_rcvd > sack_track + 63 moves it by 64."""
    window = PsnWindow(100, 128, rod=False)
    window.take(110, DONE)
    assert window.sack_base("tracked", 110) == 99
    window.take(99 + 64, DONE)
    window.ack_sent()
    assert window.sack_base("tracked", 110) == 163
    window.take(120, DONE)
    assert window.sack_base("tracked", 110) == 120


def test_the_psn_before_the_start_is_no_duplicate() -> None:
    """pds.md §8.1: a prior PSN is one that was used, so not below Start_PSN, also while CACK is Start_PSN − 1."""
    assert PsnWindow(100, 128, rod=False).classify(99) is Verdict.BEHIND
    window = PsnWindow(0, 128, rod=False)
    assert window.classify(0xFFFFFFFF) is Verdict.BEHIND
    window.take(0, DONE)
    assert (window.classify(0), window.classify(0xFFFFFFFF)) == (Verdict.PRIOR, Verdict.BEHIND)


@given(
    start=st.sampled_from([5, 0xFFFFFFF0]), before=st.integers(0, 9),
    steps=st.lists(st.tuples(st.sampled_from(["sack", "lose", "send"]), st.sampled_from([-3, 0, 1, 2, 3, 8]),
                             st.sampled_from([1, 0xAAAA, 2**64 - 1])), min_size=3, max_size=12),
)  # fmt: skip
@example(start=5, before=1, steps=[("sack", 0, 3), ("send", 0, 1), ("sack", 0, 3)])
@example(start=5, before=1, steps=[("sack", 3, 1), ("send", 0, 1), ("send", 0, 1), ("send", 0, 1), ("sack", 3, 1)])
def test_every_sack_marks_what_it_names(start: int, before: int, steps: list[tuple[str, int, int]]) -> None:
    """Also a packet that an earlier SACK named before it was sent, or that was taken for lost since."""
    window = SendWindow(start, False, PdsConfig())

    def transmit() -> None:
        window.track(SendRecord(window.next, None, 0, 0, b"", b"", False, 0), 0)

    for _ in range(before):
        transmit()
    marked: set[int] = set()
    for step, offset, bits in steps:
        psn = (start + offset) & 0xFFFFFFFF
        if step == "send":
            transmit()
        elif step == "sack":
            window.take_sack(psn, bits, 0)
            marked |= {
                one for bit in range(64) if bits >> bit & 1 and (one := (psn + bit) & 0xFFFFFFFF) in window.records
            }
        elif psn in window.records:
            window.unmark(window.records[psn])
            marked.discard(psn)
        assert {record.psn for record in window.records.values() if record.dst_rcvd} == marked
        assert window.sacked == len(marked)
