# SPDX-License-Identifier: GPL-2.0-only
"""This module has the fabric endpoint, which joins PDS and SES behind the five calls of an engine (ses.md §14.2)."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, get_args

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import (
    NEVER,
    Addressed,
    Buffer,
    CongestionManager,
    Datagram,
    Event,
    PdsError,
    PdsWork,
    Receive,
    Rng,
    SesWork,
    Work,
    Write,
)
from uetproto.engine.memory import Region
from uetproto.engine.pds.service import (
    ADDRESS_BITS,
    RETURN_DATA,
    Connection,
    FollowedRun,
    Refusal,
    Response,
    check_endpoint,
    check_number,
)
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.pds.trains import admit, quiet_acks, take_quiet_ack, use_trains
from uetproto.engine.ses.addressing import Process
from uetproto.engine.ses.initiator import SesInitiator
from uetproto.engine.ses.target import SesTarget
from uetproto.engine.ses.work import OnRead, SesOperation, operation_of, rendezvous, source_of
from uetproto.engine.train import ArrivingRun, Taken, Train, TrainAck
from uetproto.engine.train_splits import Split, TrainTally
from uetproto.errors import LocalError

_NO, _YES, _QUIETLY = Taken  # looked up once: with every packet, Class.MEMBER would cost as much as a call
_EXPOSED_KEYS = 1 << 48 | 1 << 47
"""Bits of the memory keys of rendezvous sources: bit 48 tells keys that the provider assigns from those of applications
(ses.md §2.6), and bit 47 marks those of rendezvous."""


class Fep:
    """A fabric endpoint (FEP) is an `Engine`. It is the initiator of some PDCs and the target of others at the same
    time.
    """

    def __init__(
        self, address: int, rng: Rng, *, pds: PdsConfig | None = None, ses: SesConfig | None = None,
        ip_version: int = 4, congestion: CongestionManager | None = None, objects: bool = False,
    ) -> None:  # fmt: skip
        """`address` is the fabric address as a number; `rng` is a seeded generator, the only source of randomness.
        Without `congestion`, there is no congestion control. With `objects`, PDS headers are not packed
        (`Datagram.message`).

        Raises `LocalError` for an address that is not legal.
        """
        pds = pds or PdsConfig()
        check_endpoint(address, ip_version, pds)
        self.address = address
        events: list[Event] = []
        self.config = ses = ses or SesConfig()
        self.pds = Pds(address, pds, rng, self, ip_version, events, objects, congestion=congestion)
        self.initiator = SesInitiator(ses, self.pds, rng, events)
        self.target = SesTarget(ses, pds.max_ack_data_size, events, self.pds.respond_late)
        self.target.queues.begin = self.initiator.submit
        self.target.restart = self.initiator.on_restart
        self._exposed = 0
        # Two of the five calls without a call in between, which costs time.
        self.receive = self.pds.receive
        self.events = self.pds.events
        self._waits = (*self.target.waits, *self.initiator.waits)
        self._told = 0
        """What `deadline` has returned last, or NEVER for None."""
        # What PDS calls (`service.PdsUser`)
        self.on_reread = self.target.on_reread

    def attach(self, job_id: int | None, pid_on_fep: int = 0, indices: tuple[int, ...] = (15,)) -> Process:
        """Attach a process of the job `job_id`, so that peers can reach it. If `job_id` is None, the process is a
        service at an absolute address.

        `Process.register` makes regions reachable, and `Process.open` makes resource indices reachable. Raises
        `LocalError` for values that are taken or not legal.
        """
        return self.target.processes.attach(job_id, pid_on_fep, indices)

    def detach(self, process: Process) -> None:
        self.target.processes.detach(process)

    def cancel(self, receive: Receive, now: int) -> bool:
        """Withdraw a posted receive. Return False if a message has matched the receive already (ses.md §11.3 rule
        7).
        """
        return self.target.queues.cancel(receive)

    # The five calls

    def submit(self, work: Work, now: int) -> None:
        if isinstance(work, Addressed):
            if type(work.peer) is not int or not 0 < work.peer < self.pds.addresses:
                check_number("peer", work.peer, 1, ADDRESS_BITS[self.pds.ip_version])
            if type(work) is Write and self.initiator.write_alone(work, now):
                return
            operation = operation_of(work, self.config)
            if operation.base.body < operation.base.request_length and operation.base.extension == b"":
                self._expose(operation, work)
            self.initiator.submit(operation, now)
        elif isinstance(work, Receive):
            self.target.queues.post(work, now)
        elif isinstance(work, PdsWork):
            self.pds.submit(work, now)
        else:
            legal = ", ".join(kind.__name__ for kind in (*get_args(SesWork), *get_args(PdsWork)))
            raise LocalError("work", f"{type(work).__name__} is not legal", legal, id="wrong-type")

    def _expose(self, operation: SesOperation, work: Any) -> None:
        """Prepare the operation to register the source of a rendezvous as a region, for its target (ses.md §5.9 R1)."""
        process = self.target.processes.find(work.job_id if work.relative else None, work.local_pid)
        if process is None or work.local_index not in process.indices:
            raise LocalError(
                "local_pid",
                f"no process {work.local_pid} of job {work.job_id} with resource index {work.local_index} is"
                " attached here; a rendezvous is read from it",
                id="not-registered",
            )
        self._exposed += 1
        key = _EXPOSED_KEYS | self._exposed & 0xFFFFFFFF
        operation.base = rendezvous(operation.base, work, key)

        def expose(on_read: OnRead) -> Callable[[], None]:
            region = Region(key, source_of(operation.base), remote_write=False, job_restriction=work.job_id)
            region.on_read = on_read
            process.register(region)

            def take_back() -> None:
                process.regions.pop(key, None)
                region.enabled = False

            return take_back

        operation.expose = expose

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        target, waits = self.target, self._waits
        target.now = now
        settles = target.idle_at <= now or (any(waits) and self._ses_deadline() <= now)
        if settles:
            self._settle(now)
        packets = self.pds.poll(now, limit)
        if (settles or self.pds.called) and any(waits) and self._ses_deadline() <= now:
            self._settle(now)  # timers of PDS gave SES something to do
            packets += self.pds.poll(now, limit)
        return packets

    def _settle(self, now: int) -> None:
        initiator, target = self.initiator, self.target
        target.on_time(now)
        if target.returns.queued:
            target.returns.flush(self.pds, now)
        initiator.on_time(now)

    def _ses_deadline(self) -> int:
        """Return when SES has something to do."""
        late, initiator = self.target.deadline(), self.initiator
        if not (initiator.due or initiator.timers):
            return late
        at = initiator.deadline()
        return late if late < at else at

    def deadline(self) -> int | None:
        at, target = self.pds.deadline(), self.target
        late = self._ses_deadline() if any(self._waits) else target.idle_at if target.messages else NEVER
        if at is not None and at < late:
            late = at
        self._told = late
        return late if late != NEVER else None

    @property
    def retransmitted(self) -> Mapping[str, int]:
        """Return how many requests and control packets were retransmitted. The key is the cause."""
        return self.pds.counters.retransmitted

    @property
    def quiescent(self) -> bool:
        """Return whether nothing is in flight, queued, stored or unanswered. Idle timers may still be armed."""
        initiator = self.initiator
        return not (initiator.transfers or initiator.messages or self.target.waiting) and self.pds.quiescent

    @property
    def held(self) -> set[tuple[int, int]] | None:
        """Return source address and message id of each message that waits here for a receive.

        Return None if any message is not complete, or waits for something else.
        """
        if self.target.queues.waiting:
            return None
        if not self.target.messages:
            return set()
        messages = self.target.messages.values()
        if any(message.held is None or not message.arrived.complete for message in messages):
            return None
        return {(message.source, message.request.message_id or 0) for message in messages}

    def stalled(self, held: Mapping[int, Container[tuple[int, int]]]) -> bool:
        """Return whether every message sent from here waits at its target for a receive.

        `held` maps the address of each target to the messages that wait there (`held` of the target). While the
        messages wait, both ends exchange ACK_REQ and NACK RCVD_SES_PROCG without end (pds.md §11.2).
        """
        attempts = [transfer.attempt for transfer in self.initiator.transfers]
        return all(
            message is not None and (self.address, message.message_id) in held.get(message.peer, ())
            for message in (*attempts, *self.initiator.messages.values())
        )

    # Trains (`train.TrainEngine`)

    @property
    def tally(self) -> TrainTally:
        return self.pds.tally

    def use_trains(self) -> bool:
        return use_trains(self.pds)

    def only_sends(self, now: int) -> bool:
        settles = self.target.idle_at <= now or (any(self._waits) and self._ses_deadline() <= now)
        return not settles and self.pds.only_sends(now)

    def admit(self, train: Train, index: int, polled: bool) -> ArrivingRun | None:
        return admit(self.pds, train, index, polled)

    def quiet_acks(self, receiver: int, psn: int, polled: bool) -> int | None:
        return quiet_acks(self.pds, receiver, psn, polled)

    def take_quiet_ack(self, ack: TrainAck, now: int) -> bool:
        return take_quiet_ack(self.pds, ack, now)

    # Packets that the driver has recognized (`train.MessageEngine`)

    def use_messages(self) -> bool:
        pds = self.pds
        pds.messages = pds.objects or not use_trains(pds)
        return pds.messages and not pds.objects

    def take_message(self, packet: Datagram, now: int) -> Taken:
        """Receive a packet as a peer has sent it, unless its payload may have changed since, or it is for another
        endpoint."""
        payload, pds, target = packet.payload, self.pds, self.target
        if (
            packet.dst != pds.address or packet.ip_version != pds.ip_version
            or (type(payload) is not bytes and not (type(payload) is memoryview and type(payload.obj) is bytes))
        ):  # fmt: skip
            return _NO
        self.receive(packet, now)
        told = self._told
        if pds.is_quiet(now, told) and not any(self._waits) and not (target.messages and target.idle_at < told):
            return _QUIETLY
        return _YES

    # What PDS calls (`service.PdsUser`)

    def follow_run(
        self, pdc: Connection, next_hdr: int, data: Buffer, at: int, payloads: Sequence[Buffer]
    ) -> FollowedRun | Split:
        return self.target.follow_run(pdc, next_hdr, data, at, payloads)

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        if next_hdr in RETURN_DATA:
            return self.initiator.on_return_data(pdc, next_hdr, data[at:], payload, now)
        return self.target.on_request(pdc, psn, next_hdr, data, at, payload, now)

    def on_response(self, message: Any, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        message.on_response(index, next_hdr, response, now)

    def on_closed(self, pdc: Connection) -> None:
        self.target.on_closed(pdc)
        self.initiator.on_closed(pdc)

    def on_error(self, message: Any, index: int, error: PdsError) -> None:
        message.on_error(index, error, self.pds.now)
