"""`uetproto collective`: a collective over an emulated fabric, every number beside the one that theory promises."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from uetproto.api.distributed import DistError, ReduceOp, TransportError
from uetproto.api.distributed_choice import check_one
from uetproto.api.distributed_world import TRANSPORTS
from uetproto.cli.collective_plot import check_plot, plot
from uetproto.cli.collective_report import heading, one, sweep, table
from uetproto.cli.collective_run import MOST_RANKS, Case, Prepared, Progress
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.terminal import painter
from uetproto.collectives.catalogue import ALGORITHMS, HIERARCHICAL
from uetproto.collectives.check import check
from uetproto.collectives.draw import draw
from uetproto.collectives.dtypes import dtype
from uetproto.collectives.gpu_matrix_text import parse
from uetproto.collectives.measure import Measured
from uetproto.collectives.reduce_ops import OPS
from uetproto.collectives.schedule import REDUCING
from uetproto.collectives.show import show
from uetproto.collectives.topology_kinds import PARAMETERS
from uetproto.emulator.keys import size
from uetproto.errors import LocalError

_BYTES = size(0, 1 << 40)
_DEFAULT_BYTES = "1 MiB"


def _by_operation() -> str:
    """For the help."""
    lines = []
    for op, makers in ALGORITHMS.items():
        names = ", ".join(name for name, maker in makers.items() if maker)
        lines.append(fill(names, 100, initial_indent=f"  {op:16}", subsequent_indent=" " * 18))
    return "\n".join(lines)


@click.command(
    epilog=f"""\b
Example:
  uetproto collective all_reduce --ranks 4 --algorithm ring --bytes 4096 -o ring.pcapng
  uetproto collective all_reduce --ranks 16 --bytes 1MiB --compare ring,double_tree,recursive_doubling --plot all.svg
  uetproto collective all_reduce --ranks 2,4,8,16,32,64 --bytes 1KiB --compare ring,double_tree,recursive_doubling
  uetproto collective all_reduce --ranks 16 --algorithm split_rail --topology rails:gpus_per_node=4 --transport roce
  uetproto collective all_gather --ranks 8 --algorithm bruck --schedule --plot bruck.svg
  uetproto collective all_reduce --ranks 4096 --algorithm double_tree --transport model

\b
Algorithms:
{_by_operation()}

The formulas are those of collectives.md §3.0. Their alpha and beta are taken from the fabric: a message goes through it
three times (where its bytes may go, the bytes, the acknowledgement), hops × 1 µs each; a byte takes its time on a cable
of 400 Gb/s. Who has been asked before it comes to send is faster than that. The model has alpha 1 µs and no packets:
bytes_on_links is null then.

{EXIT_STATUS}"""
)
@click.argument("op", metavar="OP")
@click.option(
    "--ranks",
    default="4",
    show_default=True,
    metavar="N,...",
    help=f"How many, up to {MOST_RANKS}; several: one run each.",
)
@click.option("--algorithm", metavar="A", help="Default: as a program gets it for so many bytes.")
@click.option("--compare", metavar="A,B,...|all", help="Several algorithms, side by side.")
@click.option(
    "--bytes", "length", metavar="B",
    help=f"Of the full vector: what a rank holds of all_reduce, all blocks of all_gather; default: {_DEFAULT_BYTES}.",
)  # fmt: skip
@click.option("--dtype", "type_", default="float32", show_default=True, metavar="T", help="Type of the elements.")
@click.option("--op", "reduce_op", metavar="OP", help=f"Of reductions: {', '.join(OPS)}; default: SUM.")
@click.option(
    "--topology", default="switch", show_default=True, metavar="T[:KEY=N,...]",
    help=f"One of {', '.join(PARAMETERS)}; as in leaf-spine:hosts_per_leaf=4.",
)  # fmt: skip
@click.option(
    "--transport", default="uet", show_default=True, metavar="X",
    help=f"One of {', '.join(TRANSPORTS)}, or model: alpha and beta, no packets.",
)  # fmt: skip
@click.option("--gpus", metavar="FILE", help="How the GPUs of each host are joined: text of nvidia-smi topo -m.")
@click.option("--schedule", "only_schedule", is_flag=True, help="Show the schedule, checked, and run nothing.")
@click.option("--plot", "plot_file", metavar="FILE", help="Draw it: .png or .svg; a schedule: .svg.")
@click.option("-o", "--output", metavar="FILE", help="Capture: .pcapng or .pcap, also .gz; - is standard output.")
@click.option("--tap", metavar="RANK,...|all", help="Ranks whose port is captured; default: 0.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, metavar="N", help="Seed of all that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object an algorithm on standard output.")
def command(
    op: str,
    ranks: str,
    algorithm: str | None,
    compare: str | None,
    length: str | None,
    type_: str,
    reduce_op: str | None,
    topology: str,
    transport: str,
    gpus: str | None,
    only_schedule: bool,
    plot_file: str | None,
    output: str | None,
    tap: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Run a collective with real tensors over an emulated fabric: steps, bytes and time beside those of the formulas.

    Exit status 1 if a result is not that of NumPy.
    """
    if op not in ALGORITHMS:
        raise LocalError(f"op: {op!r}; legal: {', '.join(ALGORITHMS)}")
    if transport not in ("model", *TRANSPORTS):
        raise LocalError(f"--transport {transport}: legal are {', '.join(('model', *TRANSPORTS))}")
    kind, shape = _topology(topology)
    matrix = None if gpus is None else parse(Path(gpus).read_text(errors="replace"))
    if matrix is not None:
        if kind == "pair":
            raise LocalError("--gpus does not go with --topology pair, whose hosts have one GPU each")
        shape.setdefault("gpus_per_node", len(matrix.gpus))
        if shape["gpus_per_node"] > len(matrix.gpus):
            raise LocalError(f"gpus_per_node: {shape['gpus_per_node']}; legal with {gpus}: 1 … {len(matrix.gpus)}")
    numbers = _ranks(ranks)
    case = Case(
        op=op, algorithm=None, ranks=numbers[0], length=_length(op, length), dtype=dtype(type_),
        reduce_op=_reduce_op(op, reduce_op), transport="model" if only_schedule else transport, kind=kind, shape=shape,
        matrix=matrix, seed=seed,
    )  # fmt: skip
    names = _algorithms(op, algorithm, compare, hosts=shape.get("gpus_per_node", 1) > 1 or kind == "rails")
    if only_schedule:
        _only_schedule(
            [Prepared(replace(case, ranks=n, algorithm=a)) for n in numbers for a in names], plot_file, output, as_json
        )
        return
    taps = _checked_capture(output, tap, transport, len(numbers) * len(names), numbers[0], as_json)
    if plot_file is not None:
        check_plot(plot_file)
    prepared = [Prepared(replace(case, ranks=n, algorithm=a)) for n in numbers for a in names]
    for each in prepared:
        each.check_memory()
    found: list[Measured] = []
    for each in prepared:
        name = f"{each.algorithm}, {each.case.ranks} ranks"
        try:
            with _progress(name) as progress:
                found.append(each.run(output, taps, progress))
        except (DistError, TransportError) as error:  # not misuse: the fabric, or a rank, has failed
            click.echo(f"uetproto: {name}: {error}", err=True)
            raise click.exceptions.Exit(FAULT) from None
        if as_json:
            click.echo(json.dumps(found[-1].as_dict()))
    if not as_json:
        click.echo("\n".join(_report(found, prepared)), err=output == "-")
    if plot_file is not None:
        plot(found, plot_file, f"{op}, {heading(prepared[0])}")
    if not all(each.correct for each in found):
        raise click.exceptions.Exit(FAULT)


def _report(found: Sequence[Measured], prepared: Sequence[Prepared]) -> Iterator[str]:
    if len(found) == 1:
        return one(found[0], prepared[0], painter())
    several = len({each.ranks for each in found}) > 1
    return (sweep if several else table)(found, prepared[0], painter())


# What the options mean ------------------------------------------------------------------------------------------------


def _ranks(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isascii() and number.isdecimal() and len(number) < 7 and int(number) for number in numbers):
        raise LocalError(f"--ranks {text}: legal are whole numbers, 1 … {MOST_RANKS}, with commas between them")
    return list(dict.fromkeys(map(int, numbers)))


def _length(op: str, text: str | None) -> int:
    if op == "barrier":
        if text not in (None, "0"):
            raise LocalError(f"--bytes {text}: a barrier moves none; legal: 0")
        return 0
    text = _DEFAULT_BYTES if text is None else text
    try:
        number: int = _BYTES.check(int(text) if text.isascii() and text.isdecimal() else text)
    except ValueError:
        raise LocalError(f"--bytes {text}: legal is {_BYTES.legal}") from None
    return number


def _reduce_op(op: str, name: str | None) -> ReduceOp:
    if name is None:
        return ReduceOp.SUM
    if op not in REDUCING:
        raise LocalError(f"--op {name}: {op} reduces nothing; legal with {', '.join(sorted(REDUCING))}")
    if name.upper() not in OPS:
        raise LocalError(f"--op {name}: legal are {', '.join(OPS)}")
    found: ReduceOp = getattr(ReduceOp, name.upper())
    return found


def _topology(text: str) -> tuple[str, dict[str, int]]:
    """Kind and parameters."""
    kind, _, rest = text.partition(":")
    if kind not in PARAMETERS:
        raise LocalError(f"--topology {kind}: legal are {', '.join(PARAMETERS)}")
    shape = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in PARAMETERS[kind] or not (value.isascii() and value.isdecimal() and len(value) < 7):
            keys = ", ".join(f"{key}=N" for key in PARAMETERS[kind]) or "none"
            raise LocalError(f"--topology {text}: {part!r} is no parameter of {kind}; legal: {keys}")
        shape[key] = int(value)
    return kind, shape


def _algorithms(op: str, algorithm: str | None, compare: str | None, *, hosts: bool) -> list[str | None]:
    """Those that are to run; None: the one chosen for so many bytes. All: without hosts no hierarchical ones."""
    if compare is None:
        return [None if algorithm is None else check_one(op, algorithm)]
    every = [name for name, maker in ALGORITHMS[op].items() if maker and (hosts or name not in HIERARCHICAL)]
    names = every if compare == "all" else compare.split(",")
    first = [] if algorithm is None else [algorithm]
    return [check_one(op, name) for name in dict.fromkeys([*first, *names])]


def _checked_capture(
    output: str | None, tap: str | None, transport: str, runs: int, ranks: int, as_json: bool
) -> list[int] | None:
    """The ranks to be captured."""
    if output is None:
        if tap is not None:
            raise LocalError(f"--tap {tap}: needs -o FILE")
        return None
    if transport not in TRANSPORTS:
        raise LocalError(f"-o {output}: the model has no packets; legal with --transport {', '.join(TRANSPORTS)}")
    if runs > 1:
        raise LocalError(f"-o {output}: a capture holds one collective, here are {runs}")
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output")
    if tap in (None, "all"):
        return [0] if tap is None else list(range(ranks))
    taps = tap.split(",")
    if not all(one.isascii() and one.isdecimal() and len(one) < 7 and int(one) < ranks for one in taps):
        raise LocalError(f"--tap {tap}: legal are ranks, 0 … {ranks - 1}, with commas between them, and all")
    return list(dict.fromkeys(map(int, taps)))


# The schedule alone ---------------------------------------------------------------------------------------------------


def _only_schedule(prepared: list[Prepared], plot_file: str | None, output: str | None, as_json: bool) -> None:
    if output is not None:
        raise LocalError(f"-o {output}: --schedule runs nothing that could be captured; --plot FILE.svg draws it")
    if plot_file is not None:
        if not plot_file.lower().endswith(".svg"):
            raise LocalError(f"--plot {plot_file}: a schedule is drawn as .svg")
        if len(prepared) > 1:
            raise LocalError(f"--plot {plot_file}: a drawing holds one schedule, here are {len(prepared)}")
        Path(plot_file).write_text(draw(prepared[0].schedule))
    for each in prepared:
        counted, item = check(each.schedule), each.case.dtype.itemsize
        if as_json:
            click.echo(json.dumps(_as_dict(each, counted.steps, [int(sent) * item for sent in counted.sent])))
        else:
            click.echo(show(each.schedule))
            theory = each.formula
            click.echo(
                f"checked: {counted.messages:,} messages, {counted.elements * item:,} bytes,"
                f" at most {int(counted.sent.max()) * item:,} by a rank"
                + ("" if theory is None else f"; formula: {theory.steps} steps, {theory.bytes_per_rank:,.0f} bytes")
            )


def _as_dict(prepared: Prepared, steps: int, sent: list[int]) -> dict[str, Any]:
    """The object of interfaces.md §10, without what only a run tells."""
    found = Measured(
        op=prepared.case.op, algorithm=prepared.algorithm, ranks=prepared.case.ranks, bytes=prepared.case.length,
        steps=steps, messages=0, sent=tuple(sent), links=None, promised=prepared.promised, time=0,
        formula=prepared.formula, correct=True,
    ).as_dict()  # fmt: skip
    return found | {"virtual_time_ps": None}


@contextmanager
def _progress(name: str) -> Iterator[Progress | None]:
    """A bar on standard error where that is a terminal: messages sent, of all."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("messages"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
