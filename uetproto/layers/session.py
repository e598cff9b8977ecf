# SPDX-License-Identifier: GPL-2.0-only
"""Packets of a capture are joined to SES messages: `sniff(session=PdcSession)`, `PdcSession().join(rdpcap(file))`.

    from uetproto.layers import PdcSession
    for message in PdcSession().join(rdpcap("file.pcapng")):
        print(message.summary(), message.load[:16], len(message.packets))

A message is a packet of Scapy. Its payload is the data of the message, and its attribute `packets` lists the packets
that were joined.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar
from weakref import ref

from scapy.fields import ByteEnumField, IntField, ShortField, StrField
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Padding, Raw
from scapy.plist import PacketList
from scapy.sessions import DefaultSession

from uetproto.errors import shown
from uetproto.layers.base import LayerError
from uetproto.layers.messages import PSNS
from uetproto.layers.uet import UetCrc32c, UetIcv, UetLayer
from uetproto.wire.headers import uet_ses
from uetproto.wire.headers.uet_pds import Mode, PdsType
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    NO_OPERANDS,
    OPCODE_PROFILES,
    RENDEZVOUS,
    Opcode,
    ResponseOpcode,
    ReturnCode,
)
from uetproto.wire.words.text import count, octets

_GOOD = (ReturnCode.OK, ReturnCode.NULL)
_OF_MODE = {PdsType.RUD_CC_REQ: Mode.RUD, PdsType.ROD_CC_REQ: Mode.ROD}
_SHORT = (*uet_ses.MEDIUM, uet_ses.REQUEST_SMALL)
_Key = tuple[Any, ...]


class _AddressField(StrField):  # type: ignore[misc]
    """An address as text."""

    def i2h(self, pkt: Any, x: Any) -> str:
        return x.decode() if isinstance(x, bytes) else str(x)

    def i2repr(self, pkt: Any, x: Any) -> str:
        return self.i2h(pkt, x)


class UetMessage(Packet):  # type: ignore[misc]
    """This layer is an SES message that was joined from packets. Its payload is the data that the message carried or
    read."""

    __slots__ = ["duplicates", "ended", "expected", "packets", "parts", "psns"]
    name = "UET message"
    fields_desc: ClassVar[list[Any]] = [
        _AddressField("src", ""),
        _AddressField("dst", ""),
        ByteEnumField("mode", Mode.RUD, Mode),
        ShortField("spdcid", 0),
        IntField("psn", 0),
        ByteEnumField("opcode", Opcode.NO_OP, Opcode),
        ShortField("message_id", 0),
        IntField("request_length", 0),
        ByteEnumField("return_code", ReturnCode.OK, ReturnCode),
    ]

    def __init__(self, _pkt: bytes = b"", *args: Any, **kwargs: Any) -> None:
        self.packets: list[Packet] = []
        """Packets of the message, and those with the data that it reads, in the order of the capture."""
        self.psns: set[int] = set()
        self.parts: dict[int, bytes] = {}
        self.duplicates = 0
        self.expected = 0
        """Number of bytes of data that the message has when it is complete."""
        self.ended = False
        super().__init__(_pkt, *args, **kwargs)

    @property
    def received(self) -> int:
        """Return the number of bytes that have arrived."""
        return sum(map(len, self.parts.values()))

    @property
    def complete(self) -> bool:
        """Return whether all data arrived, and no response refused the message."""
        return self.ended and self.return_code in _GOOD and self.received == self.expected

    def copy(self) -> Any:
        clone = super().copy()
        for name in ("duplicates", "ended", "expected", "packets", "parts", "psns"):
            value = getattr(self, name)
            setattr(clone, name, value.copy() if isinstance(value, list | set | dict) else value)
        return clone

    def self_build(self) -> bytes:
        """Return no bytes: the bytes of a message are its payload."""
        return b""

    def mysummary(self) -> Any:
        state = "" if self.complete else " incomplete"
        if self.return_code not in _GOOD:
            state = f" {self.sprintf('%return_code%')}"
        size = octets(self.expected)
        if self.received != self.expected:
            size = f"{self.received} of {size}"
        return self.sprintf(
            f"UET message %mode% %src% > %dst% %opcode% id %message_id% {size} in "
            f"{count(len(self.packets), 'packet')}{state}"
        )


class PdcSession(DefaultSession):  # type: ignore[misc]
    """A session of Scapy that gives messages in place of their packets.

    A message that carries data is given when all its bytes have arrived, in any order. A message that reads is given
    when all data that it reads have arrived. A message is given at once if a response refuses it, or if its initiator
    ends it early. If a response refuses a message that has been given already, the session only sets the `return_code`
    of this message. Packets that are not of UET are given as they are. Retransmissions and duplicates are counted in
    `duplicates`. At most `max_messages` messages and `max_bytes` bytes are kept; beyond that the oldest message is
    given incomplete. `flush` gives the messages that did not end.
    """

    def __init__(self, supersession: Any = None, *, max_messages: int = 4096, max_bytes: int = 1 << 26) -> None:
        super().__init__(supersession)
        for name, value in (("max_messages", max_messages), ("max_bytes", max_bytes)):
            if not isinstance(value, int) or value < 1:
                raise LayerError(name, f"{shown(value)} is not legal", "1 …", id="out-of-range")
        self.max_messages, self.max_bytes = max_messages, max_bytes
        self.duplicates = 0
        """Number of packets that came again."""
        self._open: OrderedDict[_Key, UetMessage] = OrderedDict()
        self._by_psn: dict[_Key, _Key] = {}
        """Keys of open messages by PDC and PSN, for answers that name no message."""
        self._over: OrderedDict[_Key, tuple[set[int], bool, ref[UetMessage]]] = OrderedDict()
        """PSNs of messages that were given, whether they were complete, and the messages while others use them."""
        self._ready: deque[Packet] = deque()
        self._bytes = 0

    # What Scapy calls

    def process(self, pkt: Packet) -> Packet | None:
        """Take a packet. Return a message that has ended, or a packet that is not of UET, or None."""
        packet = super().process(pkt)
        if packet is not None:
            self._take(packet)
        return self._ready.popleft() if self._ready else None

    def recv(self, sock: Any) -> Iterator[Packet]:
        """Read a packet from a socket, and yield the messages that it completes."""
        yield from super().recv(sock)
        while self._ready:
            yield self._ready.popleft()

    def flush(self) -> PacketList:
        """Return the messages that did not end, oldest first, and forget them."""
        for key in list(self._open):
            self._give(key)
        messages = PacketList(list(self._ready), "messages")
        self._ready.clear()
        return messages

    def join(self, packets: Iterable[Packet]) -> PacketList:
        """Return the messages of a list of packets, also those that did not end. Raises `LayerError` for what is no
        packet."""
        if not isinstance(packets, Iterable):
            raise LayerError("packets", f"{shown(packets)} is not legal", "packets of Scapy", id="wrong-type")
        given = []
        for packet in packets:
            if not isinstance(packet, Packet):
                raise LayerError("packets", f"{shown(packet)} is not legal", "packets of Scapy", id="wrong-type")
            message = self.process(packet)
            given += [*([] if message is None else [message]), *self._ready]
            self._ready.clear()
        return PacketList(given + self.flush().res, "messages")

    # Packets

    def _take(self, packet: Packet) -> None:
        layers = [layer for layer in packet.iterpayloads() if isinstance(layer, UetLayer)]
        pds = next((layer for layer in layers if "type" in layer.fieldtype), None)
        if pds is None:
            self._ready.append(packet)
            return
        ends = _ends(pds)
        ses = next((layer for layer in layers if "opcode" in layer.fieldtype), None)
        if ses is None:
            return
        if ses.header in uet_ses.REQUESTS:
            self._request(packet, pds, ses, ends)
        elif ses.header in uet_ses.RESPONSES:
            self._response(packet, pds, ses, ends[::-1])

    def _request(self, packet: Packet, pds: Any, ses: Any, ends: tuple[str, str]) -> None:
        pdc = (*ends, getattr(pds, "spdcid", None) if "spdcid" in pds.fieldtype else int(pds.type))
        psn = next((getattr(pds, name) for name in ("psn", "pkt_id") if name in pds.fieldtype), None)
        key = (*pdc, "psn", psn) if ses.header in _SHORT else (*pdc, ses.message_id)
        if psn is None:  # a datagram: nothing tells one that comes again
            key = (*pdc, "datagram", id(packet))
        elif key in self._over:
            psns, good, _ = self._over[key]
            if psn in psns:
                self.duplicates += 1
                return
            if not good and not ses.som:  # the rest of a message that was refused
                return
        message = self._open.get(key)
        if message is None:
            message = self._open[key] = UetMessage(
                src=ends[0], dst=ends[1], mode=_OF_MODE.get(pds.type, pds.type), psn=psn or 0, opcode=ses.opcode,
                spdcid=pds.spdcid if "spdcid" in pds.fieldtype else 0, request_length=ses.request_length,
                message_id=ses.message_id if "message_id" in ses.fieldtype else 0,
            )  # fmt: skip
            message.expected = _expected(ses)
        message.packets.append(packet)
        message.time = packet.time
        if psn is not None:
            if psn in message.psns:
                message.duplicates += 1
                self.duplicates += 1
                return
            message.psns.add(psn)
            if (message.psn - psn) % PSNS < PSNS // 2:
                message.psn = psn
            self._by_psn[(*pdc, psn)] = key
        if ses.opcode == Opcode.MSG_ERROR:
            message.return_code = ReturnCode.INITIATOR_ERROR
            self._end(key)
            return
        message.opcode = ses.opcode
        profile = OPCODE_PROFILES.get(ses.opcode)
        at = ses.message_offset if "message_offset" in ses.fieldtype else 0
        if profile is None or not profile.fetches:
            self._add(message, at, _payload(ses))
            stopped = (
                ses.eom and profile is not None and profile.deferrable and at < message.expected and not _payload(ses)
            )
            if message.received == message.expected or stopped:
                self._end(key)
        self._limit()

    def _response(self, packet: Packet, pds: Any, ses: Any, ends: tuple[str, ...]) -> None:
        """Take a response, which names its request by message or PSN, or comes with the ACK of its PSN."""
        if "dpdcid" in pds.fieldtype:
            pdc: _Key = (*ends, pds.dpdcid)
            psn = (pds.cack_psn + pds.ack_psn_offset) % PSNS if "ack_psn_offset" in pds.fieldtype else None
        else:
            pdc, psn = (*ends, int(PdsType.RUDI_REQ)), getattr(pds, "pkt_id", None)
        if ses.header is uet_ses.RESPONSE_DATA_SMALL:
            psn = ses.original_request_psn
        name = "read_request_message_id" if ses.header is uet_ses.RESPONSE_DATA else "message_id"
        key: _Key | None = (*pdc, getattr(ses, name)) if name in ses.fieldtype else None
        if key not in self._open:
            key = self._by_psn.get((*pdc, psn))
        message = None if key is None else self._open.get(key)
        if key is None or message is None:
            if ses.return_code not in _GOOD:
                self._late((*pdc, ses.message_id) if ses.message_id else (*pdc, "psn", psn), psn, ses, packet)
            return
        if ses.return_code not in _GOOD:
            message.packets.append(packet)
            message.return_code = ses.return_code
            self._end(key)
        elif ses.opcode == ResponseOpcode.RESPONSE_W_DATA:
            message.packets.append(packet)
            message.time = packet.time
            at = ses.message_offset if "message_offset" in ses.fieldtype else 0
            if at in message.parts:
                message.duplicates += 1
                self.duplicates += 1
                return
            data = _payload(ses)
            if message.opcode in ATOMICS:
                message.expected = len(data)
            self._add(message, at, data)
            if message.received >= message.expected:
                self._end(key)
            self._limit()

    def _late(self, key: _Key, psn: int | None, ses: Any, packet: Packet) -> None:
        """Tell a message that was given already that a response refuses it."""
        psns, _, given = self._over.get(key, ((), False, None))
        message = given() if given is not None else None
        if message is not None and psn in psns:
            message.packets.append(packet)
            if message.return_code in _GOOD:
                message.return_code = ses.return_code

    # Messages

    def _add(self, message: UetMessage, at: int, data: bytes) -> None:
        if at not in message.parts:
            message.parts[at] = data
            self._bytes += len(data)

    def _end(self, key: _Key) -> None:
        self._open[key].ended = True
        self._give(key)

    def _give(self, key: _Key) -> None:
        """Give a message, with the data that arrived in their order."""
        message = self._open.pop(key)
        self._bytes -= message.received
        data = b"".join(message.parts[at] for at in sorted(message.parts))
        if data:
            message.add_payload(Raw(data))
        for psn in message.psns:
            self._by_psn.pop((*key[:3], psn), None)
        if message.psns:
            self._over[key] = message.psns, message.complete, ref(message)
            if len(self._over) > self.max_messages:
                self._over.popitem(last=False)
        self._ready.append(message)

    def _limit(self) -> None:
        while self._open and (len(self._open) > self.max_messages or self._bytes > self.max_bytes):
            self._give(next(iter(self._open)))


def _ends(layer: Any) -> tuple[str, str]:
    """Return the addresses of a packet, source first."""
    while layer is not None and not isinstance(layer, IP | IPv6):
        layer = layer.underlayer
    return ("", "") if layer is None else (str(layer.src), str(layer.dst))


def _payload(layer: Any) -> bytes:
    """Return the bytes behind the last header of UET."""
    while isinstance(layer.payload, UetLayer):
        layer = layer.payload
    parts = []
    while layer.payload and not isinstance(layer.payload, UetCrc32c | UetIcv | Padding):
        layer = layer.payload
        parts.append(layer.load if type(layer) is Raw else layer.self_build())
    return b"".join(parts)


def _expected(ses: Any) -> int:
    """Return the number of bytes that a message carries, or reads."""
    if ses.opcode == Opcode.MSG_ERROR:
        return int(ses.request_length)
    extension = {lay.header: lay for lay in ses.iterpayloads() if isinstance(lay, UetLayer)}
    if ses.opcode in RENDEZVOUS and uet_ses.EXT_RENDEZVOUS in extension:
        return int(extension[uet_ses.EXT_RENDEZVOUS].eager_length)
    amo = next((lay.atomic_opcode for lay in extension.values() if "atomic_opcode" in lay.fieldtype), None)
    return 0 if amo in NO_OPERANDS and not OPCODE_PROFILES[ses.opcode].fetches else int(ses.request_length)
