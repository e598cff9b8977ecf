# SPDX-License-Identifier: GPL-2.0-only
"""Hosts, aggregation nodes, agents and the manager together under whatever may happen (sharp.md §6, 5–9 and 11–25)."""

from hypothesis import HealthCheck, settings

from tests.support.effort import effort
from uetproto.testing.machines.fabrics.sharp import SharpMachine

TestTogether = SharpMachine.TestCase
TestTogether.settings = settings(
    max_examples=effort(40, 150, settings.default.max_examples),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
