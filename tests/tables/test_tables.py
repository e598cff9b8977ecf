# SPDX-License-Identifier: GPL-2.0-only
"""Tables of captures: what columns of NumPy give is what packets say one by one; frames, files and SQL."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import uetproto
from tests.support.cli.frames import invoke
from tests.support.effort import effort
from tests.support.paths import PCAPS
from uetproto import columns
from uetproto.analysis.packet_view import PacketView
from uetproto.filters.fields import fields
from uetproto.tables import pieces
from uetproto.tables.joined import in_reach
from uetproto.tables.names import ANALYSIS, COMMON, OWN, column_of
from uetproto.wire.words.text import code

LOSSY = str(PCAPS / "gradient-lossy.pcapng")
FEW = [PCAPS / f"{name}.pcapng" for name in (
    "gradient-lossy", "gradient-v6", "gradient-native", "gradient-sealed-direct", "roce-ud-send", "roce-fetch-add",
    "uet-incast", "ladder-C1", "ses-atomic", "roce-v6",
)]  # fmt: skip
CAPTURES = effort(FEW, sorted(PCAPS.glob("*.pcapng")), sorted(PCAPS.glob("*.pcapng")))


def cell(packet: PacketView, name: str, first: dict[tuple[str, str], int]) -> Any:
    """What the joined table has to have, from the packet alone."""
    if name == "flow":
        return first.setdefault((packet.src, packet.dst), len(first))
    if name in ("number", "length", "protocol", "src", "dst", "interface"):
        return getattr(packet, name)
    if name == "time":
        return packet.time_ns
    if name == "form":
        forms = [one.form for one in packet.layers if one.form.startswith(("pds.", "tss", "bth"))]
        return forms[0] if forms else None
    if name in ("sport", "dport"):
        return next((one.values[name] for one in reversed(packet.layers) if one.form == "udp"), None)
    if name in ("dscp", "ecn"):
        return next((one.values[name] for one in reversed(packet.layers) if one.form in ("ipv4", "ipv6")), None)
    values = fields()[name].read(packet.seen)
    codes = column_of(name).codes
    return None if not values else code(codes, values[-1]) if codes is not None else values[-1]


def test_the_joined_table_is_what_packets_say() -> None:
    for path in CAPTURES:
        capture = uetproto.open(path)
        table = capture.to_arrow()
        assert table.column_names == list(COMMON)
        first: dict[tuple[str, str], int] = {}
        packets = list(capture)
        for name in COMMON:
            told = table[name].cast(pa.int64()).to_pylist() if name == "time" else table[name].to_pylist()
            assert told == [cell(packet, name, first) for packet in packets], (path.name, name)


def test_mixed_traffic_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mixed.pcapng"
    packets = effort(700, 20_000, 20_000)
    assert invoke("generate", "mixed", "-o", str(path), "--packets", str(packets)).exit_code == 0
    capture = uetproto.open(path)
    whole = capture.to_arrow()
    monkeypatch.setattr(pieces, "ROWS", 300)
    assert capture.to_arrow().equals(whole)
    first: dict[tuple[str, str], int] = {}
    all_of_them = list(capture)
    for name in COMMON:
        if name != "time":
            assert whole[name].to_pylist() == [cell(packet, name, first) for packet in all_of_them], name
    wanted = "uetp.psn and uetp.opcode != WRITE"
    some = capture.filter(wanted)
    assert some.to_arrow(["number"])["number"].to_pylist() == [packet.number for packet in some]
    told = capture.to_arrow(["number", *ANALYSIS]).to_pylist()
    for row, packet in zip(told, capture.analysed(), strict=True):
        assert {name: value for name, value in row.items() if name != "number" and value is not None} == {
            name: value for name in ANALYSIS if (value := packet.get(name)) is not None
        }


def test_names_that_are_in_reach_are_those_of_columns() -> None:
    assert all(in_reach(name) for name in COMMON)
    assert not any(in_reach(name) for name in ANALYSIS)
    assert not in_reach("uetp.pds.ack.psn")
    assert set(OWN) - {"file"} <= set(COMMON)


def test_frames() -> None:
    capture = uetproto.open(LOSSY)
    table = capture.to_arrow()
    assert table.schema.field("time").type == pa.timestamp("ns", tz="UTC")
    assert table["uetp.opcode"].to_pylist()[:2] == ["WRITE", "WRITE"]
    assert capture.to_polars()["uetp.psn"].sum() == sum(packet.psn or 0 for packet in capture)
    assert capture.to_pandas().groupby("protocol")["length"].sum().to_dict() == {"UET": 16148}
    assert pl.DataFrame(capture).equals(capture.to_polars())
    assert pa.table(capture).equals(table)
    assert capture.to_polars(["uetp.acks"])["uetp.acks"].to_list()[12] == [1]
    assert capture.to_arrow(["eth.src", "ip.src", "uetp.payload", "uetp.retx"]).to_pylist()[0]["eth.src"] == (
        "02:00:0a:00:00:0b"
    )


def test_what_can_be_a_table(tmp_path: Path) -> None:
    data = Path(LOSSY).read_bytes()
    wanted = uetproto.open(LOSSY).to_arrow()
    for source in (data, gzip.compress(data), Path(LOSSY)):
        assert uetproto.open(source).to_arrow().equals(wanted)
    with open(LOSSY, "rb") as file:
        assert uetproto.open(file).to_arrow().equals(wanted)
    both = uetproto.open(LOSSY, data, offsets_ns=[0, 1000]).to_arrow(["time"])
    assert both["file"].to_pylist() == [LOSSY] * 20 + ["bytes"] * 20
    times = both["time"].cast(pa.int64()).to_pylist()
    assert [late - early for early, late in zip(times[:20], times[20:], strict=True)] == [1000] * 20
    with pytest.raises(uetproto.LocalError, match="link"):
        uetproto.open(LOSSY, link="raw").to_arrow()
    with pytest.warns(uetproto.CaptureWarning, match="damaged"):
        assert uetproto.open(data[:-10]).to_arrow().num_rows == 19


def test_sealed_packets(tmp_path: Path) -> None:
    path = tmp_path / "sealed.pcapng"
    assert invoke("generate", "sealed", "-o", str(path), "--packets", "60").exit_code == 0
    closed = uetproto.open(path).to_arrow(["uetp.psn"])
    opened = uetproto.open(path, keys=f"{path}.keys.toml")
    assert closed["uetp.psn"].null_count == 60
    assert opened.to_arrow(["uetp.psn"])["uetp.psn"].to_pylist() == [one.get("uetp.psn") for one in opened]


@pytest.mark.parametrize("names", ["uetp.pns", ["uetp.pns"], ["psn"], ["sorce"], [5]])
def test_unknown_columns(names: Any) -> None:
    with pytest.raises(uetproto.LocalError, match="fields: "):
        uetproto.open(LOSSY).to_arrow(names)


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = uetproto.open(LOSSY)
    for module, call in (("pyarrow", capture.to_arrow), ("polars", capture.to_polars), ("pandas", capture.to_pandas)):
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, module, None)
            with pytest.raises(uetproto.LocalError, match=f"needs the package {module}; .*pip install"):
                call()


def test_columns_of_numpy_are_frames() -> None:
    acks = columns.read(LOSSY)["pds.ack"]
    frame = pd.DataFrame(acks)
    assert list(frame) == list(acks)
    assert frame["cack_psn"].tolist() == pl.DataFrame(acks)["cack_psn"].to_list() == acks["cack_psn"].tolist()
    assert pa.table(acks).num_rows == 3
    assert repr(acks).startswith("<Rows of pds.ack: 3 headers; index, type")
    assert (acks.get("nothing", 5), "psn" in acks, len(dict(acks))) == (5, False, len(acks))
    for change in (lambda: acks.update(x=1), lambda: acks.pop("index"), lambda: acks.__setitem__("x", acks["index"])):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    wide = columns.read(PCAPS / "gradient-v6.pcapng")["ipv6"]
    assert pl.from_arrow(pa.table(wide))["src"][0] == pd.DataFrame.from_arrow(wide)["src"][0] == bytes(wide["src"][0])


# Files ----------------------------------------------------------------------------------------------------------------


def test_export_to_files(tmp_path: Path) -> None:
    wanted = uetproto.open(LOSSY).to_arrow()
    for suffix in ("parquet", "csv", "arrow"):
        path = str(tmp_path / f"x.{suffix}")
        result = invoke("export", LOSSY, "-o", path, "--json")
        assert json.loads(result.stdout) == {"files": {path: 20}, "columns": list(COMMON)}
    assert pq.read_table(tmp_path / "x.parquet").equals(wanted)
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().equals(wanted)
    told = csv.read_csv(tmp_path / "x.csv")
    assert told["uetp.psn"].to_pylist() == wanted["uetp.psn"].to_pylist()
    assert told["src"].to_pylist() == wanted["src"].to_pylist()
    assert uetproto.open(LOSSY).to_parquet(tmp_path / "y.parquet") == {str(tmp_path / "y.parquet"): 20}


def test_export_to_a_folder(tmp_path: Path) -> None:
    result = invoke("export", LOSSY, "-o", str(tmp_path / "all"), "--filter", "uetp.retx == 1")
    assert "packets.parquet: 3 rows" in result.stdout
    found = columns.read(LOSSY)
    assert {path.stem for path in (tmp_path / "all").iterdir()} == {"packets", *found}
    rows = pq.read_table(tmp_path / "all" / "pds.rod_req.parquet").to_pylist()
    assert [(row["number"], row["psn"]) for row in rows] == [(15, 73738), (16, 73739)]
    for kind in ("csv", "arrow"):
        assert invoke("export", LOSSY, "-o", str(tmp_path / kind), f"--{kind}").exit_code == 0
        assert (tmp_path / kind / f"pds.ack.{kind}").exists()


def test_export_of_chosen_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    names = "number,uetp.acked_in,uetp.acks,uetp.payload"
    assert invoke("export", LOSSY, "-o", str(path), "--fields", names, "--filter", "uetp.acks").exit_code == 0
    assert path.read_text().splitlines() == [
        '"number","uetp.acked_in","uetp.acks","uetp.payload"', '13,,"1",', '17,,"2 3 4 5 6 7 8 9 10 15 16",',
        '20,,"19",',
    ]  # fmt: skip


def test_export_of_several_captures_at_a_time(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pcapng"
    damaged.write_bytes(Path(LOSSY).read_bytes()[:-10])
    files = (LOSSY, str(damaged), str(PCAPS / "uet-mixed.pcapng"))
    for target in effort(("folder",), ("x.parquet", "folder"), ("x.parquet", "folder")):  # processes import
        told = []
        for jobs in ("1", "2"):
            (tmp_path / jobs).mkdir(exist_ok=True)
            result = invoke(
                "export", *files, "-o", str(tmp_path / jobs / target), "--jobs", jobs, "--filter", "uetp.psn", "--json"
            )
            assert result.exit_code == 1
            assert "damaged at byte" in result.stderr
            rows = {Path(path).name: count for path, count in json.loads(result.stdout)["files"].items()}
            told.append((rows, result.stderr))
        assert told[0] == told[1]
        for name in told[0][0]:
            one, other = (tmp_path / jobs / ("folder" if target == "folder" else "") / name for jobs in ("1", "2"))
            assert pq.read_table(one).equals(pq.read_table(other)), name
    for name in ("frame.number == 1", "uetp.acked_in"):
        result = invoke("export", *files, "-o", str(tmp_path / "y.csv"), "--jobs", "2", "--filter", name)
        assert (result.exit_code, "several captures" in result.stderr) == (2, True)


def test_tables_of_a_pipe(tmp_path: Path) -> None:
    piped, plain = str(tmp_path / "piped.csv"), str(tmp_path / "plain.csv")
    more = ("--filter", "uetp.retx == 1", "--analysis")
    assert invoke("export", "-", "-o", piped, *more, data=Path(LOSSY).read_bytes()).exit_code == 0
    assert invoke("export", LOSSY, "-o", plain, *more).exit_code == 0
    assert Path(piped).read_bytes() == Path(plain).read_bytes()
    result = invoke("query", "-", "SELECT count(*) AS n FROM packets", "--json", data=Path(LOSSY).read_bytes())
    assert json.loads(result.stdout) == {"n": 20}


def test_what_export_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for arguments, told in (
        (("-o", str(tmp_path / "x.csv"), "--arrow"), "is no name of arrow"),
        (("-o", str(tmp_path / "file")), "is a file"),
        (("-o", str(tmp_path / "x.csv"), "--fields", "uetp.pns"), "did you mean uetp.psn"),
        (("-o", str(tmp_path / "x.csv"), "--filter", "uetp.pns"), "did you mean uetp.psn"),
        (("-o", str(tmp_path / "no" / "x.csv")), "no directory"),
        (("-o", "-"), "not written to standard output"),
        (("-o", str(tmp_path / "x.csv.gz")), ".gz is no suffix of tables"),
    ):
        result = invoke("export", LOSSY, *arguments)
        assert (result.exit_code, told in result.stderr) == (2, True), (arguments, result.stderr)
    assert invoke("export", "-", "-o", str(tmp_path / "x.csv"), data=b"").exit_code == 2
    assert "one pipe alone" in invoke("export", LOSSY, "-", "-o", str(tmp_path / "x.csv"), data=b"").stderr
    damaged = tmp_path / "damaged.pcapng"
    damaged.write_bytes(Path(LOSSY).read_bytes()[:-10])
    result = invoke("export", str(damaged), "-o", str(tmp_path / "d.csv"))
    assert result.exit_code == 1
    assert "damaged at byte" in result.stderr


# SQL ------------------------------------------------------------------------------------------------------------------


def asked(source: str, sql: str, *options: str) -> list[dict[str, Any]]:
    result = invoke("query", source, sql, "--json", *options)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_query(tmp_path: Path) -> None:
    by_opcode = asked(LOSSY, 'SELECT "uetp.opcode" AS o, count(*) AS n FROM packets GROUP BY 1 ORDER BY n DESC')
    assert by_opcode == [{"o": "WRITE", "n": 14}, {"o": None, "n": 6}]
    assert asked(LOSSY, "SELECT src, packets, resent FROM pdcs") == [
        {"src": "10.0.0.11", "packets": 16, "resent": '{"NACK ROD_OOO": 2, "RTO?": 1}'}
    ]
    joined = 'SELECT m.latency_ns, p.time FROM messages m JOIN packets p ON p."uetp.psn" = m.psn LIMIT 1'
    assert asked(LOSSY, joined) == [{"latency_ns": 18365, "time": "1970-01-01T00:00:00+00:00"}]
    assert asked(LOSSY, "SELECT rule FROM findings") == []
    assert asked(LOSSY, 'SELECT max("uetp.acked_in") AS m FROM packets', "--analysis") == [{"m": 20}]
    assert asked(LOSSY, "SELECT count(*) AS n FROM packets", "--filter", "uetp.retx == 1") == [{"n": 3}]
    assert invoke("export", LOSSY, "-o", str(tmp_path / "t")).exit_code == 0
    assert asked(str(tmp_path / "t"), 'SELECT max(cack_psn) AS m FROM "pds.ack"') == [{"m": 73740}]
    for suffix in ("parquet", "arrow", "csv"):
        table = str(tmp_path / f"lossy.{suffix}")
        assert invoke("export", LOSSY, "-o", table).exit_code == 0
        for view in ("packets", "lossy"):
            assert asked(table, f'SELECT max("uetp.psn") AS m FROM {view}') == [{"m": 73740}]
    text = invoke("query", LOSSY, "SELECT protocol, count(*) AS n FROM packets GROUP BY 1").stdout
    assert text.splitlines() == ["protocol  n", "UET       20"]


def test_query_tells_damage(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pcapng"
    damaged.write_bytes(Path(LOSSY).read_bytes()[:-10])
    for view in ("packets", "pdcs"):
        result = invoke("query", str(damaged), f"SELECT count(*) FROM {view}")
        assert (result.exit_code, result.stderr.count("damaged at byte")) == (1, 1), result.stderr


def test_what_query_refuses(tmp_path: Path) -> None:
    bad = tmp_path.parent / f"{tmp_path.name}.parquet"
    bad.write_text("no table")
    for source, sql, options, told in (
        (LOSSY, "SELEC", (), "syntax error"),
        (LOSSY, "SELECT * FROM packet", (), "(did you mean packets?); views: findings, messages, packets, pdcs"),
        (str(tmp_path / "no.parquet"), "SELECT 1", (), "No such file"),
        (str(bad), "SELECT 1", (), "legal: a table of uetproto export"),
        (LOSSY, "", (), "asks nothing"),
        (str(tmp_path), "SELECT 1", (), "has no tables"),
        (str(tmp_path), "SELECT 1", ("--filter", "uetp"), "with a capture"),
        (LOSSY, "SELECT 1", ("--filter", "uetp.pns"), "did you mean"),
    ):
        result = invoke("query", source, sql, *options)
        assert (result.exit_code, told in result.stderr) == (2, True), (sql, result.stderr)
