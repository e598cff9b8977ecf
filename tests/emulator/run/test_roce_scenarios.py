# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios `roce-<operation>` and `roce-fail-<what>`: each does what its name says, and its capture shows it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.each import each
from tests.support.emulator.roce_packets import PACKETS, line
from uetproto import Packet, decode
from uetproto.cli.main import cli
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load, names
from uetproto.engine.roce.contract import QpType
from uetproto.engine.roce.inbound import Inbound
from uetproto.engine.roce.memory import RoceMemoryRegion
from uetproto.engine.roce.responder import RcResponder
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.roce import RESPONSES, BthOpcode, Nak, Operation

PCAPS = paths.PCAPS
ROCE = ["gradient-roce", *(name for name in names() if name.startswith("roce-"))]
WHOLE = [name for name in ROCE if "-fail-" not in name and load(name).run.transport is QpType.RC]
"""Reliable, and nothing goes wrong of itself."""


def records(name: str) -> list[tuple[bytes, Packet, str | None]]:
    with open_capture(PCAPS / f"{name}.pcapng") as reader:
        return [(record.data, decode(record.data), record.comment) for record in reader]


def first_psn(name: str) -> int:
    """The first one of the initiator, as the scenario says."""
    scenario = load(name)
    psns = {qp.sq_psn for qp in scenario.qps.values() if qp.node == scenario.run.initiator}
    assert len(psns) == 1
    return psns.pop() or 0


def expected(name: str) -> list[str]:
    return [text.strip() for text in PACKETS[name].strip().splitlines()]


def test_each_one_is_described() -> None:
    assert set(ROCE) == set(PACKETS)


@each("name", ROCE)
def test_packets(name: str) -> None:
    """Operations, PSNs, flags and headers, one by one."""
    psn = first_psn(name)
    assert [line(packet, psn, comment) for _, packet, comment in records(name)] == expected(name)


@pytest.mark.parametrize("name", ROCE)
def test_scenario(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status, outcomes, invariants, NAKs, and the bytes of the golden capture."""
    path = tmp_path / "c.pcapng"
    assert cli.status(["run", name, "--check", "--json", "-o", str(path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["match"], result["failure"], result["findings"]) == (True, None, [])
    assert result["sha256_source"] == result["sha256_target"]
    assert result["checked"] == len(expected(name))
    assert bool(result["operations"]) == (name != "gradient-roce")
    assert all(one["match"] and one["return_code"] == one["expect"] for one in result["operations"])
    assert path.read_bytes() == (PCAPS / f"{name}.pcapng").read_bytes()
    assert result["nacks_by_code"] == naks(name)


def naks(name: str) -> dict[str, int]:
    """By syndrome, as the packets have them (roce.md §2.1)."""
    counts: Counter[str] = Counter()
    for text in expected(name):
        _, found, rest = text.partition("< ACKNOWLEDGE")
        syndrome = int(rest.partition("aeth(")[2][:2], 16) if found else 0
        if syndrome >= 0x60:
            counts[Nak(syndrome).name] += 1
        elif syndrome >= 0x20:
            counts["RNR NAK"] += 1
    return dict(counts)


@each("name", ROCE)
def test_what_all_packets_have(name: str) -> None:
    """The transport of the run, P_Key and m bit, one UDP source port for a queue pair; se and a are 0 in responses."""
    scenario = load(name)
    ports: dict[tuple[int, int, int], set[int]] = {}
    for _, packet, _ in records(name):
        bth = packet["bth"]
        assert packet.error is None
        assert bth["opcode"] >> 5 == scenario.run.transport
        assert (bth["tver"], bth["m"], bth["fecn"], bth["becn"]) == (0, 1, 0, 0)
        assert bth["p_key"] == 0xFFFF  # what is dropped for another one was sent with it, too
        ip = packet["ipv4"] if "ipv4" in packet else packet["ipv6"]
        ports.setdefault((ip["src"], ip["dst"], bth["destqp"]), set()).add(packet["udp"]["sport"])
        if bth["opcode"] & 0x1F in RESPONSES:
            assert (bth["a"], bth["se"]) == (0, 0)
    assert all(len(found) == 1 for found in ports.values())


@each("name", ROCE)
def test_a_request_sent_again_has_the_same_bytes(name: str) -> None:
    """roce.md §9; but a READ may resume in its middle, and a damaged one is another."""
    seen: dict[tuple[int, int], bytes] = {}
    for data, packet, _ in records(name):
        bth = packet["bth"]
        if packet.trailer is not None and packet.trailer.ok and bth["opcode"] & 0x1F not in RESPONSES:
            assert seen.setdefault((bth["destqp"], bth["psn"]), data) == data


def test_a_psn_wraps() -> None:
    """roce.md §7."""
    psns = [packet["bth"]["psn"] for _, packet, _ in records("roce-psn-wrap")]
    assert psns == [0xFFFFFE, 0xFFFFFF, 0, 1, 1, 2, 2, 3]


def test_pads_are_counted_by_no_length() -> None:
    """roce.md §4."""
    packet = next(p for _, p, _ in records("roce-write") if p["bth"]["padcnt"])
    assert (packet["bth"]["padcnt"], packet["reth"]["dmalen"], len(packet.payload)) == (3, 5, 5)


@each("name", ROCE)
def test_ladder(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["ladder", "--all", "--width", "250", str(PCAPS / f"{name}.pcapng")]) == 0
    out = capsys.readouterr().out
    shown = expected(name)
    if load(name).taps == tuple(load(name).nodes):
        shown = shown[:1]  # the others are of other interfaces
    prefix = load(name).run.transport.name
    drawn = [text for row in out.splitlines() for text in row.split() if text.startswith(f"{prefix}_")]
    assert drawn == [f"{prefix}_{text.split()[1]}" for text in shown]
    assert out.count("[lost]") == sum(text.endswith("lost") for text in shown)
    assert ("NAK" in out) == bool(naks(name))


@each("name", ROCE)
def test_dissect(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(PCAPS / f"{name}.pcapng")
    assert cli.status(["dissect", path]) == 0
    text = capsys.readouterr().out
    transport = load(name).run.transport
    for one in {text.split()[1] for text in expected(name)}:
        assert BthOpcode(transport << 5 | Operation[one]).name in text
    assert cli.status(["dissect", "--json", path]) == 0
    found = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [one["trailer"]["ok"] for one in found] == ["damaged" not in text for text in expected(name)]


# What else may happen, and what would be found ------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({*WHOLE} - {"roce-drain"}))
def test_a_bad_network_changes_nothing(name: str) -> None:
    """Frames are lost, doubled and overtaken: the same outcomes, the same memory. (SQD is not drained in time then.)"""
    happened = 0
    for seed in range(4):
        faults = ("faults.drop=0.1", "faults.duplicate=0.1", "faults.reorder=0.1", f"seed={seed}")
        result = run(load(name, faults), check=True)
        assert result.ok, result
        happened += sum(result.happened.values())
    assert happened


@pytest.mark.parametrize("name", ["roce-send", "roce-write", "roce-write-imm", "roce-uc-send", "roce-uc-write"])
def test_a_wrong_byte_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Inbound.store

    def wrong(self: Inbound, parsed: Any) -> None:
        parsed.payload = bytes([parsed.payload[0] ^ 1]) + bytes(parsed.payload[1:])
        store(self, parsed)

    monkeypatch.setattr(Inbound, "store", wrong)
    result = run(load(name))
    assert not result.match
    assert not result.ok


def test_a_byte_beside_the_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = RoceMemoryRegion.write

    def more(self: RoceMemoryRegion, addr: int, data: Any) -> None:
        write(self, addr, data)
        self.memory.write(self.length - 1, b"?")

    monkeypatch.setattr(RoceMemoryRegion, "write", more)
    result = run(load("roce-write"))
    assert all(one["match"] for one in result.operations)
    assert not result.match
    assert result.sha256_source != result.sha256_target


def test_an_atomic_that_acts_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 3 of roce.md §15 holds."""
    atomic = RcResponder._atomic

    def twice(self: RcResponder, parsed: Any) -> None:
        values = parsed.values
        region = self.qp.hca.regions.by_rkey[values["r_key"]]
        there = int.from_bytes(region.read(values["va"], 8), "little")
        atomic(self, parsed)
        region.write(values["va"], (there + 2 * values["swapdt"]).to_bytes(8, "little"))

    monkeypatch.setattr(RcResponder, "_atomic", twice)
    result = run(load("roce-fail-atomic-lost"))
    assert [one["match"] for one in result.operations] == [False]
    assert not result.match
