# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto generate`: it writes traffic of a profile as a capture, and can mutate
packets."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.choice import Choice
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_outputs, toml_file
from uetproto.cli.terminal import many, printable, progress, tell
from uetproto.emulator.network.config import TRAINS
from uetproto.engine import train_splits
from uetproto.toml.values import time
from uetproto.traffic import keys_file, mutations
from uetproto.traffic.coverage import table
from uetproto.traffic.generate import TrafficResult, generate
from uetproto.traffic.profile import KEYS, TABLES, load, names
from uetproto.wire.mutate.mutation import ABOUT, ALL

DEFAULT_PACKETS = 100_000
_MOST = 10**15
_TIME = time(1)


def _mutations() -> str:
    """Return a line for every mutation, for the help."""
    width = max(map(len, ALL))
    return "\n".join(f"  {name:{width}}  {ABOUT[name]}" for name in ALL)


@click.command(
    epilog=f"""\b
Example:
  uetproto generate mixed -o mixed.pcapng
  uetproto generate bench -o bench.pcap --packets 1000000 --set crc=off
  uetproto generate lossy -o lossy.pcapng --duration "5 ms" --set loss=0.05 --seed 7
  uetproto generate mixed -o wrong.pcapng --mutate bad-crc=0.001 --mutate key-change=0.01
  uetproto generate sealed -o sealed.pcapng --set security.mode=cluster
  uetproto generate roce-mixed -o roce.pcapng --set transport=rc,ud
  uetproto generate atomics -o - --report coverage --packets 5000 | uetproto dissect -

Shipped profiles: {", ".join(names())}.

Keys: {", ".join((*KEYS, *TABLES))}.

transport is uet, or RoCE: rc, uc, ud, or a mix of these. modes, jobs, trim, pds, ses and security apply to uet,
multicast and roce apply to RoCE. pdcs counts connections from one endpoint to another: PDCs, or queue pairs.

[security] seals UET. Its keys are those of the same table of a scenario, with two differences: ssi is that of the first
endpoint, and further endpoints count up from it; in mode client-server the targets are the servers. The keys that open
the packets are written to FILE{keys_file.SUFFIX} for --keys of other commands. Only its owner may read that file (mode
{keys_file.MODE:04o}), and -o - is not allowed. Mutations are made before a packet is sealed, but cut and ip-length
after; bad-crc does not apply, because sealed packets have no CRC.

\b
Mutations:
{_mutations()}

{EXIT_STATUS}"""
)
@click.argument("profile", metavar="PROFILE")
@click.option(
    "-o", "--output", required=True, metavar="FILE",
    help="Write a capture: .pcapng or .pcap, also .gz; - is pcapng on standard output.",
)  # fmt: skip
@click.option(
    "--packets", type=click.IntRange(1, _MOST), metavar="N",
    help=f"Packets to write; default: {DEFAULT_PACKETS:,}, without limit if --duration is given.",
)  # fmt: skip
@click.option("--duration", metavar="T", help='Virtual time that the capture covers, with its unit: "10 ms".')
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the profile; may be repeated."
)
@click.option(
    "--mutate", "mutate", multiple=True, metavar="NAME=SHARE",
    help="Change a share of the packets to which it applies, in the capture only; may be repeated. "
    f"What was changed is listed in FILE{mutations.SUFFIX}.",
)  # fmt: skip
@click.option("--report", type=Choice(["coverage"]), help="Also count forms, opcodes and codes that were written.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N", help="Seed of all random choices.")
@click.option(
    "--trains", type=Choice(TRAINS), default=TRAINS[0], show_default=True,
    help="Whether equal packets are handled together. The files are the same; off takes more time.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def command(
    profile: str,
    output: str,
    packets: int | None,
    duration: str | None,
    settings: tuple[str, ...],
    mutate: tuple[str, ...],
    report: str | None,
    seed: int | None,
    trains: str,
    as_json: bool,
) -> None:
    """Write the traffic of PROFILE, a shipped name or a TOML file: packets that emulated endpoints exchange.

    Time is virtual. Equal seeds give equal bytes. Memory does not grow with the length of the capture.
    """
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output", id="stdout-taken")
    outputs = [("-o", output)]
    if output != "-":
        outputs += [("-o", output + suffix) for suffix in (keys_file.SUFFIX, mutations.SUFFIX)]
    check_outputs(outputs, [toml_file("PROFILE", profile)])
    loaded = load(profile, settings)
    if seed is not None:
        loaded = replace(loaded, seed=seed)
    shares = mutations.parse(mutate)
    lasts = None if duration is None else _duration(duration)
    if packets is None and lasts is None:
        packets = DEFAULT_PACKETS
    total = packets or lasts
    with progress(loaded.name, "packets" if packets else "", total) as bar, Interrupt() as asked:
        show = None if bar is None else lambda written, now: bar(written if packets else now, total)
        try:
            outcome = generate(
                loaded, output, packets=packets, duration=lasts, mutations=shares, coverage=report is not None,
                trains=trains, progress=_checked(show, asked),
            )  # fmt: skip
        except KeyboardInterrupt:
            kept = f"; {printable(output)} is whole up to here" if output != "-" else ""
            tell([f"uetproto: {printable(loaded.name)} was interrupted{kept}"], aside=True)
            raise
    if as_json:
        click.echo(json.dumps(outcome.as_dict()))
    else:
        tell(_summary(outcome), aside=output == "-")
    if outcome.failure is not None:
        raise click.exceptions.Exit(FAULT)


def _duration(text: str) -> int:
    try:
        value: int = _TIME.check(text)
    except ValueError:
        wrong = "has no unit" if text.isdecimal() else "is no time"
        raise LocalError(f"--duration {text}", wrong, _TIME.legal, id="wrong-format") from None
    return value


def _summary(outcome: TrafficResult) -> Iterator[str]:
    microseconds = outcome.virtual_time_ps / 10**6
    yield (
        f"{printable(outcome.profile)}: {many(outcome.packets, 'packet')}, {many(outcome.bytes, 'byte')},"
        f" {microseconds:,.3f} µs of virtual time, seed {outcome.seed}"
    )
    for name, counts in (
        ("operations", outcome.operations),
        ("completions", outcome.completions),
        ("wire", outcome.happened),
        ("NACKs", outcome.nacks),
        ("mutations", outcome.mutations),
    ):
        if counts:
            yield f"  {name}: {_counts(counts)}"
    if outcome.security:
        yield f"  security: {_counts(_sealed(outcome.security))}"
    if outcome.trains:
        yield f"  {train_splits.words(train_splits.summed(outcome.trains.values()))}"
    side_files = {"mutations": outcome.side_file, "keys": outcome.keys_file}
    yield f"  capture {printable(outcome.capture)}" + "".join(
        f", {what} {printable(str(file))}" for what, file in side_files.items() if file
    )
    if outcome.failure is not None:
        yield f"  failed: {printable(outcome.failure)}"
    if outcome.coverage is not None and outcome.possible is not None:
        for kind, name, count in table(outcome.coverage, outcome.possible):
            yield f"  {kind:22} {name:32} {count:>12,}"


def _sealed(security: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the security counts of all endpoints together."""
    found: Counter[str] = Counter()
    for told in security.values():
        found += Counter({"sealed": told["sealed"], "opened": told["opened"]})
        found += Counter({f"refused ({reason})": count for reason, count in told["refused"].items()})
    return found


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


Show = Callable[[int, int], None]


def _checked(show: Show | None, asked: Interrupt) -> Show:
    """Return a function that calls `show` and raises an exception after a signal. It is called between two batches of
    packets, where the capture and the list of mutations agree."""

    def progress(packets: int, picoseconds: int) -> None:
        asked.check()
        if show is not None:
            show(packets, picoseconds)

    return progress
