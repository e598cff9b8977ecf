# SPDX-License-Identifier: GPL-2.0-only
"""This check reads the pages as prose: rules of proselint, chosen in `language.toml`, and rules of the project.

Code, addresses of links and tables that are generated are left out. `language.toml` has the words that a page does not
use, each list with its reason.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import stage
from proselint.checks import __register__ as proselint_checks

from checks.report import Report

sys.path.insert(0, str(stage.ROOT))
from tests.support.docstrings import FRAGMENT, has_verb

RULES = tomllib.loads((Path(__file__).parent / "language.toml").read_text(encoding="utf-8"))
CHOSEN = [one for one in proselint_checks if any(f"{one.path}.".startswith(f"{name}.") for name in RULES["proselint"])]
WORDS = {name: re.compile(rf"\b(?:{'|'.join(rule['words'])})", re.IGNORECASE) for name, rule in RULES["words"].items()}
_FENCED = re.compile(r"^(```|~~~).*?^\1[ \t]*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=\s*\|)")


def prose(text: str) -> str:
    """Return the text of a page without code and addresses of links; lines keep their numbers."""
    text = _FENCED.sub(lambda found: re.sub(r"[^\n]", "", found[0]), text)
    counted = iter(range(1, len(text)))
    text = re.sub(r"`[^`\n]+`", lambda _: f"code{next(counted)}", text)  # different ones are different words
    return re.sub(r"\]\([^)\s]+\)", "]", text)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence of the paragraphs and lists of a page with its line; headings and tables have none."""
    at = 0
    for block in _BLOCK.split(text):
        start = text.index(block, at)
        at = start + len(block)
        stripped = block.strip()
        if stripped and not stripped.startswith(("|", "#", "![", "    ", "**")):
            line = text.count("\n", 0, start + len(block) - len(block.lstrip())) + 1
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z\"(\[*]|code\d)", " ".join(stripped.split())):
                yield line, sentence


def is_complete(sentence: str) -> bool:
    """Return whether a sentence has a verb."""
    return has_verb(sentence) or not set(RULES["verbs"]).isdisjoint(sentence.split())


def faults_of(page: str, text: str) -> Iterator[str]:
    """Yield what is wrong with the language of a page."""
    plain = prose(text)
    for one in CHOSEN:
        for found in one.check_with_flags(plain):
            text, line = plain[slice(*found.span)].strip(), plain.count("\n", 0, found.span[0] + 1) + 1
            if text not in RULES["allowed"]:
                yield f"{page}:{line}: {text!r}: proselint {found.check_path}"
    for name, words in WORDS.items():
        for match in words.finditer(plain):
            yield f"{page}:{plain.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: {name}"
    headings = re.findall(r"^# .*", plain, re.MULTILINE)
    if len(headings) != 1 or not plain.lstrip().startswith("# "):
        yield f"{page}:1: a page begins with its one heading of the first level"
    told = list(sentences(plain))
    for line, sentence in told:
        for clause in re.split(r"[;:] ", sentence):
            if (words := len(clause.split())) > RULES["longest"]:
                yield f"{page}:{line}: a clause of {words} words: {clause[:60]} …"
        if FRAGMENT.fullmatch(sentence) and not is_complete(sentence):
            yield f"{page}:{line}: a sentence without a verb: {sentence}"
    if told and not is_complete(told[0][1]):
        yield f"{page}:{told[0][0]}: the first sentence has no verb: {told[0][1][:80]}"


def check(_: Path) -> Report:
    """Check all pages that people write, the README and the rules of how to contribute."""
    pages = [source for source in stage.pages() if source not in RULES["generated"]]
    faults = [fault for page in pages for fault in faults_of(page, (stage.ROOT / page).read_text(encoding="utf-8"))]
    return Report(f"{len(pages)} pages, {len(CHOSEN)} rules of proselint, {len(WORDS)} lists of words", faults)
