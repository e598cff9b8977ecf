"""Addresses as numbers that say what they are: `::1` is neither 0.0.0.1 nor LID 1.

An IPv4 address is its number, any other has a mark above its bits.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Any

IPV4, IPV6, LID, MAC = 0, 1 << 128, 1 << 129, 1 << 130

ADDRESSED = {
    # header     sender  receiver  mark
    "ethernet": ("src",  "dst",    MAC),
    "lrh":      ("slid", "dlid",   LID),
    "ipv4":     ("src",  "dst",    IPV4),
    "ipv6":     ("src",  "dst",    IPV6),
    "grh":      ("sgid", "dgid",   IPV6),
}  # fmt: skip
"""The innermost of these that a packet has tells its ends."""


def bits_of(address: int) -> int:
    """The address as it is written in the header."""
    return address & (IPV6 - 1)


def address_text(address: int) -> str:
    """For people."""
    if address & IPV6:
        return str(IPv6Address(address ^ IPV6))
    if address & LID:
        return f"LID {address ^ LID}"
    if address & MAC:
        return (address ^ MAC).to_bytes(6, "big").hex(":")
    return str(IPv4Address(address))


def ends(src: int, dst: int) -> dict[str, Any]:
    """Sender and receiver for people: with these the `flow()` of most states begins."""
    return {"src": address_text(src), "dst": address_text(dst)}
