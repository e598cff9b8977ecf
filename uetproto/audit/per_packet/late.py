# SPDX-License-Identifier: GPL-2.0-only
"""This module keeps the values of a packet that only later packets tell, such as the packet that acknowledges it.

They are columns of numbers, one entry a packet, because the values of a packet may come at any time up to the end of
the capture. All else of a packet can be written out at once.
"""

from array import array
from collections.abc import Callable
from typing import Any

SECOND = 10**9


class MessageLog:
    """This class keeps what is told of each message of a capture, by the index of the message."""

    def __init__(self) -> None:
        self.first = array("Q")
        """Number of the first packet."""
        self.last = array("Q")
        """Number of the packet with which nothing is missing; 0: there is none."""
        self.time_ns = array("q")
        """Time of the message in nanoseconds; -1: it is not known."""

    def add(self, first: int) -> int:
        """Add a message that begins with the packet `first`, and return its index."""
        self.first.append(first)
        self.last.append(0)
        self.time_ns.append(-1)
        return len(self.first) - 1


class LateValues:
    """This class keeps the late values of all packets of a capture. Packets count from 1; 0 in a column of packets
    means that there is none."""

    def __init__(self) -> None:
        self.acked_in, self.nacked_in, self.response_in = (array("Q", [0]) for _ in range(3))
        self.ack_ns = array("q", [-1])
        self.message, self.stream = (array("q", [-1]) for _ in range(2))
        self.messages = MessageLog()
        self.alias: dict[int, int] = {}
        """Maps the index of a stream of RoCE to that of its other direction, which was seen before."""

    def add(self) -> None:
        """Add a packet without values."""
        for column in (self.acked_in, self.nacked_in, self.response_in):
            column.append(0)
        for signed in (self.ack_ns, self.message, self.stream):
            signed.append(-1)

    def of(self, number: int) -> dict[str, Any]:
        """Return the late values of a packet by their names."""
        row: dict[str, Any] = {}
        for name, column in (
            ("uetp.acked_in", self.acked_in), ("uetp.nacked_in", self.nacked_in),
            ("uetp.response_in", self.response_in),
        ):  # fmt: skip
            if column[number]:
                row[name] = column[number]
        if self.ack_ns[number] >= 0:
            row["uetp.ack_time"] = self.ack_ns[number] / SECOND
        message = self.message[number]
        if message >= 0:
            log = self.messages
            row |= {"uetp.msg": message, "uetp.msg.first": log.first[message]}
            if log.last[message]:
                row["uetp.msg.last"] = log.last[message]
            if log.time_ns[message] >= 0:
                row["uetp.msg.time"] = log.time_ns[message] / SECOND
        stream = self.stream[number]
        if stream >= 0:
            row["uetp.qp_stream"] = self.alias.get(stream, stream)
        return row


Counter = Callable[[], int]
"""Type of a function that returns 0, 1, 2 and so on."""
