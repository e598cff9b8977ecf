# SPDX-License-Identifier: GPL-2.0-only
"""This module finds the public docstrings of the package, and tells whether a first sentence has a verb.

The check knows the verbs that the package uses (verbs.txt) and is no grammar. A sentence has a verb if it begins with
one of them (`Return …`), has one in the third person (`returns`), or has a form of be, have, do, can, may or must.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.support import source

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

HERE = Path(__file__).parent
AUXILIARY = {
    "is", "are", "was", "were", "be", "has", "have", "had", "do", "does", "did", "can", "cannot", "may", "might",
    "must", "will", "would", "should", "could", "shall",
}  # fmt: skip
VERBS = set((HERE / "verbs.txt").read_text(encoding="utf-8").split())
NOUNS = set((HERE / "nouns.txt").read_text(encoding="utf-8").split())
"""Third persons that are mostly nouns here; they count behind a noun alone: "a counter counts"."""
LEADING = {
    "a", "an", "the", "of", "and", "or", "all", "in", "by", "for", "to", "with", "from", "on", "as", "at", "its", "no",
    "their", "these", "those", "this", "that", "both", "literal",
}  # fmt: skip
"""Words after which a noun follows, and no verb."""
FRAGMENT = re.compile(r"(By|Of|As|Its|It|The same|Likewise|Those|Each|One|That)\b[^\"]{0,40}\.$")
"""Matches a first sentence that leans on what stands before it."""


class Docstring(NamedTuple):
    """The first sentence of a docstring, and where it stands; `attribute` says whether it stands below an
    assignment."""

    place: str
    sentence: str
    attribute: bool


def third_person(verb: str) -> str:
    """Return the third person of a verb: passes, carries, goes, holds."""
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y$", verb) else f"{verb}s"


THIRD_PERSONS = {*map(third_person, VERBS)} - NOUNS
PLURALS = {verb for verb in VERBS if third_person(verb) not in NOUNS}


def has_verb(sentence: str) -> bool:
    """Return whether a sentence has a verb, as far as a list of verbs can tell."""
    words = re.findall(r"[a-z]+", re.sub(r"`[^`]*`", " literal ", re.sub(r"`\w+`: ", "", sentence)).lower())
    if not words or words[0] in VERBS | NOUNS or not (AUXILIARY | THIRD_PERSONS).isdisjoint(words):
        return True
    return any(
        (word in NOUNS and before not in LEADING) or (word in PLURALS and before.endswith(("s", "literal")))
        for before, word in pairwise(words)
    )


def first_sentence(text: str) -> str:
    """Return a docstring's text up to its first full stop, on one line."""
    line = " ".join(text.strip().split("\n\n")[0].split())
    found = re.match(r"(.*?[.!?])(?=\s+[A-Z`\"]|$)", line)
    return found[1] if found else line


@cache
def public() -> tuple[Docstring, ...]:
    """Return every docstring of a module, class, function or attribute whose name has no leading underscore."""
    paths = source.files()
    return tuple(one for path in paths for one in _of(source.tree(path), str(path.relative_to(source.ROOT))))


def _of(node: Documented, file: str) -> Iterator[Docstring]:
    text = ast.get_docstring(node)
    if text:
        yield Docstring(f"{file}:{getattr(node, 'lineno', 1)}", first_sentence(text), attribute=False)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for at, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(at, ast.Assign | ast.AnnAssign) and isinstance(below, ast.Expr):
            target = at.targets[0] if isinstance(at, ast.Assign) else at.target
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and _is_public(target):
                yield Docstring(f"{file}:{at.lineno}", first_sentence(value.value), attribute=True)
    for part in node.body:
        if isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not part.name.startswith("_"):
            yield from _of(part, file)


def _is_public(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and not target.id.startswith("_")
