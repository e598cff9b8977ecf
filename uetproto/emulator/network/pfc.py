# SPDX-License-Identifier: GPL-2.0-only
"""This module has priority-based flow control: a full switch pauses its neighbours and drops no data (roce.md §13).

`Pauser` is the part in the switch. It counts the waiting bytes of each neighbour, and sends pause frames. `PauseGate`
is the part at a node, between its NIC and its link, and `TrunkPort` the part at a switch whose neighbour is a switch.
Only data can be paused; the DSCP of a frame says whether it is data.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.impair.link import FrameReceiver, FrameSender
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import ETHERNET, PFC, EtherType

DESTINATION = 0x0180C2000001
"""Destination MAC address of pause frames, which are not forwarded."""

SWITCH = 0x02FF00000000
"""Source MAC address of pause frames. It is locally administered, and differs from all addresses of `framer.mac_of`."""

QUANTUM = 64
"""Number of bytes that a link sends in one quantum, the unit of pauses: 512 bit times."""

MIN_FRAME = 60
"""Size of a pause frame in bytes, padding included."""

ROOM = 16
"""Number of data frames that a gate holds. While the gate is full, its NIC makes no more data frames."""

_ETHERNET, _PFC = codec_of(ETHERNET), codec_of(PFC)
_MAC_CONTROL = EtherType.MAC_CONTROL.to_bytes(2, "big")
_OPCODE = 0x0101


@dataclass(frozen=True, slots=True, kw_only=True)
class Pfc:
    """These parameters say when the switch sends pause frames, and how long a pause lasts (roce.md §13)."""

    priority: int = 3
    """Priority class that is paused, 0 to 7."""
    xoff: int = 64 * 1024
    """Number of a neighbour's bytes that may wait in the switch before the neighbour has to pause."""
    xon: int = 32 * 1024
    """Number of a neighbour's waiting bytes below which a paused neighbour resumes."""
    quanta: int = 0xFFFF
    """Duration of a pause, in quanta of 512 bit times: 2 to 65535."""
    repeat: int = 0x8000
    """Time in quanta of 512 bit times after which a pause frame is repeated while the node has to pause. It is less
    than `quanta`."""

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= 7:
            raise LocalError("pfc", f"priority {self.priority}", "0 … 7", id="out-of-range")
        if not 0 < self.xon <= self.xoff:
            raise LocalError(
                "pfc", f"xon {self.xon}, xoff {self.xoff}", "0 < xon ≤ xoff, bytes", id="inconsistent-values"
            )
        if not 1 < self.quanta <= 0xFFFF:
            raise LocalError("pfc", f"quanta {self.quanta}", "2 … 65535", id="out-of-range")
        if not 0 < self.repeat < self.quanta:
            raise LocalError(
                "pfc", f"repeat {self.repeat}", f"1 … {self.quanta - 1}, less than quanta", id="inconsistent-values"
            )

    def frame(self, quanta: int) -> bytes:
        """Return a pause frame for the class `priority`. A frame with 0 quanta means resume."""
        lower = _ETHERNET.encode({"dst": DESTINATION, "src": SWITCH, "type": EtherType.MAC_CONTROL})
        body = _PFC.encode({"opcode": _OPCODE, "enable": 1 << self.priority, f"pause{self.priority}": quanta})
        return (lower + body).ljust(MIN_FRAME, b"\0")

    def quanta_of(self, frame: bytes) -> int | None:
        """Return the quanta of a pause frame for the class `priority`, or None for any other frame."""
        if len(frame) < ETHERNET_SIZE + _PFC.size or _ETHERNET.decode(frame)["dst"] != DESTINATION:
            return None
        body = _PFC.decode(frame, ETHERNET_SIZE)
        if body["opcode"] != _OPCODE or not body["enable"] >> self.priority & 1:
            return None
        return body[f"pause{self.priority}"]

    def most(self, *, rate: int, delay: int, mtu: int) -> int:
        """Return the largest number of one node's bytes that may wait in the switch, if no fault copies or delays the
        frames.

        `rate` (bit/s), `delay` (picoseconds) and `mtu` (bytes) are those of the node's link. The number is the sum of
        four parts:

        - `xoff` bytes, and the frame that exceeds `xoff`
        - the frames that arrive before the pause frame reaches the node. The pause frame first waits until the frame
          in transmission has been sent, and then needs the delay of the link
        - the frames that are on the link when the pause frame reaches the node
        - the frame that the node is sending at that instant
        """
        on_the_way = -(-2 * delay * rate // (8 * SECOND))
        return self.xoff + 3 * (mtu + ETHERNET_SIZE) + MIN_FRAME + on_the_way


@dataclass(slots=True)
class PfcIngress:
    """A PFC ingress is the input port of the switch for the frames of one neighbour, a node or a switch."""

    send: Callable[[bytes], None]
    """Function that sends a frame to the neighbour, before all frames that wait."""
    duration: Callable[[int], int]
    """Function that returns for how many picoseconds a number of bytes occupies the link to the neighbour."""
    bytes: int = 0
    """Number of the neighbour's data bytes that wait in all output queues together."""
    peak: int = 0
    paused: bool = False
    pauses: int = 0
    """Number of pause frames sent, including repeated ones."""
    resumes: int = 0


class Pauser:
    """A pauser counts, for each neighbour of a switch, how many of its bytes wait in the switch, and sends pause frames
    to neighbours that sent too many.

    Each waiting copy of a multicast frame counts. The source address tells the node that sent a frame. A frame from
    another address came over `arriving`; if there is no such port, the frame does not count.
    """

    def __init__(self, clock: Clock, pfc: Pfc, dscp: Dscp) -> None:
        self._clock = clock
        self._pfc = pfc
        self._dscp = dscp
        self._pause, self._resume = pfc.frame(pfc.quanta), pfc.frame(0)
        self.ports: dict[bytes, PfcIngress] = {}
        """Input ports of nodes. The key is the MAC address of the node."""
        self.arriving: PfcIngress | None = None
        """Input port from the switch whose frame this switch handles now."""
        self._from: dict[int, tuple[PfcIngress, int]] = {}  # port and copies of waiting frames of switches, by `id`

    def attach(self, mac: bytes, send: Callable[[bytes], None], duration: Callable[[int], int]) -> PfcIngress:
        """Add and return the input port for the node with the MAC address `mac`."""
        self.ports[mac] = port = PfcIngress(send, duration)
        return port

    def enters(self, frame: bytes) -> None:
        """Note that a frame begins to wait. If more than `xoff` bytes of its neighbour wait now, send a pause frame."""
        if not self._dscp.is_data(frame):
            return
        port = self.ports.get(frame[6:12])
        if port is None:
            port = self.arriving
            if port is None:
                return
            _, copies = self._from.get(id(frame), (port, 0))
            self._from[id(frame)] = port, copies + 1
        port.bytes += len(frame)
        port.peak = max(port.peak, port.bytes)
        if port.bytes > self._pfc.xoff and not port.paused:
            port.paused = True
            self._tell(port)

    def leaves(self, frame: bytes) -> None:
        """Note that a frame no longer waits. If fewer than `xon` bytes of its neighbour wait now, end the pause."""
        if not self._dscp.is_data(frame):
            return
        port = self.ports.get(frame[6:12])
        if port is None:
            if id(frame) not in self._from:
                return
            port, copies = self._from.pop(id(frame))
            if copies > 1:
                self._from[id(frame)] = port, copies - 1
        port.bytes -= len(frame)
        if port.bytes < self._pfc.xon and port.paused:
            port.paused = False
            port.resumes += 1
            port.send(self._resume)

    def _tell(self, port: PfcIngress) -> None:
        port.pauses += 1
        port.send(self._pause)
        self._clock.at(self._clock.now + port.duration(QUANTUM * self._pfc.repeat), self._again, (port, port.resumes))

    def _again(self, told: tuple[PfcIngress, int]) -> None:
        port, resumes = told
        if port.paused and port.resumes == resumes:
            self._tell(port)


def is_mac_control(frame: bytes) -> bool:
    """Return whether a frame is a MAC control frame, such as a pause frame, which concerns only its link."""
    return frame[12:ETHERNET_SIZE] == _MAC_CONTROL


@dataclass(slots=True)
class LinkPause:
    """A link pause is the state that pause frames give to one link: whether data may be sent."""

    clock: Clock
    duration: Callable[[int], int]
    """Function that returns for how many picoseconds a number of bytes occupies the link."""
    pfc: Pfc
    on_end: Callable[[], None]
    """Function that is called when a pause ends."""
    ignored: int = 0
    """Number of MAC control frames that were ignored because they are malformed, have another address, or concern
    another class."""
    pauses: int = 0
    """Number of pause frames that arrived. Frames that mean resume are not counted."""
    _since: int | None = None  # instant at which the current pause began; None: not paused
    _until: int = 0
    _earlier: int = 0  # picoseconds of earlier pauses

    @property
    def holds(self) -> bool:
        """Return whether data may not be sent now."""
        return self._since is not None

    @property
    def total(self) -> int:
        """Return the total duration of all pauses until now, in picoseconds."""
        return self._earlier + (0 if self._since is None else self.clock.now - self._since)

    def take(self, frame: bytes) -> None:
        """Take a MAC control frame. A pause frame for the class `Pfc.priority` starts or ends a pause; other frames
        are ignored."""
        quanta = self.pfc.quanta_of(frame)
        if quanta is None:
            self.ignored += 1
        elif quanta:
            self._begin(quanta)
        elif self._since is not None:
            self._end()

    def _begin(self, quanta: int) -> None:
        """Pause from now on; a later pause frame replaces the one before."""
        self.pauses += 1
        now = self.clock.now
        if self._since is None:
            self._since = now
        self._until = until = now + self.duration(QUANTUM * quanta)
        self.clock.at(until, self._over, until)

    def _over(self, until: int) -> None:
        """End the pause that holds to `until`, unless it has ended or was extended."""
        if self._since is not None and self._until == until:
            self._end()

    def _end(self) -> None:
        self._earlier, self._since = self.total, None
        self.on_end()


class PausableQueue(Protocol):
    """A pausable queue is an output queue whose data can be held back. `queue.OutputQueue` is one."""

    def ahead(self, frame: bytes) -> None:
        """Send a frame before all frames that wait."""

    def hold(self) -> None:
        """Send no data from now on."""

    def release(self) -> None:
        """Send data again."""


class TrunkPort:
    """A trunk port is the port of a switch that leads to another switch, with PFC. It takes what arrives there: pause
    frames hold back the data of its output queue, and all other frames go to the switch."""

    def __init__(self, clock: Clock, pauser: Pauser, switch: FrameReceiver, pfc: Pfc) -> None:
        """Make the port of a switch, whose waiting bytes `pauser` counts. `lead` tells its output queue."""
        self._clock, self._pauser, self._switch, self._pfc = clock, pauser, switch, pfc

    def lead(self, queue: PausableQueue, duration: Callable[[int], int]) -> PfcIngress:
        """Set the output queue of the port, and for how many picoseconds a number of bytes occupies the link behind it.

        Return the input port, for its counters.
        """
        self._queue = queue
        self.pause = LinkPause(self._clock, duration, self._pfc, queue.release)
        self.ingress = PfcIngress(queue.ahead, duration)
        return self.ingress

    def take(self, frame: bytes) -> None:
        """Take a frame that arrives now."""
        if is_mac_control(frame):
            self.pause.take(frame)
            if self.pause.holds:
                self._queue.hold()
            return
        self._pauser.arriving = self.ingress
        self._switch.take(frame)
        self._pauser.arriving = None


@dataclass(slots=True)
class PauseGate:
    """A pause gate passes frames from a NIC to its link one at a time. When a pause frame arrives, the link holds at
    most the data frame that it is sending, and no other data frame leaves until the pause ends.

    A pause holds only data frames. All other frames leave also during a pause, and before all waiting data frames.
    """

    clock: Clock
    link: FrameSender
    duration: Callable[[int], int]
    """Function that returns for how many picoseconds a number of bytes occupies the link to the switch."""
    pfc: Pfc
    dscp: Dscp
    port: FrameReceiver = field(init=False)
    """NIC that takes the arriving frames, except MAC control frames."""
    on_room: Callable[[], None] = field(init=False)
    """Function that is called when all waiting data frames have left."""
    pause: LinkPause = field(init=False)
    _data: deque[bytes] = field(default_factory=deque)
    _others: deque[bytes] = field(default_factory=deque)
    _awake: bool = False  # whether an event will serve the gate when the link is free

    def __post_init__(self) -> None:
        self.pause = LinkPause(self.clock, self.duration, self.pfc, self._go)

    @property
    def room(self) -> int:
        """Return how many more data frames the gate can hold. Control frames pass even a full gate."""
        return max(0, ROOM - len(self._data))

    # To the link

    @property
    def busy_until(self) -> int:
        return self.link.busy_until

    def send(self, frame: bytes) -> int:
        """Send a frame now, or as soon as the gate lets it pass. Return the current time, as the time of sending is not
        known yet.
        """
        (self._data if self.dscp.is_data(frame) else self._others).append(frame)
        self._serve()
        return self.clock.now

    def send_many(self, frames: Sequence[bytes]) -> list[int]:
        """Send the frames of a train, as `send` does one after the other."""
        return [self.send(frame) for frame in frames]

    def _serve(self) -> None:
        """Send the next frame, if the link is free; if more may follow, schedule an event for it."""
        if self._awake:
            return
        if self.clock.now >= self.link.busy_until:
            frames = self._next()
            if frames:
                self.link.send(frames.popleft())
        if self._next():
            self._awake = True
            self.clock.at(self.link.busy_until, self._free)

    def _next(self) -> deque[bytes]:
        """Return the queue whose first frame is next; it is empty if no frame may leave."""
        return self._others if self._others or self.pause.holds else self._data

    def _go(self) -> None:
        """Send the next frame after the link became free or a pause ended; if no data waits, tell the NIC."""
        self._serve()
        if not self._data:
            self.on_room()

    def _free(self, _: object) -> None:
        self._awake = False
        self._go()

    # From the link

    def take(self, frame: bytes) -> None:
        """Pass an arriving frame on to the NIC, unless it is a MAC control frame, which may start or end a pause."""
        if is_mac_control(frame):
            self.pause.take(frame)
        else:
            self.port.take(frame)
