# SPDX-License-Identifier: GPL-2.0-only
"""This module captures what is sent and received on a live link."""

from collections.abc import Iterable

from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.live.time import MonotonicClock
from uetproto.wire.capture.pcap import RAW, open_writer
from uetproto.wire.capture.pcapng import PcapngWriter


class Recorder:
    """This class writes frames to a capture file. Frames of link type RAW are written without their Ethernet headers,
    which nobody knows."""

    def __init__(
        self, file: str, link: int, clock: MonotonicClock, *, name: str, comment: str, about: str | None = None
    ) -> None:
        """Open the file. `comment` is about the capture, and `about` about its interface. Raises `LocalError` or
        `OSError` if it cannot be written."""
        self._writer = open_writer(file, comment=comment, interfaces=[(name, link, about)])
        self._clock, self._name, self._link = clock, name, link
        self._cut = ETHERNET_SIZE if link == RAW else 0
        self.frames = 0

    def sent(self, frames: Iterable[bytes], now: int) -> None:
        """Record frames that were sent at the time `now`."""
        at, cut, write = self._clock.of_day(now), self._cut, self._writer.write
        for frame in frames:
            write(at, frame[cut:])
            self.frames += 1

    received = sent

    def state(self, about: str) -> None:
        """State something of what follows. A pcapng can say it in the comment of an interface, which has no frames; a
        pcap cannot."""
        if isinstance(self._writer, PcapngWriter):
            self._writer.add_interface(self._name, self._link, comment=about)

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()
