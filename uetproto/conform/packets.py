# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the packets of our side of a conformance test from the header tables, right or wrong as the test
says, and reads those of the peer."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.conform.expressions import Variables, value_of
from uetproto.conform.tss.sealing import Sealing
from uetproto.engine.tss.keys import KeyRing
from uetproto.errors import LocalError, shown, similar
from uetproto.framing.dscp import IPV4_TYPE
from uetproto.framing.uet import Encapsulation
from uetproto.wire.fields import Field
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.uet_pds import CtlType, PdsType
from uetproto.wire.headers.uet_ses import Opcode, ResponseOpcode, ReturnCode
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

_PDS = {
    "rud": "pds.rud_req", "rod": "pds.rod_req", "rudi": "pds.rudi_req", "uud": "pds.uud_req", "ack": "pds.ack",
    "nack": "pds.nack", "ack_cc": "pds.ack_cc", "rudi_response": "pds.rudi_resp",
}  # fmt: skip
_CONTROL = {kind.name.lower(): int(kind) for kind in CtlType}
_RENDEZVOUS = "ses.ext.rendezvous"
_RMA, _SEND = "ses.request_std", "ses.send_std"
_SES: dict[str, tuple[str, int, str | None]] = {  # form without .som, opcode, extension
    "noop": (_RMA, Opcode.NO_OP, None),
    "msg_error": (_RMA, Opcode.MSG_ERROR, None),
    "write": (_RMA, Opcode.WRITE, None),
    "read": (_RMA, Opcode.READ, None),
    "atomic": (_RMA, Opcode.ATOMIC, "ses.ext.atomic"),
    "fetch": (_RMA, Opcode.FETCHING_ATOMIC, "ses.ext.atomic"),
    "cas": (_RMA, Opcode.FETCHING_ATOMIC, "ses.ext.atomic_cas"),
    "send": (_SEND, Opcode.SEND, None),
    "tagged": (_SEND, Opcode.TAGGED_SEND, None),
    "rendezvous": (_SEND, Opcode.RENDEZVOUS_SEND, _RENDEZVOUS),
    "tatomic": (_SEND, Opcode.TSEND_ATOMIC, "ses.ext.atomic"),
    "deferrable": ("ses.deferrable_std", Opcode.DEFERRABLE_SEND, None),
    "datagram": (_SEND, Opcode.DATAGRAM_SEND, None),
    "rtr": ("ses.rtr_std", Opcode.DEFERRABLE_RTR, None),
    "response": ("ses.response", ResponseOpcode.DEFAULT_RESPONSE, None),
    "read_data": ("ses.response_data", ResponseOpcode.RESPONSE_W_DATA, None),
}
MEDIUM = "medium"
OPTIONAL = {
    "read": "READ", "atomic": "ATOMIC", "fetch": "FETCHING_ATOMIC", "cas": "FETCHING_ATOMIC with compare and swap",
    "tagged": "TAGGED_SEND", "tatomic": "TSEND_ATOMIC", "rendezvous": "RENDEZVOUS_SEND",
    "deferrable": "DEFERRABLE_SEND", "rudi": "RUDI", "uud": "UUD", MEDIUM: "medium headers",
    "amos": "other atomic operations than SUM", "returns": "data of reads of 64 bytes in the return direction",
    "data": "bytes of ours to write or send",
}  # fmt: skip
"""What not every profile has (ses.md §4.3), by the names that steps have for it, and in words."""
_SEND_KEYS = frozenset(("send", "clear", "data", "as", "crc", "trimmed", "cut", "ecn", "entropy", "header"))
_MOST_DATA = 1 << 20
IDEMPOTENT_SAFE = 1 << 63
"""Bit of a memory key whose memory RUDI may reach (ses.md §2.6)."""
CUT = 16
"""Number of bytes of a trimmed packet behind UDP or the entropy header: the PDS header (pds.md §14)."""
NOTHING = "nothing"
ENTROPY = 50_000
"""Entropy value of packets, if the test names none."""


@dataclass(frozen=True, kw_only=True)
class PeerFacts:
    """This record says what is known of the peer: where it is, and what it offers."""

    address: int
    local: int
    ip_version: int = 4
    how: Encapsulation = field(default_factory=Encapsulation)
    job_id: int = 1
    pid_on_fep: int = 0
    resource_index: int = 15
    initiator_id: int = 16
    relative: bool = True
    key: int = 1
    base: int = 0
    """Address of the first byte of the memory."""
    length: int = 1 << 16
    """Number of bytes of the memory; 0: there is none."""
    receives: int = 1
    """Number of receives that are posted."""
    payload_mtu: int = 4096
    without: frozenset[str] = frozenset()
    """What the peer does not have: names of `OPTIONAL`."""
    idempotent: bool = False
    """Whether the memory may be reached by RUDI (ses.md §2.6)."""
    security: Sealing | None = None
    """What seals the packets; None: they travel in clear."""

    @property
    def offers(self) -> dict[str, str]:
        """Return what tests may need, each with why it is missing; the text is empty for what the peer offers."""
        return {
            "memory": "" if self.length >= 1 << 14 else "the peer has less than 16 KiB of memory",
            "receive": "" if self.receives else "the peer has posted no receives",
            "crc": "" if self.how.crc and self.security is None else "packets have no CRC32C",
            "udp": "" if self.how.udp else "packets are native IP",
            "relative": "" if self.relative else "the peer has absolute addresses",
            **{
                name: f"the peer has no {words} (--without)" if name in self.without else ""
                for name, words in OPTIONAL.items()
            },
            "not_idempotent": "the memory may be reached by RUDI" if self.idempotent else "",
            **self._offers_of_security(),
        }

    def _offers_of_security(self) -> dict[str, str]:
        security = self.security
        if security is None:
            nothing = dict.fromkeys(("keys", "ssi", "second_key"), "packets are not sealed (--keys)")
            return {**nothing, "trimming": "", "any_start": ""}
        return {
            "keys": "",
            "ssi": "packets have no SSI (--ssi)" if security.ssi is None else "",
            "second_key": "" if security.has_second_key else "the key file has keys of one AN alone",
            "trimming": "nobody can open a sealed packet that was trimmed (tss.md §7.2)",
            "any_start": "with keys the peer chooses the first PSN (tss.md §11)",
        }

    def lower(self, values: Mapping[str, int], entropy: int) -> list[Layer]:
        """Return the headers below PDS of a packet to the peer, with these values in the IP header."""
        four, how = self.ip_version == 4, self.how
        head = {"src": self.local, "dst": self.address}
        if not how.udp:
            head["protocol" if four else "next_header"] = how.ip_protocol
        ip = Layer("ipv4" if four else "ipv6", {**head, **values})
        last = (
            Layer("udp", {"sport": entropy, "dport": how.udp_port})
            if how.udp
            else Layer("entropy", {"entropy": entropy})
        )
        return [Layer("ethernet", {}), ip, last]

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of `decode` for the packets of both ends."""
        how = self.how
        return {"crc": "on" if how.crc else "off", "udp_port": how.udp_port, "ip_protocol": how.ip_protocol}

    @property
    def ring(self) -> KeyRing | None:
        """Return the keys with which a reader opens the packets of both ends; None if they travel in clear."""
        return None if self.security is None else self.security.ring

    def variables(self) -> dict[str, int]:
        """Return the variables that tests may use of the peer."""
        return {
            "key": self.key, "addr": self.base, "length": self.length, "job": self.job_id, "pid": self.pid_on_fep,
            "index": self.resource_index, "initiator": self.initiator_id, "mtu": self.payload_mtu,
        }  # fmt: skip


class PacketCraft:
    """This class makes the frames of one test, and keeps the data that they carry by the name that the test gives."""

    def __init__(self, peer: PeerFacts, rng: random.Random, entropy: Callable[[int], int]) -> None:
        """`entropy` returns the entropy value that the link has for one that a test chose."""
        self.peer = peer
        self.data: dict[str, bytes] = {}
        self._rng, self._entropy = rng, entropy

    def frame(self, step: Mapping[str, Any], variables: Variables) -> bytes:
        """Return the frame of a step of our side. Raises `LocalError` for a kind, a field or a value that is not
        legal."""
        payload = self.bytes_of(step.get("data", 0), step.get("as"))
        layers = self._layers(str(step["send"]), step, variables, len(payload))
        trailer = Trailer("crc32c", 0) if self.peer.how.crc else None
        if "trimmed" in step:
            return self._trimmed(layers, payload, str(step["trimmed"]))
        control = step["send"].split()[0] not in ("rud", "rod", "rudi", "uud")
        dscp = self.peer.how.dscp
        value = {
            "dscp": dscp.control if control else dscp.data,
            "ecn": step.get("ecn", Ecn.NOT_ECT if control else Ecn.ECT0),
        }
        if "cut" in step:
            transport = encode(Packet(layers, payload), fill=True)[: step["cut"]]
            return encode(Packet(self._lower(value), transport, trailer), fill=True)
        frame = encode(
            Packet([*self._lower(value, step.get("entropy", ENTROPY)), *layers], payload, trailer), fill=True
        )
        crc = step.get("crc", "right")
        if crc not in ("right", "wrong"):
            raise LocalError("crc", f"{shown(crc)} is not legal", "right, wrong", id="test-file")
        return frame if crc == "right" else frame[:-1] + bytes((frame[-1] ^ 1,))

    def bytes_of(self, told: Any, name: Any = None) -> bytes:
        """Return the bytes that a test writes: a number of random ones, "mtu" for as many as fit into a packet,
        hexadecimal text, or "@NAME" for earlier ones. `name` names them."""
        if told == "mtu":
            told = self.peer.payload_mtu
        if isinstance(told, int) and 0 <= told <= _MOST_DATA:
            found = self._rng.randbytes(told)
        elif isinstance(told, str) and told.startswith("@"):
            if told[1:] not in self.data:
                raise LocalError(
                    "data", f"{told!r} is not known{similar(told[1:], self.data)}", ", ".join(self.data), id="test-file"
                )
            found = self.data[told[1:]]
        else:
            try:
                found = bytes.fromhex(told)
            except (TypeError, ValueError):
                raise LocalError(
                    "data", f"{shown(told)} is not legal", f"0 … {_MOST_DATA}, mtu, hexadecimal text, @NAME",
                    id="test-file"
                ) from None  # fmt: skip
        if name is not None:
            self.data[str(name)] = found
        return found

    def _lower(self, values: Mapping[str, int], entropy: int = ENTROPY) -> list[Layer]:
        """Return the headers below PDS."""
        return self.peer.lower(values, self._entropy(entropy))

    def _trimmed(self, layers: list[Layer], payload: bytes, where: str) -> bytes:
        """Return a packet as a switch would trim it: the PDS header alone, with the DSCP of trimmed packets."""
        dscp = self.peer.how.dscp
        places = {"switch": dscp.trimmed, "last hop": dscp.trimmed_last_hop}
        if where not in places:
            raise LocalError("trimmed", f"{where!r} is not legal", ", ".join(places), id="test-file")
        transport = encode(Packet(layers, payload), fill=True)[:CUT]
        return encode(Packet(self._lower({"dscp": places[where], "ecn": Ecn.ECT0}), transport), fill=True)

    def _layers(self, kind: str, step: Mapping[str, Any], variables: Variables, size: int) -> list[Layer]:
        """Return the headers of PDS and SES with their values, for a payload of `size` bytes."""
        pds, _, ses = kind.partition(" ")
        syn = bool(step.get("syn", 0))
        if pds in _CONTROL:
            forms = ["pds.cp.syn" if syn else "pds.cp"]
            base: dict[str, int] = {"ctl_type": _CONTROL[pds], "ar": int(pds not in ("clear_cmd", "clear_req"))}
        elif pds in _PDS:
            form = _PDS[pds]
            if form == "pds.nack" and "nack_pkt_id" in step:
                form = "pds.nack.rudi"
            forms = [f"{form}.syn" if syn else form, *(["pds.cc_state.nscc"] if pds == "ack_cc" else [])]
            base = {}
        else:
            known = (*_PDS, *_CONTROL)
            raise LocalError("send", f"there is no kind {pds!r}{similar(pds, known)}", ", ".join(known), id="test-file")
        if ses:
            if ses not in _SES:
                raise LocalError(
                    "send", f"there is no message {ses!r}{similar(ses, _SES)}", ", ".join(_SES), id="test-file"
                )
            form, opcode, extension = _SES[ses]
            base["opcode"] = int(opcode)
            if step.get("header") == MEDIUM:
                form = form.replace("_std", "_medium")
            elif not form.startswith("ses.response"):
                base["som"] = int(bool(step.get("som", 1)))
                form += ".som" if base["som"] and f"{form}.som" in FORMS else ""
            forms += [form, *([extension] if extension else [])]
        given = self._given(forms, step, variables)
        values = self._defaults(forms, variables) | base | {"payload_length": size} | given
        if (
            "psn" in values and "message_id" not in given and "start" in variables
        ):  # a retransmission has that of its first copy
            values["message_id"] = (values["psn"] - variables["start"] + 1) & 0xFFFF
        if "clear_psn_offset" not in given and "psn" in values:
            psn32 = FORMS["pds.rud_req"]["psn"]
            clear = value_of("clear", step.get("clear", "start - 1"), psn32, variables)
            away = (clear - values["psn"]) & 0xFFFFFFFF
            values["clear_psn_offset"] = max(away - (1 << 32) if away >> 31 else away, -(1 << 15))
        if syn and "psn_offset" not in given:
            values["psn_offset"] = (values["psn"] - variables["start"]) & 0xFFF
        if pds in ("ack", "ack_cc") and "ack_psn" in step:
            psn32 = FORMS["pds.rud_req"]["psn"]
            values["ack_psn_offset"] = value_of("ack_psn", step["ack_psn"], psn32, variables) - values.get(
                "cack_psn", 0
            )
        return [Layer(form, {row.name: values[row.name] for row in FORMS[form].fields if row.name in values})
                for form in forms]  # fmt: skip

    def _given(self, forms: list[str], step: Mapping[str, Any], variables: Variables) -> dict[str, int]:
        rows = {row.name: row for form in forms for row in FORMS[form].fields}
        found = {}
        for name, told in step.items():
            if name in _SEND_KEYS or name == "ack_psn":
                continue
            if name not in rows:
                raise LocalError(
                    name, f"is no field of {' / '.join(forms)}{similar(name, rows)}", ", ".join(rows), id="test-file"
                )
            found[name] = value_of(name, told, rows[name], variables)
        return found

    def _defaults(self, forms: list[str], variables: Variables) -> dict[str, int]:
        """Return the values of fields that a test does not name: those of a right packet to the peer."""
        peer = self.peer
        base = peer.base if any(form.startswith("ses.request_") for form in forms) else 0
        return {
            "spdcid": variables["us"], "dpdcid": variables.get("peer", 0), "message_id": variables.get("message", 1),
            "read_request_message_id": variables.get("message", 1), "modified_length": variables.get("asked", 0),
            "job_id": peer.job_id, "pid_on_fep": peer.pid_on_fep, "resource_index": peer.resource_index,
            "rel": int(peer.relative), "initiator": peer.initiator_id, "memory_key": peer.key,
            "buffer_offset": base, "eom": 1, "return_code": ReturnCode.OK,
        }  # fmt: skip


# What the peer sends --------------------------------------------------------------------------------------------------

_KINDS: dict[int, str] = {
    PdsType.RUD_REQ: "request", PdsType.ROD_REQ: "request", PdsType.RUD_CC_REQ: "request",
    PdsType.ROD_CC_REQ: "request", PdsType.ACK: "ack", PdsType.ACK_CC: "ack", PdsType.ACK_CCX: "ack",
    PdsType.NACK: "nack", PdsType.NACK_CCX: "nack", PdsType.RUDI_REQ: "rudi_request",
    PdsType.RUDI_RESP: "rudi_response", PdsType.UUD_REQ: "uud_request",
}  # fmt: skip
KINDS = (*dict.fromkeys(_KINDS.values()), *_CONTROL)
"""Kinds of packets that a test may expect."""
_PSN = FORMS["pds.rud_req"]["psn"]
_OPAQUE = Field(32, "unknown")


@dataclass(frozen=True, slots=True)
class AnswerPacket:
    """This record is a packet of the peer: its kind, the values of its UET headers by field, ECN, and its payload."""

    kind: str
    values: Mapping[str, int]
    rows: Mapping[str, Field]
    payload: bytes
    packet: Packet
    fault: str
    """Why the packet is wrong by itself, such as its CRC32C. The text is empty if it is not."""


def read(frame: bytes, how: Encapsulation) -> AnswerPacket | None:
    """Return the packet in a frame, or None if it is none of UET. Values computed from several fields are ack_psn, and
    clear_psn of requests."""
    settings: dict[str, Any] = {"crc": "on" if how.crc else "off"}
    settings |= {"udp_port": _port(frame)} if how.udp else {"ip_protocol": how.ip_protocol}
    return answer_of(decode(frame, **settings))


def _port(frame: bytes) -> int:
    """Return the UDP port to which a frame goes: it is at our port, whatever that is."""
    at = 36 if frame[12:14] == IPV4_TYPE else 56
    return max(int.from_bytes(frame[at : at + 2], "big"), 1)


def what_else(frame: bytes, how: Encapsulation) -> str:
    """Return what a frame is that `read` cannot read, in words."""
    if how.udp:
        packet = decode(frame, roce_port=_port(frame), udp_port=1)
        if "bth" in packet and packet.error is None and packet.trailer is not None and packet.trailer.ok:
            return "a packet of RoCEv2 with a right ICRC, at the UDP port of UET"
    packet = decode(frame, udp_port=_port(frame)) if how.udp else decode(frame, ip_protocol=how.ip_protocol)
    return "no packet of UET" if packet.error is None else f"no packet of UET: {packet.error.reason}"


def answer_of(packet: Packet) -> AnswerPacket | None:
    """Return what a decoded packet says, as `read` does, or None if it is none of UET."""
    values: dict[str, int] = {}
    rows: dict[str, Field] = {}
    for form, named, _ in packet.layers:
        if form.startswith(("pds.", "ses.")):
            for row in FORMS[form].fields:
                name = f"read_{row.name}" if form == _RENDEZVOUS and row.name in values else row.name
                values.setdefault(name, named[row.name])
                rows.setdefault(name, row)
    if "type" not in values:
        return None
    ip = next((layer for layer in packet.layers if layer.form in ("ipv4", "ipv6")), None)
    if ip is not None:
        values["ecn"], rows["ecn"] = ip.values["ecn"], FORMS[ip.form]["ecn"]
    kind = _KINDS.get(values["type"], "unknown")
    if values["type"] == PdsType.CP:
        kind = next((name for name, code in _CONTROL.items() if code == values["ctl_type"]), "unknown")
    if "ack_psn_offset" in values:
        values["ack_psn"] = (values["cack_psn"] + values["ack_psn_offset"]) & 0xFFFFFFFF
        rows["ack_psn"] = _PSN
    if "clear_psn_offset" in values:
        values["clear_psn"] = (values["psn"] + values["clear_psn_offset"]) & 0xFFFFFFFF
        rows["clear_psn"] = _PSN
    fault = "" if packet.error is None else f"{packet.error.kind}: {packet.error.reason}"
    if packet.trailer is not None and packet.trailer.ok is False:
        fault = "its CRC32C is wrong (tss.md §12)"
    return AnswerPacket(kind, values, rows, packet.payload, packet, fault)


def sacked(values: Mapping[str, int]) -> set[int]:
    """Return the PSNs above CACK that the SACK bitmap of an ACK says to have been received."""
    if "sack_bitmap" not in values:
        return set()
    cack = values["cack_psn"]
    base = cack + values["sack_psn_offset"]
    found = {base + bit for bit in range(64) if values["sack_bitmap"] >> bit & 1}
    return {psn & 0xFFFFFFFF for psn in found if psn > cack}
