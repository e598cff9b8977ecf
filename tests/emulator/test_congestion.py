"""What a network is for congestion control: queues of switches by the keys of `[switch]` (cms.md §7)."""

from typing import Any

import pytest

from uetproto import LocalError
from uetproto.emulator.congestion import CC_KEYS, SWITCH_KEYS, NetworkPlane, SwitchConfig
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
