# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto report`, which writes a page of a capture."""
