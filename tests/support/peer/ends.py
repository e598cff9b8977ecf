# SPDX-License-Identifier: GPL-2.0-only
"""This module has naive endpoints: they find the PDC of a packet, and handle packets without a PDC (pds.md §6.2, §6.3,
§15)."""

from collections.abc import Callable, Hashable

from tests.support.peer.formats import (
    ACK_FORMS,
    AR,
    ISROD,
    NACK,
    NO_HEADER,
    NT,
    REQUEST,
    RETX,
    RUDI,
    SYN,
    UUD,
    Code,
    Ctl,
    Type,
    head,
    wire,
)
from tests.support.peer.model import AT_ONCE, Answer, Habits, Packet, Pdc

Deliver = Callable[[Pdc | None, int, bytes], Answer | int | None]
"""Type of a function like `model.End.deliver`; the PDC is None for RUDI, where the number is the pkt_id, and for
UUD."""


class Naive:
    """A naive endpoint is a fabric endpoint that has one peer."""

    def __init__(self, deliver: Deliver, habits: Habits) -> None:
        self.deliver = deliver
        self.habits = habits
        self.pdcs: list[Pdc] = []
        """All there ever were; the PDCID is the place in this list, from 1 on."""
        self.rudi: dict[int, Packet] = {}
        """Outstanding RUDI requests, by pkt_id (§15)."""
        self.responses: list[tuple[Hashable, Answer | None]] = []
        self.faults: list[str] = []
        self.out: list[bytes] = []

    def tick(self) -> None:
        for pdc in self.pdcs:
            pdc.tick()
        for pkt_id in self.rudi:
            self.transmit_rudi(pkt_id, retx=True)

    def receive(self, data: bytes, trimmed: bool = False) -> None:
        """Take a packet as §6.3 says; a trimmed packet is a request whose end is missing (§14)."""
        type, kind, flags = data[0] >> 3, int.from_bytes(data[:2], "big") >> 7 & 15, data[1] & 0x7F
        if type == Type.UUD_REQ:
            if not trimmed:
                self.deliver(None, 0, data[UUD.size :])
        elif type in (Type.RUDI_REQ, Type.RUDI_RESP) or (type == Type.NACK and flags & NT):
            self.take_rudi(type, data, trimmed)
        elif type in ACK_FORMS or type == Type.NACK:
            pdc = self.find(data)
            if pdc is None or pdc.closed:
                return  # never answer an ACK or NACK
            if type == Type.NACK:
                _, code, _, psn, _, _, payload = NACK.unpack_from(data)
                pdc.take_nack(code, psn, payload)
            else:
                pdc.take_ack(data)
            pdc.finish_close()
        else:
            pdc = self.find_syn(data, type, kind, trimmed) if flags & SYN else self.find(data)
            _, _, psn, spdcid, _ = REQUEST.unpack_from(data)
            if pdc is None or (pdc.closed and (type, kind) != (Type.CP, Ctl.CLOSE_CMD)):
                if not flags & SYN and (type != Type.CP or flags & AR):
                    self.nack(Code.INV_DPDCID, psn, bool(flags & RETX), 0, spdcid)
                return
            pdc.peer_id = pdc.peer_id or spdcid  # §6.2 item 5: also from a request of the target
            rod = bool(flags & ISROD) if type == Type.CP else type == Type.ROD_REQ
            if rod != pdc.rod and not (type == Type.CP and self.habits.isrod_zero):
                pdc.refuse(Code.PDC_MODE_MISMATCH, psn, bool(flags & RETX))
            elif type == Type.CP:
                pdc.take_control(data)
            else:
                pdc.take_request(data, trimmed)
            pdc.finish_close()

    def find(self, data: bytes) -> Pdc | None:
        """Return the PDC that both PDCIDs name; a PDC that does not know its peer yet takes any PDCID of the peer."""
        spdcid, dpdcid = REQUEST.unpack_from(data)[3:]
        pdc = self.pdcs[dpdcid - 1] if 0 < dpdcid <= len(self.pdcs) else None
        return pdc if pdc is not None and (not pdc.peer_id or spdcid in (pdc.peer_id, 0)) else None

    def find_syn(self, data: bytes, type: int, kind: int, trimmed: bool) -> Pdc | None:
        """Return, as §6.2 says, the target PDC of this instance {IPDCID, Start_PSN}, which its first packet opens."""
        prologue, _, psn, spdcid, info = REQUEST.unpack_from(data)
        start = wire(psn - (info & 0xFFF))
        for pdc in self.pdcs:
            if pdc.peer_id == spdcid and not pdc.initiator and pdc.rx.start == start:
                return pdc
        rod = type == Type.ROD_REQ or (type == Type.CP and bool(prologue & ISROD))
        if trimmed or (type == Type.CP and kind not in (Ctl.NOOP, Ctl.NEGOTIATION)):
            return None
        if rod and psn != start:  # item 7
            self.nack(Code.ROD_OOO, psn, bool(prologue & RETX), 0, spdcid, start)
            return None
        return self.add(rod, spdcid, start)

    def add(self, rod: bool, peer_id: int, start: int) -> Pdc:
        self.pdcs.append(Pdc(self, rod, len(self.pdcs) + 1, peer_id, start))
        return self.pdcs[-1]

    def nack(self, code: int, psn: int, retx: bool, spdcid: int, dpdcid: int, payload: int = 0, nt: int = 0) -> None:
        """Send a NACK as the last paragraph of §6.3 says."""
        prologue = head(Type.NACK, NO_HEADER, RETX * retx | nt)
        self.out.append(NACK.pack(prologue, code, 0, wire(psn), spdcid, dpdcid, wire(payload)))

    # RUDI (§15)

    def take_rudi(self, type: int, data: bytes, trimmed: bool) -> None:
        """Take a RUDI packet: the destination keeps nothing and delivers every copy; the source takes one response for
        each pkt_id."""
        prologue, _, pkt_id = RUDI.unpack_from(data)
        retx = bool(prologue & RETX)
        if type == Type.RUDI_REQ:
            answer = Code.TRIMMED if trimmed else self.deliver(None, pkt_id, data[RUDI.size :])
            if isinstance(answer, int):
                self.nack(answer, pkt_id, retx, 0, 0, nt=NT)
            elif answer is not None:
                self.out.append(RUDI.pack(head(Type.RUDI_RESP, answer.next_hdr, RETX * retx), 0, pkt_id) + answer.ses)
        elif type == Type.RUDI_RESP and pkt_id in self.rudi and not trimmed:
            answer = Answer(data[RUDI.size :], next_hdr=prologue >> 7 & 15)
            self.responses.append((self.rudi.pop(pkt_id).handle, answer))
        elif type == Type.NACK and data[2] in AT_ONCE and NACK.unpack_from(data)[3] in self.rudi:
            self.transmit_rudi(NACK.unpack_from(data)[3], retx=True)

    def transmit_rudi(self, pkt_id: int, retx: bool = False) -> None:
        packet = self.rudi[pkt_id]
        self.out.append(RUDI.pack(head(Type.RUDI_REQ, packet.kind, RETX * retx), 0, pkt_id) + packet.body)


class NaiveReceiver(Naive):
    """A target, whose PDCs are opened by SYN packets."""

    def ask_close(self) -> None:
        """Ask for the close of a PDC (§6.5)."""
        for pdc in self.pdcs:
            if not pdc.closed:
                pdc.submit(Packet(Ctl.CLOSE_REQ, control=True))


class NaiveSender(Naive):
    """An initiator, which opens a new PDC if no PDC of the mode takes messages any more."""

    def send(self, rod: bool, packets: list[Packet], start: int) -> None:
        """Send one message; `start` is the Start_PSN of a new PDC."""
        taking = [pdc for pdc in self.pdcs if pdc.rod == rod and not pdc.close_wanted and not pdc.closed]
        (taking[0] if taking else self.add(rod, 0, start)).submit(*packets)

    def send_rudi(self, packet: Packet, pkt_id: int) -> None:
        self.rudi[pkt_id] = packet
        self.transmit_rudi(pkt_id)

    def send_uud(self, packet: Packet) -> None:
        self.out.append(UUD.pack(head(Type.UUD_REQ, packet.kind), 0) + packet.body)

    def close(self) -> None:
        for pdc in self.pdcs:
            pdc.close_wanted = True
