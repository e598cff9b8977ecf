# SPDX-License-Identifier: GPL-2.0-only
"""This module makes frames sealed by the project's own engine, and files of keys, as captures of a secured job have
them."""

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from uetproto import Layer, Packet, decode, encode
from uetproto.engine.tss.cipher import AssociatedData, Cipher, SecurityHeader
from uetproto.engine.tss.keys import DomainConfig, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.wire.headers.uet_tss import ICV_SIZE

KEY = bytes(range(1, 64, 2))
OTHER = bytes(range(0, 64, 2))
CRC_SIZE = 4


def domain(
    mode: str = "direct", *, sdi: int = 1, offset: int | str = "header", servers: Sequence[int] = ()
) -> DomainConfig:
    keys = ((DomainKey(KEY),), (DomainKey(OTHER),))
    mask, shift = (0xFF00, 8) if mode == "cluster" else (0, 0)
    return DomainConfig(
        sdi=sdi, mode=mode, keys=keys, rekey_mask=mask, rekey_shift=shift, crypto_offset=offset,
        servers=frozenset(servers),
    )  # fmt: skip


def sealed(
    plain: bytes,
    of: DomainConfig,
    *,
    tsc: int = 0,
    an: int = 0,
    epoch: int = 0,
    ssi: int | None = None,
    link: str = "ethernet",
    inner: bytes | None = None,
    ledger: NonceLedger | None = None,
) -> bytes:
    """Return a plain frame, which ends with a CRC, as it is on the wire when it is sealed; `inner` replaces its inner
    packet."""
    packet = decode(plain, link=link, crc="on")
    under = [layer for layer in packet.layers if not layer.form.startswith(("pds", "ses"))]
    if inner is None:
        inner = plain[under[-1].offset + under[-1].size : len(plain) - CRC_SIZE - len(packet.raw)]
    header = SecurityHeader(of.sdi, an, ssi, epoch, tsc)

    def around(body: bytes) -> bytes:
        return encode(Packet(under, body, raw=packet.raw), fill=True)

    frame = around(bytes(header.size + len(inner) + ICV_SIZE))  # the length that UDP says is authenticated, too
    ip = next(layer for layer in under if layer.form in ("ipv4", "ipv6"))
    addresses = ip.offset + (20 if ip.form == "ipv4" else 40)
    ahead = frame[addresses : under[-1].offset + under[-1].size]
    below = AssociatedData(4 if ip.form == "ipv4" else 6, ip.values["src"], ip.values["dst"], ahead)
    return around(Cipher(of, of.keys[an][0], ledger).seal(header, below, inner))


def over(
    plain: bytes,
    *,
    version: int = 4,
    native: bool = False,
    tagged: bool = False,
    padding: int = 0,
    link: str = "ethernet",
) -> bytes:
    """Return a frame of UDP over IPv4 with other lower headers."""
    packet = decode(plain, crc="on")
    ethernet, ip, udp, *inner = packet.layers
    addresses = {name: ip.values[name] + (0xFD << 120 if version == 6 else 0) for name in ("src", "dst")}
    protocol = 253 if native else 17
    if version == 4:
        ip = Layer("ipv4", {"ttl": 64, "ecn": 2, "protocol": protocol, **addresses})
    else:
        ip = Layer("ipv6", {"hop_limit": 64, "ecn": 2, "next_header": protocol, **addresses})
    ethertype = 0x0800 if version == 4 else 0x86DD
    tag = [Layer("vlan", {"vid": 7, "type": ethertype})] if tagged else []
    ethernet = Layer("ethernet", {**ethernet.values, "type": 0x8100 if tagged else ethertype})
    carrier = Layer("entropy", {"entropy": 0x4242}) if native else udp
    layers = [ip, carrier, *inner] if link == "raw" else [ethernet, *tag, ip, carrier, *inner]
    return encode(Packet(layers, packet.payload, packet.trailer, raw=bytes(padding)), fill=True)


def key_file(path: Path, of: DomainConfig, **changes: str) -> str:
    """Write the keys of a domain to a file as a user has them; `changes` are further lines, or replace lines."""
    keys = ", ".join(f'{{an = {an}, key = "{key.value.hex()}"}}' for an, slot in enumerate(of.keys) for key in slot)
    lines = {"id": str(of.sdi), "mode": f'"{of.mode}"', "keys": f"[{keys}]"}
    if of.mode == "cluster":
        lines |= {"rekey_mask": str(of.rekey_mask), "rekey_shift": str(of.rekey_shift)}
    if of.clear_bytes:
        lines["crypto_offset"] = str(of.crypto_offset)
    if of.servers:
        lines["servers"] = str([str(ip_address(server)) for server in of.servers])
    lines |= changes
    path.write_text("[[sdi]]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items() if value))
    return str(path)
