"""This module measures how fast the library is on this machine (`uetproto bench`), as ratios to Scapy in the same run.

Scapy has no state machines, so `bench.engine` measures rates and sizes of state machines in place of ratios.

Absolute rates differ from machine to machine and from minute to minute; the ratio of two rates that were measured one
after the other is stable. Each codec row takes the best of several turns; the turns of the library and of Scapy
alternate. Files go to a temporary folder. A row with a memory limit runs in a process of its own, so that its peak of
memory is its own.
"""

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import click

from uetproto import Layer, LocalError, Packet, Trailer, decode, encode
from uetproto.bench import api, audit, collective, engine, network, security
from uetproto.bench.engine import Figure
from uetproto.wire.capture.pcap import PcapWriter

MIB = 1 << 20
ROWS = (
    "decode", "encode", "columns", "roce", "write", "emulate", *engine.ROWS,
    "api", "collective", "in_network", "security", "audit",
)  # fmt: skip


class BenchResult(NamedTuple):
    """A bench result is a row of the table: the library's rate, the baseline's, and the required ratio of both."""

    name: str
    what: str
    rate: float  # per second
    baseline: str
    baseline_rate: float
    least: float  # the required ratio
    memory: int | None = None  # peak, bytes
    memory_limit: int | None = None

    @property
    def ratio(self) -> float:
        return self.rate / self.baseline_rate

    @property
    def reached(self) -> bool:
        within = self.memory is None or self.memory_limit is None or self.memory <= self.memory_limit
        return self.ratio >= self.least and within


# What is measured ----------------------------------------------------------------------------------------------------

_ADDRESSES = {"src": 0x0A00000B, "dst": 0x0A00010B}


def request(payload: int, psn: int = 7, crc: bool = True) -> Packet:
    """Return a RUD request with a SES standard request: 12 + 44 bytes behind Ethernet, IPv4 and UDP."""
    layers = [
        Layer("ethernet", {"dst": 0x02000A00010B, "src": 0x02000A00000B, "type": 0x0800}),
        Layer("ipv4", {"dscp": 8, "ecn": 2, "df": 1, "ttl": 64, "protocol": 17, **_ADDRESSES}),
        Layer("udp", {"sport": 0xC000, "dport": 4793}),
        Layer("pds.rud_req", {"next_hdr": 3, "clear_psn_offset": -1, "psn": psn, "spdcid": 1, "dpdcid": 2}),
        Layer("ses.request_std.som", {
            "opcode": 1, "rel": 1, "eom": 1, "message_id": 1, "job_id": 101, "resource_index": 15,
            "memory_key": 0x0001000000000007, "request_length": payload,
        }),
    ]  # fmt: skip
    return Packet(layers, bytes(payload), Trailer("crc32c", 0) if crc else None)


def ack(psn: int) -> Packet:
    return Packet([
        *request(0).layers[:3],
        Layer("pds.ack", {"next_hdr": 4, "cack_psn": psn, "spdcid": 2, "dpdcid": 1}),
        Layer("ses.response", {"return_code": 1, "message_id": 1, "job_id": 101}),
    ])  # fmt: skip


def scapy_request(payload: bytes) -> Callable[[], bytes]:
    """Return a function that builds the frame of `request` from Scapy layers: those of `uetproto.layers` above UDP."""
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    from uetproto import layers as uet

    def build() -> bytes:
        return bytes(
            Ether(dst="02:00:0a:00:01:0b", src="02:00:0a:00:00:0b")
            / IP(src="10.0.0.11", dst="10.0.1.11", tos=34, flags="DF", id=0)
            / UDP(sport=0xC000, dport=4793, chksum=0)
            / uet.PdsRudReq(next_hdr=3, clear_psn_offset=-1, psn=7, spdcid=1, dpdcid=2)
            / uet.SesRequestStdSom(
                opcode=1, rel=1, eom=1, message_id=1, job_id=101, resource_index=15,
                memory_key=0x0001000000000007, request_length=len(payload),
            )
            / Raw(payload)
        )  # fmt: skip

    return build


def roce_packet(opcode: int, psn: int, more: Layer, payload: int) -> Packet:
    """Return a RoCEv2 packet over IPv4: Ethernet to BTH, one header `more`, `payload` bytes, ICRC."""
    layers = [
        Layer("ethernet", {"dst": 0x02000A00010B, "src": 0x02000A00000B, "type": 0x0800}),
        Layer("ipv4", {"dscp": 26, "ecn": 2, "df": 1, "ttl": 64, "protocol": 17, **_ADDRESSES}),
        Layer("udp", {"sport": 0xC000, "dport": 4791}),
        Layer("bth", {"opcode": opcode, "m": 1, "p_key": 0xFFFF, "destqp": 0x12, "a": 1, "psn": psn}),
        more,
    ]
    return Packet(layers, bytes(payload), Trailer("icrc", 0))


def roce_write(payload: int, psn: int = 7) -> Packet:
    return roce_packet(0x0A, psn, Layer("reth", {"va": 0x20000000 + psn, "r_key": 0x1234, "dmalen": payload}), payload)


def roce_ack(psn: int) -> Packet:
    return roce_packet(0x11, psn, Layer("aeth", {"syndrome": 0x1F, "msn": psn}), 0)


def scapy_roce_write(frame: bytes) -> Callable[[], bytes]:
    """Return a function that builds `frame` with `scapy.contrib.roce`.

    That module has no RETH, so the RETH is part of the payload.
    """
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    rest = frame[54:-4]

    def build() -> bytes:
        return bytes(
            Ether(dst="02:00:0a:00:01:0b", src="02:00:0a:00:00:0b")
            / IP(src="10.0.0.11", dst="10.0.1.11", tos=106, flags="DF", id=0)
            / UDP(sport=0xC000, dport=4791, chksum=0)
            / BTH(opcode=0x0A, migreq=1, dqpn=0x12, ackreq=1, psn=7)
            / Raw(rest)
        )

    return build


# How ------------------------------------------------------------------------------------------------------------------


def rate(function: Callable[[], Any], seconds: float) -> float:
    """Return the number of calls of `function` per second, measured for about `seconds`."""
    calls, elapsed = 1, 0.0
    while elapsed < seconds / 4:  # find a number of calls that lasts long enough for the clock
        start = perf_counter()
        for _ in range(calls):
            function()
        elapsed = perf_counter() - start
        calls = max(calls + 1, int(calls * min(10, seconds / max(elapsed, 1e-9))))
    start = perf_counter()
    for _ in range(calls):
        function()
    return calls / (perf_counter() - start)


def by_turns(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float, turns: int = 5) -> tuple[float, float]:
    """Return the best rate of each of two functions, measured alternately, so that both meet the same noise."""
    rates = [(rate(ours, seconds / turns), rate(theirs, seconds / turns)) for _ in range(turns)]
    return max(a for a, _ in rates), max(b for _, b in rates)


def in_a_process(arguments: list[str]) -> tuple[dict[str, Any], int]:
    """Run Python with `arguments`; return the JSON that it prints, and its peak of memory in bytes."""
    watched = (
        "import resource, subprocess, sys\n"
        "status = subprocess.call(sys.argv[1:])\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\n"
        "sys.exit(status)"
    )
    command = [sys.executable, "-c", watched, sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"bench: {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1]), int(done.stderr.strip().splitlines()[-1]) * 1024


# Rows -----------------------------------------------------------------------------------------------------------------


def bench_codec(size: "Size") -> Iterator[BenchResult]:
    from scapy.layers.l2 import Ether

    packet = request(4096)
    frame = encode(packet, fill=True)
    complete = decode(frame)
    build = scapy_request(bytes(4096))
    if build() != frame:
        raise LocalError("bench: Scapy builds another frame than ours")
    ours, theirs = by_turns(lambda: decode(frame), lambda: Ether(frame), size.seconds)
    yield BenchResult("decode", "a frame of 4198 bytes to values, CRC checked", ours, "Ether(bytes)", theirs, 30)
    ours, theirs = by_turns(lambda: encode(complete, fill=True), build, size.seconds)
    yield BenchResult("encode", "the same from values, CRC computed", ours, "bytes(Ether()/…)", theirs, 120)


_READ_ALL = """
import json, sys, time
from uetproto import columns
start = time.perf_counter()
table = columns.read(sys.argv[1], icrc=len(sys.argv) > 2)
touched = sum(int(table[form][field].size) for form in table for field in table[form])
print(json.dumps({"seconds": time.perf_counter() - start, "touched": touched, "nbytes": table.nbytes}))
"""


def bench_columns(size: "Size", folder: Path) -> Iterator[BenchResult]:
    def mixed(index: int) -> bytes:
        return encode(ack(index) if index % 2 else request(0, index, crc=False), fill=True)

    def equal(index: int) -> bytes:
        return encode(request(0, index, crc=False), fill=True)

    for name, what, frame_of, least in (
        ("columns", "requests of 98 and ACKs of 66 bytes, to columns", mixed, 400),
        ("columns, one length", "requests of 98 bytes, to columns", equal, 900),
    ):
        path, sample = captures(folder, frame_of, size)
        best = 0.0
        peak = 0
        scapy_best = 0.0
        for _ in range(3):
            found, memory = in_a_process(["-c", _READ_ALL, str(path)])
            if found["nbytes"] > path.stat().st_size:
                raise LocalError("bench: the arrays are larger than the file")
            best, peak = max(best, size.packets / found["seconds"]), max(peak, memory)
            scapy_best = max(scapy_best, read_by_scapy(sample))
        limit = 100 * MIB + path.stat().st_size * 3 // 2
        yield BenchResult(name, what, best, "PcapReader", scapy_best, least, peak, limit)
        path.unlink()


def bench_roce(size: "Size", folder: Path) -> Iterator[BenchResult]:
    from scapy.contrib import roce
    from scapy.layers.l2 import Ether

    frame = encode(roce_write(4096), fill=True)
    complete, build = decode(frame), scapy_roce_write(frame)
    if build() != frame or roce.BTH not in Ether(frame):
        raise LocalError("bench: Scapy builds another frame than ours")
    ours, theirs = by_turns(lambda: decode(frame), lambda: Ether(frame), size.seconds)
    yield BenchResult("roce", "RoCE: a WRITE of 4170 bytes to values, ICRC checked", ours, "Ether(bytes)", theirs, 25)
    ours, theirs = by_turns(lambda: encode(complete, fill=True), build, size.seconds)
    yield BenchResult("roce", "RoCE: the same from values, ICRC computed", ours, "bytes(Ether()/…)", theirs, 100)

    path, sample = captures(folder, lambda i: encode(roce_ack(i) if i % 2 else roce_write(24, i), fill=True), size)
    rates, scapy_best = {"": 0.0, "icrc": 0.0}, 0.0
    for _ in range(3):
        for checks in rates:
            found, _ = in_a_process(["-c", _READ_ALL, str(path), *filter(None, (checks,))])
            rates[checks] = max(rates[checks], size.packets / found["seconds"])
        scapy_best = max(scapy_best, read_by_scapy(sample))
    path.unlink()
    yield BenchResult(
        "roce", "RoCE: WRITEs of 98 and ACKs of 62 bytes, to columns", rates[""], "PcapReader", scapy_best, 250
    )
    yield BenchResult("roce", "RoCE: the same, every ICRC checked", rates["icrc"], "PcapReader", scapy_best, 100)


def captures(folder: Path, frame_of: Callable[[int], bytes], size: "Size") -> tuple[Path, Path]:
    """Write the same 1000 frames repeatedly to a large capture for the library and to a shorter one for Scapy."""
    frames = [frame_of(index) for index in range(1000)]
    paths = folder / "all.pcap", folder / "sample.pcap"
    for path, count in zip(paths, (size.packets, size.scapy_packets), strict=True):
        with PcapWriter(path) as writer:
            for start in range(0, count, len(frames)):
                chunk = frames[: count - start]
                writer.write_many(range(start * 1000, (start + len(chunk)) * 1000, 1000), chunk)
    return paths


def read_by_scapy(path: Path) -> float:
    """Return the number of packets per second that Scapy reads."""
    from scapy.utils import PcapReader

    from uetproto import layers  # noqa: F401  binds UET to UDP for Scapy

    start = perf_counter()
    with PcapReader(str(path)) as reader:
        count = sum(1 for _ in reader)
    return count / (perf_counter() - start)


def bench_write(size: "Size", folder: Path) -> Iterator[BenchResult]:
    from scapy.layers.l2 import Ether
    from scapy.utils import PcapWriter as ScapyWriter

    from uetproto import layers  # noqa: F401

    frame = encode(request(0, crc=False), fill=True)
    frames, times = [frame] * size.packets, range(size.packets)
    packets = [Ether(frame) for _ in range(size.scapy_packets // 10)]
    best = scapy_best = 0.0
    for _ in range(3):
        start = perf_counter()
        with PcapWriter(folder / "ours.pcap") as writer:
            writer.write_many(times, frames)
        best = max(best, len(frames) / (perf_counter() - start))
        start = perf_counter()
        scapy = ScapyWriter(str(folder / "scapy.pcap"), linktype=1)
        for packet in packets:
            packet.clear_cache()  # makes Scapy build the packet anew, and not return the dissected bytes
            scapy.write(packet)
        scapy.close()
        scapy_best = max(scapy_best, len(packets) / (perf_counter() - start))
    yield BenchResult("write", "frames of 98 bytes to a pcap", best, "PcapWriter", scapy_best, 500)


def bench_emulate(size: "Size", folder: Path) -> Iterator[BenchResult]:
    build = scapy_request(bytes(4096))
    source = folder / "input"
    with source.open("wb") as file:
        rng = random.Random(1)
        for _ in range(size.input // MIB):
            file.write(rng.randbytes(MIB))
        os.fsync(file.fileno())  # otherwise the system would write the file to disk during the run
    before = rate(build, size.seconds / 2)
    best = {"gradient-rud": 0.0, "gradient-roce": 0.0}  # data packets per second
    peak = dict.fromkeys(best, 0)
    for name in (*best, *best):  # alternately
        start = perf_counter()
        settings = ["--set", f"input={source}", "-o", str(folder / "run.pcap")]
        found, memory = in_a_process(["-m", "uetproto", "run", name, "--json", *settings])
        best[name] = max(best[name], size.input / 4096 / (perf_counter() - start))
        peak[name] = max(peak[name], memory)
        if not found["match"]:
            raise LocalError("bench: the target's memory differs from the input")
    uet, roce = best.values()
    baseline = max(before, rate(build, size.seconds / 2))
    for what, ours, whose, theirs, least, memory in (
        ("fi_write", uet, "bytes(Ether()/…)", baseline, 12, peak["gradient-rud"]),
        ("RDMA WRITE", roce, "the fi_write", uet, 1, peak["gradient-roce"]),
    ):
        text = f"{what} of {size.input // MIB} MiB from file to file, data packets"
        yield BenchResult("emulate", text, ours, whose, theirs, least, memory, 400 * MIB)


class Size(NamedTuple):
    seconds: float
    packets: int
    scapy_packets: int
    input: int


FULL = Size(10, 1_000_000, 20_000, 1024 * MIB)
QUICK = Size(1, 100_000, 2_000, 32 * MIB)


def measure(names: tuple[str, ...], size: Size, folder: Path) -> Iterator[BenchResult]:
    """Yield each row as soon as it is measured."""
    if "decode" in names or "encode" in names:
        _announce("decode, encode")
        yield from (row for row in bench_codec(size) if row.name in names)
    for name, function in (
        ("columns", bench_columns),
        ("roce", bench_roce),
        ("write", bench_write),
        ("emulate", bench_emulate),
    ):
        if name in names:
            _announce(name)
            yield from function(size, folder)


def _announce(name: str) -> None:
    """Print the name of the row that is being measured, if the output is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[Kmeasuring {name} …\r", nl=False, err=True)


def machine() -> str:
    """Return a description of the machine in one line."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, {python}"


def as_json(result: BenchResult | Figure) -> str:
    if isinstance(result, Figure):
        return json.dumps({**result._asdict(), "shares": dict(result.shares), "reached": result.reached})
    return json.dumps({**result._asdict(), "ratio": round(result.ratio, 1), "reached": result.reached})


@click.command(
    epilog="""\b
Example:
  uetproto bench
  uetproto bench --quick --only decode,encode

Exit status: 0; 1 a ratio or a memory bound was missed; 2 misuse; 130 interrupted, 143 terminated."""
)
@click.option("--only", metavar="NAME,…", help=f"These rows only: {', '.join(ROWS)}.")
@click.option("--quick", is_flag=True, help="Small sizes: a first impression in half a minute, not judged.")
@click.option("--json", "json_", is_flag=True, help="One JSON object a row.")
def command(only: str | None, quick: bool, json_: bool) -> None:
    """Measure codec, captures and emulator against Scapy, and the other parts of the library alone, on this machine.

    Compare ratios, not rates: both sides run alternately. The full run takes some minutes and 4 GiB of disk.
    """
    names = ROWS if only is None else tuple(only.split(","))
    for name in names:
        if name not in ROWS:
            raise LocalError(f"--only: {name!r} is none of {', '.join(ROWS)}")
    missed = False
    if not json_:
        click.echo(machine())
        click.echo(f"{'what':58} {'a second':>12}   {'Scapy':>22} {'ratio':>8} {'at least':>9}")
    with tempfile.TemporaryDirectory(prefix="uetproto-bench-") as folder:
        results: Iterable[BenchResult | Figure] = measure(names, QUICK if quick else FULL, Path(folder))
        figures = {
            "api": ("api", api.measure(quick, in_a_process)),
            "collective": ("collectives", collective.measure(quick, in_a_process)),
            "in_network": ("in the network", network.measure(quick, in_a_process)),
            "security": ("security", security.measure(quick, Path(folder))),
            "audit": ("audit", audit.measure(quick, Path(folder), in_a_process)),
        }
        parts = [_announced("state machines", engine.measure(names, quick))]
        parts += [_announced(*figures[name]) for name in figures if name in names]
        for result in chain(results, *parts):
            missed = missed or not result.reached
            click.echo(as_json(result) if json_ else _line(result, judged=not quick))
    if missed and not quick:
        raise click.exceptions.Exit(1)


def _announced(name: str, figures: Iterator[Figure]) -> Iterator[Figure]:
    _announce(name)
    yield from figures


def _line(result: BenchResult | Figure, judged: bool) -> str:
    if isinstance(result, Figure):
        asked = f"{'at most' if result.most else 'at least'} {result.asked:,.0f}"
        text = f"{result.what:58} {result.value:12,.0f} {result.unit:12} {asked:>20}"
        text += "" if result.reached or not judged else "   MISSED"
        split = ", ".join(f"{name} {share:.0%}" for name, share in result.shares if share >= 0.005)
        return f"{text}\n    time: {split}" if split else text
    text = (
        f"{result.what:58} {result.rate:12,.0f}   {result.baseline + f' {result.baseline_rate:,.0f}':>22} "
        f"{result.ratio:7.{1 if result.ratio < 10 else 0}f}× {result.least:8.0f}×"
    )
    if result.memory is not None and result.memory_limit is not None:
        text += f"   peak {result.memory // MIB} MiB of {result.memory_limit // MIB}"
    return text if result.reached or not judged else text + "   MISSED"
