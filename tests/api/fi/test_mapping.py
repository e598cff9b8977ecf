# SPDX-License-Identifier: GPL-2.0-only
"""Each call, and what goes over the wire for it: opcode, mode, header, entries at both ends (ses.md §13.5)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from sys import byteorder
from typing import Any

import pytest

from tests.support.api.fi_network import Pair, pair, requests
from uetproto.api import fi
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode

Flag, Op, Order = fi.Flag, fi.Op, fi.Order
WORD = fi.Datatype.UINT64
TAG = 0xFEEDFACE_00000001
DATA = 0x0123456789ABCDEF
HERE = 128
"""Where RMA goes; the memory there is bytes(range(128, 256))."""

TX_MSG, TX_TAG = Flag.SEND | Flag.MSG, Flag.SEND | Flag.TAGGED
RX_MSG, RX_TAG = Flag.RECV | Flag.MSG, Flag.RECV | Flag.TAGGED
WRITTEN, READ = Flag.WRITE | Flag.RMA, Flag.READ | Flag.RMA
ATOMIC, FETCHED = Flag.WRITE | Flag.ATOMIC, Flag.READ | Flag.ATOMIC
WITH_DATA = Flag.REMOTE_CQ_DATA
REMOTE = Flag.RMA | Flag.REMOTE_WRITE | WITH_DATA


@dataclass
class Row:
    call: Callable[[Pair], Any]
    opcode: Opcode
    told: Flag | None
    """Flags of the entry at the initiator; None: there is none."""
    there: Flag | None = None
    """Flags of the entry at the target."""
    values: dict[str, Any] = field(default_factory=dict)
    """Fields of the request header and its extension."""
    payload: bytes = b""
    memory: bytes | None = None
    """What is in the region from HERE on."""


def word(value: int) -> bytes:
    """In host order."""
    return value.to_bytes(8, byteorder)


def wire(value: int) -> bytes:
    return pack(">Q", value)


INTO = [bytearray(4), bytearray(4)]
RESULT = bytearray(8)
PLAIN = {"match_bits": 0, "hd": 0, "header_data": 0}
TAGGED = {"match_bits": TAG, "hd": 0}
RMA = {"buffer_offset": HERE, "hd": 0}
OLD = int.from_bytes(bytes(range(128, 136)), byteorder)

ROWS: dict[str, Row] = {
    "send": Row(lambda p: p.a.send(b"hello", p.dest), Opcode.SEND, TX_MSG, RX_MSG, PLAIN, b"hello"),
    "sendv": Row(lambda p: p.a.send([b"he", b"", b"llo"], p.dest), Opcode.SEND, TX_MSG, RX_MSG, PLAIN, b"hello"),
    "senddata": Row(lambda p: p.a.send(b"hello", p.dest, data=DATA), Opcode.SEND, TX_MSG, RX_MSG | WITH_DATA,
                    {"hd": 1, "header_data": DATA}, b"hello"),
    "inject": Row(lambda p: p.a.inject(b"hello", p.dest), Opcode.SEND, None, RX_MSG, PLAIN, b"hello"),
    "injectdata": Row(lambda p: p.a.inject(b"hello", p.dest, data=DATA), Opcode.SEND, None, RX_MSG | WITH_DATA,
                      {"hd": 1, "header_data": DATA}, b"hello"),
    "tsend": Row(lambda p: p.a.tsend(b"hello", p.dest, TAG), Opcode.TAGGED_SEND, TX_TAG, RX_TAG, TAGGED, b"hello"),
    "tsenddata": Row(lambda p: p.a.tsend(b"hello", p.dest, TAG, data=DATA), Opcode.TAGGED_SEND, TX_TAG,
                     RX_TAG | WITH_DATA, {"match_bits": TAG, "hd": 1, "header_data": DATA}, b"hello"),
    "tinject": Row(lambda p: p.a.tinject(b"hello", p.dest, TAG), Opcode.TAGGED_SEND, None, RX_TAG, TAGGED, b"hello"),
    "write": Row(lambda p: p.a.write(b"hello", p.dest, HERE, p.mr.key), Opcode.WRITE, WRITTEN, None, RMA, b"hello",
                 b"hello"),
    "writev": Row(lambda p: p.a.write([b"hel", b"lo"], p.dest, HERE, p.mr.key), Opcode.WRITE, WRITTEN, None, RMA,
                  b"hello", b"hello"),
    "writedata": Row(lambda p: p.a.write(b"hello", p.dest, HERE, p.mr.key, data=DATA), Opcode.WRITE, WRITTEN, REMOTE,
                     {"hd": 1, "header_data": DATA}, b"hello", b"hello"),
    "write, nothing": Row(lambda p: p.a.write(b"", p.dest, HERE, p.mr.key), Opcode.WRITE, WRITTEN, None, RMA, b"",
                          b"\x80"),
    "inject_write": Row(lambda p: p.a.inject_write(b"hello", p.dest, HERE, p.mr.key), Opcode.WRITE, None, None, RMA,
                        b"hello", b"hello"),
    "inject_writedata": Row(lambda p: p.a.inject_write(b"hello", p.dest, HERE, p.mr.key, data=DATA), Opcode.WRITE,
                            None, REMOTE, {"hd": 1, "header_data": DATA}, b"hello", b"hello"),
    "read": Row(lambda p: p.a.read(RESULT, p.dest, HERE, p.mr.key), Opcode.READ, READ, None,
                {**RMA, "request_length": 8}),
    "readv": Row(lambda p: p.a.read(INTO, p.dest, HERE, p.mr.key), Opcode.READ, READ, None,
                 {**RMA, "request_length": 8}),
    "atomic": Row(lambda p: p.a.atomic(word(1) + word(2), p.dest, HERE, p.mr.key, WORD, Op.WRITE), Opcode.ATOMIC,
                  ATOMIC, None, {**RMA, "atomic_opcode": AtomicOpcode.WRITE, "atomic_datatype": AtomicDatatype.UINT64},
                  wire(1) + wire(2), word(1) + word(2)),
    "inject_atomic": Row(lambda p: p.a.inject_atomic(word(1), p.dest, HERE, p.mr.key, WORD, Op.SUM), Opcode.ATOMIC,
                         None, None, {"atomic_opcode": AtomicOpcode.SUM}, wire(1), word(OLD + 1)),
    "fetch_atomic": Row(lambda p: p.a.fetch_atomic(word(1), RESULT, p.dest, HERE, p.mr.key, WORD, Op.SUM),
                        Opcode.FETCHING_ATOMIC, FETCHED, None,
                        {"atomic_opcode": AtomicOpcode.SUM, "request_length": 8}, wire(1), word(OLD + 1)),
    "fetch_atomic, read": Row(lambda p: p.a.fetch_atomic(None, RESULT, p.dest, HERE, p.mr.key, WORD, Op.READ),
                              Opcode.FETCHING_ATOMIC, FETCHED, None,
                              {"atomic_opcode": AtomicOpcode.READ, "request_length": 8}, b"", word(OLD)),
    "atomic, inval": Row(lambda p: p.a.atomic(None, p.dest, HERE, p.mr.key, WORD, Op.INVAL), Opcode.ATOMIC, ATOMIC,
                         None, {"atomic_opcode": AtomicOpcode.INVAL}, b"", word(OLD)),
    "mswap": Row(lambda p: p.a.compare_atomic(word(0xFF), word(0x0F), RESULT, p.dest, HERE, p.mr.key, WORD, Op.MSWAP),
                 Opcode.FETCHING_ATOMIC, FETCHED, None,
                 {"atomic_opcode": AtomicOpcode.MSWAP, "compare_value": 0x0F, "swap_value": 0xFF}, b"",
                 word(OLD & ~0x0F | 0x0F)),
    "compare_atomic": Row(lambda p: p.a.compare_atomic(word(7), word(OLD), RESULT, p.dest, HERE, p.mr.key, WORD,
                                                       Op.CSWAP),
                          Opcode.FETCHING_ATOMIC, FETCHED, None,
                          {"atomic_opcode": AtomicOpcode.CSWAP, "compare_value": OLD, "swap_value": 7}, b"", word(7)),
    "atomicmsg, tagged": Row(lambda p: p.a.atomicmsg(word(1), p.dest, 8, TAG, WORD, Op.WRITE, flags=Flag.TAGGED),
                             Opcode.TSEND_ATOMIC, ATOMIC | Flag.TAGGED, RX_TAG,
                             {"match_bits": TAG, "buffer_offset": 8, "atomic_opcode": AtomicOpcode.WRITE}, wire(1)),
    "fetch_atomicmsg, tagged": Row(lambda p: p.a.atomicmsg(word(1), p.dest, 8, TAG, WORD, Op.WRITE, result=RESULT,
                                                           flags=Flag.TAGGED),
                                   Opcode.TSEND_FETCH_ATOMIC, FETCHED | Flag.TAGGED, RX_TAG,
                                   {"match_bits": TAG, "buffer_offset": 8}, wire(1)),
}  # fmt: skip


@pytest.mark.parametrize("order", [Order.NONE, Order.SAS], ids=["RUD", "ROD"])
@pytest.mark.parametrize("name", ROWS)
def test_row(name: str, order: fi.Order, tmp_path: Path) -> None:
    row = ROWS[name]
    path = tmp_path / "row.pcapng"
    two = pair(path, order)
    into, tagged = bytearray(64), bytearray(64)
    two.b.recv(into, context="r")
    two.b.trecv(tagged, fi.ADDR_UNSPEC, TAG, context="t")
    RESULT[:] = bytes(8)
    src = two.src
    row.call(two)
    two.fabric.close()

    (sent,) = requests(path)
    assert (sent.pds, sent.form, sent.opcode) == ("rod_req" if order else "rud_req", "std", row.opcode)
    seen = {**sent.values, **sent.extension}
    assert {name: seen.get(name) for name in row.values} == row.values
    assert (sent.values["som"], sent.values["eom"], sent.values["rel"], sent.values["dc"]) == (1, 1, 1, 0)
    assert (sent.values["job_id"], sent.values["initiator"], sent.values["resource_index"]) == (1, 16, 15)
    assert sent.payload == row.payload

    told = two.a.cq.read(9)
    assert all(entry.ok for entry in told), told
    assert [entry.flags for entry in told] == ([] if row.told is None else [row.told])  # type: ignore[attr-defined]
    there = two.b.cq.readfrom(9)
    assert [entry.flags for entry, _ in there] == ([] if row.there is None else [row.there])  # type: ignore[attr-defined]
    for entry, source in there:
        assert isinstance(entry, fi.CqTaggedEntry)
        assert source == src
        is_tagged, has_data = Flag.TAGGED in entry.flags, WITH_DATA in entry.flags
        assert entry.op_context == (None if Flag.RMA in entry.flags else "t" if is_tagged else "r")
        assert (entry.tag, entry.data) == (TAG if is_tagged else 0, DATA if has_data else 0)
        assert entry.len == sent.values["request_length"]
    if row.opcode is Opcode.SEND:
        assert into.startswith(row.payload)
    if row.opcode is Opcode.TAGGED_SEND:
        assert tagged.startswith(row.payload)
    if row.opcode in (Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC):
        assert tagged == bytes(8) + word(1) + bytes(48)
    if row.memory is not None:
        assert two.memory[HERE:].startswith(row.memory)
    if name == "readv":
        assert b"".join(INTO) == bytes(range(128, 136))
    if row.opcode is Opcode.FETCHING_ATOMIC or name == "read":
        assert bytes(RESULT) == word(OLD)


@pytest.mark.parametrize(
    ("order", "profile", "data", "mode"),
    [
        (Order.NONE, "hpc", None, "rudi_req"),
        (Order.NONE, "ai_full+hpc", None, "rudi_req"),
        (Order.NONE, "ai_full", None, "rud_req"),
        (Order.NONE, "hpc", 5, "rud_req"),
        (Order.WAW, "hpc", None, "rod_req"),
    ],
)
def test_rudi(order: fi.Order, profile: str, data: int | None, mode: str, tmp_path: Path) -> None:
    two = pair(tmp_path / "x.pcapng", order, mr={"idempotent_safe": True}, ses=fi.SesConfig(profile=profile))
    two.a.write(b"again", two.dest, HERE, two.mr.key, data=data)
    assert two.a.cq.sread(1)[0].ok
    into = bytearray(5)
    two.a.read(into, two.dest, HERE, two.mr.key)
    assert two.a.cq.sread(1)[0].ok
    two.fabric.close()
    sent = requests(tmp_path / "x.pcapng")
    assert into == b"again"
    assert [request.opcode for request in sent] == [Opcode.WRITE, Opcode.READ]
    assert sent[0].pds == mode
    assert sent[1].pds == ("rudi_req" if data else mode)


def test_datagrams(tmp_path: Path) -> None:
    two = pair(tmp_path / "x.pcapng", ep_type=fi.EpType.DGRAM)
    into = bytearray(16)
    two.b.recv(into, context="r")
    two.a.send(b"hello", two.dest, context="s")
    two.fabric.close()
    (sent,) = requests(tmp_path / "x.pcapng")
    assert (sent.pds, sent.opcode, sent.payload) == ("uud_req", Opcode.DATAGRAM_SEND, b"hello")
    (told,), (there,) = two.a.cq.read(9), two.b.cq.read(9)
    assert (told.op_context, there.op_context) == ("s", "r")
    assert isinstance(there, fi.CqTaggedEntry)
    assert (there.flags, there.len, into[:5]) == (RX_MSG, 5, b"hello")


LARGE = bytes(range(256)) * 80
"""Five packets."""


@pytest.mark.parametrize(
    ("large_send", "profile", "order", "tag", "opcode"),
    [
        ("plain", "ai_full+hpc", Order.SAS, None, Opcode.SEND),
        ("auto", "ai_full+hpc", Order.SAS, None, Opcode.RENDEZVOUS_SEND),
        ("auto", "ai_full+hpc", Order.SAS, TAG, Opcode.RENDEZVOUS_TSEND),
        ("auto", "ai_full+hpc", Order.NONE, None, Opcode.DEFERRABLE_SEND),
        ("auto", "ai_full+hpc", Order.NONE, TAG, Opcode.DEFERRABLE_TSEND),
        ("auto", "hpc", Order.NONE, TAG, Opcode.TAGGED_SEND),
        ("auto", "ai_full", Order.SAS, TAG, Opcode.TAGGED_SEND),
        ("rendezvous", "ai_full+hpc", Order.NONE, TAG, Opcode.RENDEZVOUS_TSEND),
    ],
)
def test_large_sends(
    large_send: str, profile: str, order: fi.Order, tag: int | None, opcode: Opcode, tmp_path: Path
) -> None:
    two = pair(tmp_path / "x.pcapng", order, ses=fi.SesConfig(large_send=large_send, profile=profile))
    into = bytearray(len(LARGE))
    if tag is None:
        two.b.recv(into)
        two.a.send(LARGE, two.dest)
    else:
        two.b.trecv(into, fi.ADDR_UNSPEC, tag)
        two.a.tsend(LARGE, two.dest, tag)
    two.fabric.close()
    assert {sent.opcode for sent in requests(tmp_path / "x.pcapng")} == {opcode}
    (told,), (there,) = two.a.cq.read(9), two.b.cq.read(9)
    assert (told.ok, there.ok, into == LARGE) == (True, True, True)
    assert isinstance(there, fi.CqTaggedEntry)
    assert there.len == len(LARGE)
    if "RENDEZVOUS" in opcode.name:
        assert {sent.opcode for sent in requests(tmp_path / "x.pcapng", "10.0.0.2")} == {Opcode.READ}


@pytest.mark.parametrize("tag", [None, TAG])
def test_a_deferrable_send_waits_for_its_receive(tag: int | None, tmp_path: Path) -> None:
    two = pair(tmp_path / "x.pcapng", ses=fi.SesConfig(large_send="auto"))
    into = bytearray(len(LARGE))
    if tag is None:
        two.a.send(LARGE, two.dest)
    else:
        two.a.tsend(LARGE, two.dest, tag)
    two.fabric.run("50 us")
    assert two.a.cq.read() == []
    if tag is None:
        two.b.recv(into)
    else:
        two.b.trecv(into, fi.ADDR_UNSPEC, tag)
    assert two.a.cq.sread(1)[0].ok
    assert into == LARGE
    two.fabric.close()
    assert [sent.opcode for sent in requests(tmp_path / "x.pcapng", "10.0.0.2")] == [Opcode.DEFERRABLE_RTR]


def test_delivery_complete(tmp_path: Path) -> None:
    """dc in all packets, and the answer waits until the bytes can be seen."""
    two = pair(tmp_path / "x.pcapng", ses=fi.SesConfig(write_latency=20_000_000), mr={"requested_key": 3})
    two.a.write(bytes(4000), two.dest, 0, 3)
    two.a.cq.sread(1)
    plain = two.fabric.now
    two.a.write(bytes(4000), two.dest, 0, 3, flags=Flag.DELIVERY_COMPLETE)
    two.a.cq.sread(1)
    assert plain < 10_000_000 < two.fabric.now - plain
    two.fabric.close()
    assert [sent.values["dc"] for sent in requests(tmp_path / "x.pcapng")] == [0, 1]


def test_flags_of_the_endpoint_hold_for_all(tmp_path: Path) -> None:
    two = pair(tmp_path / "x.pcapng", cq={"op_flags": Flag.DELIVERY_COMPLETE})
    two.a.write(b"x", two.dest, 0, two.mr.key)
    two.a.read(bytearray(1), two.dest, 0, two.mr.key)
    two.fabric.close()
    assert [sent.values["dc"] for sent in requests(tmp_path / "x.pcapng")] == [1, 1]


HEADERS: list[tuple[str, Callable[[Pair], Any], str]] = [  # with optimized_headers
    ("write, optimized key", lambda p: p.a.write(b"x", p.dest, 4, p.mr.key), "small"),
    ("write with data, offset 0", lambda p: p.a.write(b"x", p.dest, 0, p.mr.key, data=1), "medium"),
    ("write with data, offset 4", lambda p: p.a.write(b"x", p.dest, 4, p.mr.key, data=1), "std"),
    ("read, optimized key", lambda p: p.a.read(bytearray(1), p.dest, 4, p.mr.key), "small"),
    ("tagged", lambda p: p.a.tsend(b"x", p.dest, TAG), "medium"),
]


@pytest.mark.parametrize(("call", "form"), [row[1:] for row in HEADERS], ids=[row[0] for row in HEADERS])
def test_optimized_headers(call: Callable[[Pair], Any], form: str, tmp_path: Path) -> None:
    two = pair(tmp_path / "x.pcapng", mr={"optimized": True}, ses=fi.SesConfig(optimized_headers=True))
    two.b.trecv(bytearray(1), fi.ADDR_UNSPEC, TAG)
    call(two)
    two.fabric.close()
    assert [sent.form for sent in requests(tmp_path / "x.pcapng")] == [form]
    assert [entry.ok for entry in two.a.cq.read(9)] == [True]


def test_virtual_addresses(tmp_path: Path) -> None:
    two = pair(tmp_path / "x.pcapng", mr_mode=fi.MrMode.VIRT_ADDR)
    two.a.write(b"hello", two.dest, two.mr.base + 3, two.mr.key)
    two.a.write(b"hello", two.dest, 3, two.mr.key)
    two.fabric.close()
    assert two.memory[3:8] == b"hello"
    assert [sent.values["buffer_offset"] for sent in requests(tmp_path / "x.pcapng")] == [two.mr.base + 3, 3]
    assert [entry.ok for entry in two.a.cq.read(9)] == [True, False]
