# SPDX-License-Identifier: GPL-2.0-only
"""The command `uetproto run` plays a scenario to its end; on request it writes a capture and judges the frames."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from uetproto.emulator.network.tap import FrameWriter
from uetproto.emulator.run.result import RunResult, comment_of
from uetproto.emulator.run.roce_operations import RoceOperationsRun
from uetproto.emulator.run.roce_transfer import RoceTransfer
from uetproto.emulator.run.scenario_run import Progress
from uetproto.emulator.run.uet_operations import UetOperationsRun
from uetproto.emulator.run.uet_transfer import UetTransfer
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import Scenario
from uetproto.errors import LocalError, typed
from uetproto.garbage import seldom_collected
from uetproto.wire.capture.pcap import ETHERNET, open_writer


class PlayableRun(Protocol):
    """A playable run plays one kind of scenario. Its methods are called in the order in which they stand here; `guard`
    is called only if the frames are judged.
    """

    def guard(self, judge: FrameJudge) -> None:
        """Check the invariants of the engines during the run, and report violations to the judge."""

    def connect(self, writer: FrameWriter | None) -> None:
        """Join the nodes by the network. Frames that pass the taps are written to `writer`, if it is not None."""

    def play(self, progress: Progress | None) -> None:
        """Play the run to its end. Raises `LocalError` for a step that is impossible."""

    def close(self) -> None:
        """Write the rest of the capture. This method is called after an error, too."""

    def outcome(self, judge: FrameJudge | None, output: str | None) -> RunResult:
        """Return the result of the run. `output` is the path of its capture, or None."""


def _uet_script(scenario: Scenario) -> PlayableRun:
    from uetproto.emulator.run.uet_script import UetScript  # imports `uetproto.check`, which other runs do not need

    return UetScript(scenario)


def _roce_script(scenario: Scenario, check: bool) -> PlayableRun:
    from uetproto.emulator.run.roce_script import RoceScript

    return RoceScript(scenario, check)


RUNS: dict[tuple[bool, str], Callable[[Scenario, ExitStack, bool], PlayableRun]] = {
    (True, "operations"): lambda scenario, owned, check: UetOperationsRun(scenario),
    (True, "script"): lambda scenario, owned, check: _uet_script(scenario),
    (True, "transfer"): lambda scenario, owned, check: UetTransfer(scenario, owned),
    (False, "operations"): lambda scenario, owned, check: RoceOperationsRun(scenario),
    (False, "script"): lambda scenario, owned, check: _roce_script(scenario, check),
    (False, "transfer"): lambda scenario, owned, check: RoceTransfer(scenario, owned),
}
"""Functions that make a run. The key says whether the transport is UET, and which kind of scenario is played. The
arguments are the scenario, the stack that closes the run's files, and whether the run is checked."""


def kind_of(scenario: Scenario) -> str:
    """Return the kind of a scenario: "operations", "script" (with generated data), or "transfer" (of a file)."""
    if scenario.operations:
        return "operations"
    return "script" if scenario.run.input is None else "transfer"


def run(
    scenario: Scenario,
    *,
    output: str | None = None,
    check: bool = False,
    progress: Progress | None = None,
    writer: FrameWriter | None = None,
) -> RunResult:
    """Run `scenario` to its end. Frames that pass the taps are written to the capture file `output`; "-" means standard
    output. If `output` is None, these frames are passed to `writer`.

    With `check`, every frame is judged, and every invariant of the engines is checked. Raises `LocalError` for a
    scenario that cannot be played, and `OSError` for a file that cannot be read or written. A run that is interrupted
    leaves a valid capture.
    """
    typed("scenario", scenario, Scenario, "a Scenario, as load returns it")
    for what, wanted in (("a capture", output is not None or writer is not None), ("a check of frames", check)):
        if wanted and scenario.fabric.wire != "bytes":
            name, place = scenario.wire_told
            raise LocalError(name, f"objects, with {what}", "bytes", place=place, id="wire-objects")
    with ExitStack() as owned:
        played = RUNS[scenario.run.transport == UET, kind_of(scenario)](scenario, owned, check)
        judge = FrameJudge(scenario) if check else None
        if judge is not None:
            played.guard(judge)
        if output is not None:
            about = None if scenario.plane is None else scenario.plane.told
            interfaces = [
                (name, ETHERNET, about if tap in scenario.nodes else None)
                for name, tap in zip(scenario.interfaces, scenario.taps, strict=True)
            ]
            writer = owned.enter_context(open_writer(output, comment=comment_of(scenario), interfaces=interfaces))
        played.connect(judge.watch(writer) if judge else writer)
        try:
            with seldom_collected():
                played.play(progress)
        finally:
            played.close()
        return played.outcome(judge, output)
