# SPDX-License-Identifier: GPL-2.0-only
"""tshark explains the capture of every algorithm: nothing is malformed, every checksum it checks is right."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.collectives.cases import NAMES, POWERS_ONLY, inputs, integers
from tests.support.collectives.packets_algorithms import case_of
from tests.support.collectives.packets_bench import execute
from tests.support.effort import effort
from tests.support.interop import tshark
from tests.support.interop.roce_tshark import OTHERS
from tests.support.interop.tshark import needs_tshark
from uetproto.wire.capture.pcap import open_capture

FAULTS = {"drop": 0.02, "duplicate": 0.02, "reorder": 0.05}
RANKS, ELEMENTS = effort(4, 6, 6), effort(600, 1500, 1500)


def captures(transport: str, home: Path) -> Iterator[tuple[Path, int]]:
    """Of each operation by each algorithm, and how many frames there are."""
    for op, name in NAMES[:: effort(3, 1, 1) if transport == "uet-send" else 1]:
        case = case_of(op, name, 4 if name in POWERS_ONLY else RANKS, ELEMENTS)
        path = home / f"{transport}-{op}-{name}.pcapng"
        data = inputs(case.schedule, integers(2))
        ran = execute(case.schedule, data, transport, capture=str(path), taps="all", faults=FAULTS, seed=2)
        assert ran.errors == [[None]] * case.schedule.size
        with open_capture(str(path)) as reader:
            yield path, sum(1 for _ in reader)
        path.chmod(0o644)


OF_TAPS = {
    "duplicate", "duplicate_ack", "out_of_order", "lost", "ack_unseen", "spurious", "psn_two_contents",
    "response_wrong_id",
}  # fmt: skip
"""What the analysis says where the frames of several taps and runs stand in one capture with one interface."""


@needs_tshark
@pytest.mark.parametrize("transport", ["uet", "uet-send"])
def test_uet(transport: str) -> None:
    with tshark.folder() as home:
        frames = []
        for path, count in captures(transport, home):
            with open_capture(str(path)) as reader:
                frames += [record.data for record in reader]
            assert count > 10, path
        for number, shown in enumerate(tshark.shown(frames, home)):
            assert shown is not None, number
            assert shown.experts <= {"retx", "nack", *OF_TAPS}, number


@needs_tshark
def test_roce() -> None:
    disabled = [argument for name in OTHERS for argument in ("--disable-protocol", name)]
    with tshark.folder() as home:
        frames = []
        for path, count in captures("roce", home):
            with open_capture(str(path)) as reader:
                frames += [record.data for record in reader]
            assert count > 10, path
        path = home / "all.pcap"
        tshark.write_pcap(path, frames)
        names = ("frame.protocols", "infiniband.bth.opcode", "_ws.expert.message")
        fields = [argument for name in names for argument in ("-e", name)]
        out, _ = tshark.run(["-r", path, "-T", "json", *fields, *disabled], home)
        layers: list[dict[str, Any]] = [packet["_source"]["layers"] for packet in json.loads(out)]
        assert len(layers) == len(frames)
        opcodes = {opcode for one in layers for opcode in one["infiniband.bth.opcode"]}
        assert opcodes >= {"4", "11", "17"}  # SEND_ONLY, RDMA_WRITE_ONLY_WITH_IMMEDIATE, ACKNOWLEDGE
        assert all("_ws.expert.message" not in one and "malformed" not in one["frame.protocols"][0] for one in layers)


@needs_tshark
@pytest.mark.parametrize("transport", ["uet", "roce"])
def test_a_capture_as_it_is_written(transport: str) -> None:
    """tshark reads the file itself, with its interfaces."""
    with tshark.folder() as home:
        path = home / "run.pcapng"
        case = case_of("all_reduce", "ring", 4, 1000)
        execute(case.schedule, inputs(case.schedule, integers(1)), transport, capture=str(path), taps="all")
        path.chmod(0o644)
        out, _ = tshark.run(["-r", path, "-T", "fields", "-e", "frame.interface_name"], home)
        assert set(out.splitlines()) == {f"rank{rank}.0" for rank in range(4)}
