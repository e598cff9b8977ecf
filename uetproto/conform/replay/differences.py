# SPDX-License-Identifier: GPL-2.0-only
"""This module aligns the answers of a live peer with those of a capture, and says where they differ.

PSNs are compared by their distance from the first PSN of their PDC, and PDCIDs not at all, as they are others each
time.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.conform.expressions import named
from uetproto.conform.packets import AnswerPacket
from uetproto.wire.fields import Field
from uetproto.wire.headers.uet_pds import CONTROLS, AckReq, CpPayload, NackCode, NextHdr
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode

MOST_WAITING = 4096
"""Number of answers of each side that wait for their counterpart; then the oldest one counts as missing, or extra."""
_PSNS = ("psn", "cack_psn", "ack_psn", "nack_psn", "clear_psn", "expected_psn", "original_request_psn")
_PAYLOAD_IS_PSN = (NackCode.ROD_OOO, NackCode.NEW_START_PSN)
_NOT_COMPARED = frozenset((
    "spdcid", "dpdcid", "pdc_info", "ack_psn_offset", "clear_psn_offset", "psn_offset",  # others each time, or derived
    "service_time", "restore_cwnd", "rcv_cwnd_pend", "rcvd_bytes", "ooo_count", "credit", "ack_cc_state",
    "ack_ccx_state", "sack_psn_offset", "sack_bitmap", "ecn",  # follow from the times of packets
))  # fmt: skip
_NEVER = ("clear_req", "credit", "close_req", "probe")
"""Kinds of packets that may come at any time (pds.md §13), and are not compared."""
_TOLD = ("return_code", "nack_code", "opcode", "payload_length", "req")
PAYLOAD, FAULT = "payload", "fault"

Key = tuple[Any, ...]


class NormalAnswer(NamedTuple):
    """This record is an answer with PSNs that count from the first one of its PDC."""

    key: Key
    """Identity of the answer: number of its PDC, kind, and what it answers."""
    values: Mapping[str, int]
    rows: Mapping[str, Field]
    payload: bytes
    number: int | None
    """Number of the packet in the capture, or None for one of the live peer."""
    fault: str = ""
    """Why the packet is wrong by itself, such as its CRC32C."""

    @property
    def told(self) -> str:
        """Return the answer in words."""
        conversation, kind, *what = self.key
        at = f"PDC {conversation}, {kind}" if conversation is not None else str(kind)
        values = [f"{name} {named(self.values[name], self.rows[name])}" for name in _TOLD if name in self.values]
        return ", ".join([f"{at} {' '.join(map(_relative, what))}".rstrip(), *values])

    @property
    def is_plain(self) -> bool:
        """Return whether the answer is an ACK that says no more than that packets arrived: a later one may stand for
        it."""
        v = self.values
        plain = v.get("opcode") in (None, ResponseOpcode.DEFAULT_RESPONSE, ResponseOpcode.RESPONSE)
        good = v.get("return_code", ReturnCode.OK) in (ReturnCode.OK, ReturnCode.NULL)
        data = v.get("next_hdr") in (NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL)
        return self.key[1] == "ack" and plain and good and not data and v.get("req") == AckReq.NONE and not v.get("p")


def _relative(value: Any) -> str:
    return f"start{value:+d}" if isinstance(value, int) else str(value)


def normal(
    found: AnswerPacket, conversation: int | None, start: int, return_start: int, number: int | None
) -> NormalAnswer | None:
    """Return an answer in the form that is compared, or None for one that is not compared.

    `start` is the first PSN of the requests that are answered, and `return_start` that of the requests that come with
    the answers.
    """
    kind, values = found.kind, dict(found.values)
    if kind in _NEVER:
        return None
    of_return = kind in ("request", "rudi_request", "uud_request") or "ctl_type" in values
    for name in _PSNS:
        if name in values:
            values[name] = distance(values[name], return_start if of_return and name == "psn" else start)
    control = CONTROLS.get(values["ctl_type"]) if "ctl_type" in values else None  # type: ignore[call-overload]
    if control is not None and control.payload is CpPayload.PSN:
        values["ctl_payload"] = distance(values["ctl_payload"], return_start)
    if values.get("nack_code") in _PAYLOAD_IS_PSN:
        values["nack_payload"] = distance(values["nack_payload"], start)
    if "probe_opaque" in values and kind == "ack":
        what: tuple[Any, ...] = ("probe", f"{values['probe_opaque']:#x}")
    elif "pkt_id" in values or "nack_pkt_id" in values:
        what = (f"pkt_id {values.get('pkt_id', values.get('nack_pkt_id'))}",)
    else:
        what = tuple(values[name] for name in ("ack_psn", "nack_psn", "psn") if name in values)[:1]
    compared = {name: value for name, value in values.items() if name not in _NOT_COMPARED}
    return NormalAnswer((conversation, kind, *what), compared, found.rows, found.payload, number, found.fault)


def distance(psn: int, start: int) -> int:
    """Return how far a PSN is behind `start`; before it, the distance is negative."""
    away = (psn - start) & 0xFFFFFFFF
    return away - (1 << 32) if away >> 31 else away


class AnswerDifference(NamedTuple):
    """This record is a difference: an answer that is missing, one more than there was, or one with other fields."""

    what: str
    """"missing", "extra" or "differs"."""
    answer: NormalAnswer
    """The answer of the capture; of an extra one, that of the live peer."""
    fields: Mapping[str, tuple[str, str]]
    """Values by field: in the capture, and now."""

    def lines(self) -> list[str]:
        """Return the difference as text."""
        at = "" if self.answer.number is None else f"packet {self.answer.number + 1}: "
        sign = {"missing": "-", "extra": "+", "differs": "!"}[self.what]
        return [f"{sign} {at}{self.answer.told}", *(
            f"    {name}: {before} in the capture, now {now}" for name, (before, now) in self.fields.items()
        )]  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        fields = {name: {"capture": before, "now": now} for name, (before, now) in self.fields.items()}
        return {"kind": "difference", "what": self.what, "packet": self.answer.number, "answer": self.answer.told,
                "fields": fields}  # fmt: skip


def compared(before: NormalAnswer, now: NormalAnswer, ignored: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return the fields in which two answers differ, with both values as text."""
    found: dict[str, tuple[str, str]] = {}
    left = {*ignored}
    for name, value in before.values.items():  # a field that one form alone has says no more than the type
        other = now.values.get(name, value)
        if value != other and name not in left:
            found[name] = _text(name, value, before.rows[name]), _text(name, other, before.rows[name])
    if before.fault != now.fault and FAULT not in left:
        found[FAULT] = before.fault or "none", now.fault or "none"
    if before.payload != now.payload and PAYLOAD not in left:
        found[PAYLOAD] = _data_words(before.payload, now.payload)
    return found


def _text(name: str, value: int, row: Field) -> str:
    return f"start{value:+d}" if name in _PSNS else named(value, row)


def _data_words(before: bytes, now: bytes) -> tuple[str, str]:
    """Return two payloads as text, from their first difference on."""
    at = next((i for i, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), None)
    at = min(len(before), len(now)) if at is None else at
    texts = [f"{len(data)} bytes, at {at}: {data[at : at + 8].hex() or 'none'}" for data in (before, now)]
    return texts[0], texts[1]


@dataclass(slots=True)
class Alignment:
    """This class pairs answers of a capture with answers of the live peer, and collects their differences."""

    ignored: frozenset[str] = frozenset()
    """Fields that are not compared."""
    same: int = 0
    covered: int = 0
    """Number of ACKs of one side that a later ACK of the other side stands for."""
    counts: dict[str, int] = field(default_factory=lambda: {"differs": 0, "missing": 0, "extra": 0})
    found: deque[AnswerDifference] = field(default_factory=deque)
    """Differences that nobody has taken yet."""
    _expected: dict[Key, deque[NormalAnswer]] = field(default_factory=dict)
    _arrived: dict[Key, deque[NormalAnswer]] = field(default_factory=dict)
    _waiting: list[int] = field(default_factory=lambda: [0, 0])
    _cacks: list[dict[int | None, int]] = field(default_factory=lambda: [{}, {}])

    def expect(self, answer: NormalAnswer) -> bool:
        """Take an answer of the capture, and return whether that of the live peer was there."""
        self._note_cack(0, answer)
        pair = self._take(1, answer.key)
        if pair is None:
            self._wait(0, answer)
            return self._is_covered(0, answer)
        self._compare(answer, pair)
        return True

    def arrive(self, answer: NormalAnswer) -> None:
        """Take an answer of the live peer."""
        self._note_cack(1, answer)
        pair = self._take(0, answer.key)
        if pair is not None:
            self._compare(pair, answer)
        elif not (answer.values.get("retx") and answer.key[1] == "request"):  # repeated, as its ACK was not there yet
            self._wait(1, answer)

    def is_missing(self, key: Key) -> bool:
        """Return whether an answer of the capture still waits."""
        return key in self._expected and not self._is_covered(0, self._expected[key][0])

    def end(self) -> None:
        """Say that no more answers come: those that wait are missing, or extra."""
        for side in (0, 1):
            table = self._table(side)
            while table:
                self._drop(side, next(iter(table)))

    def _table(self, side: int) -> dict[Key, deque[NormalAnswer]]:
        return self._arrived if side else self._expected

    def _compare(self, before: NormalAnswer, now: NormalAnswer) -> None:
        fields = compared(before, now, self.ignored)
        if fields:
            self._tell("differs", before, fields)
        else:
            self.same += 1

    def _take(self, side: int, key: Key) -> NormalAnswer | None:
        table = self._table(side)
        waiting = table.get(key)
        if waiting is None:
            return None
        answer = waiting.popleft()
        self._waiting[side] -= 1
        if not waiting:
            del table[key]
        return answer

    def _wait(self, side: int, answer: NormalAnswer) -> None:
        self._table(side).setdefault(answer.key, deque()).append(answer)
        self._waiting[side] += 1
        if self._waiting[side] > MOST_WAITING:
            self._drop(side, next(iter(self._table(side))))

    def _drop(self, side: int, key: Key) -> None:
        answer = self._take(side, key)
        assert answer is not None
        if self._is_covered(side, answer):
            self.covered += 1
        else:
            self._tell("extra" if side else "missing", answer, {})

    def _note_cack(self, side: int, answer: NormalAnswer) -> None:
        cack, conversation = answer.values.get("cack_psn"), answer.key[0]
        if cack is not None:
            self._cacks[side][conversation] = max(cack, self._cacks[side].get(conversation, cack))

    def _is_covered(self, side: int, answer: NormalAnswer) -> bool:
        """Return whether a CACK of the other side stands for an ACK."""
        if not answer.is_plain:
            return False
        cack = self._cacks[1 - side].get(answer.key[0])
        return cack is not None and answer.values.get("ack_psn", 0) <= cack

    def _tell(self, what: str, answer: NormalAnswer, fields: Mapping[str, tuple[str, str]]) -> None:
        self.counts[what] += 1
        self.found.append(AnswerDifference(what, answer, fields))
