# SPDX-License-Identifier: GPL-2.0-only
"""This check opens every page in headless Chromium, from the disk: narrow and wide, light and dark.

Pictures are shown, nothing is wider than the window, text has contrast, the console says nothing, and nothing is asked
of another place. The search finds what it should, from the disk and where the site is served. A reader finds what
`routes.toml` says within the clicks that stand there.
"""

import http.server
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from browser import Browser, browser

from checks.report import Report

NARROW, WIDE = 380, 1280
PICTURED = "index.html"
"""A page with a picture in SVG."""
PAGE = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
ROUTES = tomllib.loads((Path(__file__).parent / "routes.toml").read_text(encoding="utf-8"))
RESULTS = """
new Promise((done) => {
  const look = () => {
    const found = [...document.querySelectorAll("#search-results li")];
    const text = document.querySelector("#search-results .search-summary");
    const ended = text && /found|did not match/.test(text.textContent);
    if (!ended) return setTimeout(look, 20);
    setTimeout(() => done(found.map((one) => [one.querySelector("a").getAttribute("href"), one.textContent])), 300);
  };
  look();
})
"""


def check(site: Path) -> Report:
    """Open all pages, search, and follow the routes."""
    pages = sorted(path for path in site.rglob("*.html") if path.name not in ("genindex.html", "search.html"))
    faults = []
    with browser() as chromium:
        for path in pages:
            faults += [f"{path.relative_to(site)}: {fault}" for fault in looked_at(chromium, path)]
        faults += [f"{PICTURED}: {fault}" for fault in coloured(chromium, site / PICTURED)]
        faults += searched(chromium, site)
        for name, route in ROUTES["route"].items():
            for width in (WIDE, NARROW):
                faults += [
                    f"route {name}, {width} pixels wide: {fault}" for fault in walked(chromium, site, route, width)
                ]
    told = f"{len(pages)} pages at {NARROW} and {WIDE} pixels, light and dark; {len(ROUTES['route'])} routes"
    return Report(told, faults)


def looked_at(chromium: Browser, path: Path) -> Iterator[str]:
    """Yield what is wrong with a page."""
    chromium.size(NARROW)
    chromium.scheme("light")
    chromium.open(path.as_uri())
    grounds = {}
    for width, scheme in ((NARROW, "light"), (NARROW, "dark"), (WIDE, "dark"), (WIDE, "light")):
        chromium.size(width)
        chromium.scheme(scheme)
        found = chromium.run(PAGE)
        grounds[scheme] = found["ground"]
        yield from (f"{width} pixels, {scheme}: {fault}" for fault in found["faults"])
    if grounds["light"] == grounds["dark"]:
        yield "light and dark have one ground"
    yield from chromium.faults()


def coloured(chromium: Browser, path: Path) -> Iterator[str]:
    """Yield what is wrong if the system, and not the button of a page, chooses the colours of a picture in SVG."""

    def shown(system: str, button: str) -> str:
        chromium.scheme(system)
        chromium.run(f"document.body.dataset.theme = {button!r}")
        return chromium.picture(box)

    chromium.size(WIDE)
    chromium.open(path.as_uri())
    box = chromium.run(
        """(() => {
          const box = document.querySelector("article img[src$='.svg']").getBoundingClientRect();
          return {x: box.x, y: box.y + scrollY, width: box.width, height: box.height, scale: 1};
        })()"""
    )
    for name, other in (("light", "dark"), ("dark", "light")):
        if shown(other, name) != shown(name, "auto"):
            yield f"the button says {name}, and a picture has the colours of the system"
    if shown("light", "dark") == shown("light", "light"):
        yield "the button does not change the colours of a picture"


def searched(chromium: Browser, site: Path) -> Iterator[str]:
    """Yield what is wrong with searches, typed into the field of the first page."""
    with served(site) as address:
        for place in (site.as_uri(), address):
            for words, wanted in ROUTES["search"].items():
                chromium.size(WIDE)
                chromium.open(f"{place}/index.html")
                chromium.run("document.querySelector('.sidebar-search').focus()")
                chromium.type(words)
                found: list[list[str]] = chromium.run(RESULTS)
                pages = [link.partition("?")[0].partition("#")[0] for link, _ in found]
                if wanted not in pages[:5]:
                    yield f"search for {words} in {place}: no {wanted} among the first of {len(pages)}: {pages[:5]}"
                elif place == address and not any(len(text) > 200 for _, text in found):
                    yield f"search for {words}: no extracts"
                yield from (f"search for {words} in {place}: {fault}" for fault in chromium.faults())


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the site on this host. Yields the address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        """A server that prints nothing."""

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def walked(chromium: Browser, site: Path, route: dict[str, Any], width: int) -> Iterator[str]:
    """Yield what is wrong with a route: links that are not there or not to be seen, and what the last page does not
    say where the reader has arrived."""
    if len(route["click"]) > 3:
        yield "more than three clicks"
    chromium.size(width)
    chromium.open((site / "index.html").as_uri())
    for text in route["click"]:
        place = chromium.run(
            f"""(() => {{
              const links = [...document.querySelectorAll("article a")];
              const link = links.find((one) => one.textContent.trim() === {text!r});
              if (!link) return null;
              link.scrollIntoView({{block: "center", behavior: "instant"}});
              const box = link.getClientRects()[0];
              return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        if place is None:
            yield f"no link {text!r} in the text of {chromium.run('location.href')}"
            return
        chromium.click(*place)
    said = chromium.run(
        """(() => {
          const mark = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
          return (mark || document.querySelector("article")).innerText;
        })()"""
    )
    yield from (f"{chromium.run('location.href')} does not say {text!r}" for text in route["says"] if text not in said)
    yield from chromium.faults()
