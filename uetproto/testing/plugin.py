# SPDX-License-Identifier: GPL-2.0-only
"""This plugin of pytest has the fixtures `uet_fabric` and `uet_capture`, and adds the frames to the report of a test
that fails: `pytest -p uetproto.testing.plugin` (docs/howto/testing.md).

The capture is written to the folder `.uetproto` in pytest's root directory; its path and its ladder are sections of the
report. A failure of a machine is reported so, too. The last lines say what machines could not judge.
"""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from uetproto.errors import LocalError, UetError, shown
from uetproto.testing.adapters.adapter import PortFrame

if TYPE_CHECKING:
    from uetproto.testing.machines.machine import PlayedMachine

FOLDER = ".uetproto"
"""Name of the folder, in pytest's root directory, for the captures of tests that fail."""
MOST_LINES = 200
"""Lines of a ladder that a report shows; the capture has all frames."""


class FrameCapture:
    """A frame capture keeps frames in memory, with their times."""

    def __init__(self) -> None:
        self.frames: list[PortFrame] = []

    def record(self, frame: bytes, time: int | None = None) -> None:
        """Add an Ethernet frame that was seen at `time`, in picoseconds; None: 1 µs after the last.

        Raises `LocalError` for a frame that is not bytes, and for a time that is no integer from 0 on.
        """
        if type(frame) is not bytes:
            raise LocalError("frame", f"{shown(frame)} is not legal", "bytes", id="wrong-type")
        if time is None:
            time = self.frames[-1].time + 1_000_000 if self.frames else 0
        if type(time) is not int or time < 0:
            raise LocalError(
                "time", f"{shown(time)} is not legal", "an integer of picoseconds, 0 and more", id="out-of-range"
            )
        self.frames.append(PortFrame(time, frame, True))


class FabricMaker:
    """A fabric maker emulates networks with endpoints of `uetproto.api`, whose frames are captured."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for the captures."""
        self._folder = folder
        self._owned = ExitStack()
        self.captures: list[Path] = []
        """The capture of each network."""

    def fi(self, nodes: Iterable[str] | Mapping[str, Any] = ("a", "b"), **options: Any) -> Any:
        """Return an `fi.Fabric` of nodes, with its arguments. It is closed after the test. The frames at the port of
        the first node are captured, unless `taps` names others."""
        from uetproto.api.fi import Fabric

        return self._made(Fabric, nodes, options)

    def verbs(self, nodes: Iterable[str] | Mapping[str, Any] = ("a", "b"), **options: Any) -> Any:
        """Return a `verbs.Network` of nodes, as `fi` does it."""
        from uetproto.api.verbs import Network

        return self._made(Network, nodes, options)

    def _made(self, kind: Any, nodes: Iterable[str] | Mapping[str, Any], options: dict[str, Any]) -> Any:
        path = self._folder / f"{len(self.captures)}.pcapng"
        network = kind(nodes, **{"capture": str(path), **options})
        self._owned.callback(network.close, drain=False)
        self.captures.append(Path(options.get("capture", path)))
        return network

    def close(self) -> None:
        """Close all networks."""
        self._owned.close()


_CAPTURE = pytest.StashKey[FrameCapture]()
_FABRIC = pytest.StashKey[FabricMaker]()


@pytest.fixture
def uet_capture(request: pytest.FixtureRequest) -> FrameCapture:
    """Record frames with `uet_capture.record(frame)`; a test that fails shows them."""
    capture = request.node.stash[_CAPTURE] = FrameCapture()
    return capture


@pytest.fixture
def uet_fabric(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FabricMaker]:
    """Emulate a network with `uet_fabric.fi()` or `uet_fabric.verbs()`; a test that fails shows its frames."""
    maker = request.node.stash[_FABRIC] = FabricMaker(tmp_path_factory.mktemp("uet"))
    try:
        yield maker
    finally:
        maker.close()


# Reports --------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the capture and the ladder of a test that failed to its report."""
    outcome: Any = yield
    report = outcome.get_result()
    if call.excinfo is not None and report.failed:
        try:
            report.sections.extend(_sections(item, call.excinfo.value))
        except (OSError, UetError) as error:
            report.sections.append(("UET capture", f"not written: {error}"))


def _sections(item: pytest.Item, error: BaseException) -> Iterator[tuple[str, str]]:
    from uetproto.testing.machines.picture import capture_lines, lines_of, write_capture

    folder = item.config.rootpath / FOLDER
    name = re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")[-120:]
    sources: list[Any] = [*_frames_of(error)]
    if capture := item.stash.get(_CAPTURE, None):
        sources.append(capture.frames)
    if maker := item.stash.get(_FABRIC, None):
        maker.close()  # so that the captures are whole
        sources.extend(maker.captures)
    for number, source in enumerate(filter(None, sources)):
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        path = folder / f"{name}{f'-{number}' if number else ''}.pcapng"
        if isinstance(source, Path):
            shutil.copyfile(source, path)
        else:
            write_capture(path, source)
        yield from _shown(path, capture_lines(str(path)) if isinstance(source, Path) else lines_of(source))


def _shown(path: Path, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the sections of a capture, whose ladder has these lines."""
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES:,} more lines"]
    yield "UET capture", str(path)
    yield "UET ladder", "\n".join(lines) or "no packet of UET or RoCE"


def _frames_of(error: BaseException) -> Iterator[Any]:
    """Yield the frames of each failure of a machine."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _frames_of(part)
    frames = getattr(error, "frames", None)
    if isinstance(frames, tuple):
        yield frames


# What was not judged --------------------------------------------------------------------------------------------------


def _machines(kind: "type[PlayedMachine]") -> "Iterator[type[PlayedMachine]]":
    for each in kind.__subclasses__():
        yield each
        yield from _machines(each)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what machines could not judge, a line each."""
    module = sys.modules.get("uetproto.testing.machines.machine")
    if module is None:
        return
    for kind in _machines(module.PlayedMachine):
        if told := str(kind.verdicts):
            terminalreporter.write_line(f"{kind.__name__}: not judged: {told}")
