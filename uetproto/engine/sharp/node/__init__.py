# SPDX-License-Identifier: GPL-2.0-only
"""This package is the aggregation node, which reduces vectors in a switch. It has groups, operations, locks and
resources."""
