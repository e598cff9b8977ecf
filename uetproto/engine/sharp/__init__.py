# SPDX-License-Identifier: GPL-2.0-only
"""SHARP reduces vectors in the network. This package has its messages, aggregation nodes, hosts and manager."""
