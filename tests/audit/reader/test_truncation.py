# SPDX-License-Identifier: GPL-2.0-only
"""RoCE packets that end before they say so: wrong, or cut by a capture that forgot how long they were."""

import random

import pytest

from tests.support.audit import frames as f
from tests.support.wire.roce_frames import frame_of
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.wire import tracker as tracker_wire
from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.capture.pcap import ERF, ETHERNET, INFINIBAND
from uetproto.wire.headers.roce import BthOpcode
from uetproto.wire.stack import decode

RULES = ("ROCE-ICRC", "ROCE-LENGTH")
LONG = [f.roce(f.changed(f.BTH, opcode=0x07, psn=psn), payload=bytes(1024)) for psn in range(3)]
"""The MIDDLE of a WRITE."""
LINK = {"ipv4": ETHERNET, "ipv6": ETHERNET, "v1": ETHERNET, "local": INFINIBAND, "global": INFINIBAND}
BTH_AT = {"ipv4": 42, "ipv6": 62, "v1": 54, "local": 8, "global": 48}
FIELD = {
    "ipv4": "ipv4.total_length", "ipv6": "ipv6.payload_length", "v1": "grh.paylen", "local": "lrh.pktlen",
    "global": "lrh.pktlen",
}  # fmt: skip


def report_of(frames: list[bytes], link: int = ETHERNET, **options: object) -> AuditReport:
    return audit([f.capture(frames, link)], Options(rules=RULES, **options))  # type: ignore[arg-type]


def counts(report: AuditReport) -> dict[str, tuple[int, int, int]]:
    """How many were judged, failed, and were cut off."""
    return {
        name: (tally.judged, tally.failed, tally.not_judged["cut by the capture"])
        for name, tally in report.tallies.items()
    }


def example(kind: str) -> bytes:
    return frame_of(BthOpcode["RC_SEND_ONLY"], random.Random(3), kind, size=64, padcnt=0)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_one_is_short_where_more_was_kept_of_another(at: int) -> None:
    """Be it before or behind."""
    report = report_of([*LONG[:at], LONG[0][:300], *LONG[at:]])
    assert f.found(report) == [("ROCE-LENGTH", at)]
    assert counts(report) == {"ROCE-ICRC": (3, 0, 0), "ROCE-LENGTH": (4, 1, 0)}
    (finding,) = report.findings
    missing = len(LONG[0]) - 300
    assert finding.seen == f"ipv4.total_length: the packet ends {missing} bytes earlier"
    assert finding.flow == {"src": "10.0.0.1", "dst": "10.0.0.2", "destqp": 18}


def test_any_packet_is_longer_of_whatever_protocol() -> None:
    tcp = f.frame(f.MAC, f.changed(f.V4, protocol=6), payload=bytes(300), trailer=None)
    assert f.found(report_of([LONG[0][:300], tcp])) == [("ROCE-LENGTH", 0)]


def test_where_all_are_cut_alike_the_capture_did_it() -> None:
    """Real ones do, and write down no other length; what is shorter in them is short."""
    ack = f.roce(*f.ROCE_ACK, payload=b"")
    report = report_of([LONG[0][:300], ack, *[frame[:300] for frame in LONG]])
    assert f.found(report) == []
    assert counts(report) == {"ROCE-ICRC": (1, 0, 4), "ROCE-LENGTH": (1, 0, 4)}
    assert f.found(report_of([LONG[0][:300], ack[:-1], LONG[0][:300]])) == [("ROCE-LENGTH", 1)]


def test_what_a_capture_says_it_cut_is_not_short() -> None:
    kept = f.capture([LONG[0][:300], *LONG], lengths=[len(LONG[0])] * 4)
    report = audit([kept], Options(rules=RULES))
    assert f.found(report) == []
    assert counts(report) == {"ROCE-ICRC": (3, 0, 1), "ROCE-LENGTH": (3, 0, 1)}


def test_padding_of_ethernet_is_not_missing() -> None:
    """Nor is what has it short."""
    small = f.roce(f.changed(f.BTH, opcode=0x04), payload=b"")
    assert len(small) < 60
    report = report_of([small + bytes(60 - len(small)), small, *LONG])
    assert counts(report) == {"ROCE-ICRC": (5, 0, 0), "ROCE-LENGTH": (5, 0, 0)}


@pytest.mark.parametrize("kind", LINK)
def test_cut_anywhere_from_the_bth_on(kind: str) -> None:
    whole = example(kind)
    for end in range(BTH_AT[kind], len(whole) - (2 if LINK[kind] == INFINIBAND else 0)):
        report = report_of([whole, whole[:end]], LINK[kind])
        assert f.found(report) == [("ROCE-LENGTH", 1)], end
        assert report.findings[0].seen.startswith(FIELD[kind])
        assert report.others == 0


@pytest.mark.parametrize("by", [-4, 4])
def test_lengths_that_contradict_each_other_where_no_bth_is_read(by: int) -> None:
    whole = example("global")
    length = int.from_bytes(whole[12:14], "big") + by
    report = report_of([whole, whole[:12] + length.to_bytes(2, "big") + whole[14:]], INFINIBAND)
    assert f.found(report) == [("ROCE-LENGTH", 1)]
    assert report.findings[0].seen == f"grh.paylen {length} and lrh.pktlen contradict"


def erf(packet: bytes, kept: int) -> bytes:
    """A record with so many bytes of a native packet."""
    size = 16 + kept
    return bytes(8) + b"\x15\x04" + size.to_bytes(2, "big") + bytes(2) + len(packet).to_bytes(2, "big") + packet[:kept]


def test_an_erf_record_says_what_there_was() -> None:
    whole = example("local")
    kept = erf(whole, 40)
    assert "truncated" in decode(kept, link="erf").notes
    assert counts(report_of([erf(whole, len(whole)), kept], ERF)) == {"ROCE-ICRC": (1, 0, 1), "ROCE-LENGTH": (1, 0, 1)}
    assert f.found(report_of([erf(whole, len(whole)), erf(whole[:40], 40)], ERF)) == [("ROCE-LENGTH", 1)]


def test_of_too_many_the_first_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_wire, "MOST", 2)
    report = report_of([*[frame[:300] for frame in LONG], LONG[0]])
    assert f.found(report) == [("ROCE-LENGTH", 0), ("ROCE-LENGTH", 1)]
    assert counts(report)["ROCE-LENGTH"] == (3, 2, 1)


def test_a_short_packet_in_a_mirrored_or_keyed_capture() -> None:
    """What was kept of others counts on every way in."""
    keys = KeyRing.read(f.GOLDEN / "gradient-sealed-direct.keys.toml")
    for options in ({"mirror": True}, {"keys": keys}):
        assert f.found(report_of([LONG[0][:300], *LONG], **options)) == [("ROCE-LENGTH", 0)]
