# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the RoCE packets of our side of a test from the header tables, right or wrong as the test says, and
reads those of the peer."""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from uetproto.conform.expressions import Variables, value_of
from uetproto.conform.packets import ENTROPY
from uetproto.conform.roce.pairs import NEEDS, OPTIONAL, OpenPair, PairSource
from uetproto.errors import LocalError, shown, similar
from uetproto.framing.dscp import IPV4_TYPE
from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Field
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.roce import (
    CNP_OPCODE,
    DETH,
    OPERATIONS,
    RESPONSES,
    SEQUENCES,
    Nak,
    Operation,
    Transport,
    opcode_of,
)
from uetproto.wire.icrc import ICRC_SIZE, icrc
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.stack import decode, encode

_OPERATIONS = {operation.name.lower(): operation for operation in Operation}
_TRANSPORTS = {transport.name.lower(): transport for transport in Transport}
CNP = "cnp"
KINDS = ("ack", "nak", "rnr_nak", CNP, *(name for name in _OPERATIONS if name != "acknowledge"))
"""Kinds of packets that a test may expect."""
SEND_KEYS = frozenset(("send", "on", "data", "as", "icrc", "cut", "ecn", "entropy", "pad", "transport"))
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_SIZE = Field(32, "size")
_DSCP = 26


@dataclass(frozen=True, kw_only=True)
class RoceFacts:
    """This record says what is known of a peer of RoCE: where it is, and who makes its queue pairs."""

    address: int
    local: int
    pairs: PairSource
    ip_version: int = 4
    udp_port: int = 4791
    path_mtu: int = 1024
    p_key: int = 0xFFFF
    without: frozenset[str] = frozenset()
    """What the peer does not have: names of `OPTIONAL` and `NEEDS`."""

    def lower(self, values: Mapping[str, int], entropy: int) -> list[Layer]:
        """Return the headers below BTH of a packet to the peer, with these values in the IP header."""
        ends = {"src": self.local, "dst": self.address, **values}
        ip = Layer("ipv4", {**ends, "df": 1}) if self.ip_version == 4 else Layer("ipv6", ends)
        return [Layer("ethernet", {}), ip, Layer("udp", {"sport": entropy, "dport": self.udp_port})]

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of `decode` for the packets of both ends."""
        return {"roce_port": self.udp_port}

    @property
    def ring(self) -> None:
        """Return None: packets of RoCE are not sealed."""

    @property
    def offers(self) -> dict[str, str]:
        """Return what tests may need, each with why it is missing; the text is empty for what the peer offers."""
        lacks = {**dict.fromkeys(self.pairs.lacks, ""), **dict.fromkeys(self.without, " (--without)")}
        return {
            name: f"the peer has no {words}{lacks[name]}" if name in lacks else ""
            for name, words in {**NEEDS, **OPTIONAL}.items()
        }


class RoceCraft:
    """This class makes the frames of one test, and keeps the data that they carry by the name that the test gives."""

    def __init__(self, peer: RoceFacts, rng: random.Random, entropy: Callable[[int], int]) -> None:
        """`entropy` returns the entropy value that the link has for one that a test chose."""
        self.peer = peer
        self.data: dict[str, bytes] = {}
        self._rng, self._entropy = rng, entropy

    def frame(self, step: Mapping[str, Any], pair: OpenPair, variables: Variables) -> bytes:
        """Return the frame of a step of our side. Raises `LocalError` for a kind, a field or a value that is not
        legal."""
        payload = self.bytes_of(step.get("data", 0), variables, step.get("as"))
        pad = step.get("pad", -len(payload) % 4)
        layers = self._layers(step, pair, variables, len(payload))
        transport = b"".join(codec_of(FORMS[layer.form]).encode(layer.values) for layer in layers)
        transport += payload + bytes(pad)
        if "cut" in step:
            transport = transport[: step["cut"]]
        lower = self._lower(step)
        frame = bytearray(encode(Packet(lower, transport + bytes(ICRC_SIZE)), fill=True))
        at, end = 0, len(frame) - ICRC_SIZE
        placed = []
        for layer in (*lower, layers[0]):
            placed.append(Layer(layer.form, layer.values, at))
            at += layer.size
        wrong = step.get("icrc", "right")
        if wrong not in ("right", "wrong"):
            raise LocalError("icrc", f"{shown(wrong)} is not legal", "right, wrong", id="test-file")
        frame[end:] = (icrc(bytes(frame), placed, end) ^ (wrong == "wrong")).to_bytes(ICRC_SIZE, "little")
        return bytes(frame)

    def bytes_of(self, told: Any, variables: Variables, name: Any = None) -> bytes:
        """Return the bytes that a test writes: a number of random ones, which may be a sum such as "mtu + 4",
        hexadecimal text, or "@NAME" for earlier ones. `name` names them."""
        if isinstance(told, str) and told.startswith("@"):
            if told[1:] not in self.data:
                raise LocalError(
                    "data", f"{told!r} is not known{similar(told[1:], self.data)}", ", ".join(self.data), id="test-file"
                )
            found = self.data[told[1:]]
        elif isinstance(told, str) and _HEX.fullmatch(told):
            found = bytes.fromhex(told)
        else:
            size = value_of("data", told, _SIZE, variables)
            if size > 1 << 14:
                raise LocalError(
                    "data", f"{shown(told)} is not legal", "0 … 16384, a sum, hexadecimal text, @NAME", id="test-file"
                )
            found = self._rng.randbytes(size)
        if name is not None:
            self.data[str(name)] = found
        return found

    def _lower(self, step: Mapping[str, Any]) -> list[Layer]:
        """Return the headers below the BTH."""
        values = {"dscp": _DSCP, "ecn": step.get("ecn", Ecn.ECT0)}
        return self.peer.lower(values, self._entropy(step.get("entropy", ENTROPY)))

    def _layers(self, step: Mapping[str, Any], pair: OpenPair, variables: Variables, size: int) -> list[Layer]:
        """Return the BTH and the headers behind it, with their values."""
        kind = str(step["send"])
        transport = _TRANSPORTS.get(str(step.get("transport", pair.kind)))
        if transport is None:
            raise LocalError(
                "transport", f"{shown(step['transport'])} is not legal", ", ".join(_TRANSPORTS), id="test-file"
            )
        if kind == CNP:
            opcode = CNP_OPCODE
        elif kind in _OPERATIONS:
            opcode = opcode_of(transport, _OPERATIONS[kind])
        else:
            known = (CNP, *_OPERATIONS)
            raise LocalError(
                "send", f"there is no packet {kind!r}{similar(kind, known)}", ", ".join(known), id="test-file"
            )
        own = SEQUENCES.get(opcode)
        if own is None:  # an operation that this transport does not have
            own = (*((DETH,) if transport == Transport.UD else ()), *OPERATIONS[_OPERATIONS[kind]].headers)
        forms = ["bth", *(header.name for header in own)]
        rows = {row.name: row for form in forms for row in FORMS[form].fields}
        values: dict[str, int] = {
            "opcode": opcode, "m": 1, "p_key": self.peer.p_key, "destqp": pair.theirs, "psn": pair.psn,
            "padcnt": -size % 4, "va": variables["addr"], "r_key": variables["key"], "q_key": pair.q_key,
            "srcqp": pair.number,
        }  # fmt: skip
        if kind.startswith("rdma_write_only"):
            values["dmalen"] = size
        for name, told in step.items():
            if name in SEND_KEYS:
                continue
            if name not in rows:
                raise LocalError(
                    name, f"is no field of {' / '.join(forms)}{similar(name, rows)}", ", ".join(rows), id="test-file"
                )
            values[name] = value_of(name, told, rows[name], variables)
        return [Layer(form, {row.name: values[row.name] for row in FORMS[form].fields if row.name in values})
                for form in forms]  # fmt: skip


# What the peer sends --------------------------------------------------------------------------------------------------

_CREDITS, _TIMER, _NAK = Field(5, "credits"), Field(5, "timer"), Field(8, "nak", Nak)


@dataclass(frozen=True, slots=True)
class RoceAnswer:
    """This record is a packet of the peer: its kind, the values of its headers by field, and its payload."""

    kind: str
    values: Mapping[str, int]
    rows: Mapping[str, Field]
    payload: bytes
    packet: Packet
    fault: str
    """Why the packet is wrong by itself, such as its ICRC. The text is empty if it is not."""


def read(frame: bytes) -> RoceAnswer | None:
    """Return the packet in a frame, or None if it is none of RoCE. Values that are parts of the syndrome of an AETH are
    `credits` of an ACK, `timer` of an RNR NAK, and `nak` of another NAK."""
    at = 36 if frame[12:14] == IPV4_TYPE else 56  # it is at our port, whatever that is
    return answer_of(decode(frame, roce_port=max(int.from_bytes(frame[at : at + 2], "big"), 1)))


def answer_of(packet: Packet) -> RoceAnswer | None:
    """Return what a decoded packet says, as `read` does, or None if it is none of RoCE."""
    values: dict[str, int] = {}
    rows: dict[str, Field] = {}
    headers = [form for form, _, _ in packet.layers]
    if "bth" not in headers:
        return None
    for form, named, _ in packet.layers[headers.index("bth") :]:
        if form in FORMS:
            for row in FORMS[form].fields:
                values.setdefault(row.name, named[row.name])
                rows.setdefault(row.name, row)
    fault = "" if packet.error is None else f"{packet.error.kind}: {packet.error.reason}"
    if packet.trailer is not None and packet.trailer.ok is False:
        fault = "its ICRC is wrong (roce.md §4)"
    elif values["tver"]:
        fault = f"its transport version is {values['tver']} (roce.md §2)"
    elif (len(packet.payload) + values["padcnt"]) % 4:
        fault = f"{len(packet.payload)} bytes and a pad of {values['padcnt']} (roce.md §4)"
    return RoceAnswer(_kind(values, rows), values, rows, packet.payload, packet, fault)


def _kind(values: dict[str, int], rows: dict[str, Field]) -> str:
    """Return the kind of a packet, and add the parts of its syndrome."""
    opcode = values["opcode"]
    if opcode == CNP_OPCODE:
        return CNP
    operation = next((name for name, one in _OPERATIONS.items() if one == opcode & 0x1F), "unknown")
    if "syndrome" not in values:
        return operation
    syndrome = values["syndrome"] & 0x7F
    parts = {0: ("credits", _CREDITS, "ack"), 1: ("timer", _TIMER, "rnr_nak"), 3: ("nak", _NAK, "nak")}
    name, row, kind = parts.get(syndrome >> 5, ("", _CREDITS, "unknown"))
    if name:
        values[name], rows[name] = syndrome if row is _NAK else syndrome & 0x1F, row
    return kind if operation == "acknowledge" else operation


def is_response(answer: RoceAnswer) -> bool:
    """Return whether a packet answers a request."""
    return answer.kind != CNP and answer.values["opcode"] & 0x1F in RESPONSES
