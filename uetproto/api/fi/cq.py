# SPDX-License-Identifier: GPL-2.0-only
"""This module has completion queues and counters, with the calls `fi_cq_open`, `fi_cq_read`, `fi_cq_sread` and
`fi_cntr_open` (ses.md §13.3).

A read never blocks, and takes no virtual time; `sread` and `wait` let time pass. The entry of a failed operation keeps
its place among the other entries, and its `ok` is False, so -FI_EAVAIL and `fi_cq_readerr` do not exist.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from uetproto.api.fi.errors import Errno, FiError, FiObject, RetryClass, bits, class_of, duration, invalid, name_of
from uetproto.api.fi.flags import ADDR_UNSPEC, CqFormat, Flag
from uetproto.engine.contract import EndpointDriver, PdsError
from uetproto.wire.headers.uet_ses import ReturnCode


@dataclass(slots=True)
class CqEntry:
    """This record represents `fi_cq_entry`, an entry of the format CONTEXT."""

    op_context: Any

    @property
    def ok(self) -> bool:
        return True


@dataclass(slots=True)
class CqMsgEntry(CqEntry):
    """This record represents `fi_cq_msg_entry`, an entry of the format MSG."""

    flags: Flag
    len: int
    """Length of the message in bytes."""


@dataclass(slots=True)
class CqDataEntry(CqMsgEntry):
    """This record represents `fi_cq_data_entry`, an entry of the format DATA."""

    buf: memoryview | None
    """Part of a multi-receive buffer that the message fills; it is None for other operations."""
    data: int
    """Completion data of 64 bits, which is valid only if `flags` has REMOTE_CQ_DATA."""


@dataclass(slots=True)
class CqTaggedEntry(CqDataEntry):
    """This record represents `fi_cq_tagged_entry`, an entry of the format TAGGED."""

    tag: int
    """Tag of the message that a tagged receive has taken; it is 0 for other operations."""


@dataclass(slots=True)
class CqErrEntry(CqTaggedEntry):
    """This record represents `fi_cq_err_entry`, the entry of an operation that failed."""

    olen: int
    """Number of bytes of the message that did not fit into the buffer."""
    err: Errno
    prov_errno: int
    """SES return code with which the operation ended."""
    pds: PdsError | None = None
    """Error of PDS if packet delivery failed, otherwise None."""

    @property
    def ok(self) -> bool:
        return False

    @property
    def code(self) -> str:
        """Return the name of the SES return code `prov_errno`."""
        return name_of(self.prov_errno)

    @property
    def retry(self) -> RetryClass:
        """Return the retry class of the return code: whether, and when, an initiator retries (ses.md §9.5)."""
        return class_of(self.prov_errno)

    def __str__(self) -> str:
        why = self.pds.reason.value if self.pds else self.code
        context = "" if self.op_context is None else f", context {self.op_context!r}"
        return f"{self.err.name}: {why} (class {self.retry.value}){context}"


@dataclass(slots=True)
class CompletionFacts:
    """This record holds all values that the entry of a completion may have; the format of the queue says which of them
    the entry gets."""

    context: Any
    flags: Flag
    length: int = 0
    buf: memoryview | None = None
    data: int = 0
    tag: int = 0
    source: int = ADDR_UNSPEC
    err: Errno | None = None
    olen: int = 0
    return_code: int = ReturnCode.OK
    pds: PdsError | None = None

    def entry(self, form: CqFormat) -> CqEntry:
        """Return the entry of the completion: an entry in the format `form`, or a `CqErrEntry` if the operation
        failed."""
        if self.err is not None:
            return CqErrEntry(
                self.context, self.flags, self.length, self.buf, self.data, self.tag, self.olen, self.err,
                self.return_code, self.pds,
            )  # fmt: skip
        fields = (self.context, self.flags, self.length, self.buf, self.data, self.tag)
        kind, count = _KINDS[form]
        entry: CqEntry = kind(*fields[:count])
        return entry


_KINDS: dict[CqFormat, tuple[Any, int]] = {
    CqFormat.CONTEXT: (CqEntry, 1),
    CqFormat.MSG: (CqMsgEntry, 3),
    CqFormat.DATA: (CqDataEntry, 5),
    CqFormat.TAGGED: (CqTaggedEntry, 6),
}
"""Type of the entry of each format, and its number of fields."""


class _Bound(Protocol):
    """This protocol describes the part of an endpoint that a queue uses."""

    def overrun(self) -> None:
        """Note that the queue lost an entry."""


class CompletionQueue(FiObject):
    """A completion queue holds an entry for each completed operation, until the program reads the entry.
    `domain.cq_open(...)` makes one (`fi_cq_open`)."""

    kind = "cq"

    def __init__(self, driver: EndpointDriver, size: int, form: CqFormat) -> None:
        super().__init__(driver)
        self.size = size
        """Number of entries that the queue holds."""
        self.format = form
        self.overrun = False
        """Whether an entry was lost: the queue is in error, and its endpoints are disabled (ses.md §13.3)."""
        self._entries: deque[tuple[CqEntry, int]] = deque()
        self._bound: list[_Bound] = []

    def __len__(self) -> int:
        """Return the number of entries that can be read."""
        return len(self._entries)

    def read(self, count: int = 1) -> list[CqEntry]:
        """`fi_cq_read` returns up to `count` entries, oldest first, or [] where libfabric returns -FI_EAGAIN. No
        virtual time passes.

        Raises FI_EOVERRUN if an entry was lost and all remaining entries have been read, and FI_EOPBADSTATE if the
        queue is closed.
        """
        return [entry for entry, _ in self.readfrom(count)]

    def readfrom(self, count: int = 1) -> list[tuple[CqEntry, int]]:
        """`fi_cq_readfrom` reads as `read` does, and returns each entry with the handle (`fi_addr_t`) of the peer from
        which the message came, or with ADDR_UNSPEC if the peer is unknown."""
        _count("count", count)
        return self._take(count)

    def _take(self, count: int) -> list[tuple[CqEntry, int]]:
        self._usable()
        entries = self._entries
        return [entries.popleft() for _ in range(min(count, len(entries)))]

    def sread(self, count: int = 1, timeout: int | str | None = None, *, threshold: int = 1) -> list[CqEntry]:
        """`fi_cq_sread` lets time pass until `threshold` entries are there, and then reads up to `count` entries.

        `timeout` is a number of picoseconds, or a text such as "1 ms". With None the call also returns when nothing
        more can happen, for example when the only open operations are sends for which no receive is posted. If too few
        entries come, the call returns the entries that are there, or [] if there are none. Raises the errors of `read`.
        """
        _count("count", count)
        _count("threshold", threshold)
        limit = None if timeout is None else duration("timeout", timeout)
        self._usable()
        entries, wanted = self._entries, min(threshold, self.size)
        self.driver.wait(lambda: len(entries) >= wanted or self.overrun, limit)
        return [entry for entry, _ in self._take(count)]

    def _usable(self) -> None:
        if self.closed:
            super()._usable()
        if self.overrun and not self._entries:
            raise FiError(
                Errno.FI_EOVERRUN, "cq", f"entries were lost, it holds {self.size}", "a larger size",
                id="completions-lost"
            )  # fmt: skip

    def bind(self, endpoint: _Bound) -> None:
        """Bind the queue to an endpoint. `Endpoint.bind` calls this method."""
        if endpoint not in self._bound:
            self._bound.append(endpoint)
            self.users += 1

    def unbind(self, endpoint: _Bound) -> None:
        """Undo the `bind` of an endpoint."""
        if endpoint in self._bound:
            self._bound.remove(endpoint)
            self.users -= 1

    def add(self, record: CompletionFacts) -> None:
        """Add the entry of an operation that has ended. If the queue is full, the entry is lost and all bound endpoints
        are disabled."""
        if self.overrun:
            return
        if len(self._entries) >= self.size:
            self.overrun = True
            for endpoint in self._bound:
                endpoint.overrun()
        else:
            self._entries.append((record.entry(self.format), record.source))
        self.driver.wake()


class Counter(FiObject):
    """This class counts completions: successes in one number, errors in another. `domain.cntr_open()` makes a counter
    (`fi_cntr_open`)."""

    kind = "counter"

    def __init__(self, driver: EndpointDriver) -> None:
        super().__init__(driver)
        self._value = self._errors = 0

    def read(self) -> int:
        """`fi_cntr_read` returns the number of successes.

        Every call of a counter raises FI_EOPBADSTATE after the counter is closed, and FI_EINVAL for a value beyond 64
        bits.
        """
        self._usable()
        return self._value

    def readerr(self) -> int:
        """`fi_cntr_readerr` returns the number of errors."""
        self._usable()
        return self._errors

    def add(self, value: int = 1) -> None:
        """`fi_cntr_add` adds `value` to the number of successes, modulo 2^64."""
        self._value = (self._value + self._checked("value", value)) & ADDR_UNSPEC
        self.driver.wake()

    def adderr(self, value: int = 1) -> None:
        """`fi_cntr_adderr` adds `value` to the number of errors, modulo 2^64."""
        self._errors = (self._errors + self._checked("value", value)) & ADDR_UNSPEC
        self.driver.wake()

    def set(self, value: int) -> None:
        """`fi_cntr_set` changes the number of successes to `value`."""
        self._value = self._checked("value", value)

    def seterr(self, value: int) -> None:
        """`fi_cntr_seterr` changes the number of errors to `value`."""
        self._errors = self._checked("value", value)

    def wait(self, threshold: int, timeout: int | str | None = None) -> None:
        """`fi_cntr_wait` lets time pass until the number of successes is at least `threshold`.

        `timeout` means the same as for `CompletionQueue.sread`. Raises FI_ETIMEDOUT if the timeout passes first, or if
        nothing more can happen unless the program acts. Raises FI_EIO if an error is counted meanwhile.
        """
        self._checked("threshold", threshold)
        limit = None if timeout is None else duration("timeout", timeout)
        errors = self._errors
        self.driver.wait(lambda: self._value >= threshold or self._errors != errors, limit)
        if self._value >= threshold:
            return
        if self._errors != errors:
            raise FiError(
                Errno.FI_EIO, "counter", f"an operation failed, {self._value} of {threshold} are done",
                id="operation-failed"
            )  # fmt: skip
        raise FiError(Errno.FI_ETIMEDOUT, "counter", f"{self._value} of {threshold} are done", id="timed-out")

    def _checked(self, name: str, value: int) -> int:
        self._usable()
        return bits(name, value, 64)


def _count(name: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise invalid(name, value, "a whole number, 1 and more", id="out-of-range")
