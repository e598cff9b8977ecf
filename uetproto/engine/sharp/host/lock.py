# SPDX-License-Identifier: GPL-2.0-only
"""A host requests and releases the lock of a SAT tree over the paired LLT (sharp.md §3.3, §3.4)."""

from collections.abc import Callable

from uetproto.engine.contract import MILLISECOND, NEVER
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.states import LOCK, HostLockInput, HostLockState
from uetproto.engine.sharp.messages import LockBody
from uetproto.engine.sharp.options import SharpOptions
from uetproto.engine.sharp.state_tables import TableMachine
from uetproto.wire.headers.sharp import EVERY_RANK, UNLIMITED, SharpOpcode, Status

_AGAIN = frozenset({Status.LOCK_BUSY, Status.LOCK_TIMEOUT})

Send = Callable[[SharpOpcode, LockBody], None]
"""A function that sends a control message on the LLT."""


class HostLock(TableMachine, table=LOCK):
    """A host lock is the lock of a SAT tree as one member of the group sees it. All members receive the same answers in
    the same order."""

    state: HostLockState

    def __init__(self, sat_tree_id: int, config: SharpConfig, options: SharpOptions, send: Send) -> None:
        self.sat_tree_id = sat_tree_id
        self.config = config
        self.options = options
        self.send = send
        self.state = HostLockState.FREE
        self.target = EVERY_RANK
        """Rank that gets the results of operations under the lock, or `EVERY_RANK`."""
        self.token = 0
        self.left = 0
        """Number of operations that may still begin under the lock; the value `UNLIMITED` is not counted down."""
        self.retries = 0
        self.retry_at = NEVER
        self.early = False
        """Whether the lock was requested when the group joined, before any operation. A refusal is ignored in this
        case."""
        self.given_up: Status | None = None
        """Status of a refusal that the group has not handled yet; None if there is no such refusal."""

    def want(self, target: int, now: int, *, early: bool = False) -> None:
        """Request the lock for operations with a given target rank, unless it is requested or held already."""
        if self.state is HostLockState.FREE:
            self.early = early
            self.target = target
            self.retries = self.options.lock_retries
            self.step(HostLockInput.WANT, now)

    def answer(self, status: int, body: LockBody, now: int) -> None:
        """Handle a LOCK_RESP."""
        if self.state is not HostLockState.ASKED:
            return
        if status == Status.OK:
            self.token = body.token
            self.step(HostLockInput.OK, now)
        elif status in _AGAIN:
            self.given_up = Status(status)
            self.step(HostLockInput.BUSY if self.retries else HostLockInput.BUSY_AT_LAST, now)
        else:
            self.given_up = Status.LOCK_DENIED
            self.step(HostLockInput.DENIED, now)

    def begin(self) -> None:
        """Count an operation that begins under the lock."""
        if self.left != UNLIMITED:
            self.left -= 1

    def poll(self, now: int) -> None:
        """Handle the expiry of the retry timer."""
        if self.retry_at <= now:
            self.step(HostLockInput.TIME, now)

    # Actions

    def ask(self, now: int) -> None:
        """Send LOCK_REQ."""
        self.retry_at = NEVER
        self.given_up = None
        self.send(SharpOpcode.LOCK_REQ, self._body(token=0))

    def take(self, now: int) -> None:
        """Begin a batch: set how many operations may begin under the lock."""
        self.left = self.options.lock_batch

    def wait(self, now: int) -> None:
        """Use up one retry and start the retry timer."""
        self.retries -= 1
        self.given_up = None
        self.retry_at = now + self.options.lock_retry_time

    def give_up(self, now: int) -> None:
        """Keep the refusal in `given_up`, unless the lock was requested early.

        After an early request, some members may have an operation that waits for the lock while other members have none
        yet. As all members must act alike, the refusal must not move that operation to the LLT.
        """
        if self.early:
            self.given_up = None

    def unlock(self, now: int) -> None:
        """Send UNLOCK_REQ."""
        self.send(SharpOpcode.UNLOCK_REQ, self._body(token=self.token))

    def drop(self, now: int) -> None:
        """Forget the token of a lock that is no longer held."""
        self.token = self.left = 0

    def _body(self, token: int) -> LockBody:
        milliseconds = self.config.t_lock // MILLISECOND
        return LockBody(self.sat_tree_id, self.options.lock_batch, token, milliseconds, self.target)
