# SPDX-License-Identifier: GPL-2.0-only
"""This module has the sender of one rank, which sends the rank's block in batches of chunks (collectives.md §3.10.3).

A sender begins when it has the token, or at once if its rank is the first of a chain. Subgroups send in parallel: each
step of the state machine posts a batch for each of them. All subgroups share one token.
"""

from enum import Enum

from uetproto.collectives.multicast.machine import Machine, MachineContext, Table, TransitionRow
from uetproto.collectives.multicast.plan import Subgroup
from uetproto.collectives.multicast.wire import CHUNK_SHIFT
from uetproto.collectives.transport import SECOND


class SenderState(Enum):
    """This enumeration has the states of the sender (collectives.md §3.10.3)."""

    IDLE = "S0"
    TOKEN = "S1"
    GO = "S2"
    BURST = "S3"
    TAIL = "S4"
    PASS = "S5"
    DONE = "S6"


_S = SenderState

SENDER: Table[SenderState] = {
    _S.IDLE:  (TransitionRow("posted",          "place_own",  _S.TOKEN),),
    _S.TOKEN: (TransitionRow("has_turn",        "nothing",    _S.GO),),
    _S.GO:    (TransitionRow("all_armed",       "nothing",    _S.BURST),),
    _S.BURST: (TransitionRow("full_batch_left", "post_batch", _S.BURST),
               TransitionRow("always",          "nothing",    _S.TAIL)),
    _S.TAIL:  (TransitionRow("rest_left",       "post_rest",  _S.PASS),
               TransitionRow("always",          "nothing",    _S.PASS)),
    _S.PASS:  (TransitionRow("finishes",        "nothing",    _S.DONE),
               TransitionRow("always",          "pass_token", _S.DONE)),
}  # fmt: skip
"""Transition table of the sender. A row that posts chunks ends when these chunks have been sent."""


class ChunkSender(Machine[SenderState], table=SENDER):
    """This class sends the block of its rank. The operation calls `post`, `token` and `arm`."""

    def __init__(self, context: MachineContext, task: int, source: memoryview, into: memoryview | None) -> None:
        super().__init__(SenderState.IDLE, context)
        block = self.plan.block(self.rank)
        assert block is not None
        self._block, self._task = block, task
        self._source, self._into = source, into
        self._posted = self._armed = False
        self._turn = self.plan.starts(self.rank)
        self._next = [0] * len(self.plan.subgroups)
        """Index of the next chunk to send, for each subgroup."""

    # Events

    def post(self) -> None:
        """Note that the operation was posted."""
        self._posted = True
        self.advance()

    def token(self) -> bool:
        """Handle the token of the previous rank. Return False if no token is awaited."""
        awaited = not self._turn
        self._turn = True
        self.advance()
        return awaited

    def arm(self) -> None:
        """Note that barrier 2 is passed. From now on the receivers of all ranks are armed."""
        self._armed = True
        self.advance()

    # Guards

    def posted(self) -> bool:
        return self._posted

    def has_turn(self) -> bool:
        return self._turn

    def all_armed(self) -> bool:
        return self._armed

    def full_batch_left(self) -> bool:
        return any(self._left(part) >= self.plan.config.batch for part in self.plan.subgroups)

    def rest_left(self) -> bool:
        return any(self._left(part) for part in self.plan.subgroups)

    def finishes(self) -> bool:
        return self.plan.finishes(self.rank)

    # Actions

    def place_own(self) -> None:
        """Copy the rank's own block to the receive buffer, where peers read it. This happens before a grant can be
        given."""
        if self._into is not None:
            start = self._block * self.plan.length
            self._into[start : start + self.plan.length] = self._source

    def post_batch(self) -> None:
        """Post a full batch for every subgroup that has enough chunks left."""
        batch = self.plan.config.batch
        self._post([(part, batch) for part in self.plan.subgroups if self._left(part) >= batch])

    def post_rest(self) -> None:
        """Post the remaining chunks of every subgroup. The last chunk of a block may be short."""
        self._post([(part, self._left(part)) for part in self.plan.subgroups if self._left(part)])

    def pass_token(self) -> None:
        self.counted.tokens += 1
        self.end.token((self.rank + 1) % self.plan.size, self.waited())

    def _left(self, part: Subgroup) -> int:
        return part.chunks - self._next[part.number]

    def _post(self, batches: list[tuple[Subgroup, int]]) -> None:
        before = self.counted.bytes_sent
        for part, chunks in batches:
            first = self._next[part.number]
            self._next[part.number] = last = first + chunks
            for idx in range(first, last):
                start, size = part.offset(idx), part.span(idx)
                immediate = self._block * part.chunks + idx << CHUNK_SHIFT | self._task
                self.counted.chunks_sent += 1
                self.counted.bytes_sent += size
                done = self.waited() if idx == last - 1 else None
                self.end.chunk(part.number, immediate, self._source[start : start + size], done)
        if self.plan.config.link_rate:
            sent = self.counted.bytes_sent - before
            # the next batch, or the token, waits until a share 1/M of the link is free (collectives.md §3.10.2)
            delay = -(-sent * self.plan.roots * SECOND // self.plan.config.link_rate)
            done = self.waited()
            self.end.after(delay, lambda: done(None))
