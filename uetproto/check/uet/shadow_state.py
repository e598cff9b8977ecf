"""What happened at one end of one PDC, seen from outside; no older than a window, so that memory stays bounded."""

from typing import Protocol

from uetproto.check.uet.registry import CheckPlan
from uetproto.engine.contract import Buffer, Mode
from uetproto.engine.pds.messages import Message
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.service import Outgoing, Response
from uetproto.wire.headers.uet_pds import CONTROLS, CpPsn

M32 = 0xFFFFFFFF
CONSUMING: frozenset[int] = frozenset(kind for kind, control in CONTROLS.items() if control.psn is CpPsn.CONSUMED)
"""Control packets with a PSN of their own (pds.md §2.2)."""

OPEN, ANSWERED, FAILED = 0, 1, 2
"""What SES got back for a packet."""


OLDER = 0x80000000
"""Bit of a − b that says: a is older than b (pds.md §2.1), as `behind` does."""


def behind(a: int, b: int) -> bool:
    """a is older than b (pds.md §2.1)."""
    return (a - b) & OLDER != 0


class EndpointView(Protocol):
    """What the invariants see of the endpoint that a shadow belongs to; `InvariantMonitor` has it."""

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


class TrackedMessage:
    """One message of the local SES: PSN and outcome of each packet sent."""

    __slots__ = ("end", "failed", "marks", "message", "psns", "shadow")

    def __init__(self, end: EndpointView, message: Outgoing, shadow: "PdcShadow | None") -> None:
        self.end = end
        self.message = message
        self.shadow = shadow
        """None: without a PDC."""
        self.psns: list[int] = []
        """By index; of RUDI the pkt_ids."""
        self.marks = bytearray()
        """By index: OPEN, ANSWERED, FAILED."""
        self.failed = False
        """What was not sent yet never will be."""


class SentPacket:
    """A PSN-consuming packet that is not acknowledged, as first sent."""

    __slots__ = ("at", "copies", "ctl_type", "header", "index", "nack_cnt", "payload", "psn", "rto_cnt", "track")

    def __init__(
        self, psn: int, track: TrackedMessage | None, index: int, header: Buffer, payload: Buffer, ctl_type: int | None
    ) -> None:
        self.psn = psn
        self.track = track
        self.index = index
        self.header = header
        """SES header."""
        self.payload = payload
        self.ctl_type = ctl_type
        self.copies = 0
        """Transmissions so far, the first included."""
        self.at = 0
        """When it left last."""
        self.rto_cnt = 0
        self.nack_cnt = 0
        """Of its record, when it left last."""


class PdcShadow:
    """One end of one PDC. The numbers are those after the last step."""

    __slots__ = (
        "cack", "close_cmd", "cps", "edge", "end", "expected", "got", "gtd", "heard_at", "max_clear",
        "max_rcvd", "message", "message_index", "next", "pdc", "peer", "peer_cack", "plan", "refused", "sent",
        "sent_at", "slots", "start", "state", "stored", "taken", "turn", "una", "waiting",
    )  # fmt: skip

    def __init__(self, end: EndpointView, pdc: Pdc, plan: CheckPlan, adopted: bool = False) -> None:
        self.end = end
        self.pdc = pdc
        self.plan = plan
        self.peer: PdcShadow | None = None
        """The other end."""
        self.state = pdc.state
        self.message: Outgoing | None
        """Whose packet left last for the first time, and its index."""
        self.message_index = 0
        self.close_cmd: int | None = None
        """PSN of the CLOSE_CMD sent."""
        self.sent: dict[int, SentPacket] = {}
        """From una on."""
        self.got: dict[int, Response | None] = {}
        """Delivered PSNs above CACK, and the final answer."""
        self.gtd: dict[int, Response] = {}
        """Guaranteed answers above max_clear."""
        self.cps: set[int] = set()
        """PSNs of arrived control packets above CACK."""
        self.taken = False
        """SES took a request in this step."""
        self.refused = False
        """A NACK left in this step."""
        self.sent_at = self.heard_at = end.now
        """Last first transmission, last arrival."""
        self.begin(pdc.tx.next if adopted else pdc.tx.start, pdc.rx.cack if adopted else pdc.rx.start - 1)

    def begin(self, first: int, cack: int) -> None:
        """Both spaces at their start, or where a harness set them; again after NEW_START_PSN."""
        cack &= M32
        self.sent.clear()
        self.got.clear()
        self.gtd.clear()
        self.cps.clear()
        self.message = None
        self.start = self.pdc.tx.start
        self.expected = self.una = self.next = first
        """`expected`: PSN of the next first transmission."""
        self.peer_cack = (first - 1) & M32
        self.cack = self.max_clear = self.max_rcvd = cack
        self.turn = (cack + 1) & M32
        """ROD: no PSN before is still to be delivered."""
        self.edge = (cack + self.pdc.rx.mp_range) & M32
        """Largest PSN that was ever allowed to the peer."""
        self.slots = self.stored = self.waiting = 0

    @property
    def mode(self) -> Mode:
        return self.pdc.mode

    def note(self) -> None:
        """Remembers the numbers after a step, and forgets what a window does not need any more."""
        self.note_source()
        rx = self.pdc.rx
        cack = rx.cack
        if cack != self.cack:
            got, cps = self.got, self.cps
            for psn in range(self.cack + 1, self.cack + 1 + ((cack - self.cack) & M32)):
                if got.pop(psn & M32, None) is None and cps:
                    cps.discard(psn & M32)
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
        """The numbers of the source half."""
        tx = self.pdc.tx
        una = tx.una
        if una != self.una:
            sent = self.sent
            for psn in range(self.una, self.una + ((una - self.una) & M32)):
                sent.pop(psn & M32, None)
            self.una = una
        self.next = tx.next
        self.peer_cack = tx.peer_cack

    def cleared(self) -> range:
        """What the peer cleared in this step; to be taken mod 2^32."""
        return range(self.max_clear + 1, self.max_clear + 1 + ((self.pdc.rx.max_clear - self.max_clear) & M32))

    def is_cp(self, psn: int) -> bool:
        """A control packet is known to have this PSN of the space that is received here."""
        return psn in self.cps

    def outcome_known(self, sent: SentPacket) -> bool:
        """SES got a response or an error for it, or it is none of its packets."""
        return sent.track is None or sent.track.marks[sent.index] != OPEN

    def has(self, psn: int) -> bool:
        """SES took the request with this PSN."""
        return psn in self.got or not behind(self.cack, psn)
