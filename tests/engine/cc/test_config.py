# SPDX-License-Identifier: GPL-2.0-only
"""The constants that follow from the parameters are those of the reference runs (cms.md §9)."""

import pytest

from tests.support.each import each
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.registry import check_algorithm
from uetproto.errors import LocalError

SLOW = CcConfig(form="htsim")
FAST = CcConfig(form="htsim", rate=400 * 10**9, base_rtt=12_505_680)


@each("config, bdp, window, target, a, b, alpha, fi, eta, fi_scale", [
    (SLOW, 175_284, 262_926, 10_517_040, 1.16856, 0.87642, 0.00159158, 23873.7, 716.21, 0.29214),
    (FAST, 625_284, 937_926, 9_379_260, 4.16856, 0.781605, 0.00567758, 85163.7, 2554.91, 1.04214),
])  # fmt: skip
def test_constants_of_the_reference_runs(
    config: CcConfig, bdp: int, window: int, target: int, a: float, b: float, alpha: float, fi: float, eta: float,
    fi_scale: float,
) -> None:  # fmt: skip
    assert (config.bdp, config.max_wnd, config.target_qdelay) == (bdp, window, target)
    found = (config.scaling_a, config.scaling_b, config.alpha, config.fi, config.eta, config.fi_scale)
    assert found == pytest.approx((a, b, alpha, fi, eta, fi_scale), rel=2e-6)


def test_the_form_of_the_notes_counts_with_the_mtu() -> None:
    assert CcConfig().fi == pytest.approx(SLOW.fi * 4150 / 4086)
    assert CcConfig(trimming=False).target_qdelay == CcConfig().base_rtt
    assert CcConfig(trimming=False).qa_threshold == 4 * CcConfig().base_rtt
    assert CcConfig().qa_threshold is None


@each("name, value", [
    ("form", "ns3"), ("lb", "ecmp"), ("entropy_values", 63), ("rate", 0), ("base_rtt", 0),
    ("mtu", 100), ("mss", 0), ("trimming", 1), ("quick_adapt", None), ("ack_gen_trigger", -1), ("rate", 1.5),
])  # fmt: skip
def test_what_is_not_legal_is_refused_with_what_is(name: str, value: object) -> None:
    with pytest.raises(LocalError, match=f"^{name}: .* is not legal.*; legal: "):
        CcConfig(**{name: value})  # type: ignore[arg-type]


@each("text", ["dcqcn", "", "nscc+", "nscc+nscc", "rccc,nscc", "off"])
def test_only_algorithms_of_the_registry_are_legal(text: str) -> None:
    with pytest.raises(LocalError, match=r"^algorithm: .* is not legal; legal: nscc, rccc, joined by \+$"):
        check_algorithm(text)
