# SPDX-License-Identifier: GPL-2.0-only
"""This module draws exchanges: all frames of a conversation of two endpoints, as the emulator plays a scenario."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Unpack, overload

from hypothesis import strategies as st

from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load_text
from uetproto.testing.strategies.arguments import check_names, named
from uetproto.testing.strategies.damage import kinds, spoil
from uetproto.testing.strategies.scenarios import ScenarioOptions, Wanted, sections
from uetproto.testing.strategies.spoilt import Spoilt, spoilt_value

INITIATOR, TARGET = "initiator", "target"


class ExchangedFrame(NamedTuple):
    """A frame at the port of the initiator, which sends or receives it."""

    time_ns: int
    sender: str
    """End that has sent the frame: initiator or target."""
    data: bytes


@dataclass(frozen=True, slots=True, repr=False)
class PlayedExchange:
    """An exchange has the frames of a conversation, in the order of time: those that the initiator sent or received."""

    frames: tuple[ExchangedFrame, ...]
    scenario: str
    """TOML text of the scenario; `uetproto run` plays the same frames."""

    @property
    def requests(self) -> tuple[bytes, ...]:
        """Return the frames of the initiator."""
        return tuple(frame.data for frame in self.frames if frame.sender == INITIATOR)

    @property
    def replies(self) -> tuple[bytes, ...]:
        """Return the frames of the target."""
        return tuple(frame.data for frame in self.frames if frame.sender == TARGET)

    def __repr__(self) -> str:
        """Return the scenario, from which the frames follow."""
        return f"<Exchange of {len(self.frames)} frames of the scenario\n{self.scenario}>"


@dataclass(slots=True)
class _FrameList:
    """Keeps the frames of a run in place of a capture."""

    frames: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None:
        self.frames.append((time_ns, data))

    def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes], *, interface: Sequence[int]) -> None:
        self.frames += zip(times_ns, frames, strict=True)


_SOURCE_MAC = slice(6, 12)


def played(text: str) -> PlayedExchange:
    """Return the exchange that a scenario plays."""
    scenario, written = load_text(text), _FrameList()
    run(scenario, writer=written)
    first = written.frames[0][1][_SOURCE_MAC]  # nobody sends before the initiator
    senders = {True: INITIATOR, False: TARGET}
    frames = (ExchangedFrame(at, senders[data[_SOURCE_MAC] == first], data) for at, data in written.frames)
    return PlayedExchange(tuple(frames), text)


@st.composite
def drawn_exchange(draw: st.DrawFn, wanted: Wanted, pair: int = 0) -> PlayedExchange:
    """Draw a scenario between the nodes of a pair, and play it."""
    return played(draw(sections(wanted, pair)).text())


@st.composite
def _spoilt_exchanges(draw: st.DrawFn, wanted: Wanted) -> Spoilt[PlayedExchange]:
    kind, exchange = draw(kinds), draw(drawn_exchange(wanted))
    damage = spoil(draw, kind, [frame.data for frame in exchange.frames])
    frames = list(exchange.frames)
    frames[damage.number] = frames[damage.number]._replace(data=damage.data)
    return draw(spoilt_value(PlayedExchange(tuple(frames), exchange.scenario), damage.rule, damage.what))


@overload
def exchanges(
    *, spoilt: Literal[False] = False, **options: Unpack[ScenarioOptions]
) -> st.SearchStrategy[PlayedExchange]: ...
@overload
def exchanges(
    *, spoilt: Literal[True], **options: Unpack[ScenarioOptions]
) -> st.SearchStrategy[Spoilt[PlayedExchange]]: ...
def exchanges(*, spoilt: bool = False, **options: Unpack[ScenarioOptions]) -> st.SearchStrategy[Any]:
    """Return a strategy for conversations of two endpoints, from the first request to the close of the PDC.

    The emulator plays a scenario as `scenarios` draws it. The frames are those at the port of the initiator, and
    `uetproto audit` finds nothing in them. With `spoilt`, one frame is wrong, and the audit finds the rule that
    `Spoilt.rule` names. `options` are those of `ScenarioOptions`. Raises `InvalidArgument` for a value that is not
    legal, and for values that exclude each other.
    """
    check_names("exchanges", options, (), ScenarioOptions)
    wanted = Wanted(**options).check()
    return named("exchanges", _spoilt_exchanges(wanted) if spoilt else drawn_exchange(wanted), spoilt, options)
