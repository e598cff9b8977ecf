# SPDX-License-Identifier: GPL-2.0-only
"""This module counts what occurs in traffic of UET, also in sealed packets: header forms, opcodes, codes, atomics."""

from enum import IntEnum

from uetproto.engine.ses.atomics import LEGAL
from uetproto.engine.tss.opener import Opened, Opener
from uetproto.traffic.coverage import Coverage, name_of
from uetproto.traffic.profile_uet import UetProfile
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.headers.uet_pds import CtlType, NackCode
from uetproto.wire.headers.uet_ses import (
    OPCODE_PROFILES,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ResponseOpcode,
    ReturnCode,
)
from uetproto.wire.packet import Layer
from uetproto.wire.stack import decode

CODES: dict[str, tuple[str, type[IntEnum]]] = {
    # kind       field          its codes
    "requests":  ("opcode",      Opcode),
    "responses": ("opcode",      ResponseOpcode),
    "returns":   ("return_code", ReturnCode),
    "nacks":     ("nack_code",   NackCode),
    "controls":  ("ctl_type",    CtlType),
}  # fmt: skip
"""Header fields whose codes are counted, by kind. Header forms and atomic operations are counted, too."""

POSSIBLE: dict[str, int] = {
    "forms": len(UET_FORMS),
    **{kind: len(codes) for kind, (_, codes) in CODES.items()},
    "requests": len(OPCODE_PROFILES),
    "atomics": sum(map(len, LEGAL.values())),
}
"""Number of possible names of each kind. A name of "atomics" is a legal pair of AMO and datatype (ses.md §6)."""


class UetCoverage(Coverage):
    """This class counts the header forms, opcodes and other codes that UET endpoints send."""

    def __init__(self, profile: UetProfile) -> None:
        super().__init__(POSSIBLE)
        self._opener = None if profile.security is None else Opener(profile.security.ring())

    def _layers(self, frame: bytes) -> list[Layer]:
        packet = decode(frame)
        tried = None if self._opener is None else self._opener.open(frame, packet)
        if not isinstance(tried, Opened):
            return packet.layers
        lower = len(packet.layers) - 1
        return packet.layers + decode(tried.plain_frame).layers[lower:]

    def note(self, frame: bytes) -> None:
        counts = self.counts
        for form, values, _ in self._layers(frame):
            if form not in UET_FORMS:
                continue
            counts["forms"][form] += 1
            for kind, (field, codes) in CODES.items():
                if field in values and FORMS[form][field].values is codes:
                    counts[kind][name_of(codes, values[field])] += 1
            if "atomic_opcode" in values:
                amo, datatype = values["atomic_opcode"], values["atomic_datatype"]
                counts["atomics"][f"{name_of(AtomicOpcode, amo)} {name_of(AtomicDatatype, datatype)}"] += 1
