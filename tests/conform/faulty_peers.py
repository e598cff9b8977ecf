"""Deliberate faults of a peer: our endpoint, and what happens to its packets on their way in and out.

`FAULTS` lists each one with the tests that have to fail. The others have to pass, as none of them depends on the
fault.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from tests.support.conform import CONFIG, KEY
from uetproto.testing.adapters.fep import FepEngine
from uetproto.wire.headers.uet_pds import CtlType, NackCode, PdsType
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

Change = Callable[["FaultyPeer", Packet, dict[str, Any]], Iterator[Packet]]
"""What becomes of a packet: it gets the packet and the values of its PDS header, and yields packets."""


class FaultyPeer(FepEngine):
    """Our endpoint behind two changes, of packets that arrive and of those that leave."""

    arrives: Change | None = None
    leaves: Change | None = None

    def __init__(self) -> None:
        super().__init__()
        self.copies: set[int] = set()
        """PDCIDs of PDCs that a fault opened."""
        self.more: list[Packet] = []
        """Packets that leave with the next ones of the engine."""

    def deliver(self, frame: bytes) -> None:
        for changed in self._changed(self.arrives, frame):
            super().deliver(changed)

    def poll(self) -> list[bytes]:
        frames = [changed for frame in super().poll() for changed in self._changed(self.leaves, frame)]
        more, self.more = self.more, []
        return frames + [encode(packet, fill=True) for packet in more]

    def _changed(self, change: Change | None, frame: bytes) -> Iterator[bytes]:
        packet = decode(frame, crc="on")
        pds = next((layer for layer in packet.layers if layer.form.startswith("pds.")), None)
        if change is None or pds is None or packet.error is not None:
            yield frame
            return
        for one in change(self, packet, dict(pds.values)):
            yield frame if one is packet else encode(one, fill=True)


def altered(packet: Packet, **values: Any) -> Packet:
    """Return a packet with other values of its UET headers, and a right CRC32C."""
    layers = [
        layer._replace(values={**layer.values, **{n: v for n, v in values.items() if n in layer.values}})
        if layer.form.startswith(("pds.", "ses.")) else layer
        for layer in packet.layers
    ]  # fmt: skip
    return replace(packet, layers=layers, trailer=packet.trailer and Trailer("crc32c", 0))


def back(packet: Packet, form: str, **values: Any) -> Packet:
    """Return a packet of the peer to the sender of `packet`."""
    ip, udp = packet["ipv4"], packet["udp"]
    lower = [Layer("ipv4", {"src": ip["dst"], "dst": ip["src"]}), Layer("udp", {"sport": udp["sport"]})]
    return Packet([Layer("ethernet", {}), *lower, Layer(form, values)], b"", Trailer("crc32c", 0))


def _is_ack(values: dict[str, Any]) -> bool:
    return values["type"] in (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX)


def takes_wrong_crc(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    yield altered(packet) if packet.trailer is not None and not packet.trailer.ok else packet


def executes_twice(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds["type"] == PdsType.RUD_REQ and pds["retx"] and packet.layers[-1].form == "ses.ext.atomic":
        copy = pds["spdcid"] ^ 0x5555
        peer.copies.add(copy)
        layers = [
            Layer("pds.rud_req.syn", {"psn": pds["psn"], "spdcid": copy, "syn": 1})
            if layer.form.startswith("pds.") else layer for layer in packet.layers
        ]  # fmt: skip
        yield replace(packet, layers=layers, trailer=Trailer("crc32c", 0))
    yield packet


def hides_copy(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds.get("dpdcid") not in peer.copies:
        yield packet


def wraps_late(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    wrapped = _is_ack(pds) and pds["cack_psn"] < 1 << 10
    yield altered(packet, cack_psn=pds["cack_psn"] + 1) if wrapped else packet


def ignores_clear(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds.get("ctl_type") != CtlType.CLEAR_CMD or pds["type"] != PdsType.CP:
        yield packet


def wrong_nack(code: NackCode, other: NackCode) -> Change:
    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        yield altered(packet, nack_code=other) if pds.get("nack_code") == code else packet

    return change


def no_nack(*codes: NackCode) -> Change:
    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        if pds.get("nack_code") not in codes:
            yield packet

    return change


def no_mark(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    yield altered(packet, m=0) if pds.get("m") else packet


def forgets_response(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    wrong = _is_ack(pds) and pds["retx"] and "ses.response" in packet
    yield altered(packet, return_code=ReturnCode.OK) if wrong else packet


def sacks_too_much(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    bitmap = pds.get("sack_bitmap", 0)
    ahead = _is_ack(pds) and bitmap >> 1 and pds["sack_psn_offset"] >= 0
    yield altered(packet, sack_bitmap=bitmap | bitmap << 1) if ahead else packet


def stays_open(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    closing = pds["type"] == PdsType.CP and pds["ctl_type"] == CtlType.CLOSE_CMD
    yield altered(packet, ctl_type=CtlType.NOOP) if closing else packet


def answers_nacks(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds["type"] == PdsType.NACK:
        peer.more.append(back(packet, "pds.nack", nack_code=NackCode.INV_DPDCID, dpdcid=pds["spdcid"]))
    yield packet


def answers_datagrams(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds["type"] == PdsType.UUD_REQ:
        peer.more.append(back(packet, "pds.rudi_resp", pkt_id=0))
    yield packet


def wrong_code(code: ReturnCode, other: ReturnCode) -> Change:
    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        wrong = "ses.response" in packet and packet["ses.response"]["return_code"] == code
        yield altered(packet, return_code=other) if wrong else packet

    return change


def stale_probe(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    yield altered(packet, probe_opaque=0) if _is_ack(pds) and pds["p"] else packet


def reads_elsewhere(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    at = packet.layers[-1].values.get("buffer_offset", 0)
    read = packet.layers[-1].values.get("opcode") == Opcode.READ
    inside = CONFIG["regions"][0]["key"] == KEY and at > 2048
    yield altered(packet, buffer_offset=at - 1) if read and inside else packet


class PeerFault(NamedTuple):
    """A fault of a peer, and the tests that it makes fail."""

    failing: tuple[str, ...]
    arrives: Change | None = None
    leaves: Change | None = None


N = NackCode
FAULTS: dict[str, PeerFault] = {
    "a packet with a wrong CRC32C is taken": PeerFault(("UET-ENC-001",), takes_wrong_crc),
    "a duplicate of an atomic is executed again": PeerFault(("UET-PDS-022", "UET-SES-006"), executes_twice, hides_copy),
    "CACK is one too high behind the wrap": PeerFault(("UET-PDS-028",), None, wraps_late),
    "CLEAR_CMD is ignored": PeerFault(("UET-PDS-042",), ignores_clear),
    "a gap in ROD gets PSN_OOR_WINDOW": PeerFault(
        ("UET-PDS-006", "UET-PDS-024"), None, wrong_nack(N.ROD_OOO, N.PSN_OOR_WINDOW)
    ),
    "a PSN ahead of the window gets no NACK": PeerFault(("UET-PDS-025",), None, no_nack(N.PSN_OOR_WINDOW)),
    "the ECN mark is not reported": PeerFault(("UET-PDS-029", "UET-RUDI-002"), None, no_mark),
    "a stored error becomes OK when it is asked for again": PeerFault(("UET-PDS-041",), None, forgets_response),
    "SACK tells a PSN that was not received": PeerFault(("UET-PDS-005", "UET-PDS-027"), None, sacks_too_much),
    "CLOSE_CMD is acknowledged, but does not close": PeerFault(("UET-PDS-054", "UET-PDS-056"), stays_open),
    "a trimmed packet gets no NACK": PeerFault(
        ("UET-TRIM-001", "UET-TRIM-002", "UET-TRIM-004"), None, no_nack(N.TRIMMED, N.TRIMMED_LASTHOP)
    ),
    "a NACK is answered by a NACK": PeerFault(("UET-PDS-013",), answers_nacks),
    "a UUD datagram is answered": PeerFault(("UET-UUD-001", "UET-UUD-002"), answers_datagrams),
    "an unaligned atomic gets the code of a wrong size": PeerFault(
        ("UET-SES-035",), None, wrong_code(ReturnCode.AMO_UNALIGNED, ReturnCode.AMO_UNSUPPORTED_SIZE)
    ),
    "probe_opaque is not echoed": PeerFault(("UET-PDS-042", "UET-PDS-053"), None, stale_probe),
    "reads of later memory are one byte too low": PeerFault(("UET-SES-003", "UET-SES-039"), reads_elsewhere),
}  # fmt: skip


def peer_with(fault: PeerFault) -> type[FaultyPeer]:
    """Return the class of a peer with a fault."""

    def method(change: Change | None) -> Any:
        return None if change is None else staticmethod(change)

    return type("Faulty", (FaultyPeer,), {"arrives": method(fault.arrives), "leaves": method(fault.leaves)})
