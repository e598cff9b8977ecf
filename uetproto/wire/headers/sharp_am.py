# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the tables of Aggregation Management, whose MADs manage SHARP (sharp.md §1.7, §2.9).

A MAD is 256 bytes: the header `sharp.am` and a body of 192 bytes, whose layout depends on the attribute. Class,
methods, attributes and their numbers are published. The layouts of the bodies are not published; they are this
project's own. A field that is repeated in a body has a row for each repetition.
"""

from enum import IntEnum, IntFlag

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header, Origin
from uetproto.wire.headers.sharp import (
    COUNTERS,
    AmAttribute,
    AmMethod,
    CounterMode,
    MadStatus,
    QpState,
    Syndrome,
    Trap,
    TreeMode,
)

OURS, OUR_PLACE = Origin.OURS, Origin.OUR_PLACE

AM_CLASS = 0x0B
AM_QP = 1
AM_Q_KEY = 0x80010000
MAD_SIZE = 256
BODY_SIZE = 192
MOST_QPS = 44
"""Largest number of queue pairs in one QPAllocation. One TreeConfig has at most this number of children."""
JOB_WORDS = 48


class AnCap(IntFlag):
    """These bits of `caps` in ANInfo say what an aggregation node can do (sharp.md §2.9)."""

    STREAMING = 1 << 0
    REPRO_DISABLE = 1 << 1
    REPRO_PER_JOB = 1 << 2
    FP19 = 1 << 3
    BFLOAT19 = 1 << 4
    EXTENDED_DTYPES = 1 << 5
    AM_KEY = 1 << 6
    JOB_KEY = 1 << 7
    TREE_JOB_BIND = 1 << 8
    PORT_CREDITS = 1 << 9
    SEMAPHORES_PER_PORT = 1 << 10
    RELIABLE_MULTICAST = 1 << 11
    HALF_LINE = 1 << 12


class AllocationOp(IntEnum):
    """This code says what QPAllocation does (sharp.md §2.9)."""

    ALLOC = 0
    CONFIRM = 1
    RELEASE = 2


class QpcFlag(IntFlag):
    """These bits make up `flags` of QPCConfig (sharp.md §2.9)."""

    GRH = 1
    SAT = 2


class TreeOp(IntEnum):
    """This code says what TreeConfig does (sharp.md §2.9)."""

    GET = 0
    SET = 1
    UPDATE = 2
    REMOVE = 3
    DISABLE = 4


class QuotaOp(IntEnum):
    """This code says what QuotaConfig does (sharp.md §2.9)."""

    GET = 0
    SET = 1
    CLEAR = 2


class QuotaFlag(IntFlag):
    """These bits make up `flags` of QuotaConfig (sharp.md §2.9)."""

    IS_ROOT = 1
    PREVENT_LOCK = 2
    REPRODUCIBLE = 4
    FP19 = 8
    BFLOAT19 = 16


class CleanupOp(IntEnum):
    """This code says what ResourceCleanup removes (sharp.md §2.9)."""

    AN = 1
    JOB = 2
    JOB_TREE = 3
    DISCONNECT_JOB_TREE = 4


AM = Header("sharp.am", "SHARP management datagram", "sharp.md §2.9", 64, (
    F(  8, "base_version",        only=(1,)),
    F(  8, "mgmt_class",          only=(AM_CLASS,)),
    F(  8, "class_version",                       doc="1: Switch-IB 2, 2: Quantum and later"),
    F(  8, "method",              AmMethod),
    F( 16, "status",              MadStatus),
    F( 16, "class_specific"),
    F( 64, "tid",                                 doc="transaction"),
    F( 16, "attr_id",             AmAttribute),
    F( 16, "rsvd"),
    F( 32, "attr_mod",                            doc="attribute modifier"),
    F( 64, "am_key",                              doc="authority; its place is ours", origin=OURS),
    F(256, "rsvd2",               origin=OURS),
))  # fmt: skip


def _body(name: str, title: str, *rows: F) -> Header:
    """Make the table of an attribute: its rows, and zeros up to its size."""
    reserved = sum(row.name.startswith("rsvd") for row in rows)
    rest = 8 * BODY_SIZE - sum(row.bits for row in rows)
    tail = (F(rest, f"rsvd{reserved + 1 if reserved else ''}"),) if rest else ()
    return Header(f"sharp.am.{name}", f"Attribute {title}", "sharp.md §2.9", BODY_SIZE, rows + tail, OURS)


NOTICE = _body("notice", "Notice, of a trap",
    F( 16, "trap",                Trap,           origin=OUR_PLACE),
    F( 16, "syndrome",            Syndrome,       doc="of the trap SHARP_ERROR", origin=OUR_PLACE),
    F( 32, "job_id"),
    F( 16, "tree_id"),
    F( 16, "an_lid"),
    F( 16, "remote_lid"),
    F( 16, "rsvd"),
    F( 32, "local_qpn"),
    F( 32, "remote_qpn"),
    F( 32, "group_id"),
    F( 32, "seq"),
)  # fmt: skip

AN_INFO = _body("an_info", "ANInfo",
    F( 16, "tree_table_size"),
    F(  8, "radix"),
    F(  8, "max_radix"),
    F( 16, "data_versions",                       doc="mask"),
    F( 16, "active_data_versions"),
    F( 32, "groups"),
    F( 32, "osts"),
    F( 32, "buffers"),
    F( 32, "qps"),
    F( 32, "sat_qps"),
    F( 32, "llt_qps"),
    F( 16, "max_user_data"),
    F(  8, "semaphores"),
    F(  8, "active_semaphores"),
    F( 32, "jobs"),
    F( 32, "caps",                AnCap),
    F(  8, "payload_endianness",                  doc="0: big, 1: little"),
    F(  8, "mtu",                                 doc="1 … 5: 256 … 4096"),
    F( 16, "line_size"),
    F(  8, "worst_case_lines"),
    F(  8, "chunk_mode"),
)  # fmt: skip

QP_ALLOCATION = _body("qp_allocation", "QPAllocation",
    F(  8, "op",                  AllocationOp),
    F(  8, "count",                               doc="queue pairs, at most 44"),
    F( 16, "rsvd"),
    F( 32, "job_id"),
    *(F(32, f"qpn{index}") for index in range(MOST_QPS)),
)  # fmt: skip

QPC_CONFIG = _body("qpc_config", "QPCConfig",
    F( 32, "qpn"),
    F(  8, "state",               QpState,        origin=OUR_PLACE),
    F(  8, "ts",                                  doc="transport: 0 RC, 3 UD"),
    F(  8, "port"),
    F(  8, "mtu"),
    F( 32, "rqpn",                                doc="queue pair at the other end"),
    F( 16, "rlid"),
    F( 16, "pkey"),
    F(  8, "sl"),
    F(  8, "tclass"),
    F(  8, "hop_limit"),
    F(  8, "flags",               QpcFlag),
    F(128, "rgid"),
    F( 32, "rq_psn"),
    F( 32, "sq_psn"),
    F(  8, "rnr_mode"),
    F(  8, "rnr_retry"),
    F(  8, "ack_timeout"),
    F(  8, "retry"),
    F( 32, "flow_label",                          doc="20 bits: selects the entropy value; 0: the node chooses"),
)  # fmt: skip

TREE_CONFIG = _body("tree_config", "TreeConfig",
    F( 16, "tree_id"),
    F(  8, "op",                  TreeOp),
    F(  8, "mode",                TreeMode,       origin=OUR_PLACE),
    F( 16, "llt_tree_id",                         doc="of a SAT; else 0xffff"),
    F(  8, "n_children",                          doc="at most 44"),
    F(  8, "record_locator"),
    F( 32, "parent_qpn",                          doc="0: root"),
    F( 32, "rsvd"),
    *(row for index in range(MOST_QPS) for row in (F(8, f"child{index}_idx"), F(24, f"child{index}_qpn"))),
)  # fmt: skip

QUOTA_CONFIG = _body("quota_config", "QuotaConfig",
    F( 32, "job_id"),
    F( 16, "tree_id"),
    F(  8, "op",                  QuotaOp),
    F(  8, "flags",               QuotaFlag),
    F( 32, "osts"),
    F( 32, "buffers"),
    F( 32, "groups"),
    F( 32, "qps"),
    F( 16, "user_data"),
    F( 16, "rsvd"),
    F( 32, "ud_qpn"),
    F( 64, "job_key"),
)  # fmt: skip

RESOURCE_CLEANUP = _body("resource_cleanup", "ResourceCleanup",
    F(  8, "op",                  CleanupOp),
    F(  8, "rsvd"),
    F( 16, "tree_id"),
    F( 32, "job_id"),
)  # fmt: skip

PERFORMANCE_COUNTERS = _body("performance_counters", "PerformanceCounters",
    F(  8, "mode",                CounterMode,    origin=OUR_PLACE),
    F(  8, "port",                                doc="255: all"),
    F( 16, "rsvd"),
    F( 32, "select",                              doc="mask, bit 0 the first counter"),
    F( 64, "rsvd2"),
    *(F(64, counter, origin=OUR_PLACE) for counter in COUNTERS),
)  # fmt: skip

AN_ACTIVE_JOBS = _body("an_active_jobs", "ANActiveJobs",
    *(F(32, f"jobs{index}") for index in range(JOB_WORDS)),
)  # fmt: skip

ATTRIBUTES: dict[AmAttribute, Header] = {
    AmAttribute.NOTICE:               NOTICE,
    AmAttribute.AN_INFO:              AN_INFO,
    AmAttribute.QP_ALLOCATION:        QP_ALLOCATION,
    AmAttribute.QPC_CONFIG:           QPC_CONFIG,
    AmAttribute.TREE_CONFIG:          TREE_CONFIG,
    AmAttribute.QUOTA_CONFIG:         QUOTA_CONFIG,
    AmAttribute.RESOURCE_CLEANUP:     RESOURCE_CLEANUP,
    AmAttribute.PERFORMANCE_COUNTERS: PERFORMANCE_COUNTERS,
    AmAttribute.AN_ACTIVE_JOBS:       AN_ACTIVE_JOBS,
}  # fmt: skip
"""Table of the body, by attribute. The bodies of other attributes have no table."""

HEADERS = (AM, *ATTRIBUTES.values())
