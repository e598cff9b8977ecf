# SPDX-License-Identifier: GPL-2.0-only
"""This extension of Sphinx links the first use of a term on each page to the glossary; its meaning is the title."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from replace import in_text, slug

GLOSSARY = "protocol/glossary"


class Term(NamedTuple):
    """A term of the glossary."""

    anchor: str
    meaning: str


def read(text: str) -> dict[str, Term]:
    """Return the terms of a glossary by their names: a heading has them, with commas between."""
    found = {}
    for heading, body in re.findall(r"^## (.+)\n+(.+(?:\n.+)*)", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", body.replace("\n", " "))
        meaning = re.split(r"(?<=\.)\s", re.sub(r"[`*]", "", plain))[0]
        for name in heading.split(", "):
            found[name] = Term(slug(heading), meaning)
    return found


def link(app: Any, tree: nodes.document, page: str) -> None:
    """Replace the first use of each term in the running text of a page by a link."""
    terms: dict[str, Term] = app.glossary
    if page == GLOSSARY or not terms:
        return
    names = "|".join(map(re.escape, sorted(terms, key=len, reverse=True)))
    home = app.builder.get_relative_uri(page, GLOSSARY)
    seen = set()

    def first(found: re.Match[str]) -> tuple[str, str] | None:
        term = terms[found[0]]
        if term.anchor in seen:
            return None
        seen.add(term.anchor)
        return f"{home}#{term.anchor}", term.meaning

    in_text(tree, re.compile(rf"(?<![\w.-])({names})(?=s?(?![\w-]))"), first, "term")


def load(app: Any) -> None:
    """Read the glossary before the pages."""
    path = Path(app.srcdir) / f"{GLOSSARY}.md"
    app.glossary = read(path.read_text(encoding="utf-8")) if path.exists() else {}


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about the extension."""
    app.connect("builder-inited", load)
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
