# SPDX-License-Identifier: GPL-2.0-only
"""This module makes frames and captures by hand, and runs the command in this process or in another one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from uetproto import Layer, Packet, Trailer, encode
from uetproto.cli.main import cli
from uetproto.wire.capture.pcap import open_writer
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.ethernet import internet_checksum


def layer(form: str, **values: int) -> Layer:
    """Return a header whose other fields are 0, or what its form allows."""
    return Layer(form, {field.name: field.default for field in FORMS[form].fields} | values)


def frame(src: int, dst: int, *layers: Layer, payload: bytes = b"", dscp: int = 8, crc: bool = True) -> bytes:
    """Return a UET frame from 10.0.0.src to 10.0.0.dst."""
    below = [
        layer("ethernet", dst=0x02000A000000 + dst, src=0x02000A000000 + src, type=0x0800),
        layer("ipv4", dscp=dscp, ecn=2, df=1, ttl=64, protocol=17, src=0x0A000000 + src, dst=0x0A000000 + dst),
        layer("udp", sport=0xC000, dport=4793),
    ]
    trailer = Trailer("crc32c", 0) if crc else None
    return encode(Packet([*below, *layers], payload, trailer), fill=True)


def write(psn: int, offset: int, total: int = 12288, size: int = 1024, **flags: int) -> list[Layer]:
    """Return the headers of one packet of a WRITE; PSN 73728 starts the PDC."""
    form, tail = "pds.rod_req", {"dpdcid": 9}
    if flags.get("syn"):
        form, tail = "pds.rod_req.syn", {"psn_offset": psn - 73728}
    last = int(offset + size >= total)
    ses = layer("ses.request_std.som", som=1, opcode=1, rel=1, eom=last, message_id=1, job_id=101, request_length=total)
    if offset:
        values = {"payload_length": size, "message_offset": offset, "request_length": total}
        ses = layer("ses.request_std", opcode=1, rel=1, eom=last, message_id=1, job_id=101, **values)
    return [Layer(form, dict(next_hdr=3, clear_psn_offset=-1, psn=psn, spdcid=5, **flags, **tail)), ses]


def ack(psn: int, **values: int) -> list[Layer]:
    response = layer("ses.response", return_code=1, message_id=1, job_id=101, modified_length=12288)
    return [Layer("pds.ack", dict(next_hdr=4, cack_psn=psn, spdcid=9, dpdcid=5, **values)), response]


def nack(psn: int, expected: int) -> Layer:
    return layer("pds.nack", nack_code=0x0D, nack_psn=psn, nack_payload=expected, spdcid=9, dpdcid=5)


def close(psn: int) -> Layer:
    return layer("pds.cp", ctl_type=4, isrod=1, ar=1, psn=psn, spdcid=5, dpdcid=9)


def trimmed(data: bytes, keep: int) -> bytes:
    """Return a frame as a switch trims it: `keep` bytes, another DSCP, the right IP length."""
    ip = bytearray(data[14:34])
    ip[1] = 16 << 2 | ip[1] & 3
    ip[2:4] = (keep - 14).to_bytes(2, "big")
    ip[10:12] = bytes(2)
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2, "big")
    return data[:14] + bytes(ip) + data[34:keep]


ARP = bytes(12) + b"\x08\x06" + bytes(46)


def capture(path: Path, frames: list[bytes], step_ns: int = 1000, **extra: Any) -> str:
    with open_writer(path) as writer:
        for number, data in enumerate(frames):
            writer.write(number * step_ns, data, **extra)
    return str(path)


def invoke(*arguments: str, data: bytes | None = None) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, list(arguments), input=data, catch_exceptions=False)


@contextmanager
def program(*arguments: str, env: dict[str, str] | None = None, **popen: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the command in a process of its own, which ends with the context; its output is collected."""
    defaults = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "uetproto", *arguments]
    with subprocess.Popen(command, env={**os.environ, **(env or {})}, **{**defaults, **popen}) as process:
        try:
            yield process
        finally:
            process.kill()
