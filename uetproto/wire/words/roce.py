# SPDX-License-Identifier: GPL-2.0-only
"""This module describes RoCE packets in words, as in "RC_RDMA_WRITE_ONLY PSN 5 QP 18 a · 0x20000000 r_key 0x1234 5
bytes"."""

from collections.abc import Mapping
from typing import Any

from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, BthOpcode, Nak, Operation, Transport, count_of, rnr_wait_us
from uetproto.wire.packet import Packet

Values = Mapping[str, Any]


def syndrome(value: int) -> str:
    """Return the syndrome of an AETH in words (roce.md §2.1)."""
    kind, low = value >> 5 & 3, value & 0x1F
    if kind == 0:
        return "ACK" if low == NO_CREDIT_LIMIT else f"ACK {count_of(low)} credits"
    if kind == 1:
        return f"RNR NAK wait {rnr_wait_us(low) / 1000:g} ms"
    if kind == 3 and value & 0x7F in list(Nak):
        return f"NAK {Nak(value & 0x7F).name}"
    return f"reserved syndrome 0x{value:02x}"


def roce_tone(packet: Packet) -> str:
    """Return the category of a RoCE packet, which decides its colour as in `summary.tone`: nack, ack, control or
    data."""
    if "aeth" in packet and packet["aeth"]["syndrome"] & 0x60:
        return "nack"
    opcode = packet["bth"]["opcode"]
    if opcode >> 5 == Transport.CNP:
        return "control"
    return "ack" if opcode & 0x1F in (Operation.ACKNOWLEDGE, Operation.ATOMIC_ACKNOWLEDGE) else "data"


def bth_words(bth: Values, known: bool = True) -> str:
    """Return a BTH in words. If `known` is False, the opcode is shown as a number, because it does not say what
    follows."""
    opcode = bth["opcode"]
    words = [_opcode(opcode, known)]
    if opcode >> 5 != Transport.CNP:
        words.append(f"PSN {bth['psn']}")
    words.append(f"QP {bth['destqp']}")
    words += [name for name in ("se", "a", "fecn", "becn") if bth[name]]
    return " ".join(words)


def _opcode(opcode: int, known: bool) -> str:
    return BthOpcode(opcode).name if known and opcode in list(BthOpcode) else f"opcode 0x{opcode:02x}"


def extension_words(form: str, values: Values, opcode: int) -> str:
    """Return a header behind the BTH in words. The text is empty if there are no words for this header."""
    if form == "aeth":
        return f"{syndrome(values['syndrome'])} MSN {values['msn']}"
    if form == "deth":
        return f"from QP {values['srcqp']} q_key 0x{values['q_key']:x}"
    if form == "reth":
        return f"0x{values['va']:x} r_key 0x{values['r_key']:x} {values['dmalen']} bytes"
    if form == "atomic_eth":
        operands = f"swap 0x{values['swapdt']:x} compare 0x{values['cmpdt']:x}"
        if opcode & 0x1F == Operation.FETCH_ADD:
            operands = f"add 0x{values['swapdt']:x}"
        return f"0x{values['va']:x} r_key 0x{values['r_key']:x} {operands}"
    if form == "atomic_ack_eth":
        return f"was 0x{values['origremdt']:x}"
    if form == "imm":
        return f"immediate 0x{values['immdt']:08x}"
    return f"invalidates r_key 0x{values['r_key']:x}" if form == "ieth" else ""


def roce_summary(packet: Packet) -> str:
    """Return the summary of a RoCE packet in one line."""
    bth, error = packet["bth"], packet.error
    known = error is None or error.kind != "unknown"
    parts = [bth_words(bth, known)]
    parts += filter(None, (extension_words(form, values, bth["opcode"]) for form, values, _ in packet.layers))
    if error is not None:
        parts.append(error.reason.removeprefix(f"{_opcode(bth['opcode'], known)}: "))
    elif packet.payload and "reth" not in packet:
        parts.append(f"{len(packet.payload)} bytes")
    return " · ".join(parts)
