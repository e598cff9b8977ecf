# SPDX-License-Identifier: GPL-2.0-only
"""This module makes UET traffic with endpoints, their processes and regions, and the operations of SES."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from uetproto.engine.contract import (
    PDC_MODES,
    Atomic,
    Close,
    Completion,
    Event,
    Mode,
    Nop,
    Read,
    Receive,
    Received,
    Rng,
    Send,
    SendKind,
    Write,
)
from uetproto.engine.fep import Fep
from uetproto.engine.memory import IDEMPOTENT_SAFE, Region
from uetproto.engine.pds.nacks import nacks_of
from uetproto.engine.pds.states import Role
from uetproto.engine.ses.atomics import LEGAL
from uetproto.engine.ses.headers import OPTIMIZED_KEY
from uetproto.engine.tss.ledger import GrowingLedger
from uetproto.framing.tss import Secured
from uetproto.framing.uet import UetFramer
from uetproto.traffic.memory import REGION_LENGTH, Repeating
from uetproto.traffic.profile_file import Mix
from uetproto.traffic.profile_security import ProfileMember, endpoint_name
from uetproto.traffic.profile_uet import UetProfile
from uetproto.traffic.wire import DirectWire, TrafficPort
from uetproto.traffic.workload import LATE_BY, Workload
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    COMPARE_AND_SWAPS,
    DEFERRABLES,
    ELEMENT_SIZE,
    OPCODE_PROFILES,
    RENDEZVOUS,
    SYNCS,
    TAGGED,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ReturnCode,
    Selects,
)

INDEX = 15
"""Resource index at which all processes receive."""
ATOMIC_LENGTH = 4096

_PLAIN, _ATOMIC, _READ_ONLY, _MISSING = 1, 2, 3, 0x0BAD
_ELEMENTS = 8
"""Number of elements of the largest atomic operation."""
_NO_OPERAND = (AtomicOpcode.READ, AtomicOpcode.INVAL)

_Asked = Write | Read | Atomic | Send | Nop


@dataclass(slots=True, eq=False)
class UetStation:
    """This class holds an endpoint, and the resources of its applications."""

    address: int
    fep: Fep
    port: TrafficPort
    source: Repeating
    """Memory from which messages are sent."""
    scratch: Repeating
    """Memory into which reads and receives write."""
    done: Counter[tuple[int, Mode]] = field(default_factory=Counter)
    """Number of operations that have ended since the PDCs were last closed, by peer and mode of the PDCs."""
    posted: Counter[int] = field(default_factory=Counter)
    """Number of buffers for untagged messages that are posted, by job."""
    _shared: tuple[Region, ...] = ()
    """Regions of every process."""
    _jobs: set[int] = field(default_factory=set)
    """Jobs whose process is attached."""

    def __post_init__(self) -> None:
        memory = Repeating(REGION_LENGTH)
        self._shared = (
            *(Region(key, memory) for key in (_PLAIN, _PLAIN | IDEMPOTENT_SAFE, _PLAIN | OPTIMIZED_KEY)),
            Region(_READ_ONLY, memory, remote_write=False),
        )

    def attach(self, job: int) -> None:
        """Attach the process of a job and register its regions, unless that has been done.

        A process is attached only when its job is first used, because traffic may use few of many jobs.
        """
        if job in self._jobs:
            return
        self._jobs.add(job)
        process = self.fep.attach(job, 0, (INDEX,))
        atomic = bytearray(ATOMIC_LENGTH)
        for region in (*self._shared, *(Region(key, atomic) for key in (_ATOMIC, _ATOMIC | OPTIMIZED_KEY))):
            process.register(region)


@dataclass(slots=True, eq=False)
class OpenOperation:
    """This class represents one open operation. The `Completion` of the operation has it as `context`."""

    station: UetStation
    target: UetStation
    code: Opcode
    mode: Mode
    receive: Receive | None = None
    """Buffer that was posted for this operation alone. It is None if the operation needs no buffer, or if it uses one
    of the shared buffers."""
    ended: bool = False


_CELLS = tuple((opcode, datatype) for opcode, datatypes in LEGAL.items() for datatype in sorted(datatypes))
_STRIDE = 101
"""Step through the table of legal cells: a prime above the size of any row, so that successive cells differ in both
indices."""


class UetWorkload(Workload[UetProfile, UetStation]):
    """This class draws and starts the operations of a profile of UET."""

    def __init__(self, profile: UetProfile, wire: DirectWire, rng: Rng) -> None:
        super().__init__(profile, wire, rng)
        self._mixes = {
            code: Mix.among(profile.modes, OPCODE_PROFILES[code].modes) for code in profile.operations.things
        }
        self._tag = 0
        self._cell = 0
        self._most = profile.depth * profile.initiators
        """Number of messages that can be open to one target."""
        if profile.security is not None:
            self.secured = Secured(profile.security, lambda: wire.clock.now)
            self.secured.ledger = GrowingLedger()

    def join(self, address: int, initiates: bool, chance: Callable[[str], Random]) -> None:
        profile = self.profile
        fep = Fep(address, chance("engine"), pds=profile.pds, ses=profile.ses, ip_version=profile.ip)
        framer = UetFramer(address, profile.ip, profile.how, ecn_capable=profile.pds.ecn_capable)
        if self.secured is not None:
            name = endpoint_name(len(self.stations))
            framer = self.secured.framer(ProfileMember(name, address, profile.ip, profile.pds), profile.how)
        port = self.wire.attach(address, fep, framer, initiates=initiates, on_event=self.on_event)
        source = Repeating(REGION_LENGTH, chance("data") if initiates else None)
        self.stations.append(UetStation(address, fep, port, source, Repeating(REGION_LENGTH)))

    def naks(self) -> dict[str, int]:
        return nacks_of(station.fep.pds.nack_tx for station in self.stations)

    def on_event(self, event: Event) -> None:
        """Handle an event of any endpoint: start the next operation when one has ended, and count used buffers."""
        if isinstance(event, Completion) and isinstance(event.context, OpenOperation):
            doing = event.context
            doing.ended = True
            code = event.return_code
            self.ended[code.name if isinstance(code, ReturnCode) else str(code)] += 1
            if doing.receive is not None and not event.ok:
                doing.target.fep.cancel(doing.receive, self.clock.now)
            self._close_sometimes(doing)
            self.clock.at(self.clock.now, self.next, doing.station)
        elif isinstance(event, Received) and event.spent and event.receive.tag is None:
            target: UetStation = event.receive.context
            target.posted[event.receive.job_id or 0] -= 1

    def _close_sometimes(self, doing: OpenOperation) -> None:
        limit = self.profile.operations_per_pdc
        if not limit or doing.mode not in PDC_MODES:
            return
        station, key = doing.station, (doing.target.address, doing.mode)
        station.done[key] += 1
        if station.done[key] >= limit * self.profile.pdcs:
            station.done[key] = 0
            pdcs = station.fep.pds.pdcs.values()
            own = (pdc for pdc in pdcs if pdc.role is Role.INITIATOR)  # the peer may have opened other PDCs
            if any(pdc.peer == key[0] and pdc.mode is doing.mode for pdc in own):
                station.port.submit(Close(peer=key[0], mode=doing.mode))

    # One operation

    def next(self, station: UetStation) -> None:
        profile, rng = self.profile, self.rng
        code = profile.operations.draw(rng)
        mode = self._mixes[code].draw(rng)
        targets = profile.endpoints - profile.initiators
        target = self.stations[profile.initiators + (int(rng.random() * targets) if targets > 1 else 0)]
        job = 1 + (int(rng.random() * profile.jobs) if profile.jobs > 1 else 0)
        for end in (station, target):
            end.attach(job)
        doing = OpenOperation(station, target, code, mode)
        common = {
            "peer": target.address, "mode": mode, "job_id": job, "resource_index": INDEX,
            "initiator": station.address & 0xFFFFFFFF, "context": doing,
            "pdc_context": next(self._turns),
        }  # fmt: skip
        size = profile.sizes.draw(rng).draw(rng)
        work = _MAKERS[code](self, doing, common, size)
        if profile.protocol_errors and rng.random() < profile.protocol_errors:
            work = self._wrong(work)
        elif OPCODE_PROFILES[code].selects is Selects.RECEIVE:
            self._post(doing, work)
        self.started[code.name] += 1
        station.port.submit(work)

    def _key(self, key: int, mode: Mode) -> int:
        """Return the key of a region, as the mode and the header form need it."""
        if mode is Mode.RUDI:
            return key | IDEMPOTENT_SAFE
        if self.profile.ses.optimized_headers and self.rng.random() < 0.5:
            return key | OPTIMIZED_KEY
        return key

    def _sync(self, code: Opcode) -> tuple[int, int] | None:
        return (1, 0) if code in SYNCS else None

    def _write(self, doing: OpenOperation, common: dict[str, Any], size: int) -> _Asked:
        return Write(
            **common, data=doing.station.source, start=self._place(size), length=size, offset=self._place(size),
            key=_PLAIN if doing.code in SYNCS else self._key(_PLAIN, doing.mode), sync=self._sync(doing.code),
        )  # fmt: skip

    def _read(self, doing: OpenOperation, common: dict[str, Any], size: int) -> _Asked:
        return Read(
            **common, into=doing.station.scratch, start=0, length=size, offset=self._place(size),
            key=self._key(_PLAIN, doing.mode),
        )  # fmt: skip

    def _send(self, doing: OpenOperation, common: dict[str, Any], size: int) -> _Asked:
        kind = SendKind.PLAIN
        if doing.code in RENDEZVOUS:
            kind = SendKind.RENDEZVOUS
        elif doing.code in DEFERRABLES:
            kind = SendKind.DEFERRABLE
        if doing.mode is Mode.UUD:
            size = min(size, self.profile.ses.payload_mtu)
        tag = self._next_tag() if doing.code in TAGGED else None
        return Send(
            **common, data=doing.station.source, start=self._place(size), length=size, tag=tag, kind=kind,
            local_index=INDEX,
        )  # fmt: skip

    def _atomic(self, doing: OpenOperation, common: dict[str, Any], size: int) -> _Asked:
        opcode, datatype = self._next_cell(OPCODE_PROFILES[doing.code].fetches)
        element = ELEMENT_SIZE[datatype]
        one = OPCODE_PROFILES[doing.code].fetches or opcode in COMPARE_AND_SWAPS
        count = 1 if one else max(1, min(_ELEMENTS, size // element))
        data = bytes(doing.station.source.read(self._place(count * element), count * element))
        tag = self._next_tag() if doing.code in TAGGED else None
        offset = int(self.rng.random() * (ATOMIC_LENGTH // 32 - _ELEMENTS)) * 32
        return Atomic(
            **common, opcode=opcode, datatype=datatype, tag=tag, sync=self._sync(doing.code),
            data=b"" if opcode in _NO_OPERAND else data,
            compare=data if opcode in COMPARE_AND_SWAPS else None,
            result=bytearray(element) if OPCODE_PROFILES[doing.code].fetches else None,
            key=0 if tag is not None else _ATOMIC if doing.code in SYNCS else self._key(_ATOMIC, doing.mode),
            offset=0 if tag is not None else offset,
        )  # fmt: skip

    def _next_tag(self) -> int:
        self._tag = (self._tag + 1) % (1 << 48)
        return self._tag

    def _next_cell(self, fetches: bool) -> tuple[AtomicOpcode, AtomicDatatype]:
        """Return the next legal cell (AMO, datatype), so that all occur soon; READ must fetch, INVAL must not (ses.md
        §6.1).
        """
        while True:
            cell = _CELLS[self._cell * _STRIDE % len(_CELLS)]
            self._cell += 1
            if cell[0] is not (AtomicOpcode.INVAL if fetches else AtomicOpcode.READ):
                return cell

    # The target's part

    def _post(self, doing: OpenOperation, work: _Asked) -> None:
        """Post the buffer for a message: before the message arrives or, if it has a tag, possibly later."""
        tag = getattr(work, "tag", None)
        if tag is None:
            self._post_untagged(doing.target, work.job_id)
            return
        doing.receive = receive = self._buffer(doing.target, work.job_id, tag)
        if self.profile.unexpected and self.rng.random() < self.profile.unexpected:
            self.clock.at(self.clock.now + LATE_BY * self.profile.delay, self._post_late, doing)
        else:
            doing.target.port.submit(receive)

    def _post_late(self, doing: OpenOperation) -> None:
        if not doing.ended and doing.receive is not None:
            doing.target.port.submit(doing.receive)

    def _post_untagged(self, target: UetStation, job: int) -> None:
        """Post one more buffer, unless there are as many posted buffers as messages can be open."""
        if target.posted[job] < self._most:
            target.posted[job] += 1
            target.port.submit(self._buffer(target, job, None))

    def _buffer(self, target: UetStation, job: int, tag: int | None) -> Receive:
        return Receive(into=target.scratch, job_id=job, tag=tag, resource_index=INDEX, context=target)

    # What goes wrong on purpose

    def _wrong(self, work: _Asked) -> _Asked:
        """Return `work` with an address, index, job or key that does not exist."""
        ways: list[dict[str, int]] = [{"pid_on_fep": 0xBAD}, {"resource_index": 0xBAD}]
        if not (isinstance(work, Send) and work.kind is SendKind.RENDEZVOUS):  # its data come from a process of the job
            ways.append({"job_id": 0xBAD0})  # larger than the number of any job of a profile
        if not isinstance(work, Send | Nop) and getattr(work, "tag", None) is None:
            ways += [{"key": _MISSING | work.key & IDEMPOTENT_SAFE}, {"offset": 2 * REGION_LENGTH}]
        if isinstance(work, Write) and work.mode is not Mode.RUDI:
            ways.append({"key": _READ_ONLY})
        changes: dict[str, Any] = ways[int(self.rng.random() * len(ways))]
        return replace(work, **changes)


_MAKERS: dict[Opcode, Callable[[UetWorkload, OpenOperation, dict[str, Any], int], _Asked]] = {
    Opcode.NO_OP: lambda workload, doing, common, size: Nop(**common),
    **dict.fromkeys((Opcode.WRITE, Opcode.SYNC_WRITE), UetWorkload._write),
    Opcode.READ: UetWorkload._read,
    **dict.fromkeys(sorted(ATOMICS), UetWorkload._atomic),
    **dict.fromkeys(
        (Opcode.SEND, Opcode.TAGGED_SEND, Opcode.DATAGRAM_SEND, *sorted(RENDEZVOUS), *sorted(DEFERRABLES)),
        UetWorkload._send,
    ),
}  # fmt: skip
