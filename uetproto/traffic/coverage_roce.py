# SPDX-License-Identifier: GPL-2.0-only
"""This module counts what occurs in traffic of RoCE: forms, opcodes, syndromes, and statuses of completions."""

from collections.abc import Iterable

from uetproto.engine.roce.contract import QpType, Status
from uetproto.engine.roce.segments import STEPS
from uetproto.traffic.coverage import Coverage, name_of
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.wire.forms import ROCE_FORMS
from uetproto.wire.headers.roce import OPERATIONS, RESPONSES, SEQUENCES, BthOpcode, Nak, Transport, opcode_of
from uetproto.wire.stack import decode

ACK, RNR_NAK = "ACK", "RNR NAK"
_TYPES = {0: ACK, 1: RNR_NAK}
"""Names of syndromes by their first two bits (roce.md §2.1); other values of the bits are NAKs, or reserved."""


def opcodes_of(transports: Iterable[QpType]) -> set[int]:
    """Return the opcodes that queue pairs of these types send: those of roce.md §3, without the additions of InfiniBand
    1.5."""
    return {
        opcode_of(Transport(kind), operation)
        for kind in transports
        for operation, form in OPERATIONS.items()
        if Transport(kind) in form.transports and (operation in STEPS or operation in RESPONSES)
    }


def syndrome_name(syndrome: int) -> str:
    """Return the name of the syndrome of an AETH: ACK, RNR NAK, or the name of the NAK."""
    return _TYPES.get(syndrome >> 5 & 3) or name_of(Nak, syndrome & 0x7F)


def _possible(transports: Iterable[QpType]) -> dict[str, int]:
    opcodes = opcodes_of(transports)
    forms = {"bth"} | {header.name for opcode in opcodes for header in SEQUENCES[opcode]}
    syndromes = {"syndromes": len(_TYPES) + len(Nak)} if "aeth" in forms else {}
    statuses = dict.fromkeys(("sends", "receives"), len(Status))
    return {"forms": len(forms), "opcodes": len(opcodes), **syndromes, **statuses}


class RoceCoverage(Coverage):
    """This class counts what the transports of a profile send. The statuses of sends and receives are counted by the
    applications.
    """

    def __init__(self, profile: RoceProfile) -> None:
        super().__init__(_possible(profile.transports))
        self._port = profile.roce_port

    def note(self, frame: bytes) -> None:
        counts = self.counts
        for form, values, _ in decode(frame, roce_port=self._port).layers:
            if form not in ROCE_FORMS:
                continue
            counts["forms"][form] += 1
            if form == "bth":
                counts["opcodes"][name_of(BthOpcode, values["opcode"])] += 1
            elif form == "aeth":
                counts["syndromes"][syndrome_name(values["syndrome"])] += 1
