# SPDX-License-Identifier: GPL-2.0-only
"""Two hosts joined by a cable: network namespaces with a veth pair, without privileges where users may have them."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

ADDRESSES = {4: ("10.99.0.1", "10.99.0.2"), 6: ("fd99::1", "fd99::2")}
_HOLD = ("sh", "-c", "echo held; exec cat >/dev/null")
_NEEDED = ("unshare", "nsenter", "ip")


class Hosts(NamedTuple):
    """Commands that run the rest of a command line at either host."""

    near: tuple[str, ...]
    far: tuple[str, ...]
    between: tuple[str, ...] = ()
    """Commands for the host between them, if there is one, with the interfaces w0 and w1."""

    def at(self, far: bool, *command: str) -> str:
        """Run a command at a host, and return what it prints."""
        done = subprocess.run([*self[far], *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def hosts(mtu: int = 9216, *, offload: bool = True, between: bool = False) -> Iterator[Hosts]:
    """Make two hosts, with a third one in the middle if `between` is true. Where the machine does not allow it, the
    test says so and does not run."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"NOT RUN: no network namespaces, as {', '.join(missing)} is not installed")
    with ExitStack() as stack:
        pids, prefix = [], ()
        for start in (("unshare", "-Urn"), *[("unshare", "-n")] * (2 if between else 1)):
            held = subprocess.Popen([*prefix, *start, *_HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)  # fmt: skip
            stack.callback(_end, held)
            assert held.stdout is not None
            assert held.stderr is not None
            if held.stdout.readline() != "held\n":
                pytest.skip(f"NOT RUN: no network namespaces: {held.stderr.read().strip()}")
            pids.append(held.pid)
            prefix = ("nsenter", "--preserve-credentials", "-U", "-n", "-t", str(held.pid))
        found = Hosts(*(("nsenter", "--preserve-credentials", "-U", "-n", "-t", str(pid)) for pid in pids))
        if between:
            for far_end in (0, 1):
                found.at(bool(far_end), "ip", "link", "add", f"v{far_end}", "type", "veth", "peer", "name",
                         f"w{far_end}", "netns", str(pids[2]))  # fmt: skip
                quiet = f"echo 1 > /proc/sys/net/ipv6/conf/w{far_end}/disable_ipv6"
                up = f"ip link set w{far_end} up mtu {mtu}"
                subprocess.run([*found.between, "sh", "-c", f"{quiet}; {up}"], check=True)
        else:
            found.at(False, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(pids[1]))
        for far_end, name in enumerate(("v0", "v1")):
            found.at(bool(far_end), "ip", "link", "set", "lo", "up")
            found.at(bool(far_end), "ip", "link", "set", name, "up", "mtu", str(mtu))
            for version, ends in ADDRESSES.items():
                more = () if version == 4 else ("nodad",)
                size = 24 if version == 4 else 64
                found.at(bool(far_end), "ip", "addr", "add", f"{ends[far_end]}/{size}", "dev", name, *more)
            if not offload and shutil.which("ethtool") is not None:
                found.at(bool(far_end), "ethtool", "-K", name, "tx", "off", "gso", "off")
        yield found


def _end(held: "subprocess.Popen[str]") -> None:
    with held:
        held.kill()
