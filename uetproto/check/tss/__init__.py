# SPDX-License-Identifier: GPL-2.0-only
"""This package simulates a secure domain (TSS) under attack. It has the simulator with its steps, the step generator,
the invariants and the episodes."""
