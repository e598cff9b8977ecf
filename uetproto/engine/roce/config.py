"""The parameters of RDMA over InfiniBand transport: roce.md §14, and every **choice** and [M] of that page.

One dataclass, in the way of `config.PdsConfig`. Times are integer picoseconds unless the wire has a code for them.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from uetproto.engine.contract import MICROSECOND, NEVER, SECOND
from uetproto.engine.roce.psn import HALF
from uetproto.errors import LocalError, shown
from uetproto.wire.headers.roce import PMTUS, rnr_wait_us

ENDLESS = 7
"""`rnr_retry`: without end (roce.md §9); a `retry_cnt` of 7 is seven."""

ALPHA_PARTS = 1024
"""`dcqcn_initial_alpha`: parts of an α of 1."""

TIMES = frozenset({"ack_delay", "cnp_interval", "dcqcn_alpha_timer", "dcqcn_increase_timer"})
"""The parameters that are times; all other numbers are counts, codes, bytes or rates."""

_MEGABIT = 10**6
_RATES = range(_MEGABIT, 10**12 + 1)

_LIMITS: dict[str, range | tuple[Any, ...]] = {
    "path_mtu": PMTUS,
    "timeout": range(31 + 1),
    "retry_cnt": range(7 + 1),
    "rnr_retry": range(7 + 1),
    "min_rnr_timer": range(31 + 1),
    "max_rd_atomic": range(255 + 1),
    "max_dest_rd_atomic": range(255 + 1),
    "max_unacked_psns": range(1, HALF + 1),
    "ack_req_interval": range(HALF + 1),
    "ack_coalesce": range(1, HALF + 1),
    "ack_delay": range(10 * SECOND + 1),
    "credits": (True, False),
    "m": (0, 1),
    "udp_port": range(1, 65535 + 1),
    "hop_limit": range(1, 255 + 1),
    "dscp": range(63 + 1),
    "ecn": ("ect0", "ect1", "not_ect"),
    "rd": ("raw", "headers"),
    "icrc": (True, False),
    "max_message": range(1, 2**31 + 1),
    "timeout_factor": (1, 2, 3, 4),
    "retry_cnt_seven": ("seven", "endless"),
    "implied_nak": ("once", "every"),
    "in_rnr_wait": ("ignore", "resend"),
    "psn_nak": ("once", "every"),
    "reserved_syndrome": ("drop", "fail"),
    "check_order": ("key_first", "alignment_first"),
    "duplicate_write": ("always", "requested"),
    "atomic_order": ("little", "big"),
    "too_long_status": (1, 2, 9),
    "bad_receive_status": (4, 2),
    "bad_response_status": (7, 1, 2, 19),
    "ud_ipv4_fill": range(255 + 1),
    "multicast_loopback": (True, False),
    "cnp": (True, False),
    "cnp_interval": range(10 * SECOND + 1),
    "cnp_dscp": range(63 + 1),
    "cnp_ecn": ("not_ect", "ect0", "ect1"),
    "congestion": ("off", "dcqcn"),
    "dcqcn_g": range(1, 2**16 + 1),
    "dcqcn_initial_alpha": range(ALPHA_PARTS + 1),
    "dcqcn_alpha_timer": range(MICROSECOND, 10 * SECOND + 1),
    "dcqcn_increase_timer": range(MICROSECOND, 10 * SECOND + 1),
    "dcqcn_byte_counter": range(1, 2**32),
    "dcqcn_fast_recovery": range(255 + 1),
    "dcqcn_rate_ai": _RATES,
    "dcqcn_rate_hai": _RATES,
    "dcqcn_rate_min": _RATES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoceConfig:
    """What one adapter does, and the defaults of its queue pairs. Raises `LocalError` naming field and legal values.

    Attributes given to a queue pair (`roce_qp.REQUIRED`) go before the fields of the same name.
    """

    # Queue pairs: defaults of the attributes
    path_mtu: int = 4096
    """Largest payload of a packet, 256 … 4096 bytes; of UD also the largest message (§14)."""
    timeout: int = 8
    """Code 0–31: an answer is awaited for 4.096 µs × 2^timeout, 1.05 ms by default; 0: for ever (§9, §14)."""
    retry_cnt: int = 7
    """0–7 time-outs, NAKs 0x60 and implied NAKs without an advance in between (§9, §14)."""
    rnr_retry: int = 7
    """0–6 RNR NAKs without an advance in between; 7: without end (§9, §14)."""
    min_rnr_timer: int = 12
    """Code 0–31 of the wait that an RNR NAK asks for; 12: 0.64 ms (§2.1, §14)."""
    max_rd_atomic: int = 16
    """READs and ATOMICs that a requester has unanswered, 0–255; 0: it may post none (§9, §14)."""
    max_dest_rd_atomic: int = 16
    """READs and ATOMICs that a responder can answer again, 0–255; 0: it refuses all (§8, §14)."""

    # Requester
    max_unacked_psns: int = 2**15
    """PSNs unacknowledged, 1–2^23, the limit [M] (§7). A READ that is longer goes alone."""
    ack_req_interval: int = 64
    """Packets of a message after which one asks for an acknowledgement, besides the last; 0: only that (§9, §14)."""
    credits: bool = True
    """End-to-end credits: told by the responder, kept by the requester (§2.1, §9); off: code 0x1f is sent, none is
    heeded, as in rxe."""
    m: int = 1
    """Path migration bit of the BTH, as real adapters send it (§2, **choice**)."""
    max_message: int = 2**31
    """Longest message on RC and UC in bytes, inclusive [M] (§6)."""
    timeout_factor: int = 1
    """The time-out is so many times the nominal one; up to 4 is allowed [M] (§9, **choice** 1)."""
    retry_cnt_seven: str = "seven"
    """What a `retry_cnt` of 7 is: seven, or endless as in rxe (§9)."""
    implied_nak: str = "once"
    """How often a READ or ATOMIC is restarted because later answers came before its own: once until something
    advances or the time is over, as hfi1 does, or for every such answer (§9)."""
    in_rnr_wait: str = "ignore"
    """NAK 0x60 and implied NAK in RNR_WAIT: ignore, or resend at once (§9, **choice**). A time-out does not run."""
    reserved_syndrome: str = "drop"
    """An AETH with a reserved syndrome: drop the packet (hfi1), or fail the request (rxe) (§2.1, **choice**)."""
    bad_response_status: int = 7
    """Status of a request answered by a wrong kind or length: 7 BAD_RESP_ERR [M]; 19 rxe, 1 and 2 hfi1 (§9)."""

    # Responder
    ack_coalesce: int = 1
    """Acknowledgements owed that make one leave, 1–2^23; it covers all of them (§8, §14)."""
    ack_delay: int = 0
    """How long an owed one waits for more, 0–10 s in picoseconds; 0: until the next `poll` (§8, §14)."""
    psn_nak: str = "once"
    """NAK 0x60 for packets ahead: once until ePSN has come, also after an RNR NAK (hfi1), or every (§8, **choice**)."""
    check_order: str = "key_first"
    """Checks 8 and 9 of §8: key_first, as rxe has them, or alignment_first, as hfi1 (**choice**)."""
    duplicate_write: str = "always"
    """A duplicate SEND or WRITE is acknowledged: always (rxe), or where a = 1 and no later READ or ATOMIC is saved
    that is answered instead: requested (hfi1) (§8.1, **choice**)."""
    atomic_order: Literal["little", "big"] = "little"
    """Byte order of the operands in memory, that of the host (§12, **choice**)."""
    too_long_status: int = 1
    """Status of a receive that is shorter than its SEND: 1 LOC_LEN_ERR [M]; 9 rxe, 2 hfi1 (§10)."""
    bad_receive_status: int = 4
    """Status of a receive whose l_key is bad: 4 LOC_PROT_ERR [M]; 2 rxe, hfi1 (§10)."""

    # UD
    ud_ipv4_fill: int = 0
    """The first 20 of the 40 bytes before a datagram that came over IPv4, which are undefined (§11, **choice** 0)."""
    multicast_loopback: bool = True
    """The sender's own attached queue pairs get a copy [M] (§11)."""

    # Around the transport header: for whoever carries the packets
    udp_port: int = 4791
    """UDP destination port of RoCEv2 (§14)."""
    hop_limit: int = 64
    """TTL or hop limit, where the address vector has none (§14)."""
    dscp: int = 26
    """Of data and acknowledgements (§14)."""
    ecn: str = "ect0"
    """Of data and acknowledgements: ect0, ect1, not_ect (§14)."""
    rd: str = "raw"
    """Opcodes 0x40–0x5f are raw, or decoded as those of RD: headers (§3, §14)."""
    icrc: bool = True
    """The ICRC is computed and checked; off: it is four bytes of 0, and any is taken (§14)."""

    # Congestion
    congestion: Literal["off", "dcqcn"] = "off"
    """Control of the rate of each queue pair: dcqcn, both the sender's part and the receiver's (§13, §14)."""
    cnp: bool = False
    """Data marked CE is answered by a CNP, the receiver's part, also where nothing else of DCQCN is on (§13)."""
    cnp_interval: int = 50 * MICROSECOND
    """Least time between two CNPs of a queue pair, 0–10 s in picoseconds [M] (§13)."""
    cnp_dscp: int = 48
    """Of CNPs [M] (§13)."""
    cnp_ecn: str = "not_ect"
    """Of CNPs: not_ect, ect0, ect1 [M] (§13)."""
    dcqcn_g: int = 256
    """1/g, 1–65,536: the share of the newest in the running mean that α is [M] (§13)."""
    dcqcn_initial_alpha: int = ALPHA_PARTS
    """α until the first CNP, 0–1024 in parts of 1024; 1024 is the 1 of the page: the first CNP halves [M] (§13)."""
    dcqcn_alpha_timer: int = 55 * MICROSECOND
    """After so long without a CNP, and again and again, α falls; 1 µs – 10 s in picoseconds [M] (§13)."""
    dcqcn_increase_timer: int = 55 * MICROSECOND
    """The timer whose steps raise the rate, 1 µs – 10 s in picoseconds [M] (§13)."""
    dcqcn_byte_counter: int = 10_000_000
    """The byte counter makes a step after so many bytes of frames with data, 1 – 2^32 − 1 [M] (§13)."""
    dcqcn_fast_recovery: int = 5
    """Steps of fast recovery, 0–255: past them R_T grows too [M] (§13)."""
    dcqcn_rate_ai: int = 40 * _MEGABIT
    """R_AI: what R_T grows by with one count past those steps, 1 Mb/s – 1 Tb/s in bits a second [M] (§13)."""
    dcqcn_rate_hai: int = 400 * _MEGABIT
    """R_HAI: with both counts past them R_T grows by i times this, i being how far the lower count is past;
    1 Mb/s – 1 Tb/s in bits a second (§13, **choice**, both)."""
    dcqcn_rate_min: int = 100 * _MEGABIT
    """No cut goes below it, 1 Mb/s – 1 Tb/s in bits a second (§13, **choice**). By default 4 KiB packets then leave
    every 0.33 ms, within `timeout`; much less, and requesters give up waiting between two packets."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check(field.name, getattr(self, field.name))

    @property
    def notifies(self) -> bool:
        """Data marked CE is answered by a CNP."""
        return self.cnp or self.congestion == "dcqcn"


def legal_of(name: str) -> range | tuple[Any, ...]:
    """What a field of `RoceConfig` may be; times in picoseconds."""
    return _LIMITS[name]


def check(name: str, value: Any) -> None:
    """Raises `LocalError` unless the field `name` may be `value`."""
    limit = _LIMITS[name]
    fits = type(value) in (bool, int, str) and isinstance(value, bool) == (limit == (True, False))
    if not fits or (isinstance(value, str) and isinstance(limit, range)) or value not in limit:
        text = f"{limit[0]} … {limit[-1]}" if isinstance(limit, range) else ", ".join(str(v) for v in limit)
        raise LocalError(name, f"{shown(value)} is not legal", text)


def timeout_of(code: int, factor: int = 1) -> int:
    """How long an answer is awaited, in picoseconds: 4.096 µs × 2^code; `NEVER` for 0 (§9)."""
    return (4096 * MICROSECOND // 1000 << code) * factor if code else NEVER


def rnr_wait_of(code: int) -> int:
    """How long an RNR NAK has its requester wait, in picoseconds (§2.1)."""
    return rnr_wait_us(code) * MICROSECOND
