# SPDX-License-Identifier: GPL-2.0-only
"""`RoceConfig` holds the parameters of roce.md §14.

It also has a parameter for each behaviour that no source prescribes, and that roce.md therefore chooses itself (marked
**choice** in roce.md). Each statement that roce.md could not verify (marked [M]) has a parameter, too. Times are
integers in picoseconds, except the times that the wire carries as a code.
"""

from dataclasses import dataclass
from typing import Literal

from uetproto.engine.contract import MICROSECOND, NEVER, SECOND
from uetproto.engine.roce.psn import HALF
from uetproto.knobs import BOOL, RATE, TIME, check_knobs, knob
from uetproto.wire.headers.roce import PMTUS, rnr_wait_us

ENDLESS = 7
"""Value of `rnr_retry` that sets no limit (roce.md §9). A `retry_cnt` of 7 means seven retries by default."""

ALPHA_PARTS = 1024
"""Value of `dcqcn_initial_alpha` that stands for an α of 1."""

_MEGABIT = 10**6
_RATES = range(_MEGABIT, 10**12 + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoceConfig:
    """This class holds the parameters of an adapter, and default attributes of its queue pairs.

    An attribute that is given to a queue pair (`engine.roce.qp.REQUIRED`) replaces the field of the same name. Raises
    `LocalError`, which names the parameter and its legal values.
    """

    # fmt: off
    # Queue pairs: defaults of the attributes
    path_mtu: int = knob(4096, PMTUS, "bytes",
        "The largest payload of a packet; of UD also the largest message.", "roce.md §14")
    timeout: int = knob(8, range(31 + 1), "code",
        "An answer is awaited for 4.096 µs × 2^timeout, 1.05 ms by default; 0: for ever.", "roce.md §9")
    retry_cnt: int = knob(7, range(7 + 1), "",
        "How many retries timeouts, NAKs 0x60 and implied NAKs may cause in a row, without an acknowledgement of a new"
        " PSN.", "roce.md §9")
    rnr_retry: int = knob(7, range(7 + 1), "",
        "How many retries RNR NAKs may cause in a row, without an acknowledgement of a new PSN; 7: no limit.",
        "roce.md §9")
    min_rnr_timer: int = knob(12, range(31 + 1), "code",
        "The wait that an RNR NAK asks for; 12: 0.64 ms.", "roce.md §2.1")
    max_rd_atomic: int = knob(16, range(255 + 1), "",
        "A requester has so many READs and ATOMICs unanswered; 0: it may post none.", "roce.md §9")
    max_dest_rd_atomic: int = knob(16, range(255 + 1), "",
        "A responder can answer duplicates of so many READs and ATOMICs; 0: it refuses all READs and ATOMICs.",
        "roce.md §8")

    # Requester
    max_unacked_psns: int = knob(2**15, range(1, HALF + 1), "PSNs",
        "The PSNs that may be unacknowledged; the largest value is the limit [M]. A longer READ is sent alone.",
        "roce.md §7")
    ack_req_interval: int = knob(64, range(HALF + 1), "packets",
        "One packet in so many of a message asks for an acknowledgement, besides the last; 0: only the last.",
        "roce.md §9")
    credits: bool = knob(True, BOOL, "",
        "End-to-end credits: the responder tells them, the requester obeys them (roce.md §2.1); off: code 0x1f is sent,"
        " and credits are ignored, as in rxe.", "roce.md §9")
    m: int = knob(1, (0, 1), "",
        "The path migration bit of the BTH, as real adapters send it (**choice**).", "roce.md §2")
    max_message: int = knob(2**31, range(1, 2**31 + 1), "bytes",
        "The longest message on RC and UC [M].", "roce.md §6")
    timeout_factor: int = knob(1, (1, 2, 3, 4), "",
        "The time-out is so many times the nominal one; up to 4 is allowed [M] (**choice** 1).", "roce.md §9")
    retry_cnt_seven: str = knob("seven", ("seven", "endless"), "",
        "What a `retry_cnt` of 7 is: seven, or endless, as in rxe.", "roce.md §9")
    implied_nak: str = knob("once", ("once", "every"), "",
        "How often a READ or ATOMIC is retransmitted because later responses arrive before its own: once until a new"
        " PSN is acknowledged or the timer expires, as hfi1 does, or for every such response.", "roce.md §9")
    in_rnr_wait: str = knob("ignore", ("ignore", "resend"), "",
        "What a NAK 0x60 or an implied NAK causes in RNR_WAIT: nothing, or a retransmission at once (**choice**). No"
        " timeout runs in RNR_WAIT.", "roce.md §9")
    reserved_syndrome: str = knob("drop", ("drop", "fail"), "",
        "An AETH with a reserved syndrome: drop the packet (hfi1), or fail the request (rxe) (**choice**).",
        "roce.md §2.1")
    bad_response_status: int = knob(7, (7, 1, 2, 19), "",
        "The status of a request answered by a wrong kind or length: 7 BAD_RESP_ERR [M]; 19 rxe, 1 and 2 hfi1.",
        "roce.md §9")

    # Responder
    ack_coalesce: int = knob(1, range(1, HALF + 1), "",
        "When so many acknowledgements are owed, one is sent that covers all of them.", "roce.md §8")
    ack_delay: int = knob(0, range(10 * SECOND + 1), TIME,
        "An acknowledgement that is owed waits so long for more; 0: until the next `poll`.", "roce.md §8")
    psn_nak: str = knob("once", ("once", "every"), "",
        "How often packets with a PSN after ePSN get NAK 0x60: once until ePSN arrives, and not after an RNR NAK"
        " (hfi1), or every time (**choice**).",
        "roce.md §8")
    check_order: str = knob("key_first", ("key_first", "alignment_first"), "",
        "The order of checks 8 and 9: key_first, as in rxe, or alignment_first, as in hfi1 (**choice**).",
        "roce.md §8")
    duplicate_write: str = knob("always", ("always", "requested"), "",
        "When a duplicate SEND or WRITE is acknowledged: always (rxe), or where a = 1 and no later READ or ATOMIC is"
        " saved that is answered instead: requested (hfi1) (**choice**).", "roce.md §8.1")
    atomic_order: Literal["little", "big"] = knob("little", ("little", "big"), "",
        "The byte order of the operands in memory, that of the host (**choice**).", "roce.md §12")
    too_long_status: int = knob(1, (1, 2, 9), "",
        "The status of a receive that is shorter than its SEND: 1 LOC_LEN_ERR [M]; 9 rxe, 2 hfi1.", "roce.md §10")
    bad_receive_status: int = knob(4, (4, 2), "",
        "The status of a receive whose l_key is bad: 4 LOC_PROT_ERR [M]; 2 rxe, hfi1.", "roce.md §10")

    # UD
    ud_ipv4_fill: int = knob(0, range(255 + 1), "",
        "The value of the first 20 of the 40 bytes before a datagram that came over IPv4, which are undefined"
        " (**choice** 0).", "roce.md §11")
    multicast_loopback: bool = knob(True, BOOL, "",
        "The sender's own attached queue pairs get a copy [M].", "roce.md §11")

    # Around the transport header: for whoever carries the packets
    udp_port: int = knob(4791, range(1, 65535 + 1), "", "The UDP destination port of RoCEv2.", "roce.md §14")
    hop_limit: int = knob(64, range(1, 255 + 1), "",
        "The TTL or hop limit, where the address vector has none.", "roce.md §14")
    dscp: int = knob(26, range(63 + 1), "", "The DSCP of data and acknowledgements.", "roce.md §14")
    ecn: str = knob("ect0", ("ect0", "ect1", "not_ect"), "", "The ECN of data and acknowledgements.", "roce.md §14")
    rd: str = knob("raw", ("raw", "headers"), "",
        "Opcodes 0x40–0x5f are raw, or decoded as those of RD: headers (roce.md §3).", "roce.md §14")
    icrc: bool = knob(True, BOOL, "",
        "The ICRC is computed and checked; off: it is four bytes of 0, and any is accepted.", "roce.md §14")

    # Congestion
    congestion: Literal["off", "dcqcn"] = knob("off", ("off", "dcqcn"), "",
        "Control of the rate of each queue pair: dcqcn, both the sender's part and the receiver's.", "roce.md §13")
    cnp: bool = knob(False, BOOL, "",
        "Data marked CE is answered by a CNP, the receiver's part, also where nothing else of DCQCN is on.",
        "roce.md §13")
    cnp_interval: int = knob(50 * MICROSECOND, range(10 * SECOND + 1), TIME,
        "The least time between two CNPs that a queue pair sends [M].", "roce.md §13")
    cnp_dscp: int = knob(48, range(63 + 1), "", "The DSCP of CNPs [M].", "roce.md §13")
    cnp_ecn: str = knob("not_ect", ("not_ect", "ect0", "ect1"), "", "The ECN of CNPs [M].", "roce.md §13")
    dcqcn_g: int = knob(256, range(1, 2**16 + 1), "",
        "1/g: α is a running mean, in which the newest sample has the weight g [M].", "roce.md §13")
    dcqcn_initial_alpha: int = knob(ALPHA_PARTS, range(ALPHA_PARTS + 1), "1/1024",
        "α until the first CNP, in parts of 1024; with 1024, an α of 1, the first CNP halves the rate [M].",
        "roce.md §13")
    dcqcn_alpha_timer: int = knob(55 * MICROSECOND, range(MICROSECOND, 10 * SECOND + 1), TIME,
        "After so long without a CNP α falls, and again after each such time [M].", "roce.md §13")
    dcqcn_increase_timer: int = knob(55 * MICROSECOND, range(MICROSECOND, 10 * SECOND + 1), TIME,
        "The period of the timer whose steps raise the rate [M].", "roce.md §13")
    dcqcn_byte_counter: int = knob(10_000_000, range(1, 2**32), "bytes",
        "The byte counter makes a step after so many bytes of frames with data [M].", "roce.md §13")
    dcqcn_fast_recovery: int = knob(5, range(255 + 1), "steps",
        "The steps of fast recovery; past them R_T grows, too [M].", "roce.md §13")
    dcqcn_rate_ai: int = knob(40 * _MEGABIT, _RATES, RATE,
        "R_AI: R_T grows by so much with one count past those steps [M].", "roce.md §13")
    dcqcn_rate_hai: int = knob(400 * _MEGABIT, _RATES, RATE,
        "R_HAI: with both counts past those steps R_T grows by i times this, where i is how far the lower count is past"
        " (**choice**, both).", "roce.md §13")
    dcqcn_rate_min: int = knob(100 * _MEGABIT, _RATES, RATE,
        "No cut goes below this (**choice**). By default 4 KiB packets then leave every 0.33 ms, within `timeout`; with"
        " much less, requesters time out between two packets.", "roce.md §13")
    # fmt: on

    def __post_init__(self) -> None:
        check_knobs(self)

    @property
    def notifies(self) -> bool:
        """Return True when a packet with data and the ECN mark CE is answered by a CNP."""
        return self.cnp or self.congestion == "dcqcn"


def timeout_of(code: int, factor: int = 1) -> int:
    """Return how long a requester waits for a response, in picoseconds: 4.096 µs × 2^`code` × `factor` (roce.md §9).

    A `code` of 0 gives `NEVER`.
    """
    return (4096 * MICROSECOND // 1000 << code) * factor if code else NEVER


def rnr_wait_of(code: int) -> int:
    """Return how long a requester waits after an RNR NAK with this timer code, in picoseconds (roce.md §2.1)."""
    return rnr_wait_us(code) * MICROSECOND
