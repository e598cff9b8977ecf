# SPDX-License-Identifier: GPL-2.0-only
"""packets.parquet and findings.parquet: every packet, every finding, types and names as the table of columns says."""

import builtins
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit.build import GOLDEN
from tests.support.cli.frames import ack, capture, frame, nack, trimmed, write
from tests.support.wire.odd_times import shifted
from uetproto.audit.auditor import audit
from uetproto.audit.parquet import (
    FINDING_COLUMNS,
    FINDINGS,
    PACKET_COLUMNS,
    PACKETS,
    PacketTable,
    write_findings,
)
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.errors import LocalError
from uetproto.parquet import check_parquet
from uetproto.wire.capture.pcap import open_capture, open_writer

pq = pytest.importorskip("pyarrow.parquet")

PSN = 73728


def written(directory: Path, *files: Path | str, options: Options | None = None) -> AuditReport:
    with PacketTable(str(directory)) as table:
        report = audit(files, options or Options(), None, table)
    write_findings(str(directory), report.findings)
    return report


def rows(directory: Path, name: str = PACKETS) -> list[dict[str, Any]]:
    """With times as nanoseconds."""
    table = pq.read_table(directory / name)
    table = table.set_column(table.schema.get_field_index("time"), "time", table["time"].cast("int64"))
    return list(table.to_pylist())


def test_every_packet_is_a_row(tmp_path: Path) -> None:
    files = [GOLDEN / f"{name}.pcapng" for name in ("gradient-lossy", "incast-roce", "ses-rudi-read")]
    written(tmp_path / "out", *files)
    found = rows(tmp_path / "out")
    expected = []
    for file in files:
        with open_capture(file) as reader:
            expected += [(str(file), one.index, one.time_ns, one.length) for one in reader]
    assert sorted((row["file"], row["number"], row["time"], row["length"]) for row in found) == sorted(expected)


def test_what_is_in_a_row(tmp_path: Path) -> None:
    whole = frame(1, 2, *write(PSN + 1, 1024, syn=1), payload=bytes(1024))
    file = capture(tmp_path / "a.pcapng", [
        frame(1, 2, *write(PSN, 0, syn=1), payload=bytes(1024)), whole, trimmed(whole, 150),
        frame(2, 1, nack(PSN + 1, PSN + 1)), frame(2, 1, *ack(PSN)),
    ])  # fmt: skip
    written(tmp_path, file)
    first, second, cut, refused, acked = rows(tmp_path)
    common = {"src": "10.0.0.1", "dst": "10.0.0.2", "entropy": 0xC000, "form": "pds.rod_req.syn", "spdcid": 5}
    assert common.items() <= first.items()
    assert (first["psn"], first["psn_offset"], first["clear_psn_offset"]) == (PSN, 0, -1)
    assert (first["ses"], first["opcode"], first["som"], first["eom"]) == ("ses.request_std.som", "WRITE", 1, 0)
    assert (first["message_id"], first["job_id"], first["request_length"]) == (1, 101, 12288)
    assert (second["payload"], second["length"]) == (1024, len(whole))
    assert (second["message_offset"], second["payload_length"]) == (1024, 1024)
    assert (second["trimmed"], cut["trimmed"], cut["payload"], cut["dscp"]) == (False, True, None, 16)
    assert (refused["form"], refused["nack_code"], refused["nack_psn"]) == ("pds.nack", "ROD_OOO", PSN + 1)
    assert refused["psn"] is None
    assert (acked["form"], acked["cack_psn"], acked["return_code"]) == ("pds.ack", PSN, "OK")
    assert first["cack_psn"] is None
    assert first["bth_opcode"] is None


def test_roce_rows(tmp_path: Path) -> None:
    written(tmp_path, GOLDEN / "roce-read.pcapng")
    request, answer = rows(tmp_path)
    assert (request["form"], request["bth_opcode"], request["dmalen"]) == ("bth", "RC_RDMA_READ_REQUEST", 1_000)
    assert (answer["bth_opcode"], answer["payload"]) == ("RC_RDMA_READ_RESPONSE_ONLY", 1_000)
    assert (answer["syndrome"], answer["msn"]) != (None, None)
    assert request["opcode"] is None


def test_the_inside_of_sealed_packets_is_a_row_of_its_own(tmp_path: Path) -> None:
    from uetproto.engine.tss.keys import KeyRing

    keys = KeyRing.read(str(GOLDEN / "gradient-sealed-direct.keys.toml"))
    written(tmp_path, GOLDEN / "gradient-sealed-direct.pcapng", options=Options(keys=keys))
    found = rows(tmp_path)
    closed = [row for row in found if row["form"].startswith("tss")]
    opened = [row for row in found if not row["form"].startswith("tss")]
    assert [row["number"] for row in closed] == [row["number"] for row in opened]
    assert all(row["tsc"] is not None and row["length"] for row in closed)
    assert all(row["psn"] is not None or row["cack_psn"] is not None for row in opened)
    assert {row["length"] for row in opened} == {None}


@pytest.mark.parametrize("seconds", [-(1 << 63), (1 << 63) - 1])
def test_times_that_do_not_fit_are_null(tmp_path: Path, seconds: int) -> None:
    frames = [frame(1, 2, *write(PSN, 0, syn=1), payload=bytes(size)) for size in (1024, 1023)]
    written(tmp_path, shifted(tmp_path / "a.pcapng", seconds, frames))
    assert [row["time"] for row in rows(tmp_path)] == [None, None]
    assert {row["time"] for row in rows(tmp_path, FINDINGS)} == {None}


def test_times_before_the_epoch_are_kept(tmp_path: Path) -> None:
    frames = [frame(1, 2, *write(PSN, 0, syn=1), payload=bytes(1024))]
    written(tmp_path, shifted(tmp_path / "a.pcapng", -5, frames))
    assert [row["time"] for row in rows(tmp_path)] == [-5 * 10**9]


def test_findings_lead_to_packets(tmp_path: Path) -> None:
    one = frame(1, 2, *write(PSN, 0, syn=1), payload=bytes(1024))
    other = frame(1, 2, *write(PSN, 0, syn=1, retx=1), payload=bytes(1023) + b"x")
    report = written(tmp_path, capture(tmp_path / "a.pcapng", [one, other]))
    found = rows(tmp_path, FINDINGS)
    assert len(found) == len(report.findings) > 0
    (row,) = [row for row in found if row["rule"] == "PDS-PSN-TWO-CONTENTS"]
    (finding,) = [finding for finding in report.findings if finding.rule.id == row["rule"]]
    assert (row["number"], row["packets"], row["severity"]) == (1, list(finding.packets), finding.severity.value)
    assert (row["expected"], row["seen"], row["cite"]) == (finding.expected, finding.seen, finding.rule.cite)
    assert dict(row["flow"])["src"] == "10.0.0.1"
    packets = {(one["file"], one["interface"], one["number"]): one for one in rows(tmp_path)}
    assert packets[row["file"], row["interface"], row["number"]]["retx"] == 1


def test_each_place_of_a_finding_is_a_row(tmp_path: Path) -> None:
    frames = [
        frame(1, 2, *write(PSN, 0, syn=1), payload=bytes(1024)),
        frame(1, 2, *write(PSN, 0, syn=1, retx=1), payload=bytes(1023) + b"x"),
    ]
    files = [capture(tmp_path / f"{name}.pcapng", frames) for name in "ab"]
    report = written(tmp_path, *files)
    found = [row for row in rows(tmp_path, FINDINGS) if row["rule"] == "PDS-PSN-TWO-CONTENTS"]
    assert [row["file"] for row in found] == files
    assert len({row["finding"] for row in found}) == 1
    assert len(report.findings) < len(rows(tmp_path, FINDINGS))


def test_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.parquet.GROUP", 64)
    written(tmp_path, GOLDEN / "incast-roce.pcapng")
    file = pq.ParquetFile(tmp_path / PACKETS)
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert sizes == [64] * 4 + [44]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_the_tables_say_what_they_hold(tmp_path: Path) -> None:
    written(tmp_path, GOLDEN / "gradient.pcapng")
    for name, columns in ((PACKETS, PACKET_COLUMNS), (FINDINGS, FINDING_COLUMNS)):
        schema = pq.read_schema(tmp_path / name)
        assert schema.names == [column.name for column in columns]
        assert [(field.metadata or {}).get(b"doc", b"").decode() for field in schema] == [
            column.doc for column in columns
        ]


@pytest.mark.parametrize("time_ns", [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_any_time_can_be_written(time_ns: int, tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    with open_writer(file) as writer:
        writer.write(time_ns, frame(1, 2, *write(PSN, 0, syn=1), payload=bytes(1024)))
    written(tmp_path, file)
    assert rows(tmp_path)[0]["time"] == (time_ns if time_ns < 1 << 63 else None)


def test_nothing_is_an_empty_table(tmp_path: Path) -> None:
    written(tmp_path, capture(tmp_path / "a.pcapng", []))
    assert rows(tmp_path) == rows(tmp_path, FINDINGS) == []


def test_directories(tmp_path: Path) -> None:
    check_parquet(str(tmp_path))
    check_parquet(str(tmp_path / "new"))
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match="is a file; legal: a directory"):
        check_parquet(str(tmp_path / "file"))
    with pytest.raises(LocalError, match="there is no directory"):
        check_parquet(str(tmp_path / "no" / "where"))


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(LocalError, match=r"pip install 'uetproto\[parquet\]'"):
        check_parquet("anywhere")
