# SPDX-License-Identifier: GPL-2.0-only
"""Rendezvous: where its source is read, by whom, and until when (ses.md §5.9)."""

import pytest

from tests.support.engine.world import JOB, B
from tests.support.ses.operations import SECOND, Peers, content
from tests.support.ses.requests import MTU, Pair, completions
from uetproto.engine.contract import Send, SendKind
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ReturnCode


def test_where_a_rendezvous_is_read() -> None:
    """The extension names a process and an index of the initiator; both must be there (ses.md §5.9)."""
    x = Peers()
    x.a.attach(JOB, 3, (20,))
    x.post(bytearray(20_000))
    with pytest.raises(LocalError, match="local_pid"):
        x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS, local_pid=3, local_index=15))
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS, local_pid=3, local_index=20))
    x.run()
    (read,) = {(r.pid_on_fep, r.resource_index) for r in x.requests(B)}
    assert read == (3, 20)
    assert x.completion().ok


def test_source_of_a_rendezvous_is_for_its_job() -> None:
    """ses.md §14.2: a restricted region is invisible to other jobs, and nobody may write to it."""
    x = Peers()
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS))
    (region,) = x.mine.regions.values()
    assert (region.job_restriction, region.remote_read, region.remote_write) == (JOB, True, False)
    assert region.key >> 48 & 1  # assigned by the provider (§2.6)


def test_nobody_reads_a_rendezvous() -> None:
    """ses.md §16: after 5000 ms its source gives up, and takes the region back."""
    x = Peers()
    x.post(bytearray(20_000))
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS))
    for region in x.mine.regions.values():
        region.remote_read = False
    x.run()
    x.now += 4 * SECOND
    x.run()
    assert completions(x) == []
    x.now += SECOND
    x.run()
    done = x.completion()
    assert (done.timed_out, done.ok) == (True, False)
    assert not x.mine.regions
    (got,) = x.received()
    assert got.return_code is ReturnCode.PERM_VIOLATION


def test_a_rendezvous_that_is_cut_to_its_eager_part() -> None:
    """Nothing is left to be read."""
    x = Peers()
    into = bytearray(1000)
    x.post(into)
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS))
    x.settle()
    assert into == content(20_000)[:1000]
    assert x.requests(B) == []
    assert x.completion().ok


def test_rendezvous_whose_read_fails() -> None:
    """The receive completes in error; the initiator learns of it by time only."""
    x = Pair(rendezvous_time=SECOND)
    x.post()
    x.send(bytes(4 * MTU), kind=SendKind.RENDEZVOUS)
    for region in x.mine.regions.values():
        region.remote_read = False
    x.settle()
    (got,) = x.received()
    assert got.return_code is ReturnCode.PERM_VIOLATION
    (done,) = x.completions()
    assert done.timed_out
    assert SECOND <= x.now <= 2 * SECOND
    assert not x.mine.regions


def test_rendezvous_that_is_truncated() -> None:
    """The target has all that it has room for, and says so in modified_length (§9.4)."""
    x = Pair()
    receive = x.post(3 * MTU)
    x.send(bytes([7]) * 8 * MTU, kind=SendKind.RENDEZVOUS)
    x.settle()
    (got,) = x.received()
    assert (got.return_code, got.length) == (ReturnCode.OK, 3 * MTU)
    assert receive.into == bytes([7]) * 3 * MTU
    (done,) = x.completions()
    assert done.ok
    assert done.modified == 3 * MTU
