# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto serve`: a target on a real link, which peers may write, read and send to."""

import json
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import LinkOptions, link_options, of_size, prefixes
from uetproto.cli.live.target import Target, target
from uetproto.cli.live.words import link_lines
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.terminal import many, printable, status, tell
from uetproto.engine.contract import NEVER


@click.command(
    epilog=f"""\b
Example:
  uetproto serve --local 10.0.0.2 --allow 10.0.0.0/24
  uetproto serve --local 127.0.0.2 --count 1 -o served.pcapng
  uetproto serve --local 10.0.0.2 --transport rc --memory "256 MiB"
  uetproto serve --local 10.0.0.2 --transport rc --rendezvous off --peer-gid 10.0.0.1 --peer-qpn 0x123 --peer-psn 7
  uetproto serve --local 10.0.0.2 --transport rc --rendezvous off --peer-gid 10.0.0.1 --pairs PEER.toml
  uetproto serve --local 127.0.0.2 --scenario ses-read --count 1
  uetproto serve --local 10.0.0.2 --keys rack.keys.toml
  uetproto serve --local 10.0.0.2 --personality auto --rendezvous off --json

Then, at another host: uetproto send --write FILE --peer 10.0.0.2

{EXIT_STATUS}"""
)
@click.option(
    "--memory", default="64 MiB", show_default=True, metavar="SIZE", help="Memory that peers may write and read."
)
@click.option(
    "--allow", multiple=True, metavar="PREFIX",
    help="Serve peers of this prefix only; may be repeated. Default: whoever reaches the address.",
)  # fmt: skip
@click.option("--scenario", metavar="F", help="Play the target of a scenario, in place of memory and receives.")
@click.option("--peer-gid", metavar="A", help="Address or GID of the peer of RoCE, without a rendezvous.")
@click.option(
    "--pairs", metavar="FILE",
    help="Make the queue pairs of a PEER.toml of conform --init, by hand, and write their numbers into it.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after the sessions of N peers.")
@link_options
def command(
    options: LinkOptions, memory: str, allow: tuple[str, ...], scenario: str | None, peer_gid: str | None,
    pairs: str | None, count: int | None,
) -> None:  # fmt: skip
    """Serve memory and receives to peers over UET or RoCEv2, until Ctrl-C.

    Sockets bind to the address of --local and no other. Peers learn keys and numbers at the rendezvous, a TCP port of
    the same address, or by hand from what this command prints. Exit status 1 if an operation of a peer failed.
    """
    if options.local is None:
        raise LocalError(
            "--local", "is missing", "the address of this host at which to serve, such as 127.0.0.2",
            id="missing-argument"
        )  # fmt: skip
    size = of_size("--memory", memory, 1, 1 << 34)
    allowed = prefixes("--allow", allow)
    with Interrupt() as interrupt:
        one = target(options, options.local, size, allowed, scenario, peer_gid, pairs)
        try:
            _announce(options, one, allow, pairs)
            _serve(options, one, count, interrupt)
            if one.recognised is not None:  # nothing was taken from the peer, which will send it again
                one.close()
                options = replace(options, personality=one.recognised)
                one = target(options, options.local or "", size, allowed, scenario)
                _session(options, one, "the peer", f"is recognised as {options.personality}")
                _announce(options, one, allow, pairs)
                _serve(options, one, count, interrupt)
        finally:
            one.close()
        summary = one.summary()
        if options.as_json:
            click.echo(json.dumps({"kind": "summary"} | summary))
        else:
            tell(_summary(summary), aside=options.output == "-")
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if one.failures:
        raise click.exceptions.Exit(FAULT)


def _announce(options: LinkOptions, one: Target, allow: tuple[str, ...], pairs: str | None) -> None:
    told = one.told
    if options.as_json:
        at = options.rendezvous_at
        rendezvous = None if at is None else at[1]
        click.echo(json.dumps({"kind": "listening", "rendezvous": rendezvous, "notes": one.world.path.notes} | told))
        return
    where = f"UDP port {told['udp_port']}" if told["udp_port"] is not None else f"IP protocol {told['ip_protocol']}"
    lines = [f"serving {options.transport} at {options.local}, {where}, {'; '.join(one.world.path.notes)}"]
    if "memory" in told:
        memory = told["memory"]
        lines.append(f"  memory  {memory['length']:,} bytes, key {memory['key']:#x}, address {memory['address']:#x}")
    else:
        lines.append(f"  scenario  {printable(told['scenario'])}")
    if "endpoint" in told:
        end = told["endpoint"]
        lines.append(
            f"  endpoint  job {end['job_id']}, pid {end['pid_on_fep']}, resource index {end['resource_index']},"
            f" initiator {end['initiator_id']}, {'relative' if end['relative'] else 'absolute'}"
        )
    for name, words in (("queue_pair", "queue pair"), ("peer_queue_pair", "that of the peer")):
        if name in told:
            pair = told[name]
            lines.append(f"  {words}  {pair['qp_num']:#x}, first PSN {pair['psn']}, GID {pair['gid']}")
    if "queue_pairs" in told:
        lines.append(f"  queue pairs  {len(told['queue_pairs'])}, whose numbers are in {printable(pairs or '')}")
    if told.get("security"):
        lines.append(f"  sealed  SDI {told['security']['sdi']}, mode {told['security']['mode']}")
    lines.append(f"  payload MTU {told['payload_mtu']:,}, receive buffer {told['buffer']:,} bytes")
    at = options.rendezvous_at
    lines.append(f"  rendezvous  {'off' if at is None else ', '.join((*filter(None, at[:1]), f'TCP port {at[1]}'))}")
    if not allow and not ip_address(options.local or "").is_loopback:
        lines.append("  whoever reaches this address may write this memory: --allow PREFIX limits it")
    tell(lines, aside=True)


def _serve(options: LinkOptions, one: Target, count: int | None, interrupt: Interrupt) -> None:
    """Serve until enough sessions have ended, or until a signal."""

    one.on_session, one.stop = partial(_session, options, one), lambda: bool(interrupt)
    path, told_at = one.world.path, 0
    with status() as show:
        while not interrupt and one.recognised is None and (count is None or one.ended < count):
            one.turn(NEVER)
            if one.world.now - told_at > 10**11:
                told_at = one.world.now
                received, sent = path.counters.received, path.counters.sent
                show(f"{received:,} packets received, {sent:,} sent, {many(one.ended, 'session')}")
        if not interrupt and one.recognised is None:  # answer what the last peer repeats
            one.world.advance(10**11)


def _session(options: LinkOptions, one: Target, peer: str, what: str) -> None:
    """Tell what happened to the session of a peer."""
    if options.as_json:
        click.echo(json.dumps({"kind": "session", "peer": peer, "what": what, "sessions": one.ended}))
    else:
        tell([f"{peer} {what}"], aside=True)


def _summary(summary: dict[str, Any]) -> list[str]:
    received, sent = summary["packets_received"], summary["packets_sent"]
    lines = [f"{many(summary['sessions'], 'session')}, {many(received, 'packet')} received, {sent:,} sent"]
    if summary["sha256_memory"] is not None:
        lines.append(f"  memory  sha256 {summary['sha256_memory']}")
    if summary["messages_received"]:
        lines.append(
            f"  {many(summary['messages_received'], 'message')} received, {many(summary['bytes_received'], 'byte')},"
            f" sha256 {summary['sha256_received']}"
        )
    lines += [f"  failed: {printable(text)}" for text in summary["failures"][:20]]
    if summary["not_allowed"]:
        lines.append(
            f"  {many(summary['not_allowed'], 'packet was', 'packets were')} dropped, as their source is not allowed"
        )
    return lines + link_lines(summary)
