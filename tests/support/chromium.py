# SPDX-License-Identifier: GPL-2.0-only
"""This module opens pages in headless Chromium: what a script finds in one, and what the console says."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium is not installed")


class OpenedPage(NamedTuple):
    """What a page was like."""

    found: Any
    """What the script returned."""
    console: list[str]
    """Lines of the console."""


def opened(html: str, place: Path, script: str, *arguments: str) -> OpenedPage:
    """Open a page, run a script in it, which is a function that may be async, and return what it found. Timers of the
    page do not wait."""
    probe = (
        "<script>(async () => { const told = document.createElement('output');"
        f"told.textContent = JSON.stringify(await (\n{script}\n)()); document.body.append(told); }})()</script></body>"
    )
    file = place / "page.html"
    file.write_text(html.replace("</body>", probe), encoding="utf-8")
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={place / 'profile'}",
        "--virtual-time-budget=10000", *arguments, "--dump-dom", str(file),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    [found] = re.findall(r"<output>(.*?)</output>", done.stdout, re.DOTALL)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return OpenedPage(json.loads(found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")), console)
