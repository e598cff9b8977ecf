# SPDX-License-Identifier: GPL-2.0-only
"""Every section that code, tests and docs cite exists: in a page of docs, or in the list of public standards."""

import re

from tests.support import citations
from tests.support.paths import ROOT


def test_every_section_resolves() -> None:
    found = [*citations.of_folder(ROOT / "uetproto"), *citations.of_folder(ROOT / "tests")]
    for page in [ROOT / "README.md", *sorted(citations.DOCS.rglob("*.md"))]:
        found += citations.of_page(page)
    assert len(found) > 2000, "the scan misses citations"
    assert [str(citation) for citation in found if not citations.resolves(citation)] == []


def test_the_list_of_standards_names_pages_that_rely_on_each() -> None:
    text = (citations.PROTOCOL / "references.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d[\d.]*) \| [^|]+ \| ([a-z_., ]+\.md) \|$", text, re.MULTILINE)
    relied = [(page, number) for number, pages in rows for page in pages.split(", ")]
    assert len(relied) > 60, "the table is not read"
    assert [pair for pair in relied if not citations.mentions(*pair)] == []


def test_a_citation_takes_its_source_from_the_sentence_or_the_module() -> None:
    text = "As pds.md §7, §9.3–9.4 and UE 1.0.1 §3.5.8 say (ses.md §4). Then \u00a75."
    found = [(citation.source, citation.section) for citation in citations.in_text(text, "here")]
    assert found[:4] == [("pds.md", "7"), ("pds.md", "9.3"), ("pds.md", "9.4"), ("UE 1.0.1", "3.5.8")]
    assert found[4:] == [("ses.md", "4"), (None, "5")]
    assert citations.resolves(citations.Citation("here", "pds.md", "6.3"))
    assert not citations.resolves(citations.Citation("here", "pds.md", "6.99"))
    assert not citations.resolves(citations.Citation("here", "UE 1.0.1", "9.9"))
    assert not citations.resolves(citations.Citation("here", None, "1"))
