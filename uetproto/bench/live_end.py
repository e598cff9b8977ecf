# SPDX-License-Identifier: GPL-2.0-only
"""This module is a program of its own: one end of the measurements of `uetproto.bench.live`, as JSON on standard
output."""

import hashlib
import json
import os
import resource
import socket
import statistics
import struct
import sys
from collections.abc import Callable
from ipaddress import ip_address
from time import perf_counter, process_time
from typing import Any

from uetproto.api import fi
from uetproto.bench.live_bare import BareLoop
from uetproto.engine.contract import MessageStored, PdcClosed
from uetproto.errors import LocalError
from uetproto.garbage import seldom_collected
from uetproto.live import Interface
from uetproto.live.rate import PeerRate

KEY, SIZE, SMALL, ECHO_PORT = 7, 16 << 20, 1024, 9793
_RTT = 300 * 10**6
_TURNS, _EACH = 120, 10
"""Number of turns, and of echoes and writes in each. Ten pass in less than the time for which a scheduler lets another
program run, so both parts of a turn meet the same load."""
_ECHO_TIMEOUT = struct.pack("ll", 10, 0)
"""Seconds and microseconds until an echo is given up, as the kernel counts them: a time-out of Python's own would cost
the bare echo one more system call."""


def serve(local: str) -> dict[str, Any]:
    """Take the writes of one peer, hash the memory after each long one, and echo datagrams meanwhile in a process of
    its own."""
    fabric = fi.Fabric(live=Interface(local))
    endpoint = fabric.endpoint("local")
    memory = bytearray(SIZE)
    endpoint.domain.process.register(_region(memory))
    closed: list[Any] = []
    digests: list[str] = []

    def note(event: Any) -> None:
        if isinstance(event, PdcClosed):
            closed.append(event)
        elif isinstance(event, MessageStored) and event.length == SIZE:
            digests.append(hashlib.sha256(memory).hexdigest())

    fabric.live.fi_node.listeners.append(note)
    print("ready", flush=True)
    fabric.run(lambda: len(closed) > 1)  # the bare loop closes, then the library
    fabric.close()
    return {"digests": digests}


def _region(memory: bytearray) -> Any:
    from uetproto.engine.memory import Region

    return Region(KEY, memory)


def echo(local: str) -> dict[str, Any]:
    """Echo datagrams until an empty one comes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind((local, ECHO_PORT))
        print("ready", flush=True)
        while True:
            data, source = found.recvfrom(2 * SMALL)
            found.sendto(data, source)
            if not data:
                return {}


def send(local: str, peer: str, writes: int, second: str) -> dict[str, Any]:
    """Write long messages, each hashed, then short ones in turns with a bare echo, and with a bare loop that has an
    engine at the address `second`."""
    fabric = fi.Fabric(live=Interface(local))
    endpoint = fabric.endpoint("local")
    to = fi.Address(fa=int(ip_address(peer)), pid_on_fep=0, start_index=15, initiator_id=16)
    endpoint.av.insert(to)
    fabric.live.learn(int(ip_address(peer)), PeerRate(fabric.live.path.buffer, _RTT))
    data, digests = os.urandom(SIZE), []

    def write(part: bytes | memoryview) -> None:
        endpoint.write(part, to, 0, KEY)
        (entry,) = endpoint.cq.sread(timeout=60 * 10**12)
        if not entry.ok:
            raise LocalError(f"bench: {entry}", id="bench-failed")

    began = process_time()
    for _ in range(writes):
        digests.append(hashlib.sha256(data).hexdigest())
        write(data)
    cpu = process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    small = memoryview(data)[:SMALL]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bare:
        bare.bind((local, 0))
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _ECHO_TIMEOUT)

        def bounce() -> None:
            bare.sendto(small, (peer, ECHO_PORT))
            bare.recvfrom(2 * SMALL)

        loop = BareLoop(second, peer, KEY)
        ratios, spent, bases, bare_spent = [], [], [], []
        for _ in range(_TURNS):
            base, _ = _median(bounce)
            ours, cpu_each = _median(lambda: write(small))
            _, bare_each = _median(lambda: loop.write(small))
            bases.append(base)
            spent.append(cpu_each)
            bare_spent.append(bare_each)
            ratios.append(ours / base)
        bare.sendto(b"", (peer, ECHO_PORT))
    loop.close()
    fabric.close()
    return {
        "digests": digests, "packets": writes * SIZE // 4096, "cpu": cpu, "memory": memory,
        "ratio": statistics.median(ratios), "message_cpu": statistics.quantiles(spent, n=10)[0],
        "bare_cpu": statistics.quantiles(bare_spent, n=10)[0], "echo": statistics.median(bases),
        "retransmissions": dict(fabric.live.fep.retransmitted),
    }  # fmt: skip


def _median(call: Callable[[], None]) -> tuple[float, float]:
    """Return the median of the time that calls take, and the CPU time of each on average, in seconds."""
    times, started = [], process_time()
    for _ in range(_EACH):
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    return statistics.median(times), (process_time() - started) / _EACH


def main(core: str, role: str, *arguments: str) -> None:
    """Play a role with its arguments on one core, and print its result."""
    os.sched_setaffinity(0, {int(core)})
    with seldom_collected():
        if role == "send":
            found = send(arguments[0], arguments[1], int(arguments[2]), arguments[3])
        else:
            found = {"serve": serve, "echo": echo}[role](arguments[0])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
