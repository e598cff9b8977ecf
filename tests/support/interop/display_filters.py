# SPDX-License-Identifier: GPL-2.0-only
"""This module asks tshark with the plugin which frames display filters let through, many filters in one run.

Each filter becomes a listener of a Lua script. Lua registers the plugin's fields only after all scripts are loaded, so
the listeners are made when the first capture is opened.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.support.interop.tshark import run
from uetproto.wireshark import PLUGIN

Frames = list[int] | None
"""Numbers of the frames that a filter lets through; None: the filter is refused."""

_SCRIPT = """
local found, keep, made = {}, {}, false
local asker = Proto("uetproto_filters", "asks filters")
function asker.init()
  if made then return end
  made = true
  for number, text in ipairs(FILTERS) do
    local good, listener = pcall(Listener.new, "frame", text)
    if good then
      found[number], keep[number] = {}, listener
      function listener.packet(pinfo) table.insert(found[number], pinfo.number) end
      function listener.reset() found[number] = {} end
      function listener.draw() end
    end
  end
end
local last = Listener.new("frame")
function last.draw()
  for number in ipairs(FILTERS) do
    print("=> " .. number .. " " .. (found[number] and table.concat(found[number], " ") or "refused"))
  end
end
"""


def asked(capture: Path, filters: Sequence[str], home: Path, *options: str) -> list[Frames]:
    """Return what tshark says of each filter, in two passes."""
    texts = "\n".join(f"  [=====[{text}]=====]," for text in filters)
    script = home / "filters.lua"
    script.write_text(f"local FILTERS = {{\n{texts}\n}}\n{_SCRIPT}", encoding="utf-8")
    # The filter makes tshark tell interfaces to the plugin in the first pass (docs/reference/analysis.md).
    out, _ = run(["-q", "-2", "-r", capture, "-Y", "frame", *options], home, scripts=(PLUGIN, script))
    rows = dict(re.findall(r"^=> (\d+) ?(.*)$", out, re.MULTILINE))
    assert len(rows) == len(filters), out
    said = [rows[str(number)] for number in range(1, len(filters) + 1)]
    return [None if text == "refused" else [int(word) for word in text.split()] for text in said]
