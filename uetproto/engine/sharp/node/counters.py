# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node has counters of each port, under the published names (sharp.md §1.8).

sharp.md has only the names of the counters and their order. This project chose what each counter counts, and the
docstrings below say it. The published counters of the transport belong to the carrier, and stay 0 here. Each message
counts as one packet.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from uetproto.engine.sharp.management import ALL_PORTS, OTHER_PORT, PARENT_PORT, NodeTree


@dataclass(slots=True)
class PortCounters:
    """These are the counters of one port of an aggregation node."""

    packets_sent: int = 0
    """Number of messages sent; also published as `rcds_sent_packets`."""
    rcds_sent_bytes: int = 0
    hba_received_packets: int = 0
    """Number of messages received, also those that are discarded."""
    hba_received_bytes: int = 0
    retry_packets_sent: int = 0
    """Number of messages sent with RETX."""
    rnr_events: int = 0
    """Number of NACKs sent to this port."""
    rnr_naks: int = 0
    """Number of NACKs with OST_EXHAUSTED received from this port."""
    out_of_sequence_naks: int = 0
    """Number of NACKs with SEQ_AHEAD or SEQ_STALE received from this port."""
    timeout_events: int = 0
    """Number of times that T_ost expired without a request of this child, that T_result expired without a result of the
    parent, or that missed heartbeats ended the connection."""
    sharp_discards: int = 0
    """Number of messages from this port that were dropped without an answer."""

    def read(self) -> dict[str, int]:
        """Return the counters by published name."""
        return {**asdict(self), "rcds_sent_packets": self.packets_sent}


class PortsByConnection(dict[int | None, PortCounters]):
    """This dict maps each connection to the counters of its port; the key None stands for multicast groups."""

    def __init__(self, trees: Mapping[int, NodeTree]) -> None:
        super().__init__()
        self._trees = trees
        self.by_port: dict[int, PortCounters] = {}
        """Maps port numbers to counters, which outlive the connections, as the counters of a switch do."""

    def __missing__(self, conn: int | None) -> PortCounters:
        found = self[conn] = self.by_port.setdefault(self._port_of(conn), PortCounters())
        return found

    def _port_of(self, conn: int | None) -> int:
        for tree in self._trees.values() if conn is not None else ():
            if conn == tree.parent:
                return PARENT_PORT
            if conn in tree.child_of:
                return tree.child_of[conn]
        return OTHER_PORT

    def of(self, port: int) -> Counter[str]:
        """Return the counters of a port by published name. The port `ALL_PORTS` has the sums over all ports."""
        total: Counter[str] = Counter()
        for number, counters in self.by_port.items():
            if port in (number, ALL_PORTS):
                total.update(counters.read())
        return total
