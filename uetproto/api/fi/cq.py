"""Completion queues and counters: `fi_cq_open`, `fi_cq_read`, `fi_cq_sread`, `fi_cntr_open` (ses.md §13.3).

Reading never blocks and moves no time; `sread` and `wait` run virtual time. An error entry stands in the queue where it
came, among the others: there is no -FI_EAVAIL and no `fi_cq_readerr`. `entry.ok` tells them apart.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from uetproto.api.fi.errors import Errno, FiError, RetryClass, bits, class_of, duration, invalid, name_of
from uetproto.api.fi.flags import ADDR_UNSPEC, CqFormat, Flag
from uetproto.engine.contract import EndpointDriver, PdsError
from uetproto.wire.headers.uet_ses import ReturnCode


@dataclass(frozen=True, slots=True)
class CqEntry:
    """fi_cq_entry, of the format CONTEXT."""

    op_context: Any

    @property
    def ok(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class CqMsgEntry(CqEntry):
    """fi_cq_msg_entry."""

    flags: Flag
    len: int
    """Bytes of the message."""


@dataclass(frozen=True, slots=True)
class CqDataEntry(CqMsgEntry):
    """fi_cq_data_entry."""

    buf: memoryview | None
    """Of a multi-receive buffer: the part with the message."""
    data: int
    """Completion data; valid with REMOTE_CQ_DATA."""


@dataclass(frozen=True, slots=True)
class CqTaggedEntry(CqDataEntry):
    """fi_cq_tagged_entry."""

    tag: int
    """Of a tagged receive."""


@dataclass(frozen=True, slots=True)
class CqErrEntry(CqTaggedEntry):
    """fi_cq_err_entry: an operation that failed."""

    olen: int
    """Bytes that were cut off."""
    err: Errno
    prov_errno: int
    """SES return code."""
    pds: PdsError | None = None
    """Set when packet delivery failed."""

    @property
    def ok(self) -> bool:
        return False

    @property
    def code(self) -> str:
        """Name of the return code."""
        return name_of(self.prov_errno)

    @property
    def retry(self) -> RetryClass:
        """Whether such a refusal is one that an initiator retries (ses.md §9.5)."""
        return class_of(self.prov_errno)

    def __str__(self) -> str:
        why = self.pds.reason.value if self.pds else self.code
        return f"{self.err.name}: {why} (class {self.retry.value}), context {self.op_context!r}"


@dataclass(slots=True, kw_only=True)
class Record:
    """All that can be told about one completion; what is told depends on the format."""

    context: Any = None
    flags: Flag = Flag.NONE
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
"""Entry of each format, and how many fields it has."""


class _Bound(Protocol):
    """An endpoint, as its queue sees it."""

    def overrun(self) -> None: ...


class CompletionQueue:
    """`fi_cq_open`. `domain.cq_open(...)` makes it."""

    def __init__(self, driver: EndpointDriver, size: int, form: CqFormat) -> None:
        self.size = size
        """Entries that it holds."""
        self.format = form
        self.overrun = False
        """An entry was lost: the queue is in error, and its endpoints are disabled (ses.md §13.3)."""
        self.closed = False
        self.driver = driver
        self._entries: deque[tuple[CqEntry, int]] = deque()
        self._bound: list[_Bound] = []

    def __len__(self) -> int:
        """Entries that can be read."""
        return len(self._entries)

    def read(self, count: int = 1) -> list[CqEntry]:
        """`fi_cq_read`: up to `count` entries, oldest first; [] where libfabric has -FI_EAGAIN. No time passes.

        Raises FI_EOVERRUN when the queue is in error and what it held has been read, FI_EOPBADSTATE when closed.
        """
        return [entry for entry, _ in self.readfrom(count)]

    def readfrom(self, count: int = 1) -> list[tuple[CqEntry, int]]:
        """`fi_cq_readfrom`: each entry with the `fi_addr_t` of its source, ADDR_UNSPEC where there is none."""
        _count("count", count)
        self._usable()
        return [self._entries.popleft() for _ in range(min(count, len(self._entries)))]

    def sread(self, count: int = 1, timeout: int | str | None = None, *, threshold: int = 1) -> list[CqEntry]:
        """`fi_cq_sread`: runs virtual time until `threshold` entries are there, then reads up to `count`.

        `timeout`: picoseconds, or a text such as "1 ms"; None: until nothing more would happen. What is there then is
        returned: [] also when all that is open are sends for which no receive is posted. Raises as `read`.
        """
        _count("count", count)
        _count("threshold", threshold)
        limit = None if timeout is None else duration("timeout", timeout)
        self._usable()
        self.driver.wait(lambda: len(self._entries) >= min(threshold, self.size) or self.overrun, limit)
        return self.read(count)

    def close(self) -> None:
        """`fi_close`. Raises FI_EBUSY while an endpoint is bound to it."""
        if self._bound:
            raise FiError(Errno.FI_EBUSY, "cq", "an endpoint is bound to it", "close the endpoint first")
        self.closed = True

    def _usable(self) -> None:
        if self.closed:
            raise FiError(Errno.FI_EOPBADSTATE, "cq", "is closed")
        if self.overrun and not self._entries:
            raise FiError(Errno.FI_EOVERRUN, "cq", f"entries were lost, it holds {self.size}", "a larger size")

    def bind(self, endpoint: _Bound) -> None:
        """Called by `Endpoint.bind`."""
        if endpoint not in self._bound:
            self._bound.append(endpoint)

    def unbind(self, endpoint: _Bound) -> None:
        if endpoint in self._bound:
            self._bound.remove(endpoint)

    def add(self, record: Record) -> None:
        """Called by an endpoint when an operation has ended."""
        if self.overrun:
            return
        if len(self._entries) >= self.size:
            self.overrun = True
            for endpoint in self._bound:
                endpoint.overrun()
        else:
            self._entries.append((record.entry(self.format), record.source))
        self.driver.wake()


class Counter:
    """`fi_cntr_open`: counts completions without telling them apart. `domain.cntr_open()` makes it."""

    def __init__(self, driver: EndpointDriver) -> None:
        self.driver = driver
        self._value = self._errors = 0
        self.users = 0
        """Endpoints and regions that it is bound to."""
        self.closed = False

    def read(self) -> int:
        """`fi_cntr_read`: successes. All calls raise FI_EOPBADSTATE when it is closed, FI_EINVAL for no 64 bits."""
        self._usable()
        return self._value

    def readerr(self) -> int:
        """`fi_cntr_readerr`: errors."""
        self._usable()
        return self._errors

    def add(self, value: int = 1) -> None:
        """`fi_cntr_add`, modulo 2^64."""
        self._value = (self._value + self._checked("value", value)) & ADDR_UNSPEC
        self.driver.wake()

    def adderr(self, value: int = 1) -> None:
        """`fi_cntr_adderr`."""
        self._errors = (self._errors + self._checked("value", value)) & ADDR_UNSPEC
        self.driver.wake()

    def set(self, value: int) -> None:
        """`fi_cntr_set`."""
        self._value = self._checked("value", value)

    def seterr(self, value: int) -> None:
        """`fi_cntr_seterr`."""
        self._errors = self._checked("value", value)

    def wait(self, threshold: int, timeout: int | str | None = None) -> None:
        """`fi_cntr_wait`: runs virtual time until the value is at least `threshold`.

        Raises FI_ETIMEDOUT when it is not in time, or nothing more would happen, and FI_EIO when an error is counted
        meanwhile.
        """
        self._checked("threshold", threshold)
        limit = None if timeout is None else duration("timeout", timeout)
        errors = self._errors
        self.driver.wait(lambda: self._value >= threshold or self._errors != errors, limit)
        if self._value >= threshold:
            return
        if self._errors != errors:
            raise FiError(Errno.FI_EIO, "counter", f"an operation failed, {self._value} of {threshold} are done")
        raise FiError(Errno.FI_ETIMEDOUT, "counter", f"{self._value} of {threshold} are done")

    def close(self) -> None:
        """`fi_close`. Raises FI_EBUSY while it is bound."""
        if self.users:
            raise FiError(Errno.FI_EBUSY, "counter", "is bound", "close the endpoints and regions first")
        self.closed = True

    def _usable(self) -> None:
        if self.closed:
            raise FiError(Errno.FI_EOPBADSTATE, "counter", "is closed")

    def _checked(self, name: str, value: int) -> int:
        self._usable()
        return bits(name, value, 64)


def _count(name: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise invalid(name, value, "a whole number, 1 and more")


class _Bindable(Protocol):
    """An address vector, a completion queue, a counter."""

    driver: EndpointDriver
    closed: bool


def check_bindable(name: str, other: _Bindable, driver: EndpointDriver) -> None:
    """Raises FI_EINVAL for what is closed, FI_EDOMAIN for what is another fabric's: its time does not run here."""
    if other.closed:
        raise invalid(name, "is closed", "one that is open")
    if other.driver is not driver:
        raise invalid(name, "one of another fabric", "one of the same fabric", Errno.FI_EDOMAIN)
