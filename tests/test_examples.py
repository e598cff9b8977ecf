# SPDX-License-Identifier: GPL-2.0-only
"""The programs of `uetproto.examples`: what they print, and that it is true (collectives.md §1, §3.10.7)."""

import importlib
import inspect
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.effort import effort
from uetproto.api import distributed as dist
from uetproto.examples import collectives, fsdp, mistakes, point_to_point, timeline, training

TRANSPORTS = ["uet", "roce", "model"]
PACKETS = TRANSPORTS[:2]
LOSSY = {"drop": 0.03, "reorder": 0.1, "duplicate": 0.05}

over_all = pytest.mark.parametrize("transport", TRANSPORTS)
over_packets = pytest.mark.parametrize("transport", PACKETS)


# Point to point

TOLD = {
    "hand_over": ["has [0, 1, 2, 3]"] * 2,
    "shift": [f"sent {[rank] * 2}, got {[(rank - 1) % 4] * 2}" for rank in range(4)],
    "exchange": ["has [0, 9] between 29 and 10", "has [10, 19] between 9 and 20", "has [20, 29] between 19 and 0"],
    "first_come": ["heard ranks [3, 2, 1]", *["sent its number"] * 3],
}


@over_all
@pytest.mark.parametrize(
    ("program", "ranks"), point_to_point.PROGRAMS.items(), ids=lambda it: getattr(it, "__name__", it)
)
def test_point_to_point(program: Callable[[int], str], ranks: int, transport: str) -> None:
    assert dist.run(program, ranks=ranks, transport=transport) == TOLD[program.__name__]


# Collectives

AFTER = {
    "broadcast": ["[10 11]"] * 4,
    "reduce": ["unspecified", "unspecified", "[ 6 60]", "unspecified"],
    "all_reduce": ["[ 6 60]"] * 4,
    "scatter": ["[0 1]", "[2 3]", "[4 5]", "[6 7]"],
    "gather": ["[]", "[]", "[]", "[ 0 10 20 30]"],
    "all_gather": ["[1 2 2 3 3 3]"] * 4,
    "reduce_scatter": ["[60]", "[64]", "[68]", "[72]"],
    "all_to_all": ["[ 0  4  8 12]", "[ 1  5  9 13]", "[ 2  6 10 14]", "[ 3  7 11 15]"],
    "two_groups": ["[ 2 20]", "[ 4 40]"] * 2,
}


@over_all
@pytest.mark.parametrize("program", collectives.PROGRAMS, ids=lambda program: program.__name__)
def test_collectives(program: Callable[[int], Any], transport: str) -> None:
    lines = collectives.run(program, transport)
    assert [line.split(" -> ")[1] for line in lines] == AFTER[program.__name__]


# Mistakes


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + [line.strip() for line in lines].index(text)


EXPLAINED = {
    "both_send_first": (
        "DeadlockError: deadlock: 0 -> 1 -> 0\n"
        "  rank 0: send(dst=1, tag=0) #0 of group 0 waits for rank 1 to call recv(src=0, tag=0)\n"
        "  rank 1: send(dst=0, tag=0) #0 of group 0 waits for rank 0 to call recv(src=1, tag=0)"
    ),
    "different_shapes": (
        "CollectiveMismatchError: collective #0 of group 0: shape is ((7,),) on rank 1, ((8,),) on rank 0"
    ),
    "different_types": (
        "CollectiveMismatchError: collective #0 of group 0: dtype is float16 on rank 1, float32 on rank 0"
    ),
    "different_roots": "CollectiveMismatchError: collective #0 of group 0: root is 1 on rank 1, 0 on rank 0",
    "different_order": (
        "CollectiveMismatchError: collective #0 of group 0: op is barrier on rank 1, all_reduce on rank 0"
    ),
    "missing_rank": (
        "DeadlockError: missing participant: rank 1 has finished\n"
        "  rank 0: barrier #1 of group 0 waits for rank 1 to join"
    ),
    "wrong_length": (
        "SizeMismatchError: rank 0 sends 8 float64, rank 1 awaits 4 float64 (tag 0); "
        "legal: the same number of elements of the same type"
    ),
    "changed_too_early": (
        "BufferModifiedError: isend(dst=1, tag=0) #0 of group 0: its buffer was changed before wait(); "
        "legal: wait() first, or change a copy"
    ),
    "wrong_tag": (
        "DeadlockError: deadlock: 0 -> 1 -> 0\n"
        "  rank 0: send(dst=1, tag=7) #0 of group 0 waits for rank 1 to call recv(src=0, tag=7); "
        "rank 1 has tag 8 there\n"
        "  rank 1: recv(src=0, tag=8) #0 of group 0 waits for rank 0 to call send(dst=1, tag=8); "
        "rank 0 has tag 7 there"
    ),
    "read_in_stream_mode": (
        "DeadlockError: missing participant: rank 0 has finished\n"
        "  rank 1: recv(src=0, tag=0) #1 of group 0 waits for rank 0 to call send(dst=1, tag=0); "
        f"its tensor is read at mistakes.py:{line_of(mistakes.read_in_stream_mode, 'print(x)')}"
    ),
}  # fmt: skip


@over_all
@pytest.mark.parametrize("program", mistakes.PROGRAMS, ids=lambda program: program.__name__)
def test_mistakes(program: Callable[[int], None], transport: str) -> None:
    assert mistakes.explained(program, transport) == EXPLAINED[program.__name__]


# Training


@over_all
@pytest.mark.parametrize("algorithm", training.NAMES)
def test_training_is_that_of_one_process(algorithm: str, transport: str) -> None:
    """Issue point: bit for bit with whole numbers, else within 1e-6 relative."""
    whole = training.train(algorithm, transport, training.data(True))
    assert whole.same_everywhere
    assert whole.difference == 0
    if effort(transport != "model" and algorithm != "ring", False, False):
        return  # how sums are rounded is a matter of the algorithm, and not of what carries them
    floats = training.train(algorithm, transport, training.data(False))
    assert floats.same_everywhere
    assert floats.difference < 1e-6


@over_packets
@pytest.mark.parametrize("algorithm", ["ring", "double_tree", "split_rail"])
def test_training_when_packets_are_lost(algorithm: str, transport: str) -> None:
    result = training.train(algorithm, transport, training.data(True), faults=LOSSY, seed=4)
    assert result.same_everywhere
    assert result.difference == 0


def test_the_weights_do_change() -> None:
    """Otherwise every algorithm would be right."""
    for whole in (True, False):
        task = training.data(whole)
        for before, after in zip(task.weights, training.alone(task), strict=True):
            assert np.mean(before != after) > 0.9


def test_the_gradients_are_those_of_the_error() -> None:
    """By differences: the backward pass is a real one."""
    task = training.data(False)
    inputs, targets, first, second = (a.astype(np.float64) for a in (task.inputs, task.targets, *task.weights))

    def error() -> float:
        return float(np.sum((np.maximum(inputs @ first, 0) @ second - targets) ** 2) / 2)

    for weights, gradient in zip((first, second), training.gradients(inputs, targets, first, second), strict=True):
        for place in ((0, 0), (3, 4), (-1, -1)):
            step = 1e-6
            weights[place] += step
            more = error()
            weights[place] -= 2 * step
            less = error()
            weights[place] += step
            assert gradient[place] == pytest.approx((more - less) / (2 * step), rel=1e-5)


# FSDP


@over_all
@pytest.mark.parametrize("program", fsdp.PROGRAMS, ids=lambda program: program.__name__)
def test_sharded_layers_are_those_of_one_process(program: Callable[..., Any], transport: str) -> None:
    task = fsdp.data()
    wanted = fsdp.alone(task)
    assert np.mean(wanted != task.layers) > 0.5
    for faults in ({}, LOSSY) if transport != "model" else ({},):
        more: dict[str, Any] = {"faults": faults} if faults else {}
        shards = dist.run(program, (task,), ranks=fsdp.RANKS, transport=transport, **more)
        assert np.array_equal(np.concatenate(shards, axis=1), wanted)


@over_all
def test_interleaving_hides_the_network(transport: str) -> None:
    task, times = fsdp.data(), []
    for program in fsdp.PROGRAMS:
        with dist.World(fsdp.RANKS, transport=transport) as world:
            world.run(program, (task,))
            times.append(world.now / 1e12)
            shard = fsdp.WIDTH * fsdp.WIDTH * 8 // fsdp.RANKS
            gathers = {"one_after_the_other": 2 * fsdp.LAYERS, "interleaved": 2 * fsdp.LAYERS - 1}[program.__name__]
            sent = (gathers + fsdp.LAYERS) * (fsdp.RANKS - 1) * shard  # (N-1) n a collective
            assert [counted.bytes_sent for counted in world.counted] == [sent] * fsdp.RANKS
    computed = 2 * fsdp.LAYERS * fsdp.COMPUTE
    serial, interleaved = times
    assert computed < interleaved < serial
    assert interleaved - computed < (serial - computed) / 2


def test_a_timeline_has_what_a_rank_did(tmp_path: Path) -> None:
    step = timeline.played(fsdp.interleaved, "roce")
    assert [round(duration, 6) for _, duration in step.spans["computation"]] == [fsdp.COMPUTE * 1e6] * 2 * fsdp.LAYERS
    assert [len(step.spans[name]) for name in ("all_gather", "reduce_scatter")] == [2 * fsdp.LAYERS - 1, fsdp.LAYERS]
    running = [span for name in ("all_gather", "reduce_scatter") for span in step.spans[name]]
    assert step.sent
    assert all(any(begin - 0.001 <= time <= begin + duration for begin, duration in running) for time in step.sent[:-1])
    assert max(begin + duration for begin, duration in running) == pytest.approx(step.end)
    timeline.draw([step], str(tmp_path / "step.svg"), "roce")
    texts = {text.text for text in ElementTree.parse(tmp_path / "step.svg").iter("{http://www.w3.org/2000/svg}text")}
    assert {f"interleaved: {step.end:.1f} µs", "reduce_scatter", "packets received", "time, µs"} <= texts
    for arguments in (["step.svg", "model"], ["step.gif"]):
        with pytest.raises(SystemExit, match="legal are"):
            timeline.main(*arguments)


# As programs


@pytest.mark.parametrize("name", ["point_to_point", "collectives", "mistakes", "training", "fsdp"])
def test_what_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(f"uetproto.examples.{name}").main
    main("model")
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) >= 3
    assert "wrong" not in printed.replace("wrong_length", "").replace("wrong_tag", "")
    if effort(name == "mistakes", True, True):
        main("model")
        assert capsys.readouterr().out == printed


def test_as_a_command() -> None:
    command = [sys.executable, "-m", "uetproto.examples.fsdp", "roce"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("4 layers of 8192 bytes on 4 ranks, over roce\n")
    assert printed.count("the same bits as one process") == 2
