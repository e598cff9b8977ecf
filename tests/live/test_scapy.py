# SPDX-License-Identifier: GPL-2.0-only
"""Packets of Scapy on a real link: requests and answers over loopback and veth, and our engines against a machine."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import addresses
from tests.support.namespaces import ADDRESSES, hosts
from uetproto import LocalError
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.layers import PdsAck, PdsCp, PdsNack, SesResponse, SesResponseData, uet_message
from uetproto.scapy import UetAnsweringMachine, UetSocket, sr_uet

DATA = bytes(range(250)) * 80


@contextmanager
def answering(local: str, **options: Any) -> Iterator[UetAnsweringMachine]:
    """Let an answering machine run beside the test."""
    before = {name: getattr(conf, name) for name in ("checkIPsrc", "checkIPaddr", "L3socket", "L2socket")}
    machine = UetAnsweringMachine(local=local, verbose=False, **options)
    sniffer = machine.bg()
    try:
        yield machine
    finally:
        sniffer.stop()
        machine.close()
    assert before == {name: getattr(conf, name) for name in before}, "conf stays as it was"


def asked(dst: str, *message: Any, sport: int | None = None, **fields: Any) -> Packet:
    lower = (IPv6 if ":" in dst else IP)(dst=dst)
    return lower / (UDP() if sport is None else UDP(sport=sport)) / uet_message(*message, **fields)


@pytest.mark.parametrize("sport", [None, 0xC123, 4793])
def test_a_write_and_a_read(sport: int | None) -> None:
    """Each source port is that of the request, and the answer goes to port 4793."""
    here, there = addresses()
    with answering(there, data=DATA, every=True):
        answered, rest = sr_uet(asked(there, "WRITE", bytes(10000), sport=sport, memory_key=7), local=here)
        assert (len(answered), len(rest)) == (3, 0)
        for request, answer in answered:
            assert answer[PdsAck].cack_psn + answer[PdsAck].ack_psn_offset == request.psn
            assert (answer[IP].src, answer[UDP].dport, type(answer[UDP])) == (there, 4793, UDP)
            assert request[UDP].sport == (sport or 0xC000)
            assert answer[UDP].sport == request[UDP].sport | 0xC000, "the machine has sockets from there on"
        answered, _ = sr_uet(
            asked(there, "READ", 5000, memory_key=7, start_psn=500, sport=sport), local=here, multi=True, timeout=1
        )
        data = {answer.message_offset: answer[Raw].load for _, answer in answered if SesResponseData in answer}
    assert b"".join(data[at] for at in sorted(data)) == DATA[:5000]


def test_refusals_and_silence() -> None:
    here, there = addresses()
    with answering(there, nack="NO_PKT_BUFFER"):
        answered, _ = sr_uet(asked(there, "SEND", b"data"), local=here)
        assert answered[0].answer[PdsNack].sprintf("%nack_code%") == "NO_PKT_BUFFER"
    with answering(there, return_code="BAD_MKEY"):
        answered, _ = sr_uet(asked(there, "WRITE", b"data"), local=here)
        assert answered[0].answer[SesResponse].sprintf("%return_code%") == "BAD_MKEY"
    answered, rest = sr_uet(asked(there, "WRITE", b"data"), local=here, timeout=0.2)
    assert (len(answered), len(rest)) == (0, 1)


def test_ipv6() -> None:
    with UetSocket("::1", port=26001, local_port=26002) as link, answering("::1", port=26002, local_port=26001):
        answered, _ = sr_uet(asked("::1", "WRITE", b"data"), link=link)
        assert answered[0].answer[PdsAck].cack_psn == answered[0].query.psn


def test_our_engine_writes_to_the_machine(tmp_path: Path) -> None:
    here, there = addresses()
    data, file = tmp_path / "data", tmp_path / "am.pcapng"
    data.write_bytes(bytes(50_000))
    with answering(there):
        result = invoke("send", "--write", str(data), "--peer", there, "--local", here, "--rendezvous", "off",
                        "-o", str(file))  # fmt: skip
    assert (result.exit_code, "write: 50,000 bytes" in result.stdout) == (0, True), result.output
    assert not [one for one in audit([file], Options()).findings if one.rule.id.startswith("WIRE")]


def test_the_machine_survives_what_it_cannot_answer() -> None:
    """Data that are too few, noise, and a read of 4 GiB: what can be answered afterwards is."""
    here, there = addresses()
    with answering(there, data=b"short"), UetSocket(here) as link:
        (huge,) = asked(there, "READ", 8, memory_key=1)
        huge.request_length = 0xFFFFFFFF
        for packet in (huge, *asked(there, "READ", 4000), IP(dst=there) / UDP(dport=4793) / Raw(b"\xff" * 60)):
            link.send(link.prepared(packet))
        answered, _ = sr_uet(asked(there, "WRITE", b"data", start_psn=9), link=link)
        assert len(answered) == 1


class Counting:
    """A link that sends nothing, and counts."""

    sent = 0

    def send(self, packet: Packet) -> int:
        self.sent += 1
        return len(bytes(packet))


def test_damaged_requests() -> None:
    """Requests with random bytes changed or cut off raise nothing, and the memory of the machine is limited."""
    link, rng = Counting(), random.Random(5)
    machine = UetAnsweringMachine(link=link, data=bytes(100), verbose=False)
    there = "127.0.0.2"
    atomic = {"atomic_opcode": "SUM", "atomic_datatype": "UINT64"}
    whole = [
        bytes(packet)
        for message in (
            asked(there, "WRITE", b"data"), asked(there, "READ", 5000), asked(there, "RENDEZVOUS_SEND", bytes(5000)),
            asked(there, "FETCHING_ATOMIC", bytes(8), **atomic), [IP(dst=there) / UDP(dport=4793) / PdsCp(ar=1)],
        )
        for packet in message
    ]  # fmt: skip
    for _ in range(effort(500, 5000, 50_000)):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.randrange(6)):
            data[rng.randrange(28, len(data))] = rng.randrange(256)
        packet = IP(bytes(data[: rng.randrange(28, 2 * len(data))]))
        if machine.is_request(packet):
            machine.send_reply(machine.make_reply(packet))
    assert link.sent > 50


def test_requests_to_serve() -> None:
    """`uetproto serve` answers a packet that Scapy made."""
    here, there = addresses()
    with serving(there, "--rendezvous", "off", "--key", "7"):
        answered, rest = sr_uet(
            asked(there, "WRITE", b"data", memory_key=7, job_id=1, resource_index=15, initiator=16, rel=1), local=here
        )
        assert (len(answered), len(rest)) == (1, 0)
        assert answered[0].answer[SesResponse].sprintf("%return_code%") == "OK"


L2 = """
from scapy.layers.l2 import Ether
from scapy.layers.inet import IP, UDP
from uetproto.layers import PdsAck, uet_message
from uetproto.scapy import srp_uet
frames = Ether(dst="{mac}") / IP(src="{here}", dst="{there}") / UDP(sport=50000) / uet_message("WRITE", bytes(5000))
answered, rest = srp_uet(frames, iface="v0")
print(len(answered), len(rest), answered[-1].answer[PdsAck].cack_psn, answered[-1].answer[IP].src)
"""
FAR = """
from uetproto.scapy import UetAnsweringMachine
machine = UetAnsweringMachine(local="{there}", every=True, verbose=False)
print("ready", flush=True)
machine(timeout=30)
"""


def test_frames_over_veth() -> None:
    here, there = ADDRESSES[4]
    with hosts() as two:
        mac = _mac(two.at(True, "ip", "link", "show", "v1"))
        command = [*two.far, sys.executable, "-c", FAR.format(there=there)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as far:
            assert far.stdout is not None
            assert far.stdout.readline() == "ready\n"
            found = two.at(False, sys.executable, "-c", L2.format(mac=mac, here=here, there=there))
            far.kill()
    assert found.split() == ["2", "0", "1", there]


def _mac(text: str) -> str:
    return text.split("link/ether ")[1].split()[0]


def test_misuse() -> None:
    here, there = addresses()
    for text, call in (
        ("packets: there are none", lambda: sr_uet([], local=here)),
        ("packets: 5 is not legal", lambda: sr_uet(5, local=here)),
        ("does not begin with IP", lambda: sr_uet(UDP() / uet_message("SEND", b""), local=here)),
        ("src: 10.9.9.9 is not the address", lambda: sr_uet(IP(src="10.9.9.9", dst=there), local=here)),
        ("192.0.2.1 is no address of this host", lambda: sr_uet(asked(there, "SEND", b""), local="192.0.2.1")),
        ("did you mean udp", lambda: UetSocket(here, path="udpp")),
        ("dport: 9 is not that to which", lambda: sr_uet(IP(dst=there) / UDP(dport=9) / Raw(b""), local=here)),
        ("uet_reply has no such argument", lambda: UetAnsweringMachine(local=here, mpt=1)),
    ):  # fmt: skip
        with pytest.raises(LocalError, match=text):
            call()
