# SPDX-License-Identifier: GPL-2.0-only
"""Completion queues and counters: formats, waiting, overrun, selective completion (ses.md §13.3)."""

from typing import Any

import pytest

from tests.support.api.fi_network import Pair, pair
from uetproto.api import fi

Flag, Errno, Form = fi.Flag, fi.Errno, fi.CqFormat


def writes(two: Pair, count: int, **options: Any) -> None:
    for number in range(count):
        two.a.write(bytes([number]), two.dest, number, two.mr.key, context=number, **options)


FORMATS: list[tuple[fi.CqFormat, Any]] = [
    (Form.CONTEXT, fi.CqEntry(0)),
    (Form.MSG, fi.CqMsgEntry(0, Flag.WRITE | Flag.RMA, 1)),
    (Form.DATA, fi.CqDataEntry(0, Flag.WRITE | Flag.RMA, 1, None, 0)),
    (Form.TAGGED, fi.CqTaggedEntry(0, Flag.WRITE | Flag.RMA, 1, None, 0, 0)),
]


@pytest.mark.parametrize(("form", "entry"), FORMATS, ids=[row[0].name for row in FORMATS])
def test_formats(form: fi.CqFormat, entry: Any) -> None:
    two = pair(cq={"cq_format": form})
    writes(two, 1)
    found = two.a.cq.sread(5)
    assert found == [entry]
    assert type(found[0]) is type(entry)
    assert found[0].ok


@pytest.mark.parametrize("form", Form, ids=lambda form: form.name)
def test_an_error_entry_is_the_same_in_all_formats(form: fi.CqFormat) -> None:
    two = pair(cq={"cq_format": form})
    two.a.write(b"x", two.dest, 0, 99, context="w")
    (entry,) = two.a.cq.sread(5)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.ok, entry.op_context, entry.flags) == (False, "w", Flag.WRITE | Flag.RMA)
    assert (entry.err, entry.prov_errno, entry.code) == (Errno.FI_ENOKEY, fi.ReturnCode.BAD_MKEY, "BAD_MKEY")
    assert entry.retry is fi.RetryClass.PERM
    assert str(entry) == "FI_ENOKEY: BAD_MKEY (class perm), context 'w'"


def test_reading_moves_no_time() -> None:
    two = pair()
    writes(two, 1)
    assert (two.a.cq.read(), two.fabric.now) == ([], 0)
    assert two.fabric.run()
    now = two.fabric.now
    assert now > 0
    assert len(two.a.cq.read(9)) == 1
    assert (two.a.cq.read(9), two.fabric.now) == ([], now)


def test_sread_returns_with_the_first_entry() -> None:
    two = pair()
    writes(two, 3)
    first = two.a.cq.sread(9)
    assert [entry.op_context for entry in first] == [0]
    assert [entry.op_context for entry in two.a.cq.sread(9, threshold=2)] == [1, 2]


def test_sread_reads_at_most_so_many() -> None:
    two = pair()
    writes(two, 3)
    assert [len(two.a.cq.sread(2, threshold=3)), len(two.a.cq)] == [2, 1]


def test_sread_ends_when_nothing_would_happen() -> None:
    two = pair()
    assert (two.a.cq.sread(1), two.fabric.now) == ([], 0)
    writes(two, 1)
    assert len(two.a.cq.sread(2, threshold=2)) == 1
    assert two.fabric.now < 1_000_000_000, "idle timers are not waited for"


@pytest.mark.parametrize("timeout", [2_000_000, "2 us"])
def test_sread_waits_no_longer_than_its_timeout(timeout: Any) -> None:
    """Two links of 1 µs each way: the answer is there after 4 µs."""
    two = pair()
    writes(two, 1)
    assert (two.a.cq.sread(1, timeout), two.fabric.now) == ([], 2_000_000)
    assert len(two.a.cq.sread(1, "10 us")) == 1
    assert 4_000_000 < two.fabric.now < 4_100_000


def test_readfrom_knows_the_source() -> None:
    two = pair()
    src = two.src
    two.a.write(b"x", two.dest, 0, two.mr.key, data=7)
    two.fabric.run()
    ((entry, source),) = two.b.cq.readfrom(5)
    assert isinstance(entry, fi.CqTaggedEntry)
    assert (entry.data, source) == (7, src)
    ((_, source),) = two.a.cq.readfrom(5)
    assert source == fi.ADDR_UNSPEC


def test_an_unknown_source() -> None:
    two = pair()
    two.b.av.remove(two.src)
    two.a.write(b"x", two.dest, 0, two.mr.key, data=7)
    two.fabric.run()
    assert two.b.cq.readfrom(5)[0][1] == fi.ADDR_UNSPEC


def test_overrun() -> None:
    """The queue is in error, what it held can be read, and the indices of its endpoint are disabled."""
    two = pair(cq={"cq_size": 2})
    for number in range(3):
        two.a.write(b"x", two.dest, number, two.mr.key, data=number)
    two.fabric.run()
    assert two.b.cq.overrun
    assert two.b.state is fi.EpState.DISABLED
    assert {space[15].state.name for space in two.b.domain.process.spaces.values()} == {"DISABLED"}
    assert [entry.data for entry in two.b.cq.read(9)] == [0, 1]  # type: ignore[attr-defined]
    for call in (two.b.cq.read, two.b.cq.sread, two.b.enable):
        with pytest.raises(fi.FiError, match=r"entries were lost|in error") as raised:
            call()
        assert raised.value.errno is Errno.FI_EOVERRUN
    with pytest.raises(fi.FiError, match="it is disabled"):
        two.b.recv(bytearray(1))


def test_a_disabled_endpoint_refuses_and_may_come_back() -> None:
    two = pair()
    two.b.disable()
    two.a.write(b"x", two.dest, 0, two.mr.key)
    (entry,) = two.a.cq.sread(1)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.err, entry.code) == (Errno.FI_EIO, "DISABLED")
    two.b.enable()
    two.a.write(b"x", two.dest, 0, two.mr.key)
    assert two.a.cq.sread(1)[0].ok
    assert {space[15].generation for space in two.b.domain.process.spaces.values()} == {1}


def selective(two: Pair) -> fi.Endpoint:
    """An endpoint at `a` with a completion queue that has only what is asked for."""
    endpoint = two.a.domain.endpoint()
    endpoint.bind(two.a.av)
    endpoint.bind(two.a.domain.cq_open(), Flag.TRANSMIT | Flag.RECV | Flag.SELECTIVE_COMPLETION)
    endpoint.enable()
    return endpoint


def test_selective_completion() -> None:
    two = pair()
    endpoint = selective(two)
    assert endpoint.resource_index == 16
    endpoint.write(b"x", two.dest, 0, two.mr.key, context=1)
    endpoint.write(b"x", two.dest, 0, two.mr.key, context=2, flags=Flag.COMPLETION)
    endpoint.write(b"x", two.dest, 0, 99, context=3)
    two.fabric.run()
    assert sorted(entry.op_context for entry in endpoint.cq.read(9)) == [2, 3]


def test_an_inject_tells_only_its_failure() -> None:
    two = pair()
    two.a.inject_write(b"fine", two.dest, 0, two.mr.key)
    two.a.inject_write(b"wrong", two.dest, 0, 99)
    two.fabric.run()
    assert [entry.ok for entry in two.a.cq.read(9)] == [False]
    assert two.memory.startswith(b"fine")


def test_an_inject_copies() -> None:
    two = pair()
    mine = bytearray(b"before")
    two.a.inject_write(mine, two.dest, 0, two.mr.key)
    two.a.write(mine, two.dest, 10, two.mr.key, flags=Flag.INJECT)
    mine[:] = b"after!"
    assert [entry.ok for entry in two.a.cq.sread(9)] == [True]
    two.fabric.run()
    assert (two.memory[:6], two.memory[10:16]) == (b"before", b"before")


def test_counters_of_an_endpoint() -> None:
    fabric = fi.Fabric()
    b = fabric.endpoint("b")
    mr = b.domain.mr_reg(bytearray(64))
    domain = fabric.domain("a")
    endpoint, av, counter = domain.endpoint(), domain.av_open(), domain.cntr_open()
    endpoint.bind(av)
    endpoint.bind(domain.cq_open())
    endpoint.bind(counter, Flag.WRITE)
    other = domain.cntr_open()
    endpoint.bind(other, Flag.READ | Flag.SEND | Flag.RECV)
    endpoint.enable()
    dest = av.insert(b.address)
    for key in (mr.key, mr.key, 99):
        endpoint.write(b"x", dest, 0, key)
    fabric.run()
    assert (counter.read(), counter.readerr(), other.read(), other.readerr()) == (2, 1, 0, 0)
    with pytest.raises(fi.FiError, match="counter: is bound"):
        counter.close()
    endpoint.close()
    counter.close()


def test_waiting_for_a_counter() -> None:
    two = pair()
    counter = two.a.domain.cntr_open()
    with pytest.raises(fi.FiError, match="counter: 0 of 1") as raised:
        counter.wait(1)
    assert raised.value.errno is Errno.FI_ETIMEDOUT
    with pytest.raises(fi.FiError, match="counter: 0 of 1"):
        counter.wait(1, "5 us")
    assert two.fabric.now == 5_000_000
    counter.add(3)
    counter.wait(3)
    counter.set(2**64 - 1)
    counter.add()
    counter.seterr(4)
    counter.adderr()
    assert (counter.read(), counter.readerr()) == (0, 5)
