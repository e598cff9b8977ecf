# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto run`: it runs scenarios in virtual time, compares the memory of source and
target, and captures frames."""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import click

from uetproto import LocalError
from uetproto.cli.choice import Choice
from uetproto.cli.compare import LENGTH, LOSS, SEEDS, compare, table
from uetproto.cli.machines import HYPOTHESIS, is_finding, no_hypothesis
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output, toml_file
from uetproto.cli.terminal import Paint, many, painter, printable, progress, status, tell
from uetproto.emulator.network.config import TRAINS
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import RunConfig, Scenario, load, names
from uetproto.engine import train_splits
from uetproto.errors import MissingPackageError, similar


@click.command(
    epilog=f"""\b
Example:
  uetproto run gradient -o gradient.pcapng
  uetproto run gradient --set payload_mtu=1024 --set faults.drop=0.05 --seed 7
  uetproto run gradient --set input=model.safetensors --set crc=off --json
  uetproto run gradient-lossy --tap all -o - | uetproto dissect -
  uetproto run ladder-L18 --tap all -o L18.pcapng
  uetproto run 'ses-*' --check
  uetproto run gradient gradient-roce --compare

uetproto scenario list has the {len(names())} shipped scenarios, and uetproto scenario new writes a file.

{EXIT_STATUS}"""
)
@click.argument("scenario", nargs=-1, required=True, metavar="SCENARIO...")
@click.option(
    "-o", "--output", metavar="FILE",
    help="Write a capture: .pcapng or .pcap, also .gz; - is pcapng on standard output.",
)  # fmt: skip
@click.option(
    "--tap",
    metavar="NAME,...|all",
    help="Where -o captures: nodes, cables between switches, such as leaf0.spine1, and switches, such as leaf0, for"
    " all their cables; default: the initiator.",
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N", help="Seed of all random choices.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Change a key of the scenario, also of a row, as in operation.0.length=64; may be repeated.",
)  # fmt: skip
@click.option(
    "--trains", type=Choice(TRAINS),
    help="Whether equal packets are handled together. Results and captures are the same; off takes more time.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Also check each captured frame, and the invariants of both engines.")
@click.option(
    "--compare", "comparing", is_flag=True,
    help=f"Compare scenarios: unchanged, and {LENGTH >> 20} MiB with {LOSS:.1%} loss, {len(SEEDS)} seeds.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a scenario on standard output.")
def command(
    scenario: tuple[str, ...],
    output: str | None,
    tap: str | None,
    seed: int | None,
    settings: tuple[str, ...],
    trains: str | None,
    check: bool,
    comparing: bool,
    as_json: bool,
) -> None:
    """Run scenarios in virtual time: transfer bytes from the memory of one node to that of another, and compare them.

    SCENARIO is a shipped name, also with wildcards ('ses-*'), or a TOML file. A finding of `uetproto fuzz --adapter` is
    played again on the same implementation, or on that of --set run.adapter=MODULE:CLASS. Exit status 1 if the memory
    of the target differs from the input, if the transfer failed, if --check found a fault, or if a finding still fails.
    """
    scenario = tuple(name for asked in scenario for name in _named(asked))
    if comparing:
        for name, given in (("-o", output), ("--tap", tap), ("--seed", seed), ("--check", check or None)):
            if given is not None:
                raise LocalError(
                    f"{name} does not go with --compare, which runs each scenario many times",
                    id="conflicting-arguments",
                )
        _compare(scenario, settings, as_json)
        return
    if output is not None and len(scenario) > 1:
        raise LocalError(f"-o {output}", f"a capture holds one scenario, here are {len(scenario)}", id="single-run")
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output", id="stdout-taken")
    findings = [name for name in scenario if is_finding(name)]
    if findings:
        if len(findings) < len(scenario) or tap is not None or seed is not None:
            raise LocalError(
                findings[0], "a finding of a machine goes with no scenario, --tap or --seed", id="conflicting-arguments"
            )
        if not HYPOTHESIS:
            raise no_hypothesis(findings[0])
        from uetproto.cli.drive import play_again

        failing = [name for name in findings if not play_again(name, settings, output, as_json)]
        if failing:
            raise click.exceptions.Exit(FAULT)
        return
    if tap is not None:
        settings = (*settings, f"tap.nodes={tap}")
    if trains is not None:
        settings = (*settings, f"fabric.trains={trains}")
    if seed is not None:
        settings = (*settings, f"run.seed={seed}")
    options = {key: name for key, name, value in (
        ("tap.nodes", "tap", tap), ("run.seed", "seed", seed), ("fabric.trains", "trains", trains))
               if value is not None}  # fmt: skip
    loaded, missing = _loaded(scenario, settings, options)
    inputs = [toml_file("SCENARIO", name) for name in scenario] + [("its input", one.run.input) for one in loaded]
    check_output("-o", output, inputs)
    good = True
    for one in loaded:
        try:
            with progress(one.name, "bytes") as show:
                result = run(one, output=output, check=check, progress=show)
        except KeyboardInterrupt:
            kept = f"; {printable(output or '')} is whole up to here" if output not in (None, "-") else ""
            tell([f"uetproto: {printable(one.name)} was interrupted{kept}"], aside=True)
            raise
        good = good and result.ok
        if as_json:
            click.echo(json.dumps(result.as_dict()))
        else:
            tell(_summary(one, result, painter()), aside=output == "-")
    if missing is not None:
        raise missing
    if not good:
        raise click.exceptions.Exit(FAULT)


def _loaded(
    names: tuple[str, ...], settings: tuple[str, ...], options: Mapping[str, str]
) -> tuple[list[Scenario], MissingPackageError | None]:
    """Load the scenarios; return those that can run, and one error for those that need a package not installed."""
    loaded, without = [], []
    error: MissingPackageError | None = None
    for name in names:
        try:
            loaded.append(load(name, settings, options))
        except MissingPackageError as missing:
            error = missing
            without.append(name)
    return loaded, error and MissingPackageError(f"not run: {', '.join(without)}: {error}", id="missing-package")


def _compare(scenario: tuple[str, ...], settings: tuple[str, ...], as_json: bool) -> None:
    with status() as show:
        found = compare(scenario, settings, show)
    if as_json:
        for one in found:
            click.echo(json.dumps(one.as_dict()))
    else:
        tell(table(found, painter()))
    if not all(one.ok for one in found):
        raise click.exceptions.Exit(FAULT)


def _named(asked: str) -> list[str]:
    """Return the shipped names that match a pattern; a name without wildcards is returned unchanged."""
    if asked.endswith(".toml") or "/" in asked or not set("*?[") & set(asked):
        return [asked]
    found = [name for name in names() if fnmatchcase(name, asked)]
    if not found:
        near = similar(asked.strip("*?"), names())
        raise LocalError(
            asked, f"no shipped scenario has such a name{near}", "those of uetproto scenario list",
            id="unknown-scenario"
        )  # fmt: skip
    return found


def _summary(scenario: Scenario, result: RunResult, paint: Paint) -> Iterator[str]:
    run_ = scenario.run
    between = f"from {printable(run_.initiator)} to {printable(run_.target)}"
    if len({name for row in scenario.operations for name in (row.node, row.peer)}) > 2:
        between = f"between {many(len(scenario.nodes), 'node')}"
    control = "" if scenario.plane is None or not scenario.plane.controls else f" {scenario.plane.config.algorithm},"
    yield (
        f"{paint(printable(result.scenario), 'bold')}: {many(result.bytes, 'byte')} {between},"
        f" {_transport(scenario)},{control} seed {result.seed}"
    )
    yield f"  source  sha256 {result.sha256_source}"
    verdict = paint("match", "green") if result.match else paint("differs", "alarm")
    yield f"  target  sha256 {result.sha256_target}  {verdict}"
    yield (
        f"  {many(result.packets, 'packet')}, {many(result.retransmissions, 'retransmission')},"
        f" {many(result.nacks, 'NACK')}, {_passed(result.virtual_time_ps)}"
    )
    if result.memory:
        yield _memory(run_, result.memory)
    yield from _patterns(scenario, result)
    for one in result.operations:
        fine = one["match"] and one["return_code"] == one["expect"]
        if fine and scenario.operations[one["operation"]].pattern:
            continue
        what = [one["return_code"]]
        if one["return_code"] != one["expect"]:
            what.append(f"{one['expect']} expected")
        if fine or not one["match"]:
            what.append("match" if fine else "differs")
        text = ", ".join(what)
        done = f"{one['operation']} {one['do']} {many(one['length'], 'byte')}"
        yield f"  {done}, {printable(one['node'])}: {paint(text, 'green' if fine else 'alarm')}"
    if result.happened:
        yield "  " + _counts(result.happened)
        if any(name in result.happened for name in ("switch_dropped", "switch_marked", "pauses")):
            longest = sorted(result.queue_peaks.items(), key=lambda one: -one[1])[:_MOST_QUEUES]
            shown = [one for one in result.queue_peaks.items() if one in longest]
            peaks = ", ".join(f"{printable(node)} {many(peak, 'byte')}" for node, peak in shown)
            left = len(result.queue_peaks) - len(shown)
            yield f"  longest queue in the switch: {peaks}{f', and {left} shorter ones' if left else ''}"
    if result.nacks_by_code:
        yield "  NACKs: " + ", ".join(f"{code} {count:,}" for code, count in result.nacks_by_code.items())
    for name, counters in result.counters.items():
        if counters:
            yield f"  {printable(name)}: " + _counts(counters)
    for name, told in result.security.items():
        refused = "".join(f", {count:,} refused: {reason}" for reason, count in told["refused"].items())
        yield f"  {printable(name)}: {told['sealed']:,} sealed, {told['opened']:,} opened{refused}"
    for name, path in result.data_paths.items():
        hops = ", ".join(f"{hop.replace('_', ' ')} {size:,}" for hop, size in path["bytes_per_hop"].items())
        yield (
            f"  {printable(name)}: data path {path['path']}: {many(path['copies'], 'copy', 'copies')}, bytes {hops},"
            f" by the CPU {path['cpu_bytes']:,}, {_time(path['time_ps'])}"
        )
    for name, told in result.trains.items():
        yield f"  {printable(name)}: {train_splits.words(told)}"
    if result.checked is not None:
        yield f"  check: {many(result.checked, 'frame')} judged, {many(len(result.findings), 'finding')}"
    for finding in result.findings[:_MOST]:
        yield f"    {paint(printable(finding), 'alarm')}"
    if len(result.findings) > _MOST:
        yield f"    and {len(result.findings) - _MOST:,} more"
    if result.capture is not None:
        yield f"  capture {printable(result.capture)}"
    if result.failure is not None:
        yield f"  {paint('failed', 'alarm')}: {printable(result.failure)}"


def _patterns(scenario: Scenario, result: RunResult) -> Iterator[str]:
    """Return a line for each traffic pattern, with the completion times of its writes."""
    rows = scenario.operations
    for where in dict.fromkeys(row.where for row in rows if row.pattern):
        these = [one for one in result.operations if rows[one["operation"]].where == where and one["do"] == "write"]
        ended = sorted(one["time_ps"] for one in these if one["time_ps"] is not None)
        row = rows[these[0]["operation"]]
        line = f"  {row.pattern}: {many(len(these), 'write')} of {many(these[0]['length'], 'byte')}"
        if ended:
            times = [time - row.at for time in ended]
            told = (("first", times[0]), ("mean", sum(times) // len(times)), ("last", times[-1]))
            line += ", " + ", ".join(f"{name} after {_time(time)}" for name, time in told)
        yield line


def _memory(run_: RunConfig, memory: Mapping[str, int]) -> str:
    """Return a line with the addresses of the bytes that are written."""
    source, target, last = memory["source_base"], memory["target_base"], max(memory["length"] - 1, 0)
    at = memory["offset"]
    return (
        f"  memory  {printable(run_.initiator)} 0x{source:08x} to 0x{source + last:08x};"
        f" {printable(run_.target)} base 0x{target:x}, offsets {at:,} to {at + last:,}"
    )


def _transport(scenario: Scenario) -> str:
    run_, node = scenario.run, scenario.nodes[scenario.run.initiator]
    if run_.transport != UET:
        return f"{run_.transport.name}, path MTU {node.roce.path_mtu}"
    return f"{run_.mode.name}, {f'payload MTU {node.ses.payload_mtu}' if run_.ses == 'real' else 'scripted SES'}"


_MOST = 20  # findings that are shown
_MOST_QUEUES = 8  # queues that are shown


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())


def _passed(picoseconds: int) -> str:
    """Return the virtual time of a run as text. A scripted run passes time only in steps that advance it."""
    return f"{_time(picoseconds)} of virtual time" if picoseconds else "no virtual time passes"


def _time(picoseconds: int) -> str:
    for unit, name in ((10**12, "s"), (10**9, "ms"), (10**6, "µs"), (10**3, "ns")):
        if picoseconds >= unit:
            return f"{picoseconds / unit:.3f} {name}"
    return f"{picoseconds} ps"
