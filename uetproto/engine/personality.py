# SPDX-License-Identifier: GPL-2.0-only
"""This module tells by the packets of a peer which implementation it is, so that an endpoint can take the personality
that suits it (observed.md).

`Recogniser` looks at what one peer sends, packet by packet. Each row of `SIGNS` is something that the reference
provider does and nothing else that is known does, or the reverse.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.engine.contract import Buffer, Mode
from uetproto.engine.pds.messages import Ack, Control, Message, Request, parse
from uetproto.engine.ses.headers import SesRequest, parse_ses_request
from uetproto.errors import RemoteError
from uetproto.wire.headers.uet_pds import CtlType, NextHdr

_REQUESTS = (NextHdr.REQUEST_SMALL, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_STD)
_MOST = 4096
"""Number of PDCs of the peer whose mode is remembered."""


class PeerPacket(NamedTuple):
    """This record holds what `SIGNS` look at: a packet of the peer, and what went before it."""

    pds: Message
    ses: SesRequest | None
    """SES header of a request that carries a part of a message, else None."""
    entropy: int | None
    """Entropy value of native IP, or None over UDP."""
    ecn: int | None
    """ECN field of the IP header, or None if it is not known."""
    rod: bool | None
    """Whether the PDC of a control packet is known to be a ROD PDC, because the peer sent requests on it."""


class Sign(NamedTuple):
    """This record is something that a packet shows of its sender."""

    name: str
    refprov: bool
    """Whether it speaks for the reference provider; if False, it speaks against it."""
    shows: Callable[[PeerPacket], bool]


def _is_request(packet: PeerPacket) -> bool:
    return isinstance(packet.pds, Request)


def _is_first(packet: PeerPacket, message_id: int) -> bool:
    return packet.ses is not None and bool(packet.ses.som) and packet.ses.message_id == message_id


def _closing_ack(packet: PeerPacket, offset: int) -> bool:
    """Return whether a packet is the ACK of a CLOSE_CMD whose PSN lies `offset` above its CACK_PSN. No other ACK is
    without a SES response, but those of NOOP and NEGOTIATION, which the reference provider does not send."""
    pds = packet.pds
    return (
        isinstance(pds, Ack) and pds.next_hdr == NextHdr.NONE and pds.probe_opaque is None
        and (pds.ack_psn - pds.cack_psn) & 0xFFFFFFFF == offset
    )  # fmt: skip


def _control(packet: PeerPacket, isrod: int) -> bool:
    pds = packet.pds
    return isinstance(pds, Control) and not pds.syn and packet.rod is True and pds.isrod == isrod


def _asks_without_ar(packet: PeerPacket) -> bool:
    pds = packet.pds
    return isinstance(pds, Control) and pds.ctl_type == CtlType.ACK_REQ and not pds.ar


SIGNS: tuple[Sign, ...] = (
    Sign("message_id 0 in a first packet", True, lambda packet: _is_first(packet, 0)),
    Sign("isrod 0 in a control packet of a ROD PDC", True, lambda packet: _control(packet, 0)),
    Sign("ACK_REQ without ar", True, _asks_without_ar),
    Sign("CACK_PSN before CLOSE_CMD in its ACK", True, lambda packet: _closing_ack(packet, 1)),
    Sign("an entropy value in a request", False, lambda packet: _is_request(packet) and bool(packet.entropy)),
    Sign("ECT in a request", False, lambda packet: _is_request(packet) and bool(packet.ecn)),
    Sign("isrod 1 in a control packet of a ROD PDC", False, lambda packet: _control(packet, 1)),
    Sign("CACK_PSN at CLOSE_CMD in its ACK", False, lambda packet: _closing_ack(packet, 0)),
)  # fmt: skip
"""What packets show of the reference provider (observed.md)."""


@dataclass(slots=True)
class Recogniser:
    """This object recognises the implementation of one peer. It never raises on bytes from outside."""

    seen: dict[str, int] = field(default_factory=dict)
    """Number of packets that showed each of `SIGNS`, by name."""
    _modes: dict[int, bool] = field(default_factory=dict)
    """Maps a PDCID of the peer to whether its PDC is a ROD PDC."""

    def see(self, data: Buffer, *, entropy: int | None = None, ecn: int | None = None) -> str | None:
        """Look at a packet of the peer, from its PDS header on, and return `personality`.

        `entropy` is the entropy value of native IP, and None over UDP; `ecn` is the ECN field of IP, or None if it is
        not known. Sealed packets and those that cannot be decoded show nothing.
        """
        try:
            pds = parse(data)
            ses = None
            if isinstance(pds, Request) and pds.next_hdr in _REQUESTS:
                ses = parse_ses_request(data, pds.size, pds.next_hdr)
        except RemoteError:
            return self.personality
        rod = None
        if isinstance(pds, Request):
            if len(self._modes) < _MOST:
                self._modes[pds.spdcid] = pds.mode is Mode.ROD
        elif isinstance(pds, Control):
            rod = self._modes.get(pds.spdcid)
        packet = PeerPacket(pds, ses, entropy, ecn, rod)
        for sign in SIGNS:
            if sign.shows(packet):
                self.seen[sign.name] = self.seen.get(sign.name, 0) + 1
        return self.personality

    @property
    def personality(self) -> str | None:
        """Return "refprov" if something speaks for the reference provider and nothing against it, "default" if
        something speaks against it, and None while nothing speaks for or against it."""
        shown = {sign.refprov for sign in SIGNS if sign.name in self.seen}
        if not shown:
            return None
        return "refprov" if shown == {True} else "default"
