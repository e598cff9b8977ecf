# SPDX-License-Identifier: GPL-2.0-only
"""Receives: matching, truncation, several messages in one buffer, cancelling; counters of regions; refusals."""

from typing import Any

import pytest

from tests.support.api.fi_network import Pair, pair
from uetproto.api import fi

Flag, Errno, Op, Access = fi.Flag, fi.Errno, fi.Op, fi.Flag
WORD = fi.Datatype.UINT64
ANY = fi.ADDR_UNSPEC


def received(two: Pair) -> list[Any]:
    two.fabric.run()
    return list(two.b.cq.read(99))


def test_a_message_before_its_receive() -> None:
    two = pair()
    into = bytearray(8)
    two.a.tsend(b"early", two.dest, 7)
    two.fabric.run("20 us")
    assert two.a.cq.read() == []
    two.b.trecv(into, ANY, 7)
    (entry,) = received(two)
    assert (entry.tag, entry.len, into[:5]) == (7, 5, b"early")
    assert two.a.cq.read()[0].ok


def test_messages_go_to_receives_in_posted_order() -> None:
    two = pair(order=fi.Order.SAS)
    for context in range(3):
        two.b.recv(bytearray(4), context=context)
    for text in (b"a", b"bb", b"ccc"):
        two.a.send(text, two.dest)
    assert [(entry.op_context, entry.len) for entry in received(two)] == [(0, 1), (1, 2), (2, 3)]


def test_tags_and_masks() -> None:
    two = pair(order=fi.Order.SAS)
    two.b.trecv(bytearray(4), ANY, 0x10, 0x0F, context="mask")
    two.b.trecv(bytearray(4), ANY, 0x25, context="exact")
    two.a.tsend(b"1", two.dest, 0x25)
    two.a.tsend(b"2", two.dest, 0x1A)
    assert [(entry.op_context, entry.tag) for entry in received(two)] == [("exact", 0x25), ("mask", 0x1A)]


def test_directed_receives() -> None:
    fabric = fi.Fabric(("a", "b", "c"))
    a, b, c = (fabric.endpoint(name) for name in "abc")
    b.recv(bytearray(8), c.address, context="of c")
    b.recv(bytearray(8), context="of any")
    a.send(b"from a", b.address)
    fabric.run()
    c.send(b"from c", b.address)
    fabric.run()
    entries = b.cq.readfrom(9)
    assert [(entry.op_context, source) for entry, source in entries] == [
        ("of any", b.av.insert(a.address)), ("of c", b.av.insert(c.address)),
    ]  # fmt: skip


def test_truncation() -> None:
    two = pair()
    into = bytearray(4)
    two.b.recv(into, context="r")
    two.a.send(b"too long", two.dest)
    (entry,) = received(two)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.err, entry.len, entry.olen, entry.op_context) == (Errno.FI_ETRUNC, 4, 4, "r")
    assert into == b"too "
    assert two.a.cq.read()[0].ok


def test_truncation_that_is_refused() -> None:
    two = pair(ses=fi.SesConfig(truncation_policy="refuse"))
    two.b.recv(bytearray(4))
    two.a.send(b"too long", two.dest)
    (entry,) = two.a.cq.sread(1)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.err, entry.code) == (Errno.FI_ETRUNC, "TOO_LONG")


def test_scattered_receive() -> None:
    two = pair()
    parts = [bytearray(3), bytearray(9)]
    two.b.recv(parts)
    two.a.send(b"scattered", two.dest)
    (entry,) = received(two)
    assert (entry.len, b"".join(parts)) == (9, b"scattered\0\0\0")


def test_multi_receive() -> None:
    """MULTI_RECV is in the entry with which the buffer is given back."""
    two = pair(order=fi.Order.SAS)
    into = bytearray(100)
    two.b.min_multi_recv = 50
    two.b.recv(into, flags=Flag.MULTI_RECV, context="m")
    two.b.recv(bytearray(100), context="next")
    for text in (b"x" * 30, b"y" * 30, b"z" * 30):
        two.a.send(text, two.dest)
    entries = received(two)
    assert [(entry.op_context, entry.len) for entry in entries] == [("m", 30), ("m", 30), ("next", 30)]
    assert [Flag.MULTI_RECV in entry.flags for entry in entries] == [False, True, False]
    assert [bytes(entry.buf) for entry in entries[:2]] == [b"x" * 30, b"y" * 30]
    assert entries[2].buf is None
    assert into == b"x" * 30 + b"y" * 30 + bytes(40)


def test_cancel() -> None:
    two = pair(ses=fi.SesConfig(rx_size=2))
    for context in ("keep", "drop"):
        two.b.recv(bytearray(4), context=context)
    assert two.b.cancel("drop")
    (entry,) = two.b.cq.read(9)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.err, entry.op_context, entry.flags) == (Errno.FI_ECANCELED, "drop", Flag.RECV | Flag.MSG)
    two.b.recv(bytearray(4), context="new")
    for _ in range(2):
        two.a.send(b"x", two.dest)
    assert [entry.op_context for entry in received(two)] == ["keep", "new"]
    with pytest.raises(fi.FiError, match="context: keep"):
        two.b.cancel("keep")


def test_closing_forgets_receives() -> None:
    two = pair()
    two.b.recv(bytearray(4), context="r")
    cq, dest = two.b.cq, two.dest
    two.b.close()
    assert cq.read(9) == []
    two.a.send(b"x", dest)
    (entry,) = two.a.cq.sread(1)
    assert isinstance(entry, fi.CqErrEntry)
    assert entry.code == "BAD_INDEX"


def test_counters_of_receives_and_sends() -> None:
    fabric = fi.Fabric()
    ends = []
    for name, flag in (("a", Flag.SEND), ("b", Flag.RECV)):
        domain = fabric.domain(name)
        endpoint, counter = domain.endpoint(), domain.cntr_open()
        endpoint.bind(domain.av_open())
        endpoint.bind(domain.cq_open())
        endpoint.bind(counter, flag)
        endpoint.enable()
        ends.append((endpoint, counter))
    (a, sends), (b, receives) = ends
    dest = a.av.insert(b.address)
    for _ in range(3):
        b.recv(bytearray(1))
        a.inject(b"x", dest)
    receives.wait(3)
    sends.wait(3)
    b.recv(bytearray(1), context="c")
    b.cancel("c")
    assert (receives.read(), receives.readerr(), sends.read()) == (3, 1, 3)


def test_counters_of_a_region() -> None:
    two = pair()
    domain = two.b.domain
    written, read = domain.cntr_open(), domain.cntr_open()
    mr = domain.mr_reg(bytearray(64), flags=Flag.RMA_EVENT)
    mr.bind(written, Flag.REMOTE_WRITE)
    mr.bind(read, Flag.REMOTE_READ)
    mr.enable()
    a, dest = two.a, two.dest
    counts = []
    for call in (
        lambda: a.write(b"x", dest, 0, mr.key),
        lambda: a.write(b"x", dest, 0, mr.key, data=1),
        lambda: a.read(bytearray(4), dest, 0, mr.key),
        lambda: a.atomic(bytes(8), dest, 0, mr.key, WORD, Op.SUM),
        lambda: a.fetch_atomic(bytes(8), bytearray(8), dest, 0, mr.key, WORD, Op.SUM),
        lambda: a.compare_atomic(bytes(8), bytes(8), bytearray(8), dest, 0, mr.key, WORD, Op.CSWAP),
        lambda: a.write(b"x", dest, 64, mr.key),
        lambda: a.write(b"x", dest, 0, two.mr.key),
    ):
        call()
        two.fabric.run()
        counts.append((written.read(), read.read()))
    assert counts == [(1, 0), (2, 0), (2, 1), (3, 1), (4, 2), (5, 3), (5, 3), (5, 3)]


REFUSED: list[tuple[str, Any, str, fi.Errno]] = [
    ("no such key", lambda p: p.a.write(b"x", p.dest, 0, 99), "BAD_MKEY", Errno.FI_ENOKEY),
    ("another bit of the key", lambda p: p.a.write(b"x", p.dest, 0, p.mr.key | 1 << 62), "BAD_MKEY", Errno.FI_ENOKEY),
    ("not writable", lambda p: p.a.write(b"x", p.dest, 0, 5), "PERM_VIOLATION", Errno.FI_EACCES),
    ("not readable", lambda p: p.a.read(bytearray(1), p.dest, 0, 6), "PERM_VIOLATION", Errno.FI_EACCES),
    ("outside", lambda p: p.a.write(b"xx", p.dest, 4095, p.mr.key), "BAD_ADDR", Errno.FI_EIO),
    ("not aligned", lambda p: p.a.atomic(bytes(8), p.dest, 1, p.mr.key, WORD, Op.SUM), "AMO_UNALIGNED", Errno.FI_EIO),
    ("disabled region", lambda p: (p.mr.disable(), p.a.write(b"x", p.dest, 0, p.mr.key)), "BAD_MKEY",
     Errno.FI_ENOKEY),
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@pytest.mark.parametrize(("call", "code", "errno"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_the_peer_refuses(call: Any, code: str, errno: fi.Errno, strict: bool) -> None:
    """An entry of the queue; the calls around it are not disturbed."""
    two = pair(ses=fi.SesConfig(strict_ref_errors=strict))
    two.b.domain.mr_reg(bytearray(8), Access.REMOTE_READ, requested_key=5)
    fine = two.b.domain.mr_reg(bytearray(8), Access.REMOTE_WRITE, requested_key=6)
    call(two)
    two.a.write(b"fine", two.dest, 0, 6)
    entries = two.a.cq.sread(9, threshold=2)
    assert sorted(entry.ok for entry in entries) == [False, True]
    (failed,) = [entry for entry in entries if isinstance(entry, fi.CqErrEntry)]
    assert (failed.code, failed.err, failed.retry.value) == (code, Errno.FI_EIO if strict else errno, "perm")
    assert bytes(fine.view[:4]) == b"fine"


def test_a_region_of_one_job() -> None:
    """Hidden from other jobs: BAD_MKEY (ses.md §14.2). Reached by an absolute address."""
    fabric = fi.Fabric()
    domain = fabric.domain("b", absolute=True)
    service = domain.endpoint()
    service.bind(domain.av_open())
    service.bind(domain.cq_open())
    service.enable()
    mr = domain.mr_reg(bytearray(4), job_restricted=True)
    codes = []
    for job in (fabric.job, fi.Job(7)):
        a = fabric.endpoint("a", job=job)
        a.write(b"x", a.av.insert(service.address), 0, mr.key)
        (entry,) = a.cq.sread(1)
        codes.append("OK" if entry.ok else getattr(entry, "code", None))
    assert codes == ["OK", "BAD_MKEY"]


def test_refused_until_the_retries_are_used_up() -> None:
    two = pair(ses=fi.SesConfig(unexpected_policy="refuse", message_retry_limit=2))
    two.a.send(b"x", two.dest, context="s")
    (entry,) = two.a.cq.sread(1)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.err, entry.code, entry.retry.value) == (Errno.FI_EIO, "NO_MATCH", "back")


def test_a_generation_heals_by_itself() -> None:
    """A disabled endpoint that comes back has the next generation; the sender learns it (ses.md §2.4)."""
    two = pair()
    into = bytearray(4)
    two.b.disable()
    two.b.enable()
    two.b.recv(into)
    two.a.send(b"back", two.dest)
    assert two.a.cq.sread(1)[0].ok
    assert into == b"back"


def test_flag_after_data() -> None:
    """FI_ORDER_SAW: a receive completion implies the data of earlier writes (ses.md §13.4)."""
    two = pair(order=fi.Order.SAW, faults={"drop": [3]})
    two.b.recv(bytearray(4))
    for part in range(4):
        two.a.write(bytes(1024), two.dest, 1024 * part, two.mr.key)
    two.a.send(b"done", two.dest)
    assert two.fabric.run(lambda: len(two.b.cq) > 0)
    assert two.memory == bytes(4096)


def test_a_receive_whose_message_never_ends() -> None:
    """The buffer was consumed: an error entry at the target, too (ses.md §13.3)."""
    two = pair(ses=fi.SesConfig(payload_mtu=1024), faults={"drop": list(range(2, 100))}, faults_from=("a",))
    two.b.recv(bytearray(4096), context="r")
    two.a.send(bytes(4096), two.dest, context="s")
    (told,), (there,) = two.a.cq.sread(1), two.b.cq.sread(1, "60 s")
    assert isinstance(told, fi.CqErrEntry)
    assert isinstance(there, fi.CqErrEntry)
    assert (told.op_context, told.err, there.op_context, there.err) == ("s", Errno.FI_EIO, "r", Errno.FI_EIO)


def test_a_region_withdrawn_under_a_message() -> None:
    """CANCELLED (ses.md §11.3 rule 7)."""
    two = pair(rate="1 Gb/s", topology="pair")
    mr = two.b.domain.mr_reg(bytearray(40000))
    two.a.write(bytes(40000), two.dest, 0, mr.key)
    two.fabric.run("100 us")
    mr.close()
    (entry,) = two.a.cq.sread(1)
    assert isinstance(entry, fi.CqErrEntry)
    assert (entry.code, entry.err) == ("CANCELLED", Errno.FI_ECANCELED)


@pytest.mark.parametrize("large_send", ["rendezvous", "deferrable"])
def test_large_sends_to_a_service(large_send: str) -> None:
    """A service cannot read from a client that has no absolute address: then the send is plain."""
    fabric = fi.Fabric(ses=fi.SesConfig(large_send=large_send))
    domain = fabric.domain("b", absolute=True)
    service = domain.endpoint()
    service.bind(domain.av_open())
    service.bind(domain.cq_open())
    service.enable()
    into = bytearray(20000)
    a = fabric.endpoint("a", job=fi.Job(7))
    a.send(b"\1" * 20000, a.av.insert(service.address))
    fabric.run("30 us")
    service.recv(into)
    assert (a.cq.sread(1)[0].ok, service.cq.sread(1)[0].ok) == (True, True)
    assert into == b"\1" * 20000


def test_one_queue_of_two_endpoints() -> None:
    """Its overrun disables both."""
    two = pair()
    domain = two.b.domain
    other, cq = domain.endpoint(), domain.cq_open(1)
    third = domain.endpoint()
    for endpoint in (other, third):
        endpoint.bind(two.b.av)
        endpoint.bind(cq)
        endpoint.enable()
    for end in (other, other):
        two.a.write(b"x", two.a.av.insert(end.address), 0, two.mr.key, data=1)
    two.fabric.run()
    assert [end.state.value for end in (other, third, two.b)] == ["disabled", "disabled", "enabled"]


def test_a_matched_receive_is_not_cancelled() -> None:
    two = pair(rate="1 Gb/s", topology="pair")
    two.b.recv(bytearray(40000), context="r")
    two.a.send(bytes(40000), two.dest)
    two.fabric.run("100 us")
    assert not two.b.cancel("r")
    assert [entry.ok for entry in received(two)] == [True]
