# SPDX-License-Identifier: GPL-2.0-only
"""From captures to packets: CRC by flow, what was cut, sealed packets, copies, damage, vantage points."""

import io
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.audit import frames as f
from tests.support.audit.reader_records import (
    WITHOUT,
)
from uetproto.audit.auditor import audit
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import UNUSED, Reading
from uetproto.audit.report import AuditReport
from uetproto.engine.tss.keys import KeyRing
from uetproto.errors import LocalError
from uetproto.wire.capture.pcap import ETHERNET, PcapngWriter, open_capture
from uetproto.wire.flow_crc import PATIENCE

ALONE = ("WIRE-*", "CAP-*")
"""Rules about each packet alone."""
WRITE = [
    f.frame(*f.LOWER["ipv4"], f.changed(f.REQUEST, psn=psn, clear_psn_offset=-1), f.changed(f.FIRST, message_id=psn))
    for psn in range(7, 47)
]
"""Packets whose headers do not say how much they carry, so that nothing but its value shows a CRC."""
BACK = f.frame(f.MAC, f.changed(f.V4, src=0x0A000002, dst=0x0A000001), f.UDP, f.ACK, f.RESPONSE, payload=b"")


def read(frames: list[bytes], lengths: list[int] | None = None, **options: object) -> list[ObservedPacket]:
    """What the trackers see."""
    seen: list[ObservedPacket] = []
    with open_capture(f.capture(frames, lengths=lengths)) as capture:
        reading = Reading(ETHERNET, Options(**options), seen.append)  # type: ignore[arg-type]
        for record in capture:
            reading.take(record)
    reading.end()
    return seen


def wrong_crcs(frames: list[bytes], **options: object) -> list[int]:
    return [number for rule, number in f.found(f.audited(frames, **options)) if rule == "WIRE-CRC"]


# CRC ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 5, 20, 39])
def test_a_wrong_crc_shows_wherever_its_flow_has_one(at: int) -> None:
    frames = WRITE[:at] + [f.spoilt(WRITE[at])] + WRITE[at + 1 :]
    assert wrong_crcs(frames) == [at]


@pytest.mark.parametrize("at", [0, 20])
def test_a_missing_crc_is_a_wrong_one(at: int) -> None:
    assert wrong_crcs(WRITE[:at] + [WITHOUT[at]] + WRITE[at + 1 :]) == [at]


def test_a_flow_without_crc_has_none_to_be_wrong() -> None:
    assert wrong_crcs(WITHOUT) == []
    assert [seen.size for seen in read(WITHOUT)] == [24] * 40
    assert [seen.number for seen in read(WITHOUT)] == list(range(40))


def test_each_flow_is_decided_alone() -> None:
    back = [BACK, *[f.spoilt(BACK)] * 2]
    frames = [*WITHOUT[:20], *back, *WITHOUT[20:]]
    assert wrong_crcs(frames) == [21, 22]


def test_what_waits_for_a_decision_keeps_its_order() -> None:
    frames = [WITHOUT[0], BACK, WITHOUT[1], BACK, *WITHOUT[2:20], BACK]
    assert [seen.number for seen in read(frames)] == list(range(len(frames)))


def test_packets_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.wire.flow_crc._HELD_TOGETHER", 64)
    waiting: list[int] = []
    reading = Reading(ETHERNET, Options(), lambda seen: waiting.append(seen.number))
    with open_capture(f.capture(WITHOUT * 2)) as capture:
        for record in capture:
            reading.take(record)
    assert len(waiting) >= 64


def take(reading: Reading, frames: list[bytes]) -> None:
    with open_capture(f.capture(frames)) as capture:
        for record in capture:
            reading.take(record)


def test_a_reading_that_goes_on_after_a_rest_knows_its_flows() -> None:
    seen: list[ObservedPacket] = []
    first = Reading(ETHERNET, Options(), seen.append)
    take(first, [WRITE[0], bytes(60)])
    rested = first.rest()
    assert rested is not None
    assert (rested.longest, rested.others) == (len(WRITE[0]), 1)
    for told, trailer in ((rested, False), (UNUSED, None)):
        reading = Reading(ETHERNET, Options(), seen.append, rested=told)
        take(reading, [f.spoilt(WRITE[1])])
        reading.end()
        packet = seen[-1].packet
        found = None if packet is None or packet.trailer is None else packet.trailer.ok
        assert found is trailer


@pytest.mark.parametrize(
    ("frames", "options"),
    [([WITHOUT[0]], {}), ([WRITE[0]], {"mirror": True}), ([f.roce(f.BTH)], {})],
    ids=["a packet waits", "copies are looked for", "RoCE"],
)
def test_a_reading_that_holds_more_does_not_rest(frames: list[bytes], options: dict[str, bool]) -> None:
    reading = Reading(ETHERNET, Options(**options), lambda seen: None)  # type: ignore[arg-type]
    take(reading, frames)
    assert reading.rest() is None


SHOWN = [
    f.spoilt(f.frame(*f.LOWER["ipv4"], f.changed(f.REQUEST, psn=psn), f.changed(f.WRITE, message_id=psn)))
    for psn in range(7, 7 + PATIENCE)
]
"""The headers say how much they carry: the four bytes behind are a CRC, a wrong one."""


@pytest.mark.parametrize(("shown", "there"), [(PATIENCE // 2, True), (PATIENCE // 2 - 1, False)])
def test_where_half_of_the_packets_show_a_crc_there_is_one(shown: int, there: bool) -> None:
    frames = WITHOUT[: PATIENCE - shown] + SHOWN[:shown]
    assert wrong_crcs(frames) == (list(range(PATIENCE)) if there else [])
    assert wrong_crcs(frames[1:]) == (list(range(PATIENCE - 1)) if there else [])  # the end decides, too
    trailers = [seen.packet.trailer if seen.packet is not None else None for seen in read(frames)]
    assert [trailer is not None for trailer in trailers] == [there] * PATIENCE


def test_a_right_crc_decides_however_late_it_comes() -> None:
    """The first packets, which lack one, wait for it."""
    for number in (PATIENCE - 1, PATIENCE, PATIENCE + 20):
        assert wrong_crcs([*WITHOUT[:number], WRITE[0]]) == list(range(number))


def test_the_option_decides_where_it_is_given() -> None:
    assert wrong_crcs(WITHOUT, crc="on") == list(range(40))
    assert wrong_crcs([f.spoilt(WRITE[0]), *WRITE[1:]], crc="off") == []


def longer(frame: bytes, extra: bytes) -> bytes:
    """IP carries more than UDP says."""
    length = int.from_bytes(frame[16:18], "big") + len(extra)
    return frame[:16] + length.to_bytes(2, "big") + frame[18:] + extra


@pytest.mark.parametrize("lower", ["ipv6", "vlan", "two vlans, ipv6", "native", "native ipv6"])
def test_where_a_crc_begins_and_ends(lower: str) -> None:
    """It covers another part of each network header."""
    frames = [f.frame(*f.LOWER[lower], f.changed(f.REQUEST, psn=psn), f.FIRST) for psn in range(20)]
    assert wrong_crcs([*frames[:5], f.spoilt(frames[5]), *frames[6:]]) == [5]


def test_a_crc_ends_with_udp() -> None:
    frames = [longer(frame, bytes(4)) for frame in WRITE[:20]]
    assert wrong_crcs([*frames[:5], f.spoilt(frames[5], -5), *frames[6:]]) == [5]


@pytest.mark.parametrize("lower", ["native", "native ipv6"])
@pytest.mark.parametrize("size", [1, 9])
def test_what_cannot_be_read_is_uet_all_the_same(lower: str, size: int) -> None:
    """IP says so."""
    report = f.audited([f.frame(*f.LOWER[lower], payload=b"" * size, trailer=None)], rules=ALONE)
    assert (report.others, f.found(report)) == (0, [("WIRE-LENGTH", 0)])


def test_an_ack_with_a_reserved_bit_is_no_ack_of_a_later_revision() -> None:
    """Its CRC is right, and stands where that one has another field."""
    ack = f.frame(f.MAC, f.V4, f.UDP, f.changed(f.ACK, next_hdr=0, rsvd=1), payload=b"")
    found = f.found(f.audited([ack, f.spoilt(ack), ack], rules=ALONE))
    assert found == [("WIRE-RESERVED-BIT", 0), ("WIRE-CRC", 1), ("WIRE-RESERVED-BIT", 2)]


ROCE = [f.roce(f.changed(f.BTH, psn=psn)) for psn in range(4)]
ELSEWHERE = [
    f.frame(f.MAC, f.changed(f.V4, src=0x0A000007), f.ROCE_UDP, f.changed(f.BTH, psn=psn), trailer=f.ICRC)
    for psn in range(2)
]


@pytest.mark.parametrize(("others", "wrong"), [(ROCE, [4]), ([f.spoilt(frame) for frame in ROCE], [])])
def test_an_icrc_is_judged_if_the_capture_changed_no_others(others: list[bytes], wrong: list[int]) -> None:
    """Though between these two none is right."""
    report = f.audited([*others, f.spoilt(ELSEWHERE[0])], rules=("ROCE-ICRC",))
    assert f.found(report) == [("ROCE-ICRC", number) for number in wrong]


ICRC_BACK = [f.frame(f.MAC, f.changed(f.V4, src=0x0A000002, dst=0x0A000001), f.ROCE_UDP, *f.ROCE_ACK, payload=b"",
                trailer=f.ICRC)]  # fmt: skip
SPOILT_ICRCS = [f.spoilt(f.roce(f.changed(f.BTH, psn=psn))) for psn in range(40)]


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (
            [*SPOILT_ICRCS, *(f.spoilt(frame) for frame in ICRC_BACK)],
            [("ROCE-ICRC-CAPTURE", 0), ("ROCE-ICRC-CAPTURE", 40)],
        ),
        ([*SPOILT_ICRCS, *ELSEWHERE], [("ROCE-ICRC-SENDER", 0)]),
        ([*ELSEWHERE, *SPOILT_ICRCS], [("ROCE-ICRC-SENDER", 2)]),
        ([*SPOILT_ICRCS, *ICRC_BACK], [("ROCE-ICRC-SENDER", 0)]),
        ([*SPOILT_ICRCS[:20], *ROCE, SPOILT_ICRCS[20]], [("ROCE-ICRC-SENDER", 0), ("ROCE-ICRC", 24)]),
        ([*SPOILT_ICRCS[:5], *ELSEWHERE], [("ROCE-ICRC", number) for number in range(5)]),
        ([*ELSEWHERE, *ROCE], []),
    ],
    ids=["all", "one sender", "others first", "its peer is right", "right later", "few", "none"],
)
def test_wrong_icrcs_are_never_silent(frames: list[bytes], found: list[tuple[str, int]]) -> None:
    """A warning for each sender if the capture may have changed all packets, an error where it did not."""
    report = f.audited(frames, rules=("ROCE-ICRC*",))
    assert f.found(report) == found


def test_icrcs_are_judged_if_the_capture_is_said_to_have_them() -> None:
    wrong = [f.spoilt(frame) for frame in ROCE]
    assert f.found(f.audited(wrong, rules=("ROCE-ICRC",))) == []
    assert f.found(f.audited(wrong, rules=("ROCE-ICRC",), crc="on")) == [("ROCE-ICRC", n) for n in range(len(wrong))]


def test_a_packet_with_a_wrong_crc_is_not_followed() -> None:
    report = f.audited([WRITE[0], f.spoilt(WRITE[0], 60), WRITE[0]], rules=(*ALONE, "PDS-PSN-*"))
    assert f.found(report) == [("WIRE-CRC", 1)]


# What is not there ----------------------------------------------------------------------------------------------------


def test_what_the_capture_cut_off_is_unknown() -> None:
    frames = [WRITE[0], WRITE[1][:70], WRITE[2][:100]]
    lengths = [len(each) for each in WRITE[:3]]
    seen = read(frames, lengths)
    assert [(each.size, each.content is None) for each in seen] == [(24, False), (-1, True), (-1, True)]
    assert f.found(audit([f.capture(frames, lengths=lengths)], Options(rules=ALONE))) == []


CUT = "cut by the capture"
AT_THE_END = ("WIRE-CRC", "WIRE-LENGTH", "ROCE-ICRC", "ROCE-LENGTH")


def cut(frames: Iterable[bytes], snaplen: int, **options: object) -> AuditReport:
    """What an audit says if that is all that was kept of each frame."""
    frames = list(frames)
    kept = f.capture([frame[:snaplen] for frame in frames], lengths=list(map(len, frames)))
    return audit([kept], Options(**options))  # type: ignore[arg-type]


def at_the_end(report: AuditReport) -> dict[str, tuple[int, int]]:
    """Of the rules that need all of a packet: how many there were, and how many were cut off."""
    return {name: (report.tallies[name].asked, report.tallies[name].not_judged[CUT]) for name in AT_THE_END}


@pytest.mark.parametrize("snaplen", [54, 60, 66, 70, 86, 100, 128, 200])
@pytest.mark.parametrize(
    "name", ["gradient", "gradient-native-v6", "gradient-nocrc", "gradient-sealed-direct", "incast-roce", "ses-read"]
)
def test_what_was_cut_off_is_counted(name: str, snaplen: int) -> None:
    """As much as where nothing was cut, whichever way the packets took."""
    frames = f.frames_of(f"{name}.pcapng") * 3
    short = {number for number, frame in enumerate(frames) if len(frame) <= snaplen}
    whole, some = at_the_end(cut(frames, 1 << 16)), at_the_end(cut(frames, snaplen))
    if name == "gradient-nocrc" and not short:
        assert some.pop("WIRE-CRC") == (len(frames), len(frames))  # nobody knows that there is none
        del whole["WIRE-CRC"]
    assert {rule: asked for rule, (asked, _) in some.items()} == {rule: asked for rule, (asked, _) in whole.items()}
    for rule, (asked, lost) in some.items():
        assert lost == (len(frames) - len(short) if asked else 0), rule


def test_what_was_cut_off_in_front_of_the_headers_is_counted() -> None:
    assert at_the_end(cut([*WRITE[:3], *ROCE], 45)) == {
        "WIRE-CRC": (3, 3), "WIRE-LENGTH": (3, 3), "ROCE-ICRC": (4, 4), "ROCE-LENGTH": (4, 4),
    }  # fmt: skip


def test_a_crc_that_is_not_there_is_not_cut_off() -> None:
    frames = [*WITHOUT[:20], f.frame(*f.LOWER["ipv4"], f.REQUEST, f.FIRST, payload=bytes(500), trailer=None)]
    assert at_the_end(cut(frames, 200))["WIRE-CRC"] == (0, 0)
    assert at_the_end(cut(WRITE, 70, crc="off"))["WIRE-CRC"] == (0, 0)
    assert at_the_end(cut(frames, 200, crc="on"))["WIRE-CRC"] == (21, 1)


def test_what_a_switch_trimmed_was_not_cut_off_by_the_capture() -> None:
    trimmed = f.frame(f.MAC, f.changed(f.V4, dscp=16), f.UDP, f.REQUEST, f.FIRST, trailer=None)
    assert at_the_end(cut([*WRITE[:3], trimmed], 70))["WIRE-LENGTH"] == (3, 3)


def test_other_protocols_are_counted() -> None:
    tcp = f.frame(f.MAC, f.changed(f.V4, protocol=6), payload=bytes(40), trailer=None)
    report = f.audited([tcp, WRITE[0], bytes(60)], rules=ALONE)
    assert (report.packets, report.others, f.found(report)) == (3, 2, [])


# Sealed ---------------------------------------------------------------------------------------------------------------


def test_sealed_packets_are_opened_with_keys() -> None:
    keys = KeyRing.read(f.GOLDEN / "gradient-sealed-direct.keys.toml")
    closed = read(f.frames_of("gradient-sealed-direct.pcapng"))
    opened = read(f.frames_of("gradient-sealed-direct.pcapng"), keys=keys)
    plain = [seen for seen in opened if seen.head.form.startswith("pds.")]
    assert {seen.head.form for seen in closed} <= {"tss", "tss.ssi"}
    assert [seen.number for seen in plain] == [seen.number for seen in closed]
    assert all(seen.packet is None for seen in plain)


def test_what_was_sealed_is_judged_like_any_other_packet() -> None:
    keys = KeyRing.read(f.GOLDEN / "gradient-sealed-direct.keys.toml")
    frames = f.frames_of("gradient-sealed-direct.pcapng")
    report = f.audited(frames, keys=keys)
    assert f.found(report) == []
    judged = {rule: report.tallies[rule].judged for rule in ("WIRE-CRC", "PDS-NEXT-HDR", "WIRE-RESERVED-BIT")}
    assert judged == {"WIRE-CRC": 0, "PDS-NEXT-HDR": len(frames) - 1, "WIRE-RESERVED-BIT": 2 * len(frames)}


def test_packets_that_no_key_opens_are_counted() -> None:
    keys = KeyRing.read(f.GOLDEN / "gradient-sealed-direct.keys.toml")
    frames = f.frames_of("gradient-sealed-direct.pcapng")
    report = f.audited([*frames[:-1], f.spoilt(frames[-1])], keys=keys)
    assert report.unopened.total() == 1


# Mirror ports ---------------------------------------------------------------------------------------------------------


def test_copies_of_mirror_ports_are_one_packet() -> None:
    other_way = f.frame(
        f.changed(f.MAC, type=0x8100), f.Layer("vlan", {"vid": 9, "type": 0x0800}), f.changed(f.V4, ttl=61, ecn=3),
        f.UDP, f.changed(f.REQUEST, psn=7, clear_psn_offset=-1), f.changed(f.FIRST, message_id=7), raw=bytes(3),
    )  # fmt: skip
    retransmitted = f.frame(*f.LOWER["ipv4"], f.changed(f.REQUEST, psn=7, retx=1), f.changed(f.FIRST, message_id=7))
    frames = [WRITE[0], other_way, retransmitted]
    assert [seen.number for seen in read(frames, mirror=True)] == [0, 2]
    assert [seen.number for seen in read(frames)] == [0, 1, 2]
    assert f.audited(frames, mirror=True).copies == 1


def test_what_is_equal_much_later_is_no_copy() -> None:
    frames = [WRITE[0]] + [WRITE[psn] for psn in range(1, 40)] * 30 + [WRITE[0]]
    assert read(frames, mirror=True)[-1].number == len(frames) - 1


# Captures -------------------------------------------------------------------------------------------------------------


def test_damage_is_a_finding_and_the_rest_is_audited() -> None:
    data = bytearray(f.capture(WRITE[:20]).getvalue())
    at = 24 + 5 * (16 + len(WRITE[0]))
    data[at : at + 16] = b"\xff" * 16
    report = audit([io.BytesIO(bytes(data))], Options(rules=ALONE))
    assert [rule for rule, _ in f.found(report)] == ["CAP-DAMAGED"]
    assert report.packets == 19
    assert report.findings[0].packet == 5
    assert report.findings[0].seen.startswith(f"before #6, at byte {at}: ")


@pytest.mark.parametrize("whole", [20, 1, 0])
def test_behind_the_last_packet_a_capture_ends(whole: int) -> None:
    """That packet is whole."""
    at = 24 + whole * (16 + len(WRITE[0]))
    data = f.capture(WRITE[: whole + 1]).getvalue()[: at + 30]
    report = audit([io.BytesIO(data)], Options(rules=ALONE))
    last = max(0, whole - 1)
    assert (report.packets, f.found(report)) == (whole, [("CAP-DAMAGED", last)])
    where = f"behind #{last + 1}, at byte {at}: " if whole else f"at byte {at}: "
    assert report.findings[0].seen.startswith(where)


def test_interfaces_are_vantage_points_of_their_own() -> None:
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        for name in ("left", "right"):
            writer.add_interface(name)
        for number, data in enumerate(WRITE[:4]):
            for interface in (0, 1):
                writer.write(number * 1_000 + interface, f.spoilt(data) if number == 2 else data, interface=interface)
    file.seek(0)
    report = audit([file], Options(rules=ALONE))
    assert [interface for _, interface in report.vantages] == ["left", "right"]
    assert f.found(report) == [("WIRE-CRC", 4)]
    assert [place[1] for place in report.findings[0].places] == ["right"]
    assert report.tallies["WIRE-CRC"].judged == 8


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = f.capture(WRITE[:3])

    monkeypatch.setattr(sys, "stdin", Input)
    assert audit(["-"], Options()).packets == 3


def test_progress_is_told() -> None:
    told: list[int] = []
    audit([f.capture([WRITE[0]] * 10_000)], Options(rules=("WIRE-*",)), told.append)
    assert told == sorted(told)
    assert len(told) > 1


@pytest.mark.parametrize("options", [Options(rules=("NO-SUCH",)), Options(personality="nobody")])
def test_unknown_names_list_the_known(options: Options) -> None:
    with pytest.raises(LocalError, match=r"WIRE-CRC|refprov"):
        audit([f.capture(WRITE[:1])], options)


def test_no_capture_is_misuse(tmp_path: Path) -> None:
    path = tmp_path / "text.pcap"
    path.write_text("no capture")
    with pytest.raises(LocalError):
        audit([path], Options())
