# SPDX-License-Identifier: GPL-2.0-only
"""This module has the conditions under which a packet is handled by itself and not in a train, each with its reason.

Both transports, the NIC and the builder of networks ask these conditions, and name them when they apply. What they ask
of a PDC is in `engine.pds.trains`, and of a queue pair in `engine.roce.trains`; `framing.tss_trains` asks those of
sealed packets, `engine.sharp.trains` and `engine.roce.messages` those of SHARP. The table of
docs/explanation/speed.md is made from this one.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any


class Asked(Enum):
    """This enumeration names the places where a condition is asked."""

    NETWORK = "when a network is built"
    SOURCE = "at the source of packets"
    NIC = "at the NIC that packets arrive at"
    TARGET = "at the endpoint that packets arrive at"
    ACK = "at the source, when an ACK arrives"


NETWORK, SOURCE, NIC, TARGET, ACK = Asked
UET, ROCE = "UET", "RoCE"


class Split(Enum):
    """A split is a condition under which a packet goes by itself. The order is that of the documentation."""

    def __init__(self, asked: Asked | tuple[Asked, ...], transports: str, when: str, reason: str) -> None:
        self.asked = asked if isinstance(asked, tuple) else (asked,)
        """Places where the condition is asked."""
        self.transports = transports
        """Transports that have the condition, in one text."""
        self.when = when
        """When the condition applies, in words, without a verb of the packet."""
        self.reason = reason
        """Why the packet goes by itself then."""
        self.number = len(type(self).__members__)
        """Position of the condition in the table."""

    OBJECTS = (
        NETWORK, "UET, RoCE", 'frames are not encoded (`wire = "objects"`)', "there are no frames to make together",
    )  # fmt: skip
    SCRIPT = NETWORK, "UET, RoCE", "a wire that a script controls", "a step of the script may keep each packet"
    ENGINE = NETWORK, "UET, RoCE", "an engine or a framer that knows no trains", "single packets are sent and taken"
    CONGESTION_CONTROL = (
        (NETWORK, SOURCE), "UET, RoCE", "congestion control of UET; a queue pair that DCQCN has slowed down",
        "a packet leaves when its context or its rate permits",
    )  # fmt: skip
    ACK_PER_PACKET = NETWORK, "UET", "`enb_ack_per_pkt`", "each packet has its own ACK"
    CLEARS = (
        NETWORK, "UET", '`clear_source = "cack"`, `clear_at = "message"`',
        "each packet must look at what it clears",
    )  # fmt: skip
    PROBES = NETWORK, "UET", "losses found by probes", "a probe may follow each packet"

    ROOM = (
        SOURCE, "UET, RoCE", "the window, the ring of the NIC, or its gate with PFC, permits fewer than two packets",
        "one packet is no train",
    )  # fmt: skip
    EDGE = (
        SOURCE, "UET, RoCE", "the first and the last packet of a message, and one that is alone between them",
        "their headers, and what follows from them, differ",
    )  # fmt: skip
    KIND = (
        SOURCE, "UET, RoCE", "atomics, read requests and their data, messages with extension headers",
        "the packets differ, or each of them has its own answer",
    )  # fmt: skip
    MODE = (NETWORK, SOURCE), "UET, RoCE", "RUDI, UUD, UC and UD", "a packet does not wait for the one before it"
    NOT_ESTABLISHED = (
        (SOURCE, TARGET, ACK), "UET, RoCE", "a PDC that is not ESTABLISHED or has a SYN; a queue pair in another state",
        "each packet may change the state",
    )  # fmt: skip
    LOCKED = SOURCE, "UET", "a message that locks its PDC", "it waits for data of earlier reads"
    CLEAR_DUE = SOURCE, "UET", "a CLEAR that is owed or whose timer runs", "the next packet carries it"
    LAST_PSNS = SOURCE, "UET", "the last PSNs of a PDC", "the PDC begins to close"
    RETRANSMISSION = (
        (SOURCE, ACK), "UET, RoCE", "packets that are sent again, and ACKs while they are",
        "their timers, and what they answer, differ",
    )  # fmt: skip
    MEMORY = (
        (SOURCE, TARGET), "UET, RoCE", "memory in several parts, or neither a buffer nor a file",
        "a payload is no view of one place",
    )  # fmt: skip

    CHANGED = (
        NIC, "UET, RoCE",
        "a fault, a queue or the wire of `generate` that loses, damages, trims, marks, delays or repeats a frame",
        "another frame is expected next; what follows goes by itself, with `generate` as another train",
    )  # fmt: skip
    TIMER = NIC, "UET, RoCE", "a timer of the endpoint that is due", "packets that wait are processed first"
    LOOK = (
        NIC, "UET, RoCE", "work that is submitted, an event that is told, a program that looks",
        "packets that wait are processed first",
    )  # fmt: skip

    KEYS = (
        NIC, "UET", "a sealed packet that its receiver would not open, or when a new key or epoch is due",
        "the receiver opens the packet",
    )  # fmt: skip
    COUNTERS = NIC, "UET", "sealed packets for which the key has no counter left", "they are not sent"

    UNKNOWN = (
        TARGET, "UET, RoCE", "another address, PDC, queue pair, key or kind of packet than the one in use",
        "the endpoint has to check the packet",
    )  # fmt: skip
    GAP = TARGET, "UET, RoCE", "a packet that is missing, or has arrived already", "each packet may fill the gap"
    RESPONSES = (
        TARGET, "UET", "responses that are stored, packets that wait or are buffered, a PDC that shall close",
        "each packet may let one go",
    )  # fmt: skip
    LIMITS = TARGET, "UET", "limits of one response or one buffered packet", "each packet may reach the limit"
    CLEAR_AHEAD = TARGET, "UET", "a CLEAR beyond the packets that have arrived", "it is an error of the peer"
    MESSAGE = (
        (SOURCE, TARGET), "UET, RoCE",
        "a message that is refused or deferred, or whose region, receive or rights have changed",
        "SES, or the responder, has to check each packet",
    )  # fmt: skip
    BUSY = (
        (TARGET, ACK), "UET, RoCE", "an endpoint that has more to send",
        "the poll after the packet sends it",
    )  # fmt: skip

    LOSS_INFERRED = ACK, "UET", "losses inferred from SACK", "each ACK may say that a packet is lost"
    ACK_SAYS_MORE = (
        ACK, "UET, RoCE", "an ACK that says more than that packets arrived in order, or ends a message",
        "it is not the same as a later ACK",
    )  # fmt: skip

    CHUNK = (
        TARGET, "SHARP", "the first and last chunk of an operation, one of another size, with a status, or sent again",
        "it is parsed and checked",
    )  # fmt: skip
    CHUNK_HEADER = (
        TARGET,
        "SHARP",
        "a chunk that differs from the one before it in more than `vec_off`",
        "it is parsed and checked",
    )
    CHUNK_ORDER = (
        TARGET, "SHARP", "a chunk that begins, completes or repeats an operation, or whose group, tree or job changed",
        "the state tables process it",
    )  # fmt: skip
    OTHER_MESSAGE = (
        (SOURCE, TARGET), "SHARP over RoCE",
        "a message of several packets, out of order or without a receive, and acknowledgements of other messages",
        "it needs a work request, or a completion",
    )  # fmt: skip

    def __repr__(self) -> str:
        return f"Split.{self.name}"

    @property
    def told(self) -> str:
        """Return the name as results and the documentation have it."""
        return self.name.lower().replace("_", " ")


_PLACES = tuple(place.name.lower() for place in (SOURCE, TARGET, ACK))
"""Names of the places at which a tally counts."""


class TrainTally:
    """A train tally counts the trains that an endpoint has sent, and its packets that went by themselves, by condition.

    `source`, `target` and `ack` have a counter at the `number` of each condition. At the target an arrival counts once,
    also if the packets behind it go by themselves, too.
    """

    __slots__ = ("ack", "made", "network", "source", "target")

    def __init__(self) -> None:
        self.made = 0
        """Number of trains that were sent."""
        self.network: Split | None = None
        """Condition by which the endpoint makes no trains at all."""
        self.source, self.target, self.ack = ([0] * len(Split) for _ in range(3))

    def as_dict(self) -> dict[str, Any]:
        """Return all that was counted, by the names of places and conditions."""
        told: dict[str, Any] = {"made": self.made}
        if self.network is not None:
            told["network"] = self.network.told
        for place in _PLACES:
            counts = zip(Split, getattr(self, place), strict=True)
            if found := {split.told: count for split, count in counts if count}:
                told[place] = found
        return told


def summed(tallies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of tallies that `TrainTally.as_dict` returned. `network` is in it if all of them have the same
    one."""
    told: dict[str, Any] = {"made": 0}
    reasons: set[str | None] = set()
    for tally in tallies:
        told["made"] += tally["made"]
        reasons.add(tally.get("network"))
        for place in _PLACES:
            for name, count in tally.get(place, {}).items():
                counts = told.setdefault(place, {})
                counts[name] = counts.get(name, 0) + count
    if len(reasons) == 1 and (reason := reasons.pop()) is not None:
        told["network"] = reason
    return told


def words(told: Mapping[str, Any]) -> str:
    """Return a tally, as `TrainTally.as_dict` returns it, as text."""
    alone = [
        f"{place} ({', '.join(f'{name} {count:,}' for name, count in told[place].items())})"
        for place in _PLACES
        if place in told
    ]
    why = told.get("network", f"by themselves: {', '.join(alone)}" if alone else "")
    return f"{told['made']:,} {'train' if told['made'] == 1 else 'trains'}{'; ' if why else ''}{why}"


def table(splits: Iterable[Split] = Split) -> str:
    """Return the conditions as a table of Markdown."""
    rows = ["| name | when | where it is asked | transport | why |", "|---|---|---|---|---|"]
    for split in splits:
        where = ", ".join(at.name.lower() for at in split.asked)
        rows.append(f"| {split.told} | {split.when} | {where} | {split.transports} | {split.reason} |")
    return "\n".join(rows)
