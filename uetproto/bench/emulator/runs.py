# SPDX-License-Identifier: GPL-2.0-only
"""This module has the runs of the emulator that are measured before trains and now.

Each runs in a process of its own: `python -m uetproto.bench.emulator.runs write 67108864 auto` prints packets, CPU
seconds, the rate of the calibration loop before and after, the peak of memory, and where the package is. With `before`
in place of `auto` the run does not name trains, so that versions without them run it, too.
"""

import json
import mmap
import resource
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

from uetproto import errors
from uetproto.api import fi, verbs
from uetproto.bench.emulator.floor import calibration
from uetproto.cli.collective.run import CollectiveCase, PreparedCase
from uetproto.collectives.dtypes import dtype
from uetproto.emulator.run.play import RUNS as PLAYED
from uetproto.emulator.scenario.settings import load as load_scenario
from uetproto.engine.sharp.config import SharpConfig
from uetproto.errors import LocalError
from uetproto.fabric.matrix import traffic_matrix
from uetproto.fabric.study import Study, StudyConfig
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.capture.pcap import open_writer

PACKET, RANKS, HOSTS = 4096, 16, 128
CHUNK = SharpConfig().sat_chunk
_BEFORE = "before"
_TOUCHED = 1536 << 20
"""Number of bytes that are touched before a run: more than it uses for the first time."""
_PEAK, _RESET = Path("/proc/self/clear_refs"), "5"
"""File by which Linux resets the peak of memory of a process, and what is written to it."""

Timed = tuple[int, float]
"""Number of packets of a run, and its CPU seconds."""


def _knob(trains: str) -> dict[str, Any]:
    return {} if trains == _BEFORE else {"trains": trains}


def _as_the_command() -> AbstractContextManager[None]:
    """Return the context in which `uetproto fabric` runs a study. An earlier version may have none."""
    try:
        from uetproto.system_memory import huge_pages
    except ModuleNotFoundError:
        return nullcontext()
    return huge_pages()


def _begin() -> float:
    """Touch memory, give it back, and return the CPU seconds of this process.

    A virtual machine may have given free memory back to its host. To get it again takes ten times as long as to clear
    it. Memory that was touched just before is at hand. Without `_PEAK` nothing is touched, as the peak would be wrong.
    """
    try:
        _PEAK.write_text(_RESET)
    except OSError:
        return process_time()
    with mmap.mmap(-1, _TOUCHED, access=mmap.ACCESS_COPY) as touched:
        with suppress(OSError):  # a kernel without huge pages
            touched.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, _TOUCHED, mmap.PAGESIZE):
            touched[at] = 1
    _PEAK.write_text(_RESET)
    return process_time()


def _files(owned: ExitStack, folder: Path, *lengths: int) -> list[fi.FileMemory]:
    """Return files with so many bytes, which `owned` closes."""
    found = []
    for number, length in enumerate(lengths):
        with (folder / str(number)).open("wb") as file:
            for _ in range(length >> 20):
                file.write(bytes(range(256)) * 4096)
        found.append(fi.FileMemory(owned.enter_context((folder / str(number)).open("r+b"))))
    return found


def _write(length: int, trains: str, folder: Path, senders: int = 1, capture: bool = True) -> Timed:
    """Write from file to file with CRC32C, from each sender to one target."""
    names = ["target", *(f"sender{number}" for number in range(senders))]
    more: dict[str, Any] = {"capture": str(folder / "run.pcap"), "taps": ["sender0"]} if capture else {}
    with ExitStack() as owned, fi.Fabric(names, **more, **_knob(trains)) as fabric:
        target, *ends = (fabric.endpoint(name) for name in names)
        sources = _files(owned, folder, *([length // senders] * senders * 2))
        began = _begin()
        for number, end in enumerate(ends):
            mr = target.domain.mr_reg(sources[senders + number])
            end.write(sources[number], end.av.insert(target.address), 0, mr.key)
        for end in ends:
            (entry,) = end.cq.sread(1)
            if isinstance(entry, fi.CqErrEntry):
                raise LocalError(f"bench: {entry}", id="bench-failed")
        return length // PACKET, process_time() - began


def _roce(length: int, trains: str, folder: Path, capture: bool = True) -> Timed:
    """Write by RDMA WRITE on RC from file to file, with ICRC."""
    more: dict[str, Any] = {"capture": str(folder / "run.pcap"), "taps": ["a"]} if capture else {}
    with ExitStack() as owned, verbs.Network(["a", "b"], **more, **_knob(trains)) as network:
        pds = [network.device(name).alloc_pd() for name in "ab"]
        here, there = (pd.create_qp(verbs.QpType.RC, pd.device.create_cq()) for pd in pds)
        verbs.connect(here, there)
        source, target = (pd.reg_mr(file) for pd, file in zip(pds, _files(owned, folder, length, length), strict=True))
        began = _begin()
        here.post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=target.rkey)
        if here.send_cq.wait()[0].status.name != "SUCCESS":
            raise LocalError("bench: the RDMA WRITE failed", id="bench-failed")
        return length // PACKET, process_time() - began


def _sealed(length: int, trains: str, folder: Path) -> Timed:
    """Write a file, sealed in mode direct, with a capture of the sender."""
    source, run_file = folder / "source", folder / "run.pcap"
    with source.open("wb") as file:
        for _ in range(length >> 20):
            file.write(bytes(range(256)) * 4096)
    scenario = load_scenario("gradient-sealed-direct", [
        f"input={source}", f"ses.payload_mtu={PACKET}", f"fabric.trains={trains}", 'tap.nodes=["rank0"]',
    ])  # fmt: skip
    with ExitStack() as owned:
        played = PLAYED[True, "transfer"](scenario, owned, False)
        played.connect(owned.enter_context(open_writer(str(run_file))))
        began = _begin()
        played.play(None)
        played.close()
        seconds = process_time() - began
        if not played.outcome(None, None).match:
            raise LocalError("bench: the target's memory differs from the input", id="bench-failed")
        return length // PACKET, seconds


def _all_reduce(packets: int, length: int, trains: str, algorithm: str, **more: Any) -> Timed:
    prepared = PreparedCase(CollectiveCase(
        op="all_reduce", algorithm=algorithm, ranks=RANKS, length=length, dtype=dtype("float32"), **more,
        **_knob(trains),
    ))  # fmt: skip
    began = _begin()
    found = prepared.run()
    if not found.correct:
        raise LocalError("bench: all_reduce differs from NumPy's", id="bench-failed")
    return packets, process_time() - began


def _ring(length: int, trains: str, folder: Path) -> Timed:
    return _all_reduce(2 * (RANKS - 1) * length // PACKET, length, trains, "ring")


def _sharp(length: int, trains: str, folder: Path, transport: str = "roce") -> Timed:
    """Stream a vector by SHARP: of each rank a request and a result for each chunk."""
    stream: dict[str, Any] = {"sharp": {"SHARP_COLL_ENABLE_SAT": "1"}, "transport": transport}
    return _all_reduce(2 * RANKS * length // CHUNK, length, trains, "sharp", **stream)


def _study(pattern: str, hosts: int, size: int, trains: str) -> Timed:
    config = StudyConfig(cc="nscc", profile="htsim", **_knob(trains))
    began = _begin()
    with _as_the_command():
        result = Study(replace(config, seed=1), traffic_matrix(pattern, hosts, size)).run()
    if result.failure:
        raise LocalError(f"bench: {result.failure}", id="bench-failed")
    return result.packets, process_time() - began


def _generate(length: int, trains: str, folder: Path) -> Timed:
    profile = load("bench")
    began = _begin()
    generate(profile, str(folder / "bench.pcap"), packets=length, **_knob(trains))
    return length, process_time() - began


RUNS: dict[str, Callable[[int, str, Path], Timed]] = {
    "write": _write,
    "sealed": _sealed,
    "write-no-capture": lambda length, trains, folder: _write(length, trains, folder, capture=False),
    "roce": _roce,
    "roce-no-capture": lambda length, trains, folder: _roce(length, trains, folder, capture=False),
    "two-senders": lambda length, trains, folder: _write(length, trains, folder, senders=2, capture=False),
    "ring": _ring,
    "sharp": _sharp,
    "sharp-uet": lambda length, trains, folder: _sharp(length, trains, folder, "uet"),
    "permutation": lambda size, trains, folder: _study("permutation", HOSTS, size, trains),
    "incast": lambda size, trains, folder: _study("incast", 16, size, trains),
    "generate": _generate,
}


def run(name: str, size: int, trains: str) -> dict[str, Any]:
    """Run one of `RUNS`. Return packets, CPU seconds, the better rate of the calibration loop around it, the peak of
    memory in bytes, and the folder of the package."""
    loops = [calibration() for _ in range(2)]
    with tempfile.TemporaryDirectory(prefix="uetproto-bench-") as folder:
        packets, seconds = RUNS[name](size, trains, Path(folder))
    loops += [calibration() for _ in range(2)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    package = str(Path(errors.__file__).parent)
    return {"packets": packets, "seconds": seconds, "calibration": max(loops), "peak": peak, "package": package}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
