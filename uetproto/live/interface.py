# SPDX-License-Identifier: GPL-2.0-only
"""This module has the description of a live interface: an address of this host, and how packets leave and enter it."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from uetproto.errors import LocalError, similar, typed
from uetproto.framing.security import Security
from uetproto.impair.faults import Faults

LOCAL = "local"
"""Name of the node of this host in a fabric or a network on a live link."""
AUTO = "auto"
CHECKSUMS = (AUTO, "on", "off")


@dataclass(frozen=True, slots=True)
class Interface:
    """This record describes an interface on which an endpoint lives. Raises `LocalError` for an illegal value.

    The sockets bind to `local` and to no other address.
    """

    local: str
    """IPv4 or IPv6 address of this host."""
    path: str = AUTO
    """Name of the path between engine and link, one of `live.PATHS`, or "auto": the best one that this process may
    use."""
    device: str | None = None
    """Name of the network interface, such as "eth0". It is needed for link-local addresses, for the path tap, and for
    an address of our own on the path packet."""
    vlan: int | None = None
    """VLAN of the frames of the paths packet and tap. None: they have no tag."""
    local_port: int | None = None
    """UDP port at which packets arrive. None: the port to which packets are sent."""
    checksum: str = AUTO
    """UDP checksum of sent packets: "on", "off", or "auto". "auto" means off over IPv4, and on over IPv6 until a peer
    has said that it takes packets without one."""
    receive_buffer: int = 4 << 20
    """Number of bytes that the kernel is asked to keep for packets that have arrived."""
    entropies: int = 256
    """Largest number of entropy values, each of which takes a socket on the path udp."""
    segmentation: bool = False
    """Whether the kernel may be handed several packets of one flow at once (UDP_SEGMENT)."""
    capture: str | None = None
    """Name of a capture file, .pcapng or .pcap (also .gz), for all packets that are sent and received."""
    faults: Faults | None = None
    """Faults that frames meet between engine and path."""
    faults_received: bool = True
    """Whether frames that are received meet the faults, too, as nobody else does them."""
    security: Security | None = None
    """Secure domain whose packets are sealed, with one member, this end (`framing.security`). None: they travel in
    clear, as those of RoCE always do."""
    seed: int | None = None
    """Seed of PDCIDs, PSNs, entropy values and faults. None: they differ in each run."""

    def __post_init__(self) -> None:
        typed("local", self.local, str, "an IPv4 or IPv6 address")
        _ = self.address
        for name, least, most in (
            ("local_port", 1, 65535), ("vlan", 1, 4094), ("receive_buffer", 2048, 1 << 30), ("entropies", 1, 1 << 16),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is None and name in ("local_port", "vlan"):
                continue
            if type(value) is not int or not least <= value <= most:
                raise LocalError(name, f"{value!r} is not legal", f"{least} … {most}", id="out-of-range")
        if self.checksum not in CHECKSUMS:
            raise LocalError("checksum", f"{self.checksum!r} is not legal", ", ".join(CHECKSUMS), id="unknown-name")
        if self.security is not None:
            typed("security", self.security, Security, "Security(...)")
            if len(self.security.members) != 1:
                raise LocalError(
                    "security", f"{len(self.security.members)} members", "one, which is this end", id="wrong-count"
                )
        if self.faults is not None:
            typed("faults", self.faults, Faults, "Faults(...)")
            for name in ("drop", "trim", "corrupt", "duplicate", "reorder", "delay"):
                share = getattr(self.faults, name)
                if not isinstance(share, frozenset) and not 0 <= share <= 1:
                    raise LocalError(
                        f"faults.{name}", f"{share!r} is not legal", "0 … 1, or a set of frame numbers",
                        id="out-of-range"
                    )  # fmt: skip
        if self.segmentation and (self.entropies != 1 or self.checksum != "on"):
            # With SO_NO_CHECK the kernel answers EINVAL, and one call sends from one socket.
            raise LocalError(
                "segmentation", "needs one entropy value and the UDP checksum", "entropies=1, checksum=on",
                id="no-effect"
            )  # fmt: skip

    @property
    def address(self) -> IPv4Address | IPv6Address:
        """Return the address. Raises `LocalError` for a text that is none."""
        return address_of("local", self.local)


def address_of(name: str, text: str) -> IPv4Address | IPv6Address:
    """Return the address in the text of the argument `name`, also in that of a GID (roce.md §1). Raises `LocalError` if
    the text is no host's address."""
    try:
        found = ip_address(text)
    except ValueError:
        raise LocalError(
            name, f"{text!r} is not legal", "an IPv4 or IPv6 address, such as 10.0.0.1", id="wrong-address"
        ) from None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:  # a GID of RoCE
        found = found.ipv4_mapped
    if found.is_unspecified or found.is_multicast or (isinstance(found, IPv6Address) and found.scope_id):
        raise LocalError(
            name, f"{text} is not the address of one host", "an address, such as 10.0.0.1 or fd00::1",
            id="wrong-address"
        )  # fmt: skip
    return found


def known(name: str, value: str, names: dict[str, object]) -> None:
    """Raise `LocalError` unless `value` is one of `names` or "auto"."""
    if value != AUTO and value not in names:
        raise LocalError(
            name, f"{value!r} is not legal{similar(value, names)}", ", ".join((*names, AUTO)), id="unknown-name"
        )
