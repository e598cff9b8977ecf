"""README's list of pds.md, section by section: each is cited at the code and at the tests that rely on it."""

import re
from pathlib import Path

import pytest

from uetproto.engine import PdsConfig, SesConfig

ROOT = Path(__file__).parent.parent
TABLE = (ROOT / "README.md").read_text().partition("### Packet delivery, section by section")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| ([\d., –]+) \|[^|]*\|([^|]*)\|$", TABLE, re.MULTILINE)


def sections(cell: str) -> list[str]:
    """ "8.1–8.6" and "3, 4, 5" in full."""
    found = []
    for part in cell.replace(" ", "").split(","):
        first, _, last = part.partition("–")
        head, dot, start = first.rpartition(".")
        end = last.rpartition(".")[2] or start
        found += [f"{head}{dot}{number}" for number in range(int(start), int(end) + 1)]
    return found


ALL = [section for cell, _ in ROWS for section in sections(cell)]


def cites(folder: str, section: str) -> bool:
    pattern = re.compile(rf"§{re.escape(section)}(?!\d|\.\d)")
    return any(
        pattern.search(path.read_text())
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".toml") and path.name != Path(__file__).name
    )


def test_the_list_is_whole() -> None:
    assert ALL[0] == "2.1"
    assert ALL[-1] == "20"
    assert len(ALL) == len(set(ALL)) == 41


@pytest.mark.parametrize("section", ALL)
def test_section_is_cited(section: str) -> None:
    assert cites("uetproto", section), "no code cites it"
    assert cites("tests", section), "no test cites it"


def test_knobs_are_fields() -> None:
    fields = set(PdsConfig.__dataclass_fields__) | set(SesConfig.__dataclass_fields__)
    named = {name for _, cell in ROWS for name in re.findall(r"`(\w+)`", cell)}
    assert named - {"PdsConfig"} <= fields


@pytest.mark.parametrize("knob", PdsConfig.__dataclass_fields__)
def test_every_knob_is_listed(knob: str) -> None:
    assert any(f"`{knob}`" in cell for _, cell in ROWS)
