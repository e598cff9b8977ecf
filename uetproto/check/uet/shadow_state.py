"""This module has shadow state: what happened at one end of a PDC within a recent window, seen from outside."""

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
"""Control packets with a PSN of their own (pds.md §2.2)."""

OPEN, ANSWERED, FAILED = 0, 1, 2
"""Outcomes of a packet, as SES is told."""

OLDER = 0x80000000
"""Bit of a − b that is set if a is older than b (pds.md §2.1), as in `behind`."""


def behind(a: int, b: int) -> bool:
    """Return whether a is older than b (pds.md §2.1)."""
    return (a - b) & OLDER != 0


class EndpointView(Protocol):
    """This protocol describes the part of an `InvariantMonitor` that the invariants read, for the endpoint of a
    shadow."""

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
    """A message of the local SES: PSN and outcome of each packet that was sent."""

    end: EndpointView
    message: Outgoing
    shadow: "PdcShadow | None"
    """Shadow of the PDC that carries the message; None: no PDC carries it."""
    psns: list[int] = field(default_factory=list)
    """PSNs of the packets by index; with RUDI, their pkt_ids."""
    marks: bytearray = field(default_factory=bytearray)
    """Outcomes of the packets by index: OPEN, ANSWERED, FAILED."""
    failed: bool = False
    """Whether the message failed: its packets that are not sent yet will never be sent."""


@dataclass(slots=True, eq=False)
class SentPacket:
    """A PSN-consuming packet that is not acknowledged, as it was first sent."""

    psn: int
    track: TrackedMessage | None
    index: int
    header: Buffer
    """SES header of the packet."""
    payload: Buffer
    ctl_type: int | None
    copies: int = 0
    """Number of transmissions, the first included."""
    at: int = 0
    """Time of the last transmission of the packet."""
    rto_cnt: int = 0
    nack_cnt: int = 0
    """The transmission count in the record of the PDS when the packet was last sent."""


Sent: TypeAlias = SentPacket | None
"""The packet first sent with this packet's PSN; None: the packet consumes no PSN, or no first packet is known."""


class PdcShadow:
    """Shadow state of one end of a PDC; the numbers are those after the last step."""

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
        """Shadow of the other end, if it is known."""
        self.state = pdc.state
        self.message: Outgoing | None
        """The message of the last first transmission, and the index of the packet."""
        self.message_index = 0
        self.close_cmd: int | None = None
        """PSN of the CLOSE_CMD that was sent."""
        self.sent: dict[int, SentPacket] = {}
        """Sent packets from una on, by PSN."""
        self.got: dict[int, Response | None] = {}
        """Final answers of delivered PSNs above CACK; None: not answered yet."""
        self.gtd: dict[int, Response] = {}
        """Guaranteed answers above max_clear."""
        self.cps: set[int] = set()
        """PSNs of control packets that arrived, above CACK."""
        self.asked: set[int] = set()
        """PSNs of delivered requests with ar = 1, above CACK."""
        self.early: set[int] = set()
        """Those whose ACK left with a gap below, while no ACK has told that the gap is closed."""
        self.answered = False
        """Whether SES answered a request in this step."""
        self.taken = False
        """Whether SES took a request in this step."""
        self.refused = False
        """Whether a NACK left in this step."""
        self.sent_at = self.heard_at = end.now
        """When the last first transmission left, and when the last packet arrived."""
        self.begin(pdc.tx.next if adopted else pdc.tx.start, pdc.rx.cack if adopted else pdc.rx.start - 1)

    def begin(self, first: int, cack: int) -> None:
        """Set both PSN spaces to their start, or to preset PSNs; this is done again after NEW_START_PSN."""
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
        """PSNs of the source; `expected` is the PSN of the next first transmission."""
        self.peer_cack = (first - 1) & M32
        self.cack = self.max_clear = self.max_rcvd = cack
        self.turn = (cack + 1) & M32
        """On ROD the next PSN to be delivered."""
        self.edge = (cack + self.pdc.rx.mp_range) & M32
        """Largest PSN that the peer was ever allowed to send."""
        self.slots = self.stored = self.waiting = 0

    def note(self) -> None:
        """Store the numbers after a step, and forget packets that have left the window."""
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
        """Store the numbers of the source half."""
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
        """Record what a departing ACK tells the peer about gaps; an ACK that answers a PROBE acknowledges no PSN of its
        own."""
        cack = ack.cack_psn
        if self.early:
            self.early = {psn for psn in self.early if diff32(psn, cack) > 1}
        if ack.probe_opaque is None and ack.ack_psn in self.asked and diff32(ack.ack_psn, cack) > 1:
            self.early.add(ack.ack_psn)

    def cleared(self) -> range:
        """Return the PSNs that the peer cleared in this step, which the caller must take mod 2^32."""
        return range(self.max_clear + 1, self.max_clear + 1 + ((self.pdc.rx.max_clear - self.max_clear) & M32))

    def outcome_known(self, sent: SentPacket) -> bool:
        """Return whether SES got a response or an error for a packet, or the packet does not belong to SES."""
        return sent.track is None or sent.track.marks[sent.index] != OPEN

    def has(self, psn: int) -> bool:
        """Return whether SES took the request with this PSN."""
        return psn in self.got or not behind(self.cack, psn)
