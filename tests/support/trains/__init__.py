# SPDX-License-Identifier: GPL-2.0-only
"""Random runs with trains and without: `draw` makes them, `play` plays them, `difference` tells what differs."""
