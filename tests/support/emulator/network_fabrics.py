# SPDX-License-Identifier: GPL-2.0-only
"""This module builds fabrics without engines, whose nodes keep the frames that they receive."""

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from tests.support.emulator.roce_frames import DSCP, RATE, data
from uetproto.emulator.network.build import build
from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import NetworkConfig, NodeAttachment
from uetproto.emulator.network.layouts import Layout, layout_of
from uetproto.emulator.network.switch import Dscp

FIRST = 0x0A000001
DELAY = 1_000_000
NOTHING: Mapping[str, str] = {}


class Inbox:
    """A framer that keeps frames, so that no engine sees them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seen: list[tuple[int, bytes]] = []

    def packet(self, frame: bytes) -> None:
        self.seen.append((self.clock.now, frame))

    @property
    def frames(self) -> list[bytes]:
        return [frame for _, frame in self.seen]

    def frame(self, packet: object) -> bytes:
        raise NotImplementedError

    def repeats(self, packet: object) -> bool:
        raise NotImplementedError


class Bench:
    """A fabric without engines: frames are put on the links from the stations; `inner` ones, by their switch, last."""

    def __init__(
        self,
        kind: str,
        stations: int,
        *,
        dscp: Dscp | None = None,
        inner: Mapping[str, str] = NOTHING,
        ports: Mapping[str, int] = MappingProxyType({}),
        chance: Callable[[str, str], random.Random] = lambda *_: random.Random(1),
        **more: Any,
    ) -> None:
        self.clock = Clock()
        layout_keys = {key: more.pop(key) for key in tuple(more) if key not in NetworkConfig.__dataclass_fields__}
        self.layout = layout_of(kind, stations, layout_keys)
        settings: dict[str, Any] = {
            "topology": kind, "delay": DELAY, "queue_capacity": 1 << 24, "layout": self.layout, "rate": RATE,
        }  # fmt: skip
        self.config = NetworkConfig(**settings | more)
        places = dict.fromkeys((f"rank{rank}" for rank in range(stations)), None) | inner
        self.inboxes = [Inbox(self.clock) for _ in places]
        self.names = list(places)
        self.stations = {
            name: NodeAttachment(
                address=FIRST + number, rate=RATE if at is None else 4 * RATE, engine=cast(Any, None), framer=inbox,
                on_event=lambda event: None, at=at, ports=ports.get(name, 1),
            )
            for number, ((name, at), inbox) in enumerate(zip(places.items(), self.inboxes, strict=True))
        }  # fmt: skip
        self.network: BuiltNetwork = build(self.clock, self.config, self.stations, dscp=dscp or DSCP, chance=chance)

    def send(self, source: int, frame: bytes) -> None:
        self.network.links[self.names[source]].send(frame)

    def counters(self, count: Callable[[Any], int] = lambda link: link.frames) -> dict[tuple[str, str], int]:
        return {(hop.source, hop.target): count(hop.link) for hop in self.network.hops if hop.link.frames}

    @property
    def shape(self) -> Layout:
        assert self.layout is not None
        return self.layout


def roce(source: int, target: int, number: int = 0, size: int = 1000) -> bytes:
    return data(size, src=FIRST + source, dst=FIRST + target, psn=number)
