# SPDX-License-Identifier: GPL-2.0-only
"""Deliberate faults of a peer: our endpoint, and what happens to its packets on their way in and out.

`FAULTS` lists each one with the tests that have to fail. The others have to pass, as none of them depends on the
fault.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


Patch = tuple[Any, str, Any]
"""An attribute of a class or module of our engines, and what stands in its place."""


class FaultyPeer(FepEngine):
    """Our endpoint behind two changes, of packets that arrive and of those that leave, and with changes in itself."""

    arrives: Change | None = None
    leaves: Change | None = None
    patches: tuple[Patch, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.psns: set[int] = set()
        """PSNs of requests that have left, of faults that need them."""
        self.copies: set[int] = set()
        """PDCIDs of PDCs that a fault opened."""
        self.more: list[Packet] = []
        """Packets that leave with the next ones of the engine."""

    @contextmanager
    def _patched(self) -> Iterator[None]:
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in self.patches]
        for owner, name, value in self.patches:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)

    def deliver(self, frame: bytes) -> None:
        with self._patched():
            for changed in self._changed(self.arrives, frame):
                super().deliver(changed)

    def poll(self) -> list[bytes]:
        with self._patched():
            found = super().poll()
        frames = [changed for frame in found for changed in self._changed(self.leaves, frame)]
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
    yield altered(packet, sack_bitmap=(bitmap | bitmap << 1) & (1 << 64) - 1) if ahead else packet


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


def is_control(pds: dict[str, Any], kind: CtlType) -> bool:
    return pds["type"] == PdsType.CP and bool(pds["ctl_type"] == kind)


def without(kind: CtlType) -> Change:
    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        if not is_control(pds, kind):
            yield packet

    return change


def clears_too_much(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    wrong = is_control(pds, CtlType.CLEAR_CMD)
    yield altered(packet, ctl_payload=pds["ctl_payload"] + 1 & 0xFFFFFFFF) if wrong else packet


def acknowledges_clear(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if is_control(pds, CtlType.CLEAR_CMD):
        told = {"cack_psn": pds["ctl_payload"], "spdcid": pds["dpdcid"], "dpdcid": pds["spdcid"]}
        peer.more.append(back(packet, "pds.ack", next_hdr=0, **told))
    yield packet


def with_field(name: str, change_of: Callable[[int], int], kinds: tuple[int, ...]) -> Change:
    """Return the fault of another value of a field, in packets of these types."""

    def change(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
        layer = next((layer for layer in packet.layers[3:] if name in layer.values), None)
        if layer is None or pds["type"] not in kinds or change_of(layer.values[name]) == layer.values[name]:
            yield packet
        else:
            yield altered(packet, **{name: change_of(layer.values[name])})

    return change


ACKS = (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX)
REQUESTS = (PdsType.RUD_REQ, PdsType.ROD_REQ)


class PeerFault(NamedTuple):
    """A fault of a peer, and the tests that it makes fail."""

    failing: tuple[str, ...]
    arrives: Change | None = None
    leaves: Change | None = None
    patches: tuple[Patch, ...] = ()


N = NackCode
FAULTS: dict[str, PeerFault] = {
    "a packet with a wrong CRC32C is taken": PeerFault(("UET-ENC-001", "UET-ENC-004"), takes_wrong_crc),
    "a duplicate of an atomic is executed again": PeerFault(("UET-PDS-022", "UET-SES-006"), executes_twice, hides_copy),
    "CACK is one too high behind the wrap": PeerFault(("UET-PDS-028",), None, wraps_late),
    "CLEAR_CMD is ignored": PeerFault(("UET-PDS-042", "UET-PDS-045", "UET-PDS-046"), ignores_clear),
    "a gap in ROD gets PSN_OOR_WINDOW": PeerFault(
        ("UET-PDS-006", "UET-PDS-024", "UET-PDS-039", "UET-TRIM-005"), None, wrong_nack(N.ROD_OOO, N.PSN_OOR_WINDOW)
    ),
    "a PSN ahead of the window gets no NACK": PeerFault(("UET-PDS-025",), None, no_nack(N.PSN_OOR_WINDOW)),
    "the ECN mark is not reported": PeerFault(("UET-PDS-029", "UET-RUDI-002"), None, no_mark),
    "a stored error becomes OK when it is asked for again": PeerFault(("UET-PDS-041",), None, forgets_response),
    "SACK tells a PSN that was not received": PeerFault(
        ("UET-PDS-005", "UET-PDS-027", "UET-PDS-033"), None, sacks_too_much
    ),
    "CLOSE_CMD is acknowledged, but does not close": PeerFault(
        ("UET-PDS-054", "UET-PDS-056", "UET-PDS-067", "UET-PDS-068"), stays_open
    ),
    "a trimmed packet gets no NACK": PeerFault(
        ("UET-TRIM-001", "UET-TRIM-002", "UET-TRIM-004", "UET-TRIM-006"), None, no_nack(N.TRIMMED, N.TRIMMED_LASTHOP)
    ),
    "a NACK is answered by a NACK": PeerFault(("UET-PDS-013",), answers_nacks),
    "a UUD datagram is answered": PeerFault(
        ("UET-TRIM-008", "UET-UUD-001", "UET-UUD-002", "UET-UUD-003"), answers_datagrams
    ),
    "an unaligned atomic gets the code of a wrong size": PeerFault(
        ("UET-SES-035",), None, wrong_code(ReturnCode.AMO_UNALIGNED, ReturnCode.AMO_UNSUPPORTED_SIZE)
    ),
    "probe_opaque is not echoed": PeerFault(
        ("UET-PDS-042", "UET-PDS-045", "UET-PDS-046", "UET-PDS-053"), None, stale_probe
    ),
    "CLEAR_CMD clears one more": PeerFault(("UET-PDS-042", "UET-PDS-045", "UET-PDS-046"), clears_too_much),
    "CLEAR_CMD is acknowledged": PeerFault(
        ("UET-PDS-042", "UET-PDS-045", "UET-PDS-046", "UET-PDS-061"), acknowledges_clear
    ),
    "ACKs do not have the retx of the packet": PeerFault(
        ("UET-PDS-020", "UET-PDS-022", "UET-PDS-023", "UET-PDS-032", "UET-PDS-034", "UET-PDS-035", "UET-PDS-038",
         "UET-PDS-041",
         "UET-PDS-055", "UET-PDS-066", "UET-RUDI-001", "UET-SES-006", "UET-TRIM-001"),
        None, with_field("retx", lambda value: 0, (*ACKS, PdsType.RUDI_RESP)),
    ),
    "a PDCID that does not exist gets no NACK": PeerFault(
        ("UET-PDS-004", "UET-PDS-054", "UET-PDS-060"), None, no_nack(N.INV_DPDCID)
    ),
    "another mode gets UNEXP_EVENT": PeerFault(
        ("UET-PDS-010", "UET-PDS-011", "UET-PDS-059"), None, wrong_nack(N.PDC_MODE_MISMATCH, N.UNEXP_EVENT)
    ),
    "what is not possible gets no NACK": PeerFault(("UET-PDS-057", "UET-PDS-062"), None, no_nack(N.UNEXP_EVENT)),
    "trimming at the last hop is not told apart": PeerFault(
        ("UET-TRIM-002",), None, wrong_nack(N.TRIMMED_LASTHOP, N.TRIMMED)
    ),
    "ACK_REQ is ignored": PeerFault(
        ("UET-ENC-004", "UET-PDS-033", "UET-PDS-047", "UET-PDS-051", "UET-PDS-052"), without(CtlType.ACK_REQ)
    ),
    "NEGOTIATION is ignored": PeerFault(("UET-PDS-063",), without(CtlType.NEGOTIATION)),
    "a reserved bit of ACKs is 1": PeerFault(("UET-ENC-003",), None, with_field("rsvd2", lambda value: 1, ACKS)),
    "data of a read has message_offset 0": PeerFault(
        ("UET-SES-010",), None, with_field("message_offset", lambda value: 0, REQUESTS)
    ),
    "data of a read has the PSN of the next request": PeerFault(
        ("UET-SES-011",), None, with_field("original_request_psn", lambda psn: psn + 1 & 0xFFFFFFFF, ACKS)
    ),
    "an opcode that is not known gets OP_VIOLATION": PeerFault(
        ("UET-SES-021", "UET-SES-044"), None, wrong_code(ReturnCode.UNSUPPORTED_OP, ReturnCode.OP_VIOLATION)
    ),
    "an error of the initiator is executed": PeerFault(
        ("UET-SES-037",), None, wrong_code(ReturnCode.INITIATOR_ERROR, ReturnCode.OK)
    ),
    "another generation gets NO_MATCH": PeerFault(
        ("UET-SES-026",), None, wrong_code(ReturnCode.BAD_GENERATION, ReturnCode.NO_MATCH)
    ),
    "another key within a message gets OP_VIOLATION": PeerFault(
        ("UET-SES-042",), None, wrong_code(ReturnCode.PERM_VIOLATION, ReturnCode.OP_VIOLATION)
    ),
    "reads of later memory are one byte too low": PeerFault(("UET-SES-003", "UET-SES-039"), reads_elsewhere),
}  # fmt: skip


def peer_with(fault: PeerFault) -> type[FaultyPeer]:
    """Return the class of a peer with a fault."""

    def method(change: Change | None) -> Any:
        return None if change is None else staticmethod(change)

    changes = {"arrives": method(fault.arrives), "leaves": method(fault.leaves), "patches": fault.patches}
    return type("Faulty", (FaultyPeer,), changes)
