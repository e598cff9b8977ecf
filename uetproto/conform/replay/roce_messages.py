# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the messages of one side of a RoCEv2 capture, and how they ended, as `messages.py` does for UET."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from uetproto.conform.replay.differences import distance
from uetproto.conform.replay.messages import MOST_BYTES, MOST_OPEN, MessageBegan, MessageEnded
from uetproto.conform.replay.roce_side import BEGINS, ENDS, NO_PAIR, PSNS, CapturedPair, RoceSurvey, kind_of
from uetproto.conform.replay.side import SidePacket
from uetproto.conform.roce.packets import CNP, RoceAnswer, is_response
from uetproto.errors import LocalError
from uetproto.wire.headers.roce import Nak, Operation
from uetproto.wire.words.text import count, numbered

ATOMIC_SIZE = 8
STATUSES = {
    None: "SUCCESS", Nak.INVALID_REQUEST: "REM_INV_REQ_ERR", Nak.REMOTE_ACCESS_ERROR: "REM_ACCESS_ERR",
    Nak.REMOTE_OPERATIONAL_ERROR: "REM_OP_ERR",
}  # fmt: skip
"""Status of the completion of a message, by the NAK that ended it (roce.md §7)."""
_PLAYED = frozenset(
    operation for operation in Operation
    if operation.name.startswith(("SEND_", "RDMA_WRITE_"))
    or operation in (Operation.RDMA_READ_REQUEST, Operation.COMPARE_SWAP, Operation.FETCH_ADD)
)  # fmt: skip
_ATOMICS = (Operation.COMPARE_SWAP, Operation.FETCH_ADD)
_AHEAD = 4096
"""Number of packets that wait for one that is missing; then it is taken for lost."""
_NOT_WHOLE = "not whole in the capture"


@dataclass(slots=True, eq=False)
class RoceMessage:
    """This class is a message of a capture, and its answer."""

    number: int
    """Number of that packet in the capture which came first."""
    pair: CapturedPair
    operation: Operation
    """Operation of its last packet, and `first` that of its first one."""
    values: dict[str, int]
    """Values of the headers of all its packets."""
    length: int
    """Number of bytes that it asks for, or carries."""
    psn: int
    """PSN of its first packet, and `last` that of its last one, or of the last packet of the answer."""
    last: int
    data: bytearray = field(default_factory=bytearray)
    status: str | None = None
    """How it ended in the capture, by the name of the status of a completion; None if it did not."""
    answer: bytearray = field(default_factory=bytearray)
    """Bytes that were read, or the number before an atomic, with its most significant byte first."""

    @property
    def fetches(self) -> bool:
        """Return whether the answer has data."""
        return self.operation is Operation.RDMA_READ_REQUEST or self.operation in _ATOMICS

    @property
    def words(self) -> str:
        """Return the message in words."""
        name = self.operation.name.replace("_ONLY", "").replace("_LAST", "").replace("_REQUEST", "")
        return f"queue pair {self.pair.number}, {self.pair.kind.upper()} {name}, {count(self.length, 'byte')}"


RoceMessageEvent = MessageBegan[RoceMessage] | MessageEnded[RoceMessage]


@dataclass(slots=True)
class _Stream:
    """The requests to a queue pair, in the order of their PSNs."""

    next: int
    """PSN that comes next."""
    ahead: dict[int, SidePacket[RoceAnswer]] = field(default_factory=dict)
    open: deque[RoceMessage] = field(default_factory=deque)
    """Messages that are whole, and not answered."""
    part: RoceMessage | None = None
    """Message that is not whole."""


class RoceMessageReader:
    """This class reads the messages of a side that are sent to some queue pairs."""

    def __init__(self, file: str, survey: RoceSurvey, pairs: Iterable[CapturedPair]) -> None:
        """`file` is named in errors; the messages to `pairs` alone are read."""
        self._file, self._survey = file, survey
        self._streams = {pair: _Stream(pair.start) for pair in pairs}
        self.left_out: Counter[str] = Counter()
        """Number of messages that are not read, by the reason."""
        self._bytes = self._open = 0
        self._passed: set[tuple[CapturedPair, int]] = set()

    def read(self, packets: Iterable[SidePacket[RoceAnswer]]) -> Iterator[RoceMessageEvent]:
        """Yield the messages, and their ends."""
        for one in packets:
            if one.answer.fault or one.answer.kind == CNP:
                continue
            if not one.sent:
                pair = self._survey.answering.get((one.other, one.answer.values["destqp"]))
                if pair in self._streams and is_response(one.answer):
                    yield from self._received(self._streams[pair], pair, one.answer)
            elif kind_of(one.answer) is not None and not is_response(one.answer):
                pair = self._survey.pairs.get((one.other, one.answer.values["destqp"]))
                if pair in self._streams:
                    yield from self._sent(self._streams[pair], pair, one)
                elif pair is not None and one.answer.values["opcode"] & 0x1F in BEGINS:
                    self._pass_by(pair, one.answer.values["psn"])
        left = sum(stream.part is not None for stream in self._streams.values())
        self.left_out += Counter({_NOT_WHOLE: left})

    def _pass_by(self, pair: CapturedPair, psn: int) -> None:
        """Count a message to a queue pair that is not played, once."""
        if len(self._passed) < MOST_OPEN and (pair, psn) not in self._passed:
            self._passed.add((pair, psn))
            self.left_out[NO_PAIR] += 1

    def _sent(self, stream: _Stream, pair: CapturedPair, one: SidePacket[RoceAnswer]) -> Iterator[RoceMessageEvent]:
        psn = one.answer.values["psn"]
        away = distance(psn, stream.next, 24)
        if pair.kind != "rc":  # what is lost is lost
            if away < 0:
                return
            if away:
                self._lose(stream)
            stream.next = psn
            yield from self._take(stream, pair, one)
            return
        if away >= 0:  # others were sent before
            known = stream.ahead.get(psn)
            self._hold(one, len(one.answer.payload) - (0 if known is None else len(known.answer.payload)))
            stream.ahead[psn] = one
        if len(stream.ahead) > _AHEAD:
            self._lose(stream)
            stream.next = min(stream.ahead, key=lambda psn: distance(psn, stream.next, 24))
        while (found := stream.ahead.pop(stream.next, None)) is not None:
            self._bytes -= len(found.answer.payload)
            yield from self._take(stream, pair, found)

    def _hold(self, one: SidePacket[RoceAnswer], size: int) -> None:
        """Count bytes that are held. Raises `LocalError` if they are too many."""
        self._bytes += size
        if self._bytes > MOST_BYTES or self._open > MOST_OPEN:
            many = f"{count(self._open, 'message')} of {count(self._bytes, 'byte')} are open"
            legal = f"at most {MOST_OPEN:,} messages and {MOST_BYTES:,} bytes; --frames has no such limit"
            raise LocalError(self._file, f"at {numbered(one.number)}, {many}", legal, id="too-many")

    def _lose(self, stream: _Stream) -> None:
        """Give up the message that is not whole, as a packet of it is missing."""
        if stream.part is not None:
            self._bytes -= len(stream.part.data)
            stream.part = None
            self.left_out[_NOT_WHOLE] += 1

    def _take(self, stream: _Stream, pair: CapturedPair, one: SidePacket[RoceAnswer]) -> Iterator[RoceMessageEvent]:
        """Take the packet that is next."""
        values, code = one.answer.values, one.answer.values["opcode"] & 0x1F
        psns = 1
        if code not in _PLAYED:
            self._lose(stream)
            self.left_out[f"an operation that no engine does: {one.answer.kind}"] += 1
            stream.next = (stream.next + psns) % PSNS
            return
        operation = Operation(code)
        if operation in BEGINS:
            self._lose(stream)
            if operation is Operation.RDMA_READ_REQUEST and pair.path_mtu is not None:
                psns = max(-(-values["dmalen"] // pair.path_mtu), 1)
            length = values.get("dmalen", ATOMIC_SIZE if operation in _ATOMICS else 0)
            stream.part = RoceMessage(one.number, pair, operation, {}, length, values["psn"], 0)
        part = stream.part
        last = stream.next = (stream.next + psns) % PSNS
        if part is None:  # its beginning is missing
            return
        part.operation, part.last = operation, (last - 1) % PSNS
        part.values |= values
        part.data += one.answer.payload
        self._hold(one, len(one.answer.payload))
        if operation not in ENDS:
            return
        part.length = len(part.data) if not part.fetches else part.length
        stream.part = None
        self._open += 1
        yield MessageBegan(part)
        if pair.kind == "rc":
            stream.open.append(part)
        else:
            yield self._end(part, "SUCCESS")

    def _received(self, stream: _Stream, pair: CapturedPair, answer: RoceAnswer) -> Iterator[MessageEnded[RoceMessage]]:
        values, psn = answer.values, answer.values["psn"]
        for message in stream.open:  # data of a read, or of an atomic
            at = distance(psn, message.psn, 24)
            if message.fetches and 0 <= at <= distance(message.last, message.psn, 24):
                self._note(message, pair, answer, at)
        nak = values.get("nak")
        before = answer.kind in ("nak", "rnr_nak")
        while stream.open:
            message = stream.open[0]
            left = distance(message.last, psn, 24)
            done = left < 0 if before else left <= 0
            if done and (not message.fetches or len(message.answer) >= message.length):
                yield self._end(stream.open.popleft(), "SUCCESS")
            elif nak in STATUSES and nak is not None and distance(message.psn, psn, 24) <= 0 <= left:
                yield self._end(stream.open.popleft(), STATUSES[Nak(nak)])
            else:
                break

    def _note(self, message: RoceMessage, pair: CapturedPair, answer: RoceAnswer, at: int) -> None:
        """Note what an answer says of its message."""
        if "origremdt" in answer.values:
            message.answer[:] = answer.values["origremdt"].to_bytes(ATOMIC_SIZE, "big")
        elif answer.kind.startswith("rdma_read_response"):
            offset = at * (pair.path_mtu or 0)
            if offset == len(message.answer):
                message.answer += answer.payload[: message.length - offset]

    def _end(self, message: RoceMessage, status: str) -> MessageEnded[RoceMessage]:
        message.status = status
        self._bytes -= len(message.data)
        self._open -= 1
        return MessageEnded(message)
