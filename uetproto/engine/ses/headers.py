"""Headers of SES as values: requests of every form with their extensions, and responses.

`parse_*` read bytes from outside and refuse with `RemoteError`, whose `code` is the return code to answer; `build_*`
make bytes of values that the engine knows to be legal. Reserved fields are sent as zero and ignored on receipt.
UE 1.0.1 §3.4.2; ses.md §3, §4, §9.
"""

from dataclasses import dataclass
from typing import NamedTuple

from uetproto.engine.contract import Buffer
from uetproto.engine.pds.service import SES_SIZE
from uetproto.errors import RemoteError
from uetproto.wire.codec import codec_of
from uetproto.wire.headers import uet_ses
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import (
    COMPARE_AND_SWAPS,
    OPCODE_PROFILES,
    Extension,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)

OPTIMIZED_KEY = 1 << 62
"""Bit OPTIMIZED of a memory key: its lowest 12 bits are the index of the small header (ses.md §2.6)."""

_std_som = codec_of(uet_ses.REQUEST_STD_SOM)
_std = codec_of(uet_ses.REQUEST_STD)
_medium = codec_of(uet_ses.REQUEST_MEDIUM)
_small = codec_of(uet_ses.REQUEST_SMALL)
_atomic = codec_of(uet_ses.EXT_ATOMIC)
_cas = codec_of(uet_ses.EXT_ATOMIC_CAS)
_rendezvous = codec_of(uet_ses.EXT_RENDEZVOUS)
_sync = codec_of(uet_ses.EXT_SYNC)
_response = codec_of(uet_ses.RESPONSE)
_data = codec_of(uet_ses.RESPONSE_DATA)
_data_small = codec_of(uet_ses.RESPONSE_DATA_SMALL)

# Requests ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SesRequest:
    """A SES request of any form (ses.md §3); a field that the form does not have is 0, `message_id` None."""

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
    """In deferrable sends the two restart tokens are in its place: `tokens`."""
    initiator: int
    key: int
    """memory_key, match_bits or, in a DEFERRABLE_RTR, two tokens: `rtr_tokens`."""
    header_data: int
    payload_length: int | None
    """Explicit length of a packet with som = 0; None: implied."""
    message_offset: int
    request_length: int

    @property
    def tokens(self) -> tuple[int, int]:
        """{initiator_restart_token, target_restart_token} of a deferrable send (ses.md §5.7)."""
        return self.buffer_offset >> 32, self.buffer_offset & 0xFFFFFFFF

    @property
    def rtr_tokens(self) -> tuple[int, int]:
        """{sender_token, receiver_token} of a DEFERRABLE_RTR (ses.md §5.8)."""
        return self.key >> 32, self.key & 0xFFFFFFFF


def parse_ses_request(data: Buffer, at: int, next_hdr: int) -> SesRequest:
    """The SES request header at byte `at`, which PDS found complete.

    Any opcode is read with the form `request_*`: all forms agree in size and in what is used before the opcode is
    judged (wire.md §0). Raises `RemoteError` when `next_hdr` is not a request.
    """
    if next_hdr == NextHdr.REQUEST_STD:
        # A restart is laid out as a first packet whatever som says.
        if data[at + 1] & 1 or data[at] & 0x3F == Opcode.DEFERRABLE_RTR:
            (_, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, _, pid, _, index,
             offset, initiator, key, header_data, length) = _std_som.unpack(data, at)  # fmt: skip
            return SesRequest(
                next_hdr, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, pid, index,
                offset, initiator, key, header_data, None, 0, length,
            )  # fmt: skip
        (_, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, _, pid, _, index,
         offset, initiator, key, _, payload_length, message_offset, length) = _std.unpack(data, at)  # fmt: skip
        return SesRequest(
            next_hdr, opcode, version, dc, ie, rel, hd, eom, som, message_id, generation, job, pid, index,
            offset, initiator, key, 0, payload_length, message_offset, length,
        )  # fmt: skip
    if next_hdr == NextHdr.REQUEST_MEDIUM:
        (_, opcode, version, dc, ie, rel, hd, eom, som, _, length, generation, job, _, pid, _, index,
         shared, initiator, key) = _medium.unpack(data, at)  # fmt: skip
        offset, header_data = (0, shared) if hd else (shared, 0)
        return SesRequest(
            next_hdr, opcode, version, dc, ie, rel, hd, eom, som, None, generation, job, pid, index,
            offset, initiator, key, header_data, None, 0, length,
        )  # fmt: skip
    if next_hdr == NextHdr.REQUEST_SMALL:
        (_, opcode, version, dc, ie, rel, hd, eom, som, _, length, generation, job, _, pid, _, index,
         offset) = _small.unpack(data, at)  # fmt: skip
        return SesRequest(
            next_hdr, opcode, version, dc, ie, rel, hd, eom, som, None, generation, job, pid, index,
            offset, 0, OPTIMIZED_KEY | index, 0, None, 0, length,
        )  # fmt: skip
    raise RemoteError(f"next_hdr {next_hdr} is not a request", ReturnCode.OP_VIOLATION)


def build_som(
    opcode: int, dc: int, ie: int, rel: int, hd: int, eom: int, message_id: int, job_id: int, pid_on_fep: int,
    resource_index: int, buffer_offset: int, initiator: int, key: int, header_data: int, request_length: int,
    ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """First packet of a message, standard header (ses.md §8.2)."""
    return _std_som.pack(
        0, opcode, 0, dc, ie, rel, hd, eom, 1, message_id, ri_generation, job_id, 0, pid_on_fep, 0, resource_index,
        buffer_offset, initiator, key, header_data, request_length,
    )  # fmt: skip


def build_later(
    opcode: int, dc: int, ie: int, rel: int, hd: int, eom: int, message_id: int, job_id: int, pid_on_fep: int,
    resource_index: int, buffer_offset: int, initiator: int, key: int, payload_length: int, message_offset: int,
    request_length: int, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """A later packet of a message, standard header."""
    return _std.pack(
        0, opcode, 0, dc, ie, rel, hd, eom, 0, message_id, ri_generation, job_id, 0, pid_on_fep, 0, resource_index,
        buffer_offset, initiator, key, 0, payload_length, message_offset, request_length,
    )  # fmt: skip


def build_medium(
    opcode: int, dc: int, rel: int, job_id: int, pid_on_fep: int, resource_index: int, buffer_offset: int,
    initiator: int, key: int, header_data: int | None, request_length: int, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """A message of one packet, medium header: `header_data` or buffer_offset, not both (ses.md §4.1)."""
    hd = header_data is not None
    shared = buffer_offset if header_data is None else header_data
    return _medium.pack(
        0, opcode, 0, dc, 0, rel, hd, 1, 1, 0, request_length, ri_generation, job_id, 0, pid_on_fep, 0, resource_index,
        shared, initiator, key,
    )  # fmt: skip


def build_small(
    opcode: int, dc: int, rel: int, job_id: int, pid_on_fep: int, resource_index: int, buffer_offset: int,
    request_length: int, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """A message of one packet, small header; of RMA `resource_index` is the index of the key (ses.md §4.1)."""
    return _small.pack(
        0, opcode, 0, dc, 0, rel, 0, 1, 1, 0, request_length, ri_generation, job_id, 0, pid_on_fep, 0, resource_index,
        buffer_offset,
    )  # fmt: skip


# Extensions (ses.md §4.2) --------------------------------------------------------------------------------------------


class Atomic(NamedTuple):
    """What an atomic request asks for (ses.md §6); `compare`, `swap`: right-aligned 128 bits, None without CAS."""

    opcode: int
    datatype: int
    control: int
    compare: int | None = None
    swap: int | None = None


class Rendezvous(NamedTuple):
    """Where the target reads what was not sent (ses.md §5.9)."""

    eager_length: int
    ri_generation: int
    pid_on_fep: int
    resource_index: int
    read_offset: int
    read_memory_key: int


class Sync(NamedTuple):
    """Sync group (ses.md §5.14); `total`, the field count: 0 in its writes, the number of messages in its end."""

    group: int
    total: int


class Extensions(NamedTuple):
    """The extension headers of a request, and how many bytes they have."""

    atomic: Atomic | None = None
    rendezvous: Rendezvous | None = None
    sync: Sync | None = None
    size: int = 0


_NO_EXTENSIONS = Extensions()


def parse_extensions(opcode: int, data: Buffer) -> Extensions:
    """The extension headers at the start of `data`, what follows the request header of `opcode`.

    Raises `RemoteError` with OP_VIOLATION when they are cut short (ses.md §10 step 4).
    """
    row = OPCODE_PROFILES.get(opcode)  # type: ignore[call-overload]
    if row is None or row.extension is Extension.NONE:
        return _NO_EXTENSIONS
    sync = atomic = None
    size = 0
    if row.extension is Extension.RENDEZVOUS:
        _need(data, _rendezvous.size)
        return Extensions(rendezvous=Rendezvous(*_rendezvous.unpack(data)), size=_rendezvous.size)
    if row.extension in (Extension.SYNC, Extension.SYNC_ATOMIC):
        _need(data, _sync.size)
        sync = Sync(*_sync.unpack(data))
        size = _sync.size
    if row.extension in (Extension.ATOMIC, Extension.SYNC_ATOMIC):
        _need(data, size + _atomic.size)
        operation, datatype, control, _ = _atomic.unpack(data, size)
        if operation in COMPARE_AND_SWAPS:
            _need(data, size + _cas.size)
            *_, compare, swap = _cas.unpack(data, size)
            atomic = Atomic(operation, datatype, control, compare, swap)
            size += _cas.size
        else:
            atomic = Atomic(operation, datatype, control)
            size += _atomic.size
    return Extensions(atomic, None, sync, size)


def _need(data: Buffer, size: int) -> None:
    if len(data) < size:
        raise RemoteError(f"extension cut short: {len(data)} of {size} bytes", ReturnCode.OP_VIOLATION)


def build_extensions(
    *, atomic: Atomic | None = None, rendezvous: Rendezvous | None = None, sync: Sync | None = None
) -> bytes:
    """Extension headers in the order of the wire: sync before atomic."""
    parts = []
    if sync is not None:
        parts.append(_sync.pack(*sync))
    if rendezvous is not None:
        parts.append(_rendezvous.pack(*rendezvous))
    if atomic is not None:
        front = (atomic.opcode, atomic.datatype, atomic.control, 0)
        if atomic.compare is None:
            parts.append(_atomic.pack(*front))
        else:
            parts.append(_cas.pack(*front, atomic.compare, atomic.swap or 0))
    return b"".join(parts)


# Responses (ses.md §9) -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SesResponse:
    """A SES response of any form; a field that the form does not have is 0."""

    list: int
    opcode: int
    return_code: int
    message_id: int
    """Of the request. RESPONSE_DATA: read_request_message_id; RESPONSE_DATA_SMALL has none."""
    job_id: int
    modified_length: int
    ri_generation: int = 0
    payload_length: int = 0
    """Of data: bytes of this packet."""
    message_offset: int = 0
    original_request_psn: int = 0
    response_message_id: int = 0
    size: int = 0
    """Of the header: the data follows it."""


def parse_ses_response(data: Buffer, next_hdr: int) -> SesResponse:
    """The SES response at the start of `data`. Raises `RemoteError` for a short one, or another version."""
    if next_hdr == NextHdr.NONE or len(data) < SES_SIZE.get(next_hdr, 0):
        raise RemoteError("SES response cut short", 0)
    if next_hdr == NextHdr.RESPONSE_DATA:
        (which, opcode, version, code, response_id, generation, job, message_id, _, size, length, offset
         ) = _data.unpack(data)  # fmt: skip
        answer = SesResponse(
            which, opcode, code, message_id, job, length, generation, size, offset, 0, response_id, _data.size
        )
    elif next_hdr == NextHdr.RESPONSE_DATA_SMALL:
        which, opcode, version, code, _, size, _, job, psn = _data_small.unpack(data)
        answer = SesResponse(which, opcode, code, 0, job, size, 0, size, 0, psn, 0, _data_small.size)
    else:
        which, opcode, version, code, message_id, generation, job, length = _response.unpack(data)
        answer = SesResponse(which, opcode, code, message_id, job, length, generation, size=_response.size)
    if version != 0:
        raise RemoteError(f"SES version {version}", ReturnCode.UNCOR)
    return answer


def build_response(
    opcode: int, return_code: int, message_id: int, job_id: int, modified_length: int,
    which: int = ResponseList.EXPECTED, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """A SES response without data (ses.md §9.2)."""
    return _response.pack(which, opcode, 0, return_code, message_id, ri_generation, job_id, modified_length)


def build_response_data(
    message_id: int, job_id: int, payload_length: int, modified_length: int, message_offset: int,
    response_message_id: int = 0, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """Header of data that answers a request with a standard header (ses.md §9.6)."""
    return _data.pack(
        ResponseList.EXPECTED, ResponseOpcode.RESPONSE_W_DATA, 0, ReturnCode.OK, response_message_id, ri_generation,
        job_id, message_id, 0, payload_length, modified_length, message_offset,
    )  # fmt: skip


def build_response_data_small(job_id: int, payload_length: int, original_request_psn: int) -> bytes:
    """Header of data that answers a medium or small request (ses.md §9.6)."""
    return _data_small.pack(
        ResponseList.EXPECTED, ResponseOpcode.RESPONSE_W_DATA, 0, ReturnCode.OK, 0, payload_length, 0, job_id,
        original_request_psn,
    )  # fmt: skip
