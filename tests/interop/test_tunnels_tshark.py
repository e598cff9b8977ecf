# SPDX-License-Identifier: GPL-2.0-only
"""tshark judges the headers of tunnels that Scapy has made, field by field, and what the plugin shows inside them."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.interop.tshark import counts, folder, needs_tshark, run, write_pcap
from tests.support.wire.stack import ETHERNET, IPV4, IPV6, REQUEST, UDP, V6_ETHERNET, WRITE, frame
from tests.support.wire.tunnels import NAMES, tunnelled
from uetproto import Layer, decode, encode
from uetproto import open as open_capture
from uetproto.wire.forms import FORMS, TUNNEL_FORMS

pytestmark = needs_tshark

SHOWN = tuple(name for name in NAMES if name != "erspan iii of ip")
"""Tunnels that tshark 4.0 looks into."""
FIELDS = {
    "vxlan": {"gbp": "vxlan.flag_g", "i": "vxlan.flag_i", "dont_learn": "vxlan.flag_d",
              "policy_applied": "vxlan.flag_a", "group_policy_id": "vxlan.gbp", "vni": "vxlan.vni",
              "rsvd5": "vxlan.reserved8"},
    "geneve": {"version": "geneve.version", "oam": "geneve.flags.oam", "critical": "geneve.flags.critical",
               "protocol": "geneve.proto_type", "vni": "geneve.vni",
               "rsvd2": "geneve.reserved"},
    "gre": {"checksum_present": "gre.flags.checksum", "routing_present": "gre.flags.routing",
            "key_present": "gre.flags.key", "sequence_present": "gre.flags.sequence_number",
            "version": "gre.flags.version", "protocol": "gre.proto"},
    "gre.checksum": {"checksum": "gre.checksum", "rsvd": "gre.offset"},
    "gre.key": {"key": "gre.key"},
    "gre.sequence": {"sequence": "gre.sequence_number"},
    "erspan.ii": {"version": "erspan.version", "vlan": "erspan.vlan", "cos": "erspan.cos", "encap": "erspan.encap",
                  "truncated": "erspan.truncated", "session_id": "erspan.spanid", "rsvd": "erspan.reserved",
                  "port": "erspan.index"},
    "erspan.iii": {"version": "erspan.version", "vlan": "erspan.vlan", "cos": "erspan.cos", "bso": "erspan.bso",
                   "truncated": "erspan.truncated", "session_id": "erspan.spanid", "timestamp": "erspan.timestamp",
                   "sgt": "erspan.sgt", "pdu": "erspan.p", "frame_type": "erspan.ft", "hw_id": "erspan.hw",
                   "direction": "erspan.direction", "granularity": "erspan.gra", "platform_present": "erspan.o"},
    "erspan.platform": {"platform_id": "erspan.platid"},
    "mpls": {"label": "mpls.label", "tc": "mpls.exp", "bottom": "mpls.bottom", "ttl": "mpls.ttl"},
    "mpls.control": {"sequence": "pweth.cw.sequence_number"},
    "ethernet": {"type": "eth.type"},
    "ipv4": {"total_length": "ip.len", "protocol": "ip.proto"},
    "ipv6": {"payload_length": "ipv6.plen", "next_header": "ipv6.nxt"},
    "udp": {"sport": "udp.srcport", "dport": "udp.dstport", "length": "udp.length"},
    "pds.rud_req": {"psn": "uetp.psn"},
    "ses.request_std.som": {"message_id": "uetp.message_id"},
}  # fmt: skip
"""Maps fields of our tables to the names that Wireshark has for them."""


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


def seen(frames: list[bytes], home: Path) -> list[dict[str, list[int]]]:
    """Return for each frame the numbers that tshark shows, by the name of the field."""
    names = sorted({name for fields in FIELDS.values() for name in fields.values()})
    write_pcap(home / "x.pcap", frames)
    asked = [word for name in names for word in ("-e", name)]
    out, _ = run(["-r", home / "x.pcap", "-T", "json", *asked], home)
    found: list[dict[str, list[Any]]] = [one["_source"]["layers"] for one in json.loads(out)]
    return [{name: [int(text, 0) for text in one.get(name, ())] for name in names} for one in found]


def ours(data: bytes) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {name: [] for fields in FIELDS.values() for name in fields.values()}
    for form, values, _ in decode(data).layers:
        for field, name in FIELDS.get(form, {}).items():
            found[name].append(values[field])
    return found


def test_every_field(home: Path) -> None:
    inner = [frame(ETHERNET, IPV4, UDP, REQUEST, WRITE), frame(V6_ETHERNET, IPV6, UDP, REQUEST, WRITE)]
    frames = [tunnelled(one, name) for name in SHOWN for one in inner]
    frames += [tunnelled(tunnelled(inner[0], name), "gre with all") for name in SHOWN]
    for data, theirs in zip(frames, seen(frames, home), strict=True):
        mine = ours(data)
        assert mine == theirs, data.hex()
        assert mine["uetp.psn"] == [7]


def test_any_values(home: Path) -> None:
    """In the fields that do not say what follows."""
    rng, frames = Random("values"), []
    for _ in range(effort(60, 600, 3000)):
        packet = decode(tunnelled(frame(ETHERNET, IPV4, UDP, REQUEST, WRITE), rng.choice(SHOWN)))
        for number, (form, values, offset) in enumerate(packet.layers):
            if form in TUNNEL_FORMS:
                drawn = {name: rng.getrandbits(FORMS[form][name].bits) for name in values if name not in _DECIDING}
                packet.layers[number] = Layer(form, {**values, **drawn}, offset)
        frames.append(encode(packet))
    for data, theirs in zip(frames, seen(frames, home), strict=True):
        assert ours(data) == theirs, data.hex()


_DECIDING = frozenset({
    "version", "protocol", "bottom", "opt_len", "truncated", "zero", "platform_present", "routing_present",
    "checksum_present", "key_present", "sequence_present", "platform_id", "frame_type",
})  # fmt: skip


FILTERS = (
    "vxlan.vni == 4242", "geneve.vni in {70..80}", "gre.key == 0xdeadbeef", "gre.proto == 0x88be",
    "gre.sequence_number",
    "erspan.spanid == 7", "mpls.label == 18 and mpls.exp == 0", "mpls.ttl > 61", "vxlan and gre", "geneve or mpls",
    "ip.src == 192.0.2.1", "ip.src == 10.0.0.11 and not gre", "udp.port == 4789", "eth.dst == 02:00:00:00:aa:02",
)  # fmt: skip


def test_filters_choose_the_same_packets(home: Path) -> None:
    """One tshark counts, for each filter and frame, whether the frame is let through."""
    frames = [tunnelled(frame(ETHERNET, IPV4, UDP, REQUEST, WRITE), name) for name in SHOWN]
    write_pcap(home / "x.pcap", frames)
    numbers = range(1, len(frames) + 1)
    asked = [(text, number) for text in FILTERS for number in numbers]
    found = counts(home / "x.pcap", home, [f"({text}) && frame.number == {number}" for text, number in asked])
    for text in FILTERS:
        ours = [packet.number for packet in open_capture(str(home / "x.pcap")).filter(text)]
        theirs = [number for (other, number), count in zip(asked, found, strict=True) if other == text and count]
        assert ours == theirs, text
        assert ours, text
