# SPDX-License-Identifier: GPL-2.0-only
"""This package is the filter language of commands and of `Capture.filter`: Wireshark's display filters over the names
of the plugin (interfaces.md §12).

syntax.py      words of a filter, and the tree that they make
fields.py      the names of fields, their kinds, and where their values are
literals.py    values that are written in a filter, by the kind of the field
predicate.py   a tree becomes a function of a packet
display_filter.py    `DisplayFilter`, a filter that was checked; `FilteredPacket`, what it looks at
"""
