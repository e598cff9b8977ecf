# SPDX-License-Identifier: GPL-2.0-only
"""This module emulates a small network, and records the frames at every endpoint and in the middle.

The endpoints and their applications are those of generated traffic. On each half of its way a frame may be lost,
copied, cut, marked or delayed, so that no two places see the same frames.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple

from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import (
    MICROSECOND,
    PDC_MODES,
    SECOND,
    AskClose,
    AskCredit,
    Close,
    Datagram,
    Engine,
    GiveCredit,
    Negotiate,
    Noop,
    Probe,
    Rng,
)
from uetproto.engine.fep import Fep
from uetproto.engine.pds.states import Role, State
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer
from uetproto.impair.red import mark
from uetproto.impair.trim import trim
from uetproto.traffic.profile_file import TrafficProfile
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.traffic.profile_uet import UetProfile
from uetproto.traffic.roce import RoceWorkload
from uetproto.traffic.uet import UetWorkload
from uetproto.traffic.wire import DirectWire, TrafficPort
from uetproto.traffic.workload import Workload

FindingPlace = int | str
"""Type of a place at which frames are recorded: the address of an end, or the name of a switch."""
MIDDLE = 0
"""Name of the place between all endpoints."""
LONGEST = 30 * SECOND
"""Virtual time at which a run ends at the latest."""
_PS = 1000  # in a nanosecond
_DSCP = Dscp()


class Faults(NamedTuple):
    """These are the shares of frames to which each fault is applied on one half of their way."""

    loss: float = 0.0
    trim: float = 0.0
    mark: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    held: int = 10 * MICROSECOND
    """Largest delay of a reordered frame, in picoseconds."""

    def __bool__(self) -> bool:
        return any(self[:-1])


def happens(faults: Faults, rng: Rng, frame: bytes, at: int, *, trims: bool) -> list[tuple[int, bytes]]:
    """Return the frames, with times, that arrive instead of a frame due at `at`; `trims`: whether frames may be
    trimmed.
    """
    if not faults:
        return [(at, frame)]
    chance = rng.random
    if chance() < faults.loss:
        return []
    if chance() < faults.mark:
        frame = mark(frame) or frame
    if chance() < faults.trim and trims:
        frame = trim(frame, _DSCP, last_hop=chance() < 0.5) or frame
    found = [(at, frame)]
    if chance() < faults.duplicate:
        found.append((at + 1 + int(chance() * faults.held), frame))
    if chance() < faults.reorder:
        found[0] = (at + 1 + int(chance() * faults.held), frame)
    return found


class Record(NamedTuple):
    """A record is a frame at a place. Records sort by time, then by the order of entry."""

    time_ns: int
    number: int
    frame: bytes
    src: int
    """Address of the sender."""


class End(TrafficPort):
    """This endpoint records its frames when they leave and when they arrive."""

    def __init__(
        self, network: "Network", address: int, engine: Engine, framer: Framer, on_event: Callable[[Any], None]
    ) -> None:
        super().__init__(network, engine, framer, False, on_event)
        self._network = network
        self._address = address

    def take(self, packets: Any) -> None:
        """Take frames that have arrived."""
        opened = (self._framer.packet(frame) for frame in packets)
        super().take([packet for packet in opened if packet is not None])

    def _send(self, packets: Any, now: int) -> None:
        network = self._network
        train: list[bytes] = []
        to, last = packets[0].dst, now
        for packet in packets:
            frame = self._frame_of(packet)
            if not frame:
                continue
            start, now = now, now - (-len(frame) * self._picoseconds // self._bits)
            if not network.takes_one_more():
                continue
            network.note(self._address, start, frame, self._address)
            if packet.dst != to:
                network.hand_over(to, train, last)
                to, train = packet.dst, []
            for at, arrived in network.carry(self._address, frame, now):
                network.note_arrival(packet.dst, at, arrived, self._address)
                if at == now + network.profile.delay:
                    train.append(arrived)
                else:
                    network.hand_over(to, [arrived], at)
            last = now + network.profile.delay
        network.hand_over(to, train, last)
        self._busy_until = now

    def _frame_of(self, packet: Datagram) -> bytes:
        if packet.payload:
            packet.header = b"".join((packet.header, packet.payload))
            packet.payload = b""
        return self._framer.frame(packet)


class Network(DirectWire):
    """This network connects the endpoints, applies faults, and keeps the records."""

    def __init__(self, profile: TrafficProfile, chance: Random, before: Faults, behind: Faults, most: int) -> None:
        """Make the network: faults `before` and `behind` the middle; no more frames leave after `most`."""
        super().__init__(profile, Clock(), chance, None)  # type: ignore[arg-type]  # no tap: records are kept here
        self._before, self._behind = before, behind
        self._left = most
        self._number = 0
        self._places: dict[FindingPlace, list[Record]] = {MIDDLE: []}

    def attach(
        self, address: int, engine: Engine, framer: Framer, *, initiates: bool, on_event: Callable[[Any], None]
    ) -> End:
        self._places[address] = []
        end = self.ports[address] = End(self, address, engine, framer, on_event)
        return end

    def note(self, place: int, time: int, frame: bytes, src: int) -> None:
        """Record a frame that is at a place, now or later."""
        self._number += 1
        self._places[place].append(Record(time // _PS, self._number, frame, src))

    def note_arrival(self, dst: int, time: int, frame: bytes, src: int) -> None:
        """Record the arrival of a frame at an endpoint, or at the members of a group."""
        for place, end in self.ports.items():
            if place == dst or any(end is member for member in self.groups.get(dst, ())):
                self.note(place, time, frame, src)

    def takes_one_more(self) -> bool:
        """Return whether another frame may leave; after the last one, only frames in transit arrive."""
        self._left -= 1
        if not self._left:
            self.clock.at(self.clock.now + 2 * self.profile.delay, lambda _: self.clock.stop())
        return self._left >= 0

    def carry(self, src: int, frame: bytes, now: int) -> list[tuple[int, bytes]]:
        """Return the frames, with times, that arrive of a frame that has left."""
        half = self.profile.delay // 2
        arrived = []
        for at, passing in self._half(self._before, frame, now + half):
            self.note(MIDDLE, at, passing, src)
            arrived += self._half(self._behind, passing, at + self.profile.delay - half)
        return arrived

    def _half(self, faults: Faults, frame: bytes, at: int) -> list[tuple[int, bytes]]:
        return happens(faults, self.rng, frame, at, trims=isinstance(self.profile, UetProfile))

    def hand_over(self, dst: int, frames: list[bytes], at: int) -> None:
        if not frames:
            return
        port = self.ports.get(dst)
        for end in (port,) if port is not None else self.groups.get(dst, ()):
            self.clock.at(at, end.take, frames)

    def seen(self) -> dict[FindingPlace, list[Record]]:
        """Return the records up to now by place, in the order of time."""
        end = self.clock.now // _PS
        return {
            place: sorted(record for record in records if record.time_ns <= end)
            for place, records in self._places.items()
        }


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run has all settings of one emulation."""

    seed: int
    profile: TrafficProfile
    before: Faults
    behind: Faults
    most: int
    """Number of frames after which the run ends."""
    requests: float = 0.0
    """Mean number, for each microsecond, of requests to PDS that no message needs: NOOP, PROBE, credit, close."""

    def emulate(self) -> dict[FindingPlace, list[Record]]:
        """Run the emulation, and return the recorded frames by place."""
        profile = self.profile
        network = Network(profile, self._chance("network"), self.before, self.behind, self.most)
        workload = _workload(profile, network, self._chance("workload"))
        for number in range(profile.endpoints):
            workload.join(profile.address(number), number < profile.initiators, partial(self._chance, number))
        if self.requests and isinstance(workload, UetWorkload):
            _ask_now_and_then(workload, self._chance("requests"), self.requests)
        workload.start()
        network.clock.run(LONGEST)
        return network.seen()

    def _chance(self, *component: object) -> Random:
        return Random("/".join(map(str, (self.seed, *component))))


def _workload(profile: TrafficProfile, network: Network, chance: Random) -> Workload:
    if isinstance(profile, RoceProfile):
        return RoceWorkload(profile, network, chance)
    assert isinstance(profile, UetProfile)
    return UetWorkload(profile, network, chance)


def _ask_now_and_then(workload: UetWorkload, chance: Random, often: float) -> None:
    """Make requests to PDS that no message needs, at random times."""
    clock = workload.clock

    def ask(_: object) -> None:
        station = chance.choice(workload.stations)
        work = _work_for_pds(station.fep, chance)
        if work is not None:
            station.port.submit(work)
        clock.at(clock.now + 1 + int(chance.expovariate(often) * MICROSECOND), ask)

    clock.at(clock.now + MICROSECOND, ask)


def _work_for_pds(fep: Fep, chance: Random) -> Any:
    pdcs = [pdc for pdc in fep.pds.pdcs.values() if pdc.state is State.ESTABLISHED and pdc.mode in PDC_MODES]
    if not pdcs:
        return None
    pdc = chance.choice(pdcs)
    if pdc.role is Role.TARGET and chance.random() < 0.3:
        return AskClose(pdcid=pdc.local_id)
    kind = chance.randrange(6)
    if kind == 0 and pdc.role is Role.INITIATOR:
        return Close(peer=pdc.peer, pdcid=pdc.local_id)
    if kind == 1 and pdc.role is Role.INITIATOR:
        return Noop(peer=pdc.peer, mode=pdc.mode)
    if kind == 2 and pdc.role is Role.INITIATOR:
        return Negotiate(peer=pdc.peer, mode=pdc.mode, features=chance.getrandbits(32))
    if kind == 3:
        return AskCredit(pdcid=pdc.local_id, target=chance.getrandbits(24))
    if kind == 4:
        return GiveCredit(pdcid=pdc.local_id, credit=chance.getrandbits(24))
    return Probe(pdcid=pdc.local_id)
