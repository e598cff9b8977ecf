# SPDX-License-Identifier: GPL-2.0-only
"""This module has the numbered invariants of TSS, which no attacker without the key may violate (tss.md §6–§11, §14).

The docstring of each function states its invariant. The functions raise `InvariantViolation`.
"""

from enum import Enum, auto
from typing import Protocol

from uetproto.check.registry import Registry
from uetproto.check.tss.endpoint import TssEndpoint, TssOperation, content
from uetproto.check.tss.terms import Terms
from uetproto.check.tss.wire import SealedPacket
from uetproto.engine.contract import Completion
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.tss.ledger import NonceLedger

NEWER = 0x8000
"""Half of the number of epochs. The present epoch minus the epoch of a packet is taken modulo 2^16; if it is at least
this number, the packet has a newer epoch (tss.md §9)."""


class TssState(Protocol):
    """This protocol describes what the invariants read of a simulator."""

    terms: Terms
    ledger: NonceLedger
    genuine: dict[SealedPacket, int]
    keys: dict[int, int]
    epochs: dict[int, int]
    opened: set[tuple[int, int, int]]
    ends: tuple[TssEndpoint, ...]

    def name(self, end: TssEndpoint) -> str: ...


class TssScope(Enum):
    """A scope says when an invariant is checked, and which arguments it gets in addition to the simulator."""

    ARRIVED = auto()
    """A packet arrived at an endpoint. The arguments are the endpoint, and two numbers from before the arrival: how
    many refused packets the endpoint had counted, and how many packets it had refused."""
    OPENED = auto()
    """An endpoint opened a packet. The arguments are the endpoint and the packet."""
    SETTLED = auto()
    """An endpoint has sent all packets and reported all events that it had ready. The argument is the endpoint."""
    COMPLETED = auto()
    """A message completed. The arguments are the operation and the completion."""
    PDC_OPENED = auto()
    """A target that keeps Expected_PSN opened a PDC. The arguments are the endpoint and the PDC."""
    ENDED = auto()
    """The attacker has stopped, and all packets and timers are processed. There is no further argument."""


TSS: Registry[TssScope] = Registry("tss", lambda: True)


def _need(condition: bool, number: int, text: str) -> None:
    if not condition:
        raise TSS.broken(number, text)


@TSS.invariant(1, TssScope.OPENED)
def tss_1_authentic(state: TssState, end: TssEndpoint, packet: SealedPacket) -> None:
    """A packet that opens is unchanged since an endpoint sealed it, from source address to ICV, and belongs to a PDC
    in use (tss.md §7)."""
    _need(packet in state.genuine, 1, f"{state.name(end)} accepts a packet that no endpoint sealed")


@TSS.invariant(2, TssScope.OPENED)
def tss_2_fresh(state: TssState, end: TssEndpoint, packet: SealedPacket) -> None:
    """A packet that opens has an epoch that is still accepted, and a key that was not removed (tss.md §9
    step 6, §10)."""
    header = packet.header
    _need(state.genuine[packet] in state.keys.values(), 2, f"{state.name(end)} accepts a packet with an old key")
    age = (state.epochs[header.an] - header.epoch) & 0xFFFF
    _need(age <= state.terms.lifetime or age >= NEWER, 2, f"{state.name(end)} accepts a packet {age} epochs old")


@TSS.invariant(3, TssScope.ARRIVED)
def tss_3_counted(state: TssState, end: TssEndpoint, counted: int, refused: int) -> None:
    """Every packet that is refused is counted, and in one counter only (tss.md §9)."""
    _need(end.counted - counted == end.refused - refused, 3,
          f"{state.name(end)} refuses {end.refused - refused} packets and counts {end.counted - counted}")  # fmt: skip


@TSS.invariant(4, TssScope.SETTLED)
def tss_4_once(state: TssState, end: TssEndpoint) -> None:
    """Message bytes are delivered once, unchanged, and where they belong (tss.md §10, §11, §14 properties 13–15)."""
    _need(not end.memory.harm, 4, f"{state.name(end)}: {end.memory.harm}")


@TSS.invariant(5, TssScope.SETTLED)
def tss_5_nonces(state: TssState, _: TssEndpoint) -> None:
    """No nonce is used twice with one key (tss.md §6, §14 property 4)."""
    _need(not state.ledger.repeated, 5, "a nonce is used twice")


@TSS.invariant(6, TssScope.COMPLETED)
def tss_6_outcome(state: TssState, operation: TssOperation, completion: Completion) -> None:
    """A message completes once. After a success all its bytes are in memory."""
    operation.outcomes += 1
    name = state.name(state.ends[operation.node])
    _need(operation.outcomes == 1, 6, f"a message of {name} completes twice")
    if not completion.ok:
        return
    place = operation.offset, operation.length
    if operation.into is not None:
        _need(operation.into == content(1 - operation.node, *place), 6, f"{name} read other bytes than there are")
    else:
        _need(state.ends[1 - operation.node].memory.has(*place), 6, f"a write of {name} is not there")


@TSS.invariant(7, TssScope.ENDED)
def tss_7_ends(state: TssState) -> None:
    """When the attacker stops, every message completes, or fails with an error."""
    for end in state.ends:
        left = [one for one in end.operations if not (one.outcomes or one.lost)]
        _need(not left, 7, f"{len(left)} messages of {state.name(end)} have no outcome")


@TSS.invariant(8, TssScope.PDC_OPENED)
def tss_8_opened_once(state: TssState, end: TssEndpoint, pdc: Pdc) -> None:
    """If the target keeps Expected_PSN, no replayed SYN packet opens a PDC again (tss.md §11, §14 property 14)."""
    instance = end.node, pdc.peer_id, pdc.rx.start
    _need(instance not in state.opened, 8, f"{state.name(end)} opens a second PDC with Start_PSN {pdc.rx.start:#x}")
    state.opened.add(instance)
