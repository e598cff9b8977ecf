# SPDX-License-Identifier: GPL-2.0-only
"""Packets in tunnels (VXLAN, GENEVE, GRE, ERSPAN, MPLS), whose headers Scapy has made, and damaged ones."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.support import paths
from tests.support.columns import agrees, write
from tests.support.effort import effort
from tests.support.wire.stack import ETHERNET, IPV4, IPV6, REQUEST, UDP, V6_ETHERNET, WRITE, frame
from tests.support.wire.tunnels import NAMES, tunnelled
from uetproto import LocalError, Packet, columns, decode, encode
from uetproto.wire.capture import pcap
from uetproto.wire.flow_crc import decoded
from uetproto.wire.forms import TUNNEL_FORMS
from uetproto.wire.headers.tunnels import MOST_LABELS, MOST_TUNNELS
from uetproto.wire.stack import TRIMMED_DSCP
from uetproto.wire.walk import walk

GOOD = frame(ETHERNET, IPV4, UDP, REQUEST, WRITE)
GOOD_V6 = frame(V6_ETHERNET, IPV6, UDP, REQUEST, WRITE)
ROCE = paths.PCAPS / "roce-fail-sequence.pcapng"
SETTINGS = ("ethernet", "auto", 4793, 253, 4791, TRIMMED_DSCP, "raw")


def forms(packet: Packet) -> list[str]:
    return [layer.form for layer in packet.layers]


def inside(packet: Packet) -> Packet:
    """Return the packet without the headers of tunnels, as if it had been captured without them."""
    last = max(index for index, form in enumerate(forms(packet)) if form in TUNNEL_FORMS or form == "geneve.options")
    start = packet.layers[last + 1].offset
    return replace(packet, layers=[layer._replace(offset=layer.offset - start) for layer in packet.layers[last + 1 :]])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_inside_is_what_was_put_there(name: str) -> None:
    for good in (GOOD, GOOD_V6):
        data = tunnelled(good, name)
        packet = decode(data)
        ip = "ethernet" not in forms(inside(packet))
        assert inside(packet) == (decode(good[14:], link="raw") if ip else decode(good))
        assert packet.error is None
        assert packet.trailer is not None
        assert packet.trailer.ok
        assert encode(packet) == data


def test_the_values_of_headers_are_those_that_scapy_was_given() -> None:
    def values(name: str, form: str) -> dict[str, int]:
        return {field: value for field, value in decode(tunnelled(GOOD, name))[form].items() if value}

    assert values("vxlan", "vxlan") == {"i": 1, "vni": 4242}
    assert values("vxlan with a group", "vxlan") == {
        "gbp": 1, "i": 1, "dont_learn": 1, "policy_applied": 1, "group_policy_id": 77, "vni": 1,
    }  # fmt: skip
    assert values("geneve with options", "geneve") == {
        "opt_len": 4, "oam": 1, "critical": 1, "protocol": 0x6558, "vni": 77,
    }  # fmt: skip
    assert values("gre with all", "gre.key") == {"key": 0xDEADBEEF}
    assert values("gre with all", "gre.sequence") == {"sequence": 12}
    assert values("erspan ii", "erspan.ii") == {
        "version": 1, "vlan": 100, "cos": 3, "encap": 2, "session_id": 7, "port": 0x12345,
    }  # fmt: skip
    assert values("erspan iii", "erspan.iii") == {
        "version": 2, "vlan": 4095, "cos": 5, "bso": 1, "session_id": 1023, "timestamp": 0x11223344, "sgt": 55,
        "pdu": 1, "hw_id": 33, "direction": 1, "granularity": 2,
    }  # fmt: skip
    assert values("erspan iii with a subheader", "erspan.platform") == {"platform_id": 3, "info": 5 << 32 | 6}
    labels = [layer.values for layer in decode(tunnelled(GOOD, "mpls")).layers if layer.form == "mpls"]
    assert [tuple(label.values()) for label in labels] == [(16, 1, 0, 61), (0xFFFFF, 7, 0, 62), (18, 0, 1, 63)]


@pytest.mark.parametrize("name", NAMES)
def test_fields_that_nobody_set_are_those_that_scapy_computes(name: str) -> None:
    """A UDP checksum is sent as 0; type I of ERSPAN and the mirrored kind of frame are chosen by the user."""
    packet = decode(tunnelled(GOOD, name))
    own = {
        "protocol", "checksum", "opt_len", "bottom", "platform_present", "total_length", "payload_length", "length",
        "type", "next_header", "dport", "version", "ihl", "checksum_present", "key_present", "sequence_present",
    }  # fmt: skip
    kept = {"gre": {"protocol"}} if name == "erspan i" else {}
    bare = [
        layer._replace(values={n: v for n, v in layer.values.items() if n not in own - kept.get(layer.form, set())})
        if layer.form in TUNNEL_FORMS or layer.form in ("ethernet", "vlan", "ipv4", "ipv6", "udp")
        else layer
        for layer in packet.layers
    ]
    for _ in range(12):  # then the shape is compiled
        made = decode(encode(replace(packet, layers=bare), fill=True))
    changed = [
        (one.form, field)
        for one, other in zip(made.layers, packet.layers, strict=True)
        for field in one.values
        if one.values[field] != other.values[field]
    ]
    assert set(changed) <= {("udp", "checksum")}
    assert made.trailer == packet.trailer


@pytest.mark.parametrize(
    ("options", "said"), [(b"123", "3 bytes is not a multiple of 4"), (bytes(256), "256 bytes is more than 252")]
)
def test_options_that_do_not_fit(options: bytes, said: str) -> None:
    packet = decode(tunnelled(GOOD, "geneve with options"))
    layers = [layer._replace(values={"raw": options}) if "raw" in layer.values else layer for layer in packet.layers]
    with pytest.raises(LocalError, match=said):
        encode(replace(packet, layers=layers), fill=True)


def test_tunnels_are_followed_to_a_depth() -> None:
    data = GOOD
    for depth in range(1, MOST_TUNNELS + 3):
        data = tunnelled(data, "vxlan")
        packet = decode(data)
        assert forms(packet).count("vxlan") == min(depth, MOST_TUNNELS)
        assert ("pds.rud_req" in packet) is (depth <= MOST_TUNNELS)
        assert encode(packet) == data
    assert packet.error is not None
    assert (packet.error.kind, packet.error.reason) == ("unknown", "more than 4 tunnels in each other")
    labels = GOOD[:12] + b"\x88\x47" + b"\0\1\0\x40" * 5000 + b"\0\1\1\x40" + GOOD[14:]
    packet = decode(labels)
    assert forms(packet).count("mpls") == MOST_LABELS
    assert packet.error is not None
    assert packet.error.reason == "more than 16 labels of MPLS"


@pytest.mark.parametrize(
    ("name", "at", "value", "reason"),
    [
        ("geneve", 42, 0x40, "GENEVE version 1"),
        ("gre", 35, 1, "GRE version 1, routing 0"),
        ("gre", 34, 0x40, "GRE version 0, routing 1"),
        ("gre", 36, 0x12, "EtherType 0x1258"),
        ("erspan iii", 52, 0x84, "ERSPAN frame type 1"),
        ("erspan ii", 42, 0x30, "ERSPAN version 3"),
        ("mpls", 26, 0x15, "MPLS without IP or a control word"),
        ("mpls in ip", 23, 138, "IP protocol 138"),
        ("vxlan", 37, 0, "UDP port 4608: not UET"),
    ],
)
def test_what_is_not_decoded_is_said(name: str, at: int, value: int, reason: str) -> None:
    data = bytearray(tunnelled(GOOD, name))
    data[at] = value
    packet = decode(bytes(data))
    assert packet.error is not None
    assert (packet.error.kind, packet.error.reason) == ("unknown", reason)
    assert "pds.rud_req" not in packet
    assert encode(packet) == bytes(data)


def test_what_a_mirror_cut_is_truncated_and_no_fault() -> None:
    whole = tunnelled(GOOD, "erspan ii")
    for kept in (40, 70, 90, 110):
        data = bytearray(whole[: 50 + kept])
        data[16:18] = (len(data) - 14).to_bytes(2, "big")
        data[44] |= 0x04
        packet = decode(bytes(data))
        assert (packet.error, packet.notes) == (None, ("truncated",))
        data[44] &= ~0x04
        assert decode(bytes(data)).error is not None


def test_a_switch_trims_the_outer_packet() -> None:
    data = bytearray(tunnelled(GOOD, "vxlan")[:130])
    data[15] = 16 << 2
    data[16:18] = (len(data) - 14).to_bytes(2, "big")
    packet = decode(bytes(data))
    assert (packet.error, packet.notes) == (None, ("trimmed",))
    assert "pds.rud_req" in packet


def damaged(rng: Random, count: int) -> Iterator[bytes]:
    names = list(NAMES)
    for _ in range(count):
        data = GOOD if rng.random() < 0.7 else GOOD_V6
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            data = tunnelled(data, rng.choice(names))
        spoilt = bytearray(data)
        for _ in range(rng.choice((0, 1, 1, 2, 6))):
            spoilt[rng.randrange(min(len(spoilt), 160))] ^= 1 << rng.randrange(8)
        yield bytes(spoilt[: rng.choice((len(spoilt), len(spoilt), rng.randrange(len(spoilt))))])


def test_damage_is_told_and_both_walks_agree() -> None:
    for data in damaged(Random("tunnels"), effort(800, 20_000, 500_000)):
        length = len(data) + (len(data) % 3 == 0)
        packet = decode(data, length=length)
        assert encode(packet) == data
        assert packet == walk(data, SETTINGS, length > len(data))


def test_columns_have_the_same_headers(tmp_path: Path) -> None:
    """Bulk decoding finds what `decode` finds, of damaged packets too, and judges the same CRCs."""
    data = [*damaged(Random("columns"), effort(800, 10_000, 100_000)), *(tunnelled(GOOD, name) for name in NAMES)]
    path = write(tmp_path / "x.pcap", [(pcap.ETHERNET, one, len(one) + (len(one) % 5 == 0)) for one in data])
    agrees(path)
    found = columns.read(path, crc32c=True, icrc=True)
    assert found.crc32c is not None
    with pcap.open_capture(path) as reader:
        for record, packet in decoded(reader, lambda one, crc: decode(one.data, crc=crc, length=one.length)):
            if packet.error is None:  # `columns` judges no CRC of a packet whose IP length is wrong
                trailer = packet.trailer
                right = -1 if trailer is None or trailer.kind != "crc32c" else int(trailer.ok or 0)
                right = -2 if "crc-suspect" in packet.notes else right
                assert found.crc32c[record.index] == right, packet


def test_the_icrc_of_roce_in_a_tunnel() -> None:
    with pcap.open_capture(ROCE) as reader:
        records = list(reader)[:6]
    for name, record in zip(NAMES * 2, records * len(NAMES), strict=False):
        packet = decode(tunnelled(record.data, name))
        assert packet.trailer is not None
        assert (packet.trailer.kind, packet.trailer.ok) == ("icrc", True)
