# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the audit for `uetproto bench`: how fast it reads a capture, how much memory it keeps for
closed PDCs, and what open PDCs and interfaces cost.
"""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from uetproto.audit.auditor import Auditor, audit
from uetproto.audit.flows import SWEEP
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Reading
from uetproto.bench.engine import Figure
from uetproto.errors import LocalError
from uetproto.traffic import profile
from uetproto.traffic.generate import generate
from uetproto.wire.capture.pcap import ETHERNET, Record, open_capture, open_writer
from uetproto.wire.capture.pcapng import PcapngWriter
from uetproto.wire.crc import crc32c
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import encode

PACKETS, PDCS = 300_000, 1_000_000
_SNAP_LENGTH = 96
"""Bytes of each packet in a truncated capture, a usual snap length: the packet ends within the SES header."""
_RATE, _LEFT = 100_000, 16
"""Required packets per second and core, and the limit of memory, in bytes, that is kept for each closed PDC."""
_OPEN, _OPEN_BYTES, _OPEN_US = 20_000, 8_192, 200
"""Number of open PDCs whose cost is measured, and the limits in bytes and in microseconds of what a PDC may take, and
of what an interface may add."""
_STEADY = 8
"""Number of sweeps after which an audit of short PDCs allocates no more memory for those that are open at a time."""
_COARSE = 200_000
"""Least number of closed PDCs for which the memory of the process is measured. As it grows by some 0.5 MiB at a time,
the memory of objects is measured for fewer PDCs, which takes longer."""
_SERVER, _FIRST_CLIENT = 0x0A01_0000, 0x0A00_0001
_PDCIDS = 60_000
"""Number of PDCs of one client before the next client begins."""
_JOB, _START = 101, 1_000
_CRC_FROM = 26  # offset of the IP source address in a frame with Ethernet and IPv4 without options
_PDS = 42  # offset of the PDS header, behind UDP
_PAUSE_NS = 4_000
"""Time in nanoseconds from the start of one PDC to that of the next."""

InAProcess = Callable[[list[str]], tuple[dict[str, Any], int]]
"""Type of `captures.in_a_process`. That function gets arguments for Python, runs Python with them, and returns the
output of Python and its peak of memory."""


# Speed ----------------------------------------------------------------------------------------------------------------


def rate(path: Path, packets: int) -> float:
    """Return the packets audited per CPU second, in the best of three runs. Raises `LocalError` if the audit finds a
    violation."""
    best = 0.0
    for _ in range(3):
        began = process_time()
        report = audit([path], Options())
        best = max(best, packets / (process_time() - began))
        if report.findings or report.packets != packets:
            raise LocalError(
                f"bench: {len(report.findings)} findings in {report.packets} packets, all of them right",
                id="bench-failed",
            )
    return best


def cut(path: Path, to: Path) -> None:
    """Copy the capture at `path` to `to`, with each packet truncated to a short snap length."""
    with open_capture(path) as whole, open_writer(to) as writer:
        for record in whole:
            writer.write(record.time_ns, record.data[:_SNAP_LENGTH], length=record.length)


# Memory ---------------------------------------------------------------------------------------------------------------


def _frame(src: int, dst: int, *layers: Layer, payload: bytes = b"") -> bytearray:
    lower = (
        Layer("ethernet", {"dst": 0x0200 << 32 | dst, "src": 0x0200 << 32 | src, "type": 0x0800}),
        Layer("ipv4", {"ecn": 2, "df": 1, "ttl": 64, "protocol": 17, "src": src, "dst": dst}),
        Layer("udp", {"sport": 0xC000, "dport": 4793}),
    )
    return bytearray(encode(Packet([*lower, *layers], payload, Trailer("crc32c", 0)), fill=True))


def _conversation(client: int) -> list[tuple[bytearray, tuple[int, ...]]]:
    """Return the frames of a PDC with one message: request, response, close and its ACK, each with the offsets of its
    PDCIDs.
    """
    request = Layer("pds.rud_req.syn", {"next_hdr": 3, "ar": 1, "clear_psn_offset": -1, "psn": _START})
    message = {"message_id": 1, "job_id": _JOB}
    place = {"resource_index": 15, "memory_key": 7, "request_length": 8}
    write = Layer("ses.request_std.som", {"opcode": 1, "rel": 1, "eom": 1, **message, **place})
    ack = Layer("pds.ack", {"next_hdr": 4, "cack_psn": _START})
    answer = Layer("ses.response", {"return_code": 1, "modified_length": 8, **message})
    close = Layer("pds.cp", {"ctl_type": 4, "ar": 1, "psn": _START + 1})
    closed = Layer("pds.ack", {"cack_psn": _START + 1})
    return [
        (_frame(client, _SERVER, request, write, payload=bytes(8)), (_PDS + 8,)),
        (_frame(_SERVER, client, ack, answer), (_PDS + 8, _PDS + 10)),
        (_frame(client, _SERVER, close), (_PDS + 8, _PDS + 10)),
        (_frame(_SERVER, client, closed), (_PDS + 8, _PDS + 10)),
    ]


def conversations(first: int, last: int) -> Iterator[Record]:
    """Yield the packets of the PDCs with numbers `first` to `last` - 1, one PDC after the other, from SYN to close."""
    templates: list[tuple[bytearray, tuple[int, ...]]] = []
    for number in range(first, last):
        client, pdcid = divmod(number, _PDCIDS)
        if not templates or not pdcid:
            templates = _conversation(_FIRST_CLIENT + client)
        for step, (frame, places) in enumerate(templates):
            for place in places:
                frame[place : place + 2] = (pdcid + 1).to_bytes(2, "big")
            frame[-4:] = crc32c(memoryview(frame)[_CRC_FROM:-4]).to_bytes(4, "big")
            time = number * _PAUSE_NS + step * 1_000
            yield Record(4 * number + step, time, bytes(frame), len(frame), 0, ETHERNET, 0, None)


def left_behind(pdcs: int, used: Callable[[], int]) -> float:
    """Return how many bytes the audit keeps for each closed PDC.

    `used` returns the memory in bytes. It is called after a tenth of the PDCs or `_STEADY` sweeps, and again after the
    last PDC. The growth is divided by the number of PDCs in between. Both calls come at the end of a sweep interval,
    when the audit has just removed what closed PDCs no longer need.
    """
    auditor = Auditor(Options())
    reading = Reading(ETHERNET, Options(), auditor.see)
    take = reading.take
    often = SWEEP // 4  # PDCs in a sweep interval; each has 4 packets
    early = max(pdcs // 10, min(_STEADY * often, pdcs // 2))
    first, last = (-(-number // often) * often for number in (early, pdcs))
    for record in conversations(0, first):
        take(record)
    before = used()
    for record in conversations(first, last):
        take(record)
    after = used()
    reading.end()
    auditor.end()
    if auditor.judge.findings or auditor.forgotten:
        raise LocalError(
            f"bench: {len(auditor.judge.findings)} findings, forgotten: {dict(auditor.forgotten)}", id="bench-failed"
        )
    return max(0, after - before) / (last - first)


def open_pdcs(path: Path, pdcs: int, interfaces: int) -> None:
    """Write a capture of `pdcs` PDCs that are not closed, each with one acknowledged message. Successive PDCs are on
    successive interfaces."""
    with PcapngWriter(path) as writer:
        for number in range(interfaces):
            writer.add_interface(f"eth{number}")
        for record in conversations(0, pdcs):
            pdc, step = divmod(record.index, 4)
            if step < 2:
                writer.write(record.time_ns, record.data, interface=pdc % interfaces)


def cost(path: str, warm: str) -> None:
    """Print as JSON how many CPU seconds the audit of the capture at `path` takes, and how many bytes of memory the
    process held before. The capture at `warm` is audited first, so that all code is loaded."""
    audit([warm], Options())
    before, began = resident(), process_time()
    report = audit([path], Options())
    seconds = process_time() - began
    if report.findings:
        raise LocalError(f"bench: {len(report.findings)} findings in packets that are all right", id="bench-failed")
    print(json.dumps({"seconds": seconds, "before": before}))


def _costs(folder: Path, pdcs: int, in_a_process: InAProcess) -> Iterator[Figure]:
    """Yield what an open PDC costs, and what it costs more with an interface of its own."""
    warm, path = folder / "warm.pcapng", folder / "open.pcapng"
    open_pdcs(warm, 16, 2)
    each = []
    for interfaces in (1, pdcs):
        open_pdcs(path, pdcs, interfaces)
        script = "import sys; from uetproto.bench.audit import cost; cost(*sys.argv[1:])"
        found, peak = in_a_process(["-c", script, str(path), str(warm)])
        each.append(((peak - found["before"]) / pdcs, found["seconds"] / pdcs * 1e6))
        path.unlink()
    warm.unlink()
    (size, time), (size_apart, time_apart) = each
    yield Figure("audit", "an open PDC with one message", size, "bytes", _OPEN_BYTES, most=True)
    yield Figure("audit", "the same, CPU for its 2 packets", time, "µs", _OPEN_US, most=True)
    yield Figure("audit", "an interface of its own adds", size_apart - size, "bytes", _OPEN_BYTES, most=True)
    yield Figure("audit", "the same, CPU", time_apart - time, "µs", _OPEN_US, most=True)


def resident() -> int:
    """Return the resident memory of this process in bytes. Where the system is not Linux, return its peak."""
    import resource

    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the peak stands for the current value
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _traced() -> int:
    """Return the bytes of memory that Python objects take."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main(pdcs: int) -> None:
    """Print the result of `left_behind` as JSON. `measure` runs this function in a process of its own."""
    if pdcs >= _COARSE:
        left = left_behind(pdcs, resident)
    else:
        tracemalloc.start()
        left = left_behind(pdcs, _traced)
        tracemalloc.stop()
    print(json.dumps({"left": left}))


def measure(quick: bool, folder: Path, in_a_process: InAProcess) -> Iterator[Figure]:
    """Yield the packets audited per second of a capture of the profile `bench`, whole and truncated. Then yield the
    memory of closed PDCs and the cost of open PDCs and of interfaces."""
    packets, pdcs = (PACKETS // 10, PDCS // 100) if quick else (PACKETS, PDCS)
    path = folder / "audit.pcapng"
    generate(profile.load("bench"), str(path), packets=packets)
    yield Figure("audit", f"audit {packets:,} packets of long writes", rate(path, packets), "packets/s", _RATE)
    short = folder / "audit-cut.pcapng"
    cut(path, short)
    path.unlink()
    yield Figure("audit", f"audit the first {_SNAP_LENGTH} bytes of each", rate(short, packets), "packets/s", _RATE)
    short.unlink()
    found, _ = in_a_process(["-c", f"from uetproto.bench.audit import main; main({pdcs})"])
    yield Figure(
        "audit", f"{pdcs:,} PDCs opened and closed, what each leaves", found["left"], "bytes", _LEFT, most=True
    )
    yield from _costs(folder, _OPEN // 10 if quick else _OPEN, in_a_process)
