# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the layers below UET: Ethernet, VLAN tags, IP with options or an extension, UDP or entropy."""

from hypothesis import strategies as st

from uetproto.testing.strategies.headers import fields_of, numbers
from uetproto.wire.forms import FORMS, IP_PROTOCOL, UDP_PORT
from uetproto.wire.headers.ethernet import Ecn, EtherType, IpProtocol
from uetproto.wire.headers.uet_tss import ENTROPY
from uetproto.wire.packet import Layer
from uetproto.wire.stack import TRIMMED_DSCP

ENCAPSULATIONS = ("udp", "native")
IP_VERSIONS = (4, 6)
_DSCPS = tuple(value for value in range(64) if value not in TRIMMED_DSCP)
_FOLLOWS = {"udp": int(IpProtocol.UDP), "native": IP_PROTOCOL}
_PADN = (0, 1, 4, 0, 0, 0, 0)
"""An extension header of 8 bytes with the option PadN, behind its first byte, which says what follows."""
_NO_OPERATION = b"\x01"
_COMPUTED = {"ipv4": ("version", "ihl", "total_length", "checksum"), "ipv6": ("version", "payload_length"),
             "udp": ("length", "checksum")}  # fmt: skip


@st.composite
def lower_layers(
    draw: st.DrawFn, encapsulation: str | None, ip_version: int | None, ecn_capable: bool, port: int = UDP_PORT
) -> list[Layer]:
    """Draw the layers below a packet, without lengths and checksums, which encoding fills."""
    how = draw(st.sampled_from(ENCAPSULATIONS)) if encapsulation is None else encapsulation
    version = draw(st.sampled_from(IP_VERSIONS)) if ip_version is None else ip_version
    tags = draw(st.lists(st.sampled_from((int(EtherType.VLAN), int(EtherType.QINQ))), max_size=2))
    types = [*tags, int(EtherType.IPV4 if version == 4 else EtherType.IPV6)]
    extended = draw(st.booleans())
    layers = [_layer(draw, "ethernet", type=types[0])]
    layers += [_layer(draw, "vlan", type=following) for following in types[1:]]
    traffic = {"dscp": draw(st.sampled_from(_DSCPS)), "ecn": draw(numbers(Ecn.ECT1 if ecn_capable else 0, 3))}
    follows = _FOLLOWS[how]
    if version == 4:
        whole = {"df": 1, "mf": 0, "fragment_offset": 0, "protocol": follows}
        layers.append(_layer(draw, "ipv4", **traffic, **whole))
        if extended:
            layers.append(Layer("ipv4.options", {"raw": _NO_OPERATION * 4 * draw(numbers(1, 10))}))
    else:
        kinds = (int(IpProtocol.HOP_BY_HOP), int(IpProtocol.DESTINATION))
        layers.append(
            _layer(draw, "ipv6", **traffic, next_header=draw(st.sampled_from(kinds)) if extended else follows)
        )
        if extended:
            layers.append(Layer("ipv6.ext", {"raw": bytes((follows, *_PADN))}))
    layers.append(_layer(draw, "udp", dport=port) if how == "udp" else _layer(draw, ENTROPY.name))
    return layers


def _layer(draw: st.DrawFn, form: str, **known: int) -> Layer:
    """Draw a header with a value for every field but those that follow from bytes."""
    names = tuple(name for name in FORMS[form].names if name not in known and name not in _COMPUTED.get(form, ()))
    drawn = draw(fields_of(form, names)) | known
    return Layer(form, {name: drawn[name] for name in FORMS[form].names if name in drawn})
