# SPDX-License-Identifier: GPL-2.0-only
"""This module writes what `uetproto conform` found: lines, JSON, JUnit XML and ladders."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from uetproto.analysis.decoding import Decoding
from uetproto.cli.junit import JunitCase, junit_text
from uetproto.cli.ladder.chart import Chart
from uetproto.cli.ladder.rows import LadderChoice, LadderTally, arrows, rows
from uetproto.cli.live.options import UET, LinkOptions
from uetproto.cli.terminal import many, printable
from uetproto.conform.packets import PeerFacts
from uetproto.conform.player import ConformanceVerdict, Outcome
from uetproto.conform.roce.packets import RoceFacts
from uetproto.wire.capture.pcap import open_capture

_COLUMNS = 120
_REPEATED = ("transport", "local", "path", "interface", "vlan", "udp_port", "local_udp_port", "ip_protocol", "crc",
             "checksum", "payload_mtu", "rendezvous", "job_id", "pid", "resource_index", "initiator_id", "key", "addr",
             "qpn", "psn", "peer_qpn", "peer_psn", "length", "keys", "sdi", "ssi")  # fmt: skip
_USUAL: dict[str, Any] = {
    "transport": UET,
    "path": "auto", "crc": "on", "checksum": "auto", "rendezvous": "4793", "job_id": 1, "pid": 0, "resource_index": 15,
    "initiator_id": 16, "key": "1", "addr": "0",
}  # fmt: skip


def repeating(
    options: LinkOptions, peer: str, seed: int, lacking: frozenset[str], more: Iterable[str] = ()
) -> str:  # fmt: skip
    """Return the command that plays one test again; its id is to be put after it. `more` has further words of it."""
    words = ["uetproto", "conform", "--peer", peer]
    for name in _REPEATED:
        value = getattr(options, name)
        if value is not None and value != _USUAL.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += [] if options.relative else ["--absolute"]
    words += ["--without", ",".join(sorted(lacking))] if lacking else []
    return shlex.join([*words, *more, "--seed", str(seed), "--only"])


def verdict_lines(outcome: Outcome, repeat: str) -> list[str]:
    """Return lines that tell how a test ended that did not pass."""
    test = outcome.test
    lines = [f"{outcome.verdict.value}: {test.id}  {printable(test.purpose)} [{printable(test.section)}]"]
    at = f"step {outcome.step}: " if outcome.step else ""
    lines.append(f"  {at}{printable(outcome.reason)}")
    if outcome.aside:
        lines.append(
            f"  {many(outcome.aside, 'packet')} of the peer went to PDCIDs or queue pairs that this test has not"
        )
    if outcome.verdict is ConformanceVerdict.FAIL:
        lines.append(f"  again: {repeat} {test.id} -o report")
    return lines


def result_of(outcome: Outcome, repeat: str, capture: str | None) -> dict[str, Any]:
    """Return the object that `--json` prints for a test."""
    test = outcome.test
    return {
        "kind": "result", "id": test.id, "verdict": outcome.verdict.value, "section": test.section,
        "purpose": test.purpose, "reason": outcome.reason, "step": outcome.step or None,
        "tries": outcome.tries, "packets": len(outcome.frames), "packet": outcome.packet, "aside": outcome.aside,
        "capture": capture, "again": f"{repeat} {test.id}",
    }  # fmt: skip


def decoding_of(peer: PeerFacts | RoceFacts) -> Decoding:
    """Return how captures of a peer are decoded, and opened if they are sealed."""
    if peer.ring is None:
        return Decoding(**peer.settings)
    from uetproto.analysis.opened import Keys

    return Decoding(**peer.settings, keys=Keys(peer.ring))


def chart(file: str, outcome: Outcome, peer: PeerFacts | RoceFacts) -> str:
    """Return the ladder of the capture of a test, with its purpose and its verdict above."""
    test, decoding = outcome.test, decoding_of(peer)
    head = [f"{test.id}: {test.purpose}", f"{test.section}; {outcome.verdict.value}"]
    if outcome.reason:
        head.append(f"step {outcome.step}: {outcome.reason}" if outcome.step else outcome.reason)
    with open_capture(file) as reader:
        drawn = rows(arrows(file, reader, decoding, LadderChoice(), LadderTally()), False)
        lines = list(Chart(_COLUMNS, lambda text, style: text, False).lines(drawn))
    return "\n".join([*map(printable, head), "", *lines, ""])


def junit(results: list[Outcome], repeats: Mapping[str, str]) -> str:
    """Return the verdicts as JUnit XML, with a test case for each test. An inconclusive test is skipped. `repeats` has
    the command of `repeating` by our side of the test."""
    return junit_text("uetproto conform", [_case(one, repeats) for one in results])


def _case(one: Outcome, repeats: Mapping[str, str]) -> JunitCase:
    group, name = f"uetproto.conform.{one.test.id.rpartition('-')[0].lower().replace('-', '.')}", one.test.id
    if one.verdict is ConformanceVerdict.FAIL:
        text = f"{one.test.purpose} [{one.test.section}]\nagain: {repeats[one.test.role]} {name}"
        return JunitCase(group, name, "failure", one.reason, text, "fail")
    if one.verdict is ConformanceVerdict.INCONCLUSIVE:
        return JunitCase(group, name, "skipped", one.reason)
    return JunitCase(group, name)
