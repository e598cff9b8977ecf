# SPDX-License-Identifier: GPL-2.0-only
"""This check measures: the README, the sources of pages, pictures, and the whole site."""

import re
from pathlib import Path

import stage

from checks.report import Report

KB, MB = 1024, 1 << 20
README = 8 * KB
PAGE = 96 * KB  # of source: some twenty minutes of reading; reference pages that are generated are longer
GENERATED = 160 * KB
PICTURE = 400 * KB
SITE = 40 * MB


def check(site: Path) -> Report:
    """Measure the files. Every picture of a page has a text in its place for those who do not see it."""
    faults = []

    def at_most(path: Path, limit: int) -> None:
        size = path.stat().st_size
        if size > limit:
            name = path.relative_to(stage.ROOT)
            faults.append(f"{name}: {size / KB:,.1f} KB, at most {limit / KB:,.0f}")

    at_most(stage.ROOT / "README.md", README)
    for source in stage.pages():
        path = stage.ROOT / source
        text = path.read_text(encoding="utf-8")
        at_most(path, GENERATED if source in stage.ELSEWHERE or "generated" in text[:400].lower() else PAGE)
        untold = [link[3] for link in stage.links(text) if link[1] and not link[2]]
        faults += [f"{source}: a picture has no text: {picture}" for picture in untold]
    pictures = [path for path in (stage.DOCS / "pictures").rglob("*") if re.fullmatch(r"\.(png|svg)", path.suffix)]
    for path in pictures:
        at_most(path, PICTURE)
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    if size > SITE:
        faults.append(f"the site has {size / MB:.1f} MB, at most {SITE / MB:.0f}")
    return Report(f"{len(pictures)} pictures, {size / MB:.1f} MB in all", faults)
