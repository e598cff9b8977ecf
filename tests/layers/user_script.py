"""A user's program with the layers, which `mypy --strict` accepts; Scapy itself is not followed for types."""

from collections.abc import Iterable

from scapy.layers.inet import IP, UDP
from scapy.packet import Packet

from uetproto.errors import LocalError
from uetproto.layers import LayerError, PdcSession, PdsRudReq, SesRequestStdSom, UetPackets, uet_message, uet_reply


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
