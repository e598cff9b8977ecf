# SPDX-License-Identifier: GPL-2.0-only
"""These machines drive SES: an implementation as the target of operations, or as their initiator.

Both ends have one process of one job with the same regions. The initiator reads and writes the regions of the target,
and sends messages to its receives. See ses.md §15; UE 1.0.1 §3.4.
"""

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import precondition

from uetproto.testing.adapters.adapter import WorkRefused
from uetproto.testing.adapters.fep import FepEngine
from uetproto.testing.adapters.guarded import Observed
from uetproto.testing.machines.machine import ProtocolMachine, start, step
from uetproto.testing.machines.ses_memory import RegionModel, size_of
from uetproto.testing.machines.ses_model import ALL_BITS, OK, SENDS, TELLING, AskedOperation, ModelReceive, SesModel
from uetproto.testing.machines.world import IMPLEMENTATION, PEER
from uetproto.wire.headers.uet_ses import COMPARE_AND_SWAPS, AtomicDatatype, AtomicOpcode, ReturnCode

MTU = 1024
JOB, PID, INDEX = 1, 0, 15
PLAIN, OPTIMIZED, SAFE, READABLE, WRITABLE, HIDDEN = 7, 1 << 62 | 5, 1 << 63 | 9, 11, 12, 13
"""Keys of the regions: an ordinary key, one for which headers may be optimized (ses.md §4.1), one for operations that
may be repeated, as RUDI does (§2.6), those of regions that peers may only read, or only write, and that of a region for
another job."""
OTHER_JOB = 999
SOURCES = (0, 1)
"""Initiator ids of messages."""
RIGHTS = {READABLE: "r", WRITABLE: "w"}
"""What a peer may do in a region; in the others it may read and write."""
ROOM = 4 * MTU
"""Bytes of a receive that has room for every message, and bytes at the start of a region on which ordered operations
work."""
RACING = ROOM
"""Offset from which unordered operations work, on bytes that no other operation uses."""
SLOTS = 3 * ROOM
"""Offset of the places at which commutative atomics race."""
SIZE = SLOTS + 64
FILL = 0xEE
LENGTHS = (8, 1, 0, 64, MTU - 1, MTU, MTU + 1, 2 * MTU, 3 * MTU + 5)
"""Numbers of bytes of an operation."""

_Op, _T = AtomicOpcode, AtomicDatatype
RACERS = ((_Op.SUM, _T.UINT64), (_Op.BXOR, _T.UINT32), (_Op.MAX, _T.INT16))
"""Atomics for which any order gives the same, each with its own place; the first also fetches."""
ORDERED = (_Op.SUM, _Op.DIFF, _Op.MIN, _Op.MAX, _Op.BOR, _Op.BAND, _Op.BXOR, _Op.WRITE, _Op.CSWAP, _Op.CSWAP_LT)
DATATYPES = (_T.UINT64, _T.INT32, _T.UINT8)
FAULTS: dict[str, tuple[str, int, frozenset[ReturnCode]]] = {
    "key": ("key", 77, frozenset({ReturnCode.BAD_MKEY})),
    "end": ("offset", SIZE - 1, frozenset({ReturnCode.BAD_ADDR, ReturnCode.UNSUPPORTED_SIZE})),
    "overflow": ("offset", ALL_BITS, frozenset({ReturnCode.BAD_ADDR, ReturnCode.UNSUPPORTED_SIZE})),
    "job": ("job_id", OTHER_JOB, frozenset({ReturnCode.BAD_JOB_ID})),
    "pid": ("pid_on_fep", 5, frozenset({ReturnCode.BAD_PID})),
    "index": ("resource_index", 3, frozenset({ReturnCode.BAD_INDEX})),
    "write": ("key", READABLE, frozenset({ReturnCode.PERM_VIOLATION})),
    "read": ("key", WRITABLE, frozenset({ReturnCode.PERM_VIOLATION})),
    "hidden": ("key", HIDDEN, frozenset({ReturnCode.BAD_MKEY})),
}
"""Accesses that must fail: the field that is wrong, its value, and the codes that are legal (ses.md §10). `write` and
`read` are an operation without the right to it, `hidden` one on a region for another job."""
SEND_FAULTS = ("job", "pid", "index")
_BAD_TYPE = frozenset({ReturnCode.AMO_UNSUPPORTED_DT, ReturnCode.AMO_UNSUPPORTED_OP, ReturnCode.UNSUPPORTED_OP})
ATOMIC_FAULTS: dict[str, tuple[AtomicOpcode, AtomicDatatype, int, int, frozenset[ReturnCode]]] = {
    "unaligned": (_Op.SUM, _T.UINT64, PLAIN, 1, frozenset({ReturnCode.AMO_UNALIGNED, ReturnCode.BAD_ADDR})),
    "end": (_Op.SUM, _T.UINT64, PLAIN, SIZE, FAULTS["end"][2]),
    "type": (_Op.BOR, _T.FLOAT, PLAIN, 0, _BAD_TYPE),
    "write": (_Op.SUM, _T.UINT64, READABLE, 0, FAULTS["write"][2]),
    "read": (_Op.SUM, _T.UINT64, WRITABLE, 0, FAULTS["read"][2]),
    "hidden": (_Op.SUM, _T.UINT64, HIDDEN, 0, FAULTS["hidden"][2]),
}
"""Atomics that must fail: opcode, datatype, key, offset, and the codes that are legal (ses.md §6.3, §17 row 19).
`write` and `read` fetch, without one of the rights to it."""
KNOBS: dict[str, tuple[Any, ...]] = {
    "optimized_headers": (False, True), "unexpected_policy": ("hold", "refuse"), "unexpected_messages": (64, 1),
    "response_generation": ("on_error", "always"), "hd_in": ("all", "som"), "max_ack_data_size": (16, 0, 1024),
    "write_latency": (0, 30_000_000), "default_mpr": (8, 1, 2), "ack_cc": ("when_gap", "always", "never"),
    "clear_cmd": ("timer", "immediate"), "truncation_policy": ("truncate", "refuse"), "eager_length": (-1, 0, 100),
    "max_pending_deferrals": (8, 1), "store_ack_read_data": (True, False),
}  # fmt: skip
"""Settings that a run may draw, each with its values; all of them are legal (ses.md §16)."""

OFFERED = {
    "rudi": ("modes", "operations in mode rudi"),
    "uud": ("modes", "operations in mode uud"),
    **{
        name: ("work", f"work {name!r}")
        for name in ("rendezvous", "deferrable", "truncate", "cancel", "close", "access", "restrict", "directed")
    },
}
"""What `Capabilities` may offer, where it is told, and the name under which it is counted as not judged."""

_modes = st.sampled_from(("rud", "rod"))
_rma_modes = st.sampled_from(("rud", "rod", "rudi"))
_keys = st.sampled_from((PLAIN, OPTIMIZED))
_lengths = st.sampled_from(LENGTHS)
_places = st.integers(0, 2 * ROOM)
_tags = st.sampled_from((None, 0, 1))
"""Tags of messages and receives; None: they are not tagged."""


class SesMachine(ProtocolMachine):
    """This class has the rules of both machines of SES."""

    peer = FepEngine
    observed = Observed({
        "completion": {"id": int, "ok": bool}, "received": {"id": int}, "cancelled": {"id": int},
        "memory": {"id": int, "data": bytes},
    })  # fmt: skip
    initiator: ClassVar[int]
    """Number of the end that submits operations."""

    @start(
        seed=st.integers(0, 255),
        knobs=st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in KNOBS.items()}),
    )
    def begin(self, seed: int, knobs: dict[str, Any]) -> None:
        """Reset both ends."""
        capabilities = self.adapter().capabilities
        self.serial = 0
        self.model = SesModel(
            self.verdicts, self.initiator, (capabilities.observable, True), capabilities.losses,
            {key: RegionModel(bytearray([FILL]) * SIZE) for key in self.keys()}, self.peek, (PLAIN, SLOTS),
        )  # fmt: skip
        for name, (where, told) in OFFERED.items():
            if name not in getattr(capabilities, where):
                self.verdicts.skip(told, f"Capabilities.{where} does not offer it")
        self.make_world({
            "seed": seed, "knobs": self.knobs(knobs), "payload_mtu": MTU, "job_id": JOB, "pid_on_fep": PID,
            "resource_index": INDEX,
            "regions": [
                {
                    "key": key, "size": SIZE, "fill": FILL, "access": RIGHTS.get(key, "rw"),
                    **({"only_job": OTHER_JOB} if key == HIDDEN else {}),
                }
                for key in self.model.regions
            ],
        })  # fmt: skip

    # What the rules have in common

    def can(self, *names: str) -> bool:
        """Return whether the implementation does this work, as target or initiator."""
        return {*names} <= {*self.adapter().capabilities.work}

    def keys(self) -> list[int]:
        """Return the keys of the regions that the implementation has."""
        more = [SAFE] * ("rudi" in self.adapter().capabilities.modes) + [*RIGHTS] * self.can("access")
        return [PLAIN, OPTIMIZED, *more, *[HIDDEN] * self.can("restrict")]

    def mode(self, mode: str) -> str:
        modes = self.adapter().capabilities.modes
        return mode if mode in modes else next((each for each in modes if each in ("rud", "rod")), modes[0])

    def region(self, mode: str, key: int) -> int:
        """Return the key of the region on which an operation works: `key` itself if the mode and the implementation
        allow it."""
        if mode == "rudi":
            return SAFE
        return key if key in self.model.regions else PLAIN

    def next(self) -> int:
        self.serial += 1
        return self.serial

    def content(self, length: int) -> bytes:
        """Return the bytes of the operation with the last number."""
        return random.Random(self.serial).randbytes(length)

    def ask(self, asked: AskedOperation, **work: Any) -> None:
        """Submit an operation."""
        self.model.operations[asked.number] = asked
        try:
            self.world.submit(self.initiator, {"op": asked.op, "id": asked.number, "mode": asked.mode, **work})
        except WorkRefused:
            del self.model.operations[asked.number]
            raise

    def change(self, region: RegionModel, asked: AskedOperation, after: bytes, **work: Any) -> None:
        """Submit an operation after which the region has the bytes `after` at the place of the operation."""
        before = region.read(asked.offset, len(after))
        region.write(asked.offset, after)
        region.written.append((asked.number, asked.offset, after))
        try:
            self.ask(asked, key=asked.key, offset=asked.offset, **work)
        except WorkRefused:
            region.write(asked.offset, before)
            region.written.pop()
            region.done(asked.number)
            raise

    def space(self, region: RegionModel, mode: str, length: int, at: int, *, to_write: bool) -> int | None:
        """Return an offset for an operation; None: other operations use all places that it could have."""
        if mode == "rod" and self.model.is_in_order():
            return at % (ROOM - length + 1)
        offset: int
        for offset in (RACING + at % (2 * ROOM - length + 1), *range(RACING, SLOTS - length + 1, MTU)):
            if region.free(offset, length, to_write=to_write):
                return offset
        return None

    def peek(self, key: int, offset: int, length: int) -> bytes | None:
        """Return bytes of the memory of the target; None if it does not show them."""
        capabilities, target = self.adapter().capabilities, 1 - self.initiator
        if target == IMPLEMENTATION and not (capabilities.observable and "peek" in capabilities.work):
            return None
        end, number, found = self.world.ends[target], self.next(), None
        try:
            end.submit({"op": "peek", "id": number, "key": key, "offset": offset, "length": length})
        except WorkRefused:
            return None
        for event in (end.observe() or {}).get("events", ()):
            if event.get("event") == "memory" and event.get("id") == number:
                found = bytes.fromhex(event["data"])
            else:
                self.on_event(target, event)
        return found

    # Reading and writing

    @precondition(lambda self: self.is_begun() and self.can("write"))
    @step(mode=_rma_modes, length=_lengths, key=st.sampled_from((PLAIN, OPTIMIZED, WRITABLE)), at=_places,
          dc=st.booleans())  # fmt: skip
    def write(self, mode: str, length: int, key: int, at: int, dc: bool) -> None:
        mode = self.mode(mode)
        key = self.region(mode, key)
        region = self.model.regions[key]
        offset = self.space(region, mode, length, at, to_write=True)
        if offset is None:
            return
        number, data, dc = self.next(), self.content(length), dc and self.can("dc")
        stored = dc or self.initiator == IMPLEMENTATION
        late = not stored and not (mode == "rod" and self.model.is_in_order())
        region.writing[number] = offset, length
        asked = AskedOperation(
            number=number, op="write", mode=mode, key=key, offset=offset, data=data, late=late,
            observable=stored and mode != "rod",
        )  # fmt: skip
        self.change(region, asked, data, data=data.hex(), dc=dc)

    @precondition(lambda self: self.is_begun() and self.can("read"))
    @step(mode=_rma_modes, length=_lengths, key=st.sampled_from((PLAIN, OPTIMIZED, READABLE)), at=_places)
    def read(self, mode: str, length: int, key: int, at: int) -> None:
        mode = self.mode(mode)
        key = self.region(mode, key)
        region = self.model.regions[key]
        offset = self.space(region, mode, length, at, to_write=False)
        if offset is None:
            return
        number = self.next()
        region.reading[number] = offset, length
        asked = AskedOperation(
            number=number, op="read", mode=mode, key=key, offset=offset, wanted=region.read(offset, length)
        )
        self.change(region, asked, b"", length=length)

    # Atomics

    @precondition(lambda self: self.is_begun() and self.can("atomic"))
    @step(mode=_modes, racer=st.integers(0, len(RACERS) - 1), key=_keys, value=st.integers(1, 7))
    def racing_atomic(self, mode: str, racer: int, key: int, value: int) -> None:
        """Submit an atomic that commutes with all others at its place. The counter is in one region."""
        opcode, datatype = RACERS[racer]
        counts = racer == 0 and key == PLAIN
        operand = (1 if counts else value).to_bytes(size_of(datatype), "little")
        asked = AskedOperation(
            number=self.next(), op="atomic", mode=self.mode(mode), key=key, offset=SLOTS + 16 * racer, counts=counts
        )
        self.apply(asked, opcode, datatype, operand, None, counts)

    @precondition(lambda self: self.is_begun() and self.can("atomic") and self.mode("rod") == "rod")
    @step(opcode=st.sampled_from([each.name.lower() for each in ORDERED]),
          datatype=st.sampled_from([each.name.lower() for each in DATATYPES]), key=_keys, slot=st.integers(0, 3),
          value=st.integers(0, 255), same=st.booleans(), fetch=st.booleans())  # fmt: skip
    def ordered_atomic(
        self, opcode: str, datatype: str, key: int, slot: int, value: int, same: bool, fetch: bool
    ) -> None:
        """Submit an atomic on ROD. `same`: a compare-and-swap compares with what is in memory."""
        if not self.model.is_in_order():
            return
        op, kind = AtomicOpcode[opcode.upper()], AtomicDatatype[datatype.upper()]
        offset, size = 16 * slot, size_of(kind)
        before = self.model.regions[key].read(offset, size)
        swaps = op in COMPARE_AND_SWAPS
        compare = (before if same else bytes([value]) * size) if swaps else None
        asked = AskedOperation(
            number=self.next(), op="atomic", mode="rod", key=key, offset=offset, wanted=before if fetch else None
        )
        self.apply(asked, op, kind, bytes([value ^ 0x5A]) * size, compare, fetch)

    def apply(
        self, asked: AskedOperation, opcode: AtomicOpcode, datatype: AtomicDatatype, operand: bytes,
        compare: bytes | None, fetch: bool,
    ) -> None:  # fmt: skip
        """Submit an atomic."""
        region = self.model.regions[asked.key]
        before = region.atomic(asked.offset, opcode, datatype, operand, compare or b"")
        after = region.read(asked.offset, len(before))
        region.write(asked.offset, before)
        more = {} if compare is None else {"compare": compare.hex()}
        self.change(region, asked, after, opcode=opcode.name.lower(), datatype=datatype.name.lower(),
                    data=operand.hex(), fetch=fetch, **more)  # fmt: skip

    # What must fail

    @precondition(lambda self: self.is_begun() and (self.can("write") or self.can("read")))
    @step(mode=_modes, fault=st.sampled_from(tuple(FAULTS)), length=st.sampled_from((8, 2, MTU + 1)),
          reads=st.booleans())  # fmt: skip
    def bad_access(self, mode: str, fault: str, length: int, reads: bool) -> None:
        op = "read" if (reads and self.can("read")) or not self.can("write") else "write"
        if fault in ("read", "write"):
            if not self.can(fault, "access"):
                return
            op = fault
        if fault == "hidden" and not self.can("restrict"):
            return
        name, value, codes = FAULTS[fault]
        asked = AskedOperation(number=self.next(), op=op, mode=self.mode(mode), codes=codes)
        amount = {"length": length} if op == "read" else {"data": self.content(length).hex()}
        self.ask(asked, **{"key": PLAIN, "offset": 0, **amount, name: value})

    @precondition(lambda self: self.is_begun() and (self.can("atomic") or self.can("send")))
    @step(mode=_modes, fault=st.sampled_from((*ATOMIC_FAULTS, *SEND_FAULTS)), length=st.sampled_from((8, MTU + 1)),
          fetch=st.booleans())  # fmt: skip
    def bad_work(self, mode: str, fault: str, length: int, fetch: bool) -> None:
        """Submit an atomic or a message that must fail."""
        asked = AskedOperation(number=self.next(), op="send", mode=self.mode(mode), codes=OK)
        if fault in SEND_FAULTS:
            name, value, asked.codes = FAULTS[fault]
            if self.can("send"):
                self.ask(asked, data=self.content(length).hex(), **{name: value})
            return
        opcode, datatype, key, offset, asked.codes = ATOMIC_FAULTS[fault]
        asked.op = "atomic"
        if self.can("atomic") and key in self.model.regions:
            self.ask(asked, key=key, offset=offset, opcode=opcode.name.lower(), datatype=datatype.name.lower(),
                     fetch=fetch or key in RIGHTS, data=bytes(size_of(datatype)).hex())  # fmt: skip

    # Messages

    def can_send(self) -> bool:
        """Return whether the target posts receives."""
        return self.is_begun() and (self.initiator == IMPLEMENTATION or self.can("receive"))

    @precondition(can_send)
    @step(mode=st.sampled_from(("rud", "rod", "uud")), length=_lengths, tag=_tags,
          kind=st.sampled_from(("plain", "plain", "rendezvous", "deferrable")),
          source=st.sampled_from((None, *SOURCES)))  # fmt: skip
    def send(self, mode: str, length: int, tag: int | None, kind: str = "plain", source: int | None = None) -> None:
        """Send a message. On UUD it is an untagged datagram; deferrable messages use RUD. `source` is its initiator
        id."""
        mode = self.mode(mode)
        if mode == "uud":
            length, tag = min(length, MTU), None
        elif kind == "deferrable" and mode != "rud":
            kind = "plain"
        if not self.can("send" if tag is None else "tagged_send"):
            return
        more: dict[str, Any] = {} if tag is None else {"tag": tag}
        kind = kind if mode != "uud" and self.can(kind) else "plain"
        if kind != "plain":
            more["kind"] = kind
        if self.can("directed"):
            more["initiator"] = source = source or 0
        number, data = self.next(), self.content(length)
        op, codes = "send" if tag is None else "tagged_send", OK if mode == "uud" else SENDS
        asked = AskedOperation(
            number=number, op=op, mode=mode, codes=codes, data=data, tag=tag, source=source or 0, kind=kind,
            epoch=self.model.epoch,
        )  # fmt: skip
        self.ask(asked, data=data.hex(), **more)

    @precondition(can_send)
    @step(tag=_tags, ignore=st.sampled_from((0, 0, ALL_BITS)), length=st.sampled_from((ROOM, ROOM, TELLING, MTU)),
          source=st.sampled_from((None, None, *SOURCES)))  # fmt: skip
    def receive(self, tag: int | None, ignore: int, length: int = ROOM, source: int | None = None) -> None:
        """Post a receive, which may be too short for a message, or for messages of one initiator id only."""
        source = source if self.can("directed") else None
        self.post(tag, 0 if tag is None else ignore, length if self.can("truncate") else ROOM, source)

    @precondition(lambda self: self.can_send() and self.can("cancel") and bool(self.model.receives))
    @step(index=st.integers(0, 100))
    def cancel(self, index: int) -> None:
        """Cancel a receive. The target refuses if the receive has taken a message."""
        posted = [*self.model.receives.values()][index % len(self.model.receives)]
        before, posted.withdrawn = posted.withdrawn, True
        try:
            self.world.submit(1 - self.initiator, {"op": "cancel", "id": self.next(), "receive": posted.number})
        except WorkRefused:
            posted.withdrawn = before
            raise

    @precondition(lambda self: self.is_begun() and self.can("close") and self.model.under_way() > 1)
    @step(node=st.sampled_from((IMPLEMENTATION, PEER)))
    def close(self, node: int) -> None:
        """An end closes its PDCs, also in the middle of messages. What is submitted later uses other PDCs, without
        order."""
        self.model.mix()
        self.world.submit(node, {"op": "close", "id": self.next()})

    def post(self, tag: int | None, ignore: int, length: int = ROOM, source: int | None = None) -> None:
        """Post a receive."""
        posted = ModelReceive(self.next(), tag, ignore, length, source)
        self.model.receives[posted.number] = posted
        more = {} if tag is None else {"tag": tag, "ignore": ignore}
        if source is not None:
            more["source"] = source
        try:
            self.world.submit(1 - self.initiator, {"op": "receive", "id": posted.number, "length": length, **more})
        except WorkRefused:
            del self.model.receives[posted.number]
            raise

    # What the ends do

    def on_event(self, node: int, event: Mapping[str, Any]) -> None:
        late = self.world.late if node == IMPLEMENTATION else 0
        self.model.repeats = self.world.disturbed + self.world.late > 0
        self.model.on_event(node, event, self.world.disturbed + late)

    def last_work(self) -> None:
        """Post a receive for each message that may have none. Datagrams under way arrive before."""
        asked = [each for each in self.model.operations.values() if each.is_send]
        if any(each.mode == "uud" for each in asked):
            for number in [*self.world.flight]:
                self.world.deliver(number)
        waiting = [
            each.tag for each in asked
            if each.mode != "uud" and (each.ended is None or (each.ended and each.receive is None))
        ]  # fmt: skip
        for tag in reversed(waiting):  # so that the order of receives does not hide a wrong match
            try:
                self.post(tag, 0, TELLING if self.serial % 4 == 0 and self.can("truncate") else ROOM)
            except WorkRefused:
                self.refused += 1

    def is_done(self) -> bool:
        return self.model.is_done()

    def check_end(self) -> None:
        self.model.end(self.world.disturbed + self.world.late)


class SesTargetMachine(SesMachine):
    """This machine drives an implementation of SES as the target: our engine reads, writes and sends."""

    name = "ses_target"
    peer = FepEngine
    initiator = PEER


class SesInitiatorMachine(SesMachine):
    """This machine drives an implementation of SES as the initiator: our engine has the regions and the receives."""

    name = "ses_initiator"
    peer = FepEngine
    initiator = IMPLEMENTATION
