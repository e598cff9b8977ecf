# SPDX-License-Identifier: GPL-2.0-only
"""This package measures how fast the library is on this machine (`uetproto bench`). Each module has one subject."""
