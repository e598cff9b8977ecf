"""What stands between a wire and a transport header: Ethernet, IPv4 or IPv6, UDP. Built once a flow, read once a flow.

Packets become frames, and frames packets, in a `Framer`: one for each transport (`framer_uet`, `framer_roce`).
"""

from typing import NamedTuple, Protocol

from uetproto.emulator.network.link import ETHERNET_SIZE
from uetproto.engine.contract import Datagram
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import ETHERNET, IPV4, IPV6, EtherType, internet_checksum

CACHE = 8192
"""Lower headers that a framer remembers, each way; then it starts anew."""

_ETHERNET, _IPV4, _IPV6 = (codec_of(header) for header in (ETHERNET, IPV4, IPV6))
_TTL = 64


class Framer(Protocol):
    """Packets to frames and back, for one address. Counts what it does not let through."""

    bad_crc: int
    """Dropped: the trailer does not match."""
    bad_header: int
    """Dropped: lower headers that contradict themselves or a wrong IPv4 checksum."""
    foreign: int
    """Dropped: another address or protocol."""

    def frame(self, packet: Datagram, /) -> bytes:
        """No byte for a packet that must not leave."""

    def packet(self, frame: bytes, /) -> Datagram | None:
        """None for what is dropped: silently, but counted."""

    def repeats(self, packet: Datagram, /) -> bool:
        """It was sent before."""


def mac_of(address: int) -> int:
    """02:00, then the IPv4 address, or the last four bytes of the IPv6 address."""
    return 0x0200 << 32 | address & 0xFFFFFFFF


def ip_size(ip_version: int) -> int:
    """Bytes of the IP header."""
    return _IPV4.size if ip_version == 4 else _IPV6.size


def lower_head(
    *, src: int, dst: int, ip_version: int, dst_mac: int, dscp: int, ecn: int, protocol: int, size: int,
    hop_limit: int = _TTL, flow_label: int = 0,
) -> bytes:  # fmt: skip
    """Ethernet and IP headers in front of `size` bytes."""
    common = {"dscp": dscp, "ecn": ecn, "src": src, "dst": dst}
    if ip_version == 4:
        kind = EtherType.IPV4
        values = common | {
            "ihl": 5, "total_length": _IPV4.size + size, "df": 1, "ttl": hop_limit, "protocol": protocol,
        }  # fmt: skip
        values["checksum"] = internet_checksum(_IPV4.encode(values))
        ip = _IPV4.encode(values)
    else:
        kind = EtherType.IPV6
        ip = _IPV6.encode(
            common | {"flow_label": flow_label, "payload_length": size, "next_header": protocol, "hop_limit": hop_limit}
        )
    return _ETHERNET.encode({"dst": dst_mac, "src": mac_of(src), "type": kind}) + ip


class Lower(NamedTuple):
    """What Ethernet and IP headers say."""

    src: int
    dst: int
    dscp: int
    ecn: int
    protocol: int
    start: int
    """Of what stands behind them."""
    size: int
    """Bytes of that."""
    good: bool
    """They do not contradict themselves."""


def read_lower(head: bytes, ip_version: int) -> Lower | None:
    """None for another EtherType. `head` is long enough for both headers."""
    kind = EtherType.IPV4 if ip_version == 4 else EtherType.IPV6
    if _ETHERNET.decode(head)["type"] != kind:
        return None
    start = ETHERNET_SIZE + ip_size(ip_version)
    if ip_version == 4:
        ip = _IPV4.decode(head, ETHERNET_SIZE)
        good = ip["version"] == 4 and ip["ihl"] == 5 and not internet_checksum(head[ETHERNET_SIZE:start])
        size, protocol = ip["total_length"] - _IPV4.size, ip["protocol"]
    else:
        ip = _IPV6.decode(head, ETHERNET_SIZE)
        good = ip["version"] == 6
        size, protocol = ip["payload_length"], ip["next_header"]
    return Lower(ip["src"], ip["dst"], ip["dscp"], ip["ecn"], protocol, start, size, good)
