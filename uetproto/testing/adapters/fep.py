# SPDX-License-Identifier: GPL-2.0-only
"""This module has the adapter of our whole endpoint, packet delivery and SES: the peer of every SES that is tested."""

import random
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, ClassVar

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import (
    MILLISECOND,
    SECOND,
    Atomic,
    Cancelled,
    Close,
    Completion,
    Engine,
    Event,
    Mode,
    Read,
    Receive,
    Received,
    Send,
    SendKind,
    SesWork,
    Write,
)
from uetproto.engine.fep import Fep
from uetproto.engine.memory import BufferMemory, Memory, Region
from uetproto.errors import LocalError
from uetproto.testing.adapters.adapter import MODES, Capabilities, WorkRefused
from uetproto.testing.adapters.engines import Config, EngineAdapter, Work
from uetproto.wire.headers.uet_ses import ELEMENT_SIZE, AtomicDatatype, AtomicOpcode

PATIENT: dict[str, Any] = {
    "max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "idle_time": 0,
    "message_retry_limit": 0, "backoff_least": MILLISECOND, "backoff_most": 2 * MILLISECOND,
    "backoff_limit": 20 * MILLISECOND,
    "idle_message_time": 600 * SECOND,  # longer than any RTO: what arrives late begins no message anew
    "deferral_time": 600 * SECOND, "rendezvous_time": 600 * SECOND,
}  # fmt: skip
"""Settings with which an endpoint hardly ever gives up, unless `config["knobs"]` has others."""
INITIATOR = 16
"""Initiator id of messages, unless the machine says another one."""
PDS_KNOBS = frozenset(PdsConfig.__dataclass_fields__)


class FepEngine(EngineAdapter):
    """This class drives our fabric endpoint: one process with the regions in `config`, and its receive queues."""

    capabilities = Capabilities(
        work=(
            "write", "read", "atomic", "send", "tagged_send", "receive", "peek", "dc", "access", "rendezvous",
            "deferrable", "truncate", "cancel", "close", "restrict", "directed",
        ),
        modes=MODES,
        knobs=(
            "ack_cc", "ack_gen_trigger", "clear_cmd", "default_mpr", "eager_length", "hd_in", "max_ack_data_size",
            "max_pending_deferrals", "mp_range", "optimized_headers", "response_generation", "store_ack_read_data",
            "truncation_policy", "unexpected_messages", "unexpected_policy", "write_latency",
        ),
    )  # fmt: skip

    def make(self, config: Config) -> Engine:
        rng = random.Random(f"{config['seed']}/{config['address']}")
        knobs = PATIENT | config.get("knobs", {})
        pds = PdsConfig(**{name: value for name, value in knobs.items() if name in PDS_KNOBS})
        rest = {name: value for name, value in knobs.items() if name not in PDS_KNOBS}
        ses = SesConfig(payload_mtu=config["payload_mtu"], **rest)
        self.fep = Fep(self.address, rng, pds=pds, ses=ses, ip_version=ip_address(config["address"]).version)
        self.place = {"job_id": config["job_id"], "pid_on_fep": config["pid_on_fep"],
                      "resource_index": config["resource_index"]}  # fmt: skip
        process = self.fep.attach(config["job_id"], config["pid_on_fep"], (config["resource_index"],))
        self.regions: dict[int, Memory] = {}
        for region in config["regions"]:
            memory = self.regions[region["key"]] = self.memory(bytearray([region["fill"]]) * region["size"])
            rights = region.get("access", "rw")
            process.register(
                Region(
                    region["key"], memory, remote_read="r" in rights, remote_write="w" in rights,
                    job_restriction=region.get("only_job"),
                )
            )  # fmt: skip
        self.posted: dict[int, Receive] = {}
        return self.fep

    def memory(self, data: bytearray) -> Memory:
        """Return the memory of a region, or of a receive, that has the bytes of `data`."""
        return BufferMemory(data)

    # Work

    def _addressed(self, work: Work, context: tuple[Any, ...]) -> dict[str, Any]:
        """Return the fields that all operations have. `work` may have another address than `config`."""
        place = {name: work.get(name, value) for name, value in self.place.items()}
        return {"peer": self.peer, "mode": Mode[work["mode"].upper()], "context": context, **place}

    def start(self, operation: SesWork) -> None:
        """Submit an operation to the endpoint."""
        self.fep.submit(operation, self.now)

    def _write(self, work: Work) -> None:
        self.start(
            Write(
                data=bytes.fromhex(work["data"]), key=work["key"], offset=work["offset"],
                delivery_complete=work.get("dc", False), **self._addressed(work, (work["id"], None)),
            )
        )  # fmt: skip

    def _read(self, work: Work) -> None:
        into = bytearray(work["length"])
        self.start(Read(into=into, key=work["key"], offset=work["offset"], **self._addressed(work, (work["id"], into))))

    def _atomic(self, work: Work) -> None:
        datatype, data = AtomicDatatype[work["datatype"].upper()], bytes.fromhex(work["data"])
        result = bytearray(ELEMENT_SIZE[datatype]) if work["fetch"] else None
        compare = work.get("compare")
        self.start(
            Atomic(
                opcode=AtomicOpcode[work["opcode"].upper()], datatype=datatype, data=data, result=result,
                compare=None if compare is None else bytes.fromhex(compare), key=work["key"], offset=work["offset"],
                **self._addressed(work, (work["id"], result)),
            )
        )  # fmt: skip

    def _send(self, work: Work) -> None:
        kind = SendKind[work.get("kind", "plain").upper()]
        self.start(
            Send(
                data=bytes.fromhex(work["data"]), tag=work.get("tag"), kind=kind,
                initiator=work.get("initiator", INITIATOR),
                local_pid=self.place["pid_on_fep"], local_index=self.place["resource_index"],
                **self._addressed(work, (work["id"], None)),
            )
        )  # fmt: skip

    def _receive(self, work: Work) -> None:
        memory = self.memory(bytearray(work["length"]))
        receive = Receive(
            into=memory, tag=work.get("tag"), ignore=work.get("ignore", 0), source=work.get("source"),
            context=work["id"], **self.place,
        )  # fmt: skip
        self.start(receive)
        self.posted[work["id"]] = receive

    def _cancel(self, work: Work) -> None:
        receive = self.posted.get(work["receive"])
        if receive is None or not self.fep.cancel(receive, self.now):
            raise WorkRefused("the receive has taken a message")

    def _close(self, work: Work) -> None:
        self.fep.submit(Close(peer=self.peer), self.now)

    def _peek(self, work: Work) -> None:
        memory = self.regions.get(work["key"])
        if memory is None:
            raise LocalError("key", f"{work['key']} is not legal", ", ".join(map(str, self.regions)), id="unknown-name")
        data = bytes(memory.read(work["offset"], work["length"]))
        self.found.append({"event": "memory", "id": work["id"], "data": data.hex()})

    works: ClassVar[dict[str, Callable[[Any, Work], None]]] = {
        "write": _write, "read": _read, "atomic": _atomic, "send": _send, "tagged_send": _send, "receive": _receive,
        "peek": _peek, "cancel": _cancel, "close": _close,
    }  # fmt: skip

    # Events

    def note(self, event: Event) -> None:
        if isinstance(event, Completion):
            number, into = event.context
            found: dict[str, Any] = {"event": "completion", "id": number, "ok": event.ok,
                                     "code": int(event.return_code)}  # fmt: skip
            if event.error is not None:
                found["reason"] = event.error.reason.value
            if into is not None:
                found["data"] = into.hex()
            self.found.append(found)
        elif isinstance(event, Received):
            data = bytes(event.receive.into.read(event.start, event.length))
            told = {"event": "received", "id": event.receive.context, "length": event.message_length,
                    "data": data.hex(), "code": int(event.return_code)}  # fmt: skip
            self.found.append(told if event.receive.tag is None else {**told, "tag": event.tag})
        elif isinstance(event, Cancelled):
            self.found.append({"event": "cancelled", "id": event.receive.context})
