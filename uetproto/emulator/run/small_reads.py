# SPDX-License-Identifier: GPL-2.0-only
"""This module has reads of one packet whose SES request has the small header.

The small header has no message id. The response with the data therefore names the PSN of the request (pds.md §10).
"""

from uetproto.check.uet.scripted_ses import content
from uetproto.engine.contract import Buffer, Mode
from uetproto.engine.pds.service import Connection, Response
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.ses.headers import build_response, build_response_data_small, parse_ses_request
from uetproto.steps.uet import MessageSpec
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ResponseOpcode, ReturnCode
from uetproto.wire.tuples import SesRequestSmallHeader

_JOB, _RESOURCE_INDEX = 101, 15


class _OnePacket:
    """This is a message of one packet (`service.Outgoing`)."""

    def __init__(self, peer: int, mode: Mode, next_hdr: int, header: bytes, payload: Buffer = b"") -> None:
        self.peer = peer
        self.mode = mode
        self.message_id = 0
        self.next_hdr = next_hdr
        self.context = 0
        self.reserved = self.lock = False
        self._packet = (0, header, payload, True)

    def unsent(self) -> tuple[int, int]:
        """Return the one packet, and its bytes of SES header and payload."""
        return 1, len(self._packet[1]) + len(self._packet[2])

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        return self._packet


def small_read(peer: int, what: MessageSpec, length: int) -> _OnePacket:
    """Return a message of one packet: the SES request of a read of `length` bytes, with the small header."""
    header = SesRequestSmallHeader.pack(Opcode.READ, 0, 0, 0, 1, 0, 1, 1, length, 0, _JOB, 0, _RESOURCE_INDEX, 0)
    return _OnePacket(peer, what.mode, NextHdr.REQUEST_SMALL, header)


class SmallReads:
    """This class is the target of small reads. It returns a status in the ACK, and then the data in the return
    direction of the PDC.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[Connection, int, int]] = []
        """Requests to be answered: {PDC, PSN of the request, number of bytes}."""

    def take(self, pdc: Connection, psn: int, data: Buffer, at: int) -> Response:
        """Accept the request of a small read, and return the response for the ACK."""
        self._asked.append((pdc, psn, parse_ses_request(data, at, NextHdr.REQUEST_SMALL).request_length))
        return Response(build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, 0, _JOB, 0))

    def answer(self, pds: Pds, now: int) -> bool:
        """Send the data of all accepted requests. Return whether there were any requests."""
        if not self._asked:
            return False
        for pdc, psn, length in self._asked:
            header = build_response_data_small(_JOB, length, psn)
            message = _OnePacket(pdc.peer, pdc.mode, NextHdr.RESPONSE_DATA_SMALL, header, content(0, 0, length))
            pds.send_return(pdc.local_id, message, now)
        self._asked.clear()
        return True
