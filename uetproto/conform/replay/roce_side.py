# SPDX-License-Identifier: GPL-2.0-only
"""This module reads what one side of a capture does over RoCEv2: to which queue pairs it sends, and which memory it
names."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count, islice

from uetproto.audit.per_packet.queue_pairs import QueuePairs
from uetproto.conform.replay.side import MOST_ADDRESSES, SideSurvey, address_of
from uetproto.conform.roce.packets import RoceAnswer, answer_of, is_response
from uetproto.conform.roce.pairs import PeerMemory
from uetproto.errors import LocalError
from uetproto.wire.capture.base import Record
from uetproto.wire.headers.roce import OPERATIONS, PMTUS, Load, Nak, Operation
from uetproto.wire.packet import Packet

FULL = frozenset(operation for operation, form in OPERATIONS.items() if form.load is Load.FULL)
"""Operations whose packets have the path MTU as payload."""
BEGINS = frozenset(
    operation for operation in Operation
    if operation.name.endswith("_FIRST") or "_ONLY" in operation.name
    or operation in (Operation.RDMA_READ_REQUEST, Operation.COMPARE_SWAP, Operation.FETCH_ADD)
)  # fmt: skip
"""Operations of the first packet of a message."""
ENDS = frozenset(
    operation for operation in Operation if not operation.name.endswith(("_FIRST", "_MIDDLE"))
)  # fmt: skip
"""Operations of the last packet of a message."""
PSNS = 1 << 24
PAGE = 1 << 12
NO_PAIR = "to queue pairs that the peer does not have, or that --transport leaves out"
"""Why packets and messages are left out."""
PairKey = tuple[int, int]
"""Type of a queue pair of the other end: its address, and its number."""


@dataclass(slots=True, eq=False)
class CapturedPair:
    """This class is a queue pair of the other end, to which the side sends requests."""

    number: int
    kind: str
    """Service of the queue pair: rc, uc or ud."""
    start: int
    """PSN of the first message that the capture has whole from its beginning on."""
    q_key: int = 0
    p_key: int | None = None
    """P_Key of its answers, or None if it gave none."""
    path_mtu: int | None = None
    """Path MTU, or None if no message was longer than a packet."""
    largest: int = 0
    """Number of bytes of the largest payload."""
    longest: int = 0
    """Number of bytes of the longest message that needs a receive."""
    receives: int = 0
    """Number of messages that need a receive."""
    _length: int = 0

    def look(self, found: RoceAnswer) -> None:
        """Look at a packet of a message in either direction."""
        operation, size = found.values["opcode"] & 0x1F, len(found.payload)
        if operation in FULL and size in PMTUS:
            self.path_mtu = size
        if operation in BEGINS:
            self._length = 0
        self._length += size
        self.largest = max(self.largest, size)
        if operation in ENDS and ("immdt" in found.values or "SEND" in Operation(operation).name):
            self.receives += 1
            self.longest = max(self.longest, self._length)


@dataclass(slots=True)
class RoceSurvey(SideSurvey):
    """This class has what one reading of a capture tells of a side that speaks RoCEv2."""

    pairs: dict[PairKey, CapturedPair] = field(default_factory=dict)
    """Queue pairs to which the side sends requests, in the order in which they were seen."""
    answering: dict[PairKey, CapturedPair] = field(default_factory=dict)
    """The same by the number of the queue pair of the side, to which their answers go."""
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Addresses from and to which the side names, by r_key, of keys that were not refused."""

    @property
    def regions(self) -> list[int]:
        """Return the sizes of memory that stands for that of each key. It begins with the page of the first byte, so
        that addresses keep their place in a page."""
        return [low % PAGE + high - low for low, high in self.ranges.values()]

    def placed(self, memory: PeerMemory) -> list[PeerMemory]:
        """Return such memory within the memory of the peer, one piece behind the other. Raises `LocalError` if it does
        not fit."""
        found, at = [], memory.address + -memory.address % PAGE
        for size in self.regions:
            found.append(PeerMemory(memory.key, at, size))
            at += size + -size % PAGE
        if memory.length and at > memory.address + memory.length:
            needed = f"the messages of this side need {at - memory.address:,} bytes of memory"
            raise LocalError(
                "--peer", f"it has {memory.length:,} bytes, and {needed}", "more memory at the peer",
                id="nothing-to-replay"
            )  # fmt: skip
        return found


def roce_survey(packets: Iterable[tuple[Record, Packet]], version: int, address: int, file: str) -> RoceSurvey:
    """Read a capture, and return what it has of the side with an address.

    Raises `LocalError` if the capture has no request of RoCEv2 from this address, or a packet that was cut by the
    capture.
    """
    found, streams, others = RoceSurvey(), QueuePairs(count().__next__, {}), False
    of_index: dict[int, CapturedPair] = {}
    askers: dict[str, None] = {}
    answered: dict[PairKey, int] = {}
    ranges = _Ranges()
    for number, (record, packet) in enumerate(packets):
        found.packets += 1
        ends = address_of(packet)
        if ends is None or "fragment" in packet.notes or "udp" not in packet:
            continue
        answer = answer_of(packet)
        if answer is None:
            is_uet = any(layer.form.startswith("pds.") for layer in packet.layers)
            others = others or (is_uet and ends[:2] == (version, address))
            continue
        found.note(*ends[:2])
        kind = kind_of(answer)
        asks = kind is not None and not is_response(answer)
        if asks and len(askers) < MOST_ADDRESSES:
            askers[found.senders.get(ends[1], "")] = None
        if ends[0] != version or address not in ends[1:]:
            continue
        index = streams.take(packet.layers)
        key = ends[2], answer.values["destqp"]
        if ends[1] == address:
            found.measure(number, record, packet, file)
            if not asks or answer.fault:
                continue
            pair = found.pairs.get(key)
            if pair is None:
                if answer.values["opcode"] & 0x1F not in BEGINS or len(found.pairs) >= MOST_ADDRESSES:
                    continue
                pair = CapturedPair(len(found.pairs), kind or "", answer.values["psn"], answer.values.get("q_key", 0))
                found.pairs[key] = of_index[index] = pair
            pair.look(answer)
            ranges.take(pair, answer)
        elif kind == "rc" and not asks:
            index = streams.alias.get(index, index)
            if len(answered) < MOST_ADDRESSES:
                answered.setdefault((ends[1], answer.values["destqp"]), index)
            if index in of_index:
                of_index[index].look(answer)
                of_index[index].p_key = answer.values["p_key"]
                ranges.answer(of_index[index], answer)
    if address not in found.senders:
        raise found.nobody(version, address, file, "RoCEv2", "uet" if others else "")
    if not found.pairs:
        told = f"{found.senders[address]} sends no request of RC, UC or UD in {file}"
        raise LocalError(
            "--as", told, ", ".join(islice(askers, 12)) or "a sender of requests; the capture has none",
            id="nothing-to-replay"
        )  # fmt: skip
    aliases = streams.alias
    of_index |= {aliases[index]: pair for index, pair in of_index.items() if index in aliases}
    found.answering = {
        key: of_index[aliases.get(index, index)]
        for key, index in answered.items()
        if aliases.get(index, index) in of_index
    }
    _join_the_last(found, answered)
    found.ranges = ranges.good()
    return found


def _join_the_last(found: RoceSurvey, answered: Iterable[PairKey]) -> None:
    """Let the only answers of an end whose queue pair is not known be those of its only queue pair without answers."""
    for other in {address for address, _ in answered}:
        lone = [key for key in answered if key[0] == other and key not in found.answering]
        silent = [
            pair for (address, _), pair in found.pairs.items()
            if address == other and pair.kind == "rc" and pair not in found.answering.values()
        ]  # fmt: skip
        if len(lone) == len(silent) == 1:
            found.answering[lone[0]] = silent[0]


def kind_of(answer: RoceAnswer) -> str | None:
    """Return the service of a packet: rc, uc or ud, or None for another one."""
    return {0: "rc", 1: "uc", 3: "ud"}.get(answer.values["opcode"] >> 5)


class _Ranges:
    """Finds the memory that a side names, without what its peer refused."""

    def __init__(self) -> None:
        self._asked: dict[tuple[CapturedPair, int], tuple[int, int, int]] = {}
        """Key, address and length of requests that are not answered yet, by queue pair and PSN."""
        self._good: dict[int, tuple[int, int]] = {}

    def take(self, pair: CapturedPair, request: RoceAnswer) -> None:
        values = request.values
        length = values.get("dmalen", 8)
        if "r_key" not in values or not length:  # it names nothing of the memory
            return
        self._asked[pair, values["psn"]] = values["r_key"], values.get("va", 0), length
        if len(self._asked) > MOST_ADDRESSES:
            self._commit(next(iter(self._asked)))

    def answer(self, pair: CapturedPair, answer: RoceAnswer) -> None:
        if answer.values.get("nak") == Nak.REMOTE_ACCESS_ERROR:
            self._asked.pop((pair, answer.values["psn"]), None)

    def _commit(self, key: tuple[CapturedPair, int]) -> None:
        r_key, low, length = self._asked.pop(key)
        before = self._good.get(r_key, (low, low + length))
        if r_key in self._good or len(self._good) < MOST_ADDRESSES:
            self._good[r_key] = min(before[0], low), max(before[1], low + length)

    def good(self) -> dict[int, tuple[int, int]]:
        """Return lowest and highest address of each key that was not refused."""
        for key in list(self._asked):
            self._commit(key)
        return self._good
