# SPDX-License-Identifier: GPL-2.0-only
"""This module measures captures for `uetproto bench`: columns against Scapy, and runs from file to file.

A run with a memory limit has a separate process, so that the peak of memory is that of this run alone.
"""

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from uetproto import LocalError, encode
from uetproto.bench.engine import Figure
from uetproto.bench.frames import ack, fields_of, request, roce_ack, roce_write, without_crc
from uetproto.bench.ratio import BenchResult
from uetproto.wire.capture.pcap import PcapWriter

MIB = 1 << 20


def in_a_process(arguments: list[str], folder: Path | None = None) -> tuple[dict[str, Any], int]:
    """Run Python with `arguments`; return the JSON that it prints, and its peak of memory in bytes. If `folder` is
    given, the modules that are there come before those that are installed."""
    watched = (
        "import resource, subprocess, sys\n"
        "status = subprocess.call(sys.argv[1:])\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\n"
        "sys.exit(status)"
    )
    command = [sys.executable, "-c", watched, sys.executable, *arguments]
    given = os.environ.get("PYTHONPATH")
    paths = {} if folder is None else {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), given)))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **paths})
    if done.returncode:
        raise LocalError(f"bench: {' '.join(arguments)}: {done.stderr.strip()}", id="bench-failed")
    return json.loads(done.stdout.strip().splitlines()[-1]), int(done.stderr.strip().splitlines()[-1]) * 1024


_READ_ALL = """
import json, sys, time
from uetproto import columns
start = time.process_time()
table = columns.read(sys.argv[1], icrc=len(sys.argv) > 2)
touched = sum(int(table[form][field].size) for form in table for field in table[form])
print(json.dumps({"seconds": time.process_time() - start, "touched": touched, "nbytes": table.nbytes}))
"""


def columns(packets: int, scapy_packets: int, folder: Path) -> Iterator[BenchResult]:
    """Yield, for captures of UET, how many packets per second the library and Scapy read. Both decode the fields of all
    headers, and check no CRC32C."""

    def mixed(index: int) -> bytes:
        return encode(ack(index) if index % 2 else request(0, index, crc=False), fill=True)

    def equal(index: int) -> bytes:
        return encode(request(0, index, crc=False), fill=True)

    for name, what, frame_of, least in (
        ("columns", "requests of 98 and ACKs of 66 bytes, to columns", mixed, 400),
        ("columns, one length", "requests of 98 bytes, to columns", equal, 700),
    ):
        path, sample = captures(folder, frame_of, packets, scapy_packets)
        best = scapy_best = 0.0
        peak = 0
        for _ in range(3):
            found, memory = in_a_process(["-c", _READ_ALL, str(path)])
            if found["nbytes"] > path.stat().st_size:
                raise LocalError("bench: the arrays are larger than the file", id="bench-failed")
            best, peak = max(best, packets / found["seconds"]), max(peak, memory)
            with without_crc():
                scapy_best = max(scapy_best, read_by_scapy(sample))
        limit = 100 * MIB + path.stat().st_size * 3 // 2
        yield BenchResult(name, what, best, "PcapReader", scapy_best, least, peak, limit)
        path.unlink()


def columns_of_roce(packets: int, scapy_packets: int, folder: Path) -> Iterator[BenchResult]:
    """Yield, for a capture of RoCE, how many packets per second the library and Scapy read. Both decode the fields of
    all headers. The first result is without a check of the ICRCs, and the second with it."""
    from uetproto.layers import RoceIcrc, bind_roce, unbind_roce

    path, sample = captures(
        folder, lambda i: encode(roce_ack(i) if i % 2 else roce_write(24, i), fill=True), packets, scapy_packets
    )
    ours, theirs = {"": 0.0, "icrc": 0.0}, {"": 0.0, "icrc": 0.0}
    bind_roce()
    for _ in range(3):
        for checks in ours:
            found, _ = in_a_process(["-c", _READ_ALL, str(path), *filter(None, (checks,))])
            ours[checks] = max(ours[checks], packets / found["seconds"])
            theirs[checks] = max(theirs[checks], read_by_scapy(sample, RoceIcrc if checks else None))
    unbind_roce()
    path.unlink()
    for what, checks, baseline, least in (
        ("RoCE: WRITEs of 98 and ACKs of 62 bytes, to columns", "", "PcapReader", 400),
        ("RoCE: the same, every ICRC checked", "icrc", "PcapReader, ok", 200),
    ):
        yield BenchResult("roce", what, ours[checks], baseline, theirs[checks], least)


def captures(folder: Path, frame_of: Callable[[int], bytes], packets: int, scapy_packets: int) -> tuple[Path, Path]:
    """Write the same 1000 frames repeatedly to a large capture for the library and to a shorter one for Scapy."""
    frames = [frame_of(index) for index in range(1000)]
    paths = folder / "all.pcap", folder / "sample.pcap"
    for path, count in zip(paths, (packets, scapy_packets), strict=True):
        with PcapWriter(path) as writer:
            for start in range(0, count, len(frames)):
                chunk = frames[: count - start]
                writer.write_many(range(start * 1000, (start + len(chunk)) * 1000, 1000), chunk)
    return paths


def read_by_scapy(path: Path, checked: Any = None) -> float:
    """Return the number of packets per second that Scapy reads. If a layer `checked` is given, Scapy also checks the
    CRC in that layer of each packet."""
    from scapy.utils import PcapReader

    from uetproto import layers  # noqa: F401  binds UET to UDP for Scapy

    start, count = process_time(), 0
    with PcapReader(str(path)) as reader:
        for packet in reader:
            fields_of(packet)
            count += 1
            if checked is not None and not packet[checked].ok:
                raise LocalError("bench: Scapy finds a CRC wrong", id="bench-failed")
    return count / (process_time() - start)


def emulating(length: int, folder: Path) -> Iterator[BenchResult | Figure]:
    """Yield how many data packets an fi_write from file to file carries per second of CPU, and the peak of memory of
    this run. Then yield the same for an RDMA WRITE; the rate of the fi_write is the baseline of this result."""
    source = folder / "input"
    with source.open("wb") as file:
        rng = random.Random(1)
        for _ in range(length // MIB):
            file.write(rng.randbytes(MIB))
        os.fsync(file.fileno())  # otherwise the system would write the file to disk during the run
    best = {"gradient-rud": 0.0, "gradient-roce": 0.0}  # data packets per second
    peak = dict.fromkeys(best, 0)
    for name in (*best, *best):  # alternately
        start = _of_children()
        settings = ["--set", f"input={source}", "-o", str(folder / "run.pcap")]
        found, memory = in_a_process(["-m", "uetproto", "run", name, "--json", *settings])
        best[name] = max(best[name], length / 4096 / (_of_children() - start))
        peak[name] = max(peak[name], memory)
        if not found["match"]:
            raise LocalError("bench: the target's memory differs from the input", id="bench-failed")
    uet, roce = best.values()
    what = f"of {length // MIB} MiB from file to file, data packets"
    yield Figure("emulate", f"fi_write {what}", uet, "packets/s", _EMULATED)
    yield Figure("emulate", f"fi_write {what}: memory", peak["gradient-rud"] / MIB, "MiB", 400, most=True)
    yield BenchResult("emulate", f"RDMA WRITE {what}", roce, "the fi_write", uet, 0.9, peak["gradient-roce"], 400 * MIB)


_EMULATED = 10_000
"""Required data packets of 4 KiB per second of CPU, over links with every frame encoded and decoded."""


def _of_children() -> float:
    """Return the seconds of CPU that processes have used which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
