# SPDX-License-Identifier: GPL-2.0-only
"""This module reads `[security]` of a scenario: a secure domain with all nodes (tss.md §3, interfaces.md §5).

    [security]
    sdi = 1
    mode = "direct"             # or cluster, client-server; where nodes have an `ssi`, packets carry it
    server = "rank2"            # mode client-server: the node that is the server; default: the target
    key = "07e9…"               # of AN 0; or keys = [{ an = 0, key = "…" }, { an = 1, key = "…" }]
    rekey_mask = 0xFF00         # mode cluster: a new key every so many packets (tss.md §5.4)
    rekey_shift = 8
    crypto_offset = "header"    # or bytes: some of the PDS stays in clear (tss.md §7.2)
    ipv6_ssi_context = "large"  # or small (tss.md §5.2)
    start = "expected"          # or random, off: secure start (tss.md §11)
    rotate_at = 6               # a node changes to the other AN after so many packets, or at "5 us" (tss.md §10)
    rotate_guard = "2 s"        # the old key is forgotten after this time
    epoch_at = 6                # likewise: a node changes to the next epoch

`key`, `keys` and the following keys may differ from node to node, in [nodes.NAME.security]; a personality sets some of
the following:

    epoch = 0                   # of the first packets
    rx_max_epoch_lifetime = 16  # epochs back that are accepted (tss.md §9)
    auth_fail_threshold = 1000  # after more authentication failures than this all is dropped (tss.md §9)
    invoke_fatal_threshold = 0xFFFFFFFFFFFF  # packets that a node may seal under one key (tss.md §8)
    strict_tsc_halves = true    # mode client-server: counters of servers have bit 47 (tss.md §4)
    plain = "drop"              # or pass: what becomes of packets in clear
    clear_nacks = []            # NEW_START_PSN, INV_DPDCID: sent and accepted in clear (observed.md)

When a script restarts a node (`restart`), the node loses the state of its PDS; its keys, epoch and counter stay, as the
NIC holds them. No error shows the value of a key.
"""

from collections.abc import Mapping
from typing import Any

from uetproto.engine.config import PERSONALITIES
from uetproto.engine.contract import SECOND
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.port import CLEAR_NACKS, PLAIN
from uetproto.errors import LocalError, MissingPackageError
from uetproto.framing.security import KeyRotation, RekeyTrigger, Security, SecurityMember, tx_an
from uetproto.knobs import KeyType, knobs_of, time_text, with_defaults
from uetproto.toml.file import SectionReader, harmless
from uetproto.toml.values import NAMES, SECRET, TEXT, integer, key_of, one_of, time

_Slots = tuple[tuple[DomainKey, ...], tuple[DomainKey, ...]]
"""The keys of a domain, indexed by AN."""


# Reading --------------------------------------------------------------------------------------------------------------


def _turn(value: Any) -> RekeyTrigger:
    if type(value) is int:
        return RekeyTrigger(integer(1, 2**47 - 1).check(value), None)
    return RekeyTrigger(None, time(1).check(value))


def _clear_nacks(value: Any) -> frozenset[int]:
    names = NAMES.check(value)
    if not set(names) <= set(CLEAR_NACKS):
        raise ValueError(value)
    return frozenset(CLEAR_NACKS[name] for name in names)


_GUARD = 2 * SECOND
"""Guard time of the reference provider's rotation (tss.md §10)."""
_START = "expected"
"""Policy of secure start in a secure domain (tss.md §11)."""
_TURN = KeyType(_turn, 'a number of packets that a node has sealed, or a virtual time such as "5 us"')
_DOMAIN = {name: key_of(one) for name, one in knobs_of(DomainConfig).items()}
_HABITS = with_defaults({
    "epoch": integer(0, 2**16 - 1).says("The epoch of the first packets.", source="tss.md §4"),
    **{name: _DOMAIN.pop(name) for name in (
        "rx_max_epoch_lifetime", "auth_fail_threshold", "invoke_fatal_threshold", "strict_tsc_halves",
    )},
    "plain": one_of(PLAIN).says("What becomes of packets in clear.", source="tss.md §9"),
    "clear_nacks": KeyType(_clear_nacks, f"a list of some of {', '.join(CLEAR_NACKS)}").says(
        "The NACKs that are sent in clear, and accepted so.", "[]", "observed.md"
    ),
}, SecurityMember)  # fmt: skip
"""Keys that may differ from node to node."""
SECURITY_KEYS = {
    **{name: _DOMAIN[name] for name in ("sdi", "mode")},
    "key": SECRET.says("The key of AN 0, 64 hexadecimal digits; or `keys`, rows {an, key}.", source="tss.md §3"),
    **{name: _DOMAIN[name] for name in ("rekey_mask", "rekey_shift", "crypto_offset", "ipv6_ssi_context")},
    "server": KeyType(TEXT.check, "the name of a node").says(
        "The node that is the server, in mode client-server.", "the target"
    ),
    "start": one_of(("off", "expected", "random")).says("pds.secure_start of all nodes.", _START, "tss.md §11"),
    "rotate_at": _TURN.says("When a node changes to the other AN.", source="tss.md §10"),
    "rotate_guard": time().says("The old key is forgotten after so long.", time_text(_GUARD), "tss.md §10"),
    "epoch_at": _TURN.says("When a node moves on to the next epoch.", source="tss.md §4"),
    **_HABITS,
}
_KEY_ROW = {"an": integer(0, 1), "key": SECRET}
OWN_KEYS = {"key": SECRET.says("The key of AN 0 of this node; or `keys`."), **_HABITS}
_LEGAL = 'key = "64 hexadecimal digits", or keys = [{an = 0, key = "…"}, {an = 1, key = "…"}]'
_PLACES = {"servers": "server", "ssis": "mode"}
"""Keys of the file whose field of `DomainConfig` has another name, by the name of this field."""


def read_section(reader: SectionReader) -> dict[str, Any] | None:
    """Return the values of the section `[security]`, or None if the file has no such section.

    Raises `LocalError` for an unknown key or an illegal value.
    """
    if "security" not in reader.data:
        return None
    return reader.table("security", SECURITY_KEYS, reader.data["security"], nested=("keys",))


def start_of(reader: SectionReader, values: Mapping[str, Any] | None) -> dict[str, str]:
    """Return a dict with `secure_start`, the parameter of PDS that the section sets (tss.md §11). `values` are those of
    the section. If `values` is None, the dict is empty."""
    if values is None:
        return {}
    pds = reader.data.get("pds")
    if "start" in values and isinstance(pds, dict) and "secure_start" in pds:
        raise reader.refuse(
            "security.start", "does not go with pds.secure_start", "one of them", id="conflicting-arguments"
        )
    return {"secure_start": values.get("start", _START)}


def security_of(
    reader: SectionReader, values: Mapping[str, Any] | None, nodes: Mapping[str, Any], target: str
) -> Security | None:  # fmt: skip
    """Return the security that `[security]` and `[nodes.NAME.security]` describe.

    `values` are those of `[security]`. If they are None, there is no such section, and the result is None. Raises
    `LocalError` for settings that contradict each other, and for a missing key.
    """
    tables = reader.data["nodes"]
    if values is None:
        for name, table in tables.items():
            if found := next((key for key in ("ssi", "security") if key in table), None):
                raise reader.refuse(
                    f"nodes.{name}.{found}", "does not go without the section [security]", id="no-effect"
                )
        return None
    sdi, mode = values.get("sdi", 1), values.get("mode", "direct")
    shared = _slots(reader, "security", values)
    own = {name: _own(reader, name, tables[name]) for name in nodes}
    slots = {name: _own_slots(reader, name, tables[name], own[name]) or shared for name in nodes}
    for name, keys in slots.items():
        if not any(keys):
            raise reader.refuse("security", f"SDI {sdi} has no key for node {name}", _LEGAL, id="missing-key")
    common: dict[str, Any] = {name: values[name] for name in _SHARED if name in values}
    common |= {"sdi": sdi, "mode": mode, "ssis": _ssis(reader, nodes, mode)}
    common["servers"] = _servers(reader, values, mode, nodes, target)
    rotation, epoch_at = _rotation(reader, values, slots), _epoch_at(reader, values, slots)
    members = {}
    for name, node in nodes.items():
        habits = {**_habits(tables[name].get("personality", "default")), **values, **own[name]}
        of_member = {key: habits[key] for key in _OF_MEMBER if key in habits}
        of_domain = {key: habits[key] for key in _HABITS if key in habits and key not in _OF_MEMBER}
        try:
            domain = DomainConfig(keys=slots[name], **common, **of_domain)
            SecureDomain(domain, node.address, node.ip_version, tx_an=tx_an(domain))
        except MissingPackageError:
            raise
        except LocalError as error:  # it names what is wrong and what is legal, never a key
            raise _refused(reader, name, error) from None
        members[name] = SecurityMember(domain=domain, **of_member)
    return Security(members=members, rotation=rotation, epoch_at=epoch_at)


def _habits(personality: str) -> dict[str, Any]:
    """Return the habits of a personality; a later setting replaces an earlier one, as in `[pds]`."""
    return {name: _HABITS[name].check(value) for name, value in PERSONALITIES[personality]["security"].items()}


def _refused(reader: SectionReader, node: str, error: LocalError) -> LocalError:
    """Return the error for what a `DomainConfig` refuses, at its place in the file."""
    name = _PLACES.get(error.name, error.name)
    own = reader.data["nodes"][node].get("security")
    is_own = name == "key" and own and {"key", "keys"} & set(own)
    path, table = (f"nodes.{node}.security", own) if is_own else ("security", reader.data["security"])
    if name == "key" and "keys" in table:
        name = "keys"
    if name in table:
        return reader.refuse(f"{path}.{name}", error.value, error.legal, id=error.id)
    return reader.refuse(path, f"{error.name}: {error.value}", error.legal, id=error.id)


_SHARED = ("rekey_mask", "rekey_shift", "crypto_offset", "ipv6_ssi_context")
_OF_MEMBER = ("epoch", "plain", "clear_nacks")
"""Habits that are no part of a `DomainConfig`."""


def _slots(reader: SectionReader, path: str, values: Mapping[str, Any]) -> _Slots:
    """Return the keys that `key`, which is that of AN 0, or `keys` gives."""
    table = reader.data
    for part in path.split("."):
        table = table[part]
    if "keys" not in table:
        return ((values["key"],) if "key" in values else (), ())
    if "key" in values:
        raise reader.refuse(f"{path}.key", "does not go with keys", "one of them", id="conflicting-arguments")
    rows = table["keys"]
    if not isinstance(rows, list) or not rows:
        raise reader.refuse(f"{path}.keys", "is no list of keys", _LEGAL, id="wrong-type")
    slots: list[tuple[DomainKey, ...]] = [(), ()]
    for number, row in enumerate(rows):
        where = f"{path}.keys.{number}"
        one = reader.table(where, _KEY_ROW, row)
        if len(one) < len(_KEY_ROW):
            raise reader.refuse(
                where, f"{' and '.join(key for key in _KEY_ROW if key not in one)} missing", id="missing-argument"
            )
        if slots[one["an"]]:
            raise reader.refuse(f"{where}.an", f"AN {one['an']} has a key already", "one for each AN", id="duplicate")
        slots[one["an"]] = (one["key"],)
    return slots[0], slots[1]


def _own(reader: SectionReader, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `[nodes.NAME.security]`."""
    path = f"nodes.{name}.security"
    return reader.table(path, OWN_KEYS, table.get("security", {}), nested=("keys",))


def _own_slots(reader: SectionReader, name: str, table: Mapping[str, Any], own: Mapping[str, Any]) -> _Slots | None:
    """Return the keys of a node that has other keys than the rest; None: it has none of its own."""
    if not {"key", "keys"} & set(table.get("security", ())):
        return None
    return _slots(reader, f"nodes.{name}.security", own)


def _ssis(reader: SectionReader, nodes: Mapping[str, Any], mode: str) -> dict[int, int]:
    """Return the SSI of each node, by address; all nodes have one, or none has."""
    told = {name: node.ssi for name, node in nodes.items() if node.ssi is not None}
    first = next(iter(nodes.values()))
    if not told and mode == "direct" and first.ip_version == 6:
        raise reader.refuse(
            "security.mode", "direct over IPv6 needs an SSI of each node",
            "[nodes.NAME] ssi, or mode cluster, client-server", id="ssi-needed"
        )  # fmt: skip
    for name in nodes:
        if told and name not in told:
            raise reader.refuse(f"nodes.{name}", "ssi is missing", "one for each node, or for none", id="ssi-needed")
    used: dict[int, str] = {}
    for name, ssi in told.items():
        if ssi in used:
            raise reader.refuse(f"nodes.{name}.ssi", f"is that of {used[ssi]}", "one for each node", id="ssi-needed")
        used[ssi] = name
    return {nodes[name].address: ssi for name, ssi in told.items()}


def _servers(
    reader: SectionReader, values: Mapping[str, Any], mode: str, nodes: Mapping[str, Any], target: str
) -> frozenset[int]:  # fmt: skip
    """Return the address of the server, in mode client-server by default the target."""
    if mode != "client-server":
        if "server" in values:
            raise reader.refuse("security.server", f"mode {mode} has none", "mode client-server", id="not-with-mode")
        return frozenset()
    name = values.get("server", target)
    if name not in nodes:
        raise reader.refuse(
            "security.server", f"no such node: {harmless(repr(name))}", ", ".join(nodes), id="unknown-node"
        )
    return frozenset((nodes[name].address,))


def _rotation(reader: SectionReader, values: Mapping[str, Any], slots: Mapping[str, _Slots]) -> KeyRotation | None:
    if "rotate_at" not in values:
        if "rotate_guard" in values:
            raise reader.refuse("security.rotate_guard", "does not go without rotate_at", id="no-effect")
        return None
    for name, (zero, one) in slots.items():
        if not zero or not one or zero[0].value == one[0].value:
            raise reader.refuse(
                "security.rotate_at", f"node {name} needs two different keys", "one for each AN", id="missing-key"
            )
    return KeyRotation(values["rotate_at"], values.get("rotate_guard", _GUARD))


def _epoch_at(reader: SectionReader, values: Mapping[str, Any], slots: Mapping[str, _Slots]) -> RekeyTrigger | None:
    """Return when epochs change. A key that was derived for one epoch is of no use in the next (tss.md §4)."""
    for name, keys in slots.items():
        if "epoch_at" in values and any(key.derived for slot in keys for key in slot):
            message = f"node {name} has a key that was derived for one epoch"
            raise reader.refuse("security.epoch_at", message, "keys of 32 bytes", id="wrong-key")
    turn: RekeyTrigger | None = values.get("epoch_at")
    return turn
