# SPDX-License-Identifier: GPL-2.0-only
"""This module is a second reading of pds.md §2 and §6–§14: a PDC made of dicts and sets that are scanned.

Nothing here comes from the engine or from its codec. There is no window to move and no timer to arm, and nothing is
ever freed: CACK, CLEAR_PSN and the SACK bitmap are counted anew whenever they are needed. A PSN inside is an integer
that goes on beyond 2^32; only on the wire it has 32 bits. `tick`, called at a fixed pace, repeats what has no answer
yet, without end. What a correct peer never sends is noted in `faults`.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tests.support.peer.formats import (
    ACK,
    ACK_FORMS,
    AR,
    CLEAR,
    CLOSE,
    CP,
    ISROD,
    MPR_UNIT,
    NO_HEADER,
    REQUEST,
    RESPONSE,
    RETX,
    SYN,
    Code,
    Ctl,
    P,
    Type,
    head,
    near,
    wire,
)

DEFAULT_RANGE, SYN_RANGE = 8 * MPR_UNIT, 4096  # §8.6, §6.2
CONSUMES_PSN = (Ctl.NOOP, Ctl.CLOSE_CMD, Ctl.CLOSE_REQ, Ctl.NEGOTIATION)  # §13
AT_ONCE = (
    Code.TRIMMED, Code.TRIMMED_LASTHOP, Code.TRIMMED_ACK, Code.PKT_NOT_RCVD, Code.ACK_WITH_DATA, Code.RCVR_INFER_LOSS,
)  # fmt: skip
"""NACK codes that are repeated without delay (§12)."""
FATAL = (
    Code.INV_DPDCID, Code.PDC_HDR_MISMATCH, Code.CLOSING, Code.CLOSING_IN_ERR, Code.GTD_RESP_UNAVAIL,
    Code.INVALID_SYN, Code.PDC_MODE_MISMATCH, Code.UNEXP_EVENT, 0xFF,
)  # fmt: skip


class Answer(NamedTuple):
    """An answer is what SES says about a delivered packet (`ses_pds_tx_rsp`)."""

    ses: bytes
    guaranteed: bool = False
    next_hdr: int = RESPONSE


NOTHING = Answer(b"", next_hdr=NO_HEADER)
DEFAULT = Answer(bytes(12))  # §9.4: DEFAULT_RESPONSE, return code NULL, message id 0


class Packet(NamedTuple):
    """A packet with a PSN is a request, or a control packet whose ctl_type is `kind`."""

    kind: int
    body: bytes = b""
    ar: bool = True
    handle: Hashable = None
    control: bool = False


@dataclass(frozen=True)
class Habits:
    """The habits of an end are the choices that pds.md and observed.md leave to it."""

    ack_type: int = 8
    """Type of its ACKs: ACK, ACK_CC or ACK_CCX (wire.md §2)."""
    mpr: int = 8
    """Value of MP_RANGE, in units of 128 PSNs (§8.6)."""
    sack_below: int = 0
    """Number of PSNs before CACK + 1 at which the SACK bitmap begins: any base is legal (§8.5)."""
    isrod_zero: bool = False
    """Whether control packets do not tell the mode of their PDC (observed.md)."""
    ar: bool = True
    """Whether each request asks for an ACK; False: only the last request of a message does (§7.1)."""
    hint: bool = False
    """Whether a target asks at once to close each PDC: all its ACKs say req = CLOSE (§6.5)."""


class End(Protocol):
    """A PDC needs these methods of its endpoint (`ends.Naive`)."""

    habits: Habits
    out: list[bytes]
    faults: list[str]
    responses: list[tuple[Hashable, Answer | None]]

    def deliver(self, pdc: "Pdc", psn: int, body: bytes, /) -> Answer | int | None:
        """Hand a packet to SES, with SES header and payload in one; return its answer, the NACK code of a refusal, or
        None if the answer comes later."""

    def nack(self, code: int, psn: int, retx: bool, spdcid: int, dpdcid: int, payload: int, /) -> None: ...


class Source:
    """The source of one direction has what goes out (§2.4, §7)."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.packets: list[Packet] = []
        self.sent = 0
        self.acked: set[int] = set()
        self.arrived: set[int] = set()
        """dst_rcvd: the peer has it, its response is missing (§7.2)."""
        self.peer_cack = start - 1
        self.mp_range = DEFAULT_RANGE

    @property
    def next(self) -> int:
        return self.start + self.sent

    @property
    def clear(self) -> int:
        """Return the PSN up to which every PSN is acknowledged (§2.4)."""
        psn = self.start
        while psn in self.acked:
            psn += 1
        return psn - 1

    @property
    def unacked(self) -> list[int]:
        return [psn for psn in range(self.start, self.next) if psn not in self.acked]

    @property
    def done(self) -> bool:
        return len(self.acked) == len(self.packets)


class Destination:
    """The destination of one direction has what came in (§2.3, §8, §9.2)."""

    def __init__(self, start: int, mp_range: int) -> None:
        self.start = start
        self.mp_range = mp_range
        self.received: dict[int, bytes] = {}
        self.answers: dict[int, Answer] = {}
        self.unsent: dict[int, bool] = {}
        """retx of each packet that was not acknowledged yet."""
        self.max_clear = start - 1

    def stored(self, psn: int) -> bool:
        """Return whether a PSN has a guaranteed response that is not cleared (§9.2)."""
        return psn > self.max_clear and psn in self.answers and self.answers[psn].guaranteed

    @property
    def cack(self) -> int:
        """Return the PSN up to which every PSN is answered, and cleared where that is needed (§2.3)."""
        psn = self.start
        while psn in self.answers and not self.stored(psn):
            psn += 1
        return psn - 1

    @property
    def expected(self) -> int:
        """Return the PSN that ROD takes next (§8.1)."""
        psn = self.start
        while psn in self.received:
            psn += 1
        return psn


class Pdc:
    """One end of a PDC has both halves (§5); the target sends return data as the initiator sends requests (§2.2)."""

    def __init__(self, end: "End", rod: bool, local_id: int, peer_id: int, start: int) -> None:
        self.end = end
        self.rod = rod
        self.local_id = local_id
        self.peer_id = peer_id
        self.initiator = not peer_id
        self.tx = Source(start)
        self.rx = Destination(start, end.habits.mpr * MPR_UNIT)
        self.went_back_to = start - 1
        self.close_wanted = False
        self.close_psn: int | None = None
        self.closed = False

    # Source

    def submit(self, *packets: Packet) -> None:
        self.tx.packets += packets
        self.pump()

    def pump(self) -> bool:
        """Send first transmissions: all that the peer can track (§7.1) and that psn_offset reaches (§6.2)."""
        tx = self.tx
        before = tx.sent
        while tx.sent < len(tx.packets) and tx.next <= tx.clear + tx.mp_range and (self.peer_id or tx.sent < SYN_RANGE):
            tx.sent += 1
            self.transmit(tx.next - 1)
        return tx.sent > before

    def transmit(self, psn: int, retx: bool = False) -> None:
        """Send a packet (§7.1); while the PDCID of the peer is unknown, psn_offset takes the place of the DPDCID
        (§6.2)."""
        tx = self.tx
        packet = tx.packets[psn - tx.start]
        flags = RETX * retx | AR * (retx or packet.ar) | self.syn
        if packet.control:
            self.control(packet.kind, psn, 0, flags)
        else:
            prologue = head(Type.ROD_REQ if self.rod else Type.RUD_REQ, packet.kind, flags)
            to = self.peer_id or psn - tx.start
            self.end.out.append(REQUEST.pack(prologue, tx.clear - psn, wire(psn), self.local_id, to) + packet.body)

    @property
    def syn(self) -> int:
        return 0 if self.peer_id else SYN

    def control(self, kind: int, psn: int, payload: int, flags: int = 0) -> None:
        """Send a control packet (§13)."""
        prologue = head(Type.CP, kind, flags | self.syn | ISROD * (self.rod and not self.end.habits.isrod_zero))
        to = self.peer_id or psn - self.tx.start
        self.end.out.append(CP.pack(prologue, 0, wire(psn), self.local_id, to, wire(payload)))

    def repeat(self, first: int, last: int) -> None:
        """Send again what is not acknowledged, without looking at counters; send ACK_REQ for a packet that lacks only
        its response (§11)."""
        tx = self.tx
        for psn in tx.unacked:
            if first <= psn <= last and psn in tx.arrived:
                self.control(Ctl.ACK_REQ, psn, 0, AR)
            elif first <= psn <= last and psn <= tx.clear + tx.mp_range:
                self.transmit(psn, retx=True)

    def take_ack(self, data: bytes) -> None:
        """Take an ACK as §7.2 says, step by step."""
        tx = self.tx
        prologue, offset, cack, spdcid, _ = ACK.unpack_from(data)
        form = ACK_FORMS[prologue >> 11]
        cack = near(cack, tx.peer_cack)
        psn = cack if prologue & P else cack + offset
        if not (tx.start - 1 <= cack < tx.next and psn < tx.next):
            self.end.faults.append(f"ACK {psn:x} with CACK {cack:x}, but {tx.next:x} was not sent yet")
            return
        self.peer_id = self.peer_id or spdcid
        if not prologue & P and psn >= tx.start and psn not in tx.acked:
            answer = Answer(data[ACK.size + (form.size if form else 0) :], next_hdr=prologue >> 7 & 15)
            if answer.next_hdr == RESPONSE and answer.ses[0] & 0x3F == 3:  # NO_RESPONSE: the real one follows
                tx.arrived.add(psn)
            else:
                self.settle(psn, answer)
        for covered in tx.unacked:
            if covered <= cack:
                self.settle(covered, None)
        if form:
            _, mpr, base, bitmap = form.unpack_from(data, ACK.size)
            if mpr and cack >= tx.peer_cack:
                tx.mp_range = mpr * MPR_UNIT
            reported = {cack + base + bit for bit in range(64) if bitmap >> bit & 1}
            tx.arrived |= reported & set(tx.unacked)
            if reported and max(reported) >= tx.next:
                self.end.faults.append(f"SACK of {max(reported):x}, but {tx.next:x} was not sent yet")
        tx.peer_cack = max(tx.peer_cack, cack)
        wish = prologue >> 1 & 3
        self.close_wanted |= self.initiator and wish == CLOSE
        if not self.pump() and wish == CLEAR:
            self.control(Ctl.CLEAR_CMD, 0, tx.clear)  # §9.3: at once, unless a request has just carried it

    def settle(self, psn: int, answer: Answer | None) -> None:
        """Note that a PSN is acknowledged: SES gets its response once, or None if only CACK says so."""
        packet = self.tx.packets[psn - self.tx.start]
        self.tx.acked.add(psn)
        if packet.handle is not None:
            self.end.responses.append((packet.handle, answer))
        self.closed |= packet.control and packet.kind == Ctl.CLOSE_CMD  # §6.4

    def take_nack(self, code: int, psn: int, payload: int) -> None:
        """Take a NACK (§12); a code with a delay waits for the next tick."""
        tx = self.tx
        psn = near(psn, tx.peer_cack)
        if code in FATAL:
            self.closed = True
            if code != Code.INV_DPDCID or self.close_psn is None:  # §6.4: else the target is already gone
                self.end.faults.append(f"NACK {code:#x} for {psn:x}")
        elif psn in tx.unacked and code == Code.RCVD_SES_PROCG:
            tx.arrived.add(psn)
        elif psn in tx.unacked and code == Code.ROD_OOO:
            expected = near(payload, tx.peer_cack)
            if expected > self.went_back_to:  # §11.3: once for each value
                self.went_back_to = expected
                self.repeat(expected, tx.next)
        elif psn in tx.unacked and code in AT_ONCE:
            tx.arrived.discard(psn)
            self.repeat(psn, tx.next if self.rod else psn)

    def tick(self) -> None:
        """Act when the fixed time is over: repeat all (§11), ask for a clear (§9.3), close when all is done (§6.4)."""
        if self.closed:
            return
        self.repeat(self.tx.start, self.tx.next)
        if any(self.rx.stored(psn) for psn in self.rx.received):
            self.control(Ctl.CLEAR_REQ, 0, self.rx.cack + 1)
        if self.close_wanted and self.initiator and self.close_psn is None and self.tx.done:
            self.close_psn = self.tx.next
            self.submit(Packet(Ctl.CLOSE_CMD, control=True))

    # Destination

    def take_request(self, data: bytes, trimmed: bool) -> None:
        """Take a request: its CLEAR_PSN first, then its PSN (§6.3)."""
        prologue, offset, psn, _, _ = REQUEST.unpack_from(data)
        psn = near(psn, self.rx.cack)
        if not trimmed:
            self.clear(psn + offset)
        self.take_psn(psn, bool(prologue & RETX), data[REQUEST.size :], trimmed)

    def clear(self, upto: int) -> None:
        """Clear the PSNs up to `upto` that were answered (§9.3)."""
        rx = self.rx
        if all(psn in rx.answers for psn in range(rx.start, upto + 1)):
            rx.max_clear = max(rx.max_clear, upto)
        else:
            self.end.faults.append(f"CLEAR {upto:x}, but not all up to there was answered")

    def take_psn(self, psn: int, retx: bool, body: bytes, trimmed: bool = False, cp: int | None = None) -> None:
        """Take a PSN (§8.1, §14): a new PSN is delivered once; a control packet is not delivered, and is answered at
        once (§13)."""
        rx = self.rx
        cack = rx.cack
        if psn < rx.start or psn <= cack - rx.mp_range:
            return
        if psn in rx.received:
            if not trimmed and body != rx.received[psn]:
                self.end.faults.append(f"another content for PSN {psn:x}")
            if retx and (psn != self.close_psn or self.closed):
                self.repeat_ack(psn, retx)
        elif psn > cack + rx.mp_range:
            self.refuse(Code.PSN_OOR_WINDOW, psn, retx)
        elif self.rod and psn > rx.expected:
            self.refuse(Code.ROD_OOO, psn, retx, rx.expected)
        elif trimmed:
            self.refuse(Code.TRIMMED, psn, retx)
        elif self.close_psn is not None and not self.initiator:
            self.refuse(Code.CLOSING, psn, retx)
        else:
            answer = self.end.deliver(self, psn, body) if cp is None else NOTHING
            if isinstance(answer, int):
                self.refuse(answer, psn, retx)
                return
            rx.received[psn], rx.unsent[psn] = body, retx
            self.close_wanted |= cp == Ctl.CLOSE_REQ
            if cp == Ctl.CLOSE_CMD:
                self.clear(psn - 1)  # §9.3: it clears everything below it
                self.close_psn = psn
            elif answer is not None:
                self.respond(psn, answer)

    def respond(self, psn: int, answer: Answer) -> None:
        """Send an ACK for a packet (§8.3); in ROD after the ACKs of all packets before it."""
        rx = self.rx
        rx.answers[psn] = answer
        for waiting in sorted(rx.unsent):
            if waiting in rx.answers:
                self.acknowledge(waiting, rx.unsent.pop(waiting), rx.answers[waiting])
            elif self.rod:
                break

    def repeat_ack(self, psn: int, retx: bool) -> None:
        """Answer a duplicate with the stored response, or a default one (§8.1)."""
        if psn not in self.rx.answers:
            self.refuse(Code.RCVD_SES_PROCG, psn, retx)
        elif self.rx.stored(psn):
            self.acknowledge(psn, retx, self.rx.answers[psn])
        else:
            self.acknowledge(psn, retx, DEFAULT if self.rx.received[psn] else NOTHING)

    def acknowledge(self, psn: int, retx: bool, answer: Answer, probe: int | None = None) -> None:
        """Send an ACK as §8.4 and §8.5 say."""
        rx, habits = self.rx, self.end.habits
        cack = rx.cack
        wish = CLEAR if rx.stored(psn) else CLOSE if habits.hint and not self.initiator else 0
        offset = psn - cack if probe is None else near(probe << 16, 0) >> 16
        flags = RETX * retx | P * (probe is not None) | wish << 1
        data = ACK.pack(head(habits.ack_type, answer.next_hdr, flags), offset, wire(cack), self.local_id, self.peer_id)
        form = ACK_FORMS[habits.ack_type]
        if form:
            base = cack + 1 - habits.sack_below
            bitmap = sum(1 << bit for bit in range(64) if base + bit <= cack or base + bit in rx.received)
            data += form.pack(0, habits.mpr, base - cack, bitmap)
        self.end.out.append(data + answer.ses)

    def take_control(self, data: bytes) -> None:
        """Take a control packet (§13)."""
        rx = self.rx
        prologue, opaque, psn, _, _, payload = CP.unpack_from(data)
        kind, retx = prologue >> 7 & 15, bool(prologue & RETX)
        psn = near(psn, rx.cack)
        if kind == (Ctl.CLOSE_CMD if self.initiator else Ctl.CLOSE_REQ):
            self.refuse(Code.UNEXP_EVENT, psn, retx)
        elif kind in CONSUMES_PSN:
            self.take_psn(psn, retx, b"", cp=kind)
        elif kind == Ctl.ACK_REQ and psn in rx.received:
            self.repeat_ack(psn, retx)
        elif kind == Ctl.ACK_REQ and rx.cack < psn <= rx.cack + rx.mp_range:
            self.refuse(Code.PKT_NOT_RCVD, psn, retx)
        elif kind == Ctl.CLEAR_CMD:
            self.clear(near(payload, rx.cack))
        elif kind == Ctl.CLEAR_REQ and not self.pump():
            self.control(Ctl.CLEAR_CMD, 0, self.tx.clear)
        elif kind == Ctl.PROBE:
            self.acknowledge(rx.cack, retx, NOTHING, opaque)
        elif kind == Ctl.CREDIT_REQ:
            self.control(Ctl.CREDIT, 0, payload)

    def finish_close(self) -> None:
        """Send the ACK of CLOSE_CMD when all before it is complete and the return direction has drained (§6.5)."""
        if not self.initiator and not self.closed and self.close_psn == self.rx.cack + 1 and self.tx.done:
            self.respond(self.close_psn, NOTHING)
            self.closed = True

    def refuse(self, code: int, psn: int, retx: bool, payload: int = 0) -> None:
        self.end.nack(code, psn, retx, self.local_id, self.peer_id, payload)
