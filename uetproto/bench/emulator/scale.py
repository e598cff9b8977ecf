# SPDX-License-Identifier: GPL-2.0-only
"""This module measures many hosts, flows and PDCs, and how long the program takes to start.

`python -m uetproto.bench.emulator.scale mesh 317` has 317 hosts send messages of one packet to each other.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any

from uetproto.bench.engine import Figure
from uetproto.emulator.flows import Flow
from uetproto.engine.contract import MICROSECOND, Mode, Write
from uetproto.errors import LocalError
from uetproto.fabric.matrix import TrafficMatrix
from uetproto.fabric.study import FIRST_ADDRESS, JOB, Study, StudyConfig
from uetproto.garbage import seldom_collected

MIB = 1 << 20
FEW, MANY = 32, 317
"""Numbers of hosts: each has a PDC to each other one, so that there are 992 and 100,172 PDCs."""
_MESSAGES, _SIZE = 100_000, 1024
_SLOWER = 1.3
"""Limit of the time for a packet on one of many PDCs, as a multiple of that on one of few."""
HOSTS, FLOWS_EACH, _FLOW = 1024, 10, 16_384
_MEMORY = 2048
_HELP, _LAYERS, _ALL_LAYERS = 140, 110, 140
"""Limits in percent: of `import click`, and of the import of those layers of Scapy that `uetproto.layers` imports."""
_SCAPY = "import scapy.layers.inet6, scapy.layers.l2, scapy.plist, scapy.sessions"


def mesh(hosts: int, messages: int = _MESSAGES) -> float:
    """Return CPU microseconds for a message of one packet among hosts with open PDCs from each to each other.

    Every host sends to the others in turn. The first turn opens the PDCs, and is not counted.
    """
    ring = tuple(Flow(number, number, (number + 1) % hosts, 0, _SIZE) for number in range(hosts))
    study = Study(StudyConfig(rate=400 * 10**9, topology="switch", cc="off"), TrafficMatrix("mesh", hosts, ring))
    study.open, clock, data = messages + hosts * hosts, study.clock, bytes(_SIZE)
    nics = [study.network.nics[f"h{host}"] for host in range(hosts)]
    gap = (_SIZE + 150) * 21

    def turn(left: int) -> None:
        away = left % (hosts - 1) + 1
        for host, nic in enumerate(nics):
            peer = (host + away) % hosts
            nic.submit(Write(
                peer=FIRST_ADDRESS + peer, mode=Mode.RUD, job_id=JOB, key=(peer - 1) % hosts, data=data, context=0
            ))  # fmt: skip
        if left > 1:
            clock.at(clock.now + gap, turn, left - 1)

    with seldom_collected():
        for turns in (hosts - 1, messages // hosts):
            before = study.open
            clock.at(clock.now, turn, turns)
            began = process_time()
            clock.run(clock.now + turns * gap + 100 * MICROSECOND, 1 << 40)
            seconds = process_time() - began
            if before - study.open != turns * hosts or study.failed:
                raise LocalError(
                    f"bench: {before - study.open} of {turns * hosts} messages have ended", id="bench-failed"
                )
    if sum(len(fep.pds.pdcs) for fep in study.feps.values()) != 2 * hosts * (hosts - 1):
        raise LocalError("bench: not every host has a PDC to each other one", id="bench-failed")
    return seconds / turns / hosts * 1e6


def flows(hosts: int) -> float:
    """Return CPU seconds of a run in which every host of a leaf-spine network sends to several others."""
    load = tuple(
        Flow(number, number % hosts, (number % hosts + 1 + 97 * (number // hosts)) % hosts, 0, _FLOW)
        for number in range(FLOWS_EACH * hosts)
    )
    leaf = max(hosts // 32, 2)
    config = StudyConfig(
        cc="nscc", topology="leaf-spine", parameters={"hosts_per_leaf": leaf, "spines": leaf}, taps=()
    )  # fmt: skip
    began = process_time()
    study = Study(config, TrafficMatrix("many", hosts, load))
    if study.run().failure or not study.matches():
        raise LocalError("bench: the flows did not arrive", id="bench-failed")
    return process_time() - began


def seconds_of(command: Sequence[str], times: int) -> float:
    """Return the least CPU seconds of a process of several."""
    least = float("inf")
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def measure(quick: bool, in_a_process: Callable[[list[str]], tuple[dict[str, Any], int]]) -> Iterator[Figure]:
    """Yield the figures of many PDCs, many hosts, and the start of the program."""
    module = ["-m", "uetproto.bench.emulator.scale"]
    few, many = FEW, 100 if quick else MANY
    runs = [
        [in_a_process([*module, "mesh", str(hosts)])[0]["value"] for hosts in (few, many)]
        for _ in range(1 if quick else 3)
    ]
    short, long = (min(run[which] for run in runs) for which in (0, 1))
    what = f"a packet on one of {many * (many - 1):,} open PDCs ({_SLOWER} × that on {few * (few - 1)})"
    yield Figure("scale", what, long, "µs", _SLOWER * short, most=True)
    hosts = HOSTS // 8 if quick else HOSTS
    found, peak = in_a_process([*module, "flows", str(hosts)])
    what = f"{hosts:,} hosts, {FLOWS_EACH * hosts:,} flows of {_FLOW // 1024} KiB"
    yield Figure("scale", f"{what}: CPU", found["value"], "s", 60, most=True)
    yield Figure("scale", f"{what}: memory", peak / MIB, "MiB", _MEMORY, most=True)
    times = 3 if quick else 10
    click = seconds_of(["-c", "import click"], times)
    program = Path(sys.executable).parent / "uetproto"
    shown = seconds_of([str(program), "--help"] if program.exists() else ["-m", "uetproto", "--help"], times)
    yield Figure("scale", "uetproto --help, CPU of import click", 100 * shown / click, " %", _HELP, most=True)
    scapy = seconds_of(["-c", _SCAPY], times)
    for line, limit in (("import uetproto.layers", _LAYERS), ("from uetproto.layers import *", _ALL_LAYERS)):
        share = 100 * seconds_of(["-c", line], times) / scapy
        yield Figure("scale", f"{line}, CPU of its part of Scapy", share, " %", limit, most=True)


if __name__ == "__main__":
    print(json.dumps({"value": {"mesh": mesh, "flows": flows}[sys.argv[1]](int(sys.argv[2]))}))
