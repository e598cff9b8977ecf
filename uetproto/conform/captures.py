# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the packets of a conformance test as a capture, and lets `uetproto audit` judge those of the
peer."""

from pathlib import Path

from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.conform.packets import PeerFacts
from uetproto.conform.player import ConformanceVerdict, Outcome
from uetproto.conform.roce.packets import RoceFacts
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.wire.capture.pcap import ETHERNET, RAW, open_writer
from uetproto.wire.words.text import numbered

_ALONE = "WIRE-"
"""What the ids of rules about a packet by itself begin with."""


def write(outcome: Outcome, path: Path, began_ns: int, *, link: int = ETHERNET) -> None:
    """Write the packets of a test, whose times begin at `began_ns` nanoseconds since 1970. Frames of link type RAW are
    written without their Ethernet headers, which nobody knows."""
    cut = ETHERNET_SIZE if link == RAW else 0
    comment = f"uetproto conform, {outcome.test.id}: {outcome.test.purpose}"
    with open_writer(path, comment=comment, interfaces=[("conform", link)]) as writer:
        for frame in outcome.frames:
            writer.write(began_ns + frame.time // 1000, frame.data[cut:])


def judge_capture(outcome: Outcome, path: Path, peer: PeerFacts | RoceFacts, *, alone: bool = False) -> None:
    """Let the rules of `uetproto audit` judge the packets that the peer sent in a test that passed.

    The test fails by the first error whose packet is one of the peer. Our own packets are often wrong on purpose, so
    findings about them do not count. If `alone` is true, only rules about a packet by itself count, as others may take
    wrong packets of ours for part of a conversation.
    """
    if outcome.verdict is not ConformanceVerdict.PASS or not outcome.frames or not outcome.test.audited:
        return
    for finding in audit([path], Options(**peer.settings, keys=peer.ring)).findings:
        if alone and not finding.rule.id.startswith(_ALONE):
            continue
        if finding.severity is Severity.ERROR and not outcome.frames[finding.packet].sent:
            outcome.verdict, outcome.step, outcome.packet = ConformanceVerdict.FAIL, 0, finding.packet
            outcome.reason = f"{numbered(finding.packet)}, audit {finding.rule.id}: {finding.text}"
            return
