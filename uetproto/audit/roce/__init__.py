# SPDX-License-Identifier: GPL-2.0-only
"""This package has the tracker of RoCE queue pairs, and the rules that judge its events."""
