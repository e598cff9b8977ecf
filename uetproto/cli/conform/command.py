# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto conform`: whether another implementation of UET or RoCE follows the
protocol."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.choice import Choice
from uetproto.cli.conform.acts import ActPlaces, DriverActor, PersonActor
from uetproto.cli.conform.hints import hint_of_pair, hint_of_port, hints
from uetproto.cli.conform.known import filled_from, known_of
from uetproto.cli.conform.page import PagePart, page, part_of
from uetproto.cli.conform.peer import Claims, initialise
from uetproto.cli.conform.report import chart, junit, repeating, result_of, verdict_lines
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import RC, UC, UD, UET, LinkOptions, some_link_options
from uetproto.cli.live.options import ROCE as SERVICES
from uetproto.cli.live.peer_bench import PeerBench, bench_for, facts_of, hand_pairs
from uetproto.cli.live.words import duration
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_outputs, make_folder
from uetproto.cli.terminal import many, printable, share_words, status, tell, write_text
from uetproto.conform import captures
from uetproto.conform.acting import acting, patience_for
from uetproto.conform.catalogue import (
    INITIATOR,
    KEYS,
    ROCE,
    SHIPPED,
    TARGET,
    TSS,
    ConformanceTest,
    chosen,
    load,
    of_role,
)
from uetproto.conform.packets import OPTIONAL, PeerFacts
from uetproto.conform.peer_file import KnownPeer
from uetproto.conform.player import ConformanceVerdict, Outcome, Patience, Suite, judge
from uetproto.conform.roce.acting import DriverPairs, roce_acting, timeout_of
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.pairs import NEEDS as ROCE_NEEDS
from uetproto.conform.roce.pairs import OPTIONAL as ROCE_OPTIONAL
from uetproto.conform.roce.peer_file import KnownRocePeer
from uetproto.conform.roce.play import gentle_first
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.errors import similar
from uetproto.framing.uet import Encapsulation
from uetproto.live.interface import address_of

_DEAD = "the peer answers nothing; the test was not played"
_IDLE = "the peer does not act; the test was not played"
_IDLE_TESTS = 2
"""Number of tests, one after the other, after which a peer that does not act is told to act no more."""
BOTH = "both"


@click.command(
    epilog=f"""\b
Example:
  uetproto conform --list
  uetproto conform --peer 10.0.0.2 -o report
  uetproto conform --peer 10.0.0.2 --only "UET-SES-*,UET-PDS-02?" --seed 7
  uetproto conform --peer 10.0.0.2 --keys rack.keys.toml
  uetproto conform --peer 10.0.0.2 --transport ud
  uetproto conform --peer 10.0.0.2 --transport rc --rendezvous off --rkey 7 --init PEER.toml
  uetproto conform --peer 10.0.0.2 --rendezvous off --key 7 --addr 0x10000 --init PEER.toml
  uetproto conform --peer-file PEER.toml --junit report.xml
  uetproto conform --peer 10.0.0.2 --as target --driver "my-test --{{action}} {{what}} --to {{target}} --key {{key}}"

At the peer, if it is one of ours: uetproto serve --local 10.0.0.2

{EXIT_STATUS}"""
)
@click.option("--list", "listed", is_flag=True, help="Print the tests, and end.")
@click.option("--peer", metavar="A", help="Address of the peer that is tested.")
@click.option("--init", "init_file", metavar="FILE", help="Ask the peer what it has, and write it into this TOML file.")
@click.option("--overwrite", is_flag=True, help="Let --init overwrite a file that is there.")
@click.option("--peer-file", metavar="FILE", help="TOML file with what is known of the peer, as --init writes it.")
@click.option("--only", metavar="GLOB,…", help="Play the tests whose ids match, such as UET-PDS-*.")
@click.option("--tests", multiple=True, metavar="FILE", help="Play the tests of a file of yours; may be repeated.")
@click.option(
    "--without",
    metavar="NAME,…",
    default="",
    help=f"What the peer does not have: {', '.join(OPTIONAL)}; of RoCE {', '.join(ROCE_OPTIONAL)}.",
)
@click.option(
    "--tries",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="Play a test that fails up to N times, until it passes: for links that lose packets.",
)
@click.option("--as", "role", type=Choice((INITIATOR, TARGET, BOTH)), default=INITIATOR, show_default=True,
              help="Our side of the tests: we ask the peer, the peer acts, or both one after the other.")  # fmt: skip
@click.option("--driver", metavar="CMD", help="Command that makes the peer act, run for each test (--as target).")
@click.option("--acts-from", metavar="A", help="Address from which the peer acts; default: that of --peer.")
@click.option("--wait", type=click.FloatRange(0.1, 3600), metavar="S",
              help="Seconds in which the peer has to begin to act; default: 10 with --driver, 60 without.")  # fmt: skip
@click.option("--rto", type=click.FloatRange(0.01, 60_000), default=200, show_default=True, metavar="MS",
              help="First retransmission time-out of the peer (--as target).")  # fmt: skip
@click.option("-o", "folder", metavar="DIR", help="Write a capture and a ladder of each test into this folder.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write the verdicts as JUnit XML.")
@click.option("--html", "html_file", metavar="FILE", help="Write a page with verdicts, steps and packets of each test.")
@some_link_options(
    "transport", "local", "path", "interface", "vlan", "udp_port", "local_udp_port", "ip_protocol", "crc", "checksum",
    "payload_mtu", "rendezvous", "job_id", "pid", "resource_index", "initiator_id", "key", "addr", "relative",
    "qpn", "psn", "peer_qpn", "peer_psn", "length", "keys", "sdi", "ssi", "seed", "as_json", services=True,
)  # fmt: skip
def command(
    options: LinkOptions, listed: bool, peer: str | None, only: str | None, tests: tuple[str, ...], without: str,
    tries: int, role: str, driver: str | None, acts_from: str | None, wait: float | None, rto: float,
    folder: str | None, junit_file: str | None, html_file: str | None, init_file: str | None, overwrite: bool,
    peer_file: str | None,
) -> None:  # fmt: skip
    """Ask another implementation of UET or RoCE, test by test, whether it follows the protocol.

    Each test sends packets of its own, right and wrong ones, and holds each answer against everything that the pages
    allow. With --as target the peer acts, and we answer it rightly and wrongly: --driver runs what makes it act, with
    what it needs in the place of {names} and in its environment (docs/howto/conform.md); without one a line says what
    it has to do. Exit status 1 if a test failed, or if the peer does not answer, or does not act.
    """
    wanted = [glob.strip() for glob in (only or "").split(",") if glob.strip()]
    if only is not None and not wanted:
        raise LocalError("--only", f"{only!r} names no test", "ids, or patterns such as UET-PDS-*", id="unknown-test")
    known = None if peer_file is None else known_of(Path(peer_file), options)
    if isinstance(known, KnownRocePeer):
        options = replace(options, transport=known.transport)
    found = _tests_of(options, tests)
    if not tests:
        _check_transport(options, found, wanted)
    playing = of_role(chosen(found, wanted), BOTH if listed else role)
    if options.is_roce and options.rendezvous_at is None:
        playing = gentle_first(playing)
    if options.domain is None and not (listed or tests):
        sealed, playing = playing, [test for test in playing if KEYS not in test.needs]
        if sealed and not playing:
            raise LocalError(
                "--keys", f"is missing: {sealed[0].id} is of sealed packets", "a key file of both ends",
                id="missing-keys"
            )  # fmt: skip
    if not playing:
        raise LocalError("--as", f"{role}: no test is left", f"{INITIATOR}, {TARGET}, {BOTH}", id="unknown-test")
    if role == INITIATOR:
        for name, value in (("--driver", driver), ("--acts-from", acts_from), ("--wait", wait)):
            if value is not None:
                raise LocalError(
                    name, f"does not go with --as {role}", f"--as {TARGET}, --as {BOTH}", id="conflicting-arguments"
                )
    lacking = frozenset(name.strip() for name in without.split(",") if name.strip())
    optional = {**ROCE_OPTIONAL, **ROCE_NEEDS} if options.is_roce else OPTIONAL
    for name in lacking - {*optional}:
        raise LocalError(
            "--without", f"{name!r} is not legal{similar(name, optional)}", ", ".join(optional), id="unknown-name"
        )
    if listed:
        _list(playing, options.as_json)
        return
    given, left_out = options, lacking
    if known is not None:
        peer, options, lacking = filled_from(known, str(peer_file), options, peer, lacking)
        rto = rto if known.rto_ms is None else known.rto_ms
    if peer is None:
        raise LocalError(
            "--peer", "is missing", "the address of the peer that is tested, or --list", id="missing-argument"
        )
    if init_file is not None:
        initialise(options, peer, init_file, lacking, overwrite=overwrite, rto_ms=int(rto), tests=playing)
        return
    if overwrite:
        raise LocalError("--overwrite", "goes with --init", id="no-effect")
    check_outputs([("--junit", junit_file), ("--html", html_file)], [("--peer-file", peer_file)])
    if folder is not None:
        make_folder("-o", folder)
    spare = TemporaryDirectory()
    asks = role != TARGET
    results: list[Outcome] = []
    with (
        Interrupt() as interrupt,
        spare as spare_folder,
        bench_for(options, peer, lacking, asked=asks, known=known) as bench,
    ):
        place = Path(folder or spare_folder)
        sides: dict[str, Side] = {}
        more = [word for file in tests for word in ("--tests", file)]
        more += [] if peer_file is None else ["--peer-file", peer_file]
        repeat = repeating(given, peer, bench.number, left_out, more)
        if asks:
            sides[INITIATOR] = Side(
                bench.suite, bench.facts, bench.patience, repeat, dead=bench.rtt is None,
                claims=Claims({} if known is None else known.claims, bench),
            )  # fmt: skip
        if role != INITIATOR:
            more += ["--as", TARGET, *(["--driver", driver] if driver else []), "--rto", f"{rto:g}"]
            more += [] if acts_from is None else ["--acts-from", acts_from]
            repeat = repeating(given, peer, bench.number, left_out, more)
            seconds = wait if wait is not None else 60 if driver is None else 10
            sides[TARGET] = _acting_side(
                options,
                bench,
                acts_from or peer,
                known,
                lacking,
                _Acting(driver, place, interrupt, rto, seconds),
                repeat,
            )
        if not options.as_json:
            tell(
                [
                    bench.words()
                    if asks
                    else f"{printable(acts_from or peer)} acts on {bench.local}, {bench.words_of_path()}"
                ]
            )
        parts: list[PagePart] | None = None if html_file is None else []
        keep = Keeping(place, folder is not None, options.as_json, parts)
        with ExitStack() as ends:  # whatever happens, all of this is done, in reverse order
            ends.callback(_sum_up, results, bench, options, sides)
            if html_file is not None and parts is not None:
                ends.callback(lambda: _report("--html", html_file, page(parts, _page_facts(bench, driver))))
            if junit_file is not None:
                repeats = {role: side.repeat for role, side in sides.items()}
                ends.callback(lambda: _report("--junit", junit_file, junit(results, repeats)))
            _play_all(bench, sides, playing, keep, tries, interrupt, results)
    if interrupt:
        click.echo("uetproto: partial: interrupted before the end", err=True)
        raise click.exceptions.Exit(interrupt.status)
    if (asks and bench.rtt is None) or any(one.verdict is ConformanceVerdict.FAIL or one.silent for one in results):
        raise click.exceptions.Exit(FAULT)


def _report(option: str, file: str, text: str) -> None:
    """Write a report. Raises `LocalError` if there is no more room for it, or the like."""
    try:
        write_text(file, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LocalError(
            f"{option} {file}", error.strerror or str(error), "a file that can be written", id="cannot-write"
        ) from None


def _check_transport(options: LinkOptions, found: list[ConformanceTest], globs: list[str]) -> None:
    """Raise `LocalError` for a glob that matches tests of another transport alone."""
    for glob in globs:
        if any(fnmatchcase(test.id, glob) for test in found):
            continue
        for names, others in (((UET,), (SHIPPED, TSS)), (SERVICES, (ROCE,))):
            tests = [test for folder in others for test in load(shipped=folder) if fnmatchcase(test.id, glob)]
            if tests:
                legal = [UET] if names == (UET,) else dict.fromkeys((RC, *(test.pairs[0]["kind"] for test in tests)))
                told = f"{glob!r} matches no test of {options.transport}"
                raise LocalError("--only", told, ", ".join(f"--transport {name}" for name in legal), id="unknown-test")


def _tests_of(options: LinkOptions, files: tuple[str, ...]) -> list[ConformanceTest]:
    """Return the tests of the transport, or those of the files. Raises `LocalError` for a test of another transport."""
    if files:
        found = load(map(Path, files))
    else:
        found = load(shipped=ROCE) if options.is_roce else load() + load(shipped=TSS)
    for test in found:
        if bool(test.pairs) is not options.is_roce:
            told = f"{test.id} is no test of {options.transport}"
            raise LocalError("--transport", told, ", ".join((UET, *SERVICES)), place=test.place, id="not-with-protocol")
    if options.transport in (UC, UD):
        found = [test for test in found if test.pairs[0]["kind"] == options.transport]
    return found


@dataclass
class Side:
    """This record says how the tests of one side of ours are played."""

    suite: Suite
    facts: PeerFacts | RoceFacts
    patience: Patience
    repeat: str
    """Command that plays one test again, without its id."""
    dead: bool = False
    """Whether the peer is asked no more."""
    claims: Claims | None = None
    """What the peer is said to have."""
    idle: int = 0
    """Number of tests, one after the other, in which the peer did not act."""


@dataclass(frozen=True, slots=True)
class _Acting:
    """Says who makes the peer act, and how long that may take."""

    driver: str | None
    place: Path
    interrupt: Interrupt
    rto: float
    seconds: float


def _acting_side(
    options: LinkOptions, bench: PeerBench, actor_address: str, known: KnownPeer | KnownRocePeer | None,
    lacking: frozenset[str], how: _Acting, repeat: str,
) -> "Side":  # fmt: skip
    """Return how the tests are played in which the peer acts; its packets are taken from now on."""
    address = address_of("--acts-from", actor_address)
    if address.version != bench.facts.ip_version:
        wrong = f"{address} is of IPv{address.version}"
        raise LocalError("--acts-from", wrong, f"an address of IPv{bench.facts.ip_version}", id="wrong-address")
    bench.link.peers |= {int(address)}
    rto = int(how.rto * MILLISECOND)
    if isinstance(bench.facts, RoceFacts):
        code, rto = timeout_of(rto)
        of_roce = known if isinstance(known, KnownRocePeer) else None
        pairs = hand_pairs(options, of_roce) if how.driver is None else DriverPairs()
        facts: Any = replace(bench.facts, address=int(address), pairs=pairs)
        suite = roce_acting(_actor(bench, facts, facts.udp_port, how, options.as_json), code)
    else:
        found = facts_of(options, str(address), bench.local, dict(known.told) if known else {})
        facts = replace(found, without=lacking, security=bench.facts.security)
        suite = acting(_actor(bench, facts, facts.how, how, options.as_json))
    patience = replace(patience_for(rto), act=int(how.seconds * SECOND))
    return Side(suite, facts, patience, repeat)


def _actor(
    bench: PeerBench, facts: PeerFacts | RoceFacts, link: Encapsulation | int, how: _Acting, as_json: bool
) -> DriverActor | PersonActor:  # fmt: skip
    """Return what makes the peer act."""
    places = ActPlaces(how.place, bench.local, _address_text(facts), link)

    def stopped() -> bool:
        return bool(how.interrupt)

    if how.driver is not None:
        return DriverActor(how.driver, places, stopped)
    return PersonActor(places, lambda line: tell([line]), stopped, as_json)


def _address_text(facts: PeerFacts | RoceFacts) -> str:
    """Return the address of a peer as text."""
    return str(ip_address(facts.address.to_bytes(4 if facts.ip_version == 4 else 16, "big")))


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


@dataclass
class Keeping:
    """This record says what is kept of the tests."""

    place: Path
    kept: bool
    """Whether captures and ladders stay in the folder `place`."""
    as_json: bool
    parts: list[PagePart] | None
    """Parts of the page, if there is one."""


def _page_facts(bench: PeerBench, driver: str | None) -> dict[str, str]:
    """Return the lines about the run on the page, by their names."""
    answers = "not measured" if bench.rtt is None else duration(bench.rtt)
    facts = {"Peer": bench.peer, "From": bench.local, "Path": bench.path.name, "Round trip": answers}
    return facts | {"Seed": str(bench.number)} | ({} if driver is None else {"Driver": driver})


def _play_all(
    bench: PeerBench, sides: Mapping[str, Side], tests: list[ConformanceTest], keep: Keeping, tries: int,
    interrupt: Interrupt, results: list[Outcome],
) -> None:  # fmt: skip
    """Play the tests, tell of each, and add the outcomes to `results`. A peer that answers nothing, or does not act, is
    asked no more."""
    began = monotonic()
    with status() as show:
        for at, test in enumerate(sorted(tests, key=lambda one: one.role), 1):
            side = sides[test.role]
            if interrupt:
                break
            done = share_words((at - 1) / len(tests), monotonic() - began)
            show(f"{test.id}, {at} of {len(tests)}, {done}")
            if side.dead:
                outcome = Outcome(test, ConformanceVerdict.INCONCLUSIVE, _IDLE if side.idle else _DEAD)
            else:
                outcome = judge(test, bench.link, side.facts, bench.seed, side.patience, tries, side.suite)
                if side.claims is not None and outcome.verdict is ConformanceVerdict.FAIL:
                    outcome.reason = side.claims.checked(outcome)
                lost = outcome.silent and outcome.verdict is ConformanceVerdict.INCONCLUSIVE
                side.idle = side.idle + 1 if lost and test.act else 0
                side.dead = side.idle >= _IDLE_TESTS if test.act else lost
            results.append(outcome)
            file = keep.place / f"{test.id}.pcapng"
            if outcome.frames:
                captures.write(outcome, file, bench.clock.of_day(0), link=bench.path.link)
                captures.judge_capture(outcome, file, side.facts)
                if keep.kept:
                    write_text(str(file.with_suffix(".txt")), chart(str(file), outcome, side.facts))
            if keep.parts is not None:
                capture = str(file) if outcome.frames else None
                again = f"{side.repeat} {test.id}"
                keep.parts.append(part_of(outcome, again, side.facts, capture, kept=keep.kept))
            if keep.as_json:
                found = result_of(outcome, side.repeat, str(file) if keep.kept and outcome.frames else None)
                click.echo(json.dumps(found))
            elif outcome.verdict is not ConformanceVerdict.PASS and outcome.reason not in (_DEAD, _IDLE):
                tell(verdict_lines(outcome, side.repeat))


def _sum_up(
    results: list[Outcome], bench: PeerBench, options: LinkOptions, sides: Mapping[str, "Side"]
) -> None:  # fmt: skip
    told = hints(results, options, bench.facts.how) if isinstance(bench.facts, PeerFacts) else []
    told += [*hint_of_port(results, sides[TARGET].facts), *hint_of_pair(results)] if TARGET in sides else []
    counts = {verdict.value: sum(one.verdict is verdict for one in results) for verdict in ConformanceVerdict}
    if options.as_json:
        click.echo(json.dumps({
            "kind": "summary", "peer": bench.peer, "seed": bench.number, "rtt_ps": bench.rtt,
            "path": bench.path.name, "tests": len(results), **counts, "hints": told,
        }))  # fmt: skip
    else:
        words: list[Any] = [f"{counts[verdict.value]} {verdict.value}" for verdict in ConformanceVerdict]
        tell([f"{many(len(results), 'test')}: {', '.join(words)}", *told])
