# SPDX-License-Identifier: GPL-2.0-only
"""Each NACK code has a class and a reaction of the source (UE 1.0.1 §3.5.12.7, Tables 3-58 and 3-59; pds.md §12)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from uetproto.wire.headers.uet_pds import NackCode as N


class NackClass(Enum):
    NORMAL = "the PDC goes on"
    ERR = "the PDC goes on, abnormal event"
    FATAL = "the PDC is closed"


@dataclass(frozen=True, slots=True)
class NackRow:
    """This class holds the reaction of a source to a NACK code (pds.md §12)."""

    kind: NackClass
    delayed: bool = False
    """Whether the source waits NACK_Retx_Time before it retransmits. If this is False, it retransmits at once."""
    after_dst_rcvd: bool = False
    """Whether the NACK is valid also for a packet that an ACK has reported as received. If the NACK asks for a
    retransmission, such a packet no longer counts as received."""
    retryable: bool = False
    """Whether pds.md §12 permits SES to retry after this FATAL code."""
    opening: bool = False
    """Whether the source accepts the NACK only in CREATING, and ignores the NACK in later states."""
    ignored: bool = False
    """Whether `source.take_nack` ignores the code, because a NACK with this code is a separate input of the state
    tables."""


_NOW = NackRow(NackClass.NORMAL)
_LATER = NackRow(NackClass.NORMAL, delayed=True)
_NOT_OPENED = NackRow(NackClass.NORMAL, delayed=True, opening=True)
_FATAL_RETRY = NackRow(NackClass.FATAL, retryable=True)
_FATAL = NackRow(NackClass.FATAL)

NACKS: dict[int, NackRow] = {
    N.TRIMMED: _NOW,
    N.TRIMMED_LASTHOP: _NOW,
    N.TRIMMED_ACK: _NOW,
    N.NO_PDC_AVAIL: _NOT_OPENED,
    N.NO_CCC_AVAIL: _NOT_OPENED,
    N.NO_BITMAP: _NOT_OPENED,
    N.NO_PKT_BUFFER: _LATER,
    N.NO_GTD_DEL_AVAIL: _LATER,
    N.NO_SES_MSG_AVAIL: _LATER,
    N.NO_RESOURCE: _LATER,
    N.PSN_OOR_WINDOW: _LATER,
    N.ROD_OOO: _NOW,
    N.INV_DPDCID: _FATAL_RETRY,
    N.PDC_HDR_MISMATCH: _FATAL_RETRY,
    N.CLOSING: _FATAL_RETRY,
    N.CLOSING_IN_ERR: _FATAL,
    N.PKT_NOT_RCVD: NackRow(NackClass.ERR, after_dst_rcvd=True),
    N.GTD_RESP_UNAVAIL: _FATAL,
    N.ACK_WITH_DATA: NackRow(NackClass.ERR, after_dst_rcvd=True),
    N.INVALID_SYN: _FATAL_RETRY,
    N.PDC_MODE_MISMATCH: _FATAL_RETRY,
    N.NEW_START_PSN: NackRow(NackClass.NORMAL, ignored=True),
    N.RCVD_SES_PROCG: NackRow(NackClass.NORMAL, after_dst_rcvd=True),
    N.UNEXP_EVENT: _FATAL_RETRY,
    N.RCVR_INFER_LOSS: _NOW,
    N.EXP_NACK_NORMAL: _LATER,
    N.EXP_NACK_ERR: NackRow(NackClass.ERR, delayed=True),
    N.EXP_NACK_FATAL: _FATAL,
}
"""Reaction of the source to each NACK code. A NACK with a reserved code is dropped and counted."""

FATAL_CODES = frozenset(code for code, entry in NACKS.items() if entry.kind is NackClass.FATAL)


def nacks_of(sent: Iterable[Mapping[int, int]]) -> dict[str, int]:
    """Add up the NACKs that several endpoints sent (their `Pds.nack_tx`), and return a sum for each code name."""
    counts: Counter[int] = Counter()
    for of_one in sent:
        counts.update(of_one)
    return {N(code).name: count for code, count in sorted(counts.items())}
