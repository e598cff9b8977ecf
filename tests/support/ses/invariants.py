# SPDX-License-Identifier: GPL-2.0-only
"""This module has the invariants of ses.md §15, one function each, with its number in its name.

Those of `OF_MESSAGES` judge one message as it was sent, those of `OF_LOGS` a whole run; the others take the few
values that they are about. All raise `InvariantViolation`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from tests.support.ses.headers import build_later, build_medium, build_small, build_som
from tests.support.ses.records import Asked, Data, Log, Message, Packet
from uetproto.engine import Fep
from uetproto.engine.contract import Completion, Mode, Received
from uetproto.engine.memory import IDEMPOTENT_SAFE
from uetproto.engine.ses.headers import SesRequest, parse_ses_request
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode

RELIABLE = (Mode.RUD, Mode.ROD)
GOOD = (ReturnCode.OK, ReturnCode.NULL)
ATOMICS = (Opcode.ATOMIC, Opcode.FETCHING_ATOMIC, Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC, Opcode.SYNC_ATOMIC)
DEFERRABLES = (Opcode.DEFERRABLE_SEND, Opcode.DEFERRABLE_TSEND)
MESSAGING = (
    Opcode.SEND, Opcode.TAGGED_SEND, Opcode.RENDEZVOUS_SEND, Opcode.RENDEZVOUS_TSEND, Opcode.DEFERRABLE_SEND,
    Opcode.DEFERRABLE_TSEND, Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC,
)  # fmt: skip


class InvariantViolation(AssertionError):  # noqa: N818 - no error of the program
    """An invariant does not hold."""

    def __init__(self, number: int, text: str, *values: Any) -> None:
        super().__init__(f"{number}: {text} {' '.join(map(repr, values))}")
        self.number = number


def need(condition: bool, number: int, text: str, *values: Any) -> None:
    if not condition:
        raise InvariantViolation(number, text, *values)


# One message as it was sent ------------------------------------------------------------------------------------------


def amount(packet: Packet, mtu: int, body: int) -> int:
    """Return the number of bytes of the message that a packet stands for: of a READ those that it asks for."""
    request = packet.request
    if request.opcode != Opcode.READ:
        return packet.payload
    return min(mtu, body) if request.payload_length is None else request.payload_length


def _in_extension(message: Message) -> bool:
    """A compare-and-swap has its operands in the extension, an atomic READ or INVAL has none (ses.md §6.3)."""
    return message.first.opcode in ATOMICS and not message.packets[0].payload


def ses_01_payloads_add_up(message: Message, mtu: int) -> None:
    """1. The payloads of a message's packets are request_length bytes, of a rendezvous eager_length."""
    total = sum(amount(p, mtu, message.body) for p in message.packets)
    need(_in_extension(message) or total == message.body, 1, "bytes of the message", total, message.body)


def ses_02_ranges_cover(message: Message, mtu: int) -> None:
    """2. The payload ranges of the packets are disjoint, and cover the message."""
    at = 0
    ranges = [(p.request.message_offset, amount(p, mtu, message.body)) for p in message.packets]
    for offset, size in sorted(ranges):
        need(offset == at, 2, "gap or overlap at", offset)
        at += size
    need(_in_extension(message) or at == message.body, 2, "covered", at, message.body)


def ses_03_one_som_one_eom(message: Message, mtu: int) -> None:
    """3. Exactly one packet has SOM, one EOM; one packet has both if and only if it is the only one."""
    soms, eoms = (sum(getattr(p.request, flag) for p in message.packets) for flag in ("som", "eom"))
    need((soms, eoms) == (1, 1), 3, "SOM and EOM", soms, eoms)
    both = any(p.request.som and p.request.eom for p in message.packets)
    need(both == (len(message.packets) == 1), 3, "SOM with EOM")


def ses_04_number_of_packets(message: Message, mtu: int) -> None:
    """4. N = max(1, ceil(request_length / MTU))."""
    wanted = 1 if message.first.opcode in ATOMICS else max(1, -(-message.body // mtu))
    need(len(message.packets) == wanted, 4, "packets", len(message.packets), wanted)


EQUAL = ("buffer_offset", "key", "initiator", "job_id", "pid_on_fep", "resource_index", "ri_generation", "opcode",
         "request_length", "message_id", "rel", "dc")  # fmt: skip


def ses_05_same_address(message: Message, mtu: int) -> None:
    """5. Address, key, opcode and request_length are equal in all packets of a message (dc: §13.2)."""
    for packet in message.packets:
        for name in EQUAL:
            if name == "opcode" and packet.request.opcode == Opcode.MSG_ERROR:
                continue
            need(getattr(packet.request, name) == getattr(message.first, name), 5, "changes inside a message:", name)


def ses_06_full_packets(message: Message, mtu: int) -> None:
    """6. No payload is longer than the MTU; only the last packet is shorter."""
    for packet in message.packets:
        size = amount(packet, mtu, message.body)
        need(size <= mtu, 6, "longer than the MTU:", size)
        need(size == mtu or bool(packet.request.eom), 6, "short packet before the last:", size)


def ses_07_som_length_is_implied(message: Message, mtu: int) -> None:
    """7. The SOM packet has no explicit length; implied is min(MTU, request_length)."""
    for packet in message.packets:
        if packet.request.som and not _in_extension(message):
            need(packet.request.payload_length is None, 7, "explicit length in a SOM packet")
            size = amount(packet, mtu, message.body)
            need(size == min(mtu, message.body), 7, "length of the SOM packet", size)


OF_MESSAGES: tuple[Callable[[Message, int], None], ...] = (
    ses_01_payloads_add_up, ses_02_ranges_cover, ses_03_one_som_one_eom, ses_04_number_of_packets,
    ses_05_same_address, ses_06_full_packets, ses_07_som_length_is_implied,
)  # fmt: skip


# Memory --------------------------------------------------------------------------------------------------------------


def ses_08_any_permutation(outcomes: Sequence[tuple[bytes, int]]) -> None:
    """8. Any permutation of the packets of a RUD message: the same {memory, number of completions}, and that is 1."""
    for memory, completions in outcomes:
        need(completions == 1, 8, "completions", completions)
        need(memory == outcomes[0][0], 8, "memory depends on the order of arrival")


def ses_09_inside(written: Iterable[tuple[int, int]], allowed: Sequence[tuple[int, int]]) -> None:
    """9. Each {offset, length} written lies inside a message's own bytes; `allowed` is {offset, length} too."""
    for at, size in written:
        inside = any(low <= at and at + size <= low + length for low, length in allowed)
        need(inside or not size, 9, "written outside of every message:", at, size)


def ses_10_failed_check_writes_nothing(asked: Asked) -> None:
    """10. A packet that failed a check left memory alone."""
    failed = asked.nacked or any(response.return_code not in GOOD for response, _ in asked.answers)
    need(not failed or not asked.writes, 10, "written by a packet that failed")


# Answers -------------------------------------------------------------------------------------------------------------


def ses_11_one_answer(log: Log) -> None:
    """11. Each reliable packet is answered once, at the target and to the initiator; no datagram is."""
    for asked in log.asked:
        wanted = 0 if asked.nacked or asked.mode is Mode.UUD else 1
        need(len(asked.answers) == wanted, 11, "answers at the target", asked.mode.name, len(asked.answers))
    for count in log.heard.values():
        need(count == 1, 11, "answers to the initiator", count)


def ses_12_default_is_good(asked: Asked) -> None:
    """12. DEFAULT_RESPONSE: return code OK or NULL, list EXPECTED."""
    for response, _ in asked.answers:
        if response.opcode == ResponseOpcode.DEFAULT_RESPONSE:
            need(response.return_code in GOOD, 12, "default response with code", response.return_code)
            need(response.list == ResponseList.EXPECTED, 12, "default response with list", response.list)


def ses_13_errors_are_guaranteed(asked: Asked) -> None:
    """13. Any other code is a RESPONSE; each RESPONSE has gtd_del."""
    if asked.mode not in RELIABLE:
        return
    for response, gtd in asked.answers:
        plain = response.opcode == ResponseOpcode.RESPONSE
        need(plain or response.return_code in GOOD, 13, "error in response opcode", response.opcode)
        need(gtd or not plain, 13, "RESPONSE without gtd_del, code", response.return_code)


def ses_14_response_names_its_request(asked: Asked) -> None:
    """14. message_id and job_id of a response are those of its request."""
    for response, _ in asked.answers:
        need(response.message_id == (asked.request.message_id or 0), 14, "message_id", response.message_id)
        need(response.job_id == asked.request.job_id, 14, "job_id", response.job_id)


OF_ANSWERS: tuple[Callable[[Asked], None], ...] = (
    ses_10_failed_check_writes_nothing, ses_12_default_is_good, ses_13_errors_are_guaranteed,
    ses_14_response_names_its_request,
)  # fmt: skip


# Messages of one PDC -------------------------------------------------------------------------------------------------


def ses_15_ids_are_unique(log: Log) -> None:
    """15. Two outstanding messages of an endpoint, so of a PDC, do not share an id; 0 and 0xFFFF are no ids (§3)."""
    for (_, message_id), spans in log.spans.items():
        need(message_id not in (0, 0xFFFF), 15, "message_id", message_id)
        ordered = sorted(spans)
        for (_, end), (start, _) in pairwise(ordered):
            need(end < start, 15, "two outstanding messages with id", message_id)


def ses_16_not_interleaved(log: Log) -> list[Message]:
    """16. Packets of different messages do not alternate on a PDC. Returns the messages: whole, or still open."""
    open_messages: dict[tuple[int, int], Message] = {}
    found: list[Message] = []
    for packet in log.packets:
        if packet.mode not in RELIABLE:
            continue
        key = (packet.src, packet.pdcid)
        message = open_messages.get(key)
        if message is None:
            message = open_messages[key] = Message([])
            found.append(message)
        elif packet.request.message_id != message.first.message_id:
            raise InvariantViolation(16, "interleaved messages", packet.request.message_id, message.first.message_id)
        message.packets.append(packet)
        if packet.request.eom:
            del open_messages[key]
    return found


# Completions ---------------------------------------------------------------------------------------------------------


def ses_17_one_completion(log: Log) -> None:
    """17. Each operation completes once, with success or with an error."""
    for context in log.submitted:
        count = len(log.completions.get(context, ()))
        need(count == 1, 17, "completions of", context, count)
    need(set(log.completions) <= set(log.submitted), 17, "completion of no operation")


def ses_18_dc_is_observable(success: bool, dc: bool, seen: bytes, written: bytes) -> None:
    """18. After the success of a write with dc a reader sees its bytes."""
    need(not (success and dc) or seen == written, 18, "not observable after dc")


def ses_19_read_after_write(got: bytes, written: bytes) -> None:
    """19. A read ordered after a write (RAW) returns the bytes written."""
    need(got == written, 19, "a read returned other bytes")


def ses_20_return_data(data: Sequence[Data], length: int) -> None:
    """20. Return data of a READ covers it exactly; all of it in ACKs, or all in the return direction."""
    need(len({d.in_ack for d in data}) <= 1, 20, "return data in ACKs and in the return direction")
    at = 0
    for offset, size in sorted((d.response.message_offset, d.size) for d in data):
        need(offset == at, 20, "gap or overlap at", offset)
        at += size
    need(at == length, 20, "bytes returned", at, length)


def ses_21_fetching_sum(start: int, operands: Sequence[int], fetched: Sequence[int], final: int, bits: int) -> None:
    """21. Fetching SUM: final = start + Σ operands modulo 2^bits; with operand 1 the fetched values differ."""
    need(final == (start + sum(operands)) % (1 << bits), 21, "sum", final)
    if set(operands) == {1}:
        need(len(set(fetched)) == len(fetched), 21, "a value fetched twice")


def ses_22_fetched_once(executions: int, operations: int) -> None:
    """22. A fetching atomic is executed once, also when packets or ACKs are lost."""
    need(executions == operations, 22, "executions", executions, operations)


def ses_23_compare_and_swap(holds: bool, before: bytes, swap: bytes, after: bytes, fetched: bytes | None) -> None:
    """23. CSWAP changes memory if and only if its comparison holds; it returns the old value always."""
    need(after == (swap if holds else before), 23, "value after a compare-and-swap", after)
    need(fetched is None or fetched == before, 23, "value that it returned", fetched)


# Matching ------------------------------------------------------------------------------------------------------------


def ses_24_matches(event: Received) -> None:
    """24. (tag ^ match_bits) & ~ignore == 0, and the source is compatible."""
    receive = event.receive
    if receive.tag is not None:
        need((receive.tag ^ event.tag) & ~receive.ignore == 0, 24, "tags", receive.tag, event.tag)
    need(receive.source in (None, event.initiator), 24, "sources", receive.source, event.initiator)


def ses_25_sends_in_order(pairs: Sequence[tuple[int, int]], matches: Callable[[int, int], bool]) -> None:
    """25. With SAS order the k-th matching send meets the k-th matching receive.

    `pairs` are {number of the send, number of the receive} of one initiator and one queue; `matches` tells whether a
    send would match a receive.
    """
    for first, taken in pairs:
        for later, other in pairs:
            if first < later and other < taken:
                need(not matches(first, other), 25, "overtaken at a receive:", first, later)


def ses_26_receives_end_once(log: Log) -> None:
    """26. Each posted receive completes at most once; a multi-receive is spent once.

    One that is cancelled while messages are under way in it tells of those afterwards; the last one is then spent.
    """
    for posted in log.posted:
        spent, several = sum(event.spent for event in posted.ends), bool(posted.receive.least)
        need(spent <= 1 and posted.cancelled <= 1, 26, "a receive ended more than once", spent, posted.cancelled)
        need(several or spent + posted.cancelled <= 1, 26, "completed and cancelled")
        need(several or len(posted.ends) <= 1, 26, "completions of one receive", len(posted.ends))


# Generations ---------------------------------------------------------------------------------------------------------


def ses_27_old_generation_is_refused(log: Log) -> None:
    """27. After DISABLED_GEN no message with the old generation is accepted."""
    refused: dict[tuple[int, ...], int] = {}
    for asked in log.asked:
        if asked.mode not in RELIABLE or asked.request.opcode not in MESSAGING or not asked.first:
            continue
        key = _service(asked)
        for response, _ in asked.answers:
            if response.return_code == ReturnCode.DISABLED_GEN:
                refused[key] = response.ri_generation
            elif response.return_code in GOOD and key in refused:
                need(asked.request.ri_generation != refused[key], 27, "accepted with the old generation", refused[key])


def ses_28_current_generation(asked: Asked) -> None:
    """28. BAD_GENERATION carries the RI's generation, and that is not the one it refused."""
    for response, _ in asked.answers:
        if response.return_code == ReturnCode.BAD_GENERATION and asked.first:
            need(response.ri_generation == asked.generation, 28, "generation told", response.ri_generation)
            need(response.ri_generation != asked.request.ri_generation, 28, "refused the good generation")


def _service(asked: Asked) -> tuple[int, ...]:
    r = asked.request
    tagged = r.opcode in (Opcode.TAGGED_SEND, Opcode.RENDEZVOUS_TSEND, Opcode.DEFERRABLE_TSEND, Opcode.TSEND_ATOMIC,
                          Opcode.TSEND_FETCH_ATOMIC)  # fmt: skip
    return (asked.at, r.job_id if r.rel else -1, r.pid_on_fep, tagged, r.resource_index)


# Deferral ------------------------------------------------------------------------------------------------------------


def ses_29_one_restart(log: Log) -> None:
    """29. A deferred send restarts at most once per RTR: a target's token is asked for, and is accepted once."""
    wanted = {(p.dst, p.src, p.request.rtr_tokens[0])
              for p in log.packets if p.request.opcode == Opcode.DEFERRABLE_RTR}  # fmt: skip
    seen = set()
    for asked in log.asked:
        request = asked.request
        accepted = asked.answers and asked.answers[0][0].return_code in GOOD
        if request.opcode in DEFERRABLES and request.tokens[1] and accepted and asked.first:
            key = (asked.source, asked.at, request.tokens[1])
            need(key in wanted, 29, "a restart that nobody asked for", request.tokens)
            need(key not in seen, 29, "restarted twice", request.tokens)
            seen.add(key)


def ses_30_reserved_buffer(reserved: Any, used: Any) -> None:
    """30. Restarted data arrives in the buffer that was reserved for its token."""
    need(reserved is used, 30, "another buffer than the one reserved")


def ses_31_completion_data(told: Sequence[int | None], value: int | None, complete: bool) -> None:
    """31. Completion data is delivered once, after all bytes, and bit by bit."""
    need(list(told) == [value], 31, "completion data", told, value)
    need(complete, 31, "completion data before all bytes")


def ses_32_jobs_are_apart(asked: Asked, jobs: Iterable[int]) -> None:
    """32. A packet of a job that is not here never succeeds on a relative endpoint."""
    if asked.request.rel and asked.request.job_id not in jobs:
        for response, _ in asked.answers:
            need(response.return_code not in GOOD, 32, "success for a foreign job", asked.request.job_id)


def ses_33_rudi_is_idempotent(log: Log) -> None:
    """33. RUDI carries WRITE and READ only, without completion data, to IDEMPOTENT_SAFE keys."""
    for packet in log.packets:
        if packet.mode is Mode.RUDI:
            request = packet.request
            need(request.opcode in (Opcode.WRITE, Opcode.READ), 33, "opcode on RUDI", request.opcode)
            need(not request.hd, 33, "completion data on RUDI")
            need(bool(request.key & IDEMPOTENT_SAFE), 33, "key on RUDI", request.key)


def ses_33_twice_is_once(once: bytes, twice: bytes) -> None:
    """33. Executing a RUDI packet twice equals once."""
    need(once == twice, 33, "a repeated RUDI packet changed memory")


def rebuilt(request: SesRequest) -> bytes:
    """Return the header of a request, built from its values alone."""
    r = request
    if r.next_hdr == NextHdr.REQUEST_MEDIUM:
        data = r.header_data if r.hd else None
        return build_medium(r.opcode, r.dc, r.rel, r.job_id, r.pid_on_fep, r.resource_index, r.buffer_offset,
                            r.initiator, r.key, data, r.request_length, r.ri_generation)  # fmt: skip
    if r.next_hdr == NextHdr.REQUEST_SMALL:
        return build_small(r.opcode, r.dc, r.rel, r.job_id, r.pid_on_fep, r.resource_index, r.buffer_offset,
                           r.request_length, r.ri_generation)  # fmt: skip
    address = (r.message_id or 0, r.job_id, r.pid_on_fep, r.resource_index, r.buffer_offset, r.initiator, r.key)
    if r.payload_length is None:
        return build_som(r.opcode, r.dc, r.ie, r.rel, r.hd, r.eom, *address, r.header_data, r.request_length,
                         r.ri_generation)  # fmt: skip
    return build_later(r.opcode, r.dc, r.ie, r.rel, r.hd, r.eom, *address, r.payload_length, r.message_offset,
                       r.request_length, r.ri_generation)  # fmt: skip


def ses_34_header_round_trip(packet: Packet) -> None:
    """34. The header is told by its values; its form by next_hdr, opcode and som."""
    header = rebuilt(packet.request)
    need(header == packet.header, 34, "header", packet.header.hex(), header.hex())
    again = parse_ses_request(header, 0, packet.request.next_hdr)
    need(again == packet.request, 34, "values after encode and decode")


def ses_35_retries_have_an_end(completion: Completion, limit: int) -> None:
    """35. Retries ≤ limit; after it an error completion."""
    if limit:
        need(completion.refusals <= limit + 1, 35, "refusals", completion.refusals)
        need(completion.refusals <= limit or not completion.ok, 35, "success after the limit")


def ses_36_nothing_remains(fep: Fep) -> None:
    """36. At quiescence no message state, no held response, no locked PDC, no token remains."""
    need(fep.quiescent, 36, "not quiescent")
    need(not fep.target.messages, 36, "message state", list(fep.target.messages))
    need(not fep.initiator.messages and not fep.initiator.transfers, 36, "messages of the initiator")
    need(not fep.initiator.deferrals, 36, "tokens of the initiator")
    need(not fep.target.queues.waiting, 36, "tokens of the target, or a read under way")
    for pdc in fep.pds.pdcs.values():
        need(not getattr(pdc, "locks", 0), 36, "locked PDC", pdc.local_id)


def check(log: Log) -> None:
    """Check all invariants that a run shows by itself."""
    messages = ses_16_not_interleaved(log)
    messages += [Message([p]) for p in log.packets if p.mode is Mode.UUD]
    for message in messages:
        ses_05_same_address(message, log.mtu)
        last = message.packets[-1].request
        if not last.eom or cut_short(message, log.mtu) or message.first.opcode in NO_BYTES:
            continue
        for rule in OF_MESSAGES:
            rule(message, log.mtu)
    for packet in log.packets:
        ses_34_header_round_trip(packet)
    for asked in log.asked:
        for judge in OF_ANSWERS:
            judge(asked)
        ses_28_current_generation(asked)
    for rule_of_log in OF_LOGS:
        rule_of_log(log)


NO_BYTES = (Opcode.NO_OP, Opcode.DEFERRABLE_RTR)


def cut_short(message: Message, mtu: int) -> bool:
    """Return whether a message was ended by MSG_ERROR, or by the empty packet that ends a stopped message (ses.md
    §5.12, §5.7 D3)."""
    last = message.packets[-1].request
    return last.opcode == Opcode.MSG_ERROR or (not last.som and not last.payload_length)


OF_LOGS: tuple[Callable[[Log], None], ...] = (
    ses_11_one_answer, ses_15_ids_are_unique, ses_17_one_completion, ses_26_receives_end_once,
    ses_27_old_generation_is_refused, ses_29_one_restart, ses_33_rudi_is_idempotent,
)  # fmt: skip
