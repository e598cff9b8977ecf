# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto fuzz`: random steps drive two endpoints and a wire until an invariant fails."""

import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import click

from uetproto import LocalError, UetError
from uetproto.check.episode import PATIENCE, ScenarioSettings, Stop
from uetproto.check.finding import NOT_SHRUNK, FuzzFinding, folder_for, to_text, to_toml
from uetproto.check.fuzz import ALL, MACHINES, FuzzTally, fuzz, unplayable
from uetproto.check.time_limit import GivenUp, time_limit
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import LinkOptions, some_link_options
from uetproto.cli.machines import DRIVEN, HYPOTHESIS, OURS, TESTED, no_hypothesis
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.terminal import Paint, many, painter, printable, share_words, tell
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.errors import similar
from uetproto.garbage import seldom_collected

PULSE = 0.25
"""Time in seconds from one report of a worker to the next."""
GRACE = 10.0
"""Time in seconds that a worker process has to end after it is told to stop."""
CORES = len(os.sched_getaffinity(0))
MOST_JOBS = 4 * CORES
"""Largest number of worker processes. More processes would only compete for time and memory."""


class FuzzPlan(NamedTuple):
    """This record holds what is fuzzed, for how long, and by how many processes."""

    machine: str
    seed: int
    steps: int | None
    seconds: int
    jobs: int
    episode: int | None = None
    """Number of the only episode to run. None means that all episodes are run."""

    def share(self, worker: int) -> int | None:
        """Return the number of steps that the worker with this number runs, or None if there is no limit."""
        return None if self.steps is None else (self.steps + worker) // self.jobs


@click.command(
    epilog=f"""\b
Example:
  uetproto fuzz
  uetproto fuzz rod --seconds 3600 -o found
  uetproto fuzz rc --seconds 600
  uetproto fuzz tss --seconds 600
  uetproto fuzz tss --seed 7 --episode 12
  uetproto fuzz --steps 100000 --seed 7 --jobs 1 --json
  uetproto run found/pds-1-7-12.toml --check
  uetproto fuzz --peer 10.0.0.2 --seconds 600 -o found
  uetproto fuzz --peer 10.0.0.2 --transport rc --seconds 600
  uetproto fuzz --peer 10.0.0.2 --keys rack.keys.toml --ssi 1
  uetproto fuzz pdc --adapter my_stack:Adapter --seed 7
  uetproto fuzz tss --adapter './my_stack --adapter' --seconds 600

Machines: {", ".join(MACHINES)}; without one: all of them in turn.
Machines for an implementation of your own (docs/howto/machines.md): {", ".join(DRIVEN) or "none without Hypothesis"}.
Machines for networks of our engines: {", ".join(OURS) or "none without Hypothesis"}.

{EXIT_STATUS}"""
)
@click.argument("machine", required=False, default=ALL)
@click.option(
    "--adapter", metavar="MODULE:CLASS|COMMAND", help="Implementation that a machine drives; default: our engine."
)
@click.option("--seconds", type=click.IntRange(1), metavar="N", help="Duration of the run; default: 60.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Number of steps, in place of --seconds.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N", help="Seed; default: a new one for every run.")
@click.option("--episode", type=click.IntRange(0), metavar="N", help="Run only this episode of the seed.")
@click.option(
    "--jobs", type=click.IntRange(1, MOST_JOBS), metavar="N", help="Number of processes; default: one a core."
)
@click.option(
    "-o", "--output", metavar="DIR", default="fuzz-findings", show_default=True, help="Directory for findings."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a finding, then one of the whole run.")
@click.option("--peer", metavar="A", help="Fuzz a live peer at this address; the options below go with it.")
@click.option("--peer-file", metavar="FILE", help="PEER.toml with what is known of the peer, as for uetproto conform.")
@click.option("--without", metavar="NAME,…", default="", help="What the peer does not have, as for conform.")
@some_link_options(
    "transport", "local", "path", "interface", "vlan", "udp_port", "local_udp_port", "ip_protocol", "crc", "checksum",
    "payload_mtu", "rendezvous", "job_id", "pid", "resource_index", "initiator_id", "key", "addr", "relative",
    "qpn", "psn", "peer_qpn", "peer_psn", "keys", "sdi", "ssi",
)  # fmt: skip
def command(
    options: LinkOptions, machine: str, adapter: str | None, seconds: int | None, steps: int | None, seed: int | None,
    episode: int | None, jobs: int | None, output: str, as_json: bool, peer: str | None,
    peer_file: str | None, without: str,
) -> None:  # fmt: skip
    """Test packet delivery, RDMA (rc, uc, ud) or sealed packets (tss) with random steps, and check invariants after
    each step.

    A finding is shrunk to a few steps and written as a scenario, with its capture; `uetproto run FILE --check` replays
    it. An attack on sealed packets (tss) is written as text; --seed with --episode replays it. A finding just before
    the time is up, or just before Ctrl-C, is written without shrinking. Equal --seed and --steps with --jobs 1 give an
    equal run. Exit status 1 if anything was found.

    With --adapter a machine drives an implementation of your own; Hypothesis shrinks what it finds. Each finding is
    written as its steps, its capture and its ladder; `uetproto run FILE` plays it again.

    With --peer a live peer gets random packets, right and wrong ones, and each answer is held against what the pages
    allow. A finding is shrunk, played three times, and written as a test, which `uetproto conform --tests FILE` plays.
    """
    if peer is not None or peer_file is not None:
        for name, value in (("MACHINE", machine != ALL), ("--adapter", adapter), ("--jobs", jobs)):
            if value:
                raise LocalError(name, "does not go with --peer", id="conflicting-arguments")
        if seconds is not None and steps is not None:
            raise LocalError("--seconds and --steps exclude each other", id="conflicting-arguments")
        from uetproto.cli.live.fuzz_peer import fuzz_peer

        found = replace(options, seed=seed, as_json=as_json)
        fuzz_peer(found, peer, peer_file, without, seconds, steps, episode, folder_for(output))
        return
    for name in sorted(options.given) + (["without"] if without else []):
        raise LocalError(f"--{name.replace('_', '-')}", "goes with --peer A", id="no-effect")
    tested = machine in TESTED and machine not in MACHINES
    if adapter is not None or tested or not (HYPOTHESIS or similar(machine, (*MACHINES, ALL))):
        if not HYPOTHESIS:
            raise no_hypothesis(f"fuzz {machine}")
        from uetproto.cli.drive import drive

        drive(machine, adapter, seconds, steps, seed, episode, jobs, output, as_json)
        return
    left_out = unplayable(machine, tuple(name for name in TESTED if name not in MACHINES))
    if left_out is not None and machine != ALL:
        raise left_out
    if seconds is not None and steps is not None:
        raise LocalError("--seconds and --steps exclude each other", id="conflicting-arguments")
    if episode is not None and (seed is None or steps is not None or jobs not in (None, 1)):
        raise LocalError("--episode", "needs --seed, and goes only with --seconds and --jobs 1", id="no-effect")
    folder = folder_for(output)
    seed = secrets.randbits(32) if seed is None else seed
    plan = FuzzPlan(machine, seed, steps, seconds or 60, 1 if episode is not None else jobs or CORES, episode)
    if left_out is not None:
        click.echo(f"uetproto: left out: {left_out}", err=True)

    def tell(finding: FuzzFinding, stop: Stop) -> None:
        _tell(finding, keep(finding, folder, stop), as_json, painter())

    tally, interrupted, elapsed = _play(plan, tell)
    click.echo(json.dumps(_as_dict(plan, tally, elapsed, interrupted)) if as_json else _summary(plan, tally, elapsed))
    if interrupted:
        click.echo("uetproto: partial: interrupted before the end", err=True)
    if not tally.moves and not interrupted:
        click.echo(f"uetproto: {plan.machine}: no step was made in {elapsed:.1f} s: nothing was tested", err=True)
    if interrupted or tally.findings or not tally.moves:
        raise click.exceptions.Exit(interrupted or FAULT)


# The run --------------------------------------------------------------------------------------------------------------


def _play(plan: FuzzPlan, tell: Callable[[FuzzFinding, Stop], None]) -> tuple[FuzzTally, int, float]:
    """Run the plan. Return the counts, the exit status of a signal that ended the run (0 if no signal did), and the
    elapsed seconds. `tell` is called with one finding of each kind."""
    total, kinds = FuzzTally(), set[str]()
    start = perf_counter()
    with Interrupt() as interrupted, seldom_collected():

        def stop() -> bool:
            return bool(interrupted) or (plan.steps is None and perf_counter() - start >= plan.seconds)

        with closing((here if plan.jobs == 1 else spread)(plan, stop)) as tallies:
            for tally in tallies:
                tally.findings = [one for one in tally.findings if one.kind not in kinds]
                kinds.update(one.kind for one in tally.findings)
                total.add(tally)
                for finding in tally.findings:
                    _line("")
                    tell(finding, stop)
                elapsed = perf_counter() - start
                _progress(total, elapsed, total.steps / plan.steps if plan.steps else elapsed / plan.seconds)
        _line("")
        return total, interrupted.status if interrupted else 0, perf_counter() - start


def here(plan: FuzzPlan, stop: Stop) -> Generator[FuzzTally, None, None]:
    """Run the plan in this process, and yield counts while it runs."""
    first, most = (0, None) if plan.episode is None else (plan.episode, 1)
    yield from islice(fuzz(plan.machine, plan.seed, steps=plan.steps, stop=stop, give_up=stop, first=first), most)


def spread(plan: FuzzPlan, stop: Stop) -> Generator[FuzzTally, None, None]:
    """Run the plan in several processes, and yield their counts while they run. The processes take the episodes in
    turn. Raises `UetError` if a process fails."""
    context = get_context("spawn")
    workers = {}
    patience = None
    try:
        with _interrupts_ignored():
            for number in range(plan.jobs):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(plan, number, theirs), daemon=True)
                process.start()
                theirs.close()
                workers[ours] = process
        while workers:
            if patience is None and stop():
                patience = perf_counter() + GRACE
                for connection in workers:
                    _send(connection, None)
            elif patience is not None and perf_counter() > patience:
                return
            for ready in wait(list(workers), PULSE):
                assert isinstance(ready, Connection)
                try:
                    received = ready.recv()
                    if isinstance(received, UetError):
                        raise received
                    yield received
                except (EOFError, ConnectionResetError):
                    process = workers.pop(ready)
                    process.join()
                    if process.exitcode and not (process.exitcode == -signal.SIGTERM and stop()):
                        raise UetError(f"a worker ended with status {process.exitcode}", id="worker-died") from None
    finally:
        for process in workers.values():
            process.terminate()
            process.join()


def _work(plan: FuzzPlan, number: int, connection: Connection) -> None:
    """Run as a worker: send counts from time to time, or an error; end on any message, or when the parent has ended."""
    done, sent = FuzzTally(), perf_counter()
    tallies = fuzz(
        plan.machine, plan.seed, steps=plan.share(number), stop=connection.poll, give_up=connection.poll,
        first=number, stride=plan.jobs,
    )  # fmt: skip
    try:
        with seldom_collected():
            for tally in tallies:
                done.add(tally)
                if perf_counter() - sent >= PULSE:
                    if not _send(connection, done):
                        return
                    done, sent = FuzzTally(), perf_counter()
        _send(connection, done)
    except UetError as error:
        _send(connection, error)


def _send(connection: Connection, message: FuzzTally | UetError | None) -> bool:
    try:
        connection.send(message)
    except OSError:  # the process at the other end has ended
        return False
    return True


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C in processes that are started in this context, as it reaches all of them; their parent
    handles it.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# The output -----------------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """This record holds the files that were written for a finding, and what its replay found."""

    file: Path
    capture: Path | None
    """Path of the capture. It is None if no replay was made, or if the replay failed before it wrote one."""
    replay: str
    """Text of the violation or error that the replay with encoded frames met. It is `NOT_REPLAYED` if the time was up
    before the end of the replay. It is empty if the replay met nothing, or if the finding is no scenario."""
    again: str = ""
    """Command that replays a finding whose file is no scenario. It is empty for a scenario."""


NOT_REPLAYED = "not replayed to the end: the time was up"


def keep(finding: FuzzFinding, folder: Path, give_up: Stop) -> Kept:
    """Write a finding as a scenario and replay it into a capture, or write it as text if it cannot be a scenario. The
    replay ends early if `give_up` returns True."""
    folder.mkdir(parents=True, exist_ok=True)
    if not isinstance(finding.settings, ScenarioSettings):
        text = folder / f"{finding.name}.txt"
        text.write_text(to_text(finding), encoding="utf-8")
        return Kept(text, None, "", finding.again)
    file = folder / f"{finding.name}.toml"
    file.write_text(to_toml(finding), encoding="utf-8")
    capture = file.with_suffix(".pcapng")
    try:
        with time_limit(PATIENCE, give_up):
            result = run(load(str(file)), output=str(capture), check=True)
        replay = "; ".join(result.findings)
    except GivenUp:
        replay = NOT_REPLAYED
    except Exception as error:  # such an error is what the fuzzer looks for; `uetproto run` shows it
        replay = f"{type(error).__name__}: {error}"
    return Kept(file, capture if capture.exists() else None, replay)


def _as_dict(plan: FuzzPlan, tally: FuzzTally, elapsed: float, interrupted: int) -> dict[str, Any]:
    return {
        "machine": plan.machine,
        "steps": tally.steps,
        "machine_steps": tally.moves,
        "steps_per_second": round(tally.moves / elapsed),
        "findings": len(tally.findings),
        "seed": plan.seed,
        "jobs": plan.jobs,
        "episodes": tally.episodes,
        "failed": tally.failed,
        "digest": f"{tally.digest:016x}",
        **({"partial": True} if interrupted else {}),
    }


def _summary(plan: FuzzPlan, tally: FuzzTally, elapsed: float) -> str:
    text = (
        f"{plan.machine}: {many(tally.moves, 'step')} in {elapsed:.1f} s, {tally.moves / elapsed:,.0f} a second with"
        f" {many(plan.jobs, 'process', 'processes')}, seed {plan.seed}; {_found(tally)}"
    )
    return f"{text} in {tally.failed:,} of {many(tally.episodes, 'episode')}" if tally.failed else text


def _found(tally: FuzzTally) -> str:
    return many(len(tally.findings), "finding", zero="no")


def _tell(finding: FuzzFinding, kept: Kept, as_json: bool, paint: Paint) -> None:
    if as_json:
        print(json.dumps({
            "file": str(kept.file), "text": finding.text, "seed": finding.seed, "machine": finding.machine,
            "steps": len(finding.steps), "capture": kept.capture and str(kept.capture), "replay": kept.replay or None,
            "again": kept.again or None, "only_objects": finding.only_objects, "given_up": finding.given_up,
        }), flush=True)  # fmt: skip
        return
    tell([paint(finding.text.partition("\n")[0], "alarm")])
    tell([f"  episode {finding.seed} of {finding.machine}, {many(len(finding.steps), 'step')} of {finding.drawn:,}"])
    if finding.given_up:
        tell([f"  {NOT_SHRUNK}"])
    tell([f"  {printable(str(kept.file))}"])
    if kept.again:
        tell([f"  {kept.again}"])
    elif not kept.replay:
        tell(["  its replay with real frames finds nothing"])
    elif kept.replay == NOT_REPLAYED:
        tell([f"  {NOT_REPLAYED}"])


def _progress(tally: FuzzTally, elapsed: float, share: float) -> None:
    """Show progress on standard error, where that is a terminal. `share` of the work is done."""
    rate, done = tally.moves / elapsed, share_words(share, elapsed)
    _line(f"{many(tally.moves, 'step')}, {rate:,.0f} a second, {_found(tally)}, {done}")


def _line(text: str) -> None:
    """Replace the line on standard error, where that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}\r", nl=False, err=True)
