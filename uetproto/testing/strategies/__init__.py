# SPDX-License-Identifier: GPL-2.0-only
"""This package has the Hypothesis strategies of `uetproto.testing`. They draw legal values, or values with one
fault."""
