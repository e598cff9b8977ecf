# SPDX-License-Identifier: GPL-2.0-only
"""A receive queue matches messages with posted buffers. It holds, stops or refuses a message that no receive matches.

A held message is stored until a receive matches. A stopped message is a deferrable send, which its initiator sends
again (restart) when a receive matches. ses.md §5.7, §5.9, §11; UE 1.0.1 §3.4.3.6, §3.4.4.5.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from uetproto.engine.contract import (
    NEVER,
    PDC_MODES,
    Buffer,
    Cancelled,
    Completion,
    Event,
    MessageStored,
    Mode,
    Nop,
    Read,
    Receive,
    Received,
)
from uetproto.engine.memory import BufferMemory, MemoryWindow, as_memory
from uetproto.engine.pds.service import Connection, Response
from uetproto.engine.ses.addressing import IndexState, ResourceIndex
from uetproto.engine.ses.buffers import PostedBuffer
from uetproto.engine.ses.checks import Judgement
from uetproto.engine.ses.headers import build_response
from uetproto.engine.ses.matching import ALL_BITS
from uetproto.engine.ses.profiles import REAL_DEFERRAL, WILDCARDS
from uetproto.engine.ses.received import RxMessage, StoppedMessage, response
from uetproto.engine.ses.segments import MessagePlan
from uetproto.engine.ses.work import SesOperation, operation_of, stretch
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ATOMICS, DEFERRABLES, Opcode, ResponseOpcode, ReturnCode, Space

if TYPE_CHECKING:
    from uetproto.engine.ses.target import SesTarget


def _same(stop: StoppedMessage, j: Judgement) -> bool:
    """Return True when a message has the sender, opcode, address and match bits of a stopped one."""
    a, b = stop.request, j.request
    return stop.source == j.source and all(
        getattr(a, name) == getattr(b, name)
        for name in ("opcode", "rel", "job_id", "pid_on_fep", "resource_index", "initiator", "key")
    )


def _left(buffer: PostedBuffer) -> bool:
    """Note that a message in a buffer has ended; return True when it was the last message of the buffer."""
    whole = buffer.whole or buffer
    whole.users -= 1
    return not whole.posted and not whole.users


class Queues:
    """This class manages the receive queues of all processes of an endpoint, and the messages that wait for
    receives."""

    def __init__(self, target: "SesTarget", events: list[Event]) -> None:
        self.target = target
        self.config = target.config
        self.begin: Callable[[SesOperation, int], None] = lambda operation, now: None
        """Function that submits an operation of the target itself, which is the READ of a rendezvous or a
        DEFERRABLE_RTR."""
        self._events = events
        self.stops: deque[StoppedMessage] = deque()
        """Stopped messages in the order in which they expire."""
        self._tokens: dict[int, StoppedMessage] = {}
        """Stopped messages with a reserved buffer, by target restart token."""
        self._next_token = 1
        self._posted: dict[Receive, tuple[ResourceIndex, PostedBuffer]] = {}
        """Queue and buffer of each posted receive, for `cancel`."""
        self._reading = 0
        """Number of rendezvous messages whose READ is in progress."""

    # The application

    def post(self, receive: Receive, now: int) -> None:
        """Post a receive (fi_recv, fi_trecv), and give it the waiting messages that match, oldest first.

        Raises `LocalError` for an illegal receive.
        """
        self.target.now = now  # a held rendezvous that matches begins its READ
        index = self._index_of(receive)
        memory = as_memory(receive.into)
        length = stretch(memory, receive.start, receive.length)
        if length and getattr(memory, "read_only", False):
            raise LocalError("into", "read-only", "a writable buffer", id="read-only")
        if receive.ignore and not self.target.profile & WILDCARDS:
            raise LocalError(
                "ignore",
                f"{receive.ignore:#x} is not legal in the profile {self.config.profile}",
                "0",
                id="not-with-mode",
            )
        if len(index.posted) >= self.config.rx_size:
            raise LocalError("receive", "the queue is full", f"at most rx_size, {self.config.rx_size}", id="queue-full")
        if receive in self._posted:
            raise LocalError("receive", "it is posted already", id="already-there")
        if index.state is IndexState.DISABLED_GEN:
            index.enable()
        wants = (0, ALL_BITS) if receive.tag is None else (receive.tag, receive.ignore)
        buffer = PostedBuffer(receive, memory, receive.start, receive.start + length, *wants, receive.source)
        index.posted.post(buffer)
        self._posted[receive] = (index, buffer)
        while buffer.posted and (entry := index.held.take(buffer)) is not None:
            if isinstance(entry, StoppedMessage):
                self._reserve(entry, buffer, now)
            else:
                self._match_held(index, entry, buffer, now)

    def cancel(self, receive: Receive) -> bool:
        """Cancel a receive (fi_cancel), and report `Cancelled`.

        Return False without effect if the receive is no longer posted, for instance because a message matched it.
        """
        index, buffer = self._posted.pop(receive, (None, None))
        if index is None or buffer is None:
            return False
        buffer.posted = False
        index.posted.remove(buffer)
        self._events.append(Cancelled(receive))
        return True

    def _index_of(self, receive: Receive) -> ResourceIndex:
        for name, value in (("tag", receive.tag), ("ignore", receive.ignore)):
            if value is not None and (type(value) is not int or not 0 <= value <= ALL_BITS):
                raise LocalError(name, f"{value!r} is not legal", f"0 … {ALL_BITS:#x}", id="out-of-range")
        source = receive.source
        if source is not None and (type(source) is not int or not 0 <= source < 1 << 32):
            raise LocalError("source", f"{source!r} is not legal", "None, 0 … 0xffffffff", id="out-of-range")
        if type(receive.least) is not int or receive.least < 0:
            raise LocalError("least", f"{receive.least!r} is not legal", "0 or more bytes", id="out-of-range")
        process = self.target.processes.find(receive.job_id, receive.pid_on_fep)
        if process is None:
            raise LocalError(
                "pid_on_fep", f"no process {receive.pid_on_fep} of job {receive.job_id} is attached here",
                id="not-registered"
            )  # fmt: skip
        space = Space.SEND if receive.tag is None else Space.TAGGED
        index = process.spaces[space].get(receive.resource_index)
        if index is None:
            raise LocalError(
                "resource_index", f"{receive.resource_index} is not open in the space {space.name}", id="not-registered"
            )
        return index

    # A message and its buffer

    def take(self, index: ResourceIndex | None, buffer: PostedBuffer, message: RxMessage, restarted: bool) -> None:
        """Set the free part of a posted buffer as the buffer of a message. If `restarted`, the buffer was reserved for
        the message."""
        offset = 0 if message.opcode in DEFERRABLES else message.offset
        message.buffer, message.memory = buffer, buffer.memory
        message.place = buffer.next + offset
        message.room = max(0, min(message.length, buffer.room - offset))
        if restarted:
            self._forget(message)
            return
        assert index is not None
        self._use(index, buffer, offset + message.room)

    def _use(self, index: ResourceIndex, buffer: PostedBuffer, size: int) -> None:
        """Take `size` bytes of a buffer; a buffer that takes no more messages leaves the queue."""
        least = buffer.receive.least
        buffer.users += 1
        if least:
            buffer.next += size
        if not least or buffer.room < least:
            buffer.posted = False
            index.posted.remove(buffer)
            del self._posted[buffer.receive]

    def use_whole(self, index: ResourceIndex, buffer: PostedBuffer, size: int) -> bool:
        """Take `size` bytes of a buffer for a message that has arrived; return whether the buffer takes no more."""
        self._use(index, buffer, size)
        return _left(buffer)

    def refuse(self, j: Judgement) -> ReturnCode | None:
        """Return the code that refuses a message without a matching receive (ses.md §11.2), or None if the message is
        to be held or stopped."""
        config, index, opcode = self.config, j.index, j.request.opcode
        assert index is not None
        if opcode in DEFERRABLES:
            stops = self.target.profile & REAL_DEFERRAL and index.pending < config.max_pending_deferrals
            return None if stops else ReturnCode.NO_MATCH
        room = len(index.held) - index.pending < config.unexpected_messages
        room = room and index.held_bytes + j.body <= config.unexpected_bytes
        if config.unexpected_policy == "hold" and room and opcode not in ATOMICS and j.mode in PDC_MODES:
            return None
        if j.mode is Mode.ROD:
            first = index.state is IndexState.ENABLED
            index.refuse_ordered()
            return ReturnCode.NO_MATCH if first and config.rod_refusal == "no_match_first" else ReturnCode.DISABLED_GEN
        return ReturnCode.NO_MATCH

    def put_aside(self, index: ResourceIndex, message: RxMessage) -> None:
        """Stop a deferrable message that has no buffer, or hold any other message that has no buffer."""
        if message.opcode in DEFERRABLES:
            self._stop(index, message, self.target.now)
            return
        size = message.end
        message.held = []
        message.index = index
        message.memory, message.place = BufferMemory(bytearray(size)), 0
        message.room = size
        index.held_bytes += size
        index.held.hold(message)

    # Held messages

    def hold(self, message: RxMessage, pdc: Connection, psn: int, offset: int, payload: Buffer) -> Response:
        """Store a packet of a held message, and return NO_RESPONSE. The final response follows later (ses.md §9.1)."""
        assert message.held is not None
        assert message.memory is not None
        message.memory.write(offset, payload)
        message.held.append((pdc, psn))
        request = message.request
        header = build_response(
            ResponseOpcode.NO_RESPONSE, ReturnCode.OK, request.message_id or 0, request.job_id, 0,
            ri_generation=message.generation,
        )  # fmt: skip
        return Response(header, final=False)

    def _match_held(self, index: ResourceIndex, message: RxMessage, buffer: PostedBuffer, now: int) -> None:
        """Move a held message to the buffer of a new receive, and answer its packets."""
        kept, waiting = message.memory, message.held or ()
        assert kept is not None
        message.held = None
        message.overflow = True
        index.held_bytes -= kept.length
        self.take(index, buffer, message, False)
        try:
            for offset, size in message.arrived.ranges():
                message.write(offset, kept.read(offset, size))
        except OSError:
            message.error = ReturnCode.HOST_UNSUCCESS_CMPL
        for pdc, psn in waiting:
            answer = message.answer() if message.error is None else response(message.request, message.error)
            self.target.answer_later(pdc, psn, message.request, answer)
        if message.error is not None:
            self.target.drop_if_seen(message)
        elif message.arrived.complete:
            self.target.messages.pop(message.at, None)
            self.finish(message)

    def drop_held(self, message: RxMessage, code: ReturnCode) -> None:
        """Drop a held message that failed before a receive matched it, and answer its packets with `code`."""
        assert message.held is not None
        assert message.memory is not None
        index = message.index
        assert index is not None
        if index.held.remove(message):
            index.held_bytes -= message.memory.length
        for pdc, psn in message.held:
            self.target.answer_later(pdc, psn, message.request, response(message.request, code))
        message.held = None

    # Stopped messages (ses.md §5.7, §5.8)

    def _stop(self, index: ResourceIndex, message: RxMessage, now: int) -> None:
        stop = StoppedMessage(message.request, message.source, index, self._next_token, now + self.config.deferral_time,
                    message.match_bits)  # fmt: skip
        self._next_token = self._next_token % 0xFFFFFFFF + 1
        message.stopped = stop
        index.pending += 1
        index.held.hold(stop)
        self.stops.append(stop)

    def _reserve(self, stop: StoppedMessage, buffer: PostedBuffer, now: int) -> None:
        """Reserve a buffer for a stopped message, and send DEFERRABLE_RTR (ses.md §5.7 D4).

        A restart that keeps its message_id (`deferral_tokens` reuse) is asked for only when the stopped message has
        ended: packets of it that are still on their way would be taken for packets of the restart.
        """
        stop.index.pending -= 1
        size = min(stop.request.request_length, buffer.room) if buffer.receive.least else buffer.room
        stop.buffer = PostedBuffer(buffer.receive, buffer.memory, buffer.next, buffer.next + size, whole=buffer)
        stop.expires = now + self.config.deferral_time
        self.stops.remove(stop)
        self.stops.append(stop)
        self._tokens[stop.token] = stop
        self._use(stop.index, buffer, min(stop.request.request_length, buffer.room))
        if not (stop.arriving and self.config.deferral_tokens == "reuse"):
            self._ask(stop, now)

    def ended(self, message: RxMessage) -> None:
        """Note that all packets of a stopped message were answered."""
        stop = message.stopped
        if stop is not None and stop.arriving:
            stop.arriving = False
            if self.config.deferral_tokens == "reuse" and self._tokens.get(stop.token) is stop:
                self._ask(stop, self.target.now)

    def _ask(self, stop: StoppedMessage, now: int) -> None:
        """Send DEFERRABLE_RTR (ses.md §5.8)."""
        request = stop.request
        mine = stop.token if self.config.deferral_tokens == "strict" else 0
        own = self.config.rtr_resource_index == "own"
        plan = MessagePlan(
            opcode=Opcode.DEFERRABLE_RTR, rel=bool(request.rel), job_id=request.job_id,
            pid_on_fep=request.pid_on_fep, resource_index=stop.index.number if own else 0,
            initiator=request.initiator, key=mine << 32 | request.tokens[0],
        )  # fmt: skip
        operation = SesOperation(Nop(peer=stop.source, mode=Mode.RUD), plan, 0, 1)
        operation.on_end = lambda completion, at: self._restart_answered(stop, completion)
        self.begin(operation, now)

    def refuse_restart(self, token: int, code: ReturnCode) -> None:
        """End a receive with an error, because the restart for which it waits was refused and no other restart
        follows."""
        stop = self._tokens.get(token)
        if stop is not None:
            self._give_up(stop, code)

    def _restart_answered(self, stop: StoppedMessage, completion: Completion) -> None:
        if not completion.ok and self._tokens.get(stop.token) is stop:
            self._give_up(stop, completion.return_code)

    def restarted(self, j: Judgement) -> ReturnCode | None:
        """Set the reserved buffer as the buffer of a message that is a restart. Return OP_VIOLATION for a wrong token,
        else None (ses.md §5.7 D6)."""
        request = j.request
        theirs, mine = request.tokens
        if mine:
            stop = self._tokens.get(mine)
        else:  # a restart that reuses its token (observed.md `deferral_tokens`), or a new message
            known = (s for s in self._tokens.values() if s.request.tokens[0] == theirs and _same(s, j))
            stop = next(known, None)
            if stop is None:
                return None
        if stop is None or stop.buffer is None or not _same(stop, j):
            return ReturnCode.OP_VIOLATION
        j.buffer, j.restarted = stop.buffer, True
        return None

    def _forget(self, message: RxMessage) -> None:
        """Drop the record of a stopped message whose restart arrived."""
        theirs, mine = message.request.tokens
        for token, stop in list(self._tokens.items()):
            if token == mine or (not mine and stop.request.tokens[0] == theirs and stop.source == message.source):
                del self._tokens[token]
                self.stops.remove(stop)

    def _give_up(self, stop: StoppedMessage, code: ReturnCode) -> None:
        """End in error a receive that waits for a restart."""
        del self._tokens[stop.token]
        if stop in self.stops:
            self.stops.remove(stop)
        assert stop.buffer is not None
        spent = _left(stop.buffer)
        request = stop.request
        self._events.append(Received(
            stop.buffer.receive, stop.source, request.initiator, request.job_id, request.opcode, stop.match_bits,
            stop.buffer.next, 0, request.request_length, None, code, True, spent,
        ))  # fmt: skip

    def take_back(self, message: RxMessage) -> None:
        """Remove a stopped message that has failed. If a buffer is reserved for the message, the receive of this buffer
        ends with an error.
        """
        stop, message.stopped = message.stopped, None
        if stop is None:
            return
        if stop.buffer is not None:
            if self._tokens.get(stop.token) is stop:
                self._give_up(stop, message.error or ReturnCode.UNCOR)
        elif stop.index.held.remove(stop):
            stop.index.pending -= 1
            self.stops.remove(stop)

    # The end of a message

    def finish(self, message: RxMessage) -> None:
        """Complete the receive of a message when all its packets have arrived. In a rendezvous, the rest of the message
        is read first.
        """
        rendezvous = message.rendezvous
        if rendezvous is None or message.room <= rendezvous.eager_length:
            self._complete(message, ReturnCode.OK)
            return
        eager, request = rendezvous.eager_length, message.request
        assert message.memory is not None
        work = Read(
            peer=message.source, mode=Mode.RUD, job_id=request.job_id, pid_on_fep=rendezvous.pid_on_fep,
            resource_index=rendezvous.resource_index, relative=bool(request.rel), key=rendezvous.read_memory_key,
            offset=rendezvous.read_offset,
            into=MemoryWindow(message.memory, message.place + eager, message.room - eager),
        )  # fmt: skip
        operation = operation_of(work, self.config)
        operation.on_end = lambda completion, now: self._was_read(message, completion)
        self._reading += 1
        self.begin(operation, self.target.now)

    def _was_read(self, message: RxMessage, completion: Completion) -> None:
        self._reading -= 1
        code = ReturnCode.OK if completion.ok else completion.return_code
        if not completion.ok and code == ReturnCode.OK:
            code = ReturnCode.UNDELIVERABLE
        self._complete(message, code)

    def fail(self, message: RxMessage) -> None:
        """End the receive of a failed message with an error."""
        if message.buffer is not None:
            self._complete(message, message.error or ReturnCode.UNCOR)

    def _complete(self, message: RxMessage, code: ReturnCode) -> None:
        buffer, request = message.buffer, message.request
        assert buffer is not None
        message.buffer = None
        spent = _left(buffer)
        if code == ReturnCode.OK:
            self._events.append(
                MessageStored(message.source, request.message_id or 0, message.key, message.offset, message.length)
            )
        length = min(message.room, message.length) if code == ReturnCode.OK else 0
        if request.opcode in ATOMICS and code == ReturnCode.OK:
            length = message.length
        self._events.append(Received(
            buffer.receive, message.source, request.initiator, request.job_id, request.opcode, message.match_bits,
            message.place, length, message.length, message.header_data, code, message.overflow, spent, message.at[0],
        ))  # fmt: skip

    @property
    def waiting(self) -> bool:
        """Return True when the target waits for the restart of a stopped message or for the data of a rendezvous."""
        return bool(self.stops or self._reading)

    # Time

    def on_time(self, now: int) -> None:
        """Remove the stopped messages that have expired. If a buffer is reserved for such a message, the receive of
        this buffer ends with an error.
        """
        while self.stops and self.stops[0].expires <= now:
            stop = self.stops.popleft()
            if stop.buffer is not None:
                self._give_up(stop, ReturnCode.DROPPED)
            else:
                stop.index.held.remove(stop)
                stop.index.pending -= 1

    def deadline(self) -> int:
        return self.stops[0].expires if self.stops else NEVER
