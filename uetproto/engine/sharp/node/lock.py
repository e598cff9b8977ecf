# SPDX-License-Identifier: GPL-2.0-only
"""The lock of a SAT tree for one group follows the state table `states.LOCK` (sharp.md §3.3).

Lock messages are sent on the paired LLT, so every group of an LLT has a lock. A node never waits for a semaphore. If no
semaphore is free, the LOCK_REQ of the node to its parent carries a status other than OK, which is called a mark, and
the root refuses the lock. Other obstacles, such as two different target ranks, are marked in the same way. This is a
choice of this project: in sharp.md, two different target ranks are answered with ERROR.
"""

from uetproto.engine.contract import MILLISECOND, NEVER
from uetproto.engine.sharp.messages import LockBody, SharpMessage, status_or
from uetproto.engine.sharp.node.contract import GroupContext, LockedStream, NodeServices
from uetproto.engine.sharp.node.states import LOCK, LockInput, LockState, OpInput
from uetproto.engine.sharp.state_tables import TableMachine
from uetproto.wire.headers.sharp import EVERY_RANK, UNLIMITED, SharpOpcode, Status


class GroupLock(TableMachine, table=LOCK):
    """A group lock records which children of a group request the lock of a SAT tree, whether the group holds the lock,
    and how many operations are left."""

    state: LockState

    def __init__(self, group: GroupContext, node: NodeServices) -> None:
        self.group = group
        self.node = node
        self.state = LockState.L_FREE
        self.deadline = NEVER
        self.body = LockBody(0)
        """Body of the first LOCK_REQ, and the token while the lock is held."""
        self.asked: set[int] = set()
        self.unlocking: set[int] = set()
        self.returned: set[int] = set()
        """Children of `unlocking` that returned the lock unused, as LOCK_RESP OK reached them too late."""
        self.next: list[tuple[int, SharpMessage]] = []
        """LOCK_REQs for the next lock, from children that have unlocked before all children have unlocked."""
        self.mark = Status.OK
        """Reason why the lock cannot be granted; OK if no obstacle is known."""
        self.holds = False
        """Whether a semaphore of the SAT tree is held, tentatively or committed."""
        self.remaining = 0
        """Number of operations that are left of the batch; the value `UNLIMITED` is not counted down."""

    @property
    def held(self) -> bool:
        """Tell whether the lock is held."""
        return self.state is LockState.L_HELD

    def handle(self, event: LockInput, child: int | None = None, message: SharpMessage | None = None) -> None:
        """Take the step of the state table for an input; a message for which the table has no entry is counted and
        dropped."""
        if not self.step(event, child, message):
            self.node.discard()

    # Inputs

    def request(self, child: int, message: SharpMessage) -> None:
        """Handle a LOCK_REQ or UNLOCK_REQ of a child."""
        body = LockBody.unpack(message.body)
        self.group.note_seq(child, message.seq)
        if message.opcode == SharpOpcode.UNLOCK_REQ:
            right = self.state is LockState.L_HELD and body.token == self.body.token
            self.handle(LockInput.UNLOCK if right else LockInput.UNLOCK_WRONG, child, message)
            self.settle()
            return self._serve_next()
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
        """Handle a LOCK_RESP of the parent, or an ERROR of the parent about a LOCK_REQ."""
        self.handle(LockInput.REFUSED_ABOVE if message.status else LockInput.OK_ABOVE, None, message)

    def operation_finished(self, unlock: bool) -> None:
        """Count an operation whose LAST result was sent, or that failed.

        A failed operation counts too, so that all nodes agree; this is a choice of this project. `unlock` says whether
        a request of the operation had the flag UNLOCK.
        """
        used_up = unlock or self.remaining == 1
        self.handle(LockInput.USED_UP if used_up else LockInput.OPERATION_DONE)
        self.settle()
        self._serve_next()

    def settle(self) -> None:
        """Release the lock if all children have sent UNLOCK_REQ and no operation is open."""
        if self.unlocking and len(self.unlocking) == len(self.group.members):
            stream = self._stream()
            if stream is None or not stream.busy:
                self.handle(LockInput.UNLOCK_ALL)

    def end(self) -> None:
        """End the lock with its group; the operations that are open on the SAT tree fail."""
        self.next.clear()
        if self.state is LockState.L_HELD:
            stream = self._stream()
            self.handle(LockInput.END)
            if stream is not None:
                stream.end_all(OpInput.CANCEL, Status.CANCELLED)
        elif self.state is not LockState.L_FREE:
            self.handle(LockInput.END)

    def expired(self) -> None:
        """Handle the expiry of T_lock."""
        self.handle(LockInput.T_LOCK)

    def _stream(self) -> LockedStream | None:
        return self.node.stream_of(self.body.sat_tree_id, self.group.group_id)

    # Actions of the table

    def collect(self, child: int, message: SharpMessage) -> None:
        """Add the child to `asked`, and set `mark` if the lock must be refused; the first request starts T_lock."""
        body = LockBody.unpack(message.body)
        if not self.asked:
            self.body, self.mark = body._replace(token=0), Status.OK
            self.node.start(self, body.timeout_ms * MILLISECOND or self.node.config.t_lock)
        elif body.target_rank != self.body.target_rank:
            self.mark = Status.SAT_MULTI_TARGET
        elif body.batch != self.body.batch:
            self.mark = self.mark or Status.MISMATCH
        if message.status:
            self.mark = self.mark or status_or(message.status, Status.LOCK_BUSY)
        self.asked.add(child)

    def hold_tentatively(self, *_: object) -> None:
        """Reserve a semaphore, or note LOCK_BUSY if none is free; a node other than the root sends LOCK_REQ to its
        parent."""
        group, target = self.group, self.body.target_rank
        if group.is_root and target != EVERY_RANK and group.child_of_rank(target) < 0:
            self.mark = self.mark or Status.SAT_NO_DEST
        if not self.mark:
            self.holds = self.node.pool.acquire_semaphore(self.body.sat_tree_id)
            self.mark = Status.OK if self.holds else Status.LOCK_BUSY
        if not group.is_root:
            group.ask_parent(SharpOpcode.LOCK_REQ, self.body.pack(), self.mark)

    def grant(self, *_: object) -> None:
        """Choose a new token and send LOCK_RESP OK to all children."""
        self.body = self.body._replace(token=self.node.next_token())
        self._hold()

    def commit(self, _: object, message: SharpMessage) -> None:
        """Hold the lock and forward LOCK_RESP OK. If this node has no semaphore, send UNLOCK_REQ to the parent and
        LOCK_RESP LOCK_BUSY to the children instead."""
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
        """Send LOCK_RESP with the reason in `mark` to all children and release the semaphore held so far."""
        if self.mark != Status.LOCK_BUSY:
            self.node.raise_trap(self.mark, self.group, frozenset(), 0)
        self._end(self.mark)

    def relay_refusal(self, _: object, message: SharpMessage) -> None:
        """Forward the refusal of the parent and release the semaphore held so far."""
        self._end(status_or(message.status, Status.LOCK_BUSY))

    def time_out(self, *_: object) -> None:
        """Send LOCK_RESP LOCK_TIMEOUT to the children, raise trap 2 with syndrome 0, and release the lock."""
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
            self.node.pool.release_semaphore(self.body.sat_tree_id)

    def release(self, *_: object) -> None:
        """Release the lock, because its batch is used up, all children have unlocked, or the group ends.

        Children that wait for the lock receive LOCK_RESP CANCELLED. Children that have sent UNLOCK_REQ receive
        UNLOCK_RESP OK. This is a choice of this project; in sharp.md they get no answer.
        """
        if self.asked:
            self._end(Status.CANCELLED)
        unlocking = self.unlocking
        self._free()
        for child in sorted(unlocking):
            self.group.respond(child, SharpOpcode.UNLOCK_RESP, Status.OK, self.body.pack())

    def give_back(self, _: object, message: SharpMessage) -> None:
        """Send UNLOCK_REQ to the parent, because its LOCK_RESP OK came too late. Without this answer, the parent would
        hold the lock for ever.

        The UNLOCK_REQ has the status LOCK_TIMEOUT, which tells the parent that this node has not used the lock. If this
        node then sends a new LOCK_REQ, it gets the present lock (`confirm`), and not the next lock. This is a choice of
        this project.
        """
        self.group.ask_parent(SharpOpcode.UNLOCK_REQ, message.body, Status.LOCK_TIMEOUT)

    def confirm(self, child: int, message: SharpMessage) -> None:
        """Repeat LOCK_RESP OK to a child. If the child has sent UNLOCK_REQ, its LOCK_REQ is for the next lock and is
        stored instead."""
        if child in self.unlocking and child not in self.returned:
            self.next = [one for one in self.next if one[0] != child] + [(child, message)]
            return
        self.unlocking.discard(child)
        self.returned.discard(child)
        self._respond(child, Status.OK, self.body)

    def _serve_next(self) -> None:
        """Handle the stored LOCK_REQ of children once the lock is free."""
        while self.next and self.state is not LockState.L_HELD:
            self.request(*self.next.pop(0))

    def deny(self, child: int, message: SharpMessage) -> None:
        """Send LOCK_RESP LOCK_DENIED."""
        self._respond(child, Status.LOCK_DENIED, LockBody.unpack(message.body))

    def count(self, *_: object) -> None:
        """Count one operation of the batch."""
        if self.remaining != UNLIMITED:
            self.remaining -= 1

    def collect_unlock(self, child: int, message: SharpMessage) -> None:
        """Record that a child has sent UNLOCK_REQ."""
        self.unlocking.add(child)
        if message.status:
            self.returned.add(child)

    def unlock(self, *_: object) -> None:
        """Send UNLOCK_REQ to the parent and UNLOCK_RESP to the children, and release the lock."""
        if not self.group.is_root:
            self.group.ask_parent(SharpOpcode.UNLOCK_REQ, self.body.pack())
        self.release()

    def refuse_unlock(self, child: int, message: SharpMessage) -> None:
        """Send UNLOCK_RESP NOT_LOCKED, because the token is wrong, or no lock is held."""
        self.group.respond(child, SharpOpcode.UNLOCK_RESP, Status.NOT_LOCKED, message.body)

    def ignore(self, *_: object) -> None:
        """Do nothing, as the input has no effect in this state."""

    def _respond(self, child: int, status: int, body: LockBody) -> None:
        self.group.respond(child, SharpOpcode.LOCK_RESP, status, body.pack())
