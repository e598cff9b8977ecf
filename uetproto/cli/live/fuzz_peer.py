# SPDX-License-Identifier: GPL-2.0-only
"""This module fuzzes a live peer, for `uetproto fuzz --peer`, and keeps what breaks as conformance tests."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.conform.known import tested
from uetproto.cli.conform.report import chart, repeating
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import LinkOptions
from uetproto.cli.live.peer_bench import PeerBench, bench_for
from uetproto.cli.main import FAULT
from uetproto.cli.terminal import many, printable, status, tell, write_text
from uetproto.conform import captures
from uetproto.conform.fuzz.search import FUZZED_ROCE, FUZZED_UET, TIMES, PeerFinding, PeerFuzz, as_toml
from uetproto.conform.packets import OPTIONAL
from uetproto.conform.player import Outcome
from uetproto.conform.roce.pairs import NEEDS
from uetproto.conform.roce.pairs import OPTIONAL as OPTIONAL_ROCE
from uetproto.engine.contract import SECOND
from uetproto.errors import similar

_AUDITED = 4
"""One of so many episodes that passed is audited, too."""
_SECONDS = 60
_TOLD = 5


def fuzz_peer(
    options: LinkOptions, peer: str | None, peer_file: str | None, without: str, seconds: int | None, steps: int | None,
    episode: int | None, folder: Path,
) -> None:  # fmt: skip
    """Fuzz a peer until the time is up or so many packets were sent, and keep findings in a folder."""
    lacking = frozenset(name.strip() for name in without.split(",") if name.strip())
    given, left_out = options, lacking
    peer, options, lacking, known = tested(options, peer, peer_file, lacking)
    optional = {**OPTIONAL_ROCE, **NEEDS} if options.is_roce else OPTIONAL
    for name in left_out - {*optional}:
        raise LocalError(
            "--without", f"{name!r} is not legal{similar(name, optional)}", ", ".join(optional), id="unknown-name"
        )
    findings: list[PeerFinding] = []
    with (
        Interrupt() as interrupt,
        TemporaryDirectory() as spare,
        bench_for(options, peer, lacking, known=known) as bench,
    ):
        if peer_file is not None:
            bench.repeat = repeating(given, peer, bench.number, left_out, ["--peer-file", peer_file])
        if not options.as_json:
            tell([bench.words()])
        if missing := bench.facts.offers.get("memory"):
            raise LocalError("--peer", missing, "a peer with 16 KiB of memory that we may write", id="peer-refused")
        fuzzed = (FUZZED_ROCE if options.is_roce else FUZZED_UET)._replace(suite=bench.suite)
        judge = _judge(bench, Path(spare))
        fuzz = PeerFuzz(bench.link, bench.facts, bench.patience, bench.seed, judge, fuzzed)
        began = bench.clock.now
        end = began + (seconds or _SECONDS) * SECOND
        with status() as show:

            def stop() -> bool:
                tally = fuzz.tally
                show(f"{_played(fuzz)}, {many(len(findings), 'finding')}")
                done = tally.steps >= steps if steps is not None else bench.clock.now >= end
                return bool(interrupt) or done or (episode is not None and tally.episodes > 0)

            first = episode or 0
            for finding in fuzz.run(stop, first) if bench.rtt is not None else ():
                findings.append(finding)
                _tell(finding, _keep(finding, bench, folder), bench, options.as_json)
        _sum_up(fuzz, findings, bench, options.as_json, bench.clock.now - began)
    if interrupt:
        click.echo("uetproto: partial: interrupted before the end", err=True)
        raise click.exceptions.Exit(interrupt.status)
    if bench.rtt is None or findings or not fuzz.tally.steps:
        raise click.exceptions.Exit(FAULT)


def _judge(bench: PeerBench, spare: Path) -> Callable[[Outcome], None]:
    """Return a function that lets the audit judge some of the episodes that passed."""
    count = 0

    def judge(outcome: Outcome) -> None:
        nonlocal count
        count += 1
        if count % _AUDITED == 0:
            file = spare / "episode.pcapng"
            captures.write(outcome, file, bench.clock.of_day(0), link=bench.path.link)
            captures.judge_capture(outcome, file, bench.facts, alone=True)

    return judge


def _keep(finding: PeerFinding, bench: PeerBench, folder: Path) -> Path:
    """Write a finding as a file of tests, with its capture and its ladder. Return the path of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{finding.test.id}.toml"
    how = f"Found by uetproto fuzz --peer {bench.peer} --seed {bench.number}, episode {finding.episode}."
    write_text(str(file), as_toml(finding.test, f"{how}\n{finding.outcome.reason}"))
    capture = file.with_suffix(".pcapng")
    outcome = replace(finding.outcome, test=finding.test)
    captures.write(outcome, capture, bench.clock.of_day(0), link=bench.path.link)
    write_text(str(file.with_suffix(".txt")), chart(str(capture), outcome, bench.facts))
    return file


def _tell(finding: PeerFinding, file: Path, bench: PeerBench, as_json: bool) -> None:
    sends = sum("send" in step for step in finding.test.steps)
    again = f"{bench.repeat.removesuffix(' --only')} --tests {file}"
    if as_json:
        click.echo(json.dumps({
            "kind": "finding", "id": finding.test.id, "file": str(file), "reason": finding.outcome.reason,
            "episode": finding.episode, "steps": len(finding.test.steps), "drawn": finding.drawn, "packets": sends,
            "dead": finding.dead, "again": again,
        }))  # fmt: skip
        return
    lines = [f"fail: {finding.test.id}  {printable(finding.outcome.reason)}"]
    if finding.dead:
        lines.append("  the peer answers nothing any more: the episode is kept as it was, and nothing more is tried")
    else:
        steps = f"{many(len(finding.test.steps), 'step')} of {finding.drawn}"
        lines.append(f"  {steps}, {many(sends, 'packet')}; failed {TIMES} times of {TIMES}")
    tell([*lines, f"  {printable(str(file))}", f"  again: {printable(again)}"])


def _played(fuzz: PeerFuzz) -> str:
    return f"{many(fuzz.tally.steps, 'packet')} in {many(fuzz.tally.episodes, 'episode')}"


def _sum_up(fuzz: PeerFuzz, findings: Iterable[PeerFinding], bench: PeerBench, as_json: bool, time: int) -> None:
    tally, found = fuzz.tally, len([*findings])
    if as_json:
        summary: dict[str, Any] = {
            "kind": "summary", "machine": "peer", "peer": bench.peer, "seed": bench.number, "rtt_ps": bench.rtt,
            "path": bench.path.name, "steps": tally.steps, "episodes": tally.episodes, "failed": tally.failed,
            "not_again": tally.not_again, "findings": found, "time_ps": time,
        }  # fmt: skip
        click.echo(json.dumps(summary))
        return
    ended = f"{time / SECOND:.1f} s, seed {bench.number}; {many(found, 'finding', zero='no')}"
    tell([f"{_played(fuzz)}, {ended}"])
    tell(f"  failed once, and not again: {printable(text)}" for text in tally.not_again[:_TOLD])
    if len(tally.not_again) > _TOLD:
        tell([f"  and {len(tally.not_again) - _TOLD} more that failed once; does the link lose packets?"])
