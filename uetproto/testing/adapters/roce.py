# SPDX-License-Identifier: GPL-2.0-only
"""This adapter drives our RoCE adapter (HCA) with one queue pair on RC."""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, ClassVar

from uetproto.engine.contract import Engine, Event
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSend,
    QpType,
    Sge,
    WorkCompletion,
)
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.memory import RoceMemoryRegion
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.engine.roce.segments import ATOMIC_SIZE
from uetproto.framing.framer import Framer
from uetproto.framing.roce import RoceFramer
from uetproto.testing.adapters.adapter import Capabilities
from uetproto.testing.adapters.engines import Config, EngineAdapter, Work

_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
_ATOMICS = {"fetch_add": Opcode.ATOMIC_FETCH_AND_ADD, "compare_swap": Opcode.ATOMIC_CMP_AND_SWP}


class RoceEngine(EngineAdapter):
    """This class drives a queue pair of our RoCE engine in both roles, and the region that its peer may access."""

    capabilities = Capabilities(
        work=("recv", "send", "write", "read", "atomic"),
        knobs=(
            "ack_coalesce", "ack_delay", "ack_req_interval", "cnp", "credits", "duplicate_write", "implied_nak",
            "max_unacked_psns", "psn_nak", "retry_cnt_seven",
        ),
    )  # fmt: skip

    def make(self, config: Config) -> Engine:
        self.settings = RoceConfig(**config.get("knobs", {}))
        self.hca = Hca(self.address, config=self.settings, ip_version=ip_address(config["address"]).version)
        self.pd = self.hca.alloc_pd()
        qp, region = config["qp"], config["region"]
        self.memory = bytearray.fromhex(region["data"])
        self.hca.reg_mr(self.pd, self.memory, addr=region["addr"], access=_RIGHTS, rkey=region["rkey"])
        self.number = self.hca.create_qp(QpType.RC, self.pd, number=qp["qp_num"])
        wanted = {**qp, "pkey_index": 0, "port": 1, "access_flags": _RIGHTS, "av": AddressVector(self.peer)}
        for state, attributes in bring_up_steps(QpType.RC, self.settings, wanted):
            self.hca.submit(ModifyQp(qp_num=self.number, state=state, attributes=attributes), 0)
        self._held: dict[tuple[bool, int], tuple[RoceMemoryRegion, bytearray]] = {}
        """The local memory of each work request without a completion. Receives have the key True."""
        return self.hca

    def make_framer(self, config: Config) -> Framer:
        return RoceFramer(self.address, ip_address(config["address"]).version, self.settings)

    def _local(self, receive: bool, number: int, data: bytearray) -> tuple[Sge, ...]:
        """Register the local memory of a work request."""
        region = self.hca.reg_mr(self.pd, data)
        self._held[receive, number] = region, data
        return (Sge(0, len(data), region.lkey),)

    def _recv(self, work: Work) -> None:
        parts = self._local(True, work["id"], bytearray(work["length"]))
        self.hca.submit(PostRecv(qp_num=self.number, wr_id=work["id"], sg_list=parts), self.now)

    def _post(self, work: Work, opcode: Opcode, data: bytearray, **values: Any) -> None:
        parts = self._local(False, work["id"], data)
        if work.get("imm") is not None:
            values["imm_data"] = work["imm"]
            opcode = Opcode.SEND_WITH_IMM if opcode is Opcode.SEND else Opcode.RDMA_WRITE_WITH_IMM
        if "remote_addr" in work:
            values |= {"remote_addr": work["remote_addr"], "rkey": work["rkey"]}
        self.hca.submit(
            PostSend(qp_num=self.number, wr_id=work["id"], opcode=opcode, sg_list=parts, **values), self.now
        )

    def _send(self, work: Work) -> None:
        self._post(work, Opcode.SEND, bytearray.fromhex(work["data"]))

    def _write(self, work: Work) -> None:
        self._post(work, Opcode.RDMA_WRITE, bytearray.fromhex(work["data"]))

    def _read(self, work: Work) -> None:
        self._post(work, Opcode.RDMA_READ, bytearray(work["length"]))

    def _atomic(self, work: Work) -> None:
        swap, operand = work.get("swap", 0), work.get("add", work.get("compare", 0))
        self._post(work, _ATOMICS[work["kind"]], bytearray(ATOMIC_SIZE), compare_add=operand, swap=swap)

    works: ClassVar[dict[str, Callable[[Any, Work], None]]] = {
        "recv": _recv, "send": _send, "write": _write, "read": _read, "atomic": _atomic,
    }  # fmt: skip

    def note(self, event: Event | Any) -> None:
        if not isinstance(event, WorkCompletion):
            return
        region, data = self._held.pop((event.receive, event.wr_id))
        self.hca.dereg_mr(region)
        told: dict[str, Any] = {
            "event": "received" if event.receive else "completion", "id": event.wr_id, "ok": event.ok,
        }  # fmt: skip
        if not event.ok:
            told["reason"] = event.status.name
        elif event.receive:
            told |= {"imm": event.imm_data, "data": _received(event, data).hex()}
        elif event.opcode.name == "RDMA_READ":
            told["data"] = data.hex()
        elif event.opcode.name in ("FETCH_ADD", "COMP_SWAP"):
            told["old"] = int.from_bytes(data, self.settings.atomic_order)
        self.found.append(told)

    def state(self) -> dict[str, Any]:
        return {"memory": self.memory.hex()}


def _received(event: WorkCompletion, data: bytearray) -> bytes:
    """Return the bytes that a SEND stored in a receive; a WRITE with immediate data stores none."""
    return bytes(data[: event.byte_len]) if event.opcode.name == "RECV" else b""
