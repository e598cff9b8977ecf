# SPDX-License-Identifier: GPL-2.0-only
"""Citations of sections (§) in code, tests and docs, and what they resolve to.

A citation names its source before the sign: a page of docs (`pds.md §6.3`) or a public standard (`UE 1.0.1 §3.5.8`,
`IBTA volume 1 §9`, `RFC 791 §3.1`). The source holds up to the end of the sentence: `pds.md §7, §9.3`. A § without a
source is a section of the one page that the docstring of its module names.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support import paths

DOCS = paths.ROOT / "docs"
PROTOCOL = DOCS / "protocol"
_PAGE = r"(?:docs/(?:[a-z]+/)?)?([a-z_]+\.md)"
_SHORT = r"\b(wire|pds|ses|tss|cms|roce|sharp|collectives)(?= §)"
_SOURCE = re.compile(rf"\b{_PAGE}|\b(UE 1\.0\.\d)|\b(IBTA volume 1)|\b(RFC \d+)")
_SECTION = re.compile(r"§\s?(\d+(?:\.\d+)*)(?:–§?(\d+(?:\.\d+)*))?")
_HEADING = re.compile(r"^#{2,6} (?:§)?(\d+(?:\.\d+)*)[.:]? ", re.MULTILINE)
_SENTENCE = re.compile(r"(?<!\d)\.\s|\.\s(?=[A-Z\"`])|\n\s*\n|\n\s*[-|*] ")
_DOCSTRING = re.compile(r'(?:\s|#.*\n)*"""((?s:.*?))"""')
_TEXT = re.compile(
    r"""(?P<string>\"\"\"(?s:\\.|.)*?\"\"\"|\'\'\'(?s:\\.|.)*?\'\'\'"""
    r"""|"(?:\\(?s:.)|[^"\\\n])*"|'(?:\\(?s:.)|[^'\\\n])*')|(?P<comment>\#.*)"""
)
"""Matches a string or a comment of a Python module; it is ten times as fast as `tokenize`."""


class Citation(NamedTuple):
    """A citation names a section of a page or standard; `source` is None where the text does not name one."""

    place: str
    source: str | None
    section: str

    def __str__(self) -> str:
        return f"{self.place}: {self.source or 'no page'} §{self.section}"


def in_text(text: str, place: str) -> Iterator[Citation]:
    """Yield the citations of one comment, docstring or paragraph, in order."""
    for found in _SECTION.finditer(text):
        before = text[: found.start()]
        ends = [end.end() for end in _SENTENCE.finditer(before)]
        sentence = before[ends[-1] if ends else 0 :]
        sources = [next(filter(None, match.groups())) for match in _SOURCE.finditer(sentence)]
        for section in _range(found[1], found[2] or ""):
            yield Citation(place, sources[-1] if sources else None, section)


def _range(first: str, last: str) -> list[str]:
    """All sections from the first to the last: 8.1, 8.2 and 8.3 for §8.1–8.3, and 4 and 5 for §4–5."""
    head, _, start = first.rpartition(".")
    end = last.rpartition(".")[2]
    if not (start.isdigit() and end.isdigit()):
        return [first]
    return [f"{head}.{number}".lstrip(".") for number in range(int(start), int(end) + 1)]


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string and of each run of comment lines of a Python module."""
    run: list[str] = []
    first = last = at = 0
    line = 1
    for token in _TEXT.finditer(source):
        line += source.count("\n", at, at := token.start())
        if token["string"] is not None:
            yield line, token["string"]
            continue
        if run and line != last + 1:
            yield first, "\n".join(run)
            run = []
        first = first if run else line
        run.append(token["comment"].lstrip("# "))
        last = line
    if run:
        yield first, "\n".join(run)


def of_module(path: Path) -> Iterator[Citation]:
    """Yield the citations of a Python module; a bare § takes the one page that the module's docstring names."""
    source = path.read_text(encoding="utf-8")
    if "§" not in source:
        return
    docstring = _DOCSTRING.match(source)
    pages = {match.group(1) for match in re.finditer(_PAGE, docstring[1] if docstring else "")}
    declared = pages.pop() if len(pages) == 1 else None
    name = path.relative_to(paths.ROOT)
    for line, text in texts_of(source):
        for citation in in_text(text, f"{name}:{line}"):
            yield citation._replace(source=citation.source or declared)


def of_page(path: Path) -> Iterator[Citation]:
    """Yield the citations of a text file. In a page of the protocol a bare § is a section of the page itself or, where
    it has none of that number, of the specification; other pages may be named without their ending (`pds §6.5`).
    """
    own = path.name if path.parent == PROTOCOL else None
    name = path.relative_to(paths.ROOT)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = re.sub(_SHORT, r"\1.md", line) if own else line
        for citation in in_text(text, f"{name}:{number}"):
            source = citation.source or own
            if source == own and own and citation.section not in sections(own):
                source = "UE 1.0.1"
            yield citation._replace(source=source)


@cache
def of_folder(folder: Path) -> tuple[Citation, ...]:
    """Return the citations of all Python modules and TOML files of a folder."""
    modules = [citation for path in sorted(folder.rglob("*.py")) for citation in of_module(path)]
    return (*modules, *(citation for path in sorted(folder.rglob("*.toml")) for citation in of_page(path)))


@cache
def pages() -> dict[str, Path]:
    """Return the pages of docs by their names, which are unique but for the README.md of each folder."""
    found = [path for path in DOCS.rglob("*.md") if path.name != "README.md"]
    assert len({path.name for path in found}) == len(found), "two pages of docs have one name"
    return {path.name: path for path in found}


@cache
def sections(page: str) -> frozenset[str]:
    """Return the numbers of all headings of a page of docs; empty where there is no such page."""
    path = pages().get(page)
    return frozenset(_HEADING.findall(path.read_text(encoding="utf-8"))) if path else frozenset()


@cache
def standards() -> dict[str, frozenset[str]]:
    """Return the committed numbers of sections by standard, from docs/protocol/references.md."""
    text = (PROTOCOL / "references.md").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for heading, body in re.findall(r"^## \d+\. (.*?)$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
        standard = re.search(r"\((UE 1\.0\.1|IBTA volume 1)\)", heading)
        for cells in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", body, re.MULTILINE):
            if standard:
                found.setdefault(standard.group(1), set()).add(cells[0].strip())
            elif cells[0].strip().isdigit():
                found.setdefault(f"RFC {cells[0].strip()}", set()).add(cells[1].strip())
    return {name: frozenset(numbers) for name, numbers in found.items()}


def mentions(page: str, number: str) -> bool:
    """Return whether a page of the protocol has the number of a section in its text."""
    text = (PROTOCOL / page).read_text(encoding="utf-8")
    return re.search(rf"(?<![\d.]){re.escape(number)}(?!\d|\.\d)", text) is not None


def resolves(citation: Citation) -> bool:
    """Return whether the page or standard that a citation names has the section."""
    if citation.source is None:
        return False
    if citation.source.endswith(".md"):
        return citation.section in sections(citation.source)
    standard = re.sub(r"^UE 1\.0\.\d$", "UE 1.0.1", citation.source)
    return citation.section in standards().get(standard, frozenset())
