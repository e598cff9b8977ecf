# SPDX-License-Identifier: GPL-2.0-only
"""A target checks a request in the order of ses.md §10. The first check that fails gives the return code.

The table `CHECKS` has the steps of that section. Steps 8 and 11–15 are checked only for one packet of each message, the
one that arrives first. The other steps are checked for every packet.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import Mode
from uetproto.engine.memory import Region
from uetproto.engine.ses import atomics as ses_atomics
from uetproto.engine.ses.addressing import IndexState, Process, Processes, ResourceIndex
from uetproto.engine.ses.buffers import PostedBuffer
from uetproto.engine.ses.headers import Extensions, SesRequest
from uetproto.engine.ses.profiles import OPTIMIZED_FORMS, RUDI
from uetproto.engine.ses.received import RxMessage
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    COMPARE_AND_SWAPS,
    DEFERRABLES,
    ELEMENT_SIZE,
    OPCODE_PROFILES,
    SYNCS,
    AtomicOpcode,
    Opcode,
    OpcodeProfile,
    Profile,
    ReturnCode,
    Selects,
    Space,
)

if TYPE_CHECKING:
    from uetproto.engine.ses.queues import Queues

CAS_LENGTH = 32
"""Value of request_length in a compare-and-swap, which has two operands of 128 bits (ses.md §6.3)."""


@dataclass(slots=True)
class Judgement:
    """This class holds a request packet that is being checked, and the results of the checks so far."""

    request: SesRequest
    mode: Mode
    payload: int
    """Number of bytes of the payload that arrived, without extension headers."""
    processes: Processes
    config: SesConfig
    profile: Profile
    message: RxMessage | None
    """State of the message, or None for the first packet of a message."""
    extensions: Extensions | None
    """Extension headers of the packet, or None if they are cut short."""
    room: bool
    """Whether the target has room for the state of another message, or the request needs no such state."""
    queues: "Queues"
    """Receive queues of the target. They identify restarts, and decide whether a message without a buffer is held,
    stopped or refused (ses.md §5.7, §11.2)."""
    source: int
    """Fabric address of the initiator."""
    process: Process | None = None
    index: ResourceIndex | None = None
    region: Region | None = None
    buffer: PostedBuffer | None = None
    """Posted buffer that the message matches. For a restart it is the buffer that was reserved (ses.md §5.7 D6)."""
    restarted: bool = False
    """Whether the message is the restart of a stopped message, with a valid token."""

    @property
    def row(self) -> OpcodeProfile:
        return OPCODE_PROFILES[self.request.opcode]  # type: ignore[index]

    @property
    def body(self) -> int:
        """Return the number of bytes that all packets of the message together carry or ask for.

        For a rendezvous this is the number of eager bytes (ses.md §5.9).
        """
        rendezvous = self.extensions.rendezvous if self.extensions else None
        return rendezvous.eager_length if rendezvous else self.request.request_length

    @property
    def amount(self) -> int:
        """Return the number of bytes of the message that this packet carries, or, in a READ, asks for."""
        r = self.request
        if r.opcode == Opcode.READ:
            return min(r.request_length, self.config.payload_mtu) if r.payload_length is None else r.payload_length
        return self.payload


_Verdict = ReturnCode | None


def _version(j: Judgement) -> _Verdict:
    return ReturnCode.UNCOR if j.request.version != 0 else None


def _opcode_known(j: Judgement) -> _Verdict:
    """Check that the profiles of the target have the opcode, and RUDI or optimized headers if used (ses.md §4.3)."""
    row = OPCODE_PROFILES.get(j.request.opcode)  # type: ignore[call-overload]
    if row is None:
        return ReturnCode.UNSUPPORTED_OP
    known = row.profiles & j.profile and (j.config.sync_operations or j.request.opcode not in SYNCS)
    known = known and (j.mode is not Mode.RUDI or j.profile & RUDI)
    known = known and (j.request.next_hdr == NextHdr.REQUEST_STD or j.profile & OPTIMIZED_FORMS)
    return None if known else ReturnCode.UNSUPPORTED_OP


def _opcode_allowed(j: Judgement) -> _Verdict:
    """Check mode and form (ses.md §5.1), a complete extension, and no completion data on RUDI (ses.md §5.3)."""
    row, r = j.row, j.request
    datagram = j.mode is Mode.UUD and j.config.uud_opcode == "send" and r.opcode == Opcode.SEND
    fine = (j.mode in row.modes or datagram) and r.next_hdr in row.forms and j.extensions is not None
    return None if fine and not (j.mode is Mode.RUDI and r.hd) else ReturnCode.OP_VIOLATION


def _job(j: Judgement) -> _Verdict:
    r, processes = j.request, j.processes
    if not r.rel or r.job_id in processes.jobs or processes.of_every_job(r.pid_on_fep, r.resource_index):
        return None
    return ReturnCode.BAD_JOB_ID


def _pid(j: Judgement) -> _Verdict:
    r, processes = j.request, j.processes
    j.process = processes.of_every_job(r.pid_on_fep, r.resource_index) if r.rel else None
    if j.process is None:
        j.process = processes.find(r.job_id if r.rel else None, r.pid_on_fep)
    return ReturnCode.BAD_PID if j.process is None else None


def _resource_index(j: Judgement) -> _Verdict:
    """Find the resource index in the space of the opcode.

    A small header of RMA has no resource index, and selects the RMA service of the process (ses.md §4.1).
    """
    assert j.process is not None
    row = j.row if j.message is None else j.message.row
    indices = j.process.spaces[row.space]
    if j.request.opcode == Opcode.MSG_ERROR and j.message is None:  # the space is not known
        indices = {number: index for space in j.process.spaces.values() for number, index in space.items()}
    if j.request.next_hdr == NextHdr.REQUEST_SMALL and row.selects is not Selects.RECEIVE:
        j.index = next(iter(indices.values()), None)
    else:
        j.index = indices.get(j.request.resource_index)
    return ReturnCode.BAD_INDEX if j.index is None else None


def _index_state(j: Judgement) -> _Verdict:
    """Check state and generation; only messages to a receive queue have generations, without datagrams (ses.md
    §2.4)."""
    index = j.index
    assert index is not None
    if index.state is IndexState.DISABLED:
        return ReturnCode.DISABLED
    if j.row.selects is not Selects.RECEIVE or j.mode is Mode.UUD:
        return None
    if index.state is IndexState.DISABLED_GEN:
        return ReturnCode.DISABLED_GEN
    return ReturnCode.BAD_GENERATION if j.request.ri_generation != index.generation else None


def _in_error(j: Judgement) -> _Verdict:
    return j.message.error if j.message is not None else None


def _flags_and_lengths(j: Judgement) -> _Verdict:
    return None if _well_formed(j) else ReturnCode.OP_VIOLATION


def _well_formed(j: Judgement) -> bool:
    """Check the rules of ses.md §7.1 that concern a single packet."""
    r, payload, mtu = j.request, j.payload, j.config.payload_mtu
    alone = bool(r.som and r.eom)
    if r.next_hdr != NextHdr.REQUEST_STD and not alone:
        return False
    if r.opcode == Opcode.NO_OP:
        return alone and r.request_length == 0 and payload == 0
    if r.opcode in (Opcode.MSG_ERROR, Opcode.DEFERRABLE_RTR):
        return True  # other rules hold for them (ses.md §5.8, §5.12)
    if r.opcode in ATOMICS:
        return alone and _operands_fit(j)
    if j.mode is Mode.UUD and not alone:
        return False
    length, amount = j.body, j.amount
    if length > r.request_length or (r.opcode == Opcode.READ and payload):
        return False
    if r.som:
        lone = length <= mtu
        ends = r.eom or (lone and r.opcode == Opcode.READ and not j.config.lone_read_eom)
        return bool(ends) == lone and amount == min(length, mtu)
    if j.message is not None and j.message.stopped and r.eom and not payload:
        return True  # the end of a message that was stopped (ses.md §5.7 D3)
    if amount != r.payload_length or r.message_offset % mtu or r.message_offset == 0:
        return False
    end = r.message_offset + amount
    return 0 < amount <= mtu and end == length if r.eom else amount == mtu and end < length


def _operands_fit(j: Judgement) -> bool:
    """Check that the operands are in the payload, in the extension, or absent (ses.md §6.3)."""
    atomic = j.extensions.atomic if j.extensions else None
    if atomic is None:
        return False
    if atomic.opcode in COMPARE_AND_SWAPS:
        return j.payload == 0 and j.request.request_length == CAS_LENGTH
    if atomic.opcode in (AtomicOpcode.READ, AtomicOpcode.INVAL):
        return j.payload == 0
    return j.payload == j.request.request_length <= j.config.payload_mtu


def _state(j: Judgement) -> _Verdict:
    """Check that there is room for the state of the message; otherwise a NACK makes PDS retransmit the packet."""
    return None if j.message is not None or j.room else ReturnCode.UNCOR_TRNSNT


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
    """Check access rights: writing needs the right to write, fetching the right to read as well."""
    region, row = j.region, j.row
    assert region is not None
    writes = j.request.opcode != Opcode.READ
    denied = (row.fetches and not region.remote_read) or (writes and not region.remote_write)
    return ReturnCode.PERM_VIOLATION if denied else None


def _idempotent(j: Judgement) -> _Verdict:
    assert j.region is not None
    return ReturnCode.OP_VIOLATION if j.mode is Mode.RUDI and not j.region.idempotent_safe else None


def _bounds(j: Judgement) -> _Verdict:
    assert j.region is not None
    return None if j.region.covers(j.request.buffer_offset, target_length(j)) else ReturnCode.BAD_ADDR


def target_length(j: Judgement) -> int:
    """Return the number of bytes of target memory that the message accesses."""
    atomic = j.extensions.atomic if j.extensions else None
    if atomic is not None and atomic.opcode in COMPARE_AND_SWAPS:
        return ELEMENT_SIZE.get(atomic.datatype, CAS_LENGTH)  # type: ignore[call-overload, no-any-return]
    return j.request.request_length


def _buffer(j: Judgement) -> _Verdict:
    """Find the oldest receive that matches; without one the message is held, stopped or refused (ses.md §11.2)."""
    assert j.index is not None
    if j.request.opcode in DEFERRABLES and (code := j.queues.restarted(j)) is not None:
        return code
    if not j.restarted:
        bits = j.request.key if j.row.space is Space.TAGGED else 0
        j.buffer = j.index.posted.find(bits, j.request.initiator)
    return None if j.buffer is not None else j.queues.refuse(j)


def _buffer_job(j: Judgement) -> _Verdict:
    wrong = j.buffer is not None and j.buffer.receive.only_job not in (None, j.request.job_id)
    return ReturnCode.BAD_JOB_ID if wrong else None


def _fits(j: Judgement) -> _Verdict:
    """Check that the message fits: a send may be truncated, an atomic may not."""
    if j.buffer is None:
        return None
    start = 0 if j.restarted or j.request.opcode in DEFERRABLES else j.request.buffer_offset
    fits = start + target_length(j) <= j.buffer.room
    if fits or (j.config.truncation_policy == "truncate" and j.request.opcode not in ATOMICS):
        return None
    return ReturnCode.BAD_ADDR if j.request.opcode in ATOMICS else ReturnCode.TOO_LONG


def _atomic(j: Judgement) -> _Verdict:
    """Check operation, datatype, size and alignment of an atomic (step 15)."""
    atomic = j.extensions.atomic if j.extensions else None
    if atomic is None:
        return None
    code = ses_atomics.check(atomic.opcode, atomic.datatype)
    if code is not None or atomic.opcode == AtomicOpcode.INVAL:
        return code
    size = ELEMENT_SIZE[atomic.datatype]  # type: ignore[index]
    length = target_length(j)
    if atomic.opcode == AtomicOpcode.READ and not j.row.fetches:
        return ReturnCode.AMO_UNSUPPORTED_OP  # fetching only (ses.md §6.1)
    if length % size or not length or (j.row.fetches and length != size):
        return ReturnCode.AMO_UNSUPPORTED_SIZE
    return ReturnCode.AMO_UNALIGNED if _address(j) % size else None


def _address(j: Judgement) -> int:
    """Return the address that an atomic accesses: an offset in the posted buffer, or an address in the region."""
    return j.request.buffer_offset + (j.buffer.next if j.buffer is not None else 0)


def _sender_and_place(r: SesRequest) -> tuple[int, ...]:
    """Return the fields that are constant in a message (ses.md §15 item 5); the generation may change."""
    return r.rel, r.job_id, r.pid_on_fep, r.resource_index, r.initiator


def _consistent(j: Judgement) -> _Verdict:
    m, r = j.message, j.request
    if m is None:
        return None
    if r.opcode != m.opcode or r.request_length != m.length or r.buffer_offset != m.offset:
        return ReturnCode.OP_VIOLATION
    if _sender_and_place(r) != _sender_and_place(m.request):
        return ReturnCode.OP_VIOLATION
    if j.extensions is not None and (j.extensions.rendezvous, j.extensions.sync) != (m.rendezvous, m.sync):
        return ReturnCode.OP_VIOLATION  # equal in all packets (ses.md §4.2)
    return ReturnCode.PERM_VIOLATION if r.key != m.key else None


def _initiator_error(j: Judgement) -> _Verdict:
    """Check ie: the header is good, the payload is not (ses.md §5.13)."""
    return ReturnCode.INITIATOR_ERROR if j.request.ie else None


def _memory(j: Judgement) -> _Verdict:
    region = j.region if j.message is None else j.message.region
    if region is None:
        return None
    return region.fault if region.enabled else ReturnCode.CANCELLED  # disabled while the message was in flight


class Check(NamedTuple):
    step: int
    """Number of the step in ses.md §10."""
    once: bool
    """Whether the step is checked only for the first packet of a message."""
    selects: Selects | None
    """Operations to which the step applies: those that access a region, or those that use a receive. None means all
    operations."""
    name: str
    function: Callable[[Judgement], ReturnCode | None]


_ANY, _RMA, _MSG = None, Selects.REGION, Selects.RECEIVE

CHECKS = (
    Check( 2, False, _ANY, "version is 0",                             _version),
    Check( 3, False, _ANY, "opcode known and in the profile",          _opcode_known),
    Check( 4, False, _ANY, "opcode allowed in this mode and form",     _opcode_allowed),
    Check( 5, False, _ANY, "rel = 1: JobID known",                     _job),
    Check( 6, False, _ANY, "PIDonFEP exists",                          _pid),
    Check( 7, False, _ANY, "RI configured in the opcode's space",      _resource_index),
    Check( 8, True,  _ANY, "RI enabled, generation equal",             _index_state),
    Check( 9, False, _ANY, "message not in error",                     _in_error),
    Check(10, False, _ANY, "flags and lengths",                        _flags_and_lengths),
    Check(11, True,  _ANY, "resources for message state",              _state),
    Check(12, True,  _RMA, "region enabled under this key",            _region),
    Check(12, True,  _MSG, "posted buffer that matches, or a place",   _buffer),
    Check(13, True,  _RMA, "region visible to this job",               _region_job),
    Check(13, True,  _MSG, "posted buffer open to this job",           _buffer_job),
    Check(13, True,  _RMA, "region has the access right",              _access),
    Check(13, True,  _RMA, "RUDI: region is IDEMPOTENT_SAFE",          _idempotent),
    Check(14, True,  _RMA, "message inside the region",                _bounds),
    Check(14, True,  _MSG, "message fits, or may be truncated",        _fits),
    Check(15, True,  _ANY, "atomic: operation, size, alignment",       _atomic),
    Check(16, False, _ANY, "packet consistent with its message",       _consistent),
    Check(17, False, _ANY, "ie = 0",                                   _initiator_error),
    Check(18, False, _RMA, "translation and memory access work",       _memory),
)  # fmt: skip
"""All checks in their order. Step 1 is missing, because PDS does not deliver a SES header that is cut short."""

_INDEX = 7
"""Last step that finds the process and the resource index; the result is the same for equal headers."""
_ADDRESSING = 8
"""Last step that is checked for MSG_ERROR (ses.md §10, special paths)."""
_RESTART = 4
"""Last step that is checked for DEFERRABLE_RTR; from here on the opcode is known to be legal."""


_MESSAGE = 15
"""Last step that is checked before a message is placed; later steps concern the single packet."""


def _functions(steps: range, selects: Selects, *, first: bool) -> tuple[Callable[[Judgement], _Verdict], ...]:
    """Return the checks of some steps for operations that access what `selects` says."""
    return tuple(
        check.function for check in CHECKS
        if check.step in steps and (first or not check.once) and check.selects in (None, selects)
    )  # fmt: skip


_OPCODE = _functions(range(_RESTART + 1), Selects.NOTHING, first=True)
_PLACE = _functions(range(_RESTART + 1, _INDEX + 1), Selects.NOTHING, first=True)
_ENDING, _MESSAGES, _PACKETS = (
    {(selects, first): _functions(steps, selects, first=first) for selects in Selects for first in (True, False)}
    for steps in (range(_INDEX + 1, _ADDRESSING + 1), range(_INDEX + 1, _MESSAGE + 1), range(_MESSAGE + 1, 19))
)
"""Checks of MSG_ERROR, of other messages and of their packets, by what the operation accesses, and whether the packet
is the first of its message."""


def _first_failure(checks: Iterable[Callable[[Judgement], _Verdict]], j: Judgement) -> _Verdict:
    for check in checks:
        code = check(j)
        if code is not None:
            return code
    return None


def judge(j: Judgement) -> ReturnCode | None:
    """Check a packet by steps 2 to 15 of ses.md §10. Return the code of the first step that fails, or None."""
    request, first, key = j.request, j.message is None, _place_key(j)
    place = j.processes.places.get(key) if first else None
    if place is not None:
        j.process, j.index = place
    else:
        code = _first_failure(_OPCODE, j)
        if code is not None or request.opcode == Opcode.DEFERRABLE_RTR:
            return code
        code = _first_failure(_PLACE, j)
        if code is not None:
            return code
        if first and j.process is not None and j.index is not None:
            j.processes.keep_place(key, (j.process, j.index))
    checks = _ENDING if request.opcode == Opcode.MSG_ERROR else _MESSAGES
    return _first_failure(checks[j.row.selects, first], j)


def _place_key(j: Judgement) -> tuple[int | bool, ...]:
    """Return all that steps 2 to 7 look at in the first packet of a message."""
    r = j.request
    return (
        r.opcode, r.next_hdr, r.version, r.hd, r.rel, r.job_id, r.pid_on_fep, r.resource_index, j.mode,
        j.extensions is None,
    )  # fmt: skip


def judge_packet(j: Judgement) -> ReturnCode | None:
    """Check a packet by steps 16 to 18 of ses.md §10, after `judge` has found no error. Return the code of the first
    step that fails, or None.
    """
    return _first_failure(_PACKETS[j.row.selects, True], j)
