# SPDX-License-Identifier: GPL-2.0-only
"""This module has a machine of random operations between endpoints on a lossy wire; a model of memory and of matching
judges them."""

import random
import struct
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.ses import invariants as inv
from tests.support.ses.world import MS, SECOND, US, Loss, Recorded, World
from uetproto.engine import Mode, Region
from uetproto.engine.contract import (
    Atomic,
    Completion,
    Event,
    Nop,
    Read,
    Receive,
    Received,
    RemoteWrite,
    Send,
    SendKind,
    Write,
)
from uetproto.testing.machines.ses_memory import RegionModel, compares, load, size_of
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, ReturnCode

MTU = 1024
JOBS = (101, 202)
PLACES = ((101, 0), (101, 1), (202, 0), (None, 7))
"""{JobID, PIDonFEP} of the processes at each endpoint; None: a service at an absolute address."""
PLAIN, OPTIMIZED, SAFE = 0x0001000000000007, 1 << 62 | 5, 1 << 63 | 9
ZONE = 8 * MTU
"""Number of bytes of a region that one initiator has for its ordered operations."""
RACING = 3 * ZONE
"""Offset from which unordered operations work, on bytes that no other operation uses."""
SHARED = 6 * ZONE
"""Offset from which commutative atomics work that race."""
REGION = SHARED + 256
FILL = 0xEE
ALL_BITS = (1 << 64) - 1

T, Op = AtomicDatatype, AtomicOpcode
COMMUTATIVE = (
    (Op.SUM, T.UINT64), (Op.SUM, T.INT32), (Op.BXOR, T.UINT8), (Op.SUM, T.FLOAT), (Op.SUM, T.DOUBLE),
    (Op.MAX, T.INT16), (Op.BOR, T.UINT32), (Op.SUM, T.FP16), (Op.SUM, T.INT128),
)  # fmt: skip
"""Slot k of 16 bytes in the shared zone has operation k; the last slot is the counter of fetching sums."""
COUNTER = SHARED + 240
ORDERED = (Op.SUM, Op.DIFF, Op.PROD, Op.MIN, Op.MAX, Op.LOR, Op.LAND, Op.LXOR, Op.BOR, Op.BAND, Op.BXOR, Op.READ,
           Op.WRITE, Op.CSWAP, Op.CSWAP_NE, Op.CSWAP_LE, Op.CSWAP_LT, Op.CSWAP_GE, Op.CSWAP_GT, Op.MSWAP)  # fmt: skip
SWAPS = ORDERED[13:]

lengths = st.one_of(
    st.sampled_from([0, 1, MTU - 1, MTU, MTU + 1, 2 * MTU - 1, 2 * MTU, 2 * MTU + 1, 5 * MTU + 7]),
    st.integers(0, 4 * MTU),
)
tags = st.integers(0, 1)
modes = st.sampled_from([Mode.ROD, Mode.RUD])
ends = st.integers(0, 2)
places = st.sampled_from(PLACES)
queues = st.sampled_from([PLACES[0], PLACES[0], PLACES[3]])
"""Processes to which messages are sent: few, so that messages meet."""
keys = st.sampled_from([PLAIN, OPTIMIZED])
maybe = st.booleans()


def knobs(draw: Any) -> dict[str, Any]:
    """Draw the parameters of one endpoint."""
    return {
        "optimized_headers": draw(maybe),
        "unexpected_policy": draw(st.sampled_from(["hold", "refuse"])),
        "unexpected_messages": draw(st.sampled_from([64, 1])),
        "truncation_policy": draw(st.sampled_from(["truncate", "refuse"])),
        "eager_length": draw(st.sampled_from([-1, 0, 100, MTU + 1])),
        "max_rx_messages": draw(st.sampled_from([65536, 65536, 2])),
        "write_latency": draw(st.sampled_from([0, 30 * US])),
        "max_pending_deferrals": draw(st.sampled_from([8, 1])),
        "stop_list": draw(st.sampled_from(["all", "first"])),
        "rod_refusal": draw(st.sampled_from(["disabled_gen", "no_match_first"])),
        "response_generation": draw(st.sampled_from(["on_error", "always"])),
        "hd_in": draw(st.sampled_from(["all", "som"])),
        "message_retry_limit": draw(st.sampled_from([0, 10])),
        "idle_message_time": 600 * SECOND,  # longer than any RTO: else what is repeated late begins a message anew
        "deferral_time": 600 * SECOND,
        "rendezvous_time": 600 * SECOND,
        "sync_operations": True,
    }


@dataclass
class Expected:
    """The values that the completion of an operation must have."""

    at: int
    codes: tuple[ReturnCode, ...] = (ReturnCode.OK,)
    into: Any = None
    wanted: bytes | None = None
    region: RegionModel | None = None
    memory: Recorded | None = None
    place: int = 0
    data: bytes = b""
    dc: bool = False
    swap: tuple[bool, bytes] | None = None


@dataclass
class Sent:
    """A send that is under way."""

    number: int
    src: int
    dst: int
    place: tuple[int | None, int]
    job: int
    tag: int | None
    data: bytes
    completion_data: int | None
    mode: Mode
    receive: int | None = None
    """Number of the receive that the send has met."""
    ended: Completion | None = None


@dataclass
class Group:
    """The writes of a group, for which the last one of them waits (ses.md §5.14)."""

    model: RegionModel
    parts: list[tuple[Recorded, int, bytes]] = field(default_factory=list)
    """Places of the writes, to which no other operation writes before the end."""


class SesMachine(RuleBasedStateMachine):
    """The machine has two or three endpoints."""

    endpoints = 2

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        draw = data.draw
        self.addresses = tuple(0x0A000001 + n for n in range(self.endpoints))
        settings = {address: knobs(draw) for address in self.addresses}
        loss = Loss(draw(st.sampled_from([0, 0.05, 0.2])), draw(st.sampled_from([0, 0.1])), US,
                    draw(st.sampled_from([US, 20 * US, 500 * US])))  # fmt: skip
        pds = {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31,
               "max_ack_data_size": draw(st.sampled_from([16, 0, 1024]))}  # fmt: skip
        self.world = World(self.addresses, seed=draw(st.integers(0, 2**32)), loss=loss, objects=draw(maybe), pds=pds,
                           ses=settings.__getitem__, mtu=MTU)  # fmt: skip
        self.settings = settings
        self.world.listeners.append(self.happened)
        self.models: dict[tuple[Any, ...], RegionModel] = {}
        self.memories: dict[tuple[Any, ...], Recorded] = {}
        for address, fep in self.world.feps.items():
            for place in PLACES:
                process = fep.attach(*place)
                for key in (PLAIN, OPTIMIZED, SAFE):
                    start = random.Random(key ^ address).randbytes(SHARED) + bytes(256)
                    self.models[address, place, key] = RegionModel(bytearray(start))
                    memory = self.memories[address, place, key] = self.world.memory(bytearray(start))
                    process.register(Region(key, memory))
        self.serial = 0
        self.expected: dict[Any, Expected] = {}
        self.sends: dict[Any, Sent] = {}
        self.delivered: dict[int, list[Sent]] = {}
        self.told: dict[int, list[Any]] = {}
        self.counted: dict[tuple[Any, ...], tuple[list[int], list[bytearray]]] = {}
        self.groups: dict[int, Group] = {}
        self.datagrams: list[Sent] = []

    # What the rules have in common

    def pick(self, src: int, dst: int) -> tuple[int, int]:
        """Return two different endpoints."""
        src %= self.endpoints
        dst = (src + 1 + dst % (self.endpoints - 1)) % self.endpoints
        return self.addresses[src], self.addresses[dst]

    def next(self) -> int:
        self.serial += 1
        return self.serial

    def to(self, src: int, dst: int, place: tuple[int | None, int], mode: Mode, **more: Any) -> dict[str, Any]:
        job, pid = place
        return {
            "peer": dst, "mode": mode, "job_id": JOBS[0] if job is None else job, "pid_on_fep": pid,
            "relative": job is not None, "initiator": 100 + self.addresses.index(src), **more,
        }  # fmt: skip

    def space(self, src: int, model: RegionModel, mode: Mode, length: int, at: int, *, to_write: bool) -> int | None:
        """Return the offset at which an operation may work: ordered operations in the zone of their initiator, others
        where no other operation works."""
        if mode is Mode.ROD:
            return int(self.addresses.index(src)) * ZONE + at % (ZONE - length + 1)
        places: list[int] = [RACING + at % (3 * ZONE - length + 1), *range(RACING, SHARED - length, ZONE // 4)]
        for offset in places:
            if model.free(offset, length, to_write=to_write):
                return offset
        return None

    def submit(self, src: int, work: Any, expected: Expected) -> None:
        self.expected[work.context] = expected
        self.world.submit(src, work)
        self.world.poll()

    def content(self, length: int) -> bytes:
        return random.Random(self.serial).randbytes(length)

    # Reading and writing

    @rule(src=ends, dst=ends, place=places, key=keys, mode=modes, length=lengths, at=st.integers(0, 3 * ZONE),
          hd=maybe, dc=maybe)  # fmt: skip
    def write(self, src: int, dst: int, place: Any, key: int, mode: Mode, length: int, at: int, hd: bool,
              dc: bool) -> None:  # fmt: skip
        self._write(src, dst, place, key, mode, length, at, hd, dc)

    @rule(src=ends, dst=ends, place=places, length=lengths, at=st.integers(0, 3 * ZONE))
    def rudi_write(self, src: int, dst: int, place: Any, length: int, at: int) -> None:
        self._write(src, dst, place, SAFE, Mode.RUDI, length, at, False, False)

    def _write(self, src: int, dst: int, place: Any, key: int, mode: Mode, length: int, at: int, hd: bool,
               dc: bool) -> None:  # fmt: skip
        src, dst = self.pick(src, dst)
        model = self.models[dst, place, key]
        offset = self.space(src, model, mode, length, at, to_write=True)
        if offset is None:
            return
        context, data = self.next(), self.content(length)
        model.write(offset, data)
        model.writing[context] = (offset, length)
        number = context << 40 | 0xCAFE if hd else None
        if number is not None:
            self.told[number] = []
        self.submit(
            src,
            Write(data=data, key=key, offset=offset, completion_data=number, context=context, delivery_complete=dc,
                  **self.to(src, dst, place, mode)),
            Expected(src, region=model, memory=self.memories[dst, place, key], place=offset, data=data,
                     dc=dc and mode is not Mode.ROD),
        )  # fmt: skip

    @rule(src=ends, dst=ends, place=places, key=keys, mode=modes, length=lengths, at=st.integers(0, 3 * ZONE))
    def read(self, src: int, dst: int, place: Any, key: int, mode: Mode, length: int, at: int) -> None:
        self._read(src, dst, place, key, mode, length, at)

    @rule(src=ends, dst=ends, place=places, length=lengths, at=st.integers(0, 3 * ZONE))
    def rudi_read(self, src: int, dst: int, place: Any, length: int, at: int) -> None:
        self._read(src, dst, place, SAFE, Mode.RUDI, length, at)

    def _read(self, src: int, dst: int, place: Any, key: int, mode: Mode, length: int, at: int) -> None:
        src, dst = self.pick(src, dst)
        model = self.models[dst, place, key]
        offset = self.space(src, model, mode, length, at, to_write=False)
        if offset is None:
            return
        context, into = self.next(), bytearray(length)
        model.reading[context] = (offset, length)
        self.submit(
            src, Read(into=into, key=key, offset=offset, context=context, **self.to(src, dst, place, mode)),
            Expected(src, region=model, into=into, wanted=model.read(offset, length)),
        )  # fmt: skip

    # Atomics

    @rule(src=ends, dst=ends, place=places, key=keys, mode=modes, slot=st.integers(0, len(COMMUTATIVE) - 1),
          values=st.lists(st.integers(0, 7), min_size=1, max_size=4))  # fmt: skip
    def racing_atomic(self, src: int, dst: int, place: Any, key: int, mode: Mode, slot: int,
                      values: list[int]) -> None:  # fmt: skip
        """Submit a commutative atomic, for which any order gives the same; the sums of floats are exact."""
        src, dst = self.pick(src, dst)
        opcode, datatype = COMMUTATIVE[slot]
        size = size_of(datatype)
        data = b"".join(_element(value, datatype) for value in values[: max(1, 16 // size)])
        self.models[dst, place, key].atomic(SHARED + 16 * slot, opcode, datatype, data)
        context = self.next()
        self.submit(
            src,
            Atomic(opcode=opcode, datatype=datatype, data=data, key=key, offset=SHARED + 16 * slot, context=context,
                   **self.to(src, dst, place, mode)),
            Expected(src),
        )  # fmt: skip

    @rule(src=ends, dst=ends, place=places, mode=modes)
    def count(self, src: int, dst: int, place: Any, mode: Mode) -> None:
        """Submit a fetching SUM of 1."""
        src, dst = self.pick(src, dst)
        context, result = self.next(), bytearray(8)
        operands, results = self.counted.setdefault((dst, place), ([], []))
        operands.append(1)
        results.append(result)
        self.models[dst, place, PLAIN].atomic(COUNTER, Op.SUM, T.UINT64, struct.pack("<Q", 1))
        self.submit(
            src,
            Atomic(opcode=Op.SUM, datatype=T.UINT64, data=struct.pack("<Q", 1), key=PLAIN, offset=COUNTER,
                   result=result, context=context, **self.to(src, dst, place, mode)),
            Expected(src),
        )  # fmt: skip

    @rule(src=ends, dst=ends, place=places, key=keys, opcode=st.sampled_from(ORDERED),
          datatype=st.sampled_from([T.INT8, T.UINT32, T.INT64, T.UINT128]), slot=st.integers(0, 3), value=st.binary(
          min_size=16, max_size=16), same=maybe, fetch=maybe)  # fmt: skip
    def ordered_atomic(self, src: int, dst: int, place: Any, key: int, opcode: AtomicOpcode, datatype: AtomicDatatype,
                       slot: int, value: bytes, same: bool, fetch: bool) -> None:  # fmt: skip
        """Submit any ordered atomic, on ROD, where only its initiator works."""
        src, dst = self.pick(src, dst)
        model, size = self.models[dst, place, key], size_of(datatype)
        offset = self.addresses.index(src) * ZONE + 16 * slot
        before = model.read(offset, size)
        data = b"" if opcode is Op.READ else value[:size]
        compare = (before if same else value[-size:]) if opcode in SWAPS else None
        model.atomic(offset, opcode, datatype, data, compare or b"")
        fetch = fetch or opcode is Op.READ
        result = bytearray(size) if fetch else None
        context = self.next()
        expected = Expected(src, into=result, wanted=before if fetch else None)
        if compare is not None and opcode is not Op.MSWAP:
            holds = compares(opcode, load(before, datatype), load(compare, datatype))
            inv.ses_23_compare_and_swap(holds, before, data, model.read(offset, size), None)
        self.submit(
            src,
            Atomic(opcode=opcode, datatype=datatype, data=data, compare=compare, key=key, offset=offset, result=result,
                   context=context, **self.to(src, dst, place, Mode.ROD)),
            expected,
        )  # fmt: skip

    @rule(src=ends, dst=ends, count=st.integers(1, 4), first=st.integers(0, 4), lengths=st.lists(lengths, min_size=5,
          max_size=5))  # fmt: skip
    def sync_group(self, src: int, dst: int, count: int, first: int, lengths: list[int]) -> None:
        """Submit the writes of a group, and among them, in any order, the one that ends the group."""
        src, dst = self.pick(src, dst)
        place = PLACES[0]
        model, memory = self.models[dst, place, PLAIN], self.memories[dst, place, PLAIN]
        context = self.next()
        group, number = Group(model), context << 40 | 0xFEED
        works = []
        for n in range(count):
            length = lengths[n]
            offset = self.space(src, model, Mode.RUD, length, n * ZONE // 2, to_write=True)
            if offset is None:
                count = n
                break
            each = self.next()
            data = self.content(length)
            model.write(offset, data)
            model.writing[number, n] = model.writing[each] = (offset, length)
            group.parts.append((memory, offset, data))
            works.append((offset, data, each))
        if not count:
            return
        for n, (offset, data, each) in sorted(enumerate(works), key=lambda item: (item[0] + first) % count):
            last = n + 1 == count
            sync = (context & 0xFFFF, count if last else 0)
            if last:
                self.groups[number] = group
                self.told[number] = []
            self.submit(
                src,
                Write(data=data, key=PLAIN, offset=offset, sync=sync, completion_data=number if last else None,
                      context=each, **self.to(src, dst, place, Mode.RUD)),
                Expected(src, region=model),
            )  # fmt: skip

    # Messages

    @rule(src=ends, dst=ends, place=queues, mode=modes, kind=st.sampled_from(SendKind), tag=st.none() | tags,
          length=lengths, hd=maybe, dc=maybe)  # fmt: skip
    def send(self, src: int, dst: int, place: Any, mode: Mode, kind: SendKind, tag: int | None, length: int, hd: bool,
             dc: bool) -> None:  # fmt: skip
        if kind is SendKind.DEFERRABLE:
            mode = Mode.RUD
        self._send(src, dst, place, mode, kind, tag, length, hd, dc)

    @rule(src=ends, dst=ends, place=queues, mode=modes, kind=st.sampled_from(SendKind), tag=st.none() | tags,
          sizes=st.lists(lengths, min_size=2, max_size=4))  # fmt: skip
    def burst(self, src: int, dst: int, place: Any, mode: Mode, kind: SendKind, tag: int | None,
              sizes: list[int]) -> None:  # fmt: skip
        """Submit several sends to one queue, one behind the other."""
        for size in sizes:
            self.send(src, dst, place, mode, kind, tag, size, True, False)

    @rule(src=ends, dst=ends, place=queues, length=st.integers(0, MTU), hd=maybe)
    def datagram(self, src: int, dst: int, place: Any, length: int, hd: bool) -> None:
        self._send(src, dst, place, Mode.UUD, SendKind.PLAIN, None, length, hd, False)

    def _send(self, src: int, dst: int, place: Any, mode: Mode, kind: SendKind, tag: int | None, length: int,
              hd: bool, dc: bool) -> None:  # fmt: skip
        src, dst = self.pick(src, dst)
        context, data = self.next(), self.content(length)
        number = context << 40 | 0xBEEF if hd else None
        fields = self.to(src, dst, place, mode)
        sent = Sent(context, src, dst, place, fields["job_id"], tag, data, number, mode)
        refused = (ReturnCode.NO_MATCH, ReturnCode.DISABLED_GEN, ReturnCode.TOO_LONG)
        self.sends[context] = sent
        self.submit(
            src,
            Send(data=data, tag=tag, completion_data=number, kind=kind, context=context, delivery_complete=dc,
                 local_pid=place[1], **fields),
            Expected(src, (ReturnCode.OK, *refused)),
        )  # fmt: skip

    @rule(dst=ends, place=queues, tag=st.none() | tags, ignore=st.sampled_from([0, 0, 1, ALL_BITS]),
          source=st.none() | st.none() | ends, size=lengths, least=st.sampled_from([0, 0, 0, 1, 500]))  # fmt: skip
    def post(self, dst: int, place: Any, tag: int | None, ignore: int, source: int | None, size: int,
             least: int) -> None:  # fmt: skip
        source = None if source is None else 100 + source % self.endpoints
        self._post(self.addresses[dst % self.endpoints], place, tag, ignore, source, size, least)

    @precondition(lambda self: any(s.receive is None and s.ended is None for s in self.sends.values()))
    @rule(which=st.integers(0, 1000), exact=maybe, directed=maybe, short=st.sampled_from([0, 0, 1, 500]),
          more=st.sampled_from([0, 0, 3 * MTU]))  # fmt: skip
    def post_for(self, which: int, exact: bool, directed: bool, short: int, more: int) -> None:
        """Post a receive that an unmet send matches: too short, just right, or a multi-receive buffer with more
        room."""
        unmet = [s for s in self.sends.values() if s.receive is None and s.ended is None]
        sent = unmet[which % len(unmet)]
        source = 100 + self.addresses.index(sent.src) if directed else None
        size = max(0, len(sent.data) - short) + more
        self._post(sent.dst, sent.place, sent.tag, 0 if exact else ALL_BITS, source, size, 100 if more else 0)

    def _post(self, address: int, place: Any, tag: int | None, ignore: int, source: int | None, size: int,
              least: int = 0) -> None:  # fmt: skip
        job, pid = place
        into = bytearray([FILL]) * size
        self.world.submit(address, Receive(into=into, tag=tag, ignore=ignore if tag is not None else 0, source=source,
                                           job_id=job, pid_on_fep=pid, least=least, context=place))  # fmt: skip
        self.world.poll()

    @precondition(lambda self: self.world.log.posted)
    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        posted = self.world.log.posted[which % len(self.world.log.posted)]
        spent = any(event.spent for event in posted.ends) or posted.cancelled
        withdrawn = self.world.cancel(posted.at, posted.receive)
        self.world.poll()
        assert posted.cancelled == (1 if withdrawn else posted.cancelled)
        assert not (spent and withdrawn)

    # What must fail

    @rule(src=ends, dst=ends, mode=modes, length=lengths, fault=st.sampled_from([
        ("job_id", 999, ReturnCode.BAD_JOB_ID), ("pid_on_fep", 5, ReturnCode.BAD_PID),
        ("resource_index", 3, ReturnCode.BAD_INDEX), ("key", 77, ReturnCode.BAD_MKEY),
        ("offset", REGION - 1, ReturnCode.BAD_ADDR), ("offset", 2**64 - 1, ReturnCode.BAD_ADDR),
    ]))  # fmt: skip
    def bad_write(self, src: int, dst: int, mode: Mode, length: int, fault: tuple[str, int, ReturnCode]) -> None:
        src, dst = self.pick(src, dst)
        name, value, code = fault
        context = self.next()
        fields = {**self.to(src, dst, PLACES[0], mode), "key": PLAIN, "offset": 0, name: value}
        self.submit(src, Write(data=self.content(length + 2), context=context, **fields), Expected(src, (code,)))

    @rule(src=ends, dst=ends, place=places, mode=modes)
    def no_op(self, src: int, dst: int, place: Any, mode: Mode) -> None:
        src, dst = self.pick(src, dst)
        self.submit(src, Nop(context=self.next(), **self.to(src, dst, place, mode)), Expected(src))

    # Time

    @rule(duration=st.sampled_from([US, 10 * US, 100 * US, MS, 200 * MS]))
    def wait(self, duration: int) -> None:
        self.world.run(duration)

    @rule(times=st.integers(1, 30))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.world.step(self.world.now + 300 * MS)

    # What is told

    def happened(self, address: int, event: Event) -> None:
        if isinstance(event, Completion):
            self._completed(address, event)
        elif isinstance(event, Received):
            self._received(address, event)
        elif isinstance(event, RemoteWrite):
            self.told[event.data].append(event.data)
            for memory, offset, data in self.groups[event.data].parts if event.data in self.groups else ():
                inv.ses_31_completion_data([event.data], event.data, memory.read(offset, len(data)) == data)
            if event.data in self.groups:
                group = self.groups[event.data]
                for n in range(len(group.parts)):
                    group.model.done((event.data, n))

    def _completed(self, address: int, event: Completion) -> None:
        expected = self.expected[event.context]
        assert address == expected.at
        assert event.error is None, event
        assert not event.timed_out, event
        assert event.return_code in expected.codes, (event, expected.codes)
        limit = self.settings[address]["message_retry_limit"]
        inv.ses_35_retries_have_an_end(event, limit)
        if event.return_code in (ReturnCode.NO_MATCH, ReturnCode.DISABLED_GEN):
            assert limit
            assert event.refusals == limit + 1
        if expected.wanted is not None:
            inv.ses_19_read_after_write(bytes(expected.into), expected.wanted)
        if expected.memory is not None and expected.dc:
            seen = expected.memory.read(expected.place, len(expected.data))
            inv.ses_18_dc_is_observable(event.ok, True, bytes(seen), expected.data)
        if expected.region is not None:
            expected.region.done(event.context)
        if event.context in self.sends:
            self.sends[event.context].ended = event

    def _received(self, address: int, event: Received) -> None:
        inv.ses_24_matches(event)
        receive = event.receive
        if event.return_code is ReturnCode.TOO_LONG and event.opcode in inv.DEFERRABLES:
            # Its restart was refused: the receive that was reserved for it ends.
            assert self.settings[address]["truncation_policy"] == "refuse"
            assert event.message_length > len(receive.into) - event.start
            return
        assert event.return_code is ReturnCode.OK, event
        got = bytes(receive.into[event.start : event.start + event.length])
        tag = None if receive.tag is None else event.tag
        place = receive.context
        candidates = [
            sent for sent in self.sends.values()
            if sent.receive is None and sent.data[: event.length] == got and event.job_id == sent.job
            and (sent.dst, sent.place, sent.tag, len(sent.data)) == (address, place, tag, event.message_length)
            and (event.source, event.initiator) == (sent.src, 100 + self.addresses.index(sent.src))
        ]  # fmt: skip
        assert candidates, f"nobody sent this: {event}, {got[:20]!r}"
        sent = next((s for s in candidates if s.completion_data == event.data), candidates[0])  # empty ones are alike
        sent.receive = next(p.number for p in self.world.log.posted if p.receive is receive)
        inv.ses_31_completion_data([event.data], sent.completion_data, True)
        assert event.length == min(len(sent.data), len(receive.into) - event.start)

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self._flush()
        self.world.settle()
        self._withdraw()
        for key, model in self.models.items():
            memory = self.memories[key]
            assert bytes(memory.view) == bytes(model.data), f"memory of {key}"
        self._judge()

    def _flush(self) -> None:
        """Receive for all that is sent, until it has ended."""
        for _ in range(400):
            self.world.run(50 * MS)
            unmet = [s for s in self.sends.values() if s.receive is None and s.ended is None]
            if not unmet:
                break
            free = {(p.at, p.receive.context, p.receive.tag is None) for p in self.world.log.posted
                    if not p.ends and not p.cancelled and p.receive.ignore in (0, ALL_BITS)
                    and len(p.receive.into) == 8 * MTU}  # fmt: skip
            for sent in unmet:
                if (sent.dst, sent.place, sent.tag is None) not in free:
                    self._post(sent.dst, sent.place, None if sent.tag is None else 0, ALL_BITS, None, 8 * MTU)
        else:
            raise AssertionError(f"sends without end: {unmet[:3]}")

    def _withdraw(self) -> None:
        for posted in self.world.log.posted:
            done = any(event.spent for event in posted.ends) or posted.cancelled
            assert self.world.cancel(posted.at, posted.receive) != bool(done), posted
        self.world.poll()

    def _judge(self) -> None:
        log = self.world.log
        inv.check(log)
        for fep in self.world.feps.values():
            inv.ses_36_nothing_remains(fep)
        for sent in self.sends.values():
            assert sent.ended is not None
            if sent.mode is not Mode.UUD:
                assert sent.ended.ok == (sent.receive is not None), sent
        for number, told in self.told.items():
            inv.ses_31_completion_data(told, number, True)
        for asked in log.asked:
            inv.ses_32_jobs_are_apart(asked, JOBS)
        for (address, place), (operands, results) in self.counted.items():
            final = int.from_bytes(self.memories[address, place, PLAIN].read(COUNTER, 8), "little")
            fetched = [int.from_bytes(result, "little") for result in results]
            inv.ses_21_fetching_sum(0, operands, fetched, final, 64)
            inv.ses_22_fetched_once(final, len(operands))
        self._judge_order()
        self._judge_buffers()

    def _judge_order(self) -> None:
        """Send on ROD of one initiator to one queue."""
        queues: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        for sent in self.sends.values():
            if sent.mode is Mode.ROD and sent.receive is not None:
                key = (sent.src, sent.dst, sent.place, sent.tag is None)
                queues.setdefault(key, []).append((sent.number, sent.receive))

        def matches(number: int, receive_number: int) -> bool:
            sent, receive = self.sends[number], self.world.log.posted[receive_number].receive
            fits = len(sent.data) <= len(receive.into)
            tags_fit = sent.tag is None or (sent.tag ^ (receive.tag or 0)) & ~receive.ignore == 0
            return fits and tags_fit and receive.source in (None, 100 + self.addresses.index(sent.src))

        for pairs in queues.values():
            inv.ses_25_sends_in_order(pairs, matches)

    def _judge_buffers(self) -> None:
        """Nothing was written beside the messages."""
        for posted in self.world.log.posted:
            used = sum(event.length for event in posted.ends)
            assert posted.receive.into[used:] == bytearray([FILL]) * (len(posted.receive.into) - used)


class ThreeMachine(SesMachine):
    endpoints = 3


def _element(value: int, datatype: AtomicDatatype) -> bytes:
    formats = {T.FLOAT: "<f", T.DOUBLE: "<d", T.FP16: "<e"}
    if datatype in formats:
        return struct.pack(formats[datatype], value)
    return value.to_bytes(size_of(datatype), "little")
