# SPDX-License-Identifier: GPL-2.0-only
"""This module has what `uetproto serve` offers: memory that peers may read and write, and receives."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uetproto import LocalError
from uetproto.api import fi, verbs
from uetproto.cli.live.options import LinkOptions, mtu_of, own_address
from uetproto.cli.live.words import link_facts
from uetproto.engine.contract import SECOND, Datagram, MessageFailed, MessageStored, PdcClosed, PdcOpened
from uetproto.engine.memory import Region
from uetproto.engine.personality import Recogniser
from uetproto.errors import shown
from uetproto.live.interface import AUTO, address_of
from uetproto.live.path_raw import NativeListener
from uetproto.live.rate import PeerRate
from uetproto.live.rendezvous import Answer, Json, Network, PeerSession, RendezvousServer, is_allowed, number
from uetproto.live.script import ScriptEnd
from uetproto.live.world import LiveWorld
from uetproto.system_memory import zeros

if TYPE_CHECKING:
    from uetproto.cli.live.tested_pairs import TestedPairs

SILENCE = 60 * SECOND
"""Time in picoseconds after which the session of a silent peer without a rendezvous has ended."""
QUIET = 5 * SECOND
"""That time for RoCE by hand: longer than a queue pair repeats, since the next program begins at the first PSN."""
RECEIVES, RECEIVE_SIZE = 32, 1 << 20
"""Number of receives that are posted, each of a kind, and the size of each in bytes."""
_PSN = 1 << 24
_TAKEN = (1, 6, 17, 58)
"""Protocols that a peer may not let this host listen to: ICMP, TCP, UDP, ICMPv6."""
_EVERY_TAG = (1 << 64) - 1


class Target(ABC):
    """This base class has an endpoint that serves peers until it is closed."""

    world: LiveWorld
    told: Json
    """What clients are told of the endpoint."""

    def __init__(self, options: LinkOptions, size: int, allowed: list[Network]) -> None:
        self.options = options
        try:
            self.memory = zeros(size)
        except OSError as error:
            why = f"{size:,} bytes: {error.strerror}"
            raise LocalError("--memory", why, "less than this host has", id="out-of-range") from None
        self.allowed = allowed
        self.ended = 0
        """Number of sessions of peers that have ended."""
        self.received = 0
        """Number of messages that receives have taken, and `received_bytes` of their bytes."""
        self.received_bytes = 0
        self.digest = hashlib.sha256()
        """Digest of the received messages, in their order."""
        self.failures: list[str] = []
        self.on_session: Callable[[str, str], None] = lambda peer, what: None
        """Function that is told of sessions: the peer, and what happened."""
        self.stop: Callable[[], bool] = lambda: False
        """Function that returns whether the target has to end, also in the middle of a script."""
        self.rendezvous: RendezvousServer | None = None
        self.recognised: str | None = None
        """Personality that suits the first peer, if it is not the one of this target; its packets are not taken."""
        self._recogniser = Recogniser()
        self._met: set[str] = set()
        """Peers that had a rendezvous, whose sessions are counted by it."""

    def _serve(self, local: str) -> None:
        """Filter packets and open the rendezvous, once the world is there."""
        if self.allowed:
            version = ip_address(local).version
            width = 4 if version == 4 else 16

            def accepts(source: int) -> bool:
                return is_allowed(str(ip_address(source.to_bytes(width, "big"))), self.allowed)

            self.world.driver.accepts = accepts
        if self.options.personality == AUTO:
            self.world.driver.observe = self._observe
        at = self.options.rendezvous_at
        if at is not None:
            if at[0] is None and own_address(self.options, local):
                told = f"TCP needs an address of the kernel, and {local} is none"
                raise LocalError(
                    "--rendezvous", told, "ADDRESS:PORT with an address of this host, or off", id="wrong-local-address"
                )
            asks: dict[str, Answer] = {
                "echo": lambda session, told: {"echo": True}, "ready": self._ready, "digest": self._digest,
                "received": self._received, "seen": self._seen, "native": self._native,
            }  # fmt: skip
            self.rendezvous = RendezvousServer(
                self.world.driver, at[0] or local, at[1], allowed=self.allowed, asks=asks | self._asks(),
                begun=self._begun, ended=self._session_ended, device=self.options.interface,
            )  # fmt: skip

    def _observe(self, packet: Datagram, ecn: int) -> bool:
        """Look at the packets of the first peer until they show what it is, and return whether they are for the
        engine."""
        native = self.told.get("udp_port") is None
        shown = self._recogniser.see(packet.header, entropy=packet.entropy if native else None, ecn=ecn)
        if shown is None:
            return True
        if shown == "default":
            self.world.driver.observe = None
            return True
        self.recognised = shown
        return False

    def _asks(self) -> dict[str, Answer]:
        """Return further questions that the target answers."""
        return {}

    def _begun(self, session: PeerSession, offer: Json) -> Json:
        if offer.get("transport") != self.options.transport:
            raise LocalError(
                "transport", f"{offer.get('transport')!r} is not served here", self.options.transport, id="peer-refused"
            )
        sdis = offer.get("sdi"), None if self.options.domain is None else self.options.domain.sdi
        if sdis[0] != sdis[1]:
            said = ["travel in clear" if sdi is None else f"are sealed in SDI {shown(sdi)}" for sdi in sdis]
            raise LocalError(
                "--keys", f"packets of this end {said[0]}, and those of the peer {said[1]}", "one domain",
                id="peer-differs"
            )  # fmt: skip
        if self.options.domain is not None:
            _compare_ssis(self.options.ssi, offer.get("ssi"))
        port = self.told["peer_udp_port"]
        if offer.get("udp_port", port) != port:
            raise LocalError(
                "local_udp_port", f"{offer.get('udp_port')!r} is not the port to which this end sends", port,
                id="peer-differs"
            )  # fmt: skip
        if offer.get("own_address") is True:  # its packets have another address than its TCP connection
            session.peer = self._owned(session, offer.get("address"))
        self.on_session(session.peer, "begins")
        self._met.add(session.peer)
        return self.told

    def _owned(self, session: PeerSession, text: object) -> str:
        """Return the address of a client that is not its kernel's. Raises `LocalError` if it is not allowed."""
        found = address_of("address", text if isinstance(text, str) else "")
        if found.version != self.world.interface.address.version or not is_allowed(str(found), self.allowed):
            raise LocalError("address", f"{found} is not served here", "an address of --allow", id="peer-refused")
        return str(found)

    def _ready(self, session: PeerSession, told: Json) -> Json:
        rate = PeerRate(
            number(told, "buffer", 1024, 1 << 34, PeerRate().buffer), number(told, "rtt_ps", 1, 1 << 50, PeerRate().rtt)
        )
        self.world.learn(int(ip_address(session.peer)), rate)
        if told.get("takes_no_checksum") is True and self.options.checksum == "auto":
            self.world.path.checksum = False
        return {"ready": True}

    def _digest(self, session: PeerSession, told: Json) -> Json:
        offset = number(told, "offset", 0, len(self.memory), 0)
        length = number(told, "length", 0, len(self.memory) - offset, len(self.memory) - offset)
        return {"sha256": hashlib.sha256(self.memory[offset : offset + length]).hexdigest()}

    def _received(self, session: PeerSession, told: Json) -> Json:
        self._collect()  # the question may come in the turn in which the last message was acknowledged
        return {"messages": self.received, "bytes": self.received_bytes, "sha256": self.digest.hexdigest()}

    def _seen(self, session: PeerSession, told: Json) -> Json:
        seen = self.world.driver.seen.get(int(ip_address(session.peer)), {})
        return {"tos": {str(tos): count for tos, count in sorted(seen.items())}}

    def _native(self, session: PeerSession, told: Json) -> Json:
        """Count the native IP packets of a client from its first question on."""
        address = ip_address(session.peer)
        listener = session.state.get("native")
        if listener is None:
            protocol = number(told, "ip_protocol", 1, 255)
            if protocol in _TAKEN:
                raise LocalError(
                    "ip_protocol", f"{protocol} is that of the system", "an unassigned one, such as 253",
                    id="peer-refused"
                )  # fmt: skip
            local = int(self.world.interface.address)
            listener = session.state["native"] = NativeListener(local, address.version, protocol)
        return {"arrived": listener.count(int(address))}

    def _session_ended(self, session: PeerSession) -> None:
        listener = session.state.pop("native", None)
        if listener is not None:
            listener.close()
        if session.offer is not None:
            self.ended += 1
            if not session.in_order:
                self.failures.append(f"{session.peer}: its program was killed, or cannot be reached any more")
            self.on_session(session.peer, "ends" if session.in_order else "is gone")

    def turn(self, until: int) -> None:
        """Do what there is to do, or sleep until the time `until`."""
        self.world.driver.turn(until)
        self._collect()

    @abstractmethod
    def _collect(self) -> None:
        """Take the receives that are complete, and post them again."""

    def take(self, data: memoryview) -> None:
        """Count the bytes of a received message."""
        self.received += 1
        self.received_bytes += len(data)
        self.digest.update(data)

    def close(self) -> None:
        """Close endpoint, rendezvous and capture."""
        if self.rendezvous is not None:
            self.rendezvous.close()
        self.world.close(drain=False)

    def summary(self) -> Json:
        """Return what was served."""
        found: Json = {
            "sessions": self.ended, "messages_received": self.received, "bytes_received": self.received_bytes,
            "sha256_received": self.digest.hexdigest() if self.received else None,
            "sha256_memory": hashlib.sha256(self.memory).hexdigest() if self.memory else None,
            "failures": self.failures, "not_allowed": self.world.driver.not_allowed,
        }  # fmt: skip
        return found | link_facts(self.world, self.options.output)


class UetTarget(Target):
    """This class serves peers over UET."""

    def __init__(self, options: LinkOptions, local: str, size: int, allowed: list[Network]) -> None:
        super().__init__(options, size, allowed)
        payload = options.payload_for(mtu_of(options, local), ip_address(local).version)
        self._fabric = fabric = options.fabric(local, payload)
        self.world = fabric.live
        try:
            domain = fabric.domain(
                "local", fi.Job(options.job_id), pid_on_fep=options.pid, absolute=not options.relative
            )
            endpoint = domain.endpoint(resource_index=options.resource_index, initiator_id=options.initiator_id)
            endpoint.bind(domain.av_open())
            endpoint.bind(domain.cq_open(4 * RECEIVES))
            endpoint.enable()
            self._endpoint = endpoint
            domain.process.register(Region(options.memory_key, self.memory, base=options.address))
            for _ in range(RECEIVES):
                for tagged in (False, True):
                    self._post(tagged, zeros(RECEIVE_SIZE))
            fabric.live.fi_node.listeners.append(self._note)
            self._open: dict[int, int] = {}
            """Number of PDCs of each peer."""
            self._heard: dict[int, tuple[int, int]] = {}
            """Number of packets of peers with PDCs but without a rendezvous, and the time when it had grown."""
            self._looked = 0
            how = options.how()
            self.told = {
                "uetproto": 1, "transport": options.transport, "address": local, "path": self.world.path.name,
                "udp_port": (options.local_udp_port or how.udp_port) if how.udp else None,
                "peer_udp_port": how.udp_port if how.udp else None,
                "ip_protocol": None if how.udp else how.ip_protocol, "crc": how.crc,
                "takes_no_checksum": True, "buffer": self.world.path.buffer, "payload_mtu": payload,
                "personality": options.personality,
                "memory": {"key": options.memory_key, "address": options.address, "length": size},
                "endpoint": {
                    "job_id": options.job_id, "pid_on_fep": options.pid, "resource_index": options.resource_index,
                    "initiator_id": options.initiator_id, "relative": options.relative,
                },
                "receive": {"count": RECEIVES, "size": RECEIVE_SIZE},
                "security": None if options.domain is None else {
                    "sdi": options.domain.sdi, "mode": options.domain.mode
                },
            }  # fmt: skip
            self._serve(local)
        except BaseException:
            fabric.close(drain=False)
            raise

    def _post(self, tagged: bool, buffer: memoryview) -> None:
        context = (tagged, buffer)
        if tagged:
            self._endpoint.trecv(buffer, fi.ADDR_UNSPEC, 0, _EVERY_TAG, context=context)
        else:
            self._endpoint.recv(buffer, context=context)

    def _collect(self) -> None:
        for entry in self._endpoint.cq.read(RECEIVES) if len(self._endpoint.cq) else ():
            assert isinstance(entry, fi.CqTaggedEntry)
            if isinstance(entry, fi.CqErrEntry):
                self.failures.append(str(entry))
            if isinstance(entry.op_context, tuple):
                tagged, buffer = entry.op_context
                if entry.ok:
                    self.take(buffer[: entry.len])
                self._post(tagged, buffer)

    def turn(self, until: int) -> None:
        super().turn(until)
        now = self.world.now
        if self._open and now - self._looked > SECOND:
            self._looked = now
            self._look_for_silence(now)

    def _look_for_silence(self, now: int) -> None:
        """End the sessions of peers without a rendezvous that have been silent for long. What they began and did not
        end has failed."""
        for peer in [peer for peer in self._open if self._text(peer) not in self._met]:
            count = sum(self.world.driver.seen.get(peer, {}).values())
            before, since = self._heard.get(peer, (-1, now))
            if count != before:
                self._heard[peer] = count, now
            elif now - since > SILENCE:
                del self._open[peer], self._heard[peer]
                self.ended += 1
                text, fep = self._text(peer), self._fabric.live.fep
                if any(message.source == peer for message in fep.target.messages.values()):
                    self.failures.append(f"{text}: silent for {SILENCE // SECOND} s, with a message that is not whole")
                self.on_session(text, f"has been silent for {SILENCE // SECOND} s")

    def _note(self, event: Any) -> None:
        """Note the sessions of peers without a rendezvous: from their first PDC to the close of their last one."""
        if isinstance(event, PdcOpened) and not event.initiator:
            self._open[event.peer] = self._open.get(event.peer, 0) + 1
        elif isinstance(event, PdcClosed) and not event.initiator:
            peer = self._text(event.peer)
            if event.error is not None:
                self.failures.append(f"{peer}: {event.error.reason.value}")
            if event.peer not in self._open:
                return  # it was silent
            left = self._open[event.peer] = self._open[event.peer] - 1
            if not left:
                self._heard.pop(event.peer, None)
                del self._open[event.peer]
                sessions = () if self.rendezvous is None else self.rendezvous.sessions.values()
                if peer in self._met:
                    if all(session.peer != peer for session in sessions):
                        self._met.discard(peer)
                else:
                    self.ended += 1
                    self.on_session(peer, "has closed its PDCs")
        elif isinstance(event, MessageFailed):
            self.failures.append(f"{self._text(event.source)}: message {event.message_id}: {event.return_code.name}")
        elif isinstance(event, MessageStored):
            self.stored += 1

    stored = 0
    """Number of messages that were stored in the memory."""

    def _text(self, address: int) -> str:
        return str(ip_address(address.to_bytes(self.world.interface.address.max_prefixlen // 8, "big")))


class ScenarioTarget(Target):
    """This class plays the rows of the target of a scenario, as its peer directs."""

    def __init__(self, options: LinkOptions, local: str, name: str, allowed: list[Network]) -> None:
        super().__init__(options, 0, allowed)
        from uetproto.cli.live.scenario import fabric_of, identity, loaded

        self._scenario = loaded(name)
        self._identity = identity(self._scenario)
        self._script: ScriptEnd | None = None
        fabric = fabric_of(options, self._scenario, self._scenario.run.target, local, None)
        self._fabric, self.world = fabric, fabric.live
        how = self._scenario.encapsulation
        port = options.udp_port or how.udp_port
        self.told = {
            "uetproto": 1, "transport": options.transport, "address": local, "path": self.world.path.name,
            "udp_port": options.local_udp_port or port, "peer_udp_port": port, "ip_protocol": None,
            "takes_no_checksum": True, "buffer": self.world.path.buffer, "scenario": name,
            "payload_mtu": self._scenario.nodes[self._scenario.run.target].ses.payload_mtu,
        }  # fmt: skip
        try:
            self._serve(local)
        except BaseException:
            fabric.close(drain=False)
            raise

    def _begun(self, session: PeerSession, offer: Json) -> Json:
        from uetproto.cli.live.scenario import end_of
        from uetproto.cli.live.scenario_security import introduce

        if offer.get("scenario") != self._identity:
            raise LocalError(
                "SCENARIO", "differs from the one that is served", f"{self.told['scenario']}, the same file",
                id="peer-differs"
            )  # fmt: skip
        if self._script is not None:
            raise LocalError(
                "SCENARIO", "is being played with another peer, or was", "one session; serve it again", id="peer-busy"
            )
        self._script = end_of(self.world, self._fabric, self._scenario, int(ip_address(session.peer)))
        security = self.world.interface.security
        if security is not None:
            introduce(security, self._scenario, self._scenario.run.target, session.peer)
        return super()._begun(session, offer)

    def _asks(self) -> dict[str, Answer]:
        return {"row": self._row, "row_state": self._row_state}

    def _row(self, session: PeerSession, told: Json) -> Json:
        at = self._number(told)
        assert self._script is not None
        self._script.begin(at)
        return {"row": at}

    def _row_state(self, session: PeerSession, told: Json) -> Json:
        assert self._script is not None
        state = self._script.states.get(self._number(told))
        if state is None:
            raise LocalError("row", "has not begun", id="rendezvous-message")
        return {"code": state.code, "length": state.length, "sha256": state.digest()}

    def _number(self, told: Json) -> int:
        at = number(told, "row", 0, len(self._scenario.operations) - 1)
        if self._scenario.operations[at].node != self._scenario.run.target:
            raise LocalError("row", f"{at} is not of this node", self._scenario.run.target, id="rendezvous-message")
        return at

    def _collect(self) -> None:
        """The script takes all events itself."""


class RoceTarget(Target):
    """This class serves peers over RoCEv2, with a queue pair for each."""

    def __init__(
        self, options: LinkOptions, local: str, size: int, allowed: list[Network], peer: str | None = None,
        pairs: Path | None = None,
    ) -> None:  # fmt: skip
        """Serve the clients of the rendezvous; without one the `peer` whose queue pair is known by hand, or for which
        the queue pairs of the file `pairs` are made."""
        super().__init__(options, size, allowed)
        self._pairs_file = pairs
        payload = options.payload_for(mtu_of(options, local), ip_address(local).version)
        network = options.network(local, payload)
        self.world = network.live
        try:
            self._network = network
            self._device = network.device("local")
            self._pd = self._device.alloc_pd()
            self._mr = self._pd.reg_mr(self.memory, addr=options.address, rkey=options.memory_key)
            self._cq = self._device.create_cq(8 * RECEIVES)
            self._buffers: dict[int, tuple[verbs.QP, verbs.MR]] = {}
            self._numbers = count()
            self._other = self._device.alloc_pd()
            """Protection domain of memory that no queue pair reaches."""
            self._tested: dict[PeerSession, TestedPairs] = {}
            port = self._device.config.udp_port
            self.told = {
                "uetproto": 1, "transport": options.transport, "address": local, "path": self.world.path.name,
                "udp_port": options.local_udp_port or port, "peer_udp_port": port, "takes_no_checksum": True,
                "buffer": self.world.path.buffer, "payload_mtu": payload,
                "memory": {"key": self._mr.rkey, "address": self._mr.addr, "length": size},
                "receive": {"count": RECEIVES, "size": RECEIVE_SIZE}, "cnp": self._device.config.cnp,
            }  # fmt: skip
            self._serve(local)
            self._by_hand: RoceSession | None = None
            if options.rendezvous_at is None:
                self._by_hand = self._expect(peer)
        except BaseException:
            network.close(drain=False)
            raise

    def _expect(self, peer: str | None) -> "RoceSession":
        """Return the session of the peer that is known by hand, with a queue pair for it."""
        if peer is None:
            raise LocalError(
                "--peer-gid", "is missing", "the address or GID of the peer, or a rendezvous", id="missing-argument"
            )
        found, local = address_of("--peer-gid", peer), self.world.interface.address
        if found.version != local.version:
            raise LocalError(
                "--peer-gid", f"{peer} is not legal", f"an address of IPv{local.version}, or its GID",
                id="wrong-address"
            )  # fmt: skip
        if self._pairs_file is not None:
            return RoceSession(str(found), tested=self._tested_by_hand(self._pairs_file, int(found)))
        numbers = self.options.by_hand
        qp = self._queue_pair(str(found), numbers.theirs, numbers.my_psn, numbers.their_psn, numbers.mine)
        gid = f"::ffff:{found}" if found.version == 4 else str(found)
        self.told["queue_pair"] = {"qp_num": qp.qp_num, "psn": numbers.my_psn, "gid": self._device.gid}
        self.told["peer_queue_pair"] = {"qp_num": numbers.theirs, "psn": numbers.their_psn, "gid": gid}
        return RoceSession(str(found), qp)

    def _tested_by_hand(self, file: Path, peer: int) -> "TestedPairs":
        """Make the queue pairs of a PEER.toml, and write their numbers into it where it has none."""
        from uetproto.cli.live.tested_pairs import TestedPairs
        from uetproto.conform.roce.peer_file import RocePeerFile, with_numbers

        text = file.read_text(encoding="utf-8")
        known = RocePeerFile(file, text).known(filled=False)
        if known.hand is None:
            raise LocalError(
                "--pairs", f"{file} has no [pairs]", "a file of conform --init with --rendezvous off", id="missing-key"
            )
        mtu = known.told.get("payload_mtu", self.told["payload_mtu"])
        tested = TestedPairs(self._pd, self._other, peer, mtu)
        numbers = tested.open_by_hand(known.hand, known.names)
        filled = with_numbers(text, numbers)
        if filled != text:
            file.write_text(filled, encoding="utf-8")
        self.told["queue_pairs"] = numbers
        return tested

    def turn(self, until: int) -> None:
        super().turn(until)
        if self._by_hand is not None:
            self._look_for_silence(self._by_hand, self.world.now)

    def _look_for_silence(self, session: "RoceSession", now: int) -> None:
        """End the session of the peer that is known by hand when it has been silent, and make a queue pair that begins
        at the first PSN again."""
        count = sum(self.world.driver.seen.get(int(ip_address(session.peer)), {}).values())
        if count != session.heard:
            if not session.heard:
                self.on_session(session.peer, "begins")
            session.heard, session.since = count, now
        elif count and now - session.since > QUIET:
            self.ended += 1
            self.on_session(session.peer, f"has been silent for {QUIET // SECOND} s")
            if session.qp is not None:
                self._forget(session.qp)
            if session.tested is not None:
                session.tested.close()
            self.world.driver.seen.pop(int(ip_address(session.peer)))
            self._by_hand = self._expect(session.peer)

    def _asks(self) -> dict[str, Answer]:
        return {
            "connect": self._connect, "pairs": self._pairs,
            "messages": lambda session, told: self._tester(session).messages(told),
            "post": lambda session, told: self._tester(session).post(told),
            "completed": lambda session, told: self._tester(session).completed(told),
        }  # fmt: skip

    def _pairs(self, session: PeerSession, told: Json) -> Json:
        """Make queue pairs and memory for the next test of a client that tests this peer."""
        tested = self._tested.get(session)
        if tested is None:
            from uetproto.cli.live.tested_pairs import TestedPairs

            peer, mtu = int(ip_address(session.peer)), self.told["payload_mtu"]
            tested = self._tested[session] = TestedPairs(self._pd, self._other, peer, mtu)
        return tested.open(told)

    def _tester(self, session: PeerSession) -> "TestedPairs":
        """Return the queue pairs of the present test, once what they have completed is known."""
        if session not in self._tested:
            raise LocalError("pairs", "there are no queue pairs of a test", "pairs first", id="rendezvous-message")
        self._tested[session].collect()
        return self._tested[session]

    def _connect(self, session: PeerSession, told: Json) -> Json:
        """Bring up a queue pair for the one of a client."""
        if "qp" in session.state:
            raise LocalError("connect", "the session has a queue pair already", "once a session", id="peer-busy")
        theirs, psn = number(told, "qp_num", 2, _PSN - 1), number(told, "psn", 0, _PSN - 1)
        ours = self._device.psns.getrandbits(24)
        qp = session.state["qp"] = self._queue_pair(session.peer, theirs, ours, psn)
        return {"qp_num": qp.qp_num, "psn": ours}

    def _queue_pair(self, peer: str, theirs: int, ours_psn: int, psn: int, number: int | None = None) -> verbs.QP:
        """Return a queue pair that is connected to that of a peer, with receives."""
        qp = self._pd.create_qp(verbs.QpType.RC, self._cq, qp_num=number)
        verbs.connect_to(qp, peer, dest_qpn=theirs, sq_psn=ours_psn, rq_psn=psn, path_mtu=self.told["payload_mtu"])
        for _ in range(RECEIVES):
            mr = self._pd.reg_mr(zeros(RECEIVE_SIZE))
            wr_id = next(self._numbers)
            self._buffers[wr_id] = (qp, mr)
            qp.post_recv(mr, wr_id=wr_id)
        return qp

    def _forget(self, qp: verbs.QP) -> None:
        """Destroy a queue pair and its receives."""
        gone = {wr_id: mr for wr_id, (owner, mr) in self._buffers.items() if owner is qp}
        qp.destroy()
        for wr_id, mr in gone.items():
            del self._buffers[wr_id]
            mr.dereg()

    def _session_ended(self, session: PeerSession) -> None:
        qp = session.state.pop("qp", None)
        if qp is not None:
            self._forget(qp)
        if session in self._tested:
            self._tested.pop(session).close()
        super()._session_ended(session)

    def _collect(self) -> None:
        if self._by_hand is not None and self._by_hand.tested is not None:
            self._by_hand.tested.collect()
        for tested in self._tested.values():
            tested.collect()
        for entry in self._cq.poll(len(self._cq)) if len(self._cq) else ():
            if entry.status is not verbs.Status.SUCCESS:
                self.failures.append(f"queue pair {entry.qp_num}: {entry.status.name}")
                continue
            pair = self._buffers.get(entry.wr_id)
            if pair is not None:
                qp, mr = pair
                self.take(memoryview(bytes(mr))[: entry.byte_len])
                qp.post_recv(mr, wr_id=entry.wr_id)


def _compare_ssis(ours: int | None, theirs: Any) -> None:
    """Raise `LocalError` unless both ends or neither have an SSI of their own: an end that has one drops packets
    without (tss.md §9), and two ends with the same one would use nonces twice (tss.md §4)."""
    if (ours is None) is not (theirs is None):
        said = ["have none" if ssi is None else f"have SSI {shown(ssi)}" for ssi in (ours, theirs)]
        told = f"packets of this end {said[0]}, and those of the peer {said[1]}"
        raise LocalError("--ssi", told, "an SSI of its own at each end, or none at either", id="peer-differs")
    if ours is not None and ours == theirs:
        raise LocalError("--ssi", f"both ends have {ours}", "an SSI of its own at each end", id="peer-differs")


@dataclass
class RoceSession:
    """This class has the session of a peer whose queue pairs are known by hand: one, or those of a PEER.toml."""

    peer: str
    qp: verbs.QP | None = None
    tested: "TestedPairs | None" = None
    heard: int = 0
    """Number of packets that have come, and `since` the time when it had grown."""
    since: int = 0


def target(
    options: LinkOptions, local: str, size: int, allowed: list[Network], scenario: str | None, peer: str | None = None,
    pairs: str | None = None,
) -> Target:  # fmt: skip
    """Return the target for the transport of the options, or for a scenario. `peer` is that of queue pairs by hand,
    `pairs` the file that has them."""
    by_hand = options.is_roce and options.rendezvous_at is None and scenario is None
    for name, value in (("--peer-gid", peer), ("--pairs", pairs)):
        if value is not None and not by_hand:
            raise LocalError(
                name, "goes with --transport rc and --rendezvous off: the rendezvous tells it", id="no-effect"
            )
    if pairs is not None:
        from uetproto.conform.roce.peer_file import RocePeerFile

        known = RocePeerFile(Path(pairs)).known(filled=False)
        memory = None if known.hand is None else known.hand.memory[""]
        if memory is not None:
            options, size = replace(options, key=str(memory.key), addr=str(memory.address)), memory.length
    if scenario is not None:
        from uetproto.cli.live.scenario import loaded
        from uetproto.cli.live.steps import StepTarget

        return (StepTarget if loaded(scenario).script else ScenarioTarget)(options, local, scenario, allowed)
    if options.is_roce:
        return RoceTarget(options, local, size, allowed, peer, None if pairs is None else Path(pairs))
    return UetTarget(options, local, size, allowed)
