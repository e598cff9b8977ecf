# SPDX-License-Identifier: GPL-2.0-only
"""The lists of docs/evidence/conformance.md, section by section: code and tests cite each, and each knob is listed."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import citations
from uetproto.engine import PdsConfig, SesConfig
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.tss.keys import DomainConfig

ROOT = Path(__file__).parent.parent
LISTS = (ROOT / "docs" / "evidence" / "conformance.md").read_text(encoding="utf-8")


def sections(cell: str) -> list[str]:
    """ "8.1–8.6" and "3, 4, 5" in full."""
    found = []
    for part in cell.replace(" ", "").split(","):
        first, _, last = part.partition("–")
        head, dot, start = first.rpartition(".")
        end = last.rpartition(".")[2] or start
        found += [f"{head}{dot}{number}" for number in range(int(start), int(end) + 1)]
    return found


class Page(NamedTuple):
    """A page of docs/protocol, its table in docs/evidence/conformance.md, and the class of its knobs."""

    name: str
    title: str
    config: type
    first: str
    last: str
    count: int

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Sections, and the knobs beside them."""
        table = LISTS.partition(f"## {self.title}, section by section")[2].partition("\n## ")[0]
        return re.findall(r"^\| ([\d., –]+) \|[^|]*\|([^|]*)\|$", table, re.MULTILINE)

    @property
    def sections(self) -> list[str]:
        return [section for cell, _ in self.rows for section in sections(cell)]


PAGES = (
    Page("pds.md", "Packet delivery", PdsConfig, "2.1", "20", 41),
    Page("tss.md", "Security", DomainConfig, "1", "15", 20),
    Page("ses.md", "Semantics", SesConfig, "1", "17", 59),
    Page("roce.md", "RDMA", RoceConfig, "1", "17", 19),
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_list_is_whole(page: Page) -> None:
    found = page.sections
    assert (found[0], found[-1]) == (page.first, page.last)
    assert len(found) == len(set(found)) == page.count


def test_every_section_is_cited_by_code_and_by_tests() -> None:
    missing = []
    for folder in ("uetproto", "tests"):
        cited = {(citation.source, citation.section) for citation in citations.of_folder(ROOT / folder)}
        missing += [f"{folder}: {page.name} §{section}" for page in PAGES for section in page.sections
                    if (page.name, section) not in cited]  # fmt: skip
    assert missing == []


def test_knobs_are_fields() -> None:
    fields = {name for page in PAGES for name in page.config.__dataclass_fields__}
    named = {name for page in PAGES for _, cell in page.rows for name in re.findall(r"`(\w+)`", cell)}
    assert named - {page.config.__name__ for page in PAGES} <= fields


def test_every_knob_is_listed() -> None:
    missing = [f"{page.name}: {knob}" for page in PAGES for knob in page.config.__dataclass_fields__
               if not any(f"`{knob}`" in cell for _, cell in page.rows)]  # fmt: skip
    assert missing == []
