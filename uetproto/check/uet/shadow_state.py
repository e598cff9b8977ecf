# SPDX-License-Identifier: GPL-2.0-only
"""This module has the shadow state of one end of a PDC. This state is a record of what happened at this end within the
present window, as seen from outside the engine."""

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from uetproto.check.uet.registry import CheckPlan
from uetproto.engine.contract import Buffer
from uetproto.engine.pds.messages import Ack, Message
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.service import Outgoing, Response
from uetproto.wire.headers.uet_pds import CONTROLS, CpPsn
from uetproto.wire.serial import diff32

M32 = 0xFFFFFFFF
CONSUMING: frozenset[int] = frozenset(kind for kind, control in CONTROLS.items() if control.psn is CpPsn.CONSUMED)
"""Types of control packets that consume a PSN of their own (pds.md §2.2)."""

OPEN, ANSWERED, FAILED = 0, 1, 2
"""Outcomes of a packet that SES sent. `OPEN`: no outcome yet. `ANSWERED`: a response. `FAILED`: an error."""

OLDER = 0x80000000
"""Bit that is set in a − b if the PSN a is older than the PSN b (pds.md §2.1)."""


def behind(a: int, b: int) -> bool:
    """Return whether the PSN `a` is older than the PSN `b` (pds.md §2.1)."""
    return (a - b) & OLDER != 0


class EndpointView(Protocol):
    """This protocol describes what the invariants read of the `InvariantMonitor` of an endpoint."""

    now: int
    cause: Message | None
    trimmed: bool
    late: bool
    preset: bool
    last_psn: dict[int, int]
    rudi_taken: dict[int, None]

    @property
    def other(self) -> "EndpointView": ...

    def had(self, pdc: Pdc) -> bool: ...

    def is_quarantined(self, peer: int, pdcid: int) -> bool: ...

    def brings(self, psn: int) -> bool: ...

    def starts_at(self, start: int) -> bool: ...


@dataclass(slots=True, eq=False)
class TrackedMessage:
    """This record has a message of the local SES, with PSN and outcome of each packet that was sent."""

    end: EndpointView
    message: Outgoing
    shadow: "PdcShadow | None"
    """Shadow state of the PDC that carries the message. It is None if the message is carried without a PDC."""
    psns: list[int] = field(default_factory=list)
    """PSNs of the packets of the message by index. For a message with RUDI these are pkt_ids."""
    marks: bytearray = field(default_factory=bytearray)
    """Outcomes of the packets of the message by index: OPEN, ANSWERED or FAILED."""
    failed: bool = False
    """Whether the message failed. Packets of a failed message that were not sent will never be sent."""


@dataclass(slots=True, eq=False)
class SentPacket:
    """This record has a packet with a PSN as it was first sent. It is kept until the packet is acknowledged."""

    psn: int
    track: TrackedMessage | None
    index: int
    header: Buffer
    """SES header of the packet."""
    payload: Buffer
    ctl_type: int | None
    copies: int = 0
    """Number of transmissions of the packet, including the first. It is 1 again after an ACK_REQ for the packet."""
    at: int = 0
    """Time in picoseconds of the last transmission of the packet."""
    rto_cnt: int = 0
    nack_cnt: int = 0
    """`rto_cnt` is the number of retransmissions after time-outs, and `nack_cnt` is the number after NACKs. The PDS had
    recorded these numbers when the packet was last sent."""


Sent: TypeAlias = SentPacket | None
"""Record of the packet when it was first sent. It is None if the packet consumes no PSN, or if the first transmission
is not known."""


class PdcShadow:
    """This class has the shadow state of one end of a PDC. Its PSNs and counters are those after the last step."""

    __slots__ = (
        "answered", "asked", "cack", "close_cmd", "cps", "early", "edge", "end", "expected", "got", "gtd", "heard_at",
        "max_clear", "max_rcvd", "message", "message_index", "next", "pdc", "peer", "peer_cack", "plan", "refused",
        "sent", "sent_at", "slots", "start", "state", "stored", "taken", "turn", "una", "waiting",
    )  # fmt: skip

    def __init__(self, end: EndpointView, pdc: Pdc, plan: CheckPlan, adopted: bool = False) -> None:
        self.end = end
        self.pdc = pdc
        self.plan = plan
        self.peer: PdcShadow | None = None
        """Shadow state of the other end of the PDC. It is None if the other end is not known."""
        self.state = pdc.state
        self.message: Outgoing | None
        """Message of the request whose first transmission was the latest. `message_index` is the index of this request
        in the message."""
        self.message_index = 0
        self.close_cmd: int | None = None
        """PSN of the CLOSE_CMD that was sent. It is None if none was sent."""
        self.sent: dict[int, SentPacket] = {}
        """Packets from una on that were sent, by PSN."""
        self.got: dict[int, Response | None] = {}
        """Final answers to delivered PSNs above CACK. The answer is None if SES has not answered yet."""
        self.gtd: dict[int, Response] = {}
        """Guaranteed answers to PSNs above max_clear."""
        self.cps: set[int] = set()
        """PSNs above CACK of control packets that have arrived."""
        self.asked: set[int] = set()
        """PSNs above CACK of delivered requests with ar = 1."""
        self.early: set[int] = set()
        """PSNs that were acknowledged while a PSN below was missing, as long as no ACK has told the peer that this gap
        is closed."""
        self.answered = False
        """Whether SES answered a request in the present step."""
        self.taken = False
        """Whether SES took a request in the present step."""
        self.refused = False
        """Whether a NACK was sent in the present step."""
        self.sent_at = self.heard_at = end.now
        """`sent_at` is the time of the latest first transmission of a packet. `heard_at` is the time of the latest
        arrival of a packet. Both are in picoseconds."""
        self.begin(pdc.tx.next if adopted else pdc.tx.start, pdc.rx.cack if adopted else pdc.rx.start - 1)

    def begin(self, first: int, cack: int) -> None:
        """Set the PSNs of both directions to their start, or to preset PSNs. This is done again after NEW_START_PSN."""
        cack &= M32
        self.sent.clear()
        self.got.clear()
        self.gtd.clear()
        self.cps.clear()
        self.asked.clear()
        self.early.clear()
        self.message = None
        self.start = self.pdc.tx.start
        self.expected = self.una = self.next = first
        """PSNs of the source. `expected` is the PSN that the next first transmission must have."""
        self.peer_cack = (first - 1) & M32
        self.cack = self.max_clear = self.max_rcvd = cack
        self.turn = (cack + 1) & M32
        """PSN that must be delivered next on ROD."""
        self.edge = (cack + self.pdc.rx.mp_range) & M32
        """Largest PSN that the window has ever allowed the peer to send."""
        self.slots = self.stored = self.waiting = 0

    def note(self) -> None:
        """Store the PSNs and counters after a step, and drop the records of packets that have left the window."""
        self.note_source()
        rx = self.pdc.rx
        cack = rx.cack
        if cack != self.cack:
            got, cps, asked = self.got, self.cps, self.asked
            for psn in range(self.cack + 1, self.cack + 1 + ((cack - self.cack) & M32)):
                if got.pop(psn & M32, None) is None and cps:
                    cps.discard(psn & M32)
                if asked:
                    asked.discard(psn & M32)
            self.cack = cack
            if behind(self.turn, cack + 1):
                self.turn = (cack + 1) & M32
        edge = cack + rx.mp_range
        if behind(self.edge, edge):
            self.edge = edge & M32
        if rx.max_clear != self.max_clear:
            gtd = self.gtd
            if gtd:
                for psn in self.cleared():
                    gtd.pop(psn & M32, None)
            self.max_clear = rx.max_clear
        self.max_rcvd = rx.max_rcvd
        self.slots = len(rx.slots)
        self.stored = rx.stored
        self.waiting = rx.waiting
        self.state = self.pdc.state

    def note_source(self) -> None:
        """Store the PSNs of the source, and drop the records of acknowledged packets."""
        tx = self.pdc.tx
        una = tx.una
        if una != self.una:
            sent = self.sent
            for psn in range(self.una, self.una + ((una - self.una) & M32)):
                sent.pop(psn & M32, None)
            self.una = una
        self.next = tx.next
        self.peer_cack = tx.peer_cack

    def note_ack(self, ack: Ack) -> None:
        """Note that this end sends an ACK, and record what the ACK tells the peer about gaps. An ACK that answers a
        PROBE acknowledges no PSN of its own."""
        cack = ack.cack_psn
        if self.early:
            self.early = {psn for psn in self.early if diff32(psn, cack) > 1}
        if ack.probe_opaque is None and ack.ack_psn in self.asked and diff32(ack.ack_psn, cack) > 1:
            self.early.add(ack.ack_psn)

    def cleared(self) -> range:
        """Return the PSNs that the peer cleared in the present step. The caller must take them modulo 2^32."""
        return range(self.max_clear + 1, self.max_clear + 1 + ((self.pdc.rx.max_clear - self.max_clear) & M32))

    def outcome_known(self, sent: SentPacket) -> bool:
        """Return whether SES got a response or an error for a packet. Return True also for a packet that does not
        belong to SES."""
        return sent.track is None or sent.track.marks[sent.index] != OPEN

    def has(self, psn: int) -> bool:
        """Return whether SES took the request with this PSN."""
        return psn in self.got or not behind(self.cack, psn)
