"""This module counts at the receiver what ACKs tell the sender (cms.md §1, §3.2, §4)."""

from uetproto.engine.cc.rccc import CreditPacer
from uetproto.wire.headers.uet_pds import CcType
from uetproto.wire.tuples import PdsCcStateCreditHeader, PdsCcStateNsccHeader

_SERVICE_UNIT = 128_000
_MOST_SERVICE, _MOST_OOO, _M24 = 0xFFFF, 0xFFFE, 0xFFFFFF


class NsccReceiver:
    """This class implements `engine.contract.CongestionReceiver` for a sender with NSCC."""

    __slots__ = ("rcvd_bytes",)

    def __init__(self) -> None:
        self.rcvd_bytes = 0
        """Nominal bytes of the new, untrimmed data packets of the PDC."""

    def arrived(self, size: int, now: int) -> None:
        self.rcvd_bytes += size

    def asked(self, ccc_id: int | None, target: int, now: int) -> None:
        """A sender with NSCC alone asks for no credit."""

    def trimmed(self, last_hop: bool, now: int) -> None:
        """The sender learns of it by the NACK."""

    def ack_state(self, arrived_at: int, ooo_count: int, now: int) -> tuple[int, bytes]:
        """Return cc_type and state; service_time is 0 if the ACK leaves at once, and has not to be subtracted."""
        service = min((now - arrived_at) // _SERVICE_UNIT, _MOST_SERVICE)
        received = self.rcvd_bytes + 255 >> 8 & _M24
        return CcType.NSCC, PdsCcStateNsccHeader.pack(service, 0, 0, received, min(ooo_count, _MOST_OOO))


class CreditReceiver(NsccReceiver):
    """This receiver passes demands to the pacer of its NIC. Grants leave in CREDIT packets.

    Without NSCC, ACKs repeat the newest grant.
    """

    __slots__ = ("_pacer", "_pdcid", "_peer", "_sender", "_window")

    def __init__(self, pacer: CreditPacer, peer: int, pdcid: int, window: bool) -> None:
        """`window`: the sender has NSCC, too, whose state ACKs carry."""
        super().__init__()
        self._pacer = pacer
        self._peer = peer
        self._pdcid = pdcid
        self._sender: tuple[int, int] | None = None
        self._window = window

    def asked(self, ccc_id: int | None, target: int, now: int) -> None:
        if ccc_id is not None:
            self._sender = (self._peer, ccc_id)
        if self._sender is not None:
            self._pacer.asked(self._sender, self._pdcid, target, now)

    def ack_state(self, arrived_at: int, ooo_count: int, now: int) -> tuple[int, bytes]:
        if self._window or self._sender is None:
            return super().ack_state(arrived_at, ooo_count, now)
        granted = self._pacer.granted(self._sender)
        return CcType.CREDIT, PdsCcStateCreditHeader.pack(granted, min(ooo_count, _MOST_OOO))
