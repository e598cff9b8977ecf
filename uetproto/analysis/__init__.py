# SPDX-License-Identifier: GPL-2.0-only
"""This package is the door for Python programs: it opens captures, and gives packets, flows, findings and drawings.

capture.py       `open_captures`, which is `uetproto.open`, and `Capture`
sources.py       where a capture is from: path, bytes, open file; several, merged by time
decoding.py      settings by which records are decoded; `opened.py` opens sealed packets
packet_view.py   `PacketView`, a packet of a capture
row_views.py     tables of flows and messages
results.py       what `audit`, `stats` and `ladder` return
html.py          all of it as HTML, for notebooks
commands.py      `uetproto.run`, `generate`, `collective`, `fabric`
"""
