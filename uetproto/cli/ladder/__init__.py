# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto ladder`, which draws message sequence charts as text and as SVG."""
