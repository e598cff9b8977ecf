# SPDX-License-Identifier: GPL-2.0-only
"""This module has endpoints of one security domain on a wire that an attacker listens to: packet delivery alone, with
scripted SES.

What opens is known to be genuine (tss.md §9), so an attacker can only hold packets back and send them again: `replay`.
"""

import random
from collections import Counter
from collections.abc import Iterable

from tests.support.ladders.ladder import MS, ScriptedMessage, ScriptedSes, answer
from uetproto.engine import Datagram, Mode, Pds, PdsConfig, Preset
from uetproto.engine.contract import Buffer, Close, Event
from uetproto.engine.pds.messages import parse
from uetproto.engine.pds.service import Connection, Outgoing, Refusal, Response
from uetproto.wire.headers.uet_pds import NextHdr

TARGET, FIRST, SECOND = 0x0A00010B, 0x0A00000B, 0x0A00000C


class Bytes(ScriptedSes):
    """This class keeps what was delivered, and answers all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.received: Counter[bytes] = Counter()
        """Payloads, which tell packets apart, and how often each came."""
        self.answered: Counter[int] = Counter()

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        self.received[bytes(payload)] += 1
        return answer("ok")

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        self.answered[message.message_id] += 1


class Domain:
    """A domain has one target, two initiators, and all packets that were ever on the wire between them."""

    def __init__(self, seed: int = 1, target: dict[str, object] | None = None, **knobs: object) -> None:
        self.now = 0
        self.random = random.Random(seed)
        self.configs = {
            address: PdsConfig(**({"secure_start": "expected"} | knobs | ((target or {}) if address == TARGET else {})))  # type: ignore[arg-type]
            for address in (TARGET, FIRST, SECOND)
        }
        self.ses = {address: Bytes() for address in self.configs}
        self.ends = {address: self._make(address) for address in self.configs}
        self.log: list[Datagram] = []
        self.messages = 0

    def _make(self, address: int) -> Pds:
        return Pds(
            address, self.configs[address], random.Random(f"{address} {self.random.random()}"), self.ses[address]
        )

    @property
    def target(self) -> Pds:
        return self.ends[TARGET]

    def restart(self, address: int, *, keeps: bool) -> None:
        """Replace an endpoint by one without state; with `keeps` it has its Expected_PSN."""
        kept = self.ends[address].expected_psn
        self.ends[address] = self._make(address)
        if keeps:
            self.ends[address].preset(Preset(expected_psn=kept))

    def send(self, src: int, packets: int, mode: Mode = Mode.RUD) -> int:
        self.messages += 1
        self.ends[src].send(ScriptedMessage(packets, mode, self.messages, TARGET), self.now)
        return self.messages

    def send_back(self, pdcid: int, packets: int, dst: int = FIRST) -> None:
        """Send read data on the return direction of a PDC of the target."""
        self.messages += 1
        message = ScriptedMessage(packets, Mode.RUD, self.messages, dst)
        message.next_hdr = NextHdr.RESPONSE_DATA
        self.target.send_return(pdcid, message, self.now)

    def run(self) -> None:
        """Deliver packets in order until no endpoint sends any more."""
        while True:
            packets = [packet for end in self.ends.values() for packet in end.poll(self.now)]
            if not packets:
                return
            for packet in packets:
                self.log.append(packet)
                self._deliver(packet)

    def _deliver(self, packet: Datagram) -> None:
        data = bytes(packet.header) + bytes(packet.payload)
        self.ends[packet.dst].receive(Datagram(packet.src, packet.dst, data, entropy=packet.entropy), self.now)

    def close(self, src: int, mode: Mode = Mode.RUD) -> None:
        self.ends[src].submit(Close(peer=TARGET, mode=mode), self.now)
        self.run()

    def rest(self, time: int = 3000 * MS) -> None:
        """Let time pass, by default longer than MSL."""
        self.now += time
        self.run()

    def replay(self, packets: Iterable[Datagram], dst: int | None = TARGET) -> list[Datagram]:
        """Send packets again, as the attacker, to one end or to their receivers; the answers of the ends reach
        nobody."""
        answers: list[Datagram] = []
        for packet in list(packets):
            if dst in (None, packet.dst):
                self._deliver(packet)
                answers += [sent for end in self.ends.values() for sent in end.poll(self.now)]
        return answers

    def events(self, address: int = TARGET) -> list[Event]:
        return self.ends[address].events()

    def syns(self) -> int:
        """Return the number of requests that left before their PDC was established."""
        messages = [parse(bytes(packet.header) + bytes(packet.payload)) for packet in self.log]
        return sum(bool(getattr(message, "syn", 0)) for message in messages)
