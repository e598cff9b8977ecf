# SPDX-License-Identifier: GPL-2.0-only
"""This module binds UET to UDP and to native IP, before any layer is made: the first packet has the layers made."""

from typing import Any, ClassVar

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, split_bottom_up

from uetproto.wire.headers.numbers import IP_PROTOCOL, UDP_PORT


class Uet(Packet):  # type: ignore[misc]
    """This class is bound to UDP: it dissects to the PDS or TSS layer that the first two bytes announce, or to Raw."""

    __module__ = "uetproto.layers.uet"
    name = "UET"
    fields_desc: ClassVar[list[Any]] = []

    @classmethod
    def dispatch_hook(cls, _pkt: bytes = b"", *args: Any, _underlayer: Any = None, **kwargs: Any) -> Any:
        if not _pkt:
            return cls
        from uetproto.layers.uet import first_layer

        return first_layer(_pkt, _underlayer)


class _NativeUet(Packet):  # type: ignore[misc]
    """This class is bound to IP: it dissects to the layer of the entropy header, or to Raw."""

    @classmethod
    def dispatch_hook(cls, *args: Any, **kwargs: Any) -> Any:
        from uetproto.layers.uet import ENTROPY

        return ENTROPY.dispatch_hook(*args, **kwargs)


def bind_bottom_up(udp_port: int, ip_protocol: int) -> None:
    """Dissect UET behind these numbers, before other layers that are bound, and no longer behind earlier ones."""
    for lower, upper, announced in (
        (UDP, Uet, {"dport": udp_port}),
        (IP, _NativeUet, {"proto": ip_protocol}),
        (IPv6, _NativeUet, {"nh": ip_protocol}),
    ):
        split_bottom_up(lower, upper)
        lower.payload_guess = [(announced, upper), *lower.payload_guess]


bind_bottom_up(UDP_PORT, IP_PROTOCOL)
