# SPDX-License-Identifier: GPL-2.0-only
"""This package describes headers in words. `uetproto dissect`, ladders and Scapy layers print these words in one
line."""
