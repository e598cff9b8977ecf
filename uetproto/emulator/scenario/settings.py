# SPDX-License-Identifier: GPL-2.0-only
"""This module reads scenario files: it converts TOML to validated dataclasses (interfaces.md §5).

An error in a file raises a `LocalError` with the file, the line, the key, and the legal values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from uetproto.emulator.congestion import CC_KEYS, SWITCH_KEYS, NetworkPlane
from uetproto.emulator.network.config import NetworkConfig
from uetproto.emulator.network.layouts import KEYS as LAYOUT_KEYS
from uetproto.emulator.network.layouts import LAYOUTS, Layout, cables_between_switches, layout_of, places_of
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.ports import MOST_PORTS, port_obstacle
from uetproto.emulator.network.scripted_wire import FrameStep
from uetproto.emulator.scenario import operations, roce_operations, roce_script_syntax, script_syntax
from uetproto.emulator.scenario.fabric_settings import (
    CABLE_KEYS,
    MOST_HOSTS,
    VLAN_KEYS,
    WIRE_KEYS,
    check_unencoded,
    checked_headroom,
    failing,
    host_names,
    network_with_plane,
    slow_links,
    vlan_of,
)
from uetproto.emulator.scenario.fault_settings import (
    FAULT_KEYS,
    MATCH_KEYS,
    TARGET_FAULT_KEYS,
    faults_of,
    target_fault,
)
from uetproto.emulator.scenario.operations import OperationRow, operations_of
from uetproto.emulator.scenario.roce_script_syntax import ROCE
from uetproto.emulator.scenario.roce_settings import QP_KEYS, TRANSPORTS, UET, QpSetup, check_sections, queue_pairs
from uetproto.emulator.scenario.script_syntax import MODES, REAL, SCRIPTED, RowContext, ScriptRow, ScriptSyntax
from uetproto.emulator.scenario.target_faults import TargetFault
from uetproto.engine.config import PERSONALITIES, PdsConfig, SesConfig
from uetproto.engine.contract import PDC_MODES, SECOND, Mode
from uetproto.engine.data_path import Path as DataPath
from uetproto.engine.data_path import PathConfig
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import QpType
from uetproto.errors import LocalError, Location, argument, similar, unfit
from uetproto.framing.dscp import Dscp
from uetproto.framing.security import Security
from uetproto.framing.sizes import around_roce
from uetproto.framing.uet import Encapsulation
from uetproto.impair.faults import Faults
from uetproto.impair.red import Red
from uetproto.knobs import REQUIRED, SIZE, TIME, KeyType, keys_of, knob, time_text, with_defaults
from uetproto.toml.file import Shipped, TomlFile, harmless, upwards
from uetproto.toml.page import KeySection
from uetproto.toml.security import OWN_KEYS, SECURITY_KEYS, read_section, security_of, start_of
from uetproto.toml.values import (
    ADDRESS,
    BOOLEAN,
    BYTES,
    DSCP,
    MEMORY_KEY,
    NAMES,
    PDCID,
    PSN,
    RATE,
    SECRET,
    TEXT,
    choice,
    integer,
    one_of,
    size,
    time,
)

_T = TypeVar("_T")
_Optional = TypeVar("_Optional", Red, Pfc)
_Config = TypeVar("_Config", PdsConfig, SesConfig, RoceConfig)

SHIPPED = Path(__file__).parents[1] / "scenarios"
_FILES = Shipped("scenario", SHIPPED, " (uetproto scenario list has all)")

ALIASES = {
    "input": "run.input",
    "payload_mtu": "ses.payload_mtu",
    "mode": "run.mode",
    "crc": "fabric.crc",
    "encapsulation": "fabric.encapsulation",
    "seed": "run.seed",
}
"""Keys that `--set` takes without a section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A run configuration has the keys of `[run]`, which say what is played: a transfer, operations, or a script."""

    # fmt: off
    description: str = knob("", TEXT, "", "A text for the reader.")
    seed: int = knob(0, integer(0, 2**64 - 1), "", "The seed of everything that is drawn.")
    input: Path | None = knob(None, TEXT, "",
        "The file whose bytes are written to the target; none with operations, and with scripted SES.")
    input_told: tuple[str, Location | None] = ("input", None)
    """Name and place of the key `input`, for the error if the file cannot be read."""
    mode: Mode = knob(Mode.ROD, choice(MODES), "", "The delivery mode; rudi and uud need scripted SES or operations.")
    ses: str = knob("real", one_of(("real", "scripted")), "",
        "real: the bytes of `input` are written to the target; scripted: rows [[step]] say what SES does.")
    payload: int = knob(64, size(1, 4096), SIZE, "The size of a full packet, with scripted SES.")
    transport: Any = knob(UET, choice(TRANSPORTS), "", "The transport; of RoCE, the type of all queue pairs.")
    initiator: str = knob(REQUIRED, TEXT, "", "The node that initiates; by default the first.")
    target: str = knob(REQUIRED, TEXT, "", "The node that is the target; by default the second.")
    job_id: int = knob(1, integer(0, 2**24 - 1), "", "The JobID of the requests.", "ses.md §2")
    key: int = knob(1, MEMORY_KEY, "", "The memory key of the target's region; over RoCE the r_key.")
    resource_index: int = knob(15, integer(0, 4095), "", "The resource index of the requests.")
    pid_on_fep: int = knob(0, integer(0, 4095), "", "The PIDonFEP of the requests.")
    initiator_id: int = knob(16, integer(0, 2**32 - 1), "", "The initiator id of the requests.")
    relative: bool = knob(True, BOOLEAN, "", "The addresses of the requests are relative.")
    source_base: int = knob(0x20000000, integer(0, 2**64 - 1), "",
        "The address at which the input lies in the memory of the initiator; it is told, and over RoCE is in the local"
        " key's region.", "ses.md §8.1")
    base: int = knob(0, integer(0, 2**64 - 1), "",
        "The address at which the target's region starts; over RoCE a virtual address.")
    offset: int | None = knob(None, integer(0, 2**64 - 1), "",
        "The buffer_offset of the first byte; by default the base.")
    delivery_complete: bool = knob(False, BOOLEAN, "", "The requests ask for delivery-complete responses.")
    completion_data: int | None = knob(None, integer(0, 2**64 - 1), "", "The completion data of the write.")
    close: bool = knob(True, BOOLEAN, "", "The initiator closes the PDC after the completion.")
    hosts: int | None = knob(None, integer(2, MOST_HOSTS), "",
        "So many nodes that need no table: h0 with the address 10.0.0.1, h1 with 10.0.0.2, and so on.")
    time_limit: int = knob(600 * SECOND, time(1), TIME, "The run has failed after so much virtual time.")
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """A node configuration has the parameters and presets that apply to one node of the scenario."""

    name: str
    address: int
    ip_version: int
    rate: int | None
    """Rate of the node's cable in bits a second. If it is None, the cable has the rate of the fabric."""
    pds: PdsConfig
    ses: SesConfig
    preset: Preset
    """Numbers that the endpoint would otherwise draw at random for its first PDC."""
    pkt_id: int | None
    """pkt_id of the first RUDI request of the node. If it is None, the engine draws it at random."""
    roce: RoceConfig = field(default_factory=RoceConfig)
    ssi: int | None = None
    """Secure source identifier of the node in sealed packets (tss.md §3). It is None if the scenario gives none."""
    data_path: DataPath | None = None
    """Path between the memory and the NIC of the node. The result has the costs of this path. If `data_path` is
    None, the result has no costs of the node."""
    ports: int = 1
    """Number of ports of the node's NIC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario has all settings of a run."""

    name: str
    run: RunConfig
    fabric: NetworkConfig
    encapsulation: Encapsulation
    nodes: dict[str, NodeConfig]
    faults: Faults
    faults_from: tuple[str, ...]
    """Names of the nodes whose frames meet the faults."""
    steps: tuple[FrameStep, ...]
    """Steps of a script with a real SES, which say what happens on the wire. The tuple is empty for other runs."""
    script: tuple[ScriptRow[Any], ...]
    """Steps of a script with a scripted SES, or of a script over RoCE. The tuple is empty for other runs."""
    operations: tuple[OperationRow, ...] = ()
    """Operations of the applications. The tuple is empty for a transfer or a script."""
    target_faults: tuple[TargetFault, ...] = ()
    taps: tuple[str, ...]
    """Places that are captured: nodes, and cables between switches such as "leaf0.spine1"."""
    plane: NetworkPlane | None = None
    """What the network is for congestion control, or None without `[cc]` and `[switch]`."""
    failing: tuple[tuple[str, int], ...] = ()
    """Cables between switches that are cut, and the instants in picoseconds."""
    qps: dict[str, QpSetup] = field(default_factory=dict)
    path: PathConfig = field(default_factory=PathConfig)
    security: Security | None = None
    wire_told: tuple[str, Location | None] = ("fabric.wire", None)
    """Name and place of the key `fabric.wire`, for the error if a run needs encoded frames."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Return the names of the interfaces of the capture, one for each of `taps`."""
        return tuple(f"{name}.0" if name in self.nodes else name for name in self.taps)


def _share(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(value)
    return float(value)


# Keys of each section -------------------------------------------------------------------------------------------------

_RUN = keys_of(RunConfig)

_FABRIC = {
    "topology": one_of(("switch", "pair", *LAYOUTS)).says("How the nodes are joined."),
    **dict.fromkeys(LAYOUT_KEYS, integer(1, 4096).says("A parameter of a topology with several switches.")),
    **CABLE_KEYS,
    "rate": RATE.says("The rate of every link."),
    "delay": time().says("The delay of every link."),
    "mtu": integer(68, 65535).says("The largest IP packet of every link, in bytes."),
    "queue_capacity": BYTES.says(
        "The bytes that each class of an output queue of a switch holds.",
        "1 MiB, or what the headroom of pfc needs, if that is more",
    ),
    "trimming": BOOLEAN.says("A switch trims packets for which a queue has no room."),
    "red": BOOLEAN.says("The switch marks packets by RED.", "false, true with one of its keys", "roce.md §13"),
    "red_kmin": BYTES.says("A queue up to this length marks nothing.", source="roce.md §13"),
    "red_kmax": BYTES.says("A queue above this length marks everything.", source="roce.md §13"),
    "red_pmax": KeyType(_share, "a share, 0 … 1").says("The share that is marked at red_kmax.", source="roce.md §13"),
    "pfc": BOOLEAN.says("The switches send PFC pauses.", "false, true with one of its keys", "roce.md §13"),
    "pfc_priority": integer(0, 7).says("The class that is paused."),
    "pfc_xoff": BYTES.says("A switch pauses a neighbour of which more bytes wait."),
    "pfc_xon": BYTES.says("A switch resumes a neighbour of which fewer bytes wait."),
    "pfc_quanta": integer(2, 65535).says("The duration of a pause, in units of 512 bit times."),
    "pfc_repeat": integer(1, 65535).says("A pause in force is repeated after so many units of 512 bit times."),
    **VLAN_KEYS,
    **WIRE_KEYS,
    "encapsulation": choice({"udp": True, "native": False}).says("How UET packets travel over IP.", "udp"),
    "crc": choice({"on": True, "off": False, True: True, False: False}).says(
        "Packets end with the CRC of their transport.", "on"
    ),
    "udp_port": integer(1, 65535).says("The UDP port of UET."),
    "ip_protocol": integer(0, 255).says("The IP protocol of native UET."),
    "dscp_data": DSCP.says("The DSCP of data packets.", source="cms.md §1"),
    "dscp_data_rtx": DSCP.says("The DSCP of retransmitted data packets.", source="cms.md §1"),
    "dscp_trimmed": DSCP.says("The DSCP of trimmed packets.", source="cms.md §1"),
    "dscp_trimmed_last_hop": DSCP.says("The DSCP of packets trimmed at the last hop.", source="cms.md §1"),
    "dscp_control": DSCP.says("The DSCP of control packets.", source="cms.md §1"),
}
for _kind, _prefix in ((NetworkConfig, ""), (Encapsulation, ""), (Dscp, "dscp_"), (Red, "red_"), (Pfc, "pfc_")):
    _FABRIC = with_defaults(_FABRIC, _kind, _prefix)

_NODE = {
    "address": ADDRESS.says("The address of the node; it is required."),
    "rate": RATE.says("The rate of the cable of the node.", "that of [fabric]"),
    "ports": integer(1, MOST_PORTS).says(
        "The ports of the NIC of the node, each with a cable; the entropy value of a packet selects the port.",
        "1",
        "cms.md §5",
    ),
    "personality": one_of(tuple(PERSONALITIES)).says(
        "The implementation as which the node behaves.", "default", "observed.md"
    ),
    "ssi": integer(0, 2**32 - 1).says("The secure source identifier of the node.", source="tss.md §3"),
    "data_path": choice({path.name.lower(): path for path in DataPath}).says(
        "How the bytes of the node come to the NIC; the report tells the time."
    ),
}
_BANDWIDTH = replace(RATE, check=lambda value: RATE.check(value) // 8)  # written in bits a second, stored in bytes
_PATH: dict[str, KeyType] = {
    name: _BANDWIDTH.says(f"The {name.replace('_', ' ')} of data paths.", f"{8 * default // 10**9} Gb/s")
    if name.endswith("bandwidth") else time().says(f"The {name.replace('_', ' ')} of data paths.", time_text(default))
    for name, default in ((one.name, getattr(PathConfig(), one.name)) for one in fields(PathConfig))
}  # fmt: skip
_TAP = {"nodes": NAMES.says(
    "The nodes whose port is tapped, cables such as leaf0.spine1, and switches for all their cables.", "the initiator"
)}  # fmt: skip
_PRESET = {
    "start_psn": PSN.says("The Start_PSN of the first PDC."),
    "pdcid": PDCID.says("The PDCID of the first PDC."),
    "peer_pdcid": PDCID.says("The peer's PDCID, of a PDC in the middle of its life."),
    "forward_next": PSN.says("The next PSN of the forward direction, of a PDC in the middle of its life."),
    "return_next": PSN.says("The next PSN of the return direction, of a PDC in the middle of its life."),
    "ack_gen_count": integer(0, 32768).says("The bytes received since the last ACK.", "0", "pds.md §8.3"),
    "expected_psn": PSN.says("Expected_PSN, with secure_start expected.", source="pds.md §6.6"),
    "pkt_id": PSN.says("The pkt_id of the first RUDI request."),
}
_LIVE = ("pdcid", "peer_pdcid", "forward_next", "return_next")
"""Presets that together make an established PDC; all must be given."""

_PDS = keys_of(PdsConfig)
_SES = keys_of(SesConfig)
_ROCE = keys_of(RoceConfig)

SECTIONS = (
    KeySection("run", "What is to happen: one message, or what rows say.", _RUN),
    KeySection("fabric", "What joins the nodes.", _FABRIC),
    KeySection("cc", "Congestion control of UET, of all nodes.", CC_KEYS),
    KeySection("switch", "The queues of all switches, by the rules of UET; also those of [cc].", SWITCH_KEYS),
    KeySection("nodes.NAME", "One node.", _NODE),
    KeySection("preset.NAME", "Numbers that the node would draw otherwise, for its first PDC.", _PRESET),
    KeySection("pds", "Packet delivery of all nodes; [nodes.NAME.pds] for one.", _PDS),
    KeySection("ses", "Semantics of all nodes; [nodes.NAME.ses] for one.", _SES),
    KeySection("security", "One secure domain, of which every node is a member.", SECURITY_KEYS),
    KeySection("nodes.NAME.security", "What a node has in place of what all nodes have.", OWN_KEYS),
    KeySection("roce", "All adapters; [nodes.NAME.roce] for one.", _ROCE),
    KeySection("qp.NAME", "One queue pair.", QP_KEYS),
    KeySection("faults", "What goes wrong on the wire.", FAULT_KEYS),
    KeySection("faults.target", "Requests that a target refuses: rows [[faults.target]].", TARGET_FAULT_KEYS),
    KeySection(
        "faults.target.match", "The requests that a row of [[faults.target]] is for; by default all.", MATCH_KEYS
    ),
    KeySection("path", "The hops of data paths.", _PATH),
    KeySection("tap", "Where the capture is taken.", _TAP),
    KeySection("operation", "Rows of operations, over UET.", operations.KEYS, operations.__doc__ or "", "over UET"),
    KeySection(
        "operation", "Rows of operations, over RoCE.", roce_operations.KEYS, roce_operations.__doc__ or "", "over RoCE"
    ),
    KeySection("step", "Rows of a script, with real SES.", REAL.keys, script_syntax.__doc__ or "", "with real SES"),
    KeySection(
        "step", "Rows of a script, with scripted SES.", SCRIPTED.keys, script_syntax.__doc__ or "", "with scripted SES"
    ),
    KeySection("step", "Rows of a script, over RoCE.", ROCE.keys, roce_script_syntax.__doc__ or "", "over RoCE"),
)
"""Sections of a scenario with all their keys, from which docs/reference/keys.md is made."""

# Reading --------------------------------------------------------------------------------------------------------------


names = _FILES.names


def load(
    name: str | PathLike[str], settings: Iterable[str] = (), options: Mapping[str, str] = MappingProxyType({})
) -> Scenario:
    """Read the scenario `name`, change keys by `settings` ("key=value"), and check all values.

    Some settings come from arguments of their own. `options` maps the key of such a setting to its argument. Errors
    about the setting name the argument. Raises `LocalError` for an illegal key or value, and `OSError` for a file that
    cannot be read.
    """
    reader = _Reader(_FILES.find(name))
    reader.options = options
    reader.change(settings)
    return reader.scenario()


def load_text(text: str, name: str = "scenario") -> Scenario:
    """Return the scenario that has this text; errors name the file `name`. Raises `LocalError` as `load` does."""
    return _Reader(Path(f"{name}.toml"), text).scenario()


class _Reader(TomlFile):
    """A reader converts one file to a `Scenario`."""

    aliases = ALIASES

    def table_of(self, name: str, key: str) -> dict[str, Any]:
        *sections, last = key.split(".")
        if not sections:
            told = harmless(name)
            known = [f"{one.name}.{key}" for one in SECTIONS if "NAME" not in one.name for key in one.keys]
            what = f"needs a section, as in pds.{told}{similar(f'.{name}', known) or similar(name, ALIASES)}"
            raise LocalError(
                argument("settings", told), what, f"without a section: {', '.join(ALIASES)}", id="unknown-section"
            )
        self.check_named(name, sections)
        table: Any = self.data
        for section in sections:
            if isinstance(table, list):  # rows [[operation]], by their numbers
                if not section.isdecimal() or int(section) >= len(table):
                    raise LocalError(
                        argument("settings", name), f"no such row: {section}", f"a number, 0 … {len(table) - 1}",
                        id="not-a-table"
                    )  # fmt: skip
                table = table[int(section)]
            else:
                table = table.setdefault(section, {})
            if not isinstance(table, dict | list):
                raise LocalError(
                    argument("settings", name), f"{section} is not a table that can be changed", id="not-a-table"
                )
        if not isinstance(table, dict):
            raise LocalError(argument("settings", name), f"{last} is a row", f"a key of it, as in {key}.key",
                             id="not-a-table")  # fmt: skip
        return table

    def check_named(self, name: str, sections: Sequence[str]) -> None:
        """Raise `LocalError` for a key of a node or queue pair that does not exist: a wrong name adds none.

        A node or queue pair is added as a whole table: `nodes.NAME={address = "10.0.0.9"}`.
        """
        kind = sections[0]
        of = self.data.get("nodes" if kind == "preset" else kind, {})
        if kind in ("nodes", "preset") and isinstance(of, dict):
            of = dict.fromkeys(self.hosts) | of
        if kind not in _NAMED or not isinstance(of, dict) or (kind == "qp" and not of):
            return
        if len(sections) > 1 and sections[1] not in of:
            told = harmless(name)
            what = f"no such {_NAMED[kind]}: {harmless(sections[1])}{similar(sections[1], of)}"
            more = (
                "" if kind == "preset" else f"; a new one is a whole table, {argument('settings')} '{kind}.NAME={{…}}'"
            )
            raise LocalError(argument("settings", told), what, f"{', '.join(of)}{more}", id="unknown-node")

    def refuse(self, key: str, value: object, legal: str = "", *, id: str) -> LocalError:
        """Return the error for `key`, with the setting ("key=value") in place of the file if one set `key` or its
        table.
        """
        for at in upwards(key):
            by_hand = next((given for given in self.given if at == given or given.startswith(f"{at}.")), None)
            if by_hand is not None and (at == by_hand or at not in self.lines):
                told = "" if by_hand == key else f"{harmless(key)}: "
                return LocalError(self.option(by_hand), f"{told}{value}", legal, id=id)
            if at in self.lines:
                break
        return super().refuse(key, value, legal, id=id)

    def table(self, path: str, keys: Mapping[str, KeyType], value: Any, nested: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the checked values of one table; `nested` names sub-tables, which are left out. Raises
        `LocalError`.
        """
        if not isinstance(value, dict):
            raise self.refuse(path, "is a value", f"the table [{path}]", id="not-a-table")
        checked = {}
        for name, raw in value.items():
            where = f"{path}.{name}"
            if name in nested:
                continue
            if name not in keys:
                legal = (*keys, *nested)
                raise self.refuse(where, f"unknown key{similar(name, legal)}", ", ".join(legal), id="unknown-key")
            key = keys[name]
            if key.check in (TEXT.check, SECRET.check) and not isinstance(raw, str):
                raw = self.given.get(where, raw)
            self.check_unit(where, raw, key)
            try:
                checked[name] = key.check(raw)
            except LocalError as error:  # raised by a region: it has the legal values
                raise self.refuse(where, error.value, error.legal, id=error.id) from None
            except ValueError:
                wrong = f"{harmless(repr(raw))} is not legal{similar(raw, key.names)}"
                raise self.refuse(where, wrong, key.legal, id=unfit(raw, key.names)) from None
        return checked

    def scenario(self) -> Scenario:
        data = self.data
        for name in data:
            if name not in _SECTIONS:
                raise self.refuse(name, f"unknown section{similar(name, _SECTIONS)}", ", ".join(_SECTIONS),
                                  id="unknown-section")  # fmt: skip
        given = data.setdefault("nodes", {})
        if isinstance(given, dict):
            for name, address in self.hosts.items():
                if isinstance(table := given.setdefault(name, {}), dict):
                    table.setdefault("address", address)
        rows, operations = (self.array(name, data.get(name, [])) for name in ("step", "operation"))
        sealing = read_section(self)
        nodes = self.nodes(start_of(self, sealing))
        run = self.run(nodes)
        check_sections(self, run.transport)
        security = security_of(self, sealing, nodes, run.target)
        fabric, how, cut = self.fabric(nodes, run)
        fabric, plane = self.plane(fabric, how, nodes, run)
        if "step" not in data:
            fabric = checked_headroom(self, fabric, nodes)
        qps = {} if run.transport == UET else queue_pairs(
            self, run.transport, (run.initiator, run.target), nodes, roce_operations.pairs_of(operations, tuple(nodes))
        )  # fmt: skip
        faults, at_risk = self.faults(nodes)
        target_faults = self.target_faults(run)
        # a file has [tap] for other runs if only `--set` asks for objects
        tapped = "tap.nodes" in self.given or ("tap" in data and "fabric.wire" not in self.given)
        check_unencoded(self, fabric, faults, tapped=tapped, sealed=security is not None, scripted=bool(rows))
        if rows and faults:
            raise self.refuse("faults", "a script leaves nothing to chance", "[faults] or [[step]]",
                              id="not-with-script")  # fmt: skip
        todo: tuple[OperationRow, ...]
        if run.transport == UET:
            todo = operations_of(operations, run, tuple(nodes), self.table, self.where, self.refuse)
        else:
            todo = roce_operations.operations_of(operations, run, qps, nodes, self.table, self.where, self.refuse)
        extension = max((row.extension_size for row in todo), default=0) + (0 if plane is None else plane.state_size)
        self.check_mtu(fabric, how, nodes.values(), run.transport == UET, security, extension)
        chosen = self.table("tap", _TAP, data.get("tap", {})).get("nodes")
        cables = cables_between_switches(fabric.layout)
        taps = self.members("tap.nodes", chosen, nodes, fabric.layout) or (run.initiator,)
        fabric = replace(fabric, taps={end: taps.index(name) for name in taps for end in cables.get(name, ())})
        told = self.refuse("fabric.wire", "", id="wire-objects")
        scripted = run.ses == "scripted"
        if scripted and not rows:
            raise self.refuse("run.ses", "'scripted' needs rows [[step]]", "real, or a script", id="not-with-script")
        return Scenario(
            name=self.path.stem,
            run=run,
            fabric=fabric,
            encapsulation=how,
            nodes=nodes,
            faults=faults,
            faults_from=at_risk,
            steps=() if scripted or run.transport != UET else self.steps(rows),
            script=()
            if run.transport == UET and not scripted
            else self.script(rows, run, SCRIPTED if scripted else ROCE),
            operations=todo,
            target_faults=target_faults,
            taps=taps,
            plane=plane,
            failing=cut,
            qps=qps,
            path=PathConfig(**self.table("path", _PATH, data.get("path", {}))),
            security=security,
            wire_told=(told.name, told.place),
        )

    @property
    def hosts(self) -> dict[str, str]:
        """Return the addresses of the hosts that need no table, by name."""
        run = self.data.get("run", {})
        return host_names(run.get("hosts") if isinstance(run, dict) else None)

    def array(self, name: str, rows: Any) -> list[Any]:
        """Return `rows` if they are rows [[name]]. Raises `LocalError` for any other value."""
        if not isinstance(rows, list):
            kind = "a table" if isinstance(rows, dict) else "a value"
            raise self.refuse(name, f"is {kind}", f"rows [[{name}]]", id="not-a-table")
        if name == "operation" and name in self.data and not rows:
            raise self.refuse(name, "has no row", "rows [[operation]], or an input", id="not-a-table")
        return rows

    def nodes(self, start: Mapping[str, str]) -> dict[str, NodeConfig]:
        """Return the nodes; `start` holds PDS parameters that security implies. Raises `LocalError` for illegal
        values.
        """
        tables = self.data.get("nodes", {})
        if not isinstance(tables, dict) or len(tables) < 2:
            raise self.refuse("nodes", "there must be two nodes at least, each a table [nodes.NAME]",
                              id="inconsistent-values")  # fmt: skip
        presets = self.data.get("preset", {})
        if not isinstance(presets, dict):
            raise self.refuse("preset", "is a value", "tables [preset.NAME]", id="not-a-table")
        for name in presets:
            if name not in tables:
                raise self.refuse(f"preset.{name}", f"no such node{similar(name, tables)}", ", ".join(tables),
                                  id="unknown-node")  # fmt: skip
        nodes: dict[str, NodeConfig] = {}
        for name, table in tables.items():
            values = self.table(f"nodes.{name}", _NODE, table, nested=("pds", "ses", "roce", "security"))
            if "address" not in values:
                raise self.refuse(f"nodes.{name}", "address is missing", ADDRESS.legal, id="missing-key")
            address, version = values["address"]
            for other in nodes.values():
                if address & 0xFFFFFFFF == other.address & 0xFFFFFFFF:
                    raise self.refuse(f"nodes.{name}.address", f"has the same last four bytes as that of {other.name}",
                                      id="duplicate")  # fmt: skip
                if version != other.ip_version:
                    raise self.refuse(
                        f"nodes.{name}.address", f"is IPv{version}, but that of {other.name} is not",
                        id="inconsistent-values"
                    )  # fmt: skip
            personality = values.get("personality", "default")
            pds = self.config(PdsConfig, _PDS, "pds", f"nodes.{name}", personality, start)
            preset, pkt_id = self.preset(f"preset.{name}", presets.get(name, {}), pds)
            nodes[name] = NodeConfig(
                name=name,
                address=address,
                ip_version=version,
                rate=values.get("rate"),
                pds=pds,
                ses=self.config(SesConfig, _SES, "ses", f"nodes.{name}", personality),
                preset=preset,
                pkt_id=pkt_id,
                roce=self.config(RoceConfig, _ROCE, "roce", f"nodes.{name}", personality),
                ssi=values.get("ssi"),
                data_path=values.get("data_path"),
                ports=values.get("ports", 1),
            )
        return nodes

    def config(
        self, kind: type[_Config], keys: dict[str, KeyType], section: str, node: str, personality: str,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> _Config:  # fmt: skip
        """Return a configuration of a node: values of its personality, of `more`, of the section, and of its own table.

        Later values replace earlier ones.
        """
        shared = self.table(section, keys, self.data.get(section, {}))
        own = self.table(f"{node}.{section}", keys, self.data["nodes"][node.partition(".")[2]].get(section, {}))
        try:
            return kind(**PERSONALITIES[personality].get(section, {}) | dict(more) | shared | own)
        except LocalError as error:  # it has the key and the legal values
            tables = ((f"{node}.{section}", own), (section, shared))
            where = next((f"{path}.{error.name}" for path, table in tables if error.name in table), None)
            value = error.value if where else f"{error.name}: {error.value}"
            raise self.refuse(where or node, value, error.legal, id=error.id) from None

    def preset(self, path: str, table: Any, pds: PdsConfig) -> tuple[Preset, int | None]:
        """Return the preset numbers of a PDC, and the first pkt_id. Raises `LocalError` for illegal values."""
        values = self.table(path, _PRESET, table)
        live = [key for key in (*_LIVE, "ack_gen_count") if key in values]
        missing = [key for key in _LIVE if key not in values]
        if missing and set(live) - {"pdcid"}:
            also = ", ".join(missing)
            raise self.refuse(f"{path}.{live[-1]}", f"a PDC in the middle of its life also needs {also}",
                              id="missing-key")  # fmt: skip
        if "expected_psn" in values and pds.secure_start != "expected":
            raise self.refuse(f"{path}.expected_psn", "is not legal without secure_start = 'expected'",
                              id="not-with-mode")  # fmt: skip
        pkt_id = values.pop("pkt_id", None)
        return Preset(**values), pkt_id

    def rows(self, rows: list[Any], words: ScriptSyntax) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
        """Yield path, action, value of the action, and other keys of each row. Raises `LocalError` for illegal keys."""
        for number, row in enumerate(rows):
            path = f"step.{number}"
            values = self.table(path, words.keys, row)
            actions = [name for name in values if name in words.actions]
            if len(actions) != 1:
                raise self.refuse(
                    path, f"has {len(actions)} actions", f"one of {', '.join(words.actions)}",
                    id="conflicting-arguments"
                )  # fmt: skip
            action = actions[0]
            value = values.pop(action)
            for name in values:
                if name not in words.together.get(action, ()):
                    raise self.refuse(f"{path}.{name}", f"does not go with {action}", id="not-with-operation")
            for name in words.needed.get(action, ()):
                if name not in values:
                    raise self.refuse(path, f"{action} needs {name}", words.others[name].legal, id="missing-key")
            yield path, action, value, values

    def where(self, path: str) -> Location:
        """Return the place of a row in the file, for errors that occur only when the row is played."""
        return Location(str(self.path), self.lines.get(path, 1), path)

    def steps(self, rows: list[Any]) -> tuple[FrameStep, ...]:
        return tuple(
            FrameStep(where=self.where(path), action=action, numbers=value, **more)
            for path, action, value, more in self.rows(rows, REAL)
        )

    def script(self, rows: list[Any], run: RunConfig, syntax: ScriptSyntax) -> tuple[ScriptRow[Any], ...]:
        assert syntax.steps is not None
        script: list[ScriptRow[Any]] = []
        messages = 0
        for path, action, value, more in self.rows(rows, syntax):

            def refuse(key: str, value: object, legal: str = "", /, path: str = path, *, id: str) -> LocalError:
                return self.refuse(f"{path}.{key}" if key else path, value, legal, id=id)

            messages += action == "submit"
            context = RowContext((run.initiator, run.target), run.mode, refuse, messages)
            where, header = self.where(path), more.get("header", "std")
            script += [ScriptRow(where, step, header) for step in syntax.steps(action, value, more, context)]
        return tuple(script)

    def run(self, nodes: Mapping[str, NodeConfig]) -> RunConfig:
        values = self.table("run", _RUN, self.data.get("run", {}))
        for key, default in zip(("initiator", "target"), nodes, strict=False):
            name = values.setdefault(key, default)
            if name not in nodes:
                raise self.refuse(f"run.{key}", f"no such node: {name!r}{similar(name, nodes)}", ", ".join(nodes),
                                  id="unknown-node")  # fmt: skip
        if values["initiator"] == values["target"]:
            raise self.refuse("run.target", "is the initiator", "another node", id="same-node")
        if (transport := values.get("transport", UET)) != UET:
            for key in values:
                if key in _UET_ONLY:
                    raise self.refuse(f"run.{key}", f"does not go with transport {transport.name.lower()}",
                                      id="not-with-transport")  # fmt: skip
            if values.get("key", 0) >> 32:
                raise self.refuse("run.key", "is no r_key", "32 bits", id="out-of-range")
            if transport is QpType.UD and "input" in values:
                raise self.refuse("run.input", "does not go with ud, which has no WRITE", "rows [[operation]]",
                                  id="not-with-mode")  # fmt: skip
        if transport != UET and "step" in self.data and "operation" not in self.data:
            if "input" in values:
                raise self.refuse("run.input", "does not go with rows [[step]] over RoCE: they make the data up",
                                  id="not-with-script")  # fmt: skip
            if len(nodes) != 2:
                raise self.refuse("step", f"rows [[step]] over RoCE have two nodes, here are {len(nodes)}",
                                  id="not-with-script")  # fmt: skip
            return RunConfig(**values)
        if "operation" in self.data:
            for key in ("input", "ses", "source_base"):
                if key in values:
                    raise self.refuse(f"run.{key}", "does not go with rows [[operation]]", "without it",
                                      id="not-with-script")  # fmt: skip
            if "step" in self.data:
                raise self.refuse("operation", "does not go with rows [[step]]", "one of them",
                                  id="conflicting-arguments")  # fmt: skip
            return RunConfig(**values)
        if values.get("ses") == "scripted":
            if "input" in values:
                raise self.refuse("run.input", "does not go with ses = 'scripted': its steps make the data up",
                                  id="not-with-script")  # fmt: skip
            if len(nodes) != 2:
                raise self.refuse("run.ses", f"'scripted' has two nodes, here are {len(nodes)}", id="not-with-script")
            return RunConfig(**values)
        if (mode := values.get("mode", Mode.ROD)) not in PDC_MODES:
            message = f"{mode.name.lower()!r} is not legal for the WRITE of this run"
            raise self.refuse("run.mode", message, "rod, rud; with ses = 'scripted' also rudi, uud",
                              id="not-with-script")  # fmt: skip
        if "payload" in values:
            raise self.refuse("run.payload", "goes with ses = 'scripted'", "without it; ses.payload_mtu",
                              id="not-with-script")  # fmt: skip
        if "input" not in values:
            raise self.refuse(
                "run", "input is missing", "the path of a .npy file or of any other file; or rows [[operation]]",
                id="missing-key"
            )  # fmt: skip
        values["input"] = self.input(Path(values["input"]).expanduser())
        told = self.refuse("run.input", "", id="missing-key")
        values["input_told"] = (told.name, told.place)
        return RunConfig(**values)

    def input(self, path: Path) -> Path:
        """Return the path of the input.

        A path from `--set` is relative to the current folder; one in a file is relative to the folder of the file, or
        names a file of the package.
        """
        if "run.input" in self.given:
            return path
        beside = self.path.parent / path
        shipped = SHIPPED / path
        return shipped if path.name == str(path) and not beside.exists() and shipped.exists() else beside

    def fabric(
        self, nodes: dict[str, NodeConfig], run: RunConfig
    ) -> tuple[NetworkConfig, Encapsulation, tuple[tuple[str, int], ...]]:
        """Return the network, what is around packets, and the cables that fail."""
        values = self.table("fabric", _FABRIC, self.data.get("fabric", {}))
        if run.transport != UET:
            self.roce_fabric(values, nodes)
        if "encapsulation" in values:
            values["udp"] = values.pop("encapsulation")
        dscp = Dscp(**{f.name: values.pop(f"dscp_{f.name}") for f in fields(Dscp) if f"dscp_{f.name}" in values})
        if len({getattr(dscp, f.name) for f in fields(Dscp)}) < len(fields(Dscp)):
            raise self.refuse("fabric", f"two traffic classes have one DSCP: {dscp}", id="duplicate")
        how = {f.name: values.pop(f.name) for f in fields(Encapsulation) if f.name in values}
        told = any(node.roce.notifies for node in nodes.values()) and run.transport != UET
        layout = self.layout(values, len(nodes))
        red = self.optional(Red, "red", values, told)
        pfc = self.optional(Pfc, "pfc", values, False)
        cables = {key: values.pop(key) for key in CABLE_KEYS if key in values}
        vlan = vlan_of(self, values, pfc)
        slow = self.cables("slow", slow_links, layout, cables)
        cut = self.cables("fail", failing, layout, cables)
        fabric = NetworkConfig(**values, layout=layout, red=red, pfc=pfc, slow=slow, vlan=vlan)
        if pfc is not None and fabric.topology == "pair":
            raise self.refuse("fabric.pfc", "is what a switch does", "a topology with switches", id="not-with-topology")
        if fabric.topology == "pair" and len(nodes) != 2:
            raise self.refuse("fabric.topology", f"a pair has two nodes, here are {len(nodes)}", id="not-with-topology")
        topology = "scripted" if "step" in self.data else fabric.topology
        obstacle = port_obstacle({name: node.ports for name, node in nodes.items()}, topology, pfc=pfc is not None)
        if obstacle is not None:
            raise self.refuse(f"nodes.{obstacle.node}.ports", obstacle.value, obstacle.legal, id="wrong-ports")
        return fabric, Encapsulation(**how, dscp=dscp), cut

    def cables(self, key: str, read: Callable[[Layout | None, Any], _T], layout: Layout | None, values: Any) -> _T:
        """Return what `read` makes of a key that names cables between switches."""
        try:
            return read(layout, values.get(key, ()))
        except LocalError as error:
            raise self.refuse(f"fabric.{key}", error.value, error.legal, id=error.id) from None

    def plane(
        self, fabric: NetworkConfig, how: Encapsulation, nodes: Mapping[str, NodeConfig], run: RunConfig
    ) -> tuple[NetworkConfig, NetworkPlane | None]:
        """Return the network with the queues of `[cc]` and `[switch]`, and what it is for congestion control."""
        uet = run.transport == UET
        payload = max(node.ses.payload_mtu if uet else node.roce.path_mtu for node in nodes.values())
        if uet and run.ses == "scripted":
            payload = run.payload
        marks = any(key.startswith("red") for key in self.data.get("fabric", {}))
        return network_with_plane(self, fabric, nodes, payload, how, may_control=uet, marks=marks)

    def check_mtu(
        self,
        fabric: NetworkConfig,
        how: Encapsulation,
        nodes: Iterable[NodeConfig],
        uet: bool,
        security: Security | None,
        extension: int,
    ) -> None:
        """Raise `LocalError` for a link MTU below the longest packet; `extension`: bytes of SES extension headers."""
        section, name = ("ses", "payload_mtu") if uet else ("roce", "path_mtu")
        sealing = None if security is None else security.domain.overhead
        payload, version = max((getattr(getattr(node, section), name), node.ip_version) for node in nodes)
        around = around_roce(version)
        if uet:
            around = how.around(version, extension=extension, sealing=sealing)
        needed = payload + around
        if needed > fabric.mtu:
            keys = ("fabric.mtu", f"{section}.{name}")
            raise self.refuse(
                next((key for key in keys if key in self.given), keys[keys[1] in self.lines]),
                f"a payload of {payload} bytes makes an IP packet of {needed}, the link's mtu is {fabric.mtu}",
                f"a mtu of {needed} and more, or a smaller {name}", id="mtu-too-small"
            )  # fmt: skip

    def layout(self, values: dict[str, Any], nodes: int) -> Layout | None:
        """Return the layout of a topology with several switches; its keys are removed from `values`."""
        own = {name: values.pop(name) for name in LAYOUT_KEYS if name in values}
        try:
            return layout_of(values.get("topology", "switch"), nodes, own)
        except LocalError as error:
            name = error.name if error.name in own else "topology"
            raise self.refuse(f"fabric.{name}", error.value, error.legal, id=error.id) from None

    def optional(self, kind: type[_Optional], name: str, values: dict[str, Any], default: bool) -> _Optional | None:
        """Return an optional part of the fabric, or None.

        The key `name` switches the part on or off; without this key the part is on if one of its keys is set.
        """
        own = {f.name: values.pop(f"{name}_{f.name}") for f in fields(kind) if f"{name}_{f.name}" in values}
        wanted = values.pop(name, bool(own) or default)
        if own and not wanted:
            raise self.refuse(f"fabric.{name}_{next(iter(own))}", f"does not go with {name} = false", id="no-effect")
        try:
            return kind(**own) if wanted else None
        except LocalError as error:
            raise self.refuse("fabric", f"{error.name}: {error.value}", error.legal, id=error.id) from None

    def roce_fabric(self, values: dict[str, Any], nodes: dict[str, NodeConfig]) -> None:
        """Raise `LocalError` for fabric keys that RoCEv2 does not have; `crc` switches the ICRC."""
        if "trim" in self.data.get("faults", {}):
            raise self.refuse("faults.trim", "does not go with RoCEv2, which has no trimming", "drop",
                              id="not-with-protocol")  # fmt: skip
        for key in values:
            if key in _UET_FABRIC or (key == "encapsulation" and not values[key]):
                raise self.refuse(f"fabric.{key}", "does not go with RoCEv2", "without it", id="not-with-protocol")
        if len({(node.roce.dscp, node.roce.cnp_dscp, node.roce.udp_port) for node in nodes.values()}) > 1:
            raise self.refuse("nodes", "dscp, cnp_dscp and udp_port differ", "the same for all, in [roce]",
                              id="inconsistent-values")  # fmt: skip
        if "crc" in values:
            for name, node in nodes.items():
                nodes[name] = replace(node, roce=replace(node.roce, icrc=values["crc"]))

    def faults(self, nodes: Mapping[str, NodeConfig]) -> tuple[Faults, tuple[str, ...]]:
        values, chosen = faults_of(self)
        return Faults(**values), self.members("faults.from", chosen, nodes) or tuple(nodes)

    def target_faults(self, run: RunConfig) -> tuple[TargetFault, ...]:
        """Return the rows `[[faults.target]]`. Raises `LocalError` for illegal values."""
        rows = self.array("faults.target", self.data.get("faults", {}).get("target", []))
        if rows and run.ses == "scripted":
            raise self.refuse("faults.target", "does not go with ses = 'scripted'", "real", id="not-with-script")
        return tuple(target_fault(self, number, row, (run.initiator, run.target)) for number, row in enumerate(rows))

    def members(
        self, path: str, chosen: tuple[str, ...] | None, nodes: Mapping[str, NodeConfig], layout: Layout | None = None
    ) -> tuple[str, ...]:
        """Return the chosen nodes, without a repetition; with a `layout` also cables of switches (`places_of`)."""
        if chosen == ("all",):
            return tuple(nodes)
        found: dict[str, None] = {}
        for name in chosen or ():
            short = name.removesuffix(".0")
            places: tuple[str, ...] = (short,)
            if short not in nodes:
                try:
                    places = places_of(layout, name, tuple(nodes))
                except LocalError as error:
                    if layout is not None and "." in name:
                        raise self.refuse(path, error.value, error.legal, id=error.id) from None
                    known = ("all", *nodes, *(() if layout is None else layout.switches))
                    raise self.refuse(
                        path, f"no such node: {short!r}{similar(short, known)}", ", ".join(known), id="unknown-node"
                    ) from None  # fmt: skip
            found |= dict.fromkeys(places)
        return tuple(found)


_UET_ONLY = (
    "mode", "ses", "payload", "job_id", "resource_index", "pid_on_fep", "initiator_id", "relative", "delivery_complete",
    "completion_data", "close",
)  # fmt: skip
"""Keys of `[run]` that are illegal over RoCE."""
_UET_FABRIC = (
    "trimming", "udp_port", "ip_protocol", "dscp_data", "dscp_data_rtx", "dscp_trimmed", "dscp_trimmed_last_hop",
    "dscp_control",
)  # fmt: skip
_NAMED = {"nodes": "node", "preset": "node", "qp": "queue pair"}
"""Sections whose tables have names that the user chose, and what a name stands for."""
_SECTIONS = (
    "run", "fabric", "nodes", "cc", "switch", "pds", "ses", "security", "roce", "qp", "path", "faults", "tap", "preset",
    "step", "operation",
)  # fmt: skip
