# SPDX-License-Identifier: GPL-2.0-only
"""This extension of Sphinx links citations of sections, such as `pds.md §6.3`, to the sections, and names of pages.

On a page with numbered sections a bare §6.3 is a section of the page. A number that the page does not have belongs to a
standard, and stays as it is.
"""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from replace import in_text, slug

_HEADING = re.compile(r"^#{2,6} ((?:§)?(\d+(?:\.\d+)*)[.:]? .*)$", re.MULTILINE)
_SHORT = ["wire", "pds", "ses", "tss", "cms", "roce", "sharp", "collectives"]
_CITATION = re.compile(
    rf"(?:(?:docs/(?:[a-z]+/)?)?\b(?P<page>[a-z_]+\.md|(?:{'|'.join(_SHORT)})(?= §)) )?§(?P<number>\d+(?:\.\d+)*)"
    r"|(?:docs/(?:[a-z]+/)?)?\b(?P<alone>[a-z_]+\.md)\b"
)
_LISTED = re.compile(r"^Sections of ([a-z_]+\.md)")
_STANDARD = re.compile(r"(?:UE 1\.0\.\d|IBTA volume 1|RFC \d+|\b[A-Z])[, ]*(?:§[\d.]+[, and–-]*)*$")


def sections(text: str) -> dict[str, str]:
    """Return the anchors of the numbered sections of a page by their numbers."""
    return {number: slug(re.sub(r"[`*]", "", heading)) for heading, number in _HEADING.findall(text)}


def link(app: Any, tree: nodes.document, page: str) -> None:
    """Replace the citations in the running text of a page by links."""
    own = page.rpartition("/")[2] + ".md"

    def section(found: re.Match[str]) -> tuple[str, str] | None:
        named = found["page"]
        if found["alone"]:
            where = app.named.get(found["alone"], page)
            return (app.builder.get_relative_uri(page, where), "") if where != page else None
        if named is None and _STANDARD.search(found.string[: found.start()]):
            return None
        name = own if named is None else named if named.endswith(".md") else f"{named}.md"
        where, anchors = app.numbered.get(name, (None, {}))
        if found["number"] not in anchors or (named is None and name != own):
            return None
        address = app.builder.get_relative_uri(page, where) if where != page else ""
        return f"{address}#{anchors[found['number']]}", ""

    in_text(tree, _CITATION, section, "citation")
    for part in tree.findall(nodes.section):
        if named := _LISTED.search(
            "".join(node.astext() for node in part.children if isinstance(node, nodes.paragraph))
        ):
            _numbers(app, part, page, *app.numbered.get(named[1], ("", {})))


def _numbers(app: Any, part: nodes.section, page: str, where: str, anchors: dict[str, str]) -> None:
    """Link the numbers in the first column of tables that list the sections of a page."""
    address = app.builder.get_relative_uri(page, where)

    def number(found: re.Match[str]) -> tuple[str, str] | None:
        return (f"{address}#{anchors[found[0]]}", "") if found[0] in anchors else None

    for table in part.findall(nodes.table):
        for row in table.findall(nodes.row):
            in_text(row.children[0], re.compile(r"\d+(?:\.\d+)*"), number, "citation")


def load(app: Any) -> None:
    """Read the names of all pages, and the headings of those that have numbered sections."""
    app.numbered, app.named = {}, {}
    for path in Path(app.srcdir).rglob("*.md"):
        app.named[path.name] = page = path.relative_to(app.srcdir).with_suffix("").as_posix()
        if found := sections(path.read_text(encoding="utf-8")):
            app.numbered[path.name] = (page, found)


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about the extension."""
    app.connect("builder-inited", load)
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
