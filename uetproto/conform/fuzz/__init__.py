# SPDX-License-Identifier: GPL-2.0-only
"""This package fuzzes a live peer: random right and wrong packets, each with what the pages allow as its answer.

`model.py` knows what one end can know of the other: which packets it has received, what its memory holds. It writes
moves as the steps of a conformance test; `roce_model.py` does the same for queue pairs. `search.py` plays such tests,
and makes small what breaks.
"""
