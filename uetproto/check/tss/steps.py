# SPDX-License-Identifier: GPL-2.0-only
"""This module has the steps of a simulation of a secure domain. They say what endpoints, network and attacker do.

Packets are numbered from 0 in the order in which they are sent; copies and forged packets get numbers of their own. A
packet stays on the wire until a step removes it, and time passes only when a step says so.
"""

from collections.abc import Iterator
from typing import NamedTuple

from uetproto.check.shrink import shorter, smaller

ACTIONS = {
    # The endpoints, and the key server (tss.md §10)
    "write": "`node` writes `number` bytes to its peer; `how` is the mode",
    "read": "`node` reads `number` bytes of its peer; `how` is the mode",
    "close": "`node` closes the PDCs that it opened",
    "restart": "`node` forgets everything; `how` says what keeps old packets out",
    "install": "both get a new key for the idle AN",
    "switch": "`node` seals with the key of the other AN from now on",
    "empty": "both forget the key of the idle AN",
    "epoch": "both stamp an epoch that is `number` further",
    "advance": "`number` picoseconds pass, timers run",
    # The network
    "deliver": "packet `number` arrives",
    "drop": "packet `number` is lost",
    # The attacker
    "dup": "a copy of packet `number`, as it left, is on the wire, however long ago that was",
    "flip": "bit `at` of packet `number` changes, counted from its security header",
    "cut": "packet `number` keeps `at` bytes; `how` says whether it arrives as one that a switch has trimmed",
    "extend": "`data` is added to packet `number`",
    "rewrite": "the field `how` of packet `number` becomes `at`",
    "splice": "packet `number` gets the security header of the packet that left `at` packets before the last one",
    "forge": "a packet made of `data` is on its way to `node`; `how` says in which dress",
}

MACHINE = "tss"
"""Name by which `uetproto fuzz` selects this simulation."""

MODES = ("rud", "rod")
RESTARTS = {
    "epoch": "the epoch moves so far that all packets from before are too old",
    "floor": "it remembers Expected_PSN, and has no PDC that could still be open",
}
CUTS = ("", "trimmed")
FIELDS = ("sdi", "an", "ssi", "epoch", "tsc", "src", "dst", "entropy", "swap")
"""Unencrypted fields that the attacker may change. The value "swap" exchanges source and destination."""
DRESSES = {
    "clear": "without security",
    "raw": "as it is, from the security header on",
    "guess": "sealed under a key that was guessed, as if it were that of the domain",
    "insider": "sealed under the key of another domain, which the endpoints and the attacker have",
}


class TssStep(NamedTuple):
    """This record is one step of a simulation. `ACTIONS` says for each action what the fields mean."""

    action: str
    node: int = 0
    """Endpoint that acts: 0 for `a`, and 1 for `b`."""
    number: int = 0
    at: int = 0
    how: str = ""
    data: bytes = b""

    def __str__(self) -> str:
        plain = TssStep(self.action)
        told = (f"{name} {_shown(value)}" for name, value in zip(self._fields, self, strict=True)
                if value != getattr(plain, name))  # fmt: skip
        return " ".join((f"{self.action:8}", *told)).rstrip()


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def simpler(step: TssStep) -> Iterator[TssStep]:
    """Yield variants of `step` with smaller values, the smallest first."""
    yield from (step._replace(node=node) for node in smaller(step.node))
    by = max(1, step.number >> 5) if step.action == "advance" else 1  # single picoseconds do not matter
    yield from (step._replace(number=number) for number in smaller(step.number, by=by))
    if step.action != "rewrite":
        yield from (step._replace(at=at) for at in smaller(step.at))
    if step.how == MODES[1]:
        yield step._replace(how=MODES[0])
    yield from (step._replace(data=data) for data in shorter(step.data))
