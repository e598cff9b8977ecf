# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto diff`, which compares two captures: options, text side by side, JUnit."""
