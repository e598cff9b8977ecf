# SPDX-License-Identifier: GPL-2.0-only
"""This module draws captures: files in the formats pcap and pcapng, as bytes."""

import io
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Unpack, overload

from hypothesis import strategies as st

from uetproto.testing.strategies.arguments import check_choice, check_names, check_range, named
from uetproto.testing.strategies.damage import kinds, spoil
from uetproto.testing.strategies.exchanges import drawn_exchange
from uetproto.testing.strategies.headers import numbers
from uetproto.testing.strategies.scenarios import ScenarioOptions, Wanted, chosen
from uetproto.testing.strategies.spoilt import Spoilt, spoilt_value
from uetproto.wire.capture.pcap import CaptureWriter, PcapngWriter, PcapWriter

FORMATS = ("pcap", "pcapng")
_EXCHANGES = 2
_LATEST_NS = 10_000
"""Time at which the last of the exchanges begins at most."""
_CUT = st.sampled_from((False, False, False, False, False, True))
_TimedData = tuple[int, bytes]


class CaptureChoice(NamedTuple):
    """This tuple says what a caller wants of captures."""

    wanted: Wanted
    format: str | None
    exchanges: int


@st.composite
def _records(draw: st.DrawFn, choice: CaptureChoice) -> list[_TimedData]:
    """Draw some exchanges, each of two nodes of its own, and return the frames of all by time."""
    found: list[_TimedData] = []
    for pair in range(draw(numbers(1, choice.exchanges))):
        start = draw(numbers(0, _LATEST_NS)) if pair else 0
        found += [(start + frame.time_ns, frame.data) for frame in draw(drawn_exchange(choice.wanted, pair)).frames]
    return sorted(found, key=lambda record: record[0])


def _written(name: str, records: Iterable[_TimedData]) -> bytes:
    file = io.BytesIO()
    writer: CaptureWriter = PcapWriter(file) if name == "pcap" else PcapngWriter(file)
    with writer:
        if isinstance(writer, PcapngWriter):
            writer.add_interface()
        for time_ns, data in records:
            writer.write(time_ns, data)
    return file.getvalue()


@st.composite
def _captures(draw: st.DrawFn, choice: CaptureChoice) -> bytes:
    return _written(chosen(draw, choice.format, FORMATS), draw(_records(choice)))


@st.composite
def _spoilt_captures(draw: st.DrawFn, choice: CaptureChoice) -> Spoilt[bytes]:
    name, is_cut, kind = chosen(draw, choice.format, FORMATS), draw(_CUT), draw(kinds)
    records = draw(_records(choice))
    times, frames = [time_ns for time_ns, _ in records], [data for _, data in records]
    if is_cut:
        whole = _written(name, records)
        size = len(whole) - draw(numbers(1, len(frames[-1])))
        return draw(spoilt_value(whole[:size], "CAP-DAMAGED", f"the file ends at byte {size}, in its last record"))
    damage = spoil(draw, kind, frames)
    wrong = _written(name, zip(times, damage.among(frames), strict=True))
    return draw(spoilt_value(wrong, damage.rule, damage.what))


@overload
def captures(
    *, format: str | None = ..., exchanges: int = ..., spoilt: Literal[False] = ..., **options: Unpack[ScenarioOptions]
) -> st.SearchStrategy[bytes]: ...
@overload
def captures(
    *, format: str | None = ..., exchanges: int = ..., spoilt: Literal[True], **options: Unpack[ScenarioOptions]
) -> st.SearchStrategy[Spoilt[bytes]]: ...
def captures(
    *,
    format: str | None = None,
    exchanges: int = _EXCHANGES,
    spoilt: bool = False,
    **options: Unpack[ScenarioOptions],
) -> st.SearchStrategy[Any]:
    """Return a strategy for the bytes of a capture file with 1 to `exchanges` conversations at the same time.

    `format` is pcap or pcapng; None: it is drawn. `uetproto audit` finds nothing in the file. With `spoilt`, one frame
    is wrong, or the file ends within its last record; the audit finds the rule that `Spoilt.rule` names. `options` are
    those of `ScenarioOptions`. Raises `InvalidArgument` for values that are not legal, or exclude each other.
    """
    check_names("captures", options, ("format", "exchanges"), ScenarioOptions)
    check_choice("format", format, FORMATS)
    check_range("exchanges", exchanges, 1, 16)
    choice = CaptureChoice(Wanted(**options).check(), format, exchanges)
    told = {"format": format} | ({} if exchanges == _EXCHANGES else {"exchanges": exchanges}) | options
    return named("captures", _spoilt_captures(choice) if spoilt else _captures(choice), spoilt, told)
