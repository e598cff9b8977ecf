# SPDX-License-Identifier: GPL-2.0-only
"""This package has the SHARP aggregation manager, and the agents by which it configures aggregation nodes."""
