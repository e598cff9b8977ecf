# SPDX-License-Identifier: GPL-2.0-only
"""What a network is for congestion control: queues of switches by the keys of `[switch]` (cms.md §7)."""

import warnings
from dataclasses import replace
from typing import Any

import pytest

from uetproto import LocalError
from uetproto.emulator.congestion import CC_KEYS, SWITCH_KEYS, NetworkPlane, SwitchConfig
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MICROSECOND


def plane(capacity: int | None = None, given: dict[str, Any] | None = None, **switch: Any) -> NetworkPlane:
    return NetworkPlane(
        rate=100 * 10**9, delay=MICROSECOND, hops=6, algorithm="nscc", capacity=capacity, given=given or {},
        switch=SwitchConfig(**switch),
    )  # fmt: skip


def test_the_profiles() -> None:
    notes, htsim = plane(), plane(profile="htsim")
    assert notes.queue == htsim.queue == notes.packets * notes.frame
    assert (notes.rules.again_capacity, notes.rules.control_capacity) == (notes.queue * 3 // 2, notes.queue)
    assert (htsim.rules.again_capacity, htsim.rules.control_capacity) == (htsim.queue, 2 * htsim.queue)
    assert (notes.rules.medium_weight, notes.rules.coin) == (0.75, False)
    assert (htsim.rules.medium_weight, htsim.rules.coin) == (1.0, True)


def test_marks_begin_at_shares_of_a_bandwidth_delay_product() -> None:
    found = plane()
    assert found.red is not None
    assert (found.red.kmin, found.red.kmax) == (9 * found.frame, 34 * found.frame)  # of 42 packets
    at = plane(ecn="deterministic", ecn_at=0.25).red
    assert at is not None
    assert at.kmin == at.kmax == 11 * found.frame
    assert at.chance(at.kmin) == 0
    assert at.chance(at.kmin + 1) == 1
    assert plane(ecn="off").red is None


def test_limits_scale_the_queue_and_not_the_marks() -> None:
    usual, deep = plane(), plane(trim_limit=2.0, rtx_limit=1.25, control_limit=0.5)
    assert deep.queue == 2 * usual.queue
    assert deep.rules.again_capacity == deep.queue * 5 // 4
    assert deep.rules.control_capacity == deep.queue // 2
    assert deep.red == usual.red


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"ecn_min": 0.9}, "ecn_min: 0.9 is above ecn_max; legal: 0 … 0.8, the ecn_max"),
        ({"rtx_limit": 0.5}, "rtx_limit: 0.5 is below trim_limit"),
        ({"buffer_share": 2.0}, "buffer_share: has no effect without shared_buffer"),
        ({"shared_buffer": 1 << 16}, "shared_buffer: 65536 bytes are less than one queue holds; legal: [0-9]+ bytes"),
        ({"capacity": 1 << 16, "trim_limit": 1.0}, "trim_limit: does not go with queue_capacity"),
        ({"ecn": "some"}, "ecn: 'some' is not legal"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError, match=text):
        plane(**given).check()


def test_parameters_that_are_given_replace_those_that_fit() -> None:
    found = plane(given={"base_rtt": 5 * MICROSECOND, "entropy_values": 16})
    assert found.config.base_rtt == 5 * MICROSECOND
    assert found.config.entropy_values == 16
    assert found.packets == -(-found.config.bdp // found.frame)
    assert found.config.rate == plane().config.rate


def test_each_key_is_described() -> None:
    assert all(key.doc for key in (*CC_KEYS.values(), *SWITCH_KEYS.values()))
    assert CC_KEYS["algorithm"].default == "off"


@pytest.mark.parametrize(
    ("profile", "trimming", "search"),
    [("recommended", True, "ooo"), ("recommended", False, "ooo"), ("htsim", True, "off"), ("htsim", False, "ooo")],
)
def test_losses_are_searched_for_by_ooo_count(profile: str, trimming: bool, search: str) -> None:
    """cms.md §6: the simulator does so without trimming only. What is given stays."""
    found = replace(plane(), profile=profile, trimming=trimming)
    assert found.tuned(PdsConfig()).inferred_loss == search
    assert found.tuned(PdsConfig(inferred_loss="sack")).inferred_loss == "sack"
    assert replace(found, given={"sleek": "off"}).tuned(PdsConfig()).inferred_loss == "off"
    assert replace(found, given={"sleek": "on"}).tuned(PdsConfig()).inferred_loss == "ooo"


@pytest.mark.parametrize("rate", [10, 100, 400, 1600])
def test_mpr_is_maxwnd_in_packets_or_a_warning_tells(rate: int) -> None:
    """cms.md §3.1, pds.md §8.6: a receiver that lets fewer PSNs be outstanding masks the window."""
    found = replace(plane(), rate=rate * 10**9, payload_mtu=1024)
    config, usual = found.config, PdsConfig().mp_range
    assert found.tuned(PdsConfig()).mp_range == max(usual, config.mpr)
    assert config.mpr * config.mtu >= config.max_wnd
    assert config.mpr % 128 == 0
    assert (config.mpr - 128) * config.mtu < config.max_wnd
    asked = PdsConfig(mp_range=128)
    if config.max_wnd > 128 * config.mtu:
        with pytest.warns(UserWarning, match=rf"mp_range 128 masks MaxWnd, \d+ packets; legal: {config.mpr} and more"):
            assert found.tuned(asked).mp_range == 128
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert found.tuned(asked).mp_range == 128
