# SPDX-License-Identifier: GPL-2.0-only
"""This module defines trains: runs of packets that an engine sends at once, and that its driver handles as one.

The packets of a train belong to one message, have the same size, and leave one after the other. They differ in PSN, in
the position of their payload, and in entropy. An engine makes trains only for a driver that has asked for them; the
frames of a train are those of its packets sent one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

from uetproto.engine.contract import Buffer, Datagram, TrafficClass, Trim
from uetproto.engine.train_splits import TrainTally

_view: Callable[[bytes], memoryview] = memoryview
LEAST = 2
"""Number of packets below which no train is made."""


class PayloadRun(NamedTuple):
    """A payload run is what SES gives PDS for a train: successive packets of a message that have the same size."""

    first: int
    """Index of the first packet in its message."""
    front: bytes
    """Bytes of the SES header before the fields that differ between the packets."""
    tail: bytes
    """Bytes of the SES header behind these fields."""
    offset: int
    """Offset of the first payload in the message."""
    payloads: list[Buffer]
    """Payload of each packet; all have the same size."""


@dataclass(slots=True, eq=False)
class Train:
    """A train has the packets of a run, as `poll` returns them in place of one datagram for each packet."""

    src: int
    dst: int
    heads: list[bytes]
    """Transport header of each packet, or what is behind the header of the `sample`."""
    payloads: list[Buffer]
    entropies: list[int]
    ip_version: int
    sample: Datagram | None = None
    """Packet of the same size, whose header has the bytes with which all packets begin (RoCE). It is the same object
    for all trains that differ only in `heads` and `payloads`."""
    asks: range = range(0)
    """Indices of the packets that ask for an ACK (RoCE)."""
    layout: Struct | None = None
    """How each of the headers was packed (UET)."""
    seals: Sequence[Any] = ()
    """How the framer of the sender sealed the packets, for that of the receiver (TSS)."""

    @property
    def size(self) -> int:
        """Return the number of transport bytes of each packet."""
        return len(self.heads[0]) + len(self.payloads[0])

    def fix(self, frames: list[bytes], trailer: int) -> list[bytes]:
        """Let the payloads be those in the frames, each of which ends with `trailer` bytes that are no payload, and
        return the frames. The memory of the program, in which the payloads were, may change from now on."""
        end = len(frames[0]) - trailer
        start = end - len(self.payloads[0])
        self.payloads = list(map(itemgetter(slice(start, end)), map(_view, frames)))
        return frames

    def packet(self, index: int) -> Datagram:
        """Return a packet of the train by itself, as it arrives: all its transport bytes are in `header`."""
        kind, front = (Datagram, b"") if self.sample is None else (type(self.sample), self.sample.header)
        transport = b"".join((front, self.heads[index], self.payloads[index]))
        return kind(
            self.src, self.dst, transport, b"", TrafficClass.DATA, self.entropies[index], False, Trim.NO,
            self.ip_version,
        )  # fmt: skip


@final
@dataclass(slots=True, eq=False)
class TrainAck:
    """A train ACK acknowledges packets of a train in order. The driver keeps it until its frame has arrived."""

    packet: Datagram
    psn: int
    """Number up to which all packets have arrived."""
    receiver: int | None = None
    """Number of the connection at its receiver, or None if the ACK says more than that packets arrived in order."""
    sender: int = 0
    """Number of the connection at its sender."""
    answer: Any = None
    """Answer of the sender to each packet, or None."""
    frame: bytes = field(init=False)
    """Frame of the packet, once it was sent; so is `seal`."""
    seal: Any = field(init=False)
    """How the framer of the sender sealed the packet, or None."""
    at: int = field(init=False)
    """Instant at which the frame arrived, once it has arrived; so is `room`."""
    room: int = field(init=False)
    """Number of packets more that a later ACK may acknowledge and be quiet (`TrainEngine.quiet_acks`)."""


class ArrivingRun(Protocol):
    """An arriving run is the train of a peer whose packets an engine takes with less work than `receive`.

    The driver passes the packets in their order, from the one for which the run was admitted. Those before packet
    `quiet_to` cause no packet, no event and no timer; the driver reports them when it likes, but before any other call
    of the engine. Packet `quiet_to` causes an answer, and others are quiet again.
    """

    quiet_to: int
    """Index behind the last packet that the driver may report late."""
    answers: bool
    """Whether the packet behind it is passed to `answer` and `due`. If not, `receive` takes it."""
    apart: bool
    """Whether the connection of the run has nothing to send. Then its packets may be reported after a `poll` for which
    `TrainEngine.only_sends` is true."""
    place: Callable[[int], None]
    """Function that stores the payload of a packet of the train, given by its index, in the memory of its message.
    Raises `OSError` if this is not possible; then nothing has changed."""

    def settle(self, index: int, count: int, now: int) -> None:
        """Process `count` packets that end with packet `index`. `now` is when this packet arrived."""

    def answer(self, index: int) -> TrainAck | None:
        """Return the answer that packet `index` causes, and let it be quiet otherwise. If the driver does not poll now,
        the next `poll` returns its packet, too. Return None if `due` must process the packets first."""

    def due(self, index: int, count: int, now: int) -> TrainAck:
        """Process packets as `settle` does, and return the answer that the last one causes. If the driver does not poll
        now, the next `poll` returns its packet, too."""

    def renew(self, index: int, polled: bool) -> bool:
        """Find out again how many packets from `index` on are quiet. Return False if `receive` must take them."""

    def extend(self, train: Train) -> bool:
        """Go on with the packets of a train that arrives after the last packet of this one, while nothing else has
        happened to the engine. Return False, having done nothing, if `admit` must be asked."""


@runtime_checkable
class TrainEngine(Protocol):
    """A train engine is an engine that can send and receive trains."""

    @property
    def tally(self) -> TrainTally:
        """Return how many trains were sent, and why packets went by themselves."""

    def use_trains(self) -> bool:
        """Make trains from now on. Return False, and note why, if the configuration allows none."""

    def only_sends(self, now: int) -> bool:
        """Return whether `poll` at `now` would only send packets of connections that have something to send: no timer
        is due, and nothing waits that depends on other connections."""

    def admit(self, train: Train, index: int, polled: bool) -> ArrivingRun | None:
        """Return the run for the packets of a train that arrive from packet `index` on, or None if `receive` must take
        packet `index`. `polled` is whether the driver calls `poll` after each packet that arrives now."""

    def quiet_acks(self, receiver: int, psn: int, polled: bool) -> int | None:
        """Return how many more packets a later plain ACK of the connection `receiver` may acknowledge than one up to
        `psn` does, so that none of these ACKs causes a packet or an event. Return None if the one up to `psn` does.

        Of several quiet ACKs only the last one must be passed to `take_quiet_ack`, before any other call of the engine.
        """

    def take_quiet_ack(self, ack: "TrainAck", now: int) -> bool:
        """Process a quiet ACK that arrived at `now`. Return False, having done nothing, if `receive` must take it."""


class Taken(IntEnum):
    """This enumeration says what `MessageEngine.take_message` has done with a packet."""

    NO = 0
    """Nothing: `receive` must take what the frame holds."""
    YES = 1
    """It has processed the packet, and the driver polls the engine."""
    QUIETLY = 2
    """It has processed the packet, and there is nothing that a poll would do, or `events` or `deadline` would tell."""


@runtime_checkable
class MessageEngine(Protocol):
    """A message engine is an engine that can take packets of its peers as objects, if the driver has recognized their
    frames. Where an engine makes trains (`TrainEngine`), it takes no such packets."""

    def use_messages(self) -> bool:
        """Send such packets from now on. Return False if the configuration allows none, or trains are better."""

    def take_message(self, packet: Any, now: int) -> Taken:
        """Process a packet that a peer has sent, as `receive` does, unless `receive` must take what the frame holds."""
