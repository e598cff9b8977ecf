"""A user's program with captures, which `mypy --strict` accepts."""

from typing import assert_type

import uetproto


def psns(path: str) -> list[int]:
    """Return the PSNs of the requests of ROD."""
    found = []
    for packet in uetproto.open(path):
        if "pds.rod_req" in packet:
            psn = packet["pds.rod_req"]["psn"]
            assert_type(psn, int)
            found.append(psn)
    return found


def slowest(path: str) -> tuple[str, int]:
    """Return the opcode and latency in ns of the slowest message."""
    messages = uetproto.open(path).messages
    slow = max((one for one in messages if one.latency is not None), key=lambda one: one.latency or 0)
    return slow.opcode, slow.latency or 0


def lines(path: str) -> list[str]:
    """Return a line for each packet."""
    return [f"{one.number} {one.time:%H:%M} {one.src} {one.dst} {one.protocol} {one.opcode} {one.psn}"
            for one in uetproto.open(path)]  # fmt: skip


def wrong(path: str) -> list[str]:
    """Return the rules that a capture breaks."""
    return [finding.rule.id for finding in uetproto.open(path).audit()]


def fields(frame: bytes) -> tuple[int, int]:
    """Return two fields of a frame: the types of both are known."""
    packet = uetproto.decode(frame)
    return packet["ipv4"]["src"], packet["pds.ack"]["cack_psn"]
