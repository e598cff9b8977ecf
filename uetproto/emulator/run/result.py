# SPDX-License-Identifier: GPL-2.0-only
"""This module has the result of a run, and the records that are parts of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.pds.sublayer import Pds
from uetproto.errors import SuggestsNames


@dataclass(frozen=True, slots=True)
class Memories:
    """This record compares all memory that a run changes: as it should be (the source) and as it is (the target)."""

    same: bool
    sha256_source: str
    sha256_target: str
    bytes: int
    """Number of bytes that successful operations moved."""


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """An operation outcome says how an operation of a scenario ended."""

    operation: int
    """Number of the row, counted from 0."""
    do: str
    node: str
    length: int
    return_code: str
    """Name of the return code. TIMED_OUT means that no receive matched the message in time. NONE means that the
    operation did not end."""
    expect: str
    match: bool
    """Whether the effects on memory and on the completion queue of the target are as expected."""
    time_ps: int | None
    """Virtual time in picoseconds at which the operation ended. It is None if the operation did not end."""

    @property
    def ok(self) -> bool:
        return self.match and self.return_code == self.expect


@dataclass(frozen=True, slots=True)
class RunResult(SuggestsNames):
    """A run result tells how a run went. Its fields are the keys of the JSON object of `uetproto run --json`."""

    scenario: str
    seed: int
    match: bool
    """Whether the memory of the target holds the input, or every effect of the operations is as expected."""
    sha256_source: str
    sha256_target: str
    bytes: int
    packets: int
    """Number of frames that the nodes have sent."""
    retransmissions: int
    """Number of requests and control packets that were retransmitted."""
    nacks: int
    virtual_time_ps: int
    """Virtual time in picoseconds at which the application ended."""
    capture: str | None
    failure: str | None = None
    """Reason why the run failed. It is None if the run did not fail."""
    happened: dict[str, int] = field(default_factory=dict)
    """Counts of injected faults, of pauses, and of frames that were dropped, trimmed, marked or refused. Counts of 0
    are left out."""
    nacks_by_code: dict[str, int] = field(default_factory=dict)
    """Number of NACKs that the nodes have sent. The key is the name of the NACK's code."""
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    """Counters of each node (pds.md §17). Counters of 0 are left out."""
    checked: int | None = None
    """Number of frames that the `FrameJudge` checked. It is None if the run was not checked."""
    findings: tuple[str, ...] = ()
    operations: tuple[dict[str, Any], ...] = ()
    """Fields of the `OperationOutcome` of each operation. The tuple is empty unless the scenario has operations."""
    wire_bytes: int = 0
    """Number of bytes of the frames that the nodes have sent."""
    queue_peaks: dict[str, int] = field(default_factory=dict)
    """Greatest number of bytes that waited at one level of each switch queue. Queues in which nothing waited are left
    out."""
    data_paths: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Costs of the data path (`engine.data_path`) of each node for which the scenario names a data path."""
    memory: dict[str, int] = field(default_factory=dict)
    """Where the bytes of a transfer lie: `source_base` and `target_base` are the addresses at which both memories
    begin; `offset` and `length` say which bytes of the target are written. The dictionary is empty unless the run is a
    transfer."""
    security: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Security of each node: how many packets the node has sealed, opened and refused, and its AN and epoch (tss.md §8,
    §9). The dictionary is empty in a run without security."""

    trains: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Only with `trains = "on"`: what each node has of trains (`TrainTally.as_dict`)."""

    @property
    def ok(self) -> bool:
        return self.match and self.failure is None and not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object of `uetproto run --json`."""
        return {name: getattr(self, name) for name in self.__slots__}


def comment_of(scenario: Scenario) -> str:
    """Return the comment of a run's capture. It has the settings that a reader of the capture has to know
    (interfaces.md §3).
    """
    if scenario.run.transport != UET:
        config = next(iter(scenario.nodes.values())).roce
        what = f"RoCEv2, UDP port {config.udp_port}; icrc {'on' if config.icrc else 'off'}"
        return f"uetproto run {scenario.name}, seed {scenario.run.seed}; {what}"
    how = scenario.encapsulation
    encapsulation = f"udp, port {how.udp_port}" if how.udp else f"native, IP protocol {how.ip_protocol}"
    security = scenario.security
    crc = "on" if how.crc and (security is None or security.is_clear_in_part) else "off"
    sealed = "" if security is None else f"; sealed, SDI {security.domain.sdi}, mode {security.domain.mode}"
    return f"uetproto run {scenario.name}, seed {scenario.run.seed}; encapsulation {encapsulation}; crc {crc}{sealed}"


def counters_of(endpoints: Mapping[str, Pds]) -> dict[str, dict[str, int]]:
    """Return the counters of each endpoint. Counters of 0 are left out."""
    return {
        name: {counter: count for counter, count in pds.counters.as_dict().items() if count}
        for name, pds in endpoints.items()
    }
