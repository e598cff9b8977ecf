# SPDX-License-Identifier: GPL-2.0-only
"""This module reads what scenarios say of many hosts, of cables between switches, and of congestion control: the keys
`hosts` of `[run]`, `slow` and `fail` of `[fabric]`, and the sections `[cc]` and `[switch]`.
"""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any, Protocol

from uetproto.emulator.congestion import CC_KEYS, OFF, PROFILES, SWITCH_KEYS, NetworkPlane, SwitchConfig, hops_of
from uetproto.emulator.network.build import NodeRate, headroom, with_headroom
from uetproto.emulator.network.config import TRAINS, NetworkConfig
from uetproto.emulator.network.layouts import Layout, cable_of, cables_between_switches
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.vlan import Vlan
from uetproto.errors import LocalError
from uetproto.framing.uet import Encapsulation
from uetproto.impair.faults import Faults
from uetproto.impair.unencoded_frames import WIRES
from uetproto.knobs import KeyType, keys_of
from uetproto.toml.file import SectionReader
from uetproto.toml.values import one_of, time

MOST_HOSTS = 1024
SLOWER = 4
"""Number by which the rate of a slow cable is divided unless another one is given."""
_FIRST = int(IPv4Address("10.0.0.1"))
_TIME = time()


class SizedNode(Protocol):
    """This protocol has the attributes of a node that the plane of a network is made from."""

    @property
    def rate(self) -> int | None: ...
    @property
    def ip_version(self) -> int: ...


def host_names(number: Any) -> dict[str, str]:
    """Return the addresses of hosts that no table describes, by their names; none for a wrong number."""
    wanted = number if type(number) is int and 0 <= number <= MOST_HOSTS else 0
    return {f"h{host}": str(IPv4Address(_FIRST + host)) for host in range(wanted)}


# Cables between switches ----------------------------------------------------------------------------------------------


def _slow(value: Any) -> tuple[tuple[str, int], ...]:
    found = []
    for text in _texts(value):
        name, slash, divisor = text.partition("/")
        if slash and not (divisor.isascii() and divisor.isdecimal() and 1 < int(divisor[:9]) <= 10**6):
            raise ValueError(value)
        found.append((name, int(divisor) if slash else SLOWER))
    return tuple(found)


def _fail(value: Any) -> tuple[tuple[str, int], ...]:
    found = []
    for text in _texts(value):
        name, at, instant = text.partition("@")
        found.append((name.strip(), _TIME.check(instant.strip()) if at else 0))
    return tuple(found)


def _texts(value: Any) -> list[str]:
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(value)
    return [text.strip() for text in texts]


CABLE_KEYS = {
    "slow": KeyType(_slow, 'a list of cables such as "leaf0.spine1", or "leaf0.spine1/8"').says(
        f'Cables between switches, or one direction as in "core0 > pod0.agg0", whose rate is divided by {SLOWER}, or'
        " by the number behind /; their queues hold and mark as much less.",
        source="cms.md §11.2",
    ),
    "fail": KeyType(_fail, 'a list of cables such as "leaf0.spine1@50 us"').says(
        "Cables between switches that are cut, at the beginning or at a time. Routes stay."
    ),
}

WIRE_KEYS = {
    "wire": one_of(WIRES).says(
        "bytes: frames are encoded; objects: they are not, and a run takes less time. Objects cannot be captured or"
        " checked, and do not go with pfc, [security], rows [[step]], or faults that corrupt or trim."
    ),
    "trains": one_of(TRAINS).says(
        "Whether runs of equal packets are handled together: auto: where nothing distinguishes them; on: refused where"
        " no node can do so; off: never. Captures, results, counters and times are the same."
    ),
}

_VLAN = keys_of(Vlan)
VLAN_KEYS = {
    "vlan": replace(_VLAN["id"], default=""),
    **{f"vlan_{name}": _VLAN[name] for name in ("priority", "trimmed", "control")},
}


def vlan_of(reader: SectionReader, values: dict[str, Any], pfc: Pfc | None) -> Vlan | None:
    """Return the VLAN of all frames; its keys are removed from `values`, those of `[fabric]`. PFC pauses the priority
    of data. Raises `LocalError` for values that are not legal."""
    own = {name: values.pop(name) for name in VLAN_KEYS if name in values}
    if own and "vlan" not in own:
        raise reader.refuse(
            f"fabric.{next(iter(own))}", "has no effect without fabric.vlan", VLAN_KEYS["vlan"].legal, id="no-effect"
        )
    if not own:
        return None
    given = {name.removeprefix("vlan_"): value for name, value in own.items() if name != "vlan"} | {"id": own["vlan"]}
    if pfc is not None and given.setdefault("priority", pfc.priority) != pfc.priority:
        wrong = f"PFC pauses the priority {pfc.priority}, and data has {given['priority']}"
        raise reader.refuse(
            "fabric.vlan_priority", wrong, f"{pfc.priority}, or another pfc_priority", id="inconsistent-values"
        )
    try:
        return Vlan(**given)
    except LocalError as error:
        key = "vlan" if error.name == "id" else f"vlan_{error.name}"
        raise reader.refuse(f"fabric.{key}", error.value, error.legal, id=error.id) from None


def check_unencoded(
    reader: SectionReader, network: NetworkConfig, faults: Faults, *, tapped: bool, sealed: bool, scripted: bool
) -> None:
    """Raise `LocalError` where frames that are not encoded go with what needs their bytes."""
    if network.wire == "bytes":
        return
    wanted = {
        "rows [[step]]": scripted, "[security]": sealed, "pfc": network.pfc is not None,
        "[tap]": tapped, "faults that corrupt": bool(faults.corrupt), "faults that trim": bool(faults.trim),
    }  # fmt: skip
    for name, used in wanted.items():
        if used:
            raise reader.refuse("fabric.wire", f"objects, with {name}", "bytes", id="wire-objects")


def slow_links(layout: Layout | None, chosen: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Return the divisor of each slow direction. Raises `LocalError` for a cable that does not exist."""
    cables = cables_between_switches(layout)
    directions = {end for ends in cables.values() for end in ends}
    found: dict[str, int] = {}
    for name, divisor in chosen:
        ends = (name,) if name in directions else cables[cable_of(layout, name)]
        found |= dict.fromkeys(ends, divisor)
    return found


def failing(layout: Layout | None, chosen: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return the cables that fail, and when. Raises `LocalError` for a cable that does not exist."""
    return tuple((cable_of(layout, name), instant) for name, instant in chosen)


# Congestion control ---------------------------------------------------------------------------------------------------


def network_with_plane(
    reader: SectionReader, network: NetworkConfig, nodes: Mapping[str, SizedNode], payload: int, how: Encapsulation,
    *, may_control: bool, marks: bool,
) -> tuple[NetworkConfig, NetworkPlane | None]:  # fmt: skip
    """Return the network with queues that fit `[cc]` and `[switch]`, and what it is for congestion control; without
    either section the network as it was, and None.

    `payload` is the largest payload of a packet. `may_control`: whether the nodes can have congestion control; `marks`:
    whether `[fabric]` says how queues mark. Raises `LocalError` for values that are not legal.
    """
    cc = reader.table("cc", CC_KEYS, reader.data.get("cc", {}))
    switch = reader.table("switch", SWITCH_KEYS, reader.data.get("switch", {}))
    algorithm = cc.pop("algorithm", OFF)
    if algorithm == OFF and cc:
        raise reader.refuse(
            f"cc.{next(iter(cc))}", "has no effect without cc.algorithm", CC_KEYS["algorithm"].legal, id="no-effect"
        )
    if algorithm != OFF and not may_control:
        raise reader.refuse("cc.algorithm", "goes with UET", OFF, id="not-with-protocol")
    if algorithm == OFF and not switch:
        return network, None
    rates = [network.rate, *(node.rate for node in nodes.values() if node.rate is not None)]
    try:
        plane = NetworkPlane(
            rate=min(rates), delay=network.delay, hops=hops_of(network.layout, network.topology), payload_mtu=payload,
            how=how, ip_version=next(iter(nodes.values())).ip_version, trimming=network.trimming, algorithm=algorithm,
            lb=cc.get("lb", "mixed"), capacity=network.queue_capacity, switch=SwitchConfig(**switch), given=cc,
            profile="htsim" if cc.get("form") == "htsim" else PROFILES[0],
        )  # fmt: skip
        plane.check()
    except LocalError as error:
        section = "cc" if error.name in CC_KEYS else "switch"
        raise reader.refuse(f"{section}.{error.name}", error.value, error.legal, id=error.id) from None
    red = network.red if marks else plane.red
    return replace(
        network, queue_capacity=plane.queue, rules=plane.rules, red=red, host_marks=plane.host_marks,
        hash_salt=plane.switch.hash_salt,
    ), plane  # fmt: skip


def checked_headroom(reader: SectionReader, network: NetworkConfig, nodes: Mapping[str, SizedNode]) -> NetworkConfig:
    """Return the network with queues that leave PFC its headroom. Raises `LocalError` for a capacity that is given and
    leaves none."""
    pfc = network.pfc
    if pfc is None:
        return network
    rates = [NodeRate(node.rate or network.rate) for node in nodes.values()]
    if "queue_capacity" not in reader.data.get("fabric", {}):
        network = with_headroom(network, rates)
    elif network.capacity < (least := headroom(network, pfc, rates)):
        wrong = f"{network.capacity} bytes leave no headroom for pfc"
        raise reader.refuse("fabric.queue_capacity", wrong, f"{least} bytes and more", id="inconsistent-values")
    buffer = None if network.rules is None else network.rules.shared_buffer
    if buffer is not None and buffer < (least := headroom(network, pfc, rates, shared=True)):
        raise reader.refuse(
            "switch.shared_buffer", f"{buffer} bytes are no headroom for pfc", f"{least} bytes and more",
            id="inconsistent-values"
        )  # fmt: skip
    return network
