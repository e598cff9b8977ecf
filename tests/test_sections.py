"""README's lists of pds.md, tss.md, ses.md and roce.md: code and tests that rely on a section cite it."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from uetproto.engine import PdsConfig, SesConfig
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.tss.keys import DomainConfig

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


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
    """A page, its table in the README, and the files in which a bare § means it."""

    name: str
    title: str
    config: type
    own: re.Pattern[str]
    first: str
    last: str
    count: int

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Sections, and the knobs beside them."""
        table = (
            README.partition(f"### {self.title}, section by section")[2].partition("\n## ")[0].partition("\n### ")[0]
        )
        return re.findall(r"^\| ([\d., –]+) \|[^|]*\|([^|]*)\|$", table, re.MULTILINE)

    @property
    def sections(self) -> list[str]:
        return [section for cell, _ in self.rows for section in sections(cell)]

    def cited(self, folder: str, section: str) -> bool:
        """In a file of its own by a bare §, anywhere by the name of the page before it."""
        bare = re.compile(rf"§{re.escape(section)}(?!\d|\.\d)")
        named = re.compile(rf"{re.escape(self.name)} §[^a-z]*?{bare.pattern}|{re.escape(self.name)} {bare.pattern}")
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".toml") and path.name != Path(__file__).name:
                pattern = bare if self.own.search(str(path.relative_to(ROOT))) else named
                if pattern.search(path.read_text()):
                    return True
        return False


_OF_ROCE = r"roce|verbs|dcqcn|gpudirect|icrc|pfc\.|red\."
_OF_SES = r"/(test_)?ses_|/(ses|api|traffic)/"
_OF_TSS = r"tss|security|sealed|keys_file"
_OTHERS = rf"^(?!.*({_OF_ROCE}|{_OF_TSS}))"
PAGES = (
    Page("pds.md", "Packet delivery", PdsConfig, re.compile(rf"{_OTHERS}(?!.*({_OF_SES}))"), "2.1", "20", 41),
    Page("tss.md", "Security", DomainConfig, re.compile(_OF_TSS), "1", "15", 20),
    Page("ses.md", "Semantics", SesConfig, re.compile(rf"{_OTHERS}.*({_OF_SES}|config\.py|test_write)"), "1", "17", 59),
    Page("roce.md", "RDMA", RoceConfig, re.compile(_OF_ROCE), "1", "17", 19),
)  # fmt: skip
CITED = [pytest.param(page, section, id=f"{page.name}-{section}") for page in PAGES for section in page.sections]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_list_is_whole(page: Page) -> None:
    found = page.sections
    assert (found[0], found[-1]) == (page.first, page.last)
    assert len(found) == len(set(found)) == page.count


@pytest.mark.parametrize(("page", "section"), CITED)
def test_section_is_cited(page: Page, section: str) -> None:
    assert page.cited("uetproto", section), "no code cites it"
    assert page.cited("tests", section), "no test cites it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_knobs_are_fields(page: Page) -> None:
    fields = {name for other in PAGES for name in other.config.__dataclass_fields__}
    named = {name for _, cell in page.rows for name in re.findall(r"`(\w+)`", cell)}
    assert named - {other.config.__name__ for other in PAGES} <= fields


@pytest.mark.parametrize(
    ("page", "knob"), [(page, knob) for page in PAGES for knob in page.config.__dataclass_fields__],
    ids=lambda value: value if isinstance(value, str) else value.name,
)  # fmt: skip
def test_every_knob_is_listed(page: Page, knob: str) -> None:
    assert any(f"`{knob}`" in cell for _, cell in page.rows)
