"""The lock of a SAT tree for one group, by the table `sharp_states.LOCK` (sharp.md §3.3).

It travels on the paired LLT, so every group of an LLT has one of these. A tentative hold never waits: what cannot be
had at once is a mark on the request to the parent, and the root answers it. Everything that forbids the lock is such a
mark: two targets as well as a semaphore in use (**choice**: the page has ERROR for targets, not LOCK_RESP).
"""

from typing import TYPE_CHECKING

from uetproto.engine.contract import MILLISECOND, NEVER
from uetproto.engine.sharp.messages import LockBody, SharpMessage
from uetproto.engine.sharp.node.states import LOCK, LockInput, LockState, OpInput
from uetproto.wire.headers.sharp import EVERY_RANK, UNLIMITED, SharpOpcode, Status

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.group import AggregationGroup


class GroupLock:
    """Who of a group wants it, who has it, and for how many operations yet."""

    def __init__(self, group: "AggregationGroup") -> None:
        self.group = group
        self.node = group.node
        self.state = LockState.L_FREE
        self.deadline = NEVER
        self.body = LockBody(0)
        """What was asked for, and the token when it is held."""
        self.asked: set[int] = set()
        self.unlocking: set[int] = set()
        self.returned: set[int] = set()
        """Those of them that never used it: it came too late."""
        self.next: list[tuple[int, SharpMessage]] = []
        """LOCK_REQ of children that have unlocked, while others have not."""
        self.mark = Status.OK
        """Why it cannot be given."""
        self.holds = False
        """A semaphore of the SAT tree, tentatively or for good."""
        self.remaining = 0
        """Operations; `UNLIMITED`: no end."""

    @property
    def held(self) -> bool:
        return self.state is LockState.L_HELD

    def handle(self, event: LockInput, child: int | None = None, message: SharpMessage | None = None) -> None:
        """One step of the table."""
        row = LOCK.get((self.state, event))
        if row is None:
            return self.node.discard()
        action, self.state = row
        getattr(self, action)(child, message)
        return None

    # What happens

    def request(self, child: int, message: SharpMessage) -> None:
        """LOCK_REQ or UNLOCK_REQ of a child."""
        body = LockBody.unpack(message.body)
        self.group.note_seq(child, message.seq)
        if message.opcode == SharpOpcode.UNLOCK_REQ:
            right = self.state is LockState.L_HELD and body.token == self.body.token
            self.handle(LockInput.UNLOCK if right else LockInput.UNLOCK_WRONG, child, message)
            self.settle()
            return self._go_on()
        status = self.node.may_lock(self.group, body.sat_tree_id)
        if not status and self.state is not LockState.L_FREE and body.sat_tree_id != self.body.sat_tree_id:
            status = Status.MISMATCH
        if status == Status.LOCK_DENIED:
            return self.handle(LockInput.REQ_DENIED, child, message)
        if status:
            return self._respond(child, status, body)
        self.handle(LockInput.REQ, child, message)
        if self.state is LockState.L_PENDING and len(self.asked) == len(self.group.members):
            self.handle(LockInput.ALL)
            if self.group.is_root:
                self.handle(LockInput.REFUSED if self.mark else LockInput.GRANTED)
        return None

    def answered(self, message: SharpMessage) -> None:
        """LOCK_RESP of the parent, or its ERROR about a LOCK_REQ."""
        self.handle(LockInput.REFUSED_ABOVE if message.status else LockInput.OK_ABOVE, None, message)

    def operation_finished(self, unlock: bool) -> None:
        """The LAST result of an operation has left, or it failed: both count (**choice**), so that all nodes agree."""
        used_up = unlock or self.remaining == 1
        self.handle(LockInput.USED_UP if used_up else LockInput.OPERATION_DONE)
        self.settle()
        self._go_on()

    def settle(self) -> None:
        """UNLOCK_REQ of all children: once no operation is open, it is free."""
        if self.unlocking and len(self.unlocking) == len(self.group.members) and not self.node.streaming(self):
            self.handle(LockInput.UNLOCK_ALL)

    def end(self) -> None:
        """The group is at its end. What is open in the stream is flushed: it fails."""
        self.next.clear()
        if self.state is LockState.L_HELD:
            sat = self.node.sat_group(self)
            self.handle(LockInput.END)
            if sat is not None:
                sat.operations.end_all(OpInput.CANCEL, Status.CANCELLED)
        elif self.state is not LockState.L_FREE:
            self.handle(LockInput.END)

    def expired(self) -> None:
        """T_lock."""
        self.handle(LockInput.T_LOCK)

    # Actions of the table

    def collect(self, child: int, message: SharpMessage) -> None:
        """Count the child, note a mark that its request has; the first one starts T_lock."""
        body = LockBody.unpack(message.body)
        if not self.asked:
            self.body, self.mark = body._replace(token=0), Status.OK
            self.node.start(self, body.timeout_ms * MILLISECOND or self.node.config.t_lock)
        elif body.target_rank != self.body.target_rank:
            self.mark = Status.SAT_MULTI_TARGET
        elif body.batch != self.body.batch:
            self.mark = self.mark or Status.MISMATCH
        if message.status:
            known = message.status in Status.__members__.values()
            self.mark = self.mark or (Status(message.status) if known else Status.LOCK_BUSY)
        self.asked.add(child)

    def hold_tentatively(self, *_: object) -> None:
        """Semaphore free: hold it, else mark busy; LOCK_REQ up with the mark. The root decides."""
        group, target = self.group, self.body.target_rank
        if group.is_root and target != EVERY_RANK and group.child_of_rank(target) < 0:
            self.mark = self.mark or Status.SAT_NO_DEST
        if not self.mark:
            self.holds = self.node.pool.take_semaphore(self.body.sat_tree_id)
            self.mark = Status.OK if self.holds else Status.LOCK_BUSY
        if not group.is_root:
            group.ask_parent(SharpOpcode.LOCK_REQ, self.body.pack(), self.mark)

    def grant(self, *_: object) -> None:
        """A new token, LOCK_RESP OK to all."""
        self.body = self.body._replace(token=self.node.next_token())
        self._hold()

    def commit(self, _: object, message: SharpMessage) -> None:
        """LOCK_RESP OK of the parent goes down; one that had marked the request gives it back."""
        body = LockBody.unpack(message.body)
        if not self.holds:
            self.give_back(None, message)
            self._end(Status.LOCK_BUSY)
            self.state = LockState.L_FREE
            return
        self.body = self.body._replace(token=body.token)
        self._hold()

    def _hold(self) -> None:
        self.node.stop(self)
        self.asked.clear()
        self.remaining = self.body.batch
        for child in self.group.members:
            self._respond(child, Status.OK, self.body)

    def refuse(self, *_: object) -> None:
        """LOCK_RESP with the mark to all; the tentative hold ends."""
        if self.mark != Status.LOCK_BUSY:
            self.node.raise_trap(self.mark, self.group, frozenset(), 0)
        self._end(self.mark)

    def relay_refusal(self, _: object, message: SharpMessage) -> None:
        """The refusal of the parent goes down; the tentative hold ends."""
        known = message.status in Status.__members__.values()
        self._end(Status(message.status) if known else Status.LOCK_BUSY)

    def time_out(self, *_: object) -> None:
        """LOCK_RESP LOCK_TIMEOUT down, trap 2 syndrome 0, release."""
        self.node.raise_trap(Status.LOCK_TIMEOUT, self.group, frozenset(), 0)
        self._end(Status.LOCK_TIMEOUT)

    def _end(self, status: Status) -> None:
        asked = self.asked
        self._free()
        for child in sorted(asked):
            self._respond(child, status, self.body)

    def _free(self) -> None:
        self.node.stop(self)
        self.asked, self.unlocking, self.returned = set(), set(), set()
        if self.holds:
            self.holds = False
            self.node.pool.give_semaphore(self.body.sat_tree_id)

    def release(self, *_: object) -> None:
        """Free: hardware release, or the end of the group. Those who wait hear CANCELLED; those who have unlocked hear
        that it is free, which is all that they wanted (**choice**: the page has nobody answer them)."""
        if self.asked:
            self._end(Status.CANCELLED)
        unlocking = self.unlocking
        self._free()
        for child in sorted(unlocking):
            self.group.answer(child, SharpOpcode.UNLOCK_RESP, Status.OK, self.body.pack())

    def give_back(self, _: object, message: SharpMessage) -> None:
        """LOCK_RESP OK that comes too late: the parent must not hold it for ever. The status says that nobody used it,
        so that who asks again takes part again (**choice**)."""
        self.group.ask_parent(SharpOpcode.UNLOCK_REQ, message.body, Status.LOCK_TIMEOUT)

    def confirm(self, child: int, message: SharpMessage) -> None:
        """LOCK_RESP OK once more; who has unlocked means the next lock, and waits until all have."""
        if child in self.unlocking and child not in self.returned:
            self.next = [one for one in self.next if one[0] != child] + [(child, message)]
            return
        self.unlocking.discard(child)
        self.returned.discard(child)
        self._respond(child, Status.OK, self.body)

    def _go_on(self) -> None:
        """It is free: those who wait for the next one ask now."""
        while self.next and self.state is not LockState.L_HELD:
            self.request(*self.next.pop(0))

    def deny(self, child: int, message: SharpMessage) -> None:
        """LOCK_RESP LOCK_DENIED."""
        self._respond(child, Status.LOCK_DENIED, LockBody.unpack(message.body))

    def count(self, *_: object) -> None:
        """One operation less."""
        if self.remaining != UNLIMITED:
            self.remaining -= 1

    def collect_unlock(self, child: int, message: SharpMessage) -> None:
        """One child more that does not need it."""
        self.unlocking.add(child)
        if message.status:
            self.returned.add(child)

    def unlock(self, *_: object) -> None:
        """UNLOCK_REQ up, UNLOCK_RESP down, free."""
        if not self.group.is_root:
            self.group.ask_parent(SharpOpcode.UNLOCK_REQ, self.body.pack())
        self.release()

    def refuse_unlock(self, child: int, message: SharpMessage) -> None:
        """UNLOCK_RESP NOT_LOCKED: any other token, or none is held."""
        self.group.answer(child, SharpOpcode.UNLOCK_RESP, Status.NOT_LOCKED, message.body)

    def ignore(self, *_: object) -> None:
        """Nothing."""

    def _respond(self, child: int, status: int, body: LockBody) -> None:
        self.group.answer(child, SharpOpcode.LOCK_RESP, status, body.pack())
