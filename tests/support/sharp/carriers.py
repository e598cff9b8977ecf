# SPDX-License-Identifier: GPL-2.0-only
"""This module has elements that only send and record messages, on stations around one switch; the tests of the carriers
share it."""

import random
from collections.abc import Callable
from typing import Any

from uetproto.emulator.network.build import build
from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import NetworkConfig, NodeAttachment
from uetproto.emulator.network.payload import MeteredLink
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Engine
from uetproto.engine.fep import Fep
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.engine.sharp.carriers.roce import RoceCarrier
from uetproto.engine.sharp.carriers.station import SharpStation
from uetproto.engine.sharp.carriers.uet import UetCarrier
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.framing.framer import Framer
from uetproto.framing.roce import RoceFramer, traffic_classes
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.faults import Faults

A, B, C = 0x0A000001, 0x0A000002, 0x0A000003
US, MS = 10**6, 10**9

MESSAGE_1 = bytes.fromhex(
    "10100000 00000005 00000007 00000000 00000000 00080020 02040c01 00001880"
    "3f800000 40000000 40400000 40800000 40a00000 40c00000 40e00000 41000000"
)
"""Message 1 of sharp.md §7: AGG_REQ of tree 0, job 5, group 7, seq 0, child 0."""


def numbered(number: int, size: int = 64, *, opcode: int = 0x10, tree: int = 0, flags: int = 0x1880) -> bytes:
    """Return a message like `MESSAGE_1`, with `number` as seq and as every word of the body."""
    head = bytearray(MESSAGE_1[:32])
    head[1] = opcode
    head[2:4] = tree.to_bytes(2, "big")
    head[12:16] = number.to_bytes(4, "big")
    head[22:24] = (size - 32).to_bytes(2, "big")
    head[30:32] = flags.to_bytes(2, "big")
    return bytes(head) + number.to_bytes(4, "big") * (size // 4 - 8)


class Dummy:
    """An `Element` that sends the messages that it is given, and records those that arrive."""

    def __init__(self) -> None:
        self.to_say: list[OutgoingMessage] = []
        self.heard: list[tuple[int | None, bytes]] = []
        self.acknowledgements: list[tuple[int, int]] = []
        self.gone: list[int] = []
        self.answer: Callable[[int | None, bytes], OutgoingMessage] | None = None
        """What it says to a message."""

    def message(self, conn: int | None, data: bytes, now: int) -> None:
        self.heard.append((conn, data))
        if self.answer is not None:
            self.to_say.append(self.answer(conn, data))

    def acknowledged(self, conn: int, handle: int, now: int) -> None:
        self.acknowledgements.append((conn, handle))

    def lost(self, conn: int, now: int) -> None:
        self.gone.append(conn)

    def poll(self, now: int) -> list[OutgoingMessage]:
        said, self.to_say = self.to_say, []
        return said

    def deadline(self) -> int | None:
        return None

    def events(self) -> list[Any]:
        return []


class Side:
    """A side is one station."""

    def __init__(self, address: int, engine: Engine, framer: Framer, carrier: Any) -> None:
        self.address = address
        self.engine = engine
        self.framer = framer
        self.carrier = carrier
        self.element: Dummy = carrier.element
        self.station = SharpStation(engine, carrier)
        self.events: list[Any] = []
        self.frames: list[bytes] = []
        """Those that left."""

    def sent(self, frame: bytes) -> int:
        """Record a frame that leaves. Return its payload, which is of no interest here."""
        self.frames.append(frame)
        return 0

    @property
    def data(self) -> list[bytes]:
        return [data for _, data in self.element.heard]


class Bench:
    """A bench has stations a, b, … around a switch; `faults` apply to the frames that leave a and b."""

    def __init__(self, sides: dict[str, Side], dscp: Any, faults: Faults | None = None, seed: int = 1) -> None:
        self.clock = Clock()
        self.sides = sides
        nodes = {
            name: NodeAttachment(
                address=side.address, rate=100 * 10**9, engine=side.station, framer=side.framer,
                on_event=side.events.append, faults=faults,
            )
            for name, side in sides.items()
        }  # fmt: skip
        self.network: BuiltNetwork = build(
            self.clock,
            NetworkConfig(delay=US, metered=True),
            nodes,
            dscp=dscp,
            chance=lambda name, _: random.Random(f"{seed}/{name}"),
        )
        for name, side in sides.items():
            link = self.network.links[name]
            assert isinstance(link, MeteredLink)
            link.payload_of = side.sent

    def __getattr__(self, name: str) -> Side:
        return self.sides[name]

    def connect(self, one: str = "a", other: str = "b") -> tuple[int, int]:
        """Make a connection, and return its numbers at both ends."""
        x, y = self.sides[one], self.sides[other]
        p, q = x.carrier.allocate(), y.carrier.allocate()
        now = self.clock.now
        x.carrier.connect(p, address=y.address, remote=q, own_psn=5, their_psn=9, now=now)
        y.carrier.connect(q, address=x.address, remote=p, own_psn=9, their_psn=5, now=now)
        return p, q

    def say(self, name: str, *messages: OutgoingMessage) -> None:
        """Make the element of a station send messages."""
        side = self.sides[name]
        self.network.nics[name].submit(lambda now: side.element.to_say.extend(messages))

    def cut(self, name: str) -> None:
        """Lose all frames that leave this station from now on."""
        self.network.faults[name].faults = Faults(drop=1.0)

    def run(self, duration: int | None = None) -> None:
        """Run until nothing more happens, and assert that this state is reached."""
        if duration is not None:
            self.clock.advance(duration)
        else:
            assert not self.clock.run(events=400_000), "it does not end"


def addresses(names: str, ip_version: int) -> dict[str, int]:
    prefix = 0 if ip_version == 4 else 0xFD00 << 112
    return {name: prefix | address for name, address in zip(names, (A, B, C), strict=False)}


def roce_bench(
    names: str = "ab", *, faults: Faults | None = None, seed: int = 1, config: RoceConfig | None = None,
    ip_version: int = 4, **options: Any,
) -> Bench:  # fmt: skip
    config = config or RoceConfig()
    sides = {}
    for name, address in addresses(names, ip_version).items():
        hca = Hca(address, config=config, ip_version=ip_version)
        carrier = RoceCarrier(hca, Dummy(), **options)
        sides[name] = Side(address, hca, RoceFramer(address, ip_version, config), carrier)
    return Bench(sides, traffic_classes(config), faults, seed)


def uet_bench(
    names: str = "ab", *, faults: Faults | None = None, seed: int = 1, pds: dict[str, Any] | None = None,
    ses: dict[str, Any] | None = None, crc: bool = True, ip_version: int = 4, **options: Any,
) -> Bench:  # fmt: skip
    how = Encapsulation(crc=crc)
    sides = {}
    for name, address in addresses(names, ip_version).items():
        chance = random.Random(f"{seed}/{name}/engine")
        configs: dict[str, Any] = {"pds": PdsConfig(**(pds or {})), "ses": SesConfig(**(ses or {}))}
        fep = Fep(address, chance, ip_version=ip_version, **configs)
        sides[name] = Side(address, fep, UetFramer(address, ip_version, how), UetCarrier(fep, Dummy(), **options))
    return Bench(sides, how.dscp, faults, seed)
