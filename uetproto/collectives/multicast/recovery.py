# SPDX-License-Identifier: GPL-2.0-only
"""This module repairs losses over the ring: each rank r reads missing chunks from rank F(r), and rank V(r) reads from
r.

All subgroups share one ring, as a request has no field for a subgroup. A rank holds a block if it holds the ranges of
all subgroups (collectives.md §3.10.5).
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from uetproto.collectives.multicast.machine import Machine, MachineContext, Table, TransitionRow
from uetproto.collectives.multicast.plan import MulticastPlan, Subgroup
from uetproto.collectives.multicast.receiver import Receiver
from uetproto.collectives.multicast.wire import FIN, ReadGrant, RingImmediate, RingMessage
from uetproto.errors import UetError


class RequesterState(Enum):
    """This enumeration has the states of the requester, which sends requests to F(r) (collectives.md §3.10.5)."""

    INIT = "INIT"
    SEND_FETCH_REQ = "SEND_FETCH_REQ"
    WAIT_ACK = "WAIT_ACK"
    ISSUE_READ = "ISSUE_READ"
    SEND_FIN = "SEND_FIN"
    WAIT_FIN_COMPL = "WAIT_FIN_COMPL"
    FINALIZE = "FINALIZE"


class ResponderState(Enum):
    """This enumeration has the states of the responder, which answers requests of V(r) (collectives.md §3.10.5)."""

    INIT = "INIT"
    WAIT_REQ = "WAIT_REQ"
    WAIT_LN_FETCH = "WAIT_LN_FETCH"
    FINALIZE = "FINALIZE"


_Q, _P = RequesterState, ResponderState

REQUESTER: Table[RequesterState] = {
    _Q.INIT:           (TransitionRow("nothing_missing",     "nothing",       _Q.SEND_FIN),
                        TransitionRow("always",              "list_missing",  _Q.SEND_FETCH_REQ)),
    _Q.SEND_FETCH_REQ: (TransitionRow("always",              "send_request",  _Q.WAIT_ACK),),
    _Q.WAIT_ACK:       (TransitionRow("granted",             "keep_grant",    _Q.ISSUE_READ),),
    _Q.ISSUE_READ:     (TransitionRow("gap_left",            "read_gap",      _Q.ISSUE_READ),
                        TransitionRow("owner_left",          "next_owner",    _Q.SEND_FETCH_REQ),
                        TransitionRow("always",              "nothing",       _Q.SEND_FIN)),
    _Q.SEND_FIN:       (TransitionRow("always",              "send_fin",      _Q.WAIT_FIN_COMPL),),
    _Q.WAIT_FIN_COMPL: (TransitionRow("fin_complete",        "nothing",       _Q.FINALIZE),),
}  # fmt: skip

RESPONDER: Table[ResponderState] = {
    _P.INIT:           (TransitionRow("always",              "nothing",       _P.WAIT_REQ),),
    _P.WAIT_REQ:       (TransitionRow("fetch_of_held",       "send_grant",    _P.WAIT_REQ),
                        TransitionRow("fetch_of_incomplete", "nothing",       _P.WAIT_LN_FETCH),
                        TransitionRow("fin_arrived",         "take_fin",      _P.FINALIZE)),
    _P.WAIT_LN_FETCH:  (TransitionRow("fetch_of_held",       "send_grant",    _P.WAIT_REQ),),
}  # fmt: skip
"""Transition table of the responder. If a request is for a block that this rank does not hold, the request waits until
this rank's requester has fetched the block."""


class Gap(NamedTuple):
    """This record describes a run of missing chunks in one block. The run is as long as possible."""

    part: Subgroup
    idx: int
    chunks: int


class Holdings:
    """This class says which blocks a rank holds. It combines the receivers of all subgroups."""

    def __init__(self, plan: MulticastPlan, receivers: Sequence[Receiver]) -> None:
        self._plan = plan
        self._receivers = receivers

    def _block(self, owner: int) -> int:
        block = self._plan.block(owner)
        assert block is not None
        return block

    def holds(self, owner: int) -> bool:
        """Return whether this rank holds the block of `owner`. A rank holds its own block and all complete blocks.
        Other ranks may read the blocks that it holds."""
        return all(receiver.holds(self._block(owner)) for receiver in self._receivers)

    def missing(self) -> list[int]:
        """Return the owners of all blocks that the rank does not hold."""
        return [owner for owner in self._plan.owners if not self.holds(owner)]

    def gap(self, owner: int) -> Gap | None:
        """Return the next run of missing chunks in the block of `owner`, or None if no chunk is missing."""
        for part, receiver in zip(self._plan.subgroups, self._receivers, strict=True):
            found = receiver.gap(self._block(owner))
            if found is not None:
                return Gap(part, *found)
        return None

    def start(self, owner: int, gap: Gap) -> int:
        """Return the offset of a run of chunks in the receive buffer. This offset is the same on all ranks."""
        return self._block(owner) * self._plan.length + gap.part.offset(gap.idx)

    def fetched(self, owner: int, gap: Gap) -> None:
        """Note that a run of missing chunks was fetched."""
        self._receivers[gap.part.number].fetched(self._block(owner), gap.idx, gap.chunks)


class ChunkRequester(Machine[RequesterState], table=REQUESTER):
    """This class requests one missing block after the other from F(r), and reads the missing chunks of the block."""

    def __init__(self, context: MachineContext, holdings: Holdings, into: memoryview | None) -> None:
        super().__init__(RequesterState.INIT, context)
        self.holdings = holdings
        self.source = self.plan.source(self.rank)
        self._into = into
        self._owners: deque[int] = deque()
        """Owners of the blocks that are still missing. The block of the first one is being fetched."""
        self._arrived: ReadGrant | None = None
        self._grant = ReadGrant(0, 0)
        self._fin_complete = False

    @property
    def owner(self) -> int | None:
        """Return the owner of the block that is being fetched, or None if none is being fetched."""
        return self._owners[0] if self._owners else None

    def granted_by(self, peer: int, record: bytes | memoryview) -> bool:
        """Handle a grant. Return False if the grant was not requested, in which case it is ignored."""
        grant = ReadGrant.unpack(record)
        if grant is None or peer != self.source or self.state is not RequesterState.WAIT_ACK:
            return False
        self._arrived = grant
        self.advance()
        return True

    # Guards

    def nothing_missing(self) -> bool:
        return not self.holdings.missing()

    def granted(self) -> bool:
        return self._arrived is not None

    def gap_left(self) -> bool:
        return self.holdings.gap(self._owners[0]) is not None

    def owner_left(self) -> bool:
        return len(self._owners) > 1

    def fin_complete(self) -> bool:
        return self._fin_complete

    # Actions

    def list_missing(self) -> None:
        self._owners.extend(self.plan.fetch_order(self.rank, self.holdings.missing()))

    def send_request(self) -> None:
        self.counted.requests += 1
        immediate = RingImmediate(RingMessage.NEED_FETCH, self._owners[0]).pack()
        self.end.control(self.source, immediate, self.unwaited)

    def keep_grant(self) -> None:
        assert self._arrived is not None
        self._grant, self._arrived = self._arrived, None

    def read_gap(self) -> None:
        """Read a run of missing chunks from the same position of F(r)'s buffer. If the last chunk of the block is
        short, a run that ends with this chunk is read without excess bytes."""
        owner = self._owners[0]
        gap = self.holdings.gap(owner)
        assert gap is not None
        start, size = self.holdings.start(owner, gap), gap.part.span(gap.idx, gap.chunks)
        into = None if self._into is None else self._into[start : start + size]

        def arrived() -> None:
            self.counted.chunks_fetched += gap.chunks
            self.counted.bytes_fetched += size
            self.holdings.fetched(owner, gap)

        self.counted.reads += 1
        grant = self._grant
        self.end.read(self.source, grant.address + start, grant.rkey, size, into, self.waited(arrived))

    def next_owner(self) -> None:
        self._owners.popleft()

    def send_fin(self) -> None:
        """Send FIN, the final handshake. F(r) may then reuse its buffer."""
        self._owners.clear()
        self.counted.fins += 1

        def complete(error: UetError | None) -> None:
            self.unwaited(error)
            self._fin_complete = error is None
            self.advance()

        self.end.control(self.source, FIN.pack(), complete)


class ChunkResponder(Machine[ResponderState], table=RESPONDER):
    """This class grants V(r) access to the blocks that this rank holds, until the FIN of V(r) arrives."""

    def __init__(self, context: MachineContext, holdings: Holdings, grant: ReadGrant) -> None:
        super().__init__(ResponderState.INIT, context)
        self.holdings = holdings
        self.visitor = self.plan.visitor(self.rank)
        self._grant = grant
        self._arrived: deque[RingImmediate] = deque()

    @property
    def owner(self) -> int | None:
        """Return the owner field of the oldest message that was not answered: a request, or the FIN. Return None if no
        message waits."""
        return self._arrived[0].owner if self._arrived else None

    def arrive(self, peer: int, immediate: int) -> bool:
        """Keep a ring control message until the machine takes it. Return False if the message is illegal, in which case
        it is ignored."""
        message = RingImmediate.unpack(immediate)
        known = message == FIN or (
            message.type == RingMessage.NEED_FETCH and message.owner < self.plan.size and self.plan.owns(message.owner)
        )
        if not known or peer != self.visitor or self.ended:
            return False
        self._arrived.append(message)
        return True

    # Guards

    def fetch_of_held(self) -> bool:
        return self._fetch() and self.holdings.holds(self._arrived[0].owner)

    def fetch_of_incomplete(self) -> bool:
        return self._fetch()

    def fin_arrived(self) -> bool:
        return bool(self._arrived)

    def _fetch(self) -> bool:
        return bool(self._arrived) and self._arrived[0].type == RingMessage.NEED_FETCH

    # Actions

    def send_grant(self) -> None:
        self._arrived.popleft()
        self.counted.grants += 1
        self.end.grant(self.visitor, self._grant.pack(), self.unwaited)

    def take_fin(self) -> None:
        self._arrived.popleft()
