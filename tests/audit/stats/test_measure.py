# SPDX-License-Identifier: GPL-2.0-only
"""Measurements: against hand-made captures whose every number is known, and against what the emulator counted."""

import json
import random
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit.build import GOLDEN, A, B, PdsAudit, head, packet
from tests.support.cli.frames import ARP, ack, close, frame, invoke, layer, nack, trimmed, write
from tests.support.wire.odd_times import shifted
from uetproto import Layer, Packet, Trailer, decode, encode
from uetproto.audit.reader.options import Options
from uetproto.audit.roce.tracker_state import SILENCE
from uetproto.audit.stats.flow import MESSAGES, NOTES, FlowMeter
from uetproto.audit.stats.measure import Measure, Measures, measure
from uetproto.audit.stats.message import MessageMeter
from uetproto.audit.stats.meters import Measurements, Meters
from uetproto.audit.stats.rows import FlowRow, MessageRow
from uetproto.audit.stats.times import Times, middle
from uetproto.audit.stats.trace import MOST, Series, Trace
from uetproto.wire.capture.pcap import open_capture, open_writer
from uetproto.wire.headers.roce import Nak, Operation

PSN = 73728
PLAIN = Options()

# Times ----------------------------------------------------------------------------------------------------------------


def exact(values: list[int], part: float) -> int:
    ordered = sorted(values)
    return ordered[max(0, -(-int(part * 1000) * len(ordered) // 1000) - 1)]


@pytest.mark.parametrize("largest", [100, 10**4, 10**9, 1 << 60])
def test_quantiles_are_exact_to_one_percent(largest: int) -> None:
    rng = random.Random(largest)
    values = [int(largest ** rng.random()) for _ in range(5_000)]
    times = Times()
    for value in values:
        times.add(value)
    found = times.quantiles()
    for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        true = exact(values, part)
        assert abs(getattr(found, name) - true) <= true / 100, name
    assert (found.count, found.max) == (5_000, max(values))
    assert len(times.buckets) < 64 * 61


def test_the_middle_of_a_bucket_is_in_it() -> None:
    for value in (*range(1_000), *(3**n for n in range(40))):
        times = Times()
        times.add(value)
        (bucket,) = times.buckets
        assert abs(middle(bucket) - value) <= value / 100
        assert times.quantile(0.5) == value  # alone: between smallest and largest


def test_two_histograms_together_are_one() -> None:
    rng = random.Random(1)
    values = [rng.randrange(10**6) for _ in range(2_000)]
    parts, whole = [Times(), Times(), Times()], Times()
    for number, value in enumerate(values):
        parts[number % 2].add(value)
        whole.add(value)
    parts[2].merge(parts[0])
    parts[2].merge(parts[1])
    parts[2].merge(Times())
    assert parts[2].quantiles() == whole.quantiles()
    assert parts[2].min == min(values)
    assert parts[2].curve() == whole.curve()
    assert whole.curve()[-1][1] == 1


def test_no_time_is_no_time() -> None:
    assert Times().quantiles().as_dict() == {"count": 0, "p50_ns": 0, "p90_ns": 0, "p99_ns": 0, "max_ns": 0}
    assert Times().curve() == []


# One PDC, by hand -----------------------------------------------------------------------------------------------------


class Wire:
    """A capture in which every time is said."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def there(self, time_ns: int, *layers: Any, payload: int = 1024, cut: int = 0, dscp: int = 8) -> "Wire":
        data = frame(1, 2, *layers, payload=bytes(payload), dscp=dscp)
        self.frames.append((time_ns, trimmed(data, cut) if cut else data))
        return self

    def back(self, time_ns: int, *layers: Any, payload: int = 0) -> "Wire":
        self.frames.append((time_ns, frame(2, 1, *layers, payload=bytes(payload))))
        return self

    def measured(self, path: Path, snap: int = 65_535, **how: Any) -> Measurements:
        file = path / "wire.pcap"
        with open_writer(file) as writer:
            for time_ns, data in self.frames:
                writer.write(time_ns, data[:snap], length=len(data))
        (found,) = measure([file], PLAIN, **how)[1]
        return found


def forward(measured: Measurements) -> FlowRow:
    """The row of what 10.0.0.1 sent."""
    (row,) = [row for row in measured.flows.kept if row.flow["src"] == "10.0.0.1"]
    assert isinstance(row, FlowRow)
    return row


def three() -> Wire:
    """A WRITE of three packets, and an ACK each."""
    wire = Wire()
    for number in range(3):
        wire.there(1_000 + 100 * number, *write(PSN + number, 1024 * number, total=3072, syn=1))
    for number in range(3):
        wire.back(5_000 + 1_000 * number, *ack(PSN + number))
    return wire


def test_a_write(tmp_path: Path) -> None:
    wire = three()
    measured = wire.measured(tmp_path)
    row = forward(measured)
    sent = sum(len(data) for _, data in wire.frames[:3])
    assert (row.packets, row.bytes, row.payload, row.acks) == (3, sent, 3072, 3)
    assert (row.first_ns, row.last_ns) == (1_000, 7_000)
    assert row.goodput == 3072 * 8 * 10**9 // 6_000
    assert row.window == (3, 3072)
    assert (row.resent, row.refused, row.duplicates, row.trimmed, row.reordered) == ({}, {}, 0, 0, 0)
    # 4,000, 4,900 and 5,800 ns
    assert (row.answered.count, row.answered.max) == (3, 5_800)
    assert row.answered.p50 == pytest.approx(4_900, rel=0.01)
    (message,) = measured.messages.kept
    assert isinstance(message, MessageRow)
    assert (message.opcode, message.message_id, message.psn, message.length) == ("WRITE", 1, PSN, 3072)
    assert (message.packets, message.bytes, message.payload, message.latency) == (3, sent, 3072, 6_000)
    assert message.goodput == 3072 * 8 * 10**9 // 6_000
    assert measured.latency_of("WRITE").max == 6_000
    assert measured.packets == 6
    assert measured.bytes == sum(len(data) for _, data in wire.frames)
    assert measured.kinds == {"pds.rod_req.syn": 3, "pds.ack": 3}


def test_what_the_capture_kept_of_a_packet_does_not_matter(tmp_path: Path) -> None:
    whole, cut = three().measured(tmp_path), three().measured(tmp_path, snap=120)
    assert forward(cut) == forward(whole)
    assert cut.messages.kept == whole.messages.kept


def test_one_ack_can_cover_all(tmp_path: Path) -> None:
    wire = three()
    wire.frames = [wire.frames[0], wire.frames[1], wire.frames[2], wire.frames[5]]
    row = forward(wire.measured(tmp_path))
    assert (row.acks, row.answered.count, row.answered.max) == (1, 3, 6_000)
    assert row.latency.max == 6_000


def test_without_an_ack_no_window_and_no_latency(tmp_path: Path) -> None:
    wire = three()
    wire.frames = wire.frames[:3]
    measured = wire.measured(tmp_path)
    row = forward(measured)
    assert (row.window, row.answered.count, row.latency.count) == (None, 0, 0)
    assert measured.messages.kept[0].latency is None
    assert row.messages == 1


def test_a_message_without_its_end_has_no_latency(tmp_path: Path) -> None:
    wire = three()
    del wire.frames[2], wire.frames[-1]
    assert wire.measured(tmp_path).messages.kept[0].latency is None


def test_a_sack_answers(tmp_path: Path) -> None:
    wire = Wire()
    for number in range(5):
        wire.there(1_000, *write(PSN + number, 1024 * number, total=5120, syn=1))
    form = {"cc_type": 0, "mpr": 8, "sack_psn_offset": 1}
    state = layer("pds.cc_state.nscc")
    sack = [layer("pds.ack_cc", next_hdr=0, cack_psn=PSN, spdcid=9, dpdcid=5, sack_bitmap=0b1110, **form), state]
    wire.back(3_000, *sack)
    wire.back(9_000, *ack(PSN + 4))
    row = forward(wire.measured(tmp_path))
    # PSN and three from PSN + 2 on at once, PSN + 1 with the last ACK
    assert row.answered.count == 5
    assert row.answered.p50 == pytest.approx(2_000, rel=0.01)
    assert row.answered.max == 8_000
    assert row.window == (5, 5120)


def test_the_window_is_what_is_open_at_a_time(tmp_path: Path) -> None:
    wire = Wire()
    for number in range(6):
        wire.there(1_000 * number, *write(PSN + number, 1024 * number, total=6144, syn=1))
        if number > 1:
            wire.back(1_000 * number + 500, *ack(PSN + number - 1))
    assert forward(wire.measured(tmp_path)).window == (3, 3072)


def test_latency_begins_with_the_first_packet_of_the_message(tmp_path: Path) -> None:
    """Not with the packet that was seen first."""
    wire = Wire()
    for place, number in enumerate((1, 0, 2)):
        wire.there(1_000 * place, *write(PSN + number, 1024 * number, total=3072, syn=1))
    wire.back(9_000, *ack(PSN + 2))
    (message,) = wire.measured(tmp_path).messages.kept
    assert (message.first_ns, message.latency) == (1_000, 8_000)


@pytest.mark.parametrize(
    ("order", "late", "depth"),
    [([0, 1, 2, 3, 4], 0, 0), ([0, 3, 1, 2, 4], 2, 2), ([0, 4, 3, 2, 1], 3, 3), ([0, 2, 1, 4, 3], 2, 1)],
)
def test_reordering_is_counted_by_psn(order: list[int], late: int, depth: int, tmp_path: Path) -> None:
    wire = Wire()
    for place, number in enumerate(order):
        wire.there(1_000 * place, *write(PSN + number, 1024 * number, total=5120, syn=1))
    row = forward(wire.measured(tmp_path))
    assert (row.reordered, row.depth) == (late, depth)
    assert row.resent == {}


def _again(wire: Wire, time_ns: int, number: int) -> None:
    wire.there(time_ns, *write(PSN + number, 1024 * number, total=3072, syn=1, retx=1))


def _nacked(wire: Wire, code: int, number: int, payload: int = 0) -> None:
    refusal = layer("pds.nack", nack_code=code, nack_psn=PSN + number, nack_payload=payload, spdcid=9, dpdcid=5)
    wire.back(4_000, refusal)


def cause_nack(wire: Wire) -> None:
    _nacked(wire, 0x01, 2)
    _again(wire, 4_500, 2)


def cause_unknown_code(wire: Wire) -> None:
    _nacked(wire, 0x40, 2)
    _again(wire, 4_500, 2)


def cause_go_back(wire: Wire) -> None:
    """Refused is PSN 2, wanted PSN 1: both come again, though no NACK names PSN 1."""
    wire.back(4_000, nack(PSN + 2, PSN + 1))
    _again(wire, 4_500, 1)
    _again(wire, 4_600, 2)


def cause_after_go_back(wire: Wire) -> None:
    """The second retransmission comes behind the NACK's own: it is another one's."""
    cause_go_back(wire)
    _again(wire, 1_000_000, 2)


def cause_timer(wire: Wire) -> None:
    _again(wire, 1_000_000, 2)


def cause_unseen(wire: Wire) -> None:
    del wire.frames[2]
    _again(wire, 1_000_000, 2)


def cause_trimmed(wire: Wire) -> None:
    wire.frames[2] = (1_200, trimmed(wire.frames[2][1], 150))
    _again(wire, 1_000_000, 2)


def cause_none(wire: Wire) -> None:
    """The network made a copy."""
    wire.frames.append((1_300, wire.frames[2][1]))


@pytest.mark.parametrize(
    ("happens", "resent"),
    [
        (cause_nack, {"NACK TRIMMED": 1}), (cause_unknown_code, {"NACK 0x40": 1}), (cause_go_back, {"NACK ROD_OOO": 2}),
        (cause_after_go_back, {"NACK ROD_OOO": 2, "RTO?": 1}), (cause_timer, {"RTO?": 1}),
        (cause_unseen, {"unknown": 1}), (cause_trimmed, {"trimmed": 1}), (cause_none, {}),
    ],
)  # fmt: skip
def test_causes(happens: Any, resent: dict[str, int], tmp_path: Path) -> None:
    wire = Wire()
    wire.frames = three().frames[:3]
    happens(wire)
    wire.back(2_000_000, *ack(PSN + 2))
    measured = wire.measured(tmp_path)
    row = forward(measured)
    assert row.resent == resent
    assert measured.flows.resent == resent
    assert measured.messages.kept[0].resent == resent
    assert row.duplicates == (happens is cause_none)
    assert row.trimmed == (happens is cause_trimmed)
    assert row.payload == 3072  # each packet once
    assert row.packets == 3 + sum(resent.values()) + row.duplicates - (happens is cause_unseen)
    # Nobody knows which copy an ACK answers.
    seen_once = {cause_go_back: 1, cause_after_go_back: 1, cause_none: 3}.get(happens, 2)
    assert row.answered.count == seen_once


def test_marks_and_closing(tmp_path: Path) -> None:
    wire = three()
    wire.there(8_000, close(PSN + 3), payload=0).back(9_000, layer("pds.ack", cack_psn=PSN + 3, spdcid=9, dpdcid=5))
    row = forward(wire.measured(tmp_path))
    assert (row.packets, row.acks, row.payload) == (4, 4, 3072)
    assert (row.last_ns, row.busy_ns) == (9_000, 7_000)
    assert row.goodput == 3072 * 8 * 10**9 // 6_000  # the close has no payload, and takes no part


def test_two_interfaces_are_two(tmp_path: Path) -> None:
    wire = three()
    file = tmp_path / "two.pcapng"
    with open_writer(file, interfaces=(("a", 1), ("b", 1))) as writer:
        writer.write(0, ARP, interface=0)
        for time_ns, data in wire.frames:
            writer.write(time_ns, data, interface=0)
            writer.write(time_ns + 10, data, interface=1)
    report, both = measure([file], PLAIN)
    assert [(one.interface, one.packets, len(one.flows.kept)) for one in both] == [("a", 6, 1), ("b", 6, 1)]
    assert report.others == 1
    for wanted in ("b", "1"):
        (only,) = measure([file], PLAIN, interface=wanted)[1]
        assert only.interface == "b"
    assert measure([file], PLAIN, interface="c")[1] == []


def test_only_one_pdc(tmp_path: Path) -> None:
    wire = three()
    for wanted, rows in ((5, 1), (9, 1), (6, 0)):
        measured = wire.measured(tmp_path, number=wanted)
        assert (len(measured.flows.kept), len(measured.messages.kept)) == (rows, rows)
        assert measured.unwanted == (set() if rows else {5, 9})


# Reads, RUDI, RoCE: goldens -------------------------------------------------------------------------------------------


def golden(name: str) -> Measurements:
    (found,) = measure([GOLDEN / f"{name}.pcapng"], PLAIN)[1]
    return found


def test_a_read_ends_with_its_data() -> None:
    measured = golden("ses-read")
    (message,) = measured.messages.kept
    last = _last_time("ses-read", "pds.rod_req")
    assert (message.opcode, message.length, message.payload, message.latency) == ("READ", 12288, 12288, last)
    there, back = sorted(measured.flows.kept, key=lambda row: row.flow["src"])
    assert (there.payload, there.packets, back.payload, back.packets) == (0, 4, 12288, 3)  # and the close


def test_rudi() -> None:
    measured = golden("ses-rudi-read")
    (row,) = measured.flows.kept
    assert (row.kind, row.packets, row.acks, row.returned, row.reordered) == ("rudi", 3, 3, 10_000, 0)
    (message,) = measured.messages.kept
    assert (message.opcode, message.payload) == ("READ", 10_000)
    assert message.latency == _last_time("ses-rudi-read", "pds.rudi_resp")


def test_datagrams_are_only_counted() -> None:
    (row,) = golden("ses-datagram-send").flows.kept
    assert (row.kind, row.packets, row.payload, row.window, row.goodput) == ("uud", 1, 1_000, None, None)


def test_roce() -> None:
    measured = golden("gradient-roce")
    there, back = sorted(measured.flows.kept, key=lambda row: -row.packets)
    assert (there.kind, there.packets, there.payload, there.acks, there.window) == ("qp", 3, 12288, 1, (3, 12288))
    assert (back.packets, back.payload, back.acks) == (1, 0, 0)
    (message,) = measured.messages.kept
    assert (message.opcode, message.length, message.latency) == (
        "RDMA_WRITE",
        12288,
        _last_time("gradient-roce", "bth"),
    )


def test_times_before_the_epoch(tmp_path: Path) -> None:
    frames = [frame(1, 2, *write(PSN + number, 0, syn=1), payload=bytes(1024)) for number in range(2)]
    (measured,) = measure([shifted(tmp_path / "a.pcapng", -5, frames)], PLAIN)[1]
    assert (measured.first_ns, measured.last_ns) == (-5 * 10**9, -5 * 10**9 + 1_000)


def test_payload_of_datagrams_belongs_to_the_flow_itself() -> None:
    """A UD packet is no part of a message that is measured: its payload is counted packet by packet."""
    with open_capture(GOLDEN / "roce-ud-send.pcapng") as capture:
        payload = sum(len(decode(record.data).payload) for record in capture)
    assert sum(row.payload for row in golden("roce-ud-send").flows.kept) == payload > 0


def test_roce_reads() -> None:
    measured = golden("roce-read-several")
    reads = [message for message in measured.messages.kept if message.opcode == "RDMA_READ_REQUEST"]
    assert reads
    assert all(message.payload == message.length and message.latency for message in reads)
    assert sum(row.payload for row in measured.flows.kept) >= sum(message.payload for message in reads)


def test_roce_naks() -> None:
    measured = golden("roce-fail-reordered")
    row = max(measured.flows.kept, key=lambda row: row.packets)
    assert set(row.resent) == {"NAK PSN_SEQUENCE_ERROR"} == set(row.refused)
    assert row.answered.count == 0 or row.answered.count < row.packets


def roce(there: bool, opcode: Operation, psn: int, *more: Layer, payload: int = 0) -> bytes:
    """An RC packet from 10.0.0.1, queue pair 17, to 10.0.0.2, queue pair 18; or back."""
    src, dst, qp = (1, 2, 18) if there else (2, 1, 17)
    layers = [
        layer("ethernet", dst=dst, src=src, type=0x0800),
        layer("ipv4", ecn=2, df=1, ttl=64, protocol=17, src=0x0A000000 + src, dst=0x0A000000 + dst),
        layer("udp", sport=49192, dport=4791), layer("bth", opcode=opcode, p_key=0xFFFF, destqp=qp, psn=psn), *more,
    ]  # fmt: skip
    return encode(Packet(layers, bytes(payload), Trailer("icrc", 0)), fill=True)


def test_a_nak_acknowledges_what_lies_before(tmp_path: Path) -> None:
    """PSN 0 answered by the NAK of PSN 1, which comes again with PSN 2."""
    wire = Wire()
    sends = [roce(True, Operation.SEND_ONLY, psn, payload=64) for psn in range(3)]
    nak = roce(False, Operation.ACKNOWLEDGE, 1, layer("aeth", syndrome=Nak.PSN_SEQUENCE_ERROR, msn=1))
    acked = roce(False, Operation.ACKNOWLEDGE, 2, layer("aeth", syndrome=0x1F, msn=3))
    wire.frames = [
        (0, sends[0]), (100, sends[1]), (200, sends[2]), (5_000, nak), (6_000, sends[1]), (6_100, sends[2]),
        (11_000, acked),
    ]  # fmt: skip
    measured = wire.measured(tmp_path)
    row = forward(measured)
    assert row.refused == {"NAK PSN_SEQUENCE_ERROR": 1}
    assert row.resent == {"NAK PSN_SEQUENCE_ERROR": 2}
    assert (row.answered.count, row.answered.max) == (1, 5_000)
    assert [(message.psn, message.latency) for message in measured.messages.kept] == [
        (0, 5_000), (1, 10_900), (2, 10_800),
    ]  # fmt: skip


def test_sealed_captures_measure_like_plain_ones() -> None:
    from uetproto.engine.tss.keys import KeyRing

    keys = KeyRing.read(str(GOLDEN / "gradient-sealed-direct.keys.toml"))
    file = GOLDEN / "gradient-sealed-direct.pcapng"
    closed, opened = (measure([file], Options(keys=key))[1][0] for key in (None, keys))
    assert closed.flows.kept == []
    assert closed.packets == opened.packets
    row = max(opened.flows.kept, key=lambda row: row.payload)
    assert row.payload == 12288
    assert row.bytes <= opened.bytes


def _last_time(name: str, form: str) -> int:
    """The time of the last packet of a form in a golden capture, from its beginning."""
    done = invoke("dissect", str(GOLDEN / f"{name}.pcapng"), "--json")
    packets = [json.loads(line) for line in done.output.splitlines()]
    times = [one["time_ns"] for one in packets if any(layer["form"] == form for layer in one.get("layers", ()))]
    return int(times[-1])


# The emulator counts, too ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_emulator_agrees(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "run.pcapng"
    done = invoke("run", "gradient-lossy", "--seed", str(seed), "-o", str(file), "--json")
    counted = json.loads(done.output)
    (measured,) = measure([file], PLAIN)[1]
    row = max(measured.flows.kept, key=lambda row: row.packets)
    assert sum(row.resent.values()) == counted["retransmissions"]
    assert row.payload == counted["bytes"]
    assert row.messages == 1
    (message,) = measured.messages.kept
    assert message.latency is not None


# Memory ---------------------------------------------------------------------------------------------------------------


def short_pdc(number: int, at: int) -> list[Any]:
    """A PDC of one request and its close, all acknowledged."""
    own = number % 60_000 + 1
    psn = number * 7_919
    request = head("pds.rud_req.syn", next_hdr=0, psn=psn, spdcid=own, clear_psn_offset=-1)
    closing = head("pds.cp", ctl_type=4, psn=psn + 1, spdcid=own, dpdcid=own)
    acks = [head("pds.ack", cack_psn=psn + step, spdcid=own, dpdcid=own) for step in range(2)]
    there, back = (A, B), (B, A)
    return [
        packet(at + step, *ends, leads)
        for step, (ends, leads) in enumerate(((there, request), (back, acks[0]), (there, closing), (back, acks[1])))
    ]


def run(pdcs: int, rows: int) -> tuple[Measure, Measurements, int]:
    kept = Measure("a", "b", partial(Meters, most=65_536), rows=rows)
    audit = PdsAudit(heard=Measures.heard, listener=kept.hears, rules=())
    largest = 0
    for number in range(pdcs):
        for seen in short_pdc(number, 4 * number):
            kept.see(seen)
            audit.see([seen])
            if not seen.number % 4_096:
                audit.tracker.sweep(seen.time_ns)
        largest = max(largest, len(kept.hears.flows))
    kept.end()
    return kept, kept.measured, largest


def test_what_is_over_is_a_row_and_no_more() -> None:
    _, measured, largest = run(pdcs=6_000, rows=100)
    assert largest <= 3 * 1_024  # PDCs between sweeps
    flows = measured.flows
    assert (len(flows.kept), flows.others["rows"]) == (100, 5_900)
    assert flows.packets == 12_000  # a request and a close each
    assert flows.others["packets"] == 11_800
    assert measured.answered.count == 12_000


def test_rows_that_are_summed_are_in_the_sums() -> None:
    few, many = run(50, 10)[1], run(50, 1_000)[1]
    assert many.flows.others == Counter()
    for name in ("packets", "bytes", "payload", "resent"):
        assert getattr(few.flows, name) == getattr(many.flows, name)
    assert few.flows.kept == many.flows.kept[:10]


def test_requests_that_nobody_acknowledges_are_given_up() -> None:
    kept = Measure("a", "b", partial(Meters, most=65_536))
    kept.hears.requests = 128
    audit = PdsAudit(heard=Measures.heard, listener=kept.hears, rules=())
    for number in range(1_000):
        form = "pds.rud_req.syn" if not number else "pds.rud_req"
        leads = head(form, psn=number, spdcid=7, clear_psn_offset=-1, **({"dpdcid": 3} if number else {}))
        seen = packet(number, A, B, leads, size=10)
        kept.see(seen)
        audit.see([seen])
    (flow,) = kept.hears.flows.values()
    assert len(flow.outstanding) <= 128
    assert flow.outstanding_bytes == 10 * len(flow.outstanding)
    kept.end()
    (row,) = kept.measured.flows.kept
    assert (row.packets, row.payload, row.window) == (1_000, 10_000, None)


class Few:
    """Keeps what is over."""

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self.messages: list[MessageMeter] = []

    def over(self, flow: FlowMeter, message: MessageMeter, latency: int | None) -> None:
        self.messages.append(message)


def test_the_older_half_is_given_up() -> None:
    """At the first request too many. Of them no ACK tells anything, the window was as wide as it could be seen."""
    owner = Few(4)
    flow = FlowMeter("pdc", None, 0xFFFFFFFF, 0, owner)
    messages = [MessageMeter(psn, psn, "WRITE", psn) for psn in range(6)]
    for psn, message in enumerate(messages):
        flow.first(psn, 100, 10, psn, False)
        message.begun, message.end = True, psn
        flow.begin(message)
        flow.carry(message)
        expected = {0: [0], 3: [0, 1, 2, 3], 4: [2, 3, 4], 5: [2, 3, 4, 5]}
        if psn in expected:
            assert list(flow.outstanding) == expected[psn]
            assert flow.outstanding_bytes == 10 * len(expected[psn])
    assert (flow.window_packets, flow.window_bytes) == (4, 40)
    flow.acknowledged_to(5, 1_000)
    assert flow.answered.quantiles().count == 4
    assert [message.latency for message in messages] == [None, None, 998, 997, 996, 995]
    assert owner.messages == messages[2:]


def test_a_refusal_of_what_was_not_seen() -> None:
    """Only the PSN refused is known to come again."""
    flow = FlowMeter("pdc", None, 0xFFFFFFFF, 0, Few(4))
    flow.rewind("NACK", 5, 100)
    for psn in (5, 6):
        flow.first(psn, 100, 10, 200, True)
    assert flow.resent == {"NACK": 1, "unknown": 1}
    flow.rewind("NACK", 9, 300)
    assert [flow.is_rewound(psn) for psn in (7, 8, 9, 10)] == [False, False, True, False]


def test_a_nack_is_the_cause_of_one_retransmission_of_each_psn() -> None:
    """What is sent once more after its ACK came has another cause, whether the NACK named its PSN or one before it."""
    flow = FlowMeter("pdc", None, 0xFFFFFFFF, 0, Few(4))
    for psn in (5, 6):
        flow.first(psn, 100, 10, psn, False)
    flow.refuse("NACK", 6, 50)
    flow.rewind("NACK", 5, 50)
    for psn in (5, 6):
        flow.again(psn, 100, 60, True)
    flow.acknowledged_to(6, 70)
    for psn in (5, 6):
        flow.again(psn, 100, 80, True)
    assert flow.resent == {"NACK": 2, "RTO?": 2}


def test_a_message_whose_beginning_was_not_seen_has_no_latency() -> None:
    owner = Few(4)
    flow = FlowMeter("pdc", None, 0xFFFFFFFF, 0, owner)
    message = MessageMeter(1, 1, "WRITE", 0)
    flow.first(1, 100, 10, 0, False)
    message.end = 1
    flow.begin(message)
    flow.carry(message)
    flow.acknowledged_to(1, 1_000)
    assert owner.messages == [message]
    assert (message.last_ns, message.latency) == (1_000, None)


def test_a_request_may_be_acknowledged_before_its_message_is_known() -> None:
    flow = FlowMeter("pdc", None, 0xFFFFFFFF, 0, Few(4))
    message = MessageMeter(1, 1, "WRITE", 0)
    flow.first(1, 100, 10, 0, False)
    assert flow.nothing
    flow.acknowledged(1, 1_000)
    assert not flow.nothing
    flow.begin(message)
    flow.carry(message)
    assert (message.packets, message.waiting) == (1, 0)


def test_what_was_said_of_psns_does_not_hold_for_another_connection() -> None:
    owner = Few(4)
    flow = FlowMeter("qp", None, 0xFFFFFF, 0, owner)
    message = MessageMeter(3, 3, "SEND", 0)
    for psn in range(1, 4):
        flow.first(psn, 100, 10, psn, False)
    flow.begin(message)
    flow.carry(message)
    flow.acknowledged_to(1, 10)
    flow.refuse("NAK", 2, 20)
    flow.rewind("NAK", 2, 20)
    flow.trim(3, 30)
    flow.begin_again()
    assert owner.messages == [message]
    assert (flow.outstanding, flow.outstanding_bytes, flow.messages) == ({}, 0, {})
    assert not flow.is_rewound(3)
    late = MessageMeter(2, 2, "SEND", 0)
    flow.carry(late)
    assert late.packets == 0  # of the request before
    for psn in (2, 3):
        flow.first(psn, 100, 10, 40, True)
    assert flow.resent == {"unknown": 2}
    flow.first(0, 100, 10, 50, False)
    assert list(flow.outstanding) == [2, 3, 0]
    assert (flow.newest, flow.reordered) == (0, 0)


def test_messages_that_nobody_acknowledges_are_given_up(tmp_path: Path) -> None:
    """They are rows; that an ACK comes in the end changes nothing."""
    wire = Wire()
    number = MESSAGES + 100
    for place in range(number):
        request, ses = write(PSN + place, 0, total=8, syn=1)
        wire.there(place, request, ses._replace(values={**ses.values, "message_id": place + 1}), payload=8)
    wire.back(9_000, *ack(PSN + number - 1))
    measured = wire.measured(tmp_path)
    assert len(measured.messages.kept) == forward(measured).messages == number
    assert [message.latency is None for message in measured.messages.kept].count(True) == MESSAGES // 2


def test_a_psn_that_begins_another_message_ends_the_one_before(tmp_path: Path) -> None:
    """RoCE: a connection that begins again with the same PSN, while the first is not answered."""
    wire = Wire()
    for time_ns, psn, size in ((0, 0, 64), (SILENCE, 0, 128), (SILENCE + 100, 1, 128), (SILENCE + 200, 2, 128)):
        wire.frames.append((time_ns, roce(True, Operation.SEND_ONLY, psn, payload=size)))
    wire.frames.append((SILENCE + 4_900, roce(False, Operation.ACKNOWLEDGE, 2, layer("aeth", syndrome=0x1F, msn=3))))
    measured = wire.measured(tmp_path)
    assert [(message.psn, message.length) for message in measured.messages.kept] == [
        (0, 64),
        (0, 128),
        (1, 128),
        (2, 128),
    ]
    assert [message.latency for message in measured.messages.kept] == [None, 4_900, 4_800, 4_700]
    assert forward(measured).window == (3, 3 * 128)
    assert forward(measured).resent == {}


def test_another_connection_is_measured_from_its_beginning(tmp_path: Path) -> None:
    """Though all of its PSNs were acknowledged before, one was refused, and a message was open."""
    wire = Wire()
    sends = [roce(True, Operation.SEND_ONLY, psn, payload=64) for psn in range(4)]
    acks = [roce(False, Operation.ACKNOWLEDGE, psn, layer("aeth", syndrome=0x1F, msn=psn + 1)) for psn in range(4)]
    nak = roce(False, Operation.ACKNOWLEDGE, 3, layer("aeth", syndrome=Nak.PSN_SEQUENCE_ERROR, msn=3))
    others = [roce(True, Operation.SEND_ONLY, psn, payload=32) for psn in range(4)]
    for at, data in enumerate((*sends, acks[2], nak)):
        wire.frames.append((100 * at, data))
    for at, data in enumerate((*others[:2], acks[0], others[2], acks[1], acks[2], others[3])):
        wire.frames.append((SILENCE + 1_000 + 100 * at, data))
    measured = wire.measured(tmp_path)
    row = forward(measured)
    assert (row.packets, row.resent, row.reordered, row.window) == (8, {}, 0, (4, 4 * 64))
    assert row.answered.count == 3 + 3
    assert row.payload == 4 * 64 + 4 * 32
    lengths = [(message.length, message.psn, message.latency) for message in measured.messages.kept]
    assert sorted(lengths, key=str) == [
        (32, 0, 200), (32, 1, 300), (32, 2, 200), (32, 3, None),
        (64, 0, 400), (64, 1, 300), (64, 2, 200), (64, 3, None),
    ]  # fmt: skip


def test_notes_are_bounded() -> None:
    kept = Measure("a", "b", partial(Meters, most=65_536))
    audit = PdsAudit(heard=Measures.heard, listener=kept.hears, rules=())
    audit.see([packet(0, A, B, head("pds.rud_req.syn", psn=0, spdcid=7, clear_psn_offset=-1))])
    for number in range(1, NOTES + 100):
        refusal = head("pds.nack", nack_code=1, nack_psn=number, spdcid=3, dpdcid=7)
        audit.see([packet(number, B, A, refusal)])
    (flow,) = kept.hears.flows.values()
    assert len(flow.refused) == NOTES
    assert flow.refusals == {"NACK TRIMMED": NOTES + 99}


# Courses --------------------------------------------------------------------------------------------------------------


def test_a_series_gets_thinner() -> None:
    series = Series()
    for number in range(100_000):
        series.add(number, 2 * number)
    points = list(series)
    assert MOST // 2 <= len(points) == len(series) < MOST
    assert series.count == 100_000
    assert points[0] == (0, 0)
    assert all(place == 2 * time for time, place in points)
    assert {after[0] - before[0] for before, after in pairwise(points)} == {32}


def test_a_course_goes_on_where_psns_wrap() -> None:
    trace = Trace(0xFFFFFF)
    for number in range(10):
        trace.add(trace.sent, (0xFFFFFB + number) & 0xFFFFFF, number)
    trace.add(trace.resent, 0xFFFFFE, 20)
    assert [place for _, place in trace.sent] == list(range(10))
    assert list(trace.resent) == [(20, 3)]


def test_courses_are_kept_of_a_few_flows(tmp_path: Path) -> None:
    measured = three().measured(tmp_path, draw=True)
    (drawn,) = measured.drawn
    assert [place for _, place in drawn.trace.sent] == [0, 1, 2]
    assert list(drawn.trace.acknowledged) == [(5_000, 0), (6_000, 1), (7_000, 2)]
    assert drawn.answered.count == 3
    assert not three().measured(tmp_path).drawn


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gradient-lossy", "roce-read-several", "ses-fetching-atomic", "incast-roce"])
def test_any_order_can_be_measured(name: str, tmp_path: Path) -> None:
    """Shuffled, doubled, thinned: nothing raises, sums agree with the packets."""
    with open_capture(GOLDEN / f"{name}.pcapng") as reader:
        records = list(reader)
    for seed in range(10):
        rng = random.Random(seed)
        chosen = rng.choices(records, k=len(records))
        file = tmp_path / "any.pcap"
        with open_writer(file) as writer:
            for record in chosen:
                writer.write(record.time_ns, record.data, length=record.length)
        (measured,) = measure([file], PLAIN, draw=True)[1]
        assert measured.packets == len(chosen)
        assert measured.flows.packets <= len(chosen)
        assert measured.bytes == sum(record.length for record in chosen)
        for row in (*measured.flows.kept, *measured.messages.kept):
            json.dumps(row.as_dict())
            assert row.payload >= 0
