"""What came of a run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.pds.sublayer import Pds
from uetproto.wire.headers.uet_pds import NackCode


@dataclass(frozen=True, slots=True)
class Memories:
    """All memory that a run was to change, as it should be (the source) and as it is (the target)."""

    same: bool
    sha256_source: str
    sha256_target: str
    bytes: int
    """Of the operations that ended well."""


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """How one operation of a scenario ended."""

    operation: int
    """Row, counted from 0."""
    do: str
    node: str
    length: int
    return_code: str
    """Its name; TIMED_OUT: nobody asked for the message in time; NONE: it did not end."""
    expect: str
    match: bool
    """Its effects on memory, and those on the completion queue of the target, are as they should be."""
    time_ps: int | None
    """When it ended."""

    @property
    def ok(self) -> bool:
        return self.match and self.return_code == self.expect


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run."""

    scenario: str
    seed: int
    match: bool
    """The memory of the target holds the input; of operations: every effect is as expected."""
    sha256_source: str
    sha256_target: str
    bytes: int
    packets: int
    """Frames that the nodes have sent."""
    retransmissions: int
    """Requests and control packets that were sent again."""
    nacks: int
    """NACKs that the nodes have sent."""
    virtual_time_ps: int
    """When the initiator had nothing left to do."""
    capture: str | None
    failure: str | None = None
    """Why the transfer did not come to its end."""
    happened: dict[str, int] = field(default_factory=dict)
    """Faults done, frames dropped and trimmed on the way, and frames refused by a NIC: those that are not 0."""
    nacks_by_code: dict[str, int] = field(default_factory=dict)
    """NACKs that the nodes have sent: what a peer did wrong, or what was missing."""
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    """What each node counted (pds.md §17), where it is not 0."""
    checked: int | None = None
    """Frames judged; None: nobody asked."""
    findings: tuple[str, ...] = ()
    operations: tuple[dict[str, Any], ...] = ()
    """`OperationOutcome` of each operation, in a scenario of operations."""
    wire_bytes: int = 0
    """Of these frames."""
    queue_peaks: dict[str, int] = field(default_factory=dict)
    """Most bytes that waited for a node in the switch, where that is not 0."""
    data_paths: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What `engine.gpudirect` says of each node whose data path is given."""
    security: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of a sealed run, what each node sealed, opened and refused (tss.md §8, §9)."""

    @property
    def ok(self) -> bool:
        return self.match and self.failure is None and not self.findings

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `uetproto run --json`."""
        return {name: getattr(self, name) for name in self.__slots__}


def comment_of(scenario: Scenario) -> str:
    """What a reader of the capture has to know (interfaces.md §3)."""
    if scenario.run.transport != UET:
        config = next(iter(scenario.nodes.values())).roce
        what = f"RoCEv2, UDP port {config.udp_port}; icrc {'on' if config.icrc else 'off'}"
        return f"uetproto run {scenario.name}, seed {scenario.run.seed}; {what}"
    how = scenario.fabric.how
    encapsulation = f"udp, port {how.udp_port}" if how.udp else f"native, IP protocol {how.ip_protocol}"
    security = scenario.security
    crc = "on" if how.crc and (security is None or security.is_clear_in_part) else "off"
    sealed = "" if security is None else f"; sealed, SDI {security.domain.sdi}, mode {security.domain.mode}"
    return f"uetproto run {scenario.name}, seed {scenario.run.seed}; encapsulation {encapsulation}; crc {crc}{sealed}"


def nacks_of(endpoints: Iterable[Pds]) -> dict[str, int]:
    """NACKs sent, by the name of their code."""
    counts: Counter[int] = Counter()
    for pds in endpoints:
        counts.update(pds.nack_tx)
    return {NackCode(code).name: count for code, count in sorted(counts.items())}


def counters_of(endpoints: Mapping[str, Pds]) -> dict[str, dict[str, int]]:
    """What each endpoint counted, where it is not 0."""
    return {
        name: {counter: count for counter, count in pds.counters.as_dict().items() if count}
        for name, pds in endpoints.items()
    }
