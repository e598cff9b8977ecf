"""What no attacker without the key may bring about, by number; each docstring is the statement (tss.md §6–§11, §14).

They are asked of a `TssWorld`, and raise `Violation`.
"""

from typing import TYPE_CHECKING

from uetproto.check.registry import Violation
from uetproto.check.tss.end import End, Operation, content
from uetproto.check.tss.wire import SealedPacket
from uetproto.engine.contract import Completion
from uetproto.engine.pds.pdc import Pdc

if TYPE_CHECKING:
    from uetproto.check.tss.machine import TssWorld

NEWER = 0x8000
"""Epochs are newer from this distance on (§9)."""


def _need(condition: bool, number: int, text: str) -> None:
    if not condition:
        raise Violation(f"tss {number}", text)


def tss_1_authentic(world: "TssWorld", end: End, packet: SealedPacket) -> None:
    """What opens is what an endpoint sealed, from the source address to the ICV, and for a PDC of this domain (§7)."""
    _need(packet in world.genuine, 1, f"{world.name(end)} takes a packet that nobody sealed")


def tss_2_fresh(world: "TssWorld", end: End, packet: SealedPacket) -> None:
    """What opens is of an epoch that still lives, and under a key that is not forgotten (§9 step 6, §10)."""
    header = packet.header
    _need(world.genuine[packet] in world.keys.values(), 2, f"{world.name(end)} takes a packet under a key of before")
    age = (world.epochs[header.an] - header.epoch) & 0xFFFF
    _need(age <= world.terms.lifetime or age >= NEWER, 2, f"{world.name(end)} takes a packet {age} epochs old")


def tss_3_counted(world: "TssWorld", end: End, counted: int, refused: int) -> None:
    """Every packet that is refused is counted, and in one counter only (§9)."""
    _need(end.counted - counted == end.refused - refused, 3,
          f"{world.name(end)} refuses {end.refused - refused} packets and counts {end.counted - counted}")  # fmt: skip


def tss_4_once(world: "TssWorld", end: End) -> None:
    """Message bytes are delivered once, unchanged, and where they belong (§10, §11, §14 properties 13–15)."""
    _need(not end.memory.harm, 4, f"{world.name(end)}: {end.memory.harm}")


def tss_5_nonces(world: "TssWorld") -> None:
    """No nonce is used twice under one key (§6, §14 property 4)."""
    _need(not world.ledger.repeated, 5, "a nonce is used twice")


def tss_6_outcome(world: "TssWorld", operation: Operation, completion: Completion) -> None:
    """A message completes once; one that completes well is all there."""
    operation.outcomes += 1
    name = world.name(world.ends[operation.node])
    _need(operation.outcomes == 1, 6, f"a message of {name} completes twice")
    if not completion.ok:
        return
    place = operation.offset, operation.length
    if operation.into is not None:
        _need(operation.into == content(1 - operation.node, *place), 6, f"{name} read other bytes than there are")
    else:
        _need(world.ends[1 - operation.node].memory.has(*place), 6, f"a write of {name} is not there")


def tss_7_ends(world: "TssWorld") -> None:
    """When the attacker stops, every message completes, or fails with an error."""
    for end in world.ends:
        left = [one for one in end.operations if not (one.outcomes or one.lost)]
        _need(not left, 7, f"{len(left)} messages of {world.name(end)} have no outcome")


def tss_8_opened_once(world: "TssWorld", end: End, pdc: Pdc) -> None:
    """Where the target keeps Expected_PSN, no replayed SYN opens a PDC again (§11, §14 property 14)."""
    instance = end.node, pdc.peer_id, pdc.rx.start
    _need(instance not in world.opened, 8, f"{world.name(end)} opens a second PDC with Start_PSN {pdc.rx.start:#x}")
    world.opened.add(instance)
