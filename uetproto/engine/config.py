# SPDX-License-Identifier: GPL-2.0-only
"""This module has a dataclass of parameters for each sublayer, PDS and SES (pds.md §17, §20, ses.md §16, §17). Times
are integers, in picoseconds.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.errors import LocalError
from uetproto.knobs import BOOL, TIME, check_knobs, knob
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS

PROBING = ("probe", "ooo")
"""Values of `PdsConfig.inferred_loss` with which a PROBE asks when no ACK comes."""
_PDCIDS = 0xFFFF
"""Number of PDCIDs: they have 16 bits, and 0 names no PDC (pds.md §1)."""


# What one implementation does ----------------------------------------------------------------------------------------

PERSONALITIES: dict[str, dict[str, dict[str, Any]]] = {
    "default": {"pds": {}, "ses": {}, "security": {}},
    "refprov": {
        "pds": {
            "closing_ack": "before_close_psn", "expected_psn_after_close": "start_plus_1", "closing_ack_epsn": True,
            "new_start_spdcid": "zero", "cp_isrod": "zero", "cp_mode_check": False, "ack_req_ar": False,
            "ack_copies_retx": False, "rudi_marks_retx": False, "clear_on_retransmission": "as_first_sent",
            "clear_at": "message", "rod_recovery": "selective", "ecn_capable": False,
            # numbers of the reference provider: columns R of pds.md §17 and §20
            "enb_ack_per_pkt": True, "clear_cmd": "immediate", "dup_without_retx": "answer", "rod_gap": "reorder",
            "sack_base": "trigger", "ack_cc": "never", "close_drain": "error", "default_mpr": 1, "mp_range": 128,
            "rto_init_time": 5 * MILLISECOND, "max_rto_retx_cnt": 5, "new_pdc_time": 1000 * MILLISECOND,
            "nack_backoff": "double", "max_nack_retx_cnt": 10,
            "close_req_time": 1000 * MILLISECOND, "msl": 2000 * MILLISECOND, "max_pdcs": 64,
        },
        "ses": {
            "first_message_id": 0, "uud_opcode": "send", "stop_list": "first", "deferral_tokens": "reuse",
            "rtr_resource_index": "zero", "rod_refusal": "no_match_first", "response_generation": "always",
            "hd_in": "som", "retry_message_id": "same", "lone_read_eom": False,
            "return_modified_length": "read", "rma_generation": "untagged", "sync_operations": True, "max_reads": 8,
            # numbers and rules of the reference provider: column R of ses.md §16, §11.2, §5.7
            "payload_mtu": 1024, "unexpected_policy": "refuse", "large_send": "deferrable",
        },
        "security": {
            "clear_nacks": ["NEW_START_PSN", "INV_DPDCID"], "strict_tsc_halves": False, "plain": "pass",
        },
    },
}  # fmt: skip
"""Settings of `PdsConfig`, of `SesConfig` and of `[security]` that make a node behave as another implementation.
`refprov` is the reference provider (observed.md, tss.md §9); `default` changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdsConfig:
    """This class holds the parameters of packet delivery. Raises `LocalError` for an illegal value; the error names the
    parameter and the legal values.

    The parameters are those of pds.md §17, with their names in lower case, and the knobs of §20 and of observed.md.
    UET_Over_UDP, UDP_Dest_Port and UET_Data_Protect are not here, as they belong to the layers below PDS (`[fabric]` of
    a scenario).
    """

    # fmt: off
    # Windows and acknowledgements
    default_mpr: int = knob(8, range(1, 255 + 1), "128 PSNs",
        "Default_MPR: the window of the source until the first ACK_CC tells another.", "pds.md §8.6")
    mp_range: int = knob(1024, range(128, 32640 + 1, 128), "PSNs",
        "MP_RANGE: the window that this endpoint tracks and advertises.", "pds.md §17")
    ack_on_ecn: bool = knob(True, BOOL, "",
        "ACK_On_ECN: a packet marked CE is acknowledged at once.", "pds.md §8.3")
    enb_ack_per_pkt: bool = knob(False, BOOL, "",
        "Enb_ACK_Per_Pkt: every request asks for an ACK.", "pds.md §7.1")
    ack_gen_trigger: int = knob(16384, range(32768 + 1), "bytes",
        "ACK_Gen_Trigger: an ACK is sent when so many bytes have arrived.", "pds.md §8.3")
    ack_gen_min_pkt_add: int = knob(1024, range(2048 + 1), "bytes",
        "ACK_Gen_Min_Pkt_Add: a packet counts at least so many bytes towards ACK_Gen_Trigger.", "pds.md §8.3")
    ack_on_gap_close: bool = knob(True, BOOL, "",
        "An ACK is sent when a gap closes below a packet with ar = 1 that was acknowledged before; off: the source"
        " may wait for the RTO though nothing was lost.", "pds.md §8.3")
    max_ack_data_size: int = knob(16, range(8192 + 1), "bytes",
        "Max_ACK_Data_Size: the data of a read of at most so many bytes is sent in the ACK of the read.", "pds.md §10")
    trimmable_ack_size: int = knob(10240, range(0, 10240 + 1, 16), "bytes",
        "Trimmable_ACK_Size: an ACK with more data may be trimmed.", "pds.md §10")

    # Retransmission
    rto_init_time: int = knob(1 * MILLISECOND, range(8 * SECOND + 1), TIME,
        "RTO_Init_Time: a request that is not acknowledged for so long is retransmitted.", "pds.md §11.1")
    max_rto_retx_cnt: int = knob(5, range(15 + 1), "",
        "Max_RTO_Retx_Cnt: how often a packet is retransmitted after an RTO at most; 15: no limit.", "pds.md §11.1")
    nack_retx_time: int = knob(1 * MILLISECOND, range(8 * SECOND + 1), TIME,
        "NACK_Retx_Time: the source waits so long after a resource NACK.", "pds.md §11.2")
    max_nack_retx_cnt: int = knob(5, range(31 + 1), "",
        "Max_NACK_Retx_Cnt: how often a packet is retransmitted after a NACK at most; 31: no limit.", "pds.md §11.2")
    nack_backoff: str = knob("constant", ("constant", "double"), "",
        "How long the source waits after each further resource NACK of a packet: NACK_Retx_Time every time, or twice"
        " as long as before.", "pds.md §11.2")
    inferred_loss: str = knob("off", ("off", "sack", "probe", "ooo"), "",
        "Tells what besides RTO and NACK shows that a packet is lost. off: nothing; sack: `inferred_loss_packets`"
        " PSNs reported above a gap; probe: as sack, and a PROBE asks when no ACK came for Tail_Loss_Time; ooo: with"
        " congestion control, an ooo_count of one and a half windows, and the PROBE.",
        "pds.md §11.4")
    inferred_loss_packets: int = knob(5, range(1, 32640 + 1), "PSNs",
        "So many PSNs, reported as received above a gap, start the recovery of `inferred_loss`.", "pds.md §11.4")
    tail_loss_time: int = knob(1 * MILLISECOND, range(10 * MILLISECOND + 1), TIME,
        "Tail_Loss_Time: the silence before a PROBE, with `inferred_loss` probe; the specification names the"
        " parameter and no procedure.", "pds.md §11.4")
    max_tail_loss_retx: int = knob(5, range(15 + 1), "",
        "Max_Tail_Loss_Retx: at most so many PROBEs are sent in a row while no ACK but answers to PROBEs arrives.",
        "pds.md §11.4")

    # Guaranteed delivery
    pds_clear_time: int = knob(1 * MILLISECOND, range(100 * MILLISECOND + 1), TIME,
        "PDS_Clear_Time: a CLEAR waits so long for a request that can carry it.", "pds.md §9.3")

    # Life of a PDC
    max_pdcs: int = knob(1000, range(1, 65535 + 1), "PDCs",
        "The PDCs that a FEP can have open; a SYN packet beyond them gets NACK NO_PDC_AVAIL.", "pds.md §17")
    reserved_pdcs: int = knob(16, range(65535 + 1), "PDCs",
        "The PDCs that a FEP has in addition to `max_pdcs`, for messages on reserved PDCs (use_rsv_pdc).",
        "pds.md §1")
    close_thresh: int = knob(4, range(65535 + 1), "PDCs",
        "Close_Thresh: when this endpoint opens a PDC, or has no room for one, and fewer PDCs than this are free, it"
        " closes the PDC that is idle longest.", "pds.md §6.1")
    pend_timeout: int = knob(100 * MILLISECOND, range(600 * SECOND + 1), TIME,
        "Pend_Timeout: a message waits so long for a free PDC, then it fails.", "pds.md §16")
    new_pdc_time: int = knob(5 * MILLISECOND, range(10 * SECOND + 1), TIME,
        "New_PDC_Time: a PENDING target waits so long for a packet with the Start_PSN that it demanded. The"
        " specification allows up to 100 ms; the reference provider waits 1 s.", "pds.md §6.5")
    new_pdc_timeout_thresh: int = knob(1024, range(1, 2**32), "",
        "New_PDC_Timeout_Thresh: after so many expiries of New_PDC_Time an event reports them.", "pds.md §6.5")
    close_req_time: int = knob(1000 * MILLISECOND, range(10 * SECOND + 1), TIME,
        "Close_REQ_Time: a target waits so long for the CLOSE_CMD that it asked for.", "pds.md §6.5")
    msl: int = knob(2000 * MILLISECOND, range(600 * SECOND + 1), TIME,
        "MSL: the longest life of a packet in the network; a PDCID is not used again for so long.", "pds.md §6.2")
    idle_time: int = knob(60 * SECOND, range(86_400 * SECOND + 1), TIME,
        "A PDC without packets for so long is closed; while a read keeps the PDC open, a NOOP is sent instead, to check"
        " that the target still has it (pds.md §13). 0: never.", "pds.md §16")
    limit_psn_range: bool = knob(True, BOOL, "",
        "Limit_PSN_Range: a PDC is closed before it has used 2^31 PSNs.", "pds.md §2.2")
    secure_start: str = knob("off", ("off", "expected", "random"), "",
        "The rule for the Start_PSN of a new PDC. off: the initiator draws it; expected: 0-RTT, the target accepts none"
        " below its Expected_PSN; random: 1-RTT, the target draws it.", "pds.md §6.6")

    # Resources of the target
    max_cccs: int = knob(65535, range(1, 65535 + 1), "",
        "The congestion control contexts, one for each peer; a SYN packet beyond them gets NACK NO_CCC_AVAIL.",
        "pds.md §12")
    max_bitmaps: int = knob(65535, range(1, 65535 + 1), "PDCs",
        "The PDCs of which this endpoint can be the target; a SYN packet beyond them gets NACK NO_BITMAP.",
        "pds.md §12")
    max_packet_buffers: int = knob(1 << 20, range(1, 2**24 + 1), "packets",
        "The received packets of one PDC that can wait for SES or for earlier packets; one beyond them gets NACK"
        " NO_PKT_BUFFER.", "pds.md §12")
    max_gtd_del: int = knob(65535, range(1, 65535 + 1), "responses",
        "The guaranteed responses that one PDC can store; a request beyond them gets NACK NO_GTD_DEL_AVAIL.",
        "pds.md §9.2")

    # Knobs where the sources differ (pds.md §20)
    spec_revision: str = knob("1.0.1", ("1.0.1",), "",
        "The revision of the specification; there is one so far.", "pds.md §20")
    dup_without_retx: str = knob("drop", ("drop", "answer"), "",
        "What the target does with a duplicate without retx: drop it, or answer it as a duplicate with retx.",
        "pds.md §20")
    rod_gap: str = knob("discard", ("discard", "reorder"), "",
        "What the target does with a ROD packet after a gap, also where the first packet of a PDC is missing. discard:"
        " it sends NACK ROD_OOO; reorder: it buffers the packet until the gap is filled.",
        "pds.md §20")
    ar_on_eom: bool = knob(True, BOOL, "",
        "The last packet of a message asks for an ACK.", "pds.md §20")
    sack_base: str = knob("tracked", ("tracked", "trigger", "cack_plus_1"), "",
        "Where the SACK bitmap begins. tracked: at CACK, then 64 PSNs further with each ACK until all received PSNs"
        " were reported; trigger: at the PSN that the ACK answers; cack_plus_1: at CACK + 1.", "pds.md §8.5")
    clear_cmd: str = knob("timer", ("timer", "immediate"), "",
        "When a CLEAR_CMD is sent: after PDS_Clear_Time (timer), or immediately, as the reference provider does.",
        "pds.md §20")
    close_drain: str = knob("drain", ("drain", "error"), "",
        "What a CLOSE_CMD does while return data is outstanding. drain: the data is sent first; error: CLOSING_IN_ERR,"
        " as the reference provider does.", "pds.md §20")
    store_ack_read_data: bool = knob(True, BOOL, "",
        "Read data sent in an ACK is stored until a CLEAR; off: a retransmitted read reads the memory again.",
        "pds.md §10")
    ack_cc: str = knob("when_gap", ("when_gap", "always", "never"), "",
        "When an ACK is an ACK_CC, which carries SACK and MPR. when_gap: after the receipt of a PSN above CACK, and"
        " always if `mp_range` is not the default, which a source assumes without an ACK_CC (pds.md §8.6).",
        "pds.md §8.4")
    ack_ccx: bool = knob(False, BOOL, "",
        "ACK_CCX is sent in place of ACK_CC.", "pds.md §8.4")
    pdcid_quarantine: str | int = knob("MSL", ("MSL", 0), "",
        "How long a PDCID stays unused after the close of its PDC: MSL, or 0.", "pds.md §6.2")
    clear_source: str = knob("explicit", ("explicit", "cack"), "",
        "Which acknowledgements advance the CLEAR_PSN of requests. explicit: every ACK; cack: CACK_PSN alone. With cack"
        " a CLEAR_CMD still clears all acknowledged PSNs, as guaranteed responses hold CACK back until a CLEAR.",
        "pds.md §20")
    window_base: str = knob("clear", ("clear", "cack"), "",
        "Where the send window starts: at CLEAR_PSN, or at CACK_PSN, as the specification says literally.",
        "pds.md §20")

    # Knobs of what the reference provider does otherwise (observed.md)
    closing_ack: str = knob("at_close_psn", ("at_close_psn", "before_close_psn"), "",
        "The CACK of the closing ACK; before_close_psn was observed.", "observed.md")
    expected_psn_after_close: str = knob("last_plus_1", ("last_plus_1", "start_plus_1"), "",
        "Expected_PSN after a close: the last PSN + 1, or Start_PSN + 1, as observed, with which PSNs are used twice.",
        "pds.md §6.6")
    closing_ack_epsn: bool = knob(False, BOOL, "",
        "The closing ACK carries Expected_PSN, as observed; the initiator begins its next PDC there if that is newer"
        " than its own. The knob has an effect only with secure_start expected; else the flag is reserved and ignored.",
        "pds.md §6.6")
    new_start_spdcid: str = knob("own", ("own", "zero"), "",
        "The spdcid of NACK NEW_START_PSN: that of the PENDING PDC, or zero, as observed.", "pds.md §6.6")
    cp_isrod: str = knob("mode", ("mode", "zero"), "",
        "The isrod of control packets: that of the mode, or zero, as observed, except while the PDC is opened.",
        "observed.md")
    cp_mode_check: bool = knob(True, BOOL, "",
        "A control packet whose isrod differs from the mode of the PDC is refused.", "observed.md")
    ack_req_ar: bool = knob(True, BOOL, "", "ACK_REQ has ar = 1.", "observed.md")
    ack_copies_retx: bool = knob(True, BOOL, "", "An ACK copies retx from the packet that it answers.", "observed.md")
    rudi_marks_retx: bool = knob(True, BOOL, "",
        "A repeated RUDI request has retx = 1, and its response reflects it.", "observed.md")
    clear_on_retransmission: str = knob("current", ("current", "as_first_sent"), "",
        "Which CLEAR_PSN a retransmission carries: the current one, or that of the first transmission.", "observed.md")
    clear_at: str = knob("packet", ("packet", "message"), "",
        "Which CLEAR_PSN a request carries: the one at the time of the packet, or that of the first packet of its"
        " message.",
        "observed.md")
    rod_recovery: str = knob("go_back_n", ("go_back_n", "selective"), "",
        "How ROD recovers from a loss. selective needs a target that buffers packets after a gap; with selective this"
        " endpoint buffers them, too, as with `rod_gap` reorder.", "observed.md")
    ecn_capable: bool = knob(True, BOOL, "",
        "Requests, RUDI responses and UUD packets are sent with ECT(0); off: with ToS 0, and all other packets with"
        " ToS 0xb8.",
        "observed.md")

    entropy_values: int = knob(256, tuple(1 << bits for bits in range(17)), "",
        "A RUD PDC spreads its requests over so many entropy values.", "cms.md §8")
    # fmt: on

    @property
    def keeps_gaps(self) -> bool:
        """Return whether the target buffers ROD packets after a gap, and never sends NACK ROD_OOO for them."""
        return self.rod_gap == "reorder" or self.rod_recovery == "selective"

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.max_pdcs + self.reserved_pdcs > _PDCIDS:
            together = f"{self.max_pdcs} and reserved_pdcs {self.reserved_pdcs} are more PDCs than there are PDCIDs"
            raise LocalError("max_pdcs", together, f"together {_PDCIDS}", id="inconsistent-values")
        if self.secure_start == "expected" and self.pdcid_quarantine == 0:
            # Packets of a closed PDC that are still in the network could match the PDCIDs and PSNs of the next one.
            raise LocalError(
                "pdcid_quarantine", "0 is not legal with secure_start expected", "'MSL'", id="inconsistent-values"
            )
        if self.secure_start != "off" and not self.limit_psn_range:
            # Beyond 2^31 PSNs the serial order is reversed, and a target would accept replayed packets (tss.md §11).
            raise LocalError(
                "limit_psn_range", "False is not legal with secure_start", "True", id="inconsistent-values"
            )
        if self.inferred_loss in PROBING and not (self.tail_loss_time and self.max_tail_loss_retx):
            raise LocalError(
                "inferred_loss", f"{self.inferred_loss!r} is not legal with tail_loss_time or max_tail_loss_retx 0",
                id="inconsistent-values"
            )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SesConfig:
    """This class holds the parameters of SES (ses.md §16, observed.md). Raises `LocalError` as `PdsConfig` does."""

    # fmt: off
    # Sizes
    payload_mtu: int = knob(4096, PAYLOAD_MTUS, "bytes",
        "The largest payload of a packet.", "ses.md §16")
    max_msg_size: int = knob(2**32 - 2, range(1, 2**32), "bytes",
        "The largest message; longer work is split into several messages.", "ses.md §16")
    inject_size: int = knob(1024, range(8192 + 1), "bytes", "The largest fi_inject.", "ses.md §16")
    iov_limit: int = knob(8, range(1, 256 + 1), "", "The entries of a gather or scatter list.", "ses.md §16")
    rma_iov_limit: int = knob(1, (1,), "", "The remote regions that one operation may name.", "ses.md §16")
    tx_size: int = knob(256, range(1, 2**20 + 1), "", "The operations that an endpoint can have open.", "ses.md §16")
    rx_size: int = knob(256, range(1, 2**20 + 1), "", "The receives that can be posted on one queue.", "ses.md §16")
    cq_size: int = knob(256, range(1, 2**24 + 1), "", "The entries of a completion queue.", "ses.md §16")
    mr_count: int = knob(256, range(1, 2**20 + 1), "",
        "The regions of a process; optimized keys come from the first 4096 indices (ses.md §14.2).", "ses.md §16")
    max_rx_messages: int = knob(65536, range(1, 2**20 + 1), "",
        "The messages that the target can have open; a message beyond them gets UNCOR_TRNSNT with ses_nack.",
        "ses.md §10")

    # Initiator
    message_retry_limit: int = knob(10, range(1000 + 1), "",
        "A message fails after so many refusals; 0: no limit.", "ses.md §12")
    backoff_least: int = knob(50 * MILLISECOND, range(10 * SECOND + 1), TIME,
        "The first wait before a retry is drawn between this and `backoff_most`, and doubled each time.", "ses.md §12")
    backoff_most: int = knob(100 * MILLISECOND, range(10 * SECOND + 1), TIME,
        "The longest first wait before a retry.", "ses.md §12")
    backoff_limit: int = knob(10 * SECOND, range(600 * SECOND + 1), TIME,
        "No wait before a retry is longer.", "ses.md §12")
    max_reads: int = knob(0, range(65535 + 1), "",
        "So many packets of reads and fetching atomics of a PDC are outstanding at most: a further one is sent when"
        " data arrives; 0: no limit. The reference provider refuses a ninth one.", "observed.md")
    large_send: str = knob("plain", ("plain", "auto", "rendezvous", "deferrable"), "",
        "How a send above its threshold is sent; auto: the mode, and what the peer supports, decide.", "ses.md §13.5")
    rendezvous_threshold: int = knob(8192, range(2**32), "bytes",
        "A send of so many bytes and more may be a rendezvous.", "ses.md §16")
    deferrable_threshold: int = knob(8192, range(2**32), "bytes",
        "A send of so many bytes and more may be deferrable.", "ses.md §16")
    eager_length: int = knob(-1, range(-1, 2**32), "bytes",
        "The bytes of a rendezvous that are sent with the request; -1: one payload MTU.", "ses.md §16")
    deferral_time: int = knob(5000 * MILLISECOND, range(600 * SECOND + 1), TIME,
        "Both ends give a deferred message up after so long.", "ses.md §5.7")
    rendezvous_time: int = knob(5000 * MILLISECOND, range(600 * SECOND + 1), TIME,
        "The source of a rendezvous waits so long for the READ of its target.", "ses.md §16")
    optimized_headers: bool = knob(False, BOOL, "",
        "Medium and small headers are sent where ses.md §4.1 allows them.", "ses.md §4.1")
    strict_ref_errors: bool = knob(False, BOOL, "",
        "The fi API reports every error that a peer returns as FI_EIO.", "ses.md §13.3")

    # Target
    profile: str = knob("ai_full+hpc",
        tuple("+".join(names) for size in (1, 2, 3) for names in combinations(("ai_base", "ai_full", "hpc"), size)),
        "", "The profiles whose operations are executed, joined by +.", "ses.md §4.3")
    sync_operations: bool = knob(False, BOOL, "",
        "SYNC_WRITE and SYNC_ATOMIC of a later revision are executed.", "ses.md §5.14")
    sync_group_time: int = knob(60 * SECOND, range(600 * SECOND + 1), TIME,
        "The state of a sync group is dropped after so long.", "ses.md §5.14")
    max_pending_deferrals: int = knob(8, range(65535 + 1), "",
        "The deferrable messages that a receive queue can have stopped at a time.", "ses.md §5.7")
    unexpected_policy: str = knob("hold", ("hold", "refuse"), "",
        "What the target does with a message that no receive matches: hold it, or refuse it.", "ses.md §11.2")
    unexpected_messages: int = knob(64, range(65535 + 1), "",
        "The unexpected messages that a queue holds at most.", "ses.md §16")
    unexpected_bytes: int = knob(1 << 20, range(2**32), "bytes",
        "The bytes of unexpected messages that a queue holds at most.", "ses.md §16")
    truncation_policy: str = knob("truncate", ("truncate", "refuse"), "",
        "What the target does with a message that is longer than its buffer: truncate it, or refuse it with TOO_LONG.",
        "ses.md §10")
    idle_message_time: int = knob(5000 * MILLISECOND, range(86_400 * SECOND + 1), TIME,
        "The state of a message that gets no packet for so long is dropped; 0: never.", "ses.md §7.2")
    write_latency: int = knob(0, range(10 * SECOND + 1), TIME,
        "The time from the answer of a write until its effect is observable; `dc` responses wait for it.",
        "ses.md §13.2")
    atomic_trap: bool = knob(False, BOOL, "",
        "A floating-point condition of an atomic is answered with AMO_FP_*, and leaves the memory unchanged; off: the"
        " result of IEEE 754 is stored.", "ses.md §6.3")

    # Knobs of what the reference provider does otherwise (observed.md)
    first_message_id: int = knob(1, (0, 1), "", "The first message id that is allocated; 0 was observed.",
        "observed.md")
    uud_opcode: str = knob("datagram_send", ("datagram_send", "send"), "",
        "The opcode of UUD packets: datagram_send without message id, or send with ids from 0, as observed.",
        "observed.md")
    stop_list: str = knob("all", ("all", "first"), "",
        "Which responses that stop a deferrable message have list OVERFLOW: all, or the first, as observed.",
        "observed.md")
    deferral_tokens: str = knob("strict", ("strict", "reuse"), "",
        "How deferred messages are told apart. strict: tokens are not 0, and a restart is a new message; reuse: a"
        " token may be 0, and the restart keeps its id, as observed.", "observed.md")
    retry_message_id: str = knob("new", ("new", "same"), "",
        "The message_id of a message that is sent again after a refusal: new, or the same, as observed.",
        "ses.md §12")
    rtr_resource_index: str = knob("own", ("own", "zero"), "",
        "The resource_index of a DEFERRABLE_RTR: the sender's own, or zero, as observed.", "observed.md")
    rod_refusal: str = knob("disabled_gen", ("disabled_gen", "no_match_first"), "",
        "The code with which a ROD message without a buffer is refused first; no_match_first was observed.",
        "observed.md")
    response_generation: str = knob("on_error", ("on_error", "always"), "",
        "When responses carry ri_generation: with errors about the generation (on_error), or always, as observed.",
        "observed.md")
    hd_in: str = knob("all", ("all", "som"), "",
        "Which packets of a message with completion data have hd set: all, or the first (som), as observed.",
        "observed.md")
    rma_generation: str = knob("zero", ("zero", "untagged"), "",
        "The ri_generation of reads, writes and atomics: zero, or the generation of the untagged sends to the resource"
        " index, which the reference provider checks.", "observed.md")
    lone_read_eom: bool = knob(True, BOOL, "",
        "A READ of one packet has eom = 1; off: eom is 0, as observed, and a target accepts either.", "ses.md §3")
    response_message_id: str = knob("read", ("read", "zero"), "",
        "The response_message_id of return data: that of the read, by which the reference provider finds the read, or"
        " zero.", "ses.md §5.4")
    return_modified_length: str = knob("packet", ("packet", "read"), "",
        "The modified_length of the answer to return data: the bytes of the packet, or those of the whole read, as"
        " observed.",
        "ses.md §9.4")
    # fmt: on

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.backoff_most < self.backoff_least:
            raise LocalError(
                "backoff_most", f"{self.backoff_most} is not legal", "at least backoff_least", id="inconsistent-values"
            )
