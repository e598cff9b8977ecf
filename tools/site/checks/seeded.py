# SPDX-License-Identifier: GPL-2.0-only
"""This check puts faults into a copy of the site and into texts. It fails if another check does not find one."""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from browser import browser

from checks import blocks, language, links, pages
from checks.report import Report

PAGE = "evidence/index.html"
BAD_HTML = """
<img src="no.png" alt="x"><img src="https://example.org/x.png" alt="x"><a href="nowhere.html">x</a><a href="#nope">x</a>
<div style="width: 1400px">wide</div><p style="color: #777; background: #888">pale</p>
<script>console.error("said"); notThere();</script>
"""
BAD_TEXT = """# One

Of the other.

# Two

It is very easily done, and it's TODO. All the the colors of behavior give way. A clause that has more words than
anybody can read in one breath goes on and on and on without an end and names one thing after the other thing, and then
the next thing, and then it names another thing that nobody has asked for or ever will.
"""
EXPECTED = {
    "links": ["nowhere.html: no such file", "#nope: no such anchor", "no.png: no such file", "loads https://example.org"],
    "pages": ["no.png is not shown", "wider than the window", "contrast", "console: said", "exception", "asks for"],
    "language": [
        "heading of the first level", "the first sentence has no verb", "'very'", "'easily'", '"it\'s"', "'TODO'",
        "'the the'", "'colors'", "'behavior'", "'give way'", "a clause of",
    ],
    "blocks": ["does not print: 2 packets", "1 + 1 is 2, not 3"],
}  # fmt: skip


def check(site: Path) -> Report:
    """Seed the faults and look at what the checks say."""
    told: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "html"
        shutil.copytree(site, copy, ignore=shutil.ignore_patterns("_downloads", "_sources"))
        page = copy / PAGE
        page.write_text(
            page.read_text(encoding="utf-8").replace("</article>", f"{BAD_HTML}</article>"), encoding="utf-8"
        )
        told["links"] = [fault for fault in links.check(copy).faults if fault.startswith(PAGE)]
        with browser() as chromium:
            told["pages"] = list(pages.looked_at(chromium, page))
    told["language"] = list(language.faults_of("page.md", BAD_TEXT))
    told["blocks"] = [*blocks.differences("2 packets\n", "3 packets\n"), *blocks.values("1 + 1  # 3\n", {})]
    faults = [f"{name} does not find: {wanted}" for name in EXPECTED for wanted in missed(EXPECTED[name], told[name])]
    return Report(f"{sum(map(len, EXPECTED.values()))} faults on purpose", faults)


def missed(wanted: Iterable[str], told: list[str]) -> list[str]:
    """Return what none of the lines says."""
    return [text for text in wanted if not any(text in line for line in told)]
