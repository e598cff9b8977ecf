"""The parameters: pds.md §17 and §20, ses.md §16. One dataclass for each sublayer, times in integer picoseconds."""

from dataclasses import dataclass, fields
from typing import Any

from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.errors import LocalError

_LIMITS: dict[str, dict[str, range | tuple[Any, ...]]] = {
    "PdsConfig": {
        "default_mpr": range(1, 256),
        "mp_range": range(128, 32640 + 1, 128),
        "ack_on_ecn": (True, False),
        "enb_ack_per_pkt": (True, False),
        "ack_gen_trigger": range(32768 + 1),
        "ack_gen_min_pkt_add": range(2048 + 1),
        "rto_init_time": range(8 * SECOND + 1),
        "max_rto_retx_cnt": range(15 + 1),
        "nack_retx_time": range(8 * SECOND + 1),
        "max_nack_retx_cnt": range(31 + 1),
        "pds_clear_time": range(100 * MILLISECOND + 1),
        "close_req_time": range(10 * SECOND + 1),
        "msl": range(600 * SECOND + 1),
        "idle_time": range(86_400 * SECOND + 1),
        "max_pdcs": range(1, 65535 + 1),
        "pend_timeout": range(600 * SECOND + 1),
        "max_gtd_del": range(1, 65535 + 1),
        "limit_psn_range": (True, False),
        "dup_without_retx": ("drop", "answer"),
        "ar_on_eom": (True, False),
        "sack_base": ("tracked", "trigger", "cack_plus_1"),
        "clear_cmd": ("timer", "immediate"),
        "pdcid_quarantine": (True, False),
        "window_base": ("clear", "cack"),
        "ack_cc": ("when_gap", "always", "never"),
        "closing_ack": ("at_close_psn", "before_close_psn"),
        "cp_isrod": ("mode", "zero"),
        "cp_mode_check": (True, False),
        "ack_req_ar": (True, False),
        "ack_copies_retx": (True, False),
        "clear_on_retransmission": ("current", "as_first_sent"),
        "clear_at": ("packet", "message"),
        "entropy_values": tuple(1 << bits for bits in range(17)),
    },
    "SesConfig": {
        "payload_mtu": (1024, 2048, 4096, 8192),
        "max_msg_size": range(1, 2**32),
        "max_rx_messages": range(1, 2**20 + 1),
        "idle_message_time": range(86_400 * SECOND + 1),
        "write_latency": range(10 * SECOND + 1),
        "first_message_id": (0, 1),
    },
}

TIMES = frozenset({
    "rto_init_time", "nack_retx_time", "pds_clear_time", "close_req_time", "msl", "idle_time", "pend_timeout",
    "idle_message_time", "write_latency",
})  # fmt: skip
"""The parameters that are times; all other numbers are counts or bytes."""


def _legal(limit: range | tuple[Any, ...]) -> str:
    if isinstance(limit, range):
        step = f" in steps of {limit.step}" if limit.step > 1 else ""
        return f"{limit.start} … {limit[-1]}{step}"
    return ", ".join(str(value) for value in limit)


def _validate(config: Any) -> None:
    for field in fields(config):
        value, limit = getattr(config, field.name), _LIMITS[type(config).__name__][field.name]
        fits = type(value) in (bool, int, str) and (isinstance(value, bool) == (limit == (True, False)))
        fits = fits and not (isinstance(value, str) and isinstance(limit, range))  # it would be looked for one by one
        if not fits or value not in limit:
            raise LocalError(f"{field.name}: {value!r} is not legal; legal: {_legal(limit)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PdsConfig:
    """Packet delivery. Raises `LocalError` naming the field and what is legal."""

    default_mpr: int = 8
    """Default_MPR, 1–255, units of 128 PSNs: window of the source until the first ACK_CC tells another (§8.6)."""
    mp_range: int = 1024
    """MP_RANGE that this endpoint tracks and advertises, 128–32640 PSNs in multiples of 128 (§17)."""
    ack_on_ecn: bool = True
    """ACK_On_ECN: a packet marked CE is acknowledged at once (§8.3)."""
    enb_ack_per_pkt: bool = False
    """Enb_ACK_Per_Pkt: every request asks for an ACK (§7.1)."""
    ack_gen_trigger: int = 16384
    """ACK_Gen_Trigger, 0–32768 bytes received until an ACK is sent (§8.3)."""
    ack_gen_min_pkt_add: int = 1024
    """ACK_Gen_Min_Pkt_Add, 0–2048 bytes that a packet counts at least (§8.3)."""
    rto_init_time: int = 1 * MILLISECOND
    """RTO_Init_Time, 0–8 s (§11.1)."""
    max_rto_retx_cnt: int = 5
    """Max_RTO_Retx_Cnt, 0–15; 15 is without end (§11.1)."""
    nack_retx_time: int = 1 * MILLISECOND
    """NACK_Retx_Time, 0–8 s: pause after a resource NACK (§11.2)."""
    max_nack_retx_cnt: int = 5
    """Max_NACK_Retx_Cnt, 0–31; 31 is without end (§11.2)."""
    pds_clear_time: int = 1 * MILLISECOND
    """PDS_Clear_Time, 0–100 ms: how long a CLEAR waits for a request to carry it (§9.3)."""
    close_req_time: int = 1000 * MILLISECOND
    """Close_REQ_Time, 0–10 s: how long a target waits for the CLOSE_CMD that it asked for (§6.5)."""
    msl: int = 2000 * MILLISECOND
    """MSL: life of a packet in the network; PDCIDs and tombstones rest that long (§6.2 item 9)."""
    idle_time: int = 60 * SECOND
    """A PDC without packets for so long is closed (§16); 0: never."""
    max_pdcs: int = 1000
    """PDCs per FEP, 1–65535 (§17)."""
    pend_timeout: int = 100 * MILLISECOND
    """Pend_Timeout: how long a message waits for a free PDC (§16)."""
    max_gtd_del: int = 65535
    """Guaranteed responses that one PDC can store; beyond it NACK NO_GTD_DEL_AVAIL (§9.2)."""
    limit_psn_range: bool = True
    """Limit_PSN_Range: close before 2^31 PSNs are used (§2.2)."""

    dup_without_retx: str = "drop"
    """A duplicate without retx: drop, or answer as with retx (§20 row 1)."""
    ar_on_eom: bool = True
    """The last packet of a message asks for an ACK (§20 row 27)."""
    sack_base: str = "tracked"
    """Rule for the base of the SACK bitmap: tracked, trigger, cack_plus_1 (§8.5)."""
    clear_cmd: str = "timer"
    """When a CLEAR_CMD leaves: timer (PDS_Clear_Time), or immediate as R does (§20 row 12)."""
    pdcid_quarantine: bool = True
    """A PDCID rests for MSL after the close (§6.2 item 9)."""
    window_base: str = "clear"
    """Where the send window starts: clear, or cack literally as the specification says (§7.1, §20 row 34)."""
    ack_cc: str = "when_gap"
    """ACK_CC with SACK and MPR: when_gap (max_rcvd > CACK), always, never (§8.4).

    when_gap also where `mp_range` is not the default: a source that does not know it runs into refusals (§8.6).
    """
    closing_ack: str = "at_close_psn"
    """CACK of the closing ACK: at_close_psn, or before_close_psn as observed (observed.md)."""
    cp_isrod: str = "mode"
    """isrod of control packets tells the mode, or is zero as observed (observed.md)."""
    cp_mode_check: bool = True
    """A control packet whose isrod does not fit the PDC is refused (observed.md)."""
    ack_req_ar: bool = True
    """ACK_REQ has ar = 1 (observed.md)."""
    ack_copies_retx: bool = True
    """An ACK copies retx from the packet it answers (observed.md)."""
    clear_on_retransmission: str = "current"
    """clear_psn_offset of a retransmission: current, or as_first_sent (observed.md)."""
    clear_at: str = "packet"
    """A request carries the CLEAR_PSN of the packet, or of the first packet of its message (observed.md)."""
    entropy_values: int = 256
    """Entropy values over which a RUD PDC spreads its requests, a power of two (cms.md §8)."""

    def __post_init__(self) -> None:
        _validate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SesConfig:
    """Semantics. Raises `LocalError` naming the field and what is legal."""

    payload_mtu: int = 4096
    """Largest payload of a packet: 1024, 2048, 4096 or 8192 bytes (§16)."""
    max_msg_size: int = 2**32 - 2
    """Largest message in bytes (§16); longer work goes as several messages (`ses_segments.split`)."""
    max_rx_messages: int = 65536
    """Messages that the target can have open; beyond it UNCOR_TRNSNT with ses_nack (§10 step 11)."""
    idle_message_time: int = 5000 * MILLISECOND
    """State of a message that gets no packet for so long is dropped (§7.2); 0: never."""
    write_latency: int = 0
    """From the answer of a write until its effect is observable; `dc` responses wait for it (§13.2)."""
    first_message_id: int = 1
    """First message id allocated: 1, or 0 as observed (observed.md)."""

    def __post_init__(self) -> None:
        _validate(self)
