# SPDX-License-Identifier: GPL-2.0-only
"""This module is a harness in which a test reads like a ladder of pds.md §19.

A is the initiator, B the target. Both ends are packet delivery alone; SES is played by a script. What an end sends goes
to its outbox; the test says which packet it is about, checks it, and delivers or loses it.
"""

import random
from collections.abc import Callable
from typing import Any

from uetproto.engine import (
    NEVER,
    Datagram,
    Mode,
    Pds,
    PdsConfig,
    PdsError,
    Preset,
    Refusal,
    Response,
    Trim,
)
from uetproto.engine.contract import Buffer, PdsWork
from uetproto.engine.pds.messages import Ack, Control, Message, Nack, Request, parse
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.service import Connection, Outgoing
from uetproto.engine.pds.states import State
from uetproto.engine.ses.headers import build_response
from uetproto.wire.headers.uet_pds import CtlType, NackCode, NextHdr
from uetproto.wire.headers.uet_ses import REQUEST_STD, ResponseOpcode, ReturnCode

A, B = 0x0A00000B, 0x0A00010B
IPDCID, TPDCID = 7, 3
FORWARD, RETURN = 333, 48
MS = 1_000_000_000
SES_BYTES = bytes(REQUEST_STD.size)


class ScriptedMessage:
    """A message of `packets` packets that PDS may carry: SES headers of zeros, and a payload that tells the packets
    apart."""

    def __init__(self, packets: int, mode: Mode = Mode.RUD, message_id: int = 1, peer: int = B) -> None:
        self.peer = peer
        self.mode = mode
        self.message_id = message_id
        self.context = 0
        self.reserved = self.lock = False
        self.next_hdr: int = NextHdr.REQUEST_STD
        self.left = packets
        self.index = -1

    def began(self, pdc: Connection, psn: int) -> None:
        """Take the PDCID, and the PSN of the first packet (`service.Locking`)."""
        self.where = (pdc.local_id, psn)

    def is_held_back(self, pdc: Connection) -> bool:
        return False

    def unsent(self) -> tuple[int, int]:
        return self.left, self.left * len(SES_BYTES)

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        self.index += 1
        self.left -= 1
        return self.index, SES_BYTES, f"{self.message_id}.{self.index}".encode(), self.left == 0


class ScriptedSes:
    """This class answers each request as `script` says for its PSN: "ok" (not gtd_del), "gtd", "later", or a
    NackCode.
    """

    def __init__(self) -> None:
        self.script: dict[int, str | NackCode] = {}
        self.otherwise: str | NackCode = "ok"
        self.delivered: list[int] = []
        self.responses: list[tuple[int, bytes | None]] = []
        """(packet index, SES response or None for the made-up one) that came back."""
        self.errors: list[tuple[int, PdsError]] = []

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        said = self.script.get(psn, self.otherwise)
        if isinstance(said, NackCode):
            return Refusal(said)
        self.delivered.append(psn)
        return None if said == "later" else answer(said)

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        return answer("gtd")

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        self.responses.append((index, None if response is None else bytes(response)))

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        self.errors.append((index, error))

    def on_closed(self, pdc: Connection) -> None: ...


def answer(kind: str) -> Response:
    """Return a response.

    "ok": a default response; "gtd": a guaranteed error; "no_response": the final response follows later.
    """
    if kind == "gtd":
        return Response(build_response(ResponseOpcode.RESPONSE, ReturnCode.NO_MATCH, 1, 0, 0), gtd=True)
    if kind == "no_response":
        return Response(build_response(ResponseOpcode.NO_RESPONSE, ReturnCode.OK, 1, 0, 0), final=False)
    return Response(build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, 1, 0, 0))


class Sent:
    """A packet that an end has sent, with the names that ladders use."""

    def __init__(self, packet: Datagram) -> None:
        self.packet = packet
        self.message: Message = parse(bytes(packet.header) + bytes(packet.payload))

    @property
    def kind(self) -> str:
        message = self.message
        if isinstance(message, Control):
            return CtlType(message.ctl_type).name
        return {Request: "REQ", Ack: "ACK", Nack: "NACK"}[type(message)]

    def get(self, name: str) -> Any:
        """Return a column of a ladder: coff, off, ack, cack, clear, req, response, … or a field."""
        m = self.message
        calculated: dict[str, Callable[[], Any]] = {
            "coff": lambda: _signed(m.clear_psn - m.psn),  # type: ignore[union-attr]
            "clear": lambda: m.clear_psn,  # type: ignore[union-attr]
            "ack": lambda: m.ack_psn,  # type: ignore[union-attr]
            "cack": lambda: m.cack_psn,  # type: ignore[union-attr]
            "off": lambda: _signed(m.ack_psn - m.cack_psn),  # type: ignore[union-attr]
            "psn_offset": lambda: (m.psn - m.start_psn) & 0xFFFFFFFF,  # type: ignore[union-attr]
            "nack_psn": lambda: m.psn,  # type: ignore[union-attr]
            "code": lambda: NackCode(m.code),  # type: ignore[union-attr]
            "response": lambda: bytes(self.packet.header)[m.size :],  # type: ignore[union-attr]
        }
        return calculated[name]() if name in calculated else getattr(m, name)

    def __repr__(self) -> str:
        return f"{self.kind} {self.message}"


def _signed(value: int) -> int:
    return ((value + 0x8000) & 0xFFFF) - 0x8000


class End:
    """An end, A or B, has an outbox, a scripted SES, and one PDC to look at."""

    def __init__(self, ladder: "Ladder", name: str, address: int, config: PdsConfig) -> None:
        self.ladder = ladder
        self.name = name
        self.ses = ScriptedSes()
        self.pds = Pds(address, config, random.Random(address), self.ses)
        self.outbox: list[Sent] = []
        self.held = False
        """No first transmissions until `release`."""
        self.known: Pdc | None = None

    @property
    def pdc(self) -> Pdc:
        """Return the PDC, also after its end."""
        self._look()
        assert self.known is not None
        return self.known

    def _look(self) -> None:
        self.known = next(iter(self.pds.pdcs.values()), self.known)

    @property
    def state(self) -> State:
        return self.pdc.state

    def poll(self) -> None:
        self._look()
        limit = 0 if self.held else NEVER
        self.outbox += [Sent(packet) for packet in self.pds.poll(self.ladder.now, limit)]

    def send(self, packets: int, message_id: int = 1, *, now: int | None = None) -> None:
        """Hand over a message of SES; only its first `now` packets leave before `release`."""
        self.pds.send(ScriptedMessage(packets, self.ladder.mode, message_id), self.ladder.now)
        if now is not None:
            self.held = True
            self.outbox += [Sent(packet) for packet in self.pds.poll(self.ladder.now, now)]
        else:
            self.poll()

    def release(self) -> None:
        self.held = False
        self.poll()

    def submit(self, work: PdsWork) -> None:
        self.pds.submit(work, self.ladder.now)
        self.poll()

    def respond(self, psn: int, kind: str) -> None:
        """Answer, as SES, a packet that was delivered before."""
        self.pds.respond(self.pdc.local_id, psn, answer(kind), self.ladder.now)
        self.poll()

    def rx(self, sent: Sent, *, trimmed: bool = False, marked: bool = False, retx: bool = False) -> None:
        """Receive a packet at this end; `retx`: as a copy that its sender has marked as such."""
        packet = sent.packet
        data = bytearray(bytes(packet.header) + bytes(packet.payload))
        self._look()
        if retx:
            data[1] |= 0x10
        self.pds.receive(Datagram(
            packet.src, packet.dst, bytes(data[:16] if trimmed else data), ecn_marked=marked,
            trimmed=Trim.TRIMMED if trimmed else Trim.NO, entropy=packet.entropy,
        ), self.ladder.now)  # fmt: skip
        self.poll()

    def rx_bytes(self, source: int, header: bytes) -> None:
        """Receive a packet whose bytes the ladder states."""
        self.pds.receive(Datagram(source, self.pds.address, header), self.ladder.now)
        self.poll()

    def sent(self, kind: str, **columns: Any) -> Sent:
        """Take the oldest packet out of the outbox, and assert that it is of this kind and has these numbers."""
        assert self.outbox, f"{self.name} sent nothing; {kind} {columns} expected"
        sent = self.outbox.pop(0)
        assert sent.kind == kind, f"{self.name} sent {sent}, expected {kind} {columns}"
        for name, value in columns.items():
            assert sent.get(name) == value, f"{self.name}: {name} is {sent.get(name)}, not {value}, in {sent}"
        return sent

    def silent(self) -> None:
        """Assert that nothing was sent."""
        assert not self.outbox, f"{self.name} sent {self.outbox}"


class Ladder:
    """A ladder has both ends and the time. By default the PDC is ESTABLISHED and idle: forward next 333, return next
    48."""

    def __init__(
        self, mode: Mode = Mode.RUD, *, established: bool = True, forward: int = FORWARD, back: int = RETURN,
        **config: Any,
    ) -> None:  # fmt: skip
        config.setdefault("idle_time", 0)
        at_b = {**config, **config.pop("b", {})}
        config.pop("b", None)
        at_b.pop("b", None)
        self.mode = mode
        self.now = 0
        self.a = End(self, "A", A, PdsConfig(**config))
        self.b = End(self, "B", B, PdsConfig(**at_b))
        if established:
            numbers = {"forward_next": forward, "return_next": back}
            self.a.pds.adopt(B, mode, True, Preset(pdcid=IPDCID, peer_pdcid=TPDCID, **numbers))
            self.b.pds.adopt(A, mode, False, Preset(pdcid=TPDCID, peer_pdcid=IPDCID, **numbers))
        else:
            self.a.pds.preset(Preset(pdcid=IPDCID, start_psn=forward))
            self.b.pds.preset(Preset(pdcid=TPDCID))

    def wait(self, duration: int) -> None:
        """Let time pass; timers run when they are due."""
        until = self.now + duration
        while True:
            due = [at for end in (self.a, self.b) if (at := end.pds.deadline()) is not None and at <= until]
            if not due:
                break
            self.now = max(self.now, min(due))
            self.a.poll()
            self.b.poll()
        self.now = until
