# SPDX-License-Identifier: GPL-2.0-only
"""This module writes a finding of the fuzzer as text: a scenario that `uetproto run` replays, or a list of steps.

The steps of an attacker (TSS) cannot be written as a scenario. Their text lists the steps, and names the command that
plays the episode again from its seed.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from uetproto.check.episode import EpisodeSettings, ScenarioSettings
from uetproto.check.toml_text import NODES, printable, table
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.errors import LocalError
from uetproto.knobs import TIME, knobs_of, time_text

_TIMES = {name for kind in (PdsConfig, SesConfig) for name, one in knobs_of(kind).items() if one.unit == TIME}
NOT_SHRUNK = "not shrunk to the end: the search was ended"


@dataclass(frozen=True, slots=True)
class FuzzFinding:
    """A finding is one way in which an episode failed."""

    machine: str
    seed: str
    """Seed of the episode. It consists of the seed of the run, `/`, and the number of the episode."""
    settings: EpisodeSettings
    steps: tuple[Any, ...]
    drawn: int
    """Number of steps that the episode had when it failed, before it was shrunk."""
    text: str
    """Text of the violation or of the exception. Its first line names the violation or the exception."""
    kind: str
    only_objects: bool = False
    """Whether the same steps fail only with packets that are objects, and not with encoded packets."""
    only_once: bool = False
    """Whether the same steps do not fail when they are played again, so that the failure does not follow from the seed
    alone."""
    given_up: bool = False

    @property
    def name(self) -> str:
        """Return the name of the files of the finding, without an ending."""
        return re.sub(r"[^\w.]+", "-", f"{self.kind} {self.seed}").strip("-").lower()

    @property
    def again(self) -> str:
        """Return the command that plays the whole episode again."""
        seed, _, episode = self.seed.partition("/")
        return f"uetproto fuzz {self.machine} --seed {seed} --episode {episode}"


def folder_for(name: str) -> Path:
    """Return the folder that the option `-o` names, if findings can be written there. A missing folder is not made
    before the first finding.

    Raises `LocalError` if the folder cannot be written or made.
    """
    folder = Path(name)
    made: list[Path] = []
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        if not made and not folder.is_dir():
            raise LocalError(
                f"-o {name}", "is not a folder", "a folder, or a name that is not taken", id="cannot-write"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise LocalError(
            f"-o {name}", reason, "a folder that can be written, or that can be made", id="cannot-write"
        ) from error
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()
    return folder


def to_toml(finding: FuzzFinding) -> str:
    """Return a finding as a scenario in TOML. The settings of the finding must be `ScenarioSettings`."""
    assert isinstance(finding.settings, ScenarioSettings)
    return "\n".join(_toml_lines(finding, finding.settings)) + "\n"


def _toml_lines(finding: FuzzFinding, settings: ScenarioSettings) -> Iterator[str]:
    yield f"# Found by `uetproto fuzz {finding.machine}`, episode {finding.seed}: {len(finding.steps)} steps"
    yield f"# of {finding.drawn}, {NOT_SHRUNK if finding.given_up else 'after shrinking'}."
    if finding.only_objects:
        yield "# Only without bytes: with packets encoded and decoded these steps do not fail."
    if finding.only_once:
        yield "# Only once: played again, the same steps do not fail."
    yield from (f"# {printable(line)}".rstrip() for line in finding.text.splitlines())
    description, ends = finding.text.partition("\n")[0], {"initiator": NODES[0], "target": NODES[1]}
    yield from table("run", {"description": description, **settings.run_keys(), **ends})
    for number, (node, knobs) in enumerate(zip(NODES, settings.knobs, strict=True)):
        yield from table(f"nodes.{node}", {"address": f"10.0.0.{number + 1}"})
        if knobs:
            told = {name: time_text(value) if name in _TIMES else value for name, value in knobs.items()}
            yield from table(f"nodes.{node}.{settings.section}", told)
    for name, values in settings.tables():
        if values:
            yield from table(name, values)
    for step in finding.steps:
        yield from table("step", settings.row(step), array=True)


def to_text(finding: FuzzFinding) -> str:
    """Return a text that says how an episode fails and how to play it again, and lists its settings and its steps."""
    settings = finding.settings
    return "\n".join([
        finding.text,
        "",
        f"{len(finding.steps)} steps of {finding.drawn}, {NOT_SHRUNK if finding.given_up else 'after shrinking'};",
        f"the whole episode again: {finding.again}",
        *(["Only once: played again, the same steps do not fail."] if finding.only_once else []),
        "",
        str(settings),
        "",
        *map(str, finding.steps),
        "",
    ])  # fmt: skip
