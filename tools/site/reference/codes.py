# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the page of the codes that say how a request or a packet ended, from the tables of the engines."""

from collections.abc import Iterable, Iterator

from uetproto.api import verbs
from uetproto.api.fi.errors import RetryClass, class_of, errno_of
from uetproto.engine.pds.nacks import NACKS, NackClass, NackRow
from uetproto.wire.headers.roce import Nak
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import ReturnCode

_HEAD = """\
# Return codes, NACK codes and syndromes

Written from the tables that the engines obey. All other codes of headers stand in
[Header tables](../../uetproto/wire/TABLES.md#codes).

"""
_RETURN = """
## Return codes of SES

A response says by its return code how a request ended (UE 1.0.1 §3.4.1.10). What causes each code stands in
[ses.md §9.5](../protocol/ses.md#95-return-codes). A vendor code, and one that is not known, is reported at once as
FI_EIO.
"""
_CLASSES = {
    RetryClass.OK: "",
    RetryClass.NOW: "repair the cause, retry at once",
    RetryClass.BACK: "retry with back-off",
    RetryClass.PERM: "report the error",
}
_NACK = """
## NACK codes of PDS

A NACK refuses one packet. *Class* says what becomes of the PDC (UE 1.0.1 §3.5.12.7; pds.md §12). A NACK with a reserved
code is dropped and counted.
"""
_NAK = """
## Syndromes of RoCE

An AETH refuses a request with one of these (roce.md §2.1); 0x20 to 0x3f is an RNR NAK, whose five bits are the timer.
"""
_STATUS = """
## Completion status of verbs

A completion queue entry has one of these.
"""


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    yield _RETURN
    rows = (
        (f"0x{code:02x}", code.name, _CLASSES[class_of(code)], errno_of(code).name if _fails(code) else "")
        for code in ReturnCode
    )
    yield from _table(("code", "name", "the initiator will", "error of libfabric"), rows)
    yield _NACK
    kinds = {NackClass.NORMAL: "normal", NackClass.ERR: "error", NackClass.FATAL: "fatal"}
    nacks = (
        (f"0x{code:02x}", code.name, f"{kinds[NACKS[code].kind]}: {NACKS[code].kind.value}", _reaction(NACKS[code]))
        for code in NackCode
    )
    yield from _table(("code", "name", "class", "reaction of the source"), nacks)
    yield _NAK
    yield from _table(("code", "name"), ((f"0x{code:02x}", code.name) for code in Nak))
    yield _STATUS
    yield from _table(("value", "name"), ((str(int(status)), status.name) for status in verbs.Status))


def _fails(code: ReturnCode) -> bool:
    return class_of(code) is not RetryClass.OK


def _reaction(row: NackRow) -> str:
    if row.ignored:
        return "an input of its own in the [state tables](../../uetproto/engine/STATES.md)"
    if row.kind is NackClass.FATAL:
        return "close the PDC in error; SES may retry" if row.retryable else "close the PDC in error"
    words = "retransmit after NACK_Retx_Time" if row.delayed else "retransmit at once"
    if row.opening:
        words += ", with syn = 1; ignored once the PDC is established"
    if row.after_dst_rcvd:
        words += "; also a packet that an ACK has reported as received"
    return words


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"
