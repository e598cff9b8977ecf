# SPDX-License-Identifier: GPL-2.0-only
"""This module puts the sources of the site together: the pages of docs, and pages that stand beside the code.

Pages are plain Markdown with links that work in a clone as well. A page README.md is the first of its folder; the pages
of a section are those that its README.md links to, in that order, under the texts of the links. So a new page needs its
file and a link. Below a line that is nothing but a link to a capture, the site has its ladder.
"""

import os
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from reference import codes, commands, diagrams, drawing, errors, python

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = {
    "README.md": "install.md",
    "CONTRIBUTING.md": "explanation/contributing.md",
    "SECURITY.md": "explanation/security.md",
    "CHANGELOG.md": "evidence/changelog.md",
    "docs/architecture.md": "explanation/architecture.md",
    "uetproto/wire/TABLES.md": "reference/headers.md",
    "uetproto/audit/RULES.md": "reference/rules.md",
    "uetproto/engine/STATES.md": "reference/states.md",
    "uetproto/conform/COVERAGE.md": "reference/coverage.md",
}
"""Pages that stand elsewhere than on the site: beside the code, and where programmers look first."""
MADE: dict[str, tuple[str, Callable[[], str]]] = {
    "docs/man/uetproto.1": ("reference/commands.md", commands.page),
    **python.pages(),
    "uetproto/engine/pds/nacks.py": ("reference/codes.md", codes.page),
    "uetproto/errors.py": ("reference/errors.md", errors.page),
}
"""Pages that are made from the code for the site alone, by the file of the clone to which a link to the page leads."""
PICTURED: dict[str, Callable[[str], str]] = {
    "uetproto/wire/TABLES.md": drawing.with_drawings,
    "uetproto/engine/STATES.md": diagrams.with_diagrams,
}
"""What puts pictures into a page; they are made for the site alone."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_DRAWN = re.compile(r"^\[[^\]\n]+\]\(([^)\s]+\.pcapng)\)$", re.MULTILINE)
_CODE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


class BrokenLinkError(Exception):
    """A page links to what is not there."""


def pages() -> dict[str, str]:
    """Return the place on the site of each page, by its path from the root of the clone."""
    found = {path.relative_to(ROOT).as_posix(): path.relative_to(DOCS) for path in sorted(DOCS.rglob("*.md"))}
    placed = {source: str(path.with_name(path.name.replace("README", "index"))) for source, path in found.items()}
    return {**placed, **ELSEWHERE}


def places() -> dict[str, str]:
    """Return what `pages` returns, and the places of the pages that are made."""
    return pages() | {source: place for source, (place, _) in MADE.items()}


def text_of(source: str) -> str:
    """Return the text of a page, with what is made for the site alone."""
    if source in MADE:
        return MADE[source][1]()
    text = (ROOT / source).read_text(encoding="utf-8")
    return PICTURED[source](text) if source in PICTURED else text


def links(text: str) -> Iterator[re.Match[str]]:
    """Yield the links of a page outside of its blocks of code."""
    code = [match.span() for match in _CODE.finditer(text)]
    for link in _LINK.finditer(text):
        if not any(start <= link.start() < end for start, end in code):
            yield link


def target(source: str, link: str) -> str | None:
    """Return the path from the root of the clone that a link of a page leads to, or None if it leaves the project."""
    file = link.partition("#")[0]
    if "://" in link or link.startswith("mailto:"):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(source), file)) if file else source


def stage(folder: Path) -> None:
    """Write the sources of the site into a folder; what has not changed is not touched."""
    there = places()
    wanted = set()
    for source, place in there.items():
        text = text_of(source)
        page = folder / place
        written = _rewritten(source, text, there, folder)
        for capture in _DRAWN.findall(written):
            wanted.add(picture := drawn(page.parent / capture, folder))
            shown = f"![The packets of the capture]({os.path.relpath(picture, page.parent)})"
            written = written.replace(f"({capture})\n", f"({capture})\n\n{shown}\n", 1)
        _write(page, (written + _toctree(source, text, there)).encode())
        wanted.add(page)
    for path in DOCS.rglob("*"):
        if path.suffix in (".svg", ".png", ".ipynb", ".pcapng"):
            copy = folder / path.relative_to(DOCS)
            _write(copy, path.read_bytes())
            wanted.add(copy)
    for path in folder.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def drawn(capture: Path, folder: Path) -> Path:
    """Return the picture of a capture as a ladder, which is drawn again if the capture has changed."""
    picture = folder / "ladders" / f"{capture.stem}-{sha256(capture.read_bytes()).hexdigest()[:12]}.svg"
    if not picture.exists():
        import uetproto

        picture.parent.mkdir(parents=True, exist_ok=True)
        uetproto.open(capture).ladder().save(str(picture))
    return picture


def _write(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _rewritten(source: str, text: str, places: dict[str, str], folder: Path) -> str:
    """Return the text with links to the places of the site; other files of the clone are offered as they are."""
    here = places[source]
    pieces, at = [], 0
    for link in links(text):
        path = target(f"docs/{here}" if source in MADE else source, link[3])
        pieces.append(text[at : link.start()])
        at = link.end()
        anchor = "#" + link[3].partition("#")[2] if "#" in link[3] else ""
        if path is None or not link[3].partition("#")[0]:
            pieces.append(link[0])
        elif path in places or f"{path}/README.md" in places:
            place = places.get(path) or places[f"{path}/README.md"]
            pieces.append(f"{link[1]}[{link[2]}]({os.path.relpath(place, os.path.dirname(here))}{anchor})")
        elif (ROOT / path).is_file():
            beside = path.removeprefix("docs/") if path.startswith("docs/") else None
            there = folder / beside if beside else ROOT / path
            pieces.append(f"{link[1]}[{link[2]}]({os.path.relpath(there, (folder / here).parent)})")
        elif (ROOT / path).is_dir():
            pieces.append(link[2])
        else:
            raise BrokenLinkError(f"{source}: {link[3]}: there is no {path}")
    return "".join([*pieces, text[at:]])


def children(source: str, text: str, places: dict[str, str]) -> dict[str, str]:
    """Return the pages of the section that a README.md opens, with their titles: those of its folder, and the first
    pages of the folders in it, in the order of its links."""
    here = os.path.dirname(places[source])
    found: dict[str, str] = {}
    for link in links(text):
        place = places.get(target(source, link[3]) or "", places[source])
        folder, name = os.path.split(place)
        section = name == "index.md" and folder != here and os.path.dirname(folder) == here
        page = name != "index.md" and folder == here
        if (section or page) and not link[1]:
            found.setdefault(place, link[2].replace("`", ""))
    return found


def _toctree(source: str, text: str, places: dict[str, str]) -> str:
    if os.path.basename(places[source]) != "index.md":
        return ""
    entries = "".join(
        f"{title} <{os.path.relpath(place, os.path.dirname(places[source])).removesuffix('.md')}>\n"
        for place, title in children(source, text, places).items()
    )
    return f"\n```{{toctree}}\n:hidden:\n\n{entries}```\n" if entries else ""
