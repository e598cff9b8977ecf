# SPDX-License-Identifier: GPL-2.0-only
"""A user's program with the schemas, which `mypy --strict` accepts; Construct itself has no types."""

from construct import ConstructError

from uetproto.schemas import SCHEMAS, UET


def psn_of(datagram: bytes) -> int | None:
    """Return the PSN of a UET request; None where there is none."""
    try:
        packet = UET.parse(datagram)
    except ConstructError:
        return None
    return int(packet.pds.psn) if packet.pds is not None and "psn" in packet.pds else None


def write(psn: int, data: bytes) -> bytes:
    """Return a WRITE that carries `data`."""
    built: bytes = UET.build({"pds": {"type": "RUD_REQ", "psn": psn}, "ses": {"opcode": "WRITE"}, "payload": data})
    return built


FORMS: list[str] = sorted(SCHEMAS)
