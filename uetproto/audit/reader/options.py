"""These options tell an audit what is known of the capture, how to find the transports, and which rules to check."""

from dataclasses import dataclass

from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `uetproto audit` (interfaces.md §8) that change what the audit finds."""

    complete: bool = False
    """Whether the capture has every packet; then rules about missing packets are checked."""
    ordered: bool = False
    """Whether the packets were captured in the order in which they were sent."""
    mirror: bool = False
    """Whether copies of a packet that a mirror port made count as one packet."""
    rules: tuple[str, ...] = ()
    """Globs that select rules by id; one that begins with "-" excludes rules. Empty means all rules."""
    keys: KeyRing | None = None
    """Keys that open sealed packets."""
    personality: str | None = None
    """Implementation whose known deviations are reported as notes."""
    max_flows: int = 65_536
    """Number of conversations of each kind that are followed at the same time, over all interfaces of a file."""
    crc: str = "auto"
    """Whether packets end with a CRC32C. This option and the next four have the meaning that they have in `decode`."""
    udp_port: int = UDP_PORT
    ip_protocol: int = IP_PROTOCOL
    roce_port: int = ROCE_PORT
    rd: str = "raw"
