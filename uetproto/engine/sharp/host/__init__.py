# SPDX-License-Identifier: GPL-2.0-only
"""This package is the SHARP host, which joins groups and runs collectives on them."""
