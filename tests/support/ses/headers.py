# SPDX-License-Identifier: GPL-2.0-only
"""This module builds headers of SES requests that a test sends itself, from the values of their fields (ses.md §3,
§4)."""

from uetproto.wire.tuples import (
    SesRequestMediumHeader,
    SesRequestSmallHeader,
    SesRequestStdHeader,
    SesRequestStdSomHeader,
)


def build_som(
    opcode: int, dc: int, ie: int, rel: int, hd: int, eom: int, message_id: int, job_id: int, pid_on_fep: int,
    resource_index: int, buffer_offset: int, initiator: int, key: int, header_data: int, request_length: int,
    ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """Build the header of the first packet of a message, in the standard form (ses.md §8.2)."""
    return SesRequestStdSomHeader.pack(
        opcode, 0, dc, ie, rel, hd, eom, message_id, ri_generation, job_id, pid_on_fep, resource_index,
        buffer_offset, initiator, key, header_data, request_length,
    )  # fmt: skip


def build_later(
    opcode: int, dc: int, ie: int, rel: int, hd: int, eom: int, message_id: int, job_id: int, pid_on_fep: int,
    resource_index: int, buffer_offset: int, initiator: int, key: int, payload_length: int, message_offset: int,
    request_length: int, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """Build the header of a later packet of a message, in the standard form."""
    return SesRequestStdHeader.pack(
        opcode, 0, dc, ie, rel, hd, eom, message_id, ri_generation, job_id, pid_on_fep, resource_index,
        buffer_offset, initiator, key, payload_length, message_offset, request_length,
    )  # fmt: skip


def build_medium(
    opcode: int, dc: int, rel: int, job_id: int, pid_on_fep: int, resource_index: int, buffer_offset: int,
    initiator: int, key: int, header_data: int | None, request_length: int, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """Build the medium header of a message of one packet: `header_data` or buffer_offset, not both (ses.md §4.1)."""
    hd = header_data is not None
    shared = buffer_offset if header_data is None else header_data
    return SesRequestMediumHeader.pack(
        opcode, 0, dc, 0, rel, 1, 1, request_length, ri_generation, job_id, pid_on_fep, resource_index,
        shared, initiator, key, hd=hd,
    )  # fmt: skip


def build_small(
    opcode: int, dc: int, rel: int, job_id: int, pid_on_fep: int, resource_index: int, buffer_offset: int,
    request_length: int, ri_generation: int = 0,
) -> bytes:  # fmt: skip
    """Build the small header of a message of one packet; on RMA with the index of the key (ses.md §4.1)."""
    return SesRequestSmallHeader.pack(
        opcode=opcode, version=0, dc=dc, ie=0, rel=rel, hd=0, eom=1, som=1, request_length=request_length,
        ri_generation=ri_generation, job_id=job_id, pid_on_fep=pid_on_fep, resource_index=resource_index,
        buffer_offset=buffer_offset,
    )  # fmt: skip
