# SPDX-License-Identifier: GPL-2.0-only
"""This module makes one frame of a conversation wrong. An audit of the conversation finds the rule that is broken."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.testing.strategies.chance import DrawnChance
from uetproto.testing.strategies.packets import told
from uetproto.wire.capture.pcap import PcapWriter
from uetproto.wire.forms import ROCE_PORT
from uetproto.wire.mutate.frame import Mutation, open_frame
from uetproto.wire.mutate.mutation import NAMES, FrameHistory, mutate

_MICROSECOND_NS = 1000
_TRIES = 4
"""Number of frames on which a kind of damage is tried."""


class _FieldChange(NamedTuple):
    """A change of one field of one frame."""

    form: str
    """Beginning of the form of the header."""
    field: str
    change: Callable[[int], int]
    rule: str


_CHANGES = {
    "spdcid-zero":      _FieldChange("pds.r",    "spdcid",          lambda value: 0,         "PDS-SPDCID-ZERO"),
    "other-dpdcid":     _FieldChange("pds.",     "dpdcid",          lambda value: value ^ 1, "PDS-DPDCID"),
    "retx-missing":     _FieldChange("pds.r",    "retx",            lambda value: 0,         "PDS-RETX-MISSING"),
    "no-window":        _FieldChange("pds.ack",  "mpr",             lambda value: 0,         "PDS-MPR-ZERO"),
    "control-no-ar":    _FieldChange("pds.cp",   "ar",              lambda value: 0,         "PDS-CP-ACK"),
    "length-change":    _FieldChange("ses.",     "request_length",  lambda value: value ^ 1, "SES-LENGTH-CHANGE"),
    "offset-unaligned": _FieldChange("ses.",     "message_offset",  lambda value: value ^ 1, "SES-OFFSET-ALIGNED"),
    "eom-missing":      _FieldChange("ses.",     "eom",             lambda value: 0,         "SES-EOM-MISSING"),
    "eom-early":        _FieldChange("ses.",     "eom",             lambda value: 1,         "SES-EOM-EARLY"),
    "message-id-zero":  _FieldChange("ses.",     "message_id",      lambda value: 0,         "SES-MESSAGE-ID-ZERO"),
    "generation":       _FieldChange("ses.",     "ri_generation",   lambda value: value ^ 1, "SES-RMA-GENERATION"),
    "index-zero":       _FieldChange("ses.",     "resource_index",  lambda value: 0,         "SES-INDEX-ZERO"),
    "other-job":        _FieldChange("ses.resp", "job_id",          lambda value: value ^ 1, "SES-RESPONSE-WRONG-JOB"),
    "fragmentable":     _FieldChange("ipv4",     "df",              lambda value: 0,         "WIRE-DF"),
    "not-ecn-capable":  _FieldChange("ipv",      "ecn",             lambda value: 0,         "WIRE-ECN"),
}  # fmt: skip
"""FrameDamage to single fields, beside the mutations of `wire.mutate`."""
_KINDS = (*_CHANGES, *NAMES)


class FrameDamage(NamedTuple):
    """A damage is a wrong frame. It replaces the frame `number` of a list of frames."""

    number: int
    data: bytes
    rule: str
    what: str

    def among(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return a copy of `frames` in which the wrong frame is in its place."""
        return [*frames[: self.number], self.data, *frames[self.number + 1 :]]


kinds = st.sampled_from(range(len(_KINDS)))
"""Strategy for the kind of a damage, which is drawn before the frames."""


def spoil(draw: st.DrawFn, first: int, frames: Sequence[bytes]) -> FrameDamage:
    """Draw a damage to one of `frames`. The audit of the frames with this damage finds the rule that it breaks.

    `first` is the number of a kind of damage. If no frame can have this kind, the damage is of the next kind that a
    frame can have.
    """
    at = draw(st.integers(0, len(frames) - 1))
    for kind in (*_KINDS[first:], *_KINDS[:first]):
        for damage in _of_kind(kind, draw, frames, at):
            if damage.rule in rules_broken(damage.among(frames)):
                return damage
    raise AssertionError("every packet of UET can have a reserved bit that is set")


def _of_kind(kind: str, draw: st.DrawFn, frames: Sequence[bytes], at: int) -> Iterator[FrameDamage]:
    """Yield some frames with a kind of damage, from number `at` on."""
    left = _TRIES
    for index in (*range(at, len(frames)), *range(at)):
        found = _changed(kind, frames[index]) if kind in _CHANGES else _mutated(kind, draw, frames, index)
        if found is not None and found.rule is not None:
            yield FrameDamage(index, found.frame, found.rule, f"frame {index}: {told(found)}")
            left -= 1
            if not left:
                return


def _changed(kind: str, data: bytes) -> Mutation | None:
    change, frame = _CHANGES[kind], open_frame(data, "ethernet", ROCE_PORT)
    index = None if frame is None else frame.find(change.field, prefix=change.form)
    if frame is None or index is None:
        return None
    before = frame.value(index, change.field)
    after = change.change(before)
    return None if after == before else frame.changed(index, change.field, after)._replace(rule=change.rule)


def _mutated(kind: str, draw: st.DrawFn, frames: Sequence[bytes], index: int) -> Mutation | None:
    history = FrameHistory()
    for earlier in frames[:index]:
        history.note(earlier)
    return mutate(kind, frames[index], DrawnChance(draw), history)


def rules_broken(frames: Iterable[bytes]) -> set[str]:
    """Return the ids of the rules that `frames` break. For the audit, the frames are one microsecond apart."""
    file = io.BytesIO()
    with PcapWriter(file) as writer:
        for number, data in enumerate(frames):
            writer.write(number * _MICROSECOND_NS, data)
    file.seek(0)
    return {finding.rule.id for finding in audit([file], Options()).findings}
