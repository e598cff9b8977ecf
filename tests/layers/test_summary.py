# SPDX-License-Identifier: GPL-2.0-only
"""The `summary()` of our layers is what `uetproto dissect` says of the same frame."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import fuzz

from tests.support import paths
from tests.support.wire.roce_frames import GOLDEN, Golden
from uetproto import decode
from uetproto import layers as uet
from uetproto.wire.capture import pcap
from uetproto.wire.words.summary import summary

ROCE = {cls.__name__ for cls in uet.ROCE_LAYERS.values()}
CAPTURES = sorted(paths.PCAPS.glob("*.pcap*"))


@pytest.fixture(autouse=True)
def _bound() -> Iterator[None]:
    uet.bind_roce()
    yield
    uet.unbind_roce()
    uet.unbind_sharp()


def told(packet: Any) -> str:
    """Return the parts of a summary that come from our layers, as a line of `uetproto dissect`."""
    parts: list[str] = []
    for text in packet.summary().split(" / "):
        name, _, words = text.partition(" ")
        if name in ("UET", "SES", "TSS", "RoCE", *ROCE) and not text.startswith("UET entropy"):
            parts.append(words)
        elif name in ("SHARP", "multicast", "from"):
            parts.append(text)
        elif text in ("CRC32C wrong", "ICRC wrong"):
            parts[-1] += " [CRC BAD]"
    return " · ".join(parts)


def test_captures_in_the_words_of_dissect() -> None:
    different, packets = {}, 0
    for path in CAPTURES:
        if "sharp" in path.name:
            uet.bind_sharp()
        with pcap.open_capture(path) as reader:
            for record, _ in zip(reader, range(5), strict=False):
                expected = summary(decode(record.data, sharp="sharp" in path.name))
                if not expected.startswith("PFC"):
                    packets += 1
                    seen = told(Ether(record.data))
                    if seen != expected:
                        different[path.name] = seen, expected
        uet.unbind_sharp()
    assert different == {}
    assert packets > 700


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_golden_frames_in_the_words_of_dissect(golden: Golden) -> None:
    packet = (uet.Lrh if golden.link == "infiniband" else Ether)(golden.frame)
    expected = summary(decode(golden.frame, link=golden.link)).removesuffix(" [ECN]")
    assert told(packet).removesuffix(" [ECN]").removeprefix("LID 7 > LID 5 · ") == expected
    assert packet.summary().endswith(" / ICRC right" + " / VCRC" * (golden.link == "infiniband"))


def over(ip: Any, *layers: Any) -> Any:
    packet = ip / UDP(sport=0xC000)
    for layer in layers:
        packet = packet / layer
    return packet


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (uet.PdsRudReqSyn(psn=5, ar=1), "UET RUD_REQ SYN PSN 5 ar"),
        (uet.PdsNack(nack_code=0xC0), "UET NACK code 0xc0 PSN 0"),
        (uet.Entropy(entropy=7), "UET entropy 7"),
        (uet.TssSsi(sdi=5, ssi=100, an=1, epoch=2, tsc=3) / b"ab",
         "TSS sealed, SDI 5 SSI 100 AN 1 epoch 2 TSC 3 · 2 bytes / Raw"),
        (uet.SesRequestStdSom(opcode="WRITE", message_id=1, request_length=12288) / bytes(4096),
         "SES WRITE id 1 0–4096 of 12288 / Raw"),
        (uet.SesRequestSmall(opcode=0x31), "SES opcode 0x31 0 bytes"),
        (uet.SesResponse(opcode="RESPONSE", return_code="BAD_MKEY", message_id=3), "SES BAD_MKEY id 3"),
        (uet.SesSendStdSom(opcode="FETCHING_ATOMIC", eom=1, message_id=2)
         / uet.SesExtAtomic(atomic_opcode="SUM", atomic_datatype="UINT64"),
         ("SES FETCHING_ATOMIC SUM UINT64 id 2 0 bytes / "
          "Atomic extension atomic_opcode=SUM atomic_datatype=UINT64 semantic_control=0")),
        (uet.Bth(opcode="RC_FETCH_ADD", psn=3) / uet.AtomicEth(va=16, swap_data=9),
         "RoCE RC_FETCH_ADD PSN 3 QP 0 / AtomicEth 0x10 r_key 0x0 add 0x9"),
        (uet.AtomicEth(va=16, swap_data=9), "AtomicEth 0x10 r_key 0x0 swap 0x9 compare 0x0"),
        (uet.Bth(opcode="UD_SEND_ONLY") / uet.Deth(srcqp=1, q_key=2) / b"abc",
         "RoCE UD_SEND_ONLY PSN 0 QP 0 / Deth from QP 1 q_key 0x2 · 3 bytes / Raw"),
        (uet.Feth(sel=1), "Flush extended header sel=1 plt=0"),
        (uet.Lrh(slid=7, dlid=5) / uet.Grh(sgid="fe80::1", dgid="fe80::2"),
         "LRH LID 7 > LID 5 / GRH fe80::1 > fe80::2"),
        (uet.Sharp(opcode="AGG_REQ", tree_id=1, group_id=2, seq=3),
         "SHARP AGG_REQ tree 1 group 2 seq 3 BARRIER MAX UNSIGNED 0 elements"),
        (uet.PdsRudReq(psn=(1, 3)), "RUD request"),
        (over(IP(src="10.0.0.1", dst="10.0.0.2", tos=3), uet.PdsAck(), uet.SesResponse(return_code="OK")),
         "IP / UDP 10.0.0.1:49152 > 10.0.0.2:4793 / UET ACK PSN 0 CACK 0 / SES OK [ECN]"),
        (over(IPv6(src="::1", dst="::2", tc=3), uet.Bth(opcode="RC_ACKNOWLEDGE"), uet.Aeth(syndrome=0x60)),
         ("IPv6 / UDP ::1:49152 > ::2:4791 / RoCE RC_ACKNOWLEDGE PSN 0 QP 0 / "
          "Aeth NAK PSN_SEQUENCE_ERROR MSN 0 [ECN]")),
        (over(IP(src="10.0.0.1", dst="10.0.0.2", tos=16 << 2), uet.PdsRodReq(), uet.SesRequestStdSom(opcode="WRITE",
              request_length=9, eom=0)),
         "IP / UDP 10.0.0.1:49152 > 10.0.0.2:4793 / UET ROD_REQ PSN 0 / SES WRITE id 1 0–… of 9 [trimmed]"),
    ],
)  # fmt: skip
def test_summaries(packet: Any, words: str) -> None:
    assert packet.summary() == words


def test_the_summary_of_a_frame() -> None:
    ip = IP(src="10.0.0.1", dst="10.0.0.2")
    request = uet.PdsRodReq(psn=0x12000), uet.SesRequestStdSom(opcode="WRITE", message_id=1, request_length=12288)
    frame = bytes(Ether() / over(ip, *request, bytes(4096)))
    assert Ether(frame).summary() == (
        "Ether / IP / UDP 10.0.0.1:49152 > 10.0.0.2:4793 / UET ROD_REQ PSN 73728 / "
        "SES WRITE id 1 0–4096 of 12288 / Raw / CRC32C right"
    )
    assert Ether(frame[:-1] + b"\0").summary().endswith("SES WRITE id 1 0–4100 of 12288 [crc-suspect] / Raw")
    native = Ether(bytes(Ether() / ip / uet.Entropy(entropy=48879) / uet.PdsNack(nack_code="ROD_OOO", nack_psn=9)))
    assert native.summary().endswith("UET entropy 48879 / UET NACK ROD_OOO PSN 9 expects 0 / CRC32C right")


def test_every_layer_has_a_summary() -> None:
    rng = Random(16)
    for cls in (
        *uet.LAYERS.values(),
        *uet.ROCE_LAYERS.values(),
        *uet.SHARP_LAYERS.values(),
        *uet.MCAST_LAYERS.values(),
    ):
        for _ in range(5):
            assert len(cls(rng.randbytes(cls.header.size)).summary()) > 2
    random = fuzz(uet.PdsRudReq()) / uet.SesRequestStdSom(opcode="WRITE") / b"data"
    assert random.summary()
