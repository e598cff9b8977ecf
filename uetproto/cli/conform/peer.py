# SPDX-License-Identifier: GPL-2.0-only
"""This module asks the peer of `uetproto conform` what it has, for --init, and checks what a file says that it has."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace

import click

from uetproto import LocalError
from uetproto.cli.live.options import LinkOptions
from uetproto.cli.live.peer_bench import PeerBench, bench_for
from uetproto.cli.live.words import duration
from uetproto.cli.main import FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import printable, status, tell
from uetproto.conform.peer_file import peer_toml
from uetproto.conform.player import Outcome, Patience
from uetproto.conform.questions import PeerAnswer, ask, askable, crc_of, payload_mtu_of
from uetproto.errors import Location


def initialise(
    options: LinkOptions, peer: str, file: str, lacking: frozenset[str], *, overwrite: bool, rto_ms: int
) -> None:
    """Ask the peer what it has, and write PEER.toml. Raises `LocalError` for a file that is there, unless it may be
    overwritten; ends with status 1 if the peer answers nothing."""
    check_output("--init", file, ())
    is_there = os.path.exists(file)
    if is_there and not overwrite:
        raise LocalError("--init", f"{file} is there", "another name, or --overwrite")
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
    with open(file, "w" if is_there else "x", encoding="utf-8") as out:
        out.write(text)
    if options.as_json:
        click.echo(_json(file, is_there, rtt, answers))
        return
    for answer in answers:
        has = {True: "has", False: "does NOT have", None: "may have"}[answer.has]
        tell([f"  {has} {answer.name}  ({answer.words})"])
    tell([f"{file} is {'overwritten' if is_there else 'written'}; look at it before you use it: --peer-file {file}"])


def _json(file: str, is_there: bool, rtt: int, answers: list[PeerAnswer]) -> str:
    return json.dumps({
        "kind": "peer", "file": file, "overwritten": is_there, "rtt_ps": rtt,
        "capabilities": {answer.name: answer.has for answer in answers},
        "reasons": {answer.name: answer.words for answer in answers},
    })  # fmt: skip


class Claims:
    """This class checks what a file says that a peer has, once a test that needs it has failed."""

    def __init__(self, claims: Mapping[str, Location], bench: PeerBench) -> None:
        self.claims, self.bench = claims, bench
        self._answers: dict[str, PeerAnswer] = {}

    def checked(self, outcome: Outcome) -> str:
        """Return the reason why a test failed: that the peer lacks what the file claims, if it does."""
        for name in outcome.test.needs:
            if name not in self.claims or name not in askable():
                continue
            if name not in self._answers:
                bench = self.bench
                self._answers[name] = ask(name, bench.link, bench.facts, f"{bench.seed}#claim", bench.patience)
            answer = self._answers[name]
            if answer.has is False:
                said = f"{self.claims[name]} says that the peer has {name}, and it has not"
                return f"{said} ({answer.words}); {outcome.reason}"
        return outcome.reason
