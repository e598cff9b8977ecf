# SPDX-License-Identifier: GPL-2.0-only
"""This module makes frames without any fault, for tests of the audit, and captures of them."""

import io
from collections.abc import Iterable, Sequence

from tests.support import paths
from uetproto import Layer, Packet, encode
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.wire.capture.pcap import ETHERNET, PcapWriter, open_capture
from uetproto.wire.packet import Trailer

GOLDEN = paths.PCAPS
CRC = Trailer("crc32c", 0)
ICRC = Trailer("icrc", 0)

MAC = Layer("ethernet", {"dst": 0x020000000002, "src": 0x020000000001, "type": 0x0800})
MAC_V6 = Layer("ethernet", {**MAC.values, "type": 0x86DD})
V4 = Layer("ipv4", {"ecn": 2, "df": 1, "ttl": 64, "protocol": 17, "src": 0x0A000001, "dst": 0x0A000002})
V6 = Layer("ipv6", {"ecn": 2, "next_header": 17, "hop_limit": 64, "src": 0xFE80 << 112 | 1, "dst": 0xFE80 << 112 | 2})
UDP = Layer("udp", {"sport": 0xC123, "dport": 4793})
ROCE_UDP = Layer("udp", {"sport": 0xC123, "dport": 4791})
ENTROPY = Layer("entropy", {"entropy": 0xC123})

REQUEST = Layer("pds.rud_req", {"next_hdr": 3, "clear_psn_offset": -1, "psn": 7, "spdcid": 1, "dpdcid": 2})
WRITE = Layer("ses.request_std.som", {"opcode": 1, "eom": 1, "message_id": 4, "request_length": 24})
FIRST = Layer("ses.request_std.som", {"opcode": 1, "eom": 0, "message_id": 4, "request_length": 48})
ACK = Layer("pds.ack", {"next_hdr": 4, "cack_psn": 7, "spdcid": 2, "dpdcid": 1})
RESPONSE = Layer("ses.response", {"opcode": 0, "return_code": 1, "message_id": 4})
SEALED = Layer("tss", {"sdi": 7, "tsc": 9})
BTH = Layer("bth", {"opcode": 0x0A, "p_key": 0xFFFF, "destqp": 18, "psn": 5})
RETH = Layer("reth", {"va": 0x1000, "r_key": 3, "dmalen": 24})
ROCE_ACK = (Layer("bth", {**BTH.values, "opcode": 0x11}), Layer("aeth", {"syndrome": 0x1F, "msn": 1}))


def changed(layer: Layer, **fields: int) -> Layer:
    """Return the header with some fields changed."""
    return Layer(layer.form, {**layer.values, **fields})


LOWER: dict[str, tuple[Layer, ...]] = {
    "ipv4": (MAC, V4, UDP),
    "ipv6": (MAC_V6, V6, UDP),
    "vlan": (changed(MAC, type=0x8100), Layer("vlan", {"vid": 5, "type": 0x0800}), V4, UDP),
    "two vlans, ipv6": (
        changed(MAC, type=0x88A8), Layer("vlan", {"type": 0x8100}), Layer("vlan", {"type": 0x86DD}), V6, UDP,
    ),
    "native": (MAC, changed(V4, protocol=253), ENTROPY),
    "native ipv6": (MAC_V6, changed(V6, next_header=253), ENTROPY),
    "no ethernet": (V4, UDP),
}  # fmt: skip


def frame(*layers: Layer, payload: bytes = bytes(24), trailer: Trailer | None = CRC, raw: bytes = b"") -> bytes:
    """Return the bytes of a frame with right lengths, checksums and CRC."""
    return encode(Packet(list(layers), payload=payload, trailer=trailer, raw=raw), fill=True)


def roce(*layers: Layer, payload: bytes = bytes(24)) -> bytes:
    """Return the frame of a RoCEv2 packet over IPv4."""
    return frame(MAC, V4, ROCE_UDP, *layers, payload=payload, trailer=ICRC)


def spoilt(data: bytes, at: int = -1) -> bytes:
    """Return the frame with one bit of the byte `at` flipped."""
    wrong = bytearray(data)
    wrong[at] ^= 1
    return bytes(wrong)


def capture(frames: Iterable[bytes], link: int = ETHERNET, lengths: Sequence[int] | None = None) -> io.BytesIO:
    """Return a pcap of the frames, a microsecond apart; `lengths` are the lengths on the wire."""
    file = io.BytesIO()
    with PcapWriter(file, link) as writer:
        for number, data in enumerate(frames):
            writer.write(number * 1_000, data, length=lengths[number] if lengths else None)
    file.seek(0)
    return file


def audited(frames: Iterable[bytes], **options: object) -> AuditReport:
    """Return the report of an audit of frames."""
    return audit([capture(frames)], Options(**options))  # type: ignore[arg-type]


def found(report: AuditReport) -> list[tuple[str, int]]:
    """Return, for each finding, the rule and the numbers of the packets that break it."""
    return [(finding.rule.id, finding.packet) for finding in report.findings]


def frames_of(name: str) -> list[bytes]:
    """Return the frames of a golden capture."""
    with open_capture(GOLDEN / name) as reader:
        return [record.data for record in reader]
