"""`uetproto run`: scenarios in virtual time, checked to the last byte, captured on the way."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

import click

from uetproto import LocalError
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.terminal import Paint, painter
from uetproto.emulator.result import Result
from uetproto.emulator.scenario import run
from uetproto.emulator.settings import Scenario, load, names


def _shipped() -> list[str]:
    """Names for the help; of the ladders only the first and the last, of failures only how they are called."""
    ladders = [name for name in names() if name.startswith("ladder-")]
    others = [name for name in names() if name not in ladders and not name.startswith("ses-fail-")]
    return [*others, "ses-fail-bad-mkey, … (one for each return code)", f"{ladders[0]} … {ladders[-1]} (pds.md §19)"]


@click.command(
    epilog=f"""\b
Example:
  uetproto run gradient -o gradient.pcapng
  uetproto run gradient --set payload_mtu=1024 --set faults.drop=0.05 --seed 7
  uetproto run gradient --set input=model.safetensors --set crc=off --json
  uetproto run gradient-lossy --tap all -o - | uetproto dissect -
  uetproto run ladder-L18 --tap all -o L18.pcapng
  uetproto run 'ses-*' --check

Shipped scenarios: {", ".join(_shipped())}.

{EXIT_STATUS}"""
)
@click.argument("scenario", nargs=-1, required=True, metavar="SCENARIO...")
@click.option(
    "-o", "--output", metavar="FILE", help="Capture: .pcapng or .pcap, also .gz; - is pcapng to standard output."
)
@click.option("--tap", metavar="NAME,...|all", help="Nodes whose port is captured; default: the initiator.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N", help="Seed of all that is left to chance.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Change a key of the scenario, also of a row, as in operation.0.length=64; may be repeated.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Also judge each tapped frame, and both engines by the invariants.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a scenario on standard output.")
def command(
    scenario: tuple[str, ...],
    output: str | None,
    tap: str | None,
    seed: int | None,
    settings: tuple[str, ...],
    check: bool,
    as_json: bool,
) -> None:
    """Run scenarios in virtual time: bytes go from one node's memory to another's and are compared there.

    SCENARIO is a shipped name, also with wildcards ('ses-*'), or a TOML file. Exit status 1 if the memory of the target
    differs from the input, if the transfer failed, or if --check found a fault.
    """
    scenario = tuple(name for asked in scenario for name in _named(asked))
    if output is not None and len(scenario) > 1:
        raise LocalError(f"-o {output}: a capture holds one scenario, here are {len(scenario)}")
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output")
    if tap is not None:
        settings = (*settings, f"tap.nodes={tap}")
    if seed is not None:
        settings = (*settings, f"run.seed={seed}")
    loaded = [load(name, settings) for name in scenario]
    good = True
    for one in loaded:
        try:
            with _progress(one.name) as progress:
                result = run(one, output=output, check=check, progress=progress)
        except KeyboardInterrupt:
            kept = f"; {output} is whole up to here" if output not in (None, "-") else ""
            click.echo(f"uetproto: {one.name} was interrupted{kept}", err=True)
            raise
        good = good and result.ok
        if as_json:
            click.echo(json.dumps(result.as_dict()))
        else:
            click.echo("\n".join(_summary(one, result, painter())), err=output == "-")
    if not good:
        raise click.exceptions.Exit(FAULT)


def _named(asked: str) -> list[str]:
    """Shipped names that a pattern stands for; anything else is itself."""
    if asked.endswith(".toml") or "/" in asked or not set("*?[") & set(asked):
        return [asked]
    found = [name for name in names() if fnmatchcase(name, asked)]
    if not found:
        raise LocalError(f"{asked}: no shipped scenario has such a name; legal: {', '.join(_shipped())}")
    return found


def _summary(scenario: Scenario, result: Result, paint: Paint) -> Iterator[str]:
    """For people."""
    run_, nodes = scenario.run, scenario.nodes
    real = f"payload MTU {nodes[run_.initiator].ses.payload_mtu}"
    yield (
        f"{paint(result.scenario, 'bold')}: {_many(result.bytes, 'byte')} from {run_.initiator} to {run_.target},"
        f" {run_.mode.name}, {real if run_.ses == 'real' else 'scripted SES'}, seed {result.seed}"
    )
    yield f"  source  sha256 {result.sha256_source}"
    verdict = paint("match", "green") if result.match else paint("differs", "alarm")
    yield f"  target  sha256 {result.sha256_target}  {verdict}"
    yield (
        f"  {_many(result.packets, 'packet')}, {_many(result.retransmissions, 'retransmission')},"
        f" {_many(result.nacks, 'NACK')}, {_time(result.virtual_time_ps)} of virtual time"
    )
    for one in result.operations:
        fine = one["match"] and one["return_code"] == one["expect"]
        what = [one["return_code"]]
        if one["return_code"] != one["expect"]:
            what.append(f"{one['expect']} expected")
        if fine or not one["match"]:
            what.append("match" if fine else "differs")
        text = ", ".join(what)
        yield f"  {one['operation']} {one['do']} {_many(one['length'], 'byte')}, {one['node']}: " + paint(
            text, "green" if fine else "alarm"
        )
    if result.happened:
        yield "  " + _counts(result.happened)
    if result.nacks_by_code:
        yield "  NACKs: " + ", ".join(f"{code} {count:,}" for code, count in result.nacks_by_code.items())
    for name, counters in result.counters.items():
        if counters:
            yield f"  {name}: " + _counts(counters)
    if result.checked is not None:
        yield f"  check: {_many(result.checked, 'frame')} judged, {_many(len(result.findings), 'finding')}"
    for finding in result.findings[:_MOST]:
        yield f"    {paint(finding, 'alarm')}"
    if len(result.findings) > _MOST:
        yield f"    and {len(result.findings) - _MOST:,} more"
    if result.capture is not None:
        yield f"  capture {result.capture}"
    if result.failure is not None:
        yield f"  {paint('failed', 'alarm')}: {result.failure}"


_MOST = 20  # findings shown


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _time(picoseconds: int) -> str:
    for unit, name in ((10**12, "s"), (10**9, "ms"), (10**6, "µs"), (10**3, "ns")):
        if picoseconds >= unit:
            return f"{picoseconds / unit:.3f} {name}"
    return f"{picoseconds} ps"


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error where that is a terminal: bytes in the memory of the target, of all."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
