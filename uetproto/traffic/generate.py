# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the traffic of a profile to a capture. It connects endpoints, wire, applications and tap
(interfaces.md §7).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from random import Random
from typing import Any, NamedTuple

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import TRAINS
from uetproto.emulator.network.tap import RecordWriter
from uetproto.engine.contract import NEVER
from uetproto.errors import LocalError, SuggestsNames, argument, typed
from uetproto.garbage import seldom_collected
from uetproto.traffic import keys_file
from uetproto.traffic.coverage import Coverage
from uetproto.traffic.coverage_roce import RoceCoverage
from uetproto.traffic.coverage_uet import UetCoverage
from uetproto.traffic.mutations import SUFFIX, Mutator
from uetproto.traffic.mutations_sealed import SealedMutator
from uetproto.traffic.profile import comment_of
from uetproto.traffic.profile_file import TrafficProfile
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.traffic.profile_uet import UetProfile
from uetproto.traffic.roce import RoceWorkload
from uetproto.traffic.uet import UetWorkload
from uetproto.traffic.wire import Change, DirectWire, TrafficTap
from uetproto.traffic.workload import Workload
from uetproto.wire.capture.pcap import ETHERNET, open_writer
from uetproto.wire.stack import check_choice

Progress = Callable[[int, int], None]
"""Function `progress(packets, picoseconds)`, which is called with the number of records written and the virtual time.
An exception that it raises ends the run.
"""

_SLICE = 2000  # events from one report of progress to the next


class _Transport(NamedTuple):
    """The parts that a transport provides; each is made from the profile."""

    workload: Callable[[Any, DirectWire, Random], Workload[Any, Any]]
    coverage: Callable[[Any], Coverage]


_TRANSPORTS: dict[type[TrafficProfile], _Transport] = {
    UetProfile: _Transport(UetWorkload, UetCoverage),
    RoceProfile: _Transport(RoceWorkload, RoceCoverage),
}


@dataclass(frozen=True, slots=True)
class TrafficResult(SuggestsNames):
    """This record has the counts of the traffic that was written. Times are virtual, in picoseconds."""

    profile: str
    seed: int
    packets: int
    bytes: int
    virtual_time_ps: int
    operations: Mapping[str, int]
    """Number of operations that were submitted, by opcode."""
    completions: Mapping[str, int]
    """Number of completions, by return code or status."""
    happened: Mapping[str, int]
    """Number of packets that were "lost", "trimmed" and "reordered"."""
    nacks: Mapping[str, int]
    mutations: Mapping[str, int]
    coverage: Mapping[str, Mapping[str, int]] | None
    possible: Mapping[str, int] | None
    """Number of possible names of each kind in `coverage`, such as the number of opcodes that are defined."""
    security: Mapping[str, Any]
    """For each endpoint, by address: the numbers of packets sealed, opened and refused, the AN and epoch in use, and
    counters (tss.md §9). It is empty if packets are in clear.
    """
    trains: Mapping[str, Mapping[str, Any]]
    """Only with `trains = "on"`: for each endpoint, by address, what it has of trains (`TrainTally.as_dict`)."""
    failure: str | None
    """Reason why the traffic is wrong, such as a nonce that was used twice, or None if the traffic is right."""
    capture: str
    side_file: str | None
    keys_file: str | None
    """Name of the file with the keys of the capture, or None if packets are in clear."""

    def as_dict(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__slots__}
        if not self.trains:
            del found["trains"]
        return found


class TrafficRun:
    """This class runs the endpoints of a profile over one wire, from which a tap writes frames to `writer`."""

    def __init__(
        self, profile: TrafficProfile, writer: RecordWriter, *, packets: int | None = None, until: int = NEVER,
        changes: tuple[Change, ...] = (), trains: bool = False,
    ) -> None:  # fmt: skip
        self.profile = profile
        self.clock = Clock()
        self.until = until
        self.tap = TrafficTap(self.clock, writer, packets=packets, until=until, changes=changes)
        self.wire = DirectWire(profile, self.clock, self.chance("wire"), self.tap, trains)
        self.workload = _TRANSPORTS[type(profile)].workload(profile, self.wire, self.chance("workload"))
        self._started = False
        for number in range(profile.endpoints):
            initiates = number < profile.initiators
            self.workload.join(profile.address(number), initiates, partial(self.chance, number))

    def chance(self, *component: object) -> Random:
        """Return the random generator of one component, which no other component uses."""
        return Random("/".join(map(str, (self.profile.seed, *component))))

    def run(self, events: int = -1) -> bool:
        """Run at most `events` events, or all if it is -1. Return False if the capture is complete or no event is
        left."""
        if not self._started:
            self._started = True
            self.workload.start()
        return self.clock.run(self.until, events)


def generate(
    profile: TrafficProfile,
    output: str,
    *,
    packets: int | None = None,
    duration: int | None = None,
    mutations: Mapping[str, float] | None = None,
    coverage: bool = False,
    trains: str = TRAINS[0],
    progress: Progress | None = None,
) -> TrafficResult:
    """Write traffic of `profile` to the file `output`, or to standard output if `output` is "-".

    The traffic ends after `packets` packets or `duration` picoseconds of virtual time, whichever comes first.
    `mutations` has the share of each mutation, by name. `trains`, one of `TRAINS`, says whether the endpoints handle
    runs of equal packets together, which takes less time and changes nothing that is written. Two more files are
    written beside `output`: the list of the mutated records if there are mutations, and the keys if packets are sealed.
    Raises `LocalError` for illegal arguments, and `OSError` if a file cannot be written. If `progress` raises an
    exception, the capture is valid nevertheless.
    """
    typed("profile", profile, TrafficProfile, "a TrafficProfile, as load returns it")
    typed("output", output, str, 'the path of a file, or "-"')
    for name, value in (("packets", packets), ("duration", duration)):
        typed(name, value, (int, type(None)), "a whole number, or None")
    check_choice("trains", trains, TRAINS)
    if trains == "on" and profile.split is not None:
        raise LocalError(argument("trains", trains), f"nothing of this profile is a train: {profile.split.when}",
                         "auto, off", id="inconsistent-values")  # fmt: skip
    security = profile.security
    if security is not None and output == "-":
        raise LocalError(
            "-o -", "sealed packets need a file, beside which their keys are written", id="stdout-not-possible"
        )
    seen = _TRANSPORTS[type(profile)].coverage(profile) if coverage else None
    with ExitStack() as owned:
        owned.enter_context(_named(output))
        owned.enter_context(seldom_collected())
        writer = owned.enter_context(open_writer(output, comment=comment_of(profile), interfaces=[("", ETHERNET)]))
        keys = None
        if security is not None:
            keys = output + keys_file.SUFFIX
            keys_file.write(keys, security.ring(), output)
        changes: list[Change] = [] if seen is None else [seen]
        mutator: Mutator | None = None
        side = None
        if mutations:
            if output == "-":
                raise LocalError(
                    "-o -", "mutations need a file, beside which they are listed", id="stdout-not-possible"
                )
            side = output + SUFFIX
            chance = Random(f"{profile.seed}/mutations")
            listed = owned.enter_context(open(side, "w", encoding="utf-8"))
            if security is not None:
                mutator = SealedMutator(mutations, chance, listed, security.ring())
            else:
                mutator = Mutator(mutations, chance, listed, roce_port=profile.roce_port)
            changes.append(mutator)
        until = NEVER if duration is None else duration
        world = TrafficRun(profile, writer, packets=packets, until=until, changes=tuple(changes),
                           trains=trains != "off")  # fmt: skip
        try:
            before = -1
            while world.run(_SLICE):
                if duration is None and _is_silenced(world):
                    world.tap.drain()
                    if world.tap.packets == before:
                        message = f"no counter is left under the key after {before} packets"
                        raise LocalError(
                            f"{profile.name}: {message} (security.invoke_fatal_threshold)", id="security-state"
                        )
                before = world.tap.packets
                if progress is not None:
                    progress(world.tap.packets, world.clock.now)
        finally:
            world.tap.drain()
        if packets is not None and world.tap.packets < packets and duration is None:
            raise LocalError(
                f"{profile.name}: nothing is left to happen after {world.tap.packets} packets", id="nothing-to-send"
            )
    secured = world.workload.secured
    reports = () if secured is None else secured.report().values()
    security_report = {str(ip_address(profile.address(number))): report for number, report in enumerate(reports)}
    return TrafficResult(
        profile=profile.name,
        seed=profile.seed,
        packets=world.tap.packets,
        bytes=world.tap.bytes,
        virtual_time_ps=world.tap.last,
        operations=_sorted(world.workload.started),
        completions=_sorted(world.workload.ended),
        happened=_sorted(world.wire.happened),
        nacks=world.workload.naks(),
        mutations=_sorted(mutator.done) if mutator else {},
        coverage=seen.as_dict(world.workload.statuses()) if seen else None,
        possible=seen.possible if seen else None,
        security=security_report,
        trains=world.wire.tallies() if trains == "on" else {},
        failure=None if secured is None else secured.failure(None),
        capture=output,
        side_file=side,
        keys_file=keys,
    )


def _is_silenced(world: TrafficRun) -> bool:
    """Return whether endpoints hold packets that cannot be sealed, as all counters of their key are used
    (tss.md §8).
    """
    secured = world.workload.secured
    framers = () if secured is None else secured.framers.values()
    return any(framer.domain.counters.out_invoke_fail for framer in framers)


@contextmanager
def _named(output: str) -> Iterator[None]:
    """Add the name of the file to an error of writing, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and output != "-":
            error.filename = output
        raise


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
