"""The interface between packet delivery and semantics has the calls of UE 1.0.1 Table 3-27 (pds.md §4, ses.md §1).

SES is the user of PDS. SES calls `PacketDelivery`, and PDS calls `PdsUser`. In place of one `ses_pds_tx_req` for each
packet, SES hands over a whole message (`Outgoing`), from which PDS takes the next packet when the window permits: so a
message of any length needs no buffer.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

from uetproto.engine.contract import Buffer, Mode, PdsError
from uetproto.errors import LocalError
from uetproto.wire.headers import uet_ses
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import ResponseList, ResponseOpcode, ReturnCode
from uetproto.wire.tuples import SesResponseHeader

# What PDS reads of SES headers ---------------------------------------------------------------------------------------

SES_SIZE: dict[int, int] = {
    NextHdr.NONE: 0,
    NextHdr.REQUEST_SMALL: uet_ses.REQUEST_SMALL.size,
    NextHdr.REQUEST_MEDIUM: uet_ses.REQUEST_MEDIUM.size,
    NextHdr.REQUEST_STD: uet_ses.REQUEST_STD.size,
    NextHdr.RESPONSE: uet_ses.RESPONSE.size,
    NextHdr.RESPONSE_DATA: uet_ses.RESPONSE_DATA.size,
    NextHdr.RESPONSE_DATA_SMALL: uet_ses.RESPONSE_DATA_SMALL.size,
}
"""Size in bytes of the SES header for each value of `next_hdr` (wire.md §2)."""
RETURN_DATA: frozenset[int] = frozenset({NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL})
"""Values of `next_hdr` that announce read data: in a return-direction request, in an ACK, in a RUDI response."""


def build_default_response(message_id: int) -> bytes:
    """Build the default response, which PDS sends when it no longer has the response of SES (pds.md §9.4).

    Its return code NULL says nothing about success; its length is 0.
    """
    return SesResponseHeader.pack(
        list=ResponseList.EXPECTED, opcode=ResponseOpcode.DEFAULT_RESPONSE, version=0, return_code=ReturnCode.NULL,
        message_id=message_id, ri_generation=0, job_id=0, modified_length=0,
    )  # fmt: skip


def message_id_of(data: Buffer, at: int, next_hdr: int) -> int:
    """Return the message_id of the SES request at byte `at`; 0 when its form has none."""
    return int.from_bytes(data[at + 2 : at + 4], "big") if next_hdr == NextHdr.REQUEST_STD else 0


def is_no_response(data: Buffer, next_hdr: int) -> bool:
    """Return True when the SES response says that the final response follows later (ses.md §9.1)."""
    return next_hdr == NextHdr.RESPONSE and data[0] & 0x3F == ResponseOpcode.NO_RESPONSE


# The calls -----------------------------------------------------------------------------------------------------------


class Outgoing(Protocol):
    """A message that returns its packets one by one."""

    peer: int
    mode: Mode
    message_id: int
    next_hdr: int
    context: int
    """Number that the application chooses: messages with different numbers never share a PDC (pds.md §6.1)."""
    reserved: bool
    """Whether the message uses a reserved PDC (`rsv_pdc_context`), whose SYN packets carry use_rsv_pdc."""
    lock: bool
    """`lock_pdc`: the message keeps its PDC open until `Pds.unlock`, as a read does until it has its data (pds.md
    §10)."""

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        """Return index, SES header and payload of the next packet, and whether it is the last of the message."""


class Locking(Outgoing, Protocol):
    """A message whose `lock` is True; PDS calls `began` to tell the message which PDC carries it."""

    def began(self, pdc: "Connection", psn: int) -> None:
        """Take the PDC and the PSN of the first packet; another call follows if the PSN changes (pds.md §6.6)."""


_ANSWERS = (NextHdr.NONE, NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL)


@dataclass(frozen=True, slots=True)
class Response:
    """The answer that SES has given to a delivered packet (`ses_pds_tx_rsp`).

    Raises `LocalError` if `header` is not bytes, or if an ACK cannot carry `next_hdr`.
    """

    header: bytes
    """The SES response header, and the data that follows it in the ACK (pds.md §10)."""
    gtd: bool = False
    """Whether PDS guarantees the delivery: it stores the response until a CLEAR (pds.md §9.1)."""
    final: bool = True
    """Whether this is the final response; False: it is NO_RESPONSE, and the final response follows (ses.md §9.1)."""
    next_hdr: int = NextHdr.RESPONSE
    rereadable: bool = True
    """Whether a duplicate may be answered by reading the data again, so that it need not be stored; False for a
    fetching atomic (ses.md §9.6)."""

    def __post_init__(self) -> None:
        if type(self.header) is not bytes:
            raise LocalError("header", f"{type(self.header).__name__} is not legal", "bytes")
        if self.next_hdr not in _ANSWERS:
            raise LocalError("next_hdr", f"{self.next_hdr!r} is not legal", ", ".join(n.name for n in _ANSWERS))


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of SES that makes PDS count the packet as not received, and send this NACK (`ses_nack`, pds.md §4,
    §6.3 row 16).

    Raises `LocalError` for a value that is no NackCode.
    """

    code: NackCode

    def __post_init__(self) -> None:
        if not isinstance(self.code, NackCode):
            raise LocalError("code", f"{self.code!r} is not legal", "a NackCode")


class Connection(Protocol):
    """The part of a PDC that SES may read."""

    peer: int
    local_id: int
    mode: Mode


class PdsUser(Protocol):
    """The calls that PDS makes to SES."""

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        """`pds_ses_rx_req`: take a packet with its SES header at byte `at` of `data`; RUD and ROD deliver it only once.

        Return None if the answer follows by `Pds.respond_late`.
        """

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        """`pds_ses_rx_rsp`: take the response to packet `index`; a `response` of None: only CACK says that the packet
        succeeded."""

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        """Answer a duplicate of a read whose data was not stored (`store_ack_read_data` off, pds.md §10)."""

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        """`pds_ses_error`: packet `index` of a message failed; -1 stands for all its packets that were not sent yet."""

    def on_closed(self, pdc: Connection) -> None:
        """Note that a PDC was released; no packet of this PDC follows."""


class PacketDelivery(Protocol):
    """The calls of PDS that SES uses; `Pds` has them."""

    @property
    def now(self) -> int:
        """Return the time of the last call, in picoseconds."""

    @property
    def pdcs(self) -> Mapping[int, Connection]:
        """Return the open PDCs by local PDCID."""

    def send(self, message: Outgoing, now: int) -> None:
        """`ses_pds_tx_req`: queue a message."""

    def send_return(self, pdcid: int, message: Outgoing, now: int) -> None:
        """`ses_pds_tx_ret`: queue read data on the return direction of a PDC."""

    def respond_late(self, connection: Connection, psn: int, response: Response, now: int) -> None:
        """`ses_pds_tx_rsp`: answer a packet whose `on_request` returned None."""

    def unlock(self, pdcid: int, now: int) -> None:
        """`ses_pds_unlock`: release one lock of a PDC."""


@dataclass(slots=True)
class Counters:
    """An endpoint has these counters: those of pds.md §17, and one for each reason to drop a packet silently."""

    pdc_close_in_err: int = 0
    psn_limit_close: int = 0
    dup_rx: int = 0
    """Number of duplicates that were answered."""
    dup_no_retx: int = 0
    """Number of duplicates that were dropped because retx was 0."""
    oor_ahead: int = 0
    oor_behind: int = 0
    bad_ack: int = 0
    bad_nack: int = 0
    bad_clear: int = 0
    trimmed_rx: int = 0
    retx_rto: int = 0
    """Number of RTOs that retransmitted a packet; an RTO that sent ACK_REQ is not counted."""
    retx_nack: int = 0
    ack_tx: int = 0
    undecodable: int = 0
    """Number of packets that could not be decoded (pds.md §6.3 row 1)."""
    unexpected: int = 0
    """Number of packets that are not legal in the state of their PDC."""
    no_pdc: int = 0
    """Number of packets dropped because they belong to no PDC."""
    data_tx: int = 0
    """Number of first transmissions of requests."""
    data_rx: int = 0
    """Number of requests delivered to SES."""
    new_pdc_timeout_cnt: int = 0
    retx_inferred: int = 0
    """Number of retransmissions for an inferred loss."""
    rudi_tx: int = 0
    """Number of first transmissions of RUDI requests."""
    rudi_rx: int = 0
    """Number of RUDI requests delivered to SES, duplicates included."""
    rudi_late: int = 0
    """Number of RUDI responses and NACKs that match no outstanding request."""
    uud_tx: int = 0
    uud_rx: int = 0
    uud_dropped: int = 0
    """Number of UUD packets that SES did not take."""

    retransmitted: dict[str, int] = field(default_factory=dict)
    """Number of requests and control packets that were retransmitted, by cause: `retransmit.RTO`, for instance."""

    def count_retransmission(self, cause: str) -> None:
        """Count a request or control packet that is sent again."""
        self.retransmitted[cause] = self.retransmitted.get(cause, 0) + 1

    def as_dict(self) -> dict[str, int]:
        """Return all counters that are numbers."""
        found = asdict(self)
        del found["retransmitted"]
        return found
