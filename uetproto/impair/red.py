# SPDX-License-Identifier: GPL-2.0-only
"""This module has random early detection: a queue of a switch marks packets before it has to drop any (roce.md §13).

Only packets with ECT are marked: their ECN field becomes CE, and the IPv4 checksum is updated.
"""

from dataclasses import dataclass, field

from uetproto.engine.contract import Rng
from uetproto.errors import LocalError
from uetproto.framing.dscp import IPV4_TYPE, IPV6_TYPE
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.impair.frame_outcome import FrameOutcomes
from uetproto.impair.unencoded_frames import UnencodedFrame
from uetproto.wire.headers.ethernet import IPV4, IPV6, Ecn

_IPV4_END, _IPV6_END = ETHERNET_SIZE + IPV4.size, ETHERNET_SIZE + IPV6.size
_CHECKSUM = slice(ETHERNET_SIZE + 10, ETHERNET_SIZE + 12)
_ECT, _CE = (int(Ecn.ECT0), int(Ecn.ECT1)), int(Ecn.CE)  # with every frame, Ecn.CE would cost as much as a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Red:
    """These parameters give the chance that a packet is marked. The chance depends on how many bytes wait before the
    packet (roce.md §13).

    The default values are those of DCQCN.
    """

    kmin: int = 5_000
    """Number of waiting bytes up to which no packet is marked. From `kmin` to `kmax`, the chance grows linearly."""
    kmax: int = 200_000
    """Number of waiting bytes above which every packet is marked."""
    pmax: float = 0.01
    """Chance of a mark at `kmax`, 0 to 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.kmin <= self.kmax:
            raise LocalError(
                "red", f"kmin {self.kmin}, kmax {self.kmax}", "0 ≤ kmin ≤ kmax, bytes", id="inconsistent-values"
            )
        if not 0 <= self.pmax <= 1:
            raise LocalError("red", f"pmax {self.pmax}", "0 … 1", id="out-of-range")

    def chance(self, length: int) -> float:
        """Return the chance that a packet is marked if `length` bytes wait before it."""
        if length <= self.kmin:
            return 0.0
        if length > self.kmax:
            return 1.0
        return self.pmax * (length - self.kmin) / (self.kmax - self.kmin)


@dataclass(slots=True)
class Marker:
    """A marker marks packets of one queue. It draws a random number only if the chance is neither 0 nor 1."""

    red: Red
    rng: Rng
    outcomes: FrameOutcomes = field(default_factory=FrameOutcomes)
    marked: int = 0

    def pass_on(self, frame: bytes, length: int) -> bytes:
        """Return the frame, marked or unchanged. `length` is the number of bytes that wait before it; up to `red.kmin`
        nothing is marked, and the call can be left out."""
        chance = self.red.chance(length)
        if not chance or not takes_mark(frame) or (chance < 1 and self.rng.random() >= chance):
            return frame
        now = _marked(frame)
        self.marked += 1
        self.outcomes.marked(frame, now)
        return now


def takes_mark(frame: bytes) -> bool:
    """Return whether a frame is ECT and has no CE yet."""
    kind = frame[12:ETHERNET_SIZE]
    if kind == IPV4_TYPE and len(frame) >= _IPV4_END:
        return frame[15] & 3 in _ECT
    return kind == IPV6_TYPE and len(frame) >= _IPV6_END and frame[15] >> 4 & 3 in _ECT


def mark(frame: bytes) -> bytes | None:
    """Return the frame with CE in its ECN field, or None for a frame that is not ECT or has CE already.

    The IPv4 checksum is updated by the difference (RFC 1624), so that a wrong checksum stays wrong.
    """
    return _marked(frame) if takes_mark(frame) else None


def _marked(frame: bytes) -> bytes:
    """Return an ECT frame with CE."""
    if frame[12:ETHERNET_SIZE] == IPV4_TYPE:
        total = (0xFFFF - int.from_bytes(frame[_CHECKSUM], "big")) + _CE - (frame[15] & 3)
        checksum = (0xFFFF - (total & 0xFFFF) - (total >> 16)).to_bytes(2, "big")
        ce, rest = bytes((frame[15] | _CE,)), memoryview(frame)[_CHECKSUM.stop :]
        return _like(frame, b"".join((frame[:15], ce, frame[16 : _CHECKSUM.start], checksum, rest)))
    return _like(frame, b"".join((frame[:15], bytes((frame[15] | _CE << 4,)), memoryview(frame)[16:])))


def _like(frame: bytes, marked: bytes) -> bytes:
    """Return the marked bytes; those of a frame that is not encoded are its lower headers."""
    return frame.marked(marked) if isinstance(frame, UnencodedFrame) else marked
