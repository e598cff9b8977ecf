# SPDX-License-Identifier: GPL-2.0-only
"""This package has the commands on a real link: `serve`, `send`, `ping`, `probe` and `capture`."""
