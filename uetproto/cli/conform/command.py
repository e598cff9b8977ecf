# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto conform`: whether another implementation of UET or RoCE follows the
protocol."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from uetproto import LocalError
from uetproto.cli.choice import Choice
from uetproto.cli.conform.acts import ActPlaces, DriverActor, PersonActor
from uetproto.cli.conform.hints import hints
from uetproto.cli.conform.page import PagePart, page, part_of
from uetproto.cli.conform.peer import Claims, initialise
from uetproto.cli.conform.report import chart, junit, repeating, result_of, verdict_lines
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.live.options import RC, LinkOptions, some_link_options
from uetproto.cli.live.peer_bench import PeerBench, bench_for, facts_of
from uetproto.cli.live.words import duration
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_outputs, make_folder
from uetproto.cli.terminal import printable, status, tell, write_text
from uetproto.conform import captures
from uetproto.conform.acting import Actor, acting, patience_for
from uetproto.conform.catalogue import INITIATOR, KEYS, ROCE, TARGET, TSS, ConformanceTest, chosen, load, of_role
from uetproto.conform.packets import OPTIONAL, PeerFacts
from uetproto.conform.peer_file import KnownPeer, PeerFile
from uetproto.conform.player import ConformanceVerdict, Outcome, Patience, Suite, judge
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.play import gentle_first
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.errors import similar
from uetproto.live.interface import address_of
from uetproto.live.rendezvous import Json

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
  uetproto conform --peer 10.0.0.2 --transport rc --only "ROCE-UD-*"
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
@click.option("--without", metavar="NAME,…", default="", help=f"What the peer does not have: {', '.join(OPTIONAL)}.")
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
    "qpn", "psn", "peer_qpn", "peer_psn", "keys", "sdi", "ssi", "seed", "as_json",
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
        raise LocalError("--only", f"{only!r} names no test", "ids, or patterns such as UET-PDS-*")
    is_roce = options.transport == RC
    if tests:
        found = load(map(Path, tests))
    else:
        found = load(shipped=ROCE) if is_roce else load() + load(shipped=TSS)
    for test in found:
        if bool(test.pairs) is not is_roce:
            told = f"{test.id} is no test of {options.transport}"
            raise LocalError("--transport", told, "uet, or rc", place=test.place)
    playing = of_role(chosen(found, wanted), BOTH if listed else role)
    if is_roce and options.rendezvous_at is None:
        playing = gentle_first(playing)
    if options.domain is None and not (listed or tests):
        sealed, playing = playing, [test for test in playing if KEYS not in test.needs]
        if sealed and not playing:
            raise LocalError("--keys", f"is missing: {sealed[0].id} is of sealed packets", "a key file of both ends")
    if not playing:
        raise LocalError("--as", f"{role}: no test is left", f"{INITIATOR}, {TARGET}, {BOTH}")
    if role == INITIATOR:
        for name, value in (("--driver", driver), ("--acts-from", acts_from), ("--wait", wait)):
            if value is not None:
                raise LocalError(name, f"does not go with --as {role}", f"--as {TARGET}, --as {BOTH}")
    lacking = frozenset(name.strip() for name in without.split(",") if name.strip())
    if lacking and is_roce:
        raise LocalError("--without", "does not go with --transport rc", "--transport uet")
    for name in lacking - {*OPTIONAL}:
        raise LocalError("--without", f"{name!r} is not legal{similar(name, OPTIONAL)}", ", ".join(OPTIONAL))
    if listed:
        _list(playing, options.as_json)
        return
    if is_roce:
        for name, value in (("--init", init_file), ("--peer-file", peer_file)):
            if value is not None:
                raise LocalError(name, f"does not go with --transport {RC}", "--transport uet")
    known = None if peer_file is None else PeerFile(Path(peer_file)).known()
    given, left_out = options, lacking
    if known is not None:
        peer, options, lacking = _from_file(known, str(peer_file), options, peer, lacking)
        rto = rto if known.rto_ms is None else known.rto_ms
    if peer is None:
        raise LocalError("--peer", "is missing", "the address of the peer that is tested, or --list")
    if init_file is not None:
        initialise(options, peer, init_file, lacking, overwrite=overwrite, rto_ms=int(rto))
        return
    if overwrite:
        raise LocalError("--overwrite", "goes with --init")
    check_outputs([("--junit", junit_file), ("--html", html_file)], [("--peer-file", peer_file)])
    if folder is not None:
        make_folder("-o", folder)
    spare = TemporaryDirectory()
    asks = role != TARGET
    with (
        Interrupt() as interrupt,
        spare as spare_folder,
        bench_for(options, peer, lacking, asked=asks, known=None if known is None else dict(known.told)) as bench,
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
            facts = _act_facts(options, bench, acts_from or peer, dict(known.told) if known else {}, lacking)
            actor = _actor(bench, facts, driver, place, interrupt, options.as_json)
            seconds = wait if wait is not None else 60 if driver is None else 10
            patience = replace(patience_for(int(rto * MILLISECOND)), act=int(seconds * SECOND))
            sides[TARGET] = Side(acting(actor), facts, patience, repeat)
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
        results = _played(bench, sides, playing, keep, tries, interrupt)
        if junit_file is not None:
            write_text(junit_file, junit(results, {role: side.repeat for role, side in sides.items()}))
        if html_file is not None and parts is not None:
            write_text(html_file, page(parts, _page_facts(bench, driver)))
        _sum_up(results, bench, options)
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if (asks and bench.rtt is None) or any(one.verdict is ConformanceVerdict.FAIL or one.silent for one in results):
        raise click.exceptions.Exit(FAULT)


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


def _act_facts(
    options: LinkOptions, bench: PeerBench, actor_address: str, told: Json, lacking: frozenset[str]
) -> PeerFacts:  # fmt: skip
    """Return what is known of a peer that acts; its packets are taken from now on."""
    address = address_of("--acts-from", actor_address)
    if address.version != bench.facts.ip_version:
        wrong = f"{address} is of IPv{address.version}"
        raise LocalError("--acts-from", wrong, f"an address of IPv{bench.facts.ip_version}")
    bench.link.peers |= {int(address)}
    found = facts_of(options, str(address), bench.local, told)
    return replace(found, without=lacking, security=bench.facts.security)


def _actor(
    bench: PeerBench, facts: PeerFacts, driver: str | None, place: Path, interrupt: Interrupt, as_json: bool
) -> Actor:  # fmt: skip
    """Return what makes the peer act."""
    places = ActPlaces(place, bench.local, _address_text(facts), facts.how)
    if driver is not None:
        return DriverActor(driver, places)
    return PersonActor(places, lambda line: tell([line]), lambda: bool(interrupt), as_json)


def _address_text(facts: PeerFacts) -> str:
    """Return the address of a peer as text."""
    return str(ip_address(facts.address.to_bytes(4 if facts.ip_version == 4 else 16, "big")))


def _from_file(
    known: KnownPeer, file: str, options: LinkOptions, peer: str | None, lacking: frozenset[str]
) -> tuple[str | None, LinkOptions, frozenset[str]]:
    """Return address, options and what is lacking, as a file says, too. Raises `LocalError` for an option that says
    otherwise."""
    told = {**known.options, **known.told["endpoint"], "pid": known.told["endpoint"].get("pid_on_fep")}
    told |= {"crc": ("off", "on")[known.told["crc"]], "payload_mtu": known.told.get("payload_mtu")}
    told |= {"key": known.told["memory"]["key"], "addr": known.told["memory"]["address"]}
    for name in sorted(options.given & {*told}):
        ours = {"key": options.memory_key, "addr": options.address}.get(name, getattr(options, name))
        if told[name] not in (None, ours):
            raise LocalError(f"--{name.replace('_', '-')}", f"{ours} is not what {file} says", str(told[name]))
    if None not in (peer, known.address) and ip_address(str(peer)) != ip_address(str(known.address)):
        raise LocalError("--peer", f"{peer} is not the peer of {file}", str(known.address))
    filled = {name: value for name, value in told.items() if value is not None and name in _NAMES_OF_OPTIONS}
    filled |= {"key": str(told["key"]), "addr": str(told["addr"])}
    return peer or known.address, replace(options, **filled), lacking | known.lacking


_NAMES_OF_OPTIONS = frozenset(one.name for one in fields(LinkOptions))


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


def _played(
    bench: PeerBench, sides: Mapping[str, Side], tests: list[ConformanceTest], keep: Keeping, tries: int,
    interrupt: Interrupt,
) -> list[Outcome]:  # fmt: skip
    """Play the tests, tell of each, and return the outcomes. A peer that answers nothing, or does not act, is asked no
    more."""
    results: list[Outcome] = []
    with status() as show:
        for at, test in enumerate(sorted(tests, key=lambda one: one.role), 1):
            side = sides[test.role]
            if interrupt:
                break
            show(f"{test.id}, {at} of {len(tests)}")
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
    return results


def _sum_up(results: list[Outcome], bench: PeerBench, options: LinkOptions) -> None:
    told = hints(results, options, bench.facts.how) if isinstance(bench.facts, PeerFacts) else []
    counts = {verdict.value: sum(one.verdict is verdict for one in results) for verdict in ConformanceVerdict}
    if options.as_json:
        click.echo(json.dumps({
            "kind": "summary", "peer": bench.peer, "seed": bench.number, "rtt_ps": bench.rtt,
            "path": bench.path.name, "tests": len(results), **counts, "hints": told,
        }))  # fmt: skip
    else:
        words: list[Any] = [f"{counts[verdict.value]} {verdict.value}" for verdict in ConformanceVerdict]
        tell([f"{len(results)} tests: {', '.join(words)}", *told])
