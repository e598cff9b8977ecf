# SPDX-License-Identifier: GPL-2.0-only
"""The page of `uetproto conform --html`, in headless Chromium."""

import re
from pathlib import Path

import pytest

from tests.conform.faulty_peers import FAULTS, peer_with
from tests.support.chromium import needs_chromium, opened
from tests.support.conform import FACTS, AdapterLink
from uetproto.cli.conform.page import PagePart, page, part_of
from uetproto.conform import captures
from uetproto.conform.catalogue import chosen, load
from uetproto.conform.player import ConformanceVerdict, Outcome, Patience, play

GLOBS = ["UET-PDS-00[1-6]", "UET-PDS-020", "UET-SES-035", "UET-PDS-042"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[PagePart]:
    """What the page has of some tests against a peer with a fault, and of one that was not played."""
    place = tmp_path_factory.mktemp("page")
    link = AdapterLink(peer_with(FAULTS["ACKs do not have the retx of the packet"]))
    found = []
    for test in chosen(load(), GLOBS):
        outcome = play(test, link, FACTS, "1", Patience())
        file = place / f"{test.id}.pcapng"
        captures.write(outcome, file, 0)
        found.append(part_of(outcome, f"uetproto conform --only {test.id}", FACTS, str(file), kept=False))
    hostile = 'the peer sent </script><script>alert(1)</script> \x1b[31m & "quoted"'
    found.append(
        PagePart(Outcome(chosen(load(), ["UET-SES-001"])[0], ConformanceVerdict.INCONCLUSIVE, hostile), "again")
    )
    return found


LOOK = """() => {
  const shown = () => [...document.querySelectorAll("details.test")].filter(one => one.offsetParent !== null);
  const press = name => document.querySelector(`button[data-show=${name}]`).click();
  const part = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (text) => part(text).reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const back = one => { for (; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor; if (colour !== "rgba(0, 0, 0, 0)") return colour; } };
  const contrast = one => { const [a, b] = [light(getComputedStyle(one).color), light(back(one))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05); };
  const counts = {};
  for (const name of ["all", "pass", "fail", "inconclusive"]) { press(name); counts[name] = shown().length; }
  press("all");
  const word = document.querySelector("nav input");
  word.value = "AMO_UNALIGNED"; word.dispatchEvent(new Event("input")); counts.word = shown().map(one => one.id);
  word.value = ""; word.dispatchEvent(new Event("input"));
  const first = document.querySelector("details.test"), open = first.open;
  for (const one of document.querySelectorAll("details")) one.open = true;
  const names = "h1, dt, dd, button, .badge, summary span, .section, p, li, code, pre, time, .arrow, .packet";
  const texts = [...document.querySelectorAll(names)], root = document.documentElement;
  return { counts, open, first: first.id, steps: document.querySelectorAll(".fail ol li.here").length,
    marked: document.querySelectorAll(".fail .ladder li.here .finding").length, title: document.title,
    dark: matchMedia("(prefers-color-scheme: dark)").matches, back: getComputedStyle(document.body).backgroundColor,
    least: Math.min(...texts.map(contrast)), wide: root.scrollWidth, room: root.clientWidth,
    size: Math.min(...texts.map(one => parseFloat(getComputedStyle(one).fontSize))), scripts: document.scripts.length,
  };
}"""


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1000, 1), (380, 0)], ids=["wide light", "narrow dark"])
def test_the_page_filters_and_is_legible(parts: list[PagePart], tmp_path: Path, width: int, scheme: int) -> None:
    html = page(parts, {"Peer": "10.0.0.2"})
    size = f"--window-size={width},900"
    found, console = opened(html, tmp_path, LOOK, size, f"--blink-settings=preferredColorScheme={scheme}")
    assert console == []
    failed = [one.outcome.test.id for one in parts if one.outcome.verdict is ConformanceVerdict.FAIL]
    assert failed == ["UET-PDS-020"]
    counts = {"all": len(parts), "pass": len(parts) - 2, "fail": 1, "inconclusive": 1, "word": ["UET-SES-035"]}
    assert found["counts"] == counts
    assert (found["first"], found["open"], found["steps"], found["marked"]) == ("UET-PDS-020", True, 1, 1)
    assert found["title"] == f"uetproto conform: 1 of {len(parts)} tests fail"
    assert found["dark"] is (scheme == 0)
    assert found["least"] >= 4.5
    assert found["size"] >= 13
    assert found["wide"] <= found["room"] <= width
    assert found["scripts"] == 2  # ours, and that of this test: the text of the peer is none


def test_the_page_needs_nothing_else_and_says_what_the_tests_say(parts: list[PagePart]) -> None:
    html = page(parts, {"Peer": "10.0.0.2"})
    assert re.findall(r"""(?:src|href)\s*=|url\(|@import""", html) == []
    assert "\x1b" not in html
    for part in parts:
        test = part.outcome.test
        assert f'id="{test.id}"' in html
        assert test.section in html
    assert html.count('class="out') + html.count('class="in ') == sum(len(part.outcome.frames) for part in parts)
    assert "uetproto conform --only UET-PDS-020 -o report" in html
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in html
