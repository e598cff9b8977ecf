# SPDX-License-Identifier: GPL-2.0-only
"""This module asks the peer of `uetproto conform` what it has, for --init, and checks what a file says that it has."""

import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from uetproto import LocalError
from uetproto.cli.live.options import LinkOptions, local_towards, mtu_of
from uetproto.cli.live.peer_bench import PeerBench, bench_for
from uetproto.cli.live.words import duration
from uetproto.cli.main import FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import printable, status, tell
from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.peer_file import peer_toml
from uetproto.conform.player import Outcome, Patience
from uetproto.conform.questions import PeerAnswer, ask, askable, crc_of, payload_mtu_of
from uetproto.conform.roce.hand import needed
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.pairs import PeerMemory
from uetproto.conform.roce.peer_file import asked_toml, hand_toml
from uetproto.conform.roce.questions import roce_ask, roce_askable
from uetproto.engine.roce.config import RoceConfig
from uetproto.errors import Location
from uetproto.live.interface import address_of


def initialise(
    options: LinkOptions, peer: str, file: str, lacking: frozenset[str], *, overwrite: bool, rto_ms: int,
    tests: Sequence[ConformanceTest],
) -> None:  # fmt: skip
    """Ask the peer what it has, and write PEER.toml; of RoCE by hand write what the tests need of it. Raises
    `LocalError` for a file that is there, unless it may be overwritten; ends with status 1 if the peer answers
    nothing."""
    check_output("--init", file, ())
    is_there = os.path.exists(file)
    if is_there and not overwrite:
        raise LocalError("--init", f"{file} is there", "another name, or --overwrite", id="file-exists")
    if options.is_roce:
        if options.rendezvous_at is None:
            _initialise_by_hand(options, peer, file, is_there, rto_ms, tests)
        else:
            _initialise_roce(options, peer, file, is_there, rto_ms)
        return
    with bench_for(options, peer, lacking) as bench:
        asked = crc_of(bench.link, bench.facts, f"{bench.seed}#init", bench.patience)
        if asked is None:
            tell([bench.words(), f"{file} is not written, as nothing is known of the peer"])
            raise click.exceptions.Exit(FAULT)
        crc, rtt = asked
        facts, patience = replace(bench.facts, how=replace(bench.facts.how, crc=crc)), Patience.of(rtt)
        if not options.as_json:
            tell([f"{printable(bench.peer)} from {bench.local}: answers in {duration(rtt)}, {bench.words_of_path()}"])
        answers: list[PeerAnswer] = []
        with status() as show:
            mtu = payload_mtu_of(bench.link, facts, f"{bench.seed}#init", patience)
            for name in askable():
                show(f"asking for {name}")
                answers.append(ask(name, bench.link, facts, f"{bench.seed}#init", patience))
        told = (mtu, "asked: a write of one packet with so much is executed") if mtu is not None else (
            facts.payload_mtu, "not known: no write of one packet was executed; is the key right?"
        )  # fmt: skip
        text = peer_toml(bench.peer, facts, rtt, answers, told, rto_ms)
    _write(options, file, is_there, text, rtt, answers)


def _write(
    options: LinkOptions, file: str, is_there: bool, text: str, rtt: int | None, answers: Sequence[PeerAnswer],
    pairs: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """Write the file, and tell what is in it. `pairs` are numbers of queue pairs by service that are to be made."""
    with open(file, "w" if is_there else "x", encoding="utf-8") as out:
        out.write(text)
    if options.as_json:
        told = {} if pairs is None else {"pairs": dict(pairs)}
        click.echo(json.dumps({
            "kind": "peer", "file": file, "overwritten": is_there, "rtt_ps": rtt,
            "capabilities": {answer.name: answer.has for answer in answers},
            "reasons": {answer.name: answer.words for answer in answers}, **told,
        }))  # fmt: skip
        return
    for answer in answers:
        has = {True: "has", False: "does NOT have", None: "may have"}[answer.has]
        tell([f"  {has} {answer.name}  ({answer.words})"])
    written = f"{file} is {'overwritten' if is_there else 'written'}"
    if pairs is None:
        tell([f"{written}; look at it before you use it: --peer-file {file}"])
        return
    made = ", ".join(f"{number} {kind.upper()}" for kind, number in pairs.items())
    tell([
        f"{written}: the tests need {made} queue pairs. At the peer, connect each to qpn and psn of its line;",
        f"then write its number there as peer_qpn, and test with --peer-file {file}",
    ])  # fmt: skip


def _initialise_roce(options: LinkOptions, peer: str, file: str, is_there: bool, rto_ms: int) -> None:
    """Ask a peer of RoCE at its rendezvous, and by small tests, what it has."""
    with bench_for(options, peer, frozenset()) as bench:
        if not bench.rtt:
            tell([bench.words(), f"{file} is not written, as nothing is known of the peer"])
            raise click.exceptions.Exit(FAULT)
        if not options.as_json:
            tell([bench.words()])
        answers: list[PeerAnswer] = []
        with status() as show:
            for name in roce_askable():
                show(f"asking for {name}")
                answers.append(roce_ask(name, bench.link, bench.facts, f"{bench.seed}#init", bench.patience))
        assert options.rendezvous_at is not None
        text = asked_toml(bench.peer, options.transport, options.rendezvous, bench.rtt, rto_ms, answers)
    _write(options, file, is_there, text, bench.rtt, answers)


def _initialise_by_hand(
    options: LinkOptions, peer: str, file: str, is_there: bool, rto_ms: int, tests: Sequence[ConformanceTest]
) -> None:  # fmt: skip
    """Write what tests need of a peer of RoCE whose queue pairs are made by hand. It is asked nothing."""
    address = address_of("--peer", peer)
    local = local_towards(options, peer)
    link = {
        "udp_port": options.udp_port or RoceConfig().udp_port, "rto_ms": rto_ms,
        "path_mtu": options.payload_for(mtu_of(options, local), address.version),
    }  # fmt: skip
    memory = PeerMemory(options.memory_key, options.address, options.memory_length)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    text = hand_toml(str(address), options.transport, link, memory, tests, str(seed))
    _write(options, file, is_there, text, None, [], Counter(str(pair["kind"]) for pair in needed(tests)))


class Claims:
    """This class checks what a file says that a peer has, once a test that needs it has failed."""

    def __init__(self, claims: Mapping[str, Location], bench: PeerBench) -> None:
        self.claims, self.bench = claims, bench
        self._answers: dict[str, PeerAnswer] = {}

    def checked(self, outcome: Outcome) -> str:
        """Return the reason why a test failed: that the peer lacks what the file claims, if it does."""
        for name in outcome.test.needs:
            bench = self.bench
            of_roce = isinstance(bench.facts, RoceFacts)
            if name not in self.claims or name not in (roce_askable() if of_roce else askable()):
                continue
            if name not in self._answers:
                asked = roce_ask if of_roce else ask
                self._answers[name] = asked(name, bench.link, bench.facts, f"{bench.seed}#claim", bench.patience)
            answer = self._answers[name]
            if answer.has is False:
                said = f"{self.claims[name]} says that the peer has {name}, and it has not"
                return f"{said} ({answer.words}); {outcome.reason}"
        return outcome.reason
