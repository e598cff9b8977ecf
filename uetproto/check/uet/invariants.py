# SPDX-License-Identifier: GPL-2.0-only
"""This module collects the invariants of pds.md §18 by number. Each heading of that section has a module."""

from functools import lru_cache

from uetproto.check.registry import Disruption
from uetproto.check.uet import invariants_delivery, invariants_liveness, invariants_numbers, invariants_protocol
from uetproto.check.uet.registry import PDS, CheckPlan
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Mode

MODULES = (invariants_numbers, invariants_delivery, invariants_protocol, invariants_liveness)

INVARIANTS = PDS.entries
"""Maps the number of an invariant in pds.md §18 to its entry in the registry."""


@lru_cache(maxsize=1024)
def plan(config: PdsConfig, mode: Mode, disruptions: Disruption = Disruption.NONE) -> CheckPlan:
    """Return the checks that apply to all PDCs of this configuration and mode after `disruptions`."""
    return CheckPlan(config, mode, disruptions)
