# SPDX-License-Identifier: GPL-2.0-only
"""Every command sees in a tunnel what it sees without one: the same findings, statistics, ladders and headers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli.frames import ack, capture, frame, invoke
from tests.support.effort import effort
from tests.support.wire.tunnels import NAMES, tunnelled
from uetproto.wire.capture.pcap import open_capture, open_writer
from uetproto.wire.forms import TUNNEL_FORMS

SOME = effort(("vxlan", "gre with all", "geneve with options", "mpls"), NAMES, NAMES)
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
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Captures with and without faults, of UET and of RoCE."""
    folder = tmp_path_factory.mktemp("sources")
    made = []
    for profile in ("mixed", "roce-mixed"):
        spoilt = [word for one in MUTATIONS for word in ("--mutate", one)] if profile == "mixed" else []
        path = folder / f"{profile}.pcapng"
        arguments = ["generate", profile, "-o", str(path), "--packets", "300", "--seed", "11", *spoilt]
        assert invoke(*arguments).exit_code == 0
        made.append(path)
    return [*made, paths.PCAPS / "gradient-lossy.pcapng"]


@pytest.mark.parametrize("name", SOME)
def test_commands(name: str, sources: list[Path], tmp_path: Path) -> None:
    for source in sources:
        plain = copied(source, tmp_path / "plain.pcap", lambda frame: frame)
        inside = copied(source, tmp_path / "inside.pcap", lambda frame: tunnelled(frame, name))
        found = lines("audit", "--json", inside)
        assert found == lines("audit", "--json", plain)
        assert len(found) > 5 or source.stem != "mixed"
        assert lines("stats", "--json", inside) == lines("stats", "--json", plain)
        assert lines("stats", "--per-packet", inside) == lines("stats", "--per-packet", plain)
        assert lines("ladder", "--json", "--all", inside) == lines("ladder", "--json", "--all", plain)


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


def test_audit_tells_of_several_vnis(tmp_path: Path) -> None:
    """It does so too if packets of the second VNI are read by what was compiled for those of the first."""
    alike = [frame(11, 12, *ack(73728 + at)) for at in range(40)]
    one = [tunnelled(data, "vxlan") for data in alike]
    assert one[0][46:49] == (4242).to_bytes(3, "big")
    two = [*one[:30], *(data[:46] + (7).to_bytes(3, "big") + data[49:] for data in one[30:])]
    paths_of = [capture(tmp_path / f"{number}.pcap", frames) for number, frames in ((1, one), (2, two))]
    assert lines("audit", "--json", paths_of[1])[-1]["vnis"] == 2
    told = [invoke("audit", path).stdout for path in paths_of]
    assert "tunnels have 2 VNIs, which are not told apart" in told[1]
    assert "VNI" not in told[0]
    assert lines("audit", "--json", paths_of[0])[:-1] == lines("audit", "--json", paths_of[1])[:-1]
