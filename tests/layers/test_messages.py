# SPDX-License-Identifier: GPL-2.0-only
"""`uet_message` makes the packets that the engine sends, and refuses what an opcode cannot be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.error import Scapy_Exception
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw
from scapy.utils import rdpcap

import uetproto
from uetproto import layers as uet
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import Mode, NextHdr
from uetproto.wire.headers.uet_ses import ATOMICS, OPCODE_PROFILES, REQUESTS, Opcode

PCAPS = Path(__file__).parents[2] / "pcaps"
FILES = sorted(p.stem for p in PCAPS.glob("ses-*.pcapng") if "-fail-" not in p.name and p.stem != "ses-msg-error")


def ses_of(packet: Any) -> Any:
    """The SES request of a packet, or None."""
    return next((layer for layer in packet.iterpayloads() if getattr(layer, "header", None) in REQUESTS), None)


def messages(file: str) -> Iterator[list[Any]]:
    """The messages of a golden capture: their packets without Ethernet, IP and UDP."""
    found: dict[Any, list[Any]] = {}
    for number, packet in enumerate(rdpcap(str(PCAPS / f"{file}.pcapng"))):
        ses = ses_of(packet)
        if ses is None or packet[UDP].payload.fields.get("retx"):
            continue
        one = ("message_id" not in ses.fields and number) or (uet.PdsUudReq in packet and number)
        key = (packet[IP].src, packet[UDP].payload.fields.get("spdcid"), ses.fields.get("message_id"), one)
        found.setdefault(key, []).append(packet[UDP].payload)
    yield from found.values()


PDC = ("dpdcid", "psn_offset", "clear_psn_offset")


def clear_of(pds: Any) -> int:
    return int(pds.fields.get("psn", 0) + pds.fields.get("clear_psn_offset", 0))


def rebuilt(packets: list[Any]) -> Any:
    """What `uet_message` makes of what the first packet says."""
    pds, ses = packets[0], ses_of(packets[0])
    fields: dict[str, Any] = {}
    for layer in pds.iterpayloads():
        if isinstance(layer, uet.UetLayer):
            for name, value in layer.fields.items():
                own = len(layer.header[name].only) == 1 or name.startswith(("rsvd", "request_length", "eom"))
                if not own and name not in ("psn", "pkt_id", "next_hdr", "opcode", "som", "hd", "ar", "version"):
                    fields[f"read_{name}" if name in fields else name] = value
    fields.pop("flags", None)
    if not ses.hd:
        fields.pop("header_data", None)
    data = b"".join(packet[Raw].load for packet in packets if Raw in packet)
    rest = "eager_length" in fields or "target_restart_token" in fields  # is not sent, or not before the restart
    swaps = "compare_value" in fields
    return uet.uet_message(
        int(ses.opcode), 0 if swaps else data.ljust(ses.request_length, b"\0") if rest else data or ses.request_length,
        mode=int(pds.type), form=NextHdr(pds.next_hdr).name.removeprefix("REQUEST_").lower(),
        mtu=ses_of(packets[1]).message_offset if len(packets) > 1 else 4096,
        start_psn=pds.fields.get("psn", pds.fields.get("pkt_id", 0)), **fields,
    )  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_the_packets_are_those_of_the_engine(file: str) -> None:
    count = 0
    for sent in messages(file):
        ours = rebuilt(sent)
        end = len(sent) - 1 if Raw not in sent[-1] and Raw in sent[0] else len(sent)  # the target stopped a message
        for packet, theirs in zip(ours[:end], sent[:end], strict=True):
            if type(theirs) is not type(sent[0]) or clear_of(theirs) != clear_of(sent[0]):
                ours_alone = {n: value for n, value in packet.fields.items() if n not in PDC}
                theirs_now = {n: theirs.fields[n] for n in PDC if n in theirs.fields}  # an ACK came meanwhile
                packet = type(theirs)(**ours_alone, **theirs_now) / packet.payload
            assert bytes(packet) == bytes(theirs)[:-4]
        assert len(ours) == len(sent) or end < len(sent)
        count += 1
    assert count


def test_all_opcodes_are_compared_with_the_engine() -> None:
    seen = {int(ses_of(packets[0]).opcode) for file in FILES for packets in messages(file)}
    assert set(OPCODE_PROFILES) - seen == {Opcode.MSG_ERROR}


def test_a_message_ends_early() -> None:
    packets = [p[UDP].payload for p in rdpcap(str(PCAPS / "ses-msg-error.pcapng")) if ses_of(p) is not None]
    end = next(p for p in packets if ses_of(p).opcode == Opcode.MSG_ERROR)
    ses = ses_of(end)
    ours = uet.uet_message(
        "MSG_ERROR", ses.request_length, mode="rod", start_psn=end.psn, rel=1, job_id=101, resource_index=15,
        memory_key=ses.memory_key, message_offset=ses.message_offset, clear_psn_offset=end.clear_psn_offset,
        **({"dpdcid": end.dpdcid} if "dpdcid" in end.fields else {"psn_offset": end.psn_offset}),
    )  # fmt: skip
    assert [bytes(packet) for packet in ours] == [bytes(end)[:-4]]


@given(
    opcode=st.sampled_from(sorted(OPCODE_PROFILES)), size=st.integers(0, 20000), mtu=st.sampled_from([1024, 4096]),
    choice=st.randoms(use_true_random=False),
)  # fmt: skip
def test_what_is_made_is_read_back(opcode: Opcode, size: int, mtu: int, choice: Any) -> None:
    profile = OPCODE_PROFILES[opcode]
    mode = choice.choice(sorted(profile.modes))
    empty = opcode in (Opcode.NO_OP, Opcode.DEFERRABLE_RTR)
    if empty or mode is Mode.UUD or opcode in ATOMICS:
        size = 0 if empty else min(size, mtu)
    data = choice.randbytes(size) if profile.payload and opcode != Opcode.MSG_ERROR else size
    packets = uet.uet_message(opcode, data, mode=mode, mtu=mtu, start_psn=2**32 - 2)
    whole = IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / packets
    for k, packet in enumerate(whole):
        decoded = uetproto.decode(bytes(packet), link="raw")
        assert (decoded.error, decoded.notes, decoded.trailer and decoded.trailer.ok) == (None, (), True)
        pds = decoded.layers[2].values
        if "psn" in pds:
            assert (pds["psn"], pds["ar"]) == ((2**32 - 2 + k) % 2**32, int(k + 1 == len(packets)))


REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], str, str]] = [
    (("WRITE", 1), {"mode": "uud"}, "mode", "RUD, ROD, RUDI"),
    (("DEFERRABLE_SEND", 1), {"mode": "rod"}, "mode", "RUD"),
    (("ATOMIC", 1), {"mode": Mode.RUDI}, "mode", "RUD, ROD"),
    (("DATAGRAM_SEND", 1), {}, "mode", "UUD"),
    (("DATAGRAM_SEND", 5000), {"mode": "uud"}, "data", "0 … 4096"),
    (("ATOMIC", 5000), {}, "data", "0 … 4096"),
    (("WRITE", 5000), {"form": "medium"}, "data", "0 … 4096"),
    (("TAGGED_SEND", 1), {"form": "small"}, "form", "medium, std"),
    (("READ", b"data"), {}, "data", "a length, as an integer"),
    (("NO_OP", 1), {}, "data", "none"),
    (("WRITE", -1), {}, "data", f"0 … {2**32 - 1}"),
    (("WRITE", "text"), {}, "data", "bytes, or a length"),
    (("WRITE", 1), {"mtu": 1500}, "mtu", "1024, 2048, 4096, 8192"),
    (("WRITE", 1), {"start_psn": 2**32}, "start_psn", "0 … 0xffffffff"),
    (("WRITE", 1), {"header_data": 5, "mode": "rudi"}, "header_data", "none"),
    (("WRITE", 1), {"job_id": 2**24}, "job_id", "0x0 … 0xffffff"),
    (("WRITE", 1), {"form": "small", "memory_key": 2}, "memory_key", "resource_index"),
    (("WRITE", 1), {"match_bits": 2}, "match_bits", "memory_key"),
    (("RENDEZVOUS_SEND", 10), {"eager_length": 11}, "eager_length", "0 … 10"),
    (("ATOMIC", 1), {"atomic_opcode": "SOME"}, "atomic_opcode", "SUM"),
    (("ATOMIC", bytes(9)), {"atomic_opcode": "SUM", "atomic_datatype": "UINT64"}, "data", "0, 8, 16, …"),
    ((0x3F, 1), {}, "opcode", "SYNC_ATOMIC"),
    (("WRITE", 2**24), {"mtu": 1024}, "data", "4096 packets; with dpdcid up to 32768"),
    (("WRITE", 2**26), {"mtu": 1024, "dpdcid": 1}, "data", "32768 packets"),
]


@pytest.mark.parametrize(("given_", "options", "name", "legal"), REFUSED)
def test_what_is_impossible_is_refused(given_: Any, options: dict[str, Any], name: str, legal: str) -> None:
    with pytest.raises(uet.LayerError) as caught:
        uet.uet_message(*given_, **options)
    assert isinstance(caught.value, LocalError)
    assert isinstance(caught.value, Scapy_Exception)
    assert caught.value.name == name
    assert legal in caught.value.legal


def test_a_slice_stands_over_other_layers_too() -> None:
    packets = uet.uet_message("WRITE", b"x" * 9000, memory_key=5)
    assert [len(p[Raw].load) for p in (IP() / packets[1:])] == [4096, 808]
    assert packets[2][uet.SesRequestStd].memory_key == 5
