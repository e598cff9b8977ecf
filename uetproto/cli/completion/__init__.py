# SPDX-License-Identifier: GPL-2.0-only
"""This package has the command `uetproto completion`, and what shells complete."""
