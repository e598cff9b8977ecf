# SPDX-License-Identifier: GPL-2.0-only
"""One seed of each kind of run is as near to the UEC simulator as `uetproto bench --only fabric` asks of medians."""

from tests.support.each import each
from uetproto.bench.fabric import REFERENCE, SIZE, VARIANTS, tolerance
from uetproto.engine.contract import MICROSECOND
from uetproto.fabric.matrix import Flow, TrafficMatrix, traffic_matrix
from uetproto.fabric.study import Study, StudyConfig

ONE = TrafficMatrix("one", 16, (Flow(1, 15, 0, 0, SIZE),))


@each("rate, microseconds", [(100, 176.2), (400, 53.0)])
def test_a_single_flow(rate: int, microseconds: float) -> None:
    result = Study(StudyConfig(cc="nscc", profile="htsim", rate=rate * 10**9), ONE).run()
    assert result.fct is not None
    assert abs(result.fct.max / MICROSECOND - microseconds) < 0.01 * microseconds


@each("variant", ["mixed", "RCCC", "no trimming"])
def test_incast(variant: str) -> None:
    """Property 21, too: with trimming, nothing is dropped, and no time-out runs."""
    changes = VARIANTS[variant]
    config = StudyConfig(**({"cc": "nscc", "profile": "htsim"} | changes))  # type: ignore[arg-type]
    result = Study(config, traffic_matrix("incast", 16, SIZE)).run()
    mean, most, again = REFERENCE["incast", 100][list(VARIANTS).index(variant)]
    allowed = tolerance("incast", 100, variant)
    assert result.fct is not None
    assert abs(result.fct.mean / MICROSECOND - mean) < allowed.mean / 100 * mean
    assert abs(result.fct.max / MICROSECOND - most) < allowed.max / 100 * most
    assert result.match
    assert "RTO" not in result.retransmissions
    assert (result.drops == 0) == config.trim
    if allowed.trims is not None:
        assert abs(result.trims - again) < allowed.trims / 100 * again


def test_the_bound_of_an_incast() -> None:
    """Property 22: nothing is faster than the wire."""
    result = Study(StudyConfig(cc="nscc"), traffic_matrix("incast", 16, 100_000)).run()
    assert result.fct is not None
    assert result.fct.max >= 8 * 100_000 * 80


def test_with_congestion_control_one_seed_is_one_run() -> None:
    load = traffic_matrix("incast", 16, 100_000)
    first, again, other = (Study(StudyConfig(cc="nscc+rccc", seed=seed), load).run() for seed in (2, 2, 5))
    assert first == again
    assert first.fct != other.fct
