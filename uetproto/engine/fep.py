"""A fabric endpoint: PDS and SES behind the five calls (ses.md §14.2)."""

from typing import get_args

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import NEVER, Datagram, Event, PdsWork, Rng, Work, Write
from uetproto.engine.ses_checks import Process
from uetproto.engine.ses_initiator import SesInitiator
from uetproto.engine.ses_target import SesTarget
from uetproto.engine.uet_pds import Pds, check_endpoint
from uetproto.errors import LocalError


class Fep:
    """One fabric endpoint, initiator of some PDCs and target of others at the same time. An `Engine`."""

    def __init__(
        self, address: int, rng: Rng, *, pds: PdsConfig | None = None, ses: SesConfig | None = None,
        ip_version: int = 4,
    ) -> None:  # fmt: skip
        """`address` is the fabric address as a number, `rng` a seeded generator; one seed, one trace.

        Raises `LocalError` for an address that is none.
        """
        pds = pds or PdsConfig()
        check_endpoint(address, ip_version, pds)
        self.address = address
        events: list[Event] = []
        ses = ses or SesConfig()
        self.pds = Pds(address, pds, rng, self, ip_version, events)
        self.initiator = SesInitiator(ses, self.pds, events)
        self.target = SesTarget(ses, events, self.pds.respond)
        self.receive = self.pds.receive  # the first of the five calls, for each packet: no step in between
        # What PDS calls (`service.PdsUser`)
        self.on_request = self.target.on_request
        self.on_reread = self.target.on_reread
        self.on_response = self.initiator.on_response
        self.on_error = self.initiator.on_error
        self.on_closed = self.target.on_closed

    def attach(self, job_id: int | None, pid_on_fep: int = 0, indices: tuple[int, ...] = (15,)) -> Process:
        """A process of a job that can be reached here; job_id None: a service at an absolute address.

        Its `register` makes regions reachable. Raises `LocalError` for what is taken or not legal.
        """
        return self.target.processes.attach(job_id, pid_on_fep, indices)

    def detach(self, process: Process) -> None:
        self.target.processes.detach(process)

    # The five calls

    def submit(self, work: Work, now: int) -> None:
        if isinstance(work, Write):
            self.initiator.submit(work, now)
        elif isinstance(work, PdsWork):
            self.pds.submit(work, now)
        else:
            legal = ", ".join(kind.__name__ for kind in (Write, *get_args(PdsWork)))
            raise LocalError(f"work: {type(work).__name__} is not legal; legal: {legal}")

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        self.target.on_time(now)
        return self.pds.poll(now, limit)

    def deadline(self) -> int | None:
        at, late = self.pds.deadline(), self.target.deadline()
        if late == NEVER:
            return at
        return late if at is None else min(at, late)

    def events(self) -> list[Event]:
        return self.pds.events()

    @property
    def quiescent(self) -> bool:
        """Nothing is in flight, queued, stored or waiting for an answer; only idle timers may be armed."""
        return self.pds.quiescent and not self.initiator.messages and not self.target.waiting
