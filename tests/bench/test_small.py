# SPDX-License-Identifier: GPL-2.0-only
"""The rows of `uetproto bench` about small messages and many PDCs: what they measure is real, whatever the machine."""

import pytest

from uetproto.bench import small
from uetproto.bench.small import many, measure, message
from uetproto.collectives.costs.sample import Sample
from uetproto.errors import LocalError


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "RANKS", 32)
    monkeypatch.setattr(small, "LONG", 2)
    monkeypatch.setattr(small, "FEW", 2)
    monkeypatch.setattr(small, "PDCS", 100)
    rate, cost, pdcs = measure(small.ROWS, quick=True)
    assert rate.what == "messages of 1 KiB in a ring over 4 ranks, with packets"
    assert pdcs.what == "RUD streams of 8 packets on 10 PDCs, PDS only"
    assert min(rate.value, cost.value, pdcs.value) > 0
    assert (cost.unit, cost.most) == ("packets", True)
    assert list(measure(("stream",), quick=True)) == []


def test_a_wrong_result_is_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sample, "correct", False)
    with pytest.raises(LocalError, match="all_reduce differs"):
        message(2, 1024)


def test_packets_that_were_not_delivered_are_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "carry", lambda a, b: None)
    with pytest.raises(LocalError, match="0 packets were delivered on 5 PDCs"):
        many(5)
