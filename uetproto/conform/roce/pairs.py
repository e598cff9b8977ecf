# SPDX-License-Identifier: GPL-2.0-only
"""This module has the queue pairs of a peer that a test of RoCE talks to, whoever makes them (`PairSource`), and what
peers tell of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from uetproto.errors import LocalError
from uetproto.live.rendezvous import Json, number

KINDS = ("rc", "uc", "ud")
"""Services of queue pairs."""
NEEDS = {
    "read_only": "memory that peers may only read", "write_only": "memory that peers may only write",
    "other_domain": "memory of another protection domain", "own_memory": "memory of the test alone, of a known length",
    "own_key": "memory of the test alone, whose key it may end",
    "reports": "reports of the messages that its receives have taken", "cnp": "CNPs for marked packets",
    "posts": "work of its own that it posts when it is told to",
}  # fmt: skip
"""What tests may need of the peer, by the names that they have for it, and in words."""
OPTIONAL = {
    "uc": "queue pairs of UC", "ud": "queue pairs of UD", "read": "RDMA READ", "atomic": "atomics",
    "invalidate": "SEND with invalidate", "immediate": "immediate data", "data": "bytes of ours to write or send",
}  # fmt: skip
"""What not every adapter has, by the names that tests and --without have for it, and in words."""
SETTINGS = {
    "receives": (0, 32), "receive_size": (1, 1 << 20), "again": (0, 1), "path_mtu": (256, 4096),
    "min_rnr_timer": (0, 31), "max_dest_rd_atomic": (0, 16), "access": (0, 15), "start": (0, (1 << 24) - 1),
    "first": (0, (1 << 24) - 1), "timeout": (0, 31),
    "retry_cnt": (0, 7), "rnr_retry": (0, 7),
}  # fmt: skip
"""What a test may ask of a queue pair, with least and greatest values: `access` are the rights of roce.md §10, `start`
is the PSN that the peer expects first, and `first` that of its own first request. With `again` receives that were taken
are posted again."""
MOST = 4
"""Largest number of queue pairs of a test."""
MOST_AT_ONCE = 256
"""Largest number of queue pairs that a peer makes at a time."""
MOST_ROOM = 256 << 20
"""Largest number of bytes of the receives of these queue pairs, and of further memory."""
MOST_REGIONS = 256
"""Largest number of pieces of further memory."""
REPORTED = ("received", "on", "data", "from", "length", "immdt", "se", "srcqp", "network")
"""Keys of a step that says what receives of the peer have taken."""
POSTS = (
    "send", "send_with_imm", "send_with_inv", "rdma_write", "rdma_write_with_imm", "rdma_read", "atomic_cmp_and_swp",
    "atomic_fetch_and_add",
)  # fmt: skip
"""Work that a test may have the peer post, by its opcode in verbs."""
POSTED = ("post", "on", "data", "as", "length", "imm_data", "compare_add", "swap")
"""Keys of a step that has the peer post work."""
COMPLETED = ("completed", "on", "status", "data")
"""Keys of a step that says what work of the peer has completed."""
MEMORY = 1 << 16
"""Number of bytes of each piece of memory that the peer makes for a test."""


class PairWish(NamedTuple):
    """This tuple says what queue pair a test asks of the peer."""

    kind: str
    number: int
    """Number of our queue pair, unless the peer has one that is connected to another."""
    psn: int
    """First PSN of ours, unless the peer expects another."""
    settings: Mapping[str, int] = {}


@dataclass(slots=True)
class OpenPair:
    """This class is a queue pair of the peer that is connected to one of ours."""

    kind: str
    number: int
    theirs: int
    """Number of the queue pair of the peer."""
    psn: int
    """PSN that the peer expects next."""
    msn: int = 0
    """Number of messages that the peer has completed."""
    q_key: int = 0
    first: int = 0
    """PSN of the first request of the peer."""
    dead: bool = False
    """Whether the peer has refused a request, after which the queue pair takes no more."""
    settings: Mapping[str, int] = field(default_factory=dict)
    """Settings of a queue pair made by hand that are not usual."""
    used: bool = False
    """Whether a test has used a queue pair made by hand."""


class PeerMemory(NamedTuple):
    """This tuple says where memory of the peer is."""

    key: int
    address: int
    length: int


class TakenMessage(NamedTuple):
    """This tuple is what the peer tells of a message that a receive has taken."""

    data: bytes
    """Bytes of the receive; of UD with the 40 bytes before the payload."""
    length: int
    """Number of bytes that the peer reports: of a WRITE with immediate those that were written."""
    immdt: int | None
    se: int
    srcqp: int


class CompletedWork(NamedTuple):
    """This tuple is what the peer tells of work of its own that has completed."""

    status: str
    """Status of the completion, by its name in verbs."""
    data: bytes
    """Bytes that were read; empty for other work."""


class PeerSetup(NamedTuple):
    """This tuple has what the peer made for a test: queue pairs in the order of the wishes, and memory by name: "" is
    that which peers may read and write, the others are those of `NEEDS`."""

    pairs: Sequence[OpenPair]
    memory: Mapping[str, PeerMemory]
    regions: Sequence[PeerMemory] = ()
    """Memory of the sizes that were wished."""


class PairSource(Protocol):
    """A pair source makes the queue pairs of tests at the peer."""

    @property
    def lacks(self) -> Iterable[str]:
        """Return what the peer does not have: names of `NEEDS`."""

    @property
    def gone(self) -> bool:
        """Return whether the peer makes no more queue pairs, as its program has ended."""

    def open(self, wishes: Sequence[PairWish], regions: Sequence[int] = ()) -> PeerSetup | str:
        """Return queue pairs for a test, or why there are none. `regions` are sizes of further memory."""

    def messages(self, pair: OpenPair) -> list[TakenMessage]:
        """Return the messages that receives of a queue pair have taken since the last call."""

    def post(self, pair: OpenPair, work: Mapping[str, Any]) -> None:
        """Have the peer post work on a queue pair: `opcode` and what goes with it (`POSTED`)."""

    def completed(self, pair: OpenPair) -> list[CompletedWork]:
        """Return the work of the peer on a queue pair that has completed since the last call."""

    def close(self, opened: PeerSetup) -> None:
        """Tell that a test has ended."""


def wishes_of(pairs: Iterable[Mapping[str, Any]], numbers: Sequence[int], psns: Sequence[int]) -> list[PairWish]:
    """Return what a test wishes."""
    return [
        PairWish(str(pair["kind"]), number, psn, {name: value for name, value in pair.items() if name != "kind"})
        for pair, number, psn in zip(pairs, numbers, psns, strict=False)
    ]


def message_of(told: Json) -> TakenMessage:
    """Return a message that a peer tells of. Raises `LocalError` for what is none."""
    immdt = None if told.get("immdt") is None else number(told, "immdt", 0, 2**32 - 1)
    return TakenMessage(
        bytes_told(told), number(told, "length", 0, 2**32), immdt, number(told, "se", 0, 1, 0),
        number(told, "srcqp", 0, 2**24 - 1, 0),
    )  # fmt: skip


def bytes_told(told: Json) -> bytes:
    """Return the bytes that a peer tells as `data`. Raises `LocalError` for what is no hexadecimal text."""
    try:
        return bytes.fromhex(str(told.get("data")))
    except ValueError:
        raise LocalError(
            "data", f"{str(told.get('data'))[:40]!r} is not legal", "hexadecimal text", id="wrong-format"
        ) from None
