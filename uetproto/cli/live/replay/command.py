# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto replay`: one side of a capture is played to a live peer."""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import click

from uetproto import LocalError, Packet, UetError
from uetproto.analysis.decoding import Decoding, read_keys
from uetproto.analysis.opened import Keys
from uetproto.cli.captures import report_damage
from uetproto.cli.choice import Choice
from uetproto.cli.conform.known import Tested, tested
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.initiator import RoceInitiator, Stop, connected
from uetproto.cli.live.options import RC, LinkOptions, number_of, some_link_options
from uetproto.cli.live.peer_bench import bench_for
from uetproto.cli.live.replay.roce_work import RoceWorkReplay, roce_facts
from uetproto.cli.live.replay.uet_work import UetWorkReplay
from uetproto.cli.live.replay.work import FIELDS, WorkReplay
from uetproto.cli.live.words import failure
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_outputs
from uetproto.cli.terminal import printable, status, tell
from uetproto.conform.packets import answer_of
from uetproto.conform.peer_file import KnownPeer
from uetproto.conform.replay.differences import FAULT as FAULT_FIELD
from uetproto.conform.replay.differences import PAYLOAD, Alignment
from uetproto.conform.replay.frames import FrameReplay
from uetproto.conform.replay.messages import MessageReader
from uetproto.conform.replay.roce_frames import RoceFrameReplay, places_for
from uetproto.conform.replay.roce_messages import RoceMessageReader
from uetproto.conform.replay.roce_side import RoceSurvey, roce_survey
from uetproto.conform.replay.side import SideSurvey, of_side, survey
from uetproto.conform.replay.uet_frames import UetFrameReplay
from uetproto.conform.roce.packets import answer_of as roce_answer_of
from uetproto.errors import similar
from uetproto.live.interface import address_of
from uetproto.live.recorder import Recorder
from uetproto.wire.capture.pcap import Record, open_capture
from uetproto.wire.forms import FORMS, IP_PROTOCOL, ROCE_PORT, UDP_PORT
from uetproto.wire.headers.roce import AETH, ATOMIC_ACK_ETH, BTH
from uetproto.wire.words.summary import count

_EVERY = 512
"""Number of packets from one report of progress to the next."""
Packets = Iterator[tuple[Record, Packet]]


class Task(NamedTuple):
    """This record says what is played to whom."""

    asked: Tested
    capture: str
    packets: Iterator[Any]
    """Packets of the side."""
    found: SideSurvey
    ignored: frozenset[str]
    addresses: bool
    """Whether addresses of the capture are replaced by those of the peer."""
    only: int | None
    """The only memory key that is replaced."""
    stop: Stop


@click.command(
    epilog=f"""\b
Example:
  uetproto replay run.pcapng --as 10.0.0.1 --peer 10.99.0.2 --frames
  uetproto replay run.pcapng --as 10.0.0.1 --peer 10.99.0.2 --work -o replayed.pcapng
  uetproto replay run.pcapng --as 10.0.0.1 --peer 10.99.0.2 --frames --rendezvous off --key 7 --json
  uetproto replay roce.pcap --as 10.0.0.1 --peer 10.99.0.2 --transport rc --frames

At the peer, if it is one of ours: uetproto serve --local 10.99.0.2

{EXIT_STATUS}"""
)
@click.argument("capture", metavar="CAPTURE")
@click.option("--as", "side", required=True, metavar="A", help="Address in the capture whose side is played.")
@click.option("--peer", metavar="B", help="Address of the live peer.")
@click.option("--peer-file", metavar="FILE", help="PEER.toml with what is known of the peer, as for uetproto conform.")
@click.option("--frames", "mode", flag_value="frames",
              help="Send the packets of the side, with numbers, PSNs and CRCs as the peer needs them.")  # fmt: skip
@click.option("--work", "mode", flag_value="work", help="Let an engine do the operations of the side anew.")
@click.option("--ignore", metavar="FIELD,…", default="",
              help=f"Do not compare these fields; {PAYLOAD} are the bytes, {FAULT_FIELD} a wrong CRC.")  # fmt: skip
@click.option("--addresses", type=Choice(("peer", "captured")), default="peer", show_default=True,
              help="Send the first JobID, PIDonFEP, resource index, initiator and good key of the capture (of RoCE all"
                   " good keys) as those of the peer, or as captured.")  # fmt: skip
@click.option("--captured-keys", metavar="FILE", help="Keys of sealed packets of the capture, as for uetproto open.")
@click.option("--captured-key", metavar="N", help="Only memory key in the capture that becomes one of the peer.")
@some_link_options(
    "transport", "local", "path", "interface", "vlan", "udp_port", "local_udp_port", "ip_protocol", "crc", "checksum",
    "payload_mtu", "cc", "personality", "rendezvous", "job_id", "pid", "resource_index", "initiator_id", "key", "addr",
    "relative", "qpn", "psn", "peer_qpn", "peer_psn", "keys", "sdi", "ssi", "seed", "output", "as_json", services=True,
)  # fmt: skip
def command(
    options: LinkOptions, capture: str, side: str, peer: str | None, peer_file: str | None, mode: str | None,
    ignore: str, addresses: str, captured_keys: str | None, captured_key: str | None,
) -> None:  # fmt: skip
    """Play one side of a capture to a live peer, and tell where its answers differ from those of the capture.

    --frames sends the packets themselves, wrong ones too. --work takes the messages out of the packets, and compares
    return codes and data. Exit status 1 if answers differ, or if the peer does not answer.
    """
    if mode is None:
        raise LocalError("replay", "neither --frames nor --work is given", "one of them", id="missing-argument")
    if mode == "frames" and options.keys is not None:
        raise LocalError(
            "--keys", "does not go with --frames: an engine alone seals what it sends", "--work",
            id="conflicting-arguments"
        )  # fmt: skip
    asked = tested(options, peer, peer_file, frozenset())
    options = asked.options
    address = address_of("--as", side)
    if capture != "-":
        os.stat(capture)  # tells that there is none
    if not os.path.isfile(capture):
        raise LocalError("CAPTURE", f"{printable(capture)} is no file", "a file, as it is read twice", id="read-twice")
    check_outputs([("-o", options.output)], [("CAPTURE", capture)])
    is_roce = options.is_roce
    ignored, keys = _ignored(ignore), read_keys(captured_keys)
    with _packets(capture, options, keys) as packets:
        read = roce_survey if is_roce else survey
        found = read(packets, address.version, int(address), printable(capture))
    only = None if captured_key is None else number_of("--captured-key", captured_key)
    with Interrupt() as interrupt, _packets(capture, options, keys) as packets, status() as show:
        side_packets = of_side(
            _shown(packets, found, show), address.version, int(address), roce_answer_of if is_roce else answer_of
        )
        task = Task(asked, capture, side_packets, found, ignored, addresses == "peer", only, lambda: bool(
            interrupt
        ))  # fmt: skip
        summary = (_play_frames if mode == "frames" else _play_work)(task)
    summary = {"kind": "summary", "capture": capture, "as": side, "peer": asked.peer, "mode": mode, **summary}
    if options.as_json:
        click.echo(json.dumps(summary))
    else:
        tell(_words(summary), aside=options.output == "-")
    if interrupt:
        click.echo("uetproto: partial: interrupted before the end", err=True)
        raise click.exceptions.Exit(interrupt.status)
    if summary["differs"] or summary["missing"] or summary["extra"] or summary["error"]:
        raise click.exceptions.Exit(FAULT)


def _ignored(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    known = {row.name for form in FORMS.values() if form.name.startswith(("pds.", "ses.")) for row in form.fields}
    known |= {row.name for form in (BTH, AETH, ATOMIC_ACK_ETH) for row in form.fields}
    known |= {PAYLOAD, FAULT_FIELD, "ack_psn", "clear_psn", "nak", *FIELDS}
    for name in sorted(names - known):
        raise LocalError(
            "--ignore", f"{name!r} is no field{similar(name, known)}", "fields of headers, payload, fault",
            id="unknown-field"
        )  # fmt: skip
    return names


@contextmanager
def _packets(file: str, options: LinkOptions, keys: Keys | None) -> Iterator[Packets]:
    """Open a capture, and yield its records with their packets, opened where the keys do it."""
    with open_capture(file) as reader:
        port, is_roce = options.udp_port, options.is_roce
        decoding = Decoding(
            udp_port=UDP_PORT if is_roce else port or UDP_PORT, roce_port=port or ROCE_PORT if is_roce else ROCE_PORT,
            ip_protocol=options.ip_protocol or IP_PROTOCOL, reader=reader, keys=keys,
        )  # fmt: skip
        yield ((record, decoding.opened(record, packet)[0]) for record, packet in decoding.packets(file, reader))
        report_damage(file, reader)


def _shown(packets: Packets, found: SideSurvey, show: Callable[[str], None]) -> Packets:
    """Yield packets, and show how many of them were read."""
    for number, one in enumerate(packets):
        if not number % _EVERY:
            show(f"packet {number:,} of {found.packets:,}")
        yield one


def _chosen(task: Task) -> dict[str, Any]:
    """Return which keys and queue pairs of RoCE are replaced and played."""
    transport = task.asked.options.transport
    return {"addresses": task.addresses, "only": task.only, "service": None if transport == RC else transport}


def _play_frames(task: Task) -> dict[str, Any]:
    """Send the packets of the side, print the differences, and return the summary."""
    options, found = task.asked.options, task.found
    with ExitStack() as stack:
        bench = stack.enter_context(bench_for(options, task.asked.peer, task.asked.lacking, known=task.asked.known))
        if not options.as_json:
            tell([bench.words()], aside=options.output == "-")
        facts = {"seed": bench.number, "path": bench.path.name, "rtt_ps": bench.rtt}
        if bench.rtt is None:
            silent = UetError("the peer does not answer", id="no-answer")
            return facts | _counts(Alignment()) | {"sent": 0, "left_out": {}} | failure(silent)
        mtu = bench.path.mtu(bench.facts.address)
        if found.longest > mtu:
            told = f"its longest packet of this side has {found.longest} bytes"
            raise LocalError(printable(task.capture), told, f"at most {mtu}, the MTU", id="mtu-too-small")
        recorder = None
        if options.output is not None:
            recorder = Recorder(
                options.output, bench.path.link, bench.clock, name=options.interface or bench.local,
                comment=f"uetproto replay, {bench.local} plays {task.capture}",
            )  # fmt: skip
            stack.callback(recorder.close)

        def record(time: int, frame: bytes) -> None:
            if recorder is not None:
                recorder.sent((frame,), time)

        replay: FrameReplay[Any]
        common: dict[str, Any] = {"ignored": task.ignored, "recorded": record}
        if isinstance(found, RoceSurvey):
            places = places_for(found, bench.facts, bench.seed, **_chosen(task))
            replay = RoceFrameReplay(
                bench.link, bench.facts, bench.patience, bench.seed, found, places, **common
            )  # fmt: skip
        else:
            key = found.key if task.only is None else task.only
            replay = UetFrameReplay(
                bench.link, bench.facts, bench.patience, bench.seed, addresses=task.addresses, key=key, **common
            )  # fmt: skip
        for difference in replay.play(task.packets, task.stop):
            _tell(difference, options)
        error: UetError | None = None
        if replay.floods:
            told = f"the peer floods: {replay.received:,} packets came for {replay.sent:,} that were sent"
            error = UetError(told, id="peer-floods")
        elif not replay.sent and not task.stop():
            error = UetError("nothing was played", id="nothing-to-replay")
        return facts | _counts(replay.alignment) | {
            "sent": replay.sent, "received": replay.received, "aside": replay.aside,
            "left_out": dict(replay.left_out), **failure(error),
        }  # fmt: skip


def _play_work(task: Task) -> dict[str, Any]:
    """Let an engine do the operations of the side, print the differences, and return the summary."""
    options, file = task.asked.options, printable(task.capture)
    if isinstance(task.asked.known, KnownPeer):
        raise LocalError(
            "--peer-file", "is of UET, whose addresses --work takes from options", "--frames, or options",
            id="not-with-protocol"
        )  # fmt: skip
    with connected(options, task.asked.peer, has_pair=False) as one:
        replay: WorkReplay[Any, Any]
        if isinstance(task.found, RoceSurvey):
            assert isinstance(one, RoceInitiator)
            facts = roce_facts(one, task.asked.known)
            seed = str(secrets.randbits(32) if options.seed is None else options.seed)
            places = places_for(task.found, facts, seed, **_chosen(task))
            replay = RoceWorkReplay(one, RoceMessageReader(file, task.found, places.pairs), task.ignored, places)
        else:
            key = task.found.key if task.only is None else task.only
            replay = UetWorkReplay(one, MessageReader(file), options, task.ignored, task.addresses, key)
        for difference in replay.play(task.packets, task.stop):
            _tell(difference, options)
    return replay.summary()


def _tell(difference: Any, options: LinkOptions) -> None:
    if options.as_json:
        click.echo(json.dumps(difference.as_dict()))
    else:
        tell(map(printable, difference.lines()), aside=options.output == "-")


def _counts(alignment: Alignment) -> dict[str, Any]:
    return {"same": alignment.same, "covered": alignment.covered, **alignment.counts}


def _words(summary: dict[str, Any]) -> list[str]:
    thing = "packet" if summary["mode"] == "frames" else "operation"
    same, differing = f"{summary['same']:,} the same", f"{summary['differs']:,} differ"
    missing, extra = f"{summary['missing']:,} missing", f"{summary['extra']:,} extra"
    lines = [f"{count(summary['sent'], thing)} played; answers: {same}, {differing}, {missing}, {extra}"]
    if summary.get("covered"):
        lines.append(f"  {summary['covered']:,} ACKs of one side are covered by a later one of the other")
    if summary.get("unanswered"):
        lines.append(f"  {count(summary['unanswered'], thing)} without an answer in the capture")
    lines += [f"  not played, {count(many, thing)}: {printable(why)}" for why, many in summary["left_out"].items()]
    if summary["error"]:
        lines.append(f"  failed: {printable(summary['error'])} [{summary['error_id']}]")
    return lines
