"""This module describes packets in words: it has the one-line summary, and short texts that several commands use."""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any

from uetproto import Layer, Packet
from uetproto.cli.summary_roce import roce_summary, roce_tone
from uetproto.cli.summary_sharp import sharp_summary
from uetproto.wire.headers.uet_pds import CONTROLS, AckReq, CtlType, NackCode
from uetproto.wire.headers.uet_ses import (
    TAGGED,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)
from uetproto.wire.serial import add32, diff32

Values = Mapping[str, Any]

# Short texts ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def address(value: int, bits: int) -> str:
    """Return an address as text. `bits` tells its type: 16 for a LID, 32 for IPv4, 128 for IPv6, otherwise a MAC
    address."""
    if bits == 16:
        return f"LID {value}"
    raw = value.to_bytes(bits // 8, "big")
    if bits == 32:
        return ".".join(map(str, raw))
    if bits == 128:
        from ipaddress import IPv6Address  # costs a millisecond, and few captures need it

        return str(IPv6Address(raw))
    return raw.hex(":")


@cache
def code(names: type[IntEnum], value: int, what: str = "code") -> str:
    """Return the name of a code. A code without a name is returned as `what` and its number."""
    try:
        return names(value).name
    except ValueError:
        return f"{what} 0x{value:02x}"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def span(first: int, length: int | None, total: int) -> str:
    """Return a range of bytes of a message as text, with exclusive end: "4096–8192 of 12288", or "100 bytes" for the
    whole message. `length` None means that the end of the range is not known."""
    if first == 0 and length == total:
        return count(total, "byte")
    return f"{first}–{'…' if length is None else first + length} of {total}"


def stamp(ns: int) -> str:
    """Return a time since the first packet as text with nanosecond precision. `ns` is the time in nanoseconds."""
    size = abs(ns)
    if size < 1_000_000:
        return f"{ns / 1e3:.3f} µs"
    if size < 1_000_000_000:
        return f"{ns / 1e6:.6f} ms"
    return f"{ns // 1_000_000_000 if ns > 0 else -(size // 1_000_000_000)}.{size % 1_000_000_000:09d} s"


def duration(ns: int) -> str:
    """Return a duration as text with about three digits: "340 ns", "1.05 ms", "62.8 s". `ns` is the duration in
    nanoseconds."""
    for unit, name in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")):
        value = ns / unit
        if value >= 0.9995:
            return f"{value:.0f} {name}" if value >= 99.95 else f"{value:.3g} {name}"
    return f"{ns} ns"


def ranges(numbers: list[tuple[int, int]], most: int = 64) -> str:
    """Return ranges of PSNs with inclusive ends as text: "5, 7–9". Only the first `most` ranges are listed; "+3" at the
    end means that 3 ranges are not listed."""
    shown = [str(first) if first == last else f"{first}–{last}" for first, last in numbers[:most]]
    if len(numbers) > most:
        shown.append(f"+{len(numbers) - most}")
    return ", ".join(shown)


# Meaning of fields that belong together ---------------------------------------------------------------------------


def sack_base(values: Values) -> int:
    return add32(values["cack_psn"], values["sack_psn_offset"])


def sacked(values: Values) -> list[tuple[int, int]]:
    """Return the PSNs that an ACK_CC or ACK_CCX reports as received in its bitmap, as ranges with inclusive ends
    (pds.md §2.1)."""
    base, bitmap = sack_base(values), values["sack_bitmap"]
    found: list[tuple[int, int]] = []
    for bit in range(64):
        if bitmap >> bit & 1:
            psn = add32(base, bit)
            if found and diff32(psn, found[-1][1]) == 1:
                found[-1] = (found[-1][0], psn)
            else:
                found.append((psn, psn))
    return found


def pds_layer(packet: Packet) -> Layer | None:
    """Return the packet delivery header. It is None if the packet has no such header, or if this header is sealed."""
    return next((layer for layer in packet.layers if layer.form.startswith("pds.")), None)


def ses_layer(packet: Packet) -> Layer | None:
    """Return the SES request or response header. It is None if the packet has no such header, or if this header is
    sealed."""
    return next((layer for layer in packet.layers if layer.form.startswith("ses.")), None)


def hosts(packet: Packet) -> tuple[int, int, int] | None:
    """Return the source address, the destination address, and the number of bits of such an address (IP, GID or LID).
    It is None if the packet has no addresses."""
    for form, values, _ in packet.layers:
        if form == "ipv4":
            return values["src"], values["dst"], 32
        if form == "ipv6":
            return values["src"], values["dst"], 128
        if form == "grh":
            return values["sgid"], values["dgid"], 128
    for form, values, _ in packet.layers:
        if form == "lrh":
            return values["slid"], values["dlid"], 16
    return None


def from_to(packet: Packet) -> str:
    """Return the sender and the receiver as text: "10.0.0.1 → 10.0.0.2". Without IP these are MAC addresses; the text
    is empty if the packet has no addresses at all."""
    found = hosts(packet)
    if found is None:
        for form, values, _ in packet.layers:
            if form == "ethernet":
                found = values["src"], values["dst"], 48
    return f"{address(found[0], found[2])} → {address(found[1], found[2])}" if found else ""


def tone(packet: Packet) -> str:
    """Return the category of a packet, which decides its colour: bad, trimmed, nack, retx, control, ack, data, or other
    (not UET)."""
    if packet.error is not None:
        return "bad" if packet.error.kind == "malformed" else "other"
    if packet.trailer is not None and packet.trailer.ok is False:
        return "bad"
    if "trimmed" in packet.notes:
        return "trimmed"
    if "bth" in packet:
        return roce_tone(packet)
    layer = pds_layer(packet)
    if layer is None:
        return "control" if "pfc" in packet else "data"
    kind = layer.form.split(".")[1]
    if kind.startswith("nack"):
        return "nack"
    if kind.startswith("ack") or kind == "rudi_resp":
        return "ack"
    if layer.values.get("retx"):
        return "retx"
    return "control" if kind == "cp" else "data"


# The summary ----------------------------------------------------------------------------------------------------------


def summary(packet: Packet) -> str:
    """Return the summary of a packet in one line: "ROD_REQ SYN PSN 73728 · WRITE id 1 0–4096 of 12288".

    Marks in brackets follow the summary: [trimmed], [truncated], [crc-suspect], [CRC BAD] or [ICV BAD], [opened] for a
    packet that was sealed, [ECN] if a switch marked congestion, and [malformed].
    """
    parts = []
    for layer in packet.layers:
        top = layer.form.split(".", 1)[0]
        if top == "tss" and "sealed" in packet.notes:
            parts.append(_tss(layer.values, packet))
        elif top == "pds" and not parts:
            parts.append(_pds(layer))
        elif top == "ses" and len(parts) == 1:
            parts.append(_ses(layer, packet))
        elif top == "bth":
            parts.append(roce_summary(packet))
        elif top in ("sharp", "mcast"):
            parts.append(sharp_summary(layer))
        elif top == "pfc":
            parts.append(_pfc(layer.values))
    error = packet.error
    if not parts and error is not None and error.kind == "unknown":
        parts.append(error.reason)
    elif not parts:
        parts.append("a fragment" if "fragment" in packet.notes else packet.layers[-1].form if packet.layers else "")
    marks = [note for note in packet.notes if note in ("trimmed", "truncated", "crc-suspect")]
    trailer = packet.trailer
    if trailer is not None and trailer.ok is False:
        marks.append("ICV BAD" if trailer.kind == "icv" else "CRC BAD")
    elif trailer is not None and trailer.kind == "icv" and trailer.ok:
        marks.append("opened")
    for form, values, _ in packet.layers:
        if form in ("ipv4", "ipv6") and values["ecn"] == 3:
            marks.append("ECN")
    if error is not None and error.kind == "malformed":
        marks.append("malformed")
    return " ".join((" · ".join(filter(None, parts)), *(f"[{mark}]" for mark in marks))).strip()


def _pfc(values: Values) -> str:
    classes = [f"class {i} {values[f'pause{i}'] or 'resume'}" for i in range(8) if values["enable"] >> i & 1]
    return " ".join(("PFC", ", ".join(classes)))


def _flags(values: Values) -> str:
    return (" retx" if values.get("retx") else "") + (" ar" if values.get("ar") else "")


def _tss(values: Values, packet: Packet) -> str:
    ssi = f" SSI {values['ssi']}" if "ssi" in values else ""
    text = f"sealed, SDI {values['sdi']}{ssi} AN {values['an']} epoch {values['epoch']} TSC {values['tsc']}"
    return f"{text} · {count(len(packet.payload), 'byte')}"


def _pds(layer: Layer) -> str:
    form, values, _ = layer
    kind = form.split(".")[1]
    name = kind.upper()
    if kind.startswith("ack"):
        return _ack(name, values)
    if kind.startswith("nack"):
        return _nack(name, values)
    if kind == "cp":
        return _control(values)
    if "pkt_id" in values:
        return f"{name} pkt_id 0x{values['pkt_id']:08x}{_flags(values)}{' m' if values['m'] else ''}"
    if "psn" in values:
        return f"{name}{' SYN' if values['syn'] else ''} PSN {values['psn']}{_flags(values)}"
    return name


def _ack(name: str, values: Values) -> str:
    cack = values["cack_psn"]
    if "probe_opaque" in values:
        text = f"{name} of probe 0x{values['probe_opaque']:04x} CACK {cack}"
    else:
        text = f"{name} PSN {add32(cack, values['ack_psn_offset'])} CACK {cack}"
    if values.get("sack_bitmap"):
        text += f" SACK {ranges(sacked(values), 3)}"
    if "expected_psn" in values:
        text += f" next start at {values['expected_psn']}"
    if values["req"]:
        text += f" asks {code(AckReq, values['req'])}"
    return text + _flags(values) + (" m" if values["m"] else "")


def _nack(name: str, values: Values) -> str:
    nack_code, value = values["nack_code"], values["nack_payload"]
    text = f"{name} {code(NackCode, nack_code)}"
    if "nack_pkt_id" in values:
        text += f" pkt_id 0x{values['nack_pkt_id']:08x}"
    else:
        text += f" PSN {values['nack_psn']}"
    if nack_code == NackCode.ROD_OOO:
        text += f" expects {value}"
    elif nack_code == NackCode.NEW_START_PSN:
        text += f" start at {value}"
    return text + _flags(values) + (" m" if values["m"] else "")


def _control(values: Values) -> str:
    kind = values["ctl_type"]
    row = CONTROLS.get(kind)
    if row is None:
        words = f"PSN {values['psn']}"
    else:
        shown = {**values, "ctl_payload": values["ctl_payload"] & row.payload_mask}
        words = row.words[0] % tuple(shown[name] for name in row.words[1:])
    return f"CP {code(CtlType, kind, 'type')}{' SYN' if values['syn'] else ''} {words}{_flags(values)}"


def _ses(layer: Layer, packet: Packet) -> str:
    if layer.form.startswith("ses.response"):
        return _response(layer.values)
    end = packet.payload_offset + len(packet.payload) + len(packet.pad)
    return _request(layer.values, packet, end - layer.offset - layer.size)


def _response(values: Values) -> str:
    opcode, result = values["opcode"], code(ReturnCode, values["return_code"], "return code")
    if "payload_length" in values:
        length = values["payload_length"]
        if "original_request_psn" in values:
            text = f"data of PSN {values['original_request_psn']} {count(length, 'byte')}"
        else:
            which = span(values["message_offset"], length, values["modified_length"])
            text = f"data of id {values['read_request_message_id']} {which}"
        return text if values["return_code"] == ReturnCode.OK else f"{text} {result}"
    text = result
    if opcode == ResponseOpcode.NO_RESPONSE:
        text = "no response yet"
    elif opcode > ResponseOpcode.NO_RESPONSE:
        text = f"response opcode 0x{opcode:02x} {result}"
    elif opcode == ResponseOpcode.RESPONSE:
        text += f" id {values['message_id']}"
    if values["list"]:
        text += f" {code(ResponseList, values['list'], 'list')}"
    return text


def _request(values: Values, packet: Packet, there: int) -> str:
    opcode, total = values["opcode"], values["request_length"]
    words = [code(Opcode, opcode, "opcode")]
    cut = "trimmed" in packet.notes or "truncated" in packet.notes
    for form, extra, _ in packet.layers:
        if form.startswith("ses.ext.atomic"):
            words.append(code(AtomicOpcode, extra["atomic_opcode"], "operation"))
            words.append(code(AtomicDatatype, extra["atomic_datatype"], "datatype"))
        elif form == "ses.ext.rendezvous":
            words.append(f"eager {extra['eager_length']}")
    if "message_id" in values:
        words.append(f"id {values['message_id']}")
    if opcode in TAGGED and "match_bits" in values:
        words.append(f"tag 0x{values['match_bits']:x}")
    if "message_offset" in values:
        words.append(span(values["message_offset"], values["payload_length"], total))
    elif values["eom"] or "message_id" not in values or opcode == Opcode.DEFERRABLE_RTR:
        words.append(span(0, total, total))
    else:
        words.append(span(0, None if cut or opcode == Opcode.READ else there, total))
    words += [name for name in ("ie", "dc") if values[name]]
    return " ".join(words)
