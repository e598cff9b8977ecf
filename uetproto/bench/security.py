# SPDX-License-Identifier: GPL-2.0-only
"""This module measures secure packets (TSS) for `uetproto bench`. It measures sealing and opening alone, and a
gradient exchange both in the clear and sealed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from uetproto.bench.engine import Figure
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.engine.tss.cipher import AssociatedData
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.engine.tss.port import SecurePort
from uetproto.errors import LocalError

MIB = 1 << 20
PACKETS, SIZE = 50_000, 1024
"""Number of packets that are sealed and opened, and size of each in bytes."""
INPUT = 1024
"""Size of the gradient in MiB."""
_RATE, _SHARE = 100_000, 50
"""Required packets per second and core, and required rate of sealed packets in percent of the rate in clear."""
_SENDER, _RECEIVER = 0x0A000001, 0x0A000002
MODES: dict[str, dict[str, Any]] = {
    "direct": {"mode": "direct", "ssis": {_SENDER: 1, _RECEIVER: 2}},
    "cluster": {"mode": "cluster"},
}


def rates(values: dict[str, Any], packets: int) -> tuple[float, float]:
    """Return the packets sealed per CPU second, and the packets opened per CPU second.

    Raises `LocalError` if a packet does not open or a nonce repeats.
    """
    domain = DomainConfig(sdi=1, keys=((DomainKey(bytes(range(32))),), ()), **values)
    ledger, port = NonceLedger(), SecurePort()
    sender = SecureDomain(domain, _SENDER, 4, ledger=ledger)
    port.domains[1] = SecureDomain(domain, _RECEIVER, 4)
    inner, below = bytes(SIZE), AssociatedData(4, _SENDER, _RECEIVER, bytes(4))
    began = process_time()
    sealed = [sender.seal(below, inner) or b"" for _ in range(packets)]
    between = process_time()
    for packet in sealed:
        port.receive(below, packet)
    ended = process_time()
    if port.domains[1].counters.in_auth_pkts != packets or ledger.repeated:
        raise LocalError(
            f"bench: {port.domains[1].counters.in_auth_pkts} of {packets} packets opened", id="bench-failed"
        )
    return packets / (between - began), packets / (ended - between)


def gradient(name: str, source: Path) -> float:
    """Run the scenario `name` with the input file `source`, and return its CPU seconds. Raises `LocalError` if the
    target's memory differs from the input."""
    scenario = load(name, [f"input={source}", "seed=1"])
    began = process_time()
    if not run(scenario).match:
        raise LocalError("bench: the target's memory differs from the input", id="bench-failed")
    return process_time() - began


def measure(quick: bool, folder: Path, gradient: Callable[[str, Path], float] = gradient) -> Iterator[Figure]:
    """Yield the rates of each security mode, then the rate of a sealed gradient exchange in percent of the rate in the
    clear.

    Each exchange is run twice, and the faster run counts; runs of the sealed exchange and of the one in the clear
    alternate.
    """
    packets, length = (PACKETS // 10, 8) if quick else (PACKETS, INPUT)
    for name, values in MODES.items():
        found = [rates(values, packets) for _ in range(3)]
        for which, what in enumerate(("seal", "open")):
            rate = max(one[which] for one in found)
            yield Figure("security", f"{what} packets of {SIZE} bytes, {name}", rate, "packets/s", _RATE)
    source = folder / "sealed-input"
    with source.open("wb") as file:
        file.truncate(length * MIB)
    plain, sealed = (
        min(times) for times in zip(*(
            (gradient("gradient", source), gradient("gradient-sealed-direct", source)) for _ in range(2)
        ), strict=True)
    )  # fmt: skip
    yield Figure(
        "security", f"sealed gradient of {length} MiB, share of the plain rate", 100 * plain / sealed, "%", _SHARE
    )
