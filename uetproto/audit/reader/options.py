"""These options tell an audit what the capture promises, where the transports are, which rules are asked."""

from dataclasses import dataclass

from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `uetproto audit` (interfaces.md §8) that change what is found."""

    complete: bool = False
    """Whether the capture has every packet: rules about a packet that was not seen are judged."""
    ordered: bool = False
    """Whether the order of capture is that of sending."""
    mirror: bool = False
    """Whether copies of a packet that a mirror port made count as one packet."""
    rules: tuple[str, ...] = ()
    """Globs that select rules by id; one that begins with "-" excludes rules. Empty means all rules."""
    keys: KeyRing | None = None
    """Keys that open sealed packets."""
    personality: str | None = None
    """Implementation whose known deviations are reported as notes."""
    max_flows: int = 65_536
    """Number of conversations of each kind that are followed at a time."""
    crc: str = "auto"
    """Whether packets end with a CRC32C; this and the next options are those of `decode`."""
    udp_port: int = UDP_PORT
    ip_protocol: int = IP_PROTOCOL
    roce_port: int = ROCE_PORT
    rd: str = "raw"
