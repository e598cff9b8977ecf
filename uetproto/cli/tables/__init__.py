# SPDX-License-Identifier: GPL-2.0-only
"""This package has the commands `uetproto export` and `query`, and chosen fields of `uetproto dissect`."""
