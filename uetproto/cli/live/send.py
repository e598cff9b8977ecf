# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto send`: it writes, reads or sends to a peer on a real link."""

import hashlib
import json
from pathlib import Path
from typing import Any

import click

from uetproto import LocalError, RemoteError, UetError
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.initiator import Initiator, OperationFailedError, connected
from uetproto.cli.live.options import LinkOptions, link_options, number_of, of_size
from uetproto.cli.live.words import duration, failure, link_lines, rate
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_outputs
from uetproto.cli.terminal import many, printable, status, tell


@click.command(
    epilog=f"""\b
Example:
  uetproto send --write model.bin --peer 10.0.0.2
  uetproto send --read "1 MiB" --to copy.bin --peer 10.0.0.2
  uetproto send --send message.bin --peer 127.0.0.2 -o sent.pcapng --json
  uetproto send ses-write --peer 127.0.0.2
  uetproto send ladder-L05 --peer 127.0.0.2
  uetproto send --write f.bin --peer 10.0.0.2 --keys rack.keys.toml
  uetproto send --write f.bin --peer 10.0.0.2 --rendezvous off --key 7 --personality refprov
  uetproto send --write f.bin --peer 10.0.0.2 --transport rc --rendezvous off --peer-qpn 0x12 --peer-psn 7 --rkey 0x200

{EXIT_STATUS}"""
)
@click.argument("scenario", required=False, metavar="[SCENARIO]")
@click.option("--peer", required=True, metavar="A", help="Address of the peer, where `uetproto serve` runs.")
@click.option("--write", "write", metavar="FILE", help="Write a file to the memory of the peer.")
@click.option("--read", "read", metavar="SIZE", help="Read so many bytes of the memory of the peer.")
@click.option("--send", "send", metavar="FILE", help="Send a file, in messages that fit the receives of the peer.")
@click.option("--to", metavar="FILE", help="File for the bytes that --read has read.")
@click.option("--offset", default="0", show_default=True, metavar="N", help="First byte of the peer's memory.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Do it N times.")
@click.option("--verify", is_flag=True, help="Read back what was written, where no rendezvous compares the memory.")
@link_options
def command(
    options: LinkOptions, scenario: str | None, peer: str, write: str | None, read: str | None, send: str | None,
    to: str | None, offset: str, repeat: int, verify: bool,
) -> None:  # fmt: skip
    """Perform the operations or steps of a scenario, or write, read or send bytes, to a peer on a real link.

    SCENARIO is a shipped name or a TOML file, which the peer has as --scenario. Exit status 1 if an operation failed,
    or if the memory of the peer differs afterwards.
    """
    given = [
        name
        for name, value in (("SCENARIO", scenario), ("--write", write), ("--read", read), ("--send", send))
        if value is not None
    ]
    if len(given) != 1:
        raise LocalError(
            "send", f"{' and '.join(given) or 'nothing'} is given", "one of SCENARIO, --write, --read, --send",
            id="conflicting-arguments"
        )  # fmt: skip
    if to is not None and read is None:
        raise LocalError("--to", "goes with --read", id="no-effect")
    check_outputs([("-o", options.output), ("--to", to)], [("--write", write), ("--send", send)])
    at = number_of("--offset", offset)
    if not 0 <= at < 1 << 64:
        raise LocalError("--offset", f"{offset} is not legal", "0 … 2^64 - 1", id="out-of-range")
    if scenario is not None:
        from uetproto.cli.live.scenario import play

        play(options, scenario, peer)
        return
    data = (
        bytearray(of_size("--read", read, 0, 1 << 34)) if read is not None else Path(write or send or "").read_bytes()
    )
    with Interrupt() as interrupt:
        with connected(options, peer) as one:
            result = _perform(one, given[0], data, at, repeat, verify, interrupt)
        result |= one.summary()
    if to is not None and result["error"] is None and not interrupt:
        Path(to).write_bytes(data)
    if options.as_json:
        click.echo(json.dumps(result))
    else:
        tell(_summary(result), aside=options.output == "-")
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if result["error"] is not None or result["match"] is False:
        raise click.exceptions.Exit(FAULT)


def _perform(
    one: Initiator, what: str, data: bytes | bytearray, offset: int, repeat: int, verify: bool, interrupt: Interrupt
) -> dict[str, Any]:
    size, world = len(data), one.world
    if what != "--send" and offset + size > one.room:
        raise LocalError(
            "--offset", f"{offset} and {size} bytes are beyond the peer's memory", f"{one.room} bytes in all",
            id="wrong-length"
        )  # fmt: skip
    begin = {
        "--write": lambda piece, at: one.write(piece, offset + at),
        "--read": lambda piece, at: one.read(piece, offset + at),
        "--send": lambda piece, at: one.send(piece),
    }[what]  # fmt: skip
    before = one.rendezvous.ask("received") if what == "--send" and one.rendezvous is not None else {}
    error: UetError | None = None
    moved, match, began = 0, None, world.now
    try:
        with status() as show:
            for _ in range(repeat):
                moved += one.transfer(
                    begin, data, piece=one.piece(what),
                    progress=lambda done, total: show(f"{done:,} of {total:,} bytes"), stop=lambda: bool(interrupt),
                )  # fmt: skip
                if interrupt:
                    break
        took = world.now - began
        if not interrupt:
            match = _match(one, what, data, offset, verify, before, repeat)
    except (OperationFailedError, RemoteError) as failed:
        error, took = failed, world.now - began
    return {
        "operation": what.lstrip("-"), "peer": one.peer, "bytes": moved, "time_ps": took, "match": match,
        "sha256": hashlib.sha256(data).hexdigest(), **failure(error), "rtt_ps": one.rtt,
        "path": world.path.name, "notes": world.path.notes,
    }  # fmt: skip


def _match(
    one: Initiator, what: str, data: bytes | bytearray, offset: int, verify: bool, before: dict[str, Any], repeat: int
) -> bool | None:
    """Return whether the peer holds the same bytes, or None if nobody can tell."""
    if what == "--send":
        if one.rendezvous is None:
            return None
        after = one.rendezvous.ask("received")
        return bool(after.get("bytes", 0) - before.get("bytes", 0) == len(data) * repeat)
    told = one.digest(offset, len(data))
    if told is not None:
        return told == hashlib.sha256(data).hexdigest()
    if what == "--write" and verify:
        back = bytearray(len(data))
        one.transfer(lambda piece, at: one.read(piece, offset + at), back, piece=one.piece("--read"))
        return back == data
    return None


def _summary(result: dict[str, Any]) -> list[str]:
    size, time = result["bytes"], result["time_ps"]
    took = f"{duration(time)}, {rate(size, time)}"
    lines = [f"{result['operation']}: {many(size, 'byte')}, {printable(result['peer'])}, {took}"]
    again = sum(result["retransmissions"].values())
    sent, received = result["packets_sent"], result["packets_received"]
    lines.append(
        f"  {many(sent, 'packet')} sent, {received:,} received, {many(again, 'retransmission')},"
        f" {'; '.join(result['notes'])}"
    )
    said = {True: "equal at both ends", False: "DIFFERS at the peer", None: "not compared"}[result["match"]]
    lines.append(f"  sha256 {result['sha256']}  {said}")
    if result["error"] is not None:
        lines.append(f"  failed: {printable(result['error'])} [{result['error_id']}]")
    return lines + link_lines(result)
