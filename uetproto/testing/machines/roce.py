# SPDX-License-Identifier: GPL-2.0-only
"""This machine drives a RoCE queue pair on RC, as requester and responder. See roce.md §6–§10, §15."""

from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import precondition

from uetproto.engine.contract import MICROSECOND
from uetproto.testing.adapters.adapter import WorkRefused
from uetproto.testing.adapters.guarded import Observed
from uetproto.testing.adapters.roce import RoceEngine
from uetproto.testing.machines.machine import ProtocolMachine, start, step
from uetproto.testing.machines.roce_model import COUNTER, WINDOW, RoceModel, RoceRequest, after_atomic
from uetproto.testing.machines.world import IMPLEMENTATION, PEER

ENDLESS = {"retry_cnt_seven": "endless"}
"""Settings with which no queue pair gives up."""
KNOBS: dict[str, tuple[Any, ...]] = {
    "credits": (True, False), "ack_coalesce": (1, 3, 8), "ack_delay": (0, 300 * MICROSECOND),
    "ack_req_interval": (64, 0, 1, 2), "max_unacked_psns": (2**15, 1, 4, 64), "psn_nak": ("once", "every"),
    "implied_nak": ("once", "every"), "duplicate_write": ("always", "requested"), "cnp": (False, True),
}  # fmt: skip
"""Settings that a run may draw, each with its values; all of them are legal (roce.md §14)."""
STARTS = (0, 1, 0x7FFFFE, 0xFFFFF0, 0xFFFFFF)
"""PSNs of the first requests."""
TIMEOUT, LONG_TIMEOUT = 8, 17
"""Codes of the time that a requester waits for an answer: 1 ms. It is 0.5 s for an implementation whose retries are
limited, so that it does not give up because the machine lets time pass."""
MTU = 256
LENGTHS = (4, MTU, MTU + 1, 0, 1, 3 * MTU - 2, 5 * MTU)
LONGEST = max(LENGTHS)
OFFSETS = (0, 1, 64, 1000)
QPNS = (0x11, 0x12)
RKEYS = (0x1234, 0x5678)
ADDRESSES = (0x2000_0000, 0x7_0000_0000)
"""Addresses of the regions of the ends."""
NODES = st.sampled_from((IMPLEMENTATION, PEER))
IMMEDIATES = st.sampled_from((None, 1, 0xFFFFFFFE))
VALUES = st.sampled_from((1, 2, 1 << 32, (1 << 64) - 1))


def content(node: int, number: int, length: int) -> bytes:
    """Return the bytes that belong to a request; they differ from those of other requests at most places."""
    return bytes((node * 101 + number * 37 + place * 7 + (place >> 8)) & 0xFF for place in range(length))


REGIONS = content(0, 17, WINDOW), content(1, 71, WINDOW)
"""Content of the regions of the ends at the begin of a run."""


class RoceMachine(ProtocolMachine):
    """This machine drives an implementation of a RoCE queue pair on RC, in both roles."""

    name = "roce"
    peer = RoceEngine
    observed = Observed({"completion": {"id": int, "ok": bool}, "received": {"id": int, "ok": bool}}, {"memory": str})
    trims = False

    @start(
        psns=st.tuples(st.sampled_from(STARTS), st.sampled_from(STARTS)).map(list),
        reads=st.sampled_from((16, 1, 2)), rnr_timer=st.sampled_from((12, 1)),
        knobs=st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in KNOBS.items()}),
    )  # fmt: skip
    def begin(self, psns: list[int], reads: int, rnr_timer: int, knobs: dict[str, Any]) -> None:
        """Reset both ends, with connected queue pairs. `psns` are the first PSNs of the ends."""
        capabilities = self.adapter().capabilities
        self.serial = 0
        self.model = RoceModel(self.verdicts, capabilities.observable, capabilities.losses, REGIONS)
        self._memory = [region.hex() for region in REGIONS]
        attributes = {
            "path_mtu": MTU, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": rnr_timer, "max_rd_atomic": reads,
            "max_dest_rd_atomic": 16,
        }  # fmt: skip
        self.endless = all(name in capabilities.knobs for name in ENDLESS)
        """Whether the implementation never gives up."""
        timeouts = TIMEOUT if self.endless else LONG_TIMEOUT, TIMEOUT
        each = [
            {
                "qp": {
                    "qp_num": QPNS[node], "dest_qpn": QPNS[1 - node], "sq_psn": psns[node], "rq_psn": psns[1 - node],
                    "timeout": timeouts[node], **attributes,
                },
                "region": {"addr": ADDRESSES[node], "rkey": RKEYS[node], "data": REGIONS[node].hex()},
                "knobs": self.knobs(ENDLESS | knobs) if node == IMPLEMENTATION else ENDLESS | knobs,
            }
            for node in (IMPLEMENTATION, PEER)
        ]  # fmt: skip
        self.make_world({}, (each[IMPLEMENTATION], each[PEER]))

    def _post(self, node: int, request: RoceRequest, work: dict[str, Any]) -> None:
        """Post a request at an end, unless the end refuses it."""
        if request.op != "send":
            work |= {"remote_addr": ADDRESSES[1 - node] + request.offset, "rkey": RKEYS[1 - node]}
        if request.op not in self.adapter().capabilities.work:
            return
        self.world.ends[node].submit({"op": request.op, "id": request.number, **work})
        self.model.post(node, request)
        self.world.settle()

    def _number(self) -> int:
        self.serial += 1
        return self.serial

    @precondition(ProtocolMachine.is_begun)
    @step(node=NODES, count=st.integers(1, 8))
    def recv(self, node: int, count: int) -> None:
        """An end posts receives."""
        self._receive(node, count)

    def _receive(self, node: int, count: int) -> None:
        for _ in range(count):
            number = self._number()
            self.world.ends[node].submit({"op": "recv", "id": number, "length": LONGEST})
            self.model.ends[node].receives.append(number)
        self.world.settle()

    @precondition(ProtocolMachine.is_begun)
    @step(node=NODES, length=st.sampled_from(LENGTHS), imm=IMMEDIATES)
    def send(self, node: int, length: int, imm: int | None) -> None:
        number = self._number()
        data = content(node, number, length)
        self._post(node, RoceRequest(number, "send", 0, data, imm), {"data": data.hex(), "imm": imm})

    @precondition(ProtocolMachine.is_begun)
    @step(node=NODES, length=st.sampled_from(LENGTHS), offset=st.sampled_from(OFFSETS), imm=IMMEDIATES)
    def write(self, node: int, length: int, offset: int, imm: int | None) -> None:
        number = self._number()
        data = content(node, number, length)
        self._post(node, RoceRequest(number, "write", offset, data, imm), {"data": data.hex(), "imm": imm})

    @precondition(ProtocolMachine.is_begun)
    @step(node=NODES, length=st.sampled_from(LENGTHS), offset=st.sampled_from(OFFSETS))
    def read(self, node: int, length: int, offset: int) -> None:
        due = self.model.expected(node, offset, length)
        self._post(node, RoceRequest(self._number(), "read", offset, due), {"length": length})

    @precondition(ProtocolMachine.is_begun)
    @step(node=NODES, add=VALUES)
    def fetch_add(self, node: int, add: int) -> None:
        self._atomic(node, "fetch_add", add, 0)

    @precondition(ProtocolMachine.is_begun)
    @step(node=NODES, swap=VALUES, equal=st.booleans())
    def compare_swap(self, node: int, swap: int, equal: bool) -> None:
        """An end compares the counter with its value if `equal`, or else with another number."""
        self._atomic(node, "compare_swap", self.model.ends[node].counter ^ (not equal), swap)

    def _atomic(self, node: int, kind: str, operand: int, swap: int) -> None:
        before = self.model.ends[node].counter
        after = after_atomic(kind, before, operand, swap)
        work = {"add": operand} if kind == "fetch_add" else {"compare": operand, "swap": swap}
        request = RoceRequest(self._number(), "atomic", COUNTER, before=before, after=after)
        self._post(node, request, {"kind": kind, **work})

    # Judging

    def on_event(self, node: int, event: Mapping[str, Any]) -> None:
        self.model.on_event(node, event, self.losses())

    def losses(self) -> int:
        """Return the number of losses. Copies and changes of order count as losses for an implementation that gives up,
        as they can cause a NAK, which uses up a retry."""
        return self.world.disturbed + (0 if self.endless else self.world.disordered)

    def on_state(self, state: Mapping[str, Any] | None) -> None:
        for node, seen in enumerate((state, self.world.peer.state())):
            memory = None if seen is None else seen.get("memory")
            self.model.shows[node] = memory is not None
            if isinstance(memory, str) and memory != self._memory[node]:
                self._memory[node] = memory
                self.model.on_memory(node, memory)

    def last_work(self) -> None:
        """Post the receives that requests on the wire still need."""
        for node in (IMPLEMENTATION, PEER):
            missing = self.model.missing_receives(node)
            if missing and not self.model.failed:
                try:
                    self._receive(node, missing)
                except WorkRefused:
                    self.refused += 1

    def is_done(self) -> bool:
        return self.model.is_done()

    def check_end(self) -> None:
        self.model.end(self.losses())
