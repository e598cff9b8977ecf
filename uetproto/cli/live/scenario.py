# SPDX-License-Identifier: GPL-2.0-only
"""This module plays the operations of a scenario between `uetproto send SCENARIO` and `uetproto serve --scenario`.

The end that sends directs, over the rendezvous. It compares the codes with those that the rows expect, and the memory
of both ends with what the operations should have made of it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import click

from uetproto import LocalError, RemoteError
from uetproto.api import fi
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import LinkOptions, local_towards, meet, own_address, sealed_offer
from uetproto.cli.live.scenario_security import member_of_scenario
from uetproto.cli.live.words import failure, link_facts, link_lines
from uetproto.cli.main import FAULT
from uetproto.cli.terminal import printable, status, tell
from uetproto.emulator.scenario.operations import NONE, WORK, OperationRow, elements
from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import Scenario, load
from uetproto.emulator.scenario.target_faults import refusals
from uetproto.engine.contract import MILLISECOND, SECOND, Work
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.ses import atomics
from uetproto.errors import Location
from uetproto.live.interface import address_of
from uetproto.live.rate import PeerRate
from uetproto.live.rendezvous import Json, RendezvousClient, number
from uetproto.live.script import ACTIONS, ScriptEnd
from uetproto.live.world import LiveWorld
from uetproto.wire.headers.uet_ses import ReturnCode

_POLL = 5 * MILLISECOND
"""Time in picoseconds between two questions after a row of the other end."""


def loaded(name: str) -> Scenario:
    """Return a scenario that can be played on a real link. Raises `LocalError` for one that cannot."""
    scenario = load(name)
    ends = {scenario.run.initiator, scenario.run.target}
    several = {row.node for row in scenario.operations} - ends or {row.do for row in scenario.operations} - {*ACTIONS}
    reasons = {
        "is over RoCE": scenario.run.transport is not UET,
        "has [[step]] beside a real SES, whose packets depend on the time": bool(scenario.steps),
        "has traffic of several nodes, and a link has two ends": bool(several),
    }  # fmt: skip
    for what, given in reasons.items():
        if given:
            legal = "over UET: [[operation]] of two nodes, an input, or [[step]] with a scripted SES"
            raise LocalError("SCENARIO", f"{name} {what}", legal, id="wrong-scenario")
    if not scenario.operations and not scenario.script:
        scenario = replace(scenario, operations=_transfer(scenario))
    return scenario


def _transfer(scenario: Scenario) -> tuple[OperationRow, ...]:
    """Return the rows of a scenario that writes its input: a region, and a write of as many bytes, which are drawn."""
    run = scenario.run
    assert run.input is not None
    length, where = run.input.stat().st_size, Location(scenario.name)
    offset = run.base if run.offset is None else run.offset
    write: dict[str, Any] = {"length": length, "offset": offset}
    if run.completion_data is not None:
        write["completion_data"] = run.completion_data
    return (
        OperationRow(where, "region", run.target, fields={"length": length + offset - run.base, "base": run.base}),
        OperationRow(where, "write", run.initiator, fields=write),
    )


def identity(scenario: Scenario) -> str:
    """Return a digest of the rows, which is the same at both ends for the same scenario."""
    rows: list[Any] = [
        (row.do, row.node, row.at, row.after, row.expect, sorted(row.fields.items())) for row in scenario.operations
    ]
    if scenario.script:
        nodes = [(node.pds, node.preset) for node in scenario.nodes.values()]
        rows += [[(row.step, row.header) for row in scenario.script], nodes, scenario.run.mode, scenario.run.payload]
    return hashlib.sha256(repr((rows, scenario.run.seed, scenario.run.key)).encode()).hexdigest()


def fabric_of(
    options: LinkOptions, scenario: Scenario, node: str, local: str, peer: str | None, peer_port: int | None = None
) -> fi.Fabric:
    """Return a fabric with the parameters of a node of the scenario. `peer` is the address of the other end, or None if
    it is not known yet."""
    config, run = scenario.nodes[node], scenario.run
    how = scenario.encapsulation
    how = replace(how, udp=options.ip_protocol is None, udp_port=options.udp_port or peer_port or how.udp_port)
    interface, pds = options.live_interface(local), config.pds
    sealed = member_of_scenario(scenario, node, local, peer)
    if sealed is not None:
        if options.domain is not None:
            raise LocalError(
                "--keys",
                f"does not go with {scenario.name}, which has keys of its own",
                "one of them",
                id="conflicting-arguments",
            )
        interface = replace(interface, security=sealed)
    elif options.domain is not None:
        pds = replace(pds, secure_start="expected")
    if options.faults is None and scenario.faults and node in scenario.faults_from:
        interface = replace(interface, faults=scenario.faults, faults_received=False, seed=options.seed or run.seed)
    fabric = fi.Fabric(live=interface, how=how, pds=pds, ses=config.ses, cc=options.cc)
    fabric.live.fep.target.fault = refusals(rule for rule in scenario.target_faults if rule.node == node)
    preset = config.preset
    if preset != Preset() and not preset.peer_pdcid:
        fabric.live.fep.pds.preset(preset)
    return fabric


def end_of(world: LiveWorld, fabric: fi.Fabric, scenario: Scenario, peer: int) -> ScriptEnd:
    """Return the end of the script at a fabric."""
    run = scenario.run
    process = fabric.live.fep.attach(run.job_id if run.relative else None, run.pid_on_fep, (run.resource_index,))

    def submit(work: Work) -> None:
        world.submit("local", work)

    script = ScriptEnd(
        scenario.operations, run, seed=run.seed, process=process, peer=peer, submit=submit, elements=elements
    )
    fabric.live.fi_node.listeners.append(script.on_event)
    return script


# The end that directs


@dataclass
class _Expected:
    """This class has the memory that the operations should leave at the other end."""

    areas: dict[int, bytearray] = field(default_factory=dict)
    """Memory by the number of its row."""
    regions: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """Row and base of the region with a key at a node."""


class Director:
    """This class begins the rows of both ends in their order, and judges how they end."""

    def __init__(
        self, scenario: Scenario, script: ScriptEnd, rendezvous: RendezvousClient, world: LiveWorld,
        interrupt: Interrupt,
    ) -> None:  # fmt: skip
        self.scenario, self.script, self.rendezvous, self.world = scenario, script, rendezvous, world
        self._interrupt = interrupt
        self.node = scenario.run.initiator
        self.outcomes: list[Json] = []
        self._expected = _Expected()
        self._delivered: set[int] = set()

    def code(self, index: int) -> str | None:
        """Return how a row has ended, or None."""
        found: str | None = self._state(index)["code"]
        return found

    def _state(self, index: int) -> Json:
        if self.scenario.operations[index].node == self.node:
            state = self.script.states[index]
            return {"code": state.code, "length": state.length, "sha256": state.digest()}
        return self.rendezvous.ask("row_state", row=index)

    def _ended(self, index: int, limit: int) -> None:
        """Wait until a row has ended, at most until the time `limit` or until a signal comes."""
        here = self.scenario.operations[index].node == self.node
        while self.code(index) is None and self.world.now < limit and not self._interrupt:
            if here:
                self._wait(lambda: self.code(index) is not None, limit - self.world.now)
            else:
                self.world.advance(_POLL)

    def _wait(self, condition: Callable[[], bool], timeout: int) -> None:
        self.world.wait(lambda: condition() or bool(self._interrupt), timeout)

    def play(self, limit: int) -> None:
        """Play all rows; those that do not end by the time `limit` have the code NONE. A signal ends it."""
        rows = self.scenario.operations
        for index, row in enumerate(rows):
            awaited = {None: range(0), "all": range(index), "previous": range(max(0, index - 1), index)}[row.after]
            for earlier in awaited:
                if rows[earlier].expect != NONE:
                    self._ended(earlier, limit)
            if self.world.now < row.at:
                self._wait(lambda: False, row.at - self.world.now)
            if self._interrupt:
                return
            if row.node == self.node:
                self.script.begin(index)
            else:
                self.rendezvous.ask("row", row=index)
        for index, row in enumerate(rows):
            if row.do in (*WORK, "receive") and row.expect != NONE:
                self._ended(index, limit)

    def judge(self) -> None:
        """Compare codes and memory with what was expected."""
        for index, row in enumerate(self.scenario.operations):
            state = self._state(index)
            code = state["code"] or NONE
            if row.do == "region":
                self._expected.areas[index] = bytearray(self.script.content(index))
                self._expected.regions[row.node, self.script.key(index)] = index, row.fields.get("base", 0)
            if row.do not in (*WORK, "receive"):
                continue
            match = code == row.expect and (code != ReturnCode.OK.name or self._effect(index, row, state))
            self.outcomes.append(
                {"operation": index, "do": row.do, "node": row.node, "code": code, "expect": row.expect, "match": match}
            )
        for index, area in self._expected.areas.items():
            if self._certain and self._state(index)["sha256"] != hashlib.sha256(area).hexdigest():
                self.outcomes.append(
                    {"operation": index, "do": "region", "node": self.scenario.operations[index].node, "code": "OK",
                     "expect": "OK", "match": False}
                )  # fmt: skip

    @property
    def _certain(self) -> bool:
        """Return whether it is known which bytes the memory has: not after an operation that failed half-way."""
        return all(one["code"] == ReturnCode.OK.name for one in self.outcomes)

    def _effect(self, index: int, row: OperationRow, state: Json) -> bool:
        """Apply an operation to the expected memory; return whether what it returned is as expected."""
        fields = row.fields
        if row.do == "receive":
            return self._received(index, state)
        if row.do in ("send", "nop") or fields.get("tag") is not None:
            return True
        other = next(
            name for name in self.scenario.nodes if name in (self.node, self.scenario.run.target) and name != row.node
        )
        place = self._expected.regions.get((other, self.script.key(index)))
        if place is None:
            return False
        area, at = self._expected.areas[place[0]], fields.get("offset", 0) - place[1]
        if row.do == "write":
            data = self.script.content(index)
            area[at : at + len(data)] = data
            return True
        if row.do == "read":
            return bool(state["sha256"] == hashlib.sha256(area[at : at + fields["length"]]).hexdigest())
        datatype = fields["datatype"]
        data = elements(datatype, fields.get("operand", ()))
        compare = elements(datatype, (fields["compare"],)) if "compare" in fields else b""
        size = len(data) or len(elements(datatype, (0,)))
        done = atomics.execute(
            fields["opcode"], datatype, bytes(area[at : at + size]), atomics.wire_order(data, datatype),
            atomics.wire_order(compare, datatype),
        )  # fmt: skip
        area[at : at + len(done.memory)] = done.memory
        old = hashlib.sha256(atomics.wire_order(done.old, datatype)).hexdigest()
        return not fields.get("fetch") or bool(state["sha256"] == old)

    def _received(self, index: int, state: Json) -> bool:
        """Return whether a receive holds the message of a send that no other receive holds."""
        buffer = self.script.content(index)
        for sent, row in enumerate(self.scenario.operations):
            if row.do == "send" and row.node != self.scenario.operations[index].node and sent not in self._delivered:
                data = self.script.content(sent)[: len(buffer)]
                at = row.fields.get("offset", 0)
                whole = buffer[:at] + data + buffer[at + len(data) :]
                if state["length"] == len(data) and state["sha256"] == hashlib.sha256(whole).hexdigest():
                    self._delivered.add(sent)
                    return True
        return any(row.do == "atomic" and row.fields.get("tag") is not None for row in self.scenario.operations)


def play(options: LinkOptions, name: str, peer: str) -> None:
    """Play a scenario with a peer, and print what came of it."""
    scenario = loaded(name)
    found = options.rendezvous_at
    if found is None:
        raise LocalError(
            "--rendezvous", "off does not go with SCENARIO", "the TCP port of the peer", id="conflicting-arguments"
        )
    peer = str(address_of("--peer", peer))
    local = local_towards(options, peer)
    rendezvous = meet(options, found, peer, local)
    if scenario.script:
        from uetproto.cli.live.steps import play_steps

        play_steps(options, name, scenario, identity(scenario), rendezvous, local)
        return
    with Interrupt() as interrupt:
        try:
            offer = {"transport": options.transport, "address": local, "scenario": identity(scenario)}
            told = rendezvous.begin(offer | own_address(options, local) | sealed_offer(options))
            fabric = fabric_of(options, scenario, scenario.run.initiator, local, peer, told.get("udp_port"))
            error: RemoteError | None = None
            world, outcomes = fabric.live, list[Json]()
            try:
                address = fabric.live.interface.address.__class__(peer)
                script = end_of(world, fabric, scenario, int(address))
                rtt = rendezvous.round_trip()
                rendezvous.ask("ready", buffer=world.path.buffer, rtt_ps=rtt, takes_no_checksum=True)
                world.learn(int(address), PeerRate(number(told, "buffer", 1, 1 << 40, PeerRate().buffer), rtt))
                director = Director(scenario, script, rendezvous, world, interrupt)
                outcomes = director.outcomes
                with status() as show:
                    show(f"{len(scenario.operations)} rows")
                    director.play(world.now + min(scenario.run.time_limit, 60 * SECOND))
                if not interrupt:
                    director.judge()
            except RemoteError as gone:
                error = gone
            finally:
                fabric.close(drain=error is None)
        finally:
            rendezvous.close()
    result = {
        "scenario": scenario.name,
        "peer": peer,
        "operations": outcomes,
        **failure(error),
        "match": None if interrupt else error is None and all(one["match"] for one in outcomes),
    } | link_facts(fabric.live, options.output)
    if options.as_json:
        click.echo(json.dumps(result))
    else:
        said = {True: "as expected", False: "NOT as expected", None: "interrupted, and not judged"}[result["match"]]
        lines = [f"{printable(scenario.name)} with {peer}: {said}"]
        lines += [
            f"  {one['operation']} {one['do']}, {printable(one['node'])}: {one['code']}{_instead(one)}"
            for one in outcomes
        ]
        lines += [] if error is None else [f"  failed: {printable(str(error))} [{error.id}]"]
        tell(lines + link_lines(result), aside=options.output == "-")
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if not result["match"]:
        raise click.exceptions.Exit(FAULT)


def _instead(outcome: Json) -> str:
    return "" if outcome["match"] else f", {outcome['expect']} and equal memory were expected"
