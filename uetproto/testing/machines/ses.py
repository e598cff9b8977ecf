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
from uetproto.testing.machines.machine import ProtocolMachine, start, step
from uetproto.testing.machines.ses_memory import RegionModel, size_of
from uetproto.testing.machines.ses_model import ALL_BITS, SENDS, AskedOperation, ModelReceive, SesModel
from uetproto.testing.machines.world import IMPLEMENTATION, PEER
from uetproto.wire.headers.uet_ses import COMPARE_AND_SWAPS, AtomicDatatype, AtomicOpcode, ReturnCode

MTU = 1024
JOB, PID, INDEX = 1, 0, 15
PLAIN, OPTIMIZED = 7, 1 << 62 | 5
"""Keys of the regions: an ordinary key, and one for which headers may be optimized (ses.md §4.1)."""
ROOM = 4 * MTU
"""Bytes of each receive, and bytes at the start of a region on which ordered operations work."""
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
    "job": ("job_id", 999, frozenset({ReturnCode.BAD_JOB_ID})),
    "pid": ("pid_on_fep", 5, frozenset({ReturnCode.BAD_PID})),
    "index": ("resource_index", 3, frozenset({ReturnCode.BAD_INDEX})),
}
"""Accesses that must fail: the field that is wrong, its value, and the codes that are legal (ses.md §10)."""
KNOBS: dict[str, tuple[Any, ...]] = {
    "optimized_headers": (False, True), "unexpected_policy": ("hold", "refuse"), "unexpected_messages": (64, 1),
    "response_generation": ("on_error", "always"), "hd_in": ("all", "som"), "max_ack_data_size": (16, 0, 1024),
    "write_latency": (0, 30_000_000), "default_mpr": (8, 1, 2), "ack_cc": ("when_gap", "always", "never"),
    "clear_cmd": ("timer", "immediate"),
}  # fmt: skip
"""Settings that a run may draw, each with its values; all of them are legal (ses.md §16)."""

_modes = st.sampled_from(("rud", "rod"))
_keys = st.sampled_from((PLAIN, OPTIMIZED))
_lengths = st.sampled_from(LENGTHS)
_places = st.integers(0, 2 * ROOM)
_tags = st.sampled_from((None, 0, 1))
"""Tags of messages and receives; None: they are not tagged."""


class SesMachine(ProtocolMachine):
    """This class has the rules of both machines of SES."""

    peer = FepEngine
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
            {key: RegionModel(bytearray([FILL]) * SIZE) for key in (PLAIN, OPTIMIZED)}, self.peek, (PLAIN, SLOTS),
        )  # fmt: skip
        self.make_world({
            "seed": seed, "knobs": self.knobs(knobs), "payload_mtu": MTU, "job_id": JOB, "pid_on_fep": PID,
            "resource_index": INDEX,
            "regions": [{"key": key, "size": SIZE, "fill": FILL} for key in self.model.regions],
        })  # fmt: skip

    # What the rules have in common

    def can(self, *names: str) -> bool:
        """Return whether the implementation does this work, as target or initiator."""
        return {*names} <= {*self.adapter().capabilities.work}

    def mode(self, mode: str) -> str:
        modes = self.adapter().capabilities.modes
        return mode if mode in modes else modes[0]

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
        try:
            self.ask(asked, key=asked.key, offset=asked.offset, **work)
        except WorkRefused:
            region.write(asked.offset, before)
            region.done(asked.number)
            raise

    def space(self, region: RegionModel, mode: str, length: int, at: int, *, to_write: bool) -> int | None:
        """Return an offset for an operation; None: other operations use all places that it could have."""
        if mode == "rod":
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
    @step(mode=_modes, length=_lengths, key=_keys, at=_places, dc=st.booleans())
    def write(self, mode: str, length: int, key: int, at: int, dc: bool) -> None:
        mode, region = self.mode(mode), self.model.regions[key]
        offset = self.space(region, mode, length, at, to_write=True)
        if offset is None:
            return
        number, data, dc = self.next(), self.content(length), dc and self.can("dc")
        seen = mode != "rod" and (dc or self.initiator == IMPLEMENTATION)
        region.writing[number] = offset, length
        asked = AskedOperation(
            number=number, op="write", mode=mode, key=key, offset=offset, data=data, observable=seen
        )  # fmt: skip
        self.change(region, asked, data, data=data.hex(), dc=dc)

    @precondition(lambda self: self.is_begun() and self.can("read"))
    @step(mode=_modes, length=_lengths, key=_keys, at=_places)
    def read(self, mode: str, length: int, key: int, at: int) -> None:
        mode, region = self.mode(mode), self.model.regions[key]
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
        name, value, codes = FAULTS[fault]
        asked = AskedOperation(number=self.next(), op=op, mode=self.mode(mode), codes=codes)
        amount = {"length": length} if op == "read" else {"data": self.content(length).hex()}
        self.ask(asked, **{"key": PLAIN, "offset": 0, **amount, name: value})

    # Messages

    def can_send(self) -> bool:
        """Return whether the target posts receives."""
        return self.is_begun() and (self.initiator == IMPLEMENTATION or self.can("receive"))

    @precondition(can_send)
    @step(mode=_modes, length=_lengths, tag=_tags)
    def send(self, mode: str, length: int, tag: int | None) -> None:
        if not self.can("send" if tag is None else "tagged_send"):
            return
        number, data = self.next(), self.content(length)
        op, more = ("send", {}) if tag is None else ("tagged_send", {"tag": tag})
        asked = AskedOperation(number=number, op=op, mode=self.mode(mode), codes=SENDS, data=data, tag=tag)
        self.ask(asked, data=data.hex(), **more)

    @precondition(can_send)
    @step(tag=_tags, ignore=st.sampled_from((0, 0, ALL_BITS)))
    def receive(self, tag: int | None, ignore: int) -> None:
        """Post a receive."""
        self.post(tag, 0 if tag is None else ignore)

    def post(self, tag: int | None, ignore: int) -> None:
        """Post a receive with room for every message."""
        posted = ModelReceive(self.next(), tag, ignore)
        self.model.receives[posted.number] = posted
        more = {} if tag is None else {"tag": tag, "ignore": ignore}
        try:
            self.world.submit(1 - self.initiator, {"op": "receive", "id": posted.number, "length": ROOM, **more})
        except WorkRefused:
            del self.model.receives[posted.number]
            raise

    # What the ends do

    def on_event(self, node: int, event: Mapping[str, Any]) -> None:
        late = self.world.late if node == IMPLEMENTATION else 0
        self.model.on_event(node, event, self.world.disturbed + late)

    def last_work(self) -> None:
        """Post a receive for each message that has none."""
        asked = self.model.operations.values()
        waiting = [each.tag for each in asked if each.is_send and each.receive is None and each.ended is not False]
        for tag in reversed(waiting):  # so that the order of receives does not hide a wrong match
            self.post(tag, 0)

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
