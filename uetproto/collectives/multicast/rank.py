# SPDX-License-Identifier: GPL-2.0-only
"""This module has a rank of a multicast group. The rank runs one operation after the other, and handles the messages
that arrive (collectives.md §3.10)."""

from collections import deque
from dataclasses import dataclass

from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.end import Done, MulticastEnd
from uetproto.collectives.multicast.operation import MulticastOperation
from uetproto.collectives.multicast.plan import MulticastPlan
from uetproto.collectives.multicast.receiver import Receiver
from uetproto.collectives.multicast.wire import TASKS
from uetproto.errors import LocalError, UetError


@dataclass(slots=True)
class PostedOperation:
    """This record holds an operation from the time when a rank posts it until its end."""

    plan: MulticastPlan
    source: memoryview | None
    into: memoryview | None
    done: Done
    operation: MulticastOperation | None = None
    """The running operation. It is None until the operation begins."""
    error: UetError | None = None
    """Error that ended the operation before it began. It is None if there was no such error."""

    def fail(self, error: UetError) -> None:
        """Fail this operation with an error. All later operations fail, too; earlier ones continue."""
        if self.operation is not None:
            self.operation.fail(error)
        elif self.error is None:
            self.error = error


class MulticastRank:
    """This class implements a rank of a multicast group (collectives.md §3.10). All ranks of a group post the same
    plans in the same order.

    For messages that arrive, the network calls `receivers[subgroup].on_chunk`, `on_token`, `on_control` and `on_grant`.
    """

    def __init__(self, end: MulticastEnd, config: MulticastConfig | None = None, counter: int = 0) -> None:
        """Make the rank. Task ids count from `counter`, the number of operations that came before."""
        self.end = end
        self.config = config or MulticastConfig()
        self.counter = counter
        self.receivers = tuple(Receiver() for _ in range(self.config.subgroups))
        self.operation: MulticastOperation | None = None
        """The operation in progress, or the last one if none is in progress. It is None before the first operation."""
        self.strays = 0
        """Number of reliable messages that arrived before the first operation."""
        self.error: UetError | None = None
        """Error of the first operation that failed. Later operations fail with the same error, as the ranks may not
        have run the same operations."""
        self._waiting: deque[PostedOperation] = deque()

    def post(
        self, plan: MulticastPlan, source: memoryview | None, into: memoryview | None, done: Done
    ) -> PostedOperation:
        """Post an operation. It begins when all operations that were posted before have ended.

        `source` is this rank's block, or None if this rank sends no block. `into` is the buffer for all blocks; if
        `into` is None, chunks are only counted. Both buffers belong to the operation until the operation calls `done`.
        This call comes once.
        """
        owns = plan.owns(self.end.rank)
        if plan.size != self.end.size or plan.config != self.config:
            raise LocalError(
                "plan", f"of {plan.size} ranks", f"of {self.end.size}, with the same config as the rank",
                id="foreign-object"
            )  # fmt: skip
        if (source is not None) != owns:
            raise LocalError(
                "source", "missing" if owns else "not None", "bytes where a rank sends, else None",
                id="missing-argument"
            )  # fmt: skip
        source, into = _flat("source", source, plan.length), _flat("into", into, plan.bytes)
        if into is not None and into.readonly:
            raise LocalError("into", "read-only", "a writable buffer", id="read-only")
        busy = len(self._waiting) + (self.operation is not None and not self.operation.ended)
        if busy == self.config.tasks:
            raise LocalError("post", f"{busy} operations are not done", f"at most {self.config.tasks}", id="queue-full")
        posted = PostedOperation(plan, source, into, done)
        self._waiting.append(posted)
        self._next()
        return posted

    # Messages that arrive, other than chunks

    def on_token(self, peer: int) -> None:
        """Handle a token from a peer."""
        if self.operation is None:
            self.strays += 1
        else:
            self.operation.on_token(peer)

    def on_control(self, peer: int, immediate: int) -> None:
        """Handle a ring control message from a peer."""
        if self.operation is None:
            self.strays += 1
        else:
            self.operation.on_control(peer, immediate)

    def on_grant(self, peer: int, record: bytes | memoryview) -> None:
        """Handle a grant from a peer."""
        if self.operation is None:
            self.strays += 1
        else:
            self.operation.on_grant(peer, record)

    def _next(self) -> None:
        while self._waiting and (self.operation is None or self.operation.ended):
            posted = self._waiting.popleft()
            task = self.counter % TASKS
            self.counter += 1
            self.error = self.error or posted.error
            if self.error is not None:
                posted.done(self.error)
            elif posted.plan.size == 1:  # a local copy
                if posted.source is not None and posted.into is not None:
                    posted.into[:] = posted.source
                posted.done(None)
            else:
                self._begin(posted, task)

    def _begin(self, posted: PostedOperation, task: int) -> None:
        def ended(error: UetError | None) -> None:
            self.error = error
            posted.done(error)
            self._next()

        self.operation = posted.operation = MulticastOperation(
            posted.plan, self.end.rank, task, self.end, self.receivers, posted.source, posted.into, ended
        )
        posted.operation.start()


def _flat(name: str, view: memoryview | None, legal: int) -> memoryview | None:
    if view is None:
        return None
    if view.nbytes != legal or not view.c_contiguous:
        raise LocalError(
            name, f"{view.nbytes} bytes{'' if view.c_contiguous else ' in pieces'}", legal, id="not-contiguous"
        )
    return view.cast("B") if legal else memoryview(bytearray())  # no bytes cannot be cast
