# SPDX-License-Identifier: GPL-2.0-only
"""A peer of conformance tests in this process, in virtual time: an adapter of an endpoint behind a link."""

from collections import deque
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from uetproto.conform.acting import PeerAct
from uetproto.conform.packets import PeerFacts
from uetproto.engine.contract import MICROSECOND
from uetproto.engine.pds.states import Role
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
        self.config: dict[str, Any] = CONFIG | config
        self.adapter.reset(self.config)
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.events: list[dict[str, Any]] = []
        for number in range(8):
            self.adapter.submit({"op": "receive", "id": number, "length": 4096})
            self.adapter.submit({"op": "receive", "id": 8 + number, "length": 4096, "tag": 0, "ignore": (1 << 64) - 1})

    def entropy(self, value: int) -> int:
        return value

    def send(self, frame: bytes) -> None:
        self.adapter.deliver(frame)
        self.poll()

    def poll(self) -> None:
        self.waiting.extend((self.now + _LATENCY, frame) for frame in self.adapter.poll() if frame)
        self.events += self.adapter.observe()["events"]

    def receive(self, until: int) -> bytes | None:
        while True:
            if self.waiting and self.waiting[0][0] <= until:
                at, frame = self.waiting.popleft()
                self._advance(max(at - self.now, 0))
                return frame
            due = self.adapter.due
            if due is None or self.now + due > until:
                self._advance(max(until - self.now, 0))
                return None
            self._advance(due)
            self.poll()

    def _advance(self, time: int) -> None:
        self.adapter.advance(time)
        self.now += time


class AdapterActor:
    """Implements `acting.Actor` with the adapter of a link as the initiator."""

    tells = True

    def __init__(self, link: AdapterLink) -> None:
        self.link = link
        self.closed = False

    def begin(self, act: PeerAct) -> None:
        self.link.events.clear()
        self.closed = False
        at = {"id": 1000, "mode": act.mode, "key": act.place["key"], "offset": act.place["addr"]}
        operand = act.data[::-1].hex()  # in memory it has its least significant byte first
        work: dict[str, Any] = {
            "write": {"op": "write", "data": act.data.hex()},
            "read": {"op": "read", "length": act.length},
            "send": {"op": "send", "data": act.data.hex()},
            "deferrable": {"op": "send", "data": act.data.hex(), "kind": "deferrable"},
            "rendezvous": {"op": "send", "data": act.data.hex(), "kind": "rendezvous"},
            "tagged": {"op": "tagged_send", "data": act.data.hex(), "tag": 5},
            "atomic": {"op": "atomic", "data": operand, "opcode": "sum", "datatype": "uint64", "fetch": False},
            "fetch": {"op": "atomic", "data": operand, "opcode": "sum", "datatype": "uint64", "fetch": True},
        }[act.operation]
        self.fetched = act.operation == "fetch"
        self.link.adapter.submit({**at, **work})
        self.link.poll()

    def _completion(self) -> dict[str, Any] | None:
        return next((one for one in self.link.events if one["event"] == "completion"), None)

    def ended(self) -> str | None:
        found = self._completion()
        if found is None:
            return None
        pdcs = [pdc for pdc in self.link.adapter.fep.pds.pdcs.values() if pdc.role is Role.INITIATOR]
        if found["ok"] and pdcs and not self.closed:
            self.closed = True
            self.link.adapter.submit({"op": "close"})
            self.link.poll()
        return ("ok" if found["ok"] else "error") if not found["ok"] or not pdcs else None

    def words(self) -> str:
        return str(self._completion())

    def result(self) -> bytes | None:
        found = self._completion() or {}
        data = bytes.fromhex(found["data"]) if "data" in found else None
        return data[::-1] if data and self.fetched else data

    def end(self) -> None:
        self.link.adapter.reset(self.link.config)


def facts(**changed: Any) -> PeerFacts:
    """What the tests know of the peer, with changes: `udp` and `crc` are those of its encapsulation."""
    from dataclasses import replace

    how = Encapsulation(**{name: changed.pop(name) for name in ("udp", "crc") if name in changed})
    return replace(FACTS, how=how, **changed)
