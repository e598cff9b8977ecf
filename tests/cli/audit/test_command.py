# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto audit`: what it tells in which form, what it hides, what it writes, what it refuses."""

import json
import os
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support import paths
from tests.support.cli.frames import ack, capture, close, frame, invoke, program, write
from tests.support.each import each
from uetproto import Layer
from uetproto.audit import judge
from uetproto.audit.personality import PERSONALITIES
from uetproto.audit.rules import BY_ID, RULES
from uetproto.cli.main import cli
from uetproto.cli.terminal import PLAIN_WIDTH
from uetproto.wire.capture.pcap import PcapngWriter, Record, open_capture, open_writer

ROOT = paths.ROOT
PCAPS = ROOT / "pcaps"


def request(psn: int, offset: int, fill: int = 0, src: int = 11, **values: int) -> bytes:
    """A packet of a WRITE on the PDC that begins with PSN 73728; `values` are of its PDS header."""
    head, ses = write(psn, offset, syn=1)
    values = {"clear_psn_offset": 73727 - psn} | values
    layers = [Layer(head.form, {**head.values, **values}), Layer(ses.form, {**ses.values, "resource_index": 15})]
    return frame(src, 12, *layers, payload=bytes([fill]) * 1024)


REQUESTS = [request(73728 + k, 1024 * k, k) for k in range(12)]
GOOD = [*REQUESTS, frame(12, 11, *ack(73739)), frame(11, 12, close(73740)), frame(12, 11, *ack(73740))]
RESERVED = request(73731, 3072, 3, rsvd=1)
"""An error of the packet with PSN 73731 alone."""
TWICE = request(73730, 1024 * 9)
"""The PSN of the third packet with what is not its payload."""
NO_ECN = bytearray(REQUESTS[0])
NO_ECN[15] &= 0xFC
NO_ECN[24:26] = (int.from_bytes(NO_ECN[24:26], "big") + 2).to_bytes(2, "big")
"""Only a note."""


@pytest.fixture
def good(tmp_path: Path) -> str:
    return capture(tmp_path / "good.pcapng", GOOD)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """#4 has a reserved bit, #13 the PSN of #3."""
    return capture(tmp_path / "wrong.pcapng", [*REQUESTS[:3], RESERVED, *REQUESTS[4:], TWICE, *GOOD[12:]])


@pytest.fixture
def noted(tmp_path: Path) -> str:
    return capture(tmp_path / "noted.pcapng", [bytes(NO_ECN), *GOOD[1:]])


def lines(*arguments: str, status: int) -> list[dict[str, Any]]:
    done = invoke("audit", "--json", *arguments)
    assert done.exit_code == status, done.stderr
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def found(*arguments: str, status: int = 1) -> list[tuple[str, int]]:
    """Rule and offending packet of each finding."""
    return [(line["rule"], line["packets"][-1]) for line in lines(*arguments, status=status)[:-1]]


def records(path: Path | str) -> list[Record]:
    with open_capture(str(path)) as reader:
        return list(reader)


# For people -----------------------------------------------------------------------------------------------------------


def test_nothing_wrong(good: str) -> None:
    """Never without the table that says what was judged."""
    done = invoke("audit", good)
    assert (done.exit_code, done.stderr) == (0, "")
    heading = "judged  passed  failed  not judged  rules"
    assert [line.rstrip() for line in done.stdout.splitlines()[:3]] == [good, "", heading]
    assert re.search(r"\nno findings in 15 packets; \d+ of \d+ rules judged\n$", done.stdout)
    table = done.stdout[done.stdout.index(heading) :]
    assert rules_in(table) == Counter(name.partition("-")[0] for name in BY_ID)


def rules_in(table: str) -> Counter[str]:
    """How many rules of each family a table has: by name, or what was never met by family."""
    text = re.sub(r"\s+", " ", table)
    named = Counter(name.partition("-")[0] for name in BY_ID if re.search(rf"(?<![A-Z-]){name}(?![A-Z-])", text))
    whole = {family: int(number) for family, number in re.findall(r"([A-Z]+)-\* \((\d+)\)", text)}
    rest = {family: int(number) for number, family in re.findall(r"the other (\d+) of ([A-Z]+)-\*", text)}
    return named + Counter(whole) + Counter(rest)


def test_what_is_sealed_is_told(tmp_path: Path) -> None:
    """Without keys, nothing inside is judged, and nobody may take that for a clean bill."""
    path = tmp_path / "sealed.pcapng"
    assert invoke("generate", "sealed", "-o", str(path), "--packets", "50").exit_code == 0
    done = invoke("audit", str(path))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("\n  sealed, which --keys would open: 50\n")
    assert "nothing of the kind in the capture but for what is sealed" in re.sub(r"\s+", " ", done.stdout)
    opened = invoke("audit", str(path), "--keys", f"{path}.keys.toml").stdout
    assert "sealed" not in opened.splitlines()[-1]
    assert json.loads(invoke("audit", str(path), "--json").stdout.splitlines()[-1])["unopened"] == {"no keys": 50}


def test_where_nothing_is_understood_that_is_told(good: str) -> None:
    done = invoke("audit", good, "--udp-port", "5000")
    assert done.exit_code == 0
    assert "\n  nothing to judge: --udp-port, --ip-protocol and --roce-port say where UET and RoCE are\n" in done.stdout


def test_findings_are_grouped_and_come_with_a_command_that_shows_them(wrong: str) -> None:
    done = invoke("audit", wrong)
    assert done.exit_code == 1
    assert "error WIRE-RESERVED-BIT: 1 finding\n" in done.stdout
    assert "error PDS-PSN-TWO-CONTENTS: 1 finding\n" in done.stdout
    assert "10.0.0.11 → 10.0.0.12, spdcid 5" in done.stdout
    assert f"uetproto dissect {wrong} --packet 4\n" in done.stdout
    assert f"uetproto ladder {wrong} --pdc 5 --packets 1-15 --mark 3 --mark 13\n" in done.stdout
    assert f"uetproto dissect {wrong} --packet 13\n" in done.stdout
    for line in done.stdout.splitlines():
        if line.startswith("    uetproto "):
            shown = invoke(*shlex.split(line)[1:])
            assert shown.exit_code == 0, shown.stderr
            assert "PSN 737" in shown.stdout or "73731" in shown.stdout
    assert re.search(r"\n\d errors?(, \d \w+)? in 16 packets; ", done.stdout)


def test_the_worst_comes_first_the_table_last(tmp_path: Path) -> None:
    path = capture(tmp_path / "both.pcapng", [bytes(NO_ECN), *REQUESTS[1:3], RESERVED, *GOOD[4:]])
    text = invoke("audit", path).stdout
    at = [
        text.index(part) for part in ("error WIRE-RESERVED-BIT", "note WIRE-ECN", "judged  passed", "1 error, 1 note")
    ]
    assert at == sorted(at)


def test_many_findings_of_a_rule_are_numbers(tmp_path: Path) -> None:
    """Three of a flow in full, eight more by number, four flows."""
    frames = [
        request(73728 + k, 1024 * k, src=src, rsvd=1)
        for src in range(20, 26) for k in range(12)
    ]  # fmt: skip
    text = invoke("audit", capture(tmp_path / "many.pcapng", frames), "--rules", "WIRE-RESERVED-BIT").stdout
    assert "error WIRE-RESERVED-BIT: 72 findings\n" in text
    assert text.count(": expected pds.rod_req.syn.rsvd") == 12
    assert "\n    also #4, #5, #6, #7, #8, #9, #10, #11 and 1 more\n" in text
    assert "and 24 findings in 2 more flows; --json has all" in text


def test_findings_beyond_those_that_are_kept_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MOST", 5)
    path = capture(tmp_path / "many.pcapng", [RESERVED] * 12)
    assert "error WIRE-RESERVED-BIT: 12 findings\n" in invoke("audit", path).stdout
    *told, summary = lines(path, "--rules", "WIRE-RESERVED-BIT", status=1)
    assert len(told) == 5
    assert summary["rules"]["WIRE-RESERVED-BIT"]["failed"] == 12


def test_no_line_is_broken_within_a_command(wrong: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder" / ("long" * 30)
    folder.mkdir(parents=True)
    path = folder / "x.pcapng"
    path.write_bytes(Path(wrong).read_bytes())
    text = invoke("audit", str(path)).stdout
    assert f"    uetproto dissect '{path}' --packet 4\n" in text
    table = text[text.index("judged  passed") :].splitlines()
    assert max(map(len, table)) <= PLAIN_WIDTH


def test_names_from_outside_do_not_drive_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with PcapngWriter(path) as writer:
        writer.add_interface("evil\x1b[2J")
        for number, data in enumerate([*REQUESTS[:3], RESERVED]):
            writer.write(number, data)
    done = invoke("audit", str(path))
    assert "\x1b" not in done.stdout
    assert "evil\N{REPLACEMENT CHARACTER}[2J" in done.stdout


def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown there is what comes out, but for what "…" stands for."""
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs" / "tutorials" / "guide.md").read_text(encoding="utf-8")
    section = guide[guide.index("## Is this capture right?") :]
    made = next(line for line in section.splitlines() if line.startswith("uetproto generate"))
    assert invoke(*shlex.split(made)[1:]).exit_code == 0
    shown = section[section.index("$ uetproto audit") :].partition("```")[0].splitlines()
    done = invoke(*shlex.split(shown[0])[2:])
    assert done.exit_code == 1
    told = [line.rstrip() for line in done.stdout.splitlines()]
    assert [line for line in shown[1:] if "…" not in line and line not in told] == []
    assert len([line for line in shown if "…" in line]) == 2


# Exit status ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "least", "status"),
    [
        ("good", "note", 0), ("noted", "note", 1), ("noted", "warning", 0), ("noted", "error", 0),
        ("wrong", "error", 1), ("wrong", "warning", 1), ("wrong", "note", 1),
    ],
)  # fmt: skip
def test_exit_status(name: str, least: str, status: int, request: pytest.FixtureRequest) -> None:
    assert invoke("audit", request.getfixturevalue(name), "--fail-on", least).exit_code == status


def test_errors_are_what_fails_by_default(noted: str) -> None:
    assert found(noted, status=0) == [("WIRE-ECN", 0)]


# For programs ---------------------------------------------------------------------------------------------------------


def test_json(wrong: str) -> None:
    *told, summary = lines(wrong, status=1)
    keys = ["kind", "rule", "severity", "file", "interface", "packets", "first_time_ns", "flow", "expected", "seen"]
    assert all(list(line) == [*keys, "cite", "text"] for line in told)
    twice = next(line for line in told if line["rule"] == "PDS-PSN-TWO-CONTENTS")
    assert (twice["packets"], twice["first_time_ns"], twice["file"]) == ([2, 12], 12_000, wrong)
    assert twice["flow"] == {"src": "10.0.0.11", "dst": "10.0.0.12", "spdcid": 5, "dpdcid": twice["flow"]["dpdcid"]}
    assert twice["cite"].startswith("UE 1.0.1 §")
    assert (summary["kind"], summary["packets"], summary["hidden"]) == ("summary", 16, 0)
    assert summary["findings"]["error"] == sum(line["severity"] == "error" for line in told)
    assert list(summary["rules"]) == [rule.id for rule in RULES]


def test_the_numbers_of_a_rule_add_up(wrong: str) -> None:
    rules = lines(wrong, status=1)[-1]["rules"]
    for numbers in rules.values():
        assert numbers["judged"] == numbers["passed"] + numbers["failed"]
        assert numbers["not_judged"] == sum(numbers["why"].values())
        assert numbers["judged"] or numbers["why"], "not judged, and nobody says why"
    assert rules["WIRE-CRC"] == {"judged": 16, "passed": 16, "failed": 0, "not_judged": 0, "why": {}}
    assert rules["ROCE-ICRC"]["why"] == {"nothing of the kind in the capture": 0}
    assert rules["PDS-ACK-UNSENT"]["why"] == {"needs --complete": rules["PDS-ACK-UNSENT"]["not_judged"]}


def test_what_a_capture_promises_is_judged(good: str) -> None:
    """And where it is said to be so, what is missing is wrong."""
    rules = lines(good, "--complete", "--ordered", status=0)[-1]["rules"]
    assert rules["PDS-ACK-UNSENT"]["judged"]
    assert rules["PDS-CACK-FALLS"]["judged"]


def test_junit(wrong: str, noted: str, tmp_path: Path) -> None:
    """A test case a rule; what is mild is output, what was not judged is skipped with the reason."""
    file = tmp_path / "audit.xml"
    assert invoke("audit", wrong, noted, "--junit", str(file)).exit_code == 1
    suite = ElementTree.parse(file).getroot()[0]
    cases = {case.attrib["name"]: case for case in suite}
    assert list(cases) == [rule.id for rule in RULES]
    assert suite.attrib["tests"] == str(len(RULES))
    for tag, count in (("failure", suite.attrib["failures"]), ("skipped", suite.attrib["skipped"])):
        assert sum(case.find(tag) is not None for case in cases.values()) == int(count) > 0
    failure = cases["PDS-PSN-TWO-CONTENTS"].find("failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("1 error: ")
    assert f"{wrong}, #13: 10.0.0.11 → 10.0.0.12" in (failure.text or "")
    assert cases["WIRE-ECN"].find("failure") is None
    assert f"{noted}, #1" in (cases["WIRE-ECN"].findtext("system-out") or "")
    assert len(cases["WIRE-CRC"]) == 0
    skipped = cases["PDS-ACK-UNSENT"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "needs --complete"


def test_junit_counts_what_fail_on_says(noted: str) -> None:
    done = invoke("audit", noted, "--junit", "-", "--fail-on", "note")
    assert done.exit_code == 1
    case = ElementTree.fromstring(done.stdout).find(".//testcase[@name='WIRE-ECN']/failure")
    assert case is not None
    assert "1 note in 15 packets" in done.stderr


def test_junit_of_a_name_that_xml_cannot_say(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with PcapngWriter(path) as writer:
        writer.add_interface("evil\x01<&>")
        writer.write(0, RESERVED)
    done = invoke("audit", str(path), "--junit", "-")
    assert "evil\N{REPLACEMENT CHARACTER}<&>" in "".join(ElementTree.fromstring(done.stdout).itertext())


# What is known --------------------------------------------------------------------------------------------------------


def test_a_baseline_hides_what_it_knows(wrong: str, tmp_path: Path) -> None:
    """Also in another capture of the same traffic, where packets have other numbers."""
    known = tmp_path / "known.jsonl"
    known.write_text(invoke("audit", "--json", wrong).stdout, encoding="utf-8")
    moved = capture(tmp_path / "moved.pcapng", [b"\0" * 60, *(record.data for record in records(wrong))])
    for path in (wrong, moved):
        done = invoke("audit", path, "--baseline", str(known))
        assert done.exit_code == 0
        assert "error" not in done.stdout
        assert re.search(rf"\n  \d findings hidden by {known}\n", done.stdout)
        (summary,) = lines(path, "--baseline", str(known), status=0)
        assert summary["hidden"] >= 2
        assert sum(summary["findings"].values()) == 0
        assert summary["rules"]["WIRE-RESERVED-BIT"]["failed"] == 1


def test_a_baseline_holds_for_another_run(tmp_path: Path) -> None:
    """The same test again: PSNs are drawn anew."""
    first, second = (str(tmp_path / f"{name}.pcapng") for name in "ab")
    for path, start in ((first, 5_000), (second, 0x9ABCDEF0)):
        sent = (frame(1, 2, *write(start + at, 1024 * at), payload=bytes(1024)) for at in range(3))
        again = frame(1, 2, *write(start + 1, 2048, retx=1), payload=bytes(1024))
        capture(Path(path), [*sent, again])
    known = tmp_path / "known.jsonl"
    known.write_text(invoke("audit", "--json", first).stdout, encoding="utf-8")
    assert [rule for rule, _ in found(first)] == [rule for rule, _ in found(second)] != []
    (summary,) = lines(second, "--baseline", str(known), status=0)
    assert summary["hidden"] == len(found(second))


def test_a_baseline_leaves_what_is_new(wrong: str, tmp_path: Path) -> None:
    known = tmp_path / "known.jsonl"
    known.write_text('{"rule": "WIRE-RESERVED-BIT"}\n', encoding="utf-8")
    rules = [rule for rule, _ in found(wrong, "--baseline", str(known))]
    assert "PDS-PSN-TWO-CONTENTS" in rules
    assert "WIRE-RESERVED-BIT" not in rules


def test_a_baseline_of_another_version(wrong: str, tmp_path: Path) -> None:
    """Rules that are no more hide nothing, which is said; a byte order mark does not matter."""
    known = tmp_path / "known.jsonl"
    lines_of = [json.dumps({"rule": rule}) for rule in ("PDS-PSN-TWO-CONTENTS", "PDS-GONE", "wire-*")]
    known.write_text("\ufeff" + "\r\n".join(lines_of), encoding="utf-8")
    done = invoke("audit", wrong, "--json", "--baseline", str(known))
    assert done.stderr == f"uetproto: {known}: hides nothing of PDS-GONE, wire-*: no such rule\n"
    rules = {json.loads(line).get("rule") for line in done.stdout.splitlines()}
    assert "WIRE-RESERVED-BIT" in rules
    assert "PDS-PSN-TWO-CONTENTS" not in rules


def test_what_is_no_baseline(wrong: str, tmp_path: Path) -> None:
    known = tmp_path / "known.jsonl"
    known.write_text("PDS-PSN-TWO-CONTENTS\n", encoding="utf-8")
    done = invoke_status("audit", wrong, "--baseline", str(known))
    assert done == (2, f"uetproto: {known}, line 1: no JSON object; ")


# The capture with comments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["pcapng", "pcapng.gz"])
def test_marked(wrong: str, tmp_path: Path, suffix: str) -> None:
    """Nothing but comments is new; they speak of frames as Wireshark numbers them."""
    marked = tmp_path / f"marked.{suffix}"
    done = invoke("audit", wrong, "-o", str(marked))
    assert done.exit_code == 1
    assert done.stdout.endswith(f"  2 packets marked in {marked}\n")
    before, after = records(wrong), records(marked)
    assert [one._replace(comment=None, offset=0) for one in after] == [one._replace(offset=0) for one in before]
    comments = {record.index: record.comment for record in after if record.comment}
    assert list(comments) == [3, 12]
    assert comments[3].startswith("error WIRE-RESERVED-BIT: Reserved bits are sent as 0. Expected ")
    assert "Expected what #3 carried under PSN 73730, seen another content. [UE 1.0.1 §" in comments[12]
    assert "] See #3" in comments[12]


def test_marks_come_behind_what_is_there(tmp_path: Path) -> None:
    """Comments of packets and of the capture, names and link types of interfaces, times, lengths: all as before."""
    path, marked = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    with PcapngWriter(path, "about all") as writer:
        writer.add_interface("eth0", comment="the first")
        writer.add_interface("eth1", snaplen=96)
        writer.write(7, RESERVED, comment="seen before")
        writer.write(2**63, RESERVED[:100], interface=1, length=len(RESERVED))
        writer.write(9, b"\0" * 20, interface=1, length=20)
    assert invoke("audit", str(path), "-o", str(marked)).exit_code == 1
    with open_capture(str(marked)) as reader:
        after = list(reader)
        assert reader.comments == ["about all\nfindings of uetproto audit as comments"]
        assert [(one.name, one.comment) for one in reader.interfaces] == [("eth0", "the first"), ("eth1", None)]
    before = records(path)
    assert [one._replace(comment=None, offset=0) for one in after] == [
        one._replace(comment=None, offset=0) for one in before
    ]
    assert after[0].comment is not None
    assert after[0].comment.startswith("seen before; error WIRE-RESERVED-BIT")
    assert after[2].comment is None


def test_several_findings_of_a_packet(tmp_path: Path) -> None:
    both = bytearray(RESERVED)
    both[-1] ^= 1  # the CRC
    path, marked = (
        capture(tmp_path / "in.pcapng", [*REQUESTS[:3], bytes(both), *GOOD[4:]] * 2),
        tmp_path / "out.pcapng",
    )
    rules = {rule for rule, packet in found(path, "--crc", "on") if packet == 3}
    assert len(rules) >= 1
    invoke("audit", path, "--crc", "on", "-o", str(marked))
    comment = records(marked)[3].comment
    assert comment is not None
    assert all(f"error {rule}: " in comment for rule in rules)
    assert comment.count("; error ") == len(rules) - 1


def test_a_merged_finding_is_marked_at_every_interface(tmp_path: Path) -> None:
    path, marked = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    with open_writer(path, interfaces=[("a", 1), ("b", 1)]) as writer:
        for number, data in enumerate([*REQUESTS[:3], RESERVED]):
            writer.write(number, data, interface=0)
            writer.write(number, data, interface=1)
    assert found(str(path)) == [("WIRE-RESERVED-BIT", 6)]
    (line, _) = lines(str(path), status=1)
    assert line["places"] == [{"file": str(path), "interface": "b", "packets": [7]}]
    text = invoke("audit", str(path), "-o", str(marked)).stdout
    assert f"also {path}, b, #8" in text
    assert [record.index for record in records(marked) if record.comment] == [6, 7]


def test_a_file_that_is_given_twice(wrong: str) -> None:
    """Two vantage points that show the same."""
    once = found(wrong)
    assert found(wrong, wrong) == once
    *twice, summary = lines(wrong, wrong, status=1)
    assert [line["places"] for line in twice] == [
        [{"file": wrong, "interface": "", "packets": line["packets"]}] for line in twice
    ]
    assert sum(summary["findings"].values()) == len(once)


def test_interfaces_of_one_name(tmp_path: Path) -> None:
    """They are two all the same."""
    path = tmp_path / "in.pcapng"
    with open_writer(path, interfaces=[("any", 1), ("any", 1)]) as writer:
        for number, data in enumerate([*REQUESTS[:3], RESERVED]):
            writer.write(number, data, interface=0)
            writer.write(number, data, interface=1)
    (line, _) = lines(str(path), status=1)
    assert (line["packets"], line["places"]) == ([6], [{"file": str(path), "interface": "any", "packets": [7]}])


def test_marked_to_standard_output(wrong: str, tmp_path: Path) -> None:
    """The report goes aside."""
    done = invoke("audit", wrong, "-o", "-")
    assert done.exit_code == 1
    (tmp_path / "out.pcapng").write_bytes(done.stdout_bytes)
    assert [record.index for record in records(tmp_path / "out.pcapng") if record.comment] == [3, 12]
    assert "error WIRE-RESERVED-BIT" in done.stderr
    assert "2 packets marked in -" in done.stderr


# The same pass --------------------------------------------------------------------------------------------------------


def test_picture_and_tables(wrong: str, tmp_path: Path) -> None:
    """Each alone, and both at once, tell the same."""
    pytest.importorskip("matplotlib")
    parquet = pytest.importorskip("pyarrow.parquet")
    plots = [str(tmp_path / "one.svg"), str(tmp_path / "two.svg")]
    folders = [tmp_path / "one", tmp_path / "two"]
    for arguments in (
        ["--plot", plots[0]], ["--parquet", str(folders[0])], ["--plot", plots[1], "--parquet", str(folders[1])],
    ):  # fmt: skip
        done = invoke("audit", wrong, *arguments)
        assert done.exit_code == 1
        assert sorted(re.findall(r"\n  written: (\S+)", done.stdout)) == sorted(arguments[1::2])
    assert Path(plots[0]).read_bytes() == Path(plots[1]).read_bytes()
    for name, rows in (("packets", 16), ("findings", len(found(wrong)))):
        one, two = (parquet.read_table(folder / f"{name}.parquet") for folder in folders)
        assert one.equals(two)
        assert one.num_rows == rows
    assert json.loads(invoke("audit", wrong, "--json", "--plot", plots[0]).stdout.splitlines()[-1])["packets"] == 16


# Which rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("globs", "has", "has_not"),
    [
        (["WIRE-*"], "WIRE-CRC", "PDS-MODE"),
        (["-PDS-*"], "WIRE-CRC", "PDS-MODE"),
        (["PDS-*,-PDS-MODE"], "PDS-PSN-TWO-CONTENTS", "PDS-MODE"),
        (["PDS-*", "-PDS-MODE"], "PDS-PSN-TWO-CONTENTS", "PDS-MODE"),
    ],
)  # fmt: skip
def test_only_some_rules(wrong: str, globs: list[str], has: str, has_not: str) -> None:
    options = [word for glob in globs for word in ("--rules", glob)]
    rules = lines(wrong, *options, status=1)[-1]["rules"]
    assert has in rules
    assert has_not not in rules
    listed = invoke("audit", "--list-rules", "--json", *options).stdout.splitlines()
    assert [json.loads(line)["rule"] for line in listed] == list(rules)


def test_list_of_rules() -> None:
    done = invoke("audit", "--list-rules")
    assert done.exit_code == 0
    for rule in RULES:
        assert re.search(rf"^{rule.id} +{rule.severity.value} ", done.stdout, re.MULTILINE)


@each("name", [*BY_ID, "pds-mode"])
def test_explain(name: str) -> None:
    done = invoke("audit", "--explain", name)
    rule = BY_ID[name.upper()]
    text = " ".join(done.stdout.split())
    assert done.exit_code == 0
    assert text.startswith(
        f"{rule.id}: {rule.severity.value} must hold {' '.join(rule.says.split())} source {rule.cite}"
    )
    assert max(map(len, done.stdout.splitlines())) <= PLAIN_WIDTH


def test_list_of_rules_with_a_personality() -> None:
    """Its habits are the notes that they would be."""

    def severities(*arguments: str) -> dict[str, str]:
        text = invoke("audit", "--list-rules", "--json", "--rules", "PDS-*", *arguments).stdout
        return {row["rule"]: row["severity"] for row in map(json.loads, text.splitlines())}

    plain, excused = severities(), severities("--personality", "refprov")
    habits = [name for name in PERSONALITIES["refprov"] if name.startswith("PDS-")]
    assert excused == plain | dict.fromkeys(habits, "note")
    assert excused != plain


def test_explain_says_what_a_personality_does() -> None:
    assert "a note with --personality refprov" in " ".join(invoke("audit", "--explain", "PDS-CP-ISROD").stdout.split())


# Refused --------------------------------------------------------------------------------------------------------------


def invoke_status(*arguments: str) -> tuple[int, str]:
    """Exit status as the program has it, and the first words of what it says."""
    with program(*arguments) as process:
        text = process.communicate()[1].decode()
    return process.returncode, text.partition("legal")[0]


def misuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.status(["audit", *arguments]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    return caught.err


def test_misuse(good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and what would be right."""
    out, table = str(tmp_path / "out.pcapng"), str(tmp_path / "findings.parquet")
    Path(table).touch()
    for arguments, said in [
        ([], "FILE…"),
        ([str(tmp_path / "no.pcapng")], "no.pcapng: No such file or directory"),
        ([good, "--rules", "NO-*"], "WIRE-CRC"),
        (["--list-rules", "--rules", "NO-*"], "WIRE-CRC"),
        (["--explain", "PDS-PSN-TWO-CONTENT"], "did you mean PDS-PSN-TWO-CONTENTS"),
        (["--explain", "X"], "--explain X: there is no such rule; there are CAP-DAMAGED, WIRE-CRC, WIRE-LENGTH, … ("),
        (
            ["--explain", "psn-two"],
            "there is no such rule (did you mean PDS-PSN-TWO-CONTENTS or ROCE-PSN-TWO-CONTENTS?); there are CAP-",
        ),
        ([good, "--rules", "PDS-MDOE"], "--rules PDS-MDOE: matches none (did you mean PDS-MODE"),
        ([good, "--rules", ""], "--rules: names no rule; legal: rules and patterns"),
        ([good, "--rules", "WIRE-*,-WIRE-*"], "--rules WIRE-*,-WIRE-*: leaves none; there are CAP-DAMAGED, "),
        ([good, "--personality", "nobody"], "--personality nobody: is not known; legal: refprov"),
        (["--list-rules", "--personality", "nobody"], "--personality nobody: is not known; legal: refprov"),
        (["--explain", "PDS-MODE", "--personality", "nobody"], "--personality nobody: is not known; legal: refprov"),
        ([good, "--fail-on", "all"], "legal: error, warning, note"),
        ([good, "--baseline", str(tmp_path / "no.jsonl")], "no.jsonl: No such file or directory"),
        ([good, "--keys", str(tmp_path / "no.toml")], "no.toml: No such file or directory"),
        ([good, "-o", good], f"-o {good}: would overwrite FILE"),
        ([good, "--junit", good], f"--junit {good}: would overwrite FILE"),
        ([good, "--baseline", good, "-o", out, "--junit", good], "would overwrite FILE"),
        ([good, "-o", str(tmp_path / "out.pcap")], ".pcapng or .pcapng.gz"),
        ([good, good, "-o", out], "legal: one FILE"),
        ([good, "--pdc", "5"], "--pdc 5: says what --plot draws"),
        ([good, "--plot", good], f"--plot {good}: would overwrite FILE"),
        ([good, "--plot", str(tmp_path / "x.txt")], "legal are names in .png, .svg"),
        ([good, "--parquet", good], "is a file; legal: a directory"),
        (["-", "-o", out], "standard input only once"),
        (["-", "-"], "- is there twice"),
        ([good, "-o", "-", "--json"], "-o - and --json want standard output"),
        ([good, "--junit", "-", "--json"], "--junit - and --json want standard output"),
        ([good, "-o", str(tmp_path / "no" / "x.pcapng")], f"there is no directory {tmp_path / 'no'}"),
        ([good, "--junit", str(tmp_path)], "is a directory"),
        ([good, "-o", out, "--junit", out], f"--junit {out}: would overwrite -o"),
        ([good, str(tmp_path / "no.pcapng")], "no.pcapng: No such file or directory"),
        ([good, "-o", out, "--junit", f"{tmp_path}/../{tmp_path.name}/out.pcapng"], "would overwrite -o"),
        ([good, "--junit", ""], "--junit: is no name"),
        ([good, "--parquet", ""], "--parquet: is no name; legal: a directory"),
        ([good, "--parquet", str(tmp_path / "new"), "--junit", str(tmp_path / "new")], "would overwrite --parquet"),
        ([good, "--parquet", str(tmp_path), "--junit", str(tmp_path / "packets.parquet")], "would overwrite --parquet"),
        ([good, "--parquet", str(tmp_path), "--baseline", table], f"--parquet {table}: would overwrite --baseline"),
    ]:
        assert said in misuse(capsys, *arguments), arguments
    assert records(good)
    assert not Path(out).exists()


@pytest.mark.parametrize("arguments", [["--explain", "X"], ["--list-rules", "--rules", "X"]])
def test_an_unknown_rule_says_what_lists_the_known_ones(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = misuse(capsys, *arguments)
    assert said.endswith(f"… ({len(BY_ID)} in all: uetproto audit --list-rules) [unknown-rule]\n")
    known = invoke("audit", "--list-rules").stdout
    assert all(name in known for name in BY_ID)


def test_a_picture_shows_where_rules_are_broken(tmp_path: Path) -> None:
    """Of the PDC with findings, though another one has more packets."""
    pytest.importorskip("matplotlib")
    sent = [frame(1, 2, *write(73728 + at, 1024 * at), payload=bytes(1024)) for at in range(3)]
    again = frame(1, 2, *write(73729, 2048, retx=1), payload=bytes(1024))
    others = [frame(3, 4, *write(73728 + at, 1024 * at), payload=bytes(1024)) for at in range(12)]
    path, picture = capture(tmp_path / "x.pcapng", [*others, *sent, again]), tmp_path / "x.svg"
    assert invoke("audit", path, "--plot", str(picture)).exit_code == 1
    text = picture.read_text(encoding="utf-8")
    assert "10.0.0.1 → 10.0.0.2" in text
    assert "PDS-PSN-TWO-CONTENTS" in text
    assert invoke("stats", path, "--plot", str(picture)).exit_code == 0
    text = picture.read_text(encoding="utf-8")
    assert "10.0.0.3 → 10.0.0.4" in text
    assert "PDS-" not in text


def test_a_picture_of_a_pdc_that_is_not_there(wrong: str, tmp_path: Path) -> None:
    """The report comes first; then it says which ones there are."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.svg"
    for file, known in (
        (wrong, "are 5, 9"), (str(PCAPS / "gradient-sealed-direct.pcapng"), "is no PDC, no queue pair"),
    ):  # fmt: skip
        done = invoke("audit", file, "--plot", str(path), "--pdc", "99")
        assert done.exit_code == 2
        assert done.stderr == f"uetproto: --pdc 99: there is none; there {known} [unknown-pdc]\n"
        assert "rules judged" in done.stdout
        assert not path.exists()


def test_what_may_not_be_written(good: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said before anything is read. (The root of a machine may write everything, so it is only played.)"""
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path) == tmp_path and mode == os.W_OK))
    for option, name in (("--junit", "x.xml"), ("-o", "x.pcapng")):
        done = invoke("audit", good, option, str(tmp_path / name))
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"{option} {tmp_path / name}: may not be written" in done.stderr


def test_a_full_disk_hides_nothing(wrong: str) -> None:
    """The report has been told."""
    done = invoke("audit", wrong, "--junit", "/dev/full")
    assert done.exit_code == 2
    assert "error WIRE-RESERVED-BIT: 1 finding" in done.stdout
    assert "No space left on device" in done.stderr


def test_what_is_no_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("hello")
    assert "not a capture" in misuse(capsys, str(tmp_path / "x"))


# Captures as they are -------------------------------------------------------------------------------------------------


def test_damage_is_a_finding(good: str, tmp_path: Path) -> None:
    """What is whole around it is audited."""
    data = bytearray(Path(good).read_bytes())
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(data[:-30])
    told = found(str(cut), "--fail-on", "note")
    assert [rule for rule, _ in told] == ["CAP-DAMAGED"]
    assert lines(str(cut), status=0)[-1]["rules"]["WIRE-CRC"]["judged"] == 14


def test_of_no_flow_none_is_told(good: str, tmp_path: Path) -> None:
    """Damage has none."""
    cut, report = tmp_path / "cut.pcapng", tmp_path / "cut.xml"
    cut.write_bytes(Path(good).read_bytes()[:-30])
    text = invoke("audit", str(cut), "--junit", str(report)).stdout
    says, told = text.split("note CAP-DAMAGED: 1 finding\n")[1].splitlines()[:2]
    assert says.startswith("  A capture can be read to its end.")
    assert re.match(r"    #(\d+): expected a record; seen behind #\1, at byte \d+: ", told)
    assert re.search(r"#\d+: expected a record", report.read_text(encoding="utf-8"))
    explained = invoke("audit", "--explain", "CAP-DAMAGED").stdout
    assert "  example     expected a record\n" in explained


def test_standard_input(wrong: str) -> None:
    done = invoke("audit", "-", data=Path(wrong).read_bytes())
    assert done.exit_code == 1
    assert "\n    … | uetproto ladder - --pdc 5" in done.stdout


def test_an_empty_capture(tmp_path: Path) -> None:
    (summary,) = lines(capture(tmp_path / "empty.pcapng", []), status=0)
    assert summary["packets"] == 0


def test_strangers_are_counted(good: str, tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcapng", [bytes(12) + b"\x08\x06" + bytes(46), *GOOD])
    done = invoke("audit", path)
    assert done.exit_code == 0
    assert "\n  of other protocols: 1\n" in done.stdout


def test_sealed_packets_are_opened_with_keys() -> None:
    """The command that shows something says how to open them."""
    pytest.importorskip("cryptography")
    sealed, keys = PCAPS / "gradient-sealed-cluster.pcapng", PCAPS / "gradient-sealed-cluster.keys.toml"
    closed = lines(str(sealed), status=0)[-1]["rules"]
    opened = lines(str(sealed), "--keys", str(keys), status=0)[-1]["rules"]
    assert closed["PDS-CLEAR-POSITIVE"]["judged"] == 0
    assert opened["PDS-CLEAR-POSITIVE"]["judged"] > 0


def test_other_options_go_into_the_commands(tmp_path: Path) -> None:
    moved = [data[:36] + (5000).to_bytes(2, "big") + data[38:] for data in [*REQUESTS[:3], RESERVED]]
    path = capture(tmp_path / "x.pcapng", moved)
    assert found(path, status=0) == []
    text = invoke("audit", path, "--crc", "off", "--udp-port", "5000").stdout
    assert f"uetproto dissect {path} --packet 4 --crc off --udp-port 5000\n" in text
