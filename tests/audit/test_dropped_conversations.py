# SPDX-License-Identifier: GPL-2.0-only
"""Conversations that are dropped because there are too many: what comes of them later is not held against anybody."""

import pytest

from tests.support.audit.build import IPDCID, TPDCID, A, B, head, packet
from uetproto.audit.auditor import Auditor
from uetproto.audit.flows import SWEEP
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.wire.headers.roce import Operation, Transport, opcode_of

QP_OF_A, QP_OF_B = 17, 24


def sweep(auditor: Auditor, number: int) -> None:
    """So many packets of nobody that it is time to drop what is too much, all at once."""
    for again in range(SWEEP):
        auditor.see(packet(number + again, A, B, None, time_ns=number * 1_000))


def send(number: int, psn: int) -> ObservedPacket:
    opcode = opcode_of(Transport.RC, Operation.SEND_ONLY)
    return packet(number, A, B, head("bth", opcode=opcode, p_key=0xFFFF, destqp=QP_OF_B, psn=psn), psn)


def ack(number: int, psn: int, wrong: int = 0) -> ObservedPacket:
    """MSN counts the messages, each of one packet, from PSN 0 on; and this one so many more."""
    leads = head("bth", opcode=opcode_of(Transport.RC, Operation.ACKNOWLEDGE), p_key=0xFFFF, destqp=QP_OF_A, psn=psn)
    return packet(number, B, A, leads, more=(head("aeth", syndrome=0, msn=psn + 1 + wrong),))


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("most", [1, 2])
def test_the_other_half_of_a_connection(most: int, wrong: int) -> None:
    """Requests are dropped and their answers kept, which count messages that nobody knows any more."""
    auditor = Auditor(Options(max_flows=most, rules=("ROCE-MSN",)))
    auditor.see(send(0, 0))
    auditor.see(ack(1, 0))
    sweep(auditor, 2)
    number = SWEEP + 2
    for at, psn in enumerate(range(5, 9)):
        for again, seen in enumerate((send(2 * at, psn), ack(2 * at + 1, psn, wrong * (psn == 8)))):
            auditor.see(seen._replace(number=number + 2 * at + again))
    auditor.end()
    assert auditor.forgotten == ({"queue pairs: evicted": 1} if most == 1 else {})
    assert [finding.packet for finding in auditor.judge.findings] == [number + 7] * wrong


@pytest.mark.parametrize("most", [1, 65_536])
def test_what_was_forgotten_is_not_missing(most: int) -> None:
    """An ACK of a PSN that was never sent, as far as is known: with all that is known, that is wrong."""
    auditor = Auditor(Options(complete=True, max_flows=most, rules=("PDS-ACK-UNSENT",)))
    for pdc in range(3):
        request = head("pds.rud_req.syn", next_hdr=0, psn=1000, spdcid=IPDCID + pdc)
        auditor.see(packet(pdc, A, B, request))
    sweep(auditor, 3)
    auditor.see(packet(SWEEP + 3, B, A, head("pds.ack", cack_psn=1005, spdcid=TPDCID, dpdcid=IPDCID + 2)))
    auditor.end()
    tally = auditor.judge.tallies["PDS-ACK-UNSENT"]
    assert (tally.judged, tally.failed) == ((0, 0) if most == 1 else (1, 1))
    assert tally.not_judged == ({"conversations were dropped": 1} if most == 1 else {})
    assert len(auditor.judge.findings) == tally.failed
