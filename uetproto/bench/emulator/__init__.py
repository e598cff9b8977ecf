# SPDX-License-Identifier: GPL-2.0-only
"""This package measures the emulator for `uetproto bench --only emulator,scale`: before trains and now, and with many
hosts and PDCs."""
