# SPDX-License-Identifier: GPL-2.0-only
"""This module has the link of a command to a peer that is tested, without an engine of ours: of `uetproto conform`."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from uetproto import LocalError
from uetproto.api.verbs import QKEY
from uetproto.cli.conform.report import repeating
from uetproto.cli.live.initiator import begun
from uetproto.cli.live.options import LinkOptions, local_towards, mtu_of
from uetproto.cli.live.tested_pairs import AskedPairs
from uetproto.cli.live.words import duration
from uetproto.cli.terminal import printable
from uetproto.conform.live_link import LiveLink
from uetproto.conform.packets import PeerFacts
from uetproto.conform.peer_file import KnownPeer
from uetproto.conform.player import UET, Patience, Suite, round_trip
from uetproto.conform.roce.hand import HandPairs
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.pairs import OpenPair, PairSource, PeerMemory
from uetproto.conform.roce.peer_file import KnownRocePeer
from uetproto.conform.roce.play import ROCE
from uetproto.conform.tss.play import SEALED
from uetproto.conform.tss.sealing import Sealing
from uetproto.engine.memory import IDEMPOTENT_SAFE
from uetproto.engine.roce.config import RoceConfig
from uetproto.framing.roce import RoceFramer
from uetproto.framing.uet import UetFramer
from uetproto.live.interface import address_of
from uetproto.live.path import PathSetup, open_path
from uetproto.live.rendezvous import Json, RendezvousClient, number
from uetproto.live.time import MonotonicClock, counter_now
from uetproto.wire.headers.roce import PMTUS


class PeerBench:
    """This class has the link to a peer that is tested, and what is known of the peer."""

    def __init__(
        self, options: LinkOptions, peer: str, local: str, facts: PeerFacts | RoceFacts, setup: PathSetup, suite: Suite,
    ) -> None:  # fmt: skip
        """Open the path of `setup`. `suite` plays the tests with `facts`."""
        self.peer, self.local = peer, local
        self.facts: Any = facts
        """What is known of the peer: `PeerFacts`, or `RoceFacts`."""
        self.suite = suite
        self.clock = MonotonicClock()
        self.path = open_path(setup)
        self.link = LiveLink(self.path, self.clock, frozenset((self.facts.address,)))
        self.number = secrets.randbits(32) if options.seed is None else options.seed
        self.seed = f"{self.number}#{self.clock.of_day(0)}"
        self.patience, self.rtt = Patience(), None
        self.repeat = repeating(options, peer, self.number, facts.without)

    rtt: int | None
    """Measured round-trip time in picoseconds; None: the peer does not answer."""

    why = ""
    """Why what the peer sends is no answer; empty if nothing came."""

    def measure(self) -> None:
        """Measure the round-trip time, and fit the waits to it."""
        self.rtt = round_trip(self.link, self.facts, self.seed, self.patience, self.suite)
        if self.rtt is not None:
            self.patience = Patience.of(self.rtt)
        elif not self.path.counters.refused:  # something may come that is no answer
            asked = self.suite.play(self.suite.liveness, self.link, self.facts, f"{self.seed}#why", self.patience)
            came = asked.reason.partition("; what came is ")[2] if asked.silent else asked.reason
            self.why = f"it sends {came}" if came and asked.silent else came

    def words(self) -> str:
        """Return who answers whom, and how fast."""
        if self.rtt is None:
            why = (printable(self.why),) if self.why else ()
            answer = ", ".join(("does NOT answer", *self.path.counters.refused, *why))
        else:
            answer = f"answers in {duration(self.rtt)}" if self.rtt else "cannot be asked whether it answers"
        return f"{printable(self.peer)} from {self.local}: {answer}, {self.words_of_path()}"

    def words_of_path(self) -> str:
        """Return the path and the seed, in words."""
        return f"path {self.path.name}, seed {self.number}"


def facts_of(options: LinkOptions, peer: str, local: str, told: Json) -> PeerFacts:
    """Return what the rendezvous told of the peer; without one, what the options say."""
    memory = told.get("memory") if isinstance(told.get("memory"), dict) else {}
    end = told.get("endpoint") if isinstance(told.get("endpoint"), dict) else {}
    receive = told.get("receive") if isinstance(told.get("receive"), dict) else {}
    assert isinstance(memory, dict)
    assert isinstance(end, dict)
    assert isinstance(receive, dict)
    key = number(memory, "key", 0, 2**64 - 1, options.memory_key)
    version = ip_address(peer).version
    mtu = options.payload_for(mtu_of(options, local), version)
    port = number(told, "udp_port", 1, 65535) if told.get("udp_port") is not None else None
    if told and (port is None) != (options.ip_protocol is not None):
        takes = f"IP protocol {told.get('ip_protocol')}" if port is None else f"UDP port {port}"
        raise LocalError(
            "--ip-protocol", f"the peer takes {takes}", "the same encapsulation at both ends", id="peer-differs"
        )
    how = replace(options.how(port), crc=bool(told.get("crc", options.crc == "on")))
    relative = end.get("relative", options.relative)
    return PeerFacts(
        address=int(ip_address(peer)), local=int(ip_address(local)), ip_version=version, how=how,
        job_id=number(end, "job_id", 0, 2**24 - 1, options.job_id),
        pid_on_fep=number(end, "pid_on_fep", 0, 4095, options.pid),
        resource_index=number(end, "resource_index", 1, 4095, options.resource_index),
        initiator_id=options.initiator_id, relative=bool(relative), key=key,
        base=number(memory, "address", 0, 2**64 - 1, options.address),
        length=number(memory, "length", 0, 2**64 - 1, 0 if told else options.memory_length),
        receives=number(receive, "count", 0, 2**32, 0 if told else 1),
        payload_mtu=number(told, "payload_mtu", 1024, 8192, mtu), idempotent=bool(key & IDEMPOTENT_SAFE),
    )  # fmt: skip


def _of_uet(options: LinkOptions, peer: str, local: str, told: Json, lacking: frozenset[str]) -> PeerBench:
    facts = replace(facts_of(options, peer, local, told), without=lacking, security=_sealing(options, local))
    how = facts.how
    framer = UetFramer(facts.local, facts.ip_version, how, local_port=options.local_udp_port)
    setup = PathSetup(
        interface=options.live_interface(local), transport="uet", peer_port=how.udp_port if how.udp else None,
        ip_protocol=how.ip_protocol, lower_headers=framer.lower_headers,
    )  # fmt: skip
    return PeerBench(options, peer, local, facts, setup, UET if facts.security is None else SEALED)


def _sealing(options: LinkOptions, local: str) -> Sealing | None:
    """Return what seals our packets, or None without keys."""
    if options.domain is None:
        return None
    return Sealing(options.domain, int(ip_address(local)), options.ssi, counter_now())


def hand_pairs(options: LinkOptions, known: KnownRocePeer | None) -> HandPairs:
    """Return the queue pairs that were made by hand: those of PEER.toml, or the one of the options."""
    if known is not None and known.hand is not None:
        return known.hand
    hand = options.by_hand
    pair = OpenPair(options.transport, hand.mine, hand.theirs, hand.my_psn, first=hand.their_psn, q_key=QKEY)
    return HandPairs([pair], {"": PeerMemory(options.memory_key, options.address, options.memory_length)})


def _of_roce(
    options: LinkOptions, peer: str, local: str, told: Json, rendezvous: RendezvousClient | None,
    lacking: frozenset[str], known: KnownRocePeer | None,
) -> PeerBench:  # fmt: skip
    version = ip_address(peer).version
    mtu = options.payload_for(mtu_of(options, local), version)
    port = options.udp_port or number(told, "udp_port", 1, 65535, RoceConfig().udp_port)
    pairs: PairSource
    if rendezvous is not None:
        pairs = AskedPairs(rendezvous, () if told.get("cnp") is True else ("cnp",))
    else:
        pairs = hand_pairs(options, known)
    facts = RoceFacts(
        address=int(ip_address(peer)), local=int(ip_address(local)), ip_version=version, udp_port=port,
        path_mtu=number(told, "payload_mtu", min(PMTUS), max(PMTUS), mtu), pairs=pairs,
        p_key=0xFFFF if known is None else known.p_key, without=lacking,
    )  # fmt: skip
    framer = RoceFramer(facts.local, version, RoceConfig(udp_port=port), local_port=options.local_udp_port)
    setup = PathSetup(
        interface=options.live_interface(local), transport="roce", peer_port=port, lower_headers=framer.lower_headers
    )  # fmt: skip
    return PeerBench(options, peer, local, facts, setup, ROCE)


@contextmanager
def bench_for(
    options: LinkOptions, peer: str, lacking: frozenset[str], *, asked: bool = True,
    known: KnownPeer | KnownRocePeer | None = None,
) -> Iterator[PeerBench]:  # fmt: skip
    """Open the link to the peer, which tells of itself at the rendezvous, and close it at the end.

    `known` has what PEER.toml says of it; then there is no rendezvous, unless the file names one. A peer that is not
    `asked` has no rendezvous, and no round-trip time is measured: it acts, and need not answer.
    """
    local = local_towards(options, peer)
    peer = str(address_of("--peer", peer))  # it may be a GID
    told: Json = {} if known is None else dict(known.told)
    rendezvous = None
    if asked and (known is None or (isinstance(known, KnownRocePeer) and known.rendezvous is not None)):
        rendezvous, found = begun(options, peer, local)
        told = found | told
    bench: PeerBench | None = None
    try:
        if options.is_roce:
            of_roce = known if isinstance(known, KnownRocePeer) else None
            bench = _of_roce(options, peer, local, told, rendezvous, lacking, of_roce)
        else:
            bench = _of_uet(options, peer, local, told, lacking)
        if told.get("takes_no_checksum") is True and options.checksum == "auto":
            bench.path.checksum = False
        if asked:
            bench.measure()
        yield bench
    finally:
        if bench is not None:
            bench.path.close()
        if rendezvous is not None:
            rendezvous.close()
