# SPDX-License-Identifier: GPL-2.0-only
"""A WRITE or SEND of one packet is executed without the full checks, with the result of these checks (ses.md §10)."""

import random
from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.engine.world import JOB, KEY, A, B, Pair
from uetproto.engine import Datagram, MessageFailed, MessageStored, Mode, RemoteWrite
from uetproto.engine.contract import Receive, Received, RemoteAccess, Send
from uetproto.engine.memory import BufferMemory
from uetproto.engine.ses.headers import build_ok, build_response
from uetproto.engine.ses.target import SesTarget
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode, Space

SIZE = 2048


class BrokenMemory(BufferMemory):
    """Memory that cannot be written, or not flushed, on demand."""

    __slots__ = ("broken",)

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self.broken = ""

    def write(self, offset: int, data: Any) -> None:
        if self.broken == "write":
            raise OSError
        super().write(offset, data)

    def flush(self) -> None:
        if self.broken == "flush":
            raise OSError


def change(pair: Pair, chance: random.Random) -> None:
    """Change one condition at the target on which the result of a WRITE depends, or reset all of them."""
    region, target = pair.region, pair.b.target
    index = pair.process.spaces[Space.RMA][15]
    what = chance.randrange(16)
    if what == 0:
        region.enabled = False
    elif what == 1:
        region.fault = ReturnCode.AT_PERM
    elif what == 2:
        region.remote_write = False
    elif what == 3:
        region.job_restriction = chance.choice((JOB, JOB + 1))
    elif what == 4:
        index.disable()
    elif what == 5:
        target.fault = lambda request: ReturnCode.HOST_POISONED
    elif what == 6:
        assert isinstance(region.memory, BrokenMemory)
        region.memory.broken = chance.choice(("write", "flush"))
    elif what == 7:
        pair.b.detach(pair.process)
        pair.process = pair.b.attach(JOB, 0, chance.choice(((15,), (14,), (14, 15))))
        pair.process.register(region)
        if 15 not in pair.process.indices:
            pair.process.open(15)
    else:
        region.enabled, region.fault, region.remote_write, region.job_restriction = True, None, True, None
        index.enable()
        target.fault = None
        assert isinstance(region.memory, BrokenMemory)
        region.memory.broken = ""


def write(pair: Pair, chance: random.Random, mode: Mode) -> None:
    length = chance.choice((0, 1, 64, 64, 64, 4096))
    fields: dict[str, Any] = {
        "mode": mode, "offset": chance.choice((0, 100, SIZE - 64, SIZE - 10)),
        "completion_data": chance.choice((None, 7)), "delivery_complete": chance.random() < 0.1,
        "job_id": chance.choice((*[JOB] * 9, JOB + 1)), "key": chance.choice((*[KEY] * 9, KEY + 1)),
        "resource_index": chance.choice((*[15] * 9, 13)), "pid_on_fep": chance.choice((*[0] * 9, 1)),
        "initiator": chance.randrange(4),
    }  # fmt: skip
    pair.write(chance.randbytes(length), **fields)


def only_first(pairs: list[Pair], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let the target of the first pair alone execute packets without the full checks. Return a list to which it adds
    each answer."""
    whole, taken = SesTarget._take_whole, []

    def take(self: SesTarget, *packet: Any) -> Any:
        answer = whole(self, *packet) if self is pairs[0].b.target else None
        if answer is not None:
            taken.append(answer)
        return answer

    monkeypatch.setattr(SesTarget, "_take_whole", take)
    return taken


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
@pytest.mark.parametrize("ses", [{}, {"response_generation": "always"}, {"write_latency": 5000}])
def test_result_is_that_of_the_full_checks(mode: Mode, ses: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The events, the packets and the memory are those of a target that makes all checks, whatever changes at the
    target between two WRITEs."""
    pairs = [Pair(BrokenMemory(bytearray(SIZE)), ses=ses) for _ in range(2)]
    taken, refused = only_first(pairs, monkeypatch), 0
    seed = random.Random(f"{mode}{ses}").getrandbits(32)
    for turn in range(effort(400, 4000, 40000)):
        for pair in pairs:
            chance = random.Random(seed + turn)
            if chance.random() < 0.4:
                change(pair, chance)
            write(pair, chance, mode)
            pair.run()
        assert pairs[0].now == pairs[1].now
        assert pairs[0].sent == pairs[1].sent
        one, two = ([e._replace(region=None) if isinstance(e, RemoteAccess) else e for e in pair.b.events()]
                    for pair in pairs)  # fmt: skip
        assert one == two
        refused += any(isinstance(event, MessageFailed) for event in one)
        assert pairs[0].a.events() == pairs[1].a.events()
        assert bytes(pairs[0].region.memory.read(0, SIZE)) == bytes(pairs[1].region.memory.read(0, SIZE))
    assert refused
    assert bool(taken) == ("response_generation" not in ses)


def change_queue(pair: Pair, chance: random.Random) -> None:
    """Change one condition at the target on which the result of a SEND depends, or reset all of them."""
    indices = [pair.process.spaces[space][15] for space in (Space.SEND, Space.TAGGED)]
    what = chance.randrange(8)
    if what == 0:
        indices[chance.randrange(2)].disable()
    elif what == 1:
        pair.b.target.fault = lambda request: ReturnCode.HOST_POISONED
    elif what == 2:
        pair.b.detach(pair.process)
        pair.process = pair.b.attach(JOB, 0, (15,))
    else:
        pair.b.target.fault = None
        for index in indices:
            index.enable()


def send(pair: Pair, chance: random.Random, mode: Mode, number: int) -> None:
    """Post a receive or none, and send a message."""
    if chance.random() < 0.8:
        limits: dict[str, Any] = {
            "tag": chance.choice((None, None, 3, 4)), "source": chance.choice((None, None, None, 1)),
            "only_job": chance.choice((None, None, None, JOB, JOB + 1)), "least": chance.choice((0, 0, 0, 100)),
            "job_id": JOB, "resource_index": 15, "context": number,
        }  # fmt: skip
        size = chance.choice((64, 64, 300, 4096))
        memory = bytearray(size) if chance.random() < 0.9 else BrokenMemory(bytearray(size))
        pair.b.submit(Receive(into=memory, **limits), pair.now)
    pair.a.submit(Send(
        peer=B, data=chance.randbytes(chance.choice((0, 1, 64, 64, 64, 4096))), mode=mode, job_id=JOB,
        tag=chance.choice((None, None, 3, 4)), initiator=chance.choice((0, 0, 1)), resource_index=15,
        completion_data=chance.choice((None, 7)), delivery_complete=chance.random() < 0.1,
    ), pair.now)  # fmt: skip


def told(event: Any) -> Any:
    """Return an event with the number and the memory of its receive in place of the receive."""
    if not isinstance(event, Received):
        return event
    into = event.receive.into
    data = bytes(into) if isinstance(into, bytearray) else bytes(into.read(0, into.length))
    return event._replace(receive=(event.receive.context, data))


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
@pytest.mark.parametrize("ses", [{}, {"response_generation": "always"}, {"unexpected_policy": "refuse"}])
def test_result_of_a_send_is_that_of_the_full_checks(
    mode: Mode, ses: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs: list[Pair] = []
    taken = only_first(pairs, monkeypatch)
    seed = random.Random(f"send {mode}{ses}").getrandbits(32)
    for turn in range(effort(200, 4000, 40000)):
        if turn % 25 == 0:  # a queue that was refused in order stays so
            pairs[:] = [Pair(bytearray(SIZE), ses=ses) for _ in range(2)]
        for pair in pairs:
            chance = random.Random(seed + turn)
            if chance.random() < 0.3:
                change_queue(pair, chance)
            send(pair, chance, mode, turn)
            pair.run()
        assert pairs[0].sent == pairs[1].sent
        assert [told(event) for event in pairs[0].b.events()] == [told(event) for event in pairs[1].b.events()]
        assert [repr(event) for event in pairs[0].a.events()] == [repr(event) for event in pairs[1].a.events()]
    indices = [[pair.process.spaces[space][15] for space in (Space.SEND, Space.TAGGED)] for pair in pairs]
    one, two = ([(len(index.posted), len(index.held), index.generation) for index in own] for own in indices)
    assert one == two
    if not ses:
        assert taken
    elif "response_generation" in ses:
        assert not taken


def test_events_of_a_lone_packet() -> None:
    """The second WRITE with the same address is executed at once, and reports what the first one reported."""
    pair = Pair(bytearray(SIZE))
    seen = []
    for _ in range(2):
        pair.write(bytes(64), completion_data=9, offset=8)
        pair.run()
        seen.append(
            [event for event in pair.b.events() if isinstance(event, (MessageStored, RemoteAccess, RemoteWrite))]
        )
    region = pair.region
    assert pair.b.target._whole_places
    assert seen == [
        [
            MessageStored(A, number, KEY, 8, 64), RemoteAccess(KEY, False, True, 64, region),
            RemoteWrite(A, 0, JOB, 0, 15, 64, 9),
        ]
        for number in (1, 2)
    ]  # fmt: skip


def test_places_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of kept places is limited, and a place is not used after a process was detached."""
    monkeypatch.setattr("uetproto.engine.ses.target._PLACES", 3)
    pair = Pair(bytearray(SIZE))
    target = pair.b.target
    for initiator in range(4):
        index = 20 + initiator
        pair.process.open(index)
    for index in (20, 21, 22, 23):
        pair.write(bytes(8), resource_index=index)
        pair.run()
    assert 1 <= len(target._whole_places) <= 3
    pair.b.detach(pair.process)
    pair.b.events()
    pair.write(bytes(8), resource_index=23)
    pair.run()
    assert [event.return_code for event in pair.b.events() if isinstance(event, MessageFailed)] == [
        ReturnCode.BAD_JOB_ID
    ]


def test_default_response() -> None:
    chance = random.Random(3)
    for _ in range(20):
        message_id, job_id, length, generation = (chance.getrandbits(bits) for bits in (16, 24, 32, 8))
        expected = build_response(
            ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, message_id, job_id, length, ri_generation=generation
        )
        assert build_ok(message_id, job_id, length, generation) == expected


@pytest.mark.parametrize("stated", [63, 65, 4097])
def test_request_length_is_that_of_the_payload(stated: int) -> None:
    """A lone packet whose request_length is not the number of its bytes is refused (ses.md §10 step 10)."""
    pair = Pair(bytearray(2 * 4096))
    for _ in range(3):
        pair.write(bytes(64), mode=Mode.RUD)
        pair.run()
    packet = bytearray([data for source, data in pair.sent if source == A][-1])
    psn, message_id = int.from_bytes(packet[4:8], "big"), int.from_bytes(packet[14:16], "big")
    packet[4:8], packet[14:16] = (psn + 1).to_bytes(4, "big"), (message_id + 1).to_bytes(2, "big")
    packet[52:56] = stated.to_bytes(4, "big")
    pair.b.events()
    pair.b.receive(Datagram(A, B, bytes(packet)), pair.now)
    assert pair.b.events() == [MessageFailed(A, message_id + 1, ReturnCode.OP_VIOLATION)]
