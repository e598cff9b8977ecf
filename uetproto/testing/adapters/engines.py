# SPDX-License-Identifier: GPL-2.0-only
"""This module has the adapters of our own engines: the peer of every implementation that is tested, and examples of
adapters."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, ClassVar

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.registry import CongestionContexts
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import (
    NEVER,
    PDC_MODES,
    AskClose,
    AskCredit,
    Buffer,
    Close,
    Engine,
    Event,
    GiveCredit,
    Mode,
    Negotiate,
    Noop,
    PdsError,
    Probe,
)
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.service import SES_SIZE, Connection, Response, message_id_of
from uetproto.engine.pds.states import Input, Role, State
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.ses.headers import build_response
from uetproto.errors import LocalError
from uetproto.framing.framer import Framer
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.testing.adapters.adapter import Capabilities, WorkRefused
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode

Config = Mapping[str, Any]
Work = Mapping[str, Any]


class EngineAdapter(ABC):
    """This class drives one engine with frames, in virtual time. A subclass makes the engine, and has a function for
    each operation that the engine does."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self.now = 0
        self.address = 0
        self.peer = 0
        self.framer: Framer
        self.engine: Engine
        self.found: list[dict[str, Any]] = []
        """Events that `observe` returns next."""

    def reset(self, config: Config) -> None:
        self.now = 0
        self.found = []
        self.address, self.peer = (int(ip_address(config[name])) for name in ("address", "peer"))
        self.engine = self.make(config)
        self.framer = self.make_framer(config)

    @abstractmethod
    def make(self, config: Config) -> Engine:
        """Return a new engine with the settings in `config`."""

    def make_framer(self, config: Config) -> Framer:
        how = Encapsulation(udp=config.get("udp", True), crc=config.get("crc", True))
        return UetFramer(self.address, ip_address(config["address"]).version, how)

    def submit(self, work: Work) -> None:
        call = self.works.get(work["op"])
        if call is None:
            raise WorkRefused(f"{work['op']!r} is not known")
        try:
            call(self, work)
        except LocalError as error:
            raise WorkRefused(str(error)) from error

    works: ClassVar[dict[str, Callable[[Any, Work], None]]]
    """The functions that do the operations, by the name of the operation (`work["op"]`)."""

    def deliver(self, frame: bytes) -> None:
        packet = self.framer.packet(frame)
        if packet is not None:
            self.engine.receive(packet, self.now)

    def poll(self) -> list[bytes]:
        return [self.framer.frame(packet) for packet in self.engine.poll(self.now)]

    def advance(self, picoseconds: int) -> None:
        self.now += picoseconds

    @property
    def refused(self) -> int:
        """Number of received frames that were dropped because of their lower headers or trailer."""
        return self.framer.bad_crc + self.framer.bad_header + self.framer.foreign

    @property
    def due(self) -> int | None:
        """Return the number of picoseconds until the next timer expires, or None if no timer is armed."""
        at = self.engine.deadline()
        return None if at is None or at >= NEVER else max(0, at - self.now)

    def observe(self) -> dict[str, Any]:
        for event in self.engine.events():
            self.note(event)
        found, self.found = self.found, []
        return {"events": found, "state": self.state()}

    def note(self, event: Event) -> None:  # noqa: B027 - most engines have no events that a machine compares
        """Add to `found` the observations that follow from an event of the engine."""

    def state(self) -> dict[str, Any]:
        """Return what can be observed of the state."""
        return {}


GUARANTEED = "guaranteed_response"
"""Name of the knob with which SES answers each request of a PDC by a guaranteed response."""

LATE = "late_response"
"""Name of the knob with which SES answers each request of a PDC later, when it is told to."""

CONGESTION = "cc"
"""Name of the knob with the algorithms of congestion control (`CcConfig.algorithm`), or "off"."""
SMALL, AROUND = 300, 52
"""Nominal bytes of the largest packet of the machine, and those that nominal sizes have beside the headers of PDS and
SES and the payload: UDP, CRC and 40 (cms.md §1)."""

# PDS alone ------------------------------------------------------------------------------------------------------------


_STD: int = NextHdr.REQUEST_STD


class _OpaqueMessage:
    """A message whose SES headers were made by the machine (`service.Outgoing`)."""

    __slots__ = ("context", "left", "lock", "message_id", "mode", "next_hdr", "number", "packets", "peer", "reserved",
                 "sent")  # fmt: skip

    def __init__(self, number: int, peer: int, mode: Mode, packets: list[bytes], next_hdr: int = _STD) -> None:
        self.number = number
        self.peer = peer
        self.mode = mode
        self.packets = packets
        self.next_hdr = next_hdr
        self.message_id = message_id_of(packets[0], 0, self.next_hdr)
        self.context = 0
        self.reserved = self.lock = False
        self.sent = 0
        self.left = len(packets)
        """Number of packets without an answer."""

    def unsent(self) -> tuple[int, int]:
        """Return the number of packets that were not sent, and their bytes."""
        return len(self.packets) - self.sent, sum(map(len, self.packets[self.sent :]))

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        index, size = self.sent, SES_SIZE[self.next_hdr]
        self.sent += 1
        packet = self.packets[index]
        return index, packet[:size], packet[size:], self.sent == len(self.packets)


class _OpaqueSes:
    """The SES of `PdcEngine` (`service.PdsUser`): it notes what arrives, and answers at once.

    The answer is the default response, or with `guaranteed` a response that PDS keeps until it is cleared. With `late`
    SES answers when it is told to.
    """

    def __init__(self, found: list[dict[str, Any]], guaranteed: bool, late: bool) -> None:
        self.found, self.guaranteed, self.late = found, guaranteed, late
        self.waiting: dict[str, tuple[Connection, int, Response]] = {}
        """Requests without an answer, by their bytes: PDC, PSN, and what the answer will be."""

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | None:
        whole = bytes(data[at : at + SES_SIZE[next_hdr]]) + bytes(payload)
        self.found.append({"event": "delivery", "mode": pdc.mode.name.lower(), "psn": psn, "data": whole.hex()})
        if pdc.mode is Mode.UUD:
            return None
        job_id = int.from_bytes(whole[5:8], "big")
        number = int.from_bytes(whole[2:4], "big")  # also the response_message_id of return data
        gtd = self.guaranteed and pdc.mode in PDC_MODES
        opcode = ResponseOpcode.RESPONSE if gtd else ResponseOpcode.DEFAULT_RESPONSE
        answer = Response(build_response(opcode, ReturnCode.OK, number, job_id, 0), gtd=gtd)
        if self.late and pdc.mode in PDC_MODES:
            self.waiting[whole.hex()] = pdc, psn, answer
            return None
        return answer

    def on_response(self, message: Any, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        message.left -= 1
        if not message.left:
            self.found.append({"event": "completion", "id": message.number, "ok": True})

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        raise NotImplementedError("there are no reads")

    def on_error(self, message: Any, index: int, error: PdsError) -> None:
        if message.left >= 0:
            message.left = -1
            reason = getattr(error, "reason", error)
            self.found.append({"event": "completion", "id": message.number, "ok": False, "reason": str(reason)})

    def on_closed(self, pdc: Connection) -> None:
        pass


class PdcEngine(EngineAdapter):
    """This class drives our PDS alone. SES headers come from the machine, and each request is answered at once."""

    capabilities = Capabilities(
        work=("message", "close", "ask_close", "noop", "probe", "negotiate", "ask_credit", "give_credit",
              "reserved_message", "return_data", "respond", "respond_all"),
        modes=("rud", "rod", "rudi", "uud"),
        knobs=(
            "ack_cc", "ack_gen_trigger", "ack_on_gap_close", "ar_on_eom", CONGESTION, "clear_at", "clear_cmd",
            "close_req_time", "default_mpr", "dup_without_retx", "enb_ack_per_pkt", GUARANTEED, "idle_time", LATE,
            "max_nack_retx_cnt", "max_pdcs", "max_rto_retx_cnt", "mp_range", "nack_retx_time", "pds_clear_time",
            "pend_timeout", "sack_base", "secure_start", "window_base",
        ),
    )  # fmt: skip

    def make(self, config: Config) -> Engine:
        rng = random.Random(f"{config['seed']}/{config['address']}")
        knobs = dict(config.get("knobs", {}))
        self.ses = _OpaqueSes(self.found, knobs.pop(GUARANTEED, False), knobs.pop(LATE, False))
        algorithm, version = knobs.pop(CONGESTION, "off"), ip_address(config["address"]).version
        contexts = None
        if algorithm != "off":
            contexts = CongestionContexts(CcConfig(algorithm=algorithm), rng, overhead=AROUND, largest=SMALL)
        self.pds = Pds(self.address, PdsConfig(**knobs), rng, self.ses, version, congestion=contexts)
        self.reserved: list[int] = []
        return self.pds

    def _message(self, work: Work) -> None:
        mode = Mode[work["mode"].upper()]
        self.pds.send(
            _OpaqueMessage(work["id"], self.peer, mode, [bytes.fromhex(each) for each in work["packets"]]), self.now
        )

    def _reserved_message(self, work: Work) -> None:
        """Send a message on a PDC with a reserved PDCID, which is opened if there is none on which a message may
        start."""
        open_now = [self.pds.pdcs.get(pdcid) for pdcid in self.reserved]
        if not any(pdc is not None and pdc.allows(Input.SEND) and not pdc.close_req for pdc in open_now):
            even = self.pds.reserve()
            self.reserved.append(even)
            self.pds.open_reserved(even, self.peer, Mode.RUD, 0, self.now)
        message = _OpaqueMessage(work["id"], self.peer, Mode.RUD, [bytes.fromhex(each) for each in work["packets"]])
        message.reserved = True
        self.pds.send(message, self.now)

    def _return_data(self, work: Work) -> None:
        found = [pdc for pdc in self.pds.pdcs.values() if pdc.role is Role.TARGET and pdc.allows(Input.RETURN)]
        if not found:
            raise WorkRefused("there is no such PDC")
        packets = [bytes.fromhex(each) for each in work["packets"]]
        message = _OpaqueMessage(work["id"], self.peer, found[0].mode, packets, NextHdr.RESPONSE_DATA)
        self.pds.send_return(found[0].local_id, message, self.now)

    def _respond(self, work: Work) -> None:
        found = self.ses.waiting.pop(work["data"], None)
        if found is not None:
            self.pds.respond_late(*found, self.now)

    def _respond_all(self, work: Work) -> None:
        self.ses.late = False
        for data in [*self.ses.waiting]:
            self._respond({"data": data})

    def _close(self, work: Work) -> None:
        self.pds.submit(Close(peer=self.peer), self.now)

    def _noop(self, work: Work) -> None:
        self.pds.submit(Noop(peer=self.peer, mode=Mode[work["mode"].upper()]), self.now)

    def _negotiate(self, work: Work) -> None:
        self.pds.submit(Negotiate(peer=self.peer, mode=Mode[work["mode"].upper()], features=work["value"]), self.now)

    def _each(self, make: Callable[[int], Any], roles: tuple[Role, ...] = (Role.INITIATOR, Role.TARGET)) -> None:
        """Submit work for every established PDC in one of these roles. Raises `WorkRefused` if there is none."""
        pdcs = self.pds.pdcs.values()
        found = [pdc.local_id for pdc in pdcs if pdc.state is State.ESTABLISHED and pdc.role in roles]
        if not found:
            raise WorkRefused("there is no such PDC")
        for pdcid in found:
            self.pds.submit(make(pdcid), self.now)

    works: ClassVar[dict[str, Callable[[Any, Work], None]]] = {
        "message": _message, "reserved_message": _reserved_message, "return_data": _return_data,
        "respond": _respond, "respond_all": _respond_all, "close": _close, "noop": _noop, "negotiate": _negotiate,
        "ask_close": lambda self, work: self._each(lambda pdcid: AskClose(pdcid=pdcid), (Role.TARGET,)),
        "probe": lambda self, work: self._each(lambda pdcid: Probe(pdcid=pdcid)),
        "ask_credit": lambda self, work: self._each(lambda pdcid: AskCredit(pdcid=pdcid, target=work["value"])),
        "give_credit": lambda self, work: self._each(lambda pdcid: GiveCredit(pdcid=pdcid, credit=work["value"])),
    }  # fmt: skip

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        self.ses.found = self.found  # the list that the next call returns
        return seen

    def state(self) -> dict[str, Any]:
        return {"pdcs": [_pdc(pdc) for pdc in self.pds.pdcs.values() if pdc.mode in PDC_MODES]}


def _pdc(pdc: Pdc) -> dict[str, Any]:
    """Return what can be observed of a PDC, in the terms of pds.md §2."""
    return {
        "pdcid": pdc.local_id, "peer_pdcid": pdc.peer_id, "mode": pdc.mode.name.lower(),
        "state": pdc.state.name.lower(), "role": pdc.role.name.lower(),
        "start_psn": pdc.tx.start, "una": pdc.tx.una, "next": pdc.tx.next,
        "cack_psn": pdc.rx.cack, "clear_psn": pdc.rx.max_clear, "window": pdc.tx.mp_range,
    }  # fmt: skip
