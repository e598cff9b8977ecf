"""This module has the command `uetproto conform`: whether another implementation of UET follows the protocol."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.conform.report import chart, junit, result_of, verdict_lines
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import LinkOptions, some_link_options
from uetproto.cli.live.peer_bench import PeerBench, bench_for
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import status, tell, write_text
from uetproto.conform import captures
from uetproto.conform.catalogue import INITIATOR, ConformanceTest, chosen, load, of_role
from uetproto.conform.packets import OPTIONAL
from uetproto.conform.player import ConformanceVerdict, Outcome, judge
from uetproto.errors import similar

_DEAD = "the peer answers nothing; the test was not played"


@click.command(
    epilog=f"""\b
Example:
  uetproto conform --list
  uetproto conform --peer 10.0.0.2 -o report
  uetproto conform --peer 10.0.0.2 --only "UET-SES-*,UET-PDS-02?" --seed 7
  uetproto conform --peer 10.0.0.2 --rendezvous off --key 7 --addr 0x10000 --junit report.xml

At the peer, if it is one of ours: uetproto serve --local 10.0.0.2

{EXIT_STATUS}"""
)
@click.option("--list", "listed", is_flag=True, help="Print the tests, and end.")
@click.option("--peer", metavar="A", help="Address of the peer that is tested.")
@click.option("--only", metavar="GLOB,…", help="Play the tests whose ids match, such as UET-PDS-*.")
@click.option("--tests", multiple=True, metavar="FILE", help="Play the tests of a file of yours; may be repeated.")
@click.option("--without", metavar="NAME,…", default="", help=f"What the peer does not have: {', '.join(OPTIONAL)}.")
@click.option(
    "--tries",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="Play a test that fails up to N times, until it passes: for links that lose packets.",
)
@click.option("--as", "role", type=click.Choice((INITIATOR,)), default=INITIATOR, show_default=True,
              help="Our side of the tests.")  # fmt: skip
@click.option("-o", "folder", metavar="DIR", help="Write a capture and a ladder of each test into this folder.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write the verdicts as JUnit XML.")
@some_link_options(
    "local", "path", "interface", "vlan", "udp_port", "local_udp_port", "ip_protocol", "crc", "checksum", "payload_mtu",
    "rendezvous", "job_id", "pid", "resource_index", "initiator_id", "key", "addr", "relative", "seed", "as_json",
)  # fmt: skip
def command(
    options: LinkOptions, listed: bool, peer: str | None, only: str | None, tests: tuple[str, ...], without: str,
    tries: int, role: str, folder: str | None, junit_file: str | None,
) -> None:  # fmt: skip
    """Ask another implementation of UET, test by test, whether it follows the protocol.

    Each test sends packets of its own, right and wrong ones, and holds each answer against everything that the pages
    allow. Exit status 1 if a test failed, or if the peer does not answer.
    """
    wanted = [glob.strip() for glob in (only or "").split(",") if glob.strip()]
    if only is not None and not wanted:
        raise LocalError("--only", f"{only!r} names no test", "ids, or patterns such as UET-PDS-*")
    playing = of_role(chosen(load(map(Path, tests)), wanted), "both" if listed else role)
    lacking = frozenset(name.strip() for name in without.split(",") if name.strip())
    for name in lacking - {*OPTIONAL}:
        raise LocalError("--without", f"{name!r} is not legal{similar(name, OPTIONAL)}", ", ".join(OPTIONAL))
    if listed:
        _list(playing, options.as_json)
        return
    if peer is None:
        raise LocalError("--peer", "is missing", "the address of the peer that is tested, or --list")
    check_output("--junit", junit_file, ())
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with Interrupt() as interrupt, bench_for(options, peer, lacking) as bench, TemporaryDirectory() as spare:
        if not options.as_json:
            tell([bench.words()])
        place = Path(folder or spare)
        results = _played(bench, playing, place, folder is not None, options.as_json, tries, interrupt)
        if junit_file is not None:
            write_text(junit_file, junit(results, bench.repeat))
        _sum_up(results, bench, options.as_json)
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if bench.rtt is None or any(one.verdict is ConformanceVerdict.FAIL or one.silent for one in results):
        raise click.exceptions.Exit(FAULT)


def _list(tests: list[ConformanceTest], as_json: bool) -> None:
    for test in tests:
        if as_json:
            click.echo(json.dumps({
                "kind": "test", "id": test.id, "section": test.section, "purpose": test.purpose,
                "as": test.role, "act": test.act or None, "needs": list(test.needs), "covers": list(test.covers),
                "file": str(test.place.file), "line": test.place.line,
            }))  # fmt: skip
        else:
            tell([f"{test.id}  {test.purpose} [{test.section}]"])


def _played(
    bench: PeerBench,
    tests: list[ConformanceTest],
    place: Path,
    kept: bool,
    as_json: bool,
    tries: int,
    interrupt: Interrupt,
) -> list[Outcome]:
    """Play the tests, tell of each, and return the outcomes. A peer that answers nothing is asked no more."""
    results: list[Outcome] = []
    dead = bench.rtt is None
    with status() as show:
        for at, test in enumerate(tests, 1):
            if interrupt:
                break
            show(f"{test.id}, {at} of {len(tests)}")
            if dead:
                outcome = Outcome(test, ConformanceVerdict.INCONCLUSIVE, _DEAD)
            else:
                outcome = judge(test, bench.link, bench.facts, bench.seed, bench.patience, tries)
                dead = outcome.silent and outcome.verdict is ConformanceVerdict.INCONCLUSIVE
            results.append(outcome)
            file = place / f"{test.id}.pcapng"
            if outcome.frames:
                captures.write(outcome, file, bench.clock.of_day(0), link=bench.path.link)
                captures.judge_capture(outcome, file, bench.facts)
                if kept:
                    write_text(str(file.with_suffix(".txt")), chart(str(file), outcome, bench.facts))
            if as_json:
                found = result_of(outcome, bench.repeat, str(file) if kept and outcome.frames else None)
                click.echo(json.dumps(found))
            elif outcome.verdict is not ConformanceVerdict.PASS and outcome.reason != _DEAD:
                tell(verdict_lines(outcome, bench.repeat))
    return results


def _sum_up(results: list[Outcome], bench: PeerBench, as_json: bool) -> None:
    counts = {verdict.value: sum(one.verdict is verdict for one in results) for verdict in ConformanceVerdict}
    if as_json:
        click.echo(json.dumps({
            "kind": "summary", "peer": bench.peer, "seed": bench.number, "rtt_ps": bench.rtt,
            "path": bench.path.name, "tests": len(results), **counts,
        }))  # fmt: skip
    else:
        words: list[Any] = [f"{counts[verdict.value]} {verdict.value}" for verdict in ConformanceVerdict]
        tell([f"{len(results)} tests: {', '.join(words)}"])
