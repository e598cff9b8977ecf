# SPDX-License-Identifier: GPL-2.0-only
"""A file by RDMA WRITE: `gradient-roce`, and what becomes of other inputs, other parameters and faults."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import effort
from uetproto import decode
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.settings import load
from uetproto.wire.capture.pcap import open_capture


def played(*settings: str, output: Path | None = None) -> RunResult:
    return run(load("gradient-roce", settings), output=output and str(output), check=True)


def packets(path: Path) -> list[Any]:
    with open_capture(str(path)) as records:
        return [decode(record.data) for record in records]


def test_the_gradient(tmp_path: Path) -> None:
    """One WRITE of 12,288 bytes to 0x20000000 with PMTU 4096: FIRST, MIDDLE, LAST, and one ACK."""
    path = tmp_path / "g.pcapng"
    result = played(output=path)
    assert result.ok
    first, middle, last, ack = packets(path)
    assert [p["bth"]["opcode"] for p in (first, middle, last, ack)] == [0x06, 0x07, 0x08, 0x11]
    assert first["reth"] == {"va": 0x20000000, "r_key": 0x1234, "dmalen": 12288}
    assert [p["bth"]["psn"] for p in (first, middle, last, ack)] == [0x12000, 0x12001, 0x12002, 0x12002]
    assert [p["bth"]["a"] for p in (first, middle, last, ack)] == [0, 0, 1, 0]
    assert [len(p.payload) for p in (first, middle, last, ack)] == [4096, 4096, 4096, 0]
    assert (ack["aeth"]["syndrome"] >> 5, ack["aeth"]["msn"]) == (0, 1)
    assert all(p.trailer.kind == "icrc" and p.trailer.ok for p in (first, middle, last, ack))
    assert len({p["udp"]["sport"] for p in (first, middle, last)}) == 1
    assert result.wire_bytes == 12288 + 3 * (14 + 20 + 8 + 12 + 4) + 16 + 62


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 70001])
@pytest.mark.parametrize("transport", ["rc", "uc"])
def test_sizes(tmp_path: Path, size: int, transport: str) -> None:
    source = tmp_path / "input"
    source.write_bytes(bytes(byte % 251 for byte in range(size)))
    result = played(f"input={source}", f"run.transport={transport}")
    assert result.ok
    assert result.bytes == size
    data = max(1, -(-size // 4096))
    asked = (-(-data // 64)) if transport == "rc" else 0
    assert result.packets == data + asked


def test_more_than_a_message(tmp_path: Path) -> None:
    """What does not fit into one message goes as several."""
    source = tmp_path / "input"
    source.write_bytes(bytes(10_000))
    path = tmp_path / "m.pcapng"
    assert played(f"input={source}", "roce.max_message=4096", output=path).ok
    starts = [p["reth"]["va"] for p in packets(path) if "reth" in p]
    assert starts == [0x20000000, 0x20001000, 0x20002000]


@pytest.mark.parametrize("seed", range(effort(2, 4, 4)))
def test_loss_and_all(tmp_path: Path, seed: int) -> None:
    source = tmp_path / "input"
    source.write_bytes(bytes(byte * 7 % 256 for byte in range(300_000)))
    faults = [f"faults.{name}=0.05" for name in ("drop", "duplicate", "reorder", "delay", "corrupt")]
    result = played(f"input={source}", "roce.path_mtu=1024", f"seed={seed}", *faults)
    assert result.ok, result.failure or result.findings
    assert result.retransmissions > 0
    assert result.happened["drop"] > 0
    assert result.happened["bad_crc"] > 0


def test_loss_on_uc_is_told(tmp_path: Path) -> None:
    """No ACK, no retry: the sender is content, and the memory differs."""
    source = tmp_path / "input"
    source.write_bytes(b"x" * 100_000)
    result = played(f"input={source}", "run.transport=uc", "faults.drop=[3]", "faults.from=rank0")
    assert not result.match
    assert result.failure is None
    assert result.counters["rank2"]["out of sequence"] > 0


def test_ipv6_and_no_icrc(tmp_path: Path) -> None:
    path = tmp_path / "6.pcapng"
    settings = ("nodes.rank0.address=fd00::1", "nodes.rank2.address=fd00::2", "crc=off")
    assert played(*settings, output=path).ok
    for packet in packets(path):
        assert "ipv6" in packet
        assert (packet.trailer.value, packet.trailer.ok) == (0, False)
    assert b"icrc off" in path.read_bytes(), "the capture says so"


def test_a_key_that_is_not_there() -> None:
    """The WRITE ends with the status that the NAK means, and nothing is written."""
    result = played("run.offset=0x30000000")
    assert not result.match
    assert result.failure == "the WRITE ended with REM_ACCESS_ERR"
    assert result.nacks_by_code == {"REMOTE_ACCESS_ERROR": 1}


def test_nobody_answers() -> None:
    """retry_cnt is finite, 7 is seven."""
    result = played("faults.drop=1.0", "faults.from=rank0", "roce.timeout=1")
    assert result.failure == "the WRITE ended with RETRY_EXC_ERR"
    assert result.happened["drop"] == 3 * 8


def test_one_seed_one_trace(tmp_path: Path) -> None:
    captures = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.pcapng"
        played("faults.drop=0.2", "faults.reorder=0.2", "seed=5", output=path)
        captures.append(path.read_bytes())
    assert captures[0] == captures[1]


def test_data_paths() -> None:
    """What brings the bytes to the NIC, for the report."""
    result = played("nodes.rank0.data_path=rdma", "nodes.rank2.data_path=none", "path.nic_bandwidth=200 Gb/s")
    fast, slow = result.data_paths["rank0"], result.data_paths["rank2"]
    assert fast["copies"] == 0
    assert slow["copies"] == 2
    assert fast["bytes_per_hop"] == {"pcie": 12288, "nic": 12288}
    assert slow["cpu_bytes"] == 12288
    # 300 ns to post, 500 + 600 ns of latency, and 12,288 bytes at 25 GB/s
    assert fast["time_ps"] == (300 + 500 + 600) * 1000 + 12288 * 40
    json.dumps(result.as_dict())
