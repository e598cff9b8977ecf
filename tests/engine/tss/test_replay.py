# SPDX-License-Identifier: GPL-2.0-only
"""Packets captured and sent again, between two whole endpoints with sealed packets: tss.md §10, §14 property 13."""

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.effort import examples
from tests.support.engine.world import JOB, KEY, A, B
from uetproto.engine import Close, Datagram, Fep, PdsConfig, Region, Write
from uetproto.engine.contract import SECOND
from uetproto.engine.tss.cipher import AssociatedData
from uetproto.engine.tss.domain import OpenedPacket, SecureDomain
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.engine.tss.port import SecurePort

DOMAIN = DomainConfig(sdi=1, mode="cluster", keys=((DomainKey(bytes(32)),), ()), rekey_mask=0xF0, rekey_shift=4)


class Counting:
    """Memory that counts how often each byte was written."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.data = bytearray(length)
        self.times = [0] * length

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: Any) -> None:
        self.data[offset : offset + len(data)] = data
        for place in range(offset, offset + len(data)):
            self.times[place] += 1

    def flush(self) -> None:
        """Nothing to do."""


class Sealed:
    """Two endpoints whose packets travel sealed, and an attacker who keeps a copy of each."""

    def __init__(self, length: int, secure_start: str) -> None:
        pds = PdsConfig(secure_start=secure_start)
        self.ledger = NonceLedger()
        self.feps = {at: Fep(at, random.Random(at), pds=pds) for at in (A, B)}
        self.ports = {at: SecurePort() for at in (A, B)}
        for at, port in self.ports.items():
            port.domains[1] = SecureDomain(DOMAIN, at, 4, ledger=self.ledger)
        self.memory = Counting(length)
        self.feps[B].attach(JOB).register(Region(KEY, self.memory))
        self.copies: list[tuple[AssociatedData, bytes]] = []
        self.now = 0

    def run(self) -> None:
        """Until nothing is sent any more."""
        while packets := self.feps[A].poll(self.now) + self.feps[B].poll(self.now):
            self.now += 1000
            for packet in packets:
                below = AssociatedData(4, packet.src, packet.dst, packet.entropy.to_bytes(2, "big") + bytes(2))
                sealed = self.ports[packet.src].domains[1].seal(below, bytes(packet.header) + bytes(packet.payload))
                assert sealed is not None
                self.copies.append((below, sealed))
                self.arrive(below, sealed)

    def arrive(self, below: AssociatedData, sealed: bytes) -> None:
        opened = self.ports[below.dst].receive(below, sealed)
        assert isinstance(opened, OpenedPacket)  # the security header alone stops no replay
        self.feps[below.dst].receive(Datagram(below.src, below.dst, opened.inner), self.now)


def transfer(world: Sealed, data: bytes, offset: int) -> None:
    write = Write(peer=B, key=KEY, job_id=JOB, initiator=0, data=data, offset=offset)
    world.feps[A].submit(write, world.now)
    world.run()


def close_and_forget(world: Sealed) -> None:
    """Until nothing tells the target that there was a PDC (pds.md §6)."""
    world.feps[A].submit(Close(peer=B), world.now)
    world.run()
    world.now += 700 * SECOND  # more than `msl`
    world.run()


def replay(world: Sealed, places: list[int]) -> None:
    """Packets of the connection, each at once and again."""
    for place in places:
        for _ in range(2):
            world.arrive(*world.copies[place % len(world.copies)])
        world.run()


PLACES = st.lists(st.integers(0, 1000), max_size=40)


@given(secure_start=st.sampled_from(("expected", "random")), before=PLACES, after=PLACES)
@examples(60)
def test_a_replayed_packet_delivers_nothing_again(secure_start: str, before: list[int], after: list[int]) -> None:
    """Inside a PDC the PSN stops it, behind its end the start PSN (§11)."""
    world = Sealed(12000, secure_start)
    data = random.Random(1).randbytes(12000)
    for offset in (0, 6000):
        transfer(world, data[offset : offset + 6000], offset)
        replay(world, before)
    close_and_forget(world)
    replay(world, after)
    assert world.memory.data == data
    assert set(world.memory.times) == {1}
    assert world.ledger.repeated == 0
    assert len(world.ledger) == len(world.copies)


@pytest.mark.parametrize(("secure_start", "times"), [("off", 2), ("expected", 1), ("random", 1)])
def test_it_is_the_start_psn_that_stops_it(secure_start: str, times: int) -> None:
    world = Sealed(6000, secure_start)
    transfer(world, bytes(6000), 0)
    close_and_forget(world)
    replay(world, list(range(len(world.copies))))
    assert set(world.memory.times) == {times}
