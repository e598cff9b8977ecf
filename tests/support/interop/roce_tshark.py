# SPDX-License-Identifier: GPL-2.0-only
"""This module reads tshark's RoCE fields, and compares them with those of `decode` by tables of names."""

import json
from pathlib import Path
from typing import Any

from tests.support.interop import tshark
from uetproto import Packet
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.roce import Transport

OTHERS = ("rpcordma", "infiniband.eoib", "smb_direct")
JUDGED = (Transport.RC, Transport.UC, Transport.UD)
NAMES = {"atomic_eth": "atomiceth", "atomic_ack_eth": "atomicacketh", "imm": "immdt"}
ELSEWHERE = {"atomic_eth.va": "reth.va", "atomic_eth.r_key": "reth.r_key"}
NAMELESS = {"bth.fecn", "bth.becn", "bth.rsvd", "ieth.r_key", "grh.sgid", "grh.dgid"}  # or shown as text


def read(frames: list[bytes], home: Path, link: int = 1, *options: str) -> list[dict[str, Any]]:
    """Return the layers of each frame by name, with raw values as text."""
    path = home / "roce.pcap"
    tshark.write_pcap(path, frames)
    data = bytearray(path.read_bytes())
    data[20:24] = link.to_bytes(4, "little")
    path.write_bytes(data)
    disabled = [argument for name in OTHERS for argument in ("--disable-protocol", name)]
    out, _ = tshark.run(["-r", path, "-T", "json", "--no-duplicate-keys", *disabled, *options], home)
    return [packet["_source"]["layers"] for packet in json.loads(out)]


def flat(tree: Any, into: dict[str, str]) -> dict[str, str]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            if isinstance(value, str):
                into[name] = value
            else:
                flat(value, into)
    elif isinstance(tree, list):
        for one in tree:
            flat(one, into)
    return into


def same(packet: Packet, layers: dict[str, Any], what: str) -> int:
    """Compare every field that both have, and return the number of fields compared."""
    assert "_ws.malformed" not in json.dumps(layers), what
    shown = flat(layers["infiniband"], {})
    compared = 0
    for form, values, _ in packet.layers:
        if form not in FORMS or form in ("ethernet", "ipv4", "ipv6", "udp", "erf"):
            continue
        for name, value in values.items():
            full = f"{form}.{name}"
            if full in NAMELESS or name.startswith("rsvd"):
                continue
            theirs = "infiniband." + ELSEWHERE.get(full, f"{NAMES.get(form, form)}.{name}")
            if form == "imm":
                theirs = "infiniband.immdt"
            assert theirs in shown, f"{what}: {theirs}"
            assert tshark.number(shown[theirs]) == value, f"{what}: {full}"
            compared += 1
    assert packet.trailer is not None
    swapped = int.from_bytes(packet.trailer.value.to_bytes(4, "little"), "big")
    assert tshark.number(shown["infiniband.invariant.crc"]) == swapped, what
    if packet.vcrc is not None:
        swapped = int.from_bytes(packet.vcrc.value.to_bytes(2, "little"), "big")
        assert tshark.number(shown["infiniband.variant.crc"]) == swapped, what
    return compared
