# SPDX-License-Identifier: GPL-2.0-only
"""Files of conformance tests: those of the package, the one of docs/howto/conform.md, and wrong ones."""

import re
from pathlib import Path

import pytest

from tests.support.conform import FACTS, AdapterActor, AdapterLink
from tests.support.conform_roce import RoceLink, RocePeer
from tests.support.paths import ROOT
from uetproto.conform.acting import acting
from uetproto.conform.catalogue import chosen, load
from uetproto.conform.player import ConformanceVerdict, Patience, play
from uetproto.conform.roce.play import play as play_roce
from uetproto.errors import LocalError

TEST = """[[test]]
id = "MINE-1"
section = "pds.md §13"
purpose = "A NOOP is acknowledged."
steps = [
    { send = "noop", psn = "start", syn = 1 },
    { expect = "ack", ack_psn = "start" },
]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_test_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "conform.md").read_text(encoding="utf-8")
    text, of_act, of_roce = re.findall(r"```toml\n(\[\[test\]\].*?)```", page, re.DOTALL)
    assert len(text.splitlines()) <= 25
    [test] = load([written(tmp_path, text)])
    assert play(test, AdapterLink(), FACTS, "1", Patience()).verdict is ConformanceVerdict.PASS
    [wrong] = load([written(tmp_path, text.replace('"job + 1"', '"job"'))])
    assert play(wrong, AdapterLink(), FACTS, "1", Patience()).step == 4
    [test] = load([written(tmp_path, of_roce)])
    peer = RocePeer()
    assert play_roce(test, RoceLink(peer), peer.facts, "1", Patience()).verdict is ConformanceVerdict.PASS
    link = AdapterLink()
    for told, step in ((of_act, 0), (of_act.replace("retx = 0", "retx = 1"), 1)):
        [test] = load([written(tmp_path, told)])
        assert acting(AdapterActor(link)).play(test, link, FACTS, "1", Patience()).step == step


def test_globs_choose_tests() -> None:
    tests = load()
    assert [test.id for test in chosen(tests, ["UET-UUD-*", "UET-PDS-001"])] == [
        "UET-PDS-001",
        "UET-UUD-001",
        "UET-UUD-002",
        "UET-UUD-003",
    ]
    with pytest.raises(LocalError, match="matches no test"):
        chosen(tests, ["UET-PDS-001", "ROCE-*"])


WRONG = {
    'id = "MINE-1"': ('id = "mine"', r"mine.toml:2: .*capitals"),
    "purpose =": ("purpos =", r"mine.toml:4: .*purpos.* did you mean|purpos"),
    '"pds.md §13"': ("13", "section"),
    "[[test]]": ("[[tests]]", "tests"),
    'expect = "ack"': ('expect = "akc"', "akc"),
    "steps = [": ('needs = ["memry"]\nsteps = [', "memry"),
    '{ send = "noop", psn = "start", syn = 1 },': ("", "sends nothing"),
    '{ expect = "ack", ack_psn = "start" }': ("{ any = [] }", "any"),
    'ack_psn = "start" },': ('ack_psn = "start", send = "noop" },', "one of send"),
}


@pytest.mark.parametrize("right", WRONG)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, right: str) -> None:
    wrong, told = WRONG[right]
    assert right in TEST
    with pytest.raises(LocalError, match=told):
        load([written(tmp_path, TEST.replace(right, wrong, 1))])
    with pytest.raises(LocalError, match="MINE-1"):
        load([written(tmp_path, TEST + TEST)])


ACT = (
    TEST.replace("steps = [", 'act = "rud write 8"\nsteps = [')
    .replace('{ send = "noop", psn = "start", syn = 1 },', '{ expect = "request" },')
    .replace(
        '{ expect = "ack", ack_psn = "start" },', '{ send = "ack response", ack_psn = "start", cack_psn = "start" },'
    )
)
WRONG_ACTS = {
    '"rud write 8"': ('"rud wirte 8"', "act: 'rud wirte 8'; legal: rud"),
    '"rud write': ('"rude write', "act: 'rude write 8'"),
    'write 8"': ('write start"', r"mine.toml:\d+: MINE-1, act: act: there is no variable 'start' yet"),
    "write 8": ("write 9999999", r"mine.toml:\d+: MINE-1, act: data: 9999999"),
    "steps = [": ('ends = "fine"\nsteps = [', "ends: 'fine'; legal: ok, error"),
    "\nsteps = [": ('\nresult = "@nix"\nsteps = [', r"mine.toml:\d+: MINE-1, result: .*'@nix' is not known"),
    'id = "MINE-1"': ('audited = 1\nid = "MINE-1"', "audited: 1; legal: true, false"),
    '{ expect = "request" }': ('{ forbid = "requets" }', "requets"),
}


@pytest.mark.parametrize("right", WRONG_ACTS)
def test_a_test_of_an_act_that_is_wrong_is_refused(tmp_path: Path, right: str) -> None:
    wrong, told = WRONG_ACTS[right]
    assert right in ACT

    def run(text: str) -> ConformanceVerdict:
        link = AdapterLink()
        return acting(AdapterActor(link)).play(load([written(tmp_path, text)])[0], link, FACTS, "1", Patience()).verdict

    assert run(ACT) is ConformanceVerdict.PASS
    with pytest.raises(LocalError, match=told):
        run(ACT.replace(right, wrong, 1))


@pytest.mark.parametrize(("right", "wrong", "told"), [
    ('send = "noop"', 'send = "nop"', "no kind 'nop'"),
    ('send = "noop"', 'send = "rud wirte"', "no message 'wirte'"),
    ("syn = 1", "sin = 1", "sin: is no field"),
    ('psn = "start", syn', 'psn = "begin", syn', "no variable 'begin'"),
    ('psn = "start", syn', 'psn = "start +", syn', "psn"),
    ('psn = "start", syn', "psn = 0x1FFFFFFFF, syn", "psn"),
    ("syn = 1", 'syn = 1, data = "xyz"', "data"),
    ("syn = 1", 'syn = 1, data = "@none"', "none"),
    ("syn = 1", 'syn = 1, crc = "bad"', "crc"),
    ("syn = 1", 'syn = 1, trimmed = "there"', "trimmed"),
    ("syn = 1", 'syn = 1, ecn = "CE"', "ecn"),
    ("syn = 1", 'syn = 1, entropy = 1.5', "entropy"),
    ("syn = 1", 'syn = 1, cut = -3', "cut"),
    ('ack_psn = "start" }', 'ack_psn = 1.5 }', "ack_psn"),
    ('ack_psn = "start" }', 'sack = 7 }', "sack"),
    ('ack_psn = "start" }', 'save = 7 }', "save"),
])  # fmt: skip
def test_a_value_that_is_not_legal_is_told_with_its_step(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    assert right in TEST
    path = written(tmp_path, TEST.replace(right, wrong, 1))

    def run() -> None:
        play(load([path])[0], AdapterLink(), FACTS, "1", Patience())

    with pytest.raises(LocalError, match=rf"mine.toml:\d+: .*step [12]: .*{told}"):
        run()
