# SPDX-License-Identifier: GPL-2.0-only
"""This package converts the bytes of frames to named values and back, by one table for each header."""
