# SPDX-License-Identifier: GPL-2.0-only
"""This module measures a real link for `uetproto bench`: two programs, in network namespaces joined by a veth pair
where this user may have them, and else over loopback.

CPU time is that of the program that sends, with all that the kernel does in its calls. Latency is compared with a bare
echo of Python over UDP, in its best form: blocking sockets, one `sendto` and one `recvfrom` at each end, and nothing
that looks at the data. Both have their peer in a process of its own, on the same link, with 1 KiB in a datagram, and
without a UDP checksum in software. The programs of each end have a core of their own, as two hosts have, if there are
two: on one core an echo takes 8 µs, which is the time for two changes of programs and says nothing of a link. They are
measured in turns of ten, and the figure is the median of the ratios of turns, so that both meet the same scheduler. The
CPU of a write is that of the best tenth of the turns, since other programs on the same cores only add to it. It is
compared with that of the shortest loop that drives the same engine (`live_bare.py`), in the same turns. Half of that
was wanted: the engine and the kernel's calls are most of both, so this is a known miss, which the row tells.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

from uetproto.bench.engine import Figure
from uetproto.errors import LocalError

_RATE, _MEMORY, _RATIO, _MESSAGE, _WANTED = 40_000, 200, 8, 2.0, 0.5
"""Limits: packets per second of CPU, MiB, times the bare echo, and CPU a message in that of a bare loop; half of it is
wanted, and not reached."""
_WRITES, _FEW = 64, 4
_HOLD = ("sh", "-c", "echo held; exec cat >/dev/null")
_MTU = "9216"
_PATIENCE = 300


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of a link. Raises `LocalError` if what arrives differs."""
    with ExitStack() as stack:
        near, far, (here, there, second), where = _hosts(stack)
        cores = sorted(os.sched_getaffinity(0))
        core, other = str(cores[0]), str(cores[-1])
        ends = []
        for role in ("serve", "echo"):
            command = [*far, sys.executable, "-m", "uetproto.bench.live_end", other, role, there]
            end = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(end.kill)
            assert end.stdout is not None
            if end.stdout.readline() != "ready\n":
                raise LocalError(f"bench: {role} at {there} did not start", id="bench-failed")
            ends.append(end)
        command = [*near, sys.executable, "-m", "uetproto.bench.live_end", core, "send", here, there]
        done = subprocess.run(
            [*command, str(_FEW if quick else _WRITES), second], stdout=subprocess.PIPE, text=True, check=False,
            timeout=_PATIENCE,
        )  # fmt: skip
        if done.returncode:
            raise LocalError(f"bench: the program that sends ended with status {done.returncode}", id="bench-failed")
        sent = json.loads(done.stdout)
        served = json.loads(ends[0].communicate(timeout=_PATIENCE)[0])
    if served["digests"] != sent["digests"]:
        raise LocalError("bench: the memory of the peer differs", id="bench-failed")
    what = f"writes of 16 MiB {where}, each hashed, the end that sends"
    yield Figure("live", what, sent["packets"] / sent["cpu"], "packets/s", _RATE)
    yield Figure("live", "its memory", sent["memory"] / (1 << 20), "MiB", _MEMORY, most=True)
    apart = f" of {sent['echo'] * 10**6:.0f} µs" + (", both ends on one core" if core == other else "")
    yield Figure(
        "live", f"write of 1 KiB to completion, in bare UDP echoes{apart}", sent["ratio"], "echoes", _RATIO, most=True
    )
    us = f"{sent['message_cpu'] * 10**6:.0f} µs, {sent['bare_cpu'] * 10**6:.0f} µs in that loop"
    what = f"CPU of such a write, in those of a bare loop around the engine ({us})"
    yield Figure("live", what, sent["message_cpu"] / sent["bare_cpu"], "loops", _MESSAGE, most=True, wanted=_WANTED)


def _hosts(stack: ExitStack) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, str, str], str]:
    """Return what to put before commands at either host, their addresses and a second one of the near host, and where
    that is."""
    prefix: tuple[str, ...] = ()
    prefixes = []
    try:
        for start in (("unshare", "-Urn"), ("unshare", "-n")):
            held = stack.enter_context(subprocess.Popen(
                [*prefix, *start, *_HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True,
            ))  # fmt: skip
            stack.callback(held.kill)
            assert held.stdout is not None
            if held.stdout.readline() != "held\n":
                raise OSError
            prefix = ("nsenter", "--preserve-credentials", "-U", "-n", "-t", str(held.pid))
            prefixes.append(prefix)
        near, far = prefixes
        commands = [[*near, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", far[-1]]]
        for ends, name, address in ((near, "v0", "10.99.0.1/24"), (far, "v1", "10.99.0.2/24")):
            commands.append([*ends, "ip", "link", "set", name, "up", "mtu", _MTU])
            commands.append([*ends, "ip", "addr", "add", address, "dev", name])
        commands.append([*near, "ip", "addr", "add", "10.99.0.3/24", "dev", "v0"])
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return (), (), ("127.0.0.1", "127.0.0.2", "127.0.0.3"), "over loopback"
    return near, far, ("10.99.0.1", "10.99.0.2", "10.99.0.3"), "over a veth pair"
