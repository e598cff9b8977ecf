# SPDX-License-Identifier: GPL-2.0-only
"""Findings: their JSON, their texts for Wireshark, and what several vantage points say of one packet."""

import json
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from uetproto.audit.baseline import Baseline
from uetproto.audit.finding import Finding, FindingPlace, merged, unnumbered
from uetproto.audit.rule import Rule, Severity
from uetproto.errors import LocalError


class Event(Enum):
    ANY = 1


RULE = Rule(id="X-ONE", says="One is one.", cite="UE 1.0.1 §3.5.8", on=Event.ANY, check=lambda *_: None)
OTHER = Rule(id="X-TWO", says="Two is two.", cite="UE 1.0.1 §2", on=Event.ANY, check=lambda *_: None)
FLOW = {"src": "10.0.0.1", "dst": "10.0.0.2", "spdcid": 5}


def finding(*packets: int, rule: Rule = RULE, file: str = "a.pcap", interface: str = "", **values: Any) -> Finding:
    texts = {"flow": FLOW, "expected": f"what #{packets[0] + 1} has", "seen": "2"} | values
    return Finding(rule, Severity.ERROR, packets, 1000, file=file, interface=interface, **texts)


def test_json() -> None:
    """The shape that interfaces.md §8 promises, no key more."""
    assert finding(3, 7, interface="eth0").as_dict() == {
        "kind": "finding", "rule": "X-ONE", "severity": "error", "file": "a.pcap", "interface": "eth0",
        "packets": [3, 7], "first_time_ns": 1000, "flow": FLOW, "expected": "what #4 has", "seen": "2",
        "cite": "UE 1.0.1 §3.5.8", "text": "One is one. Expected what #4 has, seen 2.",
    }  # fmt: skip


def test_places_are_there_only_where_there_are_several() -> None:
    (one,) = merged([finding(3, 7), finding(4, 9, file="b.pcap")])
    assert one.as_dict()["places"] == [{"file": "b.pcap", "interface": "", "packets": (4, 9)}]
    assert json.loads(json.dumps(one.as_dict()))["places"][0]["packets"] == [4, 9]
    assert [place.packets[-1] for place in one.everywhere] == [7, 9]


def test_equal_findings_of_several_vantage_points_are_one() -> None:
    """Numbers of packets differ from capture to capture, also in texts."""
    (one,) = merged([finding(3, 7), finding(1, 5, interface="eth1"), finding(0, 2, file="b.pcap")])
    assert (one.file, one.packets) == ("a.pcap", (3, 7))
    assert one.places == [FindingPlace("a.pcap", "eth1", (1, 5)), FindingPlace("b.pcap", "", (0, 2))]


@pytest.mark.parametrize("other", [
    {"rule": OTHER}, {"seen": "3"}, {"expected": "3"}, {"flow": FLOW | {"spdcid": 6}}, {"flow": {}},
], ids=list)  # fmt: skip
def test_what_differs_stays_apart(other: dict[str, Any]) -> None:
    assert len(merged([finding(3, 7), finding(3, 7, file="b.pcap", **other)])) == 2


def test_one_vantage_point_may_show_the_same_several_times() -> None:
    """The first goes with the first elsewhere, the second with the second."""
    found = merged([finding(1), finding(4), finding(6), finding(2, file="b.pcap"), finding(5, file="b.pcap")])
    assert [one.packet for one in found] == [1, 4, 6]
    assert [[place.packets[-1] for place in one.places] for one in found] == [[2], [5], []]


def test_vantage_points_may_have_one_name() -> None:
    """A file that is given twice, or interfaces of one name."""
    one, other = finding(1), finding(1)
    other.vantage = 1
    (found,) = merged([one, other])
    assert found.places == [FindingPlace("a.pcap", "", (1,))]


def test_the_order_of_keys_does_not_matter() -> None:
    assert len(merged([finding(1), finding(1, file="b.pcap", flow=dict(reversed(FLOW.items())))])) == 1


def test_numbers_of_packets_in_texts() -> None:
    """Baselines of earlier versions have "packet 12" for "#13"."""
    assert unnumbered("what #13 carried, PSN 7, as #1") == "what # carried, PSN 7, as #"
    assert unnumbered("what packet 12 carried, PSN 7, as packet 0") == "what # carried, PSN 7, as #"


# The baseline ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [
    {"rule": "X-ONE"},
    {"rule": "X-ONE", "flow": {}},
    {"rule": "X-ONE", "flow": {"spdcid": 5}},
    {"rule": "X-ONE", "expected": "what packet 99 has"},
    {"rule": "X-ONE", "expected": "what #99 has"},
    {"rule": "X-ONE", "seen": "2", "packets": [77], "file": "elsewhere.pcap"},
    finding(3, 7).as_dict(),
], ids=str)  # fmt: skip
def test_what_a_line_hides(known: dict[str, Any]) -> None:
    assert Baseline([known]).knows(finding(4, 9))


@pytest.mark.parametrize("known", [
    {"rule": "X-TWO"},
    {"rule": "X-ONE", "flow": {"spdcid": 6}},
    {"rule": "X-ONE", "flow": {"dpdcid": 5}},
    {"rule": "X-ONE", "seen": "3"},
    {"rule": "X-ONE", "expected": "what #99 has not"},
    finding(3, 7, rule=OTHER).as_dict(),
], ids=str)  # fmt: skip
def test_what_a_line_does_not_hide(known: dict[str, Any]) -> None:
    assert not Baseline([known]).knows(finding(4, 9))


def test_what_is_drawn_does_not_count_in_printed_lines() -> None:
    old, new = (replace(finding(3, 7), flow={"spdcid": 5, "psn": psn}, seen=f"PSN {psn}") for psn in (12, 2**31))
    assert Baseline([old.as_dict()]).knows(new)
    by_hand = {name: value for name, value in old.as_dict().items() if name in ("rule", "flow")}
    assert not Baseline([by_hand]).knows(new)


def test_new_and_known(tmp_path: Any) -> None:
    """Empty lines and summaries are no findings."""
    file = tmp_path / "known.jsonl"
    file.write_text(f'\n{json.dumps(finding(1).as_dict())}\n{{"kind": "summary", "packets": 3}}\n', encoding="utf-8")
    new, known = Baseline.read(str(file)).split([finding(1), finding(2, rule=OTHER), finding(3)])
    assert ([one.packet for one in new], [one.packet for one in known]) == ([2], [1, 3])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rule: X-ONE", "no JSON object"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ("{}", "no rule"),
        ('{"rule": 7}', "rule"),
        ('{"rule": "X", "flow": [1]}', "flow"),
        ('{"rule": "X", "seen": 2}', "seen"),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_baseline(tmp_path: Any, line: str, said: str) -> None:
    """The line, what is wrong with it, and what is legal."""
    file = tmp_path / "known.jsonl"
    file.write_text(f'{{"rule": "X-ONE"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(LocalError, match=rf"known.jsonl, line 2: {said}; legal: a line of --json"):
        Baseline.read(str(file))
