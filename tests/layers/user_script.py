# SPDX-License-Identifier: GPL-2.0-only
"""A user's program with the layers, which `mypy --strict` accepts; Scapy itself is not followed for types."""

from collections.abc import Iterable

from scapy.layers.inet import IP, UDP
from scapy.packet import Packet

from uetproto.errors import LocalError
from uetproto.layers import (
    Grh,
    LayerError,
    PdcSession,
    PdsNack,
    PdsRudReq,
    Reth,
    SesRequestStdSom,
    UetPackets,
    uet_message,
    uet_reply,
)


def write(dst: str, data: bytes, key: int) -> UetPackets:
    """Return the packets of a WRITE."""
    packets: UetPackets = IP(dst=dst) / UDP() / uet_message("WRITE", data, mode="rod", memory_key=key)
    return packets


def one_packet(psn: int) -> Packet:
    """Return a packet that is made layer by layer."""
    return IP() / UDP() / PdsRudReq(psn=psn) / SesRequestStdSom(opcode="WRITE") / b"data"


def read_back(data: bytes) -> bytes:
    """Return what a READ reads whose target answers with `data`."""
    read = uet_message("READ", len(data))
    answers = uet_reply(read, data, every=True)
    joined = PdcSession(max_messages=8).join(IP(bytes(packet)) for packet in _over_ip(read, answers))
    return bytes(joined[0])


def _over_ip(read: Iterable[Packet], answers: Iterable[Packet]) -> list[Packet]:
    there, back = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(), IP(src="10.0.0.2", dst="10.0.0.1") / UDP()
    return [there / packet for packet in read] + [back / packet for packet in answers]


def refusal(opcode: str, mode: str) -> LocalError | None:
    """Return why an opcode cannot be sent in a mode; None if it can."""
    try:
        uet_message(opcode, mode=mode)
    except LayerError as error:
        return error
    return None


def psns(packet: PdsRudReq) -> tuple[int, int]:
    """Return the PSN of a packet before and after it was set."""
    before: int = packet.psn
    packet.psn = 8
    return before, packet.psn


def several() -> list[PdsNack | Grh]:
    """Return layers whose fields are set by names, addresses, and several values."""
    return [PdsNack(nack_code=["TRIMMED", 4], nack_psn=(1, 3)), Grh(sgid="fe80::1", flowlabel=None)]


def mistakes() -> list[str]:
    """Return the errors of wrong names and values; a type checker finds them, too, else the comments were unused."""
    errors = []
    for mistake in (
        lambda: PdsRudReq(psm=7),  # type: ignore[call-arg]
        lambda: Reth(dma_len=5),  # type: ignore[call-arg]
        lambda: Grh(flowlabel="one"),  # type: ignore[arg-type]
        lambda: wrong_type(PdsRudReq()),
    ):
        try:
            mistake()
        except (AttributeError, LocalError) as error:
            errors.append(str(error))
    return errors


def wrong_type(packet: PdsRudReq) -> None:
    """Set a PSN to a text."""
    packet.psn = "one"  # type: ignore[assignment]
