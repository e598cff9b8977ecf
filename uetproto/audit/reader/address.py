# SPDX-License-Identifier: GPL-2.0-only
"""This module represents an address by a number that also tells the type of address, so that the IPv6 address `::1`
differs from 0.0.0.1 and from LID 1.

The number of an IPv4 address is the address itself. In the number of any other address, one bit is set above the bits
of the address. This bit, the mark, tells the type of the address. Above the marks is the UDP port of an endpoint that
shares its address with its peer, and 0 otherwise. Above the port is the number of the network (`wire.words.tenants`),
as hosts in tunnels with different VNIs may have equal addresses.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from uetproto.wire.words.tenants import tenant_words

IPV4, IPV6, LID, MAC = 0, 1 << 128, 1 << 129, 1 << 130
_PORT_AT = 132
TENANT_AT = 148

ADDRESSED = {
    # header     sender  receiver  mark
    "ethernet": ("src",  "dst",    MAC),
    "lrh":      ("slid", "dlid",   LID),
    "ipv4":     ("src",  "dst",    IPV4),
    "ipv6":     ("src",  "dst",    IPV6),
    "grh":      ("sgid", "dgid",   IPV6),
}  # fmt: skip
"""Maps a form of header with addresses to three values: the field of the sender, the field of the receiver, and the bit
that marks the type in the number of an address. The innermost such header of a packet tells the packet's sender and
receiver."""


def bits_of(address: int) -> int:
    """Return the bits of an address as the header has them, without the bit that marks the type."""
    return address & (IPV6 - 1)


def at_port(address: int, port: int) -> int:
    """Return the number of an endpoint that has a port, as others share its address."""
    return address | port << _PORT_AT


@lru_cache(4_096)
def address_text(address: int) -> str:
    """Return an address as text, in the notation of its type."""
    if tenant := address >> TENANT_AT:
        return f"{address_text(address ^ tenant << TENANT_AT)} {tenant_words(tenant)}"
    if port := address >> _PORT_AT:
        return f"{address_text(address ^ port << _PORT_AT)} port {port}"
    if address & IPV6:
        return str(IPv6Address(address ^ IPV6))
    if address & LID:
        return f"LID {address ^ LID}"
    if address & MAC:
        return (address ^ MAC).to_bytes(6, "big").hex(":")
    return str(IPv4Address(address))


def ends(src: int, dst: int) -> dict[str, Any]:
    """Return the sender and the receiver as text, under the names `src` and `dst`. The `flow()` of most states begins
    with these two entries."""
    return {"src": address_text(src), "dst": address_text(dst)}
