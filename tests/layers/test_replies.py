# SPDX-License-Identifier: GPL-2.0-only
"""`uet_reply` answers as the engine's target does, in the form that the caller asks for."""

from collections import Counter
from typing import Any

import pytest
from scapy.error import Scapy_Exception
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap

import uetproto
from tests.layers.test_messages import FILES, PCAPS
from uetproto import layers as uet
from uetproto.errors import LocalError

OWN_WILL = {"rendezvous", "deferrable", "held", "sync"}
"""What in a scenario's name says that its target does more than answer: it reads, restarts, or answers later."""
SIMPLE = [file for file in FILES if not OWN_WILL & set(file.split("-"))]


def headers_of(packet: Any) -> tuple[str, str, bytes, int]:
    """Addresses, UET headers and size of the payload of an answer."""
    body = bytes(packet[UDP].payload)[:-4]
    size = len(packet[Raw].load) if Raw in packet else 0
    return packet[IP].src, packet[IP].dst, body[: len(body) - size], size


@pytest.mark.parametrize("file", SIMPLE)
def test_the_answers_are_those_of_the_engine(file: str) -> None:
    frames = rdpcap(str(PCAPS / f"{file}.pcapng"))
    initiator = frames[0][IP].src
    asked = [frame for frame in frames if frame[IP].src == initiator]
    answered = Counter(headers_of(frame) for frame in frames if frame[IP].src != initiator)
    ours = Counter(headers_of(Ether(bytes(answer))) for answer in uet.uet_reply(asked, mpr=8))
    assert ours == answered


READ = IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / uet.uet_message("READ", 10000, start_psn=50, memory_key=7)
WRITE = IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / uet.uet_message("WRITE", bytes(10000), start_psn=50)


def test_read_data_are_the_callers() -> None:
    data = bytes(range(250)) * 40
    answers = uet.uet_reply(READ, data, every=True)
    assert b"".join(answer[Raw].load for answer in answers if Raw in answer) == data
    assert [answer[uet.PdsAck].cack_psn for answer in answers if uet.PdsAck in answer] == [50, 51, 52]
    returned = [answer for answer in answers if uet.PdsRudReq in answer]
    assert [answer[uet.PdsRudReq].psn for answer in returned] == [50, 51, 52]
    for answer, packet in zip(returned, READ, strict=True):
        assert IP(bytes(answer)).answers(packet)
    assert uet.uet_reply(READ[:1], data, start_psn=900)[1][uet.PdsRudReq].psn == 900


@pytest.mark.parametrize("message", [READ, WRITE])
def test_all_answers_answer_what_was_asked(message: Any) -> None:
    for answer in uet.uet_reply(message, every=True):
        assert any(IP(bytes(answer)).answers(packet) for packet in message)
        assert uetproto.decode(bytes(answer), link="raw").error is None


def test_the_result_of_an_atomic_travels_in_the_ack() -> None:
    atomic = uet.uet_message("FETCHING_ATOMIC", bytes(8), atomic_opcode="SUM", atomic_datatype="UINT64", start_psn=9)
    (answer,) = uet.uet_reply(atomic, (40).to_bytes(8, "big"))
    assert (answer.req, answer.cack_psn, answer.ack_psn_offset, answer.sack_bitmap) == (1, 8, 1, 3)
    assert int.from_bytes(answer[Raw].load, "big") == 40


def test_a_return_code_is_kept_until_it_is_cleared() -> None:
    refused = uet.uet_reply(WRITE, return_code="BAD_MKEY")
    assert [answer[uet.SesResponse].return_code for answer in refused] == [0x1C] * 3
    assert [answer[uet.PdsAckCc].cack_psn for answer in refused] == [49] * 3
    assert [answer[uet.PdsAckCc].sack_bitmap for answer in refused] == [0b11, 0b111, 0b1111]
    assert not [answer for answer in uet.uet_reply(READ, return_code="BAD_MKEY") if Raw in answer]


def test_a_nack_refuses_each_packet() -> None:
    nacks = uet.uet_reply(WRITE[1:], nack="NO_RESOURCE")
    assert [(nack[uet.PdsNack].nack_psn, nack[uet.PdsNack].nack_code) for nack in nacks] == [(51, 10), (52, 10)]
    assert all(IP(bytes(nack)).answers(packet) for nack, packet in zip(nacks, WRITE[1:], strict=True))
    rudi = uet.uet_message("WRITE", b"x", mode="rudi", start_psn=77)
    assert uet.uet_reply(rudi, nack="TRIMMED")[0].summary() == "UET NACK TRIMMED pkt_id 0x0000004d"


def test_order_gaps_and_duplicates() -> None:
    late = uet.uet_reply([WRITE[2], WRITE[0], WRITE[0], WRITE[1]], every=True)
    acks = [(ack.cack_psn, ack.ack_psn_offset) for ack in (answer[UDP].payload for answer in late)]
    assert acks == [(49, 3), (50, 0), (50, 0), (52, -1)]
    far = uet.uet_message("WRITE", bytes(300 * 1024), mtu=1024, start_psn=2**32 - 3)
    answer = uet.uet_reply([far[0], far[299]])[-1]
    assert (answer.cack_psn, answer.ack_psn_offset, answer.sack_psn_offset) == (2**32 - 3, 299, 236)
    assert answer.sack_bitmap == 1 << 63


def test_what_asks_for_nothing_is_not_answered() -> None:
    datagram = uet.uet_message("DATAGRAM_SEND", b"x", mode="uud")
    silent = [*datagram, uet.PdsAck(), uet.PdsNack(), IP() / UDP() / b"", uet.PdsCp(ctl_type="CREDIT_REQ", ar=0)]
    assert len(uet.uet_reply(silent)) == len(uet.uet_reply(silent, nack="TRIMMED")) == 0


def test_a_probe_is_echoed() -> None:
    (answer,) = uet.uet_reply(uet.PdsCp(ctl_type="PROBE", probe_opaque=5, psn=7, spdcid=3, dpdcid=4))
    assert (answer.header.name, answer.probe_opaque, answer.spdcid, answer.dpdcid) == ("pds.ack.probe", 5, 4, 3)


@pytest.mark.parametrize(
    ("options", "name", "legal"),
    [
        ({"return_code": "BAD"}, "return_code", "BAD_MKEY"),
        ({"nack": "NONE"}, "nack", "TRIMMED"),
        ({"data": b"short"}, "data", "10000 bytes, or None"),
        ({"data": 5}, "data", "bytes, None"),
        ({"mtu": 5}, "mtu", "1024"),
        ({"packets": [b"bytes"]}, "packets", "packets of Scapy"),
        ({"packets": None}, "packets", "packets of Scapy"),
        ({"mprs": 5}, "mprs", "mpr"),
        ({"mpr": 300}, "mpr", "0x0 … 0xff"),
        ({"spdcid": "x"}, "spdcid", "0x0 … 0xffff"),
        ({"start_psn": 2**32}, "start_psn", "0x0 … 0xffffffff"),
        ({"max_ack_data": -1}, "max_ack_data", "0 and more"),
    ],
)
def test_what_is_impossible_is_refused(options: dict[str, Any], name: str, legal: str) -> None:
    with pytest.raises(Scapy_Exception) as caught:
        uet.uet_reply(**{"packets": READ, **options})
    assert isinstance(caught.value, LocalError)
    assert caught.value.name == name
    assert legal in caught.value.legal
