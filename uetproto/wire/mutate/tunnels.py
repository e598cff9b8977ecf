# SPDX-License-Identifier: GPL-2.0-only
"""This module puts frames into tunnels, as switches and mirror ports do.

What is in the tunnel does not change, so that tools that look into tunnels find what they find without one.
"""

from collections.abc import Callable

from uetproto.wire.headers.ethernet import EtherType, IpProtocol
from uetproto.wire.headers.tunnels import GENEVE, GRE, MPLS, VXLAN, TunnelProtocol
from uetproto.wire.mutate.frame import Mutation, MutationRng
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.stack import encode

_MACS = {"dst": 0x0200_0000_AA02, "src": 0x0200_0000_AA01}
_HOSTS = {"src": 0xC000_0201, "dst": 0xC000_0202, "ecn": 0, "ttl": 64}
"""Ends of a tunnel: 192.0.2.1 and 192.0.2.2, of RFC 5737."""
_IP_TYPES = frozenset({EtherType.IPV4, EtherType.IPV6})
_ETHERNET_SIZE = 14
_NETWORK = 7
"""VNI, key or session: all frames are of one network."""


def _over_udp(header: str, **values: int) -> list[Layer]:
    udp = Layer("udp", {"sport": 49_152, "checksum": 0})
    return [*_over_ip(IpProtocol.UDP), udp, Layer(header, values)]


def _over_ip(protocol: int) -> list[Layer]:
    return [Layer("ethernet", _MACS | {"type": EtherType.IPV4}), Layer("ipv4", _HOSTS | {"protocol": protocol})]


def _vxlan(rng: MutationRng) -> list[Layer]:
    return _over_udp(VXLAN.name, vni=_NETWORK)


def _geneve(rng: MutationRng) -> list[Layer]:
    return _over_udp(GENEVE.name, protocol=TunnelProtocol.TRANSPARENT_ETHERNET, vni=_NETWORK)


def _gre(rng: MutationRng) -> list[Layer]:
    head = {"key_present": 1, "protocol": TunnelProtocol.TRANSPARENT_ETHERNET}
    return [*_over_ip(IpProtocol.GRE), Layer(GRE.name, head), Layer("gre.key", {"key": _NETWORK})]


def _erspan(rng: MutationRng) -> list[Layer]:
    head = {"sequence_present": 1, "protocol": TunnelProtocol.ERSPAN}
    return [
        *_over_ip(IpProtocol.GRE), Layer(GRE.name, head), Layer("gre.sequence", {"sequence": rng.getrandbits(32)}),
        Layer("erspan.ii", {"version": 1, "vlan": 100, "session_id": _NETWORK}),
    ]  # fmt: skip


def _mpls(rng: MutationRng) -> list[Layer]:
    labels = [Layer(MPLS.name, {"label": 16 + bottom, "bottom": bottom, "ttl": 64}) for bottom in (0, 1)]
    return [Layer("ethernet", _MACS | {"type": EtherType.MPLS}), *labels]


TUNNELS: dict[str, Callable[[MutationRng], list[Layer]]] = {
    "vxlan": _vxlan, "geneve": _geneve, "gre": _gre, "erspan": _erspan, "mpls": _mpls,
}  # fmt: skip
"""Headers of each tunnel, by the name of the tunnel."""
ABOUT_TUNNELS = {
    "vxlan":  "the frame in a tunnel of VXLAN, with the VNI 7",
    "geneve": "the frame in a tunnel of GENEVE, with the VNI 7",
    "gre":    "the frame in a tunnel of GRE with the key 7",
    "erspan": "the frame as a mirror port sends it, by ERSPAN type II",
    "mpls":   "the IP packet behind two labels of MPLS",
}  # fmt: skip
"""Line of text about each tunnel. Nothing is wrong in it."""


def in_tunnel(name: str, frame: bytes, rng: MutationRng) -> Mutation | None:
    """Put an Ethernet frame into a tunnel, which is one of `TUNNELS`. Return None if the tunnel cannot carry it: MPLS
    carries IP packets. Raises `KeyError` for an unknown name."""
    inside = frame
    if name == MPLS.name:
        if int.from_bytes(frame[12:14], "big") not in _IP_TYPES:
            return None
        inside = frame[_ETHERNET_SIZE:]
    whole = encode(Packet(TUNNELS[name](rng), inside), fill=True)
    return Mutation(whole, None, "tunnel", 0, len(frame), len(whole))
