# SPDX-License-Identifier: GPL-2.0-only
"""What random runs once showed: packets that are right and were called wrong, or that nobody could bear."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from tests.support.audit import frames as f
from tests.support.audit import pds_rules as pds
from tests.support.audit import roce_rules as roce
from tests.support.audit import ses_rules as ses
from tests.support.audit import sharp_rules as sharp
from tests.support.audit.build import B, head
from tests.support.audit.ses_rules import START, C, Line, Op
from tests.support.traffic.generate import Nowhere
from uetproto.audit.flows import SWEEP, Flows
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Reading
from uetproto.engine.contract import MICROSECOND, Completion, Mode, Nop
from uetproto.engine.pds.states import Role
from uetproto.traffic.generate import TrafficRun
from uetproto.traffic.profile import load
from uetproto.traffic.uet import OpenOperation, UetWorkload
from uetproto.wire.capture.pcap import ETHERNET, open_capture
from uetproto.wire.headers.roce import PMTUS, Operation
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import ResponseOpcode as Response

# Messages -------------------------------------------------------------------------------------------------------------


def small(psn: int, opcode: int, code: int = C.OK) -> Line:
    """Read data of the small form in an ACK: it has no message_id, no ri_generation and no modified_length."""
    values = {"opcode": opcode, "return_code": code, "payload_length": 8, "job_id": ses.JOB}
    header = head("ses.response_data_small", original_request_psn=psn, **values)
    return Line("response", B, head("pds.ack", next_hdr=6), header, (), 8, psn)


def send(k: int, opcode: int = Op.SEND) -> Line:
    """A message of one packet on ROD, to the one index."""
    return ses.part(0, psn=START + k, opcode=opcode, mode="rod", length=64, message_id=1 + k, ri_generation=3)


def answer(k: int, code: int = C.OK) -> Line:
    return ses.rsp(START + k, code, message_id=1 + k, modified_length=64 if code == C.OK else 0)


@pytest.mark.parametrize("opcode", [Response.RESPONSE, Response.RESPONSE_W_DATA])
@pytest.mark.parametrize("code", [C.OK, C.BAD_GENERATION, C.DISABLED_GEN])
@pytest.mark.parametrize(
    "request_before", [ses.short(), ses.atomic(), *ses.read(64), send(0)], ids=["short", "atomic", "read", "send"]
)
def test_small_read_data_answers_anything(request_before: Line, opcode: int, code: int) -> None:
    """Rules about fields that it does not have rest."""
    found = dict(ses.found([request_before, small(START, opcode, code)]))
    assert not {"SES-RESPONSE-WRONG-ID", "SES-SAME-GENERATION", "SES-RESPONSE-GENERATION"} & set(found)


def test_small_read_data_behind_a_refused_generation() -> None:
    lines = [send(0), answer(0, C.DISABLED_GEN), send(1), small(START + 1, Response.RESPONSE)]
    assert "SES-DISABLED-GEN-ACCEPTED" not in dict(ses.found(lines))


@pytest.mark.parametrize("code", [C.NULL, C.OK])
def test_request_without_an_id_is_asked_for_by_one(code: int) -> None:
    """The ACK of an ACK_REQ copies its message_id, which a short request does not tell; a success has none."""
    asked = ses.rsp(START, code, opcode=0, message_id=ses.ID, modified_length=0)
    assert ("SES-RESPONSE-WRONG-ID" in dict(ses.found([ses.short(), asked]))) is (code != C.NULL)


@pytest.mark.parametrize("opcode", [Op.SEND, Op.TAGGED_SEND])
def test_tagged_and_untagged_messages_have_index_spaces_of_their_own(opcode: int) -> None:
    """What one of them refused the other may accept, though number and generation are the same."""
    lines = [send(0), answer(0, C.DISABLED_GEN), send(1, opcode), answer(1)]
    assert ("SES-DISABLED-GEN-ACCEPTED" in dict(ses.found(lines))) is (opcode == Op.SEND)


# PDCs -----------------------------------------------------------------------------------------------------------------

LATER = pds.START + 5
"""Start_PSN that the target demands."""
LATE_NACK = pds.nack(LATER + 2, NackCode.NEW_START_PSN, nack_payload=LATER)
"""For a packet with the Start_PSN before, though the new one has this PSN too."""


def test_start_psn_is_demanded_of_a_packet_of_the_instance_before() -> None:
    refused = pds.nack(pds.START, NackCode.NEW_START_PSN, nack_payload=LATER)
    again = pds.syn(LATER, LATER - 1, start=LATER)
    assert "PDS-NACK-NEW-START" not in dict(pds.found([pds.syn(pds.START), refused, again, LATE_NACK]))


@pytest.mark.parametrize("complete", [False, True])
def test_start_psn_is_demanded_of_a_packet_that_was_not_seen(complete: bool) -> None:
    """Only a complete capture shows that the packet refused had the new Start_PSN."""
    options = Options(complete=complete)
    found = pds.found([pds.syn(LATER, LATER - 1, start=LATER), LATE_NACK], options)
    assert ("PDS-NACK-NEW-START" in dict(found)) is complete


# Queue pairs ----------------------------------------------------------------------------------------------------------


def roce_rules(lines: Iterable[roce.Line], options: Options = roce.ALL) -> set[str]:
    return {finding.rule.id for finding in roce.RoceAudit(options).see(roce.observed(lines))}


BEHIND = 2 * roce.PMTU // PMTUS[0]
"""The PSN behind a READ of two packets of 1024 bytes, if the path MTU were the smallest."""


def test_behind_a_read_of_unknown_path_mtu_a_message_goes_on() -> None:
    """It began where nothing was seen."""
    lines = [roce.read(0, 2 * roce.PMTU), roce.req(Operation.SEND_LAST, BEHIND, 8)]
    assert "ROCE-OPCODE-ORDER" not in roce_rules(lines)


def test_behind_a_read_of_unknown_path_mtu_messages_are_not_counted() -> None:
    """There may be some that were not seen."""
    size = 2 * roce.PMTU
    lines = [roce.only(0), roce.ack(0, 1), roce.read(1, size), roce.only(1 + BEHIND), roce.ack(1 + BEHIND, 7)]
    assert "ROCE-MSN" not in roce_rules(lines)


def test_notification_is_compared_with_the_packets_of_its_queue_pair_only() -> None:
    """Without any, its P_Key may be whatever it is."""
    assert "ROCE-KEY-CHANGE" not in roce_rules([roce.cnp(p_key=0xFFFE), roce.cnp(p_key=0xFFFE)])


# Reading --------------------------------------------------------------------------------------------------------------


def with_ip_length(frame: bytes, length: int) -> bytes:
    """The IPv4 header says another length, in all else the frame is as it was."""
    return frame[:16] + length.to_bytes(2, "big") + frame[18:]


MAC_SIZE = 14
SEALED = f.frames_of("gradient-sealed-direct.pcapng")[0]
WRITE = f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE)


@pytest.mark.parametrize("frame", [SEALED, WRITE], ids=["sealed", "clear"])
@pytest.mark.parametrize("change", [-4, -8, -100, 4])
def test_wrong_ip_length_is_found(frame: bytes, change: int) -> None:
    """Though a packet longer than IP says looks trimmed, and a sealed one has no CRC that shows where it ends."""
    report = f.audited([with_ip_length(frame, len(frame) - MAC_SIZE + change)], rules=("WIRE-LENGTH",))
    assert f.found(report) == [("WIRE-LENGTH", 0)]


@pytest.mark.parametrize("frame", [SEALED, WRITE], ids=["sealed", "clear"])
@pytest.mark.parametrize("crc", ["auto", "on"])
def test_ip_length_within_its_own_header_is_found(frame: bytes, crc: str) -> None:
    """Where it says that there is no room for a CRC, none is wrong, though its flow has one."""
    report = f.audited([frame, with_ip_length(frame, 1)], crc=crc, rules=("WIRE-LENGTH", "WIRE-CRC"))
    assert (f.found(report), report.others) == ([("WIRE-LENGTH", 1)], 0)


def test_acks_without_ses_are_of_one_shape() -> None:
    """What stands behind them is a CRC, another in each."""
    acks = [f.frame(f.MAC, f.V4, f.UDP, f.changed(f.ACK, next_hdr=0, cack_psn=psn), payload=b"") for psn in range(200)]
    reading = Reading(ETHERNET, Options(), lambda _: None)
    with open_capture(f.capture(acks)) as capture:
        for record in capture:
            reading.take(record)
    assert sum(map(len, reading._quick._by_hint)) == 1


# Groups ---------------------------------------------------------------------------------------------------------------


def test_damaged_answer_to_a_join_is_borne() -> None:
    """Of GROUP_JOIN_RESP only the header that all messages have is there: nobody has joined."""
    src, dst, opcode, values, _ = sharp.join(sharp.ONE, 0)
    audit = sharp.SharpAudit()
    audit.see(sharp.observed([(src, dst, opcode, values, {})]))
    assert not list(audit.tracker.groups)


# Memory ---------------------------------------------------------------------------------------------------------------


class Short(NamedTuple):
    """A flow of one packet."""

    last_ns: int


def test_flows_of_one_packet_and_two_keys_stay_bounded() -> None:
    """The more there are the later they are swept, yet not so late that more and more are waiting."""
    most = 100
    flows: Flows[int, Any] = Flows(most)
    largest = 0
    for round_ in range(50):
        for number in range(round_ * SWEEP, (round_ + 1) * SWEEP):
            flows.by_key[2 * number] = flows.by_key[2 * number + 1] = Short(number)
        largest = max(largest, len(flows.by_key))
        if flows.is_due():
            flows.sweep(50 * SWEEP)
    assert largest <= 4 * SWEEP
    assert len(list(flows)) <= most


# Traffic --------------------------------------------------------------------------------------------------------------


def test_applications_close_only_what_they_have_opened() -> None:
    """After its last operation on a PDC an initiator closes it; one that the peer opened to it is the peer's."""
    world = TrafficRun(load("mixed", ["endpoints=2", "pdcs=1", "operations_per_pdc=1"]), Nowhere())
    workload = world.workload
    assert isinstance(workload, UetWorkload)
    initiator, target = workload.stations
    for station in workload.stations:
        station.attach(1)
    target.port.submit(Nop(peer=initiator.address, mode=Mode.RUD, job_id=1, resource_index=15))
    world.clock.run(10 * MICROSECOND)
    (opened,) = initiator.fep.pds.pdcs.values()
    assert opened.role is Role.TARGET
    doing = OpenOperation(initiator, target, Op.WRITE, Mode.RUD)
    workload.on_event(Completion(doing, target.address, message_id=1, length=0, return_code=C.OK))
    assert list(initiator.fep.pds.pdcs.values()) == [opened]
