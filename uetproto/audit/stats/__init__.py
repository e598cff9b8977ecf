# SPDX-License-Identifier: GPL-2.0-only
"""This package measures the traffic in captures, for `uetproto stats` and for plots."""
