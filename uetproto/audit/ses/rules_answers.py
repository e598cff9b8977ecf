# SPDX-License-Identifier: GPL-2.0-only
"""This module judges responses, and the data that a READ returns (ses.md §9, ses.md §11.1)."""

from typing import Any

from uetproto.audit.finding import opcode_name
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Severity, Verdict, Violation
from uetproto.audit.ses.atomics import ELEMENT, is_aligned, is_defined, is_whole
from uetproto.audit.ses.rules_rows import ERROR, NOTE, OPCODES, WARNING, code_name, ses_rule
from uetproto.audit.ses.tracker_answers import LONG, PLAIN, SHORT, AuditedAnswer
from uetproto.audit.ses.tracker_events import SesEvent as E
from uetproto.audit.ses.tracker_message import AuditedMessage, ReturnedData
from uetproto.wire.headers.uet_pds import AckReq
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    DEFERRABLES,
    OPCODE_PROFILES,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
    Selects,
)
from uetproto.wire.serial import diff32

_UNSEEN = Inconclusive("request not seen")
_DOUBTFUL = Inconclusive("a read not seen may have the same message id")
_M32 = 0xFFFFFFFF
_R, _C = ResponseOpcode, ReturnCode
_GOOD = (_C.OK, _C.NULL)
_AMO_CODES = range(_C.AMO_UNSUPPORTED_OP, _C.AMO_FP_INEXACT + 1)
_GENERATION_CODES = (_C.BAD_GENERATION, _C.DISABLED_GEN)
_MESSAGING_CODES = (_C.BAD_GENERATION, _C.DISABLED_GEN, _C.NO_MATCH)


def _made_by_pds(ses: Head) -> bool:
    """Return whether PDS made this default response, which knows nothing of its request (ses.md §9.1)."""
    return bool(ses.opcode == _R.DEFAULT_RESPONSE and ses.return_code in _GOOD)


def _selects(message: AuditedMessage) -> Selects | None:
    row = OPCODE_PROFILES.get(message.opcode)  # type: ignore[call-overload]
    return None if row is None else row.selects


# A response alone -----------------------------------------------------------------------------------------------------


def _default_error(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode != _R.DEFAULT_RESPONSE or seen.ses.return_code in _GOOD:
        return None
    return Violation("OK or NULL", code_name(seen.ses.return_code), answer.others)


def _default_list(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode != _R.DEFAULT_RESPONSE or seen.ses.list == ResponseList.EXPECTED:
        return None
    return Violation("list EXPECTED", f"list {seen.ses.list}", answer.others)


def _null(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode not in (_R.RESPONSE, _R.RESPONSE_W_DATA) or seen.ses.return_code != _C.NULL:
        return None
    return Violation("a return code that says something", "NULL", answer.others)


def _data_header(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    if ses.opcode > _R.NO_RESPONSE or (ses.opcode == _R.RESPONSE_W_DATA) == (type(ses) is not PLAIN):
        return None
    return Violation("RESPONSE_W_DATA with data, and only then", f"{_R(ses.opcode).name} in {ses.form}", answer.others)


# With its request -----------------------------------------------------------------------------------------------------


def _wrong_id(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    request = answer.request
    if type(ses) is SHORT:
        if answer.psn is None or ses.original_request_psn == answer.psn:
            return None
        return Violation(f"original_request_psn {answer.psn}", f"{ses.original_request_psn}", answer.others)
    if request is None:
        return _UNSEEN
    known = request.response_id if isinstance(request, ReturnedData) else request.message_id
    expected = known or 0
    got = ses.read_request_message_id if type(ses) is LONG else ses.message_id
    asked_by_id = known is None and ses.return_code == _C.NULL
    if got == expected or (_made_by_pds(ses) and (got == 0 or asked_by_id)):
        return None  # a response that PDS makes has id 0, or answers an ACK_REQ, whose id short requests do not show
    return Violation(f"message_id {expected}", f"{got}", answer.others)


def _wrong_job(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    request = answer.request
    job = request.job if isinstance(request, ReturnedData) else None if request is None else request.job_id
    if job is None:
        return _UNSEEN
    if isinstance(request, ReturnedData) and request.message is not None and seen.ses.job_id == request.message.job_id:
        return None  # the read data had another job: it was told
    if seen.ses.job_id == job or (seen.ses.job_id == 0 and _made_by_pds(seen.ses)):
        return None
    return Violation(f"job_id {job}", f"{seen.ses.job_id}", answer.others)


def _without_data(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode != _R.RESPONSE_W_DATA:
        return None
    if answer.message is None:
        return _UNSEEN
    if answer.message.fetches:
        return None
    return Violation("no data", f"data for {opcode_name(answer.message.opcode)}", answer.others)


def _overflow(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.list != ResponseList.OVERFLOW:
        return None
    if answer.message is None:
        return _UNSEEN
    if _selects(answer.message) in (Selects.RECEIVE, None):
        return None
    return Violation("list EXPECTED", f"OVERFLOW for {opcode_name(answer.message.opcode)}", answer.others)


def _modified(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    if type(ses) is not PLAIN:
        return None
    message, request = answer.message, answer.request
    if isinstance(request, ReturnedData) and request.message is not None and request.sure:
        most = request.message.length
        return None if ses.modified_length <= most else Violation(f"at most {most}", f"{ses.modified_length}")
    if message is None:
        return _UNSEEN
    length = message.length
    if ses.return_code not in _GOOD:
        return (
            None if not ses.modified_length else Violation("modified_length 0", f"{ses.modified_length}", answer.others)
        )
    whole = ses.opcode == _R.DEFAULT_RESPONSE and message.opcode != Opcode.MSG_ERROR
    if ses.modified_length in (0, length) or (ses.modified_length < length and not whole):
        return None
    return Violation(f"modified_length {length}", f"{ses.modified_length}", answer.others)


def _amo_code(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.return_code not in _AMO_CODES:
        return None
    if answer.message is None:
        return _UNSEEN
    if answer.message.opcode in ATOMICS:
        return None
    return Violation(
        "another code", f"{code_name(seen.ses.return_code)} for {opcode_name(answer.message.opcode)}", answer.others
    )


def _messaging_code(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.return_code not in _MESSAGING_CODES:
        return None
    if answer.message is None:
        return _UNSEEN
    if _selects(answer.message) is not Selects.REGION:
        return None
    if answer.message.head.ri_generation and seen.ses.return_code in _GENERATION_CODES:
        return Inconclusive("a rendezvous may have told the generation")
    return Violation(
        "another code", f"{code_name(seen.ses.return_code)} for {opcode_name(answer.message.opcode)}", answer.others
    )


def _twice(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode not in (_R.RESPONSE, _R.RESPONSE_W_DATA):
        return None
    if answer.earlier is None:
        if answer.success is None or seen.ses.return_code == _C.OK:
            return None
        return Violation("no error behind OK", code_name(seen.ses.return_code), (*answer.others, answer.success))
    earlier, number, content = answer.earlier
    reads = answer.message is None or answer.message.atomic is None
    if type(earlier) is type(seen.ses) and earlier == seen.ses:
        if reads or None in (content, seen.content) or content == seen.content:
            return None
        return Violation("the same value once more", "another one", (*answer.others, number))
    if earlier.opcode == _R.RESPONSE_W_DATA and reads:
        return Inconclusive("data need not be kept: it may have been read again")
    expected = f"{code_name(earlier.return_code)}, the same once more"
    return Violation(expected, code_name(seen.ses.return_code), (*answer.others, number))


def _forgotten(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode != _R.DEFAULT_RESPONSE or answer.earlier is None or answer.psn is None:
        return None
    if answer.sender.unordered:
        return Inconclusive("on RUDI nothing is kept")
    if answer.cleared is not None and diff32(answer.cleared, answer.psn) >= 0:
        return None
    earlier, number, _ = answer.earlier
    expected = f"{code_name(earlier.return_code)}, the same once more, as nothing has cleared it"
    return Violation(expected, "a default response", (*answer.others, number))


def _unguaranteed(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode not in (_R.RESPONSE, _R.RESPONSE_W_DATA) or "req" not in seen.head._fields:
        return None
    if answer.message is None:
        return _UNSEEN
    if not (answer.message.head.som and answer.message.head.eom):
        return Inconclusive("another packet of the message may have the guaranteed response")
    if seen.head.req == AckReq.CLEAR or answer.earlier is not None:
        return None
    return Violation(f"req CLEAR with {code_name(seen.ses.return_code)}", f"req {seen.head.req}", answer.others)


# Generations ----------------------------------------------------------------------------------------------------------


def _same_generation(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.return_code != _C.BAD_GENERATION or type(seen.ses) is SHORT:
        return None
    if answer.message is None:
        return _UNSEEN
    if seen.ses.ri_generation != answer.message.head.ri_generation:
        return None
    return Violation("another generation than that of the request", f"{seen.ses.ri_generation}", answer.others)


def _other_generation(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    if type(ses) is SHORT or not ses.ri_generation or ses.return_code in _GENERATION_CODES:
        return None
    return Violation("ri_generation 0", f"{ses.ri_generation} with {code_name(ses.return_code)}", answer.others)


def _accepted(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    message = answer.message
    if message is None or answer.psn is None or not message.sender.rod or seen.ses.return_code != _C.OK:
        return None
    refused = message.sender.refused.get(message.index)
    if refused is None or not message.length or type(seen.ses) is SHORT or seen.ses.modified_length != message.length:
        return None
    if _selects(message) is Selects.REGION:
        return None  # memory regions have no generation
    generation, psn, number = refused
    if generation != message.head.ri_generation or diff32(message.low, psn) <= 0:
        return None  # another generation, or the refused message: only one of its packets has to be refused
    return Violation(f"DISABLED_GEN for generation {generation}", "OK", (number, *answer.others))


def _rod_no_match(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    if seen.ses.return_code != _C.NO_MATCH or answer.message is None or not answer.message.sender.rod:
        return None
    if answer.message.opcode in DEFERRABLES:
        return None
    return Violation("DISABLED_GEN", "NO_MATCH on ROD", answer.others)


def _stop_list(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    message = answer.message
    if message is None or not message.stopped or seen.ses.opcode != _R.RESPONSE or seen.ses.return_code != _C.OK:
        return None
    given = seen.ses.list
    return None if given == ResponseList.OVERFLOW else Violation("list OVERFLOW", f"list {given}", answer.others)


def _stopped_again(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    message = answer.message
    if message is None or not getattr(message.head, "target_restart_token", 0) or type(ses) is not PLAIN:
        return None
    stops = ses.opcode == _R.RESPONSE and ses.return_code == _C.OK and ses.list == ResponseList.OVERFLOW
    if not stops or ses.modified_length >= message.length:
        return None
    return Violation("the buffer that was reserved for it", "another stop", answer.others)


# Atomics --------------------------------------------------------------------------------------------------------------

_A, _D = AtomicOpcode, AtomicDatatype


def _executed(answer: AuditedAnswer, seen: ObservedPacket) -> tuple[AuditedMessage, Head] | None:
    """Return an atomic request that was executed, and its extension. A default response of PDS proves nothing."""
    ses, message = seen.ses, answer.message
    if message is None or message.atomic is None or ses.return_code != _C.OK:
        return None
    said = ses.opcode == _R.RESPONSE_W_DATA or (type(ses) is PLAIN and ses.modified_length > 0)
    return (message, message.atomic) if said else None


def _datatype(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    executed = _executed(answer, seen)
    if executed is None:
        return None
    _, atomic = executed
    opcode, datatype = atomic.atomic_opcode, atomic.atomic_datatype
    if is_defined(opcode, datatype):
        return None
    return Violation("AMO_UNSUPPORTED_DT", f"OK for {_A(opcode).name} of {_D(datatype).name}", answer.others)


def _atomic_size(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    executed = _executed(answer, seen)
    if executed is None:
        return None
    message, atomic = executed
    size = ELEMENT.get(atomic.atomic_datatype)
    if is_whole(atomic.atomic_opcode, atomic.atomic_datatype, message.length, message.fetches):
        return None
    return Violation("AMO_UNSUPPORTED_SIZE", f"OK for {message.length} bytes of {size} each", answer.others)


def _atomic_place(answer: AuditedAnswer, seen: ObservedPacket) -> Verdict:
    executed = _executed(answer, seen)
    if executed is None:
        return None
    message, atomic = executed
    size = ELEMENT.get(atomic.atomic_datatype)
    offset = getattr(message.head, "buffer_offset", 0)
    if is_aligned(atomic.atomic_datatype, offset) or _selects(message) is not Selects.REGION:
        return None
    return Violation("AMO_UNALIGNED", f"OK at {offset:#x} for {size} bytes", answer.others)


# Read data ------------------------------------------------------------------------------------------------------------


def _unasked(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    return Violation("a read that it answers", "none") if returned.message is None else None


def _no_read(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    message = returned.message
    if message is None or seen.head.form.startswith("pds.ack"):
        return None if message is not None else _UNSEEN
    if message.fetches:
        return None
    if not returned.sure:
        return _DOUBTFUL
    return Violation("a read that it answers", opcode_name(message.opcode), (message.number,))


def _reader(returned: ReturnedData, seen: ObservedPacket) -> AuditedMessage | Inconclusive:
    """Return the read that is certainly answered; a copy may answer an earlier read with the same id."""
    if returned.message is None or not returned.message.fetches:
        return _UNSEEN
    if not returned.sure:
        return _DOUBTFUL
    late = not returned.in_ack and type(seen.ses) is LONG and seen.head.retx
    return Inconclusive("retransmitted") if late else returned.message


def _data_job(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    message = _reader(returned, seen)
    if isinstance(message, Inconclusive):
        return message
    job = seen.ses.job_id
    return None if job == message.job_id else Violation(f"job_id {message.job_id}", f"{job}", _of(message))


def _data_beyond(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    message = _reader(returned, seen)
    if isinstance(message, Inconclusive):
        return message
    end = returned.offset(seen.ses) + seen.ses.payload_length
    return None if end <= message.length else Violation(f"an end within {message.length}", f"{end}", _of(message))


def _data_size(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    message = _reader(returned, seen)
    if isinstance(message, Inconclusive):
        return message
    ses = seen.ses
    expected, offset = returned.expected(ses), returned.offset(ses)
    if ses.return_code != _C.OK or expected < 0:
        return Inconclusive("not known what was asked for")
    if message.mtu and offset % message.mtu:
        return Violation(f"a multiple of {message.mtu}", f"message_offset {offset}", _of(message))
    asked = _request_of(message, offset)
    if returned.in_ack and type(ses) is LONG and asked not in (None, returned.psn):
        return Violation(f"what PSN {returned.psn} asked for", f"message_offset {offset}", _of(message))
    if ses.payload_length in (expected, seen.size) and ses.payload_length != expected:
        return Violation(f"{expected} bytes", f"{ses.payload_length}", _of(message))
    return None


def _data_overlap(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    message = _reader(returned, seen)
    if isinstance(message, Inconclusive):
        return message
    psn, number = (message.returned or {}).get(returned.offset(seen.ses), (returned.psn, 0))
    if psn == returned.psn:
        return None
    return Violation("bytes that no other packet has", f"message_offset {returned.offset(seen.ses)} again", (number,))


def _two_ways(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    message = _reader(returned, seen)
    if isinstance(message, Inconclusive):
        return message
    if message.returned_in_ack is returned.in_ack:
        return None
    ways = "in ACKs", "in the return direction"
    return Violation(f"data {ways[returned.in_ack]}, as before", ways[not returned.in_ack], _of(message))


def _data_modified(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    message = _reader(returned, seen)
    if isinstance(message, Inconclusive):
        return message
    if type(seen.ses) is not LONG or seen.ses.modified_length == message.length:
        return None
    return Violation(f"modified_length {message.length}", f"{seen.ses.modified_length}", _of(message))


def _data_code(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    if seen.ses.return_code != _C.OK:
        return Violation("OK", code_name(seen.ses.return_code))
    message = _reader(returned, seen)
    if isinstance(message, Inconclusive) or returned.in_ack:
        return None
    asked = _request_of(message, returned.offset(seen.ses))
    answer = (message.answers or {}).get(asked)  # type: ignore[arg-type]  # None is no key of it
    if answer is None or answer.head.return_code == _C.OK:
        return None
    return Violation(f"no data behind {code_name(answer.head.return_code)}", "data", (answer.number,))


def _request_of(message: AuditedMessage, offset: int) -> int | None:
    """Return the PSN of the packet that asked for the data at `offset` of a read; None: not known."""
    if message.head.som and message.head.eom:
        return message.psn
    if message.origin is None or message.drifted or not message.mtu:
        return None
    return (message.origin + offset // message.mtu) & _M32


def _response_id(returned: ReturnedData, seen: ObservedPacket) -> Verdict:
    """Compare response_message_id with earlier data of the read."""
    message, number = returned.message, returned.response_id
    earlier = None if message is None or not returned.sure or type(seen.ses) is not LONG else message.responder_id
    if earlier is not None and earlier[0] != number:
        return Violation(f"response_message_id {earlier[0]} as before", str(number), (earlier[1],))
    return None


def _header_of_data(_: ReturnedData, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    if ses.opcode != _R.RESPONSE_W_DATA:
        return Violation("opcode RESPONSE_W_DATA", f"0x{ses.opcode:02x}")
    if ses.list == ResponseList.OVERFLOW:
        return Violation("list EXPECTED", "OVERFLOW")
    generation = getattr(ses, "ri_generation", 0)
    return Violation("ri_generation 0", str(generation)) if generation else None


def _of(message: AuditedMessage) -> tuple[int, ...]:
    return (message.number,)


RESPONSE = "UE 1.0.1 §3.4.2.6"
_CODES = "UE 1.0.1 §3.4.1.10"
_GENERATIONS = "UE 1.0.1 §3.4.6.3.2"
_ATOMICS = "UE 1.0.1 §3.4.2.4"
_READS = "UE 1.0.1 §3.5.20.2"


def _answer(
    id: str, check: Any, cite: str, severity: Severity, covers: tuple[int, ...], says: str,
    requires: Requires = Requires.PRESENCE,
) -> Rule:  # fmt: skip
    return ses_rule(id, E.ANSWERED, check, cite, severity, covers, says, E.RESPONSE, requires)


def _data(
    id: str, check: Any, cite: str, severity: Severity, covers: tuple[int, ...], says: str,
    requires: Requires = Requires.PRESENCE,
) -> Rule:  # fmt: skip
    return ses_rule(id, E.RETURNED_ODDLY, check, cite, severity, covers, says, E.RETURNED, requires)


RULES: tuple[Rule, ...] = (
    _answer("SES-DEFAULT-WITH-ERROR", _default_error, RESPONSE, ERROR, (12, 13),
            "The return code of a default response is OK or NULL."),
    _answer("SES-DEFAULT-LIST", _default_list, RESPONSE, ERROR, (12,),
            "A default response has the list EXPECTED."),
    _answer("SES-RESPONSE-NULL", _null, _CODES, WARNING, (13,),
            "Only a default response has the return code NULL."),
    _answer("SES-RESPONSE-HEADER", _data_header, RESPONSE, ERROR, (34,),
            "RESPONSE_W_DATA, and no other response, has the header of read data."),
    _answer("SES-RESPONSE-WRONG-ID", _wrong_id, RESPONSE, ERROR, (14,),
            "A response has the message id of its request."),
    _answer("SES-RESPONSE-WRONG-JOB", _wrong_job, RESPONSE, ERROR, (14, 32),
            "A response has the job of its request."),
    _answer("SES-RESPONSE-DATA", _without_data, RESPONSE, ERROR, (),
            "Only what reads is answered with data."),
    _answer("SES-RESPONSE-OVERFLOW", _overflow, RESPONSE, WARNING, (),
            "Only sends can find no buffer."),
    _answer("SES-MODIFIED-LENGTH", _modified, RESPONSE, NOTE, (),
            "modified_length is 0 after an error, and otherwise the number of bytes modified."),
    _answer("SES-AMO-CODE", _amo_code, _CODES, WARNING, (),
            "Return codes of atomics answer atomics."),
    _answer("SES-MESSAGING-CODE", _messaging_code, _GENERATIONS, WARNING, (),
            "Only sends are answered with the codes of generations and matching."),
    _answer("SES-RESPONSE-TWICE", _twice, "UE 1.0.1 §3.4.3.3", ERROR, (11, 13),
            "A guaranteed response does not change when it is sent again, and no error follows a success."),
    _answer("SES-RESPONSE-FORGOTTEN", _forgotten, "UE 1.0.1 §3.4.3.3", ERROR, (11, 13),
            "No default response replaces a guaranteed one that is not cleared.", Requires.ABSENCE),
    _answer("SES-RESPONSE-UNGUARANTEED", _unguaranteed, "UE 1.0.1 §3.4.3.3", WARNING, (13,),
            "A response that is more than the default one is guaranteed: its ACK asks to clear it.", Requires.ABSENCE),
    _answer("SES-SAME-GENERATION", _same_generation, _GENERATIONS, ERROR, (28,),
            "BAD_GENERATION names the generation of the index, which differs from that of the request."),
    _answer("SES-DISABLED-GEN-ACCEPTED", _accepted, _GENERATIONS, ERROR, (27,),
            "On ROD nothing is accepted in a generation in which an earlier message was refused with DISABLED_GEN."),
    _answer("SES-ROD-NO-MATCH", _rod_no_match, _GENERATIONS, WARNING, (27,),
            "On ROD a send without a buffer disables the index: DISABLED_GEN."),
    _answer("SES-RESPONSE-GENERATION", _other_generation, CHOICE, NOTE, (),
            "ri_generation of a response is 0, unless it is about generations."),
    _answer("SES-STOP-LIST", _stop_list, CHOICE, NOTE, (),
            "All packets of a message that is deferred are answered with OVERFLOW."),
    _answer("SES-STOP-AGAIN", _stopped_again, OPCODES, WARNING, (),
            "A message that restarted is not stopped again."),
    _answer("SES-ATOMIC-DATATYPE", _datatype, _ATOMICS, WARNING, (),
            "An atomic operation that is not defined for a datatype is refused."),
    _answer("SES-ATOMIC-SIZE", _atomic_size, _ATOMICS, WARNING, (),
            "An atomic operation covers whole elements, a fetching one a single element."),
    _answer("SES-ATOMIC-ALIGNED", _atomic_place, _ATOMICS, NOTE, (),
            "An atomic operation accesses aligned memory."),

    _data("SES-DATA-UNASKED", _unasked, _READS, WARNING, (20,),
          "Read data answers a read.", Requires.ABSENCE),
    _data("SES-DATA-NO-READ", _no_read, _READS, ERROR, (20,),
          "Read data names a read."),
    _data("SES-DATA-JOB", _data_job, _READS, ERROR, (14, 32),
          "Read data has the job of the read."),
    _data("SES-DATA-BEYOND", _data_beyond, _READS, ERROR, (20,),
          "Read data ends within what was asked for."),
    _data("SES-DATA-SIZE", _data_size, _READS, WARNING, (20,),
          "A packet of read data has what one request packet asked for."),
    _data("SES-DATA-OVERLAP", _data_overlap, _READS, ERROR, (20,),
          "Packets of read data do not overlap."),
    _data("SES-DATA-TWO-WAYS", _two_ways, _READS, ERROR, (20,),
          "The data of a read comes in ACKs or in the return direction, not both."),
    _data("SES-DATA-MODIFIED-LENGTH", _data_modified, _READS, NOTE, (),
          "modified_length of read data is the length of the read."),
    _data("SES-DATA-CODE", _data_code, _READS, WARNING, (),
          "A read that fails is answered without data."),
    _data("SES-RESPONSE-MESSAGE-ID", _response_id, CHOICE, NOTE, (),
          "All data of a read has one response_message_id."),
    _data("SES-DATA-HEADER", _header_of_data, _READS, WARNING, (34,),
          "A header of read data says so: opcode RESPONSE_W_DATA, list EXPECTED, no generation."),
)  # fmt: skip
