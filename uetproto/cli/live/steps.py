# SPDX-License-Identifier: GPL-2.0-only
"""This module plays a script of single packets between two programs: `[[step]]` of a scenario with a scripted SES.

Both ends play the whole script, each with both nodes, as one seed gives one trace. A packet that a step delivers really
crosses the link: the end that has its sender sends it, and the other end waits for it and holds it against the packet
of its own trace. Time passes as the script says, and for at least as long in reality.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import click

from uetproto import LocalError
from uetproto.api import fi
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import LinkOptions, own_address
from uetproto.cli.live.scenario import identity, loaded
from uetproto.cli.live.target import Target
from uetproto.cli.live.words import link_facts, link_lines
from uetproto.cli.main import FAULT
from uetproto.cli.terminal import many, printable, status, tell
from uetproto.emulator.run.script_run import ScriptRun
from uetproto.emulator.run.uet_script import UetScript
from uetproto.emulator.scenario.settings import Scenario, load
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.framing.sizes import ETHERNET_SIZE, below_uet
from uetproto.live.rendezvous import Answer, Json, Network, PeerSession, RendezvousClient
from uetproto.live.world import LiveWorld

_PATIENCE = 10 * SECOND
"""Time in picoseconds for which a packet of the other end is awaited."""
_POLL = 20 * MILLISECOND
"""Time in picoseconds between two questions whether the other end has played its script."""


def at_addresses(name: str, scenario: Scenario, near: str, far: str) -> Scenario:
    """Return a scenario whose initiator and target live at the addresses of both ends."""
    run = scenario.run
    places = ((run.initiator, near), (run.target, far))
    return load(name, [f"nodes.{node}.address={address}" for node, address in places])


def step_fabric(options: LinkOptions, scenario: Scenario, local: str) -> fi.Fabric:
    """Return a fabric whose engine has nothing to do, for the packets of a script."""
    for option, given in (("--faults", options.faults), ("--udp-port", options.udp_port), ("--keys", options.keys),
                          ("--local-udp-port", options.local_udp_port)):  # fmt: skip
        if given is not None:
            raise LocalError(
                option, f"does not go with {scenario.name}, whose steps say what happens", "nothing",
                id="not-with-script"
            )  # fmt: skip
    if not scenario.encapsulation.udp and options.ip_protocol is None:
        raise LocalError("--ip-protocol", f"is missing: {scenario.name} is of native IP", "253", id="missing-argument")
    return fi.Fabric(live=options.live_interface(local), how=scenario.encapsulation)


class _FrameTap:
    """This class keeps the frames that arrive, in place of the engine, and passes them on to the capture."""

    def __init__(self, world: LiveWorld, start: int) -> None:
        self.arrived: Counter[bytes] = Counter()
        """Bytes from the PDS header on of frames that nobody has awaited yet."""
        self._recorder, self._start = world.recorder, start
        world.driver.recorder = self  # type: ignore[assignment]
        world.driver.observe = lambda packet, ecn: False

    def received(self, frames: Iterable[bytes], now: int) -> None:
        frames = list(frames)
        for frame in frames:
            self.arrived[frame[self._start :]] += 1
        if self._recorder is not None:
            self._recorder.received(frames, now)

    def sent(self, frames: Iterable[bytes], now: int) -> None:
        if self._recorder is not None:
            self._recorder.sent(frames, now)


class ScriptedEnd:
    """This class plays a script at one end of a link."""

    def __init__(self, world: LiveWorld, how: fi.Encapsulation, stop: Callable[[], bool] = lambda: False) -> None:
        """Take what arrives from now on. The script ends when `stop` returns True."""
        self._stop = stop
        version = world.interface.address.version
        self._world, self._start = world, ETHERNET_SIZE + below_uet(version, udp=how.udp)
        self._tap = _FrameTap(world, self._start)
        self.crossed = 0
        """Number of packets that have crossed the link."""

    def play(self, scenario: Scenario, node: str) -> Json:
        """Play a script whose nodes have the addresses of both ends, one of which is `node`, and return what came of
        it. Raises `LocalError` if a packet does not arrive."""
        script: ScriptRun[Any] = UetScript(scenario)
        ours = [one.name for one in script.nodes].index(node)

        def cross(to: int, frame: bytes) -> None:
            self._take(frame) if to == ours else self._send(frame)
            self.crossed += 1

        def wait(duration: int) -> None:
            self._wait(lambda: False, duration)

        script.cross, script.wait = cross, wait
        script.connect(None)
        script.play()
        found = script.result(None)
        failure = str(script.violation) if script.violation is not None else found.failure
        return {"match": found.match and failure is None, "failure": failure, "packets": self.crossed,
                "counters": found.counters[node]}  # fmt: skip

    def _wait(self, condition: Callable[[], bool], timeout: int) -> bool:
        """Return whether the condition is true in time. Raises `LocalError` if the script has to stop."""
        stop = self._stop
        found = self._world.wait(lambda: condition() or stop(), timeout)
        if stop():
            raise LocalError("script", f"interrupted, {self.crossed} packets have crossed the link", id="interrupted")
        return found

    def _send(self, frame: bytes) -> None:
        world = self._world
        end = world.now + _PATIENCE
        while not world.path.send((frame,)):
            if world.now > end:
                raise LocalError("path", "the kernel takes no packet", "a link that is up", id="send-buffer-full")
            world.advance(SECOND // 1000)
        self._tap.sent((frame,), world.now)

    def _take(self, frame: bytes) -> None:
        """Wait for a frame of the other end, whose lower headers a socket makes anew."""
        wanted, arrived = frame[self._start :], self._tap.arrived
        if not self._wait(lambda: arrived[wanted] > 0, _PATIENCE):
            others = sum(arrived.values())
            told = f"packet {self.crossed + 1} of the script did not arrive in {_PATIENCE // SECOND} s"
            more = f"; {others} others did" if others else ""
            raise LocalError(
                "script", told + more, "a link without loss, and path packet for trimmed packets", id="packet-lost"
            )
        arrived[wanted] -= 1


class StepTarget(Target):
    """This class plays the target's end of a script with one peer."""

    def __init__(self, options: LinkOptions, local: str, name: str, allowed: list[Network]) -> None:
        super().__init__(options, 0, allowed)
        self._name, self._scenario = name, loaded(name)
        self._fabric = step_fabric(options, self._scenario, local)
        self.world = self._fabric.live
        how = self._scenario.encapsulation
        self._end = ScriptedEnd(self.world, how, lambda: self.stop())
        self._at: Scenario | None = None
        """Scenario with the addresses of both ends, from the question on that begins the script."""
        self._found: Json | None = None
        self.told = {
            "uetproto": 1, "transport": options.transport, "address": local, "path": self.world.path.name,
            "udp_port": how.udp_port if how.udp else None, "peer_udp_port": how.udp_port if how.udp else None,
            "ip_protocol": None if how.udp else how.ip_protocol, "takes_no_checksum": True,
            "buffer": self.world.path.buffer, "scenario": name,
            "payload_mtu": self._scenario.nodes[self._scenario.run.target].ses.payload_mtu,
        }  # fmt: skip
        try:
            self._serve(local)
        except BaseException:
            self._fabric.close(drain=False)
            raise

    def _begun(self, session: PeerSession, offer: Json) -> Json:
        if offer.get("scenario") != identity(self._scenario):
            raise LocalError(
                "SCENARIO", "differs from the one that is served", f"{self._name}, the same file", id="peer-differs"
            )
        if self._at is not None:
            raise LocalError(
                "SCENARIO", "is being played with another peer, or was", "one session; serve it again", id="peer-busy"
            )
        return super()._begun(session, offer)

    def _asks(self) -> dict[str, Answer]:
        return {"play": self._play, "played": self._played}

    def _play(self, session: PeerSession, told: Json) -> Json:
        self._at = at_addresses(self._name, self._scenario, session.peer, str(self.world.interface.address))
        return {"play": True}

    def _played(self, session: PeerSession, told: Json) -> Json:
        return {"played": self._found}

    def _collect(self) -> None:
        """Play the script once it has begun; meanwhile questions are answered, as the world takes its turns."""
        if self._at is not None and self._found is None and not self._playing:
            self._playing = True
            try:
                self._found = self._end.play(self._at, self._scenario.run.target)
            except LocalError as error:
                self._found = {"match": False, "failure": str(error), "packets": self._end.crossed, "counters": {}}
            if self._found["failure"] is not None:
                self.failures.append(self._found["failure"])

    _playing = False


def play_steps(
    options: LinkOptions, name: str, scenario: Scenario, digest: str, rendezvous: RendezvousClient, local: str
) -> None:
    """Play the initiator's end of a script with a peer, and print what came of it."""
    with Interrupt() as interrupt, closing(rendezvous):
        rendezvous.begin({"transport": options.transport, "address": local, "scenario": digest}
                         | own_address(options, local))  # fmt: skip
        at = at_addresses(name, scenario, local, rendezvous.peer)
        with step_fabric(options, scenario, local) as fabric, status() as show:
            world = fabric.live
            end = ScriptedEnd(world, scenario.encapsulation, lambda: bool(interrupt))
            rendezvous.ask("play")
            show(f"{len(scenario.script)} steps")
            try:
                ours = end.play(at, scenario.run.initiator)
            except LocalError as error:
                ours = {"match": False, "failure": str(error), "packets": end.crossed, "counters": {}}
            theirs: Any = None
            while theirs is None and not interrupt:
                world.advance(_POLL)
                theirs = rendezvous.ask("played").get("played")
    theirs = theirs if isinstance(theirs, dict) else {}
    result = {
        "scenario": scenario.name, "peer": rendezvous.peer, "steps": len(scenario.script), "packets": ours["packets"],
        "failure": ours["failure"], "peer_failure": theirs.get("failure"), "counters": ours["counters"],
        "match": bool(ours["match"] and theirs.get("match")),
    } | link_facts(world, options.output)  # fmt: skip
    if options.as_json:
        click.echo(json.dumps(result))
    else:
        lines = [
            f"{printable(scenario.name)} with {rendezvous.peer}: {many(ours['packets'], 'packet')} crossed the link"
        ]
        lines += [f"  failed: {printable(ours['failure'])}"] if ours["failure"] else ["  all bytes arrived"]
        if result["peer_failure"] not in (None, ours["failure"]):
            lines.append(f"  failed there: {printable(str(result['peer_failure']))}")
        tell(lines + link_lines(result), aside=options.output == "-")
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if not result["match"]:
        raise click.exceptions.Exit(FAULT)
