# SPDX-License-Identifier: GPL-2.0-only
"""A WRITE of one packet on RUD sends the same packets and ends in the same way as a message with states."""

import random
import re
from contextlib import suppress
from typing import Any

import pytest

from tests.support.effort import effort
from uetproto.engine import Close, Datagram, Fep, Mode, PdsConfig, Region, SesConfig, Write
from uetproto.engine.contract import MILLISECOND, Completion
from uetproto.engine.memory import BufferMemory
from uetproto.engine.ses import initiator
from uetproto.engine.ses.transfer import LoneWrite
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ReturnCode

JOB, KEY, READABLE, UNKNOWN = 101, 7, 8, 9
STEPS, LAST = 150, 400
"""Numbers of steps with work and losses, and of all steps."""


def played(seed: int) -> list[Any]:
    """Return all packets and events of two endpoints that write into each other's memory, as `seed` says."""
    rng = random.Random(seed)
    pds = PdsConfig(max_rto_retx_cnt=rng.choice((1, 15)), max_pdcs=rng.choice((1, 100)))
    ses = SesConfig(
        payload_mtu=1024, message_retry_limit=rng.choice((0, 2)), backoff_least=MILLISECOND,
        backoff_most=2 * MILLISECOND, backoff_limit=4 * MILLISECOND, retry_message_id=rng.choice(("same", "new")),
    )  # fmt: skip
    ends = [Fep(number, random.Random(number), pds=pds, ses=ses) for number in (1, 2)]
    regions = []
    for end in ends:
        process = end.attach(JOB)
        regions.append(process.register(Region(KEY, BufferMemory(bytearray(4096)))))
        process.register(Region(READABLE, BufferMemory(bytearray(4096)), remote_write=False))
    now, lost = 0, rng.choice((0, 0.2))
    flight: list[tuple[int, Datagram]] = []
    log: list[Any] = []
    for step in range(LAST):
        at = rng.randrange(2)
        if step < STEPS:
            match rng.randrange(12):
                case 0:
                    with suppress(LocalError):  # it may have no PDC
                        ends[at].submit(Close(peer=2 - at), now)
                case 1:
                    regions[at].enabled = not regions[at].enabled
                case 2 | 3 | 4 | 5:
                    ends[at].submit(Write(
                        peer=2 - at, mode=rng.choice((Mode.RUD, Mode.RUD, Mode.ROD)), context=step,
                        job_id=rng.choice((JOB, JOB, JOB, 1)), key=rng.choice((KEY, KEY, KEY, READABLE, UNKNOWN)),
                        data=rng.randbytes(rng.choice((0, 1, 1024, 1025))), offset=rng.choice((0, 100, 4000)),
                        delivery_complete=rng.random() < 0.3, completion_data=rng.choice((None, 5)),
                    ), now)  # fmt: skip
        now += rng.choice((0, 1000, MILLISECOND // 10, MILLISECOND)) if step < STEPS else 10 * MILLISECOND
        arriving, flight = flight, []
        for to, packet in arriving:
            if step >= STEPS or rng.random() >= lost:
                ends[to].receive(packet, now)
        for number, end in enumerate(ends):
            for packet in end.poll(now):
                log.append((step, number, bytes(packet.header), bytes(packet.payload), packet.entropy))
                flight.append((1 - number, packet))
            log += [(step, number, re.sub(" at 0x[0-9a-f]+", "", repr(event))) for event in end.events()]
    return log


def test_the_same_as_with_states(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"lone": 0, "attempt": 0}
    begin, attempt = LoneWrite.__init__, LoneWrite._attempt

    def begun(self: LoneWrite, *arguments: Any) -> None:
        ends["lone"] += 1
        begin(self, *arguments)

    def attempted(self: LoneWrite) -> Any:
        ends["attempt"] += 1
        return attempt(self)

    monkeypatch.setattr(LoneWrite, "__init__", begun)
    monkeypatch.setattr(LoneWrite, "_attempt", attempted)
    for seed in range(effort(16, 100, 1000)):
        found, before = played(seed), ends["lone"]
        with monkeypatch.context() as without:
            without.setattr(initiator, "_RUD", None)  # no message is a lone write
            assert played(seed) == found, f"seed {seed}"
        assert ends["lone"] == before
    assert ends["lone"] > ends["attempt"] > 0  # both ways to end occurred


class _Counted(BufferMemory):
    reads = 0

    def read(self, offset: int, length: int) -> Any:
        self.reads += 1
        return super().read(offset, length)


def test_a_write_that_is_refused_reads_its_memory_once() -> None:
    a, b = (Fep(number, random.Random(number)) for number in (1, 2))
    b.attach(JOB)
    memory = _Counted(bytearray(64))
    a.submit(Write(peer=2, mode=Mode.RUD, job_id=JOB, key=UNKNOWN, data=memory, context=5), 0)
    for packet in a.poll(0):
        b.receive(packet, 0)
    for packet in b.poll(0):
        a.receive(packet, 0)
    (ended,) = (event for event in a.events() if isinstance(event, Completion))
    assert (ended.ok, ended.return_code, memory.reads) == (False, ReturnCode.BAD_MKEY, 1)
