# SPDX-License-Identifier: GPL-2.0-only
"""This module has a frame over IPv4 and UDP that breaks no rule."""

from tests.support.audit import frames as f

V4 = f.LOWER["ipv4"]
GOOD = f.frame(*V4, f.REQUEST, f.WRITE)
