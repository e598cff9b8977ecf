"""Priority-based flow control: a full switch has its neighbours pause one class, and nothing is dropped (roce.md §13).

`Pauser` is the switch's side: it counts what waits from each station, and says pause. `Gate` is the station's side,
between its NIC and its link. One class can be paused: that of data, by the DSCP.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.link import Port, Sender
from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import ETHERNET, PFC, EtherType

DESTINATION = 0x0180C2000001
"""Of all pause frames: acted upon at the end of the link, never forwarded."""

SWITCH = 0x02FF00000000
"""Their source, the address of the switch itself: locally administered, and none that `framing.mac_of` makes."""

QUANTUM = 64
"""Bytes: pauses are told in 512 bit times."""

MIN_FRAME = 60
"""A pause frame is padded to this."""

ROOM = 16
"""Frames that a gate holds before its NIC makes no more."""

_ETHERNET, _PFC = codec_of(ETHERNET), codec_of(PFC)
_MAC_CONTROL = EtherType.MAC_CONTROL.to_bytes(2, "big")
_OPCODE = 0x0101


@dataclass(frozen=True, slots=True, kw_only=True)
class Pfc:
    """When the switch says pause, and for how long (§13)."""

    priority: int = 3
    """The class that is paused, 0–7."""
    xoff: int = 64 * 1024
    """Bytes from one station that wait in the switch: above, it has to pause …"""
    xon: int = 32 * 1024
    """… and below this it resumes."""
    quanta: int = 0xFFFF
    """How long a pause holds, 2–65535 times 512 bit times."""
    repeat: int = 0x8000
    """After how many it is told again, while it is in force; less than `quanta`."""

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= 7:
            raise LocalError("pfc", f"priority {self.priority}", "0 … 7")
        if not 0 < self.xon <= self.xoff:
            raise LocalError("pfc", f"xon {self.xon}, xoff {self.xoff}", "0 < xon ≤ xoff, bytes")
        if not 1 < self.quanta <= 0xFFFF:
            raise LocalError("pfc", f"quanta {self.quanta}", "2 … 65535")
        if not 0 < self.repeat < self.quanta:
            raise LocalError("pfc", f"repeat {self.repeat}", f"1 … {self.quanta - 1}, less than quanta")

    def frame(self, quanta: int) -> bytes:
        """A pause frame for the one class; 0: resume."""
        lower = _ETHERNET.encode({"dst": DESTINATION, "src": SWITCH, "type": EtherType.MAC_CONTROL})
        body = _PFC.encode({"opcode": _OPCODE, "enable": 1 << self.priority, f"pause{self.priority}": quanta})
        return (lower + body).ljust(MIN_FRAME, b"\0")

    def quanta_of(self, frame: bytes) -> int | None:
        """What a frame says to the one class; None for what is no pause frame, or is for other classes."""
        if len(frame) < ETHERNET_SIZE + _PFC.size or _ETHERNET.decode(frame)["dst"] != DESTINATION:
            return None
        body = _PFC.decode(frame, ETHERNET_SIZE)
        if body["opcode"] != _OPCODE or not body["enable"] >> self.priority & 1:
            return None
        return body[f"pause{self.priority}"]

    def most(self, *, rate: int, delay: int, mtu: int) -> int:
        """Bytes that may wait from a station whose link is such, if no fault doubles or holds its frames.

        Up to `xoff` and the frame that went over it; what comes until the pause frame, behind a frame under way, has
        reached the station, and what was on the link by then; last the frame that the station had begun.
        """
        on_the_way = -(-2 * delay * rate // (8 * SECOND))
        return self.xoff + 3 * (mtu + ETHERNET_SIZE) + MIN_FRAME + on_the_way


def check_capacity(capacity: int, shares: Iterable[int]) -> None:
    """A queue has to hold what may wait from all stations (`Pfc.most`): then it drops nothing of the class."""
    least = sum(shares)
    if capacity < least:
        raise LocalError("queue_capacity", f"{capacity} bytes leave no headroom for pfc", f"{least} bytes and more")


@dataclass(slots=True)
class Ingress:
    """A port of the switch as that by which frames come in."""

    send: Callable[[bytes], None]
    """Puts a frame on the link back, ahead of all others."""
    duration: Callable[[int], int]
    """Picoseconds of so many bytes on that link."""
    bytes: int = 0
    """Of the class, waiting in all output queues together."""
    peak: int = 0
    paused: bool = False
    pauses: int = 0
    """Pause frames sent, those that repeat one among them."""
    resumes: int = 0


class Pauser:
    """What waits in the switch, by the station that sent it, and the pause frames that come of it.

    Copies of a group count as often as they wait. A frame whose source address no port has is nobody's.
    """

    def __init__(self, clock: Clock, pfc: Pfc, dscp: Dscp) -> None:
        self._clock = clock
        self._pfc = pfc
        self._dscp = dscp
        self._pause, self._resume = pfc.frame(pfc.quanta), pfc.frame(0)
        self.ports: dict[bytes, Ingress] = {}
        """By MAC address of the station."""

    def attach(self, mac: bytes, send: Callable[[bytes], None], duration: Callable[[int], int]) -> Ingress:
        self.ports[mac] = port = Ingress(send, duration)
        return port

    def _port(self, frame: bytes) -> Ingress | None:
        return self.ports.get(frame[6:12]) if self._dscp.is_data(frame) else None

    def enters(self, frame: bytes) -> None:
        """It has to wait."""
        port = self._port(frame)
        if port is not None:
            port.bytes += len(frame)
            port.peak = max(port.peak, port.bytes)
            if port.bytes > self._pfc.xoff and not port.paused:
                port.paused = True
                self._tell(port)

    def leaves(self, frame: bytes) -> None:
        """It waits no longer."""
        port = self._port(frame)
        if port is not None:
            port.bytes -= len(frame)
            if port.bytes < self._pfc.xon and port.paused:
                port.paused = False
                port.resumes += 1
                port.send(self._resume)

    def _tell(self, port: Ingress) -> None:
        port.pauses += 1
        port.send(self._pause)
        self._clock.at(self._clock.now + port.duration(QUANTUM * self._pfc.repeat), self._again, (port, port.resumes))

    def _again(self, told: tuple[Ingress, int]) -> None:
        """A pause that is still the same is told again."""
        port, resumes = told
        if port.paused and port.resumes == resumes:
            self._tell(port)


@dataclass(slots=True)
class Gate:
    """Between a NIC and its link, both ways: it hands over one frame at a time, so that a pause stops all but one.

    Frames of other classes are never held back, and go before those that are.
    """

    clock: Clock
    link: Sender
    duration: Callable[[int], int]
    """Picoseconds of so many bytes on that link."""
    pfc: Pfc
    dscp: Dscp
    port: Port = field(init=False)
    """Takes what arrives and is no MAC control frame: the NIC."""
    on_room: Callable[[], None] = field(init=False)
    """Called when all that was held has left."""
    ignored: int = 0
    """MAC control frames that say nothing to the class: malformed, foreign, of another class."""
    pauses: int = 0
    """Pause frames that came, resumes not among them."""
    _data: deque[bytes] = field(default_factory=deque)
    _others: deque[bytes] = field(default_factory=deque)
    _awake: bool = False  # whether an event will look at the gate when the link is free
    _since: int | None = None  # since when it is closed
    _until: int = 0
    _paused: int = 0  # before `_since`

    @property
    def room(self) -> int:
        """Frames that it takes before it is full; control frames pass all the same."""
        return max(0, ROOM - len(self._data))

    @property
    def paused(self) -> int:
        """Picoseconds for which the class was paused until now."""
        return self._paused + (0 if self._since is None else self.clock.now - self._since)

    # To the link

    @property
    def busy_until(self) -> int:
        return self.link.busy_until

    def send(self, frame: bytes) -> int:
        """Now or later; returns now, for nobody knows when."""
        (self._data if self.dscp.is_data(frame) else self._others).append(frame)
        self._serve()
        return self.clock.now

    def _serve(self) -> None:
        """The next frame, if the link is free; if more may follow, an event will look for it."""
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
        """Those whose turn it is; empty: nothing may leave."""
        return self._others if self._others or self._since is not None else self._data

    def _go(self) -> None:
        """The link is free, or the pause is over; the NIC makes more when it could last be short of room."""
        self._serve()
        if not self._data:
            self.on_room()

    def _free(self, _: object) -> None:
        self._awake = False
        self._go()

    # From the link

    def take(self, frame: bytes) -> None:
        if frame[12:ETHERNET_SIZE] != _MAC_CONTROL:
            self.port.take(frame)
            return
        quanta = self.pfc.quanta_of(frame)
        if quanta is None:
            self.ignored += 1
        elif quanta:
            self._close(quanta)
        elif self._since is not None:
            self._open()

    def _close(self, quanta: int) -> None:
        """A later pause frame counts from when it comes, whatever the one before said."""
        self.pauses += 1
        now = self.clock.now
        if self._since is None:
            self._since = now
        self._until = until = now + self.duration(QUANTUM * quanta)
        self.clock.at(until, self._over, until)

    def _over(self, until: int) -> None:
        """A pause ends by itself, unless it was ended or made longer."""
        if self._since is not None and self._until == until:
            self._open()

    def _open(self) -> None:
        self._paused, self._since = self.paused, None
        self._go()
