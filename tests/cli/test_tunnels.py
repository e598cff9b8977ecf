# SPDX-License-Identifier: GPL-2.0-only
"""Every command sees in a tunnel what it sees without one: the same findings, statistics, ladders and headers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli.frames import capture, frame, invoke, write
from tests.support.effort import effort
from tests.support.wire.tunnels import NAMES, tunnelled
from uetproto.wire.capture.pcap import Record, open_capture, open_writer
from uetproto.wire.forms import TUNNEL_FORMS

SOME = effort(("gre with all", "geneve with options", "mpls"), NAMES, NAMES)  # vxlan is below, too
MUTATIONS = ("psn-two-contents=0.01", "reserved-bit=0.01", "bad-crc=0.01", "clear-falls=0.01", "cut=0.01")


def copied(source: Path, path: Path, around: Callable[[bytes], bytes]) -> str:
    """Write the frames of the first interface of a capture with something around them."""
    with open_capture(source) as reader, open_writer(path) as writer:
        for record in reader:
            if record.interface == 0:
                frame = around(record.data)
                writer.write(record.time_ns, frame, length=len(frame) + record.length - len(record.data))
    return str(path)


def lines(*arguments: str) -> list[Any]:
    """Return what a command prints with --json, without names of files and sizes of frames."""
    result = invoke(*arguments)
    assert result.exit_code in (0, 1), result.stderr
    return [_bare(json.loads(line)) for line in result.stdout.splitlines()]


def _bare(found: Any) -> Any:
    if isinstance(found, dict):
        return {
            name: _bare(value) for name, value in found.items() if name not in ("file", "bytes", "WIRE-GRE-CHECKSUM")
        }
    return [_bare(one) for one in found] if isinstance(found, list) else found


_OTHER = ("file", "bytes", "WIRE-GRE-CHECKSUM")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, list[Any]]]:
    """Captures with and without faults, of UET and of RoCE, with what is told of each without a tunnel."""
    folder = tmp_path_factory.mktemp("sources")
    made = []
    for profile in ("mixed", "roce-mixed"):
        spoilt = [word for one in MUTATIONS for word in ("--mutate", one)] if profile == "mixed" else []
        path = folder / f"{profile}.pcapng"
        arguments = ["generate", profile, "-o", str(path), "--packets", "300", "--seed", "11", *spoilt]
        assert invoke(*arguments).exit_code == 0
        made.append(path)
    made.append(paths.PCAPS / "gradient-lossy.pcapng")
    return [(path, told(copied(path, folder / "plain.pcap", lambda frame: frame))) for path in made]


def told(path: str) -> list[Any]:
    """What four commands say of a capture."""
    commands = (("audit", "--json"), ("stats", "--json"), ("stats", "--per-packet"), ("ladder", "--json", "--all"))
    return [lines(*command, path) for command in commands]


@pytest.mark.parametrize("name", SOME)
def test_commands(name: str, sources: list[tuple[Path, list[Any]]], tmp_path: Path) -> None:
    for source, plain in sources:
        inside = copied(source, tmp_path / "inside.pcap", lambda frame: tunnelled(frame, name))
        for one, other in zip(told(inside), plain, strict=True):
            assert one == other
        assert len(plain[0]) > 5 or source.stem != "mixed"


def test_dissect_names_the_tunnels(tmp_path: Path) -> None:
    source = paths.PCAPS / "gradient.pcapng"
    inside = copied(source, tmp_path / "x.pcap", lambda frame: tunnelled(frame, "vxlan in gre in a vlan"))
    text = invoke("dissect", "--packet", "1", inside).stdout
    assert text.startswith("#1  0.000 µs  10.0.0.11 → 10.0.1.11  ROD_REQ SYN PSN 73728 · WRITE id 1 ")
    assert "bytes · in GRE, VXLAN 3\n" in text
    assert "vni = 3\n" in text
    plain = lines("dissect", "--json", str(source))
    for one, other in zip(lines("dissect", "--json", inside), plain, strict=True):
        last = max(number for number, layer in enumerate(one["layers"]) if layer["form"] in TUNNEL_FORMS)
        assert [layer["fields"] for layer in one["layers"][last + 1 :]] == [
            layer["fields"] for layer in other["layers"]
        ]
        assert one["trailer"] == other["trailer"]


@pytest.mark.parametrize("name", SOME)
def test_sealed_packets_are_opened_in_tunnels(name: str, tmp_path: Path) -> None:
    """Lengths and checksums of all headers around the opened packet are mended."""
    source, keys = (paths.PCAPS / f"gradient-sealed-cluster.{kind}" for kind in ("pcapng", "keys.toml"))
    inside = copied(source, tmp_path / "sealed.pcap", lambda frame: tunnelled(frame, name))
    plain = str(tmp_path / "plain.pcapng")
    assert invoke("open", inside, "--keys", str(keys), "-o", plain).exit_code == 0
    found = lines("audit", "--json", plain)
    assert [one["rule"] for one in found if one["kind"] == "finding"] == []
    assert all(one["error"] is None and one["trailer"]["ok"] for one in lines("dissect", "--json", plain))


def test_diff_compares_what_is_in_tunnels(tmp_path: Path) -> None:
    source = paths.PCAPS / "gradient-lossy.pcapng"
    plain = copied(source, tmp_path / "plain.pcap", lambda frame: frame)
    inside = copied(source, tmp_path / "inside.pcap", lambda frame: tunnelled(frame, "vxlan"))
    other = copied(source, tmp_path / "other.pcap", lambda frame: tunnelled(frame[:-6] + bytes(6), "gre"))
    assert invoke("diff", plain, inside).exit_code == 0
    assert invoke("diff", plain, inside, "--strict").exit_code == 1
    assert invoke("diff", plain, other).exit_code == 1


def test_a_wrong_checksum_of_gre_is_found(tmp_path: Path) -> None:
    def spoilt(frame: bytes) -> bytes:
        data = bytearray(tunnelled(frame, "gre with all"))
        data[39] ^= 1
        return bytes(data)

    path = copied(paths.PCAPS / "gradient.pcapng", tmp_path / "x.pcap", spoilt)
    found = [json.loads(line) for line in invoke("audit", "--json", path).stdout.splitlines()]
    assert {one["rule"] for one in found[:-1]} == {"WIRE-GRE-CHECKSUM"}
    assert [one["packets"] for one in found[:-1]] == [[number] for number in range(7)]
    assert found[-1]["rules"]["WIRE-GRE-CHECKSUM"]["failed"] == 7


def test_hosts_in_different_vnis_are_told_apart(tmp_path: Path) -> None:
    """Two tenants whose hosts have equal addresses send the same bytes: everything is there twice, and nothing repeats
    or contradicts anything else."""
    for name in ("gradient-lossy", "gradient-roce"):
        source = paths.PCAPS / f"{name}.pcapng"
        with open_capture(source) as reader:
            records = [one for one in reader if one.interface == 0]

        def written(path: Path, *vnis: int, records: list[Record] = records) -> str:
            with open_writer(path) as writer:
                for record in records:
                    inside = tunnelled(record.data, "vxlan")
                    assert inside[46:49] == (4242).to_bytes(3, "big")
                    for later, vni in enumerate(vnis):
                        writer.write(record.time_ns + later, inside[:46] + vni.to_bytes(3, "big") + inside[49:])
            return str(path)

        one, two = written(tmp_path / "one.pcap", 7), written(tmp_path / "two.pcap", 7, 9)
        found, twice = lines("audit", "--json", one), lines("audit", "--json", two)
        assert (found[:-1], twice[:-1], twice[-1]["vnis"]) == ([], [], 2)
        assert "tunnels have 2 VNIs" in invoke("audit", two).stdout
        assert "VNI" not in invoke("audit", one).stdout
        for kind in ("qp" if "roce" in name else "pdc", "message"):
            rows, double = (
                [row for row in lines("stats", "--json", path) if row["kind"] == kind] for path in (one, two)
            )
            assert len(rows) > 0
            assert sorted(row["flow"]["src"].removesuffix(" VNI 9") for row in double) == sorted(
                [row["flow"]["src"] for row in rows] * 2
            )
            assert [row["resent"] for row in double if row["flow"]["src"].endswith(" VNI 9")] == [
                row["resent"] for row in rows
            ]
        drawn = invoke("ladder", two, "--width", "160", "--all").stdout
        assert drawn.count("VNI 9") == 2, drawn
        assert [
            row["tone"] for row in lines("ladder", one, "--json", "--all") if row["row"] == "packet" for _ in range(2)
        ] == [row["tone"] for row in lines("ladder", two, "--json", "--all") if row["row"] == "packet"]
        seen = lines("stats", "--per-packet", two)
        assert [{**row, "number": 0} for row in seen[::2]] != [{**row, "number": 0} for row in seen[1::2]]
        assert not any("uetp.analysis.copy_of" in row for row in seen)
        assert invoke("diff", two, written(tmp_path / "swapped.pcap", 9, 7)).exit_code == 0
        less = invoke("diff", two, one)
        assert f"{len(records):,} missing" in less.stdout, less.stdout
        assert "VNI 9" in less.stdout


def test_packets_of_a_second_vni_are_told_apart_when_they_are_read_by_what_was_compiled_for_the_first(
    tmp_path: Path,
) -> None:
    alike = [
        tunnelled(
            frame(11, 12, *write(73728 + at, 1024 * at, 1 << 20, syn=int(at in (0, 30))), payload=bytes(1024)), "vxlan"
        )
        for at in range(40)
    ]
    two = [*alike[:30], *(data[:46] + (7).to_bytes(3, "big") + data[49:] for data in alike[30:])]
    path = capture(tmp_path / "two.pcap", two)
    packets = [row["packets"] for row in lines("stats", "--json", path) if row["kind"] == "pdc"]
    assert sorted(packets) == [10, 30]
