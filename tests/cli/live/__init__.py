# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the commands on live links."""
