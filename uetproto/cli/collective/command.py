# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto collective`, which runs a collective over an emulated fabric.

It compares the measured steps, bytes and time with formulas.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from uetproto.api.distributed import DistError, TransportError
from uetproto.api.distributed.networks.transports import TRANSPORTS
from uetproto.cli.choice import Choice
from uetproto.cli.collective import options
from uetproto.cli.collective.plot import plot
from uetproto.cli.collective.report import congestion_table, heading, how, one, sweep, table
from uetproto.cli.collective.run import MOST_RANKS, CollectiveCase, PreparedCase
from uetproto.cli.main import EXIT_STATUS, FAULT, INTERRUPTED
from uetproto.cli.outputs import check_matplotlib, check_outputs, check_plot
from uetproto.cli.terminal import painter, printable, progress, tell
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, OPTIONS
from uetproto.collectives.algorithms.hierarchical import BETWEEN
from uetproto.collectives.costs.check import check
from uetproto.collectives.costs.measure import MeasuredCollective
from uetproto.collectives.dtypes import dtype
from uetproto.collectives.reduce_ops import OPS
from uetproto.collectives.topology.draw import draw
from uetproto.collectives.topology.gpu_matrix_text import parse
from uetproto.collectives.topology.kinds import GPUS_PER_NODE, PARAMETERS
from uetproto.collectives.topology.show import show
from uetproto.emulator.congestion import OFF
from uetproto.emulator.network.config import TRAINS
from uetproto.emulator.network.ports import MOST_PORTS
from uetproto.engine.cc.config import PATHS
from uetproto.engine.cc.registry import ALGORITHMS as CC
from uetproto.errors import LocalError
from uetproto.textfile import read_bounded


def _by_operation() -> str:
    """Return the algorithms of each operation, for the help."""
    lines = []
    for op, rows in ALGORITHMS.items():
        names = ", ".join(name if row.make else f"{name}*" for name, row in rows.items())
        lines.append(fill(names, 100, initial_indent=f"  {op:16}", subsequent_indent=" " * 18))
    return "\n".join(lines)


def _having(option: str) -> str:
    """Return the algorithms that have an option, for the help."""
    return ", ".join(OPTIONS[option])


@click.command(
    epilog=f"""\b
Example:
  uetproto collective all_reduce --ranks 4 --algorithm ring --bytes 4096 -o ring.pcapng
  uetproto collective all_reduce --ranks 16 --bytes 1MiB --compare ring,double_tree,recursive_doubling --plot all.svg
  uetproto collective all_reduce --ranks 2,4,8,16,32,64 --bytes 1KiB --compare ring,double_tree,recursive_doubling
  uetproto collective all_reduce --ranks 16 --algorithm split_rail --topology rails:gpus_per_node=4 --transport roce
  uetproto collective all_gather --ranks 8 --algorithm bruck --schedule --plot bruck.svg
  uetproto collective all_reduce --ranks 4096 --algorithm double_tree --transport model
  uetproto collective all_reduce --ranks 16 --algorithm nccl_ring --topology rails:gpus_per_node=4 --channels 4
  uetproto collective all_reduce --ranks 16 --algorithm nccl_tree --topology rails:gpus_per_node=4 --slices 8
  uetproto collective all_reduce --ranks 16 --algorithm hcoll --topology switch:gpus_per_node=4 --sockets 2
  uetproto collective all_reduce --ranks 16 --algorithm rab --topology switch:gpus_per_node=4 --between double_tree
  uetproto collective all_reduce --ranks 8 --algorithm sharp --topology leaf-spine --transport roce
  uetproto collective all_reduce --ranks 8 --algorithm auto --bytes 1KiB --topology leaf-spine --transport roce
  uetproto collective all_reduce --algorithm sharp --transport roce --sharp SHARP_COLL_ENABLE_SAT=0
  uetproto collective all_reduce --ranks 8 --bytes 4MiB --algorithm sharp --transport roce --ports 2
  uetproto collective all_gather --algorithm multicast --transport roce --multicast roots=1
  uetproto collective all_reduce,all_gather --ranks 16 --topology leaf-spine --transport roce --compare ring,sharp
  uetproto collective all_to_all --ranks 16 --algorithm pairwise --topology rails:gpus_per_node=4 --cross-nic 1

\b
Algorithms:
{_by_operation()}
  * carried out by the network: SHARP in its switches over uet and roce, multicast over roce. There is no schedule.
  auto, for all_reduce: ring, double_tree or sharp, the one with the least time by its formula; the report says why.

The formulas are those of collectives.md §3.0 and sharp.md §4.4. Their alpha and beta are those of the fabric: a
message crosses it three times (grant, bytes, acknowledgement) at --delay for each hop, and a byte takes its time on a
cable. Messages that are sent at once share alpha; in the model without packets they follow each other. A sender whose
grant has arrived before it sends is faster than its formula, up to three times. The time of SHARP starts when all ranks
are members of a group. With several ports a message over uet is spread over them; over roce it uses that of its queue
pair. The model has alpha 1 µs and no packets: bytes_on_links is null.

{EXIT_STATUS}"""
)
@click.argument("op", metavar="OP[,OP...]")
@click.option(
    "--ranks",
    default="4",
    show_default=True,
    metavar="N,...",
    help=f"Number of ranks, up to {MOST_RANKS}; several numbers: one run for each.",
)
@click.option("--algorithm", metavar="A", help="Algorithm; default: that of a program for this number of bytes.")
@click.option("--compare", metavar="A,B,...|all", help="Compare several algorithms.")
@click.option(
    "--bytes", "length", metavar="B",
    help=f"Full vector: a rank's of all_reduce, all blocks of all_gather; default {options.DEFAULT_BYTES}.",
)  # fmt: skip
@click.option("--dtype", "type_", default="float32", show_default=True, metavar="T", help="Type of the elements.")
@click.option("--op", "reduce_op", metavar="OP", help=f"Reduce operation: {', '.join(OPS)}; default: SUM.")
@click.option(
    "--topology", default="switch", show_default=True, metavar="T[:KEY=N,...]",
    help=f"Topology: {', '.join(PARAMETERS)}; with parameters as in leaf-spine:hosts_per_leaf=4.",
)  # fmt: skip
@click.option(
    "--transport", default="uet", show_default=True, metavar="X,...",
    help=f"Transports, each is a run: {', '.join(TRANSPORTS)}; or model, which has alpha and beta and no packets.",
)  # fmt: skip
@click.option("--channels", type=click.IntRange(1), metavar="N", help=f"Parallel channels of {_having('channels')}.")
@click.option("--slices", type=click.IntRange(1), metavar="N", help=f"Slices of the pipeline of {_having('slices')}.")
@click.option("--sockets", type=click.IntRange(1), metavar="N", help=f"Sockets of each host, for {_having('sockets')}.")
@click.option(
    "--between",
    metavar="A",
    help=f"All_reduce between the hosts, for {_having('between')}: {', '.join(BETWEEN)}.",
)
@click.option(
    "--cross-nic", metavar="0|1|2",
    help="Messages between rails: 0 never, 1 allow, 2 prefer the same NIC, over a rank of the same host; default: 2.",
)  # fmt: skip
@click.option(
    "--ports", type=click.IntRange(1, MOST_PORTS), default=1, metavar="N",
    help=f"Ports of each NIC, up to {MOST_PORTS}; sharp has a tree for each; default: 1.",
)  # fmt: skip
@click.option(
    "--sharp", multiple=True, metavar="NAME=VALUE",
    help="Option of sharp: a published one, as SHARP_COLL_ENABLE_SAT, or a parameter, as sat_chunk; repeatable.",
)  # fmt: skip
@click.option("--multicast", multiple=True, metavar="NAME=VALUE", help="Parameter of multicast: roots=1; repeatable.")
@click.option(
    "--cc", metavar="A,...",
    help=f"Congestion control; each is a run. UET: {OFF}, {', '.join(CC)}, joined by +, with switches that trim; RoCE:"
    f" {OFF}, {', '.join(options.ROCE_CC)}. Default: over UET with several switches nscc, otherwise {OFF}.",
)  # fmt: skip
@click.option("--lb", metavar="P", help=f"Path selection with --cc: {', '.join(PATHS)}; default: mixed.")
@click.option("--rate", default=options.DEFAULT_RATE, show_default=True, metavar="R", help="Rate of each cable.")
@click.option("--delay", default=options.DEFAULT_DELAY, show_default=True, metavar="T", help="Delay of each cable.")
@click.option("--mtu", type=int, metavar="B", help="Largest payload of a packet; default: 4096.")
@click.option(
    "--loss", type=click.FloatRange(0, 1), default=0, show_default=True, metavar="SHARE",
    help="Share of the frames of hosts that are lost.",
)  # fmt: skip
@click.option(
    "--trains", type=Choice(TRAINS), default=TRAINS[0], show_default=True,
    help="Whether equal packets are handled together. Results and captures are the same; off takes more time.",
)  # fmt: skip
@click.option("--gpus", metavar="FILE", help="File with the GPU matrix of each host: the text of nvidia-smi topo -m.")
@click.option("--schedule", "only_schedule", is_flag=True, help="Check and show the schedule, and run nothing.")
@click.option("--plot", "plot_file", metavar="FILE", help="Draw the results to .png or .svg, or the schedule to .svg.")
@click.option("-o", "--output", metavar="FILE", help="Capture: .pcapng or .pcap, also .gz; - is standard output.")
@click.option(
    "--tap", metavar="RANK,...|all",
    help="Ranks whose port is captured, aggregation nodes, as in an.leaf0, cables between switches, as leaf0.spine1,"
    " and switches, as leaf0, for all their cables; default: 0.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, metavar="N", help="Seed of all random choices.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object for each algorithm to standard output.")
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
    channels: int | None,
    slices: int | None,
    sockets: int | None,
    between: str | None,
    cross_nic: str | None,
    ports: int,
    sharp: tuple[str, ...],
    multicast: tuple[str, ...],
    cc: str | None,
    lb: str | None,
    rate: str,
    delay: str,
    mtu: int | None,
    loss: float,
    trains: str,
    gpus: str | None,
    only_schedule: bool,
    plot_file: str | None,
    output: str | None,
    tap: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Run a collective with real tensors over an emulated fabric, and compare steps, bytes and time with the formulas.

    The exit status is 1 if a result differs from that of NumPy.
    """
    check_outputs([("-o", output), ("--plot", plot_file)], [("--gpus", gpus)])
    ops = options.operations(op)
    transports = options.transports(transport)
    transport = transports[0]
    kind, shape = options.topology(topology)
    matrix = None if gpus is None else parse(read_bounded(gpus).decode(errors="replace"))
    if matrix is not None:
        if kind == "pair":
            raise LocalError(
                "--gpus does not go with --topology pair, whose hosts have one GPU each", id="not-with-topology"
            )
        shape.setdefault("gpus_per_node", len(matrix.gpus))
        if shape["gpus_per_node"] > len(matrix.gpus):
            raise LocalError(
                "gpus_per_node", f"{shape['gpus_per_node']}; legal with {gpus}: 1 … {len(matrix.gpus)}",
                id="out-of-range"
            )  # fmt: skip
    numbers = options.rank_numbers(ranks)
    gpus_per_node = shape.get("gpus_per_node", GPUS_PER_NODE[kind])
    by_op = options.algorithms(ops, algorithm, compare, hosts=gpus_per_node > 1)
    names = [name for each in by_op.values() for name in each]
    given = {"channels": channels, "slices": slices, "sockets": sockets, "between": between}
    nics, fabric = "--schedule says what ranks send, over whichever NIC", "--schedule runs nothing on a fabric"
    for name, value, default, why in (
        ("--cross-nic", cross_nic, None, nics), ("--ports", ports, 1, nics), ("--mtu", mtu, None, fabric),
        ("--rate", rate, options.DEFAULT_RATE, fabric), ("--delay", delay, options.DEFAULT_DELAY, fabric),
        ("--loss", loss, 0, fabric), ("--trains", trains, TRAINS[0], fabric),
    ):  # fmt: skip
        if only_schedule and value != default:
            raise LocalError(f"{name} {value}", why, id="conflicting-arguments")
    policy = options.cross_nic(cross_nic, transport, gpus_per_node)
    common: dict[str, Any] = {
        "dtype": dtype(type_), "kind": kind, "shape": shape,
        "matrix": matrix, "seed": seed, "ports": options.ports(ports, transport),
        **({} if policy is None else {"cross_nic": policy}),
        **options.in_network(names, sharp, multicast),
        **options.fabric_values(rate, delay, mtu, loss, trains, transports),
    }  # fmt: skip
    variants: list[dict[str, Any]] = [{"transport": "model"}]
    if not only_schedule:
        variants = options.congestion(cc, lb, transports, kind, names)
    cases = []
    for one_op, of_op in by_op.items():
        bytes_ = options.length(one_op, length)
        own = options.own_options(one_op, of_op, bytes_, given)
        reduces = options.reduce_op(one_op, reduce_op)
        cases += [
            CollectiveCase(
                op=one_op, algorithm=a, ranks=n, length=bytes_, reduce_op=reduces, options=own, **common, **variant
            )
            for n in numbers
            for a in of_op
            for variant in variants
        ]
    if only_schedule:
        for case in cases:
            options.check_schedule(case.op, case.algorithm)
        _only_schedule(list(map(PreparedCase, cases)), plot_file, output, as_json)
        return
    taps = options.taps(output, tap, transport, len(cases), numbers[0], as_json)
    if plot_file is not None:
        check_plot(plot_file)
        check_matplotlib(plot_file)
    prepared = list(map(PreparedCase, cases))
    for each in prepared:
        each.check_memory()
    found: list[MeasuredCollective] = []
    interrupted = 0
    for each in prepared:
        name = f"{each.algorithm}, {each.case.ranks} ranks" + (f", {how(each.case)}" if len(variants) > 1 else "")
        try:
            with progress(name, "messages") as show:
                found.append(each.run(output, taps, show))
        except (DistError, TransportError) as error:  # not an error of the user: the fabric, or a rank, has failed
            tell([f"uetproto: {name}: {printable(str(error))}"], aside=True)
            raise click.exceptions.Exit(FAULT) from None
        except (KeyboardInterrupt, SystemExit) as end:
            interrupted = end.code if isinstance(end, SystemExit) and isinstance(end.code, int) else INTERRUPTED
            click.echo(
                f"uetproto: partial: interrupted in {name}, after {len(found)} of {len(prepared)} runs", err=True
            )
            break
        if as_json:
            click.echo(json.dumps(found[-1].as_dict()))
    if not as_json and found:
        tell(_report(found, prepared), aside=output == "-")
    if plot_file is not None and found:
        plot(found, plot_file, f"{', '.join(ops)}, {heading(prepared[0], over=len(variants) == 1)}")
    if interrupted:
        raise click.exceptions.Exit(interrupted)
    if not all(each.correct for each in found):
        raise click.exceptions.Exit(FAULT)


def _report(found: Sequence[MeasuredCollective], prepared: Sequence[PreparedCase]) -> Iterator[str]:
    """Yield the report, one operation after the other."""
    if len(found) == 1:
        yield from one(found[0], prepared[0], painter())
        return
    several = len({each.ranks for each in found}) > 1
    variants = {(each.transport, each.cc) for each in found}
    for number, op in enumerate(dict.fromkeys(each.op for each in found)):
        yield from [""] * (number > 0)
        first = next(each for each in prepared if each.case.op == op)
        if len(variants) > 1:
            yield from congestion_table([each for each in found if each.op == op], first, painter())
            continue
        yield from (sweep if several else table)([each for each in found if each.op == op], first, painter())


# The schedule alone ---------------------------------------------------------------------------------------------------


def _only_schedule(prepared: list[PreparedCase], plot_file: str | None, output: str | None, as_json: bool) -> None:
    if output is not None:
        raise LocalError(
            f"-o {output}", "--schedule runs nothing that could be captured; --plot FILE.svg draws it",
            id="model-without-packets"
        )  # fmt: skip
    if plot_file is not None:
        if not plot_file.lower().endswith(".svg"):
            raise LocalError(f"--plot {plot_file}", "a schedule is drawn as .svg", id="wrong-suffix")
        check_plot(plot_file)
        if len(prepared) > 1:
            raise LocalError(
                f"--plot {plot_file}", f"a drawing holds one schedule, here are {len(prepared)}", id="single-run"
            )
        Path(plot_file).write_text(draw(prepared[0].schedule))
    for each in prepared:
        counted, item = check(each.schedule), each.item
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


def _as_dict(prepared: PreparedCase, steps: int, sent: list[int]) -> dict[str, Any]:
    """Return the object of interfaces.md §10 without the values that only a run can measure."""
    found = MeasuredCollective(
        op=prepared.case.op, algorithm=prepared.algorithm, ranks=prepared.case.ranks, bytes=prepared.case.length,
        steps=steps, messages=0, sent=tuple(sent), links=None, promised=prepared.promised, time=0,
        formula=prepared.formula, correct=True, **prepared.conditions,
    ).as_dict()  # fmt: skip
    return found | {"virtual_time_ps": None}
