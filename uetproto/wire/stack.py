# SPDX-License-Identifier: GPL-2.0-only
"""This module decodes a frame to its layers with `decode`, and builds the same frame again, bit by bit, with `encode`.

Decoding never raises an error for the bytes of a frame. Bytes that cannot be decoded are kept as raw bytes, with a
reason. Four cases are told apart: *truncated* (the capture kept less than was on the wire), *trimmed* (a switch cut the
packet), *malformed* (the packet contradicts itself) and *unknown* (the packet is neither UET nor RoCE).
"""

import operator
from collections.abc import Mapping, Set
from dataclasses import replace
from itertools import accumulate
from typing import Any

from uetproto.errors import LocalError, shown, similar, typed
from uetproto.wire.capture.base import StatedPort
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.fast_walk import FastWalk
from uetproto.wire.forms import FORMS, IP_PROTOCOL, ROCE_PORT, UDP_PORT, UET_FORMS
from uetproto.wire.headers import ethernet as eth
from uetproto.wire.headers import roce, tunnels, uet_tss
from uetproto.wire.headers.numbers import TRIMMED_DSCP as TRIMMED_DSCP
from uetproto.wire.headers.uet_ses import SEND_STD_SOM
from uetproto.wire.icrc import ICRC_SIZE, VCRC_SIZE, icrc, vcrc
from uetproto.wire.inside import look_inside
from uetproto.wire.packet import RAW_FORMS, Layer, Packet, Trailer
from uetproto.wire.shapes import Writers, completer
from uetproto.wire.walk import Settings, walk

LINKS = ("ethernet", "raw", "sll", "sll2", "infiniband", "erf")
CRC_MODES = ("auto", "on", "off")
RD_MODES = ("raw", "headers")


# Decoding ------------------------------------------------------------------------------------------------------------


def decode(
    frame: bytes | bytearray | memoryview,
    *,
    link: str = "ethernet",
    crc: str = "auto",
    udp_port: int = UDP_PORT,
    ip_protocol: int = IP_PROTOCOL,
    roce_port: int = ROCE_PORT,
    length: int | None = None,
    trimmed_dscp: Set[int] = TRIMMED_DSCP,
    rd: str = "raw",
    sharp: bool = False,
    mcast: bool = False,
) -> Packet:
    """Decode one frame to its layers (wire.md §7, roce.md §1). No bytes of a frame raise an error.

    `link` names the first header (`LINKS`). `crc` says whether a CRC32C ends a UET packet: "on", "off" or "auto". With
    "auto" the last 4 bytes are a CRC32C if they match, or if the headers account for all bytes but 4. If the headers
    imply no length, "auto" takes a wrong CRC32C for payload, and adds the note crc-suspect if the payload is then 4
    bytes longer than a payload MTU. So pass "on" if packets are known to have a CRC32C; for a capture,
    `flow_crc.decoded` finds this out. RoCE always ends with an ICRC, which "off" leaves unchecked. `length` is the
    length of the frame on the wire in bytes, if the capture kept less. `rd` says whether the RoCE opcodes 0x40–0x5f
    are left "raw" or decoded as "headers" of RD. With `sharp`, SHARP messages are looked for in SENDs. With `mcast`,
    immediates are decoded as multicast immediates. Raises `LocalError` for a setting that is not legal.
    """
    data = frame if type(frame) is bytes else _bytes_of(frame)
    try:
        if type(trimmed_dscp) is not frozenset:
            trimmed_dscp = frozenset(trimmed_dscp)
        settings = (link, crc, udp_port, ip_protocol, roce_port, trimmed_dscp, rd)
        fast = _fast_walks.get(settings)
        truncated = length is not None and length > len(data)
    except TypeError:
        typed("trimmed_dscp", trimmed_dscp, Set, "a set of DSCPs")
        typed("length", 0 if length is None else length, int, "a number of bytes, or None")
        _check_settings(link, crc, udp_port, ip_protocol, roce_port, rd)
        raise
    if fast is None:
        fast = _fast_walk_for(settings)
    packet = None if truncated else fast.read(data)
    if packet is None:
        packet = walk(data, settings, truncated)
        fast.learn(data, packet)
    if sharp or mcast:
        look_inside(packet, with_sharp=sharp, with_mcast=mcast)
    return packet


def decode_at(ports: Set[StatedPort], frame: bytes, **settings: Any) -> Packet:
    """Decode a frame as `decode` does, with `ports` as further UDP ports, which a capture states of itself."""
    packet = decode(frame, **settings)
    if ports and packet.layers and packet.error is not None:
        form, values, _ = packet.layers[-1]
        for name, roce in (("udp_port", False), ("roce_port", True)) if form == eth.UDP.name else ():
            if (values["dport"], roce) in ports and values["dport"] != settings.get(name):
                return decode(frame, **settings | {name: values["dport"]})
    return packet


_fast_walks: dict[Settings, FastWalk] = {}


def _fast_walk_for(settings: Settings) -> FastWalk:
    """Check the settings once, and return the fast walk under them."""
    link, crc, udp_port, ip_protocol, roce_port, trimmed_dscp, rd = settings
    _check_settings(link, crc, udp_port, ip_protocol, roce_port, rd)
    if len(_fast_walks) >= 64:
        _fast_walks.clear()
    return _fast_walks.setdefault(settings, FastWalk(link, crc, trimmed_dscp))


def _check_settings(link: str, crc: str, udp_port: int, ip_protocol: int, roce_port: int, rd: str) -> None:
    check_choice("link", link, LINKS)
    check_choice("crc", crc, CRC_MODES)
    check_choice("rd", rd, RD_MODES)
    check_number("udp_port", udp_port, 0xFFFF)
    check_number("ip_protocol", ip_protocol, 0xFF)
    check_number("roce_port", roce_port, 0xFFFF)


def check_choice(name: str, value: str, legal: tuple[str, ...]) -> None:
    """Raise `LocalError` for a setting that is not one of the `legal` values."""
    if value not in legal:
        raise LocalError(
            name, f"{shown(value)} is not legal{similar(value, legal)}", ", ".join(legal), id="unknown-name"
        )


def check_number(name: str, value: int, most: int) -> None:
    """Raise `LocalError` for a setting that is not a whole number from 0 to `most`."""
    if not isinstance(value, int) or not 0 <= value <= most:
        raise LocalError(name, f"{shown(value)} is not legal", f"0 … {most}", id="out-of-range")


def _bytes_of(frame: object) -> bytes:
    try:
        return bytes(memoryview(frame))  # type: ignore[arg-type]
    except TypeError:
        raise LocalError(
            "frame", f"{shown(frame)} is not legal", "bytes, or an object that holds bytes", id="wrong-type"
        ) from None


# Encoding ------------------------------------------------------------------------------------------------------------


def encode(packet: Packet, *, fill: bool = False) -> bytes:
    """Return the bytes of `packet` with exactly the values that it has. Missing fields take their defaults.

    With `fill=True`, missing fields are computed from the others (`wire.defaults`): PDCIDs, codes that announce the
    next header, lengths, ends of messages. A field that is given stays, even if it is 0. But these are always computed:
    the lengths of IP, UDP, GRH and LRH, `ihl`, the IPv4 checksum, `padcnt` and the pad of RoCE, and the CRCs that the
    packet has. The UDP checksum is set to 0, as UET and RoCE send it. Raises `LocalError` for an unknown form or field,
    and for a value that does not fit its field.
    """
    try:
        data = _writers.write(packet, fill)
        return assemble(packet, fill) if data is None else data
    except (AttributeError, TypeError, ValueError):
        _check_types(packet)
        raise


def _check_types(packet: Packet) -> None:
    """Raise `LocalError` for a packet, or a part of one, that has a wrong type."""
    typed("packet", packet, Packet, "a Packet, as decode returns it")
    typed("layers", packet.layers, (list, tuple), "a list of Layer")
    for number, layer in enumerate(packet.layers):
        typed(f"layers[{number}]", layer, Layer, "a Layer, as in Layer('udp', {'dport': 4793})")
        typed(f"layers[{number}].form", layer.form, str, "the name of a form")
        typed(f"layers[{number}].values", layer.values, Mapping, "a mapping of fields")
    for name, trailer in (("trailer", packet.trailer), ("vcrc", packet.vcrc)):
        typed(name, trailer, (Trailer, type(None)), "a Trailer, or None")


def assemble(packet: Packet, fill: bool) -> bytes:
    """Encode a packet one layer at a time, as `encode` does. This works for every packet, and is slower than
    `Writers`."""
    for name, part in (("payload", packet.payload), ("pad", packet.pad), ("raw", packet.raw)):
        if not isinstance(part, bytes | bytearray | memoryview):
            raise LocalError(name, f"{shown(part)} is not legal", "bytes", id="wrong-type")
    if fill:
        packet = completed(packet)
        data = _fill(packet, [_encode_layer(layer, _FILLED.get(layer.form, ())) for layer in packet.layers])
        return _fill_gre(packet, data) if any(layer.form == "gre.checksum" for layer in packet.layers) else data
    parts = [_encode_layer(layer) for layer in packet.layers]
    trailers = _encode_trailer(packet.trailer), _encode_trailer(packet.vcrc)
    return b"".join((*parts, packet.payload, packet.pad, *trailers, packet.raw))


_writers = Writers()


def completed(packet: Packet) -> Packet:
    """Return the packet with a value for every field. The values of missing fields are computed from the others
    (`wire.defaults`)."""
    layers = packet.layers
    forms = tuple(layer.form for layer in layers)
    if not all(form in FORMS or form in RAW_FORMS for form in forms):
        return packet  # has no bytes, which encoding tells
    uet = 1 + max((i for i, form in enumerate(forms) if form in UET_FORMS), default=-1)
    size = sum(layer.size for layer in layers[uet:]) + len(packet.payload)
    if "sharp" in forms[uet:]:
        size += -size % 4
    values = [_set_values(layer) for layer in layers]
    added = completer(forms, tuple(map(frozenset, values)))(values, size)
    whole = [Layer(form, {**more, **v}, at) for (form, _, at), more, v in zip(layers, added, values, strict=True)]
    return replace(packet, layers=whole)


def _set_values(layer: Layer) -> dict[str, Any]:
    """Return the fields that are set and stay, as integers."""
    form, values, _ = layer
    if form in RAW_FORMS:
        return dict(values)
    try:
        return {name: operator.index(values[name]) for name in values if name not in _FILLED.get(form, ())}
    except TypeError:
        _encode_layer(layer, _FILLED.get(form, ()))  # raises `LocalError` with the name of the field
        raise


_TRAILER_SIZE = {"crc32c": CRC_SIZE, "icrc": ICRC_SIZE, "icv": uet_tss.ICV_SIZE, "vcrc": VCRC_SIZE}
_LITTLE = ("icrc", "vcrc")


def _encode_trailer(trailer: Trailer | None) -> bytes:
    if trailer is None:
        return b""
    kind, value, _ = trailer
    size = _TRAILER_SIZE.get(kind)
    if size is None:
        raise LocalError("trailer", f"{shown(kind)} is not legal", ", ".join(_TRAILER_SIZE), id="unknown-name")
    try:
        return operator.index(value).to_bytes(size, "little" if kind in _LITTLE else "big")
    except (TypeError, OverflowError):
        raise LocalError(kind, f"{value!r} is no number of {size} bytes", id="wrong-field-value") from None


_FILLED = {  # fields that `fill` sets, whatever the packet has
    "ipv4": ("version", "ihl", "total_length", "checksum"),
    "ipv6": ("payload_length",),
    "udp": ("length", "checksum"),
    "lrh": ("pktlen",),
    "grh": ("paylen",),
    "bth": ("padcnt",),
    "sharp": ("ext_words",),
    "geneve": ("opt_len",),
    "gre.checksum": ("checksum",),
}


def _encode_layer(layer: Layer, without: tuple[str, ...] = ()) -> bytes:
    header = FORMS.get(layer.form)
    if header is not None:
        values = layer.values
        return codec_of(header).encode({n: values[n] for n in values if n not in without} if without else values)
    if layer.form in RAW_FORMS:
        raw = layer.values.get("raw")
        if not isinstance(raw, bytes):
            raise LocalError(f"{layer.form}.raw", f"{raw!r} is not bytes", id="wrong-type")
        return raw
    known = (*FORMS, *RAW_FORMS)
    raise LocalError(layer.form, f"no such form{similar(layer.form, known)}", ", ".join(known), id="unknown-form")


def _fill(packet: Packet, parts: list[bytes]) -> bytes:
    """Compute lengths from the inside out, then checksums, then the CRC over the finished bytes."""
    trailer = packet.trailer
    kind = trailer.kind if trailer is not None else ""
    verbatim = bytes(CRC_SIZE) if kind in ("crc32c", "icrc") else _encode_trailer(trailer)
    has_bth = any(layer.form == "bth" for layer in packet.layers)
    pad = bytes(-len(packet.payload) % 4) if has_bth else packet.pad
    has_sharp = any(layer.form == "sharp" for layer in packet.layers)
    if has_sharp:
        pad = _fill_sharp(packet, parts)
    below = len(packet.payload) + len(pad) + len(verbatim)  # bytes behind the layer at hand
    options = 0
    crc_from = None
    position = sum(map(len, parts))
    for index in range(len(parts) - 1, -1, -1):
        form, part = packet.layers[index].form, parts[index]
        position -= len(part)
        if form == "udp":
            part = part[:4] + _u16("udp.length", below + 8) + b"\0\0"
        elif form in ("ipv4.options", "geneve.options"):
            options = len(part)
            if options % 4:
                raise LocalError(form, f"{options} bytes is not a multiple of 4", id="wrong-length")
        elif form == "geneve":
            if options > 4 * _GENEVE_WORDS:
                raise LocalError(
                    "geneve.options", f"{options} bytes is more than {4 * _GENEVE_WORDS}", id="wrong-length"
                )
            part = bytes([part[0] & 0xC0 | options // 4]) + part[1:]
            options = 0
        elif form == "ipv4":
            head = bytes([0x40 | (20 + options) // 4]) + part[1:2] + _u16("ipv4.total_length", below + 20)
            rest = part[4:10] + b"\0\0" + part[12:]
            following = parts[index + 1] if options else b""
            checksum = eth.internet_checksum(head + rest + following)
            part = head + part[4:10] + checksum.to_bytes(2, "big") + part[12:]
            options, crc_from = 0, position + 12 if crc_from is None else crc_from
        elif form == "ipv6":
            part = part[:4] + _u16("ipv6.payload_length", below) + part[6:]
            crc_from = position + 8 if crc_from is None else crc_from
        elif form == "grh":
            part = part[:4] + _u16("grh.paylen", below) + part[6:]
        elif form == "lrh":
            part = part[:4] + _words("lrh.pktlen", below + 8, part[4] & 0xF8) + part[6:]
        elif form == "bth":
            padcnt = 0 if has_sharp else len(pad)  # a SHARP message has a pad of its own
            part = part[:1] + bytes([part[1] & 0xCF | padcnt << 4]) + part[2:]
        parts[index] = part
        below += len(part)
    head = b"".join((*parts, packet.payload, pad))
    if kind == "icrc":
        _encode_trailer(trailer)  # raises for a trailer that is no number
        return _fill_invariant(packet, parts, head)
    if kind == "crc32c":
        if crc_from is None:
            raise LocalError("crc32c", "there is no IP header to count from", id="trailer-impossible")
        # `udp.checksum` was just set to 0, so nothing has to be masked.
        return b"".join((head, crc32c(head[crc_from:]).to_bytes(CRC_SIZE, "big"), packet.raw))
    return b"".join((head, verbatim, packet.raw))


_GENEVE_WORDS = tunnels.GENEVE["opt_len"].high


def _fill_gre(packet: Packet, data: bytes) -> bytes:
    """Compute the checksums of GRE, from the inside out, over the header of GRE and all that it carries."""
    ends = accumulate(layer.size for layer in packet.layers)
    for layer, end in reversed(list(zip(packet.layers, ends, strict=True))):
        if layer.form == "gre.checksum":
            start = end - layer.size
            covered = data[start - tunnels.GRE.size : len(data) - len(packet.raw)]
            checksum = eth.internet_checksum(covered + bytes(len(covered) % 2))
            data = b"".join((data[:start], checksum.to_bytes(2, "big"), data[start + 2 :]))
    return data


def _fill_sharp(packet: Packet, parts: list[bytes]) -> bytes:
    """Compute the lengths of a SHARP message, unless it has more packets, and return its pad."""
    forms = [layer.form for layer in packet.layers]
    base = forms.index("sharp")
    body = base + 1 + sum(form.startswith("sharp.ext.") for form in forms)
    words = sum(map(len, parts[base + 1 : body])) // 4
    size = sum(map(len, parts[body:])) + len(packet.payload)
    head = parts[base] = bytes([parts[base][0] & 0xF0 | words]) + parts[base][1:]
    for form, values, _ in packet.layers:
        first = form == "bth" and values["opcode"] == roce.Operation.SEND_FIRST
        if first or (form == SEND_STD_SOM.name and not values["eom"]):
            return packet.pad
    parts[base] = head[:22] + _u16("sharp.payload_len", size) + head[24:]
    return bytes(-size % 4)


def _fill_invariant(packet: Packet, parts: list[bytes], head: bytes) -> bytes:
    """Return `head` (the finished bytes of `parts`, payload and pad) with ICRC and, where the packet has one, VCRC."""
    layers, offset, start = [], 0, 0
    for layer, part in zip(packet.layers, parts, strict=True):
        layers.append(Layer(layer.form, layer.values, offset))
        start = offset if layer.form == "lrh" else start
        offset += len(part)
        if layer.form == "bth":
            break
    else:
        raise LocalError("icrc", "there is no BTH", id="trailer-impossible")
    if not {layer.form for layer in layers} & {"lrh", "grh", "ipv4", "ipv6"}:
        raise LocalError("icrc", "there is no network header to count from", id="trailer-impossible")
    head += icrc(head, layers, len(head)).to_bytes(ICRC_SIZE, "little")
    if packet.vcrc is None:
        return head + packet.raw
    return b"".join((head, vcrc(head[start:]).to_bytes(VCRC_SIZE, "little"), packet.raw))


def _words(name: str, size: int, above: int) -> bytes:
    """Encode the length `size` (bytes, a multiple of 4) as a number of words in 11 bits, below the 5 bits `above`."""
    if size % 4 or size > 4 * 0x7FF:
        raise LocalError(name, f"{size} bytes are not 0 … 2047 words of 4", id="wrong-length")
    return (above << 8 | size // 4).to_bytes(2, "big")


def _u16(name: str, value: int) -> bytes:
    if value > 0xFFFF:
        raise LocalError(name, f"{value} is not in 0 … 65535", id="out-of-range")
    return value.to_bytes(2, "big")
