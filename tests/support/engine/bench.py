"""This script measures the CPU time of the engines for each data packet: two endpoints back to back in memory, without
frames and links; the time is that of both ends together.

Run as a script: `python tests/support/engine/bench.py [MiB] [runs]`. Prints the best of the runs, µs per packet of 4096
bytes: in bursts of a window, and as a NIC drives them, which takes 16 packets at a time and asks after each one that
arrives.
"""

import random
import sys
import time
from collections.abc import Callable

from uetproto.engine import Fep, Mode, PdsConfig, Region, Write
from uetproto.engine.contract import PDC_MODES

A, B, KEY, MTU = 0x0A00000B, 0x0A00010B, 7, 4096


def transfer(mode: Mode, source: bytearray, memory: bytearray, step: Callable[[Fep, Fep, int], bool]) -> float:
    """Return the seconds of CPU for one write of `source` into `memory`."""
    a = Fep(A, random.Random(1), pds=PdsConfig())
    b = Fep(B, random.Random(2), pds=PdsConfig())
    b.attach(101).register(Region(KEY, memory))
    began = time.process_time()
    a.submit(Write(peer=B, data=source, key=KEY, job_id=101, mode=mode), 0)
    now = 0
    while step(a, b, now):
        now += 1_000_000
    seconds = time.process_time() - began
    assert a.quiescent
    assert b.quiescent
    return seconds


def burst(a: Fep, b: Fep, now: int) -> bool:
    """Deliver all packets that may leave, then all packets that answer them."""
    packets = a.poll(now)
    for packet in packets:
        b.receive(packet, now)
    for packet in b.poll(now):
        a.receive(packet, now)
    return bool(packets)


def driven(a: Fep, b: Fep, now: int) -> bool:
    """Deliver packets as `emulator.nic` does."""
    packets = a.poll(now, 16)
    a.deadline()
    a.events()
    for packet in packets:
        now += 50_000
        b.receive(packet, now)
        for answer in b.poll(now, 16):
            a.receive(answer, now)
        b.deadline()
        b.events()
    return bool(packets)


def main() -> None:
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 64) << 20
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    source, memory = bytearray(size), bytearray(size)
    for mode in PDC_MODES:
        for step in (burst, driven):
            best = min(transfer(mode, source, memory, step) for _ in range(runs))
            print(f"{mode.name}, {step.__name__}: {best / (size / MTU) * 1e6:.1f} µs per packet")


if __name__ == "__main__":
    main()
