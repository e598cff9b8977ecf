# SPDX-License-Identifier: GPL-2.0-only
"""Tests of live links."""
