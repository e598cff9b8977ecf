# SPDX-License-Identifier: GPL-2.0-only
"""An independent judge of ten conformance tests of RoCE: it has the same verdicts, for right and for faulty peers.

It reads fields of tshark's InfiniBand dissector alone; only what plays the tests is ours.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.conform.faulty_roce_peers import ROCE_FAULTS, roce_peer_with
from tests.support.conform_roce import PEER, RoceLink, RocePeer
from tests.support.effort import effort
from tests.support.interop.tshark import folder, needs_tshark, run, write_pcap
from uetproto.conform.catalogue import ROCE, load
from uetproto.conform.player import Patience
from uetproto.conform.roce.play import play

FIELDS = ("ip.src", "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.bth.destqp", "infiniband.aeth.syndrome",
          "infiniband.aeth.msn", "infiniband.atomicacketh.origremdt", "infiniband.bth.padcnt", "infiniband.bth.a",
          "data.data")  # fmt: skip
ACK, ATOMIC_ACK, READ_ONLY = 0x11, 0x12, 0x10


class Seen(NamedTuple):
    """Fields of a packet as tshark shows them; -1 stands for none."""

    source: str
    opcode: int
    psn: int
    qp: int
    syndrome: int
    msn: int
    old: int
    pad: int
    a: int
    data: str


def ack(one: Seen, psn: int, msn: int) -> bool:
    return (one.opcode, one.psn, one.msn) == (ACK, psn, msn) and 0 <= one.syndrome & 0x7F < 0x20


def nak(one: Seen, syndrome: int, psn: int) -> bool:
    return (one.opcode, one.syndrome & 0x7F, one.psn) == (ACK, syndrome, psn)


Packets = list[Seen]
JUDGE: dict[str, Callable[[Packets, Packets], bool]] = {
    "ROCE-RC-001": lambda sent, got: (
        ack(got[0], sent[0].psn, 1) and got[1].opcode == READ_ONLY and got[1].psn == sent[1].psn
        and got[1].data == sent[0].data != ""
    ),
    "ROCE-RC-016": lambda sent, got: (
        [one.opcode for one in got] == [ATOMIC_ACK] * 3
        and [one.old - got[0].old & (1 << 64) - 1 for one in got] == [0, 5, 4]
    ),
    "ROCE-RC-020": lambda sent, got: [one.pad for one in got] == [0, 3, 2, 1],
    "ROCE-RC-024": lambda sent, got: [one.a for one in got] == [0, 0, 0],
    "ROCE-RC-030": lambda sent, got: [one.psn for one in got] == [0xFFFFFE, 0xFFFFFF, 0, 1],
    "ROCE-RC-032": lambda sent, got: nak(got[1], 0x60, sent[0].psn + 1 & 0xFFFFFF) and ack(got[3], sent[3].psn, 3),
    "ROCE-RC-034": lambda sent, got: ack(got[2], sent[1].psn, 2) and got[3].data == sent[1].data,
    "ROCE-RC-040": lambda sent, got: [one.old - got[0].old for one in got] == [0, 0, 3],
    "ROCE-RC-073": lambda sent, got: len(got) == 1 and nak(got[0], 0x62, sent[0].psn),
    "ROCE-RC-090": lambda sent, got: nak(got[0], 0x25, sent[0].psn) and ack(got[1], sent[0].psn, 1),
}  # fmt: skip
PEERS = (
    None, "atomics answer the value behind", "a gap gets nothing", "a duplicate of a WRITE is executed again",
    "a bad key gets NAK remote operational error", "the RNR timer is 0", "answers have a = 1",
    "ACKs have a PSN one too high behind the wrap",
)  # fmt: skip


@needs_tshark
@pytest.mark.parametrize("fault", PEERS[: effort(4, 8, 8)])
def test_tshark_has_the_same_verdicts(fault: str | None) -> None:
    peer = RocePeer() if fault is None else roce_peer_with(ROCE_FAULTS[fault])
    link = RoceLink(peer)
    outcomes = [play(test, link, peer.facts, "3", Patience()) for test in load(shipped=ROCE) if test.id in JUDGE]
    with folder() as home:
        capture = home / "conform.pcap"
        write_pcap(capture, [frame.data for outcome in outcomes for frame in outcome.frames])
        wanted = [word for field in FIELDS for word in ("-e", field)]
        off = [word for name in ("rpcordma", "smb_direct") for word in ("--disable-protocol", name)]
        out, _ = run(["-r", capture, *off, "-T", "fields", *wanted], home, scripts=())
    lines = iter(out.splitlines())
    for outcome in outcomes:
        sides: dict[bool, Packets] = {False: [], True: []}
        for _ in outcome.frames:
            source, *numbers, data = next(lines).split("\t")
            seen = Seen(source, *(int(text or "-1", 0) for text in numbers), data)
            sides[source == PEER].append(seen)
        try:
            verdict = "pass" if JUDGE[outcome.test.id](sides[False], sides[True]) else "fail"
        except IndexError:
            verdict = "fail"
        assert (outcome.test.id, verdict) == (outcome.test.id, outcome.verdict.value)
    if fault is not None:
        assert "fail" in {outcome.verdict.value for outcome in outcomes}
