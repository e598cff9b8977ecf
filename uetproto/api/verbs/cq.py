# SPDX-License-Identifier: GPL-2.0-only
"""This module has completion queues, with the calls `ibv_poll_cq`, `ibv_req_notify_cq` and `ibv_get_cq_event` (roce.md
§10).

Polling takes no virtual time; `wait` and `get_event` let time pass.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from uetproto.api.verbs.errors import Errno, VerbsError, VerbsObject, duration, instance, integer, invalid
from uetproto.engine.roce.contract import WorkCompletion

if TYPE_CHECKING:
    from uetproto.api.verbs.device import Device

MAX_CQE = 1 << 22
"""Largest legal depth of a completion queue, in completions."""


class CQ(VerbsObject):
    """This class represents a completion queue (`ibv_cq`) with a completion channel of its own. `device.create_cq(...)`
    makes one."""

    def __init__(self, device: "Device", depth: int, context: Any) -> None:
        self.depth = integer("depth", depth, 1, MAX_CQE)
        """Number of completions that the queue holds."""
        self.device = device
        self.context = context
        """`cq_context`: any object of the program."""
        self.overrun = False
        """Whether a completion was lost: the queue takes no more, and the queue pairs that use it went to ERR."""
        self.users: list[Any] = []
        """Queue pairs that use the queue; one that uses it for both directions is there twice."""
        self._entries: deque[WorkCompletion] = deque()
        self._armed = self._solicited_only = False
        self._notified = 0

    def __repr__(self) -> str:
        return f"<CQ of {self.device.name}, {len(self)} of {self.depth}>"

    def __len__(self) -> int:
        """Return the number of completions that can be polled."""
        return len(self._entries)

    def poll(self, count: int = 1) -> list[WorkCompletion]:
        """`ibv_poll_cq` returns up to `count` completions, oldest first. No virtual time passes.

        Raises EOVERFLOW if a completion was lost and all remaining ones have been polled, and EINVAL if the queue is
        destroyed.
        """
        integer("count", count, 1, MAX_CQE)
        self.check("cq")
        if self.overrun and not self._entries:
            text = f"completions were lost, it holds {self.depth}"
            raise VerbsError(Errno.EOVERFLOW, "cq", text, "a larger depth", id="completions-lost")
        return [self._entries.popleft() for _ in range(min(count, len(self._entries)))]

    def wait(self, count: int = 1, timeout: int | str | None = None) -> list[WorkCompletion]:
        """Let time pass until `count` completions are there, and return them.

        `timeout` is a number of picoseconds, or a text such as "1 ms". With None the call also returns when nothing
        more can happen, for example when the only open operations are sends for which no receive is posted. If too few
        completions come, the call returns the completions that are there. Raises the errors of `poll`.
        """
        integer("count", count, 1, MAX_CQE)
        self.check("cq")
        limit = None if timeout is None else duration("timeout", timeout)
        self.device.driver.wait(lambda: len(self._entries) >= min(count, self.depth) or self.overrun, limit)
        return self.poll(count)

    def arm(self, solicited_only: bool = False) -> None:
        """`ibv_req_notify_cq` asks for one notification, when the next completion comes.

        With `solicited_only` the queue notifies only of an error, or of a completion whose sender asked for a
        notification (SendFlags.SOLICITED). A queue that is already armed for all completions stays armed for all.
        """
        self.check("cq")
        instance("solicited_only", solicited_only, bool, "True, False")
        self._solicited_only = solicited_only and (self._solicited_only or not self._armed)
        self._armed = True

    def get_event(self, timeout: int | str | None = None) -> bool:
        """`ibv_get_cq_event` lets time pass until the armed queue notifies, and returns True, or False if no
        notification comes.

        `timeout` means the same as for `wait`. Raises EINVAL for a queue that is not armed, which would never notify.
        """
        self.check("cq")
        limit = None if timeout is None else duration("timeout", timeout)
        if not self._armed and not self._notified:
            raise invalid("cq", "not armed", "arm() first", id="wrong-state")
        if not self.device.driver.wait(lambda: bool(self._notified), limit):
            return False
        self._notified -= 1
        return True

    def destroy(self) -> None:
        """`ibv_destroy_cq` destroys the queue. Raises EBUSY while a queue pair uses the queue."""
        self.check("cq")
        if self.users:
            raise VerbsError(
                Errno.EBUSY, "cq", f"{len(self.users)} queue pairs use it", "destroy them first", id="in-use"
            )
        self.destroyed = True
        self.device.cqs.remove(self)

    def add(self, entry: WorkCompletion) -> None:
        """Add a completion; if the queue is full, the completion is lost and the queue pairs that use the queue go to
        ERR."""
        if self.overrun:
            return
        if len(self._entries) >= self.depth:
            self.overrun = True
            self.device.overran(self)
        else:
            self._entries.append(entry)
        if self._armed and (entry.solicited or not entry.ok or not self._solicited_only):
            self._armed = self._solicited_only = False
            self._notified += 1
        self.device.driver.wake()
