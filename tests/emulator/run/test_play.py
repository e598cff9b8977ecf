# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios from end to end: bytes from a file to the memory of the other node, and what the capture shows."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from uetproto import Packet, decode
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.settings import SHIPPED, load
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_pds import CtlType

GRADIENT = (SHIPPED / "gradient.npy").read_bytes()[128:]
SHA256 = hashlib.sha256(GRADIENT).hexdigest()

# ses.md §8.2
SES_4096 = (
    "01090001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 00000000 00000000 00003000",
    "01080001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 00001000 00001000 00003000",
    "010a0001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 00001000 00002000 00003000",
)
DEFAULT_RESPONSE = "00010001 00000065 00003000"


def ses_1024(k: int) -> str:
    """ses.md §8.3."""
    flags = 0x09 if k == 0 else 0x0A if k == 11 else 0x08
    union = "00000000 00000000" if k == 0 else f"00000400 {1024 * k:08x}"
    return (
        f"01{flags:02x}0001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 {union} 00003000"
    )  # fmt: skip


def play(name: str, *settings: str, output: Path | None = None) -> tuple[RunResult, list[Packet]]:
    """The result and, with `output`, the packets of the capture."""
    result = run(load(name, settings), output=None if output is None else str(output), check=True)
    packets = []
    if output is not None:
        with open_capture(output) as reader:
            records = list(reader)
        assert not reader.damage
        assert [r.time_ns for r in records] == sorted(r.time_ns for r in records)
        packets = [decode(record.data) for record in records]
    return result, packets


def requests(packets: list[Packet]) -> list[Packet]:
    return [packet for packet in packets if packet.payload]


def psn(packet: Packet) -> int:
    return next(layer.values["psn"] for layer in packet.layers if "psn" in layer.values)


def ses_bytes(packet: Packet) -> str:
    """The SES header in the frame, in hex."""
    from uetproto import encode

    layer = next(layer for layer in packet.layers if layer.form.startswith("ses."))
    return encode(packet)[layer.offset : layer.offset + layer.size].hex()


@pytest.mark.parametrize("name", ["gradient", "gradient-1024", "gradient-rud", "gradient-lossy"])
def test_every_byte_arrives(name: str) -> None:
    result, _ = play(name)
    assert result.ok
    assert (result.sha256_source, result.sha256_target, result.bytes) == (SHA256, SHA256, 12_288)
    assert result.checked == result.packets or name == "gradient-lossy"


def test_gradient_byte_by_byte(tmp_path: Path) -> None:
    """The SES headers of ses.md §8.2, PSNs from 0x12000, the default response; then the close."""
    result, packets = play("gradient", output=tmp_path / "g.pcapng")
    assert all(packet.error is None and packet.trailer is not None and packet.trailer.ok for packet in packets)
    data = requests(packets)
    assert [ses_bytes(packet) for packet in data] == [text.replace(" ", "") for text in SES_4096]
    assert [psn(packet) for packet in data] == [0x12000, 0x12001, 0x12002]
    assert [packet["ipv4"]["total_length"] for packet in data] == [4184] * 3
    assert b"".join(packet.payload for packet in data) == GRADIENT
    responses = [ses_bytes(packet) for packet in packets if "ses.response" in packet]
    assert responses
    assert set(responses) == {DEFAULT_RESPONSE.replace(" ", "")}
    *_, close, ack = packets
    assert close["pds.cp"]["ctl_type"] == CtlType.CLOSE_CMD
    assert close["pds.cp"]["psn"] == 0x12003
    assert ack["pds.ack"]["cack_psn"] == 0x12003
    assert len(packets) == result.packets
    assert (result.retransmissions, result.nacks, result.happened) == (0, 0, {})


def test_gradient_1024_byte_by_byte(tmp_path: Path) -> None:
    """ses.md §8.3."""
    _, packets = play("gradient-1024", output=tmp_path / "g.pcapng")
    data = requests(packets)
    assert [ses_bytes(packet) for packet in data] == [ses_1024(k).replace(" ", "") for k in range(12)]
    assert [psn(packet) for packet in data] == list(range(0x12000, 0x1200C))
    assert b"".join(packet.payload for packet in data) == GRADIENT


def test_gradient_rud_is_rud(tmp_path: Path) -> None:
    _, packets = play("gradient-rud", output=tmp_path / "g.pcapng")
    assert all("pds.rud_req" in packet for packet in requests(packets))


def test_gradient_lossy_has_every_fault(tmp_path: Path) -> None:
    result, packets = play("gradient-lossy", "tap.nodes=all", output=tmp_path / "g.pcapng")
    assert result.ok
    assert all(result.happened[fault] > 0 for fault in ("drop", "duplicate", "reorder"))
    again = [
        packet for packet in packets for layer in packet.layers[:5] if "psn" in layer.values and layer.values["retx"]
    ]
    assert 0 < result.retransmissions <= len(again)
    assert len(requests(packets)) > 12


@pytest.mark.parametrize(
    "settings",
    [
        ("encapsulation=native",),
        ("crc=off",),
        ("encapsulation=native", "crc=off", "mode=rud"),
        ("nodes.rank0.address=fd00::a00:b", "nodes.rank2.address=fd00::a00:10b"),
        ("nodes.rank0.address=fd00::a00:b", "nodes.rank2.address=fd00::a00:10b", "encapsulation=native"),
        ("fabric.topology=pair",),
        ("payload_mtu=8192",),
        ("payload_mtu=2048", "fabric.rate=1 Gb/s", "fabric.delay=0"),
        ("run.base=0x20000000",),
        ("run.relative=false",),
        ("run.delivery_complete=true", "run.completion_data=0xCAFE"),
        ("run.close=false",),
        ("fabric.udp_port=5000", "fabric.dscp_data=12"),
        ("fabric.ip_protocol=254", "encapsulation=native"),
        ("run.initiator=rank2", "run.target=rank0"),
    ],
)
def test_variants(settings: tuple[str, ...]) -> None:
    result, _ = play("gradient", *settings)
    assert result.ok, result
    assert result.packets >= 5 - ("run.close=false" in settings)


@pytest.mark.parametrize("mode", ["rod", "rud"])
@pytest.mark.parametrize(
    "fault", ["drop", "duplicate", "reorder", "delay", "corrupt", "trim"]
)  # fmt: skip
def test_every_fault_is_repaired(mode: str, fault: str) -> None:
    result, _ = play("gradient-1024", f"mode={mode}", f"faults.{fault}=0.15", "seed=5")
    assert result.ok, result
    assert result.happened[fault] > 0
    if fault == "corrupt":
        assert result.happened["bad_crc"] + result.happened.get("bad_header", 0) > 0


def test_faults_by_number() -> None:
    """The second frame that rank 0 sends is lost: go-back-N repeats it and what follows."""
    result, _ = play("gradient", "faults.drop=[1]", "faults.from=rank0")
    assert result.ok
    assert result.happened["drop"] == 1
    assert result.retransmissions >= 2
    assert result.nacks == 1


@pytest.mark.parametrize("mode", ["rod", "rud"])
@pytest.mark.parametrize("trimming", [True, False])
def test_a_slow_cable_behind_the_switch(mode: str, trimming: bool, tmp_path: Path) -> None:
    """The queue of the switch overflows: packets are trimmed, or lost; each byte arrives all the same."""
    result, packets = play(
        "gradient-1024", f"mode={mode}", "nodes.rank2.rate=40 Gb/s", "fabric.queue_capacity=4096",
        f"fabric.trimming={str(trimming).lower()}", "tap.nodes=rank2", output=tmp_path / "g.pcapng",
    )  # fmt: skip
    assert result.ok, result
    assert result.retransmissions > 0
    assert result.happened["switch_trimmed" if trimming else "switch_dropped"] > 0
    trimmed = [packet for packet in packets if "trimmed" in packet.notes]
    assert bool(trimmed) is trimming
    assert all(packet["ipv4"]["dscp"] == 18 for packet in trimmed)


def test_nothing_arrives() -> None:
    result, _ = play("gradient", "faults.drop=1.0")
    assert not result.ok
    assert not result.match
    assert result.failure is not None
    assert "no answer after the last retransmission" in result.failure
    assert result.sha256_target == hashlib.sha256(bytes(12_288)).hexdigest()


def test_wrong_key() -> None:
    result, _ = play("gradient", "run.offset=4096")
    assert result.failure is not None
    assert not result.match


def test_time_limit() -> None:
    result, _ = play("gradient-1024", "run.time_limit=2 us", "fabric.rate=1 Gb/s")
    assert result.failure == "the time limit was reached"
    assert result.packets < 20  # no more than what the NIC had taken, and answers
    assert result.virtual_time_ps <= 2_000_000


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 100_001])
def test_any_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "input.bin"
    path.write_bytes(bytes(i * 7 & 0xFF for i in range(size)))
    result, packets = play("gradient", f"input={path}", output=tmp_path / "g.pcap")
    assert result.ok
    assert result.bytes == size
    assert result.sha256_target == hashlib.sha256(path.read_bytes()).hexdigest()
    if size == 0:
        assert sum("ses.request_std" in packet for packet in packets) == 1


def test_several_messages(tmp_path: Path) -> None:
    """12,288 bytes with max_msg_size 5000: messages of 5000, 5000 and 2288 bytes."""
    result, packets = play("gradient", "ses.max_msg_size=5000", output=tmp_path / "g.pcapng")
    assert result.ok
    seen = {packet["ses.request_std"]["message_id"]: packet["ses.request_std"] for packet in requests(packets)}
    assert [values["request_length"] for values in seen.values()] == [5000, 5000, 2288]
    assert [values["buffer_offset"] for values in seen.values()] == [0, 5000, 10_000]


def test_target_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.emulator.run.file_transfer.IN_MEMORY", 0)
    path = tmp_path / "input.bin"
    path.write_bytes(bytes(range(256)) * 12_345)
    for mode in ("rod", "rud"):
        result, _ = play("gradient", f"input={path}", f"mode={mode}", "faults.drop=0.01", "faults.reorder=0.05")
        assert result.ok, result


def test_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "input.bin"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    # Linux counts the memory of whoever starts a process as its peak, so a small process starts the one measured.
    code = (
        "import resource, subprocess, sys;"
        "status = subprocess.call([sys.executable, '-m', 'uetproto', *sys.argv[1:]]);"
        "print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    )
    arguments = ["run", "gradient", "--set", f"input={path}", "-o", str(tmp_path / "g.pcap")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    status, kibibytes = map(int, done.stderr.split())
    assert status == 0
    assert kibibytes < 200 << 10


@pytest.mark.parametrize("name", ["gradient", "gradient-lossy"])
def test_one_seed_one_trace(name: str, tmp_path: Path) -> None:
    for file, seed in (("a", 7), ("b", 7), ("c", 8)):
        play(name, f"seed={seed}", "tap.nodes=all", output=tmp_path / f"{file}.pcapng")
    a, b, c = ((tmp_path / f"{file}.pcapng").read_bytes() for file in "abc")
    assert a == b
    assert a != c


def test_two_taps_two_interfaces(tmp_path: Path) -> None:
    path = tmp_path / "g.pcapng"
    play("gradient", "tap.nodes=all", output=path)
    with open_capture(path) as reader:
        interfaces = [record.interface for record in reader]
    assert [interface.name for interface in reader.interfaces] == ["rank0.0", "rank2.0"]
    assert interfaces.count(0) == interfaces.count(1) == 7
    assert "seed 101; encapsulation udp, port 4793; crc on" in reader.comments[0]


def test_json_has_the_keys() -> None:
    result, _ = play("gradient")
    data: dict[str, Any] = json.loads(json.dumps(result.as_dict()))
    keys = ["scenario", "seed", "match", "sha256_source", "sha256_target", "bytes", "packets", "retransmissions"]
    assert list(data)[:11] == [*keys, "nacks", "virtual_time_ps", "capture"]
