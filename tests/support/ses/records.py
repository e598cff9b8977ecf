# SPDX-License-Identifier: GPL-2.0-only
"""This module has the records of a watched run of SES: the values that the invariants of `invariants.py` judge."""

from dataclasses import dataclass, field
from typing import Any

from uetproto.engine.contract import Completion, Mode, Receive, Received
from uetproto.engine.ses.headers import Extensions, SesRequest, SesResponse


@dataclass(slots=True)
class Packet:
    """One SES request packet as it was when it left for the first time."""

    src: int
    dst: int
    mode: Mode
    pdcid: int
    """PDCID of the sender; 0 without PDC."""
    psn: int
    request: SesRequest
    extensions: Extensions | None
    payload: int
    """Number of bytes behind the extension headers."""
    header: bytes = b""
    """Bytes of the SES header."""


@dataclass(slots=True)
class Data:
    """The return data that a READ or a fetching atomic has."""

    src: int
    dst: int
    pdcid: int
    """PDCID of the initiator of the read."""
    psn: int
    """PSN of the request packet; 0 in the return direction."""
    in_ack: bool
    response: SesResponse
    size: int


@dataclass(slots=True)
class Asked:
    """One request packet that PDS has handed to a target, and what SES answered, at once or later."""

    at: int
    source: int
    pdcid: int
    psn: int
    mode: Mode
    request: SesRequest
    writes: int = 0
    """Number of times that memory was written while the packet was judged."""
    nacked: bool = False
    answers: list[tuple[SesResponse, bool]] = field(default_factory=list)
    """Semantic answers with gtd_del; NO_RESPONSE is not among them."""
    generation: int = 0
    """Generation of the resource index, after the packet."""
    first: bool = True
    """Whether no packet of its message came before."""


@dataclass(slots=True)
class Message:
    """A message has its packets, in the order of their first transmission."""

    packets: list[Packet]

    @property
    def first(self) -> SesRequest:
        return self.packets[0].request

    @property
    def body(self) -> int:
        """Return the number of bytes that the packets carry: request_length, or of a rendezvous eager_length."""
        extensions = self.packets[0].extensions
        rendezvous = extensions.rendezvous if extensions else None
        return rendezvous.eager_length if rendezvous else self.first.request_length


@dataclass(slots=True)
class Posted:
    """A receive that was posted, and what became of it."""

    receive: Receive
    number: int
    """Number of the receive in the order of posting."""
    at: int
    ends: list[Received] = field(default_factory=list)
    cancelled: int = 0


@dataclass(slots=True)
class Log:
    """A log has everything that was seen in a run."""

    mtu: int = 4096
    packets: list[Packet] = field(default_factory=list)
    data: list[Data] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    heard: dict[tuple[int, Any, int], int] = field(default_factory=dict)
    """Answers that an initiator got: {initiator, message, packet index} → how often."""
    spans: dict[tuple[int, int], list[list[int]]] = field(default_factory=dict)
    """When a message_id was outstanding: {initiator, message_id} → [first packet, last answer], in steps."""
    completions: dict[Any, list[Completion]] = field(default_factory=dict)
    """Completions by context."""
    submitted: list[Any] = field(default_factory=list)
    """Contexts of the operations."""
    posted: list[Posted] = field(default_factory=list)
