# SPDX-License-Identifier: GPL-2.0-only
"""Whole SES messages are made of layers: `uet_message` gives the packets of a message.

    from uetproto.layers import uet_message
    packets = IP(dst="10.0.0.2") / UDP() / uet_message("WRITE", bytes(10000), memory_key=7, start_psn=100)

`OPCODE_PROFILES` and `NEXT` say which modes, forms and extension headers an opcode has. The layers compute the fields
that follow from other fields (`wire.defaults`).
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from scapy.packet import Packet, Raw
from scapy.plist import PacketList

from uetproto.errors import shown, similar
from uetproto.layers.base import LayerError
from uetproto.layers.uet import LAYERS
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FIRST, rows_after
from uetproto.wire.headers import uet_ses
from uetproto.wire.headers.uet_pds import Mode, NextHdr
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    COMPARE_AND_SWAPS,
    ELEMENT_SIZE,
    NO_OPERANDS,
    OPCODE_PROFILES,
    PAYLOAD_MTUS,
    RENDEZVOUS,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
)

PSNS = 1 << 32
"""Number of PSNs; they wrap around."""
_COMPUTED = frozenset({
    "type", "next_hdr", "opcode", "syn", "psn", "pkt_id", "som", "eom", "hd", "payload_length", "message_offset",
    "request_length",
})  # fmt: skip
"""Fields that the function sets in each packet."""
_FORMS = {code.name.removeprefix("REQUEST_").lower(): code for code in NextHdr if code.name.startswith("REQUEST_")}
_SWAP_LENGTH = uet_ses.EXT_ATOMIC_CAS.size - uet_ses.EXT_ATOMIC.size
"""Value of request_length in a compare-and-swap, whose operands are in the extension header (ses.md §6.3)."""


class UetPackets(PacketList):  # type: ignore[misc]
    """This list of packets can be put over other layers, as a packet can: `IP() / UDP() / packets` does so for every
    packet."""

    def __rdiv__(self, lower: Packet) -> "UetPackets":
        return UetPackets([lower / packet for packet in self.res], self.listname)

    __rtruediv__ = __rdiv__


def code_of(name: str, value: object, kind: type[IntEnum], legal: Iterable[Any] = (), why: str = "") -> Any:
    """Return the member of `kind` that has this number or name. A name may be in upper or lower case. Raises
    `LayerError` if there is no such member, or if it is not in `legal`."""
    members = sorted(legal or kind)
    known = {member.name: member for member in kind}
    found = known.get(value.upper()) if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool) and value in list(kind):
        found = kind(value)
    if found is None or found not in members:
        names = [member.name for member in members]
        near = similar(value, names) if found is None else why
        raise LayerError(name, f"{shown(value)} is not legal{near}", ", ".join(names), id="wrong-field-value")
    return found


def number_of(row: Field, name: str, value: object) -> int:
    """Return the value of a field, which may be the name of a code."""
    if isinstance(value, str) and row.values is not None:
        found = row.values.__members__.get(value.upper())
        if found is None:
            names = ", ".join(row.values.__members__)
            raise LayerError(
                name, f"{shown(value)} is not legal{similar(value, row.values.__members__)}", names,
                id="wrong-field-value"
            )  # fmt: skip
        value = int(found)
    if not isinstance(value, int) or not row.low <= value <= row.high:
        raise LayerError(name, f"{shown(value)} is not legal", f"{row.low:#x} … {row.high:#x}", id="wrong-field-value")
    return int(value)


def _stack(deciding: Mapping[str, int]) -> list[Header]:
    """Return the headers of a packet, of which the first candidates are taken that have the `deciding` values."""
    todo, headers = [FIRST], []
    while todo:
        header = next(
            header
            for header in todo.pop()
            if all(not row.only or deciding.get(row.name, row.default) in row.only for row in header.fields)
        )
        headers.append(header)
        groups = [row.then.get(deciding[row.by], row.otherwise) if row.by else row.otherwise
                  for row in rows_after(header)]  # fmt: skip
        todo += reversed([group for group in groups if group])
    return headers


def _names(headers: list[Header]) -> dict[str, tuple[Header, Field]]:
    """Return the fields of a packet by the names that they have as arguments.

    A field of a rendezvous extension that the request has too has `read_` before its name.
    """
    found: dict[str, tuple[Header, Field]] = {}
    for header in headers:
        for row in header.fields:
            if not row.name.startswith("rsvd"):
                found[row.name if row.name not in found else f"read_{row.name}"] = header, row
    return found


def uet_message(
    opcode: int | str,
    data: bytes | int = b"",
    *,
    mode: int | str = "RUD",
    form: str = "std",
    mtu: int = 4096,
    start_psn: int = 0,
    **fields: int | str,
) -> UetPackets:
    """Return the packets of a message, from the PDS header to the payload, to be put over `IP() / UDP()`.

    `data` is the payload of the message, or the length of the message in bytes. A READ takes the length, as it carries
    no payload. For any other opcode, a length stands for a payload of so many zeros. `mode` is RUD, ROD, RUDI or UUD.
    `form` is std, medium or small. `mtu` is the payload MTU. `start_psn` is the PSN of the first packet, or in RUDI its
    pkt_id.

    `fields` are the values of header fields, by name; extension headers are included. If a rendezvous extension and the
    request have a field of the same name, that of the extension is called `read_resource_index`, `read_pid_on_fep` or
    `read_ri_generation`. If `dpdcid` is given, the packets belong to an open PDC. Otherwise they open a PDC, and
    `start_psn` - `psn_offset` is its first PSN. Raises `LayerError` for arguments that the opcode does not allow; the
    error says what is legal.
    """
    code = code_of("opcode", opcode, Opcode, OPCODE_PROFILES)
    profile = OPCODE_PROFILES[code]
    kind = code_of("mode", mode, Mode, profile.modes, f" with {code.name}")
    if form not in _FORMS or _FORMS[form] not in profile.forms:
        legal = ", ".join(name for name, form_code in _FORMS.items() if form_code in profile.forms)
        raise LayerError("form", f"{shown(form)} is not legal with {code.name}", legal, id="unknown-form")
    if mtu not in PAYLOAD_MTUS:
        raise LayerError("mtu", f"{shown(mtu)} is not legal", ", ".join(map(str, PAYLOAD_MTUS)), id="out-of-range")
    if not isinstance(start_psn, int) or not 0 <= start_psn < PSNS:
        raise LayerError("start_psn", f"{shown(start_psn)} is not legal", f"0 … {PSNS - 1:#x}", id="out-of-range")
    plan = _Plan(code, kind, _FORMS[form], mtu, start_psn, fields)
    return UetPackets(plan.packets(data), f"{code.name} message")


class _Plan:
    """A plan holds what all packets of a message have in common."""

    def __init__(
        self, code: Opcode, mode: Mode, form: NextHdr, mtu: int, start: int, fields: Mapping[str, int | str]
    ) -> None:
        self.code, self.mode, self.form, self.mtu, self.start = code, mode, form, mtu, start
        amo = fields.get("atomic_opcode", 0) if code in ATOMICS else 0
        self.amo = code_of("atomic_opcode", amo, AtomicOpcode) if isinstance(amo, str) else amo
        self.deciding = {
            "type": mode, "syn": int("dpdcid" not in fields), "next_hdr": form, "opcode": code,
            "hd": int("header_data" in fields), "atomic_opcode": self.amo,
        }  # fmt: skip
        self.later = _stack(self.deciding | {"som": 0}) if form == NextHdr.REQUEST_STD else []
        self.first = self.later if code == Opcode.MSG_ERROR else _stack(self.deciding | {"som": 1})
        known = _names(self.first)
        own = _COMPUTED - ({"message_offset"} if code == Opcode.MSG_ERROR else set())
        legal = [name for name in known if name not in own]
        for name in fields:
            if name not in legal:
                raise LayerError(
                    name, f"{code.name} has no such argument{similar(name, legal)}", ", ".join(legal),
                    id="unknown-argument"
                )  # fmt: skip
        if mode is Mode.RUDI and "header_data" in fields:
            raise LayerError(
                "header_data", "is not legal with mode RUDI, where a packet may be executed twice", "none",
                id="not-with-mode"
            )  # fmt: skip
        self.fields = {name: number_of(known[name][1], name, value) for name, value in fields.items()}
        self.limit = known["request_length"][1].high

    def packets(self, data: bytes | int) -> list[Packet]:
        total, body, payload = self._sizes(data)
        count = max(1, -(-body // self.mtu))
        if count > 1 and (self.mode is Mode.UUD or self.code in ATOMICS or not self.later):
            raise LayerError("data", f"{body} bytes are not legal in one packet", f"0 … {self.mtu}", id="wrong-length")
        opened = self.fields.get("psn_offset", 0)
        furthest = max(opened, -1 - self.fields.get("clear_psn_offset", -1)) + count
        known = _names(self.first)
        if "psn_offset" in known and opened + count > known["psn_offset"][1].high + 1:
            raise LayerError(
                "data", f"{count} packets are more than can open a PDC", "4096 packets; with dpdcid up to 32768",
                id="packet-capacity"
            )  # fmt: skip
        if "psn" in known and furthest > -known["clear_psn_offset"][1].low:
            raise LayerError(
                "data", f"{count} packets are more than can wait for an ACK", "32768 packets", id="packet-capacity"
            )
        return [self._packet(k, count, total, body, payload) for k in range(count)]

    def _sizes(self, data: bytes | int) -> tuple[int, int, bytes | None]:
        """Return length of the message, number of bytes that its packets carry or ask for, and the payload."""
        code, profile = self.code, OPCODE_PROFILES[self.code]
        no_length = code in (Opcode.NO_OP, Opcode.DEFERRABLE_RTR) or self.amo in COMPARE_AND_SWAPS
        carries = profile.payload and code != Opcode.MSG_ERROR and not (code in ATOMICS and self.amo in NO_OPERANDS)
        if isinstance(data, bool) or not isinstance(data, bytes | bytearray | memoryview | int):
            raise LayerError("data", f"{shown(data)} is not legal", "bytes, or a length", id="wrong-type")
        total = data if isinstance(data, int) else len(data)
        if no_length and total:
            raise LayerError("data", f"{total} bytes are not legal with {code.name}", "none", id="unknown-form")
        if not carries and not isinstance(data, int) and total:
            raise LayerError(
                "data", f"{code.name} carries no payload", "a length, as an integer", id="not-with-operation"
            )
        if not 0 <= total <= self.limit:
            raise LayerError("data", f"{total} bytes are not legal", f"0 … {self.limit}", id="wrong-length")
        if self.amo in COMPARE_AND_SWAPS and code in ATOMICS:
            return _SWAP_LENGTH, 0, None
        if code in ATOMICS and not carries:
            return total or ELEMENT_SIZE.get(AtomicDatatype(self.fields.get("atomic_datatype", 0)), 0), 0, None
        body = total if code != Opcode.MSG_ERROR else 0
        if code in RENDEZVOUS:
            body = self.fields.setdefault("eager_length", min(total, self.mtu))
            self.fields.setdefault("read_offset", body)
            if body > total:
                raise LayerError("eager_length", f"{body} is not legal", f"0 … {total}", id="out-of-range")
        if not carries:
            return total, body, None
        if code in ATOMICS:
            self._check_operands(total)
        return total, body, bytes(body) if isinstance(data, int) else bytes(data[:body])

    def _check_operands(self, total: int) -> None:
        """Raise `LayerError` for operands that do not end with an element; those of vendors have any size."""
        datatype = self.fields.get("atomic_datatype", 0)
        if datatype not in list(AtomicDatatype):
            return
        kind = AtomicDatatype(datatype)
        size = ELEMENT_SIZE[kind]
        if total % size:
            raise LayerError(
                "data", f"{total} bytes are not legal with {kind.name}", f"0, {size}, {2 * size}, …", id="wrong-length"
            )

    def _packet(self, k: int, count: int, total: int, body: int, payload: bytes | None) -> Packet:
        headers = self.first if k == 0 else self.later
        at = k * self.mtu
        values = self.fields | {"request_length": total, "eom": int(k + 1 == count), "hd": self.deciding["hd"]}
        values |= {"psn": (self.start + k) % PSNS, "pkt_id": (self.start + k) % PSNS}
        values.setdefault("ar", int(k + 1 == count))
        values["psn_offset"] = values.get("psn_offset", 0) + k
        values["clear_psn_offset"] = values.get("clear_psn_offset", -1 - self.fields.get("psn_offset", 0)) - k
        size = min(self.mtu, body - at)
        values["payload_length"] = size
        if self.code != Opcode.MSG_ERROR:
            values["message_offset"] = at
        else:
            values.setdefault("message_offset", 0)
        values |= {"opcode": self.code, "atomic_opcode": self.amo}
        packet, names = None, _names(headers)
        for header in headers:
            own = {row.name: values[name] for name, (where, row) in names.items() if where is header and name in values}
            layer = LAYERS[header.name](**own)
            packet = layer if packet is None else packet / layer
        assert packet is not None
        return packet / Raw(payload[at : at + size]) if payload else packet
