"""A peer of conformance tests in this process, in virtual time: an adapter of an endpoint behind a link."""

from collections import deque
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from uetproto.conform.packets import PeerFacts
from uetproto.engine.contract import MICROSECOND
from uetproto.framing.uet import Encapsulation
from uetproto.testing.adapters.fep import FepEngine

US, PEER = "10.0.0.1", "10.0.0.2"
KEY, SIZE = 1, 1 << 16
_LATENCY = 5 * MICROSECOND
CONFIG: dict[str, Any] = {
    "address": PEER, "peer": US, "seed": 7, "payload_mtu": 4096, "job_id": 1, "pid_on_fep": 0, "resource_index": 15,
    "regions": [{"key": KEY, "size": SIZE, "fill": 0}], "knobs": {},
}  # fmt: skip
FACTS = PeerFacts(address=int(ip_address(PEER)), local=int(ip_address(US)), key=KEY, length=SIZE)


class AdapterLink:
    """Implements `player.Link` with an adapter at the other end."""

    def __init__(self, make: Callable[[], FepEngine] = FepEngine, **config: Any) -> None:
        self.now = 0
        self.adapter = make()
        self.adapter.reset(CONFIG | config)
        self._arrived: deque[tuple[int, bytes]] = deque()
        for number in range(8):
            self.adapter.submit({"op": "receive", "id": number, "length": 4096})
            self.adapter.submit({"op": "receive", "id": 8 + number, "length": 4096, "tag": 0, "ignore": (1 << 64) - 1})

    def entropy(self, value: int) -> int:
        return value

    def send(self, frame: bytes) -> None:
        self.adapter.deliver(frame)
        self._poll()

    def _poll(self) -> None:
        self._arrived.extend((self.now + _LATENCY, frame) for frame in self.adapter.poll() if frame)
        self.adapter.observe()

    def receive(self, until: int) -> bytes | None:
        while True:
            if self._arrived and self._arrived[0][0] <= until:
                at, frame = self._arrived.popleft()
                self._advance(max(at - self.now, 0))
                return frame
            due = self.adapter.due
            if due is None or self.now + due > until:
                self._advance(max(until - self.now, 0))
                return None
            self._advance(due)
            self._poll()

    def _advance(self, time: int) -> None:
        self.adapter.advance(time)
        self.now += time


def facts(**changed: Any) -> PeerFacts:
    """What the tests know of the peer, with changes: `udp` and `crc` are those of its encapsulation."""
    from dataclasses import replace

    how = Encapsulation(**{name: changed.pop(name) for name in ("udp", "crc") if name in changed})
    return replace(FACTS, how=how, **changed)
