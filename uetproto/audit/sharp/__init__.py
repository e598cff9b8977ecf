# SPDX-License-Identifier: GPL-2.0-only
"""This package has the tracker of SHARP groups, and the rules that judge its events."""
