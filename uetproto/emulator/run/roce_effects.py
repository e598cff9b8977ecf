# SPDX-License-Identifier: GPL-2.0-only
"""This module computes what memory should hold after operations over RoCE, from the completions of the operations only.

A completion changes the expected memory as roce.md §8 to §12 say. An operation that ended without success, or without a
completion, may have stored some of its packets: each byte that differs at the end must come from such a packet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uetproto.emulator.run.operation_schedule import MemoryArea, ScheduledOperation
from uetproto.emulator.scenario.operations import NONE
from uetproto.emulator.scenario.roce_operations import POSTED
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.roce.contract import Access, QpType, Status, WcOpcode, WorkCompletion
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.memory import RoceMemoryRegion
from uetproto.engine.roce.segments import ATOMIC_SIZE
from uetproto.engine.roce.ud import GRH_SIZE

_WORD = 1 << 64

_RIGHTS = {
    "write": Access.REMOTE_WRITE,
    "read": Access.REMOTE_READ,
    "compare_swap": Access.REMOTE_ATOMIC,
    "fetch_add": Access.REMOTE_ATOMIC,
}
"""Access right that queue pair and region must give to each operation on the memory of the peer."""

_REFUSED = ("REM_INV_REQ_ERR", "REM_ACCESS_ERR")
"""Completion statuses of a request whose refused packet was not stored."""


@dataclass(slots=True, eq=False)
class RoceOperation(ScheduledOperation):
    """A RoCE operation is a scheduled operation that is played over RoCE."""

    settled: bool = False
    """Whether the expected memory includes the effects of the operation."""

    @property
    def data(self) -> bytes:
        return bytes(self.area.expected) if self.area is not None else b""


class _Leftovers:
    """Leftovers are packets that may have been stored or not, in any order."""

    def __init__(self) -> None:
        self._packets: list[tuple[MemoryArea, int, bytes]] = []
        self._likely: dict[int, bytearray] = {}

    def likely(self, area: MemoryArea) -> bytearray:
        """Return the bytes that an area has if every added packet is stored."""
        if id(area) not in self._likely:
            self._likely[id(area)] = bytearray(area.expected)
        return self._likely[id(area)]

    def add(self, area: MemoryArea, at: int, data: bytes, mtu: int, must: bool = False) -> None:
        """Add the packets of a message; with `must` all of them are stored."""
        self.likely(area)[at : at + len(data)] = data
        if must:
            area.expected[at : at + len(data)] = data
        for start in range(0, len(data), mtu):
            self._packets.append((area, at + start, data[start : start + mtu]))

    def explain(self) -> None:
        """Make actual bytes the expected ones wherever one of the packets has them."""
        found = True
        while found:
            found = False
            for area, at, data in self._packets:
                end = at + len(data)
                there, wanted = area.actual[at:end], area.expected[at:end]
                if there != wanted and all(t in (w, d) for t, w, d in zip(there, wanted, data, strict=False)):
                    area.expected[at : at + len(there)] = there
                    found = True


class RoceEffects:
    """This class holds all memory of a run over RoCE, and sets the content that the memory should have."""

    def __init__(self, scenario: Scenario, hcas: Mapping[str, Hca], operation: Sequence[RoceOperation]) -> None:
        self.scenario = scenario
        self.kind: QpType = scenario.run.transport
        self.hcas = hcas
        self.operations = operation
        self.areas: list[MemoryArea] = []
        self.regions: dict[tuple[str, int], tuple[MemoryArea, RoceMemoryRegion]] = {}
        """Registered memory. The key has the name of the node and the memory key of the region."""

    def peer(self, operation: RoceOperation) -> str:
        """Return the node at the other end of the operation's queue pair."""
        peer = self.scenario.qps[operation.get("qp")].peer
        assert peer is not None
        return self.scenario.qps[peer].node

    # Completions

    def sent(self, operation: RoceOperation, event: WorkCompletion) -> None:
        """Note that a work request has completed. Earlier unsignaled work requests on the same queue pair have
        completed, too.
        """
        for before in self.operations[: operation.number]:
            unsignaled = before.row.do in POSTED and not before.get("signaled", True)
            if unsignaled and before.began and before.ended_at is None and before.get("qp") == operation.get("qp"):
                self._settle(before)
        if event.ok:
            self._settle(operation)

    def _settle(self, operation: RoceOperation) -> None:
        """Set the effects of an operation on RC in the expected memory.

        On UC a completion says only that the packets have left; `settle_last` handles these operations.
        """
        if operation.settled or operation.row.do == "send" or self.kind is not QpType.RC:
            return
        operation.settled = True
        area, at = self._place(operation)
        if area is None:
            operation.match = not operation.length  # no key check for 0 bytes (roce.md §8 check 8)
        elif operation.row.do == "write":
            area.put(at, operation.data)
        elif operation.row.do == "read":
            self._store(operation, bytes(area.expected[at : at + operation.length]))
        else:
            answer, new = self._executed(operation, area.expected, at)
            area.put(at, new)
            self._store(operation, answer)

    def _place(self, operation: RoceOperation) -> tuple[MemoryArea | None, int]:
        """Return the area and the byte in it on which an operation acts at the peer; area None: the peer refuses it."""
        area, region = self.regions.get((self.peer(operation), operation.get("key")), (None, None))
        at = operation.get("offset", 0)
        if area is None or region is None or not 0 <= at <= at + operation.length <= len(area.actual):
            return None, at
        right = _RIGHTS[operation.row.do]
        peer = self.scenario.qps[str(self.scenario.qps[operation.get("qp")].peer)]
        return (area if region.access & peer.attributes["access_flags"] & right else None), at

    def _mtu(self, operation: RoceOperation) -> int:
        config = self.hcas[operation.row.node].config
        return int(self.scenario.qps[operation.get("qp")].attributes.get("path_mtu", config.path_mtu))

    @staticmethod
    def _store(operation: RoceOperation, data: bytes) -> None:
        assert operation.area is not None
        operation.area.put(0, data)

    def _executed(self, operation: RoceOperation, memory: bytearray, at: int) -> tuple[bytes, bytes]:
        """Return what an atomic stores in its buffer and at the peer, in each end's byte order (roce.md §12)."""
        here, there = (self.hcas[node].config.atomic_order for node in (operation.row.node, self.peer(operation)))
        old = int.from_bytes(memory[at : at + ATOMIC_SIZE], there)
        if operation.row.do == "fetch_add":
            new = (old + operation.get("add")) % _WORD
        else:
            new = operation.get("swap") if old == operation.get("compare") else old
        return old.to_bytes(ATOMIC_SIZE, here), new.to_bytes(ATOMIC_SIZE, there)

    def received(self, operation: RoceOperation, event: WorkCompletion) -> None:
        """Note that a receive has completed. The bytes in its buffer show which send it took."""
        area = operation.area
        assert area is not None
        if not event.ok:
            return
        start = GRH_SIZE if self.kind is QpType.UD else 0
        with_data = event.opcode is WcOpcode.RECV
        stored = bytes(area.actual[start : event.byte_len]) if with_data else None
        sent = self._sender_of(event, event.byte_len - start, stored)
        if sent is None:
            operation.match = False
            return
        sent.delivered = True
        if start:
            area.put(0, bytes(area.actual[:start]))
            operation.match = _is_network_header(bytes(area.actual[:start]), self.hcas[sent.row.node])
        if stored is not None:
            area.put(start, sent.data)

    def _sender_of(self, event: WorkCompletion, length: int, stored: bytes | None) -> RoceOperation | None:
        """Return the oldest send that the received message can be.

        A send to a group may arrive at several receives, a duplicated one twice.
        """
        do = "write" if stored is None else "send"
        copied = self.kind is not QpType.RC and self.scenario.faults.duplicate
        for operation in self.operations:
            taken = operation.delivered and not copied and not isinstance(operation.get("to"), int)
            if not operation.began or taken or operation.row.do != do or operation.length != length:
                continue
            told = (operation.get("imm"), operation.get("invalidate"), self.scenario.qps[operation.get("qp")].number)
            if told != (event.imm_data, event.invalidated_rkey, event.src_qp):
                continue
            if stored is None or operation.data == stored:
                return operation
        return None

    # The end

    def settle_last(self) -> None:
        """At the end of the run, look in memory for packets of some operations: those that failed, those that did not
        complete, and writes on UC. The bytes of each packet that is found become expected bytes.
        """
        leftovers = _Leftovers()
        for operation in self.operations:
            if not operation.began or operation.settled:
                continue
            if operation.row.do == "receive":
                self._leave_parts(operation, leftovers)
            elif operation.row.do in _RIGHTS:
                self._leave(operation, leftovers)
        leftovers.explain()

    def _leave(self, operation: RoceOperation, leftovers: _Leftovers) -> None:
        """Add the packets of an operation on the memory of the peer."""
        area, at = self._place(operation)
        mtu, refused = self._mtu(operation), operation.status in _REFUSED
        if area is None:
            return
        assert operation.area is not None
        if operation.row.do == "read":
            leftovers.add(operation.area, 0, bytes(area.expected[at : at + operation.length]), mtu)
        elif operation.row.do == "write":
            if not refused or operation.length > mtu:
                leftovers.add(area, at, operation.data, mtu, must=self._must_be_there(operation))
        elif not refused:
            answer, new = self._executed(operation, leftovers.likely(area), at)
            leftovers.add(area, at, new, mtu)
            leftovers.add(operation.area, 0, answer, mtu)

    def _must_be_there(self, operation: RoceOperation) -> bool:
        """Return whether a WRITE must be stored: a receive completed for it, or, on UC, no fault can have lost it."""
        left = operation.status == (Status.SUCCESS.name if operation.get("signaled", True) else NONE)
        stopped = self.scenario.faults or "imm" in operation.row.fields
        return operation.delivered or bool(left and not stopped and self.kind is QpType.UC)

    def _leave_parts(self, operation: RoceOperation, leftovers: _Leftovers) -> None:
        """Add packets of undelivered sends, which may be stored in a receive, except in a completed one on RC."""
        area = operation.area
        if area is None or (self.kind is QpType.RC and operation.status == Status.SUCCESS.name):
            return
        for sent in self.operations:
            if sent.row.do == "send" and sent.began and not sent.delivered:
                leftovers.add(area, 0, sent.data, self._mtu(sent))

    def match(self, operation: RoceOperation) -> bool:
        """Return whether the bytes are as expected at both ends. On RC, a successful send must also have been
        received.
        """
        arrives = operation.row.do == "send" or "imm" in operation.row.fields
        if arrives and self.kind is QpType.RC and operation.status == Status.SUCCESS.name and not operation.delivered:
            return False
        if operation.area is not None and not operation.area.same(0, len(operation.area.actual)):
            return False
        area, at = self._place(operation) if operation.row.do in _RIGHTS else (None, 0)
        return operation.match and (area is None or area.same(at, operation.length))


def _is_network_header(data: bytes, source: Hca) -> bool:
    """Return whether data is an IPv6 header, or 20 bytes and an IPv4 header, from `source` (roce.md §11)."""
    if source.ip_version == 6:
        return data[0] >> 4 == 6 and data[8:24] == source.address.to_bytes(16, "big")
    return data[20] == 0x45 and data[32:36] == source.address.to_bytes(4, "big")
