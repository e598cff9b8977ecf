# SPDX-License-Identifier: GPL-2.0-only
"""This package makes a page of a capture: one HTML file with ladder, plots, findings and measurements, that needs
nothing else (docs/howto/report.md).

data.py     `collect` turns packets, findings and measurements into what the page holds, as JSON
packets.py  what the page has of each packet beside its arrow: first bytes, headers, flow, relative PSN
frame.py    the frame of such pages, also of `uetproto conform --html`
page.py     `page` puts data, style and program into one file
page.css, page.js  style and program of the page; it draws only rows in sight
"""
