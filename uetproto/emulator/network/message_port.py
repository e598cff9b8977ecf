# SPDX-License-Identifier: GPL-2.0-only
"""This module has the message port of a NIC whose engine takes recognized packets (`train.MessageEngine`).

On their way the frames are ordinary frames. The port of the sender announces each frame with its packet; the port of
the receiver recognizes a frame by its Python object, so that nobody reads it or checks its CRC. A frame that the
network has trimmed, damaged or repeated is another object, or no longer announced, and the NIC takes it as any other.
Such a frame is forgotten when the network reports what has happened to it, and one with an ECN mark takes the place of
the frame that was marked (`FrameOutcomes`).
"""

from typing import TYPE_CHECKING, Any

from uetproto.emulator.network.clock import Clock
from uetproto.engine.train import MessageEngine, Taken

if TYPE_CHECKING:
    from uetproto.emulator.network.nic import Nic

_NO, _QUIETLY = Taken.NO, Taken.QUIETLY  # looked up once: with every packet, Class.MEMBER would cost as much as a call
_MOST = 1 << 14
"""Number of announced frames above which all are forgotten: most of them were lost unreported."""

AnnouncedFrames = dict[int, tuple[bytes, Any]]
"""Type of the table of all frames in flight, with their packets. The key is the `id` of the frame, which the table
keeps alive."""


class MessagePort:
    """A message port is in front of a NIC: it takes the frames that arrive, and announces those that are sent."""

    def __init__(self, clock: Clock, nic: "Nic", engine: MessageEngine, announced: AnnouncedFrames) -> None:
        """Make the port of a NIC. All ports of a network share the table `announced`."""
        self._clock = clock
        self._nic = nic
        self._take = engine.take_message
        self._announced = announced

    def announce(self, frame: bytes, packet: Any) -> None:
        """Let the receiver of a frame know the packet of which it was made."""
        announced = self._announced
        if len(announced) >= _MOST:
            announced.clear()
        announced[id(frame)] = frame, packet

    def take(self, frame: bytes) -> None:
        """Take a frame that arrives now."""
        found, nic, now = self._announced.pop(id(frame), None), self._nic, self._clock.now
        taken = _NO if found is None else self._take(found[1], now)
        if taken is _NO:
            nic.take(frame)
            return
        nic.received += 1
        nic.received_at = now
        if taken is not _QUIETLY:
            nic.step()
