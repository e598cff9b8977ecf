"""The parameters of SHARP: the timers of sharp.md §3.4, the limits of §1.7, the project's rows of §5, and every choice.

One dataclass, in the way of `config.PdsConfig`. Times are integer picoseconds. The published names of what a user sets
(§5) stand in `options.py`.
"""

from dataclasses import dataclass, fields
from typing import Any

from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.errors import LocalError, shown
from uetproto.wire.headers.sharp import SHARP

TIMES = frozenset({"t_join", "t_ost", "t_result", "t_rnr", "t_lock", "t_err", "heartbeat", "coll_timeout"})
"""The parameters that are times; all other numbers are counts or bytes."""

MAX_CHUNK = 4064
"""Bytes of a SAT chunk: with its header at most 4096 (§2.8 rule 5)."""
MAX_SAT_MESSAGE = 1_073_741_792
"""Bytes of a SAT vector: 1 GiB − 32 B (§1.1)."""
MAX_LLT_DATA = 1024
"""User data per OST (§1.7)."""
MAX_RADIX = 252
MAX_SAT_ID = 1022
MAX_OSTS = 2**15
"""Of one group: serial arithmetic tells a window of them from what is old (§3.2)."""
GRANULE = 32
"""Bytes: every chunk of SAT but the last is a multiple of it (§2.8 rule 5)."""

_TIME = range(60 * SECOND + 1)
_BOOL = (True, False)

_LIMITS: dict[str, range | tuple[Any, ...]] = {
    "t_join": _TIME,
    "t_ost": _TIME,
    "t_result": _TIME,
    "retry": range(255 + 1),
    "t_rnr": _TIME,
    "rnr_retry": range(255 + 1),
    "t_lock": _TIME,
    "t_err": _TIME,
    "heartbeat": _TIME,
    "heartbeats_missed": range(1, 255 + 1),
    "coll_timeout": _TIME,
    "sat_chunk": range(GRANULE, MAX_CHUNK + 1, GRANULE),
    "sat_window": range(1, 64 + 1),
    "sat_flows_per_an": range(1, 64 + 1),
    "semaphores": range(1, 64 + 1),
    "radix": range(16, MAX_RADIX + 1),
    "lab_radix": range(MAX_RADIX + 1),
    "llt_trees": range(1, 511 + 1),
    "acc_native": _BOOL,
    "repro": _BOOL,
    "lazy_ost": _BOOL,
    "tree_table_size": range(63, 1022 + 1),
    "osts": range(1, 2**24 + 1),
    "max_group_osts": range(1, MAX_OSTS + 1),
    "groups": range(1, 2**20 + 1),
    "qps": range(1, 2**24 + 1),
    "jobs": range(1, 1536 + 1),
    "buffers": range(1, 2**40 + 1),
    "line_size": tuple(1 << bits for bits in range(5, 11)),
    "worst_case_lines": range(255 + 1),
    "half_line": _BOOL,
    "max_user_data": range(4, MAX_LLT_DATA + 1),
    "mgid": ("ipv4", "ib", "none"),
    "path_mtu": tuple(1 << bits for bits in range(8, 13)),
    "first_mlid": range(0xC000, 0xFFFE + 1),
    "qkey": range(2**31),
    "group_trim": _BOOL,
    "prod": _BOOL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharpConfig:
    """What one aggregation node or host does. Raises `LocalError` naming field and legal values."""

    # Timers (§3.4)
    t_join: int = 5000 * MILLISECOND
    """A group that is not complete after so long is given up."""
    t_ost: int = 1000 * MILLISECOND
    """The children of an operation have so long after the first."""
    t_result: int = 500 * MILLISECOND
    """The parent has so long for a result; then the request is sent again."""
    retry: int = 7
    """So often; then the parent is down."""
    t_rnr: int = 10 * MILLISECOND
    """After a NACK the sender waits so long."""
    rnr_retry: int = 7
    """So often."""
    t_lock: int = 100 * MILLISECOND
    """A lock that is not given after so long is given up. A LOCK_REQ brings its own (**choice**)."""
    t_err: int = 1000 * MILLISECOND
    """A failed operation is remembered for so long."""
    heartbeat: int = 1000 * MILLISECOND
    """Between two heartbeats on a connection of a READY group; 0: none, an end is told by its carrier alone."""
    heartbeats_missed: int = 3
    """So many without an answer: the child is down (§3.1)."""
    coll_timeout: int = 30 * SECOND
    """A host gives up a collective after so long: later than every AN would, T_ost + L·T_result·(retry + 1)
    (**choice**)."""

    # The project's rows of §5
    sat_chunk: int = 2048
    """Bytes of a chunk, a multiple of 32, at most 4064."""
    sat_window: int = 64
    """Chunks of a group in flight (§3.3)."""
    sat_flows_per_an: int = 2
    """SAT trees held at a time, over the whole aggregation node (§3.3)."""
    semaphores: int = 1
    """Groups that hold one SAT tree at a time (§3.3)."""
    radix: int = 32
    """Children of an aggregation node, 16–252."""
    lab_radix: int = 0
    """Instead of `radix`, 1–252; 0: `radix` counts."""
    llt_trees: int = 63
    """n: SAT trees are numbered from here (§1.5)."""
    acc_native: bool = False
    """f16 and bf16 are rounded after each step, not once on output (§3.5)."""
    repro: bool = True
    """Hosts ask for ascending child order (§3.5)."""
    lazy_ost: bool = False
    """An OST is taken when an operation begins, not with the group: it may be refused with OST_EXHAUSTED (§3.2)."""

    # The aggregation node: what it has (§1.7, §2.9 ANInfo)
    tree_table_size: int = 126
    osts: int = 256
    """The pool; 20 % of it are the 51 of §1.9."""
    max_group_osts: int = 64
    """Of one group, whatever it asks for (**choice**)."""
    groups: int = 256
    qps: int = 1024
    jobs: int = 256
    buffers: int = 8 * 2**20
    """Bytes, by the formula of §1.7 (**choice**)."""
    line_size: int = 128
    """L of that formula (**choice**)."""
    worst_case_lines: int = 1
    """w of that formula (**choice**)."""
    half_line: bool = True
    """The half-line optimisation of that formula (**choice**)."""
    max_user_data: int = MAX_LLT_DATA
    """Bytes an OST may hold."""
    mgid: str = "ipv4"
    """Of a group, for multicast results: ipv4 ::ffff:239.x.y.z, ib ff12:a01b:fe80::, none where the carrier has no
    multicast (§7)."""
    path_mtu: int = 4096
    """Of the carrier. A result by multicast is one packet (§2.1): groups whose results may be longer have none."""
    first_mlid: int = 0xC005
    """MLID of the first group of a root; the next has the next (**choice**; §7 has this one)."""
    qkey: int = 0x53485250
    """Q_Key of multicast results (**choice**)."""
    group_trim: bool = True
    """A root with one child that takes part makes that child the root (§3.1)."""
    prod: bool = True
    """PROD is done; off: OP_UNSUPPORTED, as normally in hardware (§1.6)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check(field.name, getattr(self, field.name))

    @property
    def children(self) -> int:
        """How many children an aggregation node may have."""
        return self.lab_radix or self.radix

    def multicasts(self, user_data: int) -> bool:
        """Whether results of so many bytes can go by multicast."""
        return self.mgid != "none" and SHARP.size + user_data <= self.path_mtu


def legal_of(name: str) -> range | tuple[Any, ...]:
    """What a field of `SharpConfig` may be; times in picoseconds."""
    return _LIMITS[name]


def check(name: str, value: Any) -> None:
    """Raises `LocalError` unless the field `name` may be `value`."""
    limit = _LIMITS[name]
    fits = type(value) in (bool, int, str) and isinstance(value, bool) == (limit == _BOOL)
    if not fits or (isinstance(value, str) and isinstance(limit, range)) or value not in limit:
        if isinstance(limit, range):
            step = f", multiples of {limit.step}" if limit.step > 1 else ""
            text = f"{limit[0]} … {limit[-1]}{step}"
        else:
            text = ", ".join(map(str, limit))
        raise LocalError(name, f"{shown(value)} is not legal", text)


def buffer_bytes(config: SharpConfig, user_data: int, children: int, *, reproducible: bool) -> int:
    """Buffer bytes of one OST (§1.7): growing with the children where their operands are kept, else one accumulator."""
    line = config.line_size
    lines = -(-user_data // line)
    if reproducible:
        packed = 2 if config.half_line and user_data <= line // 2 else 1
        return -(-(-(-children // (4 * packed)) * 2 * lines) // 2) * 2 * line
    extra = config.worst_case_lines if user_data > line and children > 1 else 0
    return -(-(lines + extra) // 2) * 2 * line
