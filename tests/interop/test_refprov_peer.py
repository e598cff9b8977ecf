# SPDX-License-Identifier: GPL-2.0-only
"""Our endpoint with `personality = "refprov"` and a peer that behaves as the reference provider does (observed.md):
sends, tagged sends, reads, writes, atomics and deferrable sends in both directions, on ROD and RUD, without loss and
with 5 %. Everything ends well, memory is equal, and the audit finds habits only.
"""

import io
import random
from collections.abc import Callable

import pytest

from tests.support.effort import effort
from tests.support.interop.refprov_peer import KEY, OURS, THEIRS, Buffer, Exchange, Work
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.engine.contract import Atomic, Completion, Mode, Read, Receive, Received, Send, SendKind, Write
from uetproto.wire.capture.pcap import ETHERNET, PcapWriter
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode
from uetproto.wire.tuples import SesExtAtomicHeader

LOSSES = (0.0, 0.05)
MODES = (Mode.ROD, Mode.RUD)
SIZES = (16, 4096, 20_000)
SEEDS = range(effort(1, 20, 100))
COUNT = 3
SUM = SesExtAtomicHeader.pack(AtomicOpcode.SUM, AtomicDatatype.UINT64, 2)

Play = Callable[[Exchange, Mode, int], Callable[[], bool]]
"""Submits work, and returns whether it is done."""


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def completed(x: Exchange, count: int) -> bool:
    done = [event for event in x.events if isinstance(event, Completion)]
    assert all(event.ok for event in done), done
    return len(done) == count


def our_sends(
    x: Exchange, mode: Mode, size: int, tag: int | None = None, kind: SendKind = SendKind.PLAIN
) -> list[Buffer]:
    buffers = [Buffer(size, tag) for _ in range(COUNT)]
    for number in range(COUNT):
        x.submit(Send(peer=THEIRS, data=content(size, number), mode=mode, tag=tag, kind=kind))
    return buffers


def ended(x: Exchange, buffers: list[Buffer], size: int) -> bool:
    return completed(x, COUNT) and sorted(bytes(one.data) for one in buffers) == sorted(
        content(size, number) for number in range(COUNT))  # fmt: skip


def sends(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    buffers = our_sends(x, mode, size)
    for buffer in buffers:
        x.theirs.post(buffer)
    return lambda: ended(x, buffers, size)


def tagged_sends(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    buffers = our_sends(x, mode, size, 1)
    for buffer in buffers:
        x.theirs.post(buffer)
    return lambda: ended(x, buffers, size)


def writes(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    for number in range(COUNT):
        x.submit(Write(peer=THEIRS, data=content(size, number), key=KEY, offset=number * size, mode=mode,
                       completion_data=number + 1 if mode is Mode.ROD else None))  # fmt: skip
    whole = b"".join(content(size, number) for number in range(COUNT))

    def done() -> bool:
        if not completed(x, COUNT):
            return False
        assert mode is not Mode.ROD or x.theirs.written == [1, 2, 3]
        return x.memory[THEIRS][: COUNT * size] == whole

    return done


def reads(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    x.memory[THEIRS][:] = content(len(x.memory[THEIRS]))
    into = [bytearray(size) for _ in range(COUNT)]
    for number, buffer in enumerate(into):
        x.submit(Read(peer=THEIRS, into=buffer, key=KEY, offset=number * size, mode=mode))
    return lambda: completed(x, COUNT) and b"".join(into) == x.memory[THEIRS][: COUNT * size]


def atomics(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    old = [bytearray(8) for _ in range(COUNT)]
    for buffer in old:
        x.submit(Atomic(peer=THEIRS, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, key=KEY, mode=mode,
                        data=size.to_bytes(8, "little"), result=buffer))  # fmt: skip
    values = [number * size for number in range(COUNT)]

    def done() -> bool:
        found = sorted(int.from_bytes(one, "little") for one in old)
        return completed(x, COUNT) and found == values and (
            int.from_bytes(x.memory[THEIRS][:8], "little") == COUNT * size)  # fmt: skip

    return done


def deferrable_sends(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    """The provider has no buffer at first; it stops them, and asks for them again."""
    buffers = our_sends(x, Mode.RUD, size, kind=SendKind.DEFERRABLE)
    x.run(lambda: len(x.theirs.pending) == COUNT, at_once=True)
    for buffer in buffers:
        x.theirs.post(buffer)
    return lambda: ended(x, buffers, size)


def late_receives(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    """Sends without a buffer move the generation of the provider, which then checks that of a READ (row 2)."""
    buffers = our_sends(x, mode, size)
    x.run(lambda: x.theirs.disabled or mode is Mode.RUD, at_once=True)
    for buffer in buffers:
        x.theirs.post(buffer)
    x.run(lambda: ended(x, buffers, size))
    x.events.clear()
    return reads(x, mode, size)


def _works(x: Exchange, works: list[Work]) -> Callable[[], bool]:
    for work in works:
        x.theirs.submit(work)
    return lambda: all(work.done for work in works)


def its_sends(
    x: Exchange, mode: Mode, size: int, opcode: Opcode = Opcode.SEND, tag: int | None = None
) -> Callable[[], bool]:
    into = [bytearray(size) for _ in range(COUNT)]
    for buffer in into:
        x.submit(Receive(into=buffer, job_id=1, tag=tag))
    works = [Work(opcode, mode, content(size, number), tag or 0) for number in range(COUNT)]
    done = _works(x, works)

    def all_there() -> bool:
        told = sum(isinstance(event, Received) for event in x.events)
        return done() and told == COUNT and sorted(map(bytes, into)) == sorted(work.data for work in works)

    return all_there


def its_tagged_sends(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    return its_sends(x, mode, size, Opcode.TAGGED_SEND, 1)


def its_writes(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    works = [Work(Opcode.WRITE, mode, content(size, number), offset=number * size, header_data=number + 1)
             for number in range(COUNT)]  # fmt: skip
    done = _works(x, works)
    return lambda: done() and x.memory[OURS][: COUNT * size] == b"".join(work.data for work in works)


def its_reads(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    x.memory[OURS][:] = content(len(x.memory[OURS]))
    works = [Work(Opcode.READ, mode, offset=number * size, into=bytearray(size)) for number in range(COUNT)]
    done = _works(x, works)
    return lambda: done() and b"".join(bytes(work.into or b"") for work in works) == x.memory[OURS][: COUNT * size]


def its_atomics(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    works = [Work(Opcode.FETCHING_ATOMIC, mode, size.to_bytes(8, "big"), into=bytearray(8), extension=SUM)
             for _ in range(COUNT)]  # fmt: skip
    done = _works(x, works)
    return lambda: done() and int.from_bytes(x.memory[OURS][:8], "little") == COUNT * size


def its_deferrable_sends(x: Exchange, mode: Mode, size: int) -> Callable[[], bool]:
    works = [
        Work(Opcode.DEFERRABLE_SEND, Mode.RUD, content(size, number), offset=number << 32) for number in range(COUNT)
    ]
    done = _works(x, works)
    x.run(lambda: all(work.deferred for work in works), at_once=True)
    into = [bytearray(size) for _ in range(COUNT)]
    for buffer in into:
        x.submit(Receive(into=buffer, job_id=1))
    return lambda: done() and sorted(map(bytes, into)) == sorted(work.data for work in works)


PLAYS: tuple[Play, ...] = (
    sends, tagged_sends, writes, reads, atomics, deferrable_sends, late_receives,
    its_sends, its_tagged_sends, its_writes, its_reads, its_atomics, its_deferrable_sends,
)  # fmt: skip


def audited(x: Exchange) -> set[str]:
    """Return the rules with findings that are more than notes."""
    file = io.BytesIO()
    with PcapWriter(file, ETHERNET) as writer:
        for time_ns, frame in x.frames:
            writer.write(time_ns, frame)
    file.seek(0)
    found = audit([file], Options(complete=True, ordered=True, personality="refprov")).findings
    return {finding.rule.id for finding in found if finding.severity is not Severity.NOTE}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("play", PLAYS)
def test_an_exchange(play: Play, mode: Mode, loss: float) -> None:
    for seed in SEEDS:
        for size in SIZES:
            x = Exchange(seed, loss)
            x.run(play(x, mode, size))
            assert audited(x) == set(), (seed, size)


@pytest.mark.parametrize("mode", MODES)
def test_without_an_ack_for_each_packet(mode: Mode) -> None:
    """`enb_ack_per_pkt` off: the provider has what it never acknowledged singly, and drops ACK_REQs (row 4)."""
    for seed in range(10 * len(SEEDS)):
        x = Exchange(seed, 0.05, enb_ack_per_pkt=False)
        x.run(sends(x, mode, 4096))
        assert audited(x) == set(), seed


NEEDED = (
    ("response_message_id", {"response_message_id": "zero"}, its_reads, Mode.ROD),  # row 1
    ("rma_generation", {"rma_generation": "zero"}, late_receives, Mode.ROD),  # row 2
    ("rod_gap", {"rod_gap": "discard", "rod_recovery": "go_back_n"}, its_sends, Mode.ROD),  # row 3
    ("max_reads", {"max_reads": 0, "nack_backoff": "constant", "max_nack_retx_cnt": 1}, reads, Mode.ROD),  # row 8
)
"""What the personality sets for a row, and an exchange that does not end well without it."""


@pytest.mark.parametrize(("knobs", "play", "mode"), [row[1:] for row in NEEDED], ids=[row[0] for row in NEEDED])
def test_without_it_the_exchange_fails(knobs: dict[str, str | int], play: Play, mode: Mode) -> None:
    """So the peer does what the row says; one of ten seeds is enough."""

    def fails(seed: int) -> bool:
        x = Exchange(seed, 0.05, **knobs)
        try:
            x.run(play(x, mode, 20_000))
        except AssertionError:
            return True
        return False

    assert any(fails(seed) for seed in range(10))
