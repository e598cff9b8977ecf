# SPDX-License-Identifier: GPL-2.0-only
"""Queues of an endpoint: FI_EAGAIN when they are full, FI_FENCE (ses.md §13.5)."""

from typing import Any

import pytest

from tests.support.api.fi_network import Pair, pair, requests
from uetproto import LocalError
from uetproto.api import fi

Flag, Errno = fi.Flag, fi.Errno


def write(two: Pair, at: int, data: bytes = b"x", **options: Any) -> None:
    two.a.write(data, two.dest, at, two.mr.key, context=at, **options)


def test_tx_size() -> None:
    two = pair(ses=fi.SesConfig(tx_size=2))
    write(two, 0)
    two.a.inject_write(b"x", two.dest, 1, two.mr.key)
    for call in (lambda: write(two, 2), lambda: two.a.inject(b"x", two.dest)):
        with pytest.raises(fi.FiError, match="2 operations are open; legal: 2 at a time") as raised:
            call()
        assert raised.value.errno is Errno.FI_EAGAIN
    two.fabric.run()
    assert [entry.op_context for entry in two.a.cq.read(9)] == [0], "what was refused left nothing behind"
    write(two, 2)
    assert [entry.op_context for entry in two.a.cq.sread(9)] == [2]


def test_what_a_fence_holds_back_counts() -> None:
    two = pair(ses=fi.SesConfig(tx_size=2))
    write(two, 0)
    write(two, 1, flags=Flag.FENCE)
    with pytest.raises(fi.FiError, match="2 operations are open") as raised:
        write(two, 2)
    assert raised.value.errno is Errno.FI_EAGAIN


def test_rx_size() -> None:
    """Of each queue: tagged receives are not counted with the others."""
    two = pair(ses=fi.SesConfig(rx_size=2))
    submitted: list[Any] = []
    two.b.domain.node.submit = submitted.append  # type: ignore[method-assign]
    for _ in range(2):
        two.b.recv(bytearray(1))
        two.b.trecv(bytearray(1), fi.ADDR_UNSPEC, 1)
    for call in (lambda: two.b.recv(bytearray(1)), lambda: two.b.trecv(bytearray(1), fi.ADDR_UNSPEC, 1)):
        with pytest.raises(fi.FiError, match="2 receives are posted; legal: 2 on a queue") as raised:
            call()
        assert raised.value.errno is Errno.FI_EAGAIN
    assert len(submitted) == 4


def sending_times(two: Pair) -> dict[int, int]:
    """When each write was handed to the engine, by its context."""
    times: dict[int, int] = {}
    node = two.a.domain.node
    hand_over = node.submit

    def submit(work: Any) -> None:
        times[work.context.context] = node.now
        hand_over(work)

    node.submit = submit  # type: ignore[method-assign]
    return times


def test_a_fence_waits_for_all_before_it(tmp_path: Any) -> None:
    two = pair(tmp_path / "fence.pcapng")
    times = sending_times(two)
    write(two, 0, bytes(4000))
    write(two, 1)
    write(two, 2, flags=Flag.FENCE)
    write(two, 3)
    assert list(times) == [0, 1]
    done = {}
    while entries := two.a.cq.sread(1):
        done[entries[0].op_context] = two.fabric.now
    assert list(done) == [0, 1, 2, 3]
    assert times[0] == times[1] == 0
    assert times[2] == times[3] == max(done[0], done[1]), "what comes after the fence waits, too, and no longer"
    two.fabric.close()
    assert [sent.values["buffer_offset"] for sent in requests(tmp_path / "fence.pcapng")] == [0, 1, 2, 3]


def test_two_fences() -> None:
    two = pair()
    times = sending_times(two)
    for at in range(3):
        write(two, at, flags=Flag.FENCE)
    two.fabric.run()
    assert len(two.a.cq.read(9)) == 3
    assert 0 == times[0] < times[1] < times[2]


def test_a_fence_without_anything_before_it() -> None:
    two = pair()
    times = sending_times(two)
    write(two, 0, flags=Flag.FENCE)
    assert times == {0: 0}


def test_a_fence_is_for_one_peer() -> None:
    fabric = fi.Fabric(("a", "b", "c"))
    a, b, c = (fabric.endpoint(name) for name in "abc")
    there, elsewhere = b.domain.mr_reg(bytearray(8)), c.domain.mr_reg(bytearray(8))
    two = Pair(fabric, a, b, bytearray(), there)
    times = sending_times(two)
    a.write(b"x", b.address, 0, there.key, context=0)
    a.write(b"x", b.address, 0, there.key, context=1, flags=Flag.FENCE)
    a.write(b"x", c.address, 0, elsewhere.key, context=2, flags=Flag.FENCE)
    assert sorted(times) == [0, 2]
    fabric.run()
    assert sorted(entry.op_context for entry in a.cq.read(9)) == [0, 1, 2]


def test_a_failure_opens_a_fence() -> None:
    two = pair()
    two.a.write(b"x", two.dest, 0, 99, context="wrong")
    write(two, 1, flags=Flag.FENCE)
    assert [entry.ok for entry in two.a.cq.sread(9, threshold=2)] == [False, True]


def test_closing_forgets_what_waits() -> None:
    two = pair()
    times = sending_times(two)
    write(two, 0)
    write(two, 1, flags=Flag.FENCE)
    cq = two.a.cq
    two.a.close()
    two.fabric.run()
    assert (list(times), cq.read(9)) == ([0], [])


def refuse(work: Any) -> None:
    """An engine that refuses all work."""
    raise LocalError("work: is not legal")


def test_what_only_the_engine_finds() -> None:
    """It is an error of the call as well, and takes no room in a queue."""
    two = pair(ses=fi.SesConfig(tx_size=1, rx_size=1))
    for end, call in ((two.a, lambda: write(two, 0)), (two.b, lambda: two.b.recv(bytearray(1)))):
        node = end.domain.node
        works = node.submit
        node.submit = refuse  # type: ignore[method-assign]
        for _ in range(2):
            with pytest.raises(fi.FiError, match="work: is not legal") as raised:
                call()
            assert raised.value.errno is Errno.FI_EINVAL
        node.submit = works  # type: ignore[method-assign]
        call()
    assert two.a.cq.sread(1)[0].ok


def test_what_the_engine_finds_behind_a_fence() -> None:
    """The call is long over: an entry of the queue."""
    two = pair()
    write(two, 0)
    write(two, 1, flags=Flag.FENCE)
    two.a.domain.node.submit = refuse  # type: ignore[method-assign]
    entries = two.a.cq.sread(9, threshold=2)
    assert [entry.ok for entry in entries] == [True, False]
    assert isinstance(entries[1], fi.CqErrEntry)
    assert entries[1].err is Errno.FI_EINVAL
