# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto.open`: captures of every kind, packets, tables, drawings, errors."""

import gzip
import io
import os
import threading
import tracemalloc
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import uetproto
from tests.analysis import user_script
from tests.support.cli.frames import ack, frame, invoke, write
from tests.support.each import each
from tests.support.paths import PCAPS
from uetproto.analysis.sources import CaptureSource
from uetproto.cli.dissect import as_json
from uetproto.wire.capture.base import CaptureReader
from uetproto.wire.capture.pcap import PcapWriter, open_capture, open_writer

LOSSY, GRADIENT = str(PCAPS / "gradient-lossy.pcapng"), str(PCAPS / "gradient.pcapng")
DATA = Path(LOSSY).read_bytes()


def capture(path: Path, *packets: tuple[int, bytes]) -> str:
    with open_writer(str(path), interfaces=[(path.stem, 1)]) as writer:
        for time_ns, data in packets:
            writer.write(time_ns, data)
    return str(path)


SOURCES: dict[str, Callable[[], Any]] = {
    "path": lambda: LOSSY,
    "Path": lambda: Path(LOSSY),
    "bytes": lambda: DATA,
    "gzip": lambda: gzip.compress(DATA),
    "file": lambda: io.BytesIO(DATA),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_what_can_be_opened_can_be_read_again(kind: str) -> None:
    found = uetproto.open(SOURCES[kind]())
    first = [packet.summary() for packet in found]
    assert len(first) == len(found) == 20
    assert [packet.summary() for packet in found] == first
    assert len(found.flows) == len(found.pdcs) == len(found.messages) == 1
    assert found.audit().ok


def test_packets_are_those_of_dissect() -> None:
    told = invoke("dissect", "--json", LOSSY).output.splitlines(keepends=True)
    assert [as_json(packet.record, packet.packet) for packet in uetproto.open(LOSSY)] == told


def test_a_packet() -> None:
    packet = uetproto.open(LOSSY)[3]
    assert (packet.number, packet.index, packet.time_ns, packet.length) == (4, 3, 67, 1126)
    assert packet.time == datetime(1970, 1, 1, tzinfo=UTC)
    assert (packet.src, packet.dst, packet.protocol) == ("10.0.0.11", "10.0.1.11", "UET")
    assert (packet.psn, packet.opcode, packet.interface) == (73731, "WRITE", "rank0.0")
    assert packet["pds.rod_req"]["psn"] == packet["pds.rod_req.syn"]["psn"] == 73731
    assert "pds.ack" not in packet
    assert uetproto.decode(packet.data).layers == packet.packet.layers
    assert "src 10.0.0.11" in str(packet)
    assert repr(packet).startswith("<PacketView #4 10.0.0.11 → 10.0.1.11 ROD_REQ SYN PSN 73731")
    with pytest.raises(IndexError, match="no packet 20"):
        uetproto.open(LOSSY)[20]


@pytest.mark.parametrize(
    ("name", "protocol", "opcode"),
    [("gradient-roce.pcapng", "RoCE", "RC_RDMA_WRITE_FIRST"), ("gradient-lossy.pcapng", "UET", "WRITE")],
)
def test_words_of_protocols(name: str, protocol: str, opcode: str) -> None:
    packet = uetproto.open(PCAPS / name)[0]
    assert (packet.protocol, packet.opcode) == (protocol, opcode)


def test_an_ack_has_no_psn_and_a_control_packet_has_a_name() -> None:
    found = {packet.opcode: packet.psn for packet in uetproto.open(LOSSY)}
    assert found["DEFAULT_RESPONSE"] is None
    assert found["CLOSE_CMD"] == 73740


def test_what_is_no_packet_of_ours(tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcapng", (0, b""), (1 << 63, b"\0" * 14), (5, os.urandom(60)))
    first, late, noise = uetproto.open(path)
    assert (first.src, first.protocol, first.psn, first.opcode) == ("", "", None, None)
    assert late.src == "00:00:00:00:00:00"
    assert noise.packet.error is not None
    for packet in (first, late, noise):
        assert packet._repr_html_()
        assert str(packet)


def test_several_are_merged_by_time(tmp_path: Path) -> None:
    a = capture(tmp_path / "a.pcapng", (10, frame(1, 2, *write(73728, 0))), (30, frame(1, 2, *write(73729, 1024))))
    b = capture(tmp_path / "b.pcapng", (1020, frame(2, 1, *ack(73728))), (1040, frame(2, 1, *ack(73729))))
    merged = uetproto.open(a, b, offsets_ns=(0, -1000))
    assert [(one.index, one.time_ns, one.interface, Path(one.capture).name) for one in merged] == [
        (0, 10, "a", "a.pcapng"), (1, 20, "b", "b.pcapng"), (2, 30, "a", "a.pcapng"), (3, 40, "b", "b.pcapng"),
    ]  # fmt: skip
    assert [one.packet.trailer is not None for one in merged] == [True] * 4
    assert "10.0.0.2" in repr(merged.ladder(interface="b"))


def test_a_pipe_is_read_once() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as source:
        thread = threading.Thread(target=lambda: (os.write(writing, DATA), os.close(writing)))
        thread.start()
        found = uetproto.open(source)
        assert "a pipe" in repr(found)
        with pytest.raises(TypeError, match="pipe"):
            len(found)
        assert bool(found)
        assert sum(1 for _ in found) == 20
        thread.join()
    assert len(found) == 20
    with pytest.raises(uetproto.LocalError, match="was read before"):
        next(iter(found))


def test_memory_does_not_grow_with_the_capture() -> None:
    peaks = []
    for packets in (500, 1_500):
        out = io.BytesIO()
        with PcapWriter(out) as writer:
            for number in range(packets):
                writer.write(number, frame(1, 2, *write(73728 + number, 1024), payload=bytes(1500), crc=False))
        out.seek(0)
        found = uetproto.open(out, crc="off")
        tracemalloc.start()
        try:
            assert sum(1 for _ in found) == packets
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5 + 200_000


def test_damage_is_told() -> None:
    found = uetproto.open(DATA[:-10])
    with pytest.warns(uetproto.CaptureWarning, match="bytes: damaged at byte"):
        assert len(list(found)) == 19
    assert len(found.damage) == 1


def test_damage_is_told_where_it_is_asked_for() -> None:
    """The warning names the line that asks for measurements, a table or a chart."""
    for ask in (uetproto.Capture.stats, uetproto.Capture.to_arrow, uetproto.Capture.ladder):
        found = uetproto.open(DATA[:-10])
        with pytest.warns(uetproto.CaptureWarning, match="bytes: damaged at byte") as told:
            ask(found)
        assert [(one.filename, len(told)) for one in told] == [(__file__, 1)]
        assert len(found.damage) == 1


def test_a_folder_is_no_capture(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        uetproto.open(tmp_path)


def test_settings_reach_the_packets() -> None:
    assert {packet.protocol for packet in uetproto.open(LOSSY, udp_port=4000)} == {"UDP"}
    assert uetproto.open(LOSSY, crc="off")[0].packet.trailer is None
    assert uetproto.open(LOSSY, link="raw")[0].packet.error is not None
    assert uetproto.open(LOSSY, link="raw").stats().packets == 0


def test_keys_open_sealed_packets(tmp_path: Path) -> None:
    path = tmp_path / "sealed.pcapng"
    assert invoke("generate", "sealed", "-o", str(path), "--packets", "40").exit_code == 0
    closed = uetproto.open(path)
    assert all("sealed" in packet.packet.notes for packet in closed if packet.protocol == "UET")
    opened = uetproto.open(path, keys=f"{path}.keys.toml")
    assert any("pds." in layer.form for packet in opened for layer in packet.layers)
    assert len(opened.messages) > 0
    assert opened.audit().ok


@each(
    "call, text",
    [
        (lambda: uetproto.open(5), "source: 5 is not legal; legal: a path"),
        (lambda: uetproto.open(io.StringIO("x")), "source: .* is not legal"),
        (lambda: uetproto.open(b"text"), "bytes: not a capture|not a capture"),
        (lambda: uetproto.open(LOSSY, crc="atuo"), r"crc: 'atuo' is not legal \(did you mean auto\?\)"),
        (lambda: uetproto.open(LOSSY, link="etherent"), r"did you mean ethernet"),
        (lambda: uetproto.open(LOSSY, offsets_ns=[1, 2]), "offsets_ns: 2 for 1 captures"),
        (lambda: uetproto.open(LOSSY, offsets_ns=[0.5]), "offsets_ns: 0.5 is not legal"),
        (lambda: uetproto.open(LOSSY, udp_port=70000), "udp_port"),
        (lambda: uetproto.open(LOSSY)[-1], "index: -1 is not legal"),
        (lambda: uetproto.open(LOSSY).audit("PDS-AKC-RETX"), "PDS-AKC-RETX"),
        (lambda: uetproto.open(LOSSY).ladder(interface="rank0.1"), r"interface: .* \(did you mean rank0.0\?\)"),
        (lambda: uetproto.open(LOSSY).ladder().save("x.png"), "names in .svg or .txt"),
    ],
)
def test_what_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(uetproto.LocalError, match=text):
        call()


def test_a_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        uetproto.open("nowhere.pcapng")


def test_mistyped_names() -> None:
    with pytest.raises(AttributeError, match=r"did you mean open\?"):
        uetproto.opne  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute '__wrapped__'$"):
        uetproto.__wrapped__  # noqa: B018


def test_results() -> None:
    found = uetproto.open(LOSSY)
    (flow,) = found.flows
    assert (flow.kind, flow.packets, flow.as_dict()["flow"]["src"]) == ("pdc", 16, "10.0.0.11")
    assert found.stats() is found.stats()
    told = [one for line in invoke("stats", "--json", LOSSY).output.splitlines() if (one := line)]
    assert len(told) == len(found.flows) + len(found.messages) + 1
    assert found.stats().as_dict()["resent"] == {"NACK ROD_OOO": 2, "RTO?": 1}
    assert repr(found.qps) == "(0 queue pair directions)"
    assert isinstance(found.flows[:1][0], type(flow))
    audit = found.audit("PDS-*")
    assert (audit.ok, len(audit), list(audit), audit.errors) == (True, 0, [], [])
    assert audit.as_dict()["packets"] == 20
    with pytest.raises(TypeError, match=r"ask `audit\.ok`"):
        bool(audit)


def test_findings(tmp_path: Path) -> None:
    path = tmp_path / "wrong.pcapng"
    status = invoke("generate", "mixed", "-o", str(path), "--packets", "300", "--mutate", "bad-crc=0.1").exit_code
    assert status == 0
    audit = uetproto.open(path).audit()
    assert not audit.ok
    assert "CRC" in repr(audit)
    assert "<table>" in audit._repr_html_()


def test_ladders(tmp_path: Path) -> None:
    found = uetproto.open(LOSSY)
    ladder = found.ladder()
    assert repr(ladder).splitlines() == invoke("ladder", LOSSY).output.splitlines()
    assert b64decode(ladder._repr_html_().partition("base64,")[2].rstrip('">')).decode() == ladder.svg
    assert ladder.svg.startswith("<svg")
    ladder.save(str(tmp_path / "x.svg"))
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == ladder.svg
    assert "#4" in repr(found.ladder(packets=[3, 4]))
    assert "(the first 2 rows)" in repr(found.ladder(rows=2))
    assert len(repr(found.ladder(every=True)).splitlines()) > len(repr(ladder).splitlines())


def test_a_difference_shows_itself() -> None:
    lossy = uetproto.open(LOSSY)
    assert repr(lossy.diff(lossy)) == "(no differences; 20 packets alike of 20 and 20)"
    told = repr(lossy.diff(uetproto.open(GRADIENT))).splitlines()
    assert len(told) == 21
    assert told[-1].startswith("(the first lines of: ")


def test_html_is_safe(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with open_writer(str(path), interfaces=[("<script>", 1)]) as writer:
        writer.write(0, frame(1, 2, *write(73728, 0, syn=1)))
    (packet,) = uetproto.open(path)
    assert packet.interface == "<script>"
    told = packet._repr_html_() + uetproto.open(path)._repr_html_() + uetproto.open(path).stats()._repr_html_()
    assert "<script" not in told
    assert packet._repr_html_().count("<table>") == 1 + len(packet.layers)
    assert "02 00 0a" in packet._repr_html_().replace("</span>", "").replace('<span style="background:#7ab0ff55">', "")


def test_the_users_program(tmp_path: Path) -> None:
    again = user_script.sent_again(LOSSY)
    assert [(one.number, one.repeats, one.after_us) for one in again] == [
        (15, 11, 4.07),
        (16, 12, 4.07),
        (19, 18, 1000),
    ]
    assert user_script.causes(LOSSY) == {"NACK ROD_OOO": 2, "RTO?": 1}
    (pdc,) = user_script.by_pdc(LOSSY).values()
    assert (pdc.requests, pdc.acks, pdc.nacks, len(pdc.psns)) == ({"WRITE": 14, "CLOSE_CMD": 2}, 3, 1, 13)
    assert user_script.findings(GRADIENT) == []
    assert user_script.slowest(LOSSY) == ("WRITE", 18365)
    assert "WIRE-CRC" in user_script.spoilt("bad-crc")
    assert user_script.psns_over_time(LOSSY, str(tmp_path / "psn.svg")) == 16
    assert "<!-- 10.0.0.11 again -->" in (tmp_path / "psn.svg").read_text(encoding="utf-8")
    assert user_script.exported(LOSSY, str(tmp_path / "acked.parquet")) == 13
    assert user_script.compared(LOSSY, LOSSY) == {"missing": [], "extra": [], "changed": []}
    assert "#5 pds.ack.cack_psn" in user_script.compared(GRADIENT, LOSSY)["changed"]
    with open_capture(GRADIENT) as reader:
        frames = [record.data for record in reader]
    assert user_script.fields(frames[3]) == (0x0A00010B, 73728)
    assert user_script.named(GRADIENT) == {
        "uetp.psn": 73728, "uetp.acked_in": 4, "frame.interface_name": "rank0.0", "uetp.cack_psn": None,
    }  # fmt: skip
    assert [(cc, hosts, trimmed) for cc, hosts, _, trimmed in user_script.sweep([4])] == [("off", 4, 0), ("nscc", 4, 0)]
    assert user_script.lossy(0.1, 3)[0]
    assert user_script.steps("ring") == 6
    assert ["did you mean" in said or "legal: as in" in said for said in user_script.refused(LOSSY)] == [True] * 3


def test_a_list_of_packets_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list asks for the number of packets beforehand, which is known when it was read."""
    opened: list[str] = []
    read = CaptureSource.open

    def noted(source: CaptureSource) -> CaptureReader:
        opened.append(source.name)
        return read(source)

    monkeypatch.setattr(CaptureSource, "open", noted)
    for capture in (uetproto.open(LOSSY), uetproto.open(LOSSY).filter("uetp.psn > 73730")):
        opened.clear()
        packets = [*capture]
        assert (list(capture), len(packets)) != ([], 0)
        assert len(opened) == 2
        assert len(capture) == len(packets)
        assert len(opened) == 2
    fresh = uetproto.open(LOSSY)
    assert len(fresh) == 20
    iterator = iter(uetproto.open(LOSSY))
    assert next(iterator).number == 1


def test_a_ladder_of_packets_of_other_interfaces_draws_all() -> None:
    wanted = uetproto.open(PCAPS / "uet-incast.pcapng").filter("ip.addr == 10.0.0.7")
    drawn = wanted.ladder(rows=30)
    assert drawn.text == wanted.ladder(merge=True, rows=30).text
    assert "NACK" in drawn.text
    assert wanted.ladder(merge=False).text.startswith("(no packets to draw")
