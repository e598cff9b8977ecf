# SPDX-License-Identifier: GPL-2.0-only
"""`SharpConfig` holds the timers (sharp.md §3.4), the limits (sharp.md §1.7) and the project's own parameters
(sharp.md §5) of SHARP.

Times are integer picoseconds. The module `options` has the options with published names (sharp.md §5).
"""

from dataclasses import dataclass

from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.knobs import BOOL, TIME, check_knobs, knob
from uetproto.wire.headers.sharp import SHARP

MAX_CHUNK = 4064
"""Greatest number of data bytes of a SAT chunk: a chunk and its header of 32 bytes have at most 4096 bytes (sharp.md
§2.8 rule 5)."""
MAX_SAT_MESSAGE = 1_073_741_792
"""Greatest number of bytes of a SAT vector: 1 GiB − 32 B (sharp.md §1.1)."""
MAX_LLT_DATA = 1024
"""Greatest number of bytes of user data in an OST (sharp.md §1.7)."""
MAX_RADIX = 252
MAX_SAT_ID = 1022
MAX_OSTS = 2**15
"""Greatest number of OSTs of one group, which is the window W of the group. It is far below 2^31, so that a comparison
modulo 2^32 tells the seqs in the window from older seqs (sharp.md §3.2)."""
GRANULE = 32
"""Unit of the length of SAT chunks in bytes. The length of every chunk except the last is a multiple of it (sharp.md
§2.8 rule 5)."""

_TIME = range(60 * SECOND + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharpConfig:
    """These are the parameters of one aggregation node or host. An illegal value raises `LocalError`, which names the
    parameter and its legal values."""

    # fmt: off
    # Timers (sharp.md §3.4)
    t_join: int = knob(5000 * MILLISECOND, _TIME, TIME,
        "T_join: time after which a group is given up that not all members have joined.", "sharp.md §3.4")
    t_ost: int = knob(1000 * MILLISECOND, _TIME, TIME,
        "T_ost: time after the first request of an operation in which all other children must send theirs.",
        "sharp.md §3.4")
    t_result: int = knob(500 * MILLISECOND, _TIME, TIME,
        "T_result: time after which a request without a result is retransmitted to the parent.", "sharp.md §3.4")
    retry: int = knob(7, range(255 + 1), "",
        "Retransmissions after which the parent counts as down.", "sharp.md §3.4")
    t_rnr: int = knob(10 * MILLISECOND, _TIME, TIME,
        "T_rnr: time that a sender waits after a NACK before it retransmits the request.", "sharp.md §3.4")
    rnr_retry: int = knob(7, range(255 + 1), "", "A request fails when it gets more NACKs than this.", "sharp.md §3.4")
    t_lock: int = knob(100 * MILLISECOND, _TIME, TIME,
        "T_lock: time after which a lock that is not granted is given up. A LOCK_REQ carries a T_lock (**choice**).",
        "sharp.md §3.4")
    t_err: int = knob(1000 * MILLISECOND, _TIME, TIME,
        "T_err: time for which the error of a failed operation is stored, to answer late requests.", "sharp.md §3.4")
    heartbeat: int = knob(1000 * MILLISECOND, _TIME, TIME,
        "The time between two heartbeats on a connection of a READY group; 0: none are sent, and only the carrier"
        " detects the failure of a connection.", "sharp.md §3.4")
    heartbeats_missed: int = knob(3, range(1, 255 + 1), "",
        "A child that does not answer so many heartbeats is down.", "sharp.md §3.1")
    coll_timeout: int = knob(30 * SECOND, _TIME, TIME,
        "Time after which a host gives up a collective. It is longer than the T_ost + L·T_result·(retry + 1) that the"
        " ANs of a tree with L levels take to give up (**choice**).", "sharp.md §3.4")

    # The project's rows of sharp.md §5
    sat_chunk: int = knob(2048, range(GRANULE, MAX_CHUNK + 1, GRANULE), "bytes",
        "The size of a chunk.", "sharp.md §5")
    sat_window: int = knob(64, range(1, 64 + 1), "chunks",
        "The chunks of a group that may be in flight on a SAT tree.", "sharp.md §3.3")
    sat_flows_per_an: int = knob(2, range(1, 64 + 1), "",
        "The locks of SAT trees that an aggregation node may hold at a time, of all trees together.", "sharp.md §3.3")
    semaphores: int = knob(1, range(1, 64 + 1), "",
        "The groups that may hold the lock of one SAT tree at a time.", "sharp.md §3.3")
    radix: int = knob(32, range(16, MAX_RADIX + 1), "", "The children of an aggregation node.", "sharp.md §5")
    lab_radix: int = knob(0, range(MAX_RADIX + 1), "",
        "The children of an aggregation node, instead of `radix`; 0: `radix` counts.", "sharp.md §5")
    llt_trees: int = knob(63, range(1, 511 + 1), "",
        "n, the number of LLTs: they have the numbers 0 … n − 1, and their SATs begin at n.", "sharp.md §1.5")
    acc_native: bool = knob(False, BOOL, "",
        "Sums and products of f16 and bf16 are rounded after each operand; off: once, at the end.", "sharp.md §3.5")
    repro: bool = knob(True, BOOL, "",
        "Hosts ask for reproducible results: operands are reduced in ascending child order.", "sharp.md §3.5")
    lazy_ost: bool = knob(False, BOOL, "",
        "An OST is allocated when an operation begins, not when its group joins; if none is left, the request gets NACK"
        " OST_EXHAUSTED.",
        "sharp.md §3.2")

    # The aggregation node: what it has (sharp.md §1.7, §2.9 ANInfo)
    tree_table_size: int = knob(126, range(63, 1022 + 1), "", "The entries of the tree table.", "sharp.md §2.9")
    osts: int = knob(256, range(1, 2**24 + 1), "OSTs",
        "The OSTs of the pool; 20 % of 256 are the 51 of sharp.md §1.9.", "sharp.md §1.7")
    max_group_osts: int = knob(64, range(1, MAX_OSTS + 1), "OSTs",
        "A group gets at most so many, whatever it asks for (**choice**).", "sharp.md §1.7")
    groups: int = knob(256, range(1, 2**20 + 1), "", "The groups of a node.", "sharp.md §2.9")
    qps: int = knob(1024, range(1, 2**24 + 1), "", "The queue pairs of a node.", "sharp.md §2.9")
    jobs: int = knob(256, range(1, 1536 + 1), "", "The jobs of a node.", "sharp.md §2.9")
    buffers: int = knob(8 * 2**20, range(1, 2**40 + 1), "bytes",
        "The buffer bytes of a node, by the formula of sharp.md §1.7 (**choice**).", "sharp.md §1.7")
    line_size: int = knob(128, tuple(1 << bits for bits in range(5, 11)), "bytes",
        "L of that formula (**choice**).", "sharp.md §1.7")
    worst_case_lines: int = knob(1, range(255 + 1), "lines", "w of that formula (**choice**).", "sharp.md §1.7")
    half_line: bool = knob(True, BOOL, "",
        "The half-line optimisation of that formula is used (**choice**).", "sharp.md §1.7")
    max_user_data: int = knob(MAX_LLT_DATA, range(4, MAX_LLT_DATA + 1), "bytes",
        "An OST holds at most so much user data.", "sharp.md §1.7")
    mgid: str = knob("ipv4", ("ipv4", "ib", "none"), "",
        "The MGID of a group, for multicast results. ipv4: ::ffff:239.x.y.z; ib: ff12:a01b:fe80::; none: the carrier"
        " has no multicast.", "sharp.md §7")
    path_mtu: int = knob(4096, tuple(1 << bits for bits in range(8, 13)), "bytes",
        "The path MTU of the carrier. A result by multicast is one packet: groups whose results may be longer have"
        " none.", "sharp.md §2.1")
    first_mlid: int = knob(0xC005, range(0xC000, 0xFFFE + 1), "",
        "The MLID of the first group of a root; the next group has the next (**choice**).", "sharp.md §7")
    qkey: int = knob(0x53485250, range(2**31), "", "The Q_Key of multicast results (**choice**).", "sharp.md §7")
    group_trim: bool = knob(True, BOOL, "",
        "A root of which only one child takes part in a group makes that child the root of the group.", "sharp.md §3.1")
    prod: bool = knob(True, BOOL, "",
        "PROD is supported; off: OP_UNSUPPORTED, as normally in hardware.", "sharp.md §1.6")
    # fmt: on

    def __post_init__(self) -> None:
        check_knobs(self)

    @property
    def children(self) -> int:
        """Return the greatest number of children of an aggregation node."""
        return self.lab_radix or self.radix

    def multicasts(self, user_data: int) -> bool:
        """Return whether results of `user_data` bytes can be sent by multicast."""
        return self.mgid != "none" and SHARP.size + user_data <= self.path_mtu


def buffer_bytes(config: SharpConfig, user_data: int, children: int, *, reproducible: bool) -> int:
    """Return the number of buffer bytes that one OST takes (sharp.md §1.7). If `reproducible`, the OST stores the
    operand of each child."""
    line = config.line_size
    lines = -(-user_data // line)
    if reproducible:
        packed = 2 if config.half_line and user_data <= line // 2 else 1
        return -(-(-(-children // (4 * packed)) * 2 * lines) // 2) * 2 * line
    extra = config.worst_case_lines if user_data > line and children > 1 else 0
    return -(-(lines + extra) // 2) * 2 * line
