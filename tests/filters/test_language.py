# SPDX-License-Identifier: GPL-2.0-only
"""The filter language: what a text means, what is refused and how, and that nothing else is raised."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cli.frames import ack, frame, layer, nack, write
from tests.support.each import each
from tests.support.effort import examples
from uetproto.errors import LocalError
from uetproto.filters.display_filter import DisplayFilter, FilteredPacket
from uetproto.filters.fields import fields
from uetproto.filters.syntax import parse
from uetproto.wire.capture.pcap import Record
from uetproto.wire.stack import decode

FRAMES = {
    "data": frame(1, 2, *write(73730, 2048, retx=1), payload=bytes(range(256)) * 4),
    "ack": frame(2, 1, *ack(73730)),
    "nack": frame(2, 1, nack(73731, 73730)),
    "arp": bytes.fromhex("ffffffffffff02000a0000010806") + bytes(46),
}
ROW = {"uetp.acks": [3, 5], "uetp.ack_time": 1.5e-6, "uetp.pdc": 0, "uetp.rel_psn": -2, "uetp.analysis.rtt": 0.0}


def seen(name: str, row: dict[str, Any] = ROW) -> FilteredPacket:
    data = FRAMES[name]
    return FilteredPacket(Record(6, 5_000, data, len(data), 0, 1, 0, None), decode(data), row, 5_000, 3_000, "rank0.0")


def holds(text: str) -> str:
    """The packets of FRAMES that a filter wants."""
    wanted = DisplayFilter(text)
    return " ".join(name for name in FRAMES if wanted.matches(seen(name)))


@each(
    "text, packets",
    [
        ("uetp.psn", "data"),
        ("not uetp.psn", "ack nack arp"),
        ("uetp.psn == 73730", "data"),
        ("uetp.psn != 73730", ""),  # never where the field is absent
        ("!(uetp.psn == 73730)", "ack nack arp"),
        ("! uetp.psn == 73730", "ack nack arp"),  # `not` is looser than a comparison
        ("uetp.cack_psn >= 0x12002", "ack"),
        ("uetp.opcode == WRITE", "data"),
        ('uetp.opcode == "write"', "data"),
        ("uetp.nack_code == rod_ooo or uetp.retx", "data nack"),
        ("uetp.retx == true", "data"),
        ("uetp.retx == 0", ""),
        ("uetp.retx", "data"),
        ("uetp and not uetp.retx and not uetp.nack_code", "ack"),
        ("eth.type == 2054", "arp"),
        ("uetp.psn == 1 or uetp.psn == 73730 and ip.src == 10.0.0.9", ""),  # `and` is tighter
        ("(uetp.psn == 1 or uetp.psn == 73730) and ip.src == 10.0.0.1", "data"),
        ("ip.addr == 10.0.0.1 && udp.port == 4793", "data ack nack"),
        ("ip.addr != 10.0.0.1", ""),
        ("ip.addr ~= 10.0.0.1", "data ack nack"),
        ("all ip.addr > 10.0.0.0", "data ack nack"),
        ("any ip.addr > 10.0.0.1", "data ack nack"),
        ("all ip.addr > 10.0.0.1", ""),
        ("ip.src == 10.0.0.2/31", "ack nack"),
        ("ip.src in {10.0.0.0..10.0.0.1, 10.0.0.9}", "data"),
        ("uetp.psn not in {73730}", "ack nack arp"),
        ("uetp.psn in {1, 73000..74000}", "data"),
        ("uetp.acks == 3 and uetp.acks === 3", ""),
        ("uetp.acks in {5}", "data ack nack arp"),
        ("all uetp.acks in {3..5}", "data ack nack arp"),
        ("all uetp.acks in {5}", ""),
        ("uetp.ack_time > 0.0000014 and uetp.ack_time < 0.0000016", "data ack nack arp"),
        ("uetp.analysis.rtt", "data ack nack arp"),  # 0 is a value
        ("uetp.rel_psn < -1", "data ack nack arp"),
        ("uetp.analysis.duplicate", ""),
        ("uetp.psn & 2", "data"),
        ("uetp.psn & 3 == 2", "data"),
        ("uetp.psn & 0x100000", ""),
        ("uetp.psn > uetp.cack_psn", ""),
        ("ip.src < ip.dst", "data"),
        ("frame.number == 7 and frame.len < 100 and frame.cap_len", "ack nack arp"),
        ("frame.time_relative == 0.000005 and frame.time_delta == 0.000003", "data ack nack arp"),
        ('frame.interface_name == "rank0.0"', "data ack nack arp"),
        ('frame.interface_name contains "nk0" and frame.interface_name matches "^RANK"', "data ack nack arp"),
        ("frame contains 08:06", "arp"),
        ('uetp.payload contains "ABC"', "data"),
        (r'uetp.payload matches "\x40abc"', "data"),
        (r'uetp.payload matches r"\x40[a]bc"', "data"),
        ("eth.dst[0] == ff", "arp"),
        ("eth.src[0:3] == 02:00:0a", "data ack nack arp"),
        ("eth.src[3-5] == 00:00:01", "data arp"),
        ("eth.src[-1:] == 02", "ack nack"),
        ("eth.src[0,5] == 02.01", "data arp"),
        ("eth.src[0:3] > 02:00", "data ack nack arp"),  # longer
        ("frame[5000:2]", ""),
        ("frame[5000:2] == 00", ""),
        ("frame[5000:2] != 00", "data ack nack arp"),  # no bytes are not the byte 0
        ("uetp.crc.status == good", "data ack nack"),
        ("uetp.len == 1024", "data"),
        ("ip.proto == UDP", "data ack nack"),
        ("ip.ttl == 0100", "data ack nack"),  # octal
        ("ip.ttl == '@'", "data ack nack"),
    ],
)  # fmt: skip
def test_what_filters_mean(text: str, packets: str) -> None:
    assert holds(text) == packets


@each(
    "text, told",
    [
        ("", "is empty"),
        ("uetp.pns == 1", r"uetp.pns is no field that filters know \(did you mean uetp.psn"),
        ("psn == 1", r"psn is no field .*did you mean .*uetp\."),
        ("uetp.psn = 1", r"= is no operator \(did you mean ==\?\), at character 10"),
        ("uetp.psn ==", "the end where a value is expected"),
        ("uetp.psn == 4294967296", "4294967296 is not legal; legal: 0 to 4294967295"),
        ("uetp.psn == -1", "-1 is not legal"),
        ('uetp.psn == "7"', '"7" is not legal; legal: a number'),
        ("uetp.opcode == WRIET", r"WRIET is not legal \(did you mean write\?\); legal: .*WRITE"),
        ("uetp.opcode == 300", "0 to 255"),
        ("uetp.retx == maybe", "legal: true, false, 1, 0"),
        ("uetp.ack_time > 10us", "10us is not legal; legal: seconds"),
        ("ip.src == 10.0.0", "legal: as in 10.0.0.1"),
        ("ip.src == 10.0.0.0/33", "legal: as in 10.0.0.1"),
        ("ipv6.src == ::g", "legal: as in 2001:db8::1"),
        ("eth.dst == 02:00:0a", "legal: six bytes"),
        ("frame[0:2] == xyz", "legal: bytes, as in"),
        ("uetp.psn[0] == 1", "uetp.psn has no bytes to slice"),
        ("frame[2-1] == 01", "the end is not behind the start"),
        ("frame[0:0] == 01", "the length is not above 0"),
        ("frame[x] == 01", "are no bytes"),
        ("frame[0 == 01", r"\[ without \]"),
        ("uetp.psn contains 1", r"uetp.psn \(uint\) cannot be compared by contains"),
        ("uetp.analysis.duplicate == 1", r"\(label\) cannot be compared by =="),
        ("uetp.payload matches abc", "legal: a quoted text"),
        ('uetp.payload matches "("', "is no regular expression"),
        ("ip.src == uetp.psn", r"ip.src \(ipv4\) == uetp.psn \(uint\) is not legal"),
        ("1 < frame.number", "1 is no field"),
        ("frame.number == 1 == 1", "a chain of comparisons is not supported"),
        ("len(frame) == 1", r"functions, such as len\(\), are not supported"),
        ("uetp.psn + 1 == 2", "arithmetic is not supported"),
        ("uetp.psn#1 == 2", "layers is not supported"),
        ("uetp.psn == 1 xor uetp.psn == 2", "'xor' is not expected here"),
        ("uetp.psn in {1 2}", "where , or } is expected"),
        ("uetp.psn in {}", "where a value is expected"),
        ("frame[0] in {01}", "with slices in a set"),
        ("(uetp.psn", r"the end where \) is expected"),
        ("uetp.psn)", "is not expected here"),
        ("any uetp.psn", "where a comparison is expected"),
        ('frame contains "abc', "a text has no end"),
        (r'frame contains "\q"', r"\\q is no escape sequence"),
        ("(" * 300 + "uetp.psn" + ")" * 300, "is nested too deep"),
        ("not " * 300 + "uetp.psn", "is nested too deep"),
        ("x" * 70_000, "has 70000 characters"),
    ],
)
def test_what_is_refused(text: str, told: str) -> None:
    with pytest.raises(LocalError, match=told):
        DisplayFilter(text)


def test_a_filter_that_is_no_text() -> None:
    for wrong in (None, 5, b"uetp.psn"):
        with pytest.raises(LocalError, match=r"filter: .* is not legal; legal: a text"):
            parse(wrong)  # type: ignore[arg-type]


def test_what_a_filter_needs() -> None:
    assert not DisplayFilter("uetp.psn == 1 and frame.len > 5").analysed
    assert DisplayFilter("uetp.psn == 1 or uetp.pdc == 2").analysed
    assert not DisplayFilter("uetp.pdc == 2").late
    assert DisplayFilter("uetp.psn == 1 or not uetp.acked_in").late
    assert DisplayFilter("uetp.psn == uetp.msg.first").late


def test_every_field_can_be_read() -> None:
    for row in fields().values():
        for name in FRAMES:
            assert all(value is not None for value in row.read(seen(name))), row.name
        assert DisplayFilter(row.name).names == {row.name}


WORDS = (
    *list(fields())[:12], "uetp.acks", "ip.addr", "frame", "eth.src", "==", "!=", "===", "in", "not", "and", "or", "(",
    ")", "{", "}", "[", "]", "0:2", ",", "..", "any", "all", "contains", "matches", "1", "0x10", "10.0.0.1/8", '"a"',
    "02:00", "&", "~", "!", 'r"x"', "'a'", "-1", "#", "=", "true", "WRITE", "\\", "\u00e9",
)  # fmt: skip


def refused_or(text: str) -> DisplayFilter | None:
    """The filter, or None if it is refused: with a `LocalError` about the filter, and nothing else."""
    try:
        return DisplayFilter(text)
    except LocalError as error:
        return None if error.name == "filter" else DisplayFilter(text)


@examples(400)
@given(st.lists(st.sampled_from(WORDS), max_size=14), st.booleans())
def test_no_text_raises_anything_else(words: list[str], spaced: bool) -> None:
    wanted = refused_or((" " if spaced else "").join(words))
    for name in FRAMES if wanted is not None else ():
        assert wanted is None or wanted.matches(seen(name)) in (True, False)


@examples(200)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    assert refused_or(text) is None or text.strip()


def test_negation_is_the_rest() -> None:
    rng = Random(5)
    names = [row.name for row in fields().values() if row.kind == "uint"]
    for _ in range(200):
        text = f"{rng.choice(names)} {rng.choice(('==', '!=', '<', '~='))} {rng.randrange(2)}"
        wanted = set(holds(text).split())
        assert set(holds(f"not ({text})").split()) == set(FRAMES) - wanted


def test_layers_that_come_twice() -> None:
    """Any and all values of a packet with two VLAN tags."""
    tagged = decode(bytes.fromhex("02000a00000202000a000001810000058100000988b50000"))
    assert [one.form for one in tagged.layers].count("vlan") == 2
    record = Record(0, 0, b"", 0, 0, 1, 0, None)
    packet = FilteredPacket(record, tagged, {}, 0, 0, "")
    for text, wanted in (
        ("vlan.id == 9", True), ("vlan.id === 9", False), ("vlan.id != 9", False), ("vlan.id ~= 9", True),
        ("all vlan.id > 4", True), ("vlan.id in {5, 9}", True), ("all vlan.id in {5}", False),
    ):  # fmt: skip
        assert DisplayFilter(text).matches(packet) is wanted, text
    assert layer("vlan").form == "vlan"
