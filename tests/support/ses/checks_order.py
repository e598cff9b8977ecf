# SPDX-License-Identifier: GPL-2.0-only
"""This module drives a target with requests that have one or more faults, to test the order of its checks."""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.support.ses.headers import build_later, build_som
from uetproto.engine import Fep, Mode, Region, SesConfig
from uetproto.engine.pds.service import Response
from uetproto.engine.ses.headers import parse_ses_response
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import ReturnCode, Space

JOB, OTHER, MTU, KEY, SAFE = 101, 202, 1024, 0x0001000000000007, 1 << 63 | 9
C = ReturnCode


@dataclass(eq=False)
class Pdc:
    """This class has what a target knows of the connection."""

    mode: Mode = Mode.RUD
    peer: int = 1
    local_id: int = 5


@dataclass
class Target:
    """A target is an endpoint that is driven at the interface between PDS and SES."""

    knobs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fep = Fep(2, random.Random(0), ses=SesConfig(payload_mtu=MTU, **self.knobs))
        self.process = self.fep.attach(JOB)
        self.region = self.process.register(Region(KEY, bytearray(8 * MTU)))
        self.pdc = Pdc()
        self.psn = 0

    def ask(self, header: bytes, payload: bytes, next_hdr: int = NextHdr.REQUEST_STD) -> Any:
        """Return the return code, or the `Refusal`, or None without an answer."""
        self.psn += 1
        answer = self.fep.on_request(self.pdc, self.psn, next_hdr, header, 0, payload, 0)
        if isinstance(answer, Response):
            assert answer.final
            return ReturnCode(parse_ses_response(answer.header, answer.next_hdr).return_code)
        return answer

    def space(self, space: Space) -> Any:
        return self.process.spaces[space][15]


@dataclass
class Ask:
    """A request that is built: it is good, until faults are applied."""

    target: Target
    opcode: int
    som: int = 1
    eom: int = 1
    ie: int = 0
    hd: int = 0
    rel: int = 1
    message_id: int = 1
    version: int = 0
    job: int = JOB
    pid: int = 0
    index: int = 15
    offset: int = 0
    key: int = KEY
    generation: int = 0
    length: int = 8
    payload: bytes | None = None
    message_offset: int = 0
    extension: bytes = b""
    next_hdr: int = NextHdr.REQUEST_STD

    def send(self) -> Any:
        body = bytes(self.length if self.som else 0) if self.payload is None else self.payload
        address = (self.message_id, self.job, self.pid, self.index, self.offset, 16, self.key)
        if self.som:
            header = build_som(self.opcode, 0, self.ie, self.rel, self.hd, self.eom, *address, 0, self.length,
                               self.generation)  # fmt: skip
        else:
            header = build_later(self.opcode, 0, self.ie, self.rel, self.hd, self.eom, *address, len(body),
                                 self.message_offset, self.length, self.generation)  # fmt: skip
        if self.version:
            header = bytes((header[0], header[1] | self.version << 6)) + header[2:]
        return self.target.ask(header, self.extension + body, self.next_hdr)
