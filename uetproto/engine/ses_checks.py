"""Target: what a request must fulfil, in the order of ses.md §10; the first step that fails gives the return code.

The steps are data: a newcomer reads `CHECKS` beside the table of ses.md. Steps 8 and 11–15 are judged once, at the
first packet seen of a message; the others at every packet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import Mode
from uetproto.engine.memory import Region
from uetproto.engine.messages import SesRequest
from uetproto.errors import LocalError
from uetproto.wire.uet_pds import NextHdr
from uetproto.wire.uet_ses import Opcode, ReturnCode

if TYPE_CHECKING:
    from uetproto.engine.ses_target import RxMessage

SUPPORTED = frozenset({Opcode.NO_OP, Opcode.WRITE, Opcode.MSG_ERROR})
"""Operations that this target executes; any other gets UNSUPPORTED_OP."""


class ResourceIndex:
    """A service of a process in the RMA index space (ses.md §2.4)."""

    __slots__ = ("enabled",)

    def __init__(self) -> None:
        self.enabled = True


@dataclass(slots=True)
class Process:
    """A process attached to the endpoint: its resource indices and its regions by key (ses.md §14)."""

    job_id: int | None
    """None: a service reached by absolute addresses (ses.md §2.2)."""
    pid_on_fep: int
    indices: dict[int, ResourceIndex] = field(default_factory=dict)
    regions: dict[int, Region] = field(default_factory=dict)

    def register(self, region: Region) -> Region:
        """Makes a region reachable. Raises `LocalError` when its key is taken."""
        if region.key in self.regions:
            raise LocalError(f"key: {region.key:#x} is registered already")
        self.regions[region.key] = region
        return region


class Processes:
    """Who can be reached at this endpoint: by {JobID, PIDonFEP} relative, by PIDonFEP absolute."""

    def __init__(self) -> None:
        self.jobs: dict[int, dict[int, Process]] = {}
        self.services: dict[int, Process] = {}
        self.version = 0
        """Changes with every attach and detach: what was found before must be looked up again."""

    def attach(self, job_id: int | None, pid_on_fep: int, indices: tuple[int, ...]) -> Process:
        if job_id is not None and not 0 <= job_id < 1 << 24:
            raise LocalError(f"job_id: {job_id!r} is not legal; legal: None, 0 … 0xffffff")
        if not 0 <= pid_on_fep < 1 << 12:
            raise LocalError(f"pid_on_fep: {pid_on_fep!r} is not legal; legal: 0 … 0xfff")
        for index in indices:
            if not 0 < index < 1 << 12:
                raise LocalError(f"resource_index: {index!r} is not legal; legal: 1 … 0xfff (0 is reserved)")
        place = self.services if job_id is None else self.jobs.setdefault(job_id, {})
        if pid_on_fep in place:
            raise LocalError(f"pid_on_fep: {pid_on_fep} is attached already")
        process = Process(job_id, pid_on_fep, {index: ResourceIndex() for index in indices})
        place[pid_on_fep] = process
        self.version += 1
        return process

    def detach(self, process: Process) -> None:
        """Later packets of the job get BAD_PID; of a job without processes BAD_JOB_ID."""
        place = self.services if process.job_id is None else self.jobs.get(process.job_id, {})
        if place.pop(process.pid_on_fep, None) is None:
            raise LocalError(f"pid_on_fep: {process.pid_on_fep} is not attached")
        if process.job_id is not None and not place:
            del self.jobs[process.job_id]
        self.version += 1


@dataclass(slots=True)
class Judgement:
    """One request under examination; the steps fill in what they find."""

    request: SesRequest
    mode: Mode
    payload: int
    """Bytes that are really there."""
    processes: Processes
    config: SesConfig
    message: "RxMessage | None"
    """State of the message, None at its first packet."""
    process: Process | None = None
    index: ResourceIndex | None = None
    region: Region | None = None


_Verdict = ReturnCode | None


def _version(j: Judgement) -> _Verdict:
    return ReturnCode.UNCOR if j.request.version != 0 else None


def _opcode_known(j: Judgement) -> _Verdict:
    return ReturnCode.UNSUPPORTED_OP if j.request.opcode not in SUPPORTED else None


def _opcode_allowed(j: Judgement) -> _Verdict:
    """Mode and form (ses.md §5.1): RUD and ROD carry all that is supported; MSG_ERROR has a standard header."""
    wrong = j.request.opcode == Opcode.MSG_ERROR and j.request.next_hdr != NextHdr.REQUEST_STD
    return ReturnCode.OP_VIOLATION if wrong else None


def _job(j: Judgement) -> _Verdict:
    return ReturnCode.BAD_JOB_ID if j.request.rel and j.request.job_id not in j.processes.jobs else None


def _pid(j: Judgement) -> _Verdict:
    place = j.processes.jobs[j.request.job_id] if j.request.rel else j.processes.services
    j.process = place.get(j.request.pid_on_fep)
    return ReturnCode.BAD_PID if j.process is None else None


def _resource_index(j: Judgement) -> _Verdict:
    """The small header has the index of the key in this place: the RMA service of the process is meant (§4.1)."""
    assert j.process is not None
    if j.request.next_hdr == NextHdr.REQUEST_SMALL:
        j.index = next(iter(j.process.indices.values()), None)
    else:
        j.index = j.process.indices.get(j.request.resource_index)
    return ReturnCode.BAD_INDEX if j.index is None else None


def _index_state(j: Judgement) -> _Verdict:
    """Generations are for messaging only (ses.md §2.4)."""
    assert j.index is not None
    return ReturnCode.DISABLED if not j.index.enabled else None


def _in_error(j: Judgement) -> _Verdict:
    return j.message.error if j.message is not None else None


def _flags_and_lengths(j: Judgement) -> _Verdict:
    r = j.request
    return None if _well_formed(r, j.payload, j.config.payload_mtu) else ReturnCode.OP_VIOLATION


def _well_formed(r: SesRequest, payload: int, mtu: int) -> bool:
    """The rules of ses.md §7.1 that one packet shows by itself."""
    if r.next_hdr != NextHdr.REQUEST_STD and not (r.som and r.eom):
        return False
    if r.opcode == Opcode.NO_OP:
        return bool(r.som and r.eom) and r.request_length == 0 and payload == 0
    if r.opcode == Opcode.MSG_ERROR:
        return not r.som and bool(r.eom) and payload == 0 and r.payload_length == 0
    if r.som:
        whole = r.request_length <= mtu
        return bool(r.eom) == whole and payload == min(r.request_length, mtu)
    if payload != r.payload_length or r.message_offset % mtu or r.message_offset == 0:
        return False
    end = r.message_offset + payload
    return 0 < payload <= mtu and end == r.request_length if r.eom else payload == mtu and end < r.request_length


def _region(j: Judgement) -> _Verdict:
    assert j.process is not None
    region = j.process.regions.get(j.request.key)
    j.region = region if region is not None and region.enabled else None
    return ReturnCode.BAD_MKEY if j.region is None else None


def _region_job(j: Judgement) -> _Verdict:
    assert j.region is not None
    hidden = j.region.job_restriction not in (None, j.request.job_id)
    return ReturnCode.BAD_MKEY if hidden else None


def _access(j: Judgement) -> _Verdict:
    assert j.region is not None
    return None if j.region.remote_write else ReturnCode.PERM_VIOLATION


def _bounds(j: Judgement) -> _Verdict:
    assert j.region is not None
    return None if j.region.covers(j.request.buffer_offset, j.request.request_length) else ReturnCode.BAD_ADDR


def _consistent(j: Judgement) -> _Verdict:
    m, r = j.message, j.request
    if m is None:
        return None
    if r.opcode != m.opcode or r.request_length != m.length or r.buffer_offset != m.offset:
        return ReturnCode.OP_VIOLATION
    return ReturnCode.PERM_VIOLATION if r.key != m.key else None


def _initiator_error(j: Judgement) -> _Verdict:
    return ReturnCode.INITIATOR_ERROR if j.request.ie else None


def _memory(j: Judgement) -> _Verdict:
    region = j.region if j.message is None else j.message.region
    if region is None:
        return None
    return region.fault if region.enabled else ReturnCode.CANCELLED  # withdrawn with the message in flight


class Check(NamedTuple):
    step: int
    """Step of ses.md §10."""
    once: bool
    """Judged at the first packet of a message only."""
    rma: bool
    """Only for operations that select a region."""
    name: str
    function: Callable[[Judgement], ReturnCode | None]


CHECKS = (
    Check( 2, False, False, "version is 0",                            _version),
    Check( 3, False, False, "opcode known and in the profile",         _opcode_known),
    Check( 4, False, False, "opcode allowed in this mode and form",    _opcode_allowed),
    Check( 5, False, False, "rel = 1: JobID known",                    _job),
    Check( 6, False, False, "PIDonFEP exists",                         _pid),
    Check( 7, False, False, "RI configured in the RMA index space",    _resource_index),
    Check( 8, True,  False, "RI enabled",                              _index_state),
    Check( 9, False, False, "message not in error",                    _in_error),
    Check(10, False, False, "flags and lengths",                       _flags_and_lengths),
    Check(12, True,  True,  "region enabled under this key",           _region),
    Check(13, True,  True,  "region visible to this job",              _region_job),
    Check(13, True,  True,  "region has the access right",             _access),
    Check(14, True,  True,  "message inside the region",               _bounds),
    Check(16, False, False, "packet consistent with its message",      _consistent),
    Check(17, False, False, "ie = 0",                                  _initiator_error),
    Check(18, False, True,  "translation and memory access work",      _memory),
)  # fmt: skip
"""Step 1 is PDS's (a SES header cut short is not delivered); step 11 is a refusal, `ses_target`; 15 is for atomics."""


def judge(j: Judgement) -> ReturnCode | None:
    """The return code of the first step that fails; None: execute."""
    first, rma = j.message is None, j.request.opcode == Opcode.WRITE
    for check in CHECKS:
        if (first or not check.once) and (rma or not check.rma):
            code = check.function(j)
            if code is not None:
                return code
    return None


def judge_addressing(j: Judgement) -> ReturnCode | None:
    """Steps 2–8, for MSG_ERROR (ses.md §10, special paths)."""
    for check in CHECKS:
        if check.step <= 8 and (j.message is None or not check.once):
            code = check.function(j)
            if code is not None:
                return code
    return None
