"""The numbered invariants of pds.md §18, by number; one module for each heading of that section."""

from uetproto.check.registry import INVARIANTS, Invariant, Mishap, Plan, Scope, Violation, plan
from uetproto.check.uet import invariants_delivery, invariants_liveness, invariants_numbers, invariants_protocol

MODULES = (invariants_numbers, invariants_delivery, invariants_protocol, invariants_liveness)
"""Each registers its own."""

__all__ = ["INVARIANTS", "MODULES", "Invariant", "Mishap", "Plan", "Scope", "Violation", "plan"]
