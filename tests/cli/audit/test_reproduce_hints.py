# SPDX-License-Identifier: GPL-2.0-only
"""The commands beside findings of `uetproto audit`: they show each packet that the finding speaks of."""

import json
import shlex
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.paths import PCAPS
from uetproto.audit.finding import Finding
from uetproto.audit.rule import Severity
from uetproto.audit.rules import BY_ID
from uetproto.cli.audit.reproduce_hints import reproduce_hints


def finding(
    rule: str = "PDS-PSN-TWO-CONTENTS", packets: tuple[int, ...] = (5,), file: str = "x.pcap", interface: str = "",
    **flow: int | str,
) -> Finding:  # fmt: skip
    return Finding(BY_ID[rule], Severity.ERROR, packets, 0, flow, "this", "that", file, interface)


@pytest.mark.parametrize(
    ("found", "commands"),
    [
        (finding(spdcid=7, dpdcid=9),
         ["ladder x.pcap --pdc 7 --packets 4-8 --mark 6", "dissect x.pcap --packet 6"]),
        (finding(spdcid=0, dpdcid=9, interface="b.p0"),
         ["ladder x.pcap --interface b.p0 --pdc 9 --packets 4-8 --mark 6", "dissect x.pcap --packet 6"]),
        (finding("ROCE-OPCODE-ORDER", destqp=70_000),
         ["ladder x.pcap --pdc 70000 --packets 4-8 --mark 6", "dissect x.pcap --packet 6"]),
        (finding("ROCE-OPCODE-ORDER", srcqp=3),
         ["ladder x.pcap --pdc 3 --packets 4-8 --mark 6", "dissect x.pcap --packet 6"]),
        (finding(packets=(1, 101)),
         ["ladder x.pcap --packets 1-104 --mark 2 --mark 102", "dissect x.pcap --packet 102"]),
        (finding(packets=(900, 1, 102)),  # far from one another: no hundreds of rows between
         ["ladder x.pcap --packets 1-4,101-105,899-903 --mark 2 --mark 103 --mark 901", "dissect x.pcap --packet 103"]),
        (finding("WIRE-RESERVED-BIT", spdcid=7), ["dissect x.pcap --packet 6"]),
        (finding("SHARP-LENGTH"), ["ladder x.pcap --packets 4-8 --mark 6", "dissect x.pcap --packet 6 --sharp"]),
        (finding(file="two words"),
         ["ladder 'two words' --packets 4-8 --mark 6", "dissect 'two words' --packet 6"]),
    ],
)  # fmt: skip
def test_commands(found: Finding, commands: list[str]) -> None:
    assert list(reproduce_hints(found)) == [f"uetproto {command}" for command in commands]
    assert list(reproduce_hints(found, ["--crc", "off"])) == [f"uetproto {command} --crc off" for command in commands]


@pytest.mark.parametrize(("size", "packets"), [(300, 0), (-20, 6)])
def test_damage_is_shown(size: int, packets: int, tmp_path: Path) -> None:
    """A capture that is cut may have no packet at the damage: the command tells the damage, whatever else it shows."""
    path = tmp_path / "cut.pcapng"
    path.write_bytes((PCAPS / "gradient.pcapng").read_bytes()[:size])
    (line, _) = map(json.loads, invoke("audit", "--json", str(path)).stdout.splitlines())
    (command,) = reproduce_hints(finding(line["rule"], tuple(line["packets"]), str(path), line["interface"]))
    done = invoke(*shlex.split(command)[1:])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"uetproto: {path}: damaged at byte ")
    assert done.stdout.count("\n#") + done.stdout.startswith("#") == packets


def test_standard_input_is_needed_again() -> None:
    assert all(command.startswith("… | uetproto ") for command in reproduce_hints(finding(file="-")))


@pytest.mark.parametrize(
    ("profile", "mutations"),
    [
        ("mixed", ["psn-two-contents", "job-change", "clear-positive", "response-wrong-id"]),
        ("roce-mixed", ["psn-two-contents", "key-change", "response-wrong-id"]),
    ],
)
def test_each_packet_of_each_finding_is_shown(profile: str, mutations: list[str], tmp_path: Path) -> None:
    """By what is run as it was told; none is lost among similar ones, and nobody gets hundreds of rows."""
    path = str(tmp_path / "x.pcapng")
    shares = [word for name in mutations for word in ("--mutate", f"{name}=0.003")]
    assert invoke("generate", profile, "-o", path, "--packets", "1500", "--seed", "5", *shares).exit_code == 0
    told = [json.loads(line) for line in invoke("audit", "--json", path).stdout.splitlines()][:-1]
    assert len(told) > 5
    for line in told:
        found = finding(line["rule"], tuple(line["packets"]), path, line["interface"], **line["flow"])
        *ladders, dissected = reproduce_hints(found)
        assert f"#{found.packet + 1}  " in invoke(*shlex.split(dissected)[1:]).stdout
        for command in ladders:
            drawn = invoke(*shlex.split(command)[1:])
            assert drawn.stderr == ""
            marked = [row for row in drawn.stdout.splitlines() if "▸" in row]
            assert sorted(set(found.packets)) == [int(row.partition("#")[2].partition("▸")[0]) - 1 for row in marked]
            assert len(drawn.stdout.splitlines()) < 120
