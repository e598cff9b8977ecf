# SPDX-License-Identifier: GPL-2.0-only
"""Frames to groups in the switch: to all ports but the one they came by, or to those that joined."""

import pytest

from tests.support.emulator.roce_frames import DSCP, V6, A, B, C, D, Sink, data, mac, port
from uetproto import LocalError
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.switch import Switch
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes

GROUP = 0xE0010203
"""224.1.2.3"""
GROUP_MAC = bytes.fromhex("01005e010203")
GROUP6 = 0xFF0E << 112 | 0x00010203
NOBODY = b"\x02" + bytes(5)


def switch_of(
    clock: Clock, *, capacity: int = 1 << 20, trimming: bool = False, outcomes: FrameOutcomes | None = None
) -> tuple[Switch, dict[int, Sink]]:
    """Four stations."""
    switch, sinks = Switch(dscp=DSCP, trimming=trimming, outcomes=outcomes), {}
    for address in (A, B, C, D):
        sinks[address], queue = port(clock, capacity=capacity)
        switch.attach(mac(address), queue)
    return switch, sinks


def got(sinks: dict[int, Sink]) -> list[int]:
    """Frames that each of the four has."""
    return [len(sinks[address].seen) for address in (A, B, C, D)]


@pytest.mark.parametrize("version", [4, 6])
def test_all_but_the_source(version: int) -> None:
    clock = Clock()
    switch, sinks = switch_of(clock)
    frame = data(dst=GROUP) if version == 4 else data(src=V6 | A, dst=GROUP6, version=6)
    assert frame[:6].hex() == ("01005e010203" if version == 4 else "333300010203")
    switch.take(frame)
    clock.run()
    assert got(sinks) == [0, 1, 1, 1]
    assert all(sinks[address].frames == [frame] for address in (B, C, D))
    assert switch.copies == {mac(B): 1, mac(C): 1, mac(D): 1}
    assert (switch.forwarded, switch.unknown, switch.dropped) == (3, 0, 0)


def test_members_only_and_never_the_source() -> None:
    clock = Clock()
    switch, sinks = switch_of(clock)
    for address in (A, C):
        switch.join(GROUP_MAC, mac(address))
    switch.take(data(src=A, dst=GROUP))
    switch.take(data(src=B, dst=GROUP))
    clock.run()
    assert got(sinks) == [1, 0, 2, 0]
    assert switch.copies == {mac(A): 1, mac(C): 2}
    switch.take(data(src=A, dst=GROUP + 1))  # a group of which nobody told
    clock.run()
    assert got(sinks) == [1, 1, 3, 1]


def test_a_group_of_the_source_alone() -> None:
    clock = Clock()
    switch, sinks = switch_of(clock)
    switch.join(GROUP_MAC, mac(A))
    switch.take(data(dst=GROUP))
    clock.run()
    assert (got(sinks), switch.unknown) == ([0, 0, 0, 0], 1)


@pytest.mark.parametrize("destination", ["0180c2000001", "0180c200000e", "03005e000001", "020000000099"])
def test_addresses_of_the_link_are_not_forwarded(destination: str) -> None:
    """Pause frames above all (roce.md §13)."""
    clock = Clock()
    switch, sinks = switch_of(clock)
    switch.take(bytes.fromhex(destination) + Pfc().frame(0xFFFF)[6:])
    clock.run()
    assert (got(sinks), switch.unknown, switch.copies) == ([0, 0, 0, 0], 1, {})


def test_a_port_without_room_loses_its_copy_alone() -> None:
    clock = Clock()
    outcomes = FrameOutcomes()
    switch, sinks = switch_of(clock, capacity=1000, outcomes=outcomes)
    for _ in range(2):
        switch.take(data(src=A, dst=B))  # one on the link, one waits
    frame = data(dst=GROUP)
    outcomes.follow(frame)
    way = outcomes.transit(frame)
    assert way is not None
    switch.take(frame)
    clock.run()
    assert got(sinks) == [0, 2, 1, 1]
    assert (switch.dropped, way.copies, way.outcome) == (1, 2, None)
    assert switch.copies[mac(B)] == 1  # it was meant for it


def test_lost_with_the_last_copy() -> None:
    clock = Clock()
    outcomes = FrameOutcomes()
    switch, sinks = switch_of(clock, capacity=0, outcomes=outcomes)
    for address in (B, C, D):
        switch.take(data(src=A, dst=address))
    frame = data(dst=GROUP)
    outcomes.follow(frame)
    way = outcomes.transit(frame)
    assert way is not None
    switch.take(frame)
    clock.run()
    assert got(sinks) == [0, 1, 1, 1]
    assert (switch.dropped, way.outcome) == (3, FrameOutcome.LOST)


def test_misuse() -> None:
    switch, _ = switch_of(Clock())
    with pytest.raises(LocalError, match="group: 02:00:0a:00:00:01 is none; legal: 01:00:5e:… and 33:33:…"):
        switch.join(mac(A), mac(B))
    with pytest.raises(LocalError, match="port: 02:00:00:00:00:00 is none; legal: 02:00:0a:00:00:01, "):
        switch.join(GROUP_MAC, NOBODY)
