"""The parameters: pds.md §17, §20, ses.md §16, §17. One dataclass for each sublayer, times in integer picoseconds."""

from dataclasses import dataclass, fields
from itertools import combinations
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
        "reserved_pdcs": range(65535 + 1),
        "close_thresh": range(65535 + 1),
        "max_cccs": range(1, 65535 + 1),
        "max_bitmaps": range(1, 65535 + 1),
        "max_packet_buffers": range(1, 2**24 + 1),
        "max_gtd_del": range(1, 65535 + 1),
        "max_ack_data_size": range(8192 + 1),
        "trimmable_ack_size": range(0, 10240 + 1, 16),
        "new_pdc_time": range(10 * SECOND + 1),
        "new_pdc_timeout_thresh": range(1, 2**32),
        "tail_loss_time": range(10 * MILLISECOND + 1),
        "max_tail_loss_retx": range(15 + 1),
        "inferred_loss": ("off", "sack", "probe"),
        "inferred_loss_packets": range(1, 32640 + 1),
        "secure_start": ("off", "expected", "random"),
        "limit_psn_range": (True, False),
        "dup_without_retx": ("drop", "answer"),
        "ar_on_eom": (True, False),
        "sack_base": ("tracked", "trigger", "cack_plus_1"),
        "clear_cmd": ("timer", "immediate"),
        "rod_gap": ("discard", "reorder"),
        "close_drain": ("drain", "error"),
        "spec_revision": ("1.0.1",),
        "store_ack_read_data": (True, False),
        "pdcid_quarantine": ("MSL", 0),
        "clear_source": ("explicit", "cack"),
        "window_base": ("clear", "cack"),
        "ack_cc": ("when_gap", "always", "never"),
        "ack_ccx": (True, False),
        "closing_ack": ("at_close_psn", "before_close_psn"),
        "expected_psn_after_close": ("last_plus_1", "start_plus_1"),
        "closing_ack_epsn": (True, False),
        "new_start_spdcid": ("own", "zero"),
        "rod_recovery": ("go_back_n", "selective"),
        "rudi_marks_retx": (True, False),
        "ecn_capable": (True, False),
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
        "inject_size": range(8192 + 1),
        "iov_limit": range(1, 256 + 1),
        "rma_iov_limit": (1,),
        "tx_size": range(1, 2**20 + 1),
        "rx_size": range(1, 2**20 + 1),
        "cq_size": range(1, 2**24 + 1),
        "mr_count": range(1, 2**20 + 1),
        "max_rx_messages": range(1, 2**20 + 1),
        "message_retry_limit": range(1000 + 1),
        "backoff_least": range(10 * SECOND + 1),
        "backoff_most": range(10 * SECOND + 1),
        "backoff_limit": range(600 * SECOND + 1),
        "large_send": ("plain", "auto", "rendezvous", "deferrable"),
        "rendezvous_threshold": range(2**32),
        "deferrable_threshold": range(2**32),
        "eager_length": range(-1, 2**32),
        "max_pending_deferrals": range(65535 + 1),
        "deferral_time": range(600 * SECOND + 1),
        "rendezvous_time": range(600 * SECOND + 1),
        "idle_message_time": range(86_400 * SECOND + 1),
        "sync_group_time": range(600 * SECOND + 1),
        "unexpected_messages": range(65535 + 1),
        "unexpected_bytes": range(2**32),
        "unexpected_policy": ("hold", "refuse"),
        "truncation_policy": ("truncate", "refuse"),
        "optimized_headers": (True, False),
        "profile": tuple(
            "+".join(names) for size in (1, 2, 3) for names in combinations(("ai_base", "ai_full", "hpc"), size)
        ),
        "sync_operations": (True, False),
        "atomic_trap": (True, False),
        "strict_ref_errors": (True, False),
        "write_latency": range(10 * SECOND + 1),
        "first_message_id": (0, 1),
        "uud_opcode": ("datagram_send", "send"),
        "stop_list": ("all", "first"),
        "deferral_tokens": ("strict", "reuse"),
        "retry_message_id": ("new", "same"),
        "rtr_resource_index": ("own", "zero"),
        "rod_refusal": ("disabled_gen", "no_match_first"),
        "response_generation": ("on_error", "always"),
        "hd_in": ("all", "som"),
        "lone_read_eom": (True, False),
        "response_message_id": ("zero", "read"),
        "return_modified_length": ("packet", "read"),
    },
}

TIMES = frozenset({
    "rto_init_time", "nack_retx_time", "pds_clear_time", "close_req_time", "msl", "idle_time", "pend_timeout",
    "new_pdc_time", "tail_loss_time", "idle_message_time", "write_latency", "backoff_least", "backoff_most",
    "backoff_limit", "deferral_time", "rendezvous_time", "sync_group_time",
})  # fmt: skip
"""The parameters that are times; all other numbers are counts or bytes."""


_PDCIDS = 0xFFFF
"""16 bits, and 0 is none (§1)."""


def limit_of(kind: type, name: str) -> range | tuple[Any, ...]:
    """What a field of `PdsConfig` or `SesConfig` may be; times in picoseconds."""
    return _LIMITS[kind.__name__][name]


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
            raise LocalError(field.name, f"{value!r} is not legal", _legal(limit))
    if isinstance(config, PdsConfig):
        if config.max_pdcs + config.reserved_pdcs > _PDCIDS:
            raise LocalError(
                "max_pdcs",
                f"{config.max_pdcs} and reserved_pdcs {config.reserved_pdcs} are more PDCs than there are PDCIDs",
                f"together {_PDCIDS}",
            )
        if config.secure_start == "expected" and config.pdcid_quarantine == 0:
            # The next PDC would have the PDCIDs and the PSNs of packets that may still be on their way.
            raise LocalError("pdcid_quarantine", "0 is not legal with secure_start expected", "'MSL'")
        if config.secure_start != "off" and not config.limit_psn_range:
            # A PSN that comes again, or a Start_PSN behind a floor 2^31 away, would let old packets in (tss.md §11).
            raise LocalError("limit_psn_range", "False is not legal with secure_start", "True")
        if config.inferred_loss == "probe" and not (config.tail_loss_time and config.max_tail_loss_retx):
            raise LocalError("inferred_loss", "'probe' is not legal with tail_loss_time or max_tail_loss_retx 0")


# What one implementation does ----------------------------------------------------------------------------------------

PERSONALITIES: dict[str, dict[str, dict[str, Any]]] = {
    "default": {"pds": {}, "ses": {}, "security": {}},
    "refprov": {
        "pds": {
            "closing_ack": "before_close_psn", "expected_psn_after_close": "start_plus_1", "closing_ack_epsn": True,
            "new_start_spdcid": "zero", "cp_isrod": "zero", "cp_mode_check": False, "ack_req_ar": False,
            "ack_copies_retx": False, "rudi_marks_retx": False, "clear_on_retransmission": "as_first_sent",
            "clear_at": "message", "rod_recovery": "selective", "ecn_capable": False,
            # its own numbers: columns R of pds.md §17 and §20
            "enb_ack_per_pkt": True, "clear_cmd": "immediate", "dup_without_retx": "answer", "rod_gap": "reorder",
            "sack_base": "trigger", "ack_cc": "never", "close_drain": "error", "default_mpr": 1, "mp_range": 128,
            "rto_init_time": 5 * MILLISECOND, "max_rto_retx_cnt": 5, "new_pdc_time": 1000 * MILLISECOND,
            "close_req_time": 1000 * MILLISECOND, "msl": 2000 * MILLISECOND, "max_pdcs": 64,
        },
        "ses": {
            "first_message_id": 0, "uud_opcode": "send", "stop_list": "first", "deferral_tokens": "reuse",
            "rtr_resource_index": "zero", "rod_refusal": "no_match_first", "response_generation": "always",
            "hd_in": "som", "retry_message_id": "same", "lone_read_eom": False, "response_message_id": "read",
            "return_modified_length": "read",
            # its own numbers and ways: column R of ses.md §16, §11.2, §5.7
            "payload_mtu": 1024, "unexpected_policy": "refuse", "large_send": "deferrable",
        },
        "security": {
            "clear_nacks": ["NEW_START_PSN", "INV_DPDCID"], "strict_tsc_halves": False, "plain": "pass",
        },
    },
}  # fmt: skip
"""Settings of `PdsConfig`, of `SesConfig` and of `[security]` that make a node behave as another implementation
(observed.md, tss.md §9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdsConfig:
    """Packet delivery. Raises `LocalError` naming the field and what is legal.

    The names are those of pds.md §17 in lower case, the knobs those of §20 and of observed.md. UET_Over_UDP,
    UDP_Dest_Port and UET_Data_Protect concern whoever carries the packets: `[fabric]` of a scenario.
    """

    # Windows and acknowledgements
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
    max_ack_data_size: int = 16
    """Max_ACK_Data_Size, 0–8192 bytes: a read of no more is answered in its ACK (§10)."""
    trimmable_ack_size: int = 10240
    """Trimmable_ACK_Size, 0–10240 bytes in steps of 16: an ACK with more data may be trimmed (§10)."""

    # Retransmission
    rto_init_time: int = 1 * MILLISECOND
    """RTO_Init_Time, 0–8 s (§11.1)."""
    max_rto_retx_cnt: int = 5
    """Max_RTO_Retx_Cnt, 0–15; 15 is without end (§11.1)."""
    nack_retx_time: int = 1 * MILLISECOND
    """NACK_Retx_Time, 0–8 s: pause after a resource NACK (§11.2)."""
    max_nack_retx_cnt: int = 5
    """Max_NACK_Retx_Cnt, 0–31; 31 is without end (§11.2)."""
    inferred_loss: str = "off"
    """What besides RTO and NACK says that a packet is lost (§11.4): off; sack: so many PSNs reported above a gap;
    probe: the same, and a PROBE asks when no ACK came for Tail_Loss_Time."""
    inferred_loss_packets: int = 5
    """PSNs reported as received above a gap, 1–32640, that start the recovery of `inferred_loss` (§11.4)."""
    tail_loss_time: int = 1 * MILLISECOND
    """Tail_Loss_Time, 0–10 ms: silence before a PROBE with `inferred_loss = probe`; the specification names the
    parameter and no procedure (§11.4)."""
    max_tail_loss_retx: int = 5
    """Max_Tail_Loss_Retx, 0–15: PROBEs in a row, with nothing but answers to them in between (§11.4)."""

    # Guaranteed delivery
    pds_clear_time: int = 1 * MILLISECOND
    """PDS_Clear_Time, 0–100 ms: how long a CLEAR waits for a request to carry it (§9.3)."""

    # Life of a PDC
    max_pdcs: int = 1000
    """PDCs per FEP, 1–65535 (§17); beyond it NACK NO_PDC_AVAIL."""
    reserved_pdcs: int = 16
    """PDCs besides, 0–65535, for SYN packets with use_rsv_pdc (§1); beyond it NACK NO_PDC_AVAIL."""
    close_thresh: int = 4
    """Close_Thresh, 0–65535: when a PDC is opened, or cannot be, and fewer are free, an idle one is closed (§6.1)."""
    pend_timeout: int = 100 * MILLISECOND
    """Pend_Timeout, 0–600 s: how long a message waits for a free PDC (§16)."""
    new_pdc_time: int = 5 * MILLISECOND
    """New_PDC_Time, 0–100 ms (R: 1 s, so 0–10 s here): how long a PENDING target waits for the Start_PSN it
    demanded (§6.5)."""
    new_pdc_timeout_thresh: int = 1024
    """New_PDC_Timeout_Thresh: so many expiries of New_PDC_Time are reported (§6.5)."""
    close_req_time: int = 1000 * MILLISECOND
    """Close_REQ_Time, 0–10 s: how long a target waits for the CLOSE_CMD that it asked for (§6.5)."""
    msl: int = 2000 * MILLISECOND
    """MSL, 0–600 s: life of a packet in the network; PDCIDs and tombstones rest that long (§6.2 item 9)."""
    idle_time: int = 60 * SECOND
    """Time, 0–86,400 s, after which a PDC without packets is closed (§16), or, if it may not yet because a read holds
    it, NOOP asks after its target (§13); 0: never."""
    limit_psn_range: bool = True
    """Limit_PSN_Range: close before 2^31 PSNs are used (§2.2)."""
    secure_start: str = "off"
    """Rule for the Start_PSN of a new PDC (§6.6): off: random; expected: 0-RTT, not below Expected_PSN; random:
    1-RTT, the target draws it."""

    # Resources of the target
    max_cccs: int = 65535
    """Congestion-control contexts, one a peer, 1–65535; beyond it NACK NO_CCC_AVAIL (§12)."""
    max_bitmaps: int = 65535
    """PDCs of which this endpoint is the target, 1–65535; beyond it NACK NO_BITMAP (§12)."""
    max_packet_buffers: int = 1 << 20
    """Packets of one PDC that wait for an answer of SES, or for those before them, 1–2^24; beyond it NACK NO_PKT_BUFFER
    (§12)."""
    max_gtd_del: int = 65535
    """Guaranteed responses that one PDC can store, 1–65535; beyond it NACK NO_GTD_DEL_AVAIL (§9.2)."""

    # Knobs where the sources differ (§20)
    spec_revision: str = "1.0.1"
    """Revision of the specification; 1.0.1 is the only one yet (§20 row 31)."""
    dup_without_retx: str = "drop"
    """A duplicate without retx: drop, or answer as with retx (§20 row 1)."""
    rod_gap: str = "discard"
    """A ROD packet after a gap: discard with NACK ROD_OOO, or reorder: keep it until its turn (§20 row 3)."""
    ar_on_eom: bool = True
    """The last packet of a message asks for an ACK (§20 row 27)."""
    sack_base: str = "tracked"
    """Rule for the base of the SACK bitmap: tracked, trigger, cack_plus_1 (§8.5)."""
    clear_cmd: str = "timer"
    """When a CLEAR_CMD leaves: timer (PDS_Clear_Time), or immediate as R does (§20 row 12)."""
    close_drain: str = "drain"
    """CLOSE_CMD while return data is outstanding: drain, or error: CLOSING_IN_ERR as R does (§20 row 16)."""
    store_ack_read_data: bool = True
    """Read data sent in an ACK is kept until cleared; without, it is read again (§10, §20 row 14)."""
    ack_cc: str = "when_gap"
    """ACK_CC with SACK and MPR: when_gap (max_rcvd > CACK), always, never (§8.4).

    when_gap also where `mp_range` is not the default: a source that does not know it runs into refusals (§8.6).
    """
    ack_ccx: bool = False
    """ACK_CCX in place of ACK_CC (§8.4)."""
    pdcid_quarantine: str | int = "MSL"
    """How long a PDCID rests after the close: MSL, or 0 (§6.2 item 9)."""
    clear_source: str = "explicit"
    """CLEAR_PSN of requests: explicit follows every ACK, cack only CACK_PSN (§20 row 11).

    With cack a CLEAR_CMD still clears what was acknowledged: guaranteed responses hold CACK back until then.
    """
    window_base: str = "clear"
    """Where the send window starts: clear, or cack literally as the specification says (§7.1, §20 row 34)."""

    # Knobs of what the reference provider does otherwise (observed.md)
    closing_ack: str = "at_close_psn"
    """CACK of the closing ACK: at_close_psn, or before_close_psn as observed."""
    expected_psn_after_close: str = "last_plus_1"
    """Expected_PSN after a close: last_plus_1, or start_plus_1 as observed, so that PSNs come again (§6.6)."""
    closing_ack_epsn: bool = False
    """The closing ACK carries Expected_PSN, as observed; the initiator begins there if that is newer (§6.6).

    Only with secure_start = expected; without it the flag is reserved, and ignored, as in 1.0.1.
    """
    new_start_spdcid: str = "own"
    """spdcid of NACK NEW_START_PSN: that of the PENDING PDC, or zero as observed (§6.6)."""
    cp_isrod: str = "mode"
    """isrod of control packets tells the mode, or is zero as observed, but while the PDC is being opened."""
    cp_mode_check: bool = True
    """A control packet whose isrod does not fit the PDC is refused."""
    ack_req_ar: bool = True
    """ACK_REQ has ar = 1."""
    ack_copies_retx: bool = True
    """An ACK copies retx from the packet it answers."""
    rudi_marks_retx: bool = True
    """A repeated RUDI request has retx = 1, and its response reflects it."""
    clear_on_retransmission: str = "current"
    """clear_psn_offset of a retransmission: current, or as_first_sent."""
    clear_at: str = "packet"
    """A request carries the CLEAR_PSN of the packet, or of the first packet of its message."""
    rod_recovery: str = "go_back_n"
    """ROD after a loss: go_back_n, or selective; the latter needs a target that keeps packets after a gap, and is
    one: as with `rod_gap = reorder`."""
    ecn_capable: bool = True
    """Requests, RUDI responses and UUD packets leave with ECT(0); else with ToS 0, and all others with 0xb8."""

    entropy_values: int = 256
    """Entropy values over which a RUD PDC spreads its requests, a power of two, 1–65536 (cms.md §8)."""

    def __post_init__(self) -> None:
        _validate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SesConfig:
    """Semantics: ses.md §16, and the knobs of observed.md. Raises `LocalError` naming the field and what is legal."""

    # Sizes
    payload_mtu: int = 4096
    """Largest payload of a packet: 1024, 2048, 4096 or 8192 bytes (§16)."""
    max_msg_size: int = 2**32 - 2
    """Largest message in bytes (§16); longer work goes as several messages (`ses_segments.split`)."""
    inject_size: int = 1024
    """Largest fi_inject in bytes (§16)."""
    iov_limit: int = 8
    """Entries of a gather or scatter list (§16)."""
    rma_iov_limit: int = 1
    """Remote regions of one operation (§16)."""
    tx_size: int = 256
    """Operations that an endpoint may have open (§16)."""
    rx_size: int = 256
    """Receives that may be posted on one queue (§16)."""
    cq_size: int = 256
    """Entries of a completion queue (§16)."""
    mr_count: int = 256
    """Regions of a process; optimized keys come from the first 4096 indices (§14.2, §16)."""
    max_rx_messages: int = 65536
    """Messages that the target can have open; beyond it UNCOR_TRNSNT with ses_nack (§10 step 11)."""

    # Initiator
    message_retry_limit: int = 10
    """Refusals after which a message fails; 0: unlimited (§12, §16)."""
    backoff_least: int = 50 * MILLISECOND
    """The first wait before a retry is drawn between this and `backoff_most`, and doubled each time (§12)."""
    backoff_most: int = 100 * MILLISECOND
    """The longest first wait before a retry (§12)."""
    backoff_limit: int = 10 * SECOND
    """No wait is longer."""
    large_send: str = "plain"
    """What a send above its threshold is: plain; rendezvous; deferrable; auto: by mode and by what the peer can
    (§13.5)."""
    rendezvous_threshold: int = 8192
    """Bytes from which a send may be a rendezvous (§16)."""
    deferrable_threshold: int = 8192
    """Bytes from which a send may be deferrable (§16)."""
    eager_length: int = -1
    """Bytes of a rendezvous that go with the request; -1: one payload MTU (§16)."""
    deferral_time: int = 5000 * MILLISECOND
    """Both ends forget a deferred message after it (§5.7)."""
    rendezvous_time: int = 5000 * MILLISECOND
    """The source of a rendezvous waits so long for a READ (§16)."""
    optimized_headers: bool = False
    """Medium and small headers are sent where §4.1 allows them."""
    strict_ref_errors: bool = False
    """Every error is FI_EIO (§13.3)."""

    # Target
    profile: str = "ai_full+hpc"
    """Profiles whose operations are executed: ai_base, ai_full, hpc, joined by + (§4.3)."""
    sync_operations: bool = False
    """SYNC_WRITE and SYNC_ATOMIC of a later revision are executed (§5.14)."""
    sync_group_time: int = 60 * SECOND
    """State of a sync group is dropped after it (§5.14)."""
    max_pending_deferrals: int = 8
    """Messages that an endpoint may have stopped (§5.7)."""
    unexpected_policy: str = "hold"
    """A message without a buffer: hold, or refuse (§11.2)."""
    unexpected_messages: int = 64
    """Messages that a queue holds (§16)."""
    unexpected_bytes: int = 1 << 20
    """Bytes that a queue holds (§16)."""
    truncation_policy: str = "truncate"
    """A message longer than its buffer: truncate, or refuse with TOO_LONG (§10 step 14)."""
    idle_message_time: int = 5000 * MILLISECOND
    """State of a message that gets no packet for so long is dropped (§7.2); 0: never."""
    write_latency: int = 0
    """From the answer of a write until its effect is observable; `dc` responses wait for it (§13.2)."""
    atomic_trap: bool = False
    """AMO_FP_* are answered; memory is left unchanged then (§6.3)."""

    # Knobs of what the reference provider does otherwise (observed.md)
    first_message_id: int = 1
    """First message id allocated: 1, or 0 as observed."""
    uud_opcode: str = "datagram_send"
    """Opcode of UUD packets: datagram_send without message id, or send, ids from 0, as observed."""
    stop_list: str = "all"
    """Stop responses of a deferred message with list OVERFLOW: all, or the first as observed."""
    deferral_tokens: str = "strict"
    """strict: tokens are not 0, a restart is a new message; reuse: as observed, 0 too, the restart keeps its id."""
    retry_message_id: str = "new"
    """message_id of a message that goes again after a refusal: new, or the same as observed (§12)."""
    rtr_resource_index: str = "own"
    """resource_index of a DEFERRABLE_RTR: the sender's own, or zero as observed."""
    rod_refusal: str = "disabled_gen"
    """First answer on ROD without a buffer: disabled_gen; no_match_first as observed."""
    response_generation: str = "on_error"
    """ri_generation in responses: on_error where it tells something, or always as observed."""
    hd_in: str = "all"
    """hd is set in all packets of a message with completion data, or in its first one, som, as observed."""
    lone_read_eom: bool = True
    """A READ of one packet has eom = 1; else it is neither sent, as observed, nor asked for (§3)."""
    response_message_id: str = "zero"
    """response_message_id of return data: zero, or that of the read as observed."""
    return_modified_length: str = "packet"
    """modified_length of the answer to return data: its bytes, or those of the whole read as observed (§9.4)."""

    def __post_init__(self) -> None:
        _validate(self)
        if self.backoff_most < self.backoff_least:
            raise LocalError("backoff_most", f"{self.backoff_most} is not legal", "at least backoff_least")
