"""What an audit is told: what the capture promises, where the transports are, which rules are asked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT

if TYPE_CHECKING:  # loaded where there are keys
    from uetproto.engine.tss.keys import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `uetproto audit` (interfaces.md §8) that change what is found."""

    complete: bool = False
    """The capture has every packet: rules that rest on one that was not seen are judged."""
    ordered: bool = False
    """The order of capture is that of sending."""
    mirror: bool = False
    """Copies of a packet that a mirror port made are one packet."""
    rules: tuple[str, ...] = ()
    """Globs of ids; one that begins with "-" takes away. None: all rules."""
    keys: "KeyRing | None" = None
    """Opens sealed packets."""
    personality: str | None = None
    """Whose habits are notes."""
    max_flows: int = 65_536
    """Conversations of each kind that are followed at a time."""
    crc: str = "auto"
    """Whether packets end with a CRC32C, then how they are carried: as `decode` takes it."""
    udp_port: int = UDP_PORT
    ip_protocol: int = IP_PROTOCOL
    roce_port: int = ROCE_PORT
    rd: str = "raw"
