# SPDX-License-Identifier: GPL-2.0-only
"""This module has what `uetproto fuzz` and `uetproto run` do with the machines of `uetproto.testing`, which Hypothesis
drives."""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from uetproto import LocalError
from uetproto.check.finding import NOT_SHRUNK, folder_for
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.machines import DRIVEN, TESTED
from uetproto.cli.main import FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import many, painter, printable, tell
from uetproto.errors import similar
from uetproto.garbage import seldom_collected
from uetproto.testing.adapters.named import adapter_named
from uetproto.testing.machines.finding import FindingFile, MachineFinding, keep, played_again
from uetproto.testing.machines.named import machines_named
from uetproto.testing.machines.picture import write_capture
from uetproto.testing.machines.search import SearchTally, search

SECONDS = 60
"""Duration of a run, unless the user sets another."""


# uetproto fuzz --------------------------------------------------------------------------------------------------------


def drive(
    machine: str, adapter: str | None, seconds: int | None, steps: int | None, seed: int | None, episode: int | None,
    jobs: int | None, output: str, as_json: bool,
) -> None:  # fmt: skip
    """Drive an implementation with a machine; the arguments are the options of `uetproto fuzz`."""
    if machine not in TESTED:
        raise LocalError(
            "--adapter", f"{machine!r} is no machine for it{similar(machine, DRIVEN)}", ", ".join(DRIVEN),
            id="not-with-machine"
        )  # fmt: skip
    if seconds is not None and steps is not None:
        raise LocalError("--seconds and --steps exclude each other", id="conflicting-arguments")
    if episode is not None or jobs not in (None, 1):
        name = "--jobs" if episode is None else "--episode"
        raise LocalError(name, f"does not go with {machine}, which runs in one process", id="not-with-machine")
    folder = folder_for(output)
    kinds, factory = machines_named(machine), None if adapter is None else adapter_named(adapter)
    seed = secrets.randbits(32) if seed is None else seed
    start = perf_counter()
    with Interrupt() as interrupted, seldom_collected():

        def stop() -> bool:
            return bool(interrupted) or (steps is None and perf_counter() - start >= (seconds or SECONDS))

        tally = SearchTally()
        for found in search(kinds, adapter, factory, seed, tally, steps=steps, stop=stop):
            if found is not None:
                _tell(found, keep(found, folder), as_json)
        elapsed = perf_counter() - start
    status = interrupted.status if interrupted else 0
    if as_json:
        click.echo(json.dumps(_as_dict(tally, machine, adapter, seed, elapsed, status)))
    else:
        tell(_summary(tally, machine, seed, elapsed))
    if status:
        click.echo("uetproto: partial: interrupted before the end", err=True)
    elif not tally.steps:
        click.echo(f"uetproto: {machine}: no step was made in {elapsed:.1f} s: nothing was tested", err=True)
    if status or tally.findings or not tally.steps:
        raise click.exceptions.Exit(status or FAULT)


def _tell(found: MachineFinding, file: Path, as_json: bool) -> None:
    failure = found.failure
    if as_json:
        print(json.dumps({
            "file": str(file), "rule": failure.name, "text": failure.text, "seed": found.seed, "machine": found.machine,
            "adapter": found.adapter, "steps": len(failure.steps),
            "capture": str(file.with_suffix(".pcap")) if failure.frames else None,
            "ladder": str(file.with_suffix(".txt")), "replay": None if found.only_once else failure.text,
            "given_up": found.given_up,
        }), flush=True)  # fmt: skip
        return
    tell([painter()(printable(failure.text.partition("\n")[0]), "alarm")])
    tell([f"  round {found.seed} of {found.machine}, {many(len(failure.steps), 'step')} of {found.drawn:,}"])
    if found.given_up:
        tell([f"  {NOT_SHRUNK}"])
    if found.only_once:
        tell(["  only once: played again, the same steps do not fail"])
    tell([f"  {printable(str(file))}", *(f"  {line}" for line in failure.ladder[:LINES])])


LINES = 40
"""Lines of a ladder that are printed; the file has all."""


def _as_dict(
    tally: SearchTally, machine: str, adapter: str | None, seed: int, elapsed: float, status: int
) -> dict[str, Any]:
    return {
        "machine": machine,
        "adapter": adapter,
        "steps": tally.steps,
        "machine_steps": tally.moves,
        "steps_per_second": round(tally.moves / elapsed),
        "findings": len(tally.findings),
        "seed": seed,
        "jobs": 1,
        "episodes": tally.runs,
        "failed": tally.failed,
        "times": {name: found.times for name, found in tally.findings.items()},
        "not_judged": tally.verdicts.never_judged,
        "digest": f"{tally.digest:016x}",
        **({"partial": True} if status else {}),
    }


def _summary(tally: SearchTally, machine: str, seed: int, elapsed: float) -> list[str]:
    found = many(len(tally.findings), "finding", zero="no") + (
        f" in {many(tally.failed, 'run')}" if tally.failed else ""
    )
    played = f"{many(tally.steps, 'step')} of {many(tally.runs, 'run')}"
    lines = [f"{machine}: {played} in {elapsed:.1f} s, seed {seed}; {found}"]
    lines += [f"  {name}: {found.times:,} runs" for name, found in tally.findings.items() if found.times > 1]
    if tally.verdicts.never_judged:
        lines.append(f"not judged: {tally.verdicts}")
    return lines


# uetproto run ---------------------------------------------------------------------------------------------------------


def play_again(name: str, settings: Sequence[str], output: str | None, as_json: bool) -> bool:
    """Play a finding again, and print how it fails. Return whether it no longer fails."""
    check_output("-o", output, [("SCENARIO", name)])
    file = FindingFile(Path(name))
    file.change(settings)
    kind = file.machine()
    steps = file.steps(kind)
    machine, failure = played_again(kind, steps)
    if output is not None:
        write_capture(output, machine.frames)
    run = file.data["run"]
    if as_json:
        click.echo(json.dumps({
            "scenario": name, "machine": run["machine"], "adapter": run.get("adapter"), "steps": len(steps),
            "rule": failure and failure.name, "text": failure and failure.text, "capture": output,
        }))  # fmt: skip
    elif failure is None:
        tell(
            [f"{printable(name)}: {many(len(steps), 'step')} of {run['machine']}: it no longer fails"],
            aside=output == "-",
        )
    else:
        lines = [painter()(printable(failure.text), "alarm"), *failure.ladder]
        tell([f"{printable(name)}: {lines[0]}", *(f"  {line}" for line in lines[1:])], aside=output == "-")
    return failure is None
