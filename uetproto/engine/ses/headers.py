# SPDX-License-Identifier: GPL-2.0-only
"""This module parses and builds the headers of SES requests, of their extensions, and of SES responses.

The functions `parse_*` read received bytes. For illegal bytes they raise `RemoteError`, whose `code` is the return code
of the response. The functions `build_*` return bytes, and do not check the values. Reserved fields are sent as zero and
ignored on receipt. UE 1.0.1 §3.4.2; ses.md §3, §4, §9.
"""

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from uetproto.engine.contract import Buffer
from uetproto.engine.pds.service import SES_SIZE
from uetproto.errors import RemoteError
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import (
    COMPARE_AND_SWAPS,
    OPCODE_PROFILES,
    REQUEST_STD,
    Extension,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)
from uetproto.wire.tuples import (
    SesExtAtomicCasHeader,
    SesExtAtomicHeader,
    SesExtRendezvousHeader,
    SesExtSyncHeader,
    SesRequestMediumHeader,
    SesRequestSmallHeader,
    SesRequestStdHeader,
    SesRequestStdSomHeader,
    SesResponseDataHeader,
    SesResponseDataSmallHeader,
    SesResponseHeader,
)

FIRST_PACKET = Struct(
    f">2sH{(REQUEST_STD.offset_of('buffer_offset') - REQUEST_STD.offset_of('ri_generation')) // 8}sQIQQI"
)
"""Layout of the standard header of a first packet: opcode and flags; message_id; the bytes from ri_generation to
resource_index; buffer_offset; initiator; memory_key; header_data; request_length."""
OPTIMIZED_KEY = 1 << 62
"""Bit OPTIMIZED of a memory key. A small header carries only the lowest 12 bits of such a key, as its index (ses.md
§2.6)."""

# Requests ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SesRequest:
    """This class holds a SES request with a standard, medium or small header (ses.md §3).

    A field that the header does not have is 0, but `message_id` and `payload_length` are None.
    """

    next_hdr: int
    opcode: int
    version: int
    dc: int
    ie: int
    rel: int
    hd: int
    eom: int
    som: int
    message_id: int | None
    ri_generation: int
    job_id: int
    pid_on_fep: int
    resource_index: int
    buffer_offset: int
    """Offset in the buffer or region of the target. In a deferrable send the field has two restart tokens instead,
    which `tokens` returns."""
    initiator: int
    key: int
    """Field memory_key or match_bits. In a DEFERRABLE_RTR it has two restart tokens, which `rtr_tokens` returns."""
    header_data: int
    payload_length: int | None
    """Field payload_length of a packet with som = 0, or None if the header has no such field."""
    message_offset: int
    request_length: int

    @property
    def tokens(self) -> tuple[int, int]:
        """Return {initiator_restart_token, target_restart_token} of a deferrable send (ses.md §5.7)."""
        return self.buffer_offset >> 32, self.buffer_offset & 0xFFFFFFFF

    @property
    def rtr_tokens(self) -> tuple[int, int]:
        """Return {sender_token, receiver_token} of a DEFERRABLE_RTR (ses.md §5.8)."""
        return self.key >> 32, self.key & 0xFFFFFFFF


def parse_ses_request(data: Buffer, at: int, next_hdr: int) -> SesRequest:
    """Parse the SES request header at byte `at` of `data`. PDS has checked that the header is complete.

    The opcode is not checked here. The layouts of all opcodes have the same size, and agree in the fields that are used
    before the opcode is checked (wire.md §0). Raises `RemoteError` when `next_hdr` is not a request.
    """
    if next_hdr == NextHdr.REQUEST_STD:
        header_data, payload_length, at_byte = 0, None, 0
        # DEFERRABLE_RTR has the layout of a first packet, also with som = 0.
        if data[at + 1] & 1 or data[at] & 0x3F == Opcode.DEFERRABLE_RTR:
            (_, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, _, pid, _, index,
             offset, initiator, key, header_data, length) = SesRequestStdSomHeader.unpack(data, at)  # fmt: skip
        else:
            (_, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, _, pid, _, index,
             offset, initiator, key, _, payload_length, at_byte, length
             ) = SesRequestStdHeader.unpack(data, at)  # fmt: skip
        return SesRequest(
            next_hdr, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, pid, index,
            offset, initiator, key, header_data, payload_length, at_byte, length,
        )  # fmt: skip
    if next_hdr == NextHdr.REQUEST_MEDIUM:
        medium = SesRequestMediumHeader.read(data, at)
        shared = medium.buffer_offset  # with hd this field is header_data
        offset, header_data = (0, shared) if medium.hd else (shared, 0)
        return SesRequest(
            next_hdr, medium.opcode, medium.version, medium.dc, medium.ie, medium.rel, medium.hd, medium.eom,
            medium.som, None, medium.ri_generation, medium.job_id, medium.pid_on_fep, medium.resource_index, offset,
            medium.initiator, medium.memory_key, header_data, None, 0, medium.request_length,
        )  # fmt: skip
    if next_hdr == NextHdr.REQUEST_SMALL:
        small = SesRequestSmallHeader.read(data, at)
        index = small.resource_index
        return SesRequest(
            next_hdr, small.opcode, small.version, small.dc, small.ie, small.rel, small.hd, small.eom, small.som, None,
            small.ri_generation, small.job_id, small.pid_on_fep, index, small.buffer_offset, 0, OPTIMIZED_KEY | index,
            0, None, 0, small.request_length,
        )  # fmt: skip
    raise RemoteError(
        next_hdr, ReturnCode.OP_VIOLATION, name="next_hdr", legal="that of a request", id="malformed-packet"
    )


# Extensions (ses.md §4.2) --------------------------------------------------------------------------------------------


class AtomicExtension(NamedTuple):
    """The atomic extension header has these fields (ses.md §6).

    `compare` and `swap` are fields of 128 bits, with an operand in the low-order bits. They are None unless the
    operation is a compare-and-swap.
    """

    opcode: int
    datatype: int
    control: int
    compare: int | None = None
    swap: int | None = None


class Extensions(NamedTuple):
    """This class holds the extension headers of a request, and their size in bytes."""

    atomic: AtomicExtension | None = None
    rendezvous: SesExtRendezvousHeader | None = None
    """Region from which the target of a rendezvous reads the bytes that were not sent (ses.md §5.9)."""
    sync: SesExtSyncHeader | None = None
    """Sync header (ses.md §5.14). Its field `count` is the number of messages of the sync group in the operation that
    ends the group, and 0 in other operations."""
    size: int = 0


_NO_EXTENSIONS = Extensions()


def parse_extensions(opcode: int, data: Buffer) -> Extensions:
    """Parse the extension headers at the start of `data`, which follows a request header with this opcode.

    Raises `RemoteError` with OP_VIOLATION when an extension header is cut short (ses.md §10 step 4).
    """
    row = OPCODE_PROFILES.get(opcode)  # type: ignore[call-overload]
    if row is None or row.extension is Extension.NONE:
        return _NO_EXTENSIONS
    sync = atomic = None
    size = 0
    if row.extension is Extension.RENDEZVOUS:
        _need(data, SesExtRendezvousHeader.size)
        return Extensions(rendezvous=SesExtRendezvousHeader.read(data), size=SesExtRendezvousHeader.size)
    if row.extension in (Extension.SYNC, Extension.SYNC_ATOMIC):
        _need(data, SesExtSyncHeader.size)
        sync = SesExtSyncHeader.read(data)
        size = SesExtSyncHeader.size
    if row.extension in (Extension.ATOMIC, Extension.SYNC_ATOMIC):
        _need(data, size + SesExtAtomicHeader.size)
        front = SesExtAtomicHeader.read(data, size)
        atomic = AtomicExtension(front.atomic_opcode, front.atomic_datatype, front.semantic_control)
        if front.atomic_opcode in COMPARE_AND_SWAPS:
            _need(data, size + SesExtAtomicCasHeader.size)
            cas = SesExtAtomicCasHeader.read(data, size)
            atomic = atomic._replace(compare=cas.compare_value, swap=cas.swap_value)
            size += SesExtAtomicCasHeader.size
        else:
            size += SesExtAtomicHeader.size
    return Extensions(atomic, None, sync, size)


def _need(data: Buffer, size: int) -> None:
    if len(data) < size:
        what = f"cut short: {len(data)} bytes"
        raise RemoteError(
            what, ReturnCode.OP_VIOLATION, name="extension", legal=f"{size} bytes and more", id="malformed-packet"
        )


def build_extensions(*, atomic: AtomicExtension | None = None, sync: SesExtSyncHeader | None = None) -> bytes:
    """Build extension headers in their order on the wire, in which the sync header precedes the atomic header."""
    first = b"" if sync is None else SesExtSyncHeader.pack(*sync)
    if atomic is None:
        return first
    opcode, datatype, control, compare, swap = atomic
    if compare is None:
        return first + SesExtAtomicHeader.pack(opcode, datatype, control)
    return first + SesExtAtomicCasHeader.pack(datatype, control, compare, swap or 0, atomic_opcode=opcode)


# Responses (ses.md §9) -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SesResponse:
    """This class holds a SES response, with or without data. A field that the header does not have is 0."""

    list: int
    opcode: int
    return_code: int
    message_id: int
    """message_id of the request. RESPONSE_DATA has it in read_request_message_id, and RESPONSE_DATA_SMALL has none."""
    job_id: int
    modified_length: int
    ri_generation: int = 0
    payload_length: int = 0
    """Number of bytes of data in this packet."""
    message_offset: int = 0
    original_request_psn: int = 0
    response_message_id: int = 0
    size: int = 0
    """Size of the header in bytes, after which the data starts."""


def parse_ses_response(data: Buffer, next_hdr: int) -> SesResponse:
    """Parse the SES response at the start of `data`. Raises `RemoteError` if it is cut short or has another version."""
    if next_hdr == NextHdr.NONE or len(data) < SES_SIZE.get(next_hdr, 0):
        needed = SES_SIZE.get(next_hdr, SesResponseHeader.size) or SesResponseHeader.size
        raise RemoteError(
            f"cut short: {len(data)} bytes", 0, name="SES response", legal=f"{needed} bytes and more",
            id="malformed-packet"
        )  # fmt: skip
    if next_hdr == NextHdr.RESPONSE_DATA:
        full = SesResponseDataHeader.read(data)
        version = full.version
        answer = SesResponse(
            full.list, full.opcode, full.return_code, full.read_request_message_id, full.job_id, full.modified_length,
            full.ri_generation, full.payload_length, full.message_offset, 0, full.response_message_id, full.size,
        )  # fmt: skip
    elif next_hdr == NextHdr.RESPONSE_DATA_SMALL:
        small = SesResponseDataSmallHeader.read(data)
        version, length = small.version, small.payload_length
        answer = SesResponse(
            small.list, small.opcode, small.return_code, 0, small.job_id, length, 0, length, 0,
            small.original_request_psn, 0, small.size,
        )  # fmt: skip
    else:
        which, opcode, version, code, message_id, generation, job, length = SesResponseHeader.unpack(data)
        answer = SesResponse(which, opcode, code, message_id, job, length, generation, size=SesResponseHeader.size)
    if version != 0:
        raise RemoteError(version, ReturnCode.UNCOR, name="version", legal="0", id="malformed-packet")
    return answer


def build_response(
    opcode: int, return_code: int, message_id: int, job_id: int, modified_length: int,
    which: int = ResponseList.EXPECTED, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """Build a SES response without data, with `which` in its field `list` (ses.md §9.2)."""
    return SesResponseHeader.pack(which, opcode, 0, return_code, message_id, ri_generation, job_id, modified_length)


_OK_FRONT = build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, 0, 0, 0)[:2]
_OK_REST = Struct(">2sHII")
"""Layout of a response: its first two bytes, message_id, ri_generation with job_id, modified_length."""


def build_ok(message_id: int, job_id: int, modified_length: int, ri_generation: int = 0) -> bytes:
    """Build the default response with OK. The result is that of `build_response`, with less work for each message."""
    return _OK_REST.pack(_OK_FRONT, message_id, ri_generation << 24 | job_id, modified_length)


def build_response_data(
    message_id: int, job_id: int, payload_length: int, modified_length: int, message_offset: int,
    response_message_id: int = 0, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """Build the header of return data for a request with a standard header (ses.md §9.6)."""
    return SesResponseDataHeader.pack(
        list=ResponseList.EXPECTED, opcode=ResponseOpcode.RESPONSE_W_DATA, version=0, return_code=ReturnCode.OK,
        response_message_id=response_message_id, ri_generation=ri_generation, job_id=job_id,
        read_request_message_id=message_id, payload_length=payload_length, modified_length=modified_length,
        message_offset=message_offset,
    )  # fmt: skip


def build_response_data_small(job_id: int, payload_length: int, original_request_psn: int) -> bytes:
    """Build the header of return data for a request with a medium or small header (ses.md §9.6)."""
    return SesResponseDataSmallHeader.pack(
        list=ResponseList.EXPECTED, opcode=ResponseOpcode.RESPONSE_W_DATA, version=0, return_code=ReturnCode.OK,
        payload_length=payload_length, job_id=job_id, original_request_psn=original_request_psn,
    )  # fmt: skip
