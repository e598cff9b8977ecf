# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto ping`: latency and bandwidth of operations to a peer on a real link."""

import json
import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from uetproto import LocalError, RemoteError, UetError
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.initiator import Initiator, OperationFailedError, connected
from uetproto.cli.live.options import LinkOptions, link_options, of_size
from uetproto.cli.live.words import failure, link_lines
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.terminal import many, printable, status, tell
from uetproto.errors import similar
from uetproto.garbage import seldom_collected

OPERATIONS = ("write", "read", "send")
_LARGEST = 1 << 24
_IN_FLIGHT = 16
"""Number of operations that are open at a time while bandwidth is measured."""
_BULK = 8 << 20
"""Number of bytes of the measurement of bandwidth, but at least one operation and at most `--iterations` of them."""
_MICROSECOND = 10**6


@click.command(
    epilog=f"""\b
Example:
  uetproto ping --peer 10.0.0.2
  uetproto ping --peer 127.0.0.2 --operations write,read --sizes 8,1024,65536 --iterations 1000
  uetproto ping --peer 10.0.0.2 --transport rc --json -o ping.pcapng

The columns are those of ib_write_lat, and MB/sec and Mxfers/sec of fi_pingpong. A time is from the call to the
completion at this end, a whole round trip; ib_write_lat shows half of one.

{EXIT_STATUS}"""
)
@click.option("--peer", required=True, metavar="A", help="Address of the peer, where `uetproto serve` runs.")
@click.option("--operations", default=",".join(OPERATIONS), show_default=True, metavar="NAME,…", help="What to time.")
@click.option("--sizes", default="8,1024,4096,65536,1048576", show_default=True, metavar="SIZE,…", help="Sizes.")
@click.option("--iterations", type=click.IntRange(2), default=200, show_default=True, metavar="N", help="How often.")
@link_options
def command(options: LinkOptions, peer: str, operations: str, sizes: str, iterations: int) -> None:
    """Measure percentiles of the latency, and the bandwidth, of operations to a peer, for each size.

    Exit status 1 if an operation failed.
    """
    names = tuple(operations.split(","))
    for name in names:
        if name not in OPERATIONS:
            legal = ", ".join(OPERATIONS)
            raise LocalError(
                "--operations", f"{name!r} is not legal{similar(name, OPERATIONS)}", legal, id="unknown-name"
            )
    lengths = [of_size("--sizes", size, 0, _LARGEST) for size in sizes.split(",")]
    error: UetError | None = None
    with Interrupt() as interrupt:
        with connected(options, peer) as one:
            try:
                if not options.as_json:
                    tell([_HEAD], aside=options.output == "-")
                with status() as show, seldom_collected():
                    for row in _rows(one, names, lengths, iterations, interrupt):
                        show(f"{row['operation']}, {row['bytes']:,} bytes")
                        if options.as_json:
                            click.echo(json.dumps(row))
                        else:
                            tell([_line(row)], aside=options.output == "-")
            except (OperationFailedError, RemoteError) as failed:
                error = failed
        summary: dict[str, Any] = {"kind": "summary", **failure(error), "rtt_ps": one.rtt} | one.summary()
    if options.as_json:
        click.echo(json.dumps(summary))
    else:
        sent, again = summary["packets_sent"], sum(summary["retransmissions"].values())
        lines = [f"{many(sent, 'packet')} sent, {many(again, 'retransmission')}, {'; '.join(one.world.path.notes)}"]
        lines += [] if error is None else [f"  failed: {printable(str(error))} [{error.id}]"]
        tell(lines + link_lines(summary), aside=options.output == "-")
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if error is not None:
        raise click.exceptions.Exit(FAULT)


def _rows(
    one: Initiator, names: tuple[str, ...], lengths: list[int], iterations: int, interrupt: Interrupt
) -> Iterator[dict[str, Any]]:
    for name in names:
        for length in lengths:
            most = one.receive_size if name == "send" else one.room
            if length > most:
                raise LocalError(
                    "--sizes", f"{length} is more than the peer has room for", f"at most {most} bytes",
                    id="wrong-length"
                )  # fmt: skip
            data = bytearray(length)
            begin = partial(_begin, one, name, data)
            clock, times = one.world.clock, []
            for _ in range(iterations):
                began = clock.now
                begin()
                one.finish()
                times.append(clock.now - began)
                if interrupt:
                    return
            count = min(max(_BULK // max(length, 1), 1), iterations)
            began = clock.now
            for _ in range(count):
                begin()
                one.finish(_IN_FLIGHT - 1)
            one.finish()
            yield _row(name, length, times, count, clock.now - began)
            if interrupt:
                return


def _begin(one: Initiator, name: str, data: bytearray) -> None:
    if name == "write":
        one.write(data, 0)
    elif name == "read":
        one.read(data, 0)
    else:
        one.send(data)


def _row(name: str, length: int, times: list[int], count: int, took: int) -> dict[str, Any]:
    times.sort()

    def at(share: float) -> float:
        return times[min(int(share * len(times)), len(times) - 1)] / _MICROSECOND

    return {
        "kind": "latency", "operation": name, "bytes": length, "iterations": len(times),
        "t_min_us": times[0] / _MICROSECOND, "t_max_us": times[-1] / _MICROSECOND, "t_typical_us": at(0.5),
        "t_avg_us": statistics.fmean(times) / _MICROSECOND, "t_stdev_us": statistics.pstdev(times) / _MICROSECOND,
        "p99_us": at(0.99), "p99_9_us": at(0.999), "mb_per_sec": length * count * _MICROSECOND / max(took, 1),
        "mxfers_per_sec": count * _MICROSECOND / max(took, 1),
    }  # fmt: skip


_HEAD = (
    f"{'operation':9} {'#bytes':>9} {'#iterations':>11} {'t_min[usec]':>12} {'t_max[usec]':>12} {'t_typical[usec]':>15}"
    f" {'t_avg[usec]':>12} {'t_stdev[usec]':>13} {'99%[usec]':>11} {'99.9%[usec]':>11} {'MB/sec':>9} {'Mxfers/sec':>10}"
)


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['operation']:9} {row['bytes']:9} {row['iterations']:11} {row['t_min_us']:12.2f} {row['t_max_us']:12.2f}"
        f" {row['t_typical_us']:15.2f} {row['t_avg_us']:12.2f} {row['t_stdev_us']:13.2f} {row['p99_us']:11.2f}"
        f" {row['p99_9_us']:11.2f} {row['mb_per_sec']:9.2f} {row['mxfers_per_sec']:10.4f}"
    )
