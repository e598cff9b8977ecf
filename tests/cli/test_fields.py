# SPDX-License-Identifier: GPL-2.0-only
"""`dissect --fields` and `--json --names`: chosen values, by their names in filters."""

import json
from pathlib import Path

from tests.support.cli.frames import invoke
from tests.support.paths import PCAPS

LOSSY = str(PCAPS / "gradient-lossy.pcapng")


def test_fields_as_text() -> None:
    names = "number,time,src,dport,uetp.psn,uetp.retx,uetp.opcode,uetp.acks,uetp.acked_in,uetp.ack_time,eth.dst,ip.addr"
    lines = invoke("dissect", LOSSY, "--fields", names, "--filter", "frame.number in {15, 17}").stdout.splitlines()
    assert [line.split("\t") for line in lines] == [
        ["15", "0.000004295", "10.0.0.11", "4793", "73738", "1", "WRITE", "", "17", "0.000014070", "02:00:0a:00:01:0b",
         "10.0.0.11,10.0.1.11"],
        ["17", "0.000018365", "10.0.1.11", "4793", "", "", "", "2,3,4,5,6,7,8,9,10,15,16", "", "", "02:00:0a:00:00:0b",
         "10.0.1.11,10.0.0.11"],
    ]  # fmt: skip


def test_fields_as_json() -> None:
    lines = invoke("dissect", LOSSY, LOSSY, "--fields", "uetp.psn, uetp.retx", "--json", "--count", "21").stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    assert len(rows) == 21
    assert rows[14] == {"index": 14, "file": LOSSY, "uetp.psn": 73738, "uetp.retx": True}
    assert rows[12] == {"index": 12, "file": LOSSY}
    assert rows[20]["index"] == 0


def test_fields_of_a_pipe() -> None:
    data = Path(LOSSY).read_bytes()
    assert invoke("dissect", "-", "--fields", "uetp.psn", "--count", "1", data=data).stdout == "73728\n"
    late = invoke("dissect", "-", "--fields", "uetp.acked_in", data=data)
    assert late.exit_code == 0
    assert "names that tell of later packets read it several times" in late.stderr
    assert late.stdout == invoke("dissect", LOSSY, "--fields", "uetp.acked_in").stdout


def test_names() -> None:
    plain = invoke("dissect", LOSSY, "--json").stdout.splitlines()
    named = [json.loads(line) for line in invoke("dissect", LOSSY, "--json", "--names").stdout.splitlines()]
    assert [{name: value for name, value in row.items() if name != "names"} for row in named] == [
        json.loads(line) for line in plain
    ]
    told = named[0]["names"]
    assert (told["uetp.psn"], told["uetp.opcode"], told["uetp.type"], told["uetp.som"]) == (
        73728, "WRITE", "ROD_REQ", True,
    )  # fmt: skip
    assert named[13]["names"]["uetp.nack_code"] == "ROD_OOO"


def test_what_is_refused() -> None:
    for arguments, told in (
        (("--fields", "uetp.pns"), "did you mean uetp.psn"),
        (("--fields", ","), "has no name"),
        (("--fields", "flow"), "is a column of tables alone"),
        (("--fields", "uetp.psn", "--packet", "3"), "--packet: with --fields"),
        (("--names",), "goes with --json"),
        (("--names", "--json", "--fields", "uetp.psn"), "goes with --json"),
    ):
        result = invoke("dissect", LOSSY, *arguments)
        assert (result.exit_code, told in result.stderr) == (2, True), (arguments, result.stderr)
