# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto fabric`: many senders in one fabric, and what congestion does to them."""

import json
from contextlib import ExitStack
from dataclasses import replace

import click

from uetproto import LocalError
from uetproto.cli.choice import Choice
from uetproto.cli.collective.options import topology as topology_of
from uetproto.cli.fabric import plot
from uetproto.cli.fabric.settings import settings_of
from uetproto.cli.fabric.words import how, table, title, words
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_matplotlib, check_outputs, check_plot
from uetproto.cli.terminal import printable, progress, tell
from uetproto.emulator.congestion import OFF, PROFILES
from uetproto.emulator.flows import PATTERNS
from uetproto.emulator.network.config import TRAINS
from uetproto.engine.cc.config import PATHS
from uetproto.engine.cc.registry import ALGORITHMS, check_algorithm
from uetproto.errors import similar
from uetproto.fabric.matrix import TrafficMatrix, traffic_matrix
from uetproto.fabric.result import StudyResult
from uetproto.fabric.study import Study, StudyConfig
from uetproto.fabric.tables import StudyTables
from uetproto.impair.unencoded_frames import WIRES
from uetproto.knobs import KeyType
from uetproto.parquet import check_parquet
from uetproto.system_memory import huge_pages
from uetproto.toml.values import RATE, size, time
from uetproto.wire.capture.pcap import open_writer

_SIZE, _TIME, _INTERVAL = size(1, 2**32 - 2), time(0), time(1)
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
  uetproto fabric incast --cc off,nscc --plot fct,cwnd,queue incast.png
  uetproto fabric incast --set cc.entropy_values=16 --set switch.ecn=deterministic
  uetproto fabric incast+permutation --flow-size "2 MB,64 KiB" --parquet runs
  uetproto fabric incast --topology leaf-spine --fail leaf0.spine1@50us --tap h0,leaf0.spine0 -o tapped.pcapng

Patterns: incast, the upper half of the hosts to host 0; outcast, host 0 to the upper half; permutation, host i to
i + hosts / 2; all_to_all; several joined by + run together. Each flow is one WRITE in mode RUD. A file is a traffic
matrix of the UEC simulator: Nodes, Connections, and a->b id i start t size s in a line, t in picoseconds.

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
@click.option(
    "--flow-size", default="2000000", show_default=True, metavar="B,…",
    help="Size of each flow; with several patterns one for all, or one for each.",
)  # fmt: skip
@click.option(
    "--cc", default="nscc", show_default=True, metavar="A,…",
    help=f"Congestion control: {OFF}, {', '.join(ALGORITHMS)}, or some of them joined by +; each is a run.",
)  # fmt: skip
@click.option(
    "--lb", default="mixed", show_default=True, metavar="P,…",
    help=f"Path selection: {', '.join(PATHS)}; each is a run. Without congestion control it is oblivious.",
)  # fmt: skip
@click.option(
    "--profile", type=Choice(PROFILES), default=PROFILES[0], show_default=True,
    help="Algorithms and queues as the notes on UE recommend, or as the UEC simulator has them.",
)  # fmt: skip
@click.option("--queue", metavar="B", help="Size of each queue of a switch; default: a bandwidth-delay product.")
@click.option("--trim/--no-trim", default=True, show_default=True, help="Whether switches trim what finds no room.")
@click.option(
    "--slow-links", type=click.IntRange(0, 1024), default=0, show_default=True, metavar="N",
    help="Links from core switches to the first aggregation switch of a fat tree with a quarter of the rate.",
)  # fmt: skip
@click.option(
    "--fail", default="", metavar="LINK@T,…",
    help="Cut cables between switches, such as leaf0.spine1@50us; without a time at the beginning.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Change a parameter of congestion control (cc.KEY), switches (switch.KEY) or packet delivery (pds.KEY) of"
    " docs/reference/keys.md; may be repeated.",
)  # fmt: skip
@click.option(
    "--wire", type=Choice(WIRES), default=WIRES[0], show_default=True,
    help="Whether frames are encoded. With objects they are not, which is faster; results are the same.",
)  # fmt: skip
@click.option(
    "--trains", type=Choice(TRAINS), default=TRAINS[0], show_default=True,
    help="Whether equal packets are handled together. Results and captures are the same; off takes more time.",
)  # fmt: skip
@click.option("--seeds", default="1", show_default=True, metavar="N,N-M", help="Seeds; each is a run.")
@click.option("-o", "--output", metavar="FILE", help="Capture frames, of a single run.")
@click.option(
    "--tap", metavar="PLACE,…",
    help="Where -o captures: hosts, such as h0, cables between switches, such as leaf0.spine1, and switches, such as"
    " leaf0, for all their cables; default: all hosts.",
)  # fmt: skip
@click.option(
    "--plot", "picture", nargs=2, metavar="KIND,… FILE",
    help=f"Draw {', '.join(plot.KINDS)} of the runs as .png or .svg; windows and queues of the first seed.",
)  # fmt: skip
@click.option("--parquet", metavar="DIR", help="Write flows, windows, queues and links of all runs as Parquet files.")
@click.option("--sample", default="1 us", show_default=True, metavar="T", help="Time between samples of those.")
@click.option("--compare", is_flag=True, help="Print one table of all runs: medians over the seeds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a run on standard output.")
def command(
    pattern: str, hosts: int, rate: str, delay: str, topology: str, flow_size: str, cc: str, lb: str, profile: str,
    queue: str | None, trim: bool, slow_links: int, fail: str, settings: tuple[str, ...], wire: str, trains: str,
    seeds: str,
    output: str | None, tap: str | None, picture: tuple[str, str] | None, parquet: str | None, sample: str,
    compare: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run the flows of a pattern, or of a traffic matrix file, through a fabric, and tell how long they take.

    Time is virtual, all packets are real bytes unless --wire objects is given, and equal seeds give equal runs.
    """
    load = traffic_matrix(pattern, hosts, *(_value("--flow-size", one, _SIZE) for one in flow_size.split(",")))
    kind, parameters = topology_of(topology)
    kinds = [] if picture is None else _names("--plot", picture[0], plot.KINDS)
    interval = _value("--sample", sample, _INTERVAL)
    chosen = settings_of(settings, StudyConfig().pds)
    config = StudyConfig(
        rate=_value("--rate", rate, RATE), delay=_value("--delay", delay, _TIME), topology=kind, parameters=parameters,
        queue=None if queue is None else _value("--queue", queue, _SIZE), trim=trim, profile=profile,
        slow_links=slow_links, failing=tuple(map(_failing, filter(None, fail.split(",")))),
        taps=None if tap is None else tuple(tap.split(",")), given=chosen.cc, switch=chosen.switch,
        pds=chosen.pds, wire=wire, trains=trains,
    )  # fmt: skip
    runs = [
        replace(config, cc=algorithm, lb=path, seed=seed)
        for algorithm in _algorithms(cc) for path in _names("--lb", lb, PATHS) for seed in _seeds(seeds)
    ]  # fmt: skip
    variants = dict.fromkeys((one.cc, one.lb) for one in runs)
    if output is not None and len(runs) > 1:
        raise LocalError(f"-o {output}", f"of {len(runs)} runs", "one run", id="single-run")
    if output is not None and wire != "bytes":
        raise LocalError(f"-o {output}", f"with --wire {wire}", "with --wire bytes", id="wire-objects")
    if tap is not None and output is None:
        raise LocalError(f"--tap {tap}", "without a capture", "with -o FILE", id="no-effect")
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output", id="stdout-taken")
    if set(kinds) - {"fct"} and len(variants) > plot.MOST_PANELS:
        raise LocalError(
            f"--plot {picture and picture[0]}", f"{len(variants)} variants", f"at most {plot.MOST_PANELS}",
            id="too-many"
        )  # fmt: skip
    inputs = () if load.name == pattern else (("FILE", pattern),)
    check_outputs([("-o", output), ("--plot", picture and picture[1])], inputs)
    if picture is not None:
        check_plot(picture[1])
        check_matplotlib(picture[1])
    if parquet is not None:
        check_parquet(parquet)
    results: list[StudyResult] = []
    drawn: dict[tuple[str, str], plot.Drawable] = {}
    with ExitStack() as stack:
        tables = None if parquet is None else stack.enter_context(StudyTables(parquet))
        for one in runs:
            sampled = parquet is not None or (set(kinds) - {"fct"} and (one.cc, one.lb) not in drawn)
            study, result = _run(replace(one, sample=interval) if sampled else one, load, output)
            results.append(result)
            if tables is not None:
                tables.add(study)
            if kinds:
                _note(drawn, study, result)
            if as_json:
                click.echo(json.dumps(result.as_dict()))
            elif not compare:
                tell(words(result, output), aside=output == "-")
    if picture is not None:
        plot.plot(list(drawn.values()), kinds, picture[1], title(results[0]))
    if not as_json:
        if compare:
            table(results, aside=output == "-")
        written = [one for one in (picture and f"drawn in {picture[1]}", parquet and f"tables in {parquet}") if one]
        tell(map(printable, written), aside=output == "-")
    if any(result.failure is not None for result in results):
        raise click.exceptions.Exit(FAULT)


def _note(drawn: dict[tuple[str, str], plot.Drawable], study: Study, result: StudyResult) -> None:
    """Keep what is drawn of a run."""
    config = study.config
    times = [end - study.flow(number).start for number, end in study.ended.items()]
    found = drawn.get((config.cc, config.lb))
    if found is None:
        samples = study.sampler
        windows, queues = (None, None) if samples is None else (samples.windows, samples.queues)
        drawn[config.cc, config.lb] = plot.Drawable(how(result), times, windows, queues)
    else:
        found.times.extend(times)


def _failing(text: str) -> tuple[str, int]:
    cable, _, instant = text.partition("@")
    return cable, _value(f"--fail {cable}@", instant, _TIME) if instant else 0


def _value(option: str, text: str, kind: KeyType) -> int:
    try:
        value: int = kind.check(int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text)
    except ValueError:
        raise LocalError(f"{option} {text}", f"legal is {kind.legal}", id="wrong-format") from None
    return value


def _algorithms(text: str) -> list[str]:
    found = list(dict.fromkeys(text.split(",")))
    for name in found:
        if name != OFF:
            try:
                check_algorithm(name)
            except LocalError as error:
                raise LocalError(f"--cc {text}", error.value, f"{OFF}, {error.legal}", id=error.id) from None
    return found


def _names(option: str, text: str, legal: tuple[str, ...]) -> list[str]:
    found = list(dict.fromkeys(text.split(",")))
    for name in found:
        if name not in legal:
            raise LocalError(
                f"{option} {text}", f"{name!r} is not legal{similar(name, legal)}", ", ".join(legal), id="unknown-name"
            )
    return found


def _seeds(text: str) -> list[int]:
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last if dash else first]
        if not all(end.isascii() and end.isdecimal() and len(end) < 11 and int(end) < _SEED for end in ends):
            raise LocalError(
                f"--seeds {text}", f"{part!r} is not legal", "numbers, and ranges such as 1-5", id="wrong-format"
            )
        if int(ends[1]) - int(ends[0]) >= _MOST_SEEDS or len(found) > _MOST_SEEDS:
            raise LocalError(f"--seeds {text}", f"more than {_MOST_SEEDS} runs", id="too-many")
        found |= dict.fromkeys(range(int(ends[0]), int(ends[1]) + 1))
    if not found:
        raise LocalError(f"--seeds {text}", "no seed", "numbers, and ranges such as 1-5", id="missing-argument")
    return list(found)


def _run(config: StudyConfig, load: TrafficMatrix, output: str | None) -> tuple[Study, StudyResult]:
    with ExitStack() as stack:
        stack.enter_context(huge_pages())
        writer = None
        if output is not None:
            comment = f"uetproto fabric {load.name}, seed {config.seed}"
            writer = stack.enter_context(
                open_writer(output, comment=comment, interfaces=Study.interfaces(config, load))
            )
        study = Study(config, load, writer)
        show = stack.enter_context(progress(load.name, "flows", len(load.flows)))
        asked = stack.enter_context(Interrupt())

        def ended(flows: int, now: int) -> None:
            asked.check()
            if show is not None:
                show(flows, len(load.flows))

        return study, study.run(ended)
