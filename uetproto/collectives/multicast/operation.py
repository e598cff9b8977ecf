# SPDX-License-Identifier: GPL-2.0-only
"""This module runs one rank's part of a multicast operation, from the first barrier to the last FIN (collectives.md
§3.10).

The phases are: barrier 1 (all ranks have entered), arming of the receivers, barrier 2 (all receivers are armed),
sending and receiving, recovery, and the end. Requests and grants carry no task id. Barrier 1 therefore separates the
requests and grants of one operation from those of the next.
"""

from collections.abc import Sequence

from uetproto.collectives.multicast.end import Cancel, Done, MulticastCounters, MulticastEnd
from uetproto.collectives.multicast.machine import MachineContext
from uetproto.collectives.multicast.plan import MulticastPlan
from uetproto.collectives.multicast.receiver import Receiver, ReceiverState
from uetproto.collectives.multicast.recovery import ChunkRequester, ChunkResponder, Holdings
from uetproto.collectives.multicast.sender import ChunkSender
from uetproto.errors import UetError


class MulticastOperation:
    """This class runs one rank's part of an operation by callbacks. `done` is called once, with None or with the error;
    from then on the buffers may be reused."""

    def __init__(
        self, plan: MulticastPlan, rank: int, task: int, end: MulticastEnd, receivers: Sequence[Receiver],
        source: memoryview | None, into: memoryview | None, done: Done,
    ) -> None:  # fmt: skip
        self.plan, self.rank, self.task, self.end = plan, rank, task, end
        self.counted = MulticastCounters()
        self.armed = self.recovering = self.ended = False
        self._receivers = receivers
        self._into = into
        self._done = done
        self._cancel: Cancel | None = None
        self._grant = end.register(into, plan.bytes)
        holdings = Holdings(plan, receivers)
        context = MachineContext(plan, rank, end, self.counted, self._moved, self.fail)
        self.sender = None if source is None else ChunkSender(context, task, source, into)
        self.requester = ChunkRequester(context, holdings, into)
        self.responder = ChunkResponder(context, holdings, self._grant)

    def start(self) -> None:
        """Start the operation: enter barrier 1."""
        if self.sender is not None:
            self.sender.post()
        self.end.barrier(self._arm)

    def fail(self, error: UetError) -> None:
        """End the operation with an error. Messages that arrive later have no effect."""
        for machine in (self.sender, self.requester, self.responder):
            if machine is not None:
                machine.stop()
        self._end(error)

    # Messages that arrive

    def on_token(self, peer: int) -> None:
        """Handle a token, which lets this rank begin to send its block."""
        before = (self.rank - 1) % self.plan.size
        if not self._open or self.sender is None or peer != before or not self.sender.token():
            self.counted.strays += 1

    def on_control(self, peer: int, immediate: int) -> None:
        """Handle a control message from V(r), the rank that fetches blocks from this rank r. The message requests a
        block, or says that V(r) has ended.

        A request is answered when this rank recovers. The message is accepted even before this rank knows that barrier
        1 is complete, as V(r) may have passed the barrier and reached its cutoff earlier.
        """
        if self.ended or not self.responder.arrive(peer, immediate):
            self.counted.strays += 1
        elif self.recovering:
            self.responder.advance()

    def on_grant(self, peer: int, record: bytes | memoryview) -> None:
        """Handle a grant from F(r), the rank from which this rank r fetches blocks. The grant lets this rank read the
        receive buffer of F(r)."""
        if not self._open or not self.requester.granted_by(peer, record):
            self.counted.strays += 1

    # Phases of the operation

    @property
    def _open(self) -> bool:
        return self.armed and not self.ended

    def _arm(self, error: UetError | None) -> None:
        """Arm the receivers after barrier 1."""
        if self._refused(error):
            return
        self.armed, self.counted.armed_at = True, self.end.now
        for part, receiver in zip(self.plan.subgroups, self._receivers, strict=True):
            receiver.arm(self.plan, part, self.rank, self.task, self._into, self.counted, self._full)
        self._cancel = self.end.after(self.plan.cutoff, self._cut_off)
        self.end.barrier(self._go)
        self._full()

    def _go(self, error: UetError | None) -> None:
        """Begin to send after barrier 2."""
        if not self._refused(error) and self.sender is not None:
            self.sender.arm()

    def _full(self) -> None:
        """Note that a subgroup has all its chunks."""
        if all(receiver.state is ReceiverState.RECOVER for receiver in self._receivers):
            self._recover()

    def _cut_off(self) -> None:
        """Stop the receivers and begin recovery, because the cutoff timer fired while chunks were missing."""
        self.counted.cutoff = True
        for receiver in self._receivers:
            receiver.cut_off()
        self._recover()

    def _recover(self) -> None:
        """Begin recovery (R2): both machines run until both have ended."""
        if self.ended or self.recovering:
            return
        self.recovering, self.counted.recovery_at = True, self.end.now
        self._stop_timer()
        self.responder.advance()
        self.requester.advance()

    def _moved(self) -> None:
        """Continue after a state machine has changed its state. The responder may now grant a block to V(r), or the
        operation may end."""
        if self.recovering and not self.ended:
            self.responder.advance()
            machines = (self.sender, self.requester, self.responder)
            if all(machine is None or machine.ended for machine in machines):
                self._end(None)

    def _refused(self, error: UetError | None) -> bool:
        """Return whether the completion of a barrier must be ignored, because the barrier or the operation has
        failed."""
        if error is not None:
            self.fail(error)
        return self.ended

    def _stop_timer(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _end(self, error: UetError | None) -> None:
        if self.ended:
            return
        self.ended, self.counted.done_at = True, self.end.now
        self._stop_timer()
        for receiver in self._receivers:
            receiver.finalize()
        self.end.unregister(self._grant)
        self._done(error)

    # For people

    def __str__(self) -> str:
        """Return a text that says for what the operation waits, to explain one that does not end."""
        if self.ended:
            return f"rank {self.rank}: done"
        if not self.armed:
            return f"rank {self.rank}: in the barrier before its receivers are armed"
        parts = [f"sender {self.sender.state.name}"] if self.sender else []
        if not self.recovering:
            parts.append(f"{sum(receiver.to_recv for receiver in self._receivers)} chunks to receive")
            return f"rank {self.rank}: {', '.join(parts)}"
        for name, machine, peer in (
            ("requester", self.requester, self.requester.source), ("responder", self.responder, self.responder.visitor)
        ):  # fmt: skip
            block = "" if machine.owner is None else f" for the block of {machine.owner}"
            parts.append(f"{name} {machine.state.name}{block}, peer {peer}")
        return f"rank {self.rank}: {'; '.join(parts)}"
