"""`[security]` of a scenario: one secure domain, of which every node is a member (tss.md §3, interfaces.md §5).

No error shows the value of a key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from uetproto.emulator.keys import SECRET, Key, integer, one_of, time
from uetproto.emulator.roce_settings import Reader
from uetproto.engine.contract import SECOND
from uetproto.engine.tss_domain import SecureDomain
from uetproto.engine.tss_keys import MODES, Domain, KeyRing
from uetproto.engine.tss_keys import Key as DomainKey
from uetproto.engine.tss_port import PLAIN
from uetproto.errors import LocalError
from uetproto.wire.uet_tss import TSS

Slots = tuple[tuple[DomainKey, ...], tuple[DomainKey, ...]]
"""The keys of a domain, by AN."""


class Rotation(NamedTuple):
    """When a node changes over to its other key (tss.md §10): by the packets that it has sealed, or by the clock."""

    packets: int | None
    time: int | None
    guard: int = 0
    """How long after that it still accepts the old key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """All that a sealed run needs."""

    domains: Mapping[str, Domain]
    """By node: they differ where a node has a key of its own."""
    plain: str = "drop"
    """What becomes of packets in clear: drop or pass."""
    rotation: Rotation | None = None

    @property
    def domain(self) -> Domain:
        """The one of the first node: but for keys, that of all."""
        return next(iter(self.domains.values()))

    @property
    def overhead(self) -> int:
        """Bytes that sealing adds to a packet."""
        return self.domain.overhead

    def ring(self) -> KeyRing:
        """The keys of all nodes, for one who reads along."""
        first = self.domain
        slots = (tuple(dict.fromkeys(key for one in self.domains.values() for key in one.keys[an])) for an in (0, 1))
        shared = ("sdi", "mode", "servers", "rekey_mask", "rekey_shift", "crypto_offset", "ipv6_ssi_context")
        return KeyRing({first.sdi: Domain(keys=(next(slots), next(slots)), **{k: getattr(first, k) for k in shared})})


def tx_an(domain: Domain) -> int:
    """The AN with which a member begins: the first that has a key."""
    return 0 if domain.keys[0] else 1


# Reading --------------------------------------------------------------------------------------------------------------


def _offset(value: Any) -> int | None:
    return None if value == "header" else integer(TSS.size, 2**16 - 1).check(value)


def _rotate_at(value: Any) -> Rotation:
    if type(value) is int:
        return Rotation(integer(1, 2**47 - 1).check(value), None)
    return Rotation(None, time(1).check(value))


_ROTATE = 'a number of packets that a node has sealed, or a virtual time such as "5 us"'
_KEYS = {
    "sdi": integer(0, 2**24 - 1),
    "mode": one_of(MODES),
    "key": SECRET,
    "rekey_mask": integer(0, 2**64 - 1),
    "rekey_shift": integer(0, 63),
    "crypto_offset": Key(_offset, f'"header", or bytes, {TSS.size} … {2**16 - 1}'),
    "ipv6_ssi_context": one_of(("large", "small")),
    "server": Key(str, "the name of a node"),
    "start": one_of(("off", "expected", "random")),
    "plain": one_of(PLAIN),
    "rotate_at": Key(_rotate_at, _ROTATE),
    "rotate_guard": time(),
}
_KEY_ROW = {"an": integer(0, 1), "key": SECRET}
_OWN = {"key": SECRET}
_LEGAL = 'key = "64 hexadecimal digits", or keys = [{an = 0, key = "…"}, {an = 1, key = "…"}]'
_GUARD = 2 * SECOND
"""Of RP's rotation (tss.md §10)."""
_PLACES = {"servers": "server", "ssis": "mode"}
"""Where the file says what a `Domain` calls otherwise."""


def read_section(reader: Reader) -> dict[str, Any] | None:
    """The values of `[security]`; None: there is no such section."""
    if "security" not in reader.data:
        return None
    return reader.table("security", _KEYS, reader.data["security"], nested=("keys",))


def start_of(reader: Reader, values: Mapping[str, Any] | None) -> dict[str, str]:
    """What the section means for PDS: its policy of secure start (§11)."""
    if values is None:
        return {}
    pds = reader.data.get("pds")
    if "start" in values and isinstance(pds, dict) and "secure_start" in pds:
        raise reader.refuse("security.start", "does not go with pds.secure_start; legal: one of them")
    return {"secure_start": values.get("start", "expected")}


def security_of(
    reader: Reader, values: Mapping[str, Any] | None, nodes: Mapping[str, Any], target: str
) -> Security | None:  # fmt: skip
    """`[security]`, with what `[nodes.NAME]` adds. Raises `LocalError`."""
    tables = reader.data["nodes"]
    if values is None:
        for name, table in tables.items():
            if found := next((key for key in ("ssi", "security") if key in table), None):
                raise reader.refuse(f"nodes.{name}.{found}", "does not go without the section [security]")
        return None
    shared = _slots(reader, "security", values)
    slots = {name: _own_slots(reader, name, tables[name]) or shared for name in nodes}
    for name, own in slots.items():
        if not any(own):
            raise reader.refuse("security", f"node {name} has no key; legal: {_LEGAL}")
    mode = values.get("mode", "direct")
    common: dict[str, Any] = {name: values[name] for name in _SHARED if name in values}
    common |= {"sdi": values.get("sdi", 1), "mode": mode, "ssis": _ssis(reader, nodes, mode)}
    common["servers"] = _servers(reader, values, mode, nodes, target)
    rotation = _rotation(reader, values, slots)
    domains = {}
    for name, node in nodes.items():
        try:
            domains[name] = domain = Domain(keys=slots[name], **common)
            SecureDomain(domain, node.address, node.ip_version, tx_an=tx_an(domain))
        except LocalError as error:  # it names what is wrong and what is legal, never a key
            raise _refused(reader, name, error) from None
    return Security(domains=domains, plain=values.get("plain", "drop"), rotation=rotation)


def _refused(reader: Reader, node: str, error: LocalError) -> LocalError:
    """What a `Domain` refuses, at its place in the file."""
    name, _, message = str(error).partition(": ")
    name = _PLACES.get(name, name)
    own = reader.data["nodes"][node].get("security")
    path, table = (f"nodes.{node}.security", own) if name == "key" and own else ("security", reader.data["security"])
    if name == "key" and "keys" in table:
        name = "keys"
    return reader.refuse(f"{path}.{name}", message) if name in table else reader.refuse(path, str(error))


_SHARED = ("rekey_mask", "rekey_shift", "crypto_offset", "ipv6_ssi_context")


def _slots(reader: Reader, path: str, values: Mapping[str, Any]) -> Slots:
    """`key`, which is that of AN 0, or `keys`."""
    table = reader.data
    for part in path.split("."):
        table = table[part]
    if "keys" not in table:
        return ((values["key"],) if "key" in values else (), ())
    if "key" in values:
        raise reader.refuse(f"{path}.key", "does not go with keys; legal: one of them")
    rows = table["keys"]
    if not isinstance(rows, list) or not rows:
        raise reader.refuse(f"{path}.keys", f"is no list of keys; legal: {_LEGAL}")
    slots: list[tuple[DomainKey, ...]] = [(), ()]
    for number, row in enumerate(rows):
        where = f"{path}.keys.{number}"
        one = reader.table(where, _KEY_ROW, row)
        if len(one) < len(_KEY_ROW):
            raise reader.refuse(where, f"{' and '.join(key for key in _KEY_ROW if key not in one)} missing")
        if slots[one["an"]]:
            raise reader.refuse(f"{where}.an", f"AN {one['an']} has a key already; legal: one for each AN")
        slots[one["an"]] = (one["key"],)
    return slots[0], slots[1]


def _own_slots(reader: Reader, name: str, table: Mapping[str, Any]) -> Slots | None:
    """`[nodes.NAME.security]`: a node that has other keys than the rest."""
    if "security" not in table:
        return None
    path = f"nodes.{name}.security"
    return _slots(reader, path, reader.table(path, _OWN, table["security"], nested=("keys",)))


def _ssis(reader: Reader, nodes: Mapping[str, Any], mode: str) -> dict[int, int]:
    """By address; all nodes have an SSI, or none has."""
    told = {name: node.ssi for name, node in nodes.items() if node.ssi is not None}
    first = next(iter(nodes.values()))
    if not told and mode == "direct" and first.ip_version == 6:
        raise reader.refuse(
            "security.mode",
            "direct over IPv6 needs an SSI of each node; legal: [nodes.NAME] ssi, or mode cluster, client-server",
        )
    for name in nodes:
        if told and name not in told:
            raise reader.refuse(f"nodes.{name}", "ssi is missing; legal: one for each node, or for none")
    used: dict[int, str] = {}
    for name, ssi in told.items():
        if ssi in used:
            raise reader.refuse(f"nodes.{name}.ssi", f"is that of {used[ssi]}; legal: one for each node")
        used[ssi] = name
    return {nodes[name].address: ssi for name, ssi in told.items()}


def _servers(
    reader: Reader, values: Mapping[str, Any], mode: str, nodes: Mapping[str, Any], target: str
) -> frozenset[int]:  # fmt: skip
    """The node `server`, in mode client-server by default the target."""
    if mode != "client-server":
        if "server" in values:
            raise reader.refuse("security.server", f"mode {mode} has none; legal: mode client-server")
        return frozenset()
    name = values.get("server", target)
    if name not in nodes:
        raise reader.refuse("security.server", f"no such node: {name!r}; legal: {', '.join(nodes)}")
    return frozenset((nodes[name].address,))


def _rotation(reader: Reader, values: Mapping[str, Any], slots: Mapping[str, Slots]) -> Rotation | None:
    if "rotate_at" not in values:
        if "rotate_guard" in values:
            raise reader.refuse("security.rotate_guard", "does not go without rotate_at")
        return None
    for name, (zero, one) in slots.items():
        if not zero or not one or zero[0].value == one[0].value:
            raise reader.refuse("security.rotate_at", f"node {name} needs two different keys; legal: one for each AN")
    rotation: Rotation = values["rotate_at"]
    return rotation._replace(guard=values.get("rotate_guard", _GUARD))
