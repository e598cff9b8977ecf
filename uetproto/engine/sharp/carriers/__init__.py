# SPDX-License-Identifier: GPL-2.0-only
"""A carrier sends SHARP messages over RoCE queue pairs, or over reserved PDCs of UET."""
