# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the options of an audit: what is known of the capture, how to find the transports, and which
rules to check."""

from collections.abc import Sequence
from dataclasses import dataclass

from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.capture.base import CaptureInterface, StatedPort
from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """This record has the options of `uetproto audit` (interfaces.md §8) that change what the audit finds."""

    complete: bool = False
    """Whether the capture has every packet. Rules about missing packets are checked only if it has."""
    ordered: bool = False
    """Whether the packets were captured in the order in which they were sent. Rules about the order of packets are
    checked only if they were."""
    mirror: bool = False
    """Whether a packet and the copies of it, which mirror ports make, count as one packet."""
    rules: tuple[str, ...] = ()
    """Globs that select rules by id; a glob that begins with "-" excludes rules. An empty tuple selects all rules."""
    keys: KeyRing | None = None
    """Keys that open sealed packets, or None if there are no keys."""
    personality: str | None = None
    """Implementation whose known deviations are reported as notes, or None."""
    max_flows: int = 65_536
    """Greatest number of conversations of each type (such as PDCs or RoCE queue pairs) that are followed at the same
    time, over all interfaces of a file."""
    cc: str | None = None
    """Parameters of senders with NSCC, such as "rate=100 Gb/s,base_rtt=12 us"; None: those that captures state, or
    inferred ones."""
    stated_cc: str = ""
    """Comment of the interface, which may state these parameters, or where the packets were captured."""
    interfaces: Sequence[CaptureInterface] = ()
    """Interfaces of the capture, of which more may come while it is read; their comments may state the parameters of
    one sender towards one receiver."""
    crc: str = "auto"
    """Whether packets end with a CRC32C: `auto`, `on` or `off`. This option and `udp_port`, `ip_protocol`, `roce_port`
    and `rd` have the same meaning as in `decode`."""
    udp_port: int = UDP_PORT
    stated_ports: frozenset[StatedPort] = frozenset()
    """Further UDP ports of UET, which a capture states of itself."""
    ip_protocol: int = IP_PROTOCOL
    roce_port: int = ROCE_PORT
    rd: str = "raw"
