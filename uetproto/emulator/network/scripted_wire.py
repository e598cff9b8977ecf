# SPDX-License-Identifier: GPL-2.0-only
"""This module has a wire that keeps every frame until a step of a script says what happens to the frame.

Frames are numbered from 0 in the order in which they leave the nodes. A copy gets a number of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from uetproto.emulator.network.clock import Clock
from uetproto.errors import LocalError, Location
from uetproto.framing.dscp import Dscp
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes
from uetproto.impair.link import FrameReceiver
from uetproto.impair.trim import trim
from uetproto.wire.headers.uet_ses import ReturnCode

ALL = -1
"""Frame number that stands for every frame on the wire."""
_MOST_SPANS = 8


@dataclass(frozen=True, slots=True)
class FrameStep:
    """A frame step is a checked row `[[step]]` of a script with a real SES. `action` determines what the other fields
    mean.
    """

    where: Location
    """File and line of the row, which error texts name."""
    action: str
    numbers: tuple[int, ...] = ()
    """Numbers of the frames that the action concerns. For three actions the tuple has another number in their place: a
    number of bytes for `submit`, a time in picoseconds for `advance`, and the PSN for `respond`."""
    at: int = 0
    gtd: bool = False
    code: ReturnCode = ReturnCode.OK


def legal_frames(numbers: Iterable[int]) -> str:
    """Return the part of an error text that lists the frames that a row may name, such as "legal: 1, 3 … 7"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    texts = [" … ".join(map(str, span)) for span in spans[:_MOST_SPANS]] + ["…"] * (len(spans) > _MOST_SPANS)
    return f"legal: {', '.join(texts)}" if texts else "nothing is"


class ScriptedWire:
    """A scripted wire keeps frames until `play` delivers, drops, copies, trims or damages them."""

    def __init__(self, clock: Clock, dscp: Dscp, outcomes: FrameOutcomes | None = None) -> None:
        self._clock = clock
        self._outcomes = outcomes or FrameOutcomes()
        self._dscp = dscp
        self._ports: dict[bytes, FrameReceiver] = {}
        self._frames: dict[int, bytes] = {}
        self._number = 0

    def attach(self, mac: bytes, port: FrameReceiver) -> None:
        """Deliver frames with the destination address `mac` to `port`."""
        self._ports[mac] = port

    @property
    def busy_until(self) -> int:
        return self._clock.now

    def send(self, frame: bytes) -> int:
        self._frames[self._number] = frame
        self._number += 1
        return self._clock.now

    def play(self, step: FrameStep) -> None:
        """Play a step whose action is one of `WIRE_ACTIONS`. Raises `LocalError` for a step that is impossible, for
        example if its frame is not on the wire.
        """
        numbers = tuple(self._frames) if step.numbers == (ALL,) else step.numbers
        act = WIRE_ACTIONS[step.action]
        for number in numbers:
            if number not in self._frames:
                raise LocalError(
                    f"frame {number} is not on the wire; {legal_frames(self._frames)}", place=step.where,
                    id="step-impossible"
                )  # fmt: skip
            act(self, number, step)

    def _deliver(self, number: int, step: FrameStep) -> None:
        frame = self._frames.pop(number)
        self._outcomes.arrived(frame)
        port = self._ports.get(frame[:6])
        if port is not None:
            port.take(frame)

    def _drop(self, number: int, step: FrameStep) -> None:
        self._outcomes.lost(self._frames.pop(number))

    def _dup(self, number: int, step: FrameStep) -> None:
        self._outcomes.copied(self._frames[number])
        self.send(self._frames[number])

    def _trim(self, number: int, step: FrameStep) -> None:
        short = trim(self._frames[number], self._dscp, last_hop=True)
        if short is None:
            raise LocalError(
                f"frame {number} must not be trimmed: it is control, or short already", place=step.where,
                id="step-impossible"
            )  # fmt: skip
        self._change(number, short, FrameOutcome.TRIMMED)

    def _corrupt(self, number: int, step: FrameStep) -> None:
        frame = bytearray(self._frames[number])
        if step.at >= len(frame):
            legal = f"at = 0 … {len(frame) - 1}"
            raise LocalError(
                "", f"frame {number} has {len(frame)} bytes", legal, place=step.where, id="step-impossible"
            )
        frame[step.at] ^= 1
        self._change(number, bytes(frame), FrameOutcome.DAMAGED)

    def _change(self, number: int, now: bytes, outcome: FrameOutcome) -> None:
        self._outcomes.changed(self._frames[number], now, outcome)
        self._frames[number] = now


WIRE_ACTIONS: dict[str, Callable[[ScriptedWire, int, FrameStep], None]] = {
    "deliver": ScriptedWire._deliver,
    "drop": ScriptedWire._drop,
    "dup": ScriptedWire._dup,
    "trim": ScriptedWire._trim,
    "corrupt": ScriptedWire._corrupt,
}
"""Functions that play the actions on frames of the wire. The key is the name of the action."""
