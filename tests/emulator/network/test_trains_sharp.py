# SPDX-License-Identifier: GPL-2.0-only
"""Streams of SHARP whose chunks are taken as runs: everything is as in a run in which each chunk is taken by itself."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.trains.play import difference, play
from uetproto.engine.roce import messages
from uetproto.engine.sharp.host.trains import ResultRun
from uetproto.engine.sharp.messages import HEADER_SIZE, SharpMessage
from uetproto.engine.sharp.node.trains import RequestRun
from uetproto.engine.sharp.trains import ChunkHeader, vec_off_of
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, Op, SharpOpcode, Status

STREAM: dict[str, Any] = {
    "transport": "roce", "ranks": 4, "seed": 1, "rate": 100 * 10**9, "mtu": 4096, "chunk": 2048, "window": 8,
    "calls": [("all_reduce", 40_000, "float32", "SUM"), ("reduce", 20_000, "int16", "MAX")],
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "switch": {},
    "loss": {"faults": {"drop": [30, 31, 55]}},
    "duplicates": {"faults": {"duplicate": [30, 40, 44]}},
    "reordering": {"faults": {"reorder": 0.1}},
    "damage": {"faults": {"corrupt": [33, 70]}},
    "leaves": {"topology": "leaf-spine", "shape": {"hosts_per_leaf": 2, "spines": 1}},
    "chunks of several packets": {"mtu": 1024},
    "few ACKs": {"config": {"ack_coalesce": 3}},
    "UET": {"transport": "uet"},
}


@pytest.mark.parametrize("case", effort(["leaves", "loss", "UET"], list(CASES), list(CASES)))
def test_a_stream_in_runs_is_the_stream_without(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = STREAM | CASES[case]
    plain = play({"sharp": table}, "off", tmp_path)
    taken: Counter[str] = Counter()
    for owner, name in ((messages, "take"), (ResultRun, "take"), (RequestRun, "take")):
        function = getattr(owner, name)

        def counted(*args: Any, function: Any = function, key: str = owner.__name__) -> bool:
            found: bool = function(*args)
            taken[key] += found
            return found

        monkeypatch.setattr(owner, name, counted)
    assert difference(plain, play({"sharp": table}, "auto", tmp_path)) is None
    assert isinstance(plain["result"], tuple)
    assert taken["ResultRun"] > 50
    assert taken["RequestRun"] > 25
    if table["transport"] == "roce":
        assert taken[messages.__name__] > 100


REQUEST = SharpMessage(
    SharpOpcode.AGG_REQ, 63, 1, 7, 0, 4096, 8, Op.SUM, Dtype.FLOAT, coll=Coll.ALLREDUCE, child_idx=1,
    flags=int(Flag.SAT | Flag.LOCK | Flag.REPRO), body=bytes(range(32)),
)  # fmt: skip


def test_a_run_differs_in_vec_off_and_vector_alone() -> None:
    data = REQUEST.pack()
    header = ChunkHeader.of(SharpOpcode.AGG_REQ, data, REQUEST)
    assert header is not None
    later = replace(REQUEST, vec_off=9_999_968, body=bytes(32)).pack()
    assert header.fits(later)
    assert vec_off_of(later) == 9_999_968
    for at in {*range(HEADER_SIZE)} - {*range(16, 20)}:
        assert not header.fits(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
    assert not header.fits(data + bytes(4))


@pytest.mark.parametrize(
    "change",
    [
        {"flags": REQUEST.flags | Flag.FIRST}, {"flags": REQUEST.flags | Flag.LAST},
        {"flags": REQUEST.flags | Flag.RETX}, {"flags": REQUEST.flags | Flag.UNLOCK},
        {"flags": REQUEST.flags | Flag.NODATA, "body": b""}, {"flags": int(Flag.REPRO)}, {"udh": bytes(8)},
        {"status": Status.MISMATCH}, {"opcode": SharpOpcode.AGG_RESULT}, {"body": bytes(30)},
    ],
    ids=lambda change: ", ".join(f"{key} {value!r}" for key, value in change.items()),
)  # fmt: skip
def test_a_chunk_that_something_distinguishes_is_in_no_run(change: dict[str, Any]) -> None:
    changed = replace(REQUEST, **change)
    if "udh" in change:
        changed.flags |= Flag.UDH
    assert ChunkHeader.of(SharpOpcode.AGG_REQ, changed.pack(), changed) is None
