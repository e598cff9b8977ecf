# SPDX-License-Identifier: GPL-2.0-only
"""This check follows the links of the site. Files and anchors are there, and nothing is loaded from elsewhere."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from checks.report import Report

_LOADED = {"img": "src", "script": "src", "source": "src", "video": "src", "iframe": "src", "object": "data"}
_IMPORT = ("stylesheet", "icon", "shortcut icon", "preload", "preconnect", "dns-prefetch", "modulepreload")


class Page(HTMLParser):
    """A page: its anchors, what it links to, and what a browser loads with it."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what a tag says."""
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _LOADED and values.get(_LOADED[tag]):
            self.loaded.append(values[_LOADED[tag]])
        if tag == "link" and values.get("rel", "") in _IMPORT:
            self.loaded.append(values["href"])


def read(site: Path) -> dict[Path, Page]:
    """Read all pages of the built site."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = page = Page()
        page.feed(path.read_text(encoding="utf-8"))
    return found


def check(site: Path) -> Report:
    """Follow all links within the site. Those that leave it are counted, and not asked: CI has no network."""
    pages = read(site)
    faults, inside, outside = [], 0, 0
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                outside += 1
                if link in page.loaded and parts.scheme != "data":
                    faults.append(f"{name}: loads {link}, which is not part of the site")
                continue
            inside += 1
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file():
                faults.append(f"{name}: {link}: no such file")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors:
                faults.append(f"{name}: {link}: no such anchor")
    for sheet in sorted(site.rglob("*.css")):
        text = sheet.read_text(encoding="utf-8")
        if "url(http" in text or "url(//" in text or "@import" in text:
            faults.append(f"{sheet.relative_to(site)}: loads what is not part of the site")
    return Report(f"{len(pages)} pages, {inside:,} links within the site, {outside:,} to others", faults)
