# SPDX-License-Identifier: GPL-2.0-only
"""Packets that the driver has recognized: what they carry, and whether the driver polls after them."""

import random
from dataclasses import replace

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Mode, Write
from uetproto.engine.fep import Fep
from uetproto.engine.memory import Region
from uetproto.engine.pds.messages import parse
from uetproto.engine.train import Taken

_DATA = random.Random(1).randbytes(40_000)


def _pair() -> tuple[Fep, Fep, bytearray]:
    """Two endpoints that make no trains, the second with a memory of the size of the data under key 7."""
    ends = [Fep(address, random.Random(address), pds=PdsConfig(clear_source="cack")) for address in (1, 2)]
    memory = bytearray(len(_DATA))
    ends[1].attach(1).register(Region(7, memory))
    assert all(end.use_messages() for end in ends)
    return ends[0], ends[1], memory


def test_a_quiet_packet_leaves_nothing_to_do() -> None:
    source, target, memory = _pair()
    source.submit(Write(peer=2, mode=Mode.RUD, job_id=1, key=7, data=_DATA), 0)
    seen = []
    for number, packet in enumerate(source.poll(0)):
        now = 1000 * number
        before = target.deadline()
        seen.append(target.take_message(packet, now))
        if seen[-1] is Taken.QUIETLY:
            assert target.deadline() == before
            assert not target.poll(now)
            assert not target.events()
        else:
            assert target.poll(now)
            target.events()
    assert memory == _DATA
    assert seen[0] is seen[-1] is Taken.YES
    assert seen.count(Taken.QUIETLY) > len(seen) // 2


def test_a_packet_carries_its_header_as_an_object() -> None:
    source, target, _ = _pair()
    source.submit(Write(peer=2, mode=Mode.RUD, job_id=1, key=7, data=_DATA), 0)
    for packet in source.poll(0):
        assert packet.message == parse(packet.header)
        assert target.take_message(packet, 0)
    (ack, *_) = answers = target.poll(0)
    assert all(answer.message == parse(answer.header) for answer in answers)
    assert source.take_message(ack, 0) is Taken.YES


def test_other_packets_are_not_taken() -> None:
    source, target, memory = _pair()
    source.submit(Write(peer=2, mode=Mode.RUD, job_id=1, key=7, data=_DATA), 0)
    packet = source.poll(0)[0]
    others = replace(packet, dst=3), replace(packet, ip_version=6), replace(packet, payload=bytearray(packet.payload))
    assert {target.take_message(other, 0) for other in others} == {Taken.NO}
    assert memory == bytes(len(_DATA))
