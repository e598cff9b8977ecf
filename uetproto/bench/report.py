# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the page of `uetproto report` for `uetproto bench`: writing it, and using it in Chromium."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import process_time

from uetproto.analysis.capture import open_captures
from uetproto.bench.engine import Figure
from uetproto.errors import LocalError
from uetproto.traffic import profile
from uetproto.traffic.generate import generate

PACKETS = 20_000
_WRITE, _OPEN, _DRAW, _FILTER, _FIND = 20_000, 4_000, 100, 1_000, 1_000
"""Limits in milliseconds: to write the page, to open it, to draw the rows in sight after a jump, to filter, to find."""
_TIMES = """
async () => {
  const told = {open: performance.now()}, box = document.getElementById("ladder"), rows = D.time.length;
  const timed = (name, act, times = 1) => {
    const began = performance.now();
    for (let k = 0; k < times; k++) { act(k / times); document.body.offsetHeight; }
    told[name] = (performance.now() - began) / times;
  };
  timed("draw", part => { box.scrollTop = part * box.scrollHeight; draw(); }, 50);
  timed("filter", () => { document.getElementById("filter").value = "tone:ack host:10.0.0.1"; refresh(); });
  told.shown = shown.length;
  timed("whole", () => { document.getElementById("filter").value = ""; refresh(); });
  timed("find", () => { document.getElementById("search").value = "write"; search(true); });
  told.found = found.length;
  return {...told, rows};
}
"""


def measure(quick: bool, folder: Path) -> Iterator[Figure]:
    """Yield the figures. There is none of a browser without chromium-headless-shell or chromium."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    packets = PACKETS // 10 if quick else PACKETS
    path, page = folder / "report.pcapng", folder / "report.html"
    generate(profile.load("mixed"), str(path), packets=packets)
    began = process_time()
    open_captures(path).report(page)
    what = f"page of {packets:,} packets"
    yield Figure("report", f"{what}: written, CPU", (process_time() - began) * 1e3, "ms", _WRITE, most=True)
    if chromium is None:
        return
    probe = (
        "<script>(async () => { const told = document.createElement('output');"
        f"told.textContent = JSON.stringify(await ({_TIMES})()); document.body.append(told); }})()</script></body>"
    )
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", probe), encoding="utf-8")
    arguments = ["--no-sandbox", "--disable-gpu", "--window-size=1400,900", f"--user-data-dir={folder / 'chromium'}"]
    done = subprocess.run([chromium, *arguments, "--dump-dom", str(page)], capture_output=True, text=True, check=True)
    times = json.loads(re.findall("<output>(.*?)</output>", done.stdout, re.DOTALL)[0])
    if times["rows"] != packets or not times["shown"] or not times["found"]:
        raise LocalError(f"bench: the page shows {times}", id="bench-failed")
    for name, key, limit in (
        ("opens in headless Chromium", "open", _OPEN), ("jumps and draws", "draw", _DRAW),
        ("filters", "filter", _FILTER), ("finds", "find", _FIND),
    ):  # fmt: skip
        yield Figure("report", f"{what}: {name}", times[key], "ms", limit, most=True)
