"""This module has the command `uetproto fabric`: many senders in one fabric, and what congestion does to them."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median

import click

from uetproto import LocalError
from uetproto.cli.collective.options import topology as topology_of
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_outputs
from uetproto.cli.terminal import console, printable, tell
from uetproto.emulator.congestion import OFF, PROFILES
from uetproto.engine.cc.config import PATHS
from uetproto.engine.cc.registry import ALGORITHMS, check_algorithm
from uetproto.engine.contract import MICROSECOND
from uetproto.errors import similar
from uetproto.fabric.matrix import PATTERNS, TrafficMatrix, traffic_matrix
from uetproto.fabric.result import StudyResult
from uetproto.fabric.study import Study, StudyConfig
from uetproto.knobs import KeyType
from uetproto.toml.values import RATE, size, time
from uetproto.wire.capture.pcap import ETHERNET, open_writer

_SIZE, _TIME = size(1, 2**32 - 2), time(0)
_MOST_SEEDS = 1000
_SEED = 2**32


@click.command(
    epilog=f"""\b
Example:
  uetproto fabric incast --hosts 16 --rate "100 Gb/s"
  uetproto fabric incast --cc off,nscc,rccc,nscc+rccc --seeds 1-5 --compare
  uetproto fabric permutation --hosts 128 --lb oblivious,mixed --profile htsim --json
  uetproto fabric incast --flow-size "64 KiB" -o incast.pcapng
  uetproto fabric traffic.cm --rate "400 Gb/s" --no-trim

Patterns: incast, the upper half of the hosts to host 0; outcast, host 0 to the upper half; permutation, host i to
i + hosts / 2; all_to_all. Each flow is one WRITE in mode RUD. A file is a traffic matrix of the UEC simulator: Nodes,
Connections, and a->b id i start t size s in a line, t in picoseconds.

The time of a flow is from its start to the ACK of its last packet at the sender. Hosts are h0, h1, …; 10.0.0.1 is h0.

{EXIT_STATUS}"""
)
@click.argument("pattern", metavar=f"{{{','.join(PATTERNS)},FILE.cm}}")
@click.option("--hosts", type=int, default=16, show_default=True, metavar="N", help="Hosts of a pattern.")
@click.option("--rate", default="100 Gb/s", show_default=True, metavar="R", help="Rate of each link.")
@click.option("--delay", default="1 us", show_default=True, metavar="T", help="Delay of each link.")
@click.option(
    "--topology", default="fat-tree", show_default=True, metavar="T",
    help="Topology, such as fat-tree:k=8 or leaf-spine:hosts_per_leaf=4,spines=2; as for collective.",
)  # fmt: skip
@click.option("--flow-size", default="2000000", show_default=True, metavar="B", help="Size of each flow of a pattern.")
@click.option(
    "--cc", default="nscc", show_default=True, metavar="A,…",
    help=f"Congestion control: {OFF}, {', '.join(ALGORITHMS)}, or some of them joined by +; each is a run.",
)  # fmt: skip
@click.option(
    "--lb", default="mixed", show_default=True, metavar="P,…",
    help=f"Path selection: {', '.join(PATHS)}; each is a run. Without congestion control it is oblivious.",
)  # fmt: skip
@click.option(
    "--profile", type=click.Choice(PROFILES), default=PROFILES[0], show_default=True,
    help="Algorithms and queues as the notes on UE recommend, or as the UEC simulator has them.",
)  # fmt: skip
@click.option("--queue", metavar="B", help="Size of each queue of a switch; default: a bandwidth-delay product.")
@click.option("--trim/--no-trim", default=True, show_default=True, help="Whether switches trim what finds no room.")
@click.option(
    "--slow-links", type=click.IntRange(0, 1024), default=0, show_default=True, metavar="N",
    help="Links from core switches to the first aggregation switch of a fat tree with a quarter of the rate.",
)  # fmt: skip
@click.option("--seeds", default="1", show_default=True, metavar="N,N-M", help="Seeds; each is a run.")
@click.option("-o", "--output", metavar="FILE", help="Capture the frames at all hosts, of a single run.")
@click.option("--compare", is_flag=True, help="Print one table of all runs: medians over the seeds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a run on standard output.")
def command(
    pattern: str, hosts: int, rate: str, delay: str, topology: str, flow_size: str, cc: str, lb: str, profile: str,
    queue: str | None, trim: bool, slow_links: int, seeds: str, output: str | None, compare: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run the flows of a pattern, or of a traffic matrix file, through a fabric, and tell how long they take.

    Time is virtual, all packets are real bytes, and equal seeds give equal runs.
    """
    load = traffic_matrix(pattern, hosts, _value("--flow-size", flow_size, _SIZE))
    kind, parameters = topology_of(topology)
    config = StudyConfig(
        rate=_value("--rate", rate, RATE), delay=_value("--delay", delay, _TIME), topology=kind, parameters=parameters,
        queue=None if queue is None else _value("--queue", queue, _SIZE), trim=trim, profile=profile,
        slow_links=slow_links,
    )  # fmt: skip
    runs = [
        replace(config, cc=algorithm, lb=path, seed=seed)
        for algorithm in _algorithms(cc) for path in _names("--lb", lb, PATHS) for seed in _seeds(seeds)
    ]  # fmt: skip
    if output is not None and len(runs) > 1:
        raise LocalError(f"-o {output}", f"of {len(runs)} runs", "one run")
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output")
    inputs = () if pattern in PATTERNS else (("FILE", pattern),)
    check_outputs([("-o", output)], inputs)
    results = []
    for one in runs:
        results.append(result := _run(one, load, output))
        if as_json:
            click.echo(json.dumps(result.as_dict()))
        elif not compare:
            tell(_words(result, output), aside=output == "-")
    if compare and not as_json:
        _table(results, aside=output == "-")
    if any(result.failure is not None for result in results):
        raise click.exceptions.Exit(FAULT)


def _value(option: str, text: str, kind: KeyType) -> int:
    try:
        value: int = kind.check(int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text)
    except ValueError:
        raise LocalError(f"{option} {text}", f"legal is {kind.legal}") from None
    return value


def _algorithms(text: str) -> list[str]:
    found = list(dict.fromkeys(text.split(",")))
    for name in found:
        if name != OFF:
            try:
                check_algorithm(name)
            except LocalError as error:
                raise LocalError(f"--cc {text}", error.value, f"{OFF}, {error.legal}") from None
    return found


def _names(option: str, text: str, legal: tuple[str, ...]) -> list[str]:
    found = list(dict.fromkeys(text.split(",")))
    for name in found:
        if name not in legal:
            raise LocalError(f"{option} {text}", f"{name!r} is not legal{similar(name, legal)}", ", ".join(legal))
    return found


def _seeds(text: str) -> list[int]:
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last if dash else first]
        if not all(end.isascii() and end.isdecimal() and len(end) < 11 and int(end) < _SEED for end in ends):
            raise LocalError(f"--seeds {text}", f"{part!r} is not legal", "numbers, and ranges such as 1-5")
        if int(ends[1]) - int(ends[0]) >= _MOST_SEEDS or len(found) > _MOST_SEEDS:
            raise LocalError(f"--seeds {text}", f"more than {_MOST_SEEDS} runs")
        found |= dict.fromkeys(range(int(ends[0]), int(ends[1]) + 1))
    if not found:
        raise LocalError(f"--seeds {text}", "no seed", "numbers, and ranges such as 1-5")
    return list(found)


def _run(config: StudyConfig, load: TrafficMatrix, output: str | None) -> StudyResult:
    names = [f"h{host}" for host in range(load.hosts)]
    with ExitStack() as stack:
        writer = None
        if output is not None:
            comment = f"uetproto fabric {load.name}, seed {config.seed}"
            writer = stack.enter_context(
                open_writer(output, comment=comment, interfaces=[(n, ETHERNET) for n in names])
            )
        study = Study(config, load, writer)
        show = stack.enter_context(_progress(load.name, len(load.flows)))
        asked = stack.enter_context(Interrupt())

        def progress(ended: int, now: int) -> None:
            asked.check()
            if show is not None:
                show(ended)

        return study.run(progress)


def _how(result: StudyResult) -> str:
    return OFF if result.cc == OFF else f"{result.cc} {result.lb}"


def _title(result: StudyResult) -> str:
    rate = f"{result.rate / 10**9:g} Gb/s"
    return f"{printable(result.pattern)}, {result.hosts} hosts, {rate}, {result.profile}; times in µs, medians"


def _table(results: list[StudyResult], aside: bool) -> None:
    """Print a line for each algorithm and path selection: medians over the seeds."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, title=_title(results[0]), padding=(0, 1, 0, 0))
    times_told = ("min", "mean", "p99", "max")
    for head in ("", "seeds", *times_told, "Gb/s", "fair", "marks", "trims", "drops", "ACKs"):
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    for how in dict.fromkeys(map(_how, results)):
        these = [one for one in results if _how(one) == how]
        told = [one for one in these if one.fct is not None]
        times = [
            f"{median(getattr(one.fct, name) for one in told) / MICROSECOND:,.1f}" if told else "-"
            for name in times_told
        ]
        counts = [f"{median(getattr(one, name) for one in these):,.0f}" for name in ("marks", "trims", "drops", "acks")]
        rate, fair = (median(getattr(one, name) for one in these) for name in ("goodput", "fairness"))
        table.add_row(how, f"{len(these)}", *times, f"{rate / 10**9:,.1f}", f"{fair:.2f}", *counts)
    console(aside).print(table)
    for one in results:
        if one.failure is not None:
            tell([f"{_how(one)}, seed {one.seed}: failed: {printable(one.failure)}"], aside)


def _words(result: StudyResult, output: str | None) -> Iterator[str]:
    yield (
        f"{printable(result.pattern)}: {result.flows} flows between {result.hosts} hosts, {result.rate / 10**9:g} Gb/s,"
        f" {_how(result)}, {result.profile}, seed {result.seed}"
    )
    if result.fct is not None:
        fct = result.fct
        times = (("min", fct.min), ("mean", fct.mean), ("p50", fct.p50), ("p99", fct.p99), ("max", fct.max))
        yield "  flow completion time, µs: " + ", ".join(f"{name} {value / MICROSECOND:,.1f}" for name, value in times)
        yield f"  goodput {result.goodput / 10**9:,.1f} Gb/s, fairness {result.fairness:.3f}"
    again = ", ".join(f"{cause} {count:,}" for cause, count in result.retransmissions.items()) or "none"
    yield f"  {result.packets:,} packets, sent again: {again}"
    yield (
        f"  marked {result.marks:,}, trimmed {result.trims:,}, dropped {result.drops:,}; ACKs {result.acks:,};"
        f" longest queue {result.queue_peak:,} bytes"
    )
    if output is not None:
        yield f"  capture {printable(output)}"
    if result.failure is not None:
        yield f"  failed: {printable(result.failure)}"


@contextmanager
def _progress(name: str, flows: int) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(printable(name), markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("flows"))
    with Progress(*columns, console=console(aside=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(name, total=flows)
        yield lambda ended: bar.update(task, completed=ended)
