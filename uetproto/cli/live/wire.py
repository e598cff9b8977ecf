# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto wire`: a switch with two ports between two devices."""

import json
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.faults import faults_of
from uetproto.cli.live.options import of_key, of_size
from uetproto.cli.live.words import failure
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import many, printable, status, tell
from uetproto.engine.contract import NEVER
from uetproto.impair.red import Red
from uetproto.live.wire import Wire, WireConfig
from uetproto.toml.values import RATE, time

_TOLD = 2 * 10**11
"""Picoseconds between two lines of progress."""


@click.command(
    epilog=f"""\b
Example:
  uetproto wire eth1 eth2 --faults drop=0.01,reorder=0.01 --seed 4 -o wire.pcapng
  uetproto wire eth1 eth2 --rate 1Gb/s --delay "20 us" --queue "128 KiB" --red 30000,90000,0.5 --trim

{EXIT_STATUS}"""
)
@click.argument("interfaces", nargs=2, metavar="IF IF")
@click.option("--rate", metavar="RATE", help="Rate of each port, such as 1Gb/s; frames wait for it. Default: none.")
@click.option("--delay", default="0 ps", show_default=True, metavar="TIME", help="Time that frames are under way.")
@click.option("--queue", default="1 MiB", show_default=True, metavar="SIZE", help="Room for each level of a port.")
@click.option("--red", metavar="KMIN,KMAX,PMAX", help="Mark packets (ECN) that wait behind so many bytes.")
@click.option("--trim", is_flag=True, help="Trim data packets of UET that find no room, and do not drop them.")
@click.option("--faults", metavar="NAME=SHARE,…", help="As of `uetproto send`, to frames that arrive at each port.")
@click.option("--receive-buffer", default="4 MiB", show_default=True, metavar="SIZE",
              help="What the kernel is asked to keep of arrived frames.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N", help="Seed of faults and marks.")
@click.option("-o", "--output", metavar="FILE", help="Capture the frames at both ports: .pcapng, also .gz.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line, on standard output.")
def command(
    interfaces: tuple[str, str], rate: str | None, delay: str, queue: str, red: str | None, trim: bool,
    faults: str | None, receive_buffer: str, seed: int | None, output: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Join two network interfaces as a switch with two ports, until Ctrl-C, for devices that are tested.

    It forwards all frames, and does to them what the options say. It needs CAP_NET_RAW. The interfaces should have no
    addresses here: the kernel would take part. Exit status 1 if an interface goes down meanwhile.
    """
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output", id="stdout-taken")
    check_output("-o", output, ())
    config = WireConfig(
        rate=None if rate is None else of_key("--rate", rate, RATE), delay=of_key("--delay", delay, time()),
        queue=of_size("--queue", queue, 0, 1 << 34), red=None if red is None else _red(red), trim=trim,
        faults=None if faults is None else faults_of(faults),
        receive_buffer=of_size("--receive-buffer", receive_buffer, 2048, 1 << 30),
    )  # fmt: skip
    problem: LocalError | None = None
    with Interrupt() as interrupt:
        wire = Wire(interfaces, config, seed=seed, capture=output)
        try:
            if as_json:
                click.echo(json.dumps({"kind": "forwarding", "interfaces": interfaces, "notes": wire.notes}))
            else:
                tell([f"forwarding between {' and '.join(map(printable, interfaces))}", *wire.notes], aside=True)
            with status() as show:
                told_at = 0
                while not interrupt:
                    wire.turn(NEVER)
                    if wire.clock.now - told_at > _TOLD:
                        told_at = wire.clock.now
                        show(", ".join(f"{way.name}: {way.forwarded:,} frames" for way in wire.ways))
        except LocalError as error:  # an interface is gone: the summary comes first
            problem = error
        finally:
            summary = {"kind": "summary"} | wire.summary() if problem is None else _last(wire)
            wire.close()
    summary |= failure(problem) | {"capture": output}
    if as_json:
        click.echo(json.dumps(summary))
    else:
        tell(_summary(summary), aside=output == "-")
    if problem is not None:
        raise click.exceptions.Exit(FAULT)
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)


def _last(wire: Wire) -> dict[str, Any]:
    """Return what was done, where an interface may be gone."""
    try:
        return {"kind": "summary"} | wire.summary()
    except OSError:
        return {
            "kind": "summary",
            "ways": {way.name: way.summary for way in wire.ways},
            "not_kept": {},
            "superframes": 0,
        }


def _red(text: str) -> Red:
    parts = text.split(",")
    try:
        kmin, kmax, pmax = int(parts[0]), int(parts[1]), float(parts[2])
    except (ValueError, IndexError):
        raise LocalError(
            "--red", f"{text!r} is not legal", "KMIN,KMAX,PMAX, such as 30000,90000,0.5", id="wrong-format"
        ) from None
    if len(parts) > 3:
        raise LocalError(
            "--red", f"{text!r} is not legal", "KMIN,KMAX,PMAX, such as 30000,90000,0.5", id="wrong-format"
        )
    return Red(kmin=kmin, kmax=kmax, pmax=pmax)


_NOTHING: dict[str, Any] = {"not_kept": {}, "superframes": 0}
_WORDS = {
    "dropped": "dropped by the full queue", "trimmed": "trimmed", "marked": "marked (CE)",
    "too_long": "longer than the MTU",
}  # fmt: skip


def _summary(summary: dict[str, Any]) -> list[str]:
    lines = []
    for name, way in summary["ways"].items():
        lines.append(f"{name}: {many(way['frames'], 'frame')}, {many(way['bytes'], 'byte')}; {way['forwarded']:,} left")
        counts = [f"{way[key]:,} {words}" for key, words in _WORDS.items() if way[key]]
        counts += [f"{count:,} {fault}" for fault, count in sorted(way["faults"].items())]
        counts += [f"{count:,} refused: {reason}" for reason, count in way["refused"].items()]
        if way["peak"]:
            counts.append(f"at most {way['peak']:,} bytes waited")
        if counts:
            lines.append(f"  {', '.join(counts)}")
    lines += [
        f"{name}: {many(count, 'frame')} found no room in the kernel"
        for name, count in summary["not_kept"].items()
        if count
    ]
    if summary["superframes"]:
        lines.append(
            f"{summary['superframes']:,} superframes of TCP may be too long: ethtool -K IF gro off; tso off at the ends"
        )
    if summary["error"] is not None:
        lines.append(f"failed: {printable(summary['error'])} [{summary['error_id']}]")
    if summary["capture"] is not None:
        lines.append(f"capture {printable(summary['capture'])}")
    return lines
