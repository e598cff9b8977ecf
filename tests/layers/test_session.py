# SPDX-License-Identifier: GPL-2.0-only
"""`PdcSession` joins the packets of captures to messages."""

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, UDP
from scapy.packet import Packet
from scapy.plist import PacketList
from scapy.sendrecv import sniff
from scapy.sessions import IPSession
from scapy.utils import rdpcap

from uetproto import layers as uet
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Opcode

PCAPS = Path(__file__).parents[2] / "pcaps"


def over(packets: Any) -> list[Any]:
    """Packets as they arrive."""
    whole = IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / packets if isinstance(packets, uet.UetPackets) else packets
    return [IP(bytes(packet)) for packet in whole]


def asked(opcode: str, data: Any, **options: Any) -> Any:
    return IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / uet.uet_message(opcode, data, **options)


def test_a_capture_gives_its_message() -> None:
    for file in ("gradient", "gradient-rud", "gradient-v6", "gradient-native", "gradient-nocrc"):
        packets = rdpcap(str(PCAPS / f"{file}.pcapng"))
        (message,) = sniff(offline=packets, session=uet.PdcSession)
        assert message.complete, file
        assert (message.opcode, message.request_length, len(message.load)) == (Opcode.WRITE, 12288, 12288)
        assert len(message.packets) == 3
        assert message.time == message.packets[-1].time
        assert bytes(message) == message.load == b"".join(packet.load for packet in message.packets)


def test_loss_reordering_and_duplicates() -> None:
    whole = rdpcap(str(PCAPS / "gradient.pcapng"))
    session = uet.PdcSession()
    (message,) = session.join(rdpcap(str(PCAPS / "gradient-lossy.pcapng")))
    assert message.load == uet.PdcSession().join(whole)[0].load
    assert len(message.packets) - message.duplicates == 12
    assert session.duplicates > 0


@pytest.mark.parametrize("file", ["ses-read", "ses-read-small", "ses-rudi-read", "ses-fetching-atomic", "ses-small"])
def test_what_reads_has_the_data_that_it_read(file: str) -> None:
    messages = uet.PdcSession().join(rdpcap(str(PCAPS / f"{file}.pcapng")))
    reading = [message for message in messages if OPCODE_PROFILES[Opcode(message.opcode)].fetches]
    assert reading
    assert all(message.complete and message.load for message in reading)


def test_every_golden_is_joined() -> None:
    for path in sorted(PCAPS.glob("ses-*.pcapng")):
        messages = uet.PdcSession().join(rdpcap(str(path)))
        assert len(messages), path.stem
        if "fail" not in path.stem and path.stem not in ("ses-msg-error", "ses-deferrable-tsend"):
            assert all(message.complete for message in messages), (path.stem, messages.res)


def test_a_refused_message_has_its_code() -> None:
    for code in ("bad-mkey", "perm-violation", "too-long", "no-match", "at-invalid"):
        messages = uet.PdcSession().join(rdpcap(str(PCAPS / f"ses-fail-{code}.pcapng")))
        refused = [message for message in messages if message.return_code != 1]
        assert {message.sprintf("%return_code%") for message in refused} == {code.upper().replace("-", "_")}, code
        assert all(f" {code.upper().replace('-', '_')}" in message.summary() for message in refused)
        assert not any(message.complete for message in refused)
    short = asked("WRITE", b"data", form="small", start_psn=7)
    session = uet.PdcSession()
    (message,) = session.join(over([*short, *uet.uet_reply(short, return_code="BAD_MKEY")]))
    assert message.return_code == 0x1C


@given(
    size=st.integers(0, 9000), order=st.randoms(use_true_random=False), again=st.integers(0, 3),
    opcode=st.sampled_from(["WRITE", "SEND", "TAGGED_SEND", "DEFERRABLE_SEND", "SYNC_WRITE"]),
)  # fmt: skip
def test_any_order_gives_the_message(size: int, order: Random, again: int, opcode: str) -> None:
    data = order.randbytes(size)
    packets = over(uet.uet_message(opcode, data, mtu=1024, start_psn=2**32 - 3))
    packets += order.choices(packets, k=again)
    order.shuffle(packets)
    session = uet.PdcSession()
    (message,) = session.join(packets)
    assert message.complete
    assert bytes(message) == data
    assert message.psn == 2**32 - 3
    assert session.duplicates == again


def test_reads_are_joined_with_their_answers() -> None:
    read = asked("READ", 10000, memory_key=7, start_psn=5)
    data = bytes(range(250)) * 40
    (message,) = uet.PdcSession().join(over([*read, *uet.uet_reply(read, data)]))
    assert message.load == data
    assert len(message.packets) == 6
    (refused,) = uet.PdcSession().join(over([*read, *uet.uet_reply(read, return_code="BAD_MKEY")]))
    assert (refused.complete, refused.return_code) == (False, 0x1C)


def test_what_did_not_end_is_told() -> None:
    packets = over(uet.uet_message("WRITE", bytes(10000)))
    session = uet.PdcSession()
    assert len(sniff(offline=PacketList(packets[1:]), session=session)) == 0
    (message,) = session.flush()
    assert (message.complete, message.received, message.expected) == (False, 5904, 10000)
    assert message.summary() == (
        "UET message RUD 10.0.0.1 > 10.0.0.2 WRITE id 1 5904 of 10000 bytes in 2 packets incomplete / Raw"
    )
    assert len(session.flush()) == 0


def test_memory_is_bounded() -> None:
    first = [over(uet.uet_message("WRITE", bytes(5000), message_id=n, start_psn=9 * n))[0] for n in range(1, 100)]
    session = uet.PdcSession(max_messages=10)
    given_ = [message for packet in first if (message := session.process(packet)) is not None]
    assert [message.message_id for message in given_] == list(range(1, 90))
    assert len(session.flush()) == 10
    assert len(session._over) == 10
    small = uet.PdcSession(max_bytes=3 * 4096)
    assert len([packet for packet in first if small.process(packet) is not None]) == 96
    with pytest.raises(uet.LayerError, match="max_bytes: 0 is not legal"):
        uet.PdcSession(max_bytes=0)


def test_other_packets_are_given_as_they_are() -> None:
    ping = IP(src="10.0.0.1", dst="10.0.0.2") / ICMP()
    given_ = sniff(offline=PacketList([ping, *over(uet.uet_message("SEND", b"x"))]), session=uet.PdcSession)
    assert [packet.__class__.__name__ for packet in given_] == ["IP", "UetMessage"]
    fragments = [packet for p in over(uet.uet_message("SEND", b"x" * 4000)) for packet in _fragments(p)]
    (message,) = uet.PdcSession(IPSession).join(fragments)
    assert message.load == b"x" * 4000


def _fragments(packet: Packet) -> list[Packet]:
    packet.flags = 0
    return [IP(bytes(part)) for part in packet.fragment(1400)]


def test_what_is_no_packet_is_refused() -> None:
    for wrong in ("x", [b"bytes"], None):
        with pytest.raises(uet.LayerError, match=r"packets: .* is not legal; legal: packets of Scapy"):
            uet.PdcSession().join(wrong)  # type: ignore[arg-type]


def test_a_message_is_a_packet_of_scapy() -> None:
    (message,) = uet.PdcSession().join(over(uet.uet_message("SEND", b"data")))
    assert "opcode    = SEND" in message.show(dump=True)
    copy = message.copy()
    assert (copy.packets, copy.complete, bytes(copy)) == (message.packets, True, b"data")
    copy.packets.clear()
    assert len(message.packets) == 1


def test_the_command_of_the_page_runs_alone() -> None:
    program = (
        "from scapy.sendrecv import sniff\nfrom uetproto.layers import PdcSession\n"
        f"sniff(offline={str(PCAPS / 'gradient.pcapng')!r}, session=PdcSession, prn=lambda m: m.summary())"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert "WRITE id 1 12288 bytes in 3 packets" in done.stdout
