# SPDX-License-Identifier: GPL-2.0-only
"""The interface between packet delivery and semantics has the calls of UE 1.0.1 Table 3-27 (pds.md §4, ses.md §1).

SES is the user of PDS. SES calls `PacketDelivery`, and PDS calls `PdsUser`. SES makes one `ses_pds_tx_req` for a whole
message (`Outgoing`), and not for each packet. PDS asks the message for its next packet when the window permits one, so
that a message of any length needs no buffer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Buffer, Mode, PdsError
from uetproto.engine.train import PayloadRun
from uetproto.engine.train_splits import Split
from uetproto.errors import LocalError
from uetproto.wire.headers import uet_ses
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import ResponseList, ResponseOpcode, ReturnCode
from uetproto.wire.tuples import SesResponseHeader

# Arguments of endpoints ----------------------------------------------------------------------------------------------

ADDRESS_BITS = {4: 32, 6: 128}
"""Size in bits of a fabric address, for each version of IP."""


def check_number(name: str, value: object, least: int, bits: int) -> None:
    """Raise `LocalError` unless `value` is an integer from `least` to 2^`bits` − 1."""
    if type(value) is not int or not least <= value < 1 << bits:
        raise LocalError(name, f"{value!r} is not legal", f"{least} … {(1 << bits) - 1:#x}", id="out-of-range")


def check_endpoint(address: object, ip_version: object, config: object) -> None:
    """Raise `LocalError` if the arguments of an endpoint are not legal."""
    if type(ip_version) is not int or ip_version not in ADDRESS_BITS:
        raise LocalError("ip_version", f"{ip_version!r} is not legal", "4, 6", id="out-of-range")
    check_number("address", address, 1, ADDRESS_BITS[ip_version])
    if not isinstance(config, PdsConfig):
        raise LocalError("config", f"{type(config).__name__} is not legal", "a PdsConfig", id="wrong-type")


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
_RESPONSE, _NO_RESPONSE = NextHdr.RESPONSE, ResponseOpcode.NO_RESPONSE  # looked up once, as a member costs a call
RETURN_DATA: frozenset[int] = frozenset({NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL})
"""Values of `next_hdr` for read data, which a return-direction request, an ACK or a RUDI response carries."""


def build_default_response(message_id: int) -> bytes:
    """Build the default response, which PDS sends when it no longer has the response of SES (pds.md §9.4).

    It has the return code NULL, which does not tell whether the request succeeded, and the length 0.
    """
    return SesResponseHeader.pack(
        list=ResponseList.EXPECTED, opcode=ResponseOpcode.DEFAULT_RESPONSE, version=0, return_code=ReturnCode.NULL,
        message_id=message_id, ri_generation=0, job_id=0, modified_length=0,
    )  # fmt: skip


def message_id_of(data: Buffer, at: int, next_hdr: int) -> int:
    """Return the message_id of the SES request at byte `at` of `data`, or 0 if its header format has no message_id."""
    return int.from_bytes(data[at + 2 : at + 4], "big") if next_hdr == NextHdr.REQUEST_STD else 0


def is_no_response(data: Buffer, next_hdr: int) -> bool:
    """Return True when `data` is the SES response NO_RESPONSE, after which the final response follows (ses.md §9.1)."""
    return next_hdr == _RESPONSE and data[0] & 0x3F == _NO_RESPONSE


# The calls -----------------------------------------------------------------------------------------------------------


class Outgoing(Protocol):
    """An outgoing message is what SES passes to PDS. PDS asks the message for its packets one by one."""

    peer: int
    mode: Mode
    message_id: int
    next_hdr: int
    context: int
    """Number that the application chooses. Messages with different numbers never share a PDC (pds.md §6.1)."""
    reserved: bool
    """Whether the message uses a reserved PDC (`rsv_pdc_context`), whose SYN packets carry use_rsv_pdc."""
    lock: bool
    """Whether the message keeps its PDC open until `Pds.unlock` (`lock_pdc`). A read does so until its data has arrived
    (pds.md §10)."""

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        """Return index, SES header and payload of the next packet, and whether it is the last of the message."""

    def unsent(self) -> tuple[int, int]:
        """Return the number of packets that `next_packet` has still to give, and their bytes of SES headers and
        payload. It may be too much for a message that ends early."""


class RunMessage(Outgoing, Protocol):
    """A run message can give its packets as runs, for trains."""

    def next_run(self, most: int) -> PayloadRun | Split:
        """Return the next packets, at most `most` of them, if they can go as a train: at least two that have the same
        size and are neither the first nor the last of the message. Return why not if `next_packet` must be called."""

    def is_plain(self, next_hdr: int, response: Buffer) -> bool:
        """Return whether `answered` may process a response, as it says no more than that the packet was stored."""

    def answered(self, count: int, now: int) -> None:
        """Process plain responses to `count` packets, as `PdsUser.on_response` does."""


class Locking(Outgoing, Protocol):
    """A message whose `lock` is True; PDS calls `began` to tell the message which PDC carries it."""

    def began(self, pdc: "Connection", psn: int) -> None:
        """Store the PDC and the PSN of the first packet. PDS calls this method again if the PSN changes (pds.md
        §6.6)."""

    def is_held_back(self, pdc: "Connection") -> bool:
        """Return whether the next packet waits until data of earlier reads has arrived on the PDC."""


_ANSWERS = (NextHdr.NONE, NextHdr.RESPONSE, NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL)


@dataclass(slots=True, init=False)
class Response:
    """The answer that SES has given to a delivered packet (`ses_pds_tx_rsp`). It never changes.

    Raises `LocalError` if `header` is not bytes, or if an ACK cannot carry `next_hdr`.
    """

    header: bytes
    """SES response header, followed by the data that the ACK carries, if there is any (pds.md §10)."""
    gtd: bool = False
    """Whether PDS guarantees that the response is delivered, by storing it until a CLEAR (pds.md §9.1)."""
    final: bool = True
    """Whether this is the final response. If False, it is NO_RESPONSE, and the final response follows (ses.md §9.1)."""
    next_hdr: int = NextHdr.RESPONSE
    rereadable: bool = True
    """Whether PDS may answer a duplicate by reading the data again, and therefore need not store the data. It is False
    for a fetching atomic (ses.md §9.6)."""

    def __init__(
        self, header: bytes, gtd: bool = False, final: bool = True, next_hdr: int = NextHdr.RESPONSE,
        rereadable: bool = True,
    ) -> None:  # fmt: skip
        if type(header) is not bytes:
            raise LocalError("header", f"{type(header).__name__} is not legal", "bytes", id="wrong-type")
        if next_hdr not in _ANSWERS:
            raise LocalError(
                "next_hdr", f"{next_hdr!r} is not legal", ", ".join(n.name for n in _ANSWERS), id="unknown-name"
            )
        self.header, self.gtd, self.final, self.next_hdr, self.rereadable = header, gtd, final, next_hdr, rereadable


@dataclass(frozen=True, slots=True)
class Refusal:
    """With this answer of SES, PDS counts the packet as not received, and sends a NACK with `code` (`ses_nack`, pds.md
    §4, §6.3 row 16).

    Raises `LocalError` for a value that is no NackCode.
    """

    code: NackCode

    def __post_init__(self) -> None:
        if not isinstance(self.code, NackCode):
            raise LocalError("code", f"{self.code!r} is not legal", "a NackCode", id="wrong-type")


class FollowedRun(Protocol):
    """A followed run is a train that SES stores without the full checks, as the first packets of the message passed
    them."""

    answer: Response
    """Response to each packet."""

    place: Callable[[int], None]
    """Function that stores the payload of packet `index` of the train. Raises `OSError` if the memory fails."""

    def settle(self, index: int, count: int, now: int) -> None:
        """Note that `count` packets from `index` on have arrived, whose payloads are stored."""

    def extend(self, offset: int, payloads: Sequence[Buffer]) -> bool:
        """Let the run go on with the packets of a train, the first of which is at `offset` of the message, behind those
        of this one. Return False if it cannot."""

    def split_at(self, index: int) -> Split | None:
        """Return why packets from `index` on can no longer be stored in this way, or None."""


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
        """Process a packet with its SES header at byte `at` of `data` (`pds_ses_rx_req`).

        RUD and ROD deliver each packet only once. Return None if SES answers later by `Pds.respond_late`.
        """

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        """Process the response to packet `index` of a message (`pds_ses_rx_rsp`). A `response` of None means that CACK
        has acknowledged the packet and no SES response arrived."""

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        """Answer a duplicate of a read whose data was not stored (`store_ack_read_data` off, pds.md §10)."""

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        """Process the failure of packet `index` of a message (`pds_ses_error`). An `index` of −1 stands for all packets
        of the message that were not sent yet."""

    def on_closed(self, pdc: Connection) -> None:
        """Process the release of a PDC, after which PDS makes no call about this PDC."""


class RunUser(PdsUser, Protocol):
    """A run user is a PDS user that can store the packets of a train without the full checks."""

    def follow_run(
        self, pdc: Connection, next_hdr: int, data: Buffer, at: int, payloads: Sequence[Buffer]
    ) -> FollowedRun | Split:
        """Return what stores the packets of a train, the first of which has its SES header at byte `at` of `data`.
        Return why not if `on_request` must check each of them."""


class PacketDelivery(Protocol):
    """The calls that SES makes to PDS. `sublayer.Pds` implements them."""

    @property
    def now(self) -> int:
        """Return the time of the last call, in picoseconds."""

    @property
    def pdcs(self) -> Mapping[int, Connection]:
        """Return the open PDCs by local PDCID."""

    def send(self, message: Outgoing, now: int) -> None:
        """Queue a message (`ses_pds_tx_req`)."""

    def send_return(self, pdcid: int, message: Outgoing, now: int) -> None:
        """Queue a message with read data on the return direction of a PDC (`ses_pds_tx_ret`)."""

    def respond_late(self, connection: Connection, psn: int, response: Response, now: int) -> None:
        """Answer a packet for which `on_request` returned None (`ses_pds_tx_rsp`)."""

    def unlock(self, pdcid: int, now: int) -> None:
        """Release one lock of a PDC (`ses_pds_unlock`)."""


@dataclass(slots=True)
class Counters:
    """These counters of an endpoint are the counters of pds.md §17, and one for each reason to drop a packet
    silently."""

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
    """Number of UUD packets that SES refused."""

    retransmitted: dict[str, int] = field(default_factory=dict)
    """Number of retransmitted requests and control packets for each cause, for instance `retransmit.RTO`."""

    def count_retransmission(self, cause: str) -> None:
        """Count the retransmission of a request or control packet."""
        self.retransmitted[cause] = self.retransmitted.get(cause, 0) + 1

    def as_dict(self) -> dict[str, int]:
        """Return all counters except `retransmitted`, by name."""
        found = asdict(self)
        del found["retransmitted"]
        return found
