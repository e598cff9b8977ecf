"""What an aggregation node counts of each of its ports, under the published names (sharp.md §1.8).

The page has names and order only. What each counts is a **choice**: the docstrings below; all others, those of the
transport, stay 0 here, since the carrier has them. A message is a packet.
"""

from collections import Counter
from collections.abc import Mapping

from uetproto.engine.sharp.node.pool import NodeTree

ALL_PORTS = 255
PARENT_PORT = 254
"""**Choice**: the parents of all trees. A child has its child_idx, whatever the tree; none is above 251."""
OTHER_PORT = 253
"""**Choice**: multicast groups, and connections that no tree has."""


class PortCounters:
    """Of one port."""

    __slots__ = (
        "hba_received_bytes", "hba_received_packets", "out_of_sequence_naks", "packets_sent", "rcds_sent_bytes",
        "retry_packets_sent", "rnr_events", "rnr_naks", "sharp_discards", "timeout_events",
    )  # fmt: skip

    def __init__(self) -> None:
        self.packets_sent = 0
        """Messages, also `rcds_sent_packets`."""
        self.rcds_sent_bytes = 0
        self.hba_received_packets = 0
        """Messages, whatever becomes of them."""
        self.hba_received_bytes = 0
        self.retry_packets_sent = 0
        """With RETX."""
        self.rnr_events = 0
        """NACK to this port."""
        self.rnr_naks = 0
        """NACK OST_EXHAUSTED from it."""
        self.out_of_sequence_naks = 0
        """Any other NACK from it: SEQ_AHEAD, SEQ_STALE."""
        self.timeout_events = 0
        """T_ost without a request of this child, T_result without a result of the parent, all heartbeats missed."""
        self.sharp_discards = 0
        """Messages from it that no row of a table takes."""

    def read(self) -> dict[str, int]:
        found = {name: getattr(self, name) for name in self.__slots__}
        return {**found, "rcds_sent_packets": self.packets_sent}


class PortsByConnection(dict[int | None, PortCounters]):
    """The port of each connection, found once; None: multicast groups."""

    def __init__(self, trees: Mapping[int, NodeTree]) -> None:
        super().__init__()
        self._trees = trees
        self.by_port: dict[int, PortCounters] = {}
        """They outlive connections, as those of a switch do."""

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
        """By published name; of a port or of all."""
        total: Counter[str] = Counter()
        for number, counters in self.by_port.items():
            if port in (number, ALL_PORTS):
                total.update(counters.read())
        return total


__all__ = ["ALL_PORTS", "OTHER_PORT", "PARENT_PORT", "PortCounters", "PortsByConnection"]
