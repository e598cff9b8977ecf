# SPDX-License-Identifier: GPL-2.0-only
"""This module has the near end of `uetproto send` and `ping`: it writes, reads and sends, and waits for the end."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self

from uetproto import LocalError, UetError
from uetproto.api import fi, verbs
from uetproto.cli.live.options import (
    RC,
    HandNumbers,
    LinkOptions,
    local_towards,
    meet,
    mtu_towards,
    own_address,
    sealed_offer,
)
from uetproto.cli.live.words import link_facts
from uetproto.engine.config import PERSONALITIES
from uetproto.engine.contract import SECOND
from uetproto.live.interface import AUTO, address_of
from uetproto.live.rate import PeerRate
from uetproto.live.rendezvous import Json, RendezvousClient, number
from uetproto.live.world import LiveWorld

PIECE, OPEN = 4 << 20, 4
"""Number of bytes of a message of a long transfer, and number of messages that are open at a time."""
READ_PIECE = 256 << 10
"""Number of bytes of a read. A request of it is repeated if the data takes longer than the RTO, so reads are short."""
_PATIENCE = 60 * SECOND
"""Longest time in picoseconds for which an operation may wait without an end."""

Stop = Callable[[], bool]


class OperationFailedError(UetError):
    """This error says that an operation ended in an error, or not at all."""


class Initiator(ABC):
    """This base class has an endpoint that is connected to one peer."""

    world: LiveWorld

    def __init__(
        self, options: LinkOptions, peer: str, local: str, rendezvous: RendezvousClient | None, told: Json
    ) -> None:
        self.options = options
        self.peer = peer
        self.peer_address = int(ip_address(peer))
        self.local = local
        self.rendezvous = rendezvous
        self.told = told
        """What the peer said of itself; empty without a rendezvous."""
        memory = told.get("memory")
        memory = memory if isinstance(memory, dict) else {}
        self.key = number(memory, "key", 0, 2**64 - 1, options.memory_key)
        self.base = number(memory, "address", 0, 2**64 - 1, options.address)
        self.room = number(memory, "length", 0, 2**64 - 1, 2**63)
        """Number of bytes of the peer's memory, as far as it is known."""
        receive = told.get("receive")
        self.receive_size = number(receive if isinstance(receive, dict) else {}, "size", 1, 1 << 30, 1 << 20)
        """Number of bytes of the receives at the peer."""
        self.rtt: int | None = None
        self.open = 0
        """Number of operations that have not ended."""
        self.problems: deque[str] = deque()
        self.gone = False
        """Whether the program of the peer has ended the rendezvous."""

    def _introduce(self) -> None:
        """Tell the peer what this end can take, and use what the peer told and the time that it took."""
        path, rendezvous = self.world.path, self.rendezvous
        if rendezvous is None:
            return

        def look() -> None:
            if rendezvous.gone:
                self.gone = True
                self.world.driver.forget(rendezvous.fileno())

        self.world.driver.watch(rendezvous.fileno(), look)
        self.rtt = rendezvous.round_trip()
        rendezvous.ask("ready", buffer=path.buffer, rtt_ps=self.rtt, takes_no_checksum=True)
        self.world.learn(
            self.peer_address, PeerRate(number(self.told, "buffer", 1, 1 << 40, PeerRate().buffer), self.rtt)
        )
        if self.told.get("takes_no_checksum") is True and self.options.checksum == "auto":
            path.checksum = False

    # Operations: they begin, and end in `collect`

    @abstractmethod
    def write(self, data: Any, offset: int) -> None: ...

    @abstractmethod
    def read(self, into: Any, offset: int) -> None: ...

    @abstractmethod
    def send(self, data: Any) -> None: ...

    @abstractmethod
    def collect(self) -> None:
        """Take the completions that are there: `open` falls, and failures go to `problems`."""

    def finish(self, left: int = 0, stop: Stop = lambda: False) -> None:
        """Wait until at most `left` operations are open. Raises `OperationFailedError` for one that failed, or if none
        ends for a long time."""
        world, began, open_ = self.world, self.world.now, self.open

        def done() -> bool:
            self.collect()
            return self.open <= left or bool(self.problems) or self.gone or stop()

        while not world.wait(done, SECOND):
            if self.open != open_:
                began, open_ = world.now, self.open
            elif world.now - began > _PATIENCE:
                raise OperationFailedError(f"nothing ended for {_PATIENCE // SECOND} s", id="no-answer")
        if self.problems:
            raise OperationFailedError(self.problems.popleft() + self._silence(), id="operation-failed")
        if self.gone and self.open > left:
            raise OperationFailedError(f"{self.peer} has ended, with {self.open} operations open", id="peer-ended")

    def _silence(self) -> str:
        """Return what was reported of the packets to a peer that never answered."""
        counters = self.world.path.counters
        if counters.received or not counters.refused:
            return ""
        return f"; nothing ever came from {self.peer}: {', '.join(counters.refused)}"

    def transfer(
        self, begin: Callable[[memoryview, int], None], data: Any, *, piece: int = PIECE,
        progress: Callable[[int, int], None] = lambda done, total: None, stop: Stop = lambda: False,
    ) -> int:  # fmt: skip
        """Perform an operation on a long buffer in pieces, some of which are open at a time; `begin` gets the bytes and
        the offset of each. Return how many bytes were moved, which are fewer if `stop` told to."""
        view = memoryview(data)
        at = 0
        while at < len(view) or not len(view):
            begin(view[at : at + piece], at)
            at += piece
            self.finish(OPEN - 1, stop)
            progress(min(at, len(view)), len(view))
            if stop() or not len(view):
                break
        self.finish(0, stop)
        return 0 if stop() else len(view)

    def piece(self, what: str) -> int:
        """Return the size of a message of a long transfer."""
        return {"--send": self.receive_size, "--read": READ_PIECE}.get(what, PIECE)

    def digest(self, offset: int, length: int) -> str | None:
        """Return the SHA-256 of memory of the peer, or None without a rendezvous."""
        if self.rendezvous is None:
            return None
        return str(self.rendezvous.ask("digest", offset=offset, length=length).get("sha256"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the conversation, complete the capture and leave the rendezvous.

        PDCs are closed after failures, too, unless the program of the peer has ended, or this one has to end at once.
        """
        at_once = kind is not None and not issubclass(kind, LocalError)
        try:
            # The error that ends the command may come again while the PDCs close.
            with suppress(LocalError) if error is not None else nullcontext():
                self.world.close(drain=not at_once and not self.gone)
        finally:
            if self.rendezvous is not None:
                self.rendezvous.close()

    def summary(self) -> Json:
        """Return counts of the link."""
        facts = link_facts(self.world, self.options.output)
        return {"retransmissions": dict(self.retransmissions), "not_closed": self.not_closed} | facts

    @property
    @abstractmethod
    def retransmissions(self) -> Any:
        """Return the number of packets that were sent again, by cause."""

    @property
    def not_closed(self) -> int:
        """Return how many PDCs did not close in order."""
        return 0


class UetInitiator(Initiator):
    """This class is connected to a peer over UET."""

    def __init__(
        self, options: LinkOptions, peer: str, local: str, rendezvous: RendezvousClient | None, told: Json
    ) -> None:
        super().__init__(options, peer, local, rendezvous, told)
        version = ip_address(peer).version
        payload = told.get("payload_mtu")
        if options.payload_mtu not in (None, payload) and payload is not None:
            raise LocalError(
                "--payload-mtu", f"{options.payload_mtu} is not that of the peer", payload, id="peer-differs"
            )
        if payload is None:
            payload = options.payload_for(mtu_towards(options, local, peer), version)
        port = told.get("udp_port")
        if told and (port is None) != (options.ip_protocol is not None):
            takes = f"IP protocol {told.get('ip_protocol')}" if port is None else f"UDP port {port}"
            raise LocalError(
                "--ip-protocol", f"the peer takes {takes}", "the same encapsulation at both ends", id="peer-differs"
            )
        self.payload_mtu = number({"payload_mtu": payload}, "payload_mtu", 1024, 8192)
        self.dscp = options.how().dscp
        self._fabric = options.fabric(local, self.payload_mtu, port)
        self.world = self._fabric.live
        try:
            at = told.get("endpoint")
            at = at if isinstance(at, dict) else {}
            job = number(at, "job_id", 0, 2**24 - 1, options.job_id)
            relative = at.get("relative", options.relative)
            domain = self._fabric.domain("local", fi.Job(job))
            order = fi.Order.NONE if options.mode == "rud" else fi.Order.WAW
            self._endpoint = endpoint = domain.endpoint(msg_order=order, initiator_id=options.initiator_id)
            av = domain.av_open()
            endpoint.bind(av)
            endpoint.bind(domain.cq_open())
            endpoint.enable()
            self._to = fi.Address(
                fa=self.peer_address, ip_version=version, pid_on_fep=number(at, "pid_on_fep", 0, 4095, options.pid),
                start_index=number(at, "resource_index", 1, 4095, options.resource_index),
                initiator_id=number(at, "initiator_id", 0, 2**32 - 1, 16), absolute=not relative,
            )  # fmt: skip
            av.insert(self._to)
            self._introduce()
        except BaseException:
            self._fabric.close(drain=False)
            raise

    def write(self, data: Any, offset: int) -> None:
        self._endpoint.write(data, self._to, self.base + offset, self.key)
        self.open += 1

    def read(self, into: Any, offset: int) -> None:
        self._endpoint.read(into, self._to, self.base + offset, self.key)
        self.open += 1

    def send(self, data: Any) -> None:
        self._endpoint.send(data, self._to)
        self.open += 1

    def collect(self) -> None:
        cq = self._endpoint.cq
        if len(cq):
            for entry in cq.read(len(cq)):
                self.open -= 1
                if not entry.ok:
                    self.problems.append(str(entry))

    @property
    def retransmissions(self) -> Any:
        return self._fabric.live.fep.retransmitted

    @property
    def not_closed(self) -> int:
        return self._fabric.live.not_closed


class RoceInitiator(Initiator):
    """This class is connected to a peer over RoCEv2, with one queue pair."""

    def __init__(
        self, options: LinkOptions, peer: str, local: str, rendezvous: RendezvousClient | None, told: Json, *,
        has_pair: bool = True,
    ) -> None:  # fmt: skip
        """Make a queue pair that is connected to the peer, unless somebody else makes those that are used."""
        super().__init__(options, peer, local, rendezvous, told)
        usual = None if told else options.payload_for(mtu_towards(options, local, peer), ip_address(peer).version)
        payload = number(told, "payload_mtu", 256, 4096, usual)
        self._network = options.network(local, options.payload_mtu or payload, told.get("udp_port"))
        self.world = self._network.live
        try:
            self._introduce()
            device = self._network.device("local")
            self.pd = device.alloc_pd()
            self._cq = device.create_cq(256)
            self.path_mtu = options.payload_mtu or payload
            self._regions: deque[tuple[verbs.MR, memoryview | None]] = deque()
            if not has_pair:
                return
            numbers = options.by_hand
            self._qp = self.pd.create_qp(verbs.QpType.RC, self._cq, qp_num=numbers.mine)
            if rendezvous is not None:
                psn = device.psns.getrandbits(24)
                answer = rendezvous.ask("connect", qp_num=self._qp.qp_num, psn=psn)
                theirs, their_psn = number(answer, "qp_num", 2, 2**24 - 1), number(answer, "psn", 0, 2**24 - 1)
                numbers = HandNumbers(numbers.mine, theirs, psn, their_psn)
            verbs.connect_to(
                self._qp, peer, dest_qpn=numbers.theirs, sq_psn=numbers.my_psn, rq_psn=numbers.their_psn,
                path_mtu=self.path_mtu,
            )  # fmt: skip
        except BaseException:
            self._network.close(drain=False)
            raise

    def _post(self, opcode: verbs.Opcode, mr: verbs.MR, into: memoryview | None = None, **fields: Any) -> None:
        self._qp.post_send(opcode, mr, **fields)
        self._regions.append((mr, into))
        self.open += 1

    def write(self, data: Any, offset: int) -> None:
        mr = self.pd.reg_mr(data, verbs.Access(0))
        self._post(verbs.Opcode.RDMA_WRITE, mr, remote_addr=self.base + offset, rkey=self.key)

    def read(self, into: Any, offset: int) -> None:
        mr = self.pd.reg_mr(into)
        self._post(verbs.Opcode.RDMA_READ, mr, remote_addr=self.base + offset, rkey=self.key)

    def send(self, data: Any) -> None:
        self._post(verbs.Opcode.SEND, self.pd.reg_mr(data, verbs.Access(0)))

    def collect(self) -> None:
        if len(self._cq):
            for entry in self._cq.poll(len(self._cq)):
                self.open -= 1
                mr, _ = self._regions.popleft()
                mr.dereg()
                if entry.status is not verbs.Status.SUCCESS:
                    self.problems.append(f"queue pair {entry.qp_num}: {entry.status.name}")

    @property
    def retransmissions(self) -> Any:
        return self.world.node.endpoint.retransmitted  # type: ignore[attr-defined]


def connected(options: LinkOptions, peer: str, *, has_pair: bool = True) -> Initiator:
    """Return an endpoint that is connected to a peer. Over RoCE it has a queue pair, unless the caller makes them.

    Raises `LocalError` if the peer cannot be reached, or refuses.
    """
    if options.personality == AUTO:
        raise LocalError(
            "--personality", "auto is of serve alone, which sees packets first", ", ".join(PERSONALITIES),
            id="unknown-personality"
        )  # fmt: skip
    peer = str(address_of("--peer", peer))
    local = local_towards(options, peer)
    rendezvous, told = begun(options, peer, local)
    try:
        if options.is_roce:
            return RoceInitiator(options, peer, local, rendezvous, told, has_pair=has_pair)
        return UetInitiator(options, peer, local, rendezvous, told)
    except BaseException:
        if rendezvous is not None:
            rendezvous.close()
        raise


def begun(options: LinkOptions, peer: str, local: str) -> tuple[RendezvousClient | None, Json]:
    """Begin a session at the rendezvous of a peer, and return it and what the peer told; None and nothing without a
    rendezvous. Raises `LocalError` or `RemoteError` if nobody answers, or if the peer refuses."""
    found = options.rendezvous_at
    if found is None:
        return None, {}
    rendezvous = meet(options, found, peer, local)
    try:
        offer: Json = {"transport": RC if options.is_roce else options.transport, "address": local}
        offer |= own_address(options, local) | sealed_offer(options)
        if options.local_udp_port is not None:
            offer["udp_port"] = options.local_udp_port
        told = rendezvous.begin(offer)
        _compare(options, told)
        return rendezvous, told
    except BaseException:
        rendezvous.close()
        raise


_TOLD = {
    "key": ("memory", "key", "memory_key"), "addr": ("memory", "address", "address"),
    "job_id": ("endpoint", "job_id", "job_id"), "pid": ("endpoint", "pid_on_fep", "pid"),
    "resource_index": ("endpoint", "resource_index", "resource_index"),
    "relative": ("endpoint", "relative", "relative"),
}  # fmt: skip
"""Where a peer tells what an option says, and the attribute that has the option's value."""


def _compare(options: LinkOptions, told: Json) -> None:
    """Raise `LocalError` for an option that says otherwise than the peer, which knows better."""
    for name, (part, key, attribute) in _TOLD.items():
        theirs, ours = told.get(part), getattr(options, attribute)
        if name in options.given and isinstance(theirs, dict) and theirs.get(key, ours) != ours:
            raise LocalError(
                f"--{name.replace('_', '-')}", f"{ours} is not what the peer tells at the rendezvous",
                f"{theirs[key]}, or --rendezvous off",
                id="peer-differs",
            )  # fmt: skip
