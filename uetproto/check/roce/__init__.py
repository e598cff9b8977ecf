# SPDX-License-Identifier: GPL-2.0-only
"""This package simulates RoCE queue pairs. It has the simulator with its steps, the step generator, the invariants and
the episodes."""
