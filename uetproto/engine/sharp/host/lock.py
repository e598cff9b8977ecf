"""The lock of a SAT as a host asks for it, holds it and gives it back (sharp.md §3.3, §3.4), over the paired LLT."""

from collections.abc import Callable

from uetproto.engine.contract import MILLISECOND, NEVER
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.states import LOCK, HostLockInput, HostLockState
from uetproto.engine.sharp.messages import LockBody
from uetproto.engine.sharp.options import SharpOptions
from uetproto.wire.headers.sharp import EVERY_RANK, UNLIMITED, SharpOpcode, Status

_AGAIN = frozenset({Status.LOCK_BUSY, Status.LOCK_TIMEOUT})

Send = Callable[[SharpOpcode, LockBody], None]
"""Sends a control message on the LLT."""


class HostLock:
    """What one member knows of the lock; all members see the same answers in the same order."""

    def __init__(self, sat_tree_id: int, config: SharpConfig, options: SharpOptions, send: Send) -> None:
        self.sat_tree_id = sat_tree_id
        self.config = config
        self.options = options
        self.send = send
        self.state = HostLockState.FREE
        self.target = EVERY_RANK
        """The rank that results are for."""
        self.token = 0
        self.left = 0
        """Operations that may still begin; counts down unless the batch is unlimited."""
        self.retries = 0
        self.retry_at = NEVER
        self.early = False
        """It was asked for at the start of the group, for no operation: that it could not be had decides nothing."""
        self.given_up: Status | None = None
        """Why it could not be had; whoever wanted it takes this away."""

    def happen(self, what: HostLockInput, now: int) -> None:
        """A row of `LOCK`; nothing if there is none."""
        row = LOCK.get((self.state, what))
        if row is not None:
            action, self.state = row
            getattr(self, action)(now)

    def want(self, target: int, now: int, *, early: bool = False) -> None:
        """Asks for it; no effect while that is under way."""
        if self.state is HostLockState.FREE:
            self.early = early
            self.target = target
            self.retries = self.options.lock_retries
            self.happen(HostLockInput.WANT, now)

    def answer(self, status: int, body: LockBody, now: int) -> None:
        """LOCK_RESP."""
        if self.state is not HostLockState.ASKED:
            return
        if status == Status.OK:
            self.token = body.token
            self.happen(HostLockInput.OK, now)
        elif status in _AGAIN:
            self.given_up = Status(status)
            self.happen(HostLockInput.BUSY if self.retries else HostLockInput.BUSY_AT_LAST, now)
        else:
            self.given_up = Status.LOCK_DENIED
            self.happen(HostLockInput.DENIED, now)

    def begin(self) -> None:
        """An operation begins under it."""
        if self.left != UNLIMITED:
            self.left -= 1

    def poll(self, now: int) -> None:
        if self.retry_at <= now:
            self.happen(HostLockInput.TIME, now)

    # Actions

    def ask(self, now: int) -> None:
        self.retry_at = NEVER
        self.given_up = None
        self.send(SharpOpcode.LOCK_REQ, self._body(token=0))

    def take(self, now: int) -> None:
        self.left = self.options.lock_batch

    def wait(self, now: int) -> None:
        self.retries -= 1
        self.given_up = None
        self.retry_at = now + self.options.lock_retry_time

    def give_up(self, now: int) -> None:
        """`given_up` says why; not if it was too early to matter: some members wait for it with an operation, others
        have none yet, and all have to decide alike."""
        if self.early:
            self.given_up = None

    def unlock(self, now: int) -> None:
        self.send(SharpOpcode.UNLOCK_REQ, self._body(token=self.token))

    def drop(self, now: int) -> None:
        self.token = self.left = 0

    def _body(self, token: int) -> LockBody:
        milliseconds = self.config.t_lock // MILLISECOND
        return LockBody(self.sat_tree_id, self.options.lock_batch, token, milliseconds, self.target)


__all__ = ["HostLock"]
