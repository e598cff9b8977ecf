"""This module describes RoCE packets in words, as in "RC_RDMA_WRITE_ONLY PSN 5 QP 18 a · 0x20000000 r_key 0x1234 5
bytes"."""

from uetproto import Packet
from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, BthOpcode, Nak, Operation, Transport, count_of, rnr_wait_us


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


def roce_summary(packet: Packet) -> str:
    """Return the summary of a RoCE packet in one line."""
    bth = packet["bth"]
    opcode = bth["opcode"]
    names = [code.name for code in BthOpcode if code == opcode]
    unknown = packet.error is not None and packet.error.kind == "unknown"
    words = [names[0] if names and not unknown else f"opcode 0x{opcode:02x}"]
    if opcode >> 5 != Transport.CNP:
        words.append(f"PSN {bth['psn']}")
    words.append(f"QP {bth['destqp']}")
    words += [name for name in ("se", "a", "fecn", "becn") if bth[name]]
    parts = [" ".join(words)]
    for form, values, _ in packet.layers:
        if form == "aeth":
            parts.append(f"{syndrome(values['syndrome'])} MSN {values['msn']}")
        elif form == "deth":
            parts.append(f"from QP {values['srcqp']} q_key 0x{values['q_key']:x}")
        elif form == "reth":
            parts.append(f"0x{values['va']:x} r_key 0x{values['r_key']:x} {values['dmalen']} bytes")
        elif form == "atomic_eth":
            operands = f"swap 0x{values['swapdt']:x} compare 0x{values['cmpdt']:x}"
            if opcode & 0x1F == Operation.FETCH_ADD:
                operands = f"add 0x{values['swapdt']:x}"
            parts.append(f"0x{values['va']:x} r_key 0x{values['r_key']:x} {operands}")
        elif form == "atomic_ack_eth":
            parts.append(f"was 0x{values['origremdt']:x}")
        elif form == "imm":
            parts.append(f"immediate 0x{values['immdt']:08x}")
        elif form == "ieth":
            parts.append(f"invalidates r_key 0x{values['r_key']:x}")
    if packet.error is not None:
        parts.append(packet.error.reason.removeprefix(f"{words[0]}: "))
    elif packet.payload and "reth" not in packet:
        parts.append(f"{len(packet.payload)} bytes")
    return " · ".join(parts)
