# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the values of the headers of one packet, as they may stand beside each other in a legal packet.

`NARROWER` has a row for each field that may hold less than its table says, because of other fields of the packet.
"""

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import NamedTuple

from hypothesis import strategies as st

from uetproto.audit.ses.atomics import is_defined
from uetproto.testing.strategies.headers import Numbers, codes, drawn_together, field_values, numbers
from uetproto.testing.strategies.stacks import HeaderStack
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS
from uetproto.wire.headers import uet_pds, uet_ses
from uetproto.wire.headers.uet_pds import CONTROLS, AckReq, CpPayload, CpPsn, CtlType, NackCode
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    COMPARE_AND_SWAPS,
    ELEMENT_SIZE,
    NO_OPERANDS,
    OPCODE_PROFILES,
    RENDEZVOUS,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ResponseOpcode,
    ReturnCode,
    Selects,
)
from uetproto.wire.packet import Layer

_WINDOW = 0x7FFF
"""Distance of PSNs that the signed offsets of PDS can tell."""
_M32, _M64 = 0xFFFFFFFF, (1 << 64) - 1
_IDEMPOTENT_SAFE = 1 << 63


class MessagePart(NamedTuple):
    """A part of a message, which one packet carries or asks for."""

    offset: int
    size: int
    total: int
    eom: int


class Draft:
    """A draft is a packet whose fields are drawn one after the other. If a field depends on another field, the other
    field is drawn first."""

    def __init__(self, draw: st.DrawFn, stack: HeaderStack, mtu: int) -> None:
        self.draw, self.stack, self.mtu = draw, stack, mtu
        self._values: list[dict[str, int]] = [dict(step.codes) for step in stack.steps]

    def layers(self) -> list[Layer]:
        """Return the headers, with a value for every field in wire order.

        Fields that do not depend on other fields are drawn before all others: those of the first header, then those of
        the SES headers, then the rest. If Hypothesis removes a header or changes the opcode, the other values therefore
        stay as they are.
        """
        steps = self.stack.steps
        in_ses = [step.header.name.startswith("ses.") for step in steps]
        for index in sorted(range(len(steps)), key=lambda index: (index > 0, not in_ses[index])):
            header, known = steps[index]
            self._values[index].update(self.draw(_independent(header.name, tuple(known))))
        return [Layer(header.name, {field.name: self.value(index, field.name) for field in header.fields})
                for index, (header, _) in enumerate(steps)]  # fmt: skip

    def value(self, index: int, name: str) -> int:
        """Return the value of a field of the header `index`; draw it unless it is known."""
        values, header = self._values[index], self.stack.steps[index].header
        if name not in values:
            rule = NARROWER[header.name, name]
            assert callable(rule), "other fields are drawn before"
            found = rule(FieldPlace(self, index))
            values[name] = found if isinstance(found, int) else self.draw(found)
        return values[name]

    def index_of(self, *names: str) -> int | None:
        """Return the index of the first header that has all these fields."""
        for index, step in enumerate(self.stack.steps):
            if all(name in step.header.names for name in names):
                return index
        return None

    @property
    def payload_size(self) -> int:
        """Return how many bytes of payload the headers announce."""
        if self.stack.opcode is not None:
            return self.part.size if self.carries else 0
        index = self.index_of("payload_length")
        return 0 if index is None else self.value(index, "payload_length")

    # A request and its message

    @cached_property
    def atomic(self) -> AtomicOpcode | None:
        index = self.index_of("atomic_opcode")
        return None if index is None else AtomicOpcode(self.value(index, "atomic_opcode"))

    @cached_property
    def carries(self) -> bool:
        """Return whether the packets of the request carry payload."""
        opcode = self.stack.opcode
        assert opcode is not None
        return OPCODE_PROFILES[opcode].payload and opcode != Opcode.MSG_ERROR and self.atomic not in NO_OPERANDS

    @cached_property
    def part(self) -> MessagePart:
        """Return the part of its message that the packet has: the whole message, the first part, a middle part or the
        last part."""
        opcode, draw = self.stack.opcode, self.draw
        request = next(step.header for step in self.stack.steps if step.header in uet_ses.REQUESTS)
        if opcode in (Opcode.NO_OP, Opcode.DEFERRABLE_RTR):
            return MessagePart(0, 0, 0, 1)
        if opcode == Opcode.MSG_ERROR:
            offset = self._later_offset()
            return MessagePart(offset, 0, draw(numbers(offset, _M32)), 1)
        if opcode in ATOMICS:
            return MessagePart(0, *self._operands(), 1)
        if request in uet_ses.STANDARD and request["som"].only == (0,):
            offset = self._later_offset()
            if not draw(st.booleans()):
                size = draw(numbers(1, self.mtu))
                return MessagePart(offset, size, offset + size, 1)
            return MessagePart(offset, self.mtu, draw(numbers(offset + self.mtu + 1, _M32)), 0)
        in_one = request not in uet_ses.STANDARD or self.stack.mode == "uud"
        if in_one or not draw(st.booleans()):
            size = draw(numbers(0, self.mtu))
            return MessagePart(0, size, size, 1)
        return MessagePart(0, self.mtu, draw(numbers(self.mtu + 1, _M32)), 0)

    def _later_offset(self) -> int:
        """Return the offset of a later packet; the first packet of its message has a PSN of the same PDC."""
        index = self.index_of("psn_offset")
        most = min(_WINDOW, _M32 // self.mtu - 2)
        return self.mtu * self.draw(numbers(1, most if index is None else max(1, self.value(index, "psn_offset"))))

    def _operands(self) -> tuple[int, int]:
        """Return the size of the payload and the request_length of an atomic operation (ses.md §6.3)."""
        if self.atomic in COMPARE_AND_SWAPS:
            return 0, uet_ses.EXT_ATOMIC_CAS.size - uet_ses.EXT_ATOMIC.size
        index = self.index_of("atomic_datatype")
        assert index is not None
        element = ELEMENT_SIZE[AtomicDatatype(self.value(index, "atomic_datatype"))]
        assert self.stack.opcode is not None
        most = 1 if OPCODE_PROFILES[self.stack.opcode].fetches else self.mtu // element
        total = element * self.draw(numbers(1, most))
        return (0 if self.atomic in NO_OPERANDS else total), total


@cache
def _independent(form: str, known: tuple[str, ...]) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy for the fields of a header that are not known and that no rule narrows."""
    rules = {name: NARROWER.get((form, name), field_values(form, name)) for name in FORMS[form].names}
    return drawn_together({n: rule for n, rule in rules.items() if n not in known and not callable(rule)})


class FieldPlace:
    """A place is one header of a draft. A rule reads other fields of this header with `place[name]`, and fields of
    other headers through `place.draft`."""

    def __init__(self, draft: Draft, index: int) -> None:
        self.draft, self._index = draft, index
        self.header: Header = draft.stack.steps[index].header

    def __getitem__(self, name: str) -> int:
        return self.draft.value(self._index, name)


Rule = Callable[[FieldPlace], "Numbers | int"] | Numbers
"""Type of a rule: a strategy, or a function that reads other fields of the packet and returns a value or a strategy."""
_NOT_ZERO_16, _NOT_ZERO_32, _NOT_ZERO_12 = numbers(1, 0xFFFF), numbers(1, 0xFFFFFFFF), numbers(1, 0xFFF)


# PDS ------------------------------------------------------------------------------------------------------------------

_NO_PDC = frozenset({NackCode.NO_PDC_AVAIL, NackCode.NO_CCC_AVAIL, NackCode.NO_BITMAP, NackCode.INV_DPDCID})
"""Codes of NACKs of a receiver without a PDC, which has no PDCID to tell (UE 1.0.1 §3.5.12.7, Table 3-58)."""
_NEWER = 0x7FFF_0000


def _clear_of_syn(place: FieldPlace) -> Numbers:
    """Clear from Start_PSN - 1 on, and not the packet itself (pds.md §9.1)."""
    first = -1 - place["psn_offset"]
    return numbers(0, place["psn_offset"]).map(lambda more: first + more)


def _ack_psn_offset(place: FieldPlace) -> Numbers:
    """Leave CACK_PSN below the PSN whose response is to be cleared (pds.md §9.3)."""
    return numbers(1 if place["req"] == AckReq.CLEAR else -_WINDOW - 1, _WINDOW)


def _sack_bitmap(place: FieldPlace) -> Numbers:
    """Set the bits up to CACK_PSN (pds.md §8.5)."""
    covered = (1 << max(0, min(64, 1 - place["sack_psn_offset"]))) - 1
    return numbers(0, (1 << 64) - 1).map(lambda bits: bits | covered)


def _expected_psn(place: FieldPlace) -> Numbers:
    first = place["cack_psn"] + 1
    return numbers(0, _NEWER).map(lambda more: (first + more) & _M32)


def _spdcid_of_nack(place: FieldPlace) -> "Numbers | int":
    return 0 if place["nack_code"] in _NO_PDC else numbers(0, 0xFFFF)


def _control(place: FieldPlace) -> uet_pds.ControlProfile:
    return CONTROLS[CtlType(place["ctl_type"])]


def _psn_of_control(place: FieldPlace) -> "Numbers | int":
    return 0 if _control(place).psn is CpPsn.NONE else numbers(0, _M32)


def _probe_opaque(place: FieldPlace) -> "Numbers | int":
    return numbers(0, 0xFFFF) if place["ctl_type"] == CtlType.PROBE else 0


_LARGEST = {CpPayload.NOTHING: 0, CpPayload.MESSAGE_ID: 0xFFFF, CpPayload.CREDIT: 0xFFFFFF}


def _ctl_payload(place: FieldPlace) -> Numbers:
    return numbers(0, _LARGEST.get(_control(place).payload, _M32))


# SES ------------------------------------------------------------------------------------------------------------------


def _opcode(place: FieldPlace) -> Opcode:
    opcode = place.draft.stack.opcode
    assert opcode is not None
    return opcode


def _hd(place: FieldPlace) -> "Numbers | int":
    small, rudi = place.header is uet_ses.REQUEST_SMALL, place.draft.stack.mode == "rudi"
    return 0 if small or rudi else numbers(0, 1)


def _header_data(place: FieldPlace) -> "Numbers | int":
    return numbers(0, _M64) if place["hd"] else 0


def _message_id(place: FieldPlace) -> "Numbers | int":
    return 0 if place.draft.stack.mode == "uud" else numbers(1, 0xFFFF)


def _ri_generation(place: FieldPlace) -> "Numbers | int":
    writes = OPCODE_PROFILES[_opcode(place)].selects is Selects.REGION and _opcode(place) != Opcode.READ
    return 0 if writes else numbers(0, 0xFF)


def _memory_key(place: FieldPlace) -> Numbers:
    return numbers(_IDEMPOTENT_SAFE if place.draft.stack.mode == "rudi" else 0, _M64)


def _request_length(place: FieldPlace) -> "Numbers | int":
    total = place.draft.part.total
    return numbers(total, _M32) if _opcode(place) in RENDEZVOUS else total


def _atomic_opcode(place: FieldPlace) -> Numbers:
    legal = codes(place.header.name, "atomic_opcode")
    return st.sampled_from([code for code in legal if code not in COMPARE_AND_SWAPS])


def _atomic_datatype(place: FieldPlace) -> Numbers:
    legal = codes(place.header.name, "atomic_datatype")
    return st.sampled_from([code for code in legal if is_defined(place["atomic_opcode"], code)])


def _response_opcode(place: FieldPlace) -> Numbers:
    data = ResponseOpcode.RESPONSE_W_DATA
    legal = codes(place.header.name, "opcode")
    return st.sampled_from([code for code in legal if (code == data) is (place.header is not uet_ses.RESPONSE)])


def _response_list(place: FieldPlace) -> "Numbers | int":
    return 0 if place["opcode"] != ResponseOpcode.RESPONSE else field_values(place.header.name, "list")


def _return_code(place: FieldPlace) -> "Numbers | int":
    """Draw a code that the response may have (ses.md §9.1)."""
    opcode = place["opcode"]
    if opcode == ResponseOpcode.RESPONSE_W_DATA:
        return ReturnCode.OK
    if opcode == ResponseOpcode.DEFAULT_RESPONSE:
        return st.sampled_from((ReturnCode.OK, ReturnCode.NULL)).map(int)
    return st.sampled_from([code for code in codes(place.header.name, "return_code") if code != ReturnCode.NULL])


def _modified_length(place: FieldPlace) -> "Numbers | int":
    return numbers(0, _M32) if place["return_code"] in (ReturnCode.NULL, ReturnCode.OK) else 0


def _original_request_psn(place: FieldPlace) -> "Numbers | int":
    """Return the PSN that an ACK answers, or the pkt_id of a RUDI response; in return data any PSN."""
    draft = place.draft
    if "pkt_id" in draft.stack.steps[0].header.names:
        return draft.value(0, "pkt_id")
    if "ack_psn_offset" not in draft.stack.steps[0].header.names:
        return numbers(0, _M32)
    return (draft.value(0, "cack_psn") + draft.value(0, "ack_psn_offset")) & _M32


def _data_length(place: FieldPlace) -> Numbers:
    return numbers(0, place.draft.mtu)


def _data_offset(place: FieldPlace) -> Numbers:
    mtu = place.draft.mtu
    return numbers(0, _M32 // mtu - 1).map(lambda packets: packets * mtu)


def _end_or_more(place: FieldPlace) -> Numbers:
    return numbers(place["message_offset"] + place["payload_length"], _M32)


_SYN = tuple(header for header in (*uet_pds.REQUESTS, uet_pds.CP_SYN) if "psn_offset" in header.names)
_KNOWN = tuple(header for header in (*uet_pds.REQUESTS, uet_pds.CP) if header not in _SYN)
_CONTROL_HEADERS = (uet_pds.CP, uet_pds.CP_SYN)
_LATER = tuple(header for header in uet_ses.STANDARD if header["som"].only == (0,))

_TABLE: tuple[tuple[Iterable[Header], str, Rule], ...] = (
    # headers                                      field                      rule
    (uet_pds.REQUESTS,                             "clear_psn_offset",
        numbers(-_WINDOW - 1, -1)),
    ([h for h in uet_pds.REQUESTS if h in _SYN],   "clear_psn_offset",        _clear_of_syn),
    (_SYN,                                         "pdc_info",                st.sampled_from((0, 8))),
    ((*uet_pds.REQUESTS, *uet_pds.ACKS, *_CONTROL_HEADERS), "spdcid",         _NOT_ZERO_16),
    ((*_KNOWN, *uet_pds.ACKS, *uet_pds.NACKS),     "dpdcid",                  _NOT_ZERO_16),
    (uet_pds.NACKS,                                "spdcid",                  _spdcid_of_nack),
    (uet_pds.ACKS,                                 "ack_psn_offset",          _ack_psn_offset),
    (uet_pds.ACKS,                                 "mpr",                     numbers(1, 0xFF)),
    (uet_pds.ACKS,                                 "sack_bitmap",             _sack_bitmap),
    ((uet_pds.ACK_EPSN,),                          "expected_psn",            _expected_psn),
    ((uet_pds.CP_SYN,),                            "ctl_type",
        st.sampled_from([int(code) for code, row in CONTROLS.items() if row.opens])),
    (_CONTROL_HEADERS,                             "ar",                      lambda place: _control(place).ar),
    (_CONTROL_HEADERS,                             "psn",                     _psn_of_control),
    (_CONTROL_HEADERS,                             "probe_opaque",            _probe_opaque),
    (_CONTROL_HEADERS,                             "ctl_payload",             _ctl_payload),
    (uet_ses.REQUESTS,                             "hd",                      _hd),
    (uet_ses.REQUESTS,                             "header_data",             _header_data),
    (uet_ses.REQUESTS,                             "message_id",              _message_id),
    (uet_ses.REQUESTS,                             "ri_generation",           _ri_generation),
    (uet_ses.REQUESTS,                             "resource_index",          _NOT_ZERO_12),
    (uet_ses.REQUESTS,                             "memory_key",              _memory_key),
    (uet_ses.REQUESTS,                             "som",                     st.just(1)),
    (uet_ses.REQUESTS,                             "eom",                     lambda place: place.draft.part.eom),
    (uet_ses.REQUESTS,                             "request_length",          _request_length),
    (_LATER,                                       "payload_length",          lambda place: place.draft.part.size),
    (_LATER,                                       "message_offset",          lambda place: place.draft.part.offset),
    (uet_ses.STANDARD,                             "initiator_restart_token", _NOT_ZERO_32),
    (uet_ses.STANDARD,                             "sender_token",            _NOT_ZERO_32),
    (uet_ses.STANDARD,                             "receiver_token",          _NOT_ZERO_32),
    ((uet_ses.EXT_RENDEZVOUS,),                    "eager_length",            lambda place: place.draft.part.total),
    ((uet_ses.EXT_RENDEZVOUS,),                    "resource_index",          _NOT_ZERO_12),
    ((uet_ses.EXT_SYNC,),                          "count",                   _NOT_ZERO_16),
    ((uet_ses.EXT_ATOMIC,),                        "atomic_opcode",           _atomic_opcode),
    ((uet_ses.EXT_ATOMIC, uet_ses.EXT_ATOMIC_CAS), "atomic_datatype",         _atomic_datatype),
    ((uet_ses.EXT_ATOMIC, uet_ses.EXT_ATOMIC_CAS), "semantic_control",        numbers(0, 3)),
    (uet_ses.RESPONSES,                            "opcode",                  _response_opcode),
    (uet_ses.RESPONSES,                            "list",                    _response_list),
    (uet_ses.RESPONSES,                            "return_code",             _return_code),
    ((uet_ses.RESPONSE,),                          "modified_length",         _modified_length),
    ((uet_ses.RESPONSE_DATA,),                     "modified_length",         _end_or_more),
    (uet_ses.RESPONSES,                            "payload_length",          _data_length),
    (uet_ses.RESPONSES,                            "message_offset",          _data_offset),
    (uet_ses.RESPONSES,                            "original_request_psn",    _original_request_psn),
    (uet_ses.RESPONSES[:2],                        "ri_generation",           st.just(0)),
    (uet_ses.RESPONSES,                            "message_id",              _NOT_ZERO_16),
    (uet_ses.RESPONSES,                            "read_request_message_id", _NOT_ZERO_16),
)  # fmt: skip
NARROWER: dict[tuple[str, str], Rule] = {
    (header.name, field): rule
    for headers, field, rule in _TABLE
    for header in headers
    if field in header.names and not header[field].only
}
"""Rule of each field whose legal values depend on other fields, by form and field."""
