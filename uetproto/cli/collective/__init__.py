# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto collective`: options, runs, reports and plots."""
