# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto probe`: what a real link to a peer lets pass."""

import json
from ipaddress import ip_address
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.initiator import Initiator, OperationFailedError, UetInitiator, connected
from uetproto.cli.live.options import LinkOptions, link_options
from uetproto.cli.live.words import duration, link_lines
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.terminal import printable, tell
from uetproto.engine.contract import MILLISECOND, SECOND, Mode, Noop, PdcOpened, Probe, Probed
from uetproto.live.path import NotPermittedError
from uetproto.live.path_raw import send_native
from uetproto.live.rate import rto_for
from uetproto.wire.forms import IP_PROTOCOL
from uetproto.wire.headers.ethernet import Ecn

_TIMES = 20
_PATIENCE = 2 * SECOND


@click.command(
    epilog=f"""\b
Example:
  uetproto probe 10.0.0.2
  uetproto probe 127.0.0.2 --json -o probe.pcapng
  uetproto probe 10.0.0.2 --rendezvous off

With a rendezvous, the peer tells what arrived there. Without one, only the answers of the peer can be judged, and what
they do not show is not known.

{EXIT_STATUS}"""
)
@click.argument("peer", metavar="A")
@link_options
def command(options: LinkOptions, peer: str) -> None:
    """Find out what a link lets pass: the path MTU, whether DSCP, ECN and a checksum of 0 survive, whether native IP
    packets arrive, and the round-trip time with the RTO that fits it.

    Exit status 1 if the peer does not answer.
    """
    with Interrupt() as interrupt:
        with connected(options, peer) as one:
            found = _probe(one, options)
        found |= one.summary()
    if options.as_json:
        click.echo(json.dumps(found))
    else:
        tell(_lines(found), aside=options.output == "-")
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if not found["answers"]:
        raise click.exceptions.Exit(FAULT)


def _probe(one: Initiator, options: LinkOptions) -> dict[str, Any]:
    if not isinstance(one, UetInitiator):
        raise LocalError("--transport", "rc is not probed", "uet", id="not-with-protocol")
    world, path, version = one.world, one.world.path, ip_address(one.peer).version
    rtts = _round_trips(one)
    answered = world.driver.seen.get(one.peer_address, {})
    found: dict[str, Any] = {
        "peer": one.peer, "local": one.local, "answers": bool(rtts), "path": path.name, "notes": path.notes,
        "path_mtu": path.mtu(one.peer_address), "payload_mtu": one.payload_mtu, "full_packet_passes": None,
        "dscp_survives": None, "ecn_survives": None, "checksum_0_passes": None, "native_passes": None,
        "native_reason": None, "rtt_ps": None, "rtt_max_ps": None, "suggested_rto_ps": None, "cannot": path.cannot,
    }  # fmt: skip
    if not rtts:
        return found
    found |= {"rtt_ps": min(rtts), "rtt_max_ps": max(rtts), "suggested_rto_ps": rto_for(max(rtts))}
    if not path.checksum:
        found["checksum_0_passes"] = True
    control = one.dscp.control
    found["dscp_survives"] = any(tos >> 2 == control for tos in answered)
    if one.rendezvous is not None:
        try:
            one.write(bytes(min(one.payload_mtu, one.room)), 0)
            one.finish()
            found["full_packet_passes"] = True
        except OperationFailedError:
            found["full_packet_passes"] = False
        seen = {int(tos): count for tos, count in one.rendezvous.ask("seen").get("tos", {}).items()}
        found["dscp_survives"] = found["dscp_survives"] and {one.dscp.data, control} <= {tos >> 2 for tos in seen}
        found["ecn_survives"] = any(tos & 3 == Ecn.ECT0 for tos in seen)
        try:
            protocol = options.ip_protocol or IP_PROTOCOL
            one.rendezvous.ask("native", ip_protocol=protocol)  # the peer listens from now on
            send_native(int(ip_address(one.local)), one.peer_address, version, protocol, options.interface)
            world.advance(50 * MILLISECOND)
            found["native_passes"] = one.rendezvous.ask("native", ip_protocol=protocol).get("arrived", 0) > 0
        except (NotPermittedError, LocalError) as error:
            found["native_reason"] = str(error)
    return found


def _round_trips(one: UetInitiator) -> list[int]:
    """Return round-trip times of PROBE packets on a PDC, which a NOOP opens; none if the peer does not answer."""
    world, times, opened = one.world, [], []

    def note(event: Any) -> None:
        if isinstance(event, Probed):
            times.append(event.rtt)
        elif isinstance(event, PdcOpened) and event.initiator:
            opened.append(event.pdcid)

    world.node.listeners.append(note)  # type: ignore[attr-defined]
    mode = Mode.ROD if one.options.mode == "rod" else Mode.RUD
    world.submit("local", Noop(peer=one.peer_address, mode=mode))
    answers = world.wait(lambda: one.peer_address in world.driver.seen, _PATIENCE)
    for count in range(_TIMES if answers and opened else 0):
        try:
            world.submit("local", Probe(pdcid=opened[0]))
        except LocalError:
            break  # the PDC is not open yet, or no longer
        if not world.wait(lambda: len(times) > count, 200 * MILLISECOND):  # noqa: B023
            break
    return times


def _lines(found: dict[str, Any]) -> list[str]:
    said = {True: "yes", False: "NO", None: "not known"}
    reason = f" ({printable(found['native_reason'])})" if found["native_reason"] else ""
    answers = "answers" if found["answers"] else "does NOT answer"
    mtu, full = f"{found['path_mtu']:,}", said[found["full_packet_passes"]]
    lines = [
        f"{found['peer']} from {found['local']}: {answers}, {'; '.join(found['notes'])}",
        f"  path MTU {mtu}, payload MTU {found['payload_mtu']:,}; a full packet passes: {full}",
        f"  DSCP survives: {said[found['dscp_survives']]}; ECN survives: {said[found['ecn_survives']]}",
        f"  UDP checksum 0 passes: {said[found['checksum_0_passes']]}",
        f"  native IP 253 passes: {said[found['native_passes']]}{reason}",
    ]
    if found["rtt_ps"] is not None:
        lines.append(
            f"  round trip {duration(found['rtt_ps'])} to {duration(found['rtt_max_ps'])}; suggested RTO"
            f" {duration(found['suggested_rto_ps'])}"
        )
    return lines + link_lines(found)
