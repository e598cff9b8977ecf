# SPDX-License-Identifier: GPL-2.0-only
"""Each invariant of ses.md §15 holds for what is right, and fails for a violation made by hand."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.ses import invariants as inv
from tests.support.ses.headers import build_later, build_medium, build_small, build_som
from tests.support.ses.records import Asked, Data, Log, Message, Packet, Posted
from tests.support.ses.world import SECOND, US, Loss, World
from uetproto.engine import Fep, Mode, Region
from uetproto.engine.contract import Atomic, Completion, Read, Receive, Received, RemoteAccess, Send, Write
from uetproto.engine.ses.headers import SesResponse, parse_ses_request, parse_ses_response
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode

MTU, LENGTH, KEY = 1024, 2500, 0x0001000000000007
Address = tuple[int, int, int, int, int, int, int]
"""message_id, JobID, PIDonFEP, RI, buffer_offset, initiator, key."""
ADDRESS: Address = (1, 101, 0, 15, 0, 16, KEY)


def packet(header: bytes, payload: int, **fields: Any) -> Packet:
    request = parse_ses_request(header, 0, NextHdr.REQUEST_STD)
    return Packet(1, 2, fields.pop("mode", Mode.RUD), fields.pop("pdcid", 7), 0, request, None, payload, header)


def som(opcode: int = Opcode.WRITE, *, address: Address = ADDRESS, eom: int = 0, length: int = LENGTH,
        payload: int = MTU, hd: int = 0, generation: int = 0, **fields: Any) -> Packet:  # fmt: skip
    header = build_som(opcode, 0, 0, 1, hd, eom, *address, 0, length, generation)
    return packet(header, payload, **fields)


def later(
    at: int, size: int, eom: int = 0, *, address: Address = ADDRESS, length: int = LENGTH, **fields: Any
) -> Packet:
    return packet(build_later(Opcode.WRITE, 0, 0, 1, 0, eom, *address, size, at, length), size, **fields)


OTHER_ID: Address = (2, 101, 0, 15, 0, 16, KEY)
FIRST, SECOND_ONE, LAST = som(), later(MTU, MTU), later(2 * MTU, LENGTH - 2 * MTU, 1)
GOOD = Message([FIRST, SECOND_ONE, LAST])


def with_request(one: Packet, **changes: Any) -> Packet:
    return replace(one, request=replace(one.request, **changes))


BAD_MESSAGES: dict[Callable[[Message, int], None], list[Message]] = {
    inv.ses_01_payloads_add_up: [Message([FIRST, LAST]), Message([FIRST, SECOND_ONE, replace(LAST, payload=451)])],
    inv.ses_02_ranges_cover: [
        Message([FIRST, LAST]), Message([FIRST, FIRST, LAST]), Message([FIRST, SECOND_ONE, later(2000, 452, 1)]),
    ],
    inv.ses_03_one_som_one_eom: [
        Message([FIRST, SECOND_ONE]), Message([FIRST, FIRST, LAST]), Message([FIRST, LAST, LAST]),
        Message([som(eom=1), SECOND_ONE]),
    ],
    inv.ses_04_number_of_packets: [Message([FIRST, LAST]), Message([*GOOD.packets, LAST])],
    inv.ses_05_same_address: [
        Message([FIRST, with_request(SECOND_ONE, **{name: 77})]) for name in inv.EQUAL
    ],
    inv.ses_06_full_packets: [
        Message([FIRST, replace(SECOND_ONE, payload=1000)]), Message([replace(FIRST, payload=1025)]),
    ],
    inv.ses_07_som_length_is_implied: [
        Message([replace(FIRST, payload=1000)]), Message([with_request(FIRST, payload_length=1024)]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rule", inv.OF_MESSAGES, ids=lambda rule: rule.__name__)
def test_rules_of_one_message(rule: Callable[[Message, int], None]) -> None:
    rule(GOOD, MTU)
    rule(Message([som(eom=1, length=0, payload=0)]), MTU)
    for bad in BAD_MESSAGES[rule]:
        with pytest.raises(inv.InvariantViolation):
            rule(bad, MTU)


def answer(code: int = ReturnCode.OK, opcode: int = ResponseOpcode.DEFAULT_RESPONSE, **fields: Any) -> SesResponse:
    return SesResponse(**{"list": 0, "opcode": opcode, "return_code": code, "message_id": 1, "job_id": 101,
                          "modified_length": 0, **fields})  # fmt: skip


def asked(*answers: tuple[SesResponse, bool], request: Any = FIRST.request, mode: Mode = Mode.RUD,
          **fields: Any) -> Asked:  # fmt: skip
    return Asked(2, 1, 7, 5, mode, request, answers=list(answers), **fields)


OK = (answer(), False)
ERROR = (answer(ReturnCode.BAD_MKEY, ResponseOpcode.RESPONSE), True)
OTHER_JOB = replace(FIRST.request, job_id=999)
STALE = replace(FIRST.request, opcode=Opcode.SEND, ri_generation=3)


def stale(told: int) -> tuple[SesResponse, bool]:
    return answer(ReturnCode.BAD_GENERATION, ResponseOpcode.RESPONSE, ri_generation=told), True


GOOD_ANSWERS: dict[Callable[[Asked], None], list[Asked]] = {
    inv.ses_10_failed_check_writes_nothing: [asked(OK, writes=1), asked(ERROR)],
    inv.ses_12_default_is_good: [asked(OK), asked((answer(ReturnCode.NULL), False)), asked(ERROR)],
    inv.ses_13_errors_are_guaranteed: [asked(OK), asked(ERROR)],
    inv.ses_14_response_names_its_request: [asked(OK), asked(ERROR)],
    inv.ses_28_current_generation: [asked(stale(4), request=STALE, generation=4)],
    lambda a: inv.ses_32_jobs_are_apart(a, (101,)): [asked(OK), asked(ERROR, request=OTHER_JOB)],
}
BAD_ANSWERS: dict[str, list[Asked]] = {
    "ses_10_failed_check_writes_nothing": [asked(ERROR, writes=1), asked(nacked=True, writes=1)],
    "ses_12_default_is_good": [
        asked((answer(ReturnCode.BAD_MKEY), False)), asked((answer(list=ResponseList.OVERFLOW), False)),
    ],
    "ses_13_errors_are_guaranteed": [
        asked((ERROR[0], False)), asked((answer(ReturnCode.BAD_MKEY), True)),
        asked((answer(ReturnCode.OK, ResponseOpcode.RESPONSE), False)),
    ],
    "ses_14_response_names_its_request": [asked((answer(message_id=2), False)), asked((answer(job_id=2), False))],
    "ses_28_current_generation": [
        asked(stale(5), request=STALE, generation=4), asked(stale(3), request=STALE, generation=3),
    ],
    "<lambda>": [asked(OK, request=OTHER_JOB)],
}  # fmt: skip


@pytest.mark.parametrize("rule", GOOD_ANSWERS, ids=lambda rule: rule.__name__)
def test_rules_of_one_answer(rule: Callable[[Asked], None]) -> None:
    for good in GOOD_ANSWERS[rule]:
        rule(good)
    for bad in BAD_ANSWERS[rule.__name__]:
        with pytest.raises(inv.InvariantViolation):
            rule(bad)


def done(**fields: Any) -> Completion:
    return Completion(**{"context": "w", "peer": 2, "message_id": 1, "length": 1, "return_code": ReturnCode.OK,
                         **fields})  # fmt: skip


def received(receive: Receive, **fields: Any) -> Received:
    return Received(**{"receive": receive, "source": 1, "initiator": 16, "job_id": 101, "opcode": Opcode.SEND, "tag": 0,
                       "start": 0, "length": 1, "message_length": 1, **fields})  # fmt: skip


PLAIN = Receive(into=bytearray(9))
MULTI = Receive(into=bytearray(9), least=2)
RTR = packet(build_som(Opcode.DEFERRABLE_RTR, 0, 0, 1, 0, 1, 1, 101, 0, 15, 0, 16, 8 << 32 | 5, 0, 0), 0)
RESTART = replace(FIRST.request, opcode=Opcode.DEFERRABLE_SEND, buffer_offset=6 << 32 | 8)
SEND = replace(FIRST.request, opcode=Opcode.SEND)
DISABLED = (answer(ReturnCode.DISABLED_GEN, ResponseOpcode.RESPONSE, ri_generation=0), True)
SAFE = 1 << 63 | 9


def rudi(opcode: int = Opcode.WRITE, hd: int = 0, key: int = SAFE) -> Packet:
    return som(opcode, address=(1, 101, 0, 15, 0, 16, key), hd=hd, mode=Mode.RUDI)


LOGS: dict[Callable[[Log], Any], tuple[list[Log], list[Log]]] = {
    inv.ses_11_one_answer: (
        [Log(asked=[asked(OK), asked(mode=Mode.UUD), asked(nacked=True)], heard={(1, "m", 0): 1})],
        [Log(asked=[asked()]), Log(asked=[asked(OK, OK)]), Log(asked=[asked(OK, mode=Mode.UUD)]),
         Log(asked=[asked(OK, nacked=True)]), Log(heard={(1, "m", 0): 2})],
    ),
    inv.ses_15_ids_are_unique: (
        [Log(spans={(1, 1): [[0, 5], [6, 9]]})],
        [Log(spans={(1, 1): [[0, 5], [4, 9]]}), Log(spans={(1, 0): [[0, 5]]}), Log(spans={(1, 0xFFFF): [[0, 5]]})],
    ),
    inv.ses_16_not_interleaved: (
        [Log(packets=[*GOOD.packets, som(address=OTHER_ID, pdcid=8)])],
        [Log(packets=[FIRST, som(address=OTHER_ID), LAST])],
    ),
    inv.ses_17_one_completion: (
        [Log(submitted=["w"], completions={"w": [done()]})],
        [Log(submitted=["w"]), Log(submitted=["w"], completions={"w": [done(), done()]}),
         Log(completions={"w": [done()]})],
    ),
    inv.ses_26_receives_end_once: (
        [Log(posted=[Posted(PLAIN, 0, 2, [received(PLAIN)]), Posted(PLAIN, 0, 2, cancelled=1), Posted(PLAIN, 0, 2),
                     Posted(MULTI, 0, 2, [received(MULTI, spent=False), received(MULTI)], 1)])],
        [Log(posted=[Posted(PLAIN, 0, 2, [received(PLAIN), received(PLAIN, spent=False)])]),
         Log(posted=[Posted(PLAIN, 0, 2, [received(PLAIN)], 1)]),
         Log(posted=[Posted(PLAIN, 0, 2, cancelled=2)]),
         Log(posted=[Posted(MULTI, 0, 2, [received(MULTI), received(MULTI)])])],
    ),
    inv.ses_27_old_generation_is_refused: (
        [Log(asked=[asked(DISABLED, request=SEND), asked(OK, request=replace(SEND, ri_generation=1))])],
        [Log(asked=[asked(DISABLED, request=SEND), asked(OK, request=SEND)])],
    ),
    inv.ses_29_one_restart: (
        [Log(packets=[replace(RTR, src=2, dst=1)], asked=[asked(OK, request=RESTART)])],
        [Log(asked=[asked(OK, request=RESTART)]),
         Log(packets=[replace(RTR, src=2, dst=1)], asked=[asked(OK, request=RESTART), asked(OK, request=RESTART)])],
    ),
    inv.ses_33_rudi_is_idempotent: (
        [Log(packets=[rudi(), rudi(Opcode.READ), som(Opcode.SEND)])],
        [Log(packets=[rudi(Opcode.SEND)]), Log(packets=[rudi(Opcode.ATOMIC)]), Log(packets=[rudi(hd=1)]),
         Log(packets=[rudi(key=KEY)])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", LOGS, ids=lambda rule: rule.__name__)
def test_rules_of_a_run(rule: Callable[[Log], Any]) -> None:
    right, wrong = LOGS[rule]
    for log in right:
        rule(log)
    for log in wrong:
        with pytest.raises(inv.InvariantViolation):
            rule(log)


def data(at: int, size: int, in_ack: bool = False) -> Data:
    return Data(2, 1, 7, 0, in_ack, answer(message_offset=at), size)


def crossed(first: int, receive: int) -> bool:
    return True


VALUES: dict[Callable[..., None], tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    inv.ses_08_any_permutation: ([([(b"a", 1), (b"a", 1)],)], [([(b"a", 1), (b"b", 1)],), ([(b"a", 2)],)]),
    inv.ses_09_inside: ([([(5, 3)], [(0, 4), (4, 4)])], [([(5, 4)], [(0, 4), (4, 4)]), ([(9, 1)], [])]),
    inv.ses_18_dc_is_observable: (
        [(True, True, b"a", b"a"), (True, False, b"", b"a"), (False, True, b"", b"a")], [(True, True, b"", b"a")],
    ),
    inv.ses_19_read_after_write: ([(b"a", b"a")], [(b"b", b"a")]),
    inv.ses_20_return_data: (
        [([data(4, 2), data(0, 4)], 6)],
        [([data(0, 4), data(4, 2, True)], 6), ([data(0, 4)], 6), ([data(0, 4), data(3, 3)], 6)],
    ),
    inv.ses_21_fetching_sum: (
        [(250, [1] * 10, range(10), 4, 8)], [(250, [1] * 10, range(10), 5, 8), (0, [1, 1], [0, 0], 2, 8)],
    ),
    inv.ses_22_fetched_once: ([(3, 3)], [(4, 3), (2, 3)]),
    inv.ses_23_compare_and_swap: (
        [(True, b"a", b"b", b"b", b"a"), (False, b"a", b"b", b"a", b"a")],
        [(True, b"a", b"b", b"a", b"a"), (False, b"a", b"b", b"b", b"a"), (True, b"a", b"b", b"b", b"b")],
    ),
    inv.ses_24_matches: (
        [(received(Receive(into=b"", tag=5, ignore=1, source=16), tag=4),)],
        [(received(Receive(into=b"", tag=5), tag=4),), (received(Receive(into=b"", tag=5, ignore=1), tag=7),),
         (received(Receive(into=b"", source=17)),)],
    ),
    inv.ses_25_sends_in_order: ([([(1, 1), (2, 2)], crossed)], [([(1, 2), (2, 1)], crossed)]),
    inv.ses_30_reserved_buffer: ([(PLAIN, PLAIN)], [(PLAIN, MULTI)]),
    inv.ses_31_completion_data: (
        [([7], 7, True), ([None], None, True)],
        [([], 7, True), ([7, 7], 7, True), ([8], 7, True), ([7], 7, False)],
    ),
    inv.ses_33_twice_is_once: ([(b"a", b"a")], [(b"a", b"b")]),
    inv.ses_34_header_round_trip: ([(FIRST,), (LAST,)], [(replace(FIRST, header=LAST.header),)]),
    inv.ses_35_retries_have_an_end: (
        [(done(refusals=10), 10), (done(refusals=11, return_code=ReturnCode.NO_MATCH), 10), (done(refusals=99), 0)],
        [(done(refusals=12, return_code=ReturnCode.NO_MATCH), 10), (done(refusals=11), 10)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", VALUES, ids=lambda rule: rule.__name__)
def test_rules_of_values(rule: Callable[..., None]) -> None:
    right, wrong = VALUES[rule]
    for values in right:
        rule(*values)
    for values in wrong:
        with pytest.raises(inv.InvariantViolation):
            rule(*values)


def test_36_sees_what_remains() -> None:
    """36: a fresh endpoint has nothing; each kind of rest is found."""
    inv.ses_36_nothing_remains(Fep(1, random.Random(0)))
    for spoil in (
        lambda fep: fep.target.messages.__setitem__((1, 1), object()),
        lambda fep: fep.initiator.messages.__setitem__(1, object()),
        lambda fep: fep.initiator.transfers.__setitem__(object(), None),
        lambda fep: fep.initiator.deferrals.__setitem__(1, object()),
        lambda fep: setattr(fep.target.queues, "_reading", 1),
    ):
        fep = Fep(1, random.Random(0))
        spoil(fep)
        with pytest.raises(inv.InvariantViolation):
            inv.ses_36_nothing_remains(fep)


def test_every_number_has_a_function() -> None:
    numbers = {name[4:6] for name in dir(inv) if name.startswith("ses_")}
    assert numbers == {f"{n:02}" for n in range(1, 37)}
    for name in dir(inv):
        if name.startswith("ses_"):
            assert getattr(inv, name).__doc__.startswith(f"{int(name[4:6])}. ")


def test_violations_do_not_pass_unseen() -> None:
    """The whole judgement of a run finds each rule of a message too."""
    log = Log(MTU, packets=[FIRST, SECOND_ONE, replace(LAST, payload=1)])
    with pytest.raises(inv.InvariantViolation):
        inv.check(log)


# What is not seen in a machine of random operations: runs of their own ------------------------------------------------


class _Pdc:
    mode, peer, local_id = Mode.RUD, 1, 5


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.SEND])
def test_08_all_permutations(opcode: Opcode) -> None:
    """8: four packets in every order."""
    payload = random.Random(1).randbytes(4 * MTU - 100)
    ask = (9, 101, 0, 15, 0, 16, KEY if opcode is Opcode.WRITE else 0)
    packets = []
    for k in range(4):
        part = payload[k * MTU : (k + 1) * MTU]
        header = (
            build_som(opcode, 0, 0, 1, 1, 0, *ask, 77, len(payload)) if k == 0
            else build_later(opcode, 0, 0, 1, 1, k == 3, *ask, len(part), k * MTU, len(payload))
        )  # fmt: skip
        packets.append((header, part))
    outcomes = []
    for order in itertools.permutations(packets):
        world = World((2,), mtu=MTU)
        memory = world.memory(bytearray(5 * MTU))
        fep = world.feps[2]
        fep.attach(101).register(Region(KEY, memory))
        if opcode is Opcode.SEND:
            world.submit(2, Receive(into=memory, job_id=101))
        for psn, (header, part) in enumerate(order):
            fep.on_request(_Pdc(), psn, NextHdr.REQUEST_STD, header, 0, part, 0)
        world.poll()
        ends = [event for event in world.events[2] if type(event).__name__ in ("RemoteWrite", "Received")]
        assert all(event.data == 77 for event in ends)  # type: ignore[union-attr]
        outcomes.append((bytes(memory.view), len(ends)))
        inv.ses_09_inside(memory.writes, [(0, len(payload))])
    inv.ses_08_any_permutation(outcomes)
    assert outcomes[0][0] == payload.ljust(5 * MTU, b"\0")


@pytest.mark.parametrize("length", [0, 1, 16, 17, MTU, 3 * MTU, 5000])
@pytest.mark.parametrize("ack_data", [0, 16, MTU])
def test_20_data_of_reads(length: int, ack_data: int) -> None:
    """20: in ACKs if all of it fits Max_ACK_Data_Size, else in the return direction, also a short last packet."""
    world = World((1, 2), mtu=MTU, pds={"max_ack_data_size": ack_data})
    world.feps[2].attach(101).register(Region(KEY, world.memory(bytearray(8192))))
    world.submit(1, Read(peer=2, job_id=101, key=KEY, into=bytearray(length)))
    world.settle()
    inv.ses_20_return_data(world.log.data, length)
    assert {d.in_ack for d in world.log.data} == {length <= ack_data}


@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_22_fetched_once(lost: float) -> None:
    """22: also when packets and ACKs are lost."""
    world = World((1, 2), mtu=MTU, loss=Loss(lost, 0.3, US, 50 * US), pds={"max_rto_retx_cnt": 15})
    world.feps[2].attach(101).register(Region(KEY, world.memory(bytearray(8))))
    for n in range(20):
        world.submit(1, Atomic(peer=2, job_id=101, key=KEY, opcode=2, datatype=7, data=(1).to_bytes(8, "little"),
                               result=bytearray(8), context=n, mode=Mode.RUD))  # fmt: skip
    world.settle()
    inv.ses_22_fetched_once(sum(isinstance(event, RemoteAccess) for event in world.events[2]), 20)
    inv.check(world.log)


def test_33_a_repeated_packet() -> None:
    """33: RUDI packets delivered twice, in any order."""
    world = World((2,), mtu=MTU)
    memories = [world.memory(bytearray(2 * MTU)) for _ in range(2)]
    process = world.feps[2].attach(101)
    pdc: Any = _Pdc()
    for times, memory in zip((1, 2), memories, strict=True):
        region = process.register(Region(SAFE, memory))
        parts = [
            (build_som(Opcode.WRITE, 0, 0, 1, 0, 0, 1, 101, 0, 15, 0, 16, SAFE, 0, 2 * MTU), b"a" * MTU),
            (build_later(Opcode.WRITE, 0, 0, 1, 0, 1, 1, 101, 0, 15, 0, 16, SAFE, MTU, MTU, 2 * MTU), b"b" * MTU),
        ]
        pdc.mode = Mode.RUDI
        for header, part in parts * times:
            found = world.feps[2].target.on_request(pdc, 1, NextHdr.REQUEST_STD, header, 0, part, 0)
            assert parse_ses_response(found.header, found.next_hdr).return_code == ReturnCode.OK  # type: ignore[union-attr]
        process.regions.pop(region.key)
    inv.ses_33_twice_is_once(bytes(memories[0].view), bytes(memories[1].view))


@pytest.mark.parametrize("form", [NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_SMALL])
def test_34_short_forms(form: NextHdr) -> None:
    """34: the short forms as well."""
    medium = build_medium(Opcode.WRITE, 1, 1, 101, 3, 15, 7, 16, KEY, None, 9)
    small = build_small(Opcode.READ, 1, 1, 101, 3, 5, 7, 9)
    header = medium if form is NextHdr.REQUEST_MEDIUM else small
    request = parse_ses_request(header, 0, form)
    inv.ses_34_header_round_trip(Packet(1, 2, Mode.RUD, 7, 0, request, None, 0, header))


def test_whole_run_is_judged() -> None:
    """A run without faults passes all of it; a completion too many does not."""
    world = World((1, 2), mtu=MTU)
    world.feps[2].attach(101).register(Region(KEY, world.memory(bytearray(8192))))
    world.submit(2, Receive(into=bytearray(100), job_id=101))
    world.submit(1, Write(peer=2, job_id=101, key=KEY, data=bytes(3000), context=1))
    world.submit(1, Send(peer=2, job_id=101, data=b"abc", context=2))
    world.settle()
    assert world.now < SECOND
    inv.check(world.log)
    assert len(world.log.packets) == 4
    world.log.completions[1].append(done())
    with pytest.raises(inv.InvariantViolation):
        inv.check(world.log)
