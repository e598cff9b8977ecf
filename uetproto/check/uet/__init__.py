# SPDX-License-Identifier: GPL-2.0-only
"""This package simulates UET endpoints. It has the simulator with its steps, the step generator, the invariants with
their shadow state, and the episodes."""
