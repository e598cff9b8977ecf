# SPDX-License-Identifier: GPL-2.0-only
"""This module captures what is sent and received on a live link."""

from collections.abc import Iterable

from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.live.time import MonotonicClock
from uetproto.wire.capture.pcap import RAW, open_writer


class Recorder:
    """This class writes frames to a capture file. Frames of link type RAW are written without their Ethernet headers,
    which nobody knows."""

    def __init__(self, file: str, link: int, clock: MonotonicClock, *, name: str, comment: str) -> None:
        """Open the file. Raises `LocalError` or `OSError` if it cannot be written."""
        self._writer = open_writer(file, comment=comment, interfaces=[(name, link)])
        self._clock = clock
        self._cut = ETHERNET_SIZE if link == RAW else 0
        self.frames = 0

    def sent(self, frames: Iterable[bytes], now: int) -> None:
        """Record frames that were sent at the time `now`."""
        at, cut, write = self._clock.of_day(now), self._cut, self._writer.write
        for frame in frames:
            write(at, frame[cut:])
            self.frames += 1

    received = sent

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()
