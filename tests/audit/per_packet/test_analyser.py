# SPDX-License-Identifier: GPL-2.0-only
"""What `Analyser` says of packets, over golden captures and over captures made by hand (docs/reference/analysis.md)."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.support.audit.build import GOLDEN
from tests.support.cli.frames import ack, close, frame, layer, nack, write
from uetproto import Layer, decode
from uetproto.audit.per_packet.analyser import Analyser
from uetproto.audit.per_packet.sender import FAR
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.filter_names import BY_NAME
from uetproto.wire.headers.uet_pds import NackCode

Rows = dict[int, dict[str, Any]]
START = 73728
SEEN: set[str] = set()
"""Names that some test has seen."""


def analysed(frames: Iterable[tuple[bytes, int, object]]) -> Rows:
    """The values of each packet by its number, without "uetp."; a frame has its time in ns and its tap."""
    analyser, rows = Analyser(), {}
    for number, (data, time_ns, tap) in enumerate(frames, 1):
        rows[number] = analyser.take(decode(data), data, time_ns, number, tap)
    for number, row in rows.items():
        row |= analyser.late.of(number)
        SEEN.update(row)
    return {number: {name.removeprefix("uetp."): value for name, value in row.items()} for number, row in rows.items()}


def golden(name: str) -> Rows:
    with open_capture(GOLDEN / f"{name}.pcapng") as reader:
        return analysed((record.data, record.time_ns, record.interface) for record in reader)


def conversation(*packets: Sequence[Layer] | Layer, tap: object = 0) -> Rows:
    """Packets 1 µs apart: requests and control packets go from host 1 to host 2, answers back."""
    frames = []
    for number, layers in enumerate(packets):
        layers = [layers] if isinstance(layers, Layer) else layers
        answers = layers[0].form.startswith(("pds.ack", "pds.nack"))
        frames.append((frame(2 if answers else 1, 1 if answers else 2, *layers), number * 1000, tap))
    return analysed(frames)


def request(psn: int, retx: int = 0, **flags: int) -> list[Layer]:
    return write(START + psn, psn * 1024, retx=retx, ar=0, syn=int(not psn), **flags)


def pairs(rows: Rows, name: str) -> dict[int, Any]:
    return {number: row[name] for number, row in rows.items() if name in row}


# Golden captures ------------------------------------------------------------------------------------------------------


def test_a_lossy_write() -> None:
    rows = golden("gradient-lossy")
    assert pairs(rows, "pdc") == dict.fromkeys(range(1, 21), 0)
    assert pairs(rows, "acks") == {13: [1], 17: [*range(2, 11), 15, 16], 20: [19]}
    assert pairs(rows, "acked_in") == {1: 13, **dict.fromkeys([*range(2, 11), 15, 16], 17), 19: 20}
    assert pairs(rows, "nacked_in") == {12: 14}
    assert pairs(rows, "retransmission_of") == {15: 11, 16: 12, 19: 18}
    assert set(pairs(rows, "analysis.retransmission")) == {15, 16, 19}
    assert pairs(rows, "analysis.rtt") == {13: pytest.approx(4.047e-6)}
    assert rows[1]["ack_time"] == pytest.approx(4.047e-6)
    assert pairs(rows, "rel_psn") == {**{n: n - 1 for n in range(1, 13)}, 15: 10, 16: 11, 18: 12, 19: 12}
    assert {row["msg"] for number, row in rows.items() if number not in (14, 18, 19, 20)} == {0}
    assert [rows[n]["msg.missing"] for n in (1, 2, 12, 16)] == [11264, 10240, 0, 0]
    assert (rows[1]["msg.first"], rows[1]["msg.last"], rows[1]["msg.time"]) == (1, 12, pytest.approx(18.365e-6))
    assert pairs(rows, "response_to") == {13: 1, 17: 16}
    in_flight = pairs(rows, "analysis.packets_in_flight")
    assert in_flight == {**{n: n for n in range(1, 13)}, 15: 10, 16: 11, 18: 1, 19: 1}
    assert rows[12]["analysis.bytes_in_flight"] == 12 * 1084


def test_a_read_ends_with_its_data() -> None:
    rows = golden("ses-read")
    data = [number for number, row in rows.items() if "response_to" in row and "rel_psn" in row]
    assert [rows[number]["msg.missing"] for number in data] == [8192, 4096, 0]
    assert {rows[number]["response_to"] for number in data} == {1}
    assert rows[1]["msg.last"] == data[-1]
    assert {rows[number]["msg"] for number in (1, 2, 3, *data)} == {0}


def test_an_answer_to_a_pdc_that_was_refused_and_opened_anew() -> None:
    rows = golden("ladder-L14")
    assert pairs(rows, "pdc") == {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 0, 7: 1, 8: 1}
    assert pairs(rows, "nacked_in") == {1: 3, 2: 6}
    assert pairs(rows, "acked_in") == {4: 7, 5: 8}


def test_several_pdcs_of_one_pair_of_hosts() -> None:
    assert pairs(golden("ladder-L13"), "pdc") == {
        1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 6: 0, 7: 1, 8: 1, 9: 2, 10: 2, 11: 0, 12: 0
    }  # fmt: skip


def test_window_full() -> None:
    rows = golden("ladder-L24")
    assert {rows[number]["analysis.packets_in_flight"] for number in pairs(rows, "analysis.window_full")} == {128}


def test_requests_that_belong_to_a_request_of_the_other_end() -> None:
    assert {3: 1, 6: 1}.items() <= pairs(golden("ses-rendezvous-send"), "response_to").items()
    rows = golden("ses-deferrable-tsend")
    assert rows[35]["response_to"] == 1
    assert rows[37]["response_to"] == rows[60]["response_to"] == 35
    assert rows[35]["response_in"] == 36  # the response to the RTR itself


def test_rudi() -> None:
    rows = golden("ses-rudi-read")
    assert pairs(rows, "acks") == {4: [1], 5: [2], 6: [3]}
    assert pairs(rows, "response_in") == {1: 4, 2: 5, 3: 6}
    assert pairs(rows, "msg.missing")[6] == 0
    assert not pairs(rows, "pdc")


def test_both_directions_of_a_queue_pair_are_one_stream() -> None:
    assert set(pairs(golden("roce-read"), "qp_stream").values()) == {0}
    incast = pairs(golden("incast-roce"), "qp_stream")
    assert len(set(incast.values())) < len(incast)


# By hand --------------------------------------------------------------------------------------------------------------


def test_cumulative_and_selective_acks() -> None:
    sack = layer(
        "pds.ack_cc", next_hdr=0, cack_psn=START, ack_psn_offset=0, sack_psn_offset=2, sack_bitmap=0b101, mpr=8,
        spdcid=9, dpdcid=5,
    )  # fmt: skip
    rows = conversation(*map(request, range(5)), [sack, layer("pds.cc_state.nscc")], ack(START + 3))
    assert pairs(rows, "acks") == {6: [1, 3, 5], 7: [2, 4]}
    assert rows[2]["ack_time"] == pytest.approx(5e-6)
    assert pairs(rows, "analysis.packets_in_flight")[5] == 5


def test_spurious_retransmissions_duplicates_and_repeated_acks() -> None:
    rows = conversation(request(0), ack(START), request(0, retx=1), ack(START), request(1), request(1))
    assert set(pairs(rows, "analysis.spurious_retransmission")) == {3}
    assert pairs(rows, "retransmission_of") == {3: 1}
    assert set(pairs(rows, "analysis.duplicate_ack")) == {4}
    assert pairs(rows, "acks") == {2: [1], 4: [3]}
    assert "acked_in" not in rows[3]
    assert set(pairs(rows, "analysis.duplicate")) == {6}
    assert rows[6]["analysis.packets_in_flight"] == 1


def test_reordered_and_unseen_packets() -> None:
    rows = conversation(request(0), request(3), request(1), ack(START + 3), ack(START + 3), ack(START + 5))
    assert set(pairs(rows, "analysis.out_of_order")) == {3}
    assert set(pairs(rows, "analysis.lost_segment")) == {4}
    assert set(pairs(rows, "analysis.ack_unseen")) == {6}
    assert rows[4]["acks"] == [1, 2, 3]


def test_what_a_sack_goes_beyond_may_still_come() -> None:
    sack = layer(
        "pds.ack_cc", next_hdr=0, cack_psn=START, ack_psn_offset=0, sack_psn_offset=2, sack_bitmap=0b1, mpr=8,
        spdcid=9, dpdcid=5,
    )  # fmt: skip
    seen = request(0), request(2), [sack, layer("pds.cc_state.nscc")]
    assert pairs(conversation(*seen, request(1), ack(START + 2)), "analysis.lost_segment") == {}
    assert set(pairs(conversation(*seen, ack(START + 2)), "analysis.lost_segment")) == {4}


def test_trimmed_packets_are_not_in_flight() -> None:
    trimmed = frame(1, 2, *request(1), dscp=16)
    refused = layer("pds.nack", nack_code=NackCode.TRIMMED, nack_psn=START + 1, spdcid=9, dpdcid=5)
    frames = [(frame(1, 2, *request(0)), 0, 0), (trimmed, 1, 0), (frame(2, 1, refused), 2, 0),
              (frame(1, 2, *request(1, retx=1)), 3, 0)]  # fmt: skip
    rows = analysed(frames)
    assert set(pairs(rows, "analysis.trimmed")) == {2}
    assert pairs(rows, "nacked_in") == {2: 3}
    assert pairs(rows, "retransmission_of") == {4: 2}
    assert pairs(rows, "analysis.packets_in_flight") == {1: 1, 4: 2}


def test_a_pdc_ends_with_its_close_and_with_another_start() -> None:
    closed = conversation(request(0), ack(START), close(START + 1), ack(START + 1), request(0), ack(START))
    assert pairs(closed, "pdc") == {1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1}
    assert pairs(closed, "acks") == {2: [1], 4: [3], 6: [5]}
    other = write(START + 2 * FAR, 0, syn=1)
    other[0] = Layer(other[0].form, {**other[0].values, "psn_offset": 0})
    reused = conversation(request(0), other, request(1), ack(START + 2 * FAR), ack(START + 1))
    assert pairs(reused, "pdc") == {1: 0, 2: 1, 3: 0, 4: 1, 5: 0}


def test_source_ports_are_of_one_pdc_and_a_nack_without_a_pdcid_finds_it() -> None:
    refused = nack(START, START)
    refused = Layer(refused.form, {**refused.values, "spdcid": 0})
    rows = conversation(request(0), refused, tap="x")
    assert pairs(rows, "pdc") == {1: 0, 2: 0}
    assert pairs(rows, "nacked_in") == {1: 2}
    assert conversation(refused) == {1: {}}


def test_an_ack_finds_the_packet_of_its_own_tap() -> None:
    sent, answer = frame(1, 2, *request(0)), frame(2, 1, *ack(START))
    rows = analysed([(sent, 0, "a"), (sent, 400, "b"), (answer, 500, "b"), (answer, 900, "a")])
    assert pairs(rows, "acks") == {3: [2], 4: [1]}
    assert pairs(rows, "analysis.copy_of") == {2: 1, 4: 3}
    assert pairs(rows, "pdc") == {1: 0, 2: 1, 3: 1, 4: 0}


def test_wild_bytes_end() -> None:
    """Damaged PSNs, also far ones, neither raise nor take long."""
    psns = [START, START + 40_000, START - 40_000, 0, 0xFFFFFFFF, START + 65_535]
    requests = [write(psn, 0) for psn in psns]
    rows = conversation(*requests, *map(ack, psns), *reversed(requests))
    assert all(a < b for a, b in pairwise(rows))


def test_every_name_is_in_the_table() -> None:
    for name in ("gradient", "ladder-L14"):
        golden(name)
    assert {name.removeprefix("uetp.") for name in SEEN} <= set(BY_NAME)
