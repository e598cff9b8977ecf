# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the sections `[roce]` and `[qp.NAME]` of a scenario: adapters, and queue pairs with their peers.

    [run]
    transport = "rc"            # or uc, ud: transport of all queue pairs

    [roce]                      # `RoceConfig`; [nodes.NAME.roce] for one node
    path_mtu = 4096

    [qp.left]
    node = "a"                  # default: the node with the name of the queue pair
    peer = "right"              # queue pair at the other end; RC and UC
    number = 0x11
    sq_psn = 5
    p_key = 0xffff
    pd = "other"                # default: the protection domain of the node

Without `[qp.NAME]` the two nodes of the run have one queue pair each, with the name of the node; both are connected.
With rows of traffic patterns two nodes with a flow between them have two, such as h0.h4 at h0 and h4.h0 at h4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import FULL_ACCESS, Access, QpType
from uetproto.engine.roce.psn import MASK
from uetproto.knobs import KeyType, knobs_of
from uetproto.toml.file import SectionReader
from uetproto.toml.values import ADDRESS, TEXT, integer, key_of

UET = "uet"
TRANSPORTS = {UET: UET, **{kind.name.lower(): kind for kind in QpType}}
"""Transports that `run.transport` may name. The key is the name."""

DEFAULT_PKEY = 0xFFFF
_FIRST_NUMBER = 0x11
_FROM_CONFIG = (
    "path_mtu", "timeout", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class QpSetup:
    """A queue pair setup has the settings that `[qp.NAME]` gives a queue pair."""

    name: str
    node: str
    peer: str | None = None
    """Name of the queue pair at the other end. It is None on UD."""
    number: int
    sq_psn: int | None = None
    """PSN of the first request. If it is None, the PSN is drawn at random."""
    p_key: int = DEFAULT_PKEY
    pd: str = ""
    """Name of the protection domain of the queue pair at the node. If it is empty, the queue pair is in the domain of
    the node's regions."""
    srq: str | None = None
    """Name of the shared receive queue, or None. Queue pairs of a node that name the same queue share it."""
    groups: tuple[int, ...] = ()
    """Addresses of the multicast groups that the queue pair joins."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the queue pair, by their names in libibverbs. They replace those of the node's configuration."""


def _access(value: Any) -> Access:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) and name.upper() in Access.__members__ for name in names):
        raise ValueError(value)
    return Access(sum(Access[name.upper()] for name in names))


def _groups(value: Any) -> tuple[int, ...]:
    return tuple(ADDRESS.check(group)[0] for group in (value if isinstance(value, list) else [value]))


ACCESS = KeyType(_access, f"some of {', '.join(str(flag.name).lower() for flag in Access)}")

QP_KEYS = {
    "node": TEXT.says("The node of the queue pair.", "the node called NAME"),
    "peer": TEXT.says("The queue pair at the other end; RC and UC.", "the only other one"),
    "number": integer(2, MASK - 1).says("The queue pair number.", "0x11 and on"),
    "sq_psn": integer(0, MASK).says("The PSN of the first request.", "drawn"),
    "p_key": integer(0, 2**16 - 1).says("The P_Key.", "0xffff"),
    "pd": TEXT.says("The protection domain at the node.", "that of the regions"),
    "srq": TEXT.says("The shared receive queue; queue pairs of a node that name the same share it."),
    "groups": KeyType(_groups, "a multicast group, or a list of them, as IPv4 or IPv6 addresses").says(
        "The multicast groups that the queue pair joins."
    ),
    "access": ACCESS.says("The access that the queue pair grants.", "all"),
    "qkey": integer(0, 2**32 - 1).says("The Q_Key, on UD."),
    **{name: key_of(knobs_of(RoceConfig)[name]) for name in _FROM_CONFIG},
}
_NOT_FOR_ROCE = ("pds", "ses", "preset", "security")


def check_sections(reader: SectionReader, kind: Any) -> None:
    """Raise `LocalError` for settings that belong to another transport than `kind`, or have no effect in the run.
    Sections, and the tables and keys of nodes, are checked.
    """
    wrong = ("roce", "qp") if kind == UET else _NOT_FOR_ROCE
    transports = ", ".join(name for name in TRANSPORTS if name != UET) if kind == UET else UET
    of_nodes = {f"nodes.{name}": table for name, table in reader.data["nodes"].items() if isinstance(table, dict)}
    for where, table in (("", reader.data), *of_nodes.items()):
        for name in wrong:
            if name in table:
                there = "; the payload of a packet is roce.path_mtu" if "payload_mtu" in table[name] else ""
                text = f"does not go with this transport; run.transport may be {transports}{there}"
                raise reader.refuse(f"{where}.{name}".lstrip("."), text, id="not-with-protocol")
    for where, table in of_nodes.items():
        if kind == UET and "data_path" in table:
            text = f"does not go with uet: data paths are those of RoCE; run.transport may be {transports}"
            raise reader.refuse(f"{where}.data_path", text, id="not-with-protocol")
    if "path" in reader.data and not any("data_path" in table for table in of_nodes.values()):
        raise reader.refuse(
            "path", "has no effect: no node has a data_path", "with nodes.NAME.data_path", id="no-effect"
        )


def qp_name(node: str, peer: str) -> str:
    """Return the name of the queue pair at `node` that traffic patterns use towards the node `peer`."""
    return f"{node}.{peer}"


def queue_pairs(
    reader: SectionReader, kind: QpType, ends: tuple[str, str], nodes: Mapping[str, Any],
    pairs: Sequence[tuple[str, str]] = (),
) -> dict[str, QpSetup]:  # fmt: skip
    """Return all queue pairs of a run, by name: those of [qp.NAME]; without that section one for each of `ends`, or of
    the `pairs` of nodes between which traffic patterns have flows. Raises `LocalError` for settings that are not
    legal."""
    tables = reader.data.get("qp")
    if pairs and tables is not None:
        raise reader.refuse(
            "qp", "does not go with rows of traffic patterns, which make queue pairs", "without [qp]",
            id="not-with-script"
        )  # fmt: skip
    if pairs and kind is QpType.UD:
        raise reader.refuse("run.transport", "'ud' carries no write of a traffic pattern", "rc, uc", id="not-with-mode")
    if pairs:
        tables = {
            qp_name(*two): {"node": two[0], "peer": qp_name(*reversed(two))}
            for pair in pairs for two in (pair, pair[::-1])
        }  # fmt: skip
    elif tables is None:
        tables = {name: {} for name in ends}
    if not isinstance(tables, dict) or not tables:
        raise reader.refuse("qp", "is no table", "tables [qp.NAME]", id="not-a-table")
    found: dict[str, QpSetup] = {}
    numbers: dict[tuple[str, int], str] = {}
    for index, (name, table) in enumerate(tables.items()):
        where = f"qp.{name}"
        values = reader.table(where, QP_KEYS, table)
        node = values.pop("node", name)
        if node not in nodes:
            raise reader.refuse(f"{where}.node" if "node" in table else where,
                                f"no such node: {node!r}", ', '.join(nodes), id="unknown-node")  # fmt: skip
        peer = values.pop("peer", None)
        if kind is QpType.UD:
            if peer is not None:
                raise reader.refuse(
                    f"{where}.peer", "does not go with ud: each send says where it goes", id="not-with-mode"
                )
        elif peer is None:
            if len(tables) != 2:
                raise reader.refuse(where, "peer is missing", f"another of {', '.join(tables)}", id="missing-key")
            peer = next(other for other in tables if other != name)
        number = values.pop("number", _FIRST_NUMBER + index)
        if (node, number) in numbers:
            at, told = (
                f"{where}.number" if "number" in table else where,
                f"{number:#x} is that of {numbers[node, number]}",
            )
            raise reader.refuse(at, told, "one for each", id="duplicate")
        numbers[node, number] = name
        own = {key: values.pop(key) for key in ("sq_psn", "p_key", "pd", "srq", "groups") if key in values}
        attributes = {"access_flags": values.pop("access", FULL_ACCESS), **values}
        found[name] = QpSetup(name=name, node=node, peer=peer, number=number, attributes=attributes, **own)
    for setup in found.values():
        _check_peer(reader, setup, found)
    return found


def _check_peer(reader: SectionReader, setup: QpSetup, found: Mapping[str, QpSetup]) -> None:
    if setup.peer is None:
        return
    where = f"qp.{setup.name}"
    if setup.peer not in found or setup.peer == setup.name:
        legal = ", ".join(name for name in found if name != setup.name)
        raise reader.refuse(f"{where}.peer", f"no such queue pair: {setup.peer!r}", legal, id="unknown-queue-pair")
    theirs = found[setup.peer].peer
    if theirs != setup.name:
        raise reader.refuse(
            where, f"its peer {setup.peer} has another one, {theirs}", "each the other", id="inconsistent-values"
        )
