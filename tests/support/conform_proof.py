# SPDX-License-Identifier: GPL-2.0-only
"""Play all conformance tests against our own stack, again and again, over each kind of link, and compare the verdicts.

python -m tests.support.conform_proof 20 udp          20 runs over UDP, our side as the initiator
python -m tests.support.conform_proof 3 target loss   3 runs, the peer acts; two namespaces with 1 % loss
python -m tests.support.conform_proof 3 roce raw      3 runs of the tests of RoCE, through raw sockets
"""

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack

from tests.support.cli.serving import serving
from tests.support.live import addresses
from tests.support.namespaces import ADDRESSES, hosts
from uetproto.wire.words.text import count

UETPROTO = (sys.executable, "-m", "uetproto")
DRIVER = f"{sys.executable} -m uetproto.examples.conform_driver"
SETTINGS: dict[str, tuple[tuple[str, ...], bool, str]] = {
    # options of both ends, two namespaces, faults of the switch between them
    "udp": ((), False, ""),
    "raw": (("--ip-protocol", "253", "--path", "raw"), False, ""),
    "namespaces": ((), True, ""),
    "packet": (("--path", "packet"), True, ""),
    "loss": ((), True, "drop=0.01"),
}


def verdicts(setting: str, target: bool, roce: bool, seed: int) -> dict[str, str]:
    """Play all tests once, and return the verdicts by test."""
    options, apart, faults = SETTINGS[setting]
    if roce:
        options = ("--transport", "rc", *options[2 if setting == "raw" else 0 :])  # over UDP
    with ExitStack() as stack:
        here, there = ADDRESSES[4] if apart else addresses()
        near: tuple[str, ...] = ()
        far: tuple[str, ...] = ()
        if apart:
            found = stack.enter_context(hosts(between=bool(faults)))
            near, far = found.near, found.far
            if faults:
                wire = (
                    *found.between,
                    *UETPROTO,
                    "wire",
                    "w0",
                    "w1",
                    "--faults",
                    faults,
                    "--seed",
                    str(seed),
                    "--json",
                )
                switch = stack.enter_context(subprocess.Popen(wire, stdout=subprocess.PIPE, text=True))
                stack.callback(switch.kill)
                assert switch.stdout is not None
                switch.stdout.readline()
        command = [
            *near,
            *UETPROTO,
            "conform",
            "--peer",
            there,
            "--local",
            here,
            "--seed",
            str(seed),
            "--json",
            *options,
        ]
        command += ["--tries", "6"] if faults else []
        if target:
            # Each host has a network of its own: the driver goes to that of the peer by itself.
            entered = [word for word in far if word != "-U"]  # the user namespace is one already
            command += ["--as", "target", "--driver", " ".join((*entered, *DRIVER.split()))]
        else:
            stack.enter_context(serving(there, *options, prefix=far))
        out = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    assert lines, out.stderr
    return {one["id"]: one["verdict"] for one in lines if one["kind"] == "result"}


def main(runs: int, *words: str) -> int:
    """Play the tests `runs` times in each setting that `words` name, and return how many have other verdicts."""
    bad = 0
    for setting in [word for word in words if word in SETTINGS] or ["udp"]:
        every = [verdicts(setting, "target" in words, "roce" in words, seed) for seed in range(1, runs + 1)]
        counts = [Counter(one.values()) for one in every]
        same = all(one == every[0] for one in every)
        other = {name: verdict for one in every for name, verdict in one.items() if verdict != "pass"}
        bad += bool(other) or not same
        told = f"{dict(counts[0])} each: {same}; not passed: {dict(list(other.items())[:9])}"
        print(f"{setting}: {count(runs, 'run')}, {told}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
