# SPDX-License-Identifier: GPL-2.0-only
"""The target of a read returns the data in PDS requests, in the return direction of the PDC.

UE 1.0.1 §3.5.20; ses.md §5.4, §9.6; pds.md §10.
"""

from collections import deque

from uetproto.engine.contract import Buffer, PdsError
from uetproto.engine.memory import Region
from uetproto.engine.pds.service import Connection, PacketDelivery, Response
from uetproto.engine.train_splits import Split
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import ReturnCode

_MOST_QUEUED = 256
"""Number of return packets of a PDC that may wait for its window. The answers to further reads are delayed until fewer
wait, so that a long read needs little memory."""


class ReturnMessage:
    """A return message is a `service.Outgoing` that carries the data for one packet of a read."""

    __slots__ = ("context", "lock", "message_id", "mode", "next_hdr", "packet", "pdc", "peer", "region", "reserved",
                 "returns", "size")  # fmt: skip

    def __init__(
        self, returns: "Returns", pdc: Connection, next_hdr: int, header: bytes, data: Buffer, region: Region | None
    ) -> None:
        self.returns = returns
        self.pdc = pdc
        self.peer = pdc.peer
        self.mode = pdc.mode
        self.message_id = 0
        self.next_hdr = next_hdr
        self.context = 0
        self.reserved = self.lock = False
        self.packet = (0, header, data, True)
        self.size = len(data)
        self.region = region

    def unsent(self) -> tuple[int, int]:
        """Return the one packet, and its bytes of SES header and payload."""
        return 1, len(self.packet[1]) + self.size

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        self.returns.left(self.pdc)
        return self.packet

    def next_run(self, most: int) -> Split:
        """Return that it is of another kind, as the message has one packet of read data."""
        return Split.KIND

    def is_plain(self, next_hdr: int, response: Buffer) -> bool:
        """Return False, as each answer ends the message."""
        return False

    def answered(self, count: int, now: int) -> None:
        """Do nothing, as no answer is plain."""

    def on_response(self, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        """Process the response of the initiator. If the response reports success, report the bytes to `on_read` of the
        region.
        """
        self.returns.open -= 1
        good = response is None or next_hdr == NextHdr.NONE or response[1] & 0x3F in (ReturnCode.OK, ReturnCode.NULL)
        if good and self.region is not None and self.region.on_read is not None:
            self.region.on_read(self.size, now)

    def on_error(self, index: int, error: PdsError, now: int) -> None:
        """Count the return packet as ended, because PDS could not deliver it."""
        self.returns.open -= 1


class Returns:
    """This class queues the data that a target returns for reads, and the responses to reads that wait for room."""

    def __init__(self) -> None:
        self.open = 0
        """Number of return packets that are not acknowledged yet."""
        self.used = False
        """Whether a read has come; `queued` is False before."""
        self._queued: deque[ReturnMessage] = deque()
        self._read: deque[tuple[Region, int]] = deque()
        """Bytes that were sent in ACKs, of regions with `on_read`: {region, number of bytes}."""
        self._waiting: dict[Connection, int] = {}
        """Number of return packets of each PDC that are not sent yet."""
        self._accepted: dict[Connection, deque[tuple[int, Response]]] = {}
        """Reads of each PDC that are executed but not answered yet: {PSN, answer}."""
        self.waits = (self._queued, self._read, self._accepted)
        """Containers of what waits for `flush`: if all are empty, `queued` is False."""

    @property
    def queued(self) -> bool:
        """Return True when `flush` can send data or a response, or has bytes to report."""
        if self._queued or self._read:
            return True
        return bool(self._accepted) and any(self._waiting.get(pdc, 0) < _MOST_QUEUED for pdc in self._accepted)

    def send(
        self, pdc: Connection, psn: int, next_hdr: int, header: bytes, data: Buffer, region: Region | None,
        accepted: Response,
    ) -> Response | None:  # fmt: skip
        """Queue the data for one packet of a read. Return `accepted` as the response to that packet, or None if the
        response follows later."""
        self.open += 1
        self.used = True
        self._queued.append(ReturnMessage(self, pdc, next_hdr, header, data, region))
        self._waiting[pdc] = waiting = self._waiting.get(pdc, 0) + 1
        if waiting < _MOST_QUEUED:
            return accepted
        self._accepted.setdefault(pdc, deque()).append((psn, accepted))
        return None

    def acknowledged(self, region: Region, size: int) -> None:
        """Note that an ACK carries `size` bytes of a region; `flush` reports them to `on_read`."""
        self.used = True
        self._read.append((region, size))

    def left(self, pdc: Connection) -> None:
        """Note that PDS sends a return packet of a PDC. The number of the PDC's packets that wait is now 1 smaller."""
        left = self._waiting.get(pdc, 0) - 1
        if left > 0:
            self._waiting[pdc] = left
        else:
            self._waiting.pop(pdc, None)

    def flush(self, pds: PacketDelivery, now: int) -> None:
        """Pass all queued data to PDS, report bytes to `on_read`, and answer the reads for which there is room now."""
        while self._queued:
            message = self._queued.popleft()
            if pds.pdcs.get(message.pdc.local_id) is message.pdc:
                pds.send_return(message.pdc.local_id, message, now)
            else:
                self.open -= 1
        while self._read:
            region, size = self._read.popleft()
            if region.on_read is not None:
                region.on_read(size, now)
        for pdc in list(self._accepted):
            reads = self._accepted[pdc]
            while reads and self._waiting.get(pdc, 0) < _MOST_QUEUED:
                psn, answer = reads.popleft()
                pds.respond_late(pdc, psn, answer, now)
            if not reads:
                del self._accepted[pdc]

    def closed(self, pdc: Connection) -> None:
        """Drop the unanswered reads of a released PDC. PDS reports the unsent return packets of the PDC as failed
        (`on_error`).
        """
        self._waiting.pop(pdc, None)
        self._accepted.pop(pdc, None)
